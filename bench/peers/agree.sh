#!/bin/sh
# Does llama.cpp read our file as we do? Most likely next token at every position of five prompts, in both engines.
#
#   bench/peers/agree.sh MODEL.gguf [ROWS]      ROWS: f32 (default) or f16, how our cache keeps its rows
#
# llama.cpp knows no FP8/FP4 cache rounding, so ours runs without it too. Positions where the two differ are listed with
# both margins: a small margin is a tie, a large one a difference (docs/quantization.md explains the known one).
set -eu
[ $# -ge 1 ] || { sed -n '2,5p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
peer=$("$root/bench/peers/setup_llama.sh" 2>/dev/null | tail -1)
cmake --build "$root/build/release" --target vesta vesta_argmax >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$root/tests/data/pocket_eval.jsonl" "$work" <<'PY'
import json, sys
kinds = ["tools", "defs", "stories", "code", "facts"]
cases = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
for i, kind in enumerate(kinds):
    case = next(c for c in cases if c["kind"] == kind)
    open(f"{sys.argv[2]}/prompt{i}", "w", encoding="utf-8").write(case["prompt"] + case["answer"])
PY
for i in 0 1 2 3 4; do
    "$root/build/release/vesta" tokenize -m "$1" --ids --specials -f "$work/prompt$i" >> "$work/tokens"
done
"$peer" argmax "$1" "$work/tokens" --f32 > "$work/theirs"
"$root/build/release/bench/vesta_argmax" "$1" "$work/tokens" cpu "${2:-f32}" > "$work/ours"
python3 - "$work/ours" "$work/theirs" <<'PY'
import sys
ours, theirs = ([l.split() for l in open(p)] for p in sys.argv[1:3])
assert len(ours) == len(theirs), (len(ours), len(theirs))
same = sum(a[2] == b[2] for a, b in zip(ours, theirs))
for a, b in zip(ours, theirs):
    if a[2] != b[2]:
        print(f"  prompt {a[0]} position {a[1]}: ours {a[2]} (margin {a[3]}), theirs {b[2]} (margin {b[3]})")
print(f"argmax agrees at {same} of {len(ours)} positions ({100 * same / len(ours):.2f} %)")
PY
