"""Files as objects: arrays in and out, futures, operations on streams."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal

from . import _containers, _core, _futures
from ._amd import AsyncIOHandle
from ._arguments import offset, shape_of, shown, text, whole
from ._errors import HipFileException, after, of_parent, of_parent_for_io
from ._lifetime import end_registration, is_ending
from ._memory import AUTO, Region, region, stream_handle

#: What one call of the library moves at most.
MOST = 0x7FFFF000

_MODES = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "a+": os.O_RDWR | os.O_CREAT | os.O_APPEND,
}
_DIRECT: dict[Any, str] = {"auto": "auto", True: "direct", False: "buffered"}


class File:
    """A file that is open for transfers. Made by :func:`hipfile.open`; a context manager.

    Every method may be called from any thread at any time. Offsets and sizes are in bytes. In the child of a fork a file
    of the parent can only be closed.

    ``stream`` says what a transfer waits for before it touches the memory of a GPU. By default that is what the object
    itself tells: with DLPack its producer sees to it; with ``__cuda_array_interface__`` it is the ``stream`` there, and
    the legacy default stream if there is none. A stream or its handle is waited for instead; None waits for nothing.
    """

    def __init__(self, path: str | bytes | os.PathLike[Any], mode: str = "r", direct: Any = "auto") -> None:
        self._handle: int | None = None
        self._fd: int | None = None
        self._idle = threading.Condition()
        self._under_way = 0
        self._closing = False
        self._forks = _core.forks()
        self.path = path
        self.mode = mode
        plain = text("the mode", mode).replace("b", "", 1)
        if plain not in _MODES:
            raise ValueError(f"the mode is one of {', '.join(_MODES)}, not {shown(mode)}")
        if not isinstance(direct, (bool, str)) or direct not in _DIRECT:
            raise ValueError(f'direct is "auto", True or False, not {shown(direct)}')
        fd = os.open(os.fspath(path), _MODES[plain], 0o666)
        try:
            _core.open_driver()
            try:
                handle = _core.register_file(fd)
                if direct != "auto":
                    _core.set_page_cache(handle, _DIRECT[direct])
            except BaseException:
                _core.close_driver()
                raise
        except OSError as error:
            os.close(fd)
            raise OSError(error.errno, error.strerror, path) from None
        except BaseException:
            os.close(fd)
            raise
        self._fd, self._handle = fd, handle

    def __repr__(self) -> str:
        return f"<hipfile.File {self.path!r} mode={self.mode!r}{' closed' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._handle is None

    @property
    def handle(self) -> int:
        """The library's number for it."""
        if self._is_of_parent():
            raise of_parent(repr(self.path))
        if self._handle is None:
            raise ValueError(f"{self.path!r} is closed")
        return self._handle

    def fileno(self) -> int:
        """The descriptor."""
        if self._fd is None:
            raise ValueError(f"{self.path!r} is closed")
        return self._fd

    @property
    def size(self) -> int:
        """The file's size now."""
        with self._used():
            return self._size()

    def _size(self) -> int:
        found = os.fstat(self.fileno())
        # A device says its size by where its end is only; files of the kernel's own have no end to go to.
        return os.lseek(self.fileno(), 0, os.SEEK_END) if stat.S_ISBLK(found.st_mode) else found.st_size

    def info(self) -> dict[str, Any]:
        """What is known about the file: the engine that would carry an aligned read of 1 MiB now, why it is staged if it
        is, the file system, alignments of direct I/O, whether the GPU is the emulated one."""
        with self._used() as handle:
            return _core.file_info(handle)

    def sync(self) -> None:
        """Makes what was written durable (``fdatasync``)."""
        with self._used():
            os.fdatasync(self.fileno())

    def _is_of_parent(self) -> bool:
        return self._forks != _core.forks()

    def _enter(self) -> int:
        """Begins a use, which a close waits for. Gives the library's number for the file."""
        if self._is_of_parent():
            raise of_parent_for_io(repr(self.path))  # Its lock may be held for ever.
        with self._idle:
            if self._closing or self._handle is None:
                raise ValueError(f"{self.path!r} is closed")
            self._under_way += 1
            return self._handle

    def _leave(self, _: Any = None) -> None:
        if self._is_of_parent():
            return
        with self._idle:
            self._under_way -= 1
            if not self._under_way:
                self._idle.notify_all()

    @contextmanager
    def _used(self) -> Iterator[int]:
        handle = self._enter()
        try:
            yield handle
        finally:
            self._leave()

    def close(self) -> None:
        """Waits for all that the file has under way, from whatever thread, on streams and in batches, then closes it;
        nothing if it is closed. What is asked of it meanwhile is refused."""
        self._close(wait=True)

    def _close(self, wait: bool) -> None:
        if self._is_of_parent():
            fd, self._fd, self._handle = self._fd, None, None
            if fd is not None:
                os.close(fd)
            return
        with self._idle:
            if self._closing:
                self._idle.wait_for(lambda: not self._closing)
            if self._handle is None or self._fd is None:
                return
            self._closing = True
            try:
                if self._under_way and not self._idle.wait_for(lambda: not self._under_way, _core.wait_notice()):
                    _core.say(f"closing {self.path!r} waits for {self._under_way} transfers of it")
                    self._idle.wait_for(lambda: not self._under_way)
                handle = self._handle
            except BaseException:
                self._closing = False
                raise
        try:
            end_registration(handle, wait)
            fd, self._fd, self._handle = self._fd, None, None
        finally:
            with self._idle:
                self._closing = False
                self._idle.notify_all()
        os.close(fd)
        _core.close_driver()

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"{self!r} cannot be copied: open the path again")

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is None or is_ending():
            return
        try:
            self._close(wait=False)
        except HipFileException:
            pass  # Something on a stream still uses it, and will end.

    def _move(self, writes: bool, handle: int, found: Region, file_offset: int, done: int = 0) -> int:
        """Moves all of it but what is done, or what there is of the file. Gives what is done then, or says why not all."""
        call, verb = (_core.write, "written") if writes else (_core.read, "read")
        found.wait()
        while done < found.nbytes:
            try:
                moved = call(handle, found.ptr + done, min(found.nbytes - done, MOST), file_offset + done, 0)
                if writes and not moved:
                    raise OSError(errno.EIO, f"nothing was written at {file_offset + done}")
            except (OSError, HipFileException) as error:
                if not done:
                    raise
                raise after(error, done, found.nbytes, verb) from None
            done += moved
            if not moved:
                break
        return done

    def read_into(self, array: Any, file_offset: int = 0, *, nbytes: int | None = None, stream: Any = AUTO) -> int:
        """Reads into the memory of ``array`` from its first byte on.

        :param array: anything that :mod:`hipfile` takes for one; an address needs ``nbytes``.
        :param nbytes: bytes to read; None for the array's size.
        :return: the bytes read; fewer than asked for at the end of the file only.
        :raises TypeError: nothing is known about its memory, or its elements are Python objects or pointers.
        :raises ValueError: the array is read-only, not contiguous, or too small.
        :raises OSError: the operating system's reason. If a part was read before, it says how much.
        :raises HipFileException: the library's or the GPU runtime's reason; likewise.
        """
        return self._whole(False, array, file_offset, nbytes, stream)

    def write_from(self, array: Any, file_offset: int = 0, *, nbytes: int | None = None, stream: Any = AUTO) -> int:
        """Writes the memory of ``array`` from its first byte on. As :meth:`read_into`, the other way.

        :return: the bytes written, always all that were asked for.
        :raises OSError: as there; on a full disk with ``ENOSPC`` and how many bytes were written.
        """
        return self._whole(True, array, file_offset, nbytes, stream)

    def _whole(self, writes: bool, array: Any, file_offset: int, nbytes: int | None, stream: Any) -> int:
        at = offset(file_offset)
        found = region(array, writable=not writes, nbytes=nbytes, stream=stream)
        handle = self._enter()
        try:
            return self._move(writes, handle, found, at)
        finally:
            self._leave()

    def read(
        self,
        nbytes: int | None = None,
        file_offset: int = 0,
        *,
        device: Any = "cpu",
        dtype: Any = None,
        shape: tuple[int, ...] | int | None = None,
        container: str | None = None,
    ) -> Any:
        """Reads into a new array.

        :param nbytes: bytes; None for what ``shape`` takes, or for the rest of the file.
        :param device: ``"cpu"``, or a GPU: ``"cuda"``, ``"hip"`` or ``"gpu"``, with ``":1"`` for another than the first.
        :param dtype: the element type, by its name or the container's own; bytes (``"uint8"``) if None.
        :param shape: elements by dimension; a number, or None, for one dimension.
        :param container: ``"numpy"``, ``"torch"``, ``"cupy"`` or ``"hipfile"``; None for what is imported and fits.
        :return: an array of the container. At the end of the file it has as many whole elements as there were; with
            ``shape`` it is complete.
        :raises EOFError: the file ends before ``shape`` is full.
        """
        kind, at = _containers.element(dtype), offset(file_offset)
        if shape is None:
            wanted = max(self.size - at, 0) if nbytes is None else whole("nbytes", nbytes)
            if wanted % kind.itemsize:
                raise ValueError(f"{wanted} bytes are no whole number of elements of {kind.itemsize} bytes ({kind.name})")
            # Memory for what there is, whatever is asked for.
            there = min(wanted, self._readable(at, wanted))
            space = _containers.space(there, device, container)
            moved = self.read_into(space.memory, at, nbytes=there) if there else 0
            return space.array(0, kind, (moved // kind.itemsize,))
        shape = shape_of(shape)
        wanted = kind.nbytes(shape)
        there = self._readable(at, wanted)
        if there >= wanted:
            space = _containers.space(wanted, device, container)
            there = self.read_into(space.memory, at, nbytes=wanted) if wanted else 0
        if there < wanted:
            raise EOFError(f"{self.path!r} ends {wanted - there} bytes before an array of shape {shape} is full")
        return space.array(0, kind, shape)

    def _readable(self, at: int, wanted: int) -> int:
        """Bytes that the file has from a place on, if that is fewer than wanted."""
        if not wanted or at < 0:
            return wanted  # A place before the beginning is refused by the read.
        with self._used():
            size = self._size()
            # Files that are made up as they are read have no size.
            made_up = not size and os.pread(self.fileno(), 1, at)
        return wanted if made_up else min(max(size - at, 0), wanted)

    def submit(
        self,
        op: Literal["read", "write"],
        array: Any,
        file_offset: int = 0,
        *,
        nbytes: int | None = None,
        stream: Any = AUTO,
    ) -> _futures.Future[int]:
        """Has a thread do :meth:`read_into` or :meth:`write_from`.

        What the array says about its memory is asked now; the array is kept until the transfer is over. At most 16
        transfers of the process are under way at a time; a :class:`hipfile.Batch` has no such limit.

        :return: a future of the bytes moved, which can be awaited, too.
        """
        if not isinstance(op, str) or op not in ("read", "write"):
            raise ValueError(f'op is "read" or "write", not {shown(op)}')
        writes, at = op == "write", offset(file_offset)
        found = region(array, writable=not writes, nbytes=nbytes, stream=stream)
        handle = self._enter()
        try:
            future = _futures.run(lambda: self._move(writes, handle, found, at))
        except BaseException:
            self._leave()
            raise
        future.add_done_callback(self._leave)
        return future

    def _enqueue(self, writes: bool, array: Any, file_offset: int, nbytes: int | None, stream: Any) -> AsyncIOHandle:
        # The transfer is ordered by the stream it is on; nothing else is waited for.
        at, on = offset(file_offset), 0 if stream is None else stream_handle(stream)
        found = region(array, writable=not writes, nbytes=nbytes, stream=None)
        if found.nbytes > MOST:
            raise ValueError(f"one operation on a stream moves at most {MOST} bytes, not {found.nbytes}")
        made = AsyncIOHandle(found.nbytes, at, 0)
        made._whole = writes
        with self._used() as handle:
            made._operation = _core.enqueue(writes, handle, found.ptr, found.nbytes, at, 0, on, (self, found))
        return made

    def enqueue_read(
        self, array: Any, file_offset: int = 0, *, stream: Any = None, nbytes: int | None = None
    ) -> AsyncIOHandle:
        """Queues a read on a stream: it happens after what is on the stream already, and before what comes later.

        :param stream: a stream of torch, cupy or numba, or a handle; None, as 0, is the legacy default stream. The array's
            own stream is not waited for: the order on this one is all.
        :param nbytes: bytes; None for the array's size. At most 0x7ffff000.
        :return: what tells when it is over and how many bytes moved. Array and file are kept until then.
        """
        return self._enqueue(False, array, file_offset, nbytes, stream)

    def enqueue_write(
        self, array: Any, file_offset: int = 0, *, stream: Any = None, nbytes: int | None = None
    ) -> AsyncIOHandle:
        """Queues a write on a stream; otherwise as :meth:`enqueue_read`. Its ``wait`` raises OSError if not all was written."""
        return self._enqueue(True, array, file_offset, nbytes, stream)


def open(path: str | bytes | os.PathLike[Any], mode: str = "r", direct: Any = "auto") -> File:
    """Opens a file for transfers to and from the memory of arrays.

    :param mode: as of the built-in ``open``: ``r``, ``r+``, ``w``, ``w+``, ``x``, ``x+``, ``a`` or ``a+``; always binary.
    :param direct: how transfers that go through host memory treat the page cache: ``"auto"`` by what is so, True around
        it, False through it.
    :raises OSError: it cannot be opened.
    :raises HipFileException: it is no file or block device.
    """
    return File(path, mode, direct)
