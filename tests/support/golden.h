// Typed views of the recorded reference values (safetensors files under tests/data).
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "quant/format.h"
#include "safetensors/file.h"

namespace vesta::test {

class Golden {
 public:
    explicit Golden(const std::string& path) {
        auto file = safetensors::File::open(path);
        if (!file.ok()) throw std::runtime_error(file.error().message);
        file_ = std::make_unique<safetensors::File>(std::move(file).value());
    }

    std::vector<int32_t> ints(const std::string& name) const {
        const auto& t = get(name);
        if (t.dtype != safetensors::DType::i32) throw std::runtime_error(name + " is not I32");
        std::vector<int32_t> v(t.n_elem());
        std::memcpy(v.data(), t.bytes.data(), t.bytes.size());
        return v;
    }
    // F32 or F16, as f32.
    std::vector<float> floats(const std::string& name) const {
        const auto& t = get(name);
        std::vector<float> v(t.n_elem());
        if (t.dtype == safetensors::DType::f32)
            std::memcpy(v.data(), t.bytes.data(), t.bytes.size());
        else if (t.dtype == safetensors::DType::f16)
            quant::format(quant::Type::f16).decode(t.bytes.data(), v.data(), static_cast<int64_t>(v.size()));
        else
            throw std::runtime_error(name + " is neither F32 nor F16");
        return v;
    }
    bool has(const std::string& name) const { return file_->find(name) != nullptr; }

 private:
    const safetensors::TensorInfo& get(const std::string& name) const {
        const auto* t = file_->find(name);
        if (t == nullptr) throw std::runtime_error("golden file lacks " + name);
        return *t;
    }
    std::unique_ptr<safetensors::File> file_;
};

}  // namespace vesta::test
