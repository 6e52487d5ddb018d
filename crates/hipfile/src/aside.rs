//! Reads around the page cache that no thread waits for: who starts one goes on, and one thread takes all answers. The kernel
//! does the work. It knows no stream, and decides nothing.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::pool;
use crate::sys::aio::{Answer, Context};
use crate::sys::{self, Site};

/// How many may be under way. More wait for threads, or for storage, anyway.
const MOST: u32 = 128;
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
}

#[derive(Debug, Default)]
struct State {
    under_way: usize,
    closed: bool,
}

/// A read that is under way, and whose its memory is meanwhile.
struct Read {
    done: Done,
    _into: &'static mut [u8],
}

impl Aside {
    pub(crate) fn new(name: &'static str) -> Aside {
        Aside { name, made: OnceLock::new(), forks: sys::forks() }
    }

    /// Starts a read into the first `len` bytes of the memory, which like `at` and `len` is aligned for O_DIRECT. Or gives
    /// `done` back, uncalled: it would have to wait, or there can be none.
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
        let data = Box::into_raw(Box::new(Read { done, _into: into })).expose_provenance();
        shared.lock().under_way += 1;
        // SAFETY: the memory is `into`, which nobody uses before the answer has come; the rest is the caller's promise.
        let started =
            sys::at(Site::AsideRead, || unsafe { shared.context.read(data as u64, fd, at, memory) });
        started.map_err(|_| {
            shared.answered(1);
            // SAFETY: made above. There will be no answer, so that nobody else has it.
            unsafe { take(data) }.done
        })
    }
}

/// # Safety
/// The address is that of a box, given once.
unsafe fn take(data: usize) -> Read {
    // SAFETY: as this function demands.
    *unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<Read>(data)) }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // A child of a fork has neither the context nor the thread.
        let Some(Some(shared)) = self.made.get().filter(|_| sys::forks() == self.forks) else { return };
        let mut state = shared.lock();
        state.closed = true;
        if state.under_way == 0 {
            drop(state);
            // It takes long, and who drops this may be the caller of something else.
            let ended = Arc::clone(shared);
            if !pool::spawn(self.name.to_owned(), move || ended.context.destroy()) {
                shared.context.destroy();
            }
        }
    }
}

impl Shared {
    fn new(name: &str) -> Option<Arc<Shared>> {
        let context = sys::at(Site::AsideSetup, || Context::new(MOST)).ok()?;
        let shared = Arc::new(Shared { context, state: Mutex::default() });
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

    /// So many are not under way any more. Whether that was the end.
    fn answered(&self, count: usize) -> bool {
        let mut state = self.lock();
        state.under_way -= count;
        state.closed && state.under_way == 0
    }

    fn serve(&self) {
        let mut answers = [Answer::default(); TAKEN];
        loop {
            let count = match self.context.wait(&mut answers) {
                Ok(count) => count,
                // One that is gone is one that nobody uses. Anything else passes.
                Err(libc::EINVAL) if self.lock().closed => return,
                Err(_) => continue,
            };
            for answer in &answers[..count] {
                // SAFETY: what was given with the request, which is answered once.
                let Read { done, .. } = unsafe { take(answer.data as usize) };
                let result = sys::moves(Site::AsideEnd, || answer.result());
                // A panic is a defect of who is told; the others are told all the same.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| done(result)));
            }
            if self.answered(count) {
                return self.context.destroy();
            }
        }
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
