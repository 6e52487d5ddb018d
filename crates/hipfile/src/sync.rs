//! The locks, atomics and threads of those modules whose every order of steps is tried out: std's here, a scheduler's in
//! the crate `hipfile-model`, which takes the same modules. It adds nothing to them.

pub(crate) use arc_swap::{ArcSwap, ArcSwapOption, Guard};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, atomic};
pub(crate) use std::thread;

/// How long a thread without work looks for some before it sleeps. About what a wake-up takes on a virtual machine.
const LINGER: std::time::Duration = std::time::Duration::from_micros(40);

/// Rests for so many microseconds, or somewhat longer.
pub(crate) fn pause(microseconds: u64) {
    thread::sleep(std::time::Duration::from_micros(microseconds));
}

/// Returns once `found` says so, or after a moment.
pub(crate) fn linger(found: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !found() && began.elapsed() < LINGER {
        // On a busy machine it is somebody else that finds the work.
        std::thread::yield_now();
    }
}
