//! Batches against calls, on the emulated GPU, as ratios inside one run: `cargo bench -p hipfile --bench batch`. With
//! `HIP_EMU_LINK=25,8` copies take time and move nothing.
#![allow(clippy::unwrap_used, reason = "what fails ends the program")]
#![allow(clippy::print_stdout, reason = "a program that reports to its user")]

mod subject;

use std::time::{Duration, Instant};

use hipfile::{Buffer, Entry, EventStatus, Op, PageCache, RawBatch};

use subject::{ROUNDS, Subject, data, median};

struct Bench {
    subject: Subject,
    buffer: Buffer,
    count: usize,
}

impl std::ops::Deref for Bench {
    type Target = Subject;
    fn deref(&self) -> &Subject {
        &self.subject
    }
}

impl Bench {
    fn new(subject: Subject, count: usize) -> Bench {
        let buffer = Buffer::alloc(&subject.driver, 0, subject.size * count).unwrap();
        Bench { subject, buffer, count }
    }

    fn read(&self, n: usize) {
        let (id, at) = (self.file.id(), (n * self.size) as i64);
        // SAFETY: the range lies in the buffer, which lives on; what it holds does not matter.
        let moved = unsafe { self.driver.read(id, self.buffer.ptr(), self.size, self.place(n) as i64, at) };
        assert_eq!(moved.unwrap(), self.size);
    }

    fn calls(&self, threads: usize) -> Duration {
        let began = Instant::now();
        if threads == 1 {
            (0..self.count).for_each(|n| self.read(n));
        } else {
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    scope.spawn(move || (thread..self.count).step_by(threads).for_each(|n| self.read(n)));
                }
            });
        }
        began.elapsed()
    }

    fn batch(&self, batch: &RawBatch) -> Duration {
        let began = Instant::now();
        let entry = |n: usize| Entry {
            op: Ok(Op::Read),
            file: self.file.id(),
            buffer: self.buffer.ptr(),
            buffer_offset: (n * self.size) as i64,
            file_offset: self.place(n) as i64,
            len: self.size,
            cookie: n as u64,
        };
        let entries: Vec<_> = (0..self.count).map(entry).collect();
        // SAFETY: as for the calls; the buffer outlives the events.
        unsafe { batch.submit(&self.driver, &entries) }.unwrap();
        let mut left = self.count;
        while left > 0 {
            let events = batch.poll(left, left, None).unwrap();
            assert!(events.iter().all(|e| matches!(e.status, EventStatus::Complete(n) if n == self.size)));
            left -= events.len();
        }
        began.elapsed()
    }
}

fn compare(what: &str, bench: &Bench, threads: &[usize]) {
    let batch = RawBatch::new(bench.count).unwrap();
    let mut calls = vec![Vec::new(); threads.len()];
    let mut batches = Vec::new();
    // What is cached stays so, and takes a fraction of a millisecond: one round after the other, and more of them.
    let small = bench.count * bench.size <= 1 << 20;
    let each = bench.cold;
    let rounds = ROUNDS
        * if each {
            1
        } else if small {
            300
        } else {
            50
        };
    for round in 0..=rounds {
        for (at, threads) in threads.iter().enumerate() {
            if each || round == 0 {
                bench.prepare();
            }
            let time = bench.calls(*threads);
            // The first round warms up.
            if round > 0 {
                calls[at].push(time);
            }
        }
        if each {
            bench.prepare();
        }
        let time = bench.batch(&batch);
        if round > 0 {
            batches.push(time);
        }
    }
    let calls = calls.into_iter().map(median);
    let (best, threads) = calls.zip(threads).min().unwrap();
    let time = median(batches);
    let ratio = best.as_secs_f64() / time.as_secs_f64();
    println!("{what:40} calls by {threads:2} {best:>10.1?}  batch {time:>10.1?}  ratio {ratio:.2}");
}

fn main() {
    let (_folder, path) = data();
    let bench =
        |page_cache, cold, size, count| Bench::new(Subject::new(&path, page_cache, cold, size), count);
    compare("128 x 4 KiB, cold, around the cache", &bench(PageCache::Direct, true, 4096, 128), &[1]);
    compare("128 x 4 KiB, warm", &bench(PageCache::Auto, false, 4096, 128), &[1]);
    let threads = &[1, 2, 4, 8, 16];
    compare("64 x 1 MiB, cold", &bench(PageCache::Auto, true, 1 << 20, 64), threads);
    compare("64 x 1 MiB, cold, around the cache", &bench(PageCache::Direct, true, 1 << 20, 64), threads);
    compare("64 x 1 MiB, warm", &bench(PageCache::Auto, false, 1 << 20, 64), threads);
}
