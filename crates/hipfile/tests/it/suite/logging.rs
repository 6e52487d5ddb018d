//! What a Rust program's own `tracing` subscriber is told, and that nothing is made for it at levels nobody listens at.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use hip_emu::fault::When;
use hipfile::{Buffer, Fallback, File};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::direct::{bench, fail_reads};
use crate::support::{Storage, driver, driver_with};

/// Keeps the text of each event.
struct Listener {
    level: LevelFilter,
    told: Arc<Mutex<Vec<String>>>,
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }
    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        assert!(metadata.target().starts_with("hipfile"), "{metadata:?}");
        let mut text = Text(String::new());
        event.record(&mut text);
        self.told.lock().unwrap().push(format!("{} {}", metadata.level(), text.0));
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// What is told on this thread while `body` runs.
fn told(level: LevelFilter, body: impl FnOnce()) -> Vec<String> {
    let told = Arc::default();
    tracing::subscriber::with_default(Listener { level, told: Arc::clone(&told) }, body);
    let told = told.lock().unwrap();
    told.clone()
}

/// A driver's life with one read.
fn life() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), [7; 10_000]).unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 10_000).unwrap();
    assert_eq!(file.read_at(&mut buffer, 10..1010, 20).unwrap(), 1000);
    drop(file);
    driver.close();
}

#[test]
fn a_subscriber_is_told_of_a_drivers_life() {
    let all = told(LevelFilter::TRACE, life);
    let mut rest = all.iter();
    for (start, has) in [
        ("INFO driver opened", "version="),
        ("DEBUG setting", "name=\"engines\" value=bounce"),
        ("DEBUG file registered", "/f fd="),
        ("INFO runtime found", "runtime="),
        ("DEBUG buffer registered", "bytes=10000 "),
        ("TRACE transfer begins op=\"read\"", "offset=20 size=1000 "),
        ("INFO staging through host memory", "reason=\"configuration\""),
        ("TRACE engine carries", "engine=\"bounce\" reason=\"configuration\" moved=1000"),
        ("TRACE transfer ends", "engine=bounce direct=0 staged=1000 moved=1000 outcome=\"done\""),
        ("DEBUG file deregistered", "/f fd="),
        ("INFO driver closed", ""),
    ] {
        let found = rest.any(|line| line.starts_with(start) && line.contains(has));
        assert!(found, "{start} ... {has}, in this order: {all:#?}");
    }
}

#[test]
fn a_subscriber_is_told_no_more_than_it_asks_for() {
    let told = told(LevelFilter::INFO, life);
    assert!(told.iter().any(|line| line.starts_with("INFO driver opened")), "{told:#?}");
    assert!(told.iter().all(|line| line.starts_with("INFO ") || line.starts_with("WARN ")), "{told:#?}");
}

#[test]
fn failover_and_rest_are_told_with_the_errno() {
    let Some(mut bench) = bench(65536, Fallback::Allow) else { return };
    fail_reads(When::Every, libc::ENODEV);
    let told = told(LevelFilter::DEBUG, || {
        for _ in 0..20 {
            assert_eq!(bench.read(0, 65536, 0), (0, 65536));
        }
    });
    let count = |start: &str| told.iter().filter(|line| line.starts_with(start)).count();
    let errno = format!("errno={}", libc::ENODEV);
    assert_eq!(count("DEBUG engine gives a transfer up"), 8, "{told:#?}");
    assert_eq!(count("WARN engine rests after failing again and again"), 1, "{told:#?}");
    assert!(
        told.iter().filter(|line| line.contains("engine=\"p2p\"")).all(|line| line.contains(&errno)),
        "{told:#?}"
    );
    assert_eq!(count("INFO staging through host memory"), 2, "once for each reason: {told:#?}");
}

#[test]
fn why_a_large_write_into_memory_is_not_shared_is_told_once() {
    let Some(storage) = Storage::shared_memory() else { return };
    const LEN: usize = 1 << 20;
    let driver = driver_with(&["bounce"], |config| (config.mapped_min, config.mapped_threads) = (LEN, 2));
    std::fs::write(storage.path("f"), vec![0; LEN]).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, LEN).unwrap();
    buffer.upload(0, &vec![7; LEN]).unwrap();
    let write = |options: &mut std::fs::OpenOptions| {
        let file = File::register(&driver, options.open(storage.path("f")).unwrap()).unwrap();
        assert_eq!(file.write_at(&buffer, 0..LEN, 0).unwrap(), LEN);
    };
    let told = told(LevelFilter::INFO, || {
        for _ in 0..3 {
            write(std::fs::File::options().read(true).write(true));
            write(std::fs::File::options().write(true));
            write(std::fs::File::options().read(true).append(true));
        }
    });
    let lines: Vec<_> =
        told.iter().filter(|l| l.contains("a large write into memory goes by one thread")).collect();
    let [one_way, append] = &lines[..] else { panic!("{told:#?}") };
    assert!(
        one_way.contains("both ways") && one_way.contains(&format!("errno={}", libc::EACCES)),
        "{one_way}"
    );
    assert!(append.contains("appending") && append.contains("/f "), "{append}");
}
