"""Memory of objects: what they are asked, what is accepted, and what must be waited for before it is touched."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from . import _core


class _Auto:
    """The default of ``stream``: what the object itself says is waited for."""

    def __repr__(self) -> str:
        return "AUTO"


AUTO = _Auto()

# DLPack's numbers of devices.
_DL_HOST = {1, 3, 11}  # CPU, and host memory that CUDA or ROCm know.
_DL_CUDA = {2, 13}  # CUDA, managed CUDA memory.
_DL_ROCM = 10
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
        return stream
    if hasattr(stream, "__cuda_stream__"):
        found = stream.__cuda_stream__
        return int((found() if callable(found) else found)[1])
    for name in ("cuda_stream", "hip_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        value = getattr(value, "value", value)
        if isinstance(value, int):
            return value
    raise TypeError(f"{type(stream).__name__} is no stream: give its handle as an integer")


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


def _product(shape: Any) -> int:
    product = 1
    for length in shape:
        product *= length
    return product


def _interface(obj: Any, name: str) -> dict[str, Any] | None:
    try:
        found = getattr(obj, name, None)
    except (AttributeError, TypeError, RuntimeError, ValueError):
        # Tensors have the attribute on every device and for every element type, and refuse to answer.
        return None
    return found if isinstance(found, dict) else None


def _by_interface(obj: Any, found: dict[str, Any], kind: str, writable: bool) -> Region:
    """From a dictionary of the array interface, of numpy or of CUDA."""
    if found.get("mask") is not None:
        raise ValueError(f"this {_describe(obj)} is masked")
    data = found.get("data")
    if not isinstance(data, tuple):
        raise TypeError(f"the array interface of this {_describe(obj)} names no address")
    ptr, readonly = data
    _writable(obj, readonly, writable)
    shape, step = tuple(found["shape"]), int(found["typestr"][2:])
    strides = found.get("strides")
    if strides is not None and not _is_contiguous(shape, strides, step):
        raise _not_contiguous(obj, shape, strides)
    return Region(ptr or 0, _product(shape) * step, kind, obj)


def _by_dlpack(obj: Any, writable: bool, stream: int | None) -> Region:
    device, _ = obj.__dlpack_device__()
    device = int(device)
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
    view = _core.DlpackView(capsule)
    _writable(obj, view.readonly, writable)
    if view.strides is not None and not _is_contiguous(view.shape, view.strides, 1):
        raise _not_contiguous(obj, view.shape, view.strides)
    return Region(view.ptr, _product(view.shape) * view.bits // 8, kind, (obj, view))


def _by_buffer(obj: Any, writable: bool) -> Region | None:
    try:
        view = _core.HostView(obj)
    except (BufferError, TypeError, ValueError):
        return None
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
        if stream is AUTO and found.get("stream") not in (None, _LEGACY):
            region.stream = int(found["stream"])
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
        found = Region(address, nbytes, "address", None)
    else:
        found = _of_object(obj, writable, stream)
        if nbytes is not None:
            if not 0 <= nbytes <= found.nbytes:
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
    by_buffer = _by_buffer(obj, writable)
    if by_buffer is not None:
        return by_buffer
    found = _interface(obj, "__array_interface__")
    if found is not None:
        return _by_interface(obj, found, "host", writable)
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return _by_dlpack(obj, writable, -1 if stream is None else None)
    raise TypeError(
        f"nothing is known about the memory of this {_describe(obj)}: it has neither __cuda_array_interface__, nor DLPack, "
        "nor the buffer protocol, and is no address"
    )
