//! Descriptors of the library's own that stay open for long, in a process whose program may close every number it does not know
//! and have files of its own get these. They lie out of the way, and what is not theirs any more is neither used nor closed.
//! Nothing can keep a number from being closed; who uses one asks first whether it still is what it was.

use std::ffi::OsString;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;

use rustix::fs::OFlags;
use rustix::io::FdFlags;

use crate::sys::{self, Site};

/// What a number names, as far as the system tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    dev: u64,
    ino: u64,
    mode: u32,
    flags: OFlags,
    close_on_exec: bool,
    /// Of what has no file and may share its inode with others of any kind: what /proc calls it, where there is a /proc.
    name: Option<OsString>,
}

impl Identity {
    /// What the descriptor names now; `None` when it names nothing.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Option<Identity> {
        let stat = sys::asks_twice(|| sys::at(Site::PrivateIdentity, || rustix::fs::fstat(fd))).ok()?;
        let nameless = stat.st_mode & libc::S_IFMT == 0;
        let link = || rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new()).ok();
        let name = nameless.then(link).flatten().map(|name| OsString::from_vec(name.into_bytes()));
        Some(Identity {
            dev: stat.st_dev,
            ino: stat.st_ino,
            // Access rights may be changed.
            mode: stat.st_mode & libc::S_IFMT,
            flags: rustix::fs::fcntl_getfl(fd).ok()?,
            close_on_exec: rustix::io::fcntl_getfd(fd).ok()?.contains(FdFlags::CLOEXEC),
            name,
        })
    }
}

/// A descriptor, or what has one. Dropped, it is closed if it is still what it was.
#[derive(Debug)]
pub(crate) struct Private<T: AsFd = OwnedFd> {
    thing: Option<T>,
    identity: Option<Identity>,
}

impl<T: AsFd + From<OwnedFd> + Into<OwnedFd>> Private<T> {
    /// Gives it a number that is out of the way, where the limit allows such a number.
    pub(crate) fn new(thing: T) -> Private<T> {
        let thing = T::from(sys::out_of_the_way(thing.into()));
        let identity = Identity::of(thing.as_fd());
        Private { thing: Some(thing), identity }
    }
}

impl<T: AsFd> Private<T> {
    /// Whether the number still names what it did.
    pub(crate) fn is_intact(&self) -> bool {
        self.identity.is_some() && Identity::of(self.as_fd()) == self.identity
    }
}

impl<T: AsFd> Deref for Private<T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.thing {
            Some(thing) => thing,
            None => unreachable!("it is taken out by drop only"),
        }
    }
}

impl<T: AsFd> AsFd for Private<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<T: AsFd> Drop for Private<T> {
    fn drop(&mut self) {
        if !self.is_intact() {
            std::mem::forget(self.thing.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Closes a private descriptor behind its back and lets another take its number.
    fn check<T: AsFd + From<OwnedFd> + Into<OwnedFd>>(thing: T, other: BorrowedFd<'_>) {
        let private = Private::new(thing);
        let number = private.as_fd().as_raw_fd();
        assert!(number >= 512 && private.is_intact());
        // SAFETY: as a program does it that closes what it does not know; the test uses the number no more as what it was.
        assert_eq!(unsafe { libc::close(number) }, 0);
        assert!(!private.is_intact());
        // SAFETY: the number is free.
        assert_eq!(unsafe { libc::dup3(other.as_raw_fd(), number, libc::O_CLOEXEC) }, number);
        assert!(!private.is_intact());
        drop(private);
        // SAFETY: it was opened above.
        let still = unsafe { BorrowedFd::borrow_raw(number) };
        assert!(rustix::fs::fstat(still).is_ok(), "a stranger's descriptor is not closed");
        // SAFETY: as above.
        assert_eq!(unsafe { libc::close(number) }, 0);
    }

    #[test]
    fn what_became_a_strangers_is_left_alone() {
        let event = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let file = || OwnedFd::from(tempfile::tempfile().unwrap());
        let memory = || rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let socket = || UnixListener::bind(tempfile::tempdir().unwrap().path().join("s")).unwrap();
        check(file(), file().as_fd());
        check(memory(), memory().as_fd());
        check(socket(), socket().as_fd());
        check(
            event(),
            rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap().as_fd(),
        );
    }

    #[test]
    fn what_is_intact_is_closed() {
        let private = Private::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let number = private.as_raw_fd();
        drop(private);
        // SAFETY: it is only asked whether there is such a descriptor.
        let gone = unsafe { BorrowedFd::borrow_raw(number) };
        assert!(Identity::of(gone).is_none());
    }
}
