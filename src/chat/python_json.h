// JSON as Python's json.dumps(value, ensure_ascii=False) prints it, which is what DeepSeek's prompts contain. The
// scanner keeps every value's own text, so integers of any size, key order and everything else survive that a usual DOM
// loses.
//
// Strict RFC 8259 (Python also reads NaN and Infinity; they are refused here), UTF-8 checked, nesting limited. An
// escape that makes half a surrogate pair is refused: it has no UTF-8 form, and Python too fails when it encodes such a
// prompt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vesta::chat {

// Deeper documents are refused. Real tool schemas stay below 20; each level costs a stack frame when walking.
constexpr int kMaxJsonDepth = 128;

struct JsonMember;

// One value. `raw` views the text given to scan_json, without surrounding white space, and lives as long as that text.
struct JsonValue {
    enum class Kind { null, boolean, number, string, array, object };
    Kind kind = Kind::null;
    std::string_view raw;
    // Elements of an array (keys empty), or members of an object: a repeated key once, at its first place with its last
    // value, as a Python dict has it.
    std::vector<JsonMember> children;

    bool is_object() const { return kind == Kind::object; }
    bool is_array() const { return kind == Kind::array; }
    bool is_string() const { return kind == Kind::string; }
    // Member of an object by key; null when absent or not an object.
    const JsonValue* find(std::string_view key) const;
    // A string's characters, decoded. Requires: is_string().
    std::string text() const;
};
struct JsonMember {
    std::string key;
    JsonValue value;
};

// The whole text must be one JSON value. A smaller limit leaves room for putting the value into another one.
Result<JsonValue> scan_json(std::string_view text, int max_depth = kMaxJsonDepth);

// ", " and ": " as separators, non-ASCII raw, floats as repr() writes them, -0 as 0 and 1e999 as Infinity as Python
// does.
void append_python_json(std::string& out, const JsonValue& value);
std::string python_json(const JsonValue& value);

// The characters of `text` escaped for the inside of a JSON string (quotes not added). `text` should be valid UTF-8;
// bytes are copied as they are.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace vesta::chat
