// The reader of conversations in OpenAI's request shape.
#include "chat/message.h"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "chat/python_json.h"

namespace vesta::chat {
namespace {

struct RoleName {
    Role role;
    std::string_view name;
};
constexpr std::array kRoles = {
    RoleName{Role::system, "system"}, RoleName{Role::developer, "developer"},
    RoleName{Role::user, "user"},     RoleName{Role::assistant, "assistant"},
    RoleName{Role::tool, "tool"},     RoleName{Role::latest_reminder, "latest_reminder"},
};
struct TaskName {
    Task task;
    std::string_view name;
};
constexpr std::array kTasks = {
    TaskName{Task::action, "action"}, TaskName{Task::query, "query"}, TaskName{Task::authority, "authority"},
    TaskName{Task::domain, "domain"}, TaskName{Task::title, "title"}, TaskName{Task::read_url, "read_url"},
};

const char* kind_name(const JsonValue& value) {
    switch (value.kind) {
        case JsonValue::Kind::null:
            return "null";
        case JsonValue::Kind::boolean:
            return "a boolean";
        case JsonValue::Kind::number:
            return "a number";
        case JsonValue::Kind::string:
            return "a string";
        case JsonValue::Kind::array:
            return "an array";
        case JsonValue::Kind::object:
            return "an object";
    }
    return "?";
}

Error wrong_type(std::string_view where, std::string_view expected, const JsonValue& found) {
    return Error{Code::invalid_argument, strf("{}: expected {}, found {}", where, expected, kind_name(found))};
}

bool absent(const JsonValue* value) { return value == nullptr || value->kind == JsonValue::Kind::null; }

// A string member; empty when absent or null.
Result<std::string> string_member(const JsonValue& object, std::string_view key, std::string_view where) {
    const JsonValue* value = object.find(key);
    if (absent(value)) return std::string();
    if (!value->is_string()) return wrong_type(strf("{}.{}", where, key), "a string", *value);
    return value->text();
}

// An array member; null when absent or null.
Result<const JsonValue*> array_member(const JsonValue& object, std::string_view key, std::string_view where) {
    const JsonValue* value = object.find(key);
    if (absent(value)) return static_cast<const JsonValue*>(nullptr);
    if (!value->is_array()) return wrong_type(strf("{}.{}", where, key), "an array", *value);
    return value;
}

Result<ContentPart> read_part(const JsonValue& json, const std::string& where) {
    if (!json.is_object()) return wrong_type(where, "an object", json);
    ContentPart part;
    VESTA_TRY(part.type, string_member(json, "type", where));
    if (part.type.empty()) return Error{Code::invalid_argument, strf("{}: a content part needs a type", where)};
    if (part.type == "text") {
        VESTA_TRY(part.text, string_member(json, "text", where));
    } else if (part.type == "tool_result") {
        VESTA_TRY(part.text, string_member(json, "content", where));
        VESTA_TRY(part.tool_call_id, string_member(json, "tool_use_id", where));
    }
    return part;
}

Result<std::vector<ContentPart>> read_parts(const JsonValue& json, const std::string& where) {
    std::vector<ContentPart> parts;
    for (size_t i = 0; i < json.children.size(); ++i) {
        VESTA_TRY(ContentPart part, read_part(json.children[i].value, strf("{}[{}]", where, i)));
        parts.push_back(std::move(part));
    }
    return parts;
}

// The `function` object of each entry, as raw text.
Result<std::vector<std::string>> read_tools(const JsonValue& json, const std::string& where) {
    std::vector<std::string> tools;
    for (size_t i = 0; i < json.children.size(); ++i) {
        const JsonValue& entry = json.children[i].value;
        const JsonValue* function = entry.find("function");
        if (function == nullptr || !function->is_object())
            return Error{Code::invalid_argument,
                         strf("{}[{}]: expected {{\"type\": \"function\", \"function\": {{...}}}}, found {}", where, i,
                              kind_name(entry))};
        tools.emplace_back(function->raw);
    }
    return tools;
}

Result<ToolCall> read_call(const JsonValue& json, const std::string& where) {
    if (!json.is_object()) return wrong_type(where, "an object", json);
    const JsonValue* function = json.find("function");
    if (function == nullptr || !function->is_object())
        return Error{Code::invalid_argument, strf("{}: a tool call needs a function object", where)};
    ToolCall call;
    VESTA_TRY(call.id, string_member(json, "id", where));
    if (call.id.empty()) {
        VESTA_TRY(call.id, string_member(*function, "id", where));
    }
    VESTA_TRY(call.name, string_member(*function, "name", where));
    if (call.name.empty()) return Error{Code::invalid_argument, strf("{}: a tool call needs a function name", where)};
    const JsonValue* arguments = function->find("arguments");
    if (absent(arguments))
        call.arguments = "{}";
    else
        call.arguments = arguments->is_string() ? arguments->text() : std::string(arguments->raw);
    return call;
}

Result<Message> read_message(const JsonValue& json, const std::string& where) {
    if (!json.is_object()) return wrong_type(where, "an object", json);
    Message message;
    VESTA_TRY(const std::string role, string_member(json, "role", where));
    const auto* known = std::find_if(kRoles.begin(), kRoles.end(), [&](const RoleName& r) { return r.name == role; });
    if (known == kRoles.end())
        return Error{Code::invalid_argument,
                     strf("{}: role is '{}', expected system, developer, user, assistant, tool or latest_reminder",
                          where, role)};
    message.role = known->role;

    const JsonValue* content = json.find("content");
    if (!absent(content)) {
        if (content->is_string()) {
            message.content = content->text();
        } else if (content->is_array()) {
            VESTA_TRY(message.parts, read_parts(*content, where + ".content"));
        } else {
            return wrong_type(where + ".content", "a string or an array", *content);
        }
    }
    VESTA_TRY(const JsonValue* blocks, array_member(json, "content_blocks", where));
    if (blocks != nullptr) {
        VESTA_TRY(message.blocks, read_parts(*blocks, where + ".content_blocks"));
    }

    // Servers disagree on the name under which reasoning travels.
    VESTA_TRY(message.reasoning, string_member(json, "reasoning_content", where));
    if (const JsonValue* other = json.find("reasoning");
        message.reasoning.empty() && other != nullptr && other->is_string())
        message.reasoning = other->text();

    VESTA_TRY(const JsonValue* calls, array_member(json, "tool_calls", where));
    if (calls != nullptr)
        for (size_t i = 0; i < calls->children.size(); ++i) {
            VESTA_TRY(ToolCall call, read_call(calls->children[i].value, strf("{}.tool_calls[{}]", where, i)));
            message.tool_calls.push_back(std::move(call));
        }
    VESTA_TRY(message.tool_call_id, string_member(json, "tool_call_id", where));
    VESTA_TRY(const JsonValue* tools, array_member(json, "tools", where));
    if (tools != nullptr) {
        VESTA_TRY(message.tools, read_tools(*tools, where + ".tools"));
    }
    // An empty object asks for nothing, as in the official encoder, where it is false.
    if (const JsonValue* format = json.find("response_format"); !absent(format) && format->raw != "{}")
        message.response_format = std::string(format->raw);

    VESTA_TRY(const std::string task, string_member(json, "task", where));
    if (!task.empty()) {
        const auto* named =
            std::find_if(kTasks.begin(), kTasks.end(), [&](const TaskName& t) { return t.name == task; });
        if (named == kTasks.end())
            return Error{
                Code::invalid_argument,
                strf("{}: task is '{}', expected action, query, authority, domain, title or read_url", where, task)};
        message.task = named->task;
    }
    if (const JsonValue* open = json.find("wo_eos"); !absent(open)) {
        if (open->kind != JsonValue::Kind::boolean) return wrong_type(where + ".wo_eos", "a boolean", *open);
        message.wo_eos = open->raw == "true";
    }
    return message;
}

Result<std::vector<Message>> read_messages(const JsonValue& json, const std::string& where) {
    std::vector<Message> messages;
    for (size_t i = 0; i < json.children.size(); ++i) {
        VESTA_TRY(Message message, read_message(json.children[i].value, strf("{}[{}]", where, i)));
        messages.push_back(std::move(message));
    }
    return messages;
}

Result<std::optional<std::string>> read_request_format(const JsonValue& json) {
    const std::string where = "response_format";
    if (!json.is_object()) return wrong_type(where, "an object", json);
    VESTA_TRY(const std::string type, string_member(json, "type", where));
    if (type == "text") return std::optional<std::string>();
    if (type == "json_object") return std::optional<std::string>("{\"type\": \"object\"}");
    if (type != "json_schema")
        return Error{Code::unsupported,
                     strf("{}: type is '{}', expected text, json_object or json_schema", where, type)};
    const JsonValue* outer = json.find("json_schema");
    const JsonValue* schema = outer == nullptr ? nullptr : outer->find("schema");
    if (schema == nullptr || !schema->is_object())
        return Error{Code::invalid_argument, strf("{}: json_schema.schema is missing or not an object", where)};
    return std::optional<std::string>(schema->raw);
}

Status collect_tools(const std::vector<std::string>& schemas, std::vector<DeclaredTool>& tools,
                     std::unordered_set<std::string>& seen) {
    for (const std::string& schema : schemas) {
        VESTA_TRY(const JsonValue function, scan_json(schema));
        VESTA_TRY(std::string name, string_member(function, "name", "tool"));
        if (name.empty()) return Error{Code::invalid_argument, "tool: a function needs a name"};
        if (!seen.insert(name).second) continue;
        DeclaredTool tool{std::move(name), false, {}};
        const JsonValue* parameters = function.find("parameters");
        const JsonValue* properties = parameters == nullptr ? nullptr : parameters->find("properties");
        if (properties != nullptr && properties->is_object()) {
            tool.has_parameters = true;
            for (const JsonMember& property : properties->children) tool.parameters.push_back(property.key);
        }
        tools.push_back(std::move(tool));
    }
    return {};
}

}  // namespace

Result<Conversation> parse_conversation(std::string_view json) {
    VESTA_TRY(const JsonValue document, scan_json(json));
    Conversation conversation;
    if (document.is_array()) {
        VESTA_TRY(conversation.messages, read_messages(document, "messages"));
        return conversation;
    }
    if (!document.is_object()) return wrong_type("conversation", "an object or an array of messages", document);
    VESTA_TRY(const JsonValue* messages, array_member(document, "messages", "conversation"));
    if (messages == nullptr) return Error{Code::invalid_argument, "conversation: messages are missing"};
    VESTA_TRY(conversation.messages, read_messages(*messages, "messages"));
    VESTA_TRY(const JsonValue* context, array_member(document, "context", "conversation"));
    if (context != nullptr) {
        VESTA_TRY(conversation.context, read_messages(*context, "context"));
    }
    VESTA_TRY(const JsonValue* tools, array_member(document, "tools", "conversation"));
    if (tools != nullptr) {
        VESTA_TRY(conversation.tools, read_tools(*tools, "tools"));
    }
    if (const JsonValue* format = document.find("response_format"); !absent(format)) {
        VESTA_TRY(conversation.response_format, read_request_format(*format));
    }
    return conversation;
}

Result<std::vector<DeclaredTool>> declared_tools(const Conversation& conversation) {
    std::vector<DeclaredTool> tools;
    std::unordered_set<std::string> seen;
    VESTA_TRY_STATUS(collect_tools(conversation.tools, tools, seen));
    for (const auto* messages : {&conversation.context, &conversation.messages})
        for (const Message& message : *messages) VESTA_TRY_STATUS(collect_tools(message.tools, tools, seen));
    return tools;
}

Result<Dialect> parse_dialect(std::string_view name) {
    if (name == "dsv4") return Dialect::dsv4;
    if (name == "dsv4-0731") return Dialect::dsv4_0731;
    return Error{Code::invalid_argument, strf("dialect is '{}', expected dsv4 or dsv4-0731", name)};
}

Result<Mode> parse_mode(std::string_view name) {
    if (name == "chat") return Mode::chat;
    if (name == "thinking") return Mode::thinking;
    return Error{Code::invalid_argument, strf("mode is '{}', expected chat or thinking", name)};
}

Result<Effort> parse_effort(std::string_view name) {
    if (name == "low") return Effort::low;
    if (name == "high") return Effort::high;
    if (name == "max") return Effort::max;
    return Error{Code::invalid_argument, strf("effort is '{}', expected low, high or max", name)};
}

const char* dialect_name(Dialect dialect) { return dialect == Dialect::dsv4 ? "dsv4" : "dsv4-0731"; }

const char* role_name(Role role) {
    for (const RoleName& r : kRoles)
        if (r.role == role) return r.name.data();
    return "?";
}

}  // namespace vesta::chat
