//! A range of staging memory, and who has pinned it. It gives no Blocks out.

use std::ptr::NonNull;

use crate::sync::atomic::AtomicU64;
use crate::sync::{Arc, Mutex, PoisonError};

/// Makes a range fast to copy from and to, and undoes that; failing to is no error, only slower.
pub(crate) struct Pin {
    /// The runtime's name: what one runtime has pinned it must not be asked to pin again.
    pub(crate) runtime: &'static str,
    pub(crate) pin: Box<dyn Fn(*mut u8, usize) + Send + Sync>,
    pub(crate) unpin: Box<dyn Fn(*mut u8) + Send + Sync>,
}

/// Memory that several Blocks are made of.
pub(super) struct Slab {
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
    pub(super) blocks: usize,
    /// The memory node it lies on, where that was asked for.
    pub(super) node: Option<u32>,
    /// The runtimes that have pinned it.
    pub(super) pinned: Mutex<Vec<&'static str>>,
    /// One bit per free Block. All zero too while the slab is cold: then it has no memory.
    pub(super) free: AtomicU64,
    /// One bit per Block that is out of use because it is beyond the limit. Changed under the pool's lock.
    pub(super) retired: AtomicU64,
}

// SAFETY: the slab is plain memory; which thread may touch which Block is decided by the bits of `free`.
unsafe impl Send for Slab {}
// SAFETY: as for Send.
unsafe impl Sync for Slab {}

impl Slab {
    pub(super) fn all(&self) -> u64 {
        if self.blocks == 64 { u64::MAX } else { (1 << self.blocks) - 1 }
    }

    /// Pins it with those that have not yet.
    pub(super) fn pin(&self, pins: &[Arc<Pin>]) {
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        for pin in pins {
            if !pinned.contains(&pin.runtime) {
                (pin.pin)(self.start.as_ptr(), self.len);
                pinned.push(pin.runtime);
            }
        }
    }

    /// Unpins it, if everyone who has pinned it can be asked to.
    pub(super) fn unpin(&self, pins: &[Arc<Pin>]) -> bool {
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        if !pinned.iter().all(|runtime| pins.iter().any(|pin| pin.runtime == *runtime)) {
            return false;
        }
        pins.iter()
            .filter(|pin| pinned.contains(&pin.runtime))
            .for_each(|pin| (pin.unpin)(self.start.as_ptr()));
        pinned.clear();
        true
    }
}
