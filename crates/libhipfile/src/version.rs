//! The header's group "Version".

use core::ffi::c_uint;

use crate::abi::*;
use crate::dispatch::forward;
use crate::guard;

/// See `include/hipfile.h`.
///
/// # Safety
/// Each argument is NULL or points to an `unsigned` that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetVersion(
    major: *mut c_uint,
    minor: *mut c_uint,
    patch: *mut c_uint,
) -> hipFileError_t {
    forward!(pfn_hipfile_get_version(major, minor, patch))
}

pub(crate) unsafe extern "C" fn get_version(
    major: *mut c_uint,
    minor: *mut c_uint,
    patch: *mut c_uint,
) -> hipFileError_t {
    guard::status(c"hipFileGetVersion", || {
        for (place, number) in
            [(major, HIPFILE_VERSION_MAJOR), (minor, HIPFILE_VERSION_MINOR), (patch, HIPFILE_VERSION_PATCH)]
        {
            if !place.is_null() {
                // SAFETY: not NULL, so it points to an unsigned that may be written to.
                unsafe { place.write(number) };
            }
        }
        Ok(())
    })
}
