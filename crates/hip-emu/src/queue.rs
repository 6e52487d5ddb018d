//! A hardware queue: work runs in the order it came, one piece at a time, on a thread of the queue's own. Streams share
//! queues, so a stream that is held holds whatever else is queued behind it, as on a real GPU.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use gpu_sys::hip::HipError;

use crate::lock::lock;
use crate::op::Op;
use crate::state::State;
use crate::stream::Stream;
use crate::sys;

/// One queue of a device.
#[derive(Debug)]
pub(crate) struct Queue {
    device: usize,
    number: usize,
    /// Pieces of work that it holds.
    limit: usize,
    /// Work submitted and not done: what a copy looks at before it runs on its caller's thread.
    pending: AtomicUsize,
    /// The sequence number of the last piece of work that is done.
    completed: AtomicU64,
    inner: Mutex<Inner>,
    work: Condvar,
    done: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    tasks: VecDeque<Task>,
    submitted: u64,
    has_thread: bool,
    /// Whether the queue's thread has nothing to do and sleeps. To wake nobody is a system call too.
    sleeps: bool,
    /// Threads that wait for work to be done.
    waiting: usize,
}

/// Work in a queue.
#[derive(Debug)]
struct Task {
    sequence: u64,
    op: Op,
    stream: Arc<Stream>,
    /// Work of other queues that must be done first.
    after: Vec<Ticket>,
    submitted_at: u64,
}

/// A point in a queue's work: reached once everything up to it is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) queue: &'static Queue,
    pub(crate) sequence: u64,
}

impl Ticket {
    /// Whether the point is reached.
    pub(crate) fn is_reached(&self) -> bool {
        self.queue.completed.load(Ordering::Acquire) >= self.sequence
    }

    /// Waits for it.
    pub(crate) fn wait(&self) {
        if self.is_reached() {
            return;
        }
        let mut inner = lock(&self.queue.inner);
        inner.waiting += 1;
        while !self.is_reached() {
            inner = wait_on(&self.queue.done, inner);
        }
        inner.waiting -= 1;
    }
}

fn wait_on<'a>(condition: &Condvar, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
    condition.wait(inner).unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    pub(crate) fn new(device: usize, number: usize, limit: usize) -> Queue {
        Queue {
            device,
            number,
            limit,
            pending: AtomicUsize::new(0),
            completed: AtomicU64::new(0),
            inner: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
        }
    }

    /// Whether nothing is queued or running. Sees all effects of what is done.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    /// The point that everything submitted so far leads up to.
    pub(crate) fn tail(&'static self) -> Ticket {
        Ticket { queue: self, sequence: lock(&self.inner).submitted }
    }

    /// Appends work of a stream, to run after everything already in this queue and after the points given. While the
    /// queue is full it waits, as a launch on a real GPU does.
    ///
    /// # Errors
    /// hipErrorOperatingSystem when the queue's thread cannot be started.
    pub(crate) fn submit(
        &'static self,
        state: &'static State,
        stream: &Arc<Stream>,
        op: Op,
        after: Vec<Ticket>,
    ) -> Result<Ticket, HipError> {
        let mut inner = lock(&self.inner);
        if !inner.has_thread {
            self.start(state).map_err(|_| HipError::OPERATING_SYSTEM)?;
            inner.has_thread = true;
        }
        while inner.submitted - self.completed.load(Ordering::Acquire) >= self.limit as u64 {
            inner.waiting += 1;
            inner = wait_on(&self.done, inner);
            inner.waiting -= 1;
        }
        inner.submitted += 1;
        let sequence = inner.submitted;
        self.pending.fetch_add(1, Ordering::AcqRel);
        stream.began(state, sequence);
        let stream = Arc::clone(stream);
        inner.tasks.push_back(Task { sequence, op, stream, after, submitted_at: sys::now() });
        let sleeps = std::mem::take(&mut inner.sleeps);
        drop(inner);
        if sleeps {
            self.work.notify_one();
        }
        Ok(Ticket { queue: self, sequence })
    }

    /// Starts the queue's thread, which lives as long as the process. Signals are the application's, so it blocks all.
    fn start(&'static self, state: &'static State) -> std::io::Result<()> {
        let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigfillset initialises the set it is given.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: `all` is initialised, `before` may be written to. A new thread inherits the mask of its maker.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        let started = std::thread::Builder::new()
            .name(format!("hip-emu-q{}.{}", self.device, self.number))
            .spawn(move || self.serve(state));
        // SAFETY: `before` was written by the call above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut()) };
        started.map(drop)
    }

    fn serve(&'static self, state: &'static State) {
        sys::sleep_exactly();
        // When the timed link was done with the last work, so that late wake-ups of this thread do not add up.
        let mut link_time = 0;
        let mut inner = lock(&self.inner);
        loop {
            let Some(task) = inner.tasks.pop_front() else {
                inner.sleeps = true;
                inner = wait_on(&self.work, inner);
                continue;
            };
            drop(inner);
            for ticket in &task.after {
                ticket.wait();
            }
            link_time = task.op.run(state, link_time.max(task.submitted_at));
            task.stream.ended(state);
            self.pending.fetch_sub(1, Ordering::AcqRel);
            inner = lock(&self.inner);
            self.completed.store(task.sequence, Ordering::Release);
            if inner.waiting > 0 {
                self.done.notify_all();
            }
        }
    }
}
