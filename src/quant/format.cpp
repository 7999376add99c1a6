#include "quant/format.h"

#include <cstring>

#include "base/result.h"
#include "quant/codecs.h"

namespace vesta::quant {
namespace {

// Sorted by id. Block shapes: docs/formats.md. Types without a decoder are carried and sized, never computed with.
constexpr Format kFormats[] = {
    {Type::f32, "f32", 1, 4, decode_f32, encode_f32},
    {Type::f16, "f16", 1, 2, decode_f16, encode_f16},
    {Type::q4_0, "q4_0", 32, 18, decode_q4_0, nullptr},
    {Type::q4_1, "q4_1", 32, 20, decode_q4_1, nullptr},
    {Type::q5_0, "q5_0", 32, 22, decode_q5_0, nullptr},
    {Type::q5_1, "q5_1", 32, 24, decode_q5_1, nullptr},
    {Type::q8_0, "q8_0", 32, 34, decode_q8_0, encode_q8_0},
    {Type::q8_1, "q8_1", 32, 36, nullptr, nullptr},
    {Type::q2_k, "q2_k", 256, 84, decode_q2_k, nullptr},
    {Type::q3_k, "q3_k", 256, 110, decode_q3_k, nullptr},
    {Type::q4_k, "q4_k", 256, 144, decode_q4_k, nullptr},
    {Type::q5_k, "q5_k", 256, 176, decode_q5_k, nullptr},
    {Type::q6_k, "q6_k", 256, 210, decode_q6_k, nullptr},
    {Type::q8_k, "q8_k", 256, 292, decode_q8_k, encode_q8_k},
    {Type::iq2_xxs, "iq2_xxs", 256, 66, decode_iq2_xxs, nullptr},
    {Type::iq2_xs, "iq2_xs", 256, 74, nullptr, nullptr},
    {Type::iq3_xxs, "iq3_xxs", 256, 98, nullptr, nullptr},
    {Type::iq1_s, "iq1_s", 256, 50, nullptr, nullptr},
    {Type::iq4_nl, "iq4_nl", 32, 18, decode_iq4_nl, nullptr},
    {Type::iq3_s, "iq3_s", 256, 110, nullptr, nullptr},
    {Type::iq2_s, "iq2_s", 256, 82, nullptr, nullptr},
    {Type::iq4_xs, "iq4_xs", 256, 136, nullptr, nullptr},
    {Type::i8, "i8", 1, 1, nullptr, nullptr},
    {Type::i16, "i16", 1, 2, nullptr, nullptr},
    {Type::i32, "i32", 1, 4, nullptr, nullptr},
    {Type::i64, "i64", 1, 8, nullptr, nullptr},
    {Type::f64, "f64", 1, 8, nullptr, nullptr},
    {Type::iq1_m, "iq1_m", 256, 56, nullptr, nullptr},
    {Type::bf16, "bf16", 1, 2, decode_bf16, encode_bf16},
    {Type::tq1_0, "tq1_0", 256, 54, nullptr, nullptr},
    {Type::tq2_0, "tq2_0", 256, 66, nullptr, nullptr},
    {Type::mxfp4, "mxfp4", 32, 17, decode_mxfp4, encode_mxfp4},
};

}  // namespace

const Format* find_format(uint32_t type_id) {
    for (const Format& f : kFormats)
        if (static_cast<uint32_t>(f.type) == type_id) return &f;
    return nullptr;
}

const Format* find_format(const char* name) {
    for (const Format& f : kFormats)
        if (std::strcmp(f.name, name) == 0) return &f;
    return nullptr;
}

const Format& format(Type type) {
    const Format* f = find_format(static_cast<uint32_t>(type));
    VESTA_CHECK(f != nullptr);
    return *f;
}

}  // namespace vesta::quant
