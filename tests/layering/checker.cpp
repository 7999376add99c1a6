#include "checker.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/result.h"

namespace vesta::layering {
namespace {

namespace fs = std::filesystem;

// The one pair of rooms on the same level: a cpu kernel that does not exist yet falls back on the reference.
constexpr std::string_view kSameLevel[][2] = {{"backend/cpu", "backend/reference"}};

// Files that may do what their room may not, each with its reason.
constexpr std::string_view kMayPrintAndAbort = "src/base/result.cpp";  // VESTA_CHECK ends the process
constexpr std::string_view kMayUsePause = "src/base/thread_pool.cpp";  // the spin loop's pause instruction

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool starts_with(std::string_view s, std::string_view prefix) { return s.substr(0, prefix.size()) == prefix; }
bool ends_with(std::string_view s, std::string_view suffix) {
    return s.size() >= suffix.size() && s.substr(s.size() - suffix.size()) == suffix;
}
bool is_header(std::string_view path) { return ends_with(path, ".h"); }
bool is_source(std::string_view path) {
    constexpr std::string_view kEndings[] = {".h", ".cpp", ".inc", ".cu", ".cuh", ".hip", ".mm", ".metal"};
    return std::any_of(std::begin(kEndings), std::end(kEndings), [&](auto e) { return ends_with(path, e); });
}

std::string at(std::string_view path, size_t line) { return strf("{}:{}: ", path, line); }

size_t line_of(std::string_view text, size_t offset) {
    return 1 + static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(offset), '\n'));
}

std::string folder_of(std::string_view path) {
    const size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? "" : std::string(path.substr(0, slash));
}

// The room a path under src/ belongs to: the longest room name that is one of its leading folders.
const Room* room_of(const std::vector<Room>& rooms, std::string_view path) {
    const Room* best = nullptr;
    for (const Room& room : rooms)
        if (starts_with(path, strf("src/{}/", room.name)) && (best == nullptr || room.name.size() > best->name.size()))
            best = &room;
    return best;
}

struct Include {
    std::string target;
    bool quoted;
    size_t line;
};

// Directives are found in the stripped text (so a commented-out one does not count) and read from the original.
std::vector<Include> includes_of(std::string_view source, std::string_view stripped) {
    std::vector<Include> found;
    size_t line = 0;
    for (size_t begin = 0; begin < stripped.size(); ++line) {
        const size_t end = std::min(stripped.find('\n', begin), stripped.size());
        const std::string_view code = stripped.substr(begin, end - begin), text = source.substr(begin, end - begin);
        begin = end + 1;
        const size_t hash = code.find_first_not_of(" \t");
        if (hash == std::string_view::npos || code[hash] != '#') continue;
        const size_t word = code.find_first_not_of(" \t", hash + 1);
        if (word == std::string_view::npos || !starts_with(code.substr(word), "include")) continue;
        const size_t open = text.find_first_of("<\"", word);
        if (open == std::string_view::npos) {
            found.push_back({std::string(text.substr(word)), true, line + 1});  // a macro: resolves to nothing
            continue;
        }
        const bool quoted = text[open] == '"';
        const size_t close = text.find(quoted ? '"' : '>', open + 1);
        found.push_back({std::string(text.substr(open + 1, close - open - 1)), quoted, line + 1});
    }
    return found;
}

// The file of the tree that the compiler would take, or "": first beside the includer, then src/, then include/.
std::string resolve(const Tree& tree, std::string_view includer, const Include& include) {
    std::vector<std::string> bases = {"src", "include"};
    if (include.quoted) bases.insert(bases.begin(), folder_of(includer));
    for (const std::string& base : bases) {
        const std::string path = (fs::path(base) / include.target).lexically_normal().generic_string();
        if (tree.count(path) != 0) return path;
    }
    return "";
}

// Headers of instruction sets and device languages.
bool is_hardware_header(std::string_view name) {
    constexpr std::string_view kNames[] = {"x86intrin.h", "cpuid.h",    "arm_neon.h",
                                           "arm_sve.h",   "arm_acle.h", "arm_bf16.h"};
    if (ends_with(name, "intrin.h") || starts_with(name, "cuda") || starts_with(name, "hip/") ||
        starts_with(name, "cublas") || starts_with(name, "nccl") || starts_with(name, "rccl") ||
        starts_with(name, "Metal/"))
        return true;
    return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

struct Word {
    std::string_view text;
    bool call = false;  // forbidden only when called as a free function (x.exit() and "exit" as a name are fine)
};
constexpr Word kProcessWords[] = {{"getenv", true},
                                  {"secure_getenv", true},
                                  {"setenv", true},
                                  {"exit", true},
                                  {"_exit", true},
                                  {"_Exit", true},
                                  {"quick_exit", true},
                                  {"abort", true},
                                  {"terminate", true},
                                  {"printf", true},
                                  {"vprintf", true},
                                  {"puts", true},
                                  {"putchar", true},
                                  {"perror", true},
                                  {"stdout"},
                                  {"stderr"},
                                  {"cout"},
                                  {"cerr"},
                                  {"clog"},
                                  {"STDOUT_FILENO"},
                                  {"STDERR_FILENO"}};
constexpr Word kHardwareWords[] = {{"asm"}, {"__asm__"}, {"__asm"}, {"__global__"}, {"__device__"}, {"__shared__"}};

// Calls found(offset, word) for each use in stripped code.
template <size_t N, class F>
void find_words(std::string_view code, const Word (&words)[N], F&& found) {
    for (size_t i = 0; i < code.size();) {
        if (!is_word(code[i])) {
            ++i;
            continue;
        }
        size_t end = i;
        while (end < code.size() && is_word(code[end])) ++end;
        const std::string_view word = code.substr(i, end - i);
        for (const Word& w : words) {
            if (word != w.text) continue;
            const size_t next = code.find_first_not_of(" \t\n", end);
            const bool called = next != std::string_view::npos && code[next] == '(';
            const bool member = (i >= 1 && code[i - 1] == '.') || (i >= 2 && code.substr(i - 2, 2) == "->");
            if (!w.call || (called && !member)) found(i, word);
        }
        i = end;
    }
}

bool opens_with_comment(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t\r\n");
    return first != std::string_view::npos &&
           (starts_with(text.substr(first), "//") || starts_with(text.substr(first), "/*"));
}

}  // namespace

std::vector<Room> parse_rooms(std::string_view cmake) {
    std::string text;
    std::istringstream lines{std::string(cmake)};
    for (std::string line; std::getline(lines, line);) text += line.substr(0, line.find('#')) + "\n";

    constexpr std::string_view kCall = "vesta_room(";
    std::vector<Room> rooms;
    for (size_t p = text.find(kCall); p != std::string::npos; p = text.find(kCall, p + 1)) {
        const size_t begin = p + kCall.size(), end = text.find(')', begin);
        std::istringstream words(text.substr(begin, end - begin));
        Room room;
        words >> room.name;
        bool uses = false;
        for (std::string word; words >> word;) {
            if (word == "LEVEL") {
                words >> room.level;
            } else if (word == "USES") {
                uses = true;
            } else if (uses) {
                room.uses.insert(word);
            }
        }
        rooms.push_back(std::move(room));
    }
    return rooms;
}

std::vector<std::string> check_rooms(const std::vector<Room>& rooms) {
    std::vector<std::string> bad;
    std::map<std::string, int> level;
    for (const Room& room : rooms) {
        if (level.count(room.name) != 0) bad.push_back("room " + room.name + " is listed twice");
        for (const std::string& used : room.uses) {
            const auto it = level.find(used);
            if (it == level.end()) {
                bad.push_back("room " + room.name + " uses " + used + ", which is not listed above it");
                continue;
            }
            const bool same_level_allowed =
                std::any_of(std::begin(kSameLevel), std::end(kSameLevel),
                            [&](const auto& pair) { return pair[0] == room.name && pair[1] == used; });
            if (it->second > room.level || (it->second == room.level && !same_level_allowed))
                bad.push_back("room " + room.name + " (level " + std::to_string(room.level) + ") uses " + used +
                              " (level " + std::to_string(it->second) + "): levels must descend");
        }
        level[room.name] = room.level;
    }
    return bad;
}

std::vector<std::string> check_sources(const std::vector<Room>& rooms, const Tree& tree) {
    std::vector<std::string> bad;
    int engine_level = INT32_MAX;
    for (const Room& room : rooms)
        if (room.name == "engine") engine_level = room.level;

    for (const auto& file : tree) {
        const std::string &path = file.first, &text = file.second;  // not a binding: clang 14 cannot capture those
        const bool public_header = starts_with(path, "include/");
        if (!is_source(path) || !(public_header || starts_with(path, "src/"))) continue;
        const Room* room = room_of(rooms, path);
        if (!public_header && room == nullptr) {
            bad.push_back(at(path, 1) + "belongs to no room of cmake/rooms.cmake");
            continue;
        }
        if (is_header(path) && !opens_with_comment(text))
            bad.push_back(at(path, 1) + "a header begins with a comment that says what it is for");

        const std::string code = strip(text);
        const bool in_backend = !public_header && (room->name == "backend" || starts_with(room->name, "backend/"));
        // The quantizer's searches are loops over whole models; their vector forms are files of their own.
        const bool in_search = starts_with(path, "src/quant/quantize_") && ends_with(path, "_avx2.cpp");

        for (const Include& include : includes_of(text, code)) {
            if (is_hardware_header(include.target)) {
                if (!in_backend && !in_search && path != kMayUsePause)
                    bad.push_back(at(path, include.line) + "<" + include.target +
                                  ">: only backend/ knows the hardware");
                continue;
            }
            const std::string target = resolve(tree, path, include);
            if (target.empty()) {
                // A file of src/ or include/ that does not exist, or one of apps/ or tests/ by a path of its own.
                if (include.quoted)
                    bad.push_back(at(path, include.line) + "\"" + include.target + "\" is no file of src/ or include/");
                continue;
            }
            const Room* used = room_of(rooms, target);
            const std::string seen = "includes " + target;
            if (public_header) {
                if (!starts_with(target, "include/") && (used == nullptr || used->name != "base"))
                    bad.push_back(at(path, include.line) + seen + ": public headers may use only base and each other");
            } else if (starts_with(target, "include/")) {
                if (room->level < engine_level)
                    bad.push_back(at(path, include.line) + seen + ": the public interface is above room " + room->name);
            } else if (used == nullptr) {
                bad.push_back(at(path, include.line) + seen + ", which belongs to no room");
            } else if (used != room && room->uses.count(used->name) == 0) {
                bad.push_back(at(path, include.line) + seen + ": rooms.cmake does not let " + room->name + " use " +
                              used->name);
            }
        }
        if (path != kMayPrintAndAbort) {
            find_words(code, kProcessWords, [&](size_t offset, std::string_view word) {
                bad.push_back(at(path, line_of(code, offset)) + std::string(word) +
                              ": only apps/ reads the environment, prints and exits");
            });
            for (size_t p = code.find("fmt::print"); p != std::string::npos; p = code.find("fmt::print", p + 1))
                bad.push_back(at(path, line_of(code, p)) + "fmt::print: only apps/ prints");
        }
        if (!in_backend && path != kMayUsePause)
            find_words(code, kHardwareWords, [&](size_t offset, std::string_view word) {
                bad.push_back(at(path, line_of(code, offset)) + std::string(word) +
                              ": only backend/ knows the hardware");
            });
    }
    return bad;
}

std::vector<std::string> check_text(const Tree& tree) {
    // Written in two pieces, so that this file does not contain what it looks for.
    const std::array<std::string, 3> folders = {std::string("/wo") + "rk/", std::string("/ro") + "ot/",
                                                std::string("/fa") + "rm/"};
    const std::array<std::string, 2> marks = {std::string("TO") + "DO", std::string("FIX") + "ME"};
    std::vector<std::string> bad;
    for (const auto& [path, text] : tree) {
        for (const std::string& folder : folders)
            for (size_t p = text.find(folder); p != std::string::npos; p = text.find(folder, p + 1)) {
                // Only where an absolute path begins: "frame/<folder>" is something else.
                if (p > 0 && (is_word(text[p - 1]) || text[p - 1] == '.' || text[p - 1] == '}')) continue;
                bad.push_back(at(path, line_of(text, p)) + "a path of one machine: " + folder);
            }
        for (const std::string& mark : marks)
            for (size_t p = text.find(mark); p != std::string::npos; p = text.find(mark, p + 1)) {
                const size_t end = p + mark.size();
                if ((p > 0 && is_word(text[p - 1])) || (end < text.size() && is_word(text[end]))) continue;
                bad.push_back(at(path, line_of(text, p)) + mark + ": finish it, or file an issue");
            }
    }
    return bad;
}

std::vector<std::string> check_links(const std::string& root, const Tree& tree) {
    std::vector<std::string> bad;
    for (const auto& [path, text] : tree) {
        if (!ends_with(path, ".md")) continue;
        for (size_t p = text.find("]("); p != std::string::npos; p = text.find("](", p + 1)) {
            const size_t end = text.find_first_of(")#", p + 2);
            const std::string target = text.substr(p + 2, end - p - 2);
            if (target.empty() || target.find("://") != std::string::npos) continue;
            if (!fs::exists(fs::path(root) / folder_of(path) / target))
                bad.push_back(at(path, line_of(text, p)) + "links to " + target + ", which is not there");
        }
    }
    return bad;
}

std::string strip(std::string_view s) {
    std::string out(s);
    const auto blank = [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end && i < out.size(); ++i)
            if (out[i] != '\n') out[i] = ' ';
    };
    for (size_t i = 0; i < s.size();) {
        const std::string_view rest = s.substr(i);
        size_t end = i + 1;
        if (starts_with(rest, "//")) {
            end = std::min(s.find('\n', i), s.size());
            blank(i, end);
        } else if (starts_with(rest, "/*")) {
            const size_t close = s.find("*/", i + 2);
            end = close == std::string_view::npos ? s.size() : close + 2;
            blank(i, end);
        } else if (s[i] == '"' && i > 0 && s[i - 1] == 'R') {  // R"delimiter( ... )delimiter"
            const size_t open = s.find('(', i);
            if (open == std::string_view::npos) break;
            const std::string closer = strf("){}\"", s.substr(i + 1, open - i - 1));
            const size_t close = s.find(closer, open);
            end = close == std::string_view::npos ? s.size() : close + closer.size();
            blank(i, end);
        } else if (s[i] == '"' || (s[i] == '\'' && (i == 0 || !is_word(s[i - 1])))) {  // 1'000 is no literal
            while (end < s.size() && s[end] != s[i] && s[end] != '\n') end += s[end] == '\\' ? 2 : 1;
            end = std::min(end + 1, s.size());
            blank(i, end);
        }
        i = end;
    }
    return out;
}

Tree read_tree(const std::string& root, const std::vector<std::string>& folders) {
    Tree tree;
    const auto add = [&](const fs::path& path) {
        if (path.filename().string()[0] == '.' || !fs::is_regular_file(path) || fs::file_size(path) > (1U << 20))
            return;
        std::ifstream in(path, std::ios::binary);
        std::string text{std::istreambuf_iterator<char>(in), {}};
        if (text.find('\0') == std::string::npos)
            tree[path.lexically_relative(root).generic_string()] = std::move(text);
    };
    for (const std::string& folder : folders) {
        const fs::path base = fs::path(root) / folder;
        if (!fs::is_directory(base)) continue;
        if (folder.empty()) {
            for (const auto& entry : fs::directory_iterator(base)) add(entry.path());
            continue;
        }
        for (auto it = fs::recursive_directory_iterator(base); it != fs::recursive_directory_iterator(); ++it) {
            const std::string name = it->path().filename().string();
            if (it->is_directory() && (name == "build" || name[0] == '.')) it.disable_recursion_pending();
            add(it->path());
        }
    }
    return tree;
}

}  // namespace vesta::layering
