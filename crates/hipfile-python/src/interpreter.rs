//! Which interpreter of the process this is. The driver, its count and what keeps memory are the process's: the package
//! serves the main interpreter and refuses the others, whose objects may not meet those of the main one.

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// The main interpreter's number, as the interface promises.
const MAIN: i64 = 0;

/// # Errors
/// This is not the main interpreter.
pub(crate) fn check_main(_attached: Python<'_>) -> PyResult<()> {
    // SAFETY: a thread that is attached has an interpreter.
    let own = unsafe { pyo3::ffi::PyInterpreterState_Get() };
    // SAFETY: it is the one of this thread, which runs in it.
    let number = unsafe { pyo3::ffi::PyInterpreterState_GetID(own) };
    if number == MAIN {
        return Ok(());
    }
    Err(PyImportError::new_err(format!(
        "hipfile does not serve subinterpreters, and this is number {number}: import it in the main one; threads and \
         processes may use it"
    )))
}
