//! One thread that looks from time to time whether something has come about that nobody tells of, such as a word that a GPU
//! writes. It waits for nothing else, and does nothing itself: what is to be done is given away by who looks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::pool;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, pause};
use crate::sys;

/// Looks once; whether it need not be done again.
pub(crate) type Look = Box<dyn FnMut() -> bool + Send>;

/// How long it rests between two rounds, in microseconds: at first, and when nothing has come about for long.
const RESTS: (u64, u64) = (40, 1000);

/// The thread, started when first asked for. Dropped, it ends once there is nothing left to look at; nobody joins it.
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
    name: &'static str,
    forks: u32,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    added: Condvar,
}

#[derive(Default)]
struct State {
    /// What the thread does not have yet.
    fresh: Vec<Look>,
    started: bool,
    closed: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("fresh", &self.fresh.len()).finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) fn new(name: &'static str) -> Watch {
        let shared = Shared { state: Mutex::new(State::default()), added: Condvar::new() };
        Watch { shared: Arc::new(shared), name, forks: sys::forks() }
    }

    /// Whether there is a thread, which is started now if need be.
    pub(crate) fn start(&self) -> bool {
        let mut state = self.shared.lock();
        if !state.started {
            let shared = Arc::clone(&self.shared);
            state.started = pool::spawn(self.name.to_owned(), move || shared.serve());
        }
        state.started
    }

    /// Looks until that is done. The thread must have been started.
    pub(crate) fn add(&self, look: Look) {
        self.shared.lock().fresh.push(look);
        self.shared.added.notify_one();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // In the child of a fork the thread does not exist, and the lock may be held by it.
        if sys::forks() == self.forks {
            self.shared.lock().closed = true;
            self.shared.added.notify_one();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut looks = Vec::new();
        let mut rest = RESTS.0;
        loop {
            let mut state = self.lock();
            while looks.is_empty() && state.fresh.is_empty() {
                if state.closed {
                    return;
                }
                state = self.added.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let fresh = std::mem::take(&mut state.fresh);
            drop(state);
            let before = looks.len() + fresh.len();
            let news = !fresh.is_empty();
            looks.extend(fresh);
            // A panic is a defect of who looks, and no reason not to look at the rest.
            looks.retain_mut(|look| !catch_unwind(AssertUnwindSafe(look)).unwrap_or(true));
            if news || looks.len() < before {
                rest = RESTS.0;
            }
            if !looks.is_empty() {
                pause(rest);
                rest = (2 * rest).min(RESTS.1);
            }
        }
    }
}
