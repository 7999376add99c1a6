// Importance matrices: for every weight matrix, the mean square of the activations that meet each of its columns, in
// the legacy .dat format that other engines read and write too. All little-endian:
//
//   i32 n_entry;  per entry: i32 name_bytes, name, i32 n_call, i32 n_value, f32 value[n_value]
//   then, optionally: i32 n_chunk, i32 dataset_bytes, dataset
//   then, only in our files: the section below; other readers stop before it
//
// A reader divides value by n_call when n_call > 0. The entry of a stacked expert tensor packs one vector per expert,
// in order; an expert that was never routed to has a vector of ones (after the division), so that readers that know no
// better treat its columns alike. That placeholder must not survive a merge with real data, and a run that is resumed
// must add to the same doubles as one that was not: so our files also say over how many rows each vector was taken, and
// files of an unfinished run keep the sums themselves. The place for it is after the dataset, where neither llama.cpp
// nor DS4 looks. (Not taken: extra entries, which show up in other tools' tensor lists; a second file, which gets
// lost.)
//
//   "VESTAIMX", u32 version = 1, u64 payload_bytes, payload, u64 FNV-1a of the payload
//   payload: u64 model, u64 data, u32 n_ctx, u32 finished, u64 n_sequence, u64 n_token, u32 n_entry
//            per entry: i32 name_bytes, name, u32 n_vector, u64 n_row[n_vector], u32 has_sums, f64 sum[n_value] if so
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace vesta::imatrix {

constexpr uint64_t kMaxRows = uint64_t{1} << 53;  // exact as a double; larger counts are refused

struct Entry {
    int32_t n_call = 0;
    std::vector<float> value;  // as in the file; mean square = value / n_call, or value itself when n_call is 0

    // Empty in files that are not ours. n_row[v]: rows that met vector v (expert v, or the only one); 0: never hit.
    // value.size() is a multiple of n_row.size().
    std::vector<uint64_t> n_row;
    std::vector<double> sum;  // sum of x² over n_row rows, unrounded; empty, or as long as value

    float mean(size_t i) const { return n_call > 0 ? value[i] / static_cast<float>(n_call) : value[i]; }
    // Fills value from sum, n_row and n_call: sum/n_row·n_call, and n_call (a mean of one) where n_row is 0.
    void set_values_from_sums();
};

// Where a collecting run stands.
struct RunState {
    uint64_t model = 0, data = 0;  // hashes: of the model file's directory; of the sequences collected over
    uint32_t n_ctx = 0;
    bool finished = false;
    uint64_t n_sequence = 0, n_token = 0;  // done so far
    bool operator==(const RunState&) const = default;
};

struct Matrix {
    std::map<std::string, Entry> entries;  // by GGUF tensor name
    int32_t n_chunk = 0;
    std::string dataset;
    std::optional<RunState> run;

    // Importance for expert `expert` (0 for a plain matrix) of tensor `name` with n_col columns and n_expert experts
    // (1 for a plain matrix): n_col means. not_found without an entry; bad_file when the entry's length is neither
    // n_col · n_expert nor n_col (one vector for all experts), or a value of it is negative, NaN or infinite.
    // Requires: n_col > 0, 0 <= expert < n_expert.
    Result<std::vector<float>> importance(const std::string& name, int64_t n_col, int64_t n_expert,
                                          int64_t expert) const;
    // Whether importance() would give measured values: false without an entry, and for an expert never hit (n_row says
    // so, or, in files without n_row, all columns of its vector are equal: ones, or zeros in files of older tools).
    bool measured(const std::string& name, int64_t n_col, int64_t n_expert, int64_t expert) const;
};

// Errors: bad_file for anything the format does not allow, naming the entry. Values are not judged here (importance()
// does, one tensor at a time), so that a single bad tensor does not cost the file.
Result<Matrix> parse_dat(std::span<const std::byte> bytes, const std::string& name);
Result<Matrix> read_dat(const std::string& path);

// The file appears whole or not at all. `overwrite` false: already_exists when the path exists. Entries with n_row but
// no sums, or with sums, keep them. invalid_argument for what a reader would refuse (empty names, too many values).
Status write_dat(const Matrix& matrix, const std::string& path, bool overwrite);
Result<std::vector<std::byte>> format_dat(const Matrix& matrix);

// Adds `from` to `into`, as if one run had seen both texts: sums and calls add, an entry only one side has is taken as
// it is, and a vector never hit on one side leaves the other side's as it is. Where both sides know their rows, means
// are weighted by rows; otherwise by calls (at least 1), which is all a foreign file says, and the result knows no
// rows. bad_file when an entry's length differs, or a value is negative, NaN or infinite. The result has no RunState.
Status merge(Matrix& into, const Matrix& from);

}  // namespace vesta::imatrix
