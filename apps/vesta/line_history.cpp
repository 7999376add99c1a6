#include "line_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/file.h"
#include "line_keys.h"
#include "user_folder.h"

namespace vesta::app {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{2} * History::kMaxEntries * History::kMaxEntryBytes;

Error os_error(const std::string& path, const char* doing) {
    return Error{Code::io, strf("{}: cannot {}: {}", path, doing, std::strerror(errno))};
}

std::string unescape(std::string_view line) {
    std::string out;
    for (size_t i = 0; i < line.size(); ++i) {
        if (line[i] != '\\' || i + 1 == line.size()) {
            out.push_back(line[i]);
            continue;
        }
        ++i;
        out.push_back(line[i] == 'n' ? '\n' : line[i]);
    }
    return out;
}

Status make_folders(const std::string& path) {
    for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
        const std::string folder = path.substr(0, at);
        if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return os_error(folder, "make the folder");
    }
    return {};
}

}  // namespace

bool History::add(std::string_view entry) {
    if (entry.empty() || entry.size() > kMaxEntryBytes) return false;
    if (!entries_.empty() && entries_.back() == entry) return false;
    if (entries_.size() == kMaxEntries) entries_.erase(entries_.begin());
    entries_.emplace_back(entry);
    return true;
}

std::string History::escape(std::string_view entry) {
    std::string out;
    for (const char c : entry) {
        if (c == '\n')
            out += "\\n";
        else if (c == '\\')
            out += "\\\\";
        else
            out.push_back(c);
    }
    return out;
}

std::string History::to_text() const {
    std::string text;
    for (const std::string& entry : entries_) text += escape(entry) + "\n";
    return text;
}

History History::from_text(std::string_view text) {
    History history;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        history.add(clean_text(unescape(text.substr(0, end))));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return history;
}

std::string default_history_path() {
    const std::string folder = user_folder("XDG_STATE_HOME", ".local/state");
    return folder.empty() ? folder : folder + "/history";
}

Result<History> load_history(const std::string& path) {
    auto text = read_text_file(path, kMaxFileBytes);
    if (text.ok()) return History::from_text(text.value());
    if (text.error().code == Code::not_found) return History{};
    return std::move(text).error();
}

Status append_history(const std::string& path, std::string_view entry) {
    VESTA_TRY_STATUS(make_folders(path));
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (fd.get() < 0) return os_error(path, "open");
    if (::fchmod(fd.get(), 0600) != 0)
        return os_error(path, "restrict");  // also when it was made by someone else's umask
    const std::string line = History::escape(entry) + "\n";
    if (::write(fd.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
        return os_error(path, "write");
    return {};
}

Status trim_history(const std::string& path) {
    auto text = read_text_file(path, kMaxFileBytes);
    if (!text.ok()) return text.error().code == Code::not_found ? Status{} : Status{std::move(text).error()};
    const auto n_line = static_cast<size_t>(std::count(text.value().begin(), text.value().end(), '\n'));
    if (n_line < 2 * History::kMaxEntries) return {};
    VESTA_TRY(AtomicFile file, AtomicFile::create(path, true, 0600));
    const std::string kept = History::from_text(text.value()).to_text();
    VESTA_TRY_STATUS(file.write(std::as_bytes(std::span(kept))));
    return file.commit();
}

}  // namespace vesta::app
