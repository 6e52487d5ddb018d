#!/bin/sh
# Puts what scripts/gpu/run.sh needs into a folder, stripped, for a machine with an NVIDIA GPU and without a toolchain.
# Usage: scripts/gpu/bundle.sh FOLDER
set -eu
[ $# -eq 1 ] || { sed -n '2,3p' "$0" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."

built() { # the executable that cargo's messages name
    sed -n "s/.*\"name\":\"$1\".*\"executable\":\"\([^\"]*\)\".*/\1/p" | tail -n 1
}
suite=$(cargo test --locked --no-run -p hipfile --test it --message-format json | built it)
cargo build --locked --release -p hipfile-tools -p libhipfile
target=${CARGO_TARGET_DIR:-target}

cp "$suite" "$out/suite"
cp "$target/release/hipfile" "$out/hipfile"
cp "$target/release/libhipfile_c.so" "$out/libhipfile.so.0"
strip "$out/suite" "$out/hipfile" "$out/libhipfile.so.0"
ln -sf libhipfile.so.0 "$out/libhipfile.so"
flags="-O2 -s -Wall -Wextra -pthread"
# shellcheck disable=SC2086
cc $flags -I include -o "$out/figures" scripts/gpu/figures.c -L "$out" -lhipfile -ldl "-Wl,-rpath,\$ORIGIN"
rm "$out/libhipfile.so"
for probe in cuda_facts stream_gate; do
    # shellcheck disable=SC2086
    cc $flags -o "$out/$probe" "probes/$probe.c" -ldl
done
cp scripts/gpu/run.sh scripts/gpu/peers.py scripts/gpu/loaders.py "$out"
du -sh "$out"
