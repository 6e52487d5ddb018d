//! Batches by number, for the C interface. It knows nothing of what a batch does.

use std::sync::Arc;

use super::RawBatch;
use crate::error::{Error, ErrorKind, Result};
use crate::registry::Registry;
use crate::sys;

/// Batches by number, for callers who know them by a handle. Numbers are never given out twice in a process; any number
/// may be asked about, without a lock.
pub struct Batches {
    registry: Registry<RawBatch>,
    forks: u32,
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batches").finish_non_exhaustive()
    }
}

impl Default for Batches {
    fn default() -> Batches {
        Batches::new()
    }
}

impl Batches {
    /// None yet.
    pub fn new() -> Batches {
        Batches { registry: Registry::new(), forks: sys::forks() }
    }

    /// Whether this process is a fork of the one that made the list. Then batches can be looked up here, and nothing else.
    pub fn in_forked_child(&self) -> bool {
        sys::forks() != self.forks
    }

    /// Keeps a batch; its number, never 0.
    ///
    /// # Errors
    /// `InternalError` when there are 16 million, `DriverClosing` in the child of a fork.
    pub fn insert(&self, batch: RawBatch) -> Result<u64> {
        const OP: &str = "set up batch";
        if self.in_forked_child() {
            return Err(Error::message(ErrorKind::DriverClosing, OP, "the list was made before fork"));
        }
        let full = || Error::message(ErrorKind::InternalError, OP, "there are too many batches");
        self.registry.insert(Arc::new(batch)).ok_or_else(full)
    }

    /// The batch of this number.
    pub fn get(&self, number: u64) -> Option<Arc<RawBatch>> {
        Some(self.registry.get(number)?.to_arc())
    }

    /// Takes a batch out; none in the child of a fork.
    pub fn remove(&self, number: u64) -> Option<Arc<RawBatch>> {
        // The lock may be held by a thread that does not exist here.
        if self.in_forked_child() { None } else { self.registry.remove(number) }
    }
}
