// Small states to write: every part present, every number different from its neighbours.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "snapshot/file.h"

namespace vesta::snapshot {

struct Sample {
    Header header;
    uint64_t n_vocab = 64;
    std::vector<int32_t> tokens;
    std::vector<float> logits;
    std::vector<std::vector<std::byte>> layer;
    std::string text, tool_calls;

    // `row_bytes`: of layer 0; layer i has i + 1 times as many, plus i.
    static Sample make(size_t n_token, size_t n_layer = 3, size_t row_bytes = 100) {
        Sample s;
        s.header.model = 0x1122334455667788;
        s.header.row_format = 2;
        s.header.weight_bits = 425;
        s.header.reason = Reason::continued;
        s.header.created = 1'700'000'000;
        std::mt19937 rng(static_cast<unsigned>(n_token * 31 + n_layer));
        for (size_t i = 0; i < n_token; ++i) s.tokens.push_back(static_cast<int32_t>(rng() % s.n_vocab));
        for (uint64_t i = 0; i < s.n_vocab; ++i) s.logits.push_back(static_cast<float>(i) * 0.5f - 7.25f);
        for (size_t i = 0; i < n_layer; ++i) {
            s.layer.emplace_back(row_bytes * (i + 1) + i);
            for (std::byte& b : s.layer.back()) b = static_cast<std::byte>(rng());
        }
        s.text = std::string("The quick brown fox \xff\x00 jumps", 28);
        s.tool_calls = R"({"call_1":"<tool>"})";
        return s;
    }

    View view() const {
        View v;
        v.header = header;
        v.tokens = tokens;
        v.logits = logits;
        for (const auto& rows : layer) v.layer.emplace_back(rows);
        v.text = text;
        v.tool_calls = tool_calls;
        return v;
    }

    Expected expected() const {
        std::vector<uint64_t> bytes;
        for (const auto& rows : layer) bytes.push_back(rows.size());
        return {.model = header.model,
                .row_format = header.row_format,
                .n_vocab = n_vocab,
                .max_tokens = 4096,
                .layer_bytes = [bytes](uint64_t) { return bytes; }};
    }

    std::vector<std::byte> rows() const {
        std::vector<std::byte> all;
        for (const auto& r : layer) all.insert(all.end(), r.begin(), r.end());
        return all;
    }
};

// A folder of this test's own, gone with it.
class Folder {
 public:
    Folder() {
        static int serial = 0;
        path_ =
            std::string(VESTA_TEST_TMP) + "/snapshot-" + std::to_string(::getpid()) + "-" + std::to_string(serial++);
        std::filesystem::create_directories(path_);
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    const std::string& path() const { return path_; }
    std::string file(const std::string& name) const { return path_ + "/" + name; }
    std::vector<std::string> names() const {
        std::vector<std::string> out;
        for (const auto& entry : std::filesystem::directory_iterator(path_)) out.push_back(entry.path().filename());
        return out;
    }

 private:
    std::string path_;
};

inline std::vector<std::byte> file_bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    const std::string s{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    std::vector<std::byte> bytes(s.size());
    std::memcpy(bytes.data(), s.data(), s.size());
    return bytes;
}

// A new file each time: ext4 flushes one that was cut to nothing and written again, for milliseconds.
inline void put_file(const std::string& path, std::span<const std::byte> bytes) {
    std::filesystem::remove(path);
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace vesta::snapshot
