//! The core's modules in which threads meet, run under orders of steps that a scheduler chooses. The modules are the core's own
//! files; only the locks, atomics and threads beneath them are others. No byte is moved here, and memory is taken to be
//! sequentially consistent: weaker orders are the thread sanitizer's to find.
#![allow(dead_code, reason = "the modules are there for the core; not all of each is used here")]
#![allow(unreachable_pub, reason = "what the core exports, this crate does not")]

#[path = "../../hipfile/src/block.rs"]
mod block;
#[path = "../../hipfile/src/desk.rs"]
mod desk;
#[path = "../../hipfile/src/error.rs"]
mod error;
#[path = "../../hipfile/src/health.rs"]
mod health;
#[path = "../../hipfile/src/notice/turn.rs"]
mod notice_turn;
#[path = "../../hipfile/src/op.rs"]
mod op;
#[path = "../../hipfile/src/pace.rs"]
mod pace;
#[path = "../../hipfile/src/pool.rs"]
mod pool;
#[path = "../../hipfile/src/rangemap.rs"]
mod rangemap;
#[path = "../../hipfile/src/reason.rs"]
mod reason;
#[path = "../../hipfile/src/registry.rs"]
mod registry;
#[path = "../../hipfile/src/slots.rs"]
mod slots;
#[path = "../../hipfile/src/ticket.rs"]
mod ticket;
#[path = "../../hipfile/src/turns.rs"]
mod turns;
#[path = "../../hipfile/src/usage.rs"]
mod usage;
#[path = "../../hipfile/src/watch.rs"]
mod watch;
#[path = "../../hipfile/src/workers.rs"]
mod workers;

pub mod batches;
pub mod blocks;
pub mod lookups;
pub mod threads;

/// What the modules synchronise with: see the core's module of this name.
mod sync {
    mod swap;

    pub(crate) use self::swap::{ArcSwap, ArcSwapOption, Guard};
    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, atomic};
    pub(crate) use shuttle::thread;

    pub(crate) fn pause(_: u64) {
        thread::yield_now();
    }

    /// No time passes here: nothing is ever stuck.
    pub(crate) const STUCK: std::time::Duration = std::time::Duration::from_secs(1);

    pub(crate) fn park_until_stuck() -> bool {
        thread::park();
        false
    }

    pub(crate) fn wait_for<'a, T>(
        woken: &Condvar,
        state: MutexGuard<'a, T>,
        _: std::time::Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        (woken.wait(state).unwrap_or_else(PoisonError::into_inner), false)
    }

    pub(crate) fn linger(found: impl Fn() -> bool) {
        (0..2).take_while(|_| !found()).for_each(|_| thread::yield_now());
    }
}

/// What the modules need of the system. Nobody forks here.
mod sys {
    #[derive(Clone, Copy)]
    pub(crate) enum Site {
        BlockMap,
        ThreadStart,
    }

    /// Here no call is made to fail.
    pub(crate) fn at<T>(_: Site, call: impl FnOnce() -> T) -> T {
        call()
    }

    pub(crate) fn forks() -> u32 {
        0
    }

    pub(crate) fn last_errno() -> i32 {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
    }
}

/// The documentation of the modules speaks of it.
struct Driver;

/// Runs a scenario `runs` times, each time in another order: half of them at random, half with few changes of thread at
/// the worst moments. A failure prints the order, which `shuttle::replay` repeats.
fn explore(runs: usize, scenario: fn()) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    shuttle::Runner::new(RandomScheduler::new(runs.div_ceil(2)), config.clone()).run(scenario);
    shuttle::Runner::new(PctScheduler::new(3, runs.div_ceil(2)), config).run(scenario);
}
