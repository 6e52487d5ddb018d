"""Batches: many transfers handed over in one call, and collected as they end."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any

from . import _core
from ._file import File
from ._memory import AUTO, Region, region


@dataclass(frozen=True, slots=True)
class Result:
    """How a transfer of a batch ended."""

    #: The number that :meth:`Batch.read` or :meth:`Batch.write` gave.
    ticket: int
    #: ``"complete"``, ``"failed"``, ``"canceled"`` or ``"timed out"``.
    status: str
    #: Bytes moved; 0 unless it is complete.
    nbytes: int = 0
    #: Why it failed.
    error: BaseException | None = None


class Batch:
    """Transfers between files and arrays that are handed over together.

    They are not ordered among each other. The arrays and files are kept until a transfer is collected. A context manager;
    leaving it cancels what has not started and waits for the rest.

    :param capacity: transfers that were added and not collected, 1 to 4096.
    """

    def __init__(self, capacity: int = 128) -> None:
        self._core = _core.Batch(capacity)
        self._added: list[tuple[bool, int, int, int, int, int, int, object]] = []
        self._waits: list[Region] = []
        self._next = 0
        self._in_flight = 0

    def _add(self, writes: bool, file: File, array: Any, file_offset: int, nbytes: int | None, stream: Any) -> int:
        found = region(array, writable=not writes, nbytes=nbytes, stream=stream)
        ticket, self._next = self._next, self._next + 1
        keep = (file, found)
        self._added.append((writes, file.handle, found.ptr, 0, file_offset, found.nbytes, ticket, keep))
        if found.stream is not None:
            self._waits.append(found)
        return ticket

    def read(
        self, file: File, array: Any, file_offset: int = 0, *, nbytes: int | None = None, stream: Any = AUTO
    ) -> int:
        """Adds a read into ``array``. Arguments as of :meth:`hipfile.File.read_into`.

        :return: a number to know it by.
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
        :raises HipFileException: one is invalid (``entry`` says which), or the batch is full.
        """
        added, self._added = self._added, []
        waits, self._waits = self._waits, []
        for stream in {found.stream for found in waits if found.stream is not None}:
            _core.wait_for_stream(stream)
        if added:
            self._core.submit(added)
            self._in_flight += len(added)
        return len(added)

    def wait(self, least: int | None = None, timeout: float | None = None) -> list[Result]:
        """Hands over what was added, then collects transfers that ended.

        :param least: how many to wait for; None for all.
        :param timeout: seconds; None for as long as it takes.
        :return: those that ended, in the order in which they did; fewer than ``least`` if the time is over or no more are
            left.
        """
        self.submit()
        least = self._in_flight if least is None else min(least, self._in_flight)
        results = []
        for ticket, moved, error, word in self._core.poll(least, timeout):
            if moved is not None:
                results.append(Result(ticket, "complete", moved))
            elif error is not None:
                results.append(Result(ticket, "failed", 0, error))
            else:
                results.append(Result(ticket, word or "canceled"))
        self._in_flight -= len(results)
        return results

    def cancel(self) -> None:
        """Cancels what has not started; it ends as ``"canceled"``."""
        self._core.cancel()

    def close(self) -> None:
        """Cancels what has not started, waits for the rest, and drops the results."""
        self._added.clear()
        self._in_flight = 0
        self._core.close()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
