//! Names and texts of error codes, and the last error of each thread.

use core::ffi::{CStr, c_char};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::OnceLock;

use gpu_sys::hip::HipError;

use crate::thread;

/// Names and texts by code, as C strings.
fn texts() -> &'static HashMap<u32, (CString, CString)> {
    static TEXTS: OnceLock<HashMap<u32, (CString, CString)>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        HipError::NAMED
            .iter()
            .map(|(code, name)| {
                let c_string = |text: &str| CString::new(text).unwrap_or_default();
                (code.0, (c_string(name), c_string(&in_words(name))))
            })
            .collect()
    })
}

/// `hipErrorOutOfMemory` in words: "out of memory".
fn in_words(name: &str) -> String {
    if name == "hipSuccess" {
        return "no error".to_owned();
    }
    let mut words = String::new();
    for letter in name.trim_start_matches("hipError").chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

fn name(error: HipError) -> Option<&'static CStr> {
    texts().get(&error.0).map(|(name, _)| name.as_c_str())
}

fn words(error: HipError) -> Option<&'static CStr> {
    texts().get(&error.0).map(|(_, words)| words.as_c_str())
}

/// The name of a code. Never null; the strings are never freed. May be called from a host function.
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hipGetErrorName(error: HipError) -> *const c_char {
    name(error).unwrap_or(c"hipErrorUnknown").as_ptr()
}

/// A code in words. Never null; the strings are never freed. May be called from a host function.
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hipGetErrorString(error: HipError) -> *const c_char {
    words(error).unwrap_or(c"unrecognized error code").as_ptr()
}

unsafe fn put_string(to: *mut *const c_char, text: Option<&'static CStr>) -> HipError {
    if to.is_null() {
        return HipError::INVALID_VALUE;
    }
    // SAFETY: this function's callers vouch for `to`.
    unsafe { to.write(text.map_or(core::ptr::null(), CStr::as_ptr)) };
    if text.is_some() { HipError::SUCCESS } else { HipError::INVALID_VALUE }
}

/// The name of a code; hipErrorInvalidValue and a null pointer when it has none.
///
/// # Safety
/// `text` is null or may be written to.
pub unsafe extern "C" fn hipDrvGetErrorName(error: HipError, text: *mut *const c_char) -> HipError {
    // SAFETY: as this function demands.
    unsafe { put_string(text, name(error)) }
}

/// A code in words; hipErrorInvalidValue and a null pointer when it has none.
///
/// # Safety
/// `text` is null or may be written to.
pub unsafe extern "C" fn hipDrvGetErrorString(error: HipError, text: *mut *const c_char) -> HipError {
    // SAFETY: as this function demands.
    unsafe { put_string(text, words(error)) }
}

/// This thread's last error, which is forgotten.
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hipGetLastError() -> HipError {
    thread::with(|thread| thread.last_error.replace(HipError::SUCCESS))
}

/// This thread's last error, which stays.
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hipPeekAtLastError() -> HipError {
    thread::with(|thread| thread.last_error.get())
}

/// What this thread's last call returned, success included; it is forgotten.
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hipExtGetLastError() -> HipError {
    thread::with(|thread| thread.last_result.replace(HipError::SUCCESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_as_words() {
        assert_eq!(in_words("hipErrorOutOfMemory"), "out of memory");
        assert_eq!(in_words("hipSuccess"), "no error");
        assert_eq!(name(HipError::NOT_READY), Some(c"hipErrorNotReady"));
        assert_eq!(words(HipError(77_777)), None);
    }
}
