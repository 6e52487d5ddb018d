//! Latencies, counted in classes of 1/32 of their power of two, so that every quantile is right within 3.2 %. It keeps no time
//! series.

use std::time::Duration;

/// Classes within one power of two.
const FINE: u32 = 5;
const CLASSES: usize = (64 - FINE as usize + 1) << FINE;

/// Counts of durations, from nanoseconds to centuries.
#[derive(Clone)]
pub(super) struct Histogram {
    counts: Box<[u64; CLASSES]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; CLASSES]), total: 0 }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[class(nanoseconds)] += 1;
        self.total += 1;
    }

    pub(super) fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
        self.total += other.total;
    }

    /// How many were counted.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The latency that a part `share` (0 to 1) of all did not exceed, in microseconds. 0 if none was counted.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(class) / 1000.0;
            }
        }
        0.0
    }
}

/// Below 2^FINE each number is a class of its own.
fn class(value: u64) -> usize {
    let power = 63_u32.saturating_sub(value.leading_zeros());
    if power < FINE {
        return value as usize;
    }
    let shift = power - FINE;
    ((shift as usize + 1) << FINE) + ((value >> shift) as usize - (1 << FINE))
}

fn middle(class: usize) -> f64 {
    if class < 1 << FINE {
        return class as f64;
    }
    let shift = (class >> FINE) - 1;
    let low = ((class & ((1 << FINE) - 1)) + (1 << FINE)) as f64;
    (low + 0.5) * (shift as f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_in_order_and_hold_what_they_say() {
        let mut last = 0;
        for power in 0..64 {
            for value in [1_u64 << power, (1_u64 << power) | (1_u64 << power >> 1), u64::MAX >> (63 - power)]
            {
                let class = class(value);
                assert!(class >= last && class < CLASSES, "{value}");
                last = class;
                assert!((middle(class) / value as f64 - 1.0).abs() < 0.032, "{value}: {}", middle(class));
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_the_numbers() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), 0.0);
        for n in 1..=1000 {
            histogram.add(Duration::from_micros(n));
        }
        for (share, expected) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1000.0), (0.0, 1.0)] {
            let quantile = histogram.quantile(share);
            assert!((quantile / expected - 1.0).abs() < 0.032, "{share}: {quantile}");
        }
    }

    #[test]
    fn merging_is_counting_both() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        a.add(Duration::from_nanos(10));
        b.add(Duration::from_millis(10));
        a.merge(&b);
        assert_eq!(a.total(), 2);
        assert!(a.quantile(0.5) < 0.011 && a.quantile(1.0) > 9000.0);
    }
}
