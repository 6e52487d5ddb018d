//! What this crate's own benchmarks reach behind the API. It is behind a feature, not part of the API, and changes as they do.

use std::sync::Arc;

use crate::block::BlockPool;
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
