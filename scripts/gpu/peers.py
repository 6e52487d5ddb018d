#!/usr/bin/env python3
"""What others give for the same file on the same machine: libcufile's compatibility mode by ctypes, KvikIO where it is
installed. Beside them what scripts/gpu/run.sh measures of this library. Everything is read out of the page cache.

Usage: peers.py FILE [libhipfile.so.0]      FILE is 1 GiB or more. Needs libcuda.so.1, no toolkit.
Without udev's data libcufile refuses every file: where /run/udev/data may be written, it gets what it asks for, until exit.
"""

import ctypes as c
import glob
import json
import os
import resource
import statistics
import sys
import tempfile
import time

GIB = 1 << 30
ROUNDS = 5


class Descr(c.Structure):  # CUfileDescr_t and hipFileDescr_t
    _fields_ = [("type", c.c_int), ("handle", c.c_uint64), ("fs_ops", c.c_void_p)]


class Status(c.Structure):  # CUfileError_t and hipFileError_t
    _fields_ = [("err", c.c_int), ("driver", c.c_int)]


class Params(c.Structure):  # CUfileIOParams_t and hipFileIOParams_t
    _fields_ = [
        ("mode", c.c_int),
        ("base", c.c_void_p),
        ("file_offset", c.c_int64),
        ("offset", c.c_int64),
        ("size", c.c_size_t),
        ("handle", c.c_void_p),
        ("opcode", c.c_int),
        ("cookie", c.c_void_p),
    ]


class Event(c.Structure):  # CUfileIOEvents_t and hipFileIOEvents_t
    _fields_ = [("cookie", c.c_void_p), ("status", c.c_int), ("moved", c.c_size_t)]


def must(result, what):
    if result:
        sys.exit(f"{what} failed: {result}")


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(name, run, count, length):
    """Prints the median of rounds; `run` does `count` operations of `length` bytes."""
    run()
    times, began = [], cpu()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    used, median = (cpu() - began) / ROUNDS, statistics.median(times)
    moved = count * length / 1e9
    print(
        f"  {name:52} {median / count * 1e6:10.2f} us each {moved / median:7.2f} GB/s {used / moved:6.3f} cpu-s/GB"
        f"  ({min(times) / median:.2f}..{max(times) / median:.2f})",
        flush=True,
    )


def find_cufile():
    yield "libcufile.so.0"
    for folder in sys.path:
        yield from glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libcufile.so.0"))
    yield from glob.glob("/usr/local/cuda*/targets/*/lib/libcufile.so.0")


def load(paths):
    errors = []
    for path in paths:
        try:
            return c.CDLL(path)
        except OSError as error:
            errors.append(str(error))
    print("SKIP: " + "; ".join(errors[:2]))
    return None


def same_abi(library, prefix, file, device):
    """The calls that cuFile and hipFile have in common."""
    opened, register, buffer = (getattr(library, prefix + name) for name in ("DriverOpen", "HandleRegister", "BufRegister"))
    for function in (opened, register, buffer):
        function.restype = Status
    read = getattr(library, prefix + "Read")
    read.restype = c.c_ssize_t
    read.argtypes = [c.c_void_p, c.c_void_p, c.c_size_t, c.c_int64, c.c_int64]
    must(opened().err, prefix + "DriverOpen")
    fd = os.open(file, os.O_RDONLY)
    handle, descr = c.c_void_p(), Descr(1, fd, None)
    error = register(c.byref(handle), c.byref(descr)).err
    if error:
        print(f"SKIP: {prefix}HandleRegister: {error}")
        return
    must(buffer(c.c_void_p(device), c.c_size_t(GIB), 0).err, prefix + "BufRegister")
    for length, count in ((4096, 2000), (1 << 20, 256), (16 << 20, 64), (GIB, 1)):

        def run(length=length, count=count):
            for i in range(count):
                at = i * 7919 % 16384 * 4096 if length == 4096 else i * length % GIB
                if read(handle, device, length, at, 0) != length:
                    sys.exit(f"{prefix}Read was short")

        measure(f"{prefix}Read, calls of {length >> 10} KiB", run, count, length)
    batches(library, prefix, handle, device)


def batches(library, prefix, handle, device):
    """Batches of 128 reads of 4 KiB. All that is in the arrays is written once: Python's share is two calls for each batch."""
    count, batch = 128, c.c_void_p()
    setup, submit, status = (getattr(library, prefix + "BatchIO" + name) for name in ("SetUp", "Submit", "GetStatus"))
    for function in (setup, submit, status):
        function.restype = Status
    error = setup(c.byref(batch), count).err
    if error:
        print(f"SKIP: {prefix}BatchIOSetUp: {error}")
        return
    rounds = [(Params * count)() for _ in range(16)]
    for n, params in enumerate(rounds):
        for i, entry in enumerate(params):
            place = (n * count + i) * 7919 % 16384 * 4096
            entry.mode, entry.base, entry.file_offset, entry.offset = 1, device, place, i * 4096
            entry.size, entry.handle, entry.opcode = 4096, handle, 0
    events = (Event * count)()

    def run():
        for params in rounds:
            done = 0
            must(submit(batch, count, params, 0).err, prefix + "BatchIOSubmit")
            while done < count:
                got = c.c_uint(count)
                must(status(batch, count - done, c.byref(got), events, None).err, prefix + "BatchIOGetStatus")
                done += got.value
        if any(event.moved != 4096 for event in events[: got.value]):
            sys.exit(f"{prefix}BatchIOSubmit: a read was short")

    measure(f"{prefix}BatchIOSubmit, {count} reads of 4 KiB", run, count * len(rounds), 4096)


def loop_cost(device):
    """What the calls above cost for Python's sake."""
    nothing = c.CDLL(None).getppid
    measure("(a system call made from Python)", lambda: [nothing(device) for _ in range(2000)], 2000, 4096)


def udev_data(file):
    device = os.stat(file).st_dev
    path = f"/run/udev/data/b{os.major(device)}:{os.minor(device)}"
    if os.path.exists(path):
        return None
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as data:
            data.write("E:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\n")
        return path
    except OSError as error:
        print(f"no udev data for libcufile: {error}")
        return None


def kvikio_reads(file):
    # Else it goes around the page cache, to the storage; or through libcufile's compatibility mode, which has its own line.
    os.environ["KVIKIO_AUTO_DIRECT_IO_READ"] = "off"
    os.environ["KVIKIO_COMPAT_MODE"] = "ON"
    try:
        import cupy
        import kvikio
        import kvikio.defaults
    except ImportError as error:
        print(f"SKIP: KvikIO: {error}")
        return
    target = cupy.empty(GIB, dtype=cupy.uint8)
    for threads in (1, 4, 8, 16):
        for task in (1 << 20, 4 << 20, 16 << 20):
            try:
                kvikio.defaults.set({"num_threads": threads, "task_size": task})
            except (AttributeError, TypeError):
                kvikio.defaults.num_threads_reset(threads)
                kvikio.defaults.task_size_reset(task)
            with kvikio.CuFile(file, "r") as opened:

                def run(opened=opened):
                    if opened.pread(target).get() != GIB:
                        sys.exit("KvikIO's read was short")

                measure(f"KvikIO {kvikio.__version__}, 1 GiB, {threads} threads, tasks of {task >> 20} MiB", run, 1, GIB)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    file = sys.argv[1]
    with open(file, "rb") as data:
        while data.read(64 << 20):
            pass
    cuda = c.CDLL("libcuda.so.1")
    context, device = c.c_void_p(), c.c_uint64()
    must(cuda.cuInit(0), "cuInit")
    must(cuda.cuDevicePrimaryCtxRetain(c.byref(context), 0), "cuDevicePrimaryCtxRetain")
    must(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    must(cuda.cuMemAlloc_v2(c.byref(device), c.c_size_t(GIB)), "cuMemAlloc")
    loop_cost(device)
    if len(sys.argv) > 2 and (ours := load([sys.argv[2]])):
        same_abi(ours, "hipFile", file, device.value)
    settings = {
        "properties": {
            "allow_compat_mode": True,
            "force_compat_mode": True,
            "posix_pool_slab_size_kb": [4, 1024, 16384],
            "posix_pool_slab_count": [512, 512, 512],
        },
        "execution": {"parallel_io": True},
        "logging": {"level": "ERROR", "dir": tempfile.gettempdir()},
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump(settings, config)
        config.flush()
        os.environ["CUFILE_ENV_PATH_JSON"] = config.name
        written = udev_data(file)
        try:
            if cufile := load(find_cufile()):
                same_abi(cufile, "cuFile", file, device.value)
            kvikio_reads(file)
        finally:
            if written:
                os.unlink(written)


main()
