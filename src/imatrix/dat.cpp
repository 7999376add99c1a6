#include "imatrix/dat.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>

#include "base/file.h"

namespace vesta::imatrix {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are copied as they lie in the file");

constexpr char kMagic[8] = {'V', 'E', 'S', 'T', 'A', 'I', 'M', 'X'};
constexpr uint32_t kVersion = 1;
constexpr int32_t kMaxNameBytes = 1024;  // GGUF tensor names have at most 64; other tools' entries may be longer

constexpr uint64_t kFnvBasis = 0xcbf29ce484222325u;
uint64_t fnv1a(std::span<const std::byte> bytes, uint64_t hash = kFnvBasis) {
    for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
    return hash;
}

class Reader {
 public:
    Reader(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

    uint64_t left() const { return bytes_.size(); }
    std::span<const std::byte> rest() const { return bytes_; }
    Error error(const std::string& what) const { return Error{Code::bad_file, strf("{}: {}", name_, what)}; }

    Result<std::span<const std::byte>> take(uint64_t n, const std::string& what) {
        if (n > left()) return error(strf("{} needs {} bytes, {} are left", what, n, left()));
        const auto part = bytes_.first(static_cast<size_t>(n));
        bytes_ = bytes_.subspan(static_cast<size_t>(n));
        return part;
    }
    void skip(size_t n) { bytes_ = bytes_.subspan(n); }  // Requires: n <= left()
    template <class T>
    Result<T> number(const std::string& what) {
        VESTA_TRY(const auto raw, take(sizeof(T), what));
        T value;
        std::memcpy(&value, raw.data(), sizeof(T));
        return value;
    }
    template <class T>
    Result<std::vector<T>> numbers(uint64_t n, const std::string& what) {
        if (n > left() / sizeof(T))
            return error(strf("{}: {} values do not fit into the {} bytes left", what, n, left()));
        VESTA_TRY(const auto raw, take(n * sizeof(T), what));
        std::vector<T> values(static_cast<size_t>(n));
        if (n > 0) std::memcpy(values.data(), raw.data(), raw.size());
        return values;
    }
    Result<std::string> name(const std::string& what) {
        VESTA_TRY(const int32_t n, number<int32_t>(what));
        if (n < 1 || n > kMaxNameBytes)
            return error(strf("{}: a name of {} bytes, expected 1 to {}", what, n, kMaxNameBytes));
        VESTA_TRY(const auto raw, take(static_cast<uint64_t>(n), what));
        return std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
    }

 private:
    std::span<const std::byte> bytes_;
    const std::string& name_;
};

Status parse_entries(Reader& in, Matrix& m) {
    VESTA_TRY(const int32_t n_entry, in.number<int32_t>("the number of entries"));
    // name_bytes, one byte of name, n_call, n_value, one value
    constexpr uint64_t kSmallestEntry = 4 + 1 + 4 + 4 + 4;
    if (n_entry < 1 || static_cast<uint64_t>(n_entry) > in.left() / kSmallestEntry)
        return in.error(
            strf("{} entries, but {} bytes follow; not an importance matrix in .dat format", n_entry, in.left()));
    for (int32_t i = 0; i < n_entry; ++i) {
        VESTA_TRY(const std::string name, in.name(strf("entry {} of {}", i, n_entry)));
        Entry e;
        VESTA_TRY(e.n_call, in.number<int32_t>(name));
        VESTA_TRY(const int32_t n_value, in.number<int32_t>(name));
        if (e.n_call < 0) return in.error(strf("{}: {} calls", name, e.n_call));
        if (n_value < 1) return in.error(strf("{}: {} values, expected at least 1", name, n_value));
        VESTA_TRY(e.value, in.numbers<float>(static_cast<uint64_t>(n_value), name));
        if (!m.entries.emplace(name, std::move(e)).second) return in.error(strf("{}: occurs twice", name));
    }
    return {};
}

Status parse_section(Reader& in, Matrix& m) {
    if (in.left() < sizeof kMagic || std::memcmp(in.rest().data(), kMagic, sizeof kMagic) != 0)
        return in.error(strf("{} bytes after the end of the data", in.left()));
    in.skip(sizeof kMagic);
    VESTA_TRY(const uint32_t version, in.number<uint32_t>("section version"));
    if (version != kVersion)
        return in.error(strf("row counts of version {}, this build reads version {}", version, kVersion));
    VESTA_TRY(const uint64_t n_byte, in.number<uint64_t>("section size"));
    if (n_byte > in.left() || in.left() - n_byte != sizeof(uint64_t))
        return in.error(strf("a section of {} bytes and its checksum, but {} bytes follow", n_byte, in.left()));
    const auto payload = in.rest().first(static_cast<size_t>(n_byte));
    uint64_t checksum;
    std::memcpy(&checksum, in.rest().data() + n_byte, sizeof checksum);
    if (checksum != fnv1a(payload)) return in.error("the row counts are damaged: their checksum does not match");

    RunState run;
    VESTA_TRY(run.model, in.number<uint64_t>("run"));
    VESTA_TRY(run.data, in.number<uint64_t>("run"));
    VESTA_TRY(run.n_ctx, in.number<uint32_t>("run"));
    VESTA_TRY(const uint32_t finished, in.number<uint32_t>("run"));
    if (finished > 1) return in.error(strf("run: finished is {}, expected 0 or 1", finished));
    run.finished = finished == 1;
    VESTA_TRY(run.n_sequence, in.number<uint64_t>("run"));
    VESTA_TRY(run.n_token, in.number<uint64_t>("run"));
    if (run != RunState{}) m.run = run;
    VESTA_TRY(const uint32_t n_entry, in.number<uint32_t>("run"));
    if (n_entry > m.entries.size())
        return in.error(strf("row counts of {} entries, there are {}", n_entry, m.entries.size()));
    for (uint32_t i = 0; i < n_entry; ++i) {
        VESTA_TRY(const std::string name, in.name(strf("row counts {} of {}", i, n_entry)));
        const auto found = m.entries.find(name);
        if (found == m.entries.end()) return in.error(strf("row counts of {}, which has no entry", name));
        Entry& e = found->second;
        if (!e.n_row.empty()) return in.error(strf("{}: row counts occur twice", name));
        VESTA_TRY(const uint32_t n_vector, in.number<uint32_t>(name));
        if (n_vector < 1 || e.value.size() % n_vector != 0)
            return in.error(strf("{}: {} values do not divide into {} vectors", name, e.value.size(), n_vector));
        VESTA_TRY(e.n_row, in.numbers<uint64_t>(n_vector, name));
        for (const uint64_t rows : e.n_row)
            if (rows > kMaxRows) return in.error(strf("{}: a vector of {} rows", name, rows));
        VESTA_TRY(const uint32_t has_sums, in.number<uint32_t>(name));
        if (has_sums > 1) return in.error(strf("{}: sums are {}, expected 0 or 1", name, has_sums));
        if (has_sums == 0) continue;
        VESTA_TRY(e.sum, in.numbers<double>(e.value.size(), name));
        for (const double s : e.sum)
            if (!(s >= 0) || !std::isfinite(s)) return in.error(strf("{}: a sum of squares is {}", name, s));
    }
    if (in.left() != sizeof checksum)
        return in.error(strf("{} bytes between the row counts and their checksum", in.left() - sizeof checksum));
    return {};
}

// Takes the file piece by piece: for a model of 256 experts it has a gigabyte.
class Writer {
 public:
    using Sink = std::function<Status(std::span<const std::byte>)>;
    explicit Writer(Sink sink) : sink_(std::move(sink)) {}

    void start_checksum() { hash_ = kFnvBasis; }
    uint64_t checksum() const { return hash_; }
    const Status& status() const { return status_; }  // the first failure; after it nothing is written

    template <class T>
    void put_all(std::span<const T> values) {
        static_assert(std::is_trivially_copyable_v<T>);
        const auto raw = std::as_bytes(values);
        hash_ = fnv1a(raw, hash_);
        if (status_.ok() && !raw.empty()) status_ = sink_(raw);
    }
    template <class T>
    void put(const T& value) {
        put_all(std::span<const T>(&value, 1));
    }
    void put_name(const std::string& name) {
        put(static_cast<int32_t>(name.size()));
        put_all(std::span<const char>(name));
    }

 private:
    Sink sink_;
    uint64_t hash_ = kFnvBasis;
    Status status_;
};

}  // namespace

Result<Matrix> parse_dat(std::span<const std::byte> bytes, const std::string& name) {
    if (bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0)
        return Error{
            Code::unsupported,
            strf("{}: an importance matrix in GGUF format, expected the .dat format; newer llama-imatrix writes it "
                 "with --output-format dat",
                 name)};
    Reader in(bytes, name);
    Matrix m;
    VESTA_TRY_STATUS(parse_entries(in, m));
    if (in.left() == 0) return m;
    VESTA_TRY(m.n_chunk, in.number<int32_t>("the number of chunks"));
    VESTA_TRY(const int32_t n_byte, in.number<int32_t>("the length of the dataset's name"));
    if (m.n_chunk < 0) return in.error(strf("{} chunks", m.n_chunk));
    if (n_byte < 0) return in.error(strf("a dataset name of {} bytes", n_byte));
    VESTA_TRY(const auto dataset, in.take(static_cast<uint64_t>(n_byte), "the dataset's name"));
    m.dataset.assign(reinterpret_cast<const char*>(dataset.data()), dataset.size());
    if (in.left() > 0) VESTA_TRY_STATUS(parse_section(in, m));
    return m;
}

Result<Matrix> read_dat(const std::string& path) {
    VESTA_TRY(const MappedFile file, MappedFile::open(path));
    return parse_dat(file.bytes(), path);
}

namespace {

Status check_writable(const Matrix& m) {
    constexpr auto kMax = static_cast<size_t>(std::numeric_limits<int32_t>::max());
    if (m.entries.empty()) return Error{Code::invalid_argument, "an importance matrix without entries"};
    if (m.entries.size() > kMax || m.dataset.size() > kMax || m.n_chunk < 0)
        return Error{Code::invalid_argument,
                     strf("{} entries, {} chunks and a dataset name of {} bytes: the format counts in i32",
                          m.entries.size(), m.n_chunk, m.dataset.size())};
    for (const auto& [name, e] : m.entries) {
        if (name.empty() || name.size() > kMaxNameBytes)
            return Error{Code::invalid_argument,
                         strf("an entry's name has {} bytes, expected 1 to {}", name.size(), kMaxNameBytes)};
        if (e.value.empty() || e.value.size() > kMax || e.n_call < 0)
            return Error{Code::invalid_argument,
                         strf("{}: {} values and {} calls do not fit the format", name, e.value.size(), e.n_call)};
        const bool sums_fit = e.sum.empty() || (e.sum.size() == e.value.size() && !e.n_row.empty());
        if (!sums_fit || (!e.n_row.empty() && e.value.size() % e.n_row.size() != 0))
            return Error{Code::invalid_argument, strf("{}: {} values, {} row counts and {} sums do not belong together",
                                                      name, e.value.size(), e.n_row.size(), e.sum.size())};
    }
    return {};
}

void write_section(const Matrix& m, Writer& out) {
    uint32_t n_counted = 0;
    uint64_t n_byte = 2 * sizeof(uint64_t) + 2 * sizeof(uint32_t) + 2 * sizeof(uint64_t) + sizeof(uint32_t);
    for (const auto& [name, e] : m.entries) {
        if (e.n_row.empty()) continue;
        ++n_counted;
        n_byte += sizeof(int32_t) + name.size() + sizeof(uint32_t) + e.n_row.size() * sizeof(uint64_t);
        n_byte += sizeof(uint32_t) + e.sum.size() * sizeof(double);
    }
    if (n_counted == 0 && !m.run) return;
    out.put_all(std::span<const char>(kMagic));
    out.put(kVersion);
    out.put(n_byte);
    out.start_checksum();
    const RunState run = m.run.value_or(RunState{});
    out.put(run.model);
    out.put(run.data);
    out.put(run.n_ctx);
    out.put(static_cast<uint32_t>(run.finished));
    out.put(run.n_sequence);
    out.put(run.n_token);
    out.put(n_counted);
    for (const auto& [name, e] : m.entries) {
        if (e.n_row.empty()) continue;
        out.put_name(name);
        out.put(static_cast<uint32_t>(e.n_row.size()));
        out.put_all(std::span<const uint64_t>(e.n_row));
        out.put(static_cast<uint32_t>(!e.sum.empty()));
        out.put_all(std::span<const double>(e.sum));
    }
    out.put(out.checksum());
}

Status write(const Matrix& m, Writer::Sink sink) {
    VESTA_TRY_STATUS(check_writable(m));
    Writer out(std::move(sink));
    out.put(static_cast<int32_t>(m.entries.size()));
    for (const auto& [name, e] : m.entries) {
        out.put_name(name);
        out.put(e.n_call);
        out.put(static_cast<int32_t>(e.value.size()));
        out.put_all(std::span<const float>(e.value));
    }
    out.put(m.n_chunk);
    out.put(static_cast<int32_t>(m.dataset.size()));
    out.put_all(std::span<const char>(m.dataset));
    write_section(m, out);
    return out.status();
}

}  // namespace

Result<std::vector<std::byte>> format_dat(const Matrix& matrix) {
    std::vector<std::byte> bytes;
    VESTA_TRY_STATUS(write(matrix, [&](std::span<const std::byte> part) -> Status {
        bytes.insert(bytes.end(), part.begin(), part.end());
        return {};
    }));
    return bytes;
}

Status write_dat(const Matrix& matrix, const std::string& path, bool overwrite) {
    VESTA_TRY_STATUS(check_writable(matrix));
    VESTA_TRY(AtomicFile file, AtomicFile::create(path, overwrite));
    // Small pieces are collected, or a file of 1,000 entries would cost 10,000 system calls.
    constexpr size_t kBuffer = 1 << 16;
    std::vector<std::byte> buffer;
    const auto sink = [&](std::span<const std::byte> part) -> Status {
        if (buffer.size() + part.size() > kBuffer) {
            VESTA_TRY_STATUS(file.write(buffer));
            buffer.clear();
        }
        if (part.size() > kBuffer) return file.write(part);
        buffer.insert(buffer.end(), part.begin(), part.end());
        return {};
    };
    VESTA_TRY_STATUS(write(matrix, sink));
    VESTA_TRY_STATUS(file.write(buffer));
    return file.commit();
}

}  // namespace vesta::imatrix
