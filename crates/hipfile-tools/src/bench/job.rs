//! What is measured: which bytes of the file, in which order, in pieces of which size, from which state of the page cache. It
//! says nothing about who does it.

use std::time::Duration;

use bench_support::Request;
use clap::ValueEnum;
use serde::Serialize;

/// Which way the bytes go, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mix {
    /// From the file, from its beginning to its end.
    Read,
    /// To the file, from its beginning to its end.
    Write,
    /// From the file, every block once in random order.
    Randread,
    /// To the file, every block once in random order.
    Randwrite,
}

impl Mix {
    pub(super) fn writes(self) -> bool {
        matches!(self, Mix::Write | Mix::Randwrite)
    }

    fn is_random(self) -> bool {
        matches!(self, Mix::Randread | Mix::Randwrite)
    }

    pub(super) fn direction(self) -> bench_support::Direction {
        if self.writes() { bench_support::Direction::Write } else { bench_support::Direction::Read }
    }
}

/// What the page cache holds of the file when the clock starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cache {
    /// Whatever the run before left.
    AsIs,
    /// Nothing.
    Cold,
    /// Every other stretch.
    Half,
    /// All of it.
    Warm,
}

impl Cache {
    pub(super) fn word(self) -> &'static str {
        match self {
            Cache::AsIs => "page cache as it is",
            Cache::Cold => "cold",
            Cache::Half => "half cached",
            Cache::Warm => "warm",
        }
    }
}

/// One thing to measure.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Job {
    pub(super) mix: Mix,
    /// Whether a writing run finds the file empty and makes it grow.
    pub(super) extend: bool,
    /// The first byte of the file in use.
    pub(super) shift: u64,
    /// How many bytes are in use, from `shift` on.
    pub(super) span: u64,
    /// Bytes of one call.
    pub(super) block: usize,
    /// Threads that call at the same time.
    pub(super) threads: usize,
    /// Blocks of device memory that each thread goes through in turn; the library only.
    pub(super) places: usize,
    /// Requests that a batch and the baseline `raw` keep under way.
    pub(super) depth: usize,
    /// Bytes of one request of the baseline `raw`, sequential only.
    pub(super) chunk: usize,
    pub(super) cache: Cache,
    /// When to stop. The blocks are visited again until then, unless a second visit would find them cached or written.
    #[serde(serialize_with = "seconds")]
    pub(super) limit: Option<Duration>,
    /// Whether written data is on stable storage before the clock stops.
    pub(super) sync: bool,
    pub(super) verify: bool,
    /// Whether each thread stays on one processor.
    pub(super) pin: bool,
}

fn seconds<S: serde::Serializer>(limit: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    limit.map(|limit| limit.as_secs_f64()).serialize(to)
}

impl Job {
    /// A sequential read of `span` bytes, cold.
    pub(super) fn read(span: u64, block: usize) -> Job {
        Job {
            mix: Mix::Read,
            extend: false,
            shift: 0,
            span,
            block,
            threads: 1,
            places: 1,
            depth: 4,
            chunk: 1 << 20,
            cache: Cache::Cold,
            limit: None,
            sync: false,
            verify: false,
            pin: false,
        }
    }

    /// Bytes of one request of the baseline `raw`.
    pub(super) fn request_len(&self) -> usize {
        if self.mix.is_random() { self.block } else { self.chunk }
    }

    fn repeats(&self) -> bool {
        self.limit.is_some() && !self.extend && (self.mix.writes() || self.cache == Cache::Warm)
    }

    /// The blocks: all of them in order; in random order only whole ones.
    fn blocks(&self) -> u64 {
        match self.mix.is_random() {
            true => self.span / self.block as u64,
            false => self.span.div_ceil(self.block as u64),
        }
    }
}

/// The order in which one round visits the blocks. The same seed gives the same order to everyone.
#[derive(Debug)]
pub(super) struct Tour {
    blocks: u64,
    order: Option<Vec<u32>>,
}

impl Tour {
    pub(super) fn new(job: &Job, seed: u64) -> Tour {
        let blocks = job.blocks();
        let order = job.mix.is_random().then(|| {
            let mut order: Vec<u32> = (0..u32::try_from(blocks).unwrap_or(u32::MAX)).collect();
            shuffle(&mut order, seed);
            order
        });
        Tour { blocks, order }
    }

    /// The part of thread `thread`: a stretch of its own in order, every nth block in random order.
    pub(super) fn walk<'a>(&'a self, job: &'a Job, thread: usize) -> Walk<'a> {
        let (thread, threads) = (thread as u64, job.threads as u64);
        let (first, end, step) = match &self.order {
            Some(order) => (thread, order.len() as u64, threads),
            None => (self.blocks * thread / threads, self.blocks * (thread + 1) / threads, 1),
        };
        Walk { tour: self, job, first, next: first, end, step }
    }
}

/// The requests of one thread.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    tour: &'a Tour,
    job: &'a Job,
    first: u64,
    next: u64,
    end: u64,
    step: u64,
}

impl Iterator for Walk<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.next >= self.end && self.job.repeats() {
            self.next = self.first;
        }
        if self.next >= self.end {
            return None;
        }
        let block = match &self.tour.order {
            Some(order) => u64::from(order[usize::try_from(self.next).ok()?]),
            None => self.next,
        };
        self.next += self.step;
        let offset = block * self.job.block as u64;
        let rest = usize::try_from(self.job.span - offset).unwrap_or(usize::MAX);
        Some(Request { offset: self.job.shift + offset, len: self.job.block.min(rest) })
    }
}

/// Puts a list into an order that looks random and is the same for the same seed.
pub(super) fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..list.len()).rev() {
        // SplitMix64: public domain, by Sebastiano Vigna.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        let other = (u128::from(word) * (last as u128 + 1)) >> 64;
        list.swap(last, other as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visited(job: &Job, seed: u64) -> Vec<Request> {
        let tour = Tour::new(job, seed);
        let mut all: Vec<Request> = (0..job.threads).flat_map(|thread| tour.walk(job, thread)).collect();
        all.sort_by_key(|request| request.offset);
        all
    }

    #[test]
    fn every_byte_is_visited_once_by_any_number_of_threads() {
        for threads in [1, 3, 16, 50] {
            let job = Job { threads, shift: 1, ..Job::read(100_001, 4096) };
            let mut at = 1;
            for request in visited(&job, 0) {
                assert_eq!(request.offset, at);
                at += request.len as u64;
            }
            assert_eq!(at, job.shift + job.span);
            let random = Job { mix: Mix::Randread, ..job };
            let offsets: Vec<u64> = visited(&random, 7).iter().map(|request| request.offset).collect();
            assert_eq!(offsets, (0..24).map(|n| 1 + n * 4096).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_seed_is_an_order() {
        let job = Job { mix: Mix::Randread, ..Job::read(1 << 20, 4096) };
        let order =
            |seed| Tour::new(&job, seed).walk(&job, 0).map(|request| request.offset).collect::<Vec<_>>();
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert!(!order(1).is_sorted());
    }

    #[test]
    fn only_what_may_be_visited_twice_is() {
        let limited = Job { limit: Some(Duration::from_secs(1)), ..Job::read(8192, 4096) };
        assert_eq!(Tour::new(&limited, 0).walk(&limited, 0).take(5).count(), 2);
        let warm = Job { cache: Cache::Warm, ..limited };
        assert_eq!(Tour::new(&warm, 0).walk(&warm, 0).take(5).count(), 5);
    }
}
