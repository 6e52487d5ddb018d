//! A mapping of a part of a file that the kernel alone writes to: touched by code, a file that was cut short would end the
//! process. It has no policy, and knows no other way to write.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::last_errno;

/// A shared mapping, by its address; gone when dropped. No reference into it is ever made.
#[derive(Debug)]
pub(crate) struct FileMap {
    start: usize,
    len: usize,
}

impl FileMap {
    /// Maps whole pages of a file for writing.
    ///
    /// # Errors
    /// EACCES of a descriptor that is not open both ways, EPERM of a sealed file, ENOMEM where the process may have no more.
    pub(crate) fn new(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<FileMap, i32> {
        let offset = libc::off_t::try_from(offset).map_err(|_| libc::EOVERFLOW)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, fd.as_raw_fd(), offset)
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let map = FileMap { start: start.expose_provenance(), len };
        map.advise(0, len, libc::MADV_DONTFORK);
        map.advise(0, len, libc::MADV_DONTDUMP);
        Ok(map)
    }

    /// Has pages ready for writing: looked up for reading many are found at once, and of a file in memory each may be
    /// written too. Holes get pages.
    pub(crate) fn prepare(&self, at: usize, len: usize) {
        self.advise(at, len, libc::MADV_POPULATE_READ);
    }

    /// Lets go of pages that are written, here rather than when all are unmapped by one thread. The file keeps them.
    pub(crate) fn release(&self, at: usize, len: usize) {
        self.advise(at, len, libc::MADV_DONTNEED);
    }

    /// Copies bytes into it; how many. Fewer, or EFAULT for none, where the file ends by now or the file system is full: the
    /// kernel copies, so no signal comes of it.
    pub(crate) fn put(&self, at: usize, bytes: &[u8]) -> Result<usize, i32> {
        let len = bytes.len().min(self.len.saturating_sub(at));
        // The calling thread's number: that of the process is of its first thread, which may have ended.
        // Not libc's: the C library has that since 2.30 only.
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let to = libc::iovec { iov_base: self.place(at), iov_len: len };
        let from = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: len };
        // "Reads" the bytes from this process: that way round it is they whose pages are looked up one by one, which are huge
        // ones, and the mapping is written to as by any system call.
        // SAFETY: `to` lies in the mapping, which nothing refers to; `from` is borrowed, and only read.
        let put = unsafe { libc::process_vm_readv(own, &raw const to, 1, &raw const from, 1, 0) };
        usize::try_from(put).map_err(|_| last_errno())
    }

    fn place(&self, at: usize) -> *mut libc::c_void {
        std::ptr::with_exposed_provenance_mut(self.start + at)
    }

    fn advise(&self, at: usize, len: usize, advice: libc::c_int) {
        let len = len.min(self.len.saturating_sub(at));
        // A kernel that does not know an advice refuses it without harm.
        // SAFETY: the range is of the mapping; none of the advices used here changes what the file holds.
        unsafe { libc::madvise(self.place(at), len, advice) };
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to it.
        unsafe { libc::munmap(self.place(0), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_a_file_does_not_have_any_more_is_told_and_not_signalled() {
        let page = rustix::param::page_size();
        let memory = rustix::fs::memfd_create("mapping", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(memory);
        file.set_len(4 * page as u64).unwrap();
        let map = FileMap::new(file.as_fd(), page as u64, 3 * page).unwrap();
        let bytes = vec![7; 3 * page];
        map.prepare(0, 3 * page);
        assert_eq!(map.put(5, &bytes), Ok(3 * page - 5), "no byte behind the mapping");
        map.release(0, 3 * page);
        file.set_len(2 * page as u64 + 10).unwrap();
        map.prepare(0, 3 * page);
        assert_eq!(map.put(0, &bytes), Ok(2 * page), "up to the end of the last page that is there");
        assert_eq!(map.put(2 * page, &bytes[..1]), Err(libc::EFAULT));
        drop(map);
        let mut back = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut back).unwrap();
        assert_eq!(back, [vec![0; page], vec![7; page + 10]].concat());
        let one_way = std::fs::File::options().write(true).open("/dev/null").unwrap();
        assert!(FileMap::new(one_way.as_fd(), 0, page).is_err());
    }
}
