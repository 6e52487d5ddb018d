//! Long copies past the processor's caches, as a GPU's copy engine writes its memory: what the program has in its caches
//! stays there. It knows no device and checks nothing.

/// From this length on a copy goes past the caches. Of shorter ones the ends of the copy weigh more than its way.
pub(crate) const LONG: usize = 128 << 10;

/// Copies `len` bytes between places that do not overlap.
///
/// # Safety
/// `src` may be read and `dst` written for `len` bytes, and they do not overlap.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const UNIT: usize = 64;
    let head = dst.align_offset(UNIT).min(len);
    // SAFETY: the head is a part of both ends.
    unsafe { core::ptr::copy_nonoverlapping(src, dst, head) };
    let mut at = head;
    while at + UNIT <= len {
        for part in (at..at + UNIT).step_by(size_of::<__m128i>()) {
            // SAFETY: the part lies inside the source, which may be read at any alignment.
            let word = unsafe { _mm_loadu_si128(src.wrapping_add(part).cast()) };
            // SAFETY: the part lies inside the target, and is aligned since the head was left out.
            unsafe { _mm_stream_si128(dst.wrapping_add(part).cast(), word) };
        }
        at += UNIT;
    }
    // Streamed words are in no order with later stores until this.
    // SAFETY: a plain instruction of every such processor.
    unsafe { _mm_sfence() };
    // SAFETY: the rest is a part of both ends.
    unsafe { core::ptr::copy_nonoverlapping(src.wrapping_add(at), dst.wrapping_add(at), len - at) };
}

/// As on other processors.
///
/// # Safety
/// `src` may be read and `dst` written for `len` bytes, and they do not overlap.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: as this function demands.
    unsafe { core::ptr::copy_nonoverlapping(src, dst, len) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_byte_arrives_at_any_alignment_and_no_other_is_touched() {
        let src: Vec<u8> = (0..200_000_u32).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        for (from, to, len) in
            [(0, 0, 131_072), (1, 0, 131_073), (0, 1, 150_001), (63, 17, 65), (5, 64, 0), (9, 3, 1)]
        {
            let mut dst = vec![0xee; 200_000];
            // SAFETY: both ranges lie inside their vectors.
            unsafe { super::copy(dst.as_mut_ptr().wrapping_add(to), src.as_ptr().wrapping_add(from), len) };
            assert!(dst[to..to + len] == src[from..from + len], "{from} {to} {len}");
            assert!(dst[..to].iter().chain(&dst[to + len..]).all(|b| *b == 0xee), "{from} {to} {len}");
        }
    }
}
