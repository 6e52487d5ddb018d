"""Functions by the names of C, for code that used the lower half of AMD's package.

Nothing raises: a status is ``(err, hip_err)``, and what gives a number gives ``(number, extra)`` with the ``errno`` for
-1 and the GPU runtime's code for -5011.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _amd, _core
from ._errors import HipFileException, OpError

Status = tuple[int, int]
_DONE: Status = (0, 0)


def is_hipfile_err(err: int) -> bool:
    """Whether a number is one of the library's errors, of either sign."""
    return abs(err) > 5000


def hipfile_errstr(err: int) -> str:
    """The name of an error, of either sign."""
    try:
        return OpError(abs(err)).name
    except ValueError:
        return "no status code of hipFile"


def is_hip_drv_err(status: Status) -> bool:
    """Whether a status says that the GPU runtime failed."""
    return status[0] == OpError.HIP_DRIVER_ERROR


def hip_drv_err(status: Status) -> int:
    """The GPU runtime's code in a status."""
    return status[1]


def _status(call: Callable[..., Any], *args: Any) -> Status:
    try:
        call(*args)
    except HipFileException as error:
        return int(error.hipfile_err), error.hip_err
    except OSError:
        return int(OpError.INTERNAL_ERROR), 0
    return _DONE


def _moved(call: Callable[..., int], *args: Any) -> tuple[int, int]:
    try:
        return call(*args), 0
    except HipFileException as error:
        return -int(error.hipfile_err), error.hip_err
    except OSError as error:
        return -1, error.errno or 0


def hipFileDriverOpen() -> Status:
    """See the C function."""
    return _status(_core.open_driver)


def hipFileDriverClose() -> Status:
    """See the C function."""
    return _DONE if _core.close_driver() else (int(OpError.DRIVER_NOT_INITIALIZED), 0)


def hipFileUseCount() -> int:
    """See the C function."""
    return _core.use_count()


def hipFileHandleRegister(fd: int, handle_type: int = 1) -> tuple[int | None, Status]:
    """See the C function. Gives ``(handle, status)``."""
    if handle_type != _amd.FileHandleType.OPAQUE_FD:
        return None, (int(OpError.IO_NOT_SUPPORTED), 0)
    made: list[int] = []
    status = _status(lambda: made.append(_core.register_file(fd)))
    return (made[0] if made else None), status


def hipFileHandleDeregister(handle: int) -> None:
    """See the C function."""
    _status(_core.deregister_file, handle)


def hipFileBufRegister(ptr: int, length: int, flags: int = 0) -> Status:
    """See the C function."""
    return _status(_core.register_buffer, ptr, length, flags)


def hipFileBufDeregister(ptr: int) -> Status:
    """See the C function."""
    return _status(_core.deregister_buffer, ptr)


def hipFileRead(handle: int, ptr: int, size: int, file_offset: int, buffer_offset: int) -> tuple[int, int]:
    """See the C function."""
    return _moved(_core.read, handle, ptr, size, file_offset, buffer_offset)


def hipFileWrite(handle: int, ptr: int, size: int, file_offset: int, buffer_offset: int) -> tuple[int, int]:
    """See the C function."""
    return _moved(_core.write, handle, ptr, size, file_offset, buffer_offset)


def hipFileGetVersion() -> tuple[tuple[int, int, int], Status]:
    """See the C function. Gives ``(version, status)``."""
    return _amd.get_version(), _DONE


def hipFileDriverGetProperties() -> tuple[dict[str, Any], Status]:
    """See the C function. Gives ``(properties, status)``."""
    return _amd.driver_get_properties(), _DONE
