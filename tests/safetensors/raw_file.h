// Builds safetensors files byte by byte, honest or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

namespace vesta::safetensors {

inline std::string raw_file(uint64_t header_length, const std::string& header, const std::string& data) {
    std::string out(8, '\0');
    std::memcpy(out.data(), &header_length, 8);
    return out + header + data;
}
inline std::string raw_file(const std::string& header, const std::string& data) {
    return raw_file(header.size(), header, data);
}
inline std::span<const std::byte> as_bytes(const std::string& s) { return std::as_bytes(std::span(s)); }

inline void write_text(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

// A fresh empty folder for one test.
inline std::filesystem::path fresh_folder(const std::string& name) {
    const auto folder = std::filesystem::path(VESTA_TEST_TMP) / name;
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    return folder;
}

}  // namespace vesta::safetensors
