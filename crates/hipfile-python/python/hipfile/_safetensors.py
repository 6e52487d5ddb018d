"""Files of safetensors: a header of JSON, then the bytes of named tensors. The header is believed in nothing."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from . import _containers, _core, _file
from ._arguments import shown
from ._memory import region

#: The longest header that the format allows, in bytes.
HEADER_MOST = 100_000_000
#: Bytes of one step of a progress bar.
_STEP = 64 << 20

_TYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
    "C64": "complex64",
}


class SafetensorsError(ValueError):
    """A file is not in the format, and nothing of it was loaded. The text says what is wrong with what."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as the header describes it."""

    #: The element type, by numpy's name.
    dtype: str
    #: Elements by dimension.
    shape: tuple[int, ...]
    #: Where its bytes begin in the file.
    offset: int
    #: How many they are.
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says about itself."""

    #: By name, in the order of the file's header.
    tensors: dict[str, Tensor]
    #: ``__metadata__``.
    metadata: dict[str, str]


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise SafetensorsError(f"the name {name!r} occurs twice")
            seen.add(name)
    return made


def _no_constant(text: str) -> None:
    raise SafetensorsError(f"{text} is no number of JSON")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _tensor(name: str, entry: Any, start: int, room: int) -> Tensor:
    def wrong(why: str) -> SafetensorsError:
        return SafetensorsError(f"tensor {name!r}: {why}")

    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise wrong("it has not exactly dtype, shape and data_offsets")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in _TYPES:
        raise wrong(f"the element type {kind!r} is not known")
    if not isinstance(shape, list) or len(shape) > 64 or not all(map(_whole, shape)):
        raise wrong("the shape is no list of at most 64 whole numbers")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_whole, offsets)):
        raise wrong("data_offsets are not two whole numbers")
    begin, end = offsets
    if begin > end or end > room:
        raise wrong(f"its bytes {begin} to {end} do not lie within the data of {room} bytes")
    try:
        nbytes = _containers.element(_TYPES[kind]).nbytes(tuple(shape))
    except ValueError as error:
        raise wrong(str(error)) from None
    if nbytes != end - begin:
        raise wrong(f"shape {tuple(shape)} of {kind} takes {nbytes} bytes, not {end - begin}")
    return Tensor(_TYPES[kind], tuple(shape), start + begin, nbytes)


def _parse(path: Any, text: bytes, start: int, room: int) -> Header:
    try:
        if not text.startswith(b"{"):
            raise SafetensorsError("the header does not begin with '{'")
        found = json.loads(text.decode("utf-8"), object_pairs_hook=_no_twins, parse_constant=_no_constant)
        metadata = found.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise SafetensorsError("__metadata__ does not map text to text")
        tensors = {name: _tensor(name, entry, start, room) for name, entry in found.items()}
        at = start
        for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
            if tensor.offset != at:
                what = "overlaps the one before" if tensor.offset < at else f"leaves {tensor.offset - at} bytes unused before"
                raise SafetensorsError(f"tensor {name!r} {what}")
            at += tensor.nbytes
        if at != start + room:
            raise SafetensorsError(f"the last {start + room - at} bytes belong to no tensor")
    except RecursionError:
        raise SafetensorsError(f"{path!r}: the header is nested too deeply") from None
    except SafetensorsError as error:
        raise SafetensorsError(f"{path!r}: {error}") from None
    except ValueError as error:
        raise SafetensorsError(f"{path!r}: the header is no JSON: {error}") from None
    return Header(tensors, metadata)


def _read_header(path: Any, fd: int) -> Header:
    size = os.fstat(fd).st_size
    if size < 8:
        raise SafetensorsError(f"{path!r}: a file of {size} bytes has no header")
    length = int.from_bytes(os.pread(fd, 8, 0), "little")
    if length > HEADER_MOST or length > size - 8:
        raise SafetensorsError(f"{path!r}: a header of {length} bytes does not fit: the file has {size}, the format allows "
                               f"{HEADER_MOST}")
    text = b""
    while len(text) < length:
        piece = os.pread(fd, length - len(text), 8 + len(text))
        if not piece:
            raise SafetensorsError(f"{path!r}: the file ends within its header")
        text += piece
    return _parse(path, text, 8 + length, size - 8 - length)


def safetensors_header(path: str | os.PathLike[Any]) -> Header:
    """What a file says about itself. Reads no tensor.

    :raises SafetensorsError: it is not in the format.
    """
    fd = os.open(os.fspath(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read_header(path, fd)
    finally:
        os.close(fd)


def _layout(tensors: dict[str, Tensor]) -> tuple[dict[str, int], list[tuple[int, int, int]], int]:
    """Where each tensor comes to lie, the runs ``(place, bytes, file offset)`` that are read, and the bytes of memory."""
    places: dict[str, int] = {}
    runs: list[list[int]] = []
    at = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].offset):
        step = _containers.element(tensor.dtype).itemsize
        run = runs[-1] if runs else None
        if run is None or run[2] + run[1] != tensor.offset or at % step:
            # Where a page of the file is a page of the memory whole pages can go direct. Elements come first.
            ahead = (tensor.offset - at) % _containers.PAGE
            at += ahead if (at + ahead) % step == 0 else -at % step
            runs.append([at, 0, tensor.offset])
        places[name] = at
        runs[-1][1] += tensor.nbytes
        at += tensor.nbytes
    return places, [(place, nbytes, offset) for place, nbytes, offset in runs if nbytes], at


def load_safetensors(
    path: str | os.PathLike[Any],
    device: Any = "cpu",
    *,
    names: Any = None,
    container: str | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """The tensors of a safetensors file, read straight to their place in one pass.

    They are views of one allocation, which lives as long as any of them.

    :param device: ``"cpu"``, or a GPU: ``"cuda"``, ``"hip"`` or ``"gpu"``, with ``":1"`` for another than the first.
    :param names: only these; None for all.
    :param container: ``"torch"``, ``"cupy"``, ``"numpy"`` or ``"hipfile"``; None as of :meth:`hipfile.File.read`.
    :param progress: whether a progress bar is shown, by tqdm.
    :return: by name, in the order of the file's header.
    :raises SafetensorsError: the file is not in the format; nothing is loaded then.
    :raises KeyError: it has no tensor of a name.
    :raises EOFError: it was cut short while it was read.
    """
    if names is not None:
        if isinstance(names, (str, bytes)) or not hasattr(names, "__iter__"):
            raise TypeError(f"names is a list of strings, not {shown(names)}")
        names = list(names)
    with _file.open(path) as file:
        tensors = _read_header(path, file.fileno()).tensors
        if names is not None:
            missing = [name for name in names if not isinstance(name, str) or name not in tensors]
            if missing:
                raise KeyError(f"{path!r} has no tensor {shown(missing[0])}")
            wanted = set(names)
            tensors = {name: tensor for name, tensor in tensors.items() if name in wanted}
        places, runs, nbytes = _layout(tensors)
        space = _containers.space(nbytes, device, container)
        # What the container cannot show is told before anything is read.
        made = {
            name: space.array(places[name], _containers.element(tensor.dtype), tensor.shape)
            for name, tensor in tensors.items()
        }
        if nbytes:
            found = region(space.memory, writable=True)
            found.wait()
            _read(file, [(found.ptr + at, size, offset) for at, size, offset in runs], progress)
    return made


def _read(file: _file.File, pieces: list[tuple[int, int, int]], progress: bool) -> None:
    if not progress:
        _core.read_pieces(file.handle, pieces)
        return
    try:
        from tqdm import tqdm
    except ImportError:
        raise ImportError("a progress bar needs tqdm: pip install 'hipfile-rs[progress]'") from None

    total = sum(nbytes for _, nbytes, _ in pieces)
    with tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024, desc=os.path.basename(str(file.path))) as bar:
        for ptr, nbytes, offset in pieces:
            for at in range(0, nbytes, _STEP):
                size = min(_STEP, nbytes - at)
                _core.read_pieces(file.handle, [(ptr + at, size, offset + at)])
                bar.update(size)
