//! How fast one file's bytes went direct and staged, and which way the next transfer goes where that is not taken for granted.
//! It keeps what others measure; it moves nothing.

use std::time::Duration;

use crate::op::Op;
use crate::reason::Reason;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes from which a transfer is compared: the time of a shorter one is mostly latency.
pub(crate) const FROM: usize = 1 << 20;
/// The first transfers take both ways by turns.
const TRIALS: u32 = 8;
/// Later each so-manieth takes the slower way, which may have become the faster.
const AGAIN: u32 = 64;

/// Bytes per second; 0 where none were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rates {
    /// With no copy in host memory.
    pub direct: u64,
    /// Through host memory.
    pub staged: u64,
}

#[derive(Debug, Default)]
struct Side {
    asked: AtomicU32,
    direct: AtomicU64,
    staged: AtomicU64,
}

/// Both directions of one file.
#[derive(Debug, Default)]
pub(crate) struct Pace([Side; 2]);

impl Pace {
    /// Why the next transfer is to be staged; `None` when it goes direct.
    pub(crate) fn turn(&self, op: Op) -> Option<Reason> {
        let asked = self.0[op as usize].asked.fetch_add(1, Ordering::Relaxed);
        let direct = self.prefers_direct(op);
        if asked < TRIALS {
            return (asked % 2 == 1).then_some(Reason::Trial);
        }
        if (asked - TRIALS) % AGAIN == AGAIN - 1 {
            return direct.then_some(Reason::Trial);
        }
        (!direct).then_some(Reason::Slower)
    }

    /// A transfer went one way as a whole.
    pub(crate) fn measured(&self, op: Op, direct: bool, bytes: usize, took: Duration) {
        let rate = (bytes as u128 * 1_000_000_000 / took.as_nanos().max(1)).min(u64::MAX.into()) as u64;
        let side = &self.0[op as usize];
        let known = if direct { &side.direct } else { &side.staged };
        // Of two threads at once one may be lost, which does no harm.
        let next = match known.load(Ordering::Relaxed) {
            0 => rate,
            last => last - last / 4 + rate / 4,
        };
        known.store(next.max(1), Ordering::Relaxed);
    }

    /// Direct unless staging is clearly faster: it leaves the processors and the memory alone.
    pub(crate) fn prefers_direct(&self, op: Op) -> bool {
        let Rates { direct, staged } = self.rates(op);
        direct == 0 || staged == 0 || direct >= staged - staged / 10
    }

    pub(crate) fn rates(&self, op: Op) -> Rates {
        let side = &self.0[op as usize];
        Rates { direct: side.direct.load(Ordering::Relaxed), staged: side.staged.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ways of some transfers when each takes so many milliseconds.
    fn ways(pace: &Pace, count: u32, direct: u64, staged: u64) -> Vec<Option<Reason>> {
        let one = |_| {
            let turn = pace.turn(Op::Read);
            let took = Duration::from_millis(if turn.is_none() { direct } else { staged });
            pace.measured(Op::Read, turn.is_none(), FROM, took);
            turn
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn both_are_tried_and_the_faster_is_taken() {
        let pace = Pace::default();
        let first = ways(&pace, TRIALS, 6, 1);
        assert_eq!(first.iter().filter(|way| **way == Some(Reason::Trial)).count(), TRIALS as usize / 2);
        let later = ways(&pace, AGAIN, 6, 1);
        assert!(later[..AGAIN as usize - 1].iter().all(|way| *way == Some(Reason::Slower)));
        assert_eq!(later[AGAIN as usize - 1], None, "the slower way is looked at again");
        assert!(!pace.prefers_direct(Op::Read) && pace.prefers_direct(Op::Write), "by direction");
        assert_eq!(pace.rates(Op::Write), Rates::default());
        // A way that recovers is found out.
        ways(&pace, 20 * AGAIN, 1, 6);
        assert_eq!(ways(&pace, 10, 1, 6).iter().filter(|way| way.is_some()).count(), 0);
    }

    #[test]
    fn direct_stays_where_staging_is_hardly_faster() {
        let pace = Pace::default();
        ways(&pace, TRIALS, 100, 95);
        assert!(ways(&pace, AGAIN - 1, 100, 95).iter().all(Option::is_none));
        assert_eq!(ways(&pace, 1, 100, 95), [Some(Reason::Trial)]);
    }
}
