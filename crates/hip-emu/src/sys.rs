//! The few calls to the kernel that the emulation makes: mappings, advice, last words. No GPU notion here.

use std::io::Write;

/// The size of a page, and the alignment of every allocation.
pub(crate) const PAGE: usize = 4096;
/// The size of a huge page, and the alignment of large allocations.
pub(crate) const HUGE: usize = 2 << 20;

/// Maps `len` bytes of private anonymous memory at an address that is a multiple of `align`.
pub(crate) fn map(len: usize, align: usize, protection: i32) -> Option<usize> {
    let padded = len.checked_add(align)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), padded, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return None;
    }
    let start = at as usize;
    let aligned = start.next_multiple_of(align);
    // Both ends of the padding go back, so that the mapping is exactly as long as asked.
    if aligned > start {
        unmap(start, aligned - start);
    }
    let tail = start + padded - (aligned + len);
    if tail > 0 {
        unmap(aligned + len, tail);
    }
    Some(aligned)
}

/// Whether the program runs with more rights than its caller has.
pub(crate) fn is_set_user_id() -> bool {
    // SAFETY: a query of the auxiliary vector, without preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Gives back a mapping, or a piece of one, that came from [`map`].
pub(crate) fn unmap(at: usize, len: usize) {
    // SAFETY: callers pass only ranges of mappings they made by `map` and no longer use.
    unsafe { libc::munmap(at as *mut libc::c_void, len) };
}

/// Makes a piece of a mapping readable and writable.
pub(crate) fn open_up(at: usize, len: usize) -> bool {
    // SAFETY: callers pass only ranges of mappings they made by `map`.
    let rc = unsafe { libc::mprotect(at as *mut libc::c_void, len, libc::PROT_READ | libc::PROT_WRITE) };
    rc == 0
}

/// Advice about a range of a mapping from [`map`]. Whether the kernel takes it is of no consequence: older kernels,
/// valgrind and sanitizers know fewer kinds.
pub(crate) fn advise(at: usize, len: usize, advice: i32) {
    // SAFETY: the ranges are the emulation's own anonymous mappings; the kinds used drop contents only of freed memory.
    unsafe { libc::madvise(at as *mut libc::c_void, len, advice) };
}

/// Makes the pages of a range present, as huge pages where the kernel agrees: the first touch of gigabytes page by page
/// would otherwise be counted in every figure.
pub(crate) fn populate(at: usize, len: usize) {
    /// Beyond this the rest is left to the first touch, so that one large allocation cannot exhaust a small machine.
    const MOST: usize = 256 << 20;
    let start = at.next_multiple_of(PAGE);
    let end = (at + len.min(MOST)) / PAGE * PAGE;
    if end > start {
        advise(start, end - start, libc::MADV_POPULATE_WRITE);
    }
    let (start, end) = (start.next_multiple_of(HUGE), end / HUGE * HUGE);
    if end > start {
        // Where transparent huge pages are switched off, collapsing is still allowed on request.
        advise(start, end - start, libc::MADV_COLLAPSE);
    }
}

/// Whether every page of the range is mapped.
pub(crate) fn is_mapped(at: usize, len: usize) -> bool {
    /// Pages asked about at once.
    const BATCH: usize = 4096;
    let Some(end) = at.checked_add(len) else { return false };
    let mut page = at / PAGE * PAGE;
    let mut seen = [0u8; BATCH];
    while page < end {
        let pages = (end - page).div_ceil(PAGE).min(BATCH);
        // SAFETY: `seen` has one byte for each of the at most BATCH pages; mincore reads no memory of the range.
        let rc = unsafe { libc::mincore(page as *mut libc::c_void, pages * PAGE, seen.as_mut_ptr()) };
        if rc != 0 {
            return false;
        }
        page += pages * PAGE;
    }
    true
}

/// Lets this thread's short sleeps end on time; by default the kernel adds up to 50 microseconds, which a GPU that polls a
/// word does not.
pub(crate) fn sleep_exactly() {
    // SAFETY: plain numbers; a refusal leaves things as they are.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// The monotonic clock in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to, and this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// One line on stderr.
pub(crate) fn report(text: &str) {
    // A process that closed its stderr has no use for the line.
    let _ = writeln!(std::io::stderr(), "hip-emu: {text}");
}

/// Says why, and ends the process: for what real hardware or HIP answers by ending it too.
pub(crate) fn die(text: &str) -> ! {
    report(text);
    std::process::abort()
}
