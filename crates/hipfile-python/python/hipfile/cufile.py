"""The names of the package ``cufile-python``, so that callers need change only the import.

As there, memory is an address: an integer or a :class:`ctypes.c_void_p`. Offsets and sizes are in bytes.
"""

from __future__ import annotations

import ctypes
import os
from types import TracebackType
from typing import Any

from . import _core
from ._amd import Buffer, Driver, FileHandle
from ._arguments import TOP, shown, text, whole

__all__ = ["CuFile", "CuFileDriver", "buf_deregister", "buf_register"]

_FLAGS = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w": os.O_CREAT | os.O_WRONLY | os.O_TRUNC,
    "w+": os.O_CREAT | os.O_RDWR | os.O_TRUNC,
    "a": os.O_CREAT | os.O_WRONLY | os.O_APPEND,
    "a+": os.O_CREAT | os.O_RDWR | os.O_APPEND,
}

Address = int | ctypes.c_void_p


def _address(ptr: Address) -> int:
    value = whole("the pointer", ptr.value or 0 if isinstance(ptr, ctypes.c_void_p) else ptr, 0, TOP)
    if not value:
        raise ValueError("the pointer is null")
    return value


def buf_register(ptr: Address, size: int, flags: int = 0) -> None:
    """Registers ``size`` bytes at an address. The memory must stay valid until :func:`buf_deregister`."""
    _core.register_buffer(_address(ptr), size, flags)


def buf_deregister(ptr: Address) -> None:
    """Ends the registration of exactly this address."""
    _core.deregister_buffer(_address(ptr))


class CuFileDriver:
    """The driver, opened once by the first of these and left open."""

    _the_one: CuFileDriver | None = None

    def __new__(cls) -> CuFileDriver:
        if cls._the_one is None:
            made = super().__new__(cls)
            Driver().open()
            cls._the_one = made
        return cls._the_one


class CuFile:
    """A file.

    :param mode: ``r``, ``r+``, ``w``, ``w+``, ``a`` or ``a+``.
    :param use_direct_io: adds ``O_DIRECT``; not needed.
    """

    def __init__(
        self, path: str | os.PathLike[Any], mode: str = "r", use_direct_io: bool = False
    ) -> None:
        if text("mode", mode) not in _FLAGS:
            raise ValueError(f"mode is one of {', '.join(_FLAGS)}, not {shown(mode)}")
        flags = _FLAGS[mode] | (os.O_DIRECT if use_direct_io else 0)
        self._file = FileHandle(path, flags)

    @property
    def is_open(self) -> bool:
        """Whether it is open."""
        return self._file.handle is not None

    def open(self) -> None:
        """Opens it; nothing if it is open."""
        if not self.is_open:
            self._file.open()

    def close(self) -> None:
        """Closes it; nothing if it is not open."""
        self._file.close()

    def get_handle(self) -> int | None:
        """The library's number for it; None while it is not open."""
        return self._file.handle

    def __enter__(self) -> CuFile:
        self.open()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _check(self) -> None:
        if not self.is_open:
            raise OSError("the file is not open")

    def read(self, dest: Address, size: int, file_offset: int = 0, dev_offset: int = 0) -> int:
        """Reads ``size`` bytes at ``file_offset`` to ``dest + dev_offset``. Returns the bytes read."""
        self._check()
        return self._file.read(Buffer(_address(dest), size, 0), size, file_offset, dev_offset)

    def write(self, src: Address, size: int, file_offset: int = 0, dev_offset: int = 0) -> int:
        """Writes ``size`` bytes of ``src + dev_offset`` at ``file_offset``. Returns the bytes written."""
        self._check()
        return self._file.write(Buffer(_address(src), size, 0), size, file_offset, dev_offset)
