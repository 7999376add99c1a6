#include "tokenizer/held.h"

#include <algorithm>

namespace vesta::tokenizer {
namespace {

// A place in a prompt. Neighbouring text segments are one text for this purpose: a sampled token may span both.
struct Place {
    size_t segment = 0, offset = 0;
};

class Walk {
 public:
    explicit Walk(std::span<const Segment> prompt) : prompt_(prompt) { skip_ends(); }

    bool at_end() const { return at_.segment == prompt_.size(); }
    Place place() const { return at_; }

    bool take_control(std::string_view spelling) {
        if (at_end() || at_.offset > 0 || !prompt_[at_.segment].control || prompt_[at_.segment].text != spelling)
            return false;
        ++at_.segment;
        skip_ends();
        return true;
    }
    bool take_text(std::string_view bytes) {
        const Place before = at_;
        while (!bytes.empty()) {
            if (at_end() || prompt_[at_.segment].control) break;
            const std::string_view left = std::string_view(prompt_[at_.segment].text).substr(at_.offset);
            const size_t n = std::min(left.size(), bytes.size());
            if (left.substr(0, n) != bytes.substr(0, n)) break;
            bytes.remove_prefix(n);
            at_.offset += n;
            skip_ends();
        }
        if (!bytes.empty()) at_ = before;
        return bytes.empty();
    }

 private:
    // Past the end of a text segment, and past empty ones.
    void skip_ends() {
        while (!at_end() && !prompt_[at_.segment].control && at_.offset == prompt_[at_.segment].text.size())
            at_ = {at_.segment + 1, 0};
    }

    std::span<const Segment> prompt_;
    Place at_;
};

std::vector<Segment> from(std::span<const Segment> prompt, Place at) {
    std::vector<Segment> rest;
    for (size_t i = at.segment; i < prompt.size(); ++i) {
        rest.push_back(prompt[i]);
        if (i == at.segment) rest.back().text.erase(0, at.offset);
    }
    return rest;
}

}  // namespace

Held held_prefix(const Tokenizer& tokenizer, std::span<const int32_t> held, std::span<const Segment> prompt) {
    Walk walk(prompt);
    Place after_special = walk.place();
    size_t n = 0, n_after_special = 0;
    std::string bytes;
    for (; n < held.size(); ++n) {
        bytes.clear();
        tokenizer.append_token_bytes(held[n], bytes);
        const bool special = tokenizer.is_special(held[n]);
        if (!(special ? walk.take_control(bytes) : walk.take_text(bytes))) break;
        if (special) n_after_special = n + 1, after_special = walk.place();
    }
    if (n == held.size() || walk.at_end()) return {n, from(prompt, walk.place())};
    return {n_after_special, from(prompt, after_special)};
}

}  // namespace vesta::tokenizer
