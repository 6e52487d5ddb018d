//! Handles of streams, events, modules, graphs: numbers that are never used twice, so that a stale one is always known.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::lock::Sharded;

/// The objects of one kind, by handle.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    known: Sharded<BTreeMap<usize, Arc<T>>>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Handles { known: Sharded::default() }
    }
}

impl<T> Handles<T> {
    /// Adds an object and gives it a handle.
    pub(crate) fn insert(&self, object: Arc<T>) -> usize {
        /// Above the small numbers that HIP gives to its default streams; steps look like addresses.
        static NEXT: AtomicUsize = AtomicUsize::new(0x10_0000);
        let handle = NEXT.fetch_add(0x10, Ordering::Relaxed);
        self.known.write().insert(handle, object);
        handle
    }

    /// The object of a handle, if it exists (still).
    pub(crate) fn get(&self, handle: usize) -> Option<Arc<T>> {
        self.known.read().get(&handle).cloned()
    }

    /// Takes the object of a handle out: the handle means nothing from now on.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        self.known.write().remove(&handle)
    }
}
