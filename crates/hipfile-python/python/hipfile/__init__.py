"""Files to and from GPU memory, on AMD GPUs, NVIDIA GPUs, and machines with no GPU.

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
from ._errors import HipFileException, NotRegistered, OpError, Unsupported
from .cufile import CuFile, CuFileDriver, buf_deregister, buf_register

__version__: str = _core.VERSION

__all__ = [
    "AsyncIOHandle",
    "Buffer",
    "CuFile",
    "CuFileDriver",
    "Driver",
    "FileHandle",
    "FileHandleType",
    "HipFileException",
    "NotRegistered",
    "OpError",
    "Stream",
    "Unsupported",
    "__version__",
    "buf_deregister",
    "buf_register",
    "driver_get_properties",
    "get_version",
    "supports_async",
]
