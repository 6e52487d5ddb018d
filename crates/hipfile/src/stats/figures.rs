//! What follows from counters: sums, differences, rates, times that a share of all transfers did not exceed. It reads nothing.

use super::layout::latency_of;
use super::snapshot::{GpuStats, Named, Side, SizeClass, Snapshot};
use crate::op::Op;

impl GpuStats {
    /// One direction.
    pub fn side(&self, op: Op) -> &Side {
        match op {
            Op::Read => &self.read,
            Op::Write => &self.write,
        }
    }
}

impl SizeClass {
    /// The time of all transfers in nanoseconds: that of those whose time was taken, and for the others as much each.
    pub fn all_nanoseconds(&self) -> f64 {
        if self.timed == 0 {
            0.0
        } else {
            self.nanoseconds as f64 / self.timed as f64 * self.operations as f64
        }
    }

    fn combine(&mut self, other: &SizeClass, with: fn(u64, u64) -> u64) {
        self.operations = with(self.operations, other.operations);
        self.bytes = with(self.bytes, other.bytes);
        self.timed = with(self.timed, other.timed);
        self.nanoseconds = with(self.nanoseconds, other.nanoseconds);
        self.errors = with(self.errors, other.errors);
    }
}

fn sum(a: u64, b: u64) -> u64 {
    a.wrapping_add(b)
}

/// A sum that does not mind what another process wrote.
pub(super) fn total(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::wrapping_add)
}

fn combine_named(mine: &mut Vec<Named>, other: &[Named], with: fn(u64, u64) -> u64) {
    for theirs in other {
        let at = mine.iter().position(|row| row.name == theirs.name).unwrap_or_else(|| {
            mine.push(Named { name: theirs.name.clone(), ..Named::default() });
            mine.len() - 1
        });
        let row = &mut mine[at];
        row.operations = with(row.operations, theirs.operations);
        row.bytes = with(row.bytes, theirs.bytes);
        row.errors = with(row.errors, theirs.errors);
    }
    mine.retain(|row| (row.operations, row.bytes, row.errors) != (0, 0, 0));
}

fn zip(mine: &mut Vec<u64>, other: &[u64], with: fn(u64, u64) -> u64) {
    mine.resize(mine.len().max(other.len()), 0);
    mine.iter_mut().zip(other).for_each(|(mine, other)| *mine = with(*mine, *other));
}

impl Side {
    /// Adds the transfers of another; its time is the time of both.
    pub fn add(&mut self, other: &Side) {
        self.combine(other, sum);
        self.first = match (self.first, other.first) {
            (0, first) | (first, 0) => first,
            (a, b) => a.min(b),
        };
        self.last = self.last.max(other.last);
    }

    /// What came after `earlier`, a side of the same process.
    #[must_use]
    pub fn since(&self, earlier: &Side) -> Side {
        let mut after = self.clone();
        after.combine(earlier, u64::saturating_sub);
        after
    }

    fn combine(&mut self, other: &Side, with: fn(u64, u64) -> u64) {
        combine_named(&mut self.engines, &other.engines, with);
        combine_named(&mut self.reasons, &other.reasons, with);
        for (mine, other) in [(&mut self.direct, &other.direct), (&mut self.staged, &other.staged)] {
            mine.resize(mine.len().max(other.len()), SizeClass::default());
            mine.iter_mut().zip(other).for_each(|(mine, other)| mine.combine(other, with));
        }
        for (mine, other) in self.unaligned.iter_mut().zip(other.unaligned) {
            *mine = with(*mine, other);
        }
        let [small, large] = &mut self.latencies;
        zip(small, &other.latencies[0], with);
        zip(large, &other.latencies[1], with);
    }

    fn classes(&self) -> impl Iterator<Item = &SizeClass> {
        self.direct.iter().chain(&self.staged)
    }

    /// Transfers that ended well.
    pub fn operations(&self) -> u64 {
        total(self.classes().map(|class| class.operations))
    }

    /// Bytes that moved.
    pub fn bytes(&self) -> u64 {
        total(self.classes().map(|class| class.bytes))
    }

    /// Transfers that failed.
    pub fn errors(&self) -> u64 {
        total(self.classes().map(|class| class.errors))
    }

    /// The time of all transfers in microseconds, one after the other. Transfers under way together make it longer than the
    /// clock's.
    pub fn microseconds(&self) -> u64 {
        (self.classes().map(SizeClass::all_nanoseconds).sum::<f64>() / 1000.0) as u64
    }

    /// From the beginning of the first transfer to the end of the last, in seconds by the clock.
    pub fn seconds(&self) -> f64 {
        self.last.saturating_sub(self.first) as f64 / 1e9
    }

    /// `amount` per second of [`Side::seconds`].
    pub fn per_second(&self, amount: u64) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { amount as f64 / seconds } else { 0.0 }
    }

    /// How much of [`Side::seconds`] transfers were under way, in percent; 100 where there was always at least one, as far as
    /// the sum of their times tells.
    pub fn utilization(&self) -> u64 {
        let seconds = self.seconds();
        if seconds > 0.0 { (self.microseconds() as f64 / seconds / 1e4).min(100.0) as u64 } else { 0 }
    }

    /// The time in nanoseconds that a share (0 to 1) of all transfers did not exceed, within 7 %; `None` where no time was
    /// taken. Transfers below 64 KiB stand for those whose time was not taken as well.
    pub fn latency(&self, share: f64) -> Option<f64> {
        // Which classes of size are small: those below the fifth power of two from 4 KiB on.
        let count = |small: bool| -> u64 {
            let of = |classes: &[SizeClass]| -> u64 {
                let part = classes.iter().enumerate().filter(|(class, _)| (*class < 5) == small);
                total(part.map(|(_, class)| class.operations))
            };
            of(&self.direct).wrapping_add(of(&self.staged))
        };
        let weights = [true, false].map(count);
        let weighted: Vec<(usize, f64)> = (0..2)
            .flat_map(|size| {
                let taken = total(self.latencies[size].iter().copied());
                let weight = if taken == 0 { 0.0 } else { weights[size].max(1) as f64 / taken as f64 };
                self.latencies[size].iter().enumerate().map(move |(class, n)| (class, *n as f64 * weight))
            })
            .filter(|(_, n)| *n > 0.0)
            .collect();
        let mut weighted = weighted;
        weighted.sort_by_key(|(class, _)| *class);
        let total: f64 = weighted.iter().map(|(_, n)| n).sum();
        let mut seen = 0.0;
        let rank = total * share;
        let found = weighted.iter().find(|(_, n)| {
            seen += n;
            seen >= rank * (1.0 - 1e-9)
        });
        found.or(weighted.last()).map(|(class, _)| latency_of(*class))
    }

    /// How many times were taken.
    pub fn times_taken(&self) -> u64 {
        total(self.latencies.iter().flatten().copied())
    }
}

impl Snapshot {
    /// The row of the same GPU, if it has one.
    pub fn gpu(&self, ordinal: Option<u32>) -> Option<&GpuStats> {
        self.gpus.iter().find(|gpu| gpu.ordinal == ordinal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::layout::{CLASSES, LATENCIES, latency_class};

    fn side(small: &[(u64, u64)], operations_small: u64, large: &[(u64, u64)]) -> Side {
        let mut side = Side {
            direct: vec![SizeClass::default(); CLASSES],
            staged: vec![SizeClass::default(); CLASSES],
            latencies: [vec![0; LATENCIES], vec![0; LATENCIES]],
            ..Side::default()
        };
        for (size, times) in [small, large].into_iter().enumerate() {
            for (nanoseconds, n) in times {
                side.latencies[size][latency_class(*nanoseconds)] += n;
            }
        }
        side.staged[1].operations = operations_small;
        side.staged[9].operations = large.iter().map(|(_, n)| n).sum();
        side
    }

    #[test]
    fn shares_are_those_of_all_transfers_and_not_of_those_timed() {
        // 160 small ones, of which ten were timed, and forty large ones.
        let side = side(&[(2_000, 10)], 160, &[(1_000_000, 40)]);
        let near = |share: f64, expected: f64| {
            let found = side.latency(share).unwrap();
            assert!((found / expected - 1.0).abs() < 0.07, "{share}: {found}");
        };
        near(0.5, 2_000.0);
        near(0.79, 2_000.0);
        near(0.81, 1_000_000.0);
        near(1.0, 1_000_000.0);
        assert_eq!(Side::default().latency(0.5), None);
    }

    #[test]
    fn a_difference_is_what_came_after() {
        let (mut later, earlier) = (side(&[(2_000, 10)], 160, &[]), side(&[(2_000, 4)], 60, &[]));
        later.engines = vec![Named { name: "a".into(), operations: 3, bytes: 9, errors: 1 }];
        let mut before = earlier;
        before.engines = vec![Named { name: "a".into(), operations: 3, bytes: 9, errors: 1 }];
        let after = later.since(&before);
        assert_eq!((after.operations(), after.times_taken(), after.engines.len()), (100, 6, 0));
    }

    #[test]
    fn rates_are_by_the_clock() {
        let mut total = Side::default();
        for _ in 0..8 {
            // Eight threads, each busy for the same two seconds with 1 GB.
            let mut one = side(&[], 0, &[(2_000_000_000, 1)]);
            one.staged[9] = SizeClass {
                operations: 1,
                bytes: 1_000_000_000,
                timed: 1,
                nanoseconds: 2_000_000_000,
                errors: 0,
            };
            (one.first, one.last) = (5, 2_000_000_005);
            total.add(&one);
        }
        assert_eq!((total.microseconds(), total.seconds()), (16_000_000, 2.0));
        assert_eq!(total.per_second(total.bytes()), 4e9);
        assert_eq!(total.utilization(), 100);
    }
}
