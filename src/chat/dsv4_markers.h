// The spellings of DeepSeek V4's markers. ids differ between vocabularies; the tokenizer finds them by spelling. The
// bar is U+FF5C, the low line U+2581. Of a tool tag only the core "｜DSML｜" is a special token.
#pragma once

#include <string_view>

namespace vesta::chat::dsv4 {

inline constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kEndThink = "</think>";
inline constexpr std::string_view kReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kDsml = "｜DSML｜";

inline constexpr std::string_view kAction = "<｜action｜>";
inline constexpr std::string_view kQuery = "<｜query｜>";
inline constexpr std::string_view kAuthority = "<｜authority｜>";
inline constexpr std::string_view kDomain = "<｜domain｜>";
inline constexpr std::string_view kTitle = "<｜title｜>";
inline constexpr std::string_view kReadUrl = "<｜read_url｜>";

// How a parameter's closing tag is written when it is part of a value. The first form is for string values, where the
// parser undoes exactly this sequence; the second is for JSON values, where it is an ordinary escape.
inline constexpr std::string_view kParameterEnd = "</｜DSML｜parameter>";
inline constexpr std::string_view kParameterEndEscaped = "&lt;/｜DSML｜parameter>";
inline constexpr std::string_view kParameterEndInJson = "\\u003c/｜DSML｜parameter>";

}  // namespace vesta::chat::dsv4
