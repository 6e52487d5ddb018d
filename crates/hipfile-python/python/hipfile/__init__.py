"""Files to and from GPU memory, on AMD GPUs, NVIDIA GPUs, and machines with no GPU.

:func:`open` gives files that read into arrays and write from them; :func:`load_safetensors`, :func:`load_npy` and
:func:`save_npy` know file formats; :class:`Batch` hands many transfers over at once. Arrays are whatever has
``__cuda_array_interface__``, DLPack or the buffer protocol, and plain addresses.

The names of AMD's package ``hipfile`` are here with their signatures and exceptions, so that code written for it runs
unchanged. On a machine with no GPU the package works on an emulated one, and says so on standard error.
"""

from __future__ import annotations

from . import _core
from ._amd import (
    AsyncIOHandle,
    Buffer,
    Driver,
    FileHandle,
    FileHandleType,
    Stream,
    driver_get_properties,
    get_version,
    supports_async,
)
from ._array import DeviceArray
from ._batch import Batch, Result
from ._errors import HipFileException, NotRegistered, OpError, Unsupported
from ._file import File, open
from ._futures import Future
from ._memory import AUTO
from ._npy import load_npy, save_npy
from ._report import Availability, available, check, settings, stats
from ._safetensors import SafetensorsError, load_safetensors, safetensors_header
from .cufile import CuFile, CuFileDriver, buf_deregister, buf_register

__version__: str = _core.VERSION

__all__ = [
    "AUTO",
    "AsyncIOHandle",
    "Availability",
    "Batch",
    "Buffer",
    "CuFile",
    "CuFileDriver",
    "DeviceArray",
    "Driver",
    "File",
    "FileHandle",
    "FileHandleType",
    "Future",
    "HipFileException",
    "NotRegistered",
    "OpError",
    "Result",
    "SafetensorsError",
    "Stream",
    "Unsupported",
    "__version__",
    "available",
    "buf_deregister",
    "buf_register",
    "check",
    "driver_get_properties",
    "get_version",
    "load_npy",
    "load_safetensors",
    "open",
    "safetensors_header",
    "save_npy",
    "settings",
    "stats",
    "supports_async",
]


def _warn_of_namesake() -> None:
    """AMD's package has the same import name: which of the two a program gets is then up to chance."""
    from importlib import metadata

    try:
        theirs = metadata.version("hipfile")
    except metadata.PackageNotFoundError:
        return
    import warnings

    warnings.warn(
        f"the distributions hipfile {theirs} and hipfile-rs {__version__} are both installed, and both are imported as "
        "hipfile: uninstall one of them",
        RuntimeWarning,
        stacklevel=3,
    )


_warn_of_namesake()
