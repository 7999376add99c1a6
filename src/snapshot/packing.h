// zstd in pieces: a section is packed into one frame while it is written and unpacked while it is read, so that neither
// needs the packed bytes in memory as a whole. Nothing here believes a frame: what it unpacks to is bounded by the
// section's raw_bytes, and its window by kWindowLog.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"

namespace vesta::snapshot {

// Windows up to 8 MiB are unpacked, the size RFC 8878 asks every decoder to support; level 1 uses 512 KiB.
constexpr int kWindowLog = 23;

class Packer {
 public:
    // Level 1: rows are nearly noise (an e4m3 code has little to give), and a higher level only takes longer.
    static Result<Packer> create();

    void begin(std::span<const std::byte> bytes);  // `bytes` stay where they are until the last next()
    // The next packed bytes, in `out`; empty when there are no more.
    Result<std::span<const std::byte>> next(std::span<std::byte> out);

 private:
    struct Free {
        void operator()(void* context) const;
    };
    std::unique_ptr<void, Free> context_;
    std::span<const std::byte> bytes_;
    size_t at_ = 0;
    bool ended_ = false;
};

class Unpacker {
 public:
    static Result<Unpacker> create();

    // A frame of exactly raw_bytes. An `out` of that size receives them; a smaller one is filled again and again, for
    // whoever only wants to know whether the frame is sound. Requires: out not empty unless raw_bytes is 0.
    void begin(uint64_t raw_bytes, std::span<std::byte> out);
    Status feed(std::span<const std::byte> piece);
    Status end();  // was that all of it?

 private:
    struct Free {
        void operator()(void* context) const;
    };
    std::unique_ptr<void, Free> context_;
    std::span<std::byte> out_;
    size_t at_ = 0;  // in out_
    uint64_t done_ = 0, raw_bytes_ = 0;
    bool ended_ = false;
};

}  // namespace vesta::snapshot
