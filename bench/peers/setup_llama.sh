#!/bin/sh
# Fetches llama.cpp (prebuilt by the npm package node-llama-cpp, with its sources for the headers) into a folder outside
# the project and compiles llama_peer there:
#
#   bench/peers/setup_llama.sh [FOLDER]      default: $VESTA_PEERS, else ${TMPDIR:-/tmp}/vesta-peers
#
# Prints the command that runs the peer. Needs npm, git and g++.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${VESTA_PEERS:-${TMPDIR:-/tmp}/vesta-peers}}
version=3.22.1
mkdir -p "$folder"
cd "$folder"
if [ ! -d node_modules/@node-llama-cpp/linux-x64 ]; then
    npm init -y >/dev/null
    npm install --ignore-scripts --no-fund --no-audit "node-llama-cpp@$version" "@node-llama-cpp/linux-x64@$version" >&2
fi
[ -d source ] || git clone -q node_modules/node-llama-cpp/llama/gitRelease.bundle source
libraries=$folder/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64
# The package names its libraries by version; the linker wants a plain name.
for name in llama ggml; do
    file=$(ls "$libraries" | grep "^lib$name\.v.*\.so$")
    ln -sf "$file" "$libraries/lib$name.so"
done
g++ -O2 -std=c++17 -Isource/include -Isource/ggml/include "$here/llama_peer.cpp" -o llama_peer \
    -L"$libraries" -lllama -lggml -lggml-base -Wl,-rpath,"$libraries" -Wl,--allow-shlib-undefined
cat > llama_peer.sh <<RUN
#!/bin/sh
LLAMA_PEER_LIBRARIES=$libraries exec $folder/llama_peer "\$@"
RUN
chmod +x llama_peer.sh
echo "$folder/llama_peer.sh"
