"""Plain arguments: what kind of thing each is. A wrong one is a TypeError or a ValueError that names it, with its value."""

from __future__ import annotations

import operator
import reprlib
from typing import Any

#: The largest offset of a file, and so the most bytes that anything has.
MOST = (1 << 63) - 1
#: The most dimensions that any library has.
DIMENSIONS = 64
#: The largest address.
TOP = (1 << 64) - 1


def shown(value: Any) -> str:
    """A value in a message: short, whatever it is."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return reprlib.repr(value)
    return f"a {type(value).__qualname__}"


def whole(name: str, value: Any, least: int = 0, most: int = MOST) -> int:
    """A whole number.

    :raises TypeError: it is none.
    :raises ValueError: it is too small or too large.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a whole number, not {shown(value)}") from None
    if not least <= number <= most:
        raise ValueError(f"{name} is {least} to {most}, not {shown(number)}")
    return number


def offset(value: Any, name: str = "file_offset") -> int:
    """A place in a file. Whether one before its beginning is acceptable is the library's to say."""
    return whole(name, value, -MOST - 1)


def shape_of(value: Any, name: str = "shape") -> tuple[int, ...]:
    """Elements by dimension, from a list of numbers or one number.

    :raises TypeError: it is neither.
    :raises ValueError: one is negative, or they are too many.
    """
    if isinstance(value, (tuple, list)):
        if len(value) > DIMENSIONS:
            raise ValueError(f"{name} has {len(value)} dimensions, and the most are {DIMENSIONS}")
        return tuple(whole(f"{name}[{at}]", length) for at, length in enumerate(value))
    try:
        return (whole(name, value),)
    except TypeError:
        raise TypeError(f"{name} is a list of whole numbers, not {shown(value)}") from None


def bytes_of(shape: tuple[int, ...], bits: int) -> int:
    """Bytes of the elements of a shape, whole ones.

    :raises ValueError: they are more than there can be, leaving lengths of 0 aside.
    """
    product, empty = bits, False
    for length in shape:
        product, empty = product * (length or 1), empty or not length
    if product > 8 * MOST:
        raise ValueError(f"the shape {reprlib.repr(shape)} has more than {MOST} bytes")
    return 0 if empty else -(-product // 8)


def text(name: str, value: Any) -> str:
    """A word.

    :raises TypeError: it is none.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} is a string, not {shown(value)}")
    return value
