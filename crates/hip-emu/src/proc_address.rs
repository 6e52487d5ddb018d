//! Looking functions up by name at run time.

use core::ffi::{c_char, c_int, c_void};

use gpu_sys::hip::{HipError, PROC_ADDRESS_NOT_FOUND, PROC_ADDRESS_SUCCESS, ProcAddressStatus};

use crate::call::{call, put, text};
use crate::function::Function;

/// `HIP_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`, the highest flag.
const HIGHEST_FLAG: u64 = 2;

/// The address of a function of this runtime, of `hipAmdFileRead` and `hipAmdFileWrite` too, which no header declares. The
/// functions of hiprtc are another library's. Every version of a name is the same function here.
///
/// # Errors
/// hipErrorInvalidValue for null, an empty or unknown name, and unknown flags; the status says which.
///
/// # Safety
/// `symbol` is null or a NUL-terminated string; `function` and `status` are null or may be written to.
pub unsafe extern "C" fn hipGetProcAddress(
    symbol: *const c_char,
    function: *mut *mut c_void,
    _version: c_int,
    flags: u64,
    status: *mut ProcAddressStatus,
) -> HipError {
    call(Function::hipGetProcAddress, |state| {
        // SAFETY: as this function demands.
        let name = unsafe { text(symbol) }?.to_str().map_err(|_| HipError::INVALID_VALUE)?;
        if name.is_empty() || function.is_null() || flags > HIGHEST_FLAG {
            return Err(HipError::INVALID_VALUE);
        }
        let name = if name == "hipGetDeviceProperties" { "hipGetDevicePropertiesR0600" } else { name };
        let found = Function::by_name(name).filter(|found| {
            !found.is_rtc() && !state.options.hide.iter().any(|hidden| hidden == found.name())
        });
        if !status.is_null() {
            let answer = if found.is_some() { PROC_ADDRESS_SUCCESS } else { PROC_ADDRESS_NOT_FOUND };
            // SAFETY: as this function demands.
            unsafe { put(status, answer) }?;
        }
        let address = found.map_or(core::ptr::null_mut(), Function::address);
        // SAFETY: as this function demands.
        unsafe { put(function, address) }?;
        if found.is_some() { Ok(()) } else { Err(HipError::INVALID_VALUE) }
    })
}
