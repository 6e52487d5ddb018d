//! Numbers as Python gives them, each by what it means: one that does not fit is a ValueError with its value, at every
//! door. Whether a number that fits is acceptable is the core's to say.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

/// A number that is told without its digits if they are too many to read.
fn shown(value: Borrowed<'_, '_, PyAny>) -> String {
    let text = value.str().map(|text| text.to_string()).unwrap_or_default();
    if (1..=40).contains(&text.len()) { text } else { "a number of very many digits".to_owned() }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name(pub(crate) $inner);

        impl FromPyObject<'_, '_> for $name {
            type Error = PyErr;

            fn extract(value: Borrowed<'_, '_, PyAny>) -> Result<Self, PyErr> {
                value.extract::<$inner>().map($name).map_err(|error| {
                    if !error.is_instance_of::<PyOverflowError>(value.py()) {
                        return error;
                    }
                    let (value, least, most) = (shown(value), <$inner>::MIN, <$inner>::MAX);
                    PyValueError::new_err(format!("{} is {least} to {most}, not {value}", $what))
                })
            }
        }
    };
}

number!(
    /// Where memory begins.
    Address, usize, "an address"
);
number!(
    /// A number of bytes.
    Size, usize, "a number of bytes"
);
number!(
    /// A place in a file or in memory, in bytes.
    Offset, i64, "an offset"
);
number!(
    /// A registered file.
    Handle, u64, "the handle of a file"
);
number!(
    /// A stream of the GPU runtime.
    StreamHandle, usize, "the handle of a stream"
);
number!(
    /// A GPU.
    Ordinal, u32, "the number of a GPU"
);
number!(
    /// A descriptor of the operating system.
    Descriptor, i32, "a file descriptor"
);
number!(
    /// Flags of a registration.
    Flags, i32, "flags"
);
number!(
    /// A number of things.
    Count, usize, "a count"
);

/// A time to wait, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(pub(crate) f64);

impl FromPyObject<'_, '_> for Seconds {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> Result<Self, PyErr> {
        match value.extract::<f64>() {
            Ok(seconds) if seconds.is_nan() => {
                Err(PyValueError::new_err("a timeout is a number of seconds, not NaN"))
            }
            Ok(seconds) => Ok(Seconds(seconds)),
            // A whole number that no f64 holds: longer than anything lasts, or long ago.
            Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
                Ok(Seconds(if value.lt(0)? { 0.0 } else { f64::INFINITY }))
            }
            Err(error) => Err(error),
        }
    }
}
