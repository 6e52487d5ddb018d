//! The one table between the core's [`ErrorKind`] and C's `hipFileOpError_t`, and the codes' texts. Which code a failure
//! deserves is not decided here.

use core::ffi::{CStr, c_char};

use hipfile::ErrorKind;

use crate::abi::*;
use crate::dispatch::forward;

macro_rules! table {
    ($($kind:ident = $status:ident: $text:literal;)*) => {
        const KINDS: &[(ErrorKind, hipFileOpError_t)] = &[$((ErrorKind::$kind, $status)),*];
        const TEXTS: &[(hipFileOpError_t, &CStr)] = &[
            (hipFileSuccess, c"success"),
            $(($status, $text),)*
            (hipFileIOMaxError, c"end of the range of hipFile status codes; not an error"),
        ];
    };
}

table! {
    DriverNotInitialized = hipFileDriverNotInitialized: c"the driver is not open";
    DriverInvalidProps = hipFileDriverInvalidProps: c"the driver's properties are invalid";
    DriverUnsupportedLimit = hipFileDriverUnsupportedLimit: c"a driver setting is out of range";
    DriverVersionMismatch = hipFileDriverVersionMismatch: c"library and kernel driver differ in version";
    DriverVersionReadError = hipFileDriverVersionReadError: c"the kernel driver's version cannot be read";
    DriverClosing = hipFileDriverClosing: c"the driver is closed or closing";
    PlatformNotSupported = hipFilePlatformNotSupported: c"no GPU runtime is present";
    IONotSupported = hipFileIONotSupported: c"this kind of I/O or handle is not supported";
    DeviceNotSupported = hipFileDeviceNotSupported: c"this GPU is not supported";
    DriverError = hipFileDriverError: c"the kernel driver failed";
    HipDriverError = hipFileHipDriverError: c"the GPU runtime failed";
    HipPointerInvalid = hipFileHipPointerInvalid: c"not a valid device pointer";
    HipMemoryTypeInvalid = hipFileHipMemoryTypeInvalid: c"this type of memory is not accepted";
    HipPointerRangeError = hipFileHipPointerRangeError: c"the range leaves its allocation";
    HipContextMismatch = hipFileHipContextMismatch: c"the wrong GPU context is current";
    InvalidMappingSize = hipFileInvalidMappingSize: c"the mapping has the wrong size";
    InvalidMappingRange = hipFileInvalidMappingRange: c"the mapping has the wrong range";
    InvalidFileType = hipFileInvalidFileType: c"a pipe, socket or directory cannot be registered";
    InvalidFileOpenFlag = hipFileInvalidFileOpenFlag: c"the file was opened with an unsuitable flag";
    DIONotSet = hipFileDIONotSet: c"the file was opened without O_DIRECT";
    InvalidValue = hipFileInvalidValue: c"an argument is invalid";
    MemoryAlreadyRegistered = hipFileMemoryAlreadyRegistered: c"the buffer is registered already";
    MemoryNotRegistered = hipFileMemoryNotRegistered: c"the buffer is not registered";
    PermissionDenied = hipFilePermissionDenied: c"permission denied";
    DriverAlreadyOpen = hipFileDriverAlreadyOpen: c"not possible while the driver is open";
    HandleNotRegistered = hipFileHandleNotRegistered: c"the file handle is not registered";
    HandleAlreadyRegistered = hipFileHandleAlreadyRegistered: c"the file descriptor is registered already";
    DeviceNotFound = hipFileDeviceNotFound: c"there is no such GPU";
    InternalError = hipFileInternalError: c"internal error, or not available in this version";
    GetNewFDFailed = hipFileGetNewFDFailed: c"no further file descriptor can be opened";
    DriverSetupError = hipFileDriverSetupError: c"the driver cannot be set up";
    IODisabled = hipFileIODisabled: c"I/O is disabled";
    BatchSubmitFailed = hipFileBatchSubmitFailed: c"the batch cannot be submitted";
    GPUMemoryPinningFailed = hipFileGPUMemoryPinningFailed: c"GPU memory cannot be pinned";
    BatchFull = hipFileBatchFull: c"the batch has too few free places";
    AsyncNotSupported = hipFileAsyncNotSupported: c"stream operations are not possible here";
}

const UNKNOWN: &CStr = c"not a hipFile status code; perhaps one of the GPU runtime or an errno";

/// C's code for a kind of error. An operating system error has none of its own: callers that can return an errno do so,
/// the others say `hipFileInternalError`.
pub fn from_kind(kind: ErrorKind) -> hipFileOpError_t {
    KINDS.iter().find(|row| row.0 == kind).map_or(hipFileInternalError, |row| row.1)
}

/// The kind of error behind a code; `None` for success, for the top mark and for numbers that are no code.
pub fn to_kind(status: hipFileOpError_t) -> Option<ErrorKind> {
    KINDS.iter().find(|row| row.1 == status).map(|row| row.0)
}

/// The code's text. A negative number means its positive twin, as in the results of reads and writes.
pub fn text(status: hipFileOpError_t) -> &'static CStr {
    let number = status.0.unsigned_abs();
    TEXTS.iter().find(|row| row.0.0.unsigned_abs() == number).map_or(UNKNOWN, |row| row.1)
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileGetOpErrorString(status: hipFileOpError_t) -> *const c_char {
    forward!(pfn_hipfile_get_op_error_string(status))
}

pub(crate) extern "C" fn get_op_error_string(status: hipFileOpError_t) -> *const c_char {
    // Outside the guard: nothing in here can fail, and an error text must not replace the last error.
    text(status).as_ptr()
}
