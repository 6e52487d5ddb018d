"""Batches: many transfers handed over in one call, and collected as they end."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from . import _core
from ._arguments import offset, shown, whole
from ._errors import HipFileException, OpError, make, of_parent
from ._file import MOST, File
from ._memory import AUTO, Region, region


@dataclass(frozen=True, slots=True)
class Result:
    """How a transfer of a batch ended."""

    #: The number that :meth:`Batch.read` or :meth:`Batch.write` gave.
    ticket: int
    #: ``"complete"``, ``"failed"``, ``"canceled"`` or ``"timed out"``.
    status: str
    #: Bytes moved: of a read that is complete fewer than asked for at the end of the file only, of a write all. Of one that
    #: failed those before the failure.
    nbytes: int = 0
    #: Why it failed.
    error: BaseException | None = None


@dataclass(slots=True)
class _Entry:
    writes: bool
    file: File
    handle: int
    found: Region
    at: int


class Batch:
    """Transfers between files and arrays that are handed over together.

    They are not ordered among each other. The arrays and files are kept until a transfer is collected. A context manager;
    leaving it closes the batch: it cancels what has not started and waits for the rest. Any thread may call any method; each
    result goes to one :meth:`wait`.

    :param capacity: transfers that were added and not collected, 1 to 4096.
    """

    def __init__(self, capacity: int = 128) -> None:
        self._capacity = whole("capacity", capacity)
        self._core = _core.Batch(self._capacity)
        self._forks = _core.forks()
        self._lock = threading.Lock()
        self._closed = False
        self._added: dict[int, _Entry] = {}
        self._in_flight: dict[int, _Entry] = {}
        self._next = 0

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed

    def _check(self) -> None:
        if self._forks != _core.forks():
            raise of_parent("the batch")
        if self._closed:
            raise ValueError("the batch is closed")

    def _add(self, writes: bool, file: File, array: Any, file_offset: int, nbytes: int | None, stream: Any) -> int:
        self._check()
        if not isinstance(file, File):
            raise TypeError(f"file is one of hipfile.open, not {shown(file)}")
        at, found = offset(file_offset), region(array, writable=not writes, nbytes=nbytes, stream=stream)
        if found.nbytes > MOST:
            raise ValueError(f"one transfer of a batch moves at most {MOST} bytes, not {found.nbytes}")
        entry = _Entry(writes, file, file.handle, found, at)
        with self._lock:
            if self._closed:
                raise ValueError("the batch is closed")
            if len(self._added) + len(self._in_flight) >= self._capacity:
                raise make(OpError.BATCH_FULL, f"the batch has room for {self._capacity} transfers that are not collected")
            ticket, self._next = self._next, self._next + 1
            self._added[ticket] = entry
        return ticket

    def read(
        self, file: File, array: Any, file_offset: int = 0, *, nbytes: int | None = None, stream: Any = AUTO
    ) -> int:
        """Adds a read into ``array``. Arguments as of :meth:`hipfile.File.read_into`; at most 0x7ffff000 bytes.

        :return: a number to know it by.
        :raises ValueError: the batch or the file is closed; the array as there.
        :raises HipFileException: ``BATCH_FULL``: ``capacity`` transfers are not collected.
        """
        return self._add(False, file, array, file_offset, nbytes, stream)

    def write(
        self, file: File, array: Any, file_offset: int = 0, *, nbytes: int | None = None, stream: Any = AUTO
    ) -> int:
        """Adds a write from ``array``; otherwise as :meth:`read`."""
        return self._add(True, file, array, file_offset, nbytes, stream)

    def submit(self) -> int:
        """Hands over what was added, all of it or, with an error, nothing: then it is dropped.

        :return: how many transfers.
        :raises HipFileException: one is invalid; ``entry`` says which.
        """
        self._check()
        with self._lock:
            added, self._added = self._added, {}
            self._in_flight.update(added)
        try:
            for stream in {entry.found.stream for entry in added.values()}:
                if stream is not None:
                    _core.wait_for_stream(stream)
            if added:
                self._core.submit(
                    [
                        (entry.writes, entry.handle, entry.found.ptr, 0, entry.at, entry.found.nbytes, ticket, entry)
                        for ticket, entry in added.items()
                    ]
                )
        except BaseException:
            with self._lock:
                for ticket in added:
                    self._in_flight.pop(ticket, None)
            self._check()  # Closed meanwhile.
            raise
        return len(added)

    def wait(self, least: int | None = None, timeout: float | None = None) -> list[Result]:
        """Hands over what was added, then collects transfers that ended.

        :param least: how many to wait for; None for all.
        :param timeout: seconds; None for as long as it takes.
        :return: those that ended, in the order in which they did; fewer than ``least`` if the time is over or no more are
            left.
        """
        if least is not None:
            least = whole("least", least)
        self.submit()
        with self._lock:
            under_way = len(self._in_flight)
        try:
            ended = self._core.poll(under_way if least is None else min(least, under_way), timeout)
        except HipFileException:
            self._check()  # Closed meanwhile.
            raise
        results = []
        for ticket, moved, error, word in ended:
            with self._lock:
                entry = self._in_flight.pop(ticket, None)
            if moved is not None:
                results.append(self._complete(ticket, entry, moved))
            elif error is not None:
                results.append(Result(ticket, "failed", 0, error))
            else:
                results.append(Result(ticket, word or "canceled"))
        return results

    @staticmethod
    def _complete(ticket: int, entry: _Entry | None, moved: int) -> Result:
        if entry is None or not entry.writes or moved == entry.found.nbytes:
            return Result(ticket, "complete", moved)
        # The rest is asked for once more: it is written, or the system says why not.
        try:
            with entry.file._used() as handle:
                moved = entry.file._move(True, handle, entry.found, entry.at, moved)
        except (OSError, HipFileException, ValueError) as error:
            return Result(ticket, "failed", moved, error)
        return Result(ticket, "complete", moved)

    def cancel(self) -> None:
        """Cancels what has not started; it ends as ``"canceled"``."""
        self._check()
        self._core.cancel()

    def close(self) -> None:
        """Cancels what has not started, waits for the rest, and drops the results. Nothing if it is closed."""
        if self._forks != _core.forks():
            return
        with self._lock:
            self._closed = True
            self._added.clear()
        self._core.close()
        with self._lock:
            self._in_flight.clear()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a batch cannot be copied")

    def __enter__(self) -> Batch:
        self._check()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
