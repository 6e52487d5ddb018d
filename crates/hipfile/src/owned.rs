//! Batches for Rust programs: what is in flight belongs to the batch. It adds ownership, no rules.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Entry, RawBatch};
use crate::desk::EventStatus;
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::{Buffer, File};
use crate::op::Op;

/// One transfer between a file and a buffer, for a [`Batch`].
#[derive(Debug)]
pub struct Job {
    /// The direction.
    pub op: Op,
    /// The file.
    pub file: Arc<File>,
    /// Where in the file.
    pub file_offset: u64,
    /// The memory. The batch keeps it until the job is finished.
    pub buffer: Buffer,
    /// Which part of the memory.
    pub range: Range<usize>,
}

/// A job that ended.
#[derive(Debug)]
pub struct Finished {
    /// The job as it was given, buffer included.
    pub job: Job,
    /// How it ended.
    pub status: EventStatus,
}

/// Transfers handed over together and collected as they end, in any order.
///
/// The batch owns the buffers that are in flight. Dropping it cancels what has not started, waits for what has, and then
/// frees the buffers; results that were not collected are lost. A batch that is forgotten instead
/// ([`std::mem::forget`]) leaks its buffers, and everything that was submitted is carried out. Either way no memory is freed
/// that is in use.
///
/// ```
/// # use std::sync::Arc;
/// # use hipfile::{Batch, Buffer, Config, DeviceChoice, Driver, EventStatus, File, Job, Op};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("data"), vec![7; 8192])?;
/// # let mut config = Config::from_env();
/// # config.device = DeviceChoice::Emulated;
/// # let driver = Driver::open(config)?;
/// let file = Arc::new(File::register(&driver, std::fs::File::open(dir.path().join("data"))?)?);
/// let mut batch = Batch::new(&driver, 16)?;
/// let mut jobs = Vec::new();
/// for file_offset in [0, 4096] {
///     let buffer = Buffer::alloc(&driver, 0, 4096)?;
///     jobs.push(Job { op: Op::Read, file: Arc::clone(&file), file_offset, buffer, range: 0..4096 });
/// }
/// batch.submit(jobs).map_err(|(error, _)| error)?;
/// for finished in batch.wait(2, None)? {
///     assert!(matches!(finished.status, EventStatus::Complete(4096)));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Batch {
    /// First, so that it is dropped, and has waited, before any buffer is freed.
    raw: RawBatch,
    driver: Driver,
    held: HashMap<u64, Job>,
    next: u64,
}

impl Batch {
    /// A batch with room for `capacity` jobs, 1 to [`MAX_BATCH`](crate::MAX_BATCH).
    ///
    /// # Errors
    /// `InvalidValue` for another capacity.
    pub fn new(driver: &Driver, capacity: usize) -> Result<Batch> {
        Ok(Batch { raw: RawBatch::new(capacity)?, driver: driver.clone(), held: HashMap::new(), next: 0 })
    }

    /// Jobs submitted and not collected.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there is nothing to collect, now or later.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Hands jobs over, all or none.
    ///
    /// # Errors
    /// As [`RawBatch::submit`]; the jobs come back with the error.
    pub fn submit(&mut self, jobs: Vec<Job>) -> Result<(), (Error, Vec<Job>)> {
        let entries: Result<Vec<_>> =
            jobs.iter().zip(self.next..).map(|(job, cookie)| entry(job, cookie)).collect();
        // What was accepted must be kept, so there must be room for it beforehand.
        if self.held.try_reserve(jobs.len()).is_err() {
            let why = "there is not enough memory";
            return Err((Error::message(ErrorKind::InternalError, "submit batch", why), jobs));
        }
        // SAFETY: the batch keeps the buffers and the files until their events are collected, and nobody else can reach
        // the buffers: it owns them.
        let submitted = entries.and_then(|entries| unsafe { self.raw.submit(&self.driver, &entries) });
        if let Err(error) = submitted {
            return Err((error, jobs));
        }
        for job in jobs {
            self.held.insert(self.next, job);
            self.next += 1;
        }
        Ok(())
    }

    /// Collects what ended. Waits for `min` jobs, at most for as long as `timeout` says; fewer come when fewer are left.
    ///
    /// # Errors
    /// `InvalidValue` when `min` is above the capacity.
    pub fn wait(&mut self, min: usize, timeout: Option<Duration>) -> Result<Vec<Finished>> {
        let events = self.raw.poll(min, self.raw.capacity(), timeout)?;
        let mut finished = Vec::with_capacity(events.len());
        for event in events {
            // Every event is of a job that is held.
            if let Some(job) = self.held.remove(&event.cookie) {
                finished.push(Finished { job, status: event.status });
            }
        }
        Ok(finished)
    }

    /// Cancels the jobs that have not started.
    ///
    /// # Errors
    /// `DriverClosing` in the child of a fork.
    pub fn cancel(&mut self) -> Result<()> {
        self.raw.cancel()
    }
}

pub(crate) fn entry(job: &Job, cookie: u64) -> Result<Entry> {
    let Range { start, end } = job.range;
    let invalid = |why: String| Error::message(ErrorKind::InvalidValue, job.op.name(), why);
    let len = end.checked_sub(start);
    let len = len.ok_or_else(|| invalid(format!("the range {start}..{end} ends before it starts")))?;
    let too_far = |_| invalid(format!("file offset {} is too large", job.file_offset));
    let file_offset = i64::try_from(job.file_offset).map_err(too_far)?;
    let buffer_offset =
        i64::try_from(start).map_err(|_| invalid(format!("buffer offset {start} is too large")))?;
    let (op, file, buffer) = (Ok(job.op), job.file.id(), job.buffer.ptr());
    Ok(Entry { op, file, buffer, buffer_offset, file_offset, len, cookie })
}
