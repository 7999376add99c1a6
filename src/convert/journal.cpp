#include "convert/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace vesta::convert {
namespace {

constexpr uint64_t kMaxBytes = 64 << 20;  // 100 bytes per tensor; a reader holds files to far fewer than 600k tensors

std::string first_line(uint64_t fingerprint) { return strf("vesta-quantize 1 {:016x}\n", fingerprint); }

Status append(int fd, const std::string& path, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(fd, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return Error{Code::io, strf("{}: cannot write: {}", path, std::strerror(errno))};
        text.remove_prefix(static_cast<size_t>(n));
    }
    return {};
}

}  // namespace

std::map<size_t, Finished> Journal::read(const std::string& out, uint64_t fingerprint) {
    std::map<size_t, Finished> done;
    const auto file = read_text_file(path_of(out), kMaxBytes);
    if (!file.ok() || !file.value().starts_with(first_line(fingerprint))) return done;
    std::string_view rest = file.value();
    rest.remove_prefix(first_line(fingerprint).size());
    for (size_t end = 0; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
        const std::string line(rest.substr(0, end));
        uint64_t tensor = 0, hash = 0;
        Finished f{};
        int used = 0;
        if (line.size() > 200 ||
            std::sscanf(line.c_str(), "%" SCNu64 " %16" SCNx64 " %la %la%n", &tensor, &hash, &f.error.error,
                        &f.error.energy, &used) != 4 ||
            static_cast<size_t>(used) != line.size())
            break;
        f.hash = hash;
        done[static_cast<size_t>(tensor)] = f;
    }
    return done;
}

Result<Journal> Journal::create(const std::string& out, uint64_t fingerprint, const std::map<size_t, Finished>& done) {
    Journal j;
    j.path_ = path_of(out);
    const std::string temporary = j.path_ + ".new";  // ours alone: we hold the lock of PATH.part
    j.fd_ = UniqueFd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (j.fd_.get() < 0) return Error{Code::io, strf("{}: cannot create: {}", temporary, std::strerror(errno))};
    VESTA_TRY_STATUS(append(j.fd_.get(), j.path_, first_line(fingerprint)));
    for (const auto& [tensor, finished] : done) VESTA_TRY_STATUS(j.add(tensor, finished));
    if (::rename(temporary.c_str(), j.path_.c_str()) != 0)
        return Error{Code::io, strf("{}: cannot create: {}", j.path_, std::strerror(errno))};
    return j;
}

Status Journal::add(size_t tensor, const Finished& f) {
    char line[200];
    const int n =
        std::snprintf(line, sizeof line, "%zu %016" PRIx64 " %a %a\n", tensor, f.hash, f.error.error, f.error.energy);
    return append(fd_.get(), path_, std::string_view(line, static_cast<size_t>(n)));
}

void Journal::remove(const std::string& out) {
    ::unlink(path_of(out).c_str());
    ::unlink((path_of(out) + ".new").c_str());
}

}  // namespace vesta::convert
