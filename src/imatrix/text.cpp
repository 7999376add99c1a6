#include "imatrix/text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace vesta::imatrix {
namespace {

constexpr std::string_view kMarkers[] = {"===== VESTA_PROMPT", "===== DS4_IMATRIX_PROMPT"};

bool is_marker(std::string_view line) {
    return std::any_of(std::begin(kMarkers), std::end(kMarkers), [&](auto m) { return line.starts_with(m); });
}

void add_text(std::string_view text, std::vector<std::string>& out) {
    if (text.find_first_not_of(" \t\r\n") != std::string_view::npos) out.emplace_back(text);
}

// Calls line(number from 1, text without its newline, offset of its first byte).
template <class F>
Status for_each_line(std::string_view bytes, F&& line) {
    size_t number = 0;
    for (size_t at = 0; at < bytes.size();) {
        const size_t end = std::min(bytes.find('\n', at), bytes.size());
        VESTA_TRY_STATUS(line(++number, bytes.substr(at, end - at), at));
        at = end + 1;
    }
    return {};
}

Result<std::vector<std::string>> split_jsonl(std::string_view bytes, const std::string& name) {
    std::vector<std::string> texts;
    const auto line = [&](size_t number, std::string_view text, size_t) -> Status {
        if (text.find_first_not_of(" \t\r") == std::string_view::npos) return {};
        const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
        if (!json.is_object()) return Error{Code::bad_file, strf("{}:{}: not a JSON object", name, number)};
        for (const char* key : {"prompt", "text"}) {
            const auto field = json.find(key);
            if (field == json.end()) continue;
            if (!field->is_string())
                return Error{Code::bad_file, strf("{}:{}: \"{}\" is not a string", name, number, key)};
            add_text(field->get_ref<const std::string&>(), texts);
            return {};
        }
        return Error{Code::bad_file, strf("{}:{}: neither \"prompt\" nor \"text\"", name, number)};
    };
    VESTA_TRY_STATUS(for_each_line(bytes, line));
    return texts;
}

}  // namespace

Result<std::vector<std::string>> split_texts(std::string_view bytes, const std::string& name) {
    if (name.ends_with(".jsonl")) return split_jsonl(bytes, name);
    std::vector<std::string> texts;
    size_t begin = 0;
    bool marked = false;
    const auto end_text = [&](size_t end, bool before_marker) {
        std::string_view text = bytes.substr(begin, end - begin);
        // A prompt ends where it ends; the newlines that keep markers on lines of their own are not part of it.
        if (before_marker || marked) text = text.substr(0, text.find_last_not_of("\r\n") + 1);
        add_text(text, texts);
    };
    VESTA_TRY_STATUS(for_each_line(bytes, [&](size_t, std::string_view line, size_t at) -> Status {
        if (!is_marker(line)) return {};
        end_text(at, true);
        begin = std::min(at + line.size() + 1, bytes.size());
        marked = true;
        return {};
    }));
    end_text(bytes.size(), false);
    return texts;
}

void append_sequences(const tokenizer::Tokenizer& tokenizer, std::string_view text, int64_t n_ctx,
                      std::vector<Sequence>& out) {
    VESTA_CHECK(n_ctx >= 2);
    std::vector<int32_t> ids;
    // The tokenizer takes 256 MB at once; a cut there costs one odd token.
    for (size_t at = 0; at < text.size(); at += tokenizer::Tokenizer::kMaxTextBytes)
        tokenizer.encode(text.substr(at, tokenizer::Tokenizer::kMaxTextBytes), tokenizer::SpecialMode::recognise, ids);
    const auto bos = tokenizer.bos();
    for (size_t at = 0; at < ids.size();) {
        Sequence s;
        if (bos && ids[at] != *bos) s.push_back(*bos);
        const size_t n = std::min(static_cast<size_t>(n_ctx) - s.size(), ids.size() - at);
        s.insert(s.end(), ids.begin() + static_cast<ptrdiff_t>(at), ids.begin() + static_cast<ptrdiff_t>(at + n));
        at += n;
        out.push_back(std::move(s));
    }
}

uint64_t hash_sequences(const std::vector<Sequence>& sequences, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    const auto add = [&](uint64_t v) {
        for (int byte = 0; byte < 8; ++byte) h = (h ^ ((v >> (8 * byte)) & 0xff)) * 0x100000001b3u;
    };
    for (size_t i = 0; i < std::min(n, sequences.size()); ++i) {
        add(sequences[i].size());
        for (const int32_t id : sequences[i]) add(static_cast<uint32_t>(id));
    }
    return h;
}

}  // namespace vesta::imatrix
