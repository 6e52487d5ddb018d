//! The library by its door for streams: a number of streams, each with one request under way, waited for in turn and replaced.
//! One thread submits and waits.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bench_support::{Direction, Request};
use hipfile::{Buffer, Driver, Op, Pending, Stream};

use super::batched::{op_of, rest_of};
use super::job::{Job, Walk};
use super::run::Tally;
use super::verify::Verifier;
use crate::failure::Failure;

/// Streams, each with the memory of its request while that is not under way.
pub(super) struct Streamed {
    file: Arc<hipfile::File>,
    op: Op,
    idle: Vec<(Stream, Buffer)>,
}

/// A request under way.
struct Flight {
    stream: Stream,
    pending: Pending,
    request: Request,
    begun: Instant,
}

impl Streamed {
    /// As many requests are under way as there are buffers; each is as long as a request at most.
    pub(super) fn new(
        driver: &Driver,
        file: Arc<hipfile::File>,
        direction: Direction,
        gpu: u32,
        memory: Vec<Buffer>,
    ) -> Result<Streamed, Failure> {
        let stream = |buffer| Ok((Stream::new(driver, gpu)?, buffer));
        let idle = memory.into_iter().map(stream).collect::<hipfile::Result<_>>();
        Ok(Streamed {
            file,
            op: op_of(direction),
            idle: idle.map_err(|error| Failure::new("--door async", error))?,
        })
    }

    /// Moves one request on each stream before anything is timed.
    pub(super) fn warm_up(&mut self, request: Request) -> Result<(), Failure> {
        for (stream, buffer) in std::mem::take(&mut self.idle) {
            let flight = self.start(stream, buffer, request)?;
            let (stream, buffer, _) = self.finish(flight)?;
            self.idle.push((stream, buffer));
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
        let mut flights = VecDeque::with_capacity(self.idle.len());
        let start = Instant::now();
        loop {
            let over = job.limit.is_some_and(|limit| start.elapsed() >= limit);
            while !over && let Some((stream, mut buffer)) = self.idle.pop() {
                let Some(request) = walk.next() else {
                    self.idle.push((stream, buffer));
                    break;
                };
                if let Some(verifier) = &mut verifier {
                    verifier.before(&mut buffer, request)?;
                }
                flights.push_back(self.start(stream, buffer, request)?);
            }
            let Some(flight) = flights.pop_front() else {
                tally.elapsed = start.elapsed();
                tally.busy = tally.elapsed;
                return Ok(tally);
            };
            let (request, begun) = (flight.request, flight.begun);
            let (stream, buffer, ended) = self.finish(flight)?;
            tally.latency.add(ended.duration_since(begun));
            tally.bytes += request.len as u64;
            tally.operations += 1;
            if let Some(verifier) = &mut verifier {
                verifier.after(&buffer, request)?;
            }
            self.idle.push((stream, buffer));
        }
    }

    fn start(&self, stream: Stream, buffer: Buffer, request: Request) -> Result<Flight, Failure> {
        let begun = Instant::now();
        let pending = self.submit(&stream, buffer, request.offset, 0..request.len)?;
        Ok(Flight { stream, pending, request, begun })
    }

    fn submit(
        &self,
        stream: &Stream,
        buffer: Buffer,
        file_offset: u64,
        range: Range<usize>,
    ) -> Result<Pending, Failure> {
        let job = hipfile::Job { op: self.op, file: Arc::clone(&self.file), file_offset, buffer, range };
        stream.submit(job).map_err(|(error, _)| Failure::new("hipfile", error))
    }

    /// Waits for a request; what ended short goes on. When it ended.
    fn finish(&self, flight: Flight) -> Result<(Stream, Buffer, Instant), Failure> {
        let Flight { stream, mut pending, .. } = flight;
        loop {
            let job = rest_of(pending.wait())?;
            if job.range.is_empty() {
                return Ok((stream, job.buffer, Instant::now()));
            }
            pending = self.submit(&stream, job.buffer, job.file_offset, job.range)?;
        }
    }
}
