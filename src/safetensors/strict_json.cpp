#include "safetensors/strict_json.h"

#include <unordered_set>
#include <vector>

#include "base/utf8.h"

namespace vesta::safetensors {

using nlohmann::json;

std::string shown(std::string_view text, size_t max_bytes) {
    return printable(text.substr(0, max_bytes)) + (text.size() > max_bytes ? "..." : "");
}

Result<json> parse_strict_json(std::string_view text, const std::string& name, int max_depth) {
    // One set of keys per open object; arrays get an empty one so that the stack mirrors the nesting.
    std::vector<std::unordered_set<std::string>> open;
    std::string problem;
    const auto watch = [&](int, json::parse_event_t event, json& parsed) {
        switch (event) {
            case json::parse_event_t::object_start:
            case json::parse_event_t::array_start:
                open.emplace_back();
                if (static_cast<int>(open.size()) > max_depth && problem.empty())
                    problem = strf("nested deeper than {} levels", max_depth);
                break;
            case json::parse_event_t::object_end:
            case json::parse_event_t::array_end:
                if (!open.empty()) open.pop_back();
                break;
            case json::parse_event_t::key:
                if (problem.empty() && !open.empty()) {
                    const auto& key = parsed.get_ref<const std::string&>();
                    if (!open.back().insert(key).second) problem = strf("key \"{}\" appears twice", shown(key));
                }
                break;
            case json::parse_event_t::value:
                break;
        }
        // After a problem nothing is kept, so a hostile file costs no more memory; the parser still walks to the end.
        return problem.empty();
    };
    try {
        json parsed = json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
        if (!problem.empty()) return Error{Code::bad_file, strf("{}: {}", name, problem)};
        if (parsed.is_discarded()) return Error{Code::bad_file, strf("{}: not valid JSON", name)};
        return parsed;
    } catch (const std::exception& e) {
        return Error{Code::bad_file, strf("{}: cannot be parsed as JSON: {}", name, e.what())};
    }
}

}  // namespace vesta::safetensors
