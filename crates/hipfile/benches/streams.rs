//! Operations on streams against calls, on the emulated GPU, as ratios inside one run: `cargo bench -p hipfile --bench
//! streams`. The file is read around the page cache where that is said, and then by io_uring alone too: more than the disk gives
//! for sixteen requests at once against one after the other nobody can reach.
#![allow(clippy::unwrap_used, reason = "what fails ends the program")]
#![allow(clippy::print_stdout, reason = "a program that reports to its user")]

mod subject;

use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench_support::{Direction, Lanes, Request};
use hipfile::{Buffer, EventStatus, Job, Op, PageCache, Stream};

use subject::{ROUNDS, Subject, data, median};

const SIZE: usize = 4096;
const COUNT: usize = 128;

struct Bench(Subject, std::path::PathBuf);

impl std::ops::Deref for Bench {
    type Target = Subject;
    fn deref(&self) -> &Subject {
        &self.0
    }
}

impl Bench {
    fn buffers(&self) -> Vec<Buffer> {
        (0..COUNT).map(|_| Buffer::alloc(&self.driver, 0, SIZE).unwrap()).collect()
    }

    fn calls(&self) -> Duration {
        let mut buffers = self.buffers();
        self.prepare();
        let began = Instant::now();
        for (n, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!(self.file.read_at(buffer, 0..SIZE, self.place(n)).unwrap(), SIZE);
        }
        began.elapsed()
    }

    /// The same reads by io_uring with no library, `depth` of them under way.
    fn ring(&self, depth: usize) -> Duration {
        let mut lanes = Lanes::new(depth, SIZE, false).unwrap();
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        let file = std::fs::File::options().read(true).custom_flags(flags).open(&self.1).unwrap();
        self.prepare();
        let began = Instant::now();
        let mut requests = (0..COUNT).map(|n| Request { offset: self.place(n), len: SIZE });
        lanes
            .run(file.as_fd(), Direction::Read, &mut requests, &mut |done| assert_eq!(done.bytes, SIZE))
            .unwrap();
        began.elapsed()
    }

    /// `group` submitted at a time, then waited for; operation n on stream n modulo their number.
    fn streams(&self, count: usize, group: usize) -> Duration {
        let streams: Vec<_> = (0..count).map(|_| Stream::new(&self.driver, 0).unwrap()).collect();
        let buffers = self.buffers();
        self.prepare();
        let began = Instant::now();
        let submit = |(n, buffer)| {
            let (file, file_offset) = (Arc::clone(&self.file), self.place(n));
            let job = Job { op: Op::Read, file, file_offset, buffer, range: 0..SIZE };
            streams[n % count].submit(job).map_err(|(error, _)| error).unwrap()
        };
        let mut jobs = buffers.into_iter().enumerate().map(submit);
        loop {
            let pending: Vec<_> = jobs.by_ref().take(group).collect();
            if pending.is_empty() {
                break;
            }
            for pending in pending {
                let finished = pending.wait();
                assert!(matches!(finished.status, EventStatus::Complete(SIZE)), "{:?}", finished.status);
            }
        }
        began.elapsed()
    }
}

fn compare(what: &str, bench: &Bench, disk: bool) {
    let mut times = [const { Vec::new() }; 7];
    for round in 0..=ROUNDS {
        let took = [
            bench.calls(),
            bench.streams(1, 1),
            bench.streams(1, COUNT),
            bench.streams(16, 16),
            bench.streams(16, COUNT),
            if disk { bench.ring(1) } else { Duration::ZERO },
            if disk { bench.ring(16) } else { Duration::ZERO },
        ];
        // The first round warms up.
        if round > 0 {
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
        }
    }
    let [calls, single, order, many, queued, ring, deep] = times.map(|times| median(times) / COUNT as u32);
    let against = |other: Duration, this: Duration| other.as_secs_f64() / this.as_secs_f64();
    println!(
        "{what:32} call {calls:>9.1?}  one at a time {single:>9.1?}  in order {order:>9.1?} ({:.2} x a call)  \
         one on each of 16 streams {many:>9.1?} ({:.2} x as fast as one at a time)  eight on each {queued:>9.1?} \
         ({:.2} x)",
        against(order, calls),
        against(single, many),
        against(single, queued),
    );
    if disk {
        println!(
            "{:32} io_uring alone: one at a time {ring:>9.1?}  16 at once {deep:>9.1?} ({:.2} x)",
            "",
            against(ring, deep),
        );
    }
}

fn main() {
    let (_folder, path) = data();
    let bench = |page_cache, cold| Bench(Subject::new(&path, page_cache, cold, SIZE), path.clone());
    compare("4 KiB, cold, around the cache", &bench(PageCache::Direct, true), true);
    compare("4 KiB, warm", &bench(PageCache::Auto, false), false);
}
