"""A client from a package registry: AMD's own Python bindings, built against our header and library.

A file goes to the memory of the emulated GPU and back, by their classes alone. Started by `cargo xtask clients`, once for
each way in which HIP's symbols can come to them (docs/abi.md).
"""

import os
import sys
import tempfile

import hipfile
from hipfile import Buffer, Driver, FileHandle, HipFileException, OpError
from hipfile.hipMalloc import hipFree, hipMalloc

SIZE = (1 << 20) + 4096


def main():
    with open("/proc/self/maps") as maps:
        files = {line.split()[-1] for line in maps if "libhipfile.so" in line or "libamdhip64" in line}
    assert len(files) == 2 and all(path.startswith(os.environ["STAGED"]) for path in files), files
    assert "hipfile_rs" not in hipfile.__file__ and not hasattr(hipfile, "load_safetensors"), "these are not AMD's"
    assert hipfile.get_version() == tuple(int(part) for part in os.environ["VERSION"].split("."))
    assert Driver.use_count() == 0
    contents = bytes((at * 7 + at // 251) & 0xFF for at in range(SIZE))
    with tempfile.TemporaryDirectory() as folder, Driver():
        assert Driver.use_count() == 1
        source, target = os.path.join(folder, "source"), os.path.join(folder, "target")
        with open(source, "wb") as file:
            file.write(contents)
        memory = hipMalloc(SIZE)
        with Buffer.from_ctypes_void_p(memory, SIZE, 0) as buffer:
            with FileHandle(source, os.O_RDONLY | os.O_DIRECT) as file:
                assert file.read(buffer, SIZE, 0, 0) == SIZE
                assert file.read(buffer, 4096, SIZE - 100, 0) == 100
                assert file.read(buffer, 4096, 0, 0) == 4096
            with FileHandle(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as file:
                assert file.write(buffer, SIZE, 0, 0) == SIZE
                try:
                    file.read(buffer, 4096, -1, 0)
                except OSError as error:
                    assert error.errno == 22, error
                else:
                    raise AssertionError("a negative offset was taken")
                try:
                    file.read(buffer, SIZE, 0, 4096)
                except HipFileException as error:
                    assert error.hipfile_err == OpError.INVALID_VALUE, error
                else:
                    raise AssertionError("a range outside the buffer was taken")
        hipFree(memory)
        with open(target, "rb") as file:
            assert file.read() == contents
    assert Driver.use_count() == 0
    print("AMD's bindings: the file came back")


if __name__ == "__main__":
    sys.exit(main())
