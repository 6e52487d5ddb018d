//! The library by its door for batches: a number of requests under way, each replaced as soon as it ends. One thread hands over and
//! collects.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bench_support::{Direction, Request};
use hipfile::{Batch, Buffer, Driver, EventStatus, Finished, Op};

use super::job::{Job, Walk};
use super::run::Tally;
use super::verify::Verifier;
use crate::failure::Failure;

/// A batch, and the memory of the requests that are not under way.
pub(super) struct Batched {
    batch: Batch,
    file: Arc<hipfile::File>,
    op: Op,
    idle: Vec<Buffer>,
}

/// A request under way.
#[derive(Clone, Copy)]
struct Flight {
    request: Request,
    begun: Instant,
}

/// What the library calls a direction.
pub(super) fn op_of(direction: Direction) -> Op {
    match direction {
        Direction::Read => Op::Read,
        Direction::Write => Op::Write,
    }
}

/// What is left to do of a job that has ended: of one that is done, an empty range.
pub(super) fn rest_of(ended: Finished) -> Result<hipfile::Job, Failure> {
    let mut job = ended.job;
    let moved = match ended.status {
        EventStatus::Complete(moved) => moved,
        EventStatus::Failed(error) => return Err(Failure::new("hipfile", error)),
        other => return Err(Failure::new("hipfile", format_args!("a request ended as {other:?}"))),
    };
    if moved == 0 && !job.range.is_empty() {
        return Err(Failure::new("file", format_args!("it moved nothing at {}", job.file_offset)));
    }
    job.range.start += moved;
    job.file_offset += moved as u64;
    Ok(job)
}

impl Batched {
    /// As many requests are under way as there are buffers; each is as long as a request at most.
    pub(super) fn new(
        driver: &Driver,
        file: Arc<hipfile::File>,
        direction: Direction,
        idle: Vec<Buffer>,
    ) -> Result<Batched, Failure> {
        let batch = Batch::new(driver, idle.len()).map_err(|error| Failure::new("--depth", error))?;
        Ok(Batched { batch, file, op: op_of(direction), idle })
    }

    /// Moves one request before anything is timed.
    pub(super) fn warm_up(&mut self, request: Request) -> Result<(), Failure> {
        let mut flights = HashMap::new();
        if let Some(buffer) = self.idle.pop() {
            let job = self.job(request.offset, buffer, 0..request.len);
            flights.insert(request.offset, Flight { request, begun: Instant::now() });
            self.submit(vec![job])?;
        }
        while !self.batch.is_empty() {
            self.collect(&mut flights, |_, _, _| Ok(()))?;
        }
        Ok(())
    }

    /// Carries out all requests of a walk.
    pub(super) fn run(
        &mut self,
        job: &Job,
        mut walk: Walk<'_>,
        mut verifier: Option<Verifier>,
    ) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        let start = Instant::now();
        let mut flights = HashMap::new();
        loop {
            let mut jobs = Vec::new();
            let over = job.limit.is_some_and(|limit| start.elapsed() >= limit);
            while !over && let Some(mut buffer) = self.idle.pop() {
                let Some(request) = walk.next() else {
                    self.idle.push(buffer);
                    break;
                };
                if let Some(verifier) = &mut verifier {
                    verifier.before(&mut buffer, request)?;
                }
                flights.insert(request.offset, Flight { request, begun: Instant::now() });
                jobs.push(self.job(request.offset, buffer, 0..request.len));
            }
            if !jobs.is_empty() {
                self.submit(jobs)?;
            }
            if self.batch.is_empty() {
                tally.elapsed = start.elapsed();
                tally.busy = tally.elapsed;
                return Ok(tally);
            }
            self.collect(&mut flights, |flight, request, buffer| {
                tally.latency.add(flight.begun.elapsed());
                tally.bytes += request.len as u64;
                tally.operations += 1;
                verifier.as_mut().map_or(Ok(()), |verifier| verifier.after(buffer, request))
            })?;
        }
    }

    fn job(&self, file_offset: u64, buffer: Buffer, range: Range<usize>) -> hipfile::Job {
        hipfile::Job { op: self.op, file: Arc::clone(&self.file), file_offset, buffer, range }
    }

    fn submit(&mut self, jobs: Vec<hipfile::Job>) -> Result<(), Failure> {
        self.batch.submit(jobs).map_err(|(error, _)| Failure::new("hipfile", error))
    }

    /// Waits for one request at least; hands over again what ended short.
    fn collect(
        &mut self,
        flights: &mut HashMap<u64, Flight>,
        mut done: impl FnMut(Flight, Request, &mut Buffer) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let finished = self.batch.wait(1, None).map_err(|error| Failure::new("hipfile", error))?;
        for ended in finished {
            let mut job = rest_of(ended)?;
            if job.range.is_empty() {
                let begun_at = job.file_offset - job.range.start as u64;
                if let Some(flight) = flights.remove(&begun_at) {
                    done(flight, flight.request, &mut job.buffer)?;
                }
                self.idle.push(job.buffer);
            } else {
                self.submit(vec![job])?;
            }
        }
        Ok(())
    }
}
