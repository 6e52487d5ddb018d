"""Exceptions and the numbers of AMD's interface. Nothing here calls the library."""

from __future__ import annotations

import enum
import errno as _errno

__all__ = ["HipFileException", "NotRegistered", "OpError", "Unsupported"]


class OpError(enum.IntEnum):
    """Status codes, with the values of the C header ``hipfile.h``."""

    SUCCESS = 0
    DRIVER_NOT_INITIALIZED = 5001
    DRIVER_INVALID_PROPS = 5002
    DRIVER_UNSUPPORTED_LIMIT = 5003
    DRIVER_VERSION_MISMATCH = 5004
    DRIVER_VERSION_READ_ERROR = 5005
    DRIVER_CLOSING = 5006
    PLATFORM_NOT_SUPPORTED = 5007
    IO_NOT_SUPPORTED = 5008
    DEVICE_NOT_SUPPORTED = 5009
    DRIVER_ERROR = 5010
    HIP_DRIVER_ERROR = 5011
    HIP_POINTER_INVALID = 5012
    HIP_MEMORY_TYPE_INVALID = 5013
    HIP_POINTER_RANGE_ERROR = 5014
    HIP_CONTEXT_MISMATCH = 5015
    INVALID_MAPPING_SIZE = 5016
    INVALID_MAPPING_RANGE = 5017
    INVALID_FILE_TYPE = 5018
    INVALID_FILE_OPEN_FLAG = 5019
    DIO_NOT_SET = 5020
    INVALID_VALUE = 5022
    MEMORY_ALREADY_REGISTERED = 5023
    MEMORY_NOT_REGISTERED = 5024
    PERMISSION_DENIED = 5025
    DRIVER_ALREADY_OPEN = 5026
    HANDLE_NOT_REGISTERED = 5027
    HANDLE_ALREADY_REGISTERED = 5028
    DEVICE_NOT_FOUND = 5029
    INTERNAL_ERROR = 5030
    GET_NEW_FD_FAILED = 5031
    DRIVER_SETUP_ERROR = 5033
    IO_DISABLED = 5034
    BATCH_SUBMIT_FAILED = 5035
    GPU_MEMORY_PINNING_FAILED = 5036
    BATCH_FULL = 5037
    ASYNC_NOT_SUPPORTED = 5038
    IO_MAX_ERROR = 5039


_BY_KIND = {code.name.replace("_", "").lower(): code for code in OpError}


class HipFileException(Exception):
    """A call of the library failed.

    ``HipFileException(hipfile_err, hip_err)``; two numbers are all it takes. What the library makes itself also has
    :attr:`detail`.

    Failures of the operating system are :class:`OSError` instead where a read, a write or an open meets them.
    """

    #: One line that names the operation, the thing and the value at fault; empty if only the numbers are known.
    detail: str = ""
    #: Which entry of a list that was handed over is at fault, from 0.
    entry: int | None = None
    #: The operating system's error number beneath, if there is one.
    errno: int | None = None

    def __init__(self, hipfile_err: int, hip_err: int = 0) -> None:
        for name, number in (("hipfile_err", hipfile_err), ("hip_err", hip_err)):
            if not isinstance(number, int):
                raise TypeError(f"{name} is a whole number, not a {type(number).__qualname__}")
        super().__init__(hipfile_err, hip_err)
        self._hipfile_err = hipfile_err
        self._hip_err = hip_err

    @property
    def hipfile_err(self) -> int:
        """The status code: an :class:`OpError`, or the plain number if it is none."""
        try:
            return OpError(self._hipfile_err)
        except ValueError:
            return self._hipfile_err

    @property
    def hip_err(self) -> int:
        """The GPU runtime's own code if ``hipfile_err`` is ``HIP_DRIVER_ERROR``, else 0."""
        return self._hip_err

    @property
    def kind(self) -> str:
        """The code's name, for instance ``"INVALID_VALUE"``."""
        code = self.hipfile_err
        return code.name if isinstance(code, OpError) else str(code)

    @property
    def device_code(self) -> int | None:
        """The GPU runtime's own code; None if that did not fail."""
        return self._hip_err or None

    def __str__(self) -> str:
        text = f"{int(self._hipfile_err)} ({self.kind})"
        if self._hip_err:
            text += f", GPU runtime code {self._hip_err}"
        return f"{text}: {self.detail}" if self.detail else text


class NotRegistered(HipFileException):
    """The file or the memory is not, or no longer, registered."""


class Unsupported(HipFileException):
    """What was asked for cannot be done here: no runtime, no such kind of file, no operations on streams."""


_CLASSES = {
    OpError.HANDLE_NOT_REGISTERED: NotRegistered,
    OpError.MEMORY_NOT_REGISTERED: NotRegistered,
    OpError.PLATFORM_NOT_SUPPORTED: Unsupported,
    OpError.IO_NOT_SUPPORTED: Unsupported,
    OpError.DEVICE_NOT_SUPPORTED: Unsupported,
    OpError.ASYNC_NOT_SUPPORTED: Unsupported,
}


def make(code: OpError, detail: str = "", hip_err: int = 0) -> HipFileException:
    """The exception for a code, in the class that callers tell it by."""
    error = _CLASSES.get(code, HipFileException)(code, hip_err)
    error.detail = detail
    return error


def from_core(
    kind: str, errno: int | None, device_code: int | None, text: str, entry: int | None
) -> Exception:
    """The exception for an error of the native half. Called by it."""
    if kind == "Io" and errno is not None:
        return OSError(errno, text)
    error = make(_BY_KIND.get(kind.lower(), OpError.INTERNAL_ERROR), text, device_code or 0)
    error.errno = errno
    error.entry = entry
    return error


def driver_closing() -> Exception:
    """The exception of a call that needs the driver open. Called by the native half."""
    return make(OpError.DRIVER_CLOSING, "the driver is not open")


def driver_closed_for_io() -> Exception:
    """The exception of a read or write while the driver is closed. Called by the native half."""
    return OSError(_errno.EINVAL, "the driver is not open")


def of_parent(what: str) -> Exception:
    """The exception of a call on what another process made, of which this one is a fork. Called by the native half, too."""
    return make(OpError.DRIVER_CLOSING, f"{what} is the parent's: this process was forked since, and starts afresh")


def of_parent_for_io(what: str) -> OSError:
    """The same of reads and writes."""
    return OSError(_errno.EINVAL, f"{what} is the parent's: this process was forked since, and starts afresh")


def after(error: OSError | HipFileException, moved: int, of: int, verb: str) -> Exception:
    """An error that came when a part had been moved already: the same, and how much that was."""
    told = f"{moved} of {of} bytes were {verb} before"
    if isinstance(error, HipFileException):
        error.detail = f"{error.detail}; {told}" if error.detail else told
        return error
    return OSError(error.errno, f"{error.strerror or error}; {told}")


def as_registration(error: OSError) -> HipFileException:
    """What a failing registration raises in AMD's interface, which knows no errno there."""
    made = make(OpError.INTERNAL_ERROR, str(error.strerror or error))
    made.errno = error.errno
    return made
