//! The page cache of the file, brought into the state that a run starts from, and looked at whether it is. Only this file's pages
//! are touched, never the whole system's.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd as _, OwnedFd};

use bench_support::cachestat;
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use super::job::{Cache, Job};
use super::subject::Subject;
use crate::failure::Failure;

/// Longest cached and uncached stretches of a half-cached file.
const STRETCH: u64 = 64 << 20;
/// Bytes read at a time to fill the cache.
const PIECE: usize = 1 << 20;

/// What the cache held when the run began.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Found {
    /// Bytes of the file in the cache, or null where the kernel does not tell.
    pub(super) cached_bytes: Option<u64>,
    /// Why it is not what was asked for, or was not checked; null if all is well.
    pub(super) problem: Option<String>,
}

/// Brings the cache into the state that the job asks for.
///
/// # Errors
/// The file cannot be read or written back. A state that does not come about is no error: the answer tells.
pub(super) fn prepare(subject: &Subject, job: &Job) -> Result<Found, Failure> {
    let os = |error: Errno| Failure::os(&subject.path, error);
    let end = job.shift + job.span;
    match job.cache {
        Cache::AsIs => {}
        // Filling what is full costs as much as filling it.
        Cache::Warm if check(subject, job).problem.is_none() => {}
        Cache::Warm => fill(subject, end).map_err(os)?,
        Cache::Cold => {
            rustix::fs::fdatasync(subject.buffered()).map_err(os)?;
            empty(subject, 0, 0).map_err(os)?;
        }
        Cache::Half => {
            rustix::fs::fdatasync(subject.buffered()).map_err(os)?;
            empty(subject, 0, 0).map_err(os)?;
            fill(subject, end).map_err(os)?;
            let stretch = stretch(end);
            // Behind the range, readahead may have left something too.
            for at in (stretch..end + 2 * stretch).step_by(2 * stretch as usize) {
                empty(subject, at, stretch).map_err(os)?;
            }
        }
    }
    Ok(check(subject, job))
}

/// Whether the cache is as the job wants it.
fn check(subject: &Subject, job: &Job) -> Found {
    let all = (job.shift + job.span).next_multiple_of(rustix::param::page_size() as u64);
    let bytes = match cached(subject, 0, if job.cache == Cache::Cold { 0 } else { all }) {
        Ok(bytes) => bytes,
        Err(error) => {
            let problem = format!("the state of the page cache was not checked (cachestat: {error})");
            return Found { cached_bytes: None, problem: Some(problem) };
        }
    };
    let good = match job.cache {
        Cache::AsIs => true,
        Cache::Cold => bytes == 0,
        Cache::Half => (all * 2 / 5..=all * 3 / 5).contains(&bytes),
        // Systems that give idle memory back take a page here and there at any time.
        Cache::Warm => bytes >= all - all / 100,
    };
    let problem = (!good)
        .then(|| format!("{bytes} of {all} bytes were in the page cache, which is not {}", job.cache.word()));
    Found { cached_bytes: Some(bytes), problem }
}

/// An eighth of what is in use, in whole MiB, so that short files have several stretches too.
fn stretch(end: u64) -> u64 {
    STRETCH.min((end / 8).next_multiple_of(1 << 20))
}

/// Bytes of a range of the file that are in the page cache; a `len` of 0 goes to its end.
pub(super) fn cached(subject: &Subject, offset: u64, len: u64) -> io::Result<u64> {
    Ok(cachestat(subject.buffered(), offset, len)?.cached * rustix::param::page_size() as u64)
}

/// Drops the clean pages of a range.
fn empty(subject: &Subject, offset: u64, len: u64) -> rustix::io::Result<()> {
    for _ in 0..3 {
        // Pages that another processor has in hand escape the first time.
        rustix::fs::fadvise(subject.buffered(), offset, NonZeroU64::new(len), Advice::DontNeed)?;
        if cached(subject, offset, len).is_ok_and(|bytes| bytes == 0) {
            break;
        }
    }
    Ok(())
}

/// Reads the file up to `end` as programs do, with the system's own readahead: it decides how large the pieces of the cache are.
fn fill(subject: &Subject, end: u64) -> rustix::io::Result<()> {
    let reader = reader(subject)?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < end {
        match rustix::io::pread(&reader, &mut piece, at) {
            Ok(0) => break,
            Ok(n) => at += n as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn reader(subject: &Subject) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(format!("/proc/self/fd/{}", subject.buffered().as_raw_fd()), flags, Mode::empty())
}

/// A description of the file that reads without reading ahead.
pub(super) fn quiet_reader(subject: &Subject) -> rustix::io::Result<OwnedFd> {
    let reader = reader(subject)?;
    rustix::fs::fadvise(&reader, 0, None, Advice::Random)?;
    Ok(reader)
}
