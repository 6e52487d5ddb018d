"""What the end of a registration, of the interpreter and a fork mean for the package."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable

from . import _core
from ._errors import HipFileException, NotRegistered, OpError

_ending = False
_in_child: list[Callable[[], None]] = []


def is_ending() -> bool:
    """Whether the interpreter is ending: nothing is closed, freed or waited for any more; the process's end does it."""
    return _ending or sys is None or sys.is_finalizing()


def end_registration(handle: int) -> None:
    """Ends a file's registration; nothing if that has happened already.

    :raises HipFileException: a transfer still uses the file.
    """
    try:
        _core.deregister_file(handle)
    except NotRegistered:
        pass  # The driver was closed meanwhile, or the file is the parent's of this process.
    except HipFileException as error:
        if error.hipfile_err != OpError.DRIVER_CLOSING:
            raise


def in_child(forget: Callable[[], None]) -> None:
    """Has ``forget`` called in the child of every fork."""
    _in_child.append(forget)


def _end() -> None:
    global _ending
    _ending = True
    _core.exiting()


def _forked() -> None:
    _core.after_fork_in_child()
    for forget in _in_child:
        forget()


atexit.register(_end)
os.register_at_fork(after_in_child=_forked)
