#include "snapshot/packing.h"

#include <zstd.h>

#include <algorithm>

namespace vesta::snapshot {
namespace {

constexpr int kLevel = 1;

ZSTD_CCtx* compressor(void* p) { return static_cast<ZSTD_CCtx*>(p); }
ZSTD_DCtx* decompressor(void* p) { return static_cast<ZSTD_DCtx*>(p); }

}  // namespace

void Packer::Free::operator()(void* context) const { ZSTD_freeCCtx(compressor(context)); }

Result<Packer> Packer::create() {
    Packer packer;
    packer.context_.reset(ZSTD_createCCtx());
    if (packer.context_ == nullptr) return Error{Code::no_memory, "no memory to compress with"};
    VESTA_CHECK(
        !ZSTD_isError(ZSTD_CCtx_setParameter(compressor(packer.context_.get()), ZSTD_c_compressionLevel, kLevel)));
    return packer;
}

void Packer::begin(std::span<const std::byte> bytes) {
    VESTA_CHECK(!ZSTD_isError(ZSTD_CCtx_reset(compressor(context_.get()), ZSTD_reset_session_only)));
    bytes_ = bytes;
    at_ = 0;
    ended_ = false;
}

Result<std::span<const std::byte>> Packer::next(std::span<std::byte> out) {
    if (ended_) return std::span<const std::byte>();
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos < to.size && !ended_) {
        ZSTD_inBuffer from{bytes_.data(), bytes_.size(), at_};
        const size_t left = ZSTD_compressStream2(compressor(context_.get()), &to, &from, ZSTD_e_end);
        if (ZSTD_isError(left)) return Error{Code::no_memory, strf("cannot compress: {}", ZSTD_getErrorName(left))};
        at_ = from.pos;
        ended_ = left == 0;
    }
    return std::span<const std::byte>(out.first(to.pos));
}

void Unpacker::Free::operator()(void* context) const { ZSTD_freeDCtx(decompressor(context)); }

Result<Unpacker> Unpacker::create() {
    Unpacker unpacker;
    unpacker.context_.reset(ZSTD_createDCtx());
    if (unpacker.context_ == nullptr) return Error{Code::no_memory, "no memory to decompress with"};
    VESTA_CHECK(
        !ZSTD_isError(ZSTD_DCtx_setParameter(decompressor(unpacker.context_.get()), ZSTD_d_windowLogMax, kWindowLog)));
    return unpacker;
}

void Unpacker::begin(uint64_t raw_bytes, std::span<std::byte> out) {
    VESTA_CHECK(!out.empty() || raw_bytes == 0);
    VESTA_CHECK(!ZSTD_isError(ZSTD_DCtx_reset(decompressor(context_.get()), ZSTD_reset_session_only)));
    out_ = out;
    raw_bytes_ = raw_bytes;
    at_ = 0, done_ = 0;
    ended_ = false;
}

Status Unpacker::feed(std::span<const std::byte> piece) {
    ZSTD_inBuffer from{piece.data(), piece.size(), 0};
    for (;;) {
        if (ended_) {
            if (from.pos == from.size) return {};
            return Error{Code::bad_file, strf("{} bytes after the end of the zstd frame", from.size - from.pos)};
        }
        if (at_ == out_.size()) at_ = 0;
        const auto room = static_cast<size_t>(std::min<uint64_t>(out_.size() - at_, raw_bytes_ - done_));
        ZSTD_outBuffer to{out_.data() + at_, room, 0};
        const size_t before = from.pos;
        const size_t left = ZSTD_decompressStream(decompressor(context_.get()), &to, &from);
        if (ZSTD_isError(left))
            return Error{Code::bad_file, strf("not a sound zstd frame: {}", ZSTD_getErrorName(left))};
        at_ += to.pos, done_ += to.pos;
        ended_ = left == 0;
        if (ended_) continue;
        // Without room zstd may still want the end of the frame, which the next piece may hold.
        if (from.pos == from.size && (to.pos < room || room == 0)) return {};
        if (from.pos == before && to.pos == 0)
            return Error{Code::bad_file, strf("unpacks to more than raw_bytes = {}", raw_bytes_)};
    }
}

Status Unpacker::end() {
    if (!ended_)
        return Error{Code::bad_file,
                     strf("the zstd frame is cut short after {} bytes or unpacks to more than raw_bytes = {}", done_,
                          raw_bytes_)};
    if (done_ != raw_bytes_)
        return Error{Code::bad_file, strf("unpacks to {} bytes, expected raw_bytes = {}", done_, raw_bytes_)};
    return {};
}

}  // namespace vesta::snapshot
