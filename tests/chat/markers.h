// The markers of DSV4 prompts as a vocabulary spells them, for tests that look for them in text.
#pragma once

#include <array>
#include <string_view>

namespace vesta::chat {

// None is part of another, so their order does not matter.
constexpr std::array<std::string_view, 14> kMarkers = {
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "<｜latest_reminder｜>",
    "｜DSML｜",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜read_url｜>",
};

}  // namespace vesta::chat
