//! What those who listen through `tracing` are told of registrations and transfers: one function per happening, each with
//! one look at the level first. It formats nothing while nobody listens, writes nowhere, and decides nothing.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tracing::Level;
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

use crate::buffer::{BufferRecord, Place};
use crate::config::{Config, ENGINE_NAMES, SETTINGS};
use crate::error::{Error, Result};
use crate::file::FileRecord;
use crate::rangemap::Ranged;
use crate::reason::Reason;
use crate::stats::Split;
use crate::transfer::Transfer;

/// An event whose message is its name, so that its kind can be told without its values.
macro_rules! event {
    ($level:ident, $what:literal $(, $($field:tt)+)?) => {
        tracing::event!(name: $what, target: "hipfile", tracing::Level::$level, $($($field)+,)? $what)
    };
}
pub(crate) use event;

/// Whether somebody listens at this level. One load and one comparison.
#[inline(always)]
pub(crate) fn hears(level: Level) -> bool {
    level <= STATIC_MAX_LEVEL && level <= LevelFilter::current()
}

/// A file, by its path where it has one that can be seen.
struct Named<'a>(&'a FileRecord);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.path() {
            Some(path) => path.display().fmt(f),
            None => f.write_str("?"),
        }
    }
}

/// The engines of these bits, by name.
struct Engines(u8);

impl fmt::Display for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut some = "";
        for (_, name) in ENGINE_NAMES.iter().enumerate().filter(|(index, _)| self.0 & 1 << index != 0) {
            write!(f, "{some}{name}")?;
            some = "+";
        }
        if some.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

pub(crate) fn driver_opened(config: &Config) {
    event!(INFO, "driver opened", version = env!("CARGO_PKG_VERSION"), pid = std::process::id());
    if !hears(Level::DEBUG) {
        return;
    }
    let usual = Config::default();
    for setting in SETTINGS {
        let value = setting.get(config);
        if value != setting.get(&usual) {
            event!(DEBUG, "setting", name = setting.name, value = %value);
        }
    }
}

pub(crate) fn driver_closed() {
    event!(INFO, "driver closed");
}

pub(crate) fn file_registered(file: &FileRecord, unsupported_file_systems: bool) {
    if !hears(Level::DEBUG) {
        return;
    }
    let storage = file.storage();
    let (mem, offset) = file.direct_align().map_or((0, 0), |align| (align.mem, align.offset));
    let direct = match storage.direct(unsupported_file_systems, false) {
        Ok(()) => "possible",
        Err(reason) => reason.word(),
    };
    event!(
        DEBUG,
        "file registered",
        path = %Named(file),
        fd = file.fd(),
        file_system = %storage.fs_text(),
        memory_align = mem,
        offset_align = offset,
        direct
    );
}

pub(crate) fn file_deregistered(file: &FileRecord) {
    event!(DEBUG, "file deregistered", path = %Named(file), fd = file.fd());
}

pub(crate) fn buffer_registered(buffer: &BufferRecord) {
    if !hears(Level::DEBUG) {
        return;
    }
    let (at, bytes) = (format_args!("{:#x}", buffer.base()), buffer.len());
    match buffer.place() {
        Place::Device { device, ordinal, .. } => {
            event!(DEBUG, "buffer registered", at = %at, bytes, runtime = device.name(), gpu = *ordinal);
        }
        Place::Host => event!(DEBUG, "buffer registered", at = %at, bytes, runtime = "host"),
    }
}

/// The first transfer that is staged for a reason; `told` has one bit for each reason that was told of.
#[inline]
pub(crate) fn staged(told: &AtomicU64, file: &FileRecord, reason: Reason) {
    if hears(Level::INFO) {
        first_staged(told, file, reason);
    }
}

#[cold]
fn first_staged(told: &AtomicU64, file: &FileRecord, reason: Reason) {
    let bit = 1 << reason as u8;
    if told.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        event!(
            INFO,
            "staging through host memory",
            path = %Named(file),
            reason = reason.word(),
            because = %reason
        );
    }
}

/// An engine could not go on, and the next is asked.
#[cold]
pub(crate) fn given_up(file: &FileRecord, engine: &str, why: Reason, errno: Option<i32>) {
    let errno = errno.unwrap_or(0);
    event!(DEBUG, "engine gives a transfer up", path = %Named(file), engine, reason = why.word(), errno);
}

/// An engine is left alone for a while, for this file.
#[cold]
pub(crate) fn rests(file: &FileRecord, engine: &str, errno: Option<i32>, rest: Duration) {
    let (errno, seconds) = (errno.unwrap_or(0), rest.as_secs_f64());
    event!(WARN, "engine rests after failing again and again", path = %Named(file), engine, errno, seconds);
}

/// The system does not let an engine work.
#[cold]
pub(crate) fn refused(engine: &str, what: &str, errno: i32) {
    event!(INFO, "engine is refused what it needs", engine, what, errno);
}

/// Why a large write into a file in memory goes by one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Singly {
    Append,
    NoMapping,
    NoCopy,
    Changed,
}

impl Singly {
    fn text(self) -> &'static str {
        match self {
            Singly::Append => "the file is opened for appending",
            Singly::NoMapping => {
                "the system refuses a mapping of the file, as for a descriptor that is not open both ways"
            }
            Singly::NoCopy => "the system refuses process_vm_readv, which copies into it",
            Singly::Changed => "the file was cut short meanwhile, or its file system is full",
        }
    }
}

/// The first large write into a file in memory that goes by one thread, in whole or in part, for a reason; `told` as for
/// [`staged`].
#[cold]
pub(crate) fn singly(told: &AtomicU8, file: &FileRecord, why: Singly, errno: i32) {
    let bit = 1 << why as u8;
    if hears(Level::INFO) && told.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        event!(
            INFO,
            "a large write into memory goes by one thread",
            path = %Named(file),
            because = why.text(),
            errno
        );
    }
}

#[inline]
pub(crate) fn began(transfer: &Transfer<'_>) {
    if hears(Level::TRACE) {
        say_began(transfer);
    }
}

#[cold]
fn say_began(transfer: &Transfer<'_>) {
    event!(
        TRACE,
        "transfer begins",
        op = transfer.op.name(),
        path = %Named(transfer.file),
        fd = transfer.file.fd(),
        offset = transfer.file_offset,
        size = transfer.len(),
        buffer = %format_args!("{:#x}", transfer.span.start())
    );
}

/// An engine has carried, or tried to carry, a part.
#[inline]
pub(crate) fn carried(part: &Transfer<'_>, engine: &str, reason: Option<Reason>, moved: usize) {
    if hears(Level::TRACE) {
        say_carried(part, engine, reason, moved);
    }
}

#[cold]
fn say_carried(part: &Transfer<'_>, engine: &str, reason: Option<Reason>, moved: usize) {
    event!(
        TRACE,
        "engine carries",
        op = part.op.name(),
        fd = part.file.fd(),
        offset = part.file_offset,
        size = part.len(),
        engine,
        reason = reason.map_or("direct", Reason::word),
        moved
    );
}

#[inline]
pub(crate) fn ended(transfer: &Transfer<'_>, result: &Result<usize>, split: &Split) {
    if let Err(error) = result {
        failed(error);
    }
    if hears(Level::TRACE) {
        say_ended(transfer, result, split);
    }
}

/// A transfer failed. The error names file, place, size, memory and engine.
#[cold]
fn failed(error: &Error) {
    event!(ERROR, "transfer failed", error = %error);
}

#[cold]
fn say_ended(transfer: &Transfer<'_>, result: &Result<usize>, split: &Split) {
    let moved = *result.as_ref().unwrap_or(&0);
    event!(
        TRACE,
        "transfer ends",
        op = transfer.op.name(),
        fd = transfer.file.fd(),
        offset = transfer.file_offset,
        size = transfer.len(),
        engine = %Engines(split.engines),
        direct = split.direct,
        staged = split.staged,
        moved,
        outcome = if result.is_ok() { "done" } else { "failed" }
    );
}
