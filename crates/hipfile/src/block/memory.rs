//! Memory from the system for slabs of Blocks. It keeps none.

use std::ptr::NonNull;

use crate::sys::{self, Site};

/// Huge pages halve the number of segments a direct transfer needs, so slabs are multiples of one.
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed, page-aligned memory, on a memory node if one is asked for; huge-page aligned where it is large enough
/// and the address space allows it.
pub(super) fn map(len: usize, node: Option<u32>) -> Result<NonNull<u8>, i32> {
    let slack = if len >= HUGE_PAGE { HUGE_PAGE } else { 0 };
    map_with(len, slack, node).or_else(|errno| if slack > 0 { map_with(len, 0, node) } else { Err(errno) })
}

fn map_with(len: usize, slack: usize, node: Option<u32>) -> Result<NonNull<u8>, i32> {
    let total = len.checked_add(slack).ok_or(libc::ENOMEM)?;
    let mapped = sys::at(Site::BlockMap, || anonymous(total))?;
    let before = if slack == 0 { 0 } else { mapped.addr().wrapping_neg() % HUGE_PAGE };
    let start = mapped.wrapping_byte_add(before);
    if before > 0 {
        // SAFETY: these are the unused first bytes of the mapping just made.
        unsafe { libc::munmap(mapped, before) };
    }
    if slack > before {
        // SAFETY: these are the unused last bytes of the mapping just made.
        unsafe { libc::munmap(start.wrapping_byte_add(len), slack - before) };
    }
    for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP, libc::MADV_HUGEPAGE] {
        // Advice a kernel does not know is refused without harm.
        // SAFETY: the range is the mapping just made; none of these advices changes its contents.
        unsafe { libc::madvise(start, len, advice) };
    }
    if let Some(node @ 0..64) = node {
        const MPOL_PREFERRED: libc::c_long = 1;
        let mask = 1_u64 << node;
        // A preference: memory elsewhere serves too, and so does a kernel without it.
        // SAFETY: the range is the mapping just made, and the mask has the 64 bits it is said to have.
        unsafe {
            libc::syscall(libc::SYS_mbind, start, len, MPOL_PREFERRED, &raw const mask, 65_usize, 0_u32)
        };
    }
    NonNull::new(start.cast()).ok_or(libc::ENOMEM)
}

fn anonymous(len: usize) -> Result<*mut libc::c_void, i32> {
    // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches nothing else.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED { Err(sys::last_errno()) } else { Ok(mapped) }
}

/// Makes the memory be there now, rather than page by page under the first transfers.
pub(super) fn populate(start: NonNull<u8>, len: usize) {
    // A kernel that does not know the advice faults the pages in later.
    // SAFETY: the range is a mapping of the pool's; populating changes no contents.
    unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) };
}
