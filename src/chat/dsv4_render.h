// Renders a conversation as a DeepSeek V4 prompt, byte for byte as DeepSeek's own encoder does (docs/chat.md).
//
// The result is a list of segments, not a string: markers that this code writes are control segments, everything that
// came from a person, a tool, a file or the model's past is text, and the tokenizer never looks for markers in text. A
// user who types a role marker has typed some characters.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "chat/message.h"
#include "tokenizer/segment.h"

namespace vesta::chat {

using tokenizer::Segment;

struct RenderOptions {
    Dialect dialect = Dialect::dsv4;
    Mode mode = Mode::thinking;
    Effort effort = Effort::unset;
    bool drop_thinking =
        true;  // forget the reasoning of turns before the last user turn; off by itself when tools are defined
    bool add_bos = true;

    // Vesta's repairs, where the official encoder fails or writes a prompt that a model cannot continue. With false the
    // output is the official one in every case, and what makes the official encoder fail is refused.
    bool repair = true;
    // Writes "</tool_result>" inside a tool result as "&lt;/tool_result>", so that a result cannot end itself.
    bool escape_tool_result = false;
};

// Text segments are never adjacent and never empty; a control segment is the spelling of exactly one special token.
// With a non-empty context only the new part is emitted, without BOS; the context must end where a turn ends.
Result<std::vector<Segment>> render(const Conversation& conversation, const RenderOptions& options);

// The prompt as one string.
std::string join(const std::vector<Segment>& segments);

// True when the model's next token is reasoning: the prompt ends with the marker that opens it. What ParseOptions::mode
// must be for the answer to this prompt.
bool opens_reasoning(const std::vector<Segment>& segments);

}  // namespace vesta::chat
