// Feeding a parser in pieces, and comparing what comes out.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "chat/dsv4_parse.h"

namespace vesta::chat {

inline ParseOptions any_tool(Mode mode) {
    ParseOptions options;
    options.mode = mode;
    options.any_tool = true;
    return options;
}

struct PiecewiseRun {
    ParsedOutput output;
    std::vector<OutputEvent> events;
    bool done = false;  // before finish
};

inline PiecewiseRun parse_pieces(std::string_view text, size_t piece, const ParseOptions& options,
                                 Ending ending = Ending::stopped) {
    PiecewiseRun run;
    OutputParser parser(options);
    for (size_t at = 0; at < text.size(); at += piece) parser.feed(text.substr(at, piece), &run.events);
    run.done = parser.done();
    run.output = parser.finish(ending, &run.events);
    return run;
}

// Every field of the output, printable.
inline std::string show(const ParsedOutput& out) {
    std::string text = "reasoning[" + out.reasoning + "]\ncontent[" + out.content + "]\n";
    for (const ParsedCall& call : out.tool_calls)
        text += "call[" + call.name + "](" + call.arguments + (call.declared ? ")\n" : ") undeclared\n");
    if (out.recovered) text += "recovered\n";
    if (out.unterminated) text += "unterminated\n";
    if (out.reasoning_open) text += "reasoning open\n";
    for (const std::string& note : out.notes) text += "note: " + note + "\n";
    return text;
}

// What a client would have put together from the events.
struct Streamed {
    std::string reasoning, content;
    std::map<size_t, ParsedCall> calls;  // complete ones
    bool well_formed = true;             // begin before arguments before end, one call at a time, nothing after its end
};
inline Streamed stream(const std::vector<OutputEvent>& events) {
    using Kind = OutputEvent::Kind;
    Streamed s;
    bool open = false;
    size_t current = 0;
    ParsedCall call;
    for (const OutputEvent& event : events) {
        switch (event.kind) {
            case Kind::reasoning:
                s.reasoning += event.text;
                break;
            case Kind::content:
                s.content += event.text;
                break;
            case Kind::call_begin:
                s.well_formed = s.well_formed && !open && !s.calls.contains(event.call);
                open = true;
                current = event.call;
                call = {event.text, {}, true};
                break;
            case Kind::call_arguments:
                s.well_formed = s.well_formed && open && event.call == current;
                call.arguments += event.text;
                break;
            case Kind::call_end:
                s.well_formed = s.well_formed && open && event.call == current;
                s.calls[current] = call;
                open = false;
                break;
            case Kind::call_dropped:
                s.well_formed = s.well_formed && open && event.call == current;
                open = false;
                break;
        }
    }
    s.well_formed = s.well_formed && !open;
    return s;
}

inline std::string show(const Streamed& s) {
    std::string text = "reasoning[" + s.reasoning + "]\ncontent[" + s.content + "]\n";
    for (const auto& [index, call] : s.calls) text += "call[" + call.name + "](" + call.arguments + ")\n";
    return text;
}

}  // namespace vesta::chat
