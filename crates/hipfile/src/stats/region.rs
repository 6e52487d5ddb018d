//! Memory for pages of statistics: words that this process writes and others may read, or the other way round. It knows no
//! layout.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use crate::private::Private;
use crate::sys::{self, Site};

/// A mapping of words. Each word is read and written whole, by any number of threads and processes.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<c_void>,
    words: usize,
    /// What can be handed to other processes; `None` for memory of this process alone.
    file: Option<Private>,
}

// SAFETY: the mapping belongs to the value and is reached through atomic words only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Words of zero that may be shared; where the system refuses that, words of this process alone.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn new(name: &str, words: usize) -> Result<Region, Errno> {
        match shared(name, words) {
            Ok(file) => match map(Some(file.as_fd()), words, ProtFlags::READ | ProtFlags::WRITE) {
                // From here on nobody else can write to it, nor make it shorter.
                Ok(start) if seal(&file) => Ok(Region { start, words, file: Some(Private::new(file)) }),
                Ok(start) => {
                    drop(Region { start, words, file: None });
                    Region::private(words)
                }
                Err(_) => Region::private(words),
            },
            Err(_) => Region::private(words),
        }
    }

    fn private(words: usize) -> Result<Region, Errno> {
        let start = map(None, words, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Region { start, words, file: None })
    }

    /// Another process's words, to be read. The file must be one that cannot become shorter: reading beyond its end would
    /// end this process.
    ///
    /// # Errors
    /// It cannot be mapped.
    pub(crate) fn of(file: OwnedFd, words: usize) -> Result<Region, Errno> {
        let start = map(Some(file.as_fd()), words, ProtFlags::READ)?;
        Ok(Region { start, words, file: None })
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many words, is aligned to a page, and lives as long as the value. Zeroes are values,
        // and nobody accesses it other than by whole words. A mapping that may only be read is only read: who has made it by
        // `of` writes nothing.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.words) }
    }

    /// What to hand to who wants to read, unless somebody has closed it.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().filter(|file| file.is_intact()).map(AsFd::as_fd)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, of this length, and nobody has it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.words * 8) };
    }
}

fn shared(name: &str, words: usize) -> Result<OwnedFd, Errno> {
    let bytes = words as u64 * 8;
    // A file beyond this limit is answered with a signal.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes) {
        return Err(Errno::FBIG);
    }
    sys::at(Site::StatisticsPage, || {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes)?;
        Ok(file)
    })
}

fn seal(file: &OwnedFd) -> bool {
    // Who receives it may open it anew for writing, and could make it longer: readers refuse that.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
    sys::at(Site::StatisticsSeal, || rustix::fs::fcntl_add_seals(file, seals)).is_ok()
}

fn map(file: Option<BorrowedFd<'_>>, words: usize, access: ProtFlags) -> Result<NonNull<c_void>, Errno> {
    let (nowhere, len) = (std::ptr::null_mut(), words * 8);
    let start = sys::at(Site::StatisticsMap, || match file {
        // SAFETY: a new mapping at a place of the kernel's choice disturbs nothing.
        Some(file) => unsafe { rustix::mm::mmap(nowhere, len, access, MapFlags::SHARED, file, 0) },
        // SAFETY: as above.
        None => unsafe { rustix::mm::mmap_anonymous(nowhere, len, access, MapFlags::PRIVATE) },
    })?;
    NonNull::new(start).ok_or(Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_reader_sees_the_words_and_cannot_write_them() {
        let region = Region::new("hipfile-test", 100).unwrap();
        let file = region.file().expect("this system has memory files");
        let copy = file.try_clone_to_owned().unwrap();
        let refused = map(Some(copy.as_fd()), 100, ProtFlags::READ | ProtFlags::WRITE);
        assert_eq!(refused.unwrap_err(), Errno::PERM);
        assert!(rustix::fs::ftruncate(&copy, 8).is_err());
        let reader = Region::of(copy, 100).unwrap();
        region.words()[99].store(7, Ordering::Relaxed);
        assert_eq!(reader.words()[99].load(Ordering::Relaxed), 7);
    }
}
