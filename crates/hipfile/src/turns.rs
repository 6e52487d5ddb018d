//! Turns at work that keeps a processor busy: so many at the same time, the others wait in order of arrival. It is no lock
//! and guards no data.

use std::collections::VecDeque;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError, park_until_stuck, thread};

/// A number of turns.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: VecDeque<Arc<Waiter>>,
    /// Turns that came back.
    ended: u64,
    /// Nobody who has a turn ends it.
    stuck: bool,
}

#[derive(Debug)]
struct Waiter {
    thread: thread::Thread,
    called: AtomicBool,
}

/// One turn, until dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    /// One beyond the number.
    extra: bool,
}

impl Turns {
    /// At least one turn at a time.
    pub(crate) fn new(most: usize) -> Turns {
        Turns {
            state: Mutex::new(State { free: most.max(1), waiting: VecDeque::new(), ended: 0, stuck: false }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn, but not behind those who never end theirs: where none ends for [`STUCK`] more are given. The caller
    /// must hold nothing that somebody who has one may wait for.
    pub(crate) fn take(&self) -> Turn<'_> {
        let mut seen;
        let waiter = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Turn { turns: self, extra: false };
            }
            if state.stuck {
                return Turn { turns: self, extra: true };
            }
            seen = state.ended;
            let waiter = Arc::new(Waiter { thread: thread::current(), called: AtomicBool::new(false) });
            state.waiting.push_back(Arc::clone(&waiter));
            waiter
        };
        while !waiter.called.load(Ordering::Acquire) {
            if !park_until_stuck() {
                continue;
            }
            let mut state = self.lock();
            if state.ended == seen && !waiter.called.load(Ordering::Acquire) {
                state.waiting.retain(|other| !Arc::ptr_eq(other, &waiter));
                state.stuck = true;
                return Turn { turns: self, extra: true };
            }
            seen = state.ended;
        }
        Turn { turns: self, extra: false }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.extra {
            return;
        }
        let mut state = self.turns.lock();
        (state.stuck, state.ended) = (false, state.ended + 1);
        // A turn goes straight to the next in line, so that nobody overtakes.
        let Some(next) = state.waiting.pop_front() else {
            state.free += 1;
            return;
        };
        drop(state);
        next.called.store(true, Ordering::Release);
        next.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn no_more_at_a_time_than_there_are_turns_and_all_get_one() {
        let turns = Turns::new(3);
        let (now, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _turn = turns.take();
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 3200);
        assert!(most.into_inner() <= 3);
        assert_eq!(turns.lock().free, 3);
    }

    #[test]
    fn who_never_ends_a_turn_keeps_nobody_waiting() {
        let turns = Turns::new(2);
        let (first, second) = (turns.take(), turns.take());
        let third = turns.take();
        assert!(third.extra && turns.lock().stuck);
        assert!(turns.take().extra, "at once now");
        drop(third);
        assert_eq!(turns.lock().free, 0, "it was one too many");
        drop(first);
        assert!(!turns.lock().stuck && !turns.take().extra);
        drop(second);
        let state = turns.lock();
        assert_eq!((state.free, state.waiting.len()), (2, 0));
    }
}
