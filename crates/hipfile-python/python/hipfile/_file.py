"""Files as objects: arrays in and out, futures, operations on streams."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

from . import _containers, _core, _futures
from ._amd import AsyncIOHandle
from ._errors import HipFileException
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

    Every method may be called from any thread at any time. Offsets and sizes are in bytes.

    ``stream`` says what a transfer waits for before it touches the memory of a GPU. By default that is what the object
    itself tells: with DLPack its producer sees to it; with ``__cuda_array_interface__`` it is the ``stream`` there, and
    the legacy default stream if there is none. A stream or its handle is waited for instead; None waits for nothing.
    """

    def __init__(self, path: str | bytes | os.PathLike[Any], mode: str = "r", direct: Any = "auto") -> None:
        self._handle: int | None = None
        self._fd: int | None = None
        self._idle = threading.Condition()
        self._under_way = 0
        self._process = os.getpid()
        self.path = path
        self.mode = mode
        plain = mode.replace("b", "", 1)
        if plain not in _MODES:
            raise ValueError(f"the mode is one of {', '.join(_MODES)}, not {mode!r}")
        if direct not in _DIRECT:
            raise ValueError(f'direct is "auto", True or False, not {direct!r}')
        fd = os.open(path, _MODES[plain], 0o666)
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
        return os.lseek(self.fileno(), 0, os.SEEK_END)

    def info(self) -> dict[str, Any]:
        """What is known about the file: the engine that would carry an aligned read of 1 MiB now, why it is staged if it
        is, the file system, alignments of direct I/O, whether the GPU is the emulated one."""
        return _core.file_info(self.handle)

    def sync(self) -> None:
        """Makes what was written durable (``fdatasync``)."""
        os.fdatasync(self.fileno())

    def close(self) -> None:
        """Waits for what :meth:`submit` has under way, then closes the file; nothing if it is closed.

        :raises HipFileException: an operation on a stream or another thread still uses it; it stays open then.
        """
        with self._idle:
            self._idle.wait_for(lambda: self._under_way == 0)
            if self._handle is None or self._fd is None:
                return
            end_registration(self._handle)
            fd, self._fd, self._handle = self._fd, None, None
        os.close(fd)
        if self._process == os.getpid():
            _core.close_driver()  # A child has its own, which this file never opened.

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is None or is_ending():
            return
        try:
            self.close()
        except HipFileException:
            pass  # Something on a stream still uses it, and will end.

    def _move(self, call: Callable[..., int], found: Region, file_offset: int) -> int:
        done = 0
        found.wait()
        while done < found.nbytes:
            most = min(found.nbytes - done, MOST)
            moved = call(self.handle, found.ptr + done, most, file_offset + done, 0)
            done += moved
            if moved < most:
                break
        return done

    def read_into(self, array: Any, file_offset: int = 0, *, nbytes: int | None = None, stream: Any = AUTO) -> int:
        """Reads into the memory of ``array`` from its first byte on.

        :param array: anything that :mod:`hipfile` takes for one; an address needs ``nbytes``.
        :param nbytes: bytes to read; None for the array's size.
        :return: the bytes read; fewer than asked for at the end of the file, or if an error came after them.
        :raises ValueError: the array is read-only, not contiguous, or too small.
        :raises OSError: the operating system's reason.
        :raises HipFileException: the library's or the GPU runtime's reason.
        """
        found = region(array, writable=True, nbytes=nbytes, stream=stream)
        return self._move(_core.read, found, file_offset)

    def write_from(self, array: Any, file_offset: int = 0, *, nbytes: int | None = None, stream: Any = AUTO) -> int:
        """Writes the memory of ``array`` from its first byte on. As :meth:`read_into`, the other way.

        :return: the bytes written.
        """
        found = region(array, writable=False, nbytes=nbytes, stream=stream)
        return self._move(_core.write, found, file_offset)

    def read(
        self,
        nbytes: int | None = None,
        file_offset: int = 0,
        *,
        device: Any = "cpu",
        dtype: Any = None,
        shape: tuple[int, ...] | None = None,
        container: str | None = None,
    ) -> Any:
        """Reads into a new array.

        :param nbytes: bytes; None for what ``shape`` takes, or for the rest of the file.
        :param device: ``"cpu"``, or a GPU: ``"cuda"``, ``"hip"`` or ``"gpu"``, with ``":1"`` for another than the first.
        :param dtype: the element type, by its name or the container's own; bytes (``"uint8"``) if None.
        :param shape: elements by dimension; None for one dimension.
        :param container: ``"numpy"``, ``"torch"``, ``"cupy"`` or ``"hipfile"``; None for what is imported and fits.
        :return: an array of the container. At the end of the file it has as many whole elements as there were; with
            ``shape`` it is complete.
        :raises EOFError: the file ends before ``shape`` is full.
        """
        kind = _containers.element(dtype)
        if shape is not None:
            nbytes = kind.nbytes(shape)
        elif nbytes is None:
            nbytes = max(self.size - file_offset, 0)
        if shape is None:
            if nbytes % kind.itemsize:
                raise ValueError(f"{nbytes} bytes are no whole number of elements of {kind.itemsize} bytes ({kind.name})")
            count = nbytes // kind.itemsize
        space = _containers.space(nbytes, device, container)
        moved = self.read_into(space.memory, file_offset, nbytes=nbytes) if nbytes else 0
        if shape is None:
            return space.array(0, kind, (min(count, moved // kind.itemsize),))
        if moved < nbytes:
            raise EOFError(f"{self.path!r} ends {nbytes - moved} bytes before an array of shape {shape} is full")
        return space.array(0, kind, shape)

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
        if op not in ("read", "write"):
            raise ValueError(f'op is "read" or "write", not {op!r}')
        found = region(array, writable=op == "read", nbytes=nbytes, stream=stream)
        call = _core.read if op == "read" else _core.write
        self.handle  # A closed file is told now.
        with self._idle:
            self._under_way += 1

        def ended(_: Any) -> None:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

        future = _futures.run(lambda: self._move(call, found, file_offset))
        future.add_done_callback(ended)
        return future

    def _enqueue(self, writes: bool, array: Any, file_offset: int, nbytes: int | None, stream: Any) -> AsyncIOHandle:
        # The transfer is ordered by the stream it is on; nothing else is waited for.
        found = region(array, writable=not writes, nbytes=nbytes, stream=None)
        if found.nbytes > MOST:
            raise ValueError(f"one operation on a stream moves at most {MOST} bytes, not {found.nbytes}")
        made = AsyncIOHandle(found.nbytes, file_offset, 0)
        made._operation = _core.enqueue(
            writes, self.handle, found.ptr, found.nbytes, file_offset, 0, stream_handle(stream), (self, found)
        )
        return made

    def enqueue_read(
        self, array: Any, file_offset: int = 0, *, stream: Any, nbytes: int | None = None
    ) -> AsyncIOHandle:
        """Queues a read on a stream: it happens after what is on the stream already, and before what comes later.

        :param stream: a stream of torch, cupy or numba, or a handle; 0 is the legacy default stream.
        :return: what tells when it is over and how many bytes moved. The array is kept until then.
        """
        return self._enqueue(False, array, file_offset, nbytes, stream)

    def enqueue_write(
        self, array: Any, file_offset: int = 0, *, stream: Any, nbytes: int | None = None
    ) -> AsyncIOHandle:
        """Queues a write on a stream; otherwise as :meth:`enqueue_read`."""
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
