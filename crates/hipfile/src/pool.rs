//! Threads that help with one large transfer at a time. Not a task queue: a call shares its work out, works itself, and
//! returns when all helpers are done.

use std::collections::VecDeque;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, linger, thread};
use crate::sys::{self, Site};

/// Helpers shared by all transfers of a driver.
#[derive(Debug)]
pub(crate) struct Helpers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
    /// How many jobs are offered, for the helper that looks without the lock.
    offered: AtomicUsize,
    most: usize,
}

#[derive(Default, Debug)]
struct State {
    jobs: VecDeque<Arc<Job>>,
    threads: usize,
    idle: usize,
    /// Helpers that look for a job a little longer before they sleep.
    lingering: usize,
    closed: bool,
}

/// Work offered; both numbers change under the state's mutex only.
struct Job {
    work: Work,
    /// Helpers that may still join.
    open: AtomicUsize,
    /// Helpers at work.
    busy: AtomicUsize,
}

/// The borrowed closure of a call, its lifetime erased: [`Helpers::share`] returns only when no helper uses it.
struct Work(*const (dyn Fn() + Sync));

// SAFETY: the closure is Sync, so other threads may call it; it outlives every call (see `Helpers::share`).
unsafe impl Send for Work {}
// SAFETY: as for Send.
unsafe impl Sync for Work {}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("open", &self.open).field("busy", &self.busy).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helpers {
    /// At most `most` threads, started when first needed.
    pub(crate) fn new(most: usize) -> Helpers {
        let shared = Shared {
            state: Mutex::new(State::default()),
            work: Condvar::new(),
            done: Condvar::new(),
            offered: AtomicUsize::new(0),
            most,
        };
        Helpers { shared: Arc::new(shared) }
    }

    /// Runs `work` on this thread and on up to `helpers` others at the same time; returns when all have returned.
    /// Each must take its share from something they have in common. A helper that is busy elsewhere just does not
    /// come. `work` must not panic.
    pub(crate) fn share(&self, helpers: usize, work: &(dyn Fn() + Sync)) {
        if helpers == 0 || self.shared.most == 0 {
            return work();
        }
        // SAFETY: only the lifetime changes; the pointer is used by helpers that this function waits for below.
        let erased = unsafe {
            std::mem::transmute::<*const (dyn Fn() + Sync + '_), *const (dyn Fn() + Sync + 'static)>(work)
        };
        let job =
            Arc::new(Job { work: Work(erased), open: AtomicUsize::new(helpers), busy: AtomicUsize::new(0) });
        self.offer(&job, helpers);
        // Withdraws the offer and waits, also when `work` unwinds: the closure must not be used after this frame.
        let _finish = Finish { shared: &self.shared, job: &job };
        work();
    }

    fn offer(&self, job: &Arc<Job>, helpers: usize) {
        let mut state = lock(&self.shared.state);
        state.jobs.push_back(Arc::clone(job));
        self.shared.offered.store(state.jobs.len(), Ordering::Relaxed);
        // Who lingers looks once more, with the lock, before it sleeps.
        let awaited = helpers.saturating_sub(state.lingering);
        let missing = awaited.saturating_sub(state.idle).min(self.shared.most - state.threads);
        for _ in 0..missing {
            let shared = Arc::clone(&self.shared);
            let spawned = spawn(format!("hipfile-io{}", state.threads), move || shared.serve());
            // Without a thread the caller does all of it.
            if !spawned {
                break;
            }
            state.threads += 1;
        }
        let asleep = awaited.min(state.idle);
        drop(state);
        (0..asleep).for_each(|_| self.shared.work.notify_one());
    }
}

struct Finish<'a> {
    shared: &'a Shared,
    job: &'a Arc<Job>,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.jobs.retain(|other| !Arc::ptr_eq(other, self.job));
        self.shared.offered.store(state.jobs.len(), Ordering::Relaxed);
        self.job.open.store(0, Ordering::Relaxed);
        if self.job.busy.load(Ordering::Relaxed) > 0 {
            // Shares are alike: the others are nearly done.
            drop(state);
            linger(|| self.job.busy.load(Ordering::Relaxed) == 0);
            state = lock(&self.shared.state);
        }
        while self.job.busy.load(Ordering::Relaxed) > 0 {
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        // Not joined: a destructor may run where waiting is not allowed. The threads end by themselves.
        lock(&self.shared.state).closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = lock(&self.state);
        let mut lingered = true;
        loop {
            if let Some(job) = next_job(&mut state) {
                self.offered.store(state.jobs.len(), Ordering::Relaxed);
                drop(state);
                // SAFETY: this helper is counted as busy, so `share` has not returned and the closure is alive.
                let work = unsafe { &*job.work.0 };
                // A panic would be a defect of the work; it must not leave the caller waiting.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                state = lock(&self.state);
                if job.busy.fetch_sub(1, Ordering::Relaxed) == 1 {
                    self.done.notify_all();
                }
                lingered = false;
            } else if state.closed {
                return;
            } else if !lingered {
                // Large calls come one after the other, and a wake-up takes as long as a copy of 128 KiB.
                lingered = true;
                state.lingering += 1;
                drop(state);
                linger(|| self.offered.load(Ordering::Relaxed) > 0);
                state = lock(&self.state);
                state.lingering -= 1;
            } else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

/// Joins the oldest job that wants a helper.
fn next_job(state: &mut State) -> Option<Arc<Job>> {
    while let Some(job) = state.jobs.front() {
        let open = job.open.load(Ordering::Relaxed);
        if open > 0 {
            job.open.store(open - 1, Ordering::Relaxed);
            job.busy.fetch_add(1, Ordering::Relaxed);
            return Some(Arc::clone(job));
        }
        state.jobs.pop_front();
    }
    None
}

/// A thread with a name and all signals blocked: they are the host program's business.
pub(crate) fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> bool {
    // SAFETY: a signal set is plain data, for which all zeroes is a value.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is a signal set to be filled.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: both sets are valid; the new thread inherits the mask, this one gets its own back below.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    let spawned = sys::at(Site::ThreadStart, || thread::Builder::new().name(name).spawn(body)).is_ok();
    // SAFETY: `before` is the mask this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    spawned
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn all_work_is_done_when_share_returns() {
        let helpers = Helpers::new(3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
                        helpers.share(3, &|| {
                            while next.fetch_add(1, Ordering::Relaxed) < 20 {
                                std::hint::spin_loop();
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                        });
                        assert_eq!(done.into_inner(), 20);
                    }
                });
            }
        });
        assert!(lock(&helpers.shared.state).threads <= 3);
        assert!(lock(&helpers.shared.state).jobs.is_empty());
    }

    #[test]
    fn without_threads_the_caller_does_it() {
        let ran = AtomicUsize::new(0);
        Helpers::new(0).share(4, &|| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.into_inner(), 1);
    }

    #[test]
    fn helpers_block_signals_and_have_names() {
        let helpers = Helpers::new(1);
        let seen = Mutex::new(Vec::new());
        let both = std::sync::Barrier::new(2);
        helpers.share(1, &|| {
            both.wait();
            let blocked = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
            let blocked = blocked.lines().find_map(|l| l.strip_prefix("SigBlk:\t")).unwrap_or("").to_owned();
            lock(&seen).push((std::thread::current().name().map(str::to_owned), blocked));
        });
        let seen = seen.into_inner().unwrap();
        let helper = seen.iter().find(|(name, _)| name.as_deref() == Some("hipfile-io0")).expect("a helper");
        // SIGTERM is number 15.
        assert!(u64::from_str_radix(&helper.1, 16).unwrap() & (1 << 14) != 0);
    }
}
