#include "convert/recipe.h"

#include <algorithm>
#include <map>
#include <regex>

#include "base/file.h"
#include "base/utf8.h"
#include "convert/embedded_recipes.h"

namespace vesta::convert {
namespace {

using quant::Type;

// A recipe is written by hand: these are a hundred times what anybody needs, and keep matching cheap.
constexpr size_t kMaxTextBytes = 64 << 10, kMaxLineBytes = 512, kMaxRules = 1000;
constexpr size_t kMaxExpressionBytes = 200;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '.' || c == '_' || c == '-';
}

// "3" or "0-12" inside braces; anything else is a literal.
struct Range {
    uint64_t low, high;
};
std::optional<Range> number_range(std::string_view item) {
    const auto number = [](std::string_view s) -> std::optional<uint64_t> {
        if (s.empty() || s.size() > 9 || (s.size() > 1 && s[0] == '0') || !std::all_of(s.begin(), s.end(), is_digit))
            return std::nullopt;
        uint64_t n = 0;
        for (const char c : s) n = n * 10 + static_cast<uint64_t>(c - '0');
        return n;
    };
    const size_t dash = item.find('-');
    const auto low = number(item.substr(0, dash));
    const auto high = dash == std::string_view::npos ? low : number(item.substr(dash + 1));
    if (!low || !high) return std::nullopt;
    return Range{*low, *high};
}

std::string_view trimmed(std::string_view s) {
    const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    while (!s.empty() && space(s.front())) s.remove_prefix(1);
    while (!s.empty() && space(s.back())) s.remove_suffix(1);
    return s;
}

// Calls f for the items of "{a,b}" without the braces; false when f said so.
template <class F>
bool each_item(std::string_view list, F f) {
    while (true) {
        const size_t comma = list.find(',');
        if (!f(list.substr(0, comma))) return false;
        if (comma == std::string_view::npos) return true;
        list.remove_prefix(comma + 1);
    }
}

// What is wrong with a pattern; empty when nothing is.
std::string pattern_problem(std::string_view p) {
    if (p.empty()) return "the pattern is empty";
    for (size_t i = 0; i < p.size(); ++i) {
        if (p[i] == '*' || is_name_char(p[i])) continue;
        if (p[i] == '}') return "'}' without '{'";
        if (p[i] != '{') return strf("'{}' cannot be in a pattern", printable(p.substr(i, 1)));
        const size_t end = p.find('}', i);
        if (end == std::string_view::npos) return "'{' without '}'";
        std::string problem;
        each_item(p.substr(i + 1, end - i - 1), [&](std::string_view item) {
            if (item.empty()) problem = "an empty alternative in braces";
            for (const char c : item)
                if (!is_name_char(c))
                    problem = strf("'{}' cannot be inside braces", printable(std::string_view(&c, 1)));
            const auto range = number_range(item);
            if (range && range->low > range->high) problem = strf("the range {} is empty", item);
            const bool numbers = std::all_of(item.begin(), item.end(), [](char c) { return is_digit(c) || c == '-'; });
            if (problem.empty() && numbers && !range) problem = strf("'{}' is no number and no range a-b", item);
            return problem.empty();
        });
        if (!problem.empty()) return problem;
        i = end;
    }
    return {};
}

// "q4_k" -> q4_k, "exact" -> nothing. Only formats that hold weights and that some build can write.
Result<std::optional<Type>> parse_type(std::string_view word) {
    if (word == "exact" || word == "native") return std::optional<Type>();
    static constexpr Type kTypes[] = {Type::f32,  Type::f16,  Type::bf16, Type::q8_0,  Type::q6_k,   Type::q5_k,
                                      Type::q4_k, Type::q3_k, Type::q2_k, Type::mxfp4, Type::iq2_xxs};
    std::string known = "exact";
    for (const Type t : kTypes) {
        if (word == quant::format(t).name) return std::optional(t);
        known += strf(", {}", quant::format(t).name);
    }
    return Error{Code::invalid_argument,
                 strf("'{}' is no format to quantize to; there are {}", printable(word), known)};
}

const std::vector<Recipe>& table() {
    static const std::vector<Recipe> kTable = [] {
        std::vector<Recipe> all;
        for (const EmbeddedRecipe& e : embedded_recipes()) {
            auto recipe = parse_recipe(e.text, e.name);
            if (!recipe.ok()) check_failed(__FILE__, __LINE__, "built-in recipe", recipe.error().message);
            all.push_back(std::move(recipe).value());
        }
        std::sort(all.begin(), all.end(), [](const Recipe& a, const Recipe& b) { return a.name < b.name; });
        return all;
    }();
    return kTable;
}

}  // namespace

// Positions of the text that the pattern read so far can end at; no backtracking, so no pattern is slow.
bool matches(std::string_view pattern, std::string_view text) {
    std::vector<char> at(text.size() + 1, 0), next;
    at[0] = 1;
    for (size_t p = 0; p < pattern.size(); ++p) {
        next.assign(text.size() + 1, 0);
        const size_t end = pattern[p] == '{' ? pattern.find('}', p) : std::string_view::npos;
        bool reached = false;
        for (size_t t = 0; t <= text.size(); ++t) {
            reached |= at[t] != 0;
            if (pattern[p] == '*') {
                next[t] = reached;
            } else if (at[t] == 0) {
                continue;
            } else if (end == std::string_view::npos) {
                if (t < text.size() && text[t] == pattern[p]) next[t + 1] = 1;
            } else {
                size_t digits = t;  // a number in the name is taken whole: {1-2} does not begin 17
                uint64_t number = 0;
                while (digits < text.size() && is_digit(text[digits]) && digits - t < 10)
                    number = number * 10 + static_cast<uint64_t>(text[digits++] - '0');
                each_item(pattern.substr(p + 1, end - p - 1), [&](std::string_view item) {
                    if (const auto range = number_range(item)) {
                        if (digits > t && number >= range->low && number <= range->high) next[digits] = 1;
                    } else if (text.substr(t).starts_with(item)) {
                        next[t + item.size()] = 1;
                    }
                    return true;
                });
            }
        }
        if (end != std::string_view::npos) p = end;
        at.swap(next);
    }
    return at[text.size()] != 0;
}

std::optional<Type> Recipe::type_for(std::string_view gguf_name) const {
    const auto rule =
        std::find_if(rules.begin(), rules.end(), [&](const Rule& r) { return matches(r.pattern, gguf_name); });
    VESTA_CHECK(rule != rules.end());
    return rule->type;
}

Result<Recipe> parse_recipe(std::string_view text, const std::string& name) {
    const std::string who = printable(name);
    if (text.size() > kMaxTextBytes)
        return Error{Code::bad_file, strf("{}: {} bytes, a recipe has at most {}", who, text.size(), kMaxTextBytes)};
    Recipe recipe{name, {}, {}, std::string(text)};
    std::map<std::string, size_t, std::less<>> seen;
    size_t number = 0, catch_all = 0;
    for (std::string_view rest = text; !rest.empty();) {
        ++number;
        const auto fail = [&](const std::string& what) {
            return Error{Code::bad_file, strf("{}:{}: {}", who, number, what)};
        };
        const size_t newline = rest.find('\n');
        const std::string_view raw = rest.substr(0, newline);
        rest.remove_prefix(newline == std::string_view::npos ? rest.size() : newline + 1);
        if (raw.size() > kMaxLineBytes)
            return fail(strf("the line has {} bytes, at most {}", raw.size(), kMaxLineBytes));
        if (!is_valid_utf8(raw)) return fail("the line is not UTF-8 text");
        for (const char c : trimmed(raw))
            if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F)
                return fail("the line has a control character; a recipe is a text file");
        const size_t hash = raw.find('#');
        if (hash != std::string_view::npos && recipe.summary.empty() && recipe.rules.empty())
            recipe.summary = trimmed(raw.substr(hash + 1));
        const std::string_view line = trimmed(raw.substr(0, hash));
        if (line.empty()) continue;

        const size_t equals = line.find('=');
        if (equals == std::string_view::npos) return fail("expected 'pattern = type'");
        const std::string_view pattern = trimmed(line.substr(0, equals));
        if (pattern == "drafter") {  // no tensor has this name
            const std::string_view place = trimmed(line.substr(equals + 1));
            if (place != "inside" && place != "beside")
                return fail("expected 'drafter = inside' or 'drafter = beside'");
            recipe.drafter_beside = place == "beside";
            continue;
        }
        if (const std::string problem = pattern_problem(pattern); !problem.empty()) return fail(problem);
        const auto type = parse_type(trimmed(line.substr(equals + 1)));
        if (!type.ok()) return fail(type.error().message);
        if (catch_all != 0) return fail(strf("never reached: '*' in line {} matches every name", catch_all));
        const auto [before, is_new] = seen.emplace(pattern, number);
        if (!is_new) return fail(strf("never reached: line {} has the same pattern", before->second));
        if (recipe.rules.size() == kMaxRules) return fail(strf("more than {} rules", kMaxRules));
        if (pattern.find_first_not_of('*') == std::string_view::npos) catch_all = number;
        recipe.rules.push_back({std::string(pattern), type.value()});
    }
    if (catch_all == 0)
        return Error{Code::bad_file, strf("{}:{}: the last rule must be '* = type', so that every tensor has a format",
                                          who, std::max<size_t>(number, 1))};
    return recipe;
}

std::span<const Recipe> recipes() { return table(); }

Result<Recipe> find_recipe(std::string_view name) {
    std::string known;
    for (const Recipe& r : table()) {
        if (r.name == name) return r;
        known += (known.empty() ? "" : ", ") + r.name;
    }
    return Error{Code::invalid_argument, strf("no recipe '{}'; there are {}", printable(name), known)};
}

Result<Recipe> load_recipe(const std::string& name_or_file) {
    auto built_in = find_recipe(name_or_file);
    if (built_in.ok()) return built_in;
    if (!file_exists(name_or_file))
        return Error{Code::invalid_argument, built_in.error().message + ", and no such file"};
    VESTA_TRY(const std::string text, read_text_file(name_or_file, kMaxTextBytes));
    return parse_recipe(text, name_or_file);
}

struct Override::Expression {
    std::regex regex;
};

Result<Override> Override::parse(const std::string& text) {
    const auto fail = [&](const std::string& what) {
        return Error{Code::invalid_argument, strf("--set '{}': {}", printable(text), what)};
    };
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos) return fail("expected 'regex=type'");
    const std::string pattern(trimmed(std::string_view(text).substr(0, equals)));
    if (pattern.empty()) return fail("the expression is empty");
    if (pattern.size() > kMaxExpressionBytes)
        return fail(strf("the expression has {} bytes, at most {}", pattern.size(), kMaxExpressionBytes));
    // {m,n} is expanded by copying, so nested ones are exponentially large.
    for (size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] == '\\')
            ++i;
        else if (pattern[i] == '{')
            return fail("counted repetition {} is not supported; write the part out");
    }
    Override o;
    o.text_ = text;
    const auto type = parse_type(trimmed(std::string_view(text).substr(equals + 1)));
    if (!type.ok()) return fail(type.error().message);
    o.type_ = type.value();
    auto flags = std::regex::ECMAScript | std::regex::nosubs;
#ifdef __GLIBCXX__
    flags |= std::regex_constants::__polynomial;  // never exponential in the name's length; refuses back-references
#endif
    try {
        o.expression_ = std::make_shared<const Expression>(Expression{std::regex(pattern, flags)});
    } catch (const std::regex_error& e) {
        return fail(strf("not an expression this build can use: {}", e.what()));
    }
    return o;
}

bool Override::applies_to(const std::string& gguf_name) const {
    try {
        return std::regex_search(gguf_name, expression_->regex);
    } catch (const std::regex_error&) {
        return false;
    }
}

}  // namespace vesta::convert
