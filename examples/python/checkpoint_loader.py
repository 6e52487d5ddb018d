"""Loads checkpoints of growing size to the GPU and plots how fast that goes, by the size of the file.

    python checkpoint_loader.py FOLDER [--plot plot.png] [--largest MIB]

The files are warm, in the page cache: what is measured is the way from there to the GPU. On the emulated GPU the numbers
mean nothing, and the plot says so.
"""

import argparse
import json
import os
import struct
import time

import numpy

import hipfile


def write_checkpoint(path, mib):
    """A safetensors file of `mib` tensors of 1 MiB."""
    header = {
        f"layer.{i}.weight": {"dtype": "F16", "shape": [512, 1024], "data_offsets": [i << 20, (i + 1) << 20]}
        for i in range(mib)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = numpy.random.default_rng(0).integers(0, 256, 1 << 20, numpy.uint8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for i in range(mib):
            file.write((block + numpy.uint8(i)).tobytes())
    return block


def seconds(path, times=3):
    """The best of several loads, and the tensors of the last."""
    best = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        tensors = hipfile.load_safetensors(path, "gpu", container="hipfile")
        best = min(best, time.perf_counter() - begin)
    return best, tensors


def plot(sizes, rates, name, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(sizes, rates, marker="o")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("size of the file in MiB")
    axes.set_ylabel("throughput in GB/s")
    axes.set_title(f"load_safetensors, warm files\nto {name}")
    axes.grid(True, alpha=0.3)
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--plot", help="the picture to write")
    parser.add_argument("--largest", type=int, default=256, help="size of the largest file in MiB (256)")
    asked = parser.parse_args()
    found = hipfile.available()
    device = found.devices[0]
    name = "the emulated GPU (no real GPU memory is involved)" if device["emulated"] else device["name"]

    sizes, rates = [], []
    size = 1
    while size <= asked.largest:
        path = os.path.join(asked.folder, f"{size}.safetensors")
        block = write_checkpoint(path, size)
        took, tensors = seconds(path)
        last = tensors[f"layer.{size - 1}.weight"]
        assert last.tobytes() == (block + numpy.uint8(size - 1)).tobytes()
        rate = os.path.getsize(path) / took / 1e9
        print(f"{size:6} MiB: {rate:6.2f} GB/s to {name}")
        sizes.append(size)
        rates.append(rate)
        os.unlink(path)
        size *= 2
    if asked.plot:
        plot(sizes, rates, name, asked.plot)


if __name__ == "__main__":
    main()
