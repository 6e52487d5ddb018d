//! `hipfile bench --soak`: mixed work by every door, for as long as is asked, with every byte checked. It looks for faults and
//! leaks, and measures no speed. A build with debug assertions also lets system calls and GPU calls fail in between.

mod faulty;
mod watch;
mod worker;

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hipfile::Config;
use serde::Serialize;

use self::watch::{Held, Watch};
use self::worker::Worker;
use super::subject::Subject;
use crate::failure::Failure;

/// Bytes of the file that one thread has to itself.
const SPAN: usize = 8 << 20;
/// So long nobody may be without an end of an operation.
const STUCK: Duration = Duration::from_secs(120);

/// What was done.
#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    batches: AtomicU64,
    streams: AtomicU64,
    drivers: AtomicU64,
    registrations: AtomicU64,
    refused: AtomicU64,
    verified: AtomicU64,
    failed: AtomicU64,
    short: AtomicU64,
    faults: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counts {
    fn operations(&self) -> u64 {
        get(&self.calls) + get(&self.batches) + get(&self.streams)
    }
}

/// What all threads share.
#[derive(Debug)]
struct Shared {
    config: Config,
    gpus: u32,
    counts: Counts,
    stop: AtomicBool,
    /// Odd while calls are made to fail.
    window: AtomicU64,
    /// The first thing that was wrong.
    wrong: Mutex<Option<String>>,
}

impl Shared {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_wrong(&self, what: String) {
        self.wrong.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(what);
        self.stop.store(true, Ordering::Relaxed);
    }

    fn window(&self) -> u64 {
        self.window.load(Ordering::SeqCst)
    }

    fn is_faulty(&self) -> bool {
        self.window() % 2 == 1
    }
}

/// What the soak came to.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    seconds: f64,
    threads: usize,
    gpus: u32,
    operations_by_calls: u64,
    operations_by_batches: u64,
    operations_by_streams: u64,
    drivers_opened: u64,
    registrations: u64,
    /// Wrong requests, each of which was refused.
    refused: u64,
    bytes_verified: u64,
    /// System calls and GPU calls that were made to fail; 0 in a release build.
    faults: u64,
    /// Operations that answered with an error while calls were made to fail.
    failed: u64,
    /// Operations that gave a prefix while calls were made to fail.
    short: u64,
    begin: Held,
    end: Held,
    most: Held,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { begin, end, most, .. } = self;
        writeln!(
            f,
            "soak: {:.0} s, {} threads, {} GPUs: nothing was wrong",
            self.seconds, self.threads, self.gpus
        )?;
        writeln!(
            f,
            "operations: {} by calls, {} in batches, {} on streams; {} drivers opened, {} registrations",
            self.operations_by_calls,
            self.operations_by_batches,
            self.operations_by_streams,
            self.drivers_opened,
            self.registrations
        )?;
        writeln!(f, "verified: {:.1} GiB", self.bytes_verified as f64 / (1_u64 << 30) as f64)?;
        writeln!(
            f,
            "faults: {} calls made to fail; {} operations told an error, {} gave a prefix; {} wrong requests refused",
            self.faults, self.failed, self.short, self.refused
        )?;
        for (what, of) in [("begin", begin), ("end", end), ("most", most)] {
            writeln!(
                f,
                "held at the {what}: {} MiB resident, {} descriptors, {} threads",
                of.resident_mib, of.descriptors, of.threads
            )?;
        }
        Ok(())
    }
}

/// Runs it on a file of its own at the subject's place.
///
/// # Errors
/// The first thing that was wrong: other bytes, another count, an error without a reason, something that hangs or leaks.
pub(super) fn run(
    config: &Config,
    gpus: u32,
    subject: &Subject,
    threads: usize,
    time: Duration,
) -> Result<Report, Failure> {
    let shared = Shared {
        config: config.clone(),
        gpus,
        counts: Counts::default(),
        stop: AtomicBool::new(false),
        window: AtomicU64::new(0),
        wrong: Mutex::new(None),
    };
    let began = Instant::now();
    let mut watch = Watch::new(time);
    std::thread::scope(|scope| -> Result<(), Failure> {
        let begin = |name: String| std::thread::Builder::new().name(name);
        let failed = |error| Failure::new("threads", error);
        for n in 0..threads {
            let (shared, path) = (&shared, subject.path.as_path());
            let body = move || {
                if let Err(what) =
                    Worker::new(shared, path, n * SPAN, n as u64).and_then(|mut worker| worker.work())
                {
                    shared.is_wrong(format!("thread {n}: {what}"));
                }
            };
            if let Err(error) = begin(format!("soak-{n}")).spawn_scoped(scope, body) {
                shared.stop.store(true, Ordering::Relaxed);
                return Err(failed(error));
            }
        }
        if let Err(error) =
            begin("soak-faults".to_owned()).spawn_scoped(scope, || faulty::let_calls_fail(&shared))
        {
            shared.stop.store(true, Ordering::Relaxed);
            return Err(failed(error));
        }
        let (mut seen, mut moved) = (0, Instant::now());
        while began.elapsed() < time && !shared.stops() {
            std::thread::sleep(Duration::from_millis(250).min(time));
            watch.look(began.elapsed());
            let now = shared.counts.operations();
            if now != seen {
                (seen, moved) = (now, Instant::now());
            } else if moved.elapsed() > STUCK {
                // Threads that hang cannot be joined: this is the end of the process.
                crate::failure::note(format_args!(
                    "--soak: no operation has ended for {} s",
                    STUCK.as_secs()
                ));
                std::process::exit(1);
            }
        }
        shared.stop.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    if let Some(what) = shared.wrong.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
        return Err(Failure::new("--soak", what));
    }
    let (begin, end, most) = watch.verdict().map_err(|what| Failure::new("--soak", what))?;
    let counts = &shared.counts;
    Ok(Report {
        seconds: began.elapsed().as_secs_f64(),
        threads,
        gpus,
        operations_by_calls: get(&counts.calls),
        operations_by_batches: get(&counts.batches),
        operations_by_streams: get(&counts.streams),
        drivers_opened: get(&counts.drivers),
        registrations: get(&counts.registrations),
        refused: get(&counts.refused),
        bytes_verified: get(&counts.verified),
        faults: get(&counts.faults),
        failed: get(&counts.failed),
        short: get(&counts.short),
        begin,
        end,
        most,
    })
}

/// Bytes of the file that so many threads need.
pub(super) fn size(threads: usize) -> u64 {
    (threads * SPAN) as u64
}

/// Numbers without a pattern. Not for secrets.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for chunk in bytes.chunks_mut(8) {
            let value = self.next().to_le_bytes();
            chunk.copy_from_slice(&value[..chunk.len()]);
        }
        bytes
    }
}
