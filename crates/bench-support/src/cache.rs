//! `cachestat(2)`: how much of a file the page cache holds. Linux 6.5 or newer; it changes nothing in the cache.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The number of the system call, the same on every architecture that Linux got after 2011, and on x86-64.
const SYS_CACHESTAT: libc::c_long = 451;

/// Pages of a range of a file, in units of the system's page size. As in the kernel's `struct cachestat`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStat {
    /// Pages in the cache.
    pub cached: u64,
    /// Of these, pages whose content is not on the disk yet.
    pub dirty: u64,
    /// Of these, pages that are being written to the disk.
    pub writeback: u64,
    /// Pages that were in the cache and are not any more.
    pub evicted: u64,
    /// Of the evicted, those whose loss was recent.
    pub recently_evicted: u64,
}

#[repr(C)]
struct Range {
    offset: u64,
    /// 0 for all up to the end of the file.
    len: u64,
}

/// What the page cache holds of `len` bytes at `offset`; a `len` of 0 goes to the end of the file.
///
/// # Errors
/// `Unsupported` before Linux 6.5, `PermissionDenied` for a file that is neither owned nor writable, and whatever else
/// the kernel answers (hugetlbfs and some network file systems refuse).
pub fn cachestat(fd: impl AsFd, offset: u64, len: u64) -> io::Result<CacheStat> {
    let range = Range { offset, len };
    let mut stat = CacheStat::default();
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: `range` is readable and `stat` writable, both laid out as the kernel's; there are no flags (0).
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd, &raw const range, &raw mut stat, 0) };
    if result == 0 { Ok(stat) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn written_pages_are_in_the_cache() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 100_000]).unwrap();
        match cachestat(&file, 0, 0) {
            Ok(stat) => {
                assert_eq!(stat.cached, 100_000_u64.div_ceil(rustix::param::page_size() as u64));
                assert_eq!(cachestat(&file, 1 << 30, 0).unwrap().cached, 0);
            }
            Err(error) => eprintln!("SKIP: cachestat: {error}"),
        }
    }
}
