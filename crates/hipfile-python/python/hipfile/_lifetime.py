"""What the end of a registration, of the interpreter and a fork mean for the package."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable

from . import _core
from ._errors import HipFileException, NotRegistered, OpError

_ending = False
_at_end: list[Callable[[], None]] = []
_in_child: list[Callable[[], None]] = []


def is_ending() -> bool:
    """Whether the interpreter is ending: nothing is closed, freed or handed to threads any more; the process's end does it."""
    return _ending or sys is None or sys.is_finalizing()


def end_registration(handle: int, wait: bool = False) -> None:
    """Ends a file's registration; nothing if that has happened already.

    :param wait: whether to wait for transfers that still use the file.
    :raises HipFileException: one does, and is not waited for.
    """
    try:
        (_core.close_file if wait else _core.deregister_file)(handle)
    except NotRegistered:
        pass  # The driver was closed meanwhile, or the file is the parent's of this process.
    except HipFileException as error:
        if error.hipfile_err != OpError.DRIVER_CLOSING:
            raise


def at_end(finish: Callable[[], None]) -> None:
    """Has ``finish`` called when the interpreter ends, before anything is left where it is."""
    _at_end.append(finish)


def in_child(forget: Callable[[], None]) -> None:
    """Has ``forget`` called in the child of every fork."""
    _in_child.append(forget)


def _end() -> None:
    global _ending
    _ending = True
    for finish in _at_end:
        finish()
    _core.exiting()


def _forked() -> None:
    _core.after_fork_in_child()
    for forget in _in_child:
        forget()


atexit.register(_end)
os.register_at_fork(after_in_child=_forked)
