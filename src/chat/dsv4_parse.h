// Model text of a DeepSeek V4 model -> reasoning, content and tool calls, tolerant of what models and samplers really
// produce (docs/chat.md lists the rules). One push parser serves both uses: feed it pieces as they are decoded and
// forward its events, or feed it everything and take the result. The result does not depend on how the text was cut
// into pieces.
//
// Input may be any bytes; output is always valid UTF-8 (a byte that is not becomes U+FFFD). Work is linear in the
// input.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/message.h"

namespace vesta::chat {

struct ParseOptions {
    Mode mode = Mode::thinking;  // thinking: the text starts inside reasoning (see opens_reasoning)

    // No tools declared and not any_tool: tool markup is plain text.
    std::vector<DeclaredTool> tools;
    bool any_tool = false;  // every well-formed name counts as declared

    bool recover_call_in_reasoning = true;  // execute a complete block that ends an output whose reasoning never closed
    bool accept_bare_invoke = true;         // calls without the block around them, for declared names
    bool accept_plain_xml = false;          // <tool_calls><invoke ...>: prose about XML looks the same
    bool accept_ascii_bar = false;          // <|DSML|tool_calls>: written by some hosts
    bool strip_eos = true;                  // an end-of-sentence marker at the very end is the sampled EOS, not content
};

struct ParsedCall {
    std::string name;
    std::string arguments;  // JSON text of an object, always valid
    bool declared = true;   // false: well-formed, but the request declares no tool of this name
};

struct ParsedOutput {
    std::string reasoning;
    std::string content;
    std::vector<ParsedCall> tool_calls;  // complete calls only
    bool recovered = false;          // markup was not as it should be and something was rescued or given up; see notes
    bool unterminated = false;       // the output ended inside a call section
    bool reasoning_open = false;     // the output ended before reasoning was closed (and no call was rescued from it)
    std::vector<std::string> notes;  // for the log: what was wrong and where; at most 16
};

// What a stream sends. Texts are complete characters. Fragments of one call's call_arguments concatenate to its
// arguments (with one exception: a repeated key is sent twice and is kept once in ParsedCall; JSON readers take the
// last).
struct OutputEvent {
    enum class Kind { reasoning, content, call_begin, call_arguments, call_end, call_dropped };
    Kind kind;
    size_t call = 0;   // index of the call; a dropped call's index is not used again
    std::string text;  // call_begin: the tool's name; call_dropped: empty, the call turned out to be broken
};

enum class Ending {
    stopped,  // the model ended its turn
    cut,      // the token limit or the client did: a call that is still open is not reported
};

class OutputParser {
 public:
    explicit OutputParser(ParseOptions options);
    ~OutputParser();
    OutputParser(OutputParser&&) noexcept;
    OutputParser& operator=(OutputParser&&) noexcept;

    // Events are appended to `events` when it is not null.
    void feed(std::string_view bytes, std::vector<OutputEvent>* events = nullptr);
    // The call section has ended: decoding can stop, more text would be discarded.
    bool done() const;
    // Flushes what was held back. Call once; nothing may be fed afterwards.
    ParsedOutput finish(Ending ending = Ending::stopped, std::vector<OutputEvent>* events = nullptr);

 private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

ParsedOutput parse_output(std::string_view text, const ParseOptions& options, Ending ending = Ending::stopped);

}  // namespace vesta::chat
