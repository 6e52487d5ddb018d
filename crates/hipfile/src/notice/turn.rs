//! One thread at a time, and nobody waits for long: a lock that is tried, and that no fork leaves locked. It knows not for what.

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::thread;
use crate::sys;

/// So often is looked for the end of another's turn. It takes some microseconds, or else it waits, as no other then should.
const LOOKS: usize = 1000;

/// Whose turn it is, told by one more than the count of forks; 0 for nobody.
#[derive(Debug, Default)]
pub(crate) struct Turn(AtomicU32);

impl Turn {
    pub(crate) const fn new() -> Turn {
        Turn(AtomicU32::new(0))
    }

    /// Does it while no other thread does; `None` if another takes too long.
    pub(crate) fn take<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let me = sys::forks().wrapping_add(1).max(1);
        for _ in 0..LOOKS {
            // One left behind by a thread of before the fork is nobody.
            let before = self.0.load(Ordering::Relaxed);
            if before != me
                && self.0.compare_exchange(before, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                let result = work();
                self.0.store(0, Ordering::Release);
                return Some(result);
            }
            thread::yield_now();
        }
        None
    }
}
