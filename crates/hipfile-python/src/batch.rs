//! Batches for Python: many transfers handed over in one call. The batch keeps the objects whose memory is in flight; what
//! state an entry is in is the core's business.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hipfile::{DevPtr, Entry, EventStatus, FileId, Op, RawBatch};
use pyo3::prelude::*;

use crate::errors::{ForPython, exception};
use crate::global;
use crate::numbers::{Address, Count, Handle, Offset, Seconds, Size};
use crate::stream::deadline;

/// How long a wait goes on before signals are looked at.
const SIGNALS: Duration = Duration::from_millis(100);

/// Transfers in flight, and what keeps their memory.
#[pyclass(frozen, module = "hipfile._core")]
pub(crate) struct Batch {
    raw: Mutex<Option<Arc<RawBatch>>>,
    held: Mutex<HashMap<u64, Py<PyAny>>>,
}

/// An entry as Python gives it: whether it writes, file, address, offset in the memory, offset in the file, bytes, cookie,
/// and what keeps the memory.
type Given = (bool, Handle, Address, Offset, Offset, Size, u64, Py<PyAny>);

/// How an entry ended: cookie, bytes, exception, or a word where it was not started.
type Ended = (u64, Option<usize>, Option<Py<PyAny>>, Option<&'static str>);

impl Batch {
    fn raw(&self, py: Python<'_>) -> PyResult<Arc<RawBatch>> {
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner).clone();
        raw.ok_or_else(|| global::not_open(py))
    }

    fn take(&self, cookie: u64) -> Option<Py<PyAny>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&cookie)
    }
}

#[pymethods]
impl Batch {
    /// A batch with room for `capacity` entries.
    #[new]
    fn new(py: Python<'_>, capacity: Count) -> PyResult<Batch> {
        let raw = RawBatch::new(capacity.0).for_python(py)?;
        Ok(Batch { raw: Mutex::new(Some(Arc::new(raw))), held: Mutex::default() })
    }

    /// Hands entries over, all or none. Cookies are the batch's own and differ.
    fn submit(&self, py: Python<'_>, entries: Vec<Given>) -> PyResult<()> {
        let raw = self.raw(py)?;
        let driver = global::current_or_closed(py)?;
        let mut list = Vec::with_capacity(entries.len());
        let mut keeps = Vec::with_capacity(entries.len());
        for (writes, file, address, buffer_offset, file_offset, len, cookie, keep) in entries {
            let op = Ok(if writes { Op::Write } else { Op::Read });
            let (file, buffer) = (FileId::from_raw(file.0), DevPtr(address.0));
            let (buffer_offset, file_offset, len) = (buffer_offset.0, file_offset.0, len.0);
            list.push(Entry { op, file, buffer, buffer_offset, file_offset, len, cookie });
            keeps.push((cookie, keep));
        }
        // Kept before the first can be over.
        let cookies: Vec<u64> = keeps.iter().map(|(cookie, _)| *cookie).collect();
        self.held.lock().unwrap_or_else(PoisonError::into_inner).extend(keeps);
        // SAFETY: the objects that own the memory and the files are kept until their events are collected, or the batch has
        // waited; an address given as a number is documented to be the user's to keep valid.
        let submitted = py.detach(|| unsafe { raw.submit(&driver, &list) });
        submitted.map_err(|error| {
            cookies.iter().for_each(|cookie| drop(self.take(*cookie)));
            exception(py, &error)
        })
    }

    /// What ended, as `(cookie, bytes, exception, word)`: waits for `least` of them, at most `timeout` seconds. An entry
    /// that was cancelled or timed out before it started has neither bytes nor exception but a word.
    #[pyo3(signature = (least, timeout=None))]
    fn poll(&self, py: Python<'_>, least: usize, timeout: Option<Seconds>) -> PyResult<Vec<Ended>> {
        let raw = self.raw(py)?;
        let until = deadline(timeout);
        let mut ended = Vec::new();
        loop {
            let left = until.map_or(SIGNALS, |until| until.saturating_duration_since(Instant::now()));
            let missing = least.saturating_sub(ended.len());
            let events = py.detach(|| raw.poll(missing, raw.capacity(), Some(left.min(SIGNALS))));
            for event in events.for_python(py)? {
                drop(self.take(event.cookie));
                ended.push(match event.status {
                    EventStatus::Complete(moved) => (event.cookie, Some(moved), None, None),
                    EventStatus::Failed(error) => {
                        let failure = exception(py, &error).into_value(py).into_any();
                        (event.cookie, None, Some(failure), None)
                    }
                    EventStatus::Canceled => (event.cookie, None, None, Some("canceled")),
                    _ => (event.cookie, None, None, Some("timed out")),
                });
            }
            let nothing_left = self.held.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
            if ended.len() >= least || nothing_left || until.is_some_and(|until| until <= Instant::now()) {
                return Ok(ended);
            }
            if ended.is_empty() {
                // Never with results in hand, which would be lost.
                py.check_signals()?;
            }
        }
    }

    /// Cancels what has not started.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let raw = self.raw(py)?;
        py.detach(|| raw.cancel()).for_python(py)
    }

    /// Cancels what has not started, waits for what has.
    fn close(&self, py: Python<'_>) {
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| {
            if let Some(raw) = &raw {
                raw.destroy();
            }
        });
        let held = std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner));
        drop(held);
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let raw = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let held = std::mem::take(self.held.get_mut().unwrap_or_else(PoisonError::into_inner));
        let Some(raw) = raw else { return };
        if global::is_exiting() || raw.in_forked_child() {
            // Whatever still runs when the process ends must find its memory; in a child it is the parent's work.
            std::mem::forget(held);
            return std::mem::forget(raw);
        }
        if !held.is_empty() {
            Python::attach(|py| py.detach(|| raw.destroy()));
        }
    }
}
