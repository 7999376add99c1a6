// Reads the layering law (cmake/rooms.cmake) and a tree of sources, and lists where the sources break it. Works on text
// in memory, so that the checker itself can be tested with planted violations. What it enforces is style.md's page on
// the shape of the project; cmake would not notice, because every room finds every header under src/.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace vesta::layering {

using Tree = std::map<std::string, std::string>;  // path relative to the repository root -> contents

struct Room {
    std::string name;  // "backend/cpu"
    int level = 0;
    std::set<std::string> uses;
};

// The vesta_room(...) calls of rooms.cmake, in order. Comments are skipped.
std::vector<Room> parse_rooms(std::string_view cmake);

// The law on its own: names unique and declared before use, levels strictly descending (but see kSameLevel in the
// .cpp).
std::vector<std::string> check_rooms(const std::vector<Room>& rooms);

// Every #include and every forbidden name in src/ and include/. One line per violation, "path:line: what and why".
// `tree` must hold apps/ too, so that an include of it is recognised.
std::vector<std::string> check_sources(const std::vector<Room>& rooms, const Tree& tree);

// Paths of a developer's machine and marks of unfinished work in any text file.
std::vector<std::string> check_text(const Tree& tree);

// Links from a document of the tree to a file of the project that is not there. Web addresses are not followed.
std::vector<std::string> check_links(const std::string& root, const Tree& tree);

// The source with comments, string and character literals replaced by spaces; newlines stay, so lines keep their
// numbers.
std::string strip(std::string_view source);

// Text files below root/<folder> for each folder, and root's own files for "". Hidden and build folders are skipped, as
// are files over 1 MiB and files that hold a zero byte.
Tree read_tree(const std::string& root, const std::vector<std::string>& folders);

}  // namespace vesta::layering
