//! Reads around the page cache that no thread waits for: who starts one goes on, and one thread takes all answers. The kernel
//! does the work. It knows no stream, and decides nothing.

use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::pool;
use crate::sync::pause;
use crate::sys::aio::{Answer, Context};
use crate::sys::{self, Site};

/// How many may be under way. More wait for threads, or for storage, anyway.
const MOST: usize = 128;
/// How many answers are taken at once.
const TAKEN: usize = 32;

/// Told how a read ended: the bytes, or its errno. On the thread that takes answers, which is not to be kept.
pub(crate) type Done = Box<dyn FnOnce(Result<usize, i32>) + Send>;

/// Where reads are started. Made ready by the first. Dropped, it ends when all are answered; nobody waits for that.
#[derive(Debug)]
pub(crate) struct Aside {
    name: &'static str,
    made: OnceLock<Option<Arc<Shared>>>,
    forks: u32,
}

#[derive(Debug)]
struct Shared {
    context: Context,
    state: Mutex<State>,
    /// Wakes the thread, which sleeps here while nothing is under way.
    started: Condvar,
}

struct State {
    /// Those that are started, each at its number.
    reads: Vec<Option<Read>>,
    /// Numbers of none.
    free: Vec<usize>,
    /// Reads that are known to be started, less those that are answered. An answer may come before that is known.
    under_way: isize,
    sleeps: bool,
    closed: bool,
}

/// A read that is under way, and whose its memory is meanwhile.
struct Read {
    done: Done,
    _into: &'static mut [u8],
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl Aside {
    pub(crate) fn new(name: &'static str) -> Aside {
        Aside { name, made: OnceLock::new(), forks: sys::forks() }
    }

    /// Starts a read into the memory, which like `at` is aligned as O_DIRECT has it. Or gives `done` back, uncalled: it would
    /// have to wait, or there can be none.
    ///
    /// # Safety
    /// The descriptor stays open until `done` is called.
    pub(crate) unsafe fn read(
        &self,
        fd: BorrowedFd<'_>,
        at: u64,
        into: &'static mut [u8],
        done: Done,
    ) -> Result<(), Done> {
        let Some(shared) = self.made.get_or_init(|| Shared::new(self.name)) else { return Err(done) };
        let memory: *mut [u8] = into;
        let mut state = shared.lock();
        let Some(number) = state.free.pop() else { return Err(done) };
        state.reads[number] = Some(Read { done, _into: into });
        drop(state);
        // SAFETY: the memory is `into`, which nobody uses before the answer has come; the rest is the caller's promise.
        let started =
            sys::at(Site::AsideRead, || unsafe { shared.context.read(number as u64, fd, at, memory) });
        let mut state = shared.lock();
        if started.is_err() {
            // There will be no answer.
            return match state.take(number) {
                Some(read) => Err(read.done),
                None => Ok(()),
            };
        }
        state.under_way += 1;
        let sleeps = state.sleeps;
        drop(state);
        if sleeps {
            shared.started.notify_one();
        }
        Ok(())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // A child of a fork has neither the context nor the thread.
        if let Some(Some(shared)) = self.made.get().filter(|_| sys::forks() == self.forks) {
            shared.lock().closed = true;
            shared.started.notify_one();
        }
    }
}

impl State {
    fn take(&mut self, number: usize) -> Option<Read> {
        let read = self.reads.get_mut(number)?.take()?;
        self.free.push(number);
        Some(read)
    }
}

impl Shared {
    fn new(name: &str) -> Option<Arc<Shared>> {
        let context = sys::at(Site::AsideSetup, || Context::new(MOST as u32)).ok()?;
        let reads = std::iter::repeat_with(|| None).take(MOST).collect();
        let free = (0..MOST).rev().collect();
        let state = State { reads, free, under_way: 0, sleeps: false, closed: false };
        let shared = Arc::new(Shared { context, state: Mutex::new(state), started: Condvar::new() });
        let answers = Arc::clone(&shared);
        if pool::spawn(name.to_owned(), move || answers.serve()) {
            return Some(shared);
        }
        shared.context.destroy();
        None
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut answers = [Answer::default(); TAKEN];
        while self.await_some() {
            let count = match sys::at(Site::AsideWait, || self.context.wait(&mut answers)) {
                Ok(count) => count,
                Err(libc::EINTR) => continue,
                Err(_) => {
                    // A sandbox closed behind those that are under way.
                    pause(500);
                    self.context.look(&mut answers)
                }
            };
            let mut state = self.lock();
            state.under_way -= count as isize;
            let ended =
                answers[..count].iter().map(|answer| (state.take(answer.data as usize), answer.result()));
            let ended: Vec<_> = ended.collect();
            drop(state);
            for (read, result) in ended {
                let Some(Read { done, .. }) = read else { continue };
                let result = sys::moves(Site::AsideEnd, || result);
                // A panic is a defect of who is told; the others are told all the same.
                let _ = catch_unwind(AssertUnwindSafe(|| done(result)));
            }
        }
        // It takes some tens of milliseconds. Here, where no other context can have its number yet and nobody else waits.
        self.context.destroy();
    }

    /// Sleeps until a read is under way. Not if there will be none any more.
    fn await_some(&self) -> bool {
        let mut state = self.lock();
        while state.under_way <= 0 {
            if state.closed {
                return false;
            }
            state.sleeps = true;
            state = self.started.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleeps = false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    const PAGE: usize = 4096;

    /// A file whose bytes are in the page cache, where such a read finds them too.
    fn file(pages: usize) -> std::fs::File {
        let mut file = tempfile::tempfile().unwrap();
        (0..pages).for_each(|page| file.write_all(&[page as u8 + 1; PAGE]).unwrap());
        file
    }

    #[test]
    fn each_read_is_told_of_once_or_given_back() {
        let (aside, file) = (Aside::new("hipfile-test"), file(100));
        let (told, tells) = mpsc::channel();
        let mut given_back = 0;
        for round in 0..5 {
            for page in 0..100 {
                let into = vec![0_u8; PAGE].leak();
                let bytes = into.as_ptr().expose_provenance();
                let told = told.clone();
                let done = Box::new(move |result| told.send((page, bytes, result)).unwrap());
                // SAFETY: the file is kept.
                let read = unsafe { aside.read(file.as_fd(), (page * PAGE) as u64, into, done) };
                given_back += usize::from(read.is_err());
            }
            for _ in 0..100 - given_back {
                let (page, bytes, result) = tells.recv_timeout(Duration::from_secs(60)).unwrap();
                assert_eq!(result, Ok(PAGE), "round {round}");
                let bytes: *const u8 = std::ptr::with_exposed_provenance(bytes);
                // SAFETY: leaked above, and nobody writes to it any more.
                let bytes = unsafe { std::slice::from_raw_parts(bytes, PAGE) };
                assert!(bytes.iter().all(|byte| *byte == page as u8 + 1));
            }
            assert!(given_back < 100, "some are taken");
            given_back = 0;
        }
        assert!(tells.try_recv().is_err());
    }

    /// As after a sandbox has closed.
    #[test]
    fn answers_are_found_without_a_call_too() {
        let (context, file) = (Context::new(8).unwrap(), file(1));
        let mut answers = [Answer::default(); 3];
        let mut memory = [0_u8; 64];
        // More than the ring has places for, so that it is gone round.
        for round in 0..300_u64 {
            assert_eq!(context.look(&mut answers), 0);
            for n in 0..4 {
                let into = &raw mut memory[..];
                // SAFETY: the bytes are in the page cache: they are there when the call returns.
                unsafe { context.read(round * 4 + n, file.as_fd(), 0, into) }.unwrap();
            }
            assert_eq!(context.look(&mut answers), 3);
            let seen = answers.map(|answer| (answer.data, answer.result()));
            assert_eq!(seen, [0, 1, 2].map(|n| (round * 4 + n, Ok(64))));
            assert_eq!((context.look(&mut answers), answers[0].data), (1, round * 4 + 3));
        }
        assert_eq!(memory, [1; 64]);
        context.destroy();
    }

    #[test]
    fn nothing_is_left_when_it_is_dropped() {
        let (aside, file) = (Aside::new("hipfile-test"), file(1));
        let (told, tells) = mpsc::channel();
        for at in [0, u64::MAX] {
            let told = told.clone();
            let done = Box::new(move |result: Result<usize, i32>| told.send(result).unwrap());
            // SAFETY: the file is kept.
            let read = unsafe { aside.read(file.as_fd(), at, vec![0_u8; PAGE].leak(), done) };
            assert_eq!(read.is_ok(), at == 0, "an offset that no file has is given back");
        }
        let shared = Arc::downgrade(aside.made.get().unwrap().as_ref().unwrap());
        drop(aside);
        assert_eq!(tells.recv_timeout(Duration::from_secs(60)).unwrap(), Ok(PAGE));
        let end = Instant::now() + Duration::from_secs(60);
        while shared.upgrade().is_some() {
            assert!(Instant::now() < end, "its thread ends");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
