"""A client from a package registry: fastsafetensors, whose native module opens libamdhip64.so and libhipfile.so by name.

It is driven as its own loader drives it, without torch, and reads a safetensors file. Started by `cargo xtask clients` with
our library and the emulated GPU on the library path.
"""

import ctypes
import json
import os
import struct
import sys
import tempfile

from fastsafetensors import cpp


def tensors():
    """Names and bytes, of sizes that no block or page divides."""
    for index, size in enumerate((3, 4096, 70_001, 9_000_003)):
        yield f"layer.{index}", bytes((index + at * 7) & 0xFF for at in range(size))


def write(path):
    header, data = {}, b""
    for name, contents in tensors():
        header[name] = {"dtype": "U8", "shape": [len(contents)], "data_offsets": [len(data), len(data) + len(contents)]}
        data += contents
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return 8 + len(text), header


def loaded(name):
    """The files mapped into this process under a name."""
    with open("/proc/self/maps") as maps:
        return {line.split()[-1] for line in maps if name in line}


def main():
    cpp.load_library_functions("libamdhip64.so")
    assert cpp.is_hip_found() and not cpp.is_cuda_found(), "the emulated HIP was not taken"
    assert cpp.is_cufile_found(), "libhipfile.so was not taken"
    for name in ("libhipfile", "libamdhip64"):
        assert all(path.startswith(os.environ["STAGED"]) for path in loaded(name)) and loaded(name), loaded(name)
    assert cpp.is_gds_supported(0) >= 0
    assert cpp.init_gds() == 0
    hip = ctypes.CDLL("libamdhip64.so")
    align = cpp.get_alignment_size()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        start, header = write(path)
        size = os.path.getsize(path)
        for o_direct in (True, False):
            file = cpp.gds_file_handle(path, o_direct, True)
            first = start - start % align
            length = -(-(size - first) // align) * align
            memory = cpp.gpu_malloc(length)
            buffer = cpp.gds_device_buffer(memory, length, True)
            reader = cpp.gds_file_reader(4, True, 0)
            block, requests = 1 << 20, []
            for at in range(0, length, block):
                count = min(block, length - at)
                assert buffer.cufile_register(at, count) == 0
                requests.append(reader.submit_read(file, buffer, first + at, count, at, size))
            moved = [reader.wait_read(request) for request in requests]
            assert min(moved) >= 0 and sum(moved) >= size - first, moved
            for at in range(0, length, block):
                assert buffer.cufile_deregister(at) == 0
            whole = ctypes.create_string_buffer(size - first)
            assert hip.hipMemcpy(whole, ctypes.c_void_p(memory), ctypes.c_size_t(size - first), 2) == 0
            for name, contents in tensors():
                begin, end = header[name]["data_offsets"]
                found = whole.raw[start - first + begin : start - first + end]
                assert found == contents, f"{name} differs, o_direct={o_direct}"
            del reader, file, buffer
            cpp.gpu_free(memory)
    assert cpp.close_gds() == 0
    print("fastsafetensors: every tensor came to its place")


if __name__ == "__main__":
    sys.exit(main())
