#include "convert/vocabulary.h"

#include <algorithm>
#include <unordered_set>

#include "safetensors/strict_json.h"

namespace vesta::convert {
namespace {

using nlohmann::json;
using safetensors::shown;

// The three passes of the DeepSeek V3 pre-tokenizer, known in GGUF files as "joyai-llm".
constexpr const char* kSplits[] = {
    R"(\p{N}{1,3})",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
     " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
};

const json& member(const json& object, const char* key) {
    static const json kNull;
    if (!object.is_object()) return kNull;
    const auto it = object.find(key);
    return it == object.end() ? kNull : *it;
}

std::string text_of(const json& v) { return v.is_string() ? v.get<std::string>() : std::string(); }
bool is_true(const json& v) { return v.is_boolean() && v.get<bool>(); }

Error unsupported(const std::string& name, std::string_view what) {
    return Error{Code::unsupported, strf("{}: {}", name, what)};
}
Error bad(const std::string& name, std::string_view what) { return Error{Code::bad_file, strf("{}: {}", name, what)}; }

Status check_pre_tokenizer(const json& pre, const std::string& name) {
    const json& list = member(pre, "pretokenizers");
    if (member(pre, "type") != "Sequence" || !list.is_array() || list.size() != std::size(kSplits) + 1)
        return unsupported(name, "pre_tokenizer: expected a Sequence of three Split steps and ByteLevel");
    for (size_t i = 0; i < std::size(kSplits); ++i) {
        const json& step = list[i];
        if (member(step, "type") != "Split" || member(step, "behavior") != "Isolated" ||
            is_true(member(step, "invert")) || member(member(step, "pattern"), "Regex") != kSplits[i])
            return unsupported(name,
                               strf("pre_tokenizer: step {} is not the split of the DeepSeek V3 tokenizer", i + 1));
    }
    const json& last = list.back();
    if (member(last, "type") != "ByteLevel" || is_true(member(last, "add_prefix_space")) ||
        member(last, "use_regex") != false)
        return unsupported(name, "pre_tokenizer: the last step is not ByteLevel without prefix space and regex");
    return {};
}

Status check_kind(const json& t, const std::string& name) {
    if (!t.is_object()) return bad(name, "not a JSON object");
    const json& model = member(t, "model");
    if (member(model, "type") != "BPE") return unsupported(name, "model: only BPE is known");
    if (is_true(member(model, "byte_fallback")) || is_true(member(model, "ignore_merges")) ||
        !text_of(member(model, "continuing_subword_prefix")).empty() ||
        !text_of(member(model, "end_of_word_suffix")).empty() || member(model, "dropout").is_number())
        return unsupported(name,
                           "model: byte_fallback, ignore_merges, dropout, prefixes and suffixes are not supported");
    const json& normalizer = member(t, "normalizer");
    const bool empty_sequence = member(normalizer, "type") == "Sequence" && member(normalizer, "normalizers").empty();
    if (!normalizer.is_null() && !empty_sequence) return unsupported(name, "a normalizer is not supported");
    return check_pre_tokenizer(member(t, "pre_tokenizer"), name);
}

Status read_added_tokens(const json& added, uint32_t n_vocab, const std::string& name, Vocabulary& v) {
    if (added.is_null()) return {};
    if (!added.is_array()) return bad(name, "added_tokens is not an array");
    for (const json& a : added) {
        const json& id_value = member(a, "id");
        const std::string content = text_of(member(a, "content"));
        if (!id_value.is_number_unsigned() || content.empty())
            return bad(name, "added_tokens: an entry lacks its id or content");
        const auto id = id_value.get<uint64_t>();
        if (id >= n_vocab)
            return bad(name, strf("added token \"{}\" has id {}, but the model has only {} rows", shown(content), id,
                                  n_vocab));
        std::string& slot = v.tokens[id];
        if (!slot.empty() && slot != content)
            return bad(name, strf("id {} is both \"{}\" and \"{}\"", id, shown(slot), shown(content)));
        for (const char* rule : {"single_word", "lstrip", "rstrip"})
            if (is_true(member(a, rule)))
                return unsupported(name, strf("added token \"{}\": {} is not supported", shown(content), rule));
        slot = content;
        v.types[id] =
            static_cast<int32_t>(is_true(member(a, "special")) ? TokenType::control : TokenType::user_defined);
    }
    return {};
}

Status read_merges(const json& merges, const std::unordered_set<std::string>& known, const std::string& name,
                   Vocabulary& v) {
    if (!merges.is_array()) return bad(name, "model.merges is not an array");
    v.merges.reserve(merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
        const json& m = merges[rank];
        std::string left, right;  // either ["A", "B"] or "A B"; a token has no space in its byte-level spelling
        if (m.is_array() && m.size() == 2) {
            left = text_of(m[0]), right = text_of(m[1]);
        } else if (m.is_string()) {
            const auto& text = m.get_ref<const std::string&>();
            const size_t space = text.find(' ');
            if (space != std::string::npos) left = text.substr(0, space), right = text.substr(space + 1);
        }
        if (left.empty() || right.empty() || right.find(' ') != std::string::npos ||
            left.find(' ') != std::string::npos)
            return bad(name, strf("merge {} is not a pair of tokens", rank));
        for (const std::string& token : {left, right, left + right})
            if (!known.contains(token))
                return bad(name, strf("merge {} (\"{}\" \"{}\"): \"{}\" is not in the vocabulary", rank, shown(left),
                                      shown(right), shown(token)));
        v.merges.push_back(left + " " + right);
    }
    return {};
}

}  // namespace

Result<Vocabulary> read_vocabulary(const json& t, uint32_t n_vocab, uint32_t eos_token, const std::string& pad_token,
                                   const std::string& name) {
    VESTA_TRY_STATUS(check_kind(t, name));
    Vocabulary v;
    v.tokens.resize(n_vocab);
    v.types.assign(n_vocab, static_cast<int32_t>(TokenType::normal));
    const json& vocab = member(member(t, "model"), "vocab");
    if (!vocab.is_object() || vocab.empty()) return bad(name, "model.vocab is not an object of tokens");
    std::unordered_set<std::string> known;
    for (const auto& [token, id_value] : vocab.items()) {
        if (token.empty()) return bad(name, "model.vocab has an empty token");
        if (!id_value.is_number_unsigned() || id_value.get<uint64_t>() >= n_vocab)
            return bad(name, strf("token \"{}\" has id {}, but the model has {} rows", shown(token),
                                  shown(id_value.dump(-1, ' ', true), 40), n_vocab));
        std::string& slot = v.tokens[id_value.get<uint64_t>()];
        if (!slot.empty())
            return bad(name, strf("tokens \"{}\" and \"{}\" share id {}", shown(slot), shown(token),
                                  id_value.get<uint64_t>()));
        slot = token;
        known.insert(token);
    }
    VESTA_TRY_STATUS(read_added_tokens(member(t, "added_tokens"), n_vocab, name, v));
    VESTA_TRY_STATUS(read_merges(member(member(t, "model"), "merges"), known, name, v));

    // Text must find one id: an added token may repeat a vocabulary entry under the same id only.
    std::unordered_set<std::string_view> spelled;
    for (uint32_t id = 0; id < n_vocab; ++id)
        if (!v.tokens[id].empty() && !spelled.insert(v.tokens[id]).second)
            return bad(name, strf("token \"{}\" has two ids, one of them {}", shown(v.tokens[id]), id));
    for (uint32_t id = 0; id < n_vocab; ++id) {
        if (!v.tokens[id].empty()) continue;
        std::string filler = strf("<|unused {}|>", id);  // the space keeps it out of reach of any byte-level spelling
        while (spelled.contains(filler)) filler += '_';
        v.tokens[id] = filler;
        v.types[id] = static_cast<int32_t>(TokenType::unused);
        ++v.n_placeholder;
    }

    v.padding_token = eos_token;
    for (const std::string& pad : {pad_token, std::string("<｜▁pad▁｜>")}) {
        const auto it = std::find(v.tokens.begin(), v.tokens.end(), pad);
        if (pad.empty() || it == v.tokens.end()) continue;
        v.padding_token = static_cast<uint32_t>(it - v.tokens.begin());
        break;
    }
    return v;
}

void write_vocabulary(const Vocabulary& v, uint32_t bos_token, uint32_t eos_token, gguf::Writer& w) {
    w.add_string("tokenizer.ggml.model", "gpt2");
    w.add_string("tokenizer.ggml.pre", "joyai-llm");
    w.add_strings("tokenizer.ggml.tokens", v.tokens);
    w.add_i32_array("tokenizer.ggml.token_type", v.types);
    w.add_strings("tokenizer.ggml.merges", v.merges);
    w.add_u32("tokenizer.ggml.bos_token_id", bos_token);
    w.add_u32("tokenizer.ggml.eos_token_id", eos_token);
    w.add_u32("tokenizer.ggml.padding_token_id", v.padding_token);
    w.add_bool("tokenizer.ggml.add_bos_token", false);  // the prompt renderer writes it
}

}  // namespace vesta::convert
