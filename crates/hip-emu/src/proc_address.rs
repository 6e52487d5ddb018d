//! The functions of the `proc_address` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipGetProcAddress(
    _symbol: *const c_char,
    _function: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
    _status: *mut ProcAddressStatus,
) -> HipError {
    HipError::NOT_SUPPORTED
}
