// The lines entered before. A file holds one entry per line, oldest first, with LF and backslash written as \n and \\,
// so that multi-line entries survive and the file stays readable.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vesta::app {

class History {
 public:
    static constexpr size_t kMaxEntries = 1000;
    static constexpr size_t kMaxEntryBytes = 64 << 10;  // longer ones (pasted files) are not worth keeping

    // Ignores empty entries, entries over kMaxEntryBytes and a repetition of the last one. Returns whether it was
    // added.
    bool add(std::string_view entry);
    size_t size() const { return entries_.size(); }
    const std::string& operator[](size_t i) const { return entries_[i]; }  // 0 = oldest

    std::string to_text() const;
    // Whatever the bytes are: they become clean, bounded entries.
    static History from_text(std::string_view text);

    static std::string escape(std::string_view entry);  // one line, without the line feed

 private:
    std::vector<std::string> entries_;
};

// $XDG_STATE_HOME/vesta/history, else $HOME/.local/state/vesta/history; empty when neither variable is set.
std::string default_history_path();

// Reads PATH; a missing file is an empty history.
Result<History> load_history(const std::string& path);

// Adds one entry at the end of the file, which is made (mode 0600, its folders 0700) when missing. Appending, instead
// of rewriting at exit, keeps the entries of two chats that run at the same time.
Status append_history(const std::string& path, std::string_view entry);

// Rewrites the file with only the newest entries when it has grown to twice the bound.
Status trim_history(const std::string& path);

}  // namespace vesta::app
