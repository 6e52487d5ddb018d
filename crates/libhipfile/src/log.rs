//! The C library's own listener to what the core tells through `tracing`: lines on standard error or in a file, by level.
//! It decides nothing about what is told. The copy of `tracing` inside this library is its own, so that a global listener
//! in it hears nobody else and is in nobody's way.
//!
//! It takes no lock, and keeps no file open: a file is opened for each line. So a thread that is stopped while it writes
//! stops no other, a forked child finds nothing locked, a log may be moved away at any time, and a program that closes
//! every descriptor does not find the log's number given to a file of its own.

mod limit;
mod line;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use hipfile::{Config, LogLevel, notice};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use limit::{Admission, Limiter};
use line::Line;

/// How much is told, as `LEVELS` numbers it.
static LEVEL: AtomicUsize = AtomicUsize::new(0);
/// The file that is written to; standard error when there is none.
static TARGET: ArcSwapOption<PathBuf> = ArcSwapOption::const_empty();
/// The file that could last not be written to, so that this is told once.
static REFUSED: ArcSwapOption<PathBuf> = ArcSwapOption::const_empty();
/// Whether the listener is in place, or being put there. No Once: a fork in the middle would block the child for ever.
static LISTENS: AtomicBool = AtomicBool::new(false);
static LIMITER: Limiter = Limiter::new();

const LEVELS: [LevelFilter; 6] = [
    LevelFilter::OFF,
    LevelFilter::ERROR,
    LevelFilter::WARN,
    LevelFilter::INFO,
    LevelFilter::DEBUG,
    LevelFilter::TRACE,
];

/// Logs as the settings say from now on. What is wrong with them is told in one line and costs only the file.
pub(crate) fn configure(config: &Config) {
    let path = file_path(config);
    let known = TARGET.load();
    if known.as_deref() != path.as_ref() {
        let usable = path.filter(|path| match open(path) {
            Ok(_) => true,
            Err(error) => {
                if REFUSED.swap(Some(Arc::new(path.clone()))).as_deref() == Some(path) {
                    return false;
                }
                let shown = path.display();
                notice::line(format_args!(
                    "nothing can be logged to {shown}, so standard error is used: {error}"
                ));
                false
            }
        });
        TARGET.store(usable.map(Arc::new));
    }
    let level = match config.log_level {
        LogLevel::Off => 0,
        LogLevel::Error => 1,
        LogLevel::Info => 3,
        LogLevel::Debug => 4,
        LogLevel::Trace => 5,
        _ => 2,
    };
    let before = LEVEL.swap(level, Ordering::AcqRel);
    if level > 0 && !LISTENS.swap(true, Ordering::AcqRel) {
        // It can only fail where this is linked into a Rust program that listens by itself.
        let _ = tracing::subscriber::set_global_default(Listener);
    } else if level != before {
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Says what was left out so far. For the moment after which nobody may log any more.
pub(crate) fn finish() {
    LIMITER.sweep(u64::MAX, &mut left_out);
    notice::say_missed();
}

/// The file to log to: as it is named, in the folder, or of the folder's own name. `%p` stands for the process's number.
fn file_path(config: &Config) -> Option<PathBuf> {
    let name = match (&config.log_file, &config.log_dir) {
        (Some(file), Some(dir)) => dir.join(file),
        (Some(file), None) => file.clone(),
        (None, Some(dir)) => dir.join("hipfile-%p.log"),
        (None, None) => return None,
    };
    let name = match name.to_str() {
        Some(text) if text.contains("%p") => text.replace("%p", &std::process::id().to_string()).into(),
        _ => name,
    };
    // A program that changes its folder later does not spread its log over several.
    Some(std::path::absolute(&name).unwrap_or(name))
}

/// Opens the file for one line. Nothing waits here: neither a FIFO nor a terminal that hung up.
fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().append(true).create(true).custom_flags(flags).open(path)
}

/// Writes one line where it belongs; a file that cannot be written gives way to standard error.
fn write(metadata: &Metadata<'_>, line: &Line) {
    if let Some(path) = TARGET.load().as_deref() {
        let text = line.for_file(metadata);
        let written = open(path).and_then(|file| notice::write(file.as_fd(), text.as_bytes()));
        // What is a notice stands on standard error already.
        if written.is_ok() || metadata.target() == notice::TARGET {
            return;
        }
    }
    notice::say(&line.for_people(metadata));
}

/// Tells how many lines of a kind were left out.
fn left_out(metadata: &Metadata<'_>, count: u64) {
    let name = metadata.name();
    write(metadata, &Line::plain(format_args!("{count} more lines were left out: {name}")));
}

/// What `tracing` calls.
struct Listener;

impl Listener {
    fn level() -> LevelFilter {
        LEVELS[LEVEL.load(Ordering::Relaxed)]
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Listener::level()
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(Listener::level())
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        if metadata.target() == notice::TARGET && TARGET.load().is_none() {
            return;
        }
        let second = line::now().as_secs();
        LIMITER.sweep(second, &mut left_out);
        if LIMITER.admit(metadata, second) == Admission::Granted {
            write(metadata, &Line::of(event));
        }
    }

    // Spans are not listened to.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The word for a level.
fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        _ => "trace",
    }
}
