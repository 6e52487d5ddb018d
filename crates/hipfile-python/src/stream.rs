//! Transfers in the order of a GPU stream, for Python: what is in flight keeps the objects it works on, whoever forgets the
//! operation. How a stream is held and released is the core's business.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hipfile::{Ask, Caller, DevPtr, Error, FileId, Op, StreamPtr};
use pyo3::prelude::*;

use crate::errors::{ForPython, exception};
use crate::global;
use crate::numbers::{Address, Handle, Offset, Seconds, Size, StreamHandle};

/// How long a wait goes on before signals are looked at.
const SIGNALS: Duration = Duration::from_millis(100);

/// What operations work on whose Python objects were dropped while they were under way.
static LEFT: Mutex<Vec<Held>> = Mutex::new(Vec::new());
/// What a file that is to be closed is waited for: by file, what was not over when this was last looked through. This and
/// the list above are locked with the interpreter held only, so that no fork finds them locked.
static UNDER_WAY: Mutex<Vec<(u64, Arc<Outcome>)>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Outcome {
    result: Mutex<Option<Result<usize, Error>>>,
    over: Condvar,
}

impl Outcome {
    fn is_over(&self) -> bool {
        lock(&self.result).is_some()
    }
}

/// An operation, and what must outlive it.
struct Held {
    outcome: Arc<Outcome>,
    /// Only kept.
    _keep: Py<PyAny>,
}

/// The core's side of an operation. It never touches the interpreter: a thread that holds that may be waiting for the
/// stream.
struct Teller {
    ask: Ask,
    outcome: Arc<Outcome>,
}

impl Caller for Teller {
    fn bind(&mut self) -> Ask {
        self.ask
    }

    fn is_fixed(&self) -> bool {
        true
    }

    fn accepted(&mut self) {
        if self.ask.len == 0 {
            // Nothing is queued for it, and nobody will tell.
            *lock(&self.outcome.result) = Some(Ok(0));
        }
    }

    fn done(self: Box<Self>, result: hipfile::Result<usize>) {
        *lock(&self.outcome.result) = Some(result);
        self.outcome.over.notify_all();
    }
}

/// Lets go of what is over.
pub(crate) fn sweep() {
    if global::is_exiting() {
        return;
    }
    let over: Vec<Held> = lock(&LEFT).extract_if(.., |held| held.outcome.is_over()).collect();
    // Outside the lock: objects may run code of theirs when they go.
    drop(over);
}

/// Whether everything of a file that was queued on streams is over: the bytes in place, not only the file left alone.
pub(crate) fn is_over(_attached: Python<'_>, file: u64) -> bool {
    let mut all = lock(&UNDER_WAY);
    all.retain(|(_, outcome)| !outcome.is_over());
    !all.iter().any(|(of, _)| *of == file)
}

/// Forgets, in the child of a fork, what the parent has under way: locks of it may be held for ever.
pub(crate) fn after_fork_in_child(_attached: Python<'_>) {
    std::mem::forget(std::mem::take(&mut *lock(&LEFT)));
    std::mem::forget(std::mem::take(&mut *lock(&UNDER_WAY)));
}

/// A transfer that was queued on a stream.
#[pyclass(frozen, module = "hipfile._core")]
pub(crate) struct StreamOperation {
    held: Mutex<Option<Held>>,
    outcome: Arc<Outcome>,
    forks: u64,
}

impl StreamOperation {
    /// Refuses in the child of a fork, where the outcome never comes and its lock may be held for ever.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.forks == global::forks() { Ok(()) } else { Err(global::of_parent(py, "the transfer")) }
    }
}

#[pymethods]
impl StreamOperation {
    /// Whether it is over.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        self.check(py)?;
        Ok(self.outcome.is_over())
    }

    /// The bytes moved, or None while it is not over. Raises what it failed with.
    fn result(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.check(py)?;
        match lock(&self.outcome.result).clone() {
            None => Ok(None),
            Some(result) => result.map(Some).for_python(py),
        }
    }

    /// Waits until it is over or `timeout` seconds have passed; whether it is over.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<bool> {
        self.check(py)?;
        let until = deadline(timeout);
        loop {
            let over = py.detach(|| {
                let left =
                    until.map_or(SIGNALS, |until| until.saturating_duration_since(std::time::Instant::now()));
                let result = lock(&self.outcome.result);
                let waited = self.outcome.over.wait_timeout_while(result, left.min(SIGNALS), |r| r.is_none());
                waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
            });
            if over {
                return Ok(true);
            }
            py.check_signals()?;
            if until.is_some_and(|until| until <= std::time::Instant::now()) {
                return Ok(false);
            }
        }
    }
}

/// When a wait of so many seconds is over; None for never.
pub(crate) fn deadline(timeout: Option<Seconds>) -> Option<std::time::Instant> {
    let span = Duration::try_from_secs_f64(timeout?.0.max(0.0)).unwrap_or(Duration::MAX);
    std::time::Instant::now().checked_add(span)
}

impl Drop for StreamOperation {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match held {
            // Whatever still runs when the process ends must find its memory; in a child it is the parent's work.
            Some(held) if global::is_exiting() || self.forks != global::forks() => std::mem::forget(held),
            Some(held) if !held.outcome.is_over() => lock(&LEFT).push(held),
            _ => {}
        }
    }
}

/// Queues a transfer behind what the stream has to do already. `keep` is kept until it is over: whatever owns the memory
/// and the file.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "what a transfer is")]
pub(crate) fn enqueue(
    py: Python<'_>,
    writes: bool,
    file: Handle,
    address: Address,
    size: Size,
    file_offset: Offset,
    buffer_offset: Offset,
    stream: StreamHandle,
    keep: Py<PyAny>,
) -> PyResult<StreamOperation> {
    let driver = global::current_or_closed(py)?;
    sweep();
    let outcome = Arc::new(Outcome::default());
    let ask = Ask { len: size.0, file_offset: file_offset.0, buffer_offset: buffer_offset.0 };
    let teller = Box::new(Teller { ask, outcome: Arc::clone(&outcome) });
    let op = if writes { Op::Write } else { Op::Read };
    let (file, address, stream) = (FileId::from_raw(file.0), DevPtr(address.0), StreamPtr(stream.0));
    // SAFETY: `keep` holds the memory until the outcome is there, also when the operation's object is dropped; an address
    // given as a number is documented to be the user's to keep valid. So is the stream's handle.
    let queued = py.detach(|| unsafe { driver.enqueue(op, file, address, stream, teller) });
    match queued {
        Ok(()) => {
            let mut all = lock(&UNDER_WAY);
            all.retain(|(_, outcome)| !outcome.is_over());
            all.push((file.as_raw(), Arc::clone(&outcome)));
            drop(all);
            let held = Held { outcome: Arc::clone(&outcome), _keep: keep };
            Ok(StreamOperation { held: Mutex::new(Some(held)), outcome, forks: global::forks() })
        }
        Err(error) => {
            if error.device_code().is_some() {
                // Part of it may be queued: nothing may be freed before the stream has passed that.
                // SAFETY: as above.
                let _ = py.detach(|| unsafe { driver.wait_for_stream(stream) });
            }
            drop(keep);
            Err(exception(py, &error))
        }
    }
}

/// Makes ready what operations on a stream need.
#[pyfunction]
pub(crate) fn prepare_stream(py: Python<'_>, stream: StreamHandle) -> PyResult<()> {
    let driver = match global::current() {
        Some(driver) => driver,
        None => global::allocating().for_python(py)?,
    };
    py.detach(|| driver.prepare_stream(StreamPtr(stream.0))).for_python(py)
}
