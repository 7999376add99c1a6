// Conversations on disk, for /save and /load: {"format": "vesta.conversation", "version": 1, "messages": [...]} with
// the messages in the shape of the Chat Completions API, so that the file is of use elsewhere too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/message.h"

namespace vesta::app {

std::string conversation_json(const std::vector<chat::Message>& messages, std::string_view model);

// Accepts that form and a bare list of messages. Only what a chat can hold: system, user and assistant messages of
// text.
Result<std::vector<chat::Message>> parse_conversation_file(const std::string& path, std::string_view text);

// Written whole or not at all, readable by the owner only.
Status save_conversation(const std::string& path, const std::vector<chat::Message>& messages, std::string_view model,
                         bool overwrite);
Result<std::vector<chat::Message>> load_conversation(const std::string& path);

}  // namespace vesta::app
