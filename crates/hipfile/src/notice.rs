//! Lines on standard error that must not go unseen: rare, one each. Not the log, which is told of them too (`tracing`, target
//! [`TARGET`]); nothing on the way of data comes here.

use std::os::fd::{AsFd, BorrowedFd};

use crate::sys;

/// The target of the events that tell listeners what was said on standard error.
pub const TARGET: &str = "hipfile::notice";

/// Writes one line to standard error, prefixed with the library's name, and tells listeners of it. A closed or full standard
/// error is not our failure.
pub fn line(text: std::fmt::Arguments<'_>) {
    let line = format!("hipfile: {text}\n");
    let _ = write(std::io::stderr().as_fd(), line.as_bytes());
    tracing::event!(name: "notice", target: TARGET, tracing::Level::WARN, "{text}");
}

/// Writes bytes that belong together, in one piece where the file takes them so. Takes no lock, so that a thread that is
/// stopped in it stops no other, and no fork can leave one locked; raises no SIGPIPE.
///
/// # Errors
/// Of the system; what was written until then stays.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> std::io::Result<()> {
    sys::without_sigpipe(|| {
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(fd, rest) {
                Ok(0) => return Err(rustix::io::Errno::IO),
                Ok(n) => rest = &rest[n..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })
    .map_err(Into::into)
}
