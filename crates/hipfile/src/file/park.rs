//! Descriptors that must not be closed: closing any descriptor of a file drops the process's POSIX locks on it. They wait
//! here for the next registration of the same file, and until the process ends otherwise. It opens nothing.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::Identity;
use crate::sys::{self, Site};

pub(super) type Key = (Identity, OFlags, bool);

/// For descriptors that nobody may be given again.
pub(super) const NO_KEY: Key = (((0, 0), 0), OFlags::empty(), false);

#[derive(Default)]
struct Parked {
    /// As `sys::forks` said when the first of them came.
    forks: u32,
    descriptors: HashMap<Key, Vec<OwnedFd>>,
}

impl Parked {
    /// In the child of a fork the numbers may be those of other files by now: neither used nor closed.
    fn of(&mut self, forks: u32) -> &mut HashMap<Key, Vec<OwnedFd>> {
        if self.forks != forks {
            std::mem::forget(std::mem::take(&mut self.descriptors));
            self.forks = forks;
        }
        &mut self.descriptors
    }
}

static PARKED: Mutex<Option<Parked>> = Mutex::new(None);

/// Nobody holds the lock for longer than a look into the map. In the child of a fork it may be held by a thread that does
/// not exist there.
const LONGEST: Duration = Duration::from_millis(200);

fn parked() -> Option<MutexGuard<'static, Option<Parked>>> {
    let started = Instant::now();
    loop {
        match PARKED.try_lock() {
            Ok(parked) => return Some(parked),
            Err(TryLockError::Poisoned(parked)) => return Some(parked.into_inner()),
            Err(TryLockError::WouldBlock) if started.elapsed() > LONGEST => return None,
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
}

/// Closes a descriptor, or parks it if that would drop locks.
pub(super) fn close(fd: OwnedFd, key: Key) {
    if sys::at(Site::FileLock, || sys::has_posix_lock(fd.as_raw_fd())) {
        match parked() {
            Some(mut parked) => {
                parked.get_or_insert_default().of(sys::forks()).entry(key).or_default().push(fd);
            }
            None => std::mem::forget(fd),
        }
    }
}

/// A parked descriptor of this file and these flags.
pub(super) fn take(key: &Key) -> Option<OwnedFd> {
    parked()?.as_mut()?.of(sys::forks()).get_mut(key)?.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_neither_uses_nor_closes_what_its_parent_parked() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let number = file.as_raw_fd();
        let mut parked = Parked::default();
        parked.of(0).entry(NO_KEY).or_default().push(file.into());
        assert_eq!(parked.of(0).len(), 1);
        assert!(parked.of(1).is_empty());
        assert!(std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok(), "it is still open");
    }

    #[test]
    fn a_lock_that_nobody_gives_back_blocks_nobody() {
        let locked = std::fs::File::open("/dev/null").unwrap();
        let _held = PARKED.lock().unwrap();
        assert!(take(&NO_KEY).is_none());
        close(locked.into(), NO_KEY);
    }
}
