"""Memory that is refused at every door, with a word that says why: what holds addresses, and what is told wrongly."""

import ctypes
import gc

import numpy
import pytest
from test_arrays import Dlpack, Interface, Tensor

import hipfile
from hipfile import Batch, DeviceArray

STRUCTURE = type("Holder", (ctypes.Structure,), {"_fields_": [("n", ctypes.c_int), ("o", ctypes.py_object)]})
POINTERS = type("Pointing", (ctypes.Structure,), {"_fields_": [("p", ctypes.POINTER(ctypes.c_int))]})


class ByInterface:
    """An array of the host that is known by numpy's array interface only."""

    def __init__(self, array, **change):
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, **change}


class OnHost(Dlpack):
    device_type = 1

    def __init__(self, memory, *args, code=1, **how):
        self.bytes = memory
        view = type("View", (), {"ptr": ctypes.addressof(ctypes.c_char.from_buffer(memory))})
        super().__init__(view, *args, **how)
        self.tensor.code = self.versioned.tensor.code = code


ADDRESSES = {
    "objects": lambda: numpy.array([{}, [], None, 7] * 1000, dtype=object),
    "a field of objects": lambda: numpy.zeros(1000, dtype=[("a", "i4"), ("b", "O")]),
    "a field in a field": lambda: numpy.zeros(1000, dtype=[("x", [("a", "i4"), ("b", "O", (2,))])]),
    "objects behind an interface": lambda: ByInterface(numpy.array([{}, []] * 1000, dtype=object)),
    "a field behind an interface": lambda: ByInterface(numpy.zeros(1000, dtype=[("x", [("a", "i4"), ("b", "O")])])),
    "a memoryview of objects": lambda: memoryview(numpy.array([{}, []] * 1000, dtype=object)),
    "objects of ctypes": lambda: (ctypes.py_object * 1000)(*[{}] * 1000),
    "a structure of ctypes": lambda: (STRUCTURE * 1000)(),
    "pointers of ctypes": lambda: (POINTERS * 1000)(),
    "strings of C": lambda: (ctypes.c_char_p * 1000)(),
    "wide strings of C": lambda: (ctypes.c_wchar_p * 1000)(),
    "addresses": lambda: (ctypes.c_void_p * 1000)(),
    "functions": lambda: (ctypes.CFUNCTYPE(None) * 1000)(),
    "opaque handles": lambda: OnHost(bytearray(8000), (1000,), bits=64, code=3),
    "strings of numpy": lambda: numpy.array(["some text that is longer than a pointer"] * 1000, numpy.dtypes.StringDType()),
}


@pytest.mark.parametrize("kind", ADDRESSES)
def test_what_holds_addresses_is_refused_at_every_door(kind, data, tmp_path):
    """Bytes of a file in the place of an address end the process when it is followed; addresses in a file mean nothing."""
    array = ADDRESSES[kind]()
    with hipfile.open(data[0]) as file, hipfile.open(tmp_path / "out", "w") as out, Batch() as batch:
        doors = {
            "read_into": lambda: file.read_into(array),
            "read_into, some": lambda: file.read_into(array, nbytes=8),
            "submit": lambda: file.submit("read", array),
            "enqueue_read": lambda: file.enqueue_read(array, stream=0),
            "Batch.read": lambda: batch.read(file, array),
            "write_from": lambda: out.write_from(array),
            "submit, write": lambda: out.submit("write", array),
            "enqueue_write": lambda: out.enqueue_write(array, stream=0),
            "Batch.write": lambda: batch.write(out, array),
            "save_npy": lambda: hipfile.save_npy(tmp_path / "a.npy", array),
            "from_host": lambda: DeviceArray.from_host(array),
            "set": lambda: DeviceArray.empty(8000).set(array),
        }
        for name, door in doors.items():
            with pytest.raises(TypeError, match="addresses of this process|element type that is known|shape and a dtype|buffer"):
                door()
                pytest.fail(name)
    assert (tmp_path / "out").stat().st_size == 0
    if isinstance(array, numpy.ndarray) and array.dtype == object:
        assert array[0] == {} and array[3] == 7
    del array
    gc.collect()


def test_masked_arrays_are_refused(data, tmp_path):
    """Their bytes are half of what they are."""
    array = numpy.ma.masked_array([1, 2, 3], [0, 1, 0])
    with hipfile.open(data[0], "r+") as file:
        for door in (file.read_into, file.write_from, file.enqueue_read, lambda a: hipfile.save_npy(tmp_path / "a.npy", a)):
            with pytest.raises(ValueError, match="masked"):
                door(array)
        assert file.read_into(array.data) == 24


def test_what_only_looks_like_it_is_welcome(data):
    """Fields may be called O; complex numbers, times and texts of a fixed size are plain bytes."""
    with hipfile.open(data[0]) as file:
        for array in (
            numpy.zeros(10, [("O", "i4"), ("P", "f8")]),
            numpy.zeros(10, "c16"),
            numpy.zeros(10, "c8"),
            numpy.zeros(10, "M8[s]"),
            numpy.zeros(10, "m8[25us]"),
            numpy.zeros(10, "S7"),
            numpy.zeros(10, "U3"),
            numpy.zeros(10, "V5"),
            (ctypes.c_double * 10)(),
            (type("Plain", (ctypes.Structure,), {"_fields_": [("X", ctypes.c_int), ("Z", ctypes.c_char * 4)]}) * 10)(),
        ):
            size = memoryview(array).nbytes if not isinstance(array, numpy.ndarray) else array.nbytes
            assert file.read_into(array) == size
            assert bytes(array if not isinstance(array, numpy.ndarray) else array.tobytes()) == data[1][:size]


WRONG = {
    "no type": {"typestr": None},
    "type is a number": {"typestr": 7},
    "type of one letter": {"typestr": "f"},
    "type without size": {"typestr": "<f"},
    "type of bits": {"typestr": "|t8"},
    "type of objects": {"typestr": "|O8"},
    "unknown type": {"typestr": "<q8"},
    "type with a rest": {"typestr": "<f4x"},
    "type of huge elements": {"typestr": "|V" + "9" * 30},
    "type with digits of another script": {"typestr": "<f\u0664"},
    "no shape": {"shape": None},
    "shape is a number": {"shape": 8},
    "shape is a string": {"shape": "ab"},
    "negative length": {"shape": (-1, 4)},
    "negative lengths": {"shape": (-2, -4)},
    "fractions": {"shape": (2.0, 4)},
    "length is true": {"shape": (True,)},
    "huge length": {"shape": (1 << 64,)},
    "huge product": {"shape": (1 << 40, 1 << 40)},
    "huge product of nothing": {"shape": (0, 1 << 63)},
    "huge number": {"shape": (10**5000,)},
    "beyond the last address": {"shape": ((1 << 63) - 1,), "data": ((1 << 64) - 100, False)},
    "no data": {"data": None},
    "data without readonly": {"data": (4096,)},
    "address is a string": {"data": ("4096", False)},
    "address is negative": {"data": (-4096, False)},
    "address is huge": {"data": (1 << 64, False)},
    "no address": {"data": (0, False)},
    "too few strides": {"shape": (2, 4), "strides": (4,)},
    "strides are a number": {"strides": 1},
    "strides are strings": {"strides": ("1",)},
    "strides are huge": {"strides": (1 << 70,)},
    "a mask": {"mask": object()},
    "stream is a string": {"stream": "default"},
    "stream is negative": {"stream": -1},
    "stream is huge": {"stream": 1 << 64},
}


@pytest.mark.parametrize("where", ["gpu", "host"])
@pytest.mark.parametrize("kind", WRONG)
def test_an_interface_that_tells_nonsense(kind, where, data, gpu):
    if where == "gpu":
        strange = Interface(gpu(64), (8,))
        strange.__cuda_array_interface__.update(WRONG[kind])
    else:
        strange = ByInterface(numpy.zeros(8, "u1"), **WRONG[kind])
        if kind.startswith("stream"):
            return  # The interface of the host has none.
    with hipfile.open(data[0]) as file:
        for stream in (hipfile.AUTO, None, 0):
            with pytest.raises((TypeError, ValueError), match="array interface|masked|addresses of this|more than|C-contig") as raised:
                file.read_into(strange, stream=stream)
            assert "test_arrays.Interface" in str(raised.value) or "ByInterface" in str(raised.value) or "shape" in str(raised.value)
            assert len(str(raised.value)) < 400


def test_capsules_that_tell_nonsense(data):
    memory = bytearray(64)

    def without_shape():
        strange = OnHost(memory, (8,))
        strange.tensor.shape = ctypes.POINTER(ctypes.c_int64)()
        return strange

    def without_address():
        strange = OnHost(memory, (8,))
        strange.tensor.data = None
        return strange

    def telling(device=(1, 0), capsule=None):
        return type("Telling", (), {"__dlpack_device__": lambda _: device, "__dlpack__": lambda _, **how: capsule})()

    with hipfile.open(data[0]) as file:
        for strange, word in (
            (OnHost(memory, (-8,)), "shape"),
            (OnHost(memory, (1 << 62, 1 << 62)), "more than"),
            (OnHost(memory, (8,), strides=(2,)), "C-contiguous"),
            (without_shape(), "no shape"),
            (without_address(), "there are no 8 bytes"),
            (telling(device="cpu"), "pair of numbers"),
            (telling(device=None), "pair of numbers"),
            (telling(device=("cpu", 0)), "whole number"),
            (telling(capsule=7), "not a capsule"),
            (telling(capsule=None), "not a capsule"),
        ):
            with pytest.raises((TypeError, ValueError), match=word):
                file.read_into(strange)
        scalar = OnHost(memory, (), bits=64)
        assert file.read_into(scalar) == 8
        assert file.read_into(OnHost(memory, (3,), bits=4)) == 2  # One and a half bytes, rounded up.
    assert memory[:8] == data[1][:8]


class StrictDlpack:
    """A producer as strict as the standard lets it be: it wants to be asked for its own device, with the stream of that
    device's kind, for each capsule anew; and it sees whether its memory is freed once, and not before its time."""

    def __init__(self, memory, device):
        self.memory, self.device, self.freed, self.made = memory, device, 0, 0
        self.shape = (ctypes.c_int64 * 1)(memory.nbytes)

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device not in (None, self.__dlpack_device__()) or copy not in (None, False):
            raise BufferError("neither moved nor copied")
        allowed = {1: (None,), 2: (None, -1, 1, 2), 10: (None, -1, 0)}[self.device]
        if stream not in allowed and not (isinstance(stream, int) and stream > 2):
            raise ValueError(f"stream {stream!r} is none for device type {self.device}")
        managed = Tensor(self.memory.ptr, self.device, 0, 1, 1, 8, 1)
        managed.shape = self.shape
        deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: self._free())
        managed.deleter = ctypes.cast(deleter, ctypes.c_void_p)
        destroy = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._destroy)
        self.kept = (*getattr(self, "kept", ()), managed, deleter, destroy)
        self.made += 1
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(managed), b"dltensor", ctypes.cast(destroy, ctypes.c_void_p))

    def _destroy(self, capsule):
        # As producers do: a capsule that nobody used up frees the tensor.
        name = ctypes.pythonapi.PyCapsule_GetName
        name.restype, name.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
        assert name(capsule) == b"dltensor"
        self._free()

    def _free(self):
        self.freed += 1


class StrictCupy:
    """An array as cupy has them: version 3 of the interface with a stream always, DLPack beside it, and no way to the host."""

    def __init__(self, memory, stream=1):
        self.memory, self.stream, self.dlpack = memory, stream, StrictDlpack(memory, 2)
        self.shape, self.size, self.nbytes, self.dtype = (memory.nbytes,), memory.nbytes, memory.nbytes, numpy.dtype("u1")

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "typestr": "|u1",
            "descr": [("", "|u1")],
            "stream": self.stream,
            "version": 3,
            "strides": None,
            "data": (self.memory.ptr, False),
        }

    def __dlpack_device__(self):
        return self.dlpack.__dlpack_device__()

    def __dlpack__(self, **how):
        return self.dlpack.__dlpack__(**how)

    def __array__(self, *args, **how):
        raise TypeError("implicit conversion to a numpy array is not allowed")

    def __len__(self):
        return self.shape[0]


@pytest.mark.parametrize("device", [1, 2, 10])
def test_a_strict_producer_of_capsules(device, data, gpu):
    class Host:
        nbytes = 8192
        bytes = ctypes.create_string_buffer(8192)
        ptr = ctypes.addressof(bytes)

        def download(self, at, nbytes):
            return self.bytes.raw[at : at + nbytes]

    memory = Host() if device == 1 else gpu(8192)
    array = StrictDlpack(memory, device)
    with hipfile.open(data[0], "r+") as file, Batch() as batch:
        doors = [
            lambda: file.read_into(array),
            lambda: file.write_from(array),
            lambda: file.submit("read", array).result(60),
            lambda: file.read_into(array, stream=None),
            lambda: file.read_into(array, stream=0),
            lambda: file.enqueue_read(array).wait(60),
            lambda: batch.read(file, array) is None or batch.wait()[0].nbytes,
        ]
        for at, door in enumerate(doors):
            assert door() == 8192
            gc.collect()
            assert (array.made, array.freed) == (at + 1, at + 1), at
        assert memory.download(0, 8192) == data[1][:8192]
        # What is forgotten while it is under way keeps the tensor.
        file.enqueue_read(array)
    gc.collect()
    assert array.made == array.freed


def test_a_strict_array_of_cupy(data, gpu, monkeypatch):
    memory = gpu(8192)
    array = StrictCupy(memory)
    waited = []
    monkeypatch.setattr(hipfile._memory._core, "wait_for_stream", waited.append)
    with hipfile.open(data[0], "r+") as file:
        assert file.read_into(array, 4096) == 8192
        assert memory.download(0, 8192) == data[1][4096 : 4096 + 8192]
        assert file.write_from(array, 4096) == 8192
        array.stream = 0x7000
        assert file.submit("read", array).result(60) == 8192
        assert waited == [0x7000]
        array.shape, array.nbytes = (0,), 0
        assert file.read_into(array) == 0
    # Its own stream says all: the producer need not be asked.
    assert array.dlpack.made == 0


def test_numpy_is_told_how_to_get_at_an_array_of_the_gpu():
    array = DeviceArray.from_host(numpy.arange(6, dtype="f4").reshape(2, 3))
    for convert in (numpy.asarray, numpy.array, numpy.sum, list):
        with pytest.raises(TypeError, match=r"\.numpy\(\)|only rows"):
            convert(array)
    assert numpy.array_equal(array.numpy(), numpy.arange(6, dtype="f4").reshape(2, 3))
    assert DeviceArray.from_host(numpy.zeros(3, "c8")).dtype == "complex64"
