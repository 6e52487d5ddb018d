//! Standard output: whether it was there when the program began, and writing to it so that nothing is lost in silence. What is
//! written is the tools' business.
//!
//! Rust's runtime opens /dev/null in place of a standard stream that is closed, and takes it for success when one cannot be
//! written. So what is there is looked at before the runtime gets to it, and writing goes past it.
#![allow(unsafe_code, reason = "an attribute has the loader call a function before main")]

use std::io::stdout;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::failure::{Failure, reason_of};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Called before anything else of this program.
// SAFETY: the loader calls what lies in this section, with arguments that the function does not take.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    CLOSED.store(rustix::io::fcntl_getfd(stdout()).is_err(), Ordering::Relaxed);
}

fn failed(why: impl std::fmt::Display) -> Failure {
    Failure::new("standard output", why)
}

/// Whether there is something to write to. To be asked before work whose outcome would be lost.
pub(crate) fn check() -> Result<(), Failure> {
    if CLOSED.load(Ordering::Relaxed) {
        return Err(failed("it is closed"));
    }
    match rustix::fs::fcntl_getfl(stdout()) {
        Ok(flags) if flags & OFlags::ACCMODE == OFlags::RDONLY => Err(failed("it is open for reading only")),
        Ok(_) => Ok(()),
        Err(error) => Err(failed(reason_of(error))),
    }
}

/// Writes all of it.
pub(crate) fn out(text: &str) -> Result<(), Failure> {
    check()?;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(stdout().as_fd(), rest) {
            Ok(0) => return Err(failed(reason_of(Errno::IO))),
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed(reason_of(error))),
        }
    }
    Ok(())
}
