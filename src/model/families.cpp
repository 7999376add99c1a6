// Which family reads which general.architecture: one row each.
#include <algorithm>

#include "base/utf8.h"
#include "model/deepseek_v4/model.h"
#include "model/model.h"

namespace vesta::model {
namespace {

struct Family {
    const char* architecture;
    Result<std::unique_ptr<Model>> (*load)(const gguf::File&, const gguf::File*, const std::function<bool(quant::Type)>&);
};

constexpr Family kFamilies[] = {
    {"deepseek4", deepseek_v4::DeepseekV4::load},
};

Result<std::unique_ptr<Model>> load_with(const gguf::File& file, const gguf::File* drafter,
                                         const std::function<bool(quant::Type)>& supports) {
    VESTA_TRY(const std::string_view architecture, file.string("general.architecture"));
    for (const Family& f : kFamilies)
        if (architecture == f.architecture) return f.load(file, drafter, supports);
    return Error{Code::unsupported, strf("{}: architecture '{}' is not one this build can run (deepseek4)", file.name(),
                                         printable(architecture))};
}

}  // namespace

Result<std::unique_ptr<Model>> load(const gguf::File& file, const gguf::File* drafter, const ops::Ops& ops) {
    return load_with(file, drafter, [&](quant::Type t) { return ops.supports(t); });
}

bool known_architecture(std::string_view architecture) {
    return std::any_of(std::begin(kFamilies), std::end(kFamilies),
                       [&](const Family& f) { return architecture == f.architecture; });
}

Status check(const gguf::File& file, const std::function<bool(quant::Type)>& supports) {
    auto model = load_with(file, nullptr, supports);
    if (!model.ok()) return std::move(model).error();
    return {};
}

}  // namespace vesta::model
