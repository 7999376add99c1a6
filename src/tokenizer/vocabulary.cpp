// Everything a vocabulary must satisfy is checked here, once, so that encode and decode need no error path. The rules
// that carry the promises in tokenizer.h: all 256 byte tokens exist (any input can be encoded), a merge's result is
// spelled as its parts together (decoding gives the input back), and no byte token and no merge result is special (text
// cannot forge a marker, whatever the file says).
#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"

namespace vesta::tokenizer {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;  // 130 times the largest vocabulary in use; ids must stay positive
constexpr uint32_t kNotMade = MergeTable::kNoRank;

// A token string in a message: short and printable, whatever the file holds.
std::string in_quotes(std::string_view s) {
    constexpr size_t kShown = 40;
    return strf("'{}{}'", printable(s.substr(0, kShown)), s.size() > kShown ? "…" : "");
}

// Markers by spelling, for files without token types and files that type them as normal.
bool spelled_as_marker(std::string_view s) {
    constexpr std::string_view kOpen = "<｜", kClose = "｜>";
    if (s.size() > kOpen.size() + kClose.size() && s.starts_with(kOpen) && s.ends_with(kClose)) return true;
    return s == "<think>" || s == "</think>" || s == "｜DSML｜" || s == "<|EOT|>";
}

}  // namespace

size_t TokenIndex::probe(const std::vector<std::string_view>& tokens, std::string_view text) const {
    const size_t mask = slots_.size() - 1;
    size_t at = std::hash<std::string_view>()(text) & mask;
    while (slots_[at] != -1 && tokens[static_cast<size_t>(slots_[at])] != text) at = (at + 1) & mask;
    return at;
}

std::optional<std::pair<int32_t, int32_t>> TokenIndex::build(const std::vector<std::string_view>& tokens) {
    slots_.assign(std::bit_ceil(std::max<size_t>(tokens.size() * 2, 2)), -1);
    for (size_t id = 0; id < tokens.size(); ++id) {
        int32_t& slot = slots_[probe(tokens, tokens[id])];
        if (slot != -1) return std::pair(slot, static_cast<int32_t>(id));
        slot = static_cast<int32_t>(id);
    }
    return std::nullopt;
}

int32_t TokenIndex::find(const std::vector<std::string_view>& tokens, std::string_view text) const {
    return slots_[probe(tokens, text)];
}

void SpecialMatcher::build(const std::vector<std::string_view>& tokens, std::vector<int32_t> ids) {
    ids_ = std::move(ids);
    std::sort(ids_.begin(), ids_.end(),
              [&](int32_t a, int32_t b) { return tokens[static_cast<size_t>(a)] < tokens[static_cast<size_t>(b)]; });
    for (const int32_t id : ids_) first_byte_[static_cast<unsigned char>(tokens[static_cast<size_t>(id)][0])] = true;
}

int32_t SpecialMatcher::match(const std::vector<std::string_view>& tokens, std::string_view text,
                              size_t& length) const {
    if (text.empty() || !first_byte_[static_cast<unsigned char>(text[0])]) return -1;
    const auto spelling = [&](int32_t id) { return tokens[static_cast<size_t>(id)]; };
    int32_t best = -1;
    auto lo = ids_.begin(), hi = ids_.end();  // the specials that begin with the bytes walked so far
    for (size_t depth = 0; depth < text.size() && lo != hi; ++depth) {
        // Within the range the one that ends here, if any, sorts first; the others are ordered by their next byte.
        const auto next_byte = [&](int32_t id) {
            return depth < spelling(id).size() ? static_cast<unsigned char>(spelling(id)[depth]) : -1;
        };
        const int wanted = static_cast<unsigned char>(text[depth]);
        lo = std::partition_point(lo, hi, [&](int32_t id) { return next_byte(id) < wanted; });
        hi = std::partition_point(lo, hi, [&](int32_t id) { return next_byte(id) == wanted; });
        if (lo != hi && spelling(*lo).size() == depth + 1) best = *lo, length = depth + 1;
    }
    return best;
}

Status Tokenizer::Data::build(const std::string& name, const std::vector<std::string_view>& merge_strings,
                              std::span<const int32_t> types) {
    if (!types.empty() && types.size() != tokens.size())
        return Error{Code::bad_file, strf("{}: {} token types for {} tokens; there must be one for each", name,
                                          types.size(), tokens.size())};
    VESTA_TRY_STATUS(index_tokens(name));
    std::vector<uint32_t> made_by(tokens.size(), kNotMade);  // the first merge that makes this token
    VESTA_TRY_STATUS(index_merges(name, merge_strings, made_by));
    return find_specials(name, types, made_by);
}

Status Tokenizer::Data::index_tokens(const std::string& name) {
    if (tokens.size() < 256 || tokens.size() > kMaxTokens)
        return Error{Code::bad_file,
                     strf("{}: {} tokens; a byte-level vocabulary has 256 to {}", name, tokens.size(), kMaxTokens)};
    for (size_t id = 0; id < tokens.size(); ++id)
        if (tokens[id].empty()) return Error{Code::bad_file, strf("{}: token {} is an empty string", name, id)};
    if (const auto twins = index.build(tokens))
        return Error{Code::bad_file,
                     strf("{}: tokens {} and {} are both {}; token strings must be distinct", name, twins->first,
                          twins->second, in_quotes(tokens[static_cast<size_t>(twins->first)]))};
    for (int b = 0; b < 256; ++b) {
        std::string spelling;
        append_utf8(spelling, kByteAlphabet.code_point_of[static_cast<size_t>(b)]);
        const int32_t id = index.find(tokens, spelling);
        if (id < 0)
            return Error{Code::bad_file, strf("{}: no token for byte 0x{:02X} (spelled {}); a byte-level vocabulary "
                                              "has one for each of the 256 bytes",
                                              name, b, in_quotes(spelling))};
        byte_ids[static_cast<size_t>(b)] = id;
    }
    return {};
}

Status Tokenizer::Data::index_merges(const std::string& name, const std::vector<std::string_view>& merge_strings,
                                     std::vector<uint32_t>& made_by) {
    if (merge_strings.size() >= kMaxTokens)
        return Error{Code::bad_file,
                     strf("{}: {} merges; at most {} are accepted", name, merge_strings.size(), kMaxTokens - 1)};
    merges = MergeTable(merge_strings.size());
    std::string joined;
    for (uint32_t rank = 0; rank < merge_strings.size(); ++rank) {
        const std::string_view merge = merge_strings[rank];
        const size_t space = merge.find(' ');
        if (space == 0 || space == std::string_view::npos || space + 1 == merge.size() ||
            merge.find(' ', space + 1) != std::string_view::npos)
            return Error{Code::bad_file, strf("{}: merge {} is {}; expected two token strings with one space between "
                                              "them",
                                              name, rank, in_quotes(merge))};
        const std::string_view part[2] = {merge.substr(0, space), merge.substr(space + 1)};
        joined.assign(part[0]).append(part[1]);
        const int32_t left = index.find(tokens, part[0]), right = index.find(tokens, part[1]);
        const int32_t result = index.find(tokens, joined);
        if (left < 0 || right < 0 || result < 0)
            return Error{Code::bad_file,
                         strf("{}: merge {} ({}): {} is not in the vocabulary", name, rank, in_quotes(merge),
                              in_quotes(left < 0    ? part[0]
                                        : right < 0 ? part[1]
                                                    : joined))};
        const uint32_t earlier = merges.insert(left, right, {rank, result});
        if (earlier != MergeTable::kNoRank)
            return Error{Code::bad_file, strf("{}: merge {} ({}) repeats merge {}; its rank would be ambiguous", name,
                                              rank, in_quotes(merge), earlier)};
        uint32_t& maker = made_by[static_cast<size_t>(result)];
        maker = std::min(maker, rank);
    }
    return {};
}

Status Tokenizer::Data::find_specials(const std::string& name, std::span<const int32_t> types,
                                      const std::vector<uint32_t>& made_by) {
    constexpr int32_t kControl = 3, kUserDefined = 4, kMaxType = 6;
    struct Role {
        const char* what;
        std::string_view by_spelling;
        std::optional<int32_t>& id;
    };
    special.assign(tokens.size(), false);
    std::vector<const char*> because(tokens.size(), nullptr);
    std::vector<bool> is_byte(tokens.size(), false);
    for (const int32_t id : byte_ids) is_byte[static_cast<size_t>(id)] = true;

    for (size_t id = 0; id < tokens.size(); ++id) {
        if (!types.empty() && (types[id] < 0 || types[id] > kMaxType))
            return Error{Code::bad_file,
                         strf("{}: token {} has type {}; types are 0 to {}", name, id, types[id], kMaxType)};
        if (!types.empty() && (types[id] == kControl || types[id] == kUserDefined))
            because[id] = types[id] == kControl ? "its type is 3, control" : "its type is 4, user-defined";
        else if (made_by[id] == kNotMade && spelled_as_marker(tokens[id]))
            special[id] = true;
    }
    for (const Role& role :
         {Role{"the bos token", "<｜begin▁of▁sentence｜>", bos}, Role{"the eos token", "<｜end▁of▁sentence｜>", eos},
          Role{"the padding token", "<｜▁pad▁｜>", pad}}) {
        if (role.id && (*role.id < 0 || static_cast<size_t>(*role.id) >= tokens.size()))
            return Error{Code::bad_file,
                         strf("{}: {} is {}, but ids end at {}", name, role.what, *role.id, tokens.size() - 1)};
        if (role.id) {
            because[static_cast<size_t>(*role.id)] = role.what;
        } else if (const int32_t id = index.find(tokens, role.by_spelling);
                   id >= 0 && made_by[static_cast<size_t>(id)] == kNotMade) {
            role.id = id;
        }
    }
    std::vector<int32_t> ids;
    for (size_t id = 0; id < tokens.size(); ++id) {
        if (because[id] != nullptr && (is_byte[id] || made_by[id] != kNotMade)) {
            const std::string source = is_byte[id] ? "it is a byte token" : strf("merge {} makes it", made_by[id]);
            return Error{Code::bad_file, strf("{}: token {} {} cannot be special ({}), because {}: ordinary text would "
                                              "turn into it",
                                              name, id, in_quotes(tokens[id]), because[id], source)};
        }
        if (because[id] != nullptr) special[id] = true;
        if (special[id]) ids.push_back(static_cast<int32_t>(id));
    }
    matcher.build(tokens, std::move(ids));
    return {};
}

}  // namespace vesta::tokenizer
