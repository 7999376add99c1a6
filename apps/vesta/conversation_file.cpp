#include "conversation_file.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/utf8.h"

namespace vesta::app {

std::string conversation_json(const std::vector<chat::Message>& messages, std::string_view model) {
    nlohmann::ordered_json out;
    out["format"] = "vesta.conversation";
    out["version"] = 1;
    out["model"] = replace_invalid_utf8(model);
    out["messages"] = nlohmann::ordered_json::array();
    for (const chat::Message& m : messages) {
        nlohmann::ordered_json one;
        one["role"] = chat::role_name(m.role);
        if (!m.reasoning.empty()) one["reasoning_content"] = replace_invalid_utf8(m.reasoning);
        one["content"] = replace_invalid_utf8(m.content);
        out["messages"].push_back(std::move(one));
    }
    return out.dump(2) + "\n";
}

Result<std::vector<chat::Message>> parse_conversation_file(const std::string& path, std::string_view text) {
    auto conversation = chat::parse_conversation(text);
    if (!conversation.ok())
        return Error{Code::bad_file, strf("{}: not a conversation: {}", path, conversation.error().message)};
    std::vector<chat::Message>& messages = conversation.value().messages;
    if (messages.empty()) return Error{Code::bad_file, strf("{}: holds no messages", path)};
    if (!conversation.value().tools.empty() || !conversation.value().context.empty())
        return Error{Code::unsupported, strf("{}: has tools or a context, which a chat here cannot continue", path)};
    for (size_t i = 0; i < messages.size(); ++i) {
        const chat::Message& m = messages[i];
        const bool plain =
            m.role == chat::Role::system || m.role == chat::Role::user || m.role == chat::Role::assistant;
        if (!plain || !m.tool_calls.empty() || !m.tools.empty())
            return Error{Code::unsupported,
                         strf("{}: message {} (role {}) uses tools or a role that a chat here cannot continue", path, i,
                              chat::role_name(m.role))};
    }
    return std::move(messages);
}

Status save_conversation(const std::string& path, const std::vector<chat::Message>& messages, std::string_view model,
                         bool overwrite) {
    VESTA_TRY(AtomicFile file, AtomicFile::create(path, overwrite, 0600));
    const std::string text = conversation_json(messages, model);
    VESTA_TRY_STATUS(file.write(std::as_bytes(std::span(text))));
    return file.commit();
}

Result<std::vector<chat::Message>> load_conversation(const std::string& path) {
    VESTA_TRY(const std::string text, read_text_file(path, uint64_t{256} << 20));
    return parse_conversation_file(path, text);
}

}  // namespace vesta::app
