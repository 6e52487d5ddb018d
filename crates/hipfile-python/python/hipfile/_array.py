"""Arrays in the memory of a GPU for programs without an array library. They hold bytes; they compute nothing."""

from __future__ import annotations

from typing import Any

from . import _core
from ._arguments import bytes_of, shape_of, shown, text, whole

_CODES = {
    "bool": "|b1",
    "int8": "|i1",
    "uint8": "|u1",
    "int16": "<i2",
    "uint16": "<u2",
    "int32": "<i4",
    "uint32": "<u4",
    "int64": "<i8",
    "uint64": "<u8",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "complex64": "<c8",
    "complex128": "<c16",
}


def _host_view(array: Any) -> _core.HostView:
    """The memory of an array of the host.

    :raises TypeError: it has no buffer protocol, or elements that are addresses.
    :raises ValueError: it is not contiguous.
    """
    from ._memory import by_buffer

    found = by_buffer(array, writable=False)
    if found is None:
        raise TypeError(f"{shown(array)} does not have the buffer protocol")
    view: _core.HostView = found.keep
    return view


class DeviceArray:
    """A C-contiguous array in the memory of a GPU.

    It has ``__cuda_array_interface__``, so that array libraries take it without a copy. Memory of the emulated GPU is none
    that they could use.
    """

    def __init__(self, memory: _core.DeviceMemory, at: int, dtype: str, itemsize: int, shape: tuple[int, ...]) -> None:
        if not isinstance(memory, _core.DeviceMemory):
            raise TypeError(f"memory is that of a GPU, not {shown(memory)}: DeviceArray.empty makes an array")
        self._memory = memory
        self._at = whole("at", at)
        #: The name of the element type.
        self.dtype = text("dtype", dtype)
        #: Bytes of an element.
        self.itemsize = whole("itemsize", itemsize, 1)
        #: Elements by dimension.
        self.shape = shape_of(shape)
        #: Bytes.
        self.nbytes = bytes_of(self.shape, 8 * self.itemsize)
        #: Elements.
        self.size = self.nbytes // self.itemsize
        if self._at + self.nbytes > memory.nbytes:
            raise ValueError(f"{self.nbytes} bytes at {at} leave the memory of {memory.nbytes} bytes")

    @classmethod
    def empty(cls, shape: tuple[int, ...] | int, dtype: Any = None, device: Any = 0) -> DeviceArray:
        """New memory, whatever is in it.

        :param shape: elements by dimension.
        :param dtype: the element type by its name or a type of numpy or torch; bytes if None.
        :param device: the GPU, as a number or as ``"cuda:1"``.
        """
        from ._containers import element, place

        gpu = place(device)
        if gpu is None:
            raise ValueError("this array lies on a GPU; on the host there are better ones")
        kind = element(dtype)
        shape = shape_of(shape)
        memory = _core.DeviceMemory(max(kind.nbytes(shape), 1), gpu)
        return cls(memory, 0, kind.name, kind.itemsize, shape)

    @classmethod
    def from_host(cls, array: Any, device: Any = 0) -> DeviceArray:
        """A copy of an array of the host that has the buffer protocol. One without a ``dtype`` counts as bytes."""
        view = _host_view(array)
        name = getattr(getattr(array, "dtype", None), "name", None)
        made = cls.empty(tuple(view.shape) if name else (view.nbytes,), name, device)
        made.set(array)
        return made

    def part(self, at: int, dtype: str, itemsize: int, shape: tuple[int, ...]) -> DeviceArray:
        """A view of the bytes from ``at`` on as another array."""
        made = DeviceArray(self._memory, self._at + whole("at", at), dtype, itemsize, shape)
        if at + made.nbytes > self.nbytes:
            raise ValueError(f"{made.nbytes} bytes at {at} leave the array of {self.nbytes} bytes")
        return made

    def __getitem__(self, piece: slice) -> DeviceArray:
        """Whole rows, as in ``a[2:5]``; a view."""
        if not isinstance(piece, slice) or not self.shape:
            raise TypeError("only rows can be taken: a[first:last]")
        first, last, step = piece.indices(self.shape[0])
        if step != 1:
            raise ValueError("rows one after the other only")
        row = self.nbytes // self.shape[0] if self.shape[0] else 0
        shape = (max(last - first, 0), *self.shape[1:])
        return self.part(first * row, self.dtype, self.itemsize, shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    @property
    def ptr(self) -> int:
        """The address of the first byte."""
        return self._memory.ptr + self._at

    @property
    def device(self) -> int:
        """The number of the GPU."""
        return self._memory.device

    @property
    def emulated(self) -> bool:
        """Whether that is the emulated one."""
        return self._memory.emulated

    def set(self, array: Any) -> None:
        """Copies the bytes of an array of the host, as many as this has."""
        data = _host_view(array)
        if data.nbytes != self.nbytes:
            raise ValueError(f"{data.nbytes} bytes for an array of {self.nbytes}")
        if self.nbytes:
            self._memory.upload(self._at, data)

    def tobytes(self) -> bytes:
        """A copy of the bytes."""
        return self._memory.download(self._at, self.nbytes)

    def numpy(self) -> Any:
        """A copy as an array of numpy."""
        import numpy

        from ._containers import Element, _numpy_type

        kind = _numpy_type(Element(self.dtype, self.itemsize))
        return numpy.frombuffer(bytearray(self.tobytes()), kind).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("this array lies on a GPU, where numpy does not reach: .numpy() gives a copy on the host")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        code = _CODES.get(self.dtype)
        shape = self.shape
        if code is None:
            # The interface has no such type: bytes, as others do it.
            code, shape = "|u1", (*self.shape[:-1], self.shape[-1] * self.itemsize) if self.shape else (self.itemsize,)
        return {
            "version": 3,
            "shape": shape,
            "typestr": code,
            "data": (self.ptr, False),
            "strides": None,
            "stream": None,
        }

    def __repr__(self) -> str:
        where = "the emulated GPU" if self.emulated else f"GPU {self.device}"
        return f"<hipfile.DeviceArray shape={self.shape} dtype={self.dtype} on {where}>"
