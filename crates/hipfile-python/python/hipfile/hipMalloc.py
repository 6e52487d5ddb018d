"""Device memory by address, for scripts and tests. Libraries that own arrays have better."""

from __future__ import annotations

import ctypes

from . import _core
from ._arguments import TOP, whole

__all__ = ["hipFree", "hipMalloc"]

_memory: dict[int, _core.DeviceMemory] = {}


def hipMalloc(size: int) -> ctypes.c_void_p:
    """``size`` bytes, at least 1, on the first GPU."""
    memory = _core.DeviceMemory(whole("size", size, 1), 0)
    _memory[memory.ptr] = memory
    return ctypes.c_void_p(memory.ptr)


def hipFree(ptr: ctypes.c_void_p | int) -> None:
    """Frees what :func:`hipMalloc` gave. A null pointer is nothing.

    :raises ValueError: it is no such pointer, or was freed.
    """
    address = whole("the pointer", ptr.value or 0 if isinstance(ptr, ctypes.c_void_p) else ptr, 0, TOP)
    if not address:
        return
    if _memory.pop(address, None) is None:
        raise ValueError(f"{address:#x} was not given by hipMalloc, or is freed")
