//! Pinned memory of pools that are gone. It must not be unmapped under the runtime, and the runtime must not be asked to
//! unpin it, because the pool's destructor may run at exit. So it waits here for the next pool; a process that opens and
//! closes drivers in turn goes on with the same memory.

use std::ptr::NonNull;

use crate::sync::Mutex;
use crate::sys;

struct Left {
    start: NonNull<u8>,
    len: usize,
    pinned: Vec<&'static str>,
    /// The memory is not inherited by a fork, so it is of use in the process only that made it.
    forks: u32,
}

// SAFETY: plain memory, which belongs to whoever takes it from the list.
unsafe impl Send for Left {}

/// Its lock is only tried: in the child of a fork it may be held by a thread that does not exist there.
static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());

pub(super) fn leave(start: NonNull<u8>, len: usize, pinned: Vec<&'static str>) {
    if let Ok(mut list) = LEFT.try_lock() {
        list.push(Left { start, len, pinned, forks: sys::forks() });
    }
}

/// Memory of exactly that length, and the runtimes that have pinned it. It is not zeroed.
pub(super) fn take(len: usize) -> Option<(NonNull<u8>, Vec<&'static str>)> {
    let forks = sys::forks();
    let mut list = LEFT.try_lock().ok()?;
    let at = list.iter().position(|left| left.len == len && left.forks == forks)?;
    let left = list.swap_remove(at);
    Some((left.start, left.pinned))
}
