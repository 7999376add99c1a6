#include "score/manifest.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/utf8.h"
#include "score/base_file.h"

namespace vesta::score {
namespace {

using Json = nlohmann::ordered_json;

// The fields of one line, with messages that name it.
class Line {
 public:
    Line(Json object, std::string where) : object_(std::move(object)), where_(std::move(where)) {}

    Error bad(std::string what) const { return Error{Code::bad_file, strf("{}: {}", where_, std::move(what))}; }
    bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
    Result<std::string> string(const char* key, const char* otherwise = nullptr) const {
        if (!has(key) && otherwise != nullptr) return std::string(otherwise);
        if (!has(key)) return bad(strf("no '{}'", key));
        if (!object_[key].is_string()) return bad(strf("'{}' is {}, expected a string", key, object_[key].type_name()));
        return object_[key].get<std::string>();
    }
    Result<bool> boolean(const char* key, bool otherwise) const {
        if (!has(key)) return otherwise;
        if (!object_[key].is_boolean())
            return bad(strf("'{}' is {}, expected true or false", key, object_[key].type_name()));
        return object_[key].get<bool>();
    }
    Result<int64_t> integer(const char* key, int64_t low, int64_t high, int64_t otherwise) const {
        if (!has(key)) return otherwise;
        const Json& v = object_[key];
        if (!v.is_number_integer() || (v.is_number_unsigned() && v.get<uint64_t>() > static_cast<uint64_t>(high)) ||
            v.get<int64_t>() < low || v.get<int64_t>() > high)
            return bad(strf("'{}' is {}, expected an integer from {} to {}", key,
                            v.dump(-1, ' ', false, Json::error_handler_t::replace), low, high));
        return v.get<int64_t>();
    }
    Result<double> number(const char* key) const {
        if (!has(key) || !object_[key].is_number() || !std::isfinite(object_[key].get<double>()))
            return bad(strf("no finite number '{}'", key));
        return object_[key].get<double>();
    }
    // A string, or an integer spelled out.
    Result<std::string> id(std::string otherwise) const {
        if (!has("id")) return otherwise;
        if (object_["id"].is_number_integer()) return object_["id"].dump();
        return string("id");
    }

 private:
    Json object_;
    std::string where_;
};

// Calls f(Line, number) for every line that is not blank.
template <class F>
Status for_lines(std::string_view text, const std::string& name, F&& f) {
    int64_t number = 0;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        ++number;
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const std::string where = strf("{}, line {}", printable(name), number);
        Json object = Json::parse(line, nullptr, false);
        if (object.is_discarded() || !object.is_object())
            return Error{Code::bad_file, strf("{}: not a JSON object; expected one per line", where)};
        VESTA_TRY_STATUS(f(Line(std::move(object), where), number));
    }
    return {};
}

// Results are matched by id, so ids name one case.
class UniqueIds {
 public:
    Status add(const Line& line, const std::string& id) {
        if (seen_.insert(id).second) return {};
        return line.bad(strf("the id '{}' was used before", printable(id)));
    }

 private:
    std::unordered_set<std::string> seen_;
};

Result<Case> read_case(const Line& line, int64_t number) {
    Case c;
    VESTA_TRY(c.id, line.id(std::to_string(number)));
    VESTA_TRY(c.kind, line.string("kind", ""));
    VESTA_TRY(c.prompt, line.string("prompt"));
    VESTA_TRY(c.final_answer, line.string("final", ""));
    VESTA_TRY(c.max_tokens, line.integer("max_tokens", 1, 1 << 20, 0));
    if (line.has("continuation") == line.has("answer"))
        return line.bad("expected a 'continuation' or an 'answer', and not both");
    const bool is_answer = line.has("answer");
    VESTA_TRY(c.end, line.boolean("end", is_answer));
    VESTA_TRY(std::string wanted, line.string(is_answer ? "answer" : "continuation"));
    VESTA_TRY(const std::string match, line.string("match", "exact"));
    c.hash = hash_text(c.prompt + '\0' + wanted + '\0' + c.final_answer + '\0' + match + (c.end ? "\1" : ""));
    if (match == "regex") {
        c.pattern = Pattern::parse(wanted);
        if (!c.pattern)
            return line.bad(
                strf("the pattern '{}' is not of the form (?s)(?=.*WORD)...{{N,}}; other patterns are not "
                     "supported",
                     printable(wanted.substr(0, 80))));
        return c;
    }
    if (match != "exact") return line.bad(strf("match '{}'; expected exact or regex", printable(match.substr(0, 40))));
    if (wanted.empty() && !c.end) return line.bad("the continuation is empty");
    c.continuation = std::move(wanted);
    return c;
}

}  // namespace

std::optional<Pattern> Pattern::parse(std::string_view text) {
    Pattern p;
    const auto eat = [&](std::string_view part) {
        if (!text.starts_with(part)) return false;
        text.remove_prefix(part.size());
        return true;
    };
    if (!eat("(?s)")) return {};
    while (eat("(?=.*")) {
        const size_t close = text.find(')');
        if (close == std::string_view::npos) return {};
        const std::string_view word = text.substr(0, close);
        if (word.empty() || word.find_first_of("\\^$.|?*+([{") != std::string_view::npos) return {};
        p.words.emplace_back(word);
        text.remove_prefix(close + 1);
    }
    if (!eat(".{")) return {};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), p.n_char);
    if (error != std::errc() || p.n_char < 0) return {};
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text != ",}") return {};
    return p;
}

bool Pattern::matches(std::string_view text) const {
    for (const std::string& word : words)
        if (text.find(word) == std::string_view::npos) return false;
    int64_t n = 0;
    for (std::string_view rest = text; !rest.empty(); ++n)
        rest.remove_prefix(static_cast<size_t>(decode_utf8(rest).length));
    return n >= n_char;
}

Result<std::vector<Case>> parse_manifest(std::string_view text, const std::string& name) {
    std::vector<Case> cases;
    UniqueIds ids;
    const auto read = [&](const Line& line, int64_t number) -> Status {
        VESTA_TRY(Case c, read_case(line, number));
        VESTA_TRY_STATUS(ids.add(line, c.id));
        cases.push_back(std::move(c));
        return {};
    };
    VESTA_TRY_STATUS(for_lines(text, name, read));
    if (cases.empty())
        return Error{Code::bad_file, strf("{}: no cases in it; expected one JSON object per line", printable(name))};
    return cases;
}

std::string to_json_line(const CaseResult& r) {
    Json j;
    j["id"] = r.id;
    if (!r.kind.empty()) j["kind"] = r.kind;
    j["case"] = strf("{:016x}", r.hash);
    if (r.n_token > 0) {
        j["n_token"] = r.n_token;
        j["nll"] = r.nll;
        j["mean_nll"] = r.mean_nll();
        j["first_rank"] = r.first_rank;
        j["reproduced"] = r.reproduced;
    }
    if (r.correct) j["correct"] = *r.correct;
    if (!r.output.empty()) j["output"] = replace_invalid_utf8(r.output);
    return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::vector<CaseResult>> parse_results(std::string_view text, const std::string& name) {
    std::vector<CaseResult> results;
    UniqueIds ids;
    const auto read = [&](const Line& line, int64_t) -> Status {
        CaseResult r;
        if (!line.has("id")) return line.bad("no 'id'; expected a line of `vesta score --manifest ... --out`");
        VESTA_TRY(r.id, line.id(""));
        VESTA_TRY_STATUS(ids.add(line, r.id));
        VESTA_TRY(r.kind, line.string("kind", ""));
        VESTA_TRY(const std::string hash, line.string("case"));
        const auto [end, error] = std::from_chars(hash.data(), hash.data() + hash.size(), r.hash, 16);
        if (error != std::errc() || end != hash.data() + hash.size())
            return line.bad("'case' is no hexadecimal number");
        VESTA_TRY(r.n_token, line.integer("n_token", 1, int64_t{1} << 40, 0));
        if (r.n_token > 0) {
            VESTA_TRY(r.nll, line.number("nll"));
            VESTA_TRY(r.first_rank, line.integer("first_rank", 1, int64_t{1} << 40, 0));
            VESTA_TRY(r.reproduced, line.boolean("reproduced", false));
        }
        if (line.has("correct")) {
            VESTA_TRY(r.correct, line.boolean("correct", false));
        }
        VESTA_TRY(r.output, line.string("output", ""));
        results.push_back(std::move(r));
        return {};
    };
    VESTA_TRY_STATUS(for_lines(text, name, read));
    if (results.empty()) return Error{Code::bad_file, strf("{}: no results in it", printable(name))};
    return results;
}

}  // namespace vesta::score
