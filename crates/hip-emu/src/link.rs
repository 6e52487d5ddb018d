//! The timed link of a device: how long a copy would take. It moves no byte and knows no memory.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::options;
use crate::sys;

/// The way a copy goes over the link. Both ways work at once, each at the full rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From pinned host memory to the device.
    ToDevice,
    /// From the device to pinned host memory.
    ToHost,
}

/// One device's link.
#[derive(Debug)]
pub(crate) struct TimedLink {
    pace: options::Link,
    /// When each direction has served all that was asked of it, in nanoseconds of [`sys::now`].
    free_at: [AtomicU64; 2],
}

impl TimedLink {
    pub(crate) fn new(pace: options::Link) -> TimedLink {
        TimedLink { pace, free_at: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    /// Reserves the link for `len` bytes, from `at` at the earliest. Answers when the copy is done. Copies of one direction
    /// share the rate; the latency of one overlaps with the bytes of the next.
    pub(crate) fn reserve(&self, at: u64, len: usize, direction: Direction) -> u64 {
        let busy = (len as f64 / self.pace.bytes_per_second * 1e9) as u64;
        let free_at = &self.free_at[direction as usize];
        let mut end = 0;
        let _ = free_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
            end = free.max(at) + busy;
            Some(end)
        });
        end + self.pace.latency.as_nanos() as u64
    }
}

/// Waits until that moment of [`sys::now`]: asleep, but for the last stretch, which a sleeping thread would miss.
pub(crate) fn wait_until(end: u64) {
    /// What a wake-up may come late.
    const STRETCH: u64 = 60_000;
    loop {
        let now = sys::now();
        if now >= end {
            return;
        }
        if end - now > STRETCH {
            std::thread::sleep(Duration::from_nanos(end - now - STRETCH));
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_one_direction_share_the_rate() {
        let link =
            TimedLink::new(options::Link { bytes_per_second: 1e9, latency: Duration::from_nanos(500) });
        assert_eq!(link.reserve(1000, 1000, Direction::ToDevice), 2500);
        assert_eq!(link.reserve(1000, 1000, Direction::ToDevice), 3500);
        assert_eq!(link.reserve(1000, 1000, Direction::ToHost), 2500);
        assert_eq!(link.reserve(9000, 1000, Direction::ToDevice), 10_500);
    }
}
