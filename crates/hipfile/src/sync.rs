//! The locks, atomics and threads of those modules whose every order of steps is tried out: std's here, a scheduler's in
//! the crate `hipfile-model`, which takes the same modules. It adds nothing to them.

pub(crate) use arc_swap::{ArcSwap, ArcSwapOption, Guard};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, atomic};
pub(crate) use std::thread;

/// How long a thread without work looks for some before it sleeps. About what a wake-up takes on a virtual machine.
const LINGER: std::time::Duration = std::time::Duration::from_micros(40);

/// For how long nothing of something may come back before those who wait for a share of it stop waiting: then whoever has it is
/// at storage that hangs, which is to hold up only who asked it. Longer than busy storage ever takes for one request.
pub(crate) const STUCK: std::time::Duration = std::time::Duration::from_secs(1);

/// Parks the thread until it is unparked, or for [`STUCK`]; whether that long.
pub(crate) fn park_until_stuck() -> bool {
    let began = std::time::Instant::now();
    thread::park_timeout(STUCK);
    began.elapsed() >= STUCK
}

/// Waits to be woken for at most so long; whether that was over.
pub(crate) fn wait_for<'a, T>(
    woken: &Condvar,
    state: MutexGuard<'a, T>,
    most: std::time::Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (state, over) = woken.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner);
    (state, over.timed_out())
}

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
