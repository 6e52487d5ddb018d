#!/bin/sh
# Tests and measures on this machine's NVIDIA GPU, from the folder that scripts/gpu/bundle.sh has made. No toolchain.
# Usage: run.sh [facts] [suite] [figures] [streams] [peers] [bench] [memory] [SCRATCH=folder] [LOGS=folder]     Default: all, in this order.
# SCRATCH is on the storage to measure, with 10 GiB free (default: a new folder here). Logs go to LOGS (default: ./logs).
set -u
here=$(cd "$(dirname "$0")" && pwd)

# One test in a process of its own: what a GPU runtime was told stays told.
one_test() {
    log=$logs/suite/$(echo "$1" | tr ':' '_')
    began=$(date +%s%N)
    timeout -k 5 "${HIPFILE_TEST_SECONDS:-200}" "$here/suite" --exact "$1" --nocapture >"$log" 2>&1
    code=$?
    took=$((($(date +%s%N) - began) / 1000000))
    if [ $code -eq 0 ] && grep -q '^SKIP: ' "$log"; then
        echo "SKIP $1: $(sed -n 's/^SKIP: //p' "$log" | head -n 1)"
    elif [ $code -eq 0 ]; then
        echo "PASS $1 $took ms"
    else
        echo "FAIL $1 (exit $code, $took ms): $(grep -m 1 -A 1 'panicked at' "$log" | tr '\n' ' ')"
    fi
}
if [ "${1:-}" = --one-test ]; then
    logs=$HIPFILE_LOGS
    one_test "$2"
    exit 0
fi

parts= scratch= logs=$here/logs
for argument in "$@"; do
    case $argument in
    SCRATCH=*) scratch=${argument#SCRATCH=} ;;
    LOGS=*) logs=${argument#LOGS=} ;;
    *) parts="$parts $argument" ;;
    esac
done
[ -n "$parts" ] || parts="facts suite figures streams peers bench memory"
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)
made=
[ -n "$scratch" ] || { scratch=$here/scratch.$$; made=1; }
mkdir -p "$scratch"
scratch=$(cd "$scratch" && pwd)
trap '[ -z "$made" ] || rm -rf "$scratch"' EXIT
export HIPFILE_DEVICE="${HIPFILE_DEVICE:-cuda}" HIPFILE_TEST_DEVICE="${HIPFILE_TEST_DEVICE:-cuda}" HIPFILE_TEST_DIR="$scratch"
export HIPFILE_TEST_OPS="${HIPFILE_TEST_OPS:-500}"

wants() { case " $parts " in *" $1 "*) true ;; *) false ;; esac; }
section() { printf '\n== %s (%s)\n' "$1" "$(date -u +%H:%M:%S)"; }

section "machine"
kernel=$(uname -r)
if grep -qi gvisor /proc/version 2>/dev/null || dmesg 2>/dev/null | grep -qi gvisor; then
    echo "kernel: gVisor ($kernel): no io_uring, cachestat or huge pages; figures from here do not count"
else
    echo "kernel: Linux $kernel"
fi
nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,pcie.link.width.current --format=csv,noheader 2>/dev/null ||
    head -n 1 /proc/driver/nvidia/version 2>/dev/null || echo "no driver version told"
echo "processors: $(nproc), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
echo "memory: $(sed -n 's/^MemAvailable: *//p' /proc/meminfo) available"
df -hT "$scratch" | tail -n 1

if wants facts; then
    section "facts"
    timeout 200 "$here/cuda_facts" >"$logs/facts.txt" 2>&1
    grep -E 'held|HANGS|died|failed' "$logs/facts.txt"
fi

if wants suite; then
    section "behaviour suite on the GPU"
    mkdir -p "$logs/suite"
    export HIPFILE_LOGS="$logs"
    # The page of settings is in the checkout only.
    "$here/suite" --list --format terse 2>/dev/null | sed -n 's/: test$//p' | grep -v '^suite::documents' |
        xargs -P "${HIPFILE_TEST_JOBS:-8}" -n 1 "$here/run.sh" --one-test 2>&1 | grep -E '^(PASS|SKIP|FAIL) ' >"$logs/suite.txt"
    grep '^FAIL ' "$logs/suite.txt" | sort
    echo "skipped, by reason (each test: $logs/suite.txt):"
    sed -n 's/^SKIP [^ ]*: //p' "$logs/suite.txt" | sed 's/^suite::[^ ]*: //' | sort | uniq -c | sort -rn | head -n 15
    echo "suite: $(grep -c '^PASS ' "$logs/suite.txt") passed, $(grep -c "^SKIP " "$logs/suite.txt") skipped in whole or in part, \
$(grep -c '^FAIL ' "$logs/suite.txt") failed"
fi

if wants figures || wants streams || wants peers || wants bench || wants memory; then
    section "filling memory"
    "$here/figures" --fill-memory
fi

if wants figures || wants streams || wants peers; then
    head -c 1G /dev/urandom >"$scratch/figures.bin" && sync "$scratch/figures.bin"
fi
if wants figures; then
    section "figures"
    timeout 300 "$here/figures" "$scratch/figures.bin" >"$logs/figures.txt" 2>&1
    echo "exit $?" >>"$logs/figures.txt"
    cat "$logs/figures.txt"
fi
if wants streams; then
    for memory in default 16M 32M 128M 256M; do
        section "large reads on streams, HIPFILE_STREAM_MEMORY $memory"
        (
            [ "$memory" = default ] || export HIPFILE_STREAM_MEMORY="$memory"
            timeout 100 "$here/figures" --streams "$scratch/figures.bin" >"$logs/streams-$memory.txt" 2>&1
            echo "exit $?" >>"$logs/streams-$memory.txt"
        )
        cat "$logs/streams-$memory.txt"
    done
fi
if wants peers; then
    section "peers"
    if command -v python3 >/dev/null; then
        timeout 200 python3 "$here/peers.py" "$scratch/figures.bin" "$here/libhipfile.so.0" >"$logs/peers.txt" 2>&1
        echo "exit $?" >>"$logs/peers.txt"
        cat "$logs/peers.txt"
    else
        echo "SKIP: peers: no python3"
    fi
fi
rm -f "$scratch/figures.bin"

bench() { # name, then what hipfile bench is told
    name=$1
    shift
    section "bench $name: hipfile bench $*"
    timeout 400 "$here/hipfile" bench "$@" >"$logs/bench-$name.txt" 2>&1
    echo "exit $?" >>"$logs/bench-$name.txt"
    tail -n 14 "$logs/bench-$name.txt"
}

if wants bench; then
    file=$scratch/bench.bin
    "$here/hipfile" check "$scratch" >"$logs/check.txt" 2>&1
    bench warm "$file" --keep --size 8G --block 1G --warm --repeat 5 --baseline serial,posix,copy
    bench cold "$file" --size 8G --block 512M --cold --repeat 3 --baseline raw
    for chunk in 1M 2M 4M; do
        bench "cold-$chunk" "$file" --size 2G --block 512M --cold --repeat 3 --baseline raw --chunk "$chunk" --depth 8
    done
    bench small "$file" --size 64M --block 4K --rw randread --warm --repeat 5 --duration 0.5 --baseline posix,host
    rm -f "$file"
fi

if wants memory; then
    # A file in memory, read and then overwritten, by default and with 8 threads. The baseline pread is pwrite alone there.
    tmpfs() { # name, folder
        [ "$(df --output=avail -k "$2" | tail -n 1)" -gt 9000000 ] || { echo "SKIP: $1: $2 has no room for 8 GiB"; return; }
        memory=$2/hipfile-bench.bin
        bench "$1-read" "$memory" --keep --size 8G --block 1G --repeat 5 --baseline serial,copy
        bench "$1-write" "$memory" --destroy --rw write --size 8G --block 1G --repeat 5 --no-sync --baseline serial,copy,pread
        (
            export HIPFILE_MAPPED_THREADS=8
            bench "$1-write-8" "$memory" --destroy --rw write --size 8G --block 1G --repeat 5 --no-sync --baseline copy,pread
        )
        section "bench $1: overwriting by call size, one thread and several (logs: bench-$1-size-*)"
        for block in 2M 4M 8M 16M 64M; do
            for least in 1M 1T; do
                HIPFILE_MAPPED_MIN=$least timeout 100 "$here/hipfile" bench "$memory" --destroy --rw write --size 1G \
                    --block $block --repeat 5 --no-sync --alone >"$logs/bench-$1-size-$block-$least.txt" 2>&1
                echo "$block, HIPFILE_MAPPED_MIN=$least: $(grep -m 1 '^hipfile  ' "$logs/bench-$1-size-$block-$least.txt")"
            done
        done
        rm -f "$memory"
    }
    if [ -d /dev/shm ]; then
        tmpfs tmpfs /dev/shm
    else
        echo "SKIP: tmpfs: no /dev/shm"
    fi
    huge=$scratch/huge
    mkdir -p "$huge"
    if mount -t tmpfs -o huge=always,size=9G tmpfs "$huge"; then
        trap 'umount "$huge"; [ -z "$made" ] || rm -rf "$scratch"' EXIT
        tmpfs tmpfs-huge "$huge"
    else
        echo "SKIP: tmpfs-huge: a tmpfs with huge=always cannot be mounted here"
    fi
fi
section "done"
