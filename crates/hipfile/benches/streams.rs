//! Operations on streams against calls, on the emulated GPU, as ratios inside one run: `cargo bench -p hipfile --bench
//! streams`. The file is read around the page cache where that is said.
#![allow(clippy::unwrap_used, reason = "what fails ends the program")]
#![allow(clippy::print_stdout, reason = "a program that reports to its user")]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hipfile::{Buffer, Config, DeviceChoice, Driver, EventStatus, File, Job, Op, PageCache, Stream};

const ROUNDS: usize = 9;
const SIZE: usize = 4096;
const COUNT: usize = 128;

struct Bench {
    driver: Driver,
    plain: std::fs::File,
    file: Arc<File>,
    cold: bool,
    /// Pieces of the file from which each round takes its own.
    pieces: usize,
}

impl Bench {
    fn new(path: &std::path::Path, page_cache: PageCache, cold: bool) -> Bench {
        let mut config = Config::from_env();
        config.device = DeviceChoice::Emulated;
        config.page_cache = page_cache;
        config.engines = Some(vec!["uring".to_owned(), "bounce".to_owned()]);
        let driver = Driver::open(config).unwrap();
        let plain = std::fs::File::open(path).unwrap();
        let pieces = plain.metadata().unwrap().len() as usize / SIZE;
        let file = Arc::new(File::register(&driver, plain.try_clone().unwrap()).unwrap());
        Bench { driver, plain, file, cold, pieces }
    }

    /// Scattered over the file, so that nothing reads ahead.
    fn place(&self, n: usize) -> u64 {
        ((n * 7919 + 13) % self.pieces * SIZE) as u64
    }

    fn prepare(&self) {
        if self.cold {
            rustix::fs::fadvise(self.plain.as_fd(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
        } else {
            std::io::copy(&mut &self.plain, &mut std::io::sink()).unwrap();
            std::io::Seek::rewind(&mut &self.plain).unwrap();
        }
    }

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

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn compare(what: &str, bench: &Bench) {
    let mut times = [const { Vec::new() }; 4];
    for round in 0..=ROUNDS {
        let took = [bench.calls(), bench.streams(1, 1), bench.streams(1, COUNT), bench.streams(16, COUNT)];
        // The first round warms up.
        if round > 0 {
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
        }
    }
    let [calls, single, order, many] = times.map(|times| median(times) / COUNT as u32);
    let against = |other: Duration, this: Duration| other.as_secs_f64() / this.as_secs_f64();
    println!(
        "{what:32} call {calls:>9.1?}  one at a time {single:>9.1?}  in order {order:>9.1?} ({:.2} x a call)  \
         16 streams {many:>9.1?} ({:.2} x as fast as one at a time)",
        against(order, calls),
        against(single, many),
    );
}

fn main() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("data");
    std::fs::write(&path, vec![7_u8; 128 << 20]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    compare("4 KiB, cold, around the cache", &Bench::new(&path, PageCache::Direct, true));
    compare("4 KiB, warm", &Bench::new(&path, PageCache::Auto, false));
}
