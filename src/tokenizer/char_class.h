// The class of a code point (L, M, N, P, S, White_Space, other), from the generated table.
#pragma once

#include "tokenizer/unicode_categories.h"

namespace vesta::tokenizer {

CharClass char_class(uint32_t code_point);

}  // namespace vesta::tokenizer
