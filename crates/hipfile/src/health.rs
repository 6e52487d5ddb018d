//! What one file has taught about a path: kinds of ranges it refuses, and when to leave it alone for a while. It
//! remembers; the router and the engines act.

use std::time::{Duration, Instant};

use crate::op::Op;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Kinds of ranges, by the power of two that divides all their parts, that were refused with EINVAL.
#[derive(Debug, Default)]
pub(crate) struct Demoted([AtomicU32; 2]);

impl Demoted {
    pub(crate) fn insert(&self, op: Op, class: u32) {
        self.0[op as usize].fetch_or(Self::bit(class), Ordering::Relaxed);
    }

    pub(crate) fn contains(&self, op: Op, class: u32) -> bool {
        self.0[op as usize].load(Ordering::Relaxed) & Self::bit(class) != 0
    }

    /// From 2 MiB on, nothing asks for more.
    fn bit(class: u32) -> u32 {
        1 << class.min(21)
    }
}

/// Whether something is asked of the kernel that costs little and that it need not do: once it would not, it is not asked for some
/// time.
#[derive(Debug, Default)]
pub(crate) struct Shy(AtomicU32);

impl Shy {
    /// So many times.
    const TIMES: u32 = 16;

    pub(crate) fn asks(&self) -> bool {
        let left = self.0.load(Ordering::Relaxed);
        if left > 0 {
            // Of two who come at once one may not be counted.
            self.0.store(left - 1, Ordering::Relaxed);
        }
        left == 0
    }

    /// It would not.
    pub(crate) fn refused(&self) {
        self.0.store(Shy::TIMES, Ordering::Relaxed);
    }
}

/// Failures in a row before a path rests.
const PATIENCE: u32 = 8;
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// Rests a path that fails in one way again and again: 1 s, doubling to 60 s; one success forgets it all.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// The errno in the upper half, how often in a row in the lower.
    row: AtomicU64,
    /// Milliseconds on the process's clock until which the path rests; 0 when it does not.
    until: AtomicU64,
    rest_ms: AtomicU64,
}

impl Breaker {
    /// Whether the path may be tried now.
    pub(crate) fn is_open(&self) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until == 0 || now_ms() >= until
    }

    pub(crate) fn succeeded(&self) {
        // Read first: the usual case must not write shared memory. A failure that was just counted may begin its rest after the
        // row is forgotten, which is then forgotten by the next success.
        if self.row.load(Ordering::Relaxed) != 0 || self.until.load(Ordering::Relaxed) != 0 {
            self.row.store(0, Ordering::Relaxed);
            self.until.store(0, Ordering::Relaxed);
            self.rest_ms.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a failure; the rest, if one begins with it.
    pub(crate) fn failed(&self, errno: i32) -> Option<Duration> {
        let errno = u64::from(errno.unsigned_abs()) << 32;
        let next = |row: u64| Some(if row & !0xffff_ffff == errno { row + 1 } else { errno | 1 });
        let before = self.row.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        let count = next(before).unwrap_or_default() & 0xffff_ffff;
        let (until, now) = (self.until.load(Ordering::Relaxed), now_ms());
        // What was under way on other threads when the rest began says nothing new.
        if count < u64::from(PATIENCE) || now < until {
            return None;
        }
        let rest = match self.rest_ms.load(Ordering::Relaxed) {
            0 => FIRST_REST.as_millis() as u64,
            last => (last * 2).min(LONGEST_REST.as_millis() as u64),
        };
        // Of several failures at this moment one begins the rest.
        let begun = self.until.compare_exchange(until, now + rest, Ordering::Relaxed, Ordering::Relaxed);
        begun.ok()?;
        self.rest_ms.store(rest, Ordering::Relaxed);
        Some(Duration::from_millis(rest))
    }
}

/// Milliseconds since the first call, never 0.
fn now_ms() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_would_not_do_it_is_asked_for_again_later() {
        let shy = Shy::default();
        assert!(shy.asks() && shy.asks());
        shy.refused();
        assert_eq!((0..20).filter(|_| shy.asks()).count(), 20 - Shy::TIMES as usize);
    }

    #[test]
    fn rests_after_eight_failures_of_one_kind_and_longer_each_time() {
        let breaker = Breaker::default();
        for _ in 0..7 {
            breaker.failed(libc::ENODEV);
        }
        breaker.failed(libc::EREMOTEIO);
        assert!(breaker.is_open(), "another error starts the row anew");
        for _ in 0..7 {
            breaker.failed(libc::EREMOTEIO);
        }
        assert!(!breaker.is_open());
        assert_eq!(breaker.rest_ms.load(Ordering::Relaxed), 1000);
        for expected in [2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
            breaker.until.store(now_ms(), Ordering::Relaxed);
            breaker.failed(libc::EREMOTEIO);
            assert_eq!(breaker.rest_ms.load(Ordering::Relaxed), expected);
        }
        breaker.succeeded();
        assert!(breaker.is_open());
        breaker.failed(libc::EREMOTEIO);
        assert!(breaker.is_open());
    }

    #[test]
    fn many_failures_at_once_are_one_rest() {
        let breaker = Breaker::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..8).for_each(|_| _ = breaker.failed(libc::ENODEV)));
            }
        });
        assert!(!breaker.is_open());
        assert_eq!(breaker.rest_ms.load(Ordering::Relaxed), 1000);
    }

    #[test]
    fn a_rest_ends() {
        let breaker = Breaker::default();
        for _ in 0..8 {
            breaker.failed(libc::ENODEV);
        }
        breaker.until.store(now_ms(), Ordering::Relaxed);
        assert!(breaker.is_open());
    }

    #[test]
    fn demotion_is_by_kind_and_direction() {
        let demoted = Demoted::default();
        demoted.insert(Op::Read, 9);
        assert!(demoted.contains(Op::Read, 9));
        assert!(!demoted.contains(Op::Read, 12) && !demoted.contains(Op::Write, 9));
        demoted.insert(Op::Write, 40);
        assert!(demoted.contains(Op::Write, 21) && demoted.contains(Op::Write, 63));
    }
}
