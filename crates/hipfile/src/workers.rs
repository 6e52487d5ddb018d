//! Threads that run queued work, one job after the other. Not for a call's own helpers, which are in `pool`: nobody waits
//! here for a job to end.

use std::collections::VecDeque;
use std::time::Instant;

use crate::pool;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, STUCK, linger, wait_for};
use crate::sys;

/// Work that may run at any time on any thread.
pub(crate) type Job = Box<dyn FnOnce() -> Came + Send>;

/// What a thread came for when it was given a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    ForWork,
    /// Somebody else had done it meanwhile. What comes next is likely to go that way too.
    ForNothing,
}

/// How many threads may look for work before they sleep.
const LINGERING: usize = 4;

/// How many more threads there may be while those are at storage that hangs.
const EXTRA: usize = 480;

/// A bounded number of threads, started when needed: more only where for [`STUCK`] none of them ended a job. Dropped, they do
/// what is queued and end; nobody joins them.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
    forks: u32,
}

#[derive(Debug)]
struct Shared {
    name: &'static str,
    most: usize,
    state: Mutex<State>,
    work: Condvar,
    /// Wakes the thread in reserve.
    closing: Condvar,
    /// How many jobs are queued, for the thread that looks without the lock.
    queued: AtomicUsize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that sleep.
    idle: usize,
    /// Threads that look for a job a little longer before they sleep.
    lingering: usize,
    /// When a job ended last, or the first of those that wait came.
    moved: Option<Instant>,
    /// Whether a thread waits in reserve.
    reserve: bool,
    closed: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("jobs", &self.jobs.len())
            .field("threads", &self.threads)
            .field("idle", &self.idle)
            .field("lingering", &self.lingering)
            .finish_non_exhaustive()
    }
}

impl Workers {
    /// At most `most` threads (at least one), named `name` and a number.
    pub(crate) fn new(name: &'static str, most: usize) -> Workers {
        let shared = Shared {
            name,
            most: most.max(1),
            state: Mutex::new(State::default()),
            work: Condvar::new(),
            closing: Condvar::new(),
            queued: AtomicUsize::new(0),
        };
        Workers { shared: Arc::new(shared), forks: sys::forks() }
    }

    /// Whether jobs wait for a thread.
    pub(crate) fn is_behind(&self) -> bool {
        self.shared.queued.load(Ordering::Relaxed) > 0
    }

    /// Queues a job. Where not one thread can be had it is run here and now.
    pub(crate) fn push(&self, job: Job) {
        let mut state = self.shared.lock();
        if state.jobs.is_empty() {
            state.moved = Some(Instant::now());
        }
        state.jobs.push_back(job);
        self.shared.queued.store(state.jobs.len(), Ordering::Relaxed);
        // A thread that lingers looks once more, with the lock, before it sleeps.
        if state.jobs.len() <= state.lingering {
            return;
        }
        if state.jobs.len() > state.idle + state.lingering {
            if state.threads >= self.shared.most {
                Shared::keep_reserve(&self.shared, &mut state);
            } else if Shared::spawn(&self.shared, &state, Shared::serve) {
                state.threads += 1;
            } else if state.threads == 0 {
                let job = state.jobs.pop_back();
                self.shared.queued.store(state.jobs.len(), Ordering::Relaxed);
                drop(state);
                job.into_iter().map(run).for_each(drop);
                return;
            }
        }
        let asleep = state.idle > 0;
        drop(state);
        // To wake nobody is a system call too.
        if asleep {
            self.shared.work.notify_one();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // In the child of a fork the threads do not exist, and the lock may be held by one of them.
        if sys::forks() == self.forks {
            self.shared.lock().closed = true;
            self.shared.work.notify_all();
            self.shared.closing.notify_all();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(this: &Arc<Shared>, state: &State, body: fn(&Arc<Shared>)) -> bool {
        let shared = Arc::clone(this);
        pool::spawn(format!("{}{}", this.name, state.threads), move || body(&shared))
    }

    /// Sees to it that somebody looks whether jobs wait for threads that do not come back.
    fn keep_reserve(this: &Arc<Shared>, state: &mut State) {
        if !state.reserve && state.threads < this.most + EXTRA {
            state.reserve = Shared::spawn(this, state, Shared::stand_by);
        }
    }

    /// Waits until no job has ended for a while though some wait, and serves them then; ends when none waits.
    fn stand_by(this: &Arc<Shared>) {
        let (mut state, mut serves) = (this.lock(), false);
        while !serves && !state.jobs.is_empty() && !state.closed {
            let quiet = state.moved.map_or(STUCK, |moved| moved.elapsed());
            if quiet >= STUCK {
                (serves, state.threads) = (true, state.threads + 1);
            } else {
                state = wait_for(&this.closing, state, STUCK - quiet).0;
            }
        }
        state.reserve = false;
        drop(state);
        if serves {
            this.serve();
        }
    }

    fn serve(self: &Arc<Shared>) {
        let mut state = self.lock();
        let mut lingered = true;
        loop {
            if let Some(job) = state.jobs.pop_front() {
                self.queued.store(state.jobs.len(), Ordering::Relaxed);
                if !state.jobs.is_empty() && state.threads >= self.most {
                    Shared::keep_reserve(self, &mut state);
                }
                drop(state);
                lingered = run(job) == Came::ForNothing;
                state = self.lock();
                state.moved = Some(Instant::now());
            } else if state.closed {
                return;
            } else if state.threads > self.most && state.idle > 0 {
                // One that was started while others were stuck, or one of these.
                state.threads -= 1;
                return;
            } else if !lingered && state.lingering < LINGERING {
                // What comes next often comes soon, and a wake-up takes longer than the work.
                lingered = true;
                state.lingering += 1;
                drop(state);
                linger(|| self.queued.load(Ordering::Relaxed) > 0);
                state = self.lock();
                state.lingering -= 1;
            } else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

fn run(job: Job) -> Came {
    // A panic is a defect of the job; its tickets tell, and the thread serves the next.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).unwrap_or(Came::ForWork)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// However many never end, the others are run.
    #[test]
    fn jobs_that_hang_keep_no_other_waiting() {
        let workers = Workers::new("hipfile-test", 2);
        let (done, ended) = mpsc::channel();
        let (release, hangs) = mpsc::channel::<()>();
        let hangs = Arc::new(std::sync::Mutex::new(hangs));
        for _ in 0..5 {
            let hangs = Arc::clone(&hangs);
            workers.push(Box::new(move || {
                let _ = hangs.lock().unwrap().recv();
                Came::ForWork
            }));
        }
        for n in 0..20 {
            let done = done.clone();
            workers.push(Box::new(move || {
                let _ = done.send(n);
                Came::ForWork
            }));
        }
        for _ in 0..20 {
            ended.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        assert!(workers.shared.lock().threads > 2);
        drop(release);
        let end = Instant::now() + Duration::from_secs(60);
        while workers.shared.lock().threads > 2 {
            assert!(Instant::now() < end, "what is not needed any more ends");
            workers.push(Box::new(|| Came::ForWork));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn all_jobs_run_also_behind_a_panic_and_after_the_drop() {
        let (done, ended) = mpsc::channel();
        let workers = Workers::new("hipfile-test", 3);
        for n in 0..100 {
            let done = done.clone();
            workers.push(Box::new(move || {
                assert_ne!(n, 50, "one job fails");
                let _ = done.send((n, std::thread::current().name().map(str::to_owned)));
                Came::ForWork
            }));
        }
        assert!(workers.shared.lock().threads <= 3);
        drop((workers, done));
        let mut seen: Vec<_> =
            std::iter::from_fn(|| ended.recv_timeout(Duration::from_secs(20)).ok()).collect();
        seen.sort();
        assert_eq!(seen.len(), 99);
        assert!(seen.iter().all(|(_, name)| name.as_ref().is_some_and(|n| n.starts_with("hipfile-test"))));
    }
}
