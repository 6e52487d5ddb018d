"""Threads that carry transfers for callers who do not wait, and the futures they are told by.

The threads are not those of :mod:`concurrent.futures`, which take nothing any more once the interpreter begins to end:
what other threads and functions of ``atexit`` ask for then is done for them in place.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from . import _core
from ._errors import of_parent
from ._lifetime import at_end, in_child, is_ending

T = TypeVar("T")

#: Transfers under way at the same time; more wait their turn.
THREADS = 16


class Future(concurrent.futures.Future[T]):
    """A future of :mod:`concurrent.futures` that can be awaited, too."""

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self).__await__()


class _Crew:
    """The threads, and what they have to do. The interpreter ends when that is done."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads = 0
        #: Handed over and not done.
        self._pending = 0
        self.futures: set[Future[Any]] = set()

    def take(self, job: Callable[[], None]) -> bool:
        """Has a thread do a job, or says that there is none for it."""
        with self._changed:
            if is_ending():
                return False
            if self._pending >= self._threads and self._threads < THREADS:
                try:
                    threading.Thread(target=self._serve, name=f"hipfile-{self._threads}", daemon=True).start()
                    self._threads += 1
                except RuntimeError:  # No room for one more, or too late for any.
                    if not self._threads:
                        return False
            self._pending += 1
            self._jobs.put(job)
        return True

    def _serve(self) -> None:
        job: Callable[[], None] | None
        try:
            while True:
                job = self._jobs.get()
                try:
                    job()
                finally:
                    job = None  # Or it keeps an array until the next comes.
                    with self._changed:
                        self._pending -= 1
                        self._changed.notify_all()
        except BaseException:
            with self._changed:
                self._threads -= 1
            raise

    def finish(self) -> None:
        """Waits until all is done."""
        with self._changed:
            if self._pending and not self._changed.wait_for(lambda: not self._pending, _core.wait_notice()):
                _core.say(f"the end waits for {self._pending} transfers that were submitted")
                self._changed.wait_for(lambda: not self._pending)


_crew = _Crew()


def _forget() -> None:
    """In the child of a fork there are no threads, and locks may have been held."""
    global _crew
    left, _crew = _crew.futures, _Crew()
    for future in left:
        # New ones, and nobody to tell: callbacks are for the parent's objects.
        vars(future).update(_condition=threading.Condition(), _done_callbacks=[])
        try:
            future.set_exception(of_parent("the transfer"))
        except concurrent.futures.InvalidStateError:
            pass


def _finish() -> None:
    _crew.finish()


in_child(_forget)
at_end(_finish)
# Children of multiprocessing end without functions of atexit.
getattr(threading, "_register_atexit", lambda _: None)(_finish)


def run(call: Callable[[], T]) -> Future[T]:
    """Has a thread make a call, or makes it if the interpreter is ending."""
    future: Future[T] = Future()
    futures = _crew.futures

    def work() -> None:
        try:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
        finally:
            futures.discard(future)

    futures.add(future)
    if not _crew.take(work):
        work()
    return future
