//! Streams for Rust programs: what is in flight belongs to the stream. It adds ownership, no rules.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::desk::EventStatus;
use crate::device::{Device, StreamPtr, Streams};
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::owned::{Finished, Job, entry};
use crate::stream::{Ask, Caller};

/// A stream of a GPU, and the jobs queued on it, which it carries out one after the other.
///
/// The stream owns the jobs that are in flight, buffers included. Dropping a [`Pending`] leaves its job to the stream, which
/// frees it when it is over, at the next call. Dropping the stream waits until its jobs are over: do not drop one that is
/// held by something this thread has yet to release. A stream that is forgotten instead leaks what is in flight. Either way
/// no memory is freed that is in use.
///
/// ```
/// # use std::sync::Arc;
/// # use hipfile::{Buffer, Config, DeviceChoice, Driver, EventStatus, File, Job, Op, Stream};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("data"), vec![7; 8192])?;
/// # let mut config = Config::from_env();
/// # config.device = DeviceChoice::Emulated;
/// # let driver = Driver::open(config)?;
/// let file = Arc::new(File::register(&driver, std::fs::File::open(dir.path().join("data"))?)?);
/// let stream = Stream::new(&driver, 0)?;
/// let buffer = Buffer::alloc(&driver, 0, 8192)?;
/// let job = Job { op: Op::Read, file, file_offset: 0, buffer, range: 0..8192 };
/// let pending = stream.submit(job).map_err(|(error, _)| error)?;
/// let finished = pending.wait();
/// assert!(matches!(finished.status, EventStatus::Complete(8192)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Stream {
    driver: Driver,
    device: Arc<dyn Device>,
    ptr: StreamPtr,
    /// Whether the stream is ours to destroy.
    made: bool,
    /// What is in flight. A job leaves it only when it is over, whoever still waits for it.
    held: Mutex<Vec<Arc<Held>>>,
}

/// A job in flight. Only the stream and the caller's [`Pending`] refer to it, never the runtime's threads, where no memory
/// of a GPU may be freed.
#[derive(Debug)]
struct Held {
    job: Mutex<Option<Job>>,
    outcome: Arc<Outcome>,
}

/// What a job comes to.
#[derive(Debug, Default)]
struct Outcome {
    told: Mutex<Told>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct Told {
    result: Option<Result<usize>>,
    /// Whether anybody waits for it.
    awaited: bool,
}

/// The operation's side of a job.
struct Teller {
    ask: Ask,
    outcome: Arc<Outcome>,
}

/// A job that was submitted to a [`Stream`].
#[derive(Debug)]
#[must_use = "dropping it leaves the job to the stream, and nobody will know how it ended"]
pub struct Pending {
    held: Arc<Held>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outcome {
    fn is_over(&self) -> bool {
        lock(&self.told).result.is_some()
    }

    /// Waits; the result stays.
    fn await_it(&self) -> Result<usize> {
        let mut told = lock(&self.told);
        loop {
            if let Some(result) = &told.result {
                return result.clone();
            }
            told.awaited = true;
            told = self.over.wait(told).unwrap_or_else(PoisonError::into_inner);
        }
    }
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
            lock(&self.outcome.told).result = Some(Ok(0));
        }
    }

    fn done(self: Box<Self>, result: Result<usize>) {
        let mut told = lock(&self.outcome.told);
        told.result = Some(result);
        if told.awaited {
            self.outcome.over.notify_all();
        }
    }
}

impl Stream {
    /// A new stream of a GPU, which waits for no other stream, nor they for it.
    ///
    /// # Errors
    /// `DeviceNotFound`, `AsyncNotSupported`, the runtime's error, or why no runtime serves.
    pub fn new(driver: &Driver, gpu: u32) -> Result<Stream> {
        const OP: &str = "make stream";
        driver.check_process(OP, ErrorKind::DriverClosing)?;
        let device = driver.inner.devices().first()?;
        let ptr = streams_of(device.as_ref(), OP)?.create(gpu)?;
        let stream = Stream::with(driver, device, ptr, true);
        driver.prepare_stream(ptr).map(|()| stream)
    }

    /// A stream of the caller's, which the runtime made and which is not destroyed with this.
    ///
    /// # Errors
    /// As [`Driver::prepare_stream`].
    ///
    /// # Safety
    /// The stream is one of the runtime that serves, and stays until this is dropped.
    pub unsafe fn from_raw(driver: &Driver, ptr: StreamPtr) -> Result<Stream> {
        driver.prepare_stream(ptr)?;
        Ok(Stream::with(driver, driver.inner.devices().first()?, ptr, false))
    }

    fn with(driver: &Driver, device: &Arc<dyn Device>, ptr: StreamPtr, made: bool) -> Stream {
        Stream { driver: driver.clone(), device: Arc::clone(device), ptr, made, held: Mutex::default() }
    }

    /// The runtime's handle, for work of the caller's own in the order of the stream.
    pub fn ptr(&self) -> StreamPtr {
        self.ptr
    }

    /// Queues a job behind what the stream has to do already. Does not wait.
    ///
    /// # Errors
    /// As [`Driver::enqueue`], and `InvalidValue` for a range or an offset that no file or buffer has; the job comes back
    /// with the error. After an error of the runtime the stream is waited for first, since part of the job may be queued.
    pub fn submit(&self, job: Job) -> Result<Pending, (Error, Box<Job>)> {
        self.sweep();
        let (ask, buffer) = match entry(&job, 0) {
            Ok(e) => {
                (Ask { len: e.len, file_offset: e.file_offset, buffer_offset: e.buffer_offset }, e.buffer)
            }
            Err(error) => return Err((error, Box::new(job))),
        };
        let (op, file, outcome) = (job.op, job.file.id(), Arc::new(Outcome::default()));
        let teller = Box::new(Teller { ask, outcome: Arc::clone(&outcome) });
        // SAFETY: the buffer and the file are kept, out of anybody's reach, until the outcome is there; on failure until the
        // stream has nothing of it left.
        let queued = unsafe { self.driver.enqueue(op, file, buffer, self.ptr, teller) };
        if let Err(error) = queued {
            if error.kind() == ErrorKind::HipDriverError {
                let _ = self.synchronize();
            }
            return Err((error, Box::new(job)));
        }
        let held = Arc::new(Held { job: Mutex::new(Some(job)), outcome });
        lock(&self.held).push(Arc::clone(&held));
        Ok(Pending { held })
    }

    /// Waits until the stream has nothing more to do, work of others included.
    ///
    /// # Errors
    /// The runtime's.
    pub fn wait(&self) -> Result<()> {
        self.driver.check_process("wait for stream", ErrorKind::DriverClosing)?;
        let waited = self.synchronize();
        self.sweep();
        waited
    }

    fn synchronize(&self) -> Result<()> {
        streams_of(self.device.as_ref(), "wait for stream")?.synchronize(self.ptr)
    }

    /// Lets go of what is over. Jobs that nobody waits for are freed here, outside the lock.
    fn sweep(&self) {
        let over: Vec<_> = lock(&self.held).extract_if(.., |held| held.outcome.is_over()).collect();
        drop(over);
    }
}

impl Driver {
    /// Waits until a stream of the caller's has nothing more to do: what was queued on it before may then be read, and
    /// overwritten, by transfers that do not know the stream.
    ///
    /// # Errors
    /// Why no runtime serves, `AsyncNotSupported`, or the runtime's error.
    ///
    /// # Safety
    /// The stream is one of the runtime that serves, and stays until the call returns.
    pub unsafe fn wait_for_stream(&self, stream: StreamPtr) -> Result<()> {
        const OP: &str = "wait for stream";
        self.check_process(OP, ErrorKind::DriverClosing)?;
        streams_of(self.inner.devices().first()?.as_ref(), OP)?.synchronize(stream)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let held = std::mem::take(&mut *lock(&self.held));
        if self.driver.in_forked_child() {
            // It is the parent's work; here nothing will ever end.
            return std::mem::forget(held);
        }
        held.iter().for_each(|held| drop(held.outcome.await_it()));
        drop(held);
        if let (true, Some(streams)) = (self.made, self.device.streams()) {
            let _ = streams.destroy(self.ptr);
        }
    }
}

impl Pending {
    /// Whether the job is over.
    pub fn is_over(&self) -> bool {
        self.held.outcome.is_over()
    }

    /// Waits until the job is over.
    ///
    /// # Panics
    /// Never: each job is given back once.
    pub fn wait(self) -> Finished {
        let status = match self.held.outcome.await_it() {
            Ok(moved) => EventStatus::Complete(moved),
            Err(error) => EventStatus::Failed(error),
        };
        match lock(&self.held.job).take() {
            Some(job) => Finished { job, status },
            None => unreachable!("only this takes it"),
        }
    }
}

fn streams_of<'d>(device: &'d dyn Device, op: &'static str) -> Result<&'d dyn Streams> {
    device.streams().ok_or_else(|| {
        Error::message(ErrorKind::AsyncNotSupported, op, "the GPU runtime has no stream operations")
    })
}
