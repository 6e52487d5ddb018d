//! Who takes part in a measurement, by name, and how each is made ready: drivers opened, memory there, files open. How they
//! move bytes is in `movers`; nothing is timed here.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bench_support::{HugePages, Lanes};
use clap::ValueEnum;
use hipfile::{Buffer, Config, Driver};
use serde::Serialize;

use super::batched::Batched;
use super::job::Job;
use super::movers::{Copy, Direct, Host, Library, Mover, Posix, Serial};
use super::streamed::Streamed;
use super::subject::{Subject, pattern};
use crate::failure::Failure;

/// Requests that `uring16` keeps in flight.
const PLAIN_DEPTH: usize = 16;

/// Something to compare the library with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Baseline {
    /// AMD's scheme: 16 MiB mapped for each call, one chunk at a time through the page cache, each written chunk synced
    Serial,
    /// io_uring with O_DIRECT into huge pages at --chunk and --depth, no copy: the ceiling
    Raw,
    /// The copy between host and device alone
    Copy,
    /// pread or pwrite through the page cache and one device copy, memory reused
    Posix,
    /// pread or pwrite through the page cache and one memcpy, no GPU runtime
    Host,
    /// pread or pwrite with O_DIRECT, no copy
    Pread,
    /// io_uring with O_DIRECT, 16 requests of --block in flight, nothing registered, no copy
    Uring16,
}

impl Baseline {
    pub(super) fn name(self) -> &'static str {
        match self {
            Baseline::Serial => "serial",
            Baseline::Raw => "raw",
            Baseline::Copy => "copy",
            Baseline::Posix => "posix",
            Baseline::Host => "host",
            Baseline::Pread => "pread",
            Baseline::Uring16 => "uring16",
        }
    }
}

/// A way into the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Door {
    /// Blocking calls; several at the same time by --threads
    Sync,
    /// Streams: --depth of them, each with one request under way, submitted and waited for by one thread
    Async,
    /// A batch: --depth requests under way, handed over and collected by one thread
    Batch,
}

impl Door {
    /// As the command line has it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Door::Sync => "sync",
            Door::Async => "async",
            Door::Batch => "batch",
        }
    }
}

/// Who takes part.
#[derive(Clone, Debug)]
pub(super) enum Who {
    /// The library, by this door and with these settings.
    Library(Door, Box<Config>),
    Baseline(Baseline),
}

/// A contender that is ready.
pub(super) enum Ready {
    /// One mover for each thread.
    Calls {
        movers: Vec<Box<dyn Mover>>,
        /// What to sync when written data must be durable.
        fd: Arc<OwnedFd>,
        /// The library's driver, whose counters tell how the bytes went.
        driver: Option<Driver>,
    },
    /// The library's batch.
    Batch { batched: Batched, fd: Arc<OwnedFd>, driver: Driver },
    /// The library's streams.
    Streams { streamed: Streamed, fd: Arc<OwnedFd>, driver: Driver },
    /// A ring that carries out the whole tour itself.
    Ring {
        lanes: Lanes,
        fd: Arc<OwnedFd>,
        /// Bytes of one request.
        len: usize,
    },
}

/// Where everything happens.
pub(super) struct Lab<'a> {
    pub(super) subject: &'a Subject,
    pub(super) gpu: u32,
    /// The driver whose memory the baselines copy to and from.
    pub(super) driver: &'a Driver,
}

impl Lab<'_> {
    /// Makes a contender ready for a job.
    ///
    /// # Errors
    /// Too little memory, a file system without O_DIRECT, or what the device answers.
    pub(super) fn ready(&self, who: &Who, job: &Job) -> Result<Ready, Failure> {
        let direction = job.mix.direction();
        match who {
            Who::Library(door, config) => {
                let mut config = (**config).clone();
                if *door == Door::Async {
                    // Each stream with work queued has a Block.
                    config.stream_len = config.stream_len.max(job.depth * config.block_len);
                }
                let driver = Driver::open(config).map_err(|e| Failure::new("GPU", e))?;
                let fd = Arc::new(self.subject.reopen()?);
                let own = fd.try_clone().map_err(|error| Failure::at(&self.subject.path, error))?;
                let file = hipfile::File::register(&driver, own)
                    .map_err(|error| Failure::at(&self.subject.path, error))?;
                let file = Arc::new(file);
                let memory = || {
                    (0..job.depth).map(|lane| self.memory(&driver, job, lane)).collect::<Result<Vec<_>, _>>()
                };
                match door {
                    Door::Sync => {}
                    Door::Async => {
                        let streamed = Streamed::new(&driver, file, direction, self.gpu, memory()?)?;
                        return Ok(Ready::Streams { streamed, fd, driver });
                    }
                    Door::Batch => {
                        let batched = Batched::new(&driver, file, direction, memory()?)?;
                        return Ok(Ready::Batch { batched, fd, driver });
                    }
                }
                let movers = each_thread(job, |thread| {
                    let buffer = self.memory(&driver, job, thread)?;
                    Ok(Box::new(Library { file: Arc::clone(&file), buffer, direction }))
                })?;
                Ok(Ready::Calls { movers, fd, driver: Some(driver) })
            }
            Who::Baseline(baseline) => self.baseline(*baseline, job),
        }
    }

    fn baseline(&self, baseline: Baseline, job: &Job) -> Result<Ready, Failure> {
        let direction = job.mix.direction();
        let (depth, len) = match baseline {
            Baseline::Raw => (job.depth, job.request_len()),
            _ => (PLAIN_DEPTH, job.block),
        };
        match baseline {
            Baseline::Raw | Baseline::Uring16 => {
                let fd = Arc::new(self.subject.reopen_direct()?);
                // Room for the aligned superset of a request that is not aligned. The plain reader registers nothing.
                let room = (len + 2 * super::run::ALIGN).next_multiple_of(super::run::ALIGN);
                let room =
                    if job.shift.is_multiple_of(4096) && len.is_multiple_of(4096) { len } else { room };
                let mut lanes = Lanes::new(depth, room, baseline == Baseline::Raw)
                    .map_err(|error| Failure::new(format_args!("{}: memory", baseline.name()), error))?;
                pattern(lanes.bytes_mut(), 0, 1);
                return Ok(Ready::Ring { lanes, fd, len });
            }
            _ => {}
        }
        let fd = Arc::new(match baseline {
            Baseline::Pread => self.subject.reopen_direct()?,
            _ => self.subject.reopen()?,
        });
        let movers = (0..job.threads).map(|thread| -> Result<Box<dyn Mover>, Failure> {
            let fd = Arc::clone(&fd);
            Ok(match baseline {
                Baseline::Serial => {
                    Box::new(Serial { fd, buffer: self.memory(self.driver, job, thread)?, direction })
                }
                Baseline::Posix => Box::new(Posix {
                    fd,
                    staging: staging(job)?,
                    buffer: self.memory(self.driver, job, thread)?,
                    direction,
                }),
                Baseline::Copy => Box::new(Copy {
                    staging: staging(job)?,
                    buffer: self.memory(self.driver, job, thread)?,
                    direction,
                }),
                Baseline::Host => {
                    Box::new(Host { fd, staging: staging(job)?, memory: staging(job)?, direction })
                }
                Baseline::Pread | Baseline::Raw | Baseline::Uring16 => {
                    Box::new(Direct { fd, staging: staging(job)?, direction })
                }
            })
        });
        let movers = movers.collect::<Result<_, _>>()?;
        Ok(Ready::Calls { movers, fd, driver: None })
    }

    /// Device memory for one thread, each page of it there, with bytes of its own in it.
    fn memory(&self, driver: &Driver, job: &Job, thread: usize) -> Result<Buffer, Failure> {
        const PIECE: usize = 4 << 20;
        let failure =
            |error| Failure::new(format_args!("{} bytes of memory of GPU {}", job.block, self.gpu), error);
        let size = job.block * job.places;
        let mut buffer = Buffer::alloc(driver, self.gpu, size).map_err(failure)?;
        let mut piece = vec![0; PIECE.min(size)];
        for at in (0..size).step_by(PIECE) {
            let len = PIECE.min(size - at);
            pattern(&mut piece[..len], at as u64, 2 + thread as u64);
            buffer.upload(at, &piece[..len]).map_err(failure)?;
        }
        Ok(buffer)
    }
}

fn each_thread(
    job: &Job,
    mut make: impl FnMut(usize) -> Result<Box<dyn Mover>, Failure>,
) -> Result<Vec<Box<dyn Mover>>, Failure> {
    (0..job.threads).map(&mut make).collect()
}

fn staging(job: &Job) -> Result<HugePages, Failure> {
    let mut pages = HugePages::new(job.block).map_err(|error| Failure::new("staging memory", error))?;
    pattern(&mut pages, 0, 1);
    Ok(pages)
}
