// What is finished in an unfinished file (PATH.part): a line per tensor, appended when its last byte has been handed to
// the system. A process that dies can be continued from it; whatever the journal says is checked against the bytes
// before it is believed, so it needs no flush of its own and a torn last line is only a tensor less.
//
//   vesta-quantize 1 <fingerprint>
//   <tensor> <XXH3 of its bytes> <error> <energy>          both numbers as hexadecimal floats: they come back exactly
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "quant/quantize.h"

namespace vesta::convert {

struct Finished {
    uint64_t hash;
    quant::ErrorSum error;
};

class Journal {
 public:
    static std::string path_of(const std::string& out) { return AtomicFile::part_path(out) + ".journal"; }

    // What an earlier process noted under this fingerprint; empty when there is nothing, or of other work.
    static std::map<size_t, Finished> read(const std::string& out, uint64_t fingerprint);
    // Replaces the journal by one with these entries, in one step: a death in between loses none of them.
    static Result<Journal> create(const std::string& out, uint64_t fingerprint, const std::map<size_t, Finished>& done);
    Status add(size_t tensor, const Finished& finished);
    static void remove(const std::string& out);

 private:
    Journal() = default;
    UniqueFd fd_;
    std::string path_;
};

}  // namespace vesta::convert
