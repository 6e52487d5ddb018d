//! Anonymous memory as benchmarks need it: once in huge pages and there before the clock starts, once fresh and without any
//! page, as a program has it that maps memory for each call.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The size of a huge page on x86-64 and on aarch64 with pages of 4 KiB. Where it is another, only the speed differs.
const HUGE: usize = 2 << 20;

/// Zeroed memory, owned, unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    /// What was mapped, with the slack for the alignment.
    whole: NonNull<u8>,
    whole_len: usize,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is plain memory that the mapping owns.
unsafe impl Send for Mapping {}
// SAFETY: shared access only reads.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize, align: usize) -> io::Result<Mapping> {
        let slack = if align > 1 { align } else { 0 };
        let whole_len = len.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new private mapping at an address of the kernel's choice touches nothing else.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), whole_len, prot, flags) }?;
        let skip = mapped.addr().next_multiple_of(align) - mapped.addr();
        let start = mapped.wrapping_byte_add(skip);
        match (NonNull::new(mapped.cast()), NonNull::new(start.cast())) {
            (Some(whole), Some(start)) => Ok(Mapping { whole, whole_len, start, len }),
            _ => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping of `new`, and nobody can borrow it any more. It cannot fail for such a range.
        let _ = unsafe { munmap(self.whole.as_ptr().cast(), self.whole_len) };
    }
}

impl Deref for Mapping {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` on lie inside the mapping, are initialised (zero), and are borrowed with it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Memory aligned to and, where the system gives them, made of huge pages, each of them there from the start.
#[derive(Debug)]
pub struct HugePages(Mapping);

impl HugePages {
    /// `len` bytes.
    ///
    /// # Errors
    /// What mmap answers. Without huge pages the memory is made of ordinary ones.
    pub fn new(len: usize) -> io::Result<HugePages> {
        let mut mapping = Mapping::new(len.next_multiple_of(HUGE), HUGE)?;
        let start = mapping.start.as_ptr().cast();
        // SAFETY: the range is the mapping's own; the advice changes no content. Systems without huge pages refuse.
        let _ = unsafe { madvise(start, mapping.len, Advice::LinuxHugepage) };
        mapping.len = len;
        let mut pages = HugePages(mapping);
        // Each page is touched by hand: MADV_POPULATE_WRITE is younger than the systems this may run on.
        pages.chunks_mut(4096).for_each(|page| page[0] = 0);
        Ok(pages)
    }
}

impl Deref for HugePages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for HugePages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Memory without any page yet, mapped for one use: each page costs a fault, and all of it an unmapping.
#[derive(Debug)]
pub struct FreshPages(Mapping);

impl FreshPages {
    /// `len` bytes, page-aligned.
    ///
    /// # Errors
    /// What mmap answers.
    pub fn map(len: usize) -> io::Result<FreshPages> {
        Mapping::new(len, 1).map(FreshPages)
    }
}

impl Deref for FreshPages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for FreshPages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_as_long_as_asked() {
        for len in [1, 4096, HUGE, 3 * HUGE + 5] {
            let mut huge = HugePages::new(len).unwrap();
            assert_eq!((huge.len(), huge.as_ptr().addr() % HUGE), (len, 0));
            assert!(huge.iter().all(|byte| *byte == 0));
            huge[len - 1] = 7;
            let mut fresh = FreshPages::map(len).unwrap();
            assert_eq!((fresh.len(), fresh.as_ptr().addr() % 4096), (len, 0));
            fresh[len - 1] = 7;
            assert_eq!((huge[len - 1], fresh[len - 1]), (7, 7));
        }
    }
}
