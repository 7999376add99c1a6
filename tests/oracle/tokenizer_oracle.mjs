// Compares `vesta tokenize` with the JavaScript tokenizers library on a tokenizer.json, by hand, not as part of ./check:
// it needs Node, a network and a checkpoint.
//
//   npm install @huggingface/tokenizers
//   vesta convert --from CHECKPOINT --out M.gguf
//   node tests/oracle/tokenizer_oracle.mjs build/release/vesta M.gguf CHECKPOINT/tokenizer.json [COUNT]
//
// The strings are seeded. The library uses the Unicode version of Node, so all characters are from blocks that were
// complete before Unicode 14 (the version of src/tokenizer/unicode_categories.h).
import {execFileSync} from "node:child_process";
import {createRequire} from "node:module";
import {readFileSync} from "node:fs";

const {Tokenizer} = createRequire(process.cwd() + "/")("@huggingface/tokenizers");
const [vesta, model, tokenizerJson, count = "2000"] = process.argv.slice(2);
const json = JSON.parse(readFileSync(tokenizerJson, "utf8"));
const reference = new Tokenizer(json, {});

let state = 20260211;  // xorshift32: the same strings on every machine
const below = (n) => {
    state ^= state << 13, state ^= state >>> 17, state ^= state << 5;
    return (state >>> 0) % n;
};
const pick = (list) => list[below(list.length)];

const blocks = [
    [0x61, 0x7a], [0x61, 0x7a], [0x41, 0x5a], [0x30, 0x39], [0x21, 0x2f], [0x3a, 0x40], [0x5b, 0x60], [0x7b, 0x7e],
    [0xa1, 0xff], [0xa1, 0xff], [0x100, 0x17f], [0x300, 0x36f], [0x3b1, 0x3c9], [0x410, 0x44f], [0x5d0, 0x5ea],
    [0x621, 0x64a], [0x660, 0x669], [0x905, 0x94d], [0xe01, 0xe3a], [0x2010, 0x2027], [0x2150, 0x218b], [0x2190, 0x22ff],
    [0x2581, 0x2581], [0x3001, 0x3029], [0x3041, 0x3096], [0x3099, 0x30ff], [0x4e00, 0x9fa6], [0xac00, 0xd7a3],
    [0xff01, 0xff5e], [0x1d7ce, 0x1d7ff], [0x1f300, 0x1f5ff], [0x20000, 0x20fff], [0xe0100, 0xe01ef],
];
const spaces = [" ", " ", " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", " \n", "\u00a0", "\u2003", "\u3000", "\u0085", "\u200b",
                "\u200d", "\ufeff", "\u0001", "\u000b", "\u001c", ""];
const words = ["the", "Rome", "don't", "I'LL", "x=1", "->", "::", "func(a, b)", "3.14159", "2026-02-11", "{\"k\": [1, 2]}",
               "<b>", "http://a.b/c?d=e", "#include", "/* ok */", "così", "perché", "naïve", "ΑΒΓ", "привет", "你好", "カタカナ・",
               "👩‍👩‍👧", "e\u0301", "~~~", " ~", "...", "$100", "50%", "_id_", "\\n", "｜", "▁"];
const specials = json.added_tokens.map((t) => t.content);

function randomText() {
    let text = "";
    for (let n = 1 + below(12); n > 0; --n) {
        const kind = below(10);
        if (kind < 4) text += pick(words);
        else if (kind < 8) {
            const [first, last] = pick(blocks);
            for (let i = 1 + below(6); i > 0; --i) text += String.fromCodePoint(first + below(last - first + 1));
        } else if (kind === 8) text += pick(specials);
        text += pick(spaces);
    }
    return text;
}

let different = 0;
for (let i = 0; i < Number(count); ++i) {
    const text = randomText();
    const expected = reference.encode(text, {add_special_tokens: false}).ids.join(" ");
    const run = (args, input) => execFileSync(vesta, ["tokenize", "-m", model, ...args], {input}).toString();
    const found = run(["--specials", "--ids"], text).trim();
    const back = run(["--decode"], found);
    if (found === expected && back === text) continue;
    if (++different <= 5) console.log(JSON.stringify({text, expected, found, back: back === text}));
}
console.log(`${count} strings, ${different} different`);
process.exit(different === 0 ? 0 : 1);
