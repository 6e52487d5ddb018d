"""What the end of the interpreter and a fork mean for the package."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable

from . import _core

_ending = False
_in_child: list[Callable[[], None]] = []


def is_ending() -> bool:
    """Whether the interpreter is ending: nothing is closed, freed or waited for any more; the process's end does it."""
    return _ending or sys is None or sys.is_finalizing()


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
