//! One timed run of one contender: the threads, the clock, the CPU time, the device's own count, the check of the bytes. What
//! several runs mean together is elsewhere.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use bench_support::{Lanes, Request};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::cache::{self, Found};
use super::contender::Ready;
use super::histogram::Histogram;
use super::job::{Job, Tour, Walk};
use super::moved::Moved;
use super::movers::Mover;
use super::subject::Subject;
use super::verify::Verifier;
use crate::failure::Failure;

/// What direct requests of the baselines are aligned to; enough for every file system and device.
pub(super) const ALIGN: usize = 4096;
/// Calls below this size are so short that looking at the clock each time would show: one in [`SAMPLED`] is timed.
const SHORT: usize = 64 << 10;
const SAMPLED: u64 = 16;

/// What came of one run.
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    /// Calls, or requests of a ring.
    pub(super) operations: u64,
    /// Processor time of the whole process, user and system.
    pub(super) cpu_seconds: f64,
    pub(super) latency: Histogram,
    /// Bytes that the block device moved in that direction, for everyone; `None` where that cannot be known.
    pub(super) disk_bytes: Option<u64>,
    pub(super) found: Found,
    /// How the library moved them; nothing for others.
    pub(super) moved: Moved,
}

impl Sample {
    pub(super) fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e9 / self.seconds
    }

    pub(super) fn seconds_per_byte(&self) -> f64 {
        self.seconds / (self.bytes as f64).max(1.0)
    }
}

/// Prepares the file, then runs the contender over it once.
pub(super) fn run(ready: &mut Ready, subject: &Subject, job: &Job, seed: u64) -> Result<Sample, Failure> {
    let tour = Tour::new(job, seed);
    if job.extend {
        let os = |error| Failure::os(&subject.path, error);
        rustix::fs::ftruncate(subject.buffered(), 0).map_err(os)?;
        rustix::fs::fsync(subject.buffered()).map_err(os)?;
    }
    let found = cache::prepare(subject, job)?;
    let before = Moved::of(ready);
    let disk = subject.disk.as_ref().ok();
    let traffic = disk.and_then(|disk| disk.traffic());
    let cpu = cpu_seconds();
    let mut tally = match ready {
        Ready::Calls { movers, .. } => calls(movers, subject, job, &tour, seed)?,
        Ready::Batch { batched, .. } => {
            let verifier = job.verify.then(|| Verifier::new(subject, job, seed)).transpose()?;
            batched.run(job, tour.walk(job, 0), verifier)?
        }
        Ready::Streams { streamed, .. } => {
            let verifier = job.verify.then(|| Verifier::new(subject, job, seed)).transpose()?;
            streamed.run(job, tour.walk(job, 0), verifier)?
        }
        Ready::Ring { lanes, fd, len } => ring(lanes, fd, *len, job, &tour)?,
    };
    let sync = Instant::now();
    if job.sync {
        let (Ready::Calls { fd, .. }
        | Ready::Batch { fd, .. }
        | Ready::Streams { fd, .. }
        | Ready::Ring { fd, .. }) = ready;
        rustix::fs::fdatasync(fd).map_err(|error| Failure::os(&subject.path, error))?;
    }
    // The clock stood still during the checks.
    let moving = if job.verify { tally.busy } else { tally.elapsed };
    let seconds = (moving + sync.elapsed()).as_secs_f64();
    let cpu_seconds = cpu_seconds() - cpu;
    let now = disk.and_then(|disk| disk.traffic());
    let disk_bytes = traffic.zip(now).map(|(before, now)| match job.mix.writes() {
        true => now.written.saturating_sub(before.written),
        false => now.read.saturating_sub(before.read),
    });
    Ok(Sample {
        seconds,
        bytes: tally.bytes,
        operations: tally.operations,
        cpu_seconds,
        latency: std::mem::take(&mut tally.latency),
        disk_bytes,
        found,
        moved: Moved::of(ready).since(&before),
    })
}

/// User and system time of all threads that this process has or had.
pub(super) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// What the threads of a run did.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) bytes: u64,
    pub(super) operations: u64,
    pub(super) latency: Histogram,
    /// From the first call of any thread to the end of the last.
    pub(super) elapsed: Duration,
    /// Time in calls, of the thread that had most.
    pub(super) busy: Duration,
}

fn calls(
    movers: &mut [Box<dyn Mover>],
    subject: &Subject,
    job: &Job,
    tour: &Tour,
    seed: u64,
) -> Result<Tally, Failure> {
    let verifier = || job.verify.then(|| Verifier::new(subject, job, seed)).transpose();
    if let [mover] = movers {
        let caller = Caller { job, mover: mover.as_mut(), verifier: verifier()?, place: 0 };
        return caller.run(tour.walk(job, 0)).map(|(tally, ..)| tally);
    }
    let begin = Barrier::new(movers.len());
    let tallies: Vec<Result<(Tally, Instant, Instant), Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> = movers
            .iter_mut()
            .enumerate()
            .map(|(thread, mover)| {
                let (begin, verifier) = (&begin, &verifier);
                scope.spawn(move || {
                    if job.pin {
                        pin(thread);
                    }
                    let verifier = verifier();
                    begin.wait();
                    Caller { job, mover: mover.as_mut(), verifier: verifier?, place: 0 }
                        .run(tour.walk(job, thread))
                })
            })
            .collect();
        let panicked = |_| Err(Failure::new("benchmark", "a thread panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    let mut total = Tally::default();
    let mut times: Option<(Instant, Instant)> = None;
    for tally in tallies {
        let (tally, start, end) = tally?;
        times = Some(times.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
        total.bytes += tally.bytes;
        total.operations += tally.operations;
        total.latency.merge(&tally.latency);
        total.busy = total.busy.max(tally.busy);
    }
    total.elapsed = times.map_or(Duration::ZERO, |(first, last)| last - first);
    Ok(total)
}

/// Binds the calling thread to the nth processor that it may use.
fn pin(thread: usize) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let mut one = CpuSet::new();
    if let Some(cpu) = cpus.get(thread % cpus.len().max(1)) {
        one.set(*cpu);
        // A refusal costs only steadiness.
        let _ = sched_setaffinity(None, &one);
    }
}

/// A thread at work.
struct Caller<'a> {
    job: &'a Job,
    mover: &'a mut dyn Mover,
    verifier: Option<Verifier>,
    /// The block of device memory that is next.
    place: usize,
}

impl Caller<'_> {
    /// What was done, and when it began and ended.
    fn run(mut self, walk: Walk<'_>) -> Result<(Tally, Instant, Instant), Failure> {
        let mut tally = Tally::default();
        let every = if self.job.block < SHORT && !self.job.verify { SAMPLED } else { 1 };
        let start = Instant::now();
        for request in walk {
            if tally.operations.is_multiple_of(every) {
                if let (Some(verifier), Some(buffer)) = (&mut self.verifier, self.mover.buffer()) {
                    verifier.before(buffer, request)?;
                }
                let begun = Instant::now();
                self.whole(request)?;
                let took = begun.elapsed();
                tally.latency.add(took);
                tally.busy += took;
                if let (Some(verifier), Some(buffer)) = (&mut self.verifier, self.mover.buffer()) {
                    verifier.after(buffer, request)?;
                }
                if self.job.limit.is_some_and(|limit| start.elapsed() >= limit) {
                    tally.bytes += request.len as u64;
                    tally.operations += 1;
                    break;
                }
            } else {
                self.whole(request)?;
            }
            tally.bytes += request.len as u64;
            tally.operations += 1;
        }
        let end = Instant::now();
        tally.elapsed = end - start;
        Ok((tally, start, end))
    }

    /// Moves all of a request: a short count is no end until the next call says so.
    fn whole(&mut self, request: Request) -> Result<(), Failure> {
        let place = self.place * self.job.block;
        self.place = (self.place + 1) % self.job.places;
        let mut moved = 0;
        while moved < request.len {
            let rest = Request { offset: request.offset + moved as u64, len: request.len - moved };
            match self.mover.call(place + moved, rest)? {
                0 => {
                    let why = format_args!(
                        "it moved nothing at {}, {} bytes before the end",
                        rest.offset, rest.len
                    );
                    return Err(Failure::new("file", why));
                }
                n => moved += n,
            }
        }
        Ok(())
    }
}

fn ring(lanes: &mut Lanes, fd: &OwnedFd, len: usize, job: &Job, tour: &Tour) -> Result<Tally, Failure> {
    let start = Instant::now();
    let over = || job.limit.is_some_and(|limit| start.elapsed() >= limit);
    let alone = Job { threads: 1, block: len, ..job.clone() };
    let whole;
    let tour = if alone.block == job.block {
        tour
    } else {
        whole = Tour::new(&alone, 0);
        &whole
    };
    let mut requests = tour.walk(&alone, 0).take_while(|_| !over()).map(aligned);
    let mut tally = Tally::default();
    let ran = lanes.run(fd.as_fd(), job.mix.direction(), &mut requests, &mut |done| {
        tally.bytes += done.bytes as u64;
        tally.operations += 1;
        tally.latency.add(done.took);
    });
    ran.map_err(|error| Failure::new("io_uring", error))?;
    tally.elapsed = start.elapsed();
    tally.busy = tally.elapsed;
    Ok(tally)
}

/// The smallest aligned range around a request.
fn aligned(request: Request) -> Request {
    let skip = (request.offset % ALIGN as u64) as usize;
    Request { offset: request.offset - skip as u64, len: (skip + request.len).next_multiple_of(ALIGN) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aligned_range_holds_the_request() {
        for (offset, len, expected) in
            [(0, 4096, (0, 4096)), (1, 4096, (0, 8192)), (4095, 2, (0, 8192)), (8192, 1, (8192, 4096))]
        {
            let range = aligned(Request { offset, len });
            assert_eq!((range.offset, range.len), expected);
        }
    }
}
