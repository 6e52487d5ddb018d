"""Files of numpy, ``.npy``: one array each, read to and written from any memory. No pickles."""

from __future__ import annotations

import io
import itertools
import os
from typing import Any

from . import _containers, _file
from ._arguments import bytes_of, shape_of, shown
from ._array import DeviceArray
from ._memory import AUTO, region

#: Where data begins in files that are written here: a page, so that it can go direct.
_START = 4096
#: More than any header that is written for an array of plain elements.
_HEADER_MOST = 1 << 16
#: Tells the files apart that threads write at the same time.
_numbers = itertools.count()


def _header(path: Any) -> tuple[tuple[int, ...], bool, Any, int]:
    """Shape, whether it is in Fortran order, numpy's type, where the data begins."""
    from numpy.lib import format as npy

    with io.open(os.fspath(path), "rb") as file:
        start = io.BytesIO(file.read(_HEADER_MOST))
    try:
        version = npy.read_magic(start)
        if version == (1, 0):
            shape, fortran, dtype = npy.read_array_header_1_0(start)
        elif version in ((2, 0), (3, 0)):
            shape, fortran, dtype = npy.read_array_header_2_0(start)
        else:
            raise ValueError(f"the format's version {version} is not known")
        if dtype.hasobject:
            raise ValueError("it holds Python objects, which are not loaded: they could run any code")
        shape = shape_of(shape)
        bytes_of(shape, 8 * dtype.itemsize)
    except Exception as error:
        # The header is text that numpy has Python read: what can be wrong with it has no end.
        raise ValueError(f"{path!r} is no .npy file that can be loaded: {_short(error)}") from error
    return shape, fortran, dtype, start.tell()


def _short(error: Exception) -> str:
    told = f"{error}" or type(error).__name__
    return told if len(told) < 200 else f"{told[:200]}..."


def load_npy(path: str | os.PathLike[Any], device: Any = "cpu", *, container: str | None = None) -> Any:
    """The array in a ``.npy`` file, its bytes read straight to their place.

    :param device: as of :meth:`hipfile.File.read`.
    :param container: as there.
    :return: an array with the file's shape and element type. One in Fortran order is the transpose of what was read; the
        container ``"hipfile"`` has none of these.
    :raises ValueError: it is no such file, or one of Python objects.
    :raises TypeError: its elements are of a type that :meth:`hipfile.File.read` does not know, or not in the byte order of
        the machine.
    :raises EOFError: the file ends before the array is full.
    """
    shape, fortran, dtype, start = _header(path)
    try:
        kind = _containers.element(dtype)
    except TypeError as error:
        raise TypeError(f"{path!r}: {error}; numpy.load reads such files to the host") from None
    stored = tuple(reversed(shape)) if fortran else shape
    with _file.open(path) as file:
        array = file.read(file_offset=start, device=device, dtype=kind.name, shape=stored, container=container)
    if not fortran or len(shape) < 2:
        return array
    if isinstance(array, DeviceArray):
        raise ValueError(f"{path!r} is in Fortran order, which the container 'hipfile' cannot show; use torch or cupy")
    return array.permute(*reversed(range(len(shape)))) if hasattr(array, "permute") else array.transpose()


def save_npy(path: str | os.PathLike[Any], array: Any, *, stream: Any = AUTO, sync: bool = False) -> int:
    """Writes an array of any device to a ``.npy`` file, which it replaces.

    The file is complete or not there: it is written beside its place and then renamed.

    :param array: C-contiguous, with ``shape`` and ``dtype``; element types that numpy itself has.
    :param stream: as of :meth:`hipfile.File.write_from`.
    :param sync: whether the data is made durable before it is renamed.
    :return: the bytes of the file.
    :raises ValueError: the array is not contiguous.
    :raises TypeError: numpy has no such elements.
    :raises OSError: the operating system's reason, with how many bytes were written before; the file of before is untouched.
    """
    from numpy.lib import format as npy

    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise TypeError(f"an array has a shape and a dtype, and {shown(array)} has not both")
    shape = shape_of(tuple(array.shape))
    kind = _containers.element(array.dtype)
    if kind.name in _containers._NOT_IN_NUMPY:
        raise TypeError(f".npy files know no {kind.name}: save a view of it as uint8 or uint16")
    found = region(array, writable=False, stream=stream)
    if found.nbytes != kind.nbytes(shape):
        raise ValueError(f"the array says {found.nbytes} bytes, its shape {shape} of {kind.name} {kind.nbytes(shape)}")
    text = {"descr": npy.dtype_to_descr(_containers._numpy_type(kind)), "fortran_order": False, "shape": shape}
    fixed = len(npy.magic(1, 0)) + 2
    body = repr(text).encode("latin1")
    start = -(-(fixed + len(body) + 1) // _START) * _START
    header = npy.magic(1, 0) + (start - fixed).to_bytes(2, "little") + body.ljust(start - fixed - 1) + b"\n"
    path = os.fsdecode(path)
    beside = os.path.join(os.path.dirname(path), f".hipfile-{os.getpid()}-{next(_numbers)}.part")
    try:
        with _file.open(beside, "w+") as file:
            with io.open(file.fileno(), "wb", buffering=0, closefd=False) as raw:
                while header:
                    header = header[raw.write(header) :]
            with file._used() as handle:
                file._move(True, handle, found, start)
            if sync:
                file.sync()
        os.replace(beside, path)
    except OSError as error:
        _remove(beside)
        raise OSError(error.errno, error.strerror or str(error), path) from None
    except BaseException:
        _remove(beside)
        raise
    return start + found.nbytes


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
