"""Every argument of every public function, given everything that it is not for: what comes back is a result or one of the
package's errors, with a word of what is wrong, and nothing is left open."""

import ctypes
import gc
import inspect
import os

import numpy
import pytest

import hipfile
from hipfile import Batch, Buffer, CuFile, DeviceArray, FileHandle, HipFileException, Stream, _hipfile, hipMalloc

class Hostile:
    """Raises from everything that is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(f"{name} is not for you")

    def __index__(self):
        raise ZeroDivisionError("no number")

    __int__ = __float__ = __bool__ = __len__ = __iter__ = __fspath__ = __index__


EVIL = {
    "None": None,
    "True": True,
    "word": "frob",
    "bytes": b"frob",
    "NUL": "a\0b",
    "surrogate": "\udc80",
    "long word": "x" * 100000,
    "fraction": 1.5,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "complex": 1j,
    "negative": -1,
    "lowest": -(1 << 63),
    "below the lowest": -(1 << 63) - 1,
    "31 bits": 1 << 31,
    "32 bits": 1 << 32,
    "63 bits": 1 << 63,
    "top": (1 << 64) - 1,
    "64 bits": 1 << 64,
    "huge": 10**5000,
    "huge negative": -(10**5000),
    "list": [],
    "list of itself": (lambda l: l.append(l) or l)([]),
    "tuple": (1, "a"),
    "dict": {},
    "set": {1},
    "object": object(),
    "class": int,
    "array class": numpy.ndarray,
    "module": os,
    "function": len,
    "generator": (x for x in ()),
    "array": numpy.zeros(3),
    "array of nothing": numpy.zeros(0),
    "objects": numpy.array([None, {}], dtype=object),
    "number of numpy": numpy.float64(1.5),
    "time of numpy": numpy.datetime64("NaT", "s"),
    "void pointer": ctypes.c_void_p(0),
    "pointer to a pointer": ctypes.pointer(ctypes.c_void_p()),
    "read-only": memoryview(b"read-only"),
    "released": (lambda view: view.release() or view)(memoryview(b"released")),
    "exception": ValueError("no"),
    "hostile": Hostile(),
}

#: Numbers that could be the handle of a stream, and are believed to be one.
HANDLES = {"31 bits", "32 bits", "63 bits", "top"}
#: What the package raises. Errors of the objects themselves come through.
OWN = (TypeError, ValueError, OSError, HipFileException, EOFError)
ALSO = {
    "load_safetensors": (KeyError, ImportError),
    "load_npy": (ImportError,),
    "File.read": (ImportError,),
    "FileHandle": (NotImplementedError,),
    "FileHandle.handle_type": (NotImplementedError, RuntimeError),
    "AsyncIOHandle.wait": (TimeoutError,),
}


@pytest.fixture
def doors(data, tmp_path, gpu):
    """Name -> (function, arguments that work)."""
    path, memory, there = data[0], bytearray(64), gpu(4096)
    numpy.save(tmp_path / "a.npy", numpy.arange(3))
    (tmp_path / "a.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    file = hipfile.open(path, "r+")
    batch = Batch(4096)
    device = DeviceArray.empty(64)
    amd = FileHandle(path, os.O_RDWR)
    amd.open()
    cu = CuFile(path, "r+")
    cu.open()
    buffer = Buffer(there.ptr, 4096, 0)
    queued = file.enqueue_read(memory)

    def scratch(name, **more):
        return {"path": tmp_path / name, **more}

    def with_class(made, use):
        use(made)
        return made

    yield {
        "open": (lambda **a: hipfile.open(**a).close(), scratch("new", mode="w", direct="auto")),
        "File.read_into": (file.read_into, {"array": memory, "file_offset": 0, "nbytes": 8, "stream": None}),
        "File.write_from": (file.write_from, {"array": memory, "file_offset": 0, "nbytes": 8, "stream": None}),
        "File.read": (file.read, {"nbytes": 8, "file_offset": 0, "device": "cpu", "dtype": "u1", "container": None}),
        "File.read, shape": (file.read, {"shape": (2, 2), "dtype": "u1"}),
        "File.submit": (
            lambda **a: file.submit(**a).result(60),
            {"op": "read", "array": memory, "file_offset": 0, "nbytes": 8, "stream": None},
        ),
        "File.enqueue_read": (
            lambda **a: file.enqueue_read(**a).wait(60),
            {"array": memory, "file_offset": 0, "nbytes": 8},
        ),
        "File.enqueue_write": (
            lambda **a: file.enqueue_write(**a).wait(60),
            {"array": memory, "file_offset": 0, "nbytes": 8},
        ),
        "Batch": (Batch, {"capacity": 2}),
        "Batch.read": (lambda **a: Batch(2).read(**a), {"file": file, "array": memory, "file_offset": 0, "nbytes": 8, "stream": None}),
        "Batch.write": (lambda **a: Batch(2).write(**a), {"file": file, "array": memory, "file_offset": 0, "nbytes": 8, "stream": None}),
        "Batch.wait": (batch.wait, {"least": 0, "timeout": 0}),
        "DeviceArray": (DeviceArray, {"memory": there, "at": 0, "dtype": "uint8", "itemsize": 1, "shape": (8,)}),
        "DeviceArray.empty": (DeviceArray.empty, {"shape": (2, 2), "dtype": None, "device": 0}),
        "DeviceArray.from_host": (DeviceArray.from_host, {"array": memory, "device": 0}),
        "DeviceArray.part": (device.part, {"at": 0, "dtype": "uint8", "itemsize": 1, "shape": (8,)}),
        "DeviceArray.set": (device.set, {"array": memory}),
        "DeviceArray.__getitem__": (device.__getitem__, {"piece": slice(0, 2)}),
        "load_npy": (hipfile.load_npy, scratch("a.npy", device="cpu", container=None)),
        "save_npy": (hipfile.save_npy, scratch("b.npy", array=numpy.zeros(3), stream=None, sync=False)),
        "load_safetensors": (
            hipfile.load_safetensors,
            scratch("a.safetensors", device="cpu", names=None, container=None, progress=False),
        ),
        "safetensors_header": (hipfile.safetensors_header, scratch("a.safetensors")),
        "HipFileException": (lambda **a: str(HipFileException(**a)), {"hipfile_err": 5001, "hip_err": 0}),
        "Buffer": (Buffer, {"buffer_ptr": there.ptr, "length": 4096, "flags": 0}),
        "Buffer.register": (
            lambda **a: with_class(Buffer(**a), lambda b: (b.register(), b.deregister())),
            {"buffer_ptr": there.ptr, "length": 4096, "flags": 0},
        ),
        "Buffer.from_ctypes_void_p": (
            Buffer.from_ctypes_void_p,
            {"ptr": ctypes.c_void_p(there.ptr), "length": 4096, "flags": 0},
        ),
        "Stream": (Stream, {"stream": 0, "flags": 0}),
        "FileHandle": (
            lambda **a: with_class(FileHandle(**a), lambda f: (f.open(), f.close())),
            {"path": path, "flags": os.O_RDONLY, "mode": 0o644, "handle_type": hipfile.FileHandleType.OPAQUE_FD},
        ),
        "FileHandle.read": (amd.read, {"buffer": buffer, "size": 8, "file_offset": 0, "buffer_offset": 0}),
        "FileHandle.write": (amd.write, {"buffer": buffer, "size": 8, "file_offset": 0, "buffer_offset": 0}),
        "FileHandle.read_async": (
            lambda **a: amd.read_async(**a).wait(60),
            {"buffer": buffer, "size": 8, "file_offset": 0, "buffer_offset": 0, "stream": 0},
        ),
        "FileHandle.write_async": (
            lambda **a: amd.write_async(**a).wait(60),
            {"buffer": buffer, "size": 8, "file_offset": 0, "buffer_offset": 0, "stream": 0},
        ),
        "FileHandle.handle_type": (lambda value: setattr(FileHandle(path, 0), "handle_type", value), {"value": 1}),
        "AsyncIOHandle.wait": (queued.wait, {"timeout": 60}),
        "CuFile": (lambda **a: CuFile(**a).open(), {"path": path, "mode": "r", "use_direct_io": False}),
        "CuFile.read": (cu.read, {"dest": there.ptr, "size": 8, "file_offset": 0, "dev_offset": 0}),
        "CuFile.write": (cu.write, {"src": there.ptr, "size": 8, "file_offset": 0, "dev_offset": 0}),
        "buf_register": (
            lambda **a: (hipfile.buf_register(**a), hipfile.buf_deregister(a["ptr"])),
            {"ptr": there.ptr, "size": 4096, "flags": 0},
        ),
        "buf_deregister": (hipfile.buf_deregister, {"ptr": 4096}),
        "hipMalloc": (lambda **a: hipMalloc.hipFree(hipMalloc.hipMalloc(**a)), {"size": 64}),
        "hipFree": (hipMalloc.hipFree, {"ptr": 0}),
        "_hipfile.hipFileRead": (
            _hipfile.hipFileRead,
            {"handle": amd.handle, "ptr": there.ptr, "size": 8, "file_offset": 0, "buffer_offset": 0},
        ),
        "_hipfile.hipFileWrite": (
            _hipfile.hipFileWrite,
            {"handle": amd.handle, "ptr": there.ptr, "size": 8, "file_offset": 0, "buffer_offset": 0},
        ),
        "_hipfile.hipFileBufRegister": (_hipfile.hipFileBufRegister, {"ptr": 4096, "length": 8, "flags": 0}),
        "_hipfile.hipFileBufDeregister": (_hipfile.hipFileBufDeregister, {"ptr": 4096}),
        "_hipfile.hipFileHandleDeregister": (_hipfile.hipFileHandleDeregister, {"handle": 7}),
        "_hipfile.hipFileHandleRegister": (_hipfile.hipFileHandleRegister, {"fd": -1, "handle_type": 1}),
    }
    for thing in (batch, file, amd, cu):
        thing.close()


#: May be asked for nothing, and take no arguments that could be wrong.
WITHOUT = {"AUTO", "Availability", "AsyncIOHandle", "Driver", "FileHandleType", "Future", "NotRegistered", "OpError", "Result",
           "SafetensorsError", "Unsupported", "__version__", "available", "check", "driver_get_properties", "get_version",
           "settings", "stats", "supports_async", "CuFileDriver", "File"}


def test_the_table_names_every_function(doors):
    called = {name.partition(".")[0] for name in doors} | WITHOUT
    assert set(hipfile.__all__) <= called
    for thing in (hipfile.File, Batch, FileHandle, CuFile, DeviceArray, Buffer, Stream, hipfile.AsyncIOHandle):
        for name, method in vars(thing).items():
            function = getattr(method, "__func__", method)
            if not name.startswith("_") and inspect.isfunction(function) and len(inspect.signature(function).parameters) > 1:
                assert f"{thing.__name__}.{name}" in doors, f"{thing.__name__}.{name}"


def test_wrong_types_everywhere(doors, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Words are paths, too.
    for name, (function, good) in doors.items():
        try:
            function(**good)
        except HipFileException:
            assert name == "buf_deregister"
    before = len(os.listdir("/proc/self/fd"))
    strange = []
    for name, (function, good) in doors.items():
        os.truncate(data[0], 100_000)  # Large offsets are fine for writes, and make large files of nothing.
        also = ALSO.get(name.partition(",")[0], ())
        for argument in good:
            for kind, evil in EVIL.items():
                if argument == "stream" and kind in HANDLES:
                    continue
                try:
                    function(**{**good, argument: evil})
                except (*OWN, *also) as error:
                    told = str(error)
                    if not told or len(told) > 100500 or (len(told) > 1000 and kind != "long word"):
                        strange.append(f"{name}({argument}={kind}): {type(error).__name__} says {told[:100]!r}")
                except (RuntimeError, ZeroDivisionError) as error:
                    if kind != "hostile":
                        strange.append(f"{name}({argument}={kind}): {type(error).__name__}: {error}")
                except BaseException as error:
                    strange.append(f"{name}({argument}={kind}): {type(error).__name__}: {str(error)[:100]}")
    assert strange == [], "\n".join(strange)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
