#include "base/result.h"

#include <cstdio>
#include <cstdlib>

namespace vesta {

const char* code_name(Code code) {
    switch (code) {
        case Code::invalid_argument: return "invalid argument";
        case Code::bad_file: return "bad file";
        case Code::unsupported: return "unsupported";
        case Code::not_found: return "not found";
        case Code::already_exists: return "already exists";
        case Code::io: return "input/output error";
        case Code::no_memory: return "not enough memory";
        case Code::cancelled: return "cancelled";
        case Code::numeric: return "numeric error";
    }
    return "unknown";
}

void check_failed(const char* file, int line, const char* what, const std::string& message) {
    std::fprintf(stderr, "vesta: internal error at %s:%d: %s%s%s\n", file, line, what, message.empty() ? "" : ": ",
                 message.c_str());
    std::abort();
}

}  // namespace vesta
