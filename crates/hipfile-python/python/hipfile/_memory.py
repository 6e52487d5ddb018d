"""Memory of objects: what they are asked, what is accepted, and what must be waited for before it is touched."""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass
from typing import Any

from . import _core
from ._arguments import TOP, bytes_of, offset, shape_of, shown, whole


class _Auto:
    """The default of ``stream``: what the object itself says is waited for."""

    def __repr__(self) -> str:
        return "AUTO"


AUTO = _Auto()

# DLPack's numbers of devices.
_DL_HOST = {1, 3, 11}  # CPU, and host memory that CUDA or ROCm know.
_DL_CUDA = {2, 13}  # CUDA, managed CUDA memory.
_DL_ROCM = 10
#: DLPack's number for elements that are handles of some library's objects.
_DL_OPAQUE = 3
# An element type of the array interface: kind, bytes, unit of a time. Fields of bits ("t") have no whole bytes.
_TYPE = re.compile(r"[<>|=]?([biufcmMOSUV])([0-9]{1,9})(?:\[[^\]]*\])?")
# What the buffer protocol writes: names of fields; pointers, functions and C strings. "Zf" is a complex number.
_FIELD_NAMES = re.compile(r":[^:]*:")
_POINTERS = re.compile(r"[PzX&]|Z(?![fdg])")
#: The legacy default stream as DLPack and the array interface number it. Transfers are ordered behind it anyway.
_LEGACY = 1


@dataclass(slots=True)
class Region:
    """Memory that a transfer can work on."""

    ptr: int
    nbytes: int
    #: ``"host"``, ``"device"``, or ``"address"`` for a plain number.
    kind: str
    #: What must live until the transfer is over.
    keep: Any
    #: The stream to wait for before the memory is touched; None for none.
    stream: int | None = None

    def wait(self) -> None:
        """Waits for what is still to happen to the memory."""
        if self.stream is not None:
            _core.wait_for_stream(self.stream)


def stream_handle(stream: Any) -> int:
    """The handle of a stream: a number, or a stream of torch, cupy, numba or this package.

    :raises TypeError: it is none of these.
    """
    if isinstance(stream, int) and not isinstance(stream, bool):
        return whole("stream", stream, 0, TOP)
    if hasattr(stream, "__cuda_stream__"):
        found = stream.__cuda_stream__
        told = found() if callable(found) else found
        if not isinstance(told, tuple) or len(told) != 2:
            raise TypeError(f"__cuda_stream__ of this {_describe(stream)} gave {shown(told)}, not a pair of numbers")
        return whole(f"the handle of this {_describe(stream)}", told[1], 0, TOP)
    for name in ("cuda_stream", "hip_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        value = getattr(value, "value", value)
        if isinstance(value, int):
            return whole(f"the handle of this {_describe(stream)}", value, 0, TOP)
    raise TypeError(f"{shown(stream)} is no stream: give its handle as an integer")


def _describe(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def _writable(obj: Any, readonly: bool, writable: bool) -> None:
    if readonly and writable:
        raise ValueError(f"this {_describe(obj)} is read-only; give one that may be written to, for instance a copy")


def _not_contiguous(obj: Any, shape: Any, strides: Any) -> ValueError:
    return ValueError(
        f"this {_describe(obj)} of shape {tuple(shape)} with strides {tuple(strides)} is not C-contiguous; use "
        "numpy.ascontiguousarray(a), tensor.contiguous(), or transfer the contiguous parts one by one"
    )


def _is_contiguous(shape: Any, strides: Any, step: int) -> bool:
    """Whether elements lie in C order; ``step`` is what one element counts in ``strides``."""
    if 0 in shape:
        return True
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != step:
            return False
        step *= length
    return True


def _refuse_addresses(obj: Any, what: str) -> None:
    raise TypeError(
        f"the elements of this {_describe(obj)} are {what}: addresses of this process, which no file can give or keep"
    )


def _refuse_format(obj: Any, form: str) -> None:
    """Refuses elements by the format that the buffer protocol tells."""
    kinds = _FIELD_NAMES.sub("", form)
    if "O" in kinds:
        _refuse_addresses(obj, "Python objects")
    if _POINTERS.search(kinds):
        _refuse_addresses(obj, "pointers")


def _refuse_fields(obj: Any, descr: Any) -> None:
    """Refuses a description of fields, as the array interface has it, with one of Python objects in it."""
    for field in descr if isinstance(descr, list) else ():
        kind = field[1] if isinstance(field, tuple) and len(field) > 1 else None
        if isinstance(kind, str) and kind.lstrip("<>|=").startswith("O"):
            _refuse_addresses(obj, "Python objects")
        _refuse_fields(obj, kind)


def _interface(obj: Any, name: str) -> dict[str, Any] | None:
    try:
        found = getattr(obj, name, None)
    except (AttributeError, TypeError, RuntimeError, ValueError):
        # Tensors have the attribute on every device and for every element type, and refuse to answer.
        return None
    return found if isinstance(found, dict) else None


def _by_interface(obj: Any, found: dict[str, Any], kind: str, writable: bool) -> Region:
    """From a dictionary of the array interface, of numpy or of CUDA."""
    name = f"the array interface of this {_describe(obj)}"
    if found.get("mask") is not None:
        raise ValueError(f"this {_describe(obj)} is masked")
    data = found.get("data")
    if not isinstance(data, tuple) or len(data) != 2:
        raise TypeError(f"{name} names no address")
    typestr = found.get("typestr")
    told = _TYPE.fullmatch(typestr) if isinstance(typestr, str) else None
    if told is None:
        raise TypeError(f"{name}: {shown(typestr)} is no element type that is known")
    if told[1] == "O":
        _refuse_addresses(obj, "Python objects")
    if told[1] == "V":
        _refuse_fields(obj, found.get("descr"))
    if not isinstance(found.get("shape"), (tuple, list)):
        raise TypeError(f"{name}: shape is a list of whole numbers, not {shown(found.get('shape'))}")
    shape, step = shape_of(found["shape"], f"{name}: shape"), int(told[2])
    nbytes = bytes_of(shape, 8 * step)
    ptr = whole(f"{name}: the address", data[0] or 0, 0, TOP)
    if nbytes and (not ptr or ptr + nbytes > TOP + 1):
        raise ValueError(f"{name}: at the address {ptr:#x} there are no {nbytes} bytes")
    _writable(obj, bool(data[1]), writable)
    strides = found.get("strides")
    if strides is not None:
        if not isinstance(strides, (tuple, list)) or len(strides) != len(shape):
            raise TypeError(f"{name}: strides are a list of {len(shape)} whole numbers, or None")
        strides = tuple(offset(stride, f"{name}: a stride") for stride in strides)
        if not _is_contiguous(shape, strides, step):
            raise _not_contiguous(obj, shape, strides)
    return Region(ptr, nbytes, kind, obj)


def _by_dlpack(obj: Any, writable: bool, stream: int | None) -> Region:
    told = obj.__dlpack_device__()
    if not isinstance(told, tuple) or len(told) != 2:
        raise TypeError(f"__dlpack_device__ of this {_describe(obj)} gave {shown(told)}, not a pair of numbers")
    device = whole(f"the device of this {_describe(obj)}", told[0])
    ask: dict[str, Any] = {}
    if device in _DL_CUDA or device == _DL_ROCM:
        kind = "device"
        # The producer has the stream wait for what is under way: ours is the legacy default stream.
        default = 0 if device == _DL_ROCM else _LEGACY
        ask["stream"] = default if stream is None else stream
    elif device in _DL_HOST:
        kind = "host"
    else:
        raise TypeError(f"this {_describe(obj)} lies on a device of DLPack type {device}: neither host, CUDA nor ROCm")
    try:
        capsule = obj.__dlpack__(max_version=(1, 1), **ask)
    except TypeError:
        capsule = obj.__dlpack__(**ask)
    try:
        view = _core.DlpackView(capsule)
    except TypeError:
        raise TypeError(f"__dlpack__ of this {_describe(obj)} gave {shown(capsule)}, not a capsule") from None
    if view.code == _DL_OPAQUE:
        _refuse_addresses(obj, "opaque handles")
    nbytes = bytes_of(shape_of(view.shape, f"the shape of this {_describe(obj)}"), view.bits)
    if nbytes and (not view.ptr or view.ptr + nbytes > TOP + 1):
        raise ValueError(f"the DLPack capsule of this {_describe(obj)}: at {view.ptr:#x} there are no {nbytes} bytes")
    _writable(obj, view.readonly, writable)
    if view.strides is not None and not _is_contiguous(view.shape, view.strides, 1):
        raise _not_contiguous(obj, view.shape, view.strides)
    return Region(view.ptr, nbytes, kind, (obj, view))


def by_buffer(obj: Any, writable: bool) -> Region | None:
    """What the buffer protocol tells; None if the object does not have it, or not for these elements."""
    try:
        view = _core.HostView(obj)
    except (BufferError, TypeError, ValueError):
        return None
    _refuse_format(obj, view.format)
    _writable(obj, view.readonly, writable)
    if not view.contiguous:
        raise _not_contiguous(obj, view.shape, view.strides)
    return Region(view.ptr, view.nbytes, "host", view)


def _on_device(obj: Any, writable: bool, stream: Any) -> Region | None:
    for name in ("__cuda_array_interface__", "__hip_array_interface__"):
        found = _interface(obj, name)
        if found is None:
            continue
        region = _by_interface(obj, found, "device", writable)
        if stream is AUTO and "stream" not in found and hasattr(obj, "__dlpack__"):
            # It does not say what is under way, but its producer will see to it when asked the other way.
            return _by_dlpack(obj, writable, None)
        told = found.get("stream")
        if told is not None:
            told = whole(f"the array interface of this {_describe(obj)}: stream", told, 0, TOP)
        if stream is AUTO and told not in (None, 0, _LEGACY):
            region.stream = told
        return region
    return None


def region(obj: Any, *, writable: bool, nbytes: int | None = None, stream: Any = AUTO) -> Region:
    """What ``obj`` says about its memory.

    :param obj: anything with ``__cuda_array_interface__``, ``__hip_array_interface__``, DLPack, the buffer protocol or
        ``__array_interface__``; or an address, as an integer or a :class:`ctypes.c_void_p`, together with ``nbytes``.
    :param writable: whether it will be written to.
    :param nbytes: bytes from the start; for objects at most what they have, None for all.
    :param stream: ``AUTO``, a stream to wait for instead of the object's own, or None to wait for nothing.
    :raises TypeError: nothing is known about its memory.
    :raises ValueError: it is read-only, not contiguous, or smaller than ``nbytes``.
    """
    address = obj.value or 0 if isinstance(obj, ctypes.c_void_p) else obj
    if isinstance(address, int) and not isinstance(address, bool):
        if nbytes is None:
            raise TypeError("an address says nothing about its size: give nbytes")
        ptr, nbytes = whole("the address", address, 0, TOP), whole("nbytes", nbytes)
        if ptr + nbytes > TOP + 1:
            raise ValueError(f"at the address {ptr:#x} there are no {nbytes} bytes")
        found = Region(ptr, nbytes, "address", None)
    else:
        found = _of_object(obj, writable, stream)
        if nbytes is not None:
            if whole("nbytes", nbytes) > found.nbytes:
                raise ValueError(f"{nbytes} bytes are asked for, and this {_describe(obj)} has {found.nbytes}")
            found.nbytes = nbytes
    if stream is not AUTO:
        found.stream = None if stream is None else stream_handle(stream)
    return found


def _of_object(obj: Any, writable: bool, stream: Any) -> Region:
    if isinstance(obj, type):
        raise TypeError(f"nothing is known about the memory of a class, {obj.__qualname__}")
    on_device = _on_device(obj, writable, stream)
    if on_device is not None:
        return on_device
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(obj, masked.MaskedArray):
        raise ValueError(f"this {_describe(obj)} is masked: give its .data, or .filled() of it")
    on_host = by_buffer(obj, writable)
    if on_host is not None:
        return on_host
    found = _interface(obj, "__array_interface__")
    if found is not None:
        return _by_interface(obj, found, "host", writable)
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return _by_dlpack(obj, writable, -1 if stream is None else None)
    raise TypeError(
        f"nothing is known about the memory of this {_describe(obj)}: it has neither __cuda_array_interface__, nor DLPack, "
        "nor the buffer protocol, and is no address"
    )
