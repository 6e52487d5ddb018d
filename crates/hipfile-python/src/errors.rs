//! Errors of the core as Python exceptions. The classes, and the numbers of AMD's interface, are the Python half's.

use hipfile::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// `hipfile._errors.from_core`, which makes the exception.
static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The exception for an error: an `OSError` for an errno, else a `HipFileException`.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    match make(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        // Only when the package itself is damaged.
        Err(damage) => damage,
    }
}

fn make<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let make =
        MAKE.get_or_try_init(py, || py.import("hipfile._errors")?.getattr("from_core").map(Bound::unbind))?;
    let kind = error.kind().name();
    make.bind(py).call1((kind, error.os_error(), error.device_code(), error.to_string(), error.entry()))
}

/// A result of the core as one of Python.
pub(crate) trait ForPython<T> {
    /// The value, or the exception.
    fn for_python(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> ForPython<T> for hipfile::Result<T> {
    fn for_python(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}
