#include "memory_view.h"

#include <algorithm>

#include "terminal.h"

namespace vesta::app {
namespace {

std::string bytes(int64_t n) { return format_bytes(static_cast<uint64_t>(std::max<int64_t>(0, n))); }

const char* flag_of(CacheFormat f) { return f == CacheFormat::fp8 ? "fp8" : f == CacheFormat::f16 ? "f16" : "f32"; }

// The largest context that fits, found by bisection; 0 when none does.
int64_t fitting_context(const Engine& engine, SessionOptions session, int64_t available) {
    int64_t fits = 0, too_many = session.n_ctx;
    while (too_many - fits > 1) {
        const int64_t middle = fits + (too_many - fits) / 2;
        SessionOptions s = session;
        s.n_ctx = middle;
        (engine.memory(s).session_bytes() <= available ? fits : too_many) = middle;
    }
    return fits;
}

}  // namespace

std::string memory_table(const MemoryPlan& p, const SessionOptions& session, const MemoryLimit& limit) {
    std::string out;
    const auto row = [&](const char* what, int64_t n, const std::string& note = {}) {
        out += strf("{:<22}{:>12}{}{}\n", what, bytes(n), note.empty() ? "" : "   ", note);
    };
    row("weights, mapped", p.weight_bytes, strf("{} of it in memory now", bytes(p.weight_resident_bytes)));
    row("weights, locked", p.weight_locked_bytes);
    row("weights, decoded", p.decoded_bytes, "norms, biases, tables");
    row("cache", p.cache.total_bytes,
        strf("{} tokens as {}, {:.1f} bytes a token", session.n_ctx, flag_of(session.cache_format), p.cache.bytes_per_token));
    row("  window", p.cache.window_bytes);
    row("  compressed rows", p.cache.compressed_bytes);
    row("  index rows", p.cache.index_bytes);
    row("  frontiers", p.cache.frontier_bytes);
    row("  of it for rewind", p.cache.rewind_bytes, strf("{} tokens can be taken back at once", session.rewind));
    row("checkpoints", p.cache.n_checkpoint * p.cache.checkpoint_bytes,
        strf("up to {} of {}", p.cache.n_checkpoint, bytes(p.cache.checkpoint_bytes)));
    row("scratch", p.scratch_bytes, strf("chunks of {} tokens", std::min(session.chunk, session.n_ctx)));
    row("  of the backend", p.backend_bytes, "at most");
    row("total", p.total_bytes());
    row("available", limit.available_bytes, limit.by_cgroup ? "limit of this container (cgroup)" : "of this machine");
    return out;
}

Status check_memory(const Engine& engine, const SessionOptions& session, const MemoryLimit& limit) {
    const MemoryPlan plan = engine.memory(session);
    if (limit.available_bytes <= 0 || plan.session_bytes() <= limit.available_bytes) return {};
    std::string advice;
    const auto suggest = [&](SessionOptions s, const std::string& flag) {
        const int64_t need = engine.memory(s).session_bytes();
        if (need < plan.session_bytes())
            advice +=
                strf("\n  {:<16} {}{}", flag, bytes(need), need <= limit.available_bytes ? "" : " (still too much)");
    };
    if (const int64_t n = fitting_context(engine, session, limit.available_bytes); n > 0) {
        // Round numbers below, where there are some.
        const int64_t rounded = n >= 2048 ? n / 1024 * 1024 : n;
        SessionOptions s = session;
        s.n_ctx = rounded;
        suggest(s, strf("--ctx {}", rounded));
    }
    if (session.chunk > 64) {
        SessionOptions s = session;
        s.chunk = 64;
        suggest(s, "--chunk 64");
    }
    if (session.rewind > 0) {
        SessionOptions s = session;
        s.rewind = 0;
        suggest(s, "--rewind 0");
    }
    if (session.cache_format != CacheFormat::fp8) {
        SessionOptions s = session;
        s.cache_format = CacheFormat::fp8;
        suggest(s, "--kv fp8");
    }
    return Error{
        Code::no_memory,
        strf("a context of {} tokens takes {} (cache {}, scratch {}) and {} are available{}{}{}", session.n_ctx,
             bytes(plan.session_bytes()), bytes(plan.cache.total_bytes), bytes(plan.scratch_bytes + plan.backend_bytes),
             bytes(limit.available_bytes), limit.by_cgroup ? " in this container" : "",
             advice.empty() ? "" : "; what would take less:", advice)};
}

}  // namespace vesta::app
