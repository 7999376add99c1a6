// A conversation as values: what was said, by whom, with which tools. Room chat turns it into a prompt (dsv4_render.h)
// and model text back into an answer (dsv4_parse.h). Knows nothing of HTTP, token ids or the engine.
//
// JSON inside a conversation (tool schemas, call arguments, response formats) stays raw text, because prompts re-print
// it exactly (python_json.h); a DOM would lose big integers and key order.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vesta::chat {

// A family's prompt and tool syntax. A property of the weights: the same prompt text means another effort to a model of
// the other dialect, so it is never guessed from a conversation.
enum class Dialect {
    dsv4,       // DeepSeek V4 Flash and Pro, April 2026
    dsv4_0731,  // the revision of Flash-0731: other effort prefixes, content_blocks of a user message are honoured
};
enum class Mode { chat, thinking };
enum class Effort { unset, low, high, max };  // thinking mode only; which are legal depends on the dialect
enum class Role { system, developer, user, assistant, tool, latest_reminder };
// The quick tasks a DSV4 model was trained on: a marker after a message asks for a short machine-readable answer.
enum class Task { none, action, query, authority, domain, title, read_url };

// The "= {}" of the members below lets g++ accept designated initialisers that leave members out.
struct ContentPart {
    std::string type = {};          // "text", "tool_result" (content_blocks only), or anything else: not understood
    std::string text = {};          // of text and tool_result
    std::string tool_call_id = {};  // of tool_result
};

struct ToolCall {
    std::string id = {};  // empty: none was given
    std::string name = {};
    std::string arguments = {};  // JSON text of an object, or whatever text the model produced instead
};

struct Message {
    Role role = Role::user;
    std::string content = {};               // used when `parts` is empty
    std::vector<ContentPart> parts = {};    // content that was sent as a list
    std::vector<ContentPart> blocks = {};   // content_blocks: user only, dialect dsv4_0731 only
    std::string reasoning = {};             // assistant
    std::vector<ToolCall> tool_calls = {};  // assistant
    std::string tool_call_id = {};          // tool
    std::vector<std::string> tools = {};    // raw JSON of each tool's `function` object: system and developer render it
    std::optional<std::string> response_format = {};  // raw JSON, printed as given: system and developer
    Task task = Task::none;
    bool wo_eos = false;  // assistant: leave the turn open, generation continues inside its content
};

struct Conversation {
    // Messages whose tokens are in the kv cache already: they shape the rendering of `messages` and are not emitted.
    std::vector<Message> context = {};
    std::vector<Message> messages = {};
    std::vector<std::string> tools = {};              // of the request: rendered with the leading system message
    std::optional<std::string> response_format = {};  // of the request, raw JSON of a schema: likewise
};

// Reads {"messages": [...], "context": [...], "tools": [...], "response_format": {...}} in the shape of OpenAI's Chat
// Completions, or a bare array of messages. Keys it does not know are ignored (sampling parameters and the like); wrong
// types of known keys are errors that name the message. `arguments` may be a string or an object; missing or null
// arguments mean {}. The request's response_format follows OpenAI ({"type":"json_schema"|"json_object"|"text"}).
Result<Conversation> parse_conversation(std::string_view json);

// What output parsing needs to know of a tool.
struct DeclaredTool {
    std::string name = {};
    bool has_parameters = false;               // its schema lists properties; `parameters` is complete then
    std::vector<std::string> parameters = {};  // their names
};
// All tools of the conversation (request, messages and context), in order, a repeated name once.
Result<std::vector<DeclaredTool>> declared_tools(const Conversation& conversation);

// From their names as users write them: "dsv4", "dsv4-0731"; "chat", "thinking"; "low", "high", "max"; and back.
Result<Dialect> parse_dialect(std::string_view name);
Result<Mode> parse_mode(std::string_view name);
Result<Effort> parse_effort(std::string_view name);
const char* dialect_name(Dialect dialect);
const char* role_name(Role role);

}  // namespace vesta::chat
