//! The thread that has an idle pool give memory back. It knows when to look, not what is given.

use std::time::Duration;

use super::BlockPool;
use crate::pool;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

/// What wakes the thread before its time: the end of the pool.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rings.notify_all();
    }

    /// Whether it was rung within that time.
    fn wait(&self, most: Duration) -> bool {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.rings.wait_timeout_while(rung, most, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Starts the thread, which looks each time that the pool may have been idle for so long. Whether there is one.
pub(super) fn start(blocks: Weak<BlockPool>, bell: Arc<Bell>, idle: Duration) -> bool {
    pool::spawn("hipfile-trim".to_owned(), move || {
        while !bell.wait(idle) {
            let Some(blocks) = blocks.upgrade() else { return };
            if !blocks.used.swap(false, Ordering::Relaxed) {
                blocks.trim(1);
            }
            let mut slow = blocks.lock();
            if slow.is_small() {
                slow.janitor = false;
                return;
            }
        }
    })
}
