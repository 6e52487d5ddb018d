//! The one file that must not outlive a failed run, and the signals that may end the run at any time. Not a general temporary
//! file: there is one per process, and it is known by directory, name and inode, so that nothing else is ever removed.
//!
//! A thread of its own waits for the signals. It does not need the cooperation of a copy that may be stuck in a slow
//! read: it removes the file and lets the signal do what it would have done. Creating and publishing hold the same lock,
//! so a signal finds the file either not there, or removable, or already the finished destination.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::AtFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

struct Scratch {
    dir: OwnedFd,
    name: OsString,
    identity: (u64, u64),
}

static SCRATCH: Mutex<Option<Scratch>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Scratch>> {
    SCRATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `open`, which must create the file `name` in `dir` anew, and remembers it for removal.
pub(crate) fn create(
    dir: &OwnedFd,
    name: &OsString,
    open: impl FnOnce() -> rustix::io::Result<OwnedFd>,
) -> rustix::io::Result<OwnedFd> {
    let dir = rustix::io::fcntl_dupfd_cloexec(dir, 0)?;
    let mut scratch = lock();
    let fd = open()?;
    let stat = rustix::fs::fstat(&fd)?;
    *scratch = Some(Scratch { dir, name: name.clone(), identity: (stat.st_dev, stat.st_ino) });
    Ok(fd)
}

/// Runs `publish`, which makes the file permanent; on success it is forgotten.
pub(crate) fn publish(publish: impl FnOnce() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    let mut scratch = lock();
    publish()?;
    *scratch = None;
    Ok(())
}

/// Removes the file, if there is one and it is still the one that was created.
pub(crate) fn discard() {
    remove(&mut lock());
}

fn remove(scratch: &mut Option<Scratch>) {
    let Some(Scratch { dir, name, identity }) = scratch.take() else {
        return;
    };
    let found = rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW);
    if found.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == identity) {
        // Whatever hinders it, there is nothing better left to do.
        let _ = rustix::fs::unlinkat(dir.as_fd(), &name, AtFlags::empty());
    }
}

/// From here on a signal that ends the process first removes the file. Signals that the caller had ignored (nohup,
/// background jobs) stay ignored. A write beyond the file size limit becomes an error instead of a signal.
pub(crate) fn watch_signals() -> io::Result<()> {
    let ignored = ignored_signals();
    let watched = [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(|signal| !ignored(*signal));
    let mut signals = Signals::new(watched)?;
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    std::thread::Builder::new().name("hipfile-signals".into()).spawn(move || {
        for signal in signals.forever() {
            let mut scratch = lock();
            remove(&mut scratch);
            // The lock is kept: the copy must not create or publish anything any more. Does not return for these signals.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

/// Which signals were ignored when the process began, as the kernel tells it; none, where /proc is not there.
fn ignored_signals() -> impl Fn(i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    move |signal| mask >> (signal - 1) & 1 == 1
}
