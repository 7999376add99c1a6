#include "chat/python_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"

namespace vesta::chat {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// The four hex digits at text[at..]; the scanner has checked them.
uint32_t hex4(std::string_view text, size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 4 | static_cast<uint32_t>(hex_digit(text[at + i]));
    return value;
}

bool is_high_surrogate(uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low_surrogate(uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

// Decodes the inside of a string the scanner has accepted.
std::string decode_string(std::string_view body) {
    std::string out;
    out.reserve(body.size());
    for (size_t i = 0; i < body.size();) {
        if (body[i] != '\\') {
            out.push_back(body[i++]);
            continue;
        }
        const char escape = body[i + 1];
        i += 2;
        switch (escape) {
            case 'b':
                out.push_back('\b');
                break;
            case 'f':
                out.push_back('\f');
                break;
            case 'n':
                out.push_back('\n');
                break;
            case 'r':
                out.push_back('\r');
                break;
            case 't':
                out.push_back('\t');
                break;
            case 'u': {
                uint32_t c = hex4(body, i);
                i += 4;
                if (is_high_surrogate(c)) {  // its partner follows as \uXXXX
                    c = 0x10000 + ((c - 0xD800) << 10) + (hex4(body, i + 2) - 0xDC00);
                    i += 6;
                }
                append_utf8(out, c);
                break;
            }
            default:
                out.push_back(escape);
                break;  // " \ /
        }
    }
    return out;
}

class Scanner {
 public:
    Scanner(std::string_view text, int max_depth) : text_(text), max_depth_(max_depth) {}

    Result<JsonValue> document() {
        skip_space();
        JsonValue value;
        VESTA_TRY_STATUS(scan(value, 0));
        skip_space();
        if (at_ < text_.size()) return fail("the end of the text");
        return value;
    }

 private:
    bool done() const { return at_ >= text_.size(); }
    char peek() const { return done() ? '\0' : text_[at_]; }
    bool next_is(char c) const { return !done() && text_[at_] == c; }
    void skip_space() {
        while (!done() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) ++at_;
    }

    Error fail(std::string_view expected) const {
        const std::string found =
            done() ? "the end of the text"
                   : strf("byte 0x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(text_[at_])));
        return Error{Code::invalid_argument, strf("JSON: expected {} at byte {}, found {}", expected, at_, found)};
    }

    Status scan(JsonValue& value, int depth) {
        if (depth > max_depth_)
            return Error{Code::invalid_argument,
                         strf("JSON: nested deeper than {} levels at byte {}", max_depth_, at_)};
        const size_t begin = at_;
        switch (peek()) {
            case '{':
                value.kind = JsonValue::Kind::object;
                VESTA_TRY_STATUS(object(value, depth));
                break;
            case '[':
                value.kind = JsonValue::Kind::array;
                VESTA_TRY_STATUS(array(value, depth));
                break;
            case '"':
                value.kind = JsonValue::Kind::string;
                VESTA_TRY_STATUS(string());
                break;
            case 't':
                value.kind = JsonValue::Kind::boolean;
                VESTA_TRY_STATUS(word("true"));
                break;
            case 'f':
                value.kind = JsonValue::Kind::boolean;
                VESTA_TRY_STATUS(word("false"));
                break;
            case 'n':
                value.kind = JsonValue::Kind::null;
                VESTA_TRY_STATUS(word("null"));
                break;
            default:
                value.kind = JsonValue::Kind::number;
                VESTA_TRY_STATUS(number());
                break;
        }
        value.raw = text_.substr(begin, at_ - begin);
        return {};
    }

    Status word(std::string_view expected) {
        if (text_.substr(at_, expected.size()) != expected) return fail(strf("'{}'", expected));
        at_ += expected.size();
        return {};
    }

    Status digits() {
        if (done() || !is_digit(peek())) return fail("a digit");
        while (!done() && is_digit(peek())) ++at_;
        return {};
    }

    Status number() {
        if (next_is('-')) ++at_;
        if (done() || !is_digit(peek())) return fail("a value");
        if (next_is('0'))
            ++at_;
        else
            VESTA_TRY_STATUS(digits());
        if (next_is('.')) {
            ++at_;
            VESTA_TRY_STATUS(digits());
        }
        if (next_is('e') || next_is('E')) {
            ++at_;
            if (next_is('+') || next_is('-')) ++at_;
            VESTA_TRY_STATUS(digits());
        }
        return {};
    }

    // Four hex digits at at_.
    Result<uint32_t> unit() {
        uint32_t value = 0;
        for (int i = 0; i < 4; ++i, ++at_) {
            const int digit = done() ? -1 : hex_digit(peek());
            if (digit < 0) return fail("four hex digits");
            value = value << 4 | static_cast<uint32_t>(digit);
        }
        return value;
    }

    Status string() {
        ++at_;
        for (;;) {
            if (done()) return fail("'\"'");
            const auto byte = static_cast<unsigned char>(text_[at_]);
            if (byte == '"') {
                ++at_;
                return {};
            }
            if (byte < 0x20) return fail("no raw control character in a string");
            if (byte == '\\') {
                VESTA_TRY_STATUS(escape());
            } else if (byte < 0x80) {
                ++at_;
            } else {
                const Utf8Char c = decode_utf8(text_.substr(at_));
                if (!c.valid) return fail("valid UTF-8");
                at_ += static_cast<size_t>(c.length);
            }
        }
    }

    Status escape() {
        ++at_;
        if (done() || std::string_view("\"\\/bfnrtu").find(peek()) == std::string_view::npos)
            return fail("one of \"\\/bfnrtu after a backslash");
        if (text_[at_++] != 'u') return {};
        VESTA_TRY(const uint32_t first, unit());
        if (is_low_surrogate(first)) return fail("a high surrogate before the low one that ends here");
        if (!is_high_surrogate(first)) return {};
        if (text_.substr(at_, 2) != "\\u") return fail("the second half of a surrogate pair");
        at_ += 2;
        VESTA_TRY(const uint32_t second, unit());
        if (!is_low_surrogate(second)) return fail("a low surrogate in the escape that ends here");
        return {};
    }

    Status array(JsonValue& value, int depth) {
        ++at_;
        skip_space();
        if (next_is(']')) {
            ++at_;
            return {};
        }
        for (;;) {
            skip_space();
            JsonMember element;
            VESTA_TRY_STATUS(scan(element.value, depth + 1));
            value.children.push_back(std::move(element));
            skip_space();
            if (next_is(']')) break;
            if (!next_is(',')) return fail("',' or ']'");
            ++at_;
        }
        ++at_;
        return {};
    }

    Status object(JsonValue& value, int depth) {
        ++at_;
        skip_space();
        if (next_is('}')) {
            ++at_;
            return {};
        }
        std::unordered_map<std::string, size_t> place;
        for (;;) {
            skip_space();
            if (!next_is('"')) return fail("a key");
            const size_t begin = at_;
            VESTA_TRY_STATUS(string());
            JsonMember member;
            member.key = decode_string(text_.substr(begin + 1, at_ - begin - 2));
            skip_space();
            if (!next_is(':')) return fail("':'");
            ++at_;
            skip_space();
            VESTA_TRY_STATUS(scan(member.value, depth + 1));
            const auto [seen, is_new] = place.try_emplace(member.key, value.children.size());
            if (is_new)
                value.children.push_back(std::move(member));
            else
                value.children[seen->second].value = std::move(member.value);
            skip_space();
            if (next_is('}')) break;
            if (!next_is(',')) return fail("',' or '}'");
            ++at_;
        }
        ++at_;
        return {};
    }

    std::string_view text_;
    const int max_depth_;
    size_t at_ = 0;
};

// Decimal exponent e of the first non-zero digit of a JSON number, |x| in [10^e, 10^(e+1)), saturated at ±2^30. Used
// only to tell overflow from underflow, which from_chars reports alike. Requires a non-zero digit.
int64_t magnitude(std::string_view number) {
    constexpr int64_t kLimit = int64_t{1} << 30;
    const size_t mark = number.find_first_of("eE");
    std::string_view mantissa = number.substr(0, mark);
    if (mantissa.front() == '-') mantissa.remove_prefix(1);
    int64_t exponent = 0;
    if (mark != std::string_view::npos) {
        std::string_view digits = number.substr(mark + 1);
        const bool negative = digits.front() == '-';
        if (negative || digits.front() == '+') digits.remove_prefix(1);
        for (const char c : digits) exponent = std::min(kLimit, exponent * 10 + (c - '0'));
        if (negative) exponent = -exponent;
    }
    const auto point = static_cast<int64_t>(std::min(mantissa.find('.'), mantissa.size()));
    const auto first = static_cast<int64_t>(mantissa.find_first_of("123456789"));
    return exponent + (first < point ? point - first - 1 : point - first);
}

// repr() of the double nearest to `number`: shortest digits that read back as the same double, exponent form below 1e-4
// and from 1e16 on.
void append_float(std::string& out, std::string_view number) {
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error == std::errc::result_out_of_range) {
        const bool negative = number.front() == '-';
        if (magnitude(number) > 0)
            out += negative ? "-Infinity" : "Infinity";
        else
            out += negative ? "-0.0" : "0.0";
        return;
    }
    std::array<char, 64> buffer;
    const auto written =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
    std::string_view text(buffer.data(), static_cast<size_t>(written.ptr - buffer.data()));  // [-]d[.ddd]e±dd
    if (text.front() == '-') {
        out.push_back('-');
        text.remove_prefix(1);
    }
    const size_t mark = text.find('e');
    int exponent = 0;
    const bool negative_exponent = text[mark + 1] == '-';
    std::from_chars(text.data() + mark + 2, text.data() + text.size(), exponent);
    if (negative_exponent) exponent = -exponent;
    std::string digits(1, text[0]);
    if (mark > 2) digits += text.substr(2, mark - 2);

    if (exponent < -4 || exponent >= 16) {
        out.push_back(digits[0]);
        if (digits.size() > 1) {
            out.push_back('.');
            out.append(digits, 1);
        }
        out += strf("e{}{:02}", exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
    } else if (exponent < 0) {
        out += "0.";
        out.append(static_cast<size_t>(-exponent - 1), '0');
        out += digits;
    } else {
        const auto whole = static_cast<size_t>(exponent) + 1;  // digits before the point
        if (digits.size() <= whole) {
            out += digits;
            out.append(whole - digits.size(), '0');
            out += ".0";
        } else {
            out.append(digits, 0, whole);
            out.push_back('.');
            out.append(digits, whole);
        }
    }
}

void append_number(std::string& out, std::string_view number) {
    if (number.find_first_of(".eE") != std::string_view::npos)
        append_float(out, number);
    else
        out += number == "-0" ? "0" : number;  // Python has no negative zero integer
}

void append_quoted(std::string& out, std::string_view text) {
    out.push_back('"');
    append_json_escaped(out, text);
    out.push_back('"');
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
    if (!is_object()) return nullptr;
    for (const JsonMember& member : children)
        if (member.key == key) return &member.value;
    return nullptr;
}

std::string JsonValue::text() const {
    VESTA_CHECK(is_string());
    return decode_string(raw.substr(1, raw.size() - 2));
}

Result<JsonValue> scan_json(std::string_view text, int max_depth) { return Scanner(text, max_depth).document(); }

void append_python_json(std::string& out, const JsonValue& value) {
    switch (value.kind) {
        case JsonValue::Kind::null:
        case JsonValue::Kind::boolean:
            out += value.raw;
            break;
        case JsonValue::Kind::number:
            append_number(out, value.raw);
            break;
        case JsonValue::Kind::string:
            append_quoted(out, value.text());
            break;
        case JsonValue::Kind::array: {
            out.push_back('[');
            std::string_view separator;
            for (const JsonMember& element : value.children) {
                out += separator;
                append_python_json(out, element.value);
                separator = ", ";
            }
            out.push_back(']');
            break;
        }
        case JsonValue::Kind::object: {
            out.push_back('{');
            std::string_view separator;
            for (const JsonMember& member : value.children) {
                out += separator;
                append_quoted(out, member.key);
                out += ": ";
                append_python_json(out, member.value);
                separator = ", ";
            }
            out.push_back('}');
            break;
        }
    }
}

std::string python_json(const JsonValue& value) {
    std::string out;
    append_python_json(out, value);
    return out;
}

void append_json_escaped(std::string& out, std::string_view text) {
    for (const char c : text) {
        switch (c) {
            case '"':
                out += "\\\"";
                break;
            case '\\':
                out += "\\\\";
                break;
            case '\b':
                out += "\\b";
                break;
            case '\f':
                out += "\\f";
                break;
            case '\n':
                out += "\\n";
                break;
            case '\r':
                out += "\\r";
                break;
            case '\t':
                out += "\\t";
                break;
            default:
                if (static_cast<unsigned char>(c) < 0x20)
                    out += strf("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
                else
                    out.push_back(c);
        }
    }
}

}  // namespace vesta::chat
