#!/bin/sh
# Makes models/pocket.gguf and the test data that belongs to it from an official checkpoint of the pocket model:
#
#   tools/make_pocket.sh [--recipe NAME|FILE] [--max-bytes N] [--root TREE] CHECKPOINT_DIR [VECTORS_DIR]
#
# CHECKPOINT_DIR has config.json, tokenizer.json and the safetensors files. VECTORS_DIR has golden.json,
# golden.safetensors and valid_nll.safetensors recorded with that checkpoint; without it the goldens stay as they are.
#
#   --recipe     default pocket-small; `vesta quantize --list` has the others
#   --max-bytes  refuse a larger model file, before anything in the tree changes; default 32000000
#   --root       write into this copy of the repository instead, to look at the result first; the programs are this tree's
#
# Two and a half minutes on two cores, most of them for the importance matrix and for the quality row at the end.
set -eu

usage() {
    echo "usage: tools/make_pocket.sh [--recipe NAME|FILE] [--max-bytes N] [--root TREE] CHECKPOINT_DIR [VECTORS_DIR]" >&2
    exit 2
}
fail() {
    echo "make_pocket: $1" >&2
    exit 1
}

here=$(cd "$(dirname "$0")/.." && pwd)
recipe=pocket-small max_bytes=32000000 root=$here
while [ $# -gt 0 ]; do
    case $1 in
        --recipe | --max-bytes | --root)
            [ $# -ge 2 ] || usage
            case $1 in
                --recipe) recipe=$2 ;;
                --max-bytes) max_bytes=$2 ;;
                --root) root=$2 ;;
            esac
            shift 2
            ;;
        -*) usage ;;
        *) break ;;
    esac
done
if [ $# -lt 1 ] || [ $# -gt 2 ]; then usage; fi
case $max_bytes in '' | *[!0-9]*) usage ;; esac
[ -f "$1/config.json" ] || fail "$1: no config.json there; expected the folder of a checkpoint"
checkpoint=$(cd "$1" && pwd)
vectors=
if [ $# -eq 2 ]; then
    vectors=$(cd "$2" && pwd)
    for file in golden.json golden.safetensors valid_nll.safetensors; do
        [ -f "$vectors/$file" ] || fail "$vectors: no $file there"
    done
fi
case $recipe in */* | *.recipe) [ -f "$recipe" ] || fail "$recipe: no such recipe file" ;; esac
root=$(cd "$root" && pwd)
for path in models tests/data/pocket-v0 calibration/calibration.txt tools/quality_table.py; do
    [ -e "$root/$path" ] || fail "$root: no $path there; expected a copy of the repository"
done
(cd "$here" && cmake --preset release >/dev/null && cmake --build --preset release --target vesta pocket_fixture)
vesta=$here/build/release/vesta

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# The model file names what it was made from and with, by the last part of the path or as it was given: no path of this
# machine shall be in it, and its name shall be "pocket" whatever the checkpoint's folder is called.
ln -s "$checkpoint" "$work/pocket"
case $recipe in
    */* | *.recipe)
        cp "$recipe" "$work/$(basename "$recipe")"
        recipe=$(basename "$recipe")
        ;;
esac
cd "$work"
"$vesta" convert --from pocket --out native.gguf --recipe native
"$vesta" imatrix -m native.gguf --data "$root/calibration/calibration.txt" --out calibration.dat
"$vesta" quantize pocket pocket.gguf --recipe "$recipe" --imatrix calibration.dat --drafter inside --force
cd "$root"
bytes=$(wc -c <"$work/pocket.gguf")
[ "$bytes" -le "$max_bytes" ] ||
    fail "recipe $recipe gives $bytes bytes, more than $max_bytes; nothing was changed (--max-bytes allows more)"

# The fixture is made from both, so a failure in it must not leave a model file that has none.
mkdir -p "$work/new/models" "$work/new/tests/data/pocket-v0"
mv "$work/pocket.gguf" "$work/new/models/pocket.gguf"
"$here/build/release/tests/pocket_fixture" make "$checkpoint" "$work/new"
cp -f "$work/new/models/pocket.gguf" models/pocket.gguf
cp -f "$work/new/tests/data/pocket-v0/"* tests/data/pocket-v0/
if [ -n "$vectors" ]; then
    for file in golden.json golden.safetensors valid_nll.safetensors; do
        cp -f "$vectors/$file" "tests/data/pocket-v0/$file"
        chmod u+w "tests/data/pocket-v0/$file"
    done
fi
ls -l models/pocket.gguf tests/data/pocket-v0
total=$(find . -type f -not -path './.git/*' -not -path './build/*' -exec cat {} + | wc -c)
echo "the tree without .git and build has $total bytes"

tools/quality_table.py --vesta "$vesta" --work "$work/quality" --manifest '' --reference "$work/native.gguf=native" \
    "models/pocket.gguf=$(basename "$recipe" .recipe)"
