//! The file that is measured on: one of the user's, which is only read unless told otherwise, or one made for the occasion and
//! removed afterwards.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use bench_support::HugePages;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::disk::Disk;
use crate::failure::Failure;
use crate::scratch;

/// Bytes written at a time when a file is made.
const PIECE: usize = 4 << 20;

/// A file, open in the ways that the contenders need.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) path: PathBuf,
    buffered: OwnedFd,
    /// The same file with O_DIRECT, or why not.
    direct: Result<OwnedFd, Errno>,
    pub(super) size: u64,
    pub(super) fs_type: String,
    pub(super) disk: Result<Disk, String>,
    writable: bool,
    /// Whether it was made here and goes away with this value.
    temporary: bool,
}

impl Subject {
    /// A file that exists.
    pub(super) fn open(path: &Path, write: bool) -> Result<Subject, Failure> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let buffered =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|error| Failure::os(path, error))?;
        let stat = rustix::fs::fstat(&buffered).map_err(|error| Failure::os(path, error))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if write && kind == FileType::BlockDevice {
            // For a block device the flag means: not while it is mounted or otherwise in use. What it holds is given up
            // by --destroy, a system that runs on it is not.
            rustix::fs::open(path, flags | OFlags::EXCL, Mode::empty()).map_err(|error| match error {
                Errno::BUSY => Failure::at(path, "it is mounted, or otherwise in use"),
                error => Failure::os(path, error),
            })?;
        }
        let size = match kind {
            FileType::RegularFile => stat.st_size as u64,
            FileType::BlockDevice => {
                rustix::fs::seek(&buffered, rustix::fs::SeekFrom::End(0)).map_err(|e| Failure::os(path, e))?
            }
            _ => return Err(Failure::at(path, "not a regular file or block device")),
        };
        Ok(Subject::around(path, buffered, size, write, false))
    }

    /// Makes a file of `size` bytes that must not exist yet. It is removed when dropped, and when the process is ended by a
    /// signal, unless `keep` is set.
    pub(super) fn make(path: &Path, size: u64, keep: bool) -> Result<Subject, Failure> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().ok_or_else(|| Failure::at(path, "it is no name of a file"))?.to_owned();
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, parent, flags, Mode::empty())
            .map_err(|error| Failure::os(parent, error))?;
        let made = scratch::create(&dir, &name, || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            rustix::fs::openat(&dir, &name, flags, Mode::RUSR | Mode::WUSR)
        })
        .map_err(|error| Failure::os(path, error))?;
        let mut subject = Subject::around(path, made, size, true, true);
        subject.fill()?;
        if keep {
            scratch::publish(|| Ok(())).map_err(|error| Failure::os(path, error))?;
            subject.temporary = false;
        }
        Ok(subject)
    }

    /// A name in the current folder that nobody else uses.
    pub(super) fn name() -> PathBuf {
        let process = std::process::id();
        PathBuf::from(OsString::from(format!("./hipfile-bench-{process}.tmp")))
    }

    fn around(path: &Path, buffered: OwnedFd, size: u64, writable: bool, temporary: bool) -> Subject {
        let disk = Disk::under(&buffered);
        let facts = hipfile::storage::StorageFacts::of_fd(buffered.as_fd(), &hipfile::storage::Roots::real());
        let fs_type = facts.map_or_else(|_| "unknown".to_owned(), |facts| facts.fs_type);
        let direct = reopen(&buffered, writable, OFlags::DIRECT);
        Subject { path: path.to_owned(), buffered, direct, size, fs_type, disk, writable, temporary }
    }

    /// Fills a new file with bytes that no layer can compress, with O_DIRECT where possible, and makes it durable.
    fn fill(&self) -> Result<(), Failure> {
        let os = |error: Errno| Failure::os(&self.path, error);
        let mut piece = HugePages::new(PIECE).map_err(|error| Failure::new("memory", error))?;
        let mut direct = self.direct.as_ref().ok();
        let mut at = 0;
        while at < self.size {
            let len = PIECE.min(usize::try_from(self.size - at).unwrap_or(PIECE));
            pattern(&mut piece[..len], at, 0);
            let whole = len == PIECE;
            let fd = direct.filter(|_| whole).unwrap_or(&self.buffered);
            match rustix::io::pwrite(fd, &piece[..len], at) {
                Ok(0) => return Err(Failure::at(&self.path, "the file took no byte and gave no reason")),
                // A direct write goes on only from where it may.
                Ok(n) if n < len && whole => {
                    direct = None;
                    at += n as u64;
                }
                Ok(n) => at += n as u64,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) if direct.is_some() => direct = None,
                Err(error) => return Err(os(error)),
            }
        }
        rustix::fs::fdatasync(&self.buffered).map_err(os)
    }

    pub(super) fn buffered(&self) -> BorrowedFd<'_> {
        self.buffered.as_fd()
    }

    /// A description of its own of the same file, so that flags and advice stay there.
    pub(super) fn reopen(&self) -> Result<OwnedFd, Failure> {
        reopen(&self.buffered, self.writable, OFlags::empty()).map_err(|error| Failure::os(&self.path, error))
    }

    /// As [`Subject::reopen`], with O_DIRECT.
    pub(super) fn reopen_direct(&self) -> Result<OwnedFd, Failure> {
        reopen(&self.buffered, self.writable, OFlags::DIRECT)
            .map_err(|error| Failure::os(&self.path, error).and("opened with O_DIRECT"))
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if self.temporary {
            scratch::discard();
        }
    }
}

fn reopen(fd: &OwnedFd, write: bool, more: OFlags) -> rustix::io::Result<OwnedFd> {
    use std::os::fd::AsRawFd as _;
    let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(name, access | OFlags::CLOEXEC | more, Mode::empty())
}

/// What a file made here holds at `offset`: every 8 bytes a hash of their place and of `seed`, so that no block can be taken for
/// another.
pub(super) fn pattern(bytes: &mut [u8], offset: u64, seed: u64) {
    let skip = (offset % 8) as usize;
    let word = |n: u64| {
        let mut hash = (n ^ seed.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (hash ^ (hash >> 32)).to_le_bytes()
    };
    let head = if skip == 0 { 0 } else { (8 - skip).min(bytes.len()) };
    let (head, body) = bytes.split_at_mut(head);
    head.copy_from_slice(&word(offset / 8)[skip..skip + head.len()]);
    let mut n = offset.div_ceil(8);
    let mut chunks = body.chunks_exact_mut(8);
    for chunk in &mut chunks {
        chunk.copy_from_slice(&word(n));
        n += 1;
    }
    let tail = chunks.into_remainder();
    tail.copy_from_slice(&word(n)[..tail.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_the_pattern_is_that_piece_of_the_whole() {
        let mut whole = [0; 200];
        pattern(&mut whole, 0, 3);
        for (at, len) in [(0, 200), (1, 5), (3, 5), (3, 1), (7, 2), (8, 8), (13, 100), (199, 1), (50, 0)] {
            let mut piece = vec![0; len];
            pattern(&mut piece, at as u64, 3);
            assert_eq!(piece, whole[at..at + len], "{at}+{len}");
        }
        let mut other = [0; 200];
        pattern(&mut other, 0, 4);
        assert_ne!(whole, other);
    }
}
