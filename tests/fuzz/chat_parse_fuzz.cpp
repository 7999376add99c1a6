// Model text is whatever a sampler produced: no bytes may crash the parser, the cut into pieces must not matter, output
// is valid UTF-8 and arguments are JSON objects, always.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "chat/dsv4_parse.h"
#include "chat/python_json.h"

namespace {

using namespace vesta;
using namespace vesta::chat;

void require(bool condition) {
    if (!condition) std::abort();
}

struct Parsed {
    ParsedOutput output;
    std::string streamed;  // kinds and texts, joined where a stream may cut
};

std::string flat(const std::vector<OutputEvent>& events) {
    std::string reasoning, content, calls;
    for (const OutputEvent& event : events) {
        require(is_valid_utf8(event.text));
        switch (event.kind) {
            case OutputEvent::Kind::reasoning:
                reasoning += event.text;
                break;
            case OutputEvent::Kind::content:
                content += event.text;
                break;
            case OutputEvent::Kind::call_begin:
                calls += "\n" + std::to_string(event.call) + event.text + " ";
                break;
            case OutputEvent::Kind::call_arguments:
                calls += event.text;
                break;
            case OutputEvent::Kind::call_end:
                calls += " end";
                break;
            case OutputEvent::Kind::call_dropped:
                calls += " dropped";
                break;
        }
    }
    return reasoning + "\n#\n" + content + "\n#\n" + calls;
}

Parsed parse(std::string_view text, size_t piece, const ParseOptions& options, Ending ending) {
    Parsed r;
    std::vector<OutputEvent> events;
    OutputParser parser(options);
    for (size_t at = 0; at < text.size(); at += piece) parser.feed(text.substr(at, piece), &events);
    r.output = parser.finish(ending, &events);
    r.streamed = flat(events);
    return r;
}

void require_same(const Parsed& a, const Parsed& b) {
    require(a.output.reasoning == b.output.reasoning && a.output.content == b.output.content);
    require(a.output.recovered == b.output.recovered && a.output.unterminated == b.output.unterminated);
    require(a.output.reasoning_open == b.output.reasoning_open && a.output.notes == b.output.notes);
    require(a.output.tool_calls.size() == b.output.tool_calls.size());
    for (size_t i = 0; i < a.output.tool_calls.size(); ++i) {
        require(a.output.tool_calls[i].name == b.output.tool_calls[i].name);
        require(a.output.tool_calls[i].arguments == b.output.tool_calls[i].arguments);
    }
    require(a.streamed == b.streamed);
}

}  // namespace

// Byte 0 chooses the options, the rest is the text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const uint8_t bits = data[0];
    ParseOptions options;
    options.mode = (bits & 1) != 0 ? Mode::thinking : Mode::chat;
    options.any_tool = (bits & 2) != 0;
    if ((bits & 4) != 0) options.tools = {{"f", true, {"a", "b"}}, {"get_weather", true, {"city", "unit"}}};
    options.accept_plain_xml = (bits & 8) != 0;
    options.accept_ascii_bar = (bits & 8) != 0;
    options.strip_eos = (bits & 16) == 0;
    options.accept_bare_invoke = (bits & 32) == 0;
    options.recover_call_in_reasoning = (bits & 32) == 0;
    const Ending ending = (bits & 64) != 0 ? Ending::cut : Ending::stopped;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);

    const Parsed whole = parse(text, std::max<size_t>(text.size(), 1), options, ending);
    for (const size_t piece : {1, 2, 3, 7}) require_same(parse(text, piece, options, ending), whole);
    const ParsedOutput& out = whole.output;
    require(is_valid_utf8(out.reasoning) && is_valid_utf8(out.content));
    for (const ParsedCall& call : out.tool_calls) {
        require(is_valid_utf8(call.name) && !call.name.empty());
        const auto arguments = scan_json(call.arguments);
        require(arguments.ok() && arguments.value().is_object());
    }
    return 0;
}
