//! Batches against calls, on the emulated GPU, as ratios inside one run: `cargo bench -p hipfile --bench batch`. With
//! `HIP_EMU_LINK=25,8` copies take time and move nothing.
#![allow(clippy::unwrap_used, reason = "what fails ends the program")]
#![allow(clippy::print_stdout, reason = "a program that reports to its user")]

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use hipfile::{Buffer, Config, DeviceChoice, Driver, Entry, EventStatus, File, Op, PageCache, RawBatch};

const ROUNDS: usize = 9;

struct Bench {
    driver: Driver,
    plain: std::fs::File,
    file: File,
    buffer: Buffer,
    cold: bool,
    size: usize,
    count: usize,
    /// Pieces of the file from which each round takes its own.
    pieces: usize,
}

impl Bench {
    fn new(path: &std::path::Path, page_cache: PageCache, cold: bool, size: usize, count: usize) -> Bench {
        let mut config = Config::from_env();
        config.device = DeviceChoice::Emulated;
        config.page_cache = page_cache;
        config.engines = Some(vec!["uring".to_owned(), "bounce".to_owned()]);
        let driver = Driver::open(config).unwrap();
        let plain = std::fs::File::open(path).unwrap();
        let pieces = plain.metadata().unwrap().len() as usize / size;
        let file = File::register(&driver, plain.try_clone().unwrap()).unwrap();
        let buffer = Buffer::alloc(&driver, 0, size * count).unwrap();
        Bench { driver, plain, file, buffer, cold, size, count, pieces }
    }

    /// Scattered over the file, so that nothing reads ahead.
    fn place(&self, n: usize) -> i64 {
        ((n * 7919 + 13) % self.pieces * self.size) as i64
    }

    fn prepare(&self) {
        if self.cold {
            rustix::fs::fadvise(self.plain.as_fd(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
        } else {
            std::io::copy(&mut &self.plain, &mut std::io::sink()).unwrap();
            std::io::Seek::rewind(&mut &self.plain).unwrap();
        }
    }

    fn read(&self, n: usize) {
        let (id, at) = (self.file.id(), (n * self.size) as i64);
        // SAFETY: the range lies in the buffer, which lives on; what it holds does not matter.
        let moved = unsafe { self.driver.read(id, self.buffer.ptr(), self.size, self.place(n), at) };
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
            file_offset: self.place(n),
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

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn compare(what: &str, bench: &Bench, threads: &[usize]) {
    let batch = RawBatch::new(bench.count).unwrap();
    let mut calls = vec![Vec::new(); threads.len()];
    let mut batches = Vec::new();
    for round in 0..=ROUNDS {
        for (at, threads) in threads.iter().enumerate() {
            bench.prepare();
            let time = bench.calls(*threads);
            // The first round warms up.
            if round > 0 {
                calls[at].push(time);
            }
        }
        bench.prepare();
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
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("data");
    std::fs::write(&path, vec![7_u8; 128 << 20]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let bench = |page_cache, cold, size, count| Bench::new(&path, page_cache, cold, size, count);
    compare("128 x 4 KiB, cold, around the cache", &bench(PageCache::Direct, true, 4096, 128), &[1]);
    compare("128 x 4 KiB, warm", &bench(PageCache::Auto, false, 4096, 128), &[1]);
    let threads = &[1, 2, 4, 8, 16];
    compare("64 x 1 MiB, cold", &bench(PageCache::Auto, true, 1 << 20, 64), threads);
    compare("64 x 1 MiB, cold, around the cache", &bench(PageCache::Direct, true, 1 << 20, 64), threads);
    compare("64 x 1 MiB, warm", &bench(PageCache::Auto, false, 1 << 20, 64), threads);
}
