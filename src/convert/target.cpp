#include "convert/target.h"

#include <algorithm>

#include "base/utf8.h"

namespace vesta::convert {

using quant::Type;

bool is_integer(Type type) { return type == Type::i8 || type == Type::i16 || type == Type::i32 || type == Type::i64; }

bool uses_importance(Type type) { return type == Type::q8_0 || needs_importance(type); }

bool needs_importance(Type type) {
    switch (type) {
        case Type::q2_k:
        case Type::q3_k:
        case Type::q4_k:
        case Type::q5_k:
        case Type::q6_k:
        case Type::iq2_xxs:
        case Type::mxfp4:
            return true;
        default:
            return false;
    }
}

bool is_coarse(Type type) {
    switch (type) {
        case Type::f64:
        case Type::f32:
        case Type::f16:
        case Type::bf16:
        case Type::q8_0:
        case Type::q8_1:
        case Type::q8_k:
        case Type::mxfp4:
            return false;
        default:
            return !is_integer(type);
    }
}

Target choose_target(const TensorFacts& t, const Recipe& recipe, const std::vector<Override>& overrides) {
    if (is_integer(t.as_stored)) return {t.as_stored, true};
    if (t.is_vector) return {Type::f32, true};
    const auto over =
        std::find_if(overrides.rbegin(), overrides.rend(), [&](const Override& o) { return o.applies_to(t.name); });
    const std::optional<Type> wanted = over != overrides.rend() ? over->type() : recipe.type_for(t.name);
    const bool exact = !wanted.has_value();
    Type type = wanted.value_or(t.as_stored);
    const auto divides = [&](Type candidate) {
        return t.n_col % static_cast<uint64_t>(quant::format(candidate).block_elems) == 0;
    };
    // Compressor biases are added, not multiplied: a few KB that backends read as floats.
    if (t.name.ends_with("_ape.weight") && quant::format(type).block_elems > 1)
        return {Type::f16, false, strf("{}: is never stored in blocks; stored as f16", printable(t.name))};
    if (divides(type)) return {type, exact};
    const int block = quant::format(type).block_elems;
    const Type plain = t.as_stored == Type::bf16 ? Type::bf16 : Type::f16;
    const Type fallback = block > 32 && t.as_stored == Type::mxfp4 && divides(Type::mxfp4) ? Type::mxfp4
                          : block > 32 && divides(Type::q8_0)                              ? Type::q8_0
                                                                                           : plain;
    return {fallback, exact && fallback == t.as_stored,
            strf("{}: rows of {} values do not divide into {} blocks of {}; stored as {}", printable(t.name), t.n_col,
                 quant::format(type).name, block, quant::format(fallback).name)};
}

}  // namespace vesta::convert
