//! What this crate's own benchmarks reach behind the API. It is behind a feature, not part of the API, and changes as they do.

use std::sync::Arc;

use crate::block::BlockPool;
use crate::rangemap::{RangeMap, Ranged, Removal};
use crate::registry::Registry;

/// A pool of staging Blocks.
#[derive(Debug)]
pub struct Blocks(Arc<BlockPool>);

impl Blocks {
    /// Blocks of `block_len` bytes, `pool_len` bytes of them at most, the first of them mapped.
    pub fn new(block_len: usize, pool_len: usize) -> Blocks {
        let pool = BlockPool::new(block_len, pool_len, None);
        pool.warm(None);
        Blocks(pool)
    }

    /// Takes a Block and returns it at once. Whether there was one.
    pub fn take_and_return(&self) -> bool {
        self.0.take(None).is_ok()
    }
}

/// A registry as those of files and buffers are.
pub struct Records {
    registry: Registry<u64>,
    ids: Vec<u64>,
}

impl Records {
    /// A registry of `count` records.
    pub fn new(count: u64) -> Records {
        let registry = Registry::new();
        let ids = (0..count).filter_map(|n| registry.insert(Arc::new(n))).collect();
        Records { registry, ids }
    }

    /// Looks the nth record up, counted round. What it holds, if it was found.
    pub fn look_up(&self, n: usize) -> Option<u64> {
        let id = self.ids.get(n % self.ids.len().max(1))?;
        self.registry.get(*id).map(|found| *found)
    }
}

/// A range of 4 KiB for each number.
struct Page(usize);

impl Ranged for Page {
    fn base(&self) -> usize {
        self.0 * 4096
    }
    fn len(&self) -> usize {
        4096
    }
}

/// Ranges of memory as registrations are, side by side.
pub struct Ranges {
    map: RangeMap<Page>,
    count: usize,
}

impl Ranges {
    /// So many of them.
    pub fn new(count: usize) -> Ranges {
        let map = RangeMap::new();
        for n in 0..count {
            let _ = map.insert(Arc::new(Page(n)));
        }
        Ranges { map, count }
    }

    /// Looks up who holds a few bytes inside the nth range, counted round. Whether it was found.
    pub fn look_up(&self, n: usize) -> bool {
        self.map.view().holding(n.wrapping_mul(97) % self.count.max(1) * 4096 + 100, 200).is_some()
    }

    /// Takes the nth range, counted round, out and puts it in again. Whether it was there.
    pub fn renew(&self, n: usize) -> bool {
        let n = n.wrapping_mul(97) % self.count.max(1);
        let was_there = matches!(self.map.remove(n * 4096, |_| true), Removal::Done(_));
        self.map.insert(Arc::new(Page(n))).is_ok() && was_there
    }
}
