//! What every entry point runs inside: panics become codes, errno is left alone or written last, the thread's last
//! failure is kept. It knows how a failure looks in C, not why it happened.

use core::ffi::{CStr, c_int};
use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hipfile::ErrorKind;

use crate::abi::*;
use crate::status;

/// Why an entry point fails.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The core says so.
    Core(hipfile::Error),
    /// Found at the edge, with the code C gets.
    Edge { status: hipFileOpError_t, text: Cow<'static, str> },
    /// Found at the edge; where C can be given an errno it gets this one.
    Errno { errno: c_int, text: Cow<'static, str> },
}

impl From<hipfile::Error> for Failure {
    fn from(error: hipfile::Error) -> Failure {
        Failure::Core(error)
    }
}

/// How a failure looks to the caller.
#[derive(Clone, Copy)]
enum Shape {
    Errno(c_int),
    Status(hipFileError_t),
}

impl Failure {
    pub(crate) fn new(status: hipFileOpError_t, text: impl Into<Cow<'static, str>>) -> Failure {
        Failure::Edge { status, text: text.into() }
    }

    pub(crate) fn errno(errno: c_int, text: impl Into<Cow<'static, str>>) -> Failure {
        Failure::Errno { errno, text: text.into() }
    }

    fn panic(payload: Box<dyn Any + Send>) -> Failure {
        let what = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => (*text).to_owned(),
            (_, Some(text)) => text.clone(),
            _ => "no message".to_owned(),
        };
        // Dropping a payload may panic again; a leak after a bug is the smaller harm.
        std::mem::forget(payload);
        Failure::new(hipFileInternalError, format!("bug in hipfile: panic: {what}"))
    }

    /// Why, in words.
    fn text(&self) -> Cow<'_, str> {
        match self {
            Failure::Core(error) => error.to_string().into(),
            Failure::Edge { text, .. } | Failure::Errno { text, .. } => text.as_ref().into(),
        }
    }

    fn os_error(&self) -> Option<c_int> {
        match self {
            Failure::Core(error) => error.os_error(),
            Failure::Edge { .. } => None,
            Failure::Errno { errno, .. } => Some(*errno),
        }
    }

    fn shape(&self) -> Shape {
        let plain = |err| Shape::Status(hipFileError_t { err, hip_drv_err: hipSuccess });
        match self {
            Failure::Edge { status, .. } => plain(*status),
            Failure::Errno { errno, .. } => Shape::Errno(*errno),
            Failure::Core(error) => match error.kind() {
                ErrorKind::Io => Shape::Errno(error.os_error().unwrap_or(libc::EIO)),
                kind @ ErrorKind::HipDriverError => Shape::Status(hipFileError_t {
                    err: status::from_kind(kind),
                    hip_drv_err: error.device_code().unwrap_or(hipSuccess),
                }),
                kind => plain(status::from_kind(kind)),
            },
        }
    }

    /// For functions that have only a `hipFileError_t` to answer with: an errno becomes an internal error.
    pub(crate) fn as_status(&self) -> hipFileError_t {
        match self.shape() {
            Shape::Status(status) => status,
            Shape::Errno(_) => hipFileError_t { err: hipFileInternalError, hip_drv_err: hipSuccess },
        }
    }
}

/// Success, as C sees it.
const SUCCESS: hipFileError_t = hipFileError_t { err: hipFileSuccess, hip_drv_err: hipSuccess };

/// Runs an entry point that answers with a status.
pub(crate) fn status(function: &'static CStr, body: impl FnOnce() -> Result<(), Failure>) -> hipFileError_t {
    run(body, |result| match result {
        Ok(()) => (SUCCESS, None),
        Err(failure) => {
            let status = failure.as_status();
            record(function, failure, status);
            (status, None)
        }
    })
}

/// Runs an entry point that answers with a count of bytes: -1 and errno, or a negative code, on failure.
pub(crate) fn count(function: &'static CStr, body: impl FnOnce() -> Result<usize, Failure>) -> isize {
    run(body, |result| match result {
        // The core moves at most 0x7ffff000 bytes in one call.
        Ok(n) => (n as isize, None),
        Err(failure) => {
            let (value, status, errno) = match failure.shape() {
                Shape::Errno(errno) => (-1, SUCCESS, Some(errno)),
                Shape::Status(status) => {
                    // A code that is not positive would read as success; the kind is all that can be said then.
                    let device = status.err == hipFileHipDriverError && status.hip_drv_err > 0;
                    let code = if device { status.hip_drv_err } else { status.err.0 };
                    (-(code as isize), status, None)
                }
            };
            record(function, failure, status);
            (value, errno)
        }
    })
}

/// Runs an entry point that answers with something else, which cannot say why it failed.
pub(crate) fn value<T>(failed: T, body: impl FnOnce() -> T) -> T {
    run(|| Ok(body()), |result| (result.unwrap_or(failed), None))
}

/// The wrapper itself. `finish` turns the outcome into the answer and the errno to leave behind, if any.
fn run<T, R>(
    body: impl FnOnce() -> Result<T, Failure>,
    finish: impl FnOnce(Result<T, Failure>) -> (R, Option<c_int>),
) -> R {
    let before = errno();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(Failure::panic(panic)));
    let (answer, after) = finish(result);
    set_errno(after.unwrap_or(before));
    answer
}

/// Runs what may change errno, and changes it back.
pub(crate) fn leaving_errno(body: impl FnOnce()) {
    let before = errno();
    body();
    set_errno(before);
}

pub(crate) fn errno() -> c_int {
    // SAFETY: it takes no argument and returns the address of this thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid and aligned as long as the thread lives.
    unsafe { place.read() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: it takes no argument and returns the address of this thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid and aligned as long as the thread lives, and no reference to it exists.
    unsafe { place.write(value) };
}

/// The last failure on a thread. The text is made when it is asked for, so that failing stays cheap.
pub(crate) struct LastError {
    pub(crate) function: &'static CStr,
    pub(crate) status: hipFileError_t,
    pub(crate) os_error: c_int,
    text: Option<CString>,
    failure: Option<Failure>,
}

impl LastError {
    /// One line; lives until the thread's next failure.
    pub(crate) fn text(&self) -> &CStr {
        self.text.as_deref().unwrap_or_default()
    }
}

thread_local! {
    static LAST: RefCell<LastError> = const {
        RefCell::new(LastError { function: c"", status: SUCCESS, os_error: 0, text: None, failure: None })
    };
}

fn record(function: &'static CStr, failure: Failure, status: hipFileError_t) {
    tracing::event!(
        name: "call fails",
        target: "hipfile",
        tracing::Level::DEBUG,
        function = %function.to_string_lossy(),
        error = %failure.text(),
        "call fails"
    );
    let os_error = failure.os_error().unwrap_or(0);
    // A thread that is going away has nobody left to ask.
    let _ = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        last.function = function;
        last.status = status;
        last.os_error = os_error;
        last.failure = Some(failure);
    });
}

/// Makes a failure that came about elsewhere, later, the calling thread's last one.
pub(crate) fn retell(function: &'static CStr, failure: Failure) {
    let status = match failure.shape() {
        Shape::Status(status) => status,
        Shape::Errno(_) => SUCCESS,
    };
    record(function, failure, status);
}

/// Shows the calling thread's last failure, with its text.
pub(crate) fn with_last<T>(show: impl FnOnce(&LastError) -> T) -> Option<T> {
    LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        if let Some(failure) = last.failure.take() {
            let why = failure.text();
            let line = format!("{}: {why}", last.function.to_string_lossy()).replace(['\0', '\n'], " ");
            last.text = CString::new(line).ok();
        }
        show(&last)
    })
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: c_int = 4242;

    fn failing_at(errno: c_int) -> Result<usize, Failure> {
        set_errno(1);
        Err(Failure::errno(errno, "because"))
    }

    #[test]
    fn a_panic_becomes_an_internal_error_and_is_told() {
        set_errno(MARK);
        let answer = status(c"f", || panic!("number {}", 7));
        assert_eq!((answer.err, answer.hip_drv_err), (hipFileInternalError, 0));
        with_last(|last| assert_eq!(last.text(), c"f: bug in hipfile: panic: number 7"));
        assert_eq!(count(c"g", || panic!("plain")), -5030);
        with_last(|last| assert_eq!(last.text(), c"g: bug in hipfile: panic: plain"));
        assert_eq!(value(-1, || panic!("no way to tell")), -1);
        with_last(|last| assert_eq!(last.function, c"g", "it records nothing"));
        assert_eq!(errno(), MARK);
    }

    #[test]
    fn a_payload_that_panics_when_dropped_does_not_escape() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        assert_eq!(status(c"f", || std::panic::panic_any(Bomb)).err, hipFileInternalError);
        with_last(|last| assert_eq!(last.text(), c"f: bug in hipfile: panic: no message"));
    }

    #[test]
    fn errno_is_written_with_minus_one_and_kept_otherwise() {
        set_errno(MARK);
        let moved = count(c"f", || {
            set_errno(1);
            Ok(10)
        });
        assert_eq!((moved, errno()), (10, MARK));
        assert_eq!((count(c"f", || failing_at(libc::EIO)), errno()), (-1, libc::EIO));
        set_errno(MARK);
        assert_eq!(status(c"f", || failing_at(libc::EIO).map(drop)).err, hipFileInternalError);
        assert_eq!(errno(), MARK);
        with_last(|last| assert_eq!((last.os_error, last.status.err), (libc::EIO, hipFileInternalError)));
        assert_eq!(count(c"f", || Err(Failure::new(hipFileInvalidValue, "x"))), -5022);
        assert_eq!(errno(), MARK);
    }

    #[test]
    fn the_text_is_one_c_string_whatever_the_reason_holds() {
        status(c"f", || Err(Failure::new(hipFileInvalidValue, "two\nlines and a \0")));
        with_last(|last| assert_eq!(last.text(), c"f: two lines and a  "));
    }
}
