#!/usr/bin/env python3
"""How fast a model file comes into GPU memory as torch tensors: this library's load_safetensors, fastsafetensors and
safetensors.torch, in turn, out of the page cache. Needs torch with a GPU and the package of this library; what is not
installed of the others is said.

Usage: loaders.py FOLDER [GIB]      FOLDER has so many GiB free (default 8); the file is made there and removed again.
"""

import json
import os
import resource
import statistics
import sys
import time

import torch

import hipfile

ROUNDS = 5
TENSOR = 128 << 20
GIB = 1 << 30


def make(path, size):
    """Tensors of 64 Mi bfloat16 each, every one with numbers of its own."""
    count = size // TENSOR
    header = {
        f"layers.{n}.weight": {
            "dtype": "BF16",
            "shape": [TENSOR // 2 // 4096, 4096],
            "data_offsets": [n * TENSOR, (n + 1) * TENSOR],
        }
        for n in range(count)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = torch.randint(0, 256, (TENSOR,), dtype=torch.uint8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for n in range(count):
            block[:8] = torch.tensor(list(n.to_bytes(8, "little")), dtype=torch.uint8)
            file.write(memoryview(block.numpy()))
    with open(path, "rb") as file:
        while file.read(64 << 20):
            pass


def ours(path):
    return hipfile.load_safetensors(path, "cuda", container="torch"), lambda: None


def plain(path):
    from safetensors.torch import load_file

    return load_file(path, device="cuda"), lambda: None


def fast(path):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), torch.device("cuda:0"), nogds=True)
    loader.add_filenames({0: [path]})
    buffer = loader.copy_files_to_device()
    tensors = {name: buffer.get_tensor(name) for name in loader.get_keys()}

    def close():
        buffer.close()
        loader.close()

    return tensors, close


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def once(load, path, look=None):
    """Seconds and seconds of processors. What was loaded is looked at and let go of outside of them."""
    began, start = cpu(), time.perf_counter()
    tensors, close = load(path)
    torch.cuda.synchronize()
    took, used = time.perf_counter() - start, cpu() - began
    if look:
        look(tensors)
    del tensors
    close()
    return took, used


def total(tensors):
    return {name: int(tensor.view(torch.int16).sum(dtype=torch.int64)) for name, tensor in tensors.items()}


def link():
    """The rate of copies of pinned memory, in GB/s."""
    host = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True)
    there = torch.empty_like(host, device="cuda")
    times = []
    for _ in range(9):
        torch.cuda.synchronize()
        start = time.perf_counter()
        there.copy_(host, non_blocking=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return host.numel() / statistics.median(times) / 1e9


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    path = os.path.join(sys.argv[1], f"loaders.{os.getpid()}.safetensors")
    size = int(sys.argv[2] if len(sys.argv) > 2 else 8) * GIB
    torch.zeros(1, device="cuda")
    try:
        make(path, size)
        ceiling = link()
        print(f"the link: {ceiling:.1f} GB/s; a file of {size >> 30} GiB in tensors of {TENSOR >> 20} MiB, cached")
        loaders = {"hipfile": ours, "fastsafetensors": fast, "safetensors.torch": plain}
        results, sums = {name: [] for name in loaders}, {}
        for name, load in list(loaders.items()):
            try:
                once(load, path, lambda tensors, name=name: sums.update({name: total(tensors)}))
            except ImportError as error:
                print(f"SKIP: {name}: {error}")
                del loaders[name]
        if any(found != sums["hipfile"] for found in sums.values()):
            sys.exit("the loaders do not agree about what is in the file")
        for round in range(ROUNDS):
            names = list(loaders)
            for name in names[round % len(names) :] + names[: round % len(names)]:
                took, used = once(loaders[name], path)
                results[name].append((size / took / 1e9, used / size * 1e9))
        for name in loaders:
            rates = [rate for rate, _ in results[name]]
            used = statistics.median(used for _, used in results[name])
            rate = statistics.median(rates)
            print(
                f"  {name:20} {rate:6.2f} GB/s ({min(rates):.2f}..{max(rates):.2f})  {used:6.3f} cpu-s/GB"
                f"  {rate / ceiling:5.2f} of the link"
            )
    finally:
        if os.path.exists(path):
            os.remove(path)


main()
