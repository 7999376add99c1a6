// A prompt before tokenization: a list of segments. Only the renderer in room chat writes control segments; everything
// that came from outside (user, tool result, system text, file) goes into text segments, whose bytes can never become a
// control token, whatever they spell.
#pragma once

#include <string>

namespace vesta::tokenizer {

struct Segment {
    bool control;      // true: `text` is the spelling of exactly one special token, e.g. "<｜User｜>"
    std::string text;  // UTF-8 by intention; any bytes are accepted in a text segment
};

}  // namespace vesta::tokenizer
