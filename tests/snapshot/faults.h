// The system calls that put a file on the disk, watched: what was called in which order, and a disk that fills up, a
// flush that fails or a process that dies at the n-th of them. pwrite, fsync, rename and link of this program come here
// (faults.cpp defines them, so the C library's are not linked).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace vesta::snapshot {

enum class Fault {
    none,
    fail,        // returns the error
    die_before,  // SIGKILL, and the call has not happened
    die_within,  // SIGKILL; of a pwrite, the first half has happened
    die_after,   // SIGKILL, and it has
    half,        // a pwrite that writes half of what it was asked to, without an error
};

struct Faults {
    static Faults& now();  // of this process
    void reset() { *this = {}; }
    // Counting from the next call on.
    static void arm(Fault fault, int at, int error = 0) {
        now().reset();
        now().fault = fault, now().at = at, now().error = error, now().record = true;
    }

    Fault fault = Fault::none;
    int at = -1;    // which call, counted from 0
    int error = 0;  // errno of Fault::fail
    bool record = false;
    int n_call = 0;
    std::vector<std::string> calls;  // "pwrite NAME", "fsync NAME", "rename NAME", ...: the last part of the path
};

}  // namespace vesta::snapshot
