#!/bin/sh
# Ours and llama.cpp side by side: the same files, the same tokens, in turn, several rounds; medians and ratios as Markdown
# into bench/results/MACHINE/. One command:
#
#   bench/peers/compare.sh [flags] MODEL.gguf...
#
#   --threads "1 2"       thread counts (default: 1 and all cores)
#   --rounds N            rounds, each runs both engines (default 3)
#   --prefill 512,2048    prompt lengths        --depth 64,2048   contexts to decode at
#   --decode N --repeat N tokens and repeats of one run (default 32, 3)
#   --repack              let llama.cpp rearrange weights (doubles its memory; default: straight from the file)
#   --machine NAME        folder for the result (default: from the processor's name)
#   --busy                instead: decode with all cores while a busy loop runs on the last one; the share of speed kept
#   --out FILE            write there instead ("-": stdout)
#
# Needs node/npm and g++ once (setup_llama.sh), python3, and a release build (made here).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cores=$(nproc)
threads="1 $cores"; rounds=3; prefill=512,2048; depth=64,2048; decode=32; repeat=3; repack=--no-repack; busy=; machine=; out=
models=
while [ $# -gt 0 ]; do
    case $1 in
        --threads) threads=$2; shift 2 ;;
        --rounds) rounds=$2; shift 2 ;;
        --prefill) prefill=$2; shift 2 ;;
        --depth) depth=$2; shift 2 ;;
        --decode) decode=$2; shift 2 ;;
        --repeat) repeat=$2; shift 2 ;;
        --machine) machine=$2; shift 2 ;;
        --out) out=$2; shift 2 ;;
        --repack) repack=; shift ;;
        --busy) busy=1; shift ;;
        -*) sed -n '2,18p' "$0" >&2; exit 2 ;;
        *) [ -f "$1" ] || { echo "compare.sh: $1: no such file" >&2; exit 2; }
           models="$models $1"; shift ;;
    esac
done
[ -n "$models" ] || { sed -n '2,18p' "$0" >&2; exit 2; }
peer=$("$root/bench/peers/setup_llama.sh" 2>/dev/null | tail -1)
cmake --build "$root/build/release" --target vesta >&2
vesta=$root/build/release/vesta
work=$(mktemp -d)
loop=
trap '[ -z "$loop" ] || kill "$loop" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# run_both MODEL THREADS PREFILL TAG: one round of both engines, in an order that changes from round to round.
run_both() {
    ours() { "$vesta" bench -m "$1" --threads "$2" --prefill "$3" --depth "$depth" --decode "$decode" --repeat "$repeat" \
        --same-tokens --json > "$work/ours.$4" || exit 1; }
    theirs() { "$peer" bench "$1" --threads "$2" --prefill "$3" --depth "$depth" --decode "$decode" --repeat "$repeat" \
        $repack > "$work/theirs.$4" || exit 1; }
    if [ $((round % 2)) = 0 ]; then theirs "$@"; ours "$@"; else ours "$@"; theirs "$@"; fi
}

for model in $models; do
    name=$(basename "$model")
    if [ -n "$busy" ]; then
        for round in $(seq "$rounds"); do
            echo "$name, round $round of $rounds" >&2
            run_both "$model" "$cores" "${prefill%%,*}" "$name.free.$round"
            taskset -c $((cores - 1)) sh -c 'while :; do :; done' & loop=$!
            run_both "$model" "$cores" "${prefill%%,*}" "$name.busy.$round"
            kill "$loop"; wait "$loop" 2>/dev/null || true; loop=
        done
    else
        for n in $threads; do
            for round in $(seq "$rounds"); do
                echo "$name, $n threads, round $round of $rounds" >&2
                run_both "$model" "$n" "$prefill" "$name.$n.$round"
            done
        done
    fi
done

if [ -z "$machine" ]; then
    machine=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1 | tr 'A-Z' 'a-z' | tr -cs 'a-z0-9' '-' | sed 's/-*$//')-${cores}c
fi
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
if [ -z "$out" ]; then
    mkdir -p "$root/bench/results/$machine"
    out=$root/bench/results/$machine/llama-${busy:+busy-}$commit.md
fi
python3 - "$work" "$commit" "$rounds" "$repeat" "$decode" "${busy:-0}" "${repack:-repacked}" > "$work/table.md" <<'PY'
import collections, glob, json, os, statistics, sys

work, commit, rounds, repeat, decode, busy, repack = sys.argv[1:8]
runs = collections.defaultdict(list)  # (model, group) -> [(ours, theirs)]
for path in sorted(glob.glob(os.path.join(work, "ours.*"))):
    model, group, _ = os.path.basename(path)[len("ours."):].rsplit(".", 2)
    runs[model, group].append((json.load(open(path)), json.load(open(path.replace("/ours.", "/theirs.")))))
median = statistics.median
first = next(iter(runs.values()))[0][0]
print(f"# Vesta beside llama.cpp{', with a busy core' if busy == '1' else ''}\n")
print(f"{first['cpu']}, commit {commit}; {rounds} rounds in turn, {repeat} repeats each, {decode} tokens decoded; llama.cpp "
      f"{'with repacked weights' if repack == 'repacked' else 'straight from the mapping'}. Medians over the rounds; in "
      "brackets the lowest and highest.\n")


def cell(values, digits=1):
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} - {max(values):.{digits}f})"


if busy == "1":
    print("| model | context | engine | free tok/s | beside a busy loop | kept |\n|---|---|---|---|---|---|")
    for model in sorted({m for m, _ in runs}):
        free, held = runs[model, "free"], runs[model, "busy"]
        for context in free[0][0]["decode"]:
            for side, name in enumerate(("vesta", "llama.cpp")):
                a = [r[side]["decode"][context] for r in free]
                b = [r[side]["decode"][context] for r in held]
                print(f"| {model} | {context} | {name} | {cell(a)} | {cell(b)} | {100 * median(b) / median(a):.0f} % |")
    sys.exit()

print("| model | threads | what | vesta | llama.cpp | ratio | vesta, % of peak | llama.cpp, % of peak |\n|---|---|---|---|---|---|---|---|")
for (model, group), both in sorted(runs.items()):
    for kind in ("prefill", "decode"):
        for context in both[0][0][kind]:
            ours = [a[kind][context] for a, _ in both]
            theirs = [b[kind][context] for _, b in both]
            share = ["", ""]
            if kind == "decode":
                row = next(r for r in both[0][0]["rows"] if r["kind"] == kind and r["context"] == int(context))
                size = row["weight_bytes"] + sum(row["cache_bytes"].values())
                peak = median([a["peak_bytes_per_s"] for a, _ in both])
                share = [f"{100 * median(v) * size / peak:.0f} %" for v in (ours, theirs)]
            ratios = [a / b for a, b in zip(ours, theirs)]
            print(f"| {model} | {group} | {kind} {context}, tok/s | {cell(ours)} | {cell(theirs)} | {median(ratios):.2f} | "
                  f"{share[0]} | {share[1]} |")
    for key, what, unit, digits in (("first_token_s", "first token, ms", 1e3, 0), ("peak_rss_bytes", "peak RSS, MB", 1e-6, 0)):
        ours = [a[key] * unit for a, _ in both]
        theirs = [b[key] * unit for _, b in both]
        print(f"| {model} | {group} | {what} | {cell(ours, digits)} | {cell(theirs, digits)} | "
              f"{median([a / b for a, b in zip(ours, theirs)]):.2f} | | |")
    peak = [a["peak_bytes_per_s"] * 1e-9 for a, _ in both]
    print(f"| {model} | {group} | peak read bandwidth, GB/s | {cell(peak)} | | | | |")
PY
if [ "$out" = - ]; then cat "$work/table.md"; else cp "$work/table.md" "$out"; cat "$work/table.md"; echo "written to $out" >&2; fi
