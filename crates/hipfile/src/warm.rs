//! Whether small reads of a file find it in the page cache every time, so that they need not be told to wait for nothing. It keeps
//! what others saw; it reads nothing.

use std::time::Duration;

use crate::sync::atomic::{AtomicU32, Ordering};

/// So many reads in a row say it. Where one read in a hundred is a miss that is said one time in thirteen, and taken back by
/// the next.
const ENOUGH: u32 = 256;
/// Never of files whose storage may take its time: behind a network, or a process.
const NEVER: u32 = u32::MAX;

/// What was seen of one file.
#[derive(Debug, Default)]
pub(crate) struct Warm(AtomicU32);

impl Warm {
    /// Whether the next read is likely to find its bytes.
    #[inline]
    pub(crate) fn is_likely(&self) -> bool {
        let row = self.0.load(Ordering::Relaxed);
        row >= ENOUGH && row != NEVER
    }

    /// A read has found its bytes; `local` says whether the file's storage is near, once that is asked.
    #[inline]
    pub(crate) fn found(&self, local: impl FnOnce() -> bool) {
        // Looked at first: once there are enough it is written no more, by whatever many threads.
        if self.0.load(Ordering::Relaxed) < ENOUGH
            && self.0.fetch_add(1, Ordering::Relaxed) + 1 == ENOUGH
            && !local()
        {
            self.0.store(NEVER, Ordering::Relaxed);
        }
    }

    /// A read has not, or seems to have waited.
    #[inline]
    pub(crate) fn missed(&self) {
        let row = self.0.load(Ordering::Relaxed);
        if row != 0 && row != NEVER {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

/// Whether a read of so many bytes that took so long has waited for storage: out of the page cache 4 KiB take less than a
/// microsecond, 64 KiB ten. Being interrupted looks the same, and does no harm.
#[inline]
pub(crate) fn has_waited(len: usize, took: Duration) -> bool {
    took > Duration::from_nanos(8000 + len as u64 / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_in_a_row_say_it_and_one_takes_it_back() {
        let warm = Warm::default();
        for _ in 0..3 {
            for _ in 1..ENOUGH {
                warm.found(|| true);
                assert!(!warm.is_likely());
            }
            warm.found(|| true);
            warm.found(|| unreachable!("it was asked"));
            assert!(warm.is_likely());
            warm.missed();
            assert!(!warm.is_likely());
        }
    }

    #[test]
    fn storage_that_may_take_its_time_is_never_waited_for() {
        let warm = Warm::default();
        (0..2 * ENOUGH).for_each(|_| warm.found(|| false));
        warm.missed();
        (0..2 * ENOUGH).for_each(|_| warm.found(|| true));
        assert!(!warm.is_likely());
    }
}
