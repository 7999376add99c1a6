#!/usr/bin/env python3
"""Turns a Hugging Face tokenizer.json (byte-level BPE) into a GGUF file that holds nothing but the tokenizer.

    python3 tools/make_tokenizer_fixture.py tokenizer.json out.gguf
    zstd -19 --rm out.gguf

Made tests/data/tokenizer_dsv3.gguf.zst; tests/data/README.md says from which file. Not needed by build or tests.
Added tokens get type 3 (control) when the JSON calls them special, else 4 (user-defined); all others 1.
"""
import json
import struct
import sys

U32, I32, STRING, ARRAY = 4, 5, 8, 9


def string(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def scalar(key, kind, payload):
    return string(key) + struct.pack("<I", kind) + payload


def array(key, kind, items):
    return string(key) + struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(items)


def main():
    source, target = sys.argv[1], sys.argv[2]
    data = json.load(open(source, encoding="utf-8"))
    model = data["model"]
    assert model["type"] == "BPE" and not model.get("byte_fallback")
    token_of, type_of = {}, {}
    for text, token_id in model["vocab"].items():
        token_of[token_id], type_of[token_id] = text, 1
    for added in data["added_tokens"]:
        token_of[added["id"]] = added["content"]
        type_of[added["id"]] = 3 if added["special"] else 4
    n = len(token_of)
    assert sorted(token_of) == list(range(n)), "ids are not 0 .. n-1"
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    ids = {text: token_id for token_id, text in token_of.items()}
    entries = [
        scalar("general.architecture", STRING, string("tokenizer-only")),
        scalar("tokenizer.ggml.model", STRING, string("gpt2")),
        scalar("tokenizer.ggml.pre", STRING, string("deepseek-v3")),
        array("tokenizer.ggml.tokens", STRING, [string(token_of[i]) for i in range(n)]),
        array("tokenizer.ggml.token_type", I32, [struct.pack("<i", type_of[i]) for i in range(n)]),
        array("tokenizer.ggml.merges", STRING, [string(m) for m in merges]),
        scalar("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", ids["<｜begin▁of▁sentence｜>"])),
        scalar("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", ids["<｜end▁of▁sentence｜>"])),
    ]
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)
    with open(target, "wb") as out:
        out.write(header + b"\0" * (-len(header) % 32))
    print(f"{target}: {n} tokens, {len(merges)} merges, {len(header)} bytes")


if __name__ == "__main__":
    main()
