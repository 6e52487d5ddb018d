"""What arrays are accepted, what is refused, and what is waited for."""

import array
import ctypes
import mmap

import numpy
import pytest

import hipfile
from hipfile import _memory
from hipfile._memory import region


class Interface:
    """An array of somebody's library, known by its array interface only."""

    def __init__(self, memory, shape, typestr="|u1", strides=None, readonly=False, **more):
        self.memory = memory
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": typestr,
            "data": (memory.ptr, readonly),
            "strides": strides,
            **more,
        }


class HipInterface:
    def __init__(self, memory):
        self.memory = memory
        self.__hip_array_interface__ = {"shape": (memory.nbytes,), "typestr": "|u1", "data": (memory.ptr, False)}


class Tensor(ctypes.Structure):
    """DLPack's DLTensor and what surrounds it."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


class Dlpack:
    """An array of somebody's library that lies on a GPU, known by DLPack only."""

    device_type = 10

    def __init__(self, memory, shape, bits=8, strides=None, flags=None, offset=0, major=1):
        self.memory, self.flags, self.asked = memory, flags, []
        numbers = ctypes.c_int64 * len(shape)
        self.tensor = Tensor(memory.ptr, self.device_type, 0, len(shape), 1, bits, 1)
        self.tensor.shape = numbers(*shape)
        self.tensor.byte_offset = offset
        if strides is not None:
            self.tensor.strides = numbers(*strides)
        self.versioned = Versioned(major, 0, None, None, flags or 0, self.tensor)

    def __dlpack_device__(self):
        return self.device_type, 0

    def __dlpack__(self, **asked):
        if self.flags is None and "max_version" in asked:
            raise TypeError("this producer is older than versions")
        self.asked.append(asked)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        if self.flags is None:
            self.name, at = b"dltensor", ctypes.addressof(self.tensor)
        else:
            self.name, at = b"dltensor_versioned", ctypes.addressof(self.versioned)
        return make(at, self.name, None)


HOST = {
    "bytearray": lambda n: bytearray(n),
    "array": lambda n: array.array("B", bytes(n)),
    "numpy": lambda n: numpy.zeros(n, numpy.uint8),
    "memoryview": lambda n: memoryview(bytearray(n)),
    "ctypes": lambda n: (ctypes.c_ubyte * n)(),
    "mmap": lambda n: mmap.mmap(-1, n),
}


@pytest.mark.parametrize("kind", HOST)
def test_behaviour_134_host_memory_of_any_kind(kind, data, tmp_path):
    """Nothing need be allocated or registered with the package: whatever has memory will do."""
    path, contents = data
    memory = HOST[kind](8192)
    with hipfile.open(path) as file:
        assert file.read_into(memory, 4096) == 8192
    assert bytes(memory) == contents[4096 : 4096 + 8192]
    with hipfile.open(tmp_path / "out", "w") as file:
        assert file.write_from(memory) == 8192
    assert (tmp_path / "out").read_bytes() == bytes(memory)


GPU = {
    "interface": lambda m: Interface(m, (m.nbytes,)),
    "interface, typed": lambda m: Interface(m, (2, m.nbytes // 8), "<f4", strides=(m.nbytes // 2, 4)),
    "hip interface": HipInterface,
    "dlpack": lambda m: Dlpack(m, (m.nbytes // 2,), bits=16),
    "dlpack with a version": lambda m: Dlpack(m, (m.nbytes,), flags=0),
    "dlpack, strides": lambda m: Dlpack(m, (2, m.nbytes // 2), strides=(m.nbytes // 2, 1)),
    "array of the package": lambda m: hipfile.DeviceArray(m, 0, "uint8", 1, (m.nbytes,)),
    "address": lambda m: m.ptr,
    "pointer of ctypes": lambda m: ctypes.c_void_p(m.ptr),
}


@pytest.mark.parametrize("kind", GPU)
def test_behaviour_134_gpu_memory_of_any_kind(kind, data, tmp_path, gpu):
    path, contents = data
    memory = gpu(8192)
    there = GPU[kind](memory)
    size = {"nbytes": 8192} if kind in ("address", "pointer of ctypes") else {}
    with hipfile.open(path) as file:
        assert file.read_into(there, 100, **size) == 8192
    assert memory.download(0, 8192) == contents[100 : 100 + 8192]
    with hipfile.open(tmp_path / "out", "w") as file:
        assert file.write_from(there, **size) == 8192
    assert (tmp_path / "out").read_bytes() == contents[100 : 100 + 8192]


def test_the_offset_of_a_dlpack_tensor_counts(data, gpu):
    memory = gpu(8192)
    with hipfile.open(data[0]) as file:
        file.read_into(Dlpack(memory, (16,), offset=64))
    assert memory.download(64, 16) == data[1][:16]
    assert memory.download(0, 64) == memory.download(80, 64) == b"\xee" * 64


def test_behaviour_139_what_is_not_contiguous_is_refused(data, gpu):
    memory = gpu(8192)
    matrix = numpy.zeros((64, 64), numpy.uint8)
    for strange in (
        matrix[:, ::2],
        matrix.T,
        matrix[::-1],
        memoryview(bytearray(64))[::2],
        Interface(memory, (64, 64), strides=(128, 1)),
        Interface(memory, (64, 64), "<f4", strides=(4, 256)),
        Dlpack(memory, (64, 64), strides=(1, 64)),
    ):
        with hipfile.open(data[0]) as file, pytest.raises(ValueError, match="not C-contiguous"):
            file.read_into(strange)
    assert memory.download(0, 8192) == b"\xee" * 8192
    # Dimensions of one element have any stride, and arrays of none have no order.
    for fine in (matrix[:1], numpy.zeros((4, 0, 3))[:, :, ::2], Interface(memory, (1, 64), strides=(9999, 1))):
        region(fine, writable=True)


def test_what_is_read_only_is_refused_for_reading_into(data, gpu):
    memory = gpu(8192)
    frozen = numpy.zeros(64, numpy.uint8)
    frozen.flags.writeable = False
    for strange in (
        b"bytes",
        frozen,
        memoryview(b"view"),
        Interface(memory, (64,), readonly=True),
        Dlpack(memory, (64,), flags=1),
    ):
        with hipfile.open(data[0]) as file, pytest.raises(ValueError, match="read-only"):
            file.read_into(strange)
        region(strange, writable=False)


def test_what_is_no_memory_is_refused(data, gpu):
    memory = gpu(64)
    other = Dlpack(memory, (64,))
    other.device_type = 8
    damaged = Dlpack(memory, (64,), flags=0, major=2)
    with hipfile.open(data[0]) as file:
        for strange, error, word in (
            (object(), TypeError, "nothing is known"),
            ("text", TypeError, "nothing is known"),
            (None, TypeError, "nothing is known"),
            (True, TypeError, "nothing is known"),
            (4096, TypeError, "nbytes"),
            (numpy.ma.masked_array([1, 2], [0, 1]).__class__, TypeError, "nothing is known"),
            (other, TypeError, "type 8"),
            (damaged, ValueError, "version 2"),
        ):
            with pytest.raises(error, match=word):
                file.read_into(strange)
        with pytest.raises(ValueError, match="9 bytes are asked for"):
            file.read_into(bytearray(8), nbytes=9)
        with pytest.raises(hipfile.HipFileException):
            file.read_into(0, nbytes=8)


def test_memory_in_use_cannot_be_resized(data):
    memory = bytearray(64)
    found = region(memory, writable=True)
    with pytest.raises(BufferError):
        memory.extend(b"more")
    del found
    memory.extend(b"more")


class TestOrder:
    """What is waited for before memory of a GPU is touched."""

    @pytest.fixture
    def waits(self, monkeypatch):
        waited = []
        monkeypatch.setattr(_memory._core, "wait_for_stream", waited.append)
        return waited

    def waited(self, waits, file, thing, **how):
        waits.clear()
        file.read_into(thing, **how)
        return list(waits)

    def test_by_the_array_interface(self, data, gpu, waits):
        memory = gpu(64)
        with hipfile.open(data[0]) as file:
            # Absent means the legacy default stream, behind whose work transfers are ordered anyway.
            assert self.waited(waits, file, Interface(memory, (64,))) == []
            assert self.waited(waits, file, Interface(memory, (64,), stream=None)) == []
            assert self.waited(waits, file, Interface(memory, (64,), stream=1)) == []
            assert self.waited(waits, file, Interface(memory, (64,), stream=2)) == [2]
            assert self.waited(waits, file, Interface(memory, (64,), stream=0x7F00)) == [0x7F00]
            assert self.waited(waits, file, Interface(memory, (64,), stream=0x7F00), stream=None) == []
            assert self.waited(waits, file, Interface(memory, (64,), stream=0x7F00), stream=0x7E00) == [0x7E00]

    def test_by_dlpack_the_producer_is_told_our_stream(self, data, gpu, waits):
        memory = gpu(64)
        rocm, cuda = Dlpack(memory, (64,), flags=0), Dlpack(memory, (64,))
        cuda.device_type = 2
        with hipfile.open(data[0]) as file:
            assert self.waited(waits, file, rocm) == []
            assert self.waited(waits, file, cuda) == []
            assert rocm.asked == [{"max_version": (1, 1), "stream": 0}]
            assert cuda.asked == [{"stream": 1}]
            assert self.waited(waits, file, rocm, stream=None) == []
            assert rocm.asked[-1]["stream"] == -1

    def test_a_tensor_that_does_not_say_is_asked_by_dlpack(self, data, gpu, waits):
        """torch has both, and no stream in its array interface."""

        class Both(Dlpack):
            __cuda_array_interface__ = None

        both = Both(gpu(64), (64,))
        both.__cuda_array_interface__ = Interface(both.memory, (64,)).__cuda_array_interface__
        with hipfile.open(data[0]) as file:
            file.read_into(both)
            assert both.asked == [{"stream": 0}]
            both.__cuda_array_interface__["stream"] = 0x7F00
            assert self.waited(waits, file, both) == [0x7F00]

    def test_host_memory_waits_for_nothing(self, data, waits):
        with hipfile.open(data[0]) as file:
            assert self.waited(waits, file, bytearray(64)) == []

    def test_a_real_stream_is_waited_for(self, data, gpu):
        memory = gpu(4096)
        with hipfile.open(data[0]) as file:
            pending = file.enqueue_read(Interface(memory, (4096,)), stream=0)
            file.read_into(Interface(memory, (4096,)), stream=0)
            assert pending.done()

    def test_streams_of_other_libraries(self):
        class Torch:
            cuda_stream = 0x1000

        class Cupy:
            ptr = 0x2000

        class Numba:
            handle = ctypes.c_void_p(0x3000)

        class Protocol:
            def __cuda_stream__(self):
                return 0, 0x4000

        known = [Torch(), Cupy(), Numba(), Protocol(), hipfile.Stream(0x5000), 0x6000]
        assert [_memory.stream_handle(stream) for stream in known] == [n << 12 for n in range(1, 7)]
        with pytest.raises(TypeError, match="no stream"):
            _memory.stream_handle("stream")
