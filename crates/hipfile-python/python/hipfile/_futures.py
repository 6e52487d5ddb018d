"""Threads that carry transfers for callers who do not wait, and the futures they are told by."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ._lifetime import in_child

T = TypeVar("T")

#: Transfers under way at the same time; more wait their turn.
THREADS = 16


class Future(concurrent.futures.Future[T]):
    """A future of :mod:`concurrent.futures` that can be awaited, too."""

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self).__await__()


_lock = threading.Lock()
_threads: concurrent.futures.ThreadPoolExecutor | None = None


def _forget() -> None:
    """In the child of a fork there are no threads, and the lock may have been held."""
    global _lock, _threads
    _lock, _threads = threading.Lock(), None


in_child(_forget)


def run(call: Callable[[], T]) -> Future[T]:
    """Has a thread make a call."""
    global _threads
    future: Future[T] = Future()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    with _lock:
        if _threads is None:
            _threads = concurrent.futures.ThreadPoolExecutor(THREADS, "hipfile")
        _threads.submit(work)
    return future
