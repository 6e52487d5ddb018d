"""What new arrays are made of: element types, devices, and the libraries that know both."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._arguments import bytes_of, shown, text, whole
from ._array import DeviceArray

#: Memory is laid out as in the file modulo this, so that whole pages can go direct.
PAGE = 4096

_SIZES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e8m0fnu": 1,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
_NOT_IN_NUMPY = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"}
_FORMATS = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}


@dataclass(frozen=True, slots=True)
class Element:
    """A type of elements, by the name that numpy, ml_dtypes and torch have for it."""

    name: str
    itemsize: int

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of an array."""
        return bytes_of(shape, 8 * self.itemsize)


def element(dtype: Any) -> Element:
    """The element type meant by a name, or by a type of numpy, ml_dtypes, torch or cupy; bytes for None.

    :raises TypeError: it is not known, or has another byte order than the machine.
    """
    if dtype is None:
        dtype = "uint8"
    name = dtype if isinstance(dtype, str) else str(dtype)
    if isinstance(dtype, type):
        name = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}.get(dtype, dtype.__name__)
    name = name.removeprefix("torch.")
    if name not in _SIZES and (numpy := sys.modules.get("numpy")) is not None:
        try:
            found = numpy.dtype(dtype)
        except Exception:  # Of many kinds, by what it is that numpy cannot read.
            pass
        else:
            name = found.name if found.isnative else found.str
    if name not in _SIZES:
        raise TypeError(f"{reprlib.repr(name)} is no element type that is known: {', '.join(_SIZES)}")
    return Element(name, _SIZES[name])


def place(device: Any) -> int | None:
    """The number of the GPU that is meant; None for the host.

    :raises ValueError: it is neither.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        return whole("device", device, 0, (1 << 32) - 1)
    kind, _, number = str(device).partition(":")
    if kind == "cpu":
        return None
    if kind in ("cuda", "hip", "gpu") and (number.isdecimal() and len(number) < 10 or not number):
        return int(number or 0)
    raise ValueError(f'a device is "cpu", "cuda", "hip" or "gpu", with ":1" for another than the first, not {shown(device)}')


@dataclass(frozen=True, slots=True)
class Space:
    """New memory, and what makes arrays of its parts."""

    memory: Any
    array: Callable[[int, Element, tuple[int, ...]], Any]


def _imported(name: str) -> Any:
    return sys.modules.get(name)


def _choose(gpu: int | None) -> str:
    if gpu is None:
        try:
            import numpy  # noqa: F401
        except ImportError:
            return "bytes"
        return "numpy"
    torch = _imported("torch")
    if torch is not None and torch.cuda.is_available():
        return "torch"
    return "cupy" if _imported("cupy") is not None else "hipfile"


def space(nbytes: int, device: Any, container: str | None) -> Space:
    """Memory for ``nbytes`` bytes on a device, as a library has it.

    :raises ValueError: the library has no arrays there.
    :raises ImportError: it is not installed.
    """
    gpu = place(device)
    container = _choose(gpu) if container is None else text("container", container)
    if container == "torch":
        return _torch(nbytes, gpu)
    if container == "numpy" and gpu is None:
        return _numpy(nbytes)
    if container == "bytes" and gpu is None:
        return _bytes(nbytes)
    if container == "cupy" and gpu is not None:
        return _cupy(nbytes, gpu)
    if container == "hipfile" and gpu is not None:
        return _device(nbytes, gpu)
    raise ValueError(f"the container {container!r} has no arrays on {shown(device)}")


def _numpy_type(kind: Element) -> Any:
    import numpy

    if kind.name in _NOT_IN_NUMPY:
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError(
                f"numpy has no {kind.name}; the package ml_dtypes adds it, as pip install 'hipfile-rs[types]' does"
            ) from None
        return numpy.dtype(getattr(ml_dtypes, kind.name))
    return numpy.dtype(kind.name)


def _numpy(nbytes: int) -> Space:
    import numpy

    whole = numpy.empty(nbytes + PAGE, numpy.uint8)
    start = -whole.ctypes.data % PAGE
    memory = whole[start : start + nbytes]
    return Space(
        memory,
        lambda at, kind, shape: memory[at : at + kind.nbytes(shape)].view(_numpy_type(kind)).reshape(shape),
    )


def _bytes(nbytes: int) -> Space:
    memory = bytearray(nbytes)

    def array(at: int, kind: Element, shape: tuple[int, ...]) -> Any:
        if kind.name not in _FORMATS:
            raise ImportError(f"arrays of {kind.name} need numpy")
        part: Any = memoryview(memory)[at : at + kind.nbytes(shape)]
        return part.cast(_FORMATS[kind.name], shape) if 0 not in shape else part.cast(_FORMATS[kind.name])

    return Space(memory, array)


def _torch(nbytes: int, gpu: int | None) -> Space:
    import torch

    memory = torch.empty(nbytes, dtype=torch.uint8, device="cpu" if gpu is None else f"cuda:{gpu}")

    def array(at: int, kind: Element, shape: tuple[int, ...]) -> Any:
        kind_there = getattr(torch, kind.name, None)
        if kind_there is None:
            raise TypeError(f"this torch has no {kind.name}")
        return memory[at : at + kind.nbytes(shape)].view(kind_there).view(shape)

    return Space(memory, array)


def _cupy(nbytes: int, gpu: int) -> Space:
    import cupy

    with cupy.cuda.Device(gpu):
        memory = cupy.empty(nbytes, cupy.uint8)
    return Space(
        memory,
        lambda at, kind, shape: memory[at : at + kind.nbytes(shape)].view(_numpy_type(kind)).reshape(shape),
    )


def _device(nbytes: int, gpu: int) -> Space:
    memory = DeviceArray.empty((nbytes,), device=gpu)
    return Space(memory, lambda at, kind, shape: memory.part(at, kind.name, kind.itemsize, shape))
