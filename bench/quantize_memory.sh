#!/bin/sh
# Peak memory and speed of `vesta quantize` on one expert tensor of Flash (256 x 2048 x 4096), with the machine's release
# build. The bound is 1.5 GiB. Needs 2 GB on the disk (bf16 as source: 5 GB).
#
#   bench/quantize_memory.sh [FOLDER] [source format] [target format] [threads]
set -eu
cd "$(dirname "$0")/.."
cmake --preset release >/dev/null
cmake --build --preset release --target vesta quantize_memory >/dev/null
folder=${1:-$(mktemp -d)}
[ $# -eq 0 ] || shift
mkdir -p "$folder"
exec build/release/bench/quantize_memory build/release/vesta "$folder" "$@"
