//! What every entry of the runtime does first and last: refuse calls from host functions, count, fail on demand, remember
//! the error.

use core::ffi::{CStr, c_char};

use gpu_sys::hip::HipError;

use crate::fault::{self, Fault};
use crate::function::Function;
use crate::state::{self, State};
use crate::sys;
use crate::thread;

/// Runs the body of a HIP function.
#[inline]
pub(crate) fn call(
    function: Function,
    body: impl FnOnce(&'static State) -> Result<(), HipError>,
) -> HipError {
    let result = call_quietly(function, |state, _| body(state));
    remember(result);
    result
}

/// As [`call`], for the few functions that leave the thread's last error alone and see the other kinds of faults.
#[inline]
pub(crate) fn call_quietly(
    function: Function,
    body: impl FnOnce(&'static State, Option<Fault>) -> Result<(), HipError>,
) -> HipError {
    refuse_in_host_function(function);
    let outcome = match state::get() {
        Err(error) => Err(error),
        Ok(state) => match fault::hit(function) {
            Some(Fault::Error(error)) => Err(error),
            other => body(state, other),
        },
    };
    match outcome {
        Ok(()) => HipError::SUCCESS,
        Err(error) => error,
    }
}

/// HIP forbids calls from host functions; on real hardware they deadlock now and then. Here they end the process at once.
#[inline]
pub(crate) fn refuse_in_host_function(function: Function) {
    if thread::with(|thread| thread.in_host_function.get()) {
        die_in_host_function(function.name(), "HIP");
    }
}

/// The same for a function of CUDA's.
pub(crate) fn refuse_in_host_function_named(name: &str) {
    if thread::with(|thread| thread.in_host_function.get()) {
        die_in_host_function(name, "CUDA");
    }
}

#[cold]
fn die_in_host_function(name: &str, whose: &str) -> ! {
    sys::die(&format!("{name} was called from inside a host function of a stream, which {whose} forbids"))
}

/// Keeps the result for the functions that ask for the last error. From HIP 7.0 on, neither success nor hipErrorNotReady
/// replaces an error; before, every call did.
#[inline]
fn remember(result: HipError) {
    thread::with(|thread| {
        thread.last_result.set(result);
        let is_error = result != HipError::SUCCESS && result != HipError::NOT_READY;
        // The look at the version is left to the rare case that it could matter.
        if is_error || (result != thread.last_error.get() && is_older_than_7()) {
            thread.last_error.set(result);
        }
    });
}

#[cold]
fn is_older_than_7() -> bool {
    !state::get().is_ok_and(|state| state.is_at_least(7, 0))
}

/// Writes an answer through the caller's pointer.
///
/// # Errors
/// hipErrorInvalidValue when it is null.
///
/// # Safety
/// A pointer that is not null may be written to.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), HipError> {
    if to.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: the caller vouches for a pointer that is not null; C callers align their variables.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a string and its NUL into the caller's buffer of `len` bytes.
///
/// # Errors
/// hipErrorInvalidValue when the buffer is null or too small.
///
/// # Safety
/// A buffer that is not null has `len` bytes.
pub(crate) unsafe fn put_text(to: *mut c_char, len: i32, text: &str) -> Result<(), HipError> {
    let needed = text.len() + 1;
    if to.is_null() || usize::try_from(len).is_ok_and(|len| len < needed) || len < 0 {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: the buffer holds `len` bytes, no fewer than the text and its NUL.
    unsafe { core::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), to, text.len()) };
    // SAFETY: as above.
    let end = unsafe { to.add(text.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(())
}

/// Reads the caller's string.
///
/// # Errors
/// hipErrorInvalidValue when it is null.
///
/// # Safety
/// A pointer that is not null leads to a NUL-terminated string that does not change during the call.
pub(crate) unsafe fn text<'a>(from: *const c_char) -> Result<&'a CStr, HipError> {
    if from.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: the caller vouches for it.
    Ok(unsafe { CStr::from_ptr(from) })
}
