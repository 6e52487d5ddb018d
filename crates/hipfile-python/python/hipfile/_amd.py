"""The names of AMD's package, with their signatures, exceptions and meaning.

Code written for that package runs unchanged. What this adds is marked in the documentation of each.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import os
from types import TracebackType
from typing import Any

from . import _core
from ._arguments import TOP, shown, whole
from ._errors import HipFileException, OpError, as_registration, make, of_parent_for_io
from ._lifetime import end_registration, is_ending

__all__ = [
    "AsyncIOHandle",
    "Buffer",
    "Driver",
    "FileHandle",
    "FileHandleType",
    "Stream",
    "driver_get_properties",
    "get_version",
    "supports_async",
]


class FileHandleType(enum.IntEnum):
    """What a file is registered by."""

    OPAQUE_FD = 1
    OPAQUE_WIN32 = 2
    USERSPACE_FS = 3


def get_version() -> tuple[int, int, int]:
    """The interface's version: major, minor, patch."""
    major, minor, patch = _core.VERSION.split(".")[:3]
    return int(major), int(minor), int(patch.split("-")[0])


def driver_get_properties() -> dict[str, Any]:
    """What the library supports and its limits, by the names of ``hipFileDriverProps_t``. Opens nothing.

    ``nvfs`` is a dictionary of its own. Sizes are in KiB, flags are bit masks as in ``hipfile.h``.
    """
    known = _core.properties()
    status = 0
    for bit, name in enumerate(["lustre", "weka", "nfs", "gpfs", "nvme"]):
        status |= bool(known[name]) << bit
    status |= bool(known["beegfs"]) << 9 | bool(known["nvme"]) << 11
    return {
        "nvfs": {
            "major_version": 0,
            "minor_version": 0,
            "poll_thresh_size": known["poll_max"] >> 10,
            "max_direct_io_size": known["max_direct_io"] >> 10,
            "driver_status_flags": status,
            "driver_control_flags": known["poll"] | known["compat"] << 1,
        },
        "feature_flags": 1 << 1 | 1 << 2 | known["parallel"] << 3,
        "max_device_cache_size": known["pool_size"] >> 10,
        "per_buffer_cache_size": known["block_size"] >> 10,
        "max_device_pinned_mem_size": known["max_pinned"] >> 10,
        "max_batch_io_count": known["batch_size"],
        "max_batch_io_timeout_msecs": known["batch_timeout"],
    }


def supports_async() -> bool:
    """Whether transfers can be queued on streams of the GPU."""
    try:
        _core.prepare_stream(0)
    except HipFileException as error:
        return error.hipfile_err != OpError.ASYNC_NOT_SUPPORTED
    return True


class Driver:
    """The library's driver, one for the process, open while its count is above zero.

    As a context manager it opens and closes.
    """

    def open(self) -> None:
        """Adds one to the count. Opens the driver if it was zero."""
        _core.open_driver()

    def close(self) -> None:
        """Takes one from the count. At zero all registrations end; streams stay registered.

        :raises HipFileException: ``DRIVER_NOT_INITIALIZED`` if the count is zero already.
        """
        if not _core.close_driver():
            raise make(OpError.DRIVER_NOT_INITIALIZED, "the driver is not open")

    @staticmethod
    def use_count() -> int:
        """The count. What opened the driver without being asked, as a registration does, is in it once."""
        return _core.use_count()

    def __enter__(self) -> Driver:
        self.open()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Buffer:
    """A range of memory by its address.

    :param buffer_ptr: address of the first byte.
    :param length: bytes.
    :param flags: no meaning yet; 0.

    The memory is the caller's: it must stay valid while it is registered and while transfers use it. Registering is not
    needed for transfers. As a context manager it registers and deregisters.
    """

    def __init__(self, buffer_ptr: int, length: int, flags: int) -> None:
        self._ptr = whole("buffer_ptr", buffer_ptr, 0, TOP)
        self._length = whole("length", length, 0, TOP)
        self._flags = whole("flags", flags, -1 << 31, (1 << 31) - 1)
        self._registered = False

    @classmethod
    def from_ctypes_void_p(cls, ptr: ctypes.c_void_p, length: int, flags: int) -> Buffer:
        """The same from a :class:`ctypes.c_void_p`.

        :raises ValueError: the pointer is null.
        """
        if not isinstance(ptr, ctypes.c_void_p):
            raise TypeError(f"the pointer is a ctypes.c_void_p, not {shown(ptr)}")
        if not ptr.value:
            raise ValueError("the pointer is null")
        return cls(ptr.value, length, flags)

    @property
    def ptr(self) -> int:
        """The address."""
        return self._ptr

    @property
    def length(self) -> int:
        """Bytes."""
        return self._length

    @property
    def flags(self) -> int:
        """The flags."""
        return self._flags

    @property
    def registered(self) -> bool:
        """Whether :meth:`register` was called, and :meth:`deregister` not since."""
        return self._registered

    def register(self) -> None:
        """Registers the memory. Opens the driver if it is closed.

        :raises HipFileException: with the library's reason, for instance ``MEMORY_ALREADY_REGISTERED``.
        """
        _core.register_buffer(self._ptr, self._length, self._flags)
        self._registered = True

    def deregister(self) -> None:
        """Ends the registration; nothing if there is none of this object's.

        :raises HipFileException: with the library's reason, for instance ``MEMORY_NOT_REGISTERED``.
        """
        if self._registered:
            self._registered = False
            _core.deregister_buffer(self._ptr)

    def __enter__(self) -> Buffer:
        self.register()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.deregister()


class AsyncIOHandle:
    """A transfer that was queued on a stream.

    The bytes it works on are kept by the objects that own them, which must stay alive until the stream has passed it;
    this object may go before.
    """

    def __init__(self, size: int, file_offset: int, buffer_offset: int) -> None:
        self._size = size
        self._file_offset = file_offset
        self._buffer_offset = buffer_offset
        self._operation: _core.StreamOperation | None = None
        #: Whether fewer bytes than asked for are an error, as in the files of :func:`hipfile.open`.
        self._whole = False

    @property
    def size(self) -> int:
        """Bytes asked for."""
        return self._size

    @property
    def file_offset(self) -> int:
        """Where in the file."""
        return self._file_offset

    @property
    def buffer_offset(self) -> int:
        """Where in the buffer."""
        return self._buffer_offset

    @property
    def bytes_done(self) -> int:
        """Bytes moved once the stream has passed the transfer, 0 before.

        Negative after a failure: -1 for one of the operating system, else the code of :class:`OpError` negated.
        """
        if self._operation is None:
            return 0
        try:
            return self._operation.result() or 0
        except OSError:
            return -1
        except HipFileException as error:
            code = error.hipfile_err
            return -int(OpError.INTERNAL_ERROR if code == OpError.HIP_DRIVER_ERROR else code)

    def done(self) -> bool:
        """Whether the stream has passed it. (Not in AMD's package.)"""
        return self._operation is not None and self._operation.done()

    def wait(self, timeout: float | None = None) -> int:
        """Waits, then gives the bytes moved or raises what it failed with. (Not in AMD's package.)

        :param timeout: seconds; None for as long as it takes.
        :raises TimeoutError: it is not over.
        """
        if self._operation is None:
            return 0
        if not self._operation.wait(timeout):
            raise TimeoutError(f"the stream has not passed the transfer after {timeout} s")
        moved = self._operation.result() or 0
        if self._whole and moved < self._size:
            # The stream has gone on, and the memory may have changed: the system cannot be asked again for its reason.
            told = f"{moved} of {self._size} bytes were written: the disk is full, or a limit or a fault came after them"
            raise OSError(errno.ENOSPC, told)
        return moved


class Stream:
    """A stream of the GPU runtime by its handle, an integer; 0 is the legacy default stream.

    :param flags: ``HIPFILE_STREAM_*`` of the C header, 0 to 15. What a transfer is to do is fixed when it is queued, so
        that they change nothing here.
    """

    _all: dict[int, int] = {}

    def __init__(self, stream: int, flags: int = 0) -> None:
        self._handle = whole("stream", stream, 0, TOP)
        self._flags = whole("flags", flags, -1 << 31, (1 << 31) - 1)
        self._registered = False

    @property
    def handle(self) -> int:
        """The handle."""
        return self._handle

    @property
    def flags(self) -> int:
        """The flags."""
        return self._flags

    @property
    def registered(self) -> bool:
        """Whether it is registered by this object."""
        return self._registered

    def register(self) -> None:
        """Registers the stream; nothing if this object did already. Not needed for transfers.

        :raises HipFileException: ``INVALID_VALUE`` for unknown flags or a stream that another object registered.
        """
        if self._registered:
            return
        if self._flags & ~0xF:
            raise make(OpError.INVALID_VALUE, f"the flags of a stream are 0 to 15, not {self._flags}")
        if self._handle in Stream._all:
            raise make(OpError.INVALID_VALUE, f"stream {self._handle:#x} is registered already")
        _core.prepare_stream(self._handle)
        Stream._all[self._handle] = self._flags
        self._registered = True

    def deregister(self) -> None:
        """Ends the registration; nothing if there is none of this object's."""
        if self._registered:
            self._registered = False
            Stream._all.pop(self._handle, None)

    def __enter__(self) -> Stream:
        self.register()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.deregister()


def _ptr(buffer: Any) -> int:
    ptr = getattr(buffer, "ptr", None)
    if not isinstance(ptr, int):
        raise TypeError(f"buffer is a Buffer, not {shown(buffer)}")
    return ptr


class FileHandle:
    """A file, opened with ``os.open`` and registered.

    :param path: as for ``os.open``.
    :param flags: as for ``os.open``. ``O_DIRECT`` is not needed.
    :param mode: permissions of a file that is created.
    :param handle_type: ``OPAQUE_FD``; others are refused.

    As a context manager it opens and closes.
    """

    DEFAULT_MODE = 0o644

    def __init__(
        self,
        path: str | bytes | os.PathLike[Any],
        flags: int,
        mode: int = DEFAULT_MODE,
        handle_type: FileHandleType = FileHandleType.OPAQUE_FD,
    ) -> None:
        self._fd: int | None = None
        self._handle: int | None = None
        self._forks = 0
        self._path = path
        self._flags = flags
        self._mode = mode
        self.handle_type = handle_type

    @property
    def path(self) -> str | bytes | os.PathLike[Any]:
        """The path it was made with."""
        return self._path

    @property
    def flags(self) -> int:
        """The flags it was made with."""
        return self._flags

    @property
    def mode(self) -> int:
        """The permissions it was made with."""
        return self._mode

    @property
    def handle(self) -> int | None:
        """The library's number for the file; None while it is not open."""
        return self._handle

    @property
    def handle_type(self) -> FileHandleType:
        """What it is registered by. It can be set while the file is not open."""
        return self._handle_type

    @handle_type.setter
    def handle_type(self, value: FileHandleType) -> None:
        if self._handle is not None:
            raise RuntimeError("the type of a handle cannot change while the file is open")
        try:
            kind = FileHandleType(value)
        except ValueError:
            raise ValueError(f"{shown(value)} is no FileHandleType") from None
        if kind is FileHandleType.OPAQUE_WIN32:
            raise NotImplementedError("handles of Windows are not supported")
        self._handle_type = kind

    def open(self) -> None:
        """Opens and registers the file. Opens the driver if it is closed.

        :raises RuntimeError: it is open already.
        :raises OSError: it cannot be opened.
        :raises HipFileException: it cannot be registered; it is closed again then.
        """
        if self._handle is not None:
            raise RuntimeError(f"{self._path!r} is open already")
        if self._handle_type is not FileHandleType.OPAQUE_FD:
            raise make(OpError.IO_NOT_SUPPORTED, f"{self._handle_type.name} needs functions that Python cannot give")
        flags, mode = whole("flags", self._flags, 0, (1 << 31) - 1), whole("mode", self._mode, 0, 0o7777)
        fd = os.open(os.fspath(self._path), flags, mode)
        try:
            self._handle, self._forks = _core.register_file(fd), _core.forks()
        except OSError as error:
            os.close(fd)
            raise as_registration(error) from error
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def close(self) -> None:
        """Deregisters and closes the file; nothing if it is not open. Waits for transfers that still use it."""
        self._close(wait=True)

    def _close(self, wait: bool) -> None:
        if self._handle is None or self._fd is None:
            return
        end_registration(self._handle, wait)
        fd, self._fd, self._handle = self._fd, None, None
        if fd is not None:  # As another thread has left it.
            os.close(fd)

    def _opened(self) -> int:
        if self._handle is None:
            raise RuntimeError(f"{self._path!r} is not open")
        if self._forks != _core.forks():
            raise of_parent_for_io(repr(self._path))
        return self._handle

    def read(self, buffer: Buffer, size: int, file_offset: int, buffer_offset: int) -> int:
        """Reads ``size`` bytes at ``file_offset`` of the file to ``buffer_offset`` of the buffer.

        Returns the bytes read: fewer at the end of the file, and at most 0x7ffff000.

        :raises RuntimeError: the file is not open.
        :raises OSError: the operating system's reason.
        :raises HipFileException: the library's or the GPU runtime's reason.
        """
        return _core.read(self._opened(), _ptr(buffer), size, file_offset, buffer_offset)

    def write(self, buffer: Buffer, size: int, file_offset: int, buffer_offset: int) -> int:
        """Writes ``size`` bytes from ``buffer_offset`` of the buffer at ``file_offset`` of the file.

        Returns the bytes written, at most 0x7ffff000. Raises as :meth:`read`.
        """
        return _core.write(self._opened(), _ptr(buffer), size, file_offset, buffer_offset)

    def _enqueue(
        self, writes: bool, buffer: Buffer, size: int, file_offset: int, buffer_offset: int, stream: int
    ) -> AsyncIOHandle:
        made = AsyncIOHandle(size, file_offset, buffer_offset)
        keep = (self, buffer)
        made._operation = _core.enqueue(
            writes, self._opened(), _ptr(buffer), size, file_offset, buffer_offset, stream, keep
        )
        return made

    def read_async(
        self, buffer: Buffer, size: int, file_offset: int, buffer_offset: int, stream: int
    ) -> AsyncIOHandle:
        """Queues a read on a stream, given by its handle. Does not wait.

        :raises RuntimeError: the file is not open.
        :raises HipFileException: nothing was queued.
        """
        return self._enqueue(False, buffer, size, file_offset, buffer_offset, stream)

    def write_async(
        self, buffer: Buffer, size: int, file_offset: int, buffer_offset: int, stream: int
    ) -> AsyncIOHandle:
        """Queues a write on a stream; otherwise as :meth:`read_async`."""
        return self._enqueue(True, buffer, size, file_offset, buffer_offset, stream)

    def __enter__(self) -> FileHandle:
        self.open()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._handle is not None:
            raise TypeError(f"{self._path!r} is open and cannot be copied: open the path again")
        return super().__reduce_ex__(protocol)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is None or is_ending():
            return
        try:
            self._close(wait=False)
        except Exception as error:
            _core.say(f"closing {self._path!r}: {error}")
