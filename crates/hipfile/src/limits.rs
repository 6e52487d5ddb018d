//! The settings that may change while a driver is open, where the way of data looks them up. It decides nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::Config;

/// What is in force now. Reading it writes no shared memory.
#[derive(Debug)]
pub(crate) struct Limits {
    direct_max: AtomicUsize,
    /// 0 when nothing is polled for.
    poll_max: AtomicUsize,
}

impl Limits {
    pub(crate) fn new(config: &Config) -> Limits {
        let limits = Limits { direct_max: AtomicUsize::new(0), poll_max: AtomicUsize::new(0) };
        limits.follow(config);
        limits
    }

    /// Takes over what has changed.
    pub(crate) fn follow(&self, config: &Config) {
        self.direct_max.store(config.direct_max, Ordering::Relaxed);
        self.poll_max.store(if config.poll { config.poll_max } else { 0 }, Ordering::Relaxed);
    }

    /// Largest transfer that is waited for by looking again and again; 0 for none.
    pub(crate) fn poll_max(&self) -> usize {
        self.poll_max.load(Ordering::Relaxed)
    }

    /// Most bytes of one piece of a direct transfer; a multiple of 64 KiB.
    pub(crate) fn direct_max(&self) -> usize {
        self.direct_max.load(Ordering::Relaxed)
    }
}
