#!/bin/sh
# Makes models/pocket.gguf and the test data that belongs to it from an official checkpoint of the pocket model:
#
#   tools/make_pocket.sh CHECKPOINT_DIR [VECTORS_DIR]
#
# CHECKPOINT_DIR has config.json, tokenizer.json and the safetensors files. VECTORS_DIR has golden.json,
# golden.safetensors and valid_nll.safetensors recorded with that checkpoint; without it the goldens stay as they are.
set -eu

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ ! -f "$1/config.json" ]; then
    echo "usage: tools/make_pocket.sh CHECKPOINT_DIR [VECTORS_DIR]" >&2
    exit 2
fi
checkpoint=$(cd "$1" && pwd)
vectors=${2:+$(cd "$2" && pwd)}
cd "$(dirname "$0")/.."

cmake --preset release >/dev/null
cmake --build --preset release --target vesta pocket_fixture

build/release/vesta convert --from "$checkpoint" --out models/pocket.gguf --recipe pocket --name pocket --force
if [ -n "$vectors" ]; then
    for file in golden.json golden.safetensors valid_nll.safetensors; do
        cp -f "$vectors/$file" "tests/data/pocket-v0/$file"
        chmod u+w "tests/data/pocket-v0/$file"
    done
fi
build/release/tests/pocket_fixture make "$checkpoint"
ls -l models/pocket.gguf tests/data/pocket-v0
