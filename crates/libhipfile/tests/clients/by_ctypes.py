"""A client as LMCache has one: ctypes on libhipfile.so by its unversioned name, structs returned by value.

Behaviour 138: the same code serves libcufile, for names and layouts differ in the prefix only; so the layouts here are
those that cuFile's header documents. Started by `cargo xtask clients`.
"""

import ctypes as c
import os
import sys
import tempfile


class Error(c.Structure):
    _fields_ = [("err", c.c_int), ("device_err", c.c_int)]


class Handle(c.Union):
    _fields_ = [("fd", c.c_int), ("pointer", c.c_void_p)]


class Description(c.Structure):
    _fields_ = [("kind", c.c_int), ("handle", Handle), ("fs_ops", c.c_void_p)]


class Batched(c.Structure):
    _fields_ = [("base", c.c_void_p), ("file_offset", c.c_int64), ("offset", c.c_int64), ("size", c.c_size_t)]


class Request(c.Structure):
    _fields_ = [("mode", c.c_int), ("batch", Batched), ("handle", c.c_void_p), ("opcode", c.c_int), ("cookie", c.c_void_p)]


class Event(c.Structure):
    _fields_ = [("cookie", c.c_void_p), ("status", c.c_int), ("ret", c.c_size_t)]


def behaviour_138_layouts():
    sizes = [c.sizeof(kind) for kind in (Error, Description, Request, Event)]
    assert sizes == [8, 24, 64, 24], sizes


class Library:
    """Either library behind one set of names."""

    def __init__(self, file, prefix):
        self.library, self.prefix = c.CDLL(file), prefix

    def __getattr__(self, name):
        found = getattr(self.library, self.prefix + name)
        number = {"Read": c.c_ssize_t, "Write": c.c_ssize_t, "UseCount": c.c_int64, "HandleDeregister": None}
        found.restype = number.get(name, Error)
        return found

    def check(self, error):
        assert (error.err, error.device_err) == (0, 0), (error.err, error.device_err)


def round_trip(library, hip, contents, folder):
    size = len(contents)
    memory = c.c_void_p()
    assert hip.hipMalloc(c.byref(memory), c.c_size_t(size)) == 0
    library.check(library.DriverOpen())
    library.check(library.BufRegister(memory, c.c_size_t(size), 0))
    source, target = os.path.join(folder, "source"), os.path.join(folder, "target")
    with open(source, "wb") as file:
        file.write(contents)
    handles = []
    for path, flags in ((source, os.O_RDONLY | os.O_DIRECT), (target, os.O_RDWR | os.O_CREAT | os.O_TRUNC)):
        fd, handle = os.open(path, flags, 0o644), c.c_void_p()
        library.check(library.HandleRegister(c.byref(handle), c.byref(Description(1, Handle(fd=fd), None))))
        handles.append((fd, handle))
    (_, reading), (_, writing) = handles
    arguments = (memory, c.c_size_t(size), c.c_int64(0), c.c_int64(0))
    assert library.Read(reading, *arguments) == size
    # In the order of a stream, with flags as LMCache registers it.
    library.check(library.StreamRegister(None, 7))
    asked, at, moved = c.c_size_t(size), c.c_int64(0), c.c_ssize_t(-1)
    library.check(
        library.WriteAsync(writing, memory, c.byref(asked), c.byref(at), c.byref(at), c.byref(moved), None)
    )
    assert hip.hipStreamSynchronize(None) == 0 and moved.value == size, moved.value
    library.check(library.StreamDeregister(None))
    for fd, handle in handles:
        library.HandleDeregister(handle)
        os.close(fd)
    library.check(library.BufDeregister(memory))
    library.check(library.DriverClose())
    assert library.UseCount() == 0 and hip.hipFree(memory) == 0
    with open(target, "rb") as file:
        assert file.read() == contents


def main():
    behaviour_138_layouts()
    contents = bytes((at * 7 + at // 251) & 0xFF for at in range((1 << 20) + 123))
    hip = c.CDLL("libamdhip64.so")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("libhipfile.so", "libhipfile.so.0"):
            round_trip(Library(name, "hipFile"), hip, contents, folder)
    print("ctypes: the file came back")


if __name__ == "__main__":
    sys.exit(main())
