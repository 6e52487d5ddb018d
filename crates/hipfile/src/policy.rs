//! Through the page cache or around it: decided per range, by what is so. It decides; engines do.

use std::os::fd::BorrowedFd;

use crate::config::{Config, PageCache};
use crate::op::Op;
use crate::sys::{self, Site};
use crate::transfer::{Cache, Transfer};

/// Residency is asked for once per this many bytes, at three places; in a long run once per [`WIDEST`].
const WINDOW: usize = 4 << 20;
/// 1 GiB copied out of the cache takes about 25 ms on the fastest link; asking for every [`WINDOW`] of it takes 2 ms.
const WIDEST: usize = 16 << 20;
const SAMPLE: u64 = 64 << 10;
/// A run is at most this long: what was in the cache at its start may have left since, or come when the storage is read.
const LONGEST_CACHED: usize = 1 << 30;
const LONGEST_AROUND: usize = 256 << 20;

/// How staged transfers treat the page cache, from the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    page_cache: PageCache,
    direct_min: usize,
}

impl Policy {
    pub(crate) fn new(config: &Config) -> Policy {
        Policy { page_cache: config.default_page_cache(), direct_min: config.direct_min }
    }

    /// How a small transfer is to be carried, where no look at the file is needed to know.
    pub(crate) fn small(&self, transfer: &Transfer<'_>) -> Option<Cache> {
        match transfer.file.page_cache().unwrap_or(self.page_cache) {
            setting if self.goes_through(setting, transfer.len()) => Some(Cache::Through),
            // A read that meets the end of the file fails or comes back short, and is then carried with more care.
            PageCache::Direct if transfer.op == Op::Read => Some(Cache::Around),
            _ => None,
        }
    }

    /// Whether a transfer of this size goes through the page cache whatever the file and the cache hold.
    fn goes_through(&self, setting: PageCache, len: usize) -> bool {
        setting == PageCache::Buffered || (setting == PageCache::Auto && len < self.direct_min)
    }

    /// As [`Policy::next_run`] for memory that is read and written in place: what is not aligned all over goes through the
    /// page cache, rather than by way of other memory.
    pub(crate) fn next_run_in_place(&self, transfer: &Transfer<'_>) -> (Cache, usize) {
        let (cache, len) = self.next_run(transfer);
        let align = transfer.file.staged_direct(transfer.op).zip(transfer.file.direct_align());
        match (cache, align) {
            (Cache::Around, Some(((_, offset), align))) => {
                let page_cache = transfer.file.page_cache().unwrap_or(self.page_cache);
                let rest = transfer.part(0..len);
                aligned_run(
                    rest.file_offset,
                    rest.span.start(),
                    len,
                    (offset, align.mem as usize),
                    page_cache,
                )
            }
            _ => (cache, len),
        }
    }

    /// How the start of a transfer is to be carried, and how many bytes of it alike; at least one.
    pub(crate) fn next_run(&self, transfer: &Transfer<'_>) -> (Cache, usize) {
        let (file, op, len) = (transfer.file, transfer.op, transfer.len());
        let setting = file.page_cache().unwrap_or(self.page_cache);
        if self.goes_through(setting, len) {
            return (Cache::Through, len);
        }
        let Some((_, align)) = file.staged_direct(op) else {
            return (if setting == PageCache::Auto { Cache::Through } else { Cache::LeaveNothing }, len);
        };
        // What lies behind the end of the file is not asked for: an O_DIRECT read across it can meet blocks that are
        // not allocated yet, which xfs answers with EIO. A plain read says where the end is.
        let len = match (op, file.size()) {
            (Op::Read, Some(size)) if size <= transfer.file_offset => return (Cache::Through, len),
            (Op::Read, Some(size)) => len.min(usize::try_from(size - transfer.file_offset).unwrap_or(len)),
            _ => len,
        };
        match op {
            Op::Read if setting == PageCache::Auto => {
                if file.storage().prefers_buffered() {
                    return (Cache::Through, len);
                }
                resident_run(transfer, len)
            }
            // The superset of an unaligned range is read: cheaper than its ends apart.
            Op::Read => (Cache::Around, len),
            Op::Write => {
                if setting == PageCache::Auto && file.storage().prefers_buffered() {
                    return (Cache::Through, len);
                }
                write_run(transfer.file_offset, len, align, setting)
            }
        }
    }
}

/// The next piece of a transfer that is carried in place: whole units if the memory is aligned where the file is.
fn aligned_run(
    offset: u64,
    address: usize,
    len: usize,
    (align, mem): (usize, usize),
    setting: PageCache,
) -> (Cache, usize) {
    let head = (offset.next_multiple_of(align as u64) - offset) as usize;
    let ends = if setting == PageCache::NoCache { Cache::LeaveNothing } else { Cache::Through };
    if !address.wrapping_add(head).is_multiple_of(mem) {
        return (ends, len);
    }
    write_run(offset, len, align, setting)
}

/// The next piece of a write: ragged ends go through the cache, so that no neighbour's byte is ever written back.
fn write_run(offset: u64, len: usize, align: usize, setting: PageCache) -> (Cache, usize) {
    let ends = if setting == PageCache::NoCache { Cache::LeaveNothing } else { Cache::Through };
    let head = (offset.next_multiple_of(align as u64) - offset) as usize;
    if head >= len {
        return (ends, len);
    }
    if head > 0 {
        return (ends, head);
    }
    match len - len % align {
        0 => (ends, len),
        body => (Cache::Around, body),
    }
}

/// Reads: the longest start of the transfer that is alike in or out of the cache, by samples.
fn resident_run(transfer: &Transfer<'_>, len: usize) -> (Cache, usize) {
    let Ok(plain) = transfer.file.plain("read") else { return (Cache::Through, len) };
    let resident =
        |at, window: usize| is_resident(plain.fd, transfer.file_offset + at as u64, window.min(len - at));
    let first = resident(0, WINDOW);
    let limit = len.min(if first { LONGEST_CACHED } else { LONGEST_AROUND });
    let mut end = WINDOW;
    while end < limit {
        let window = window_after(end);
        if resident(end, window) != first {
            break;
        }
        end += window;
    }
    // A short last window goes with what is before it.
    let run = if end + WINDOW / 2 > len { len } else { end };
    (if first { Cache::Cached } else { Cache::Around }, run)
}

/// How many bytes to judge together after so many that are alike: about a sixteenth of these. Where a window differs, the
/// next run begins, and that looks more closely again.
fn window_after(end: usize) -> usize {
    (end / 16 / WINDOW * WINDOW).clamp(WINDOW, WIDEST)
}

/// Whether most of a window is in the page cache.
fn is_resident(fd: BorrowedFd<'_>, offset: u64, len: usize) -> bool {
    let len = len as u64;
    let sample = SAMPLE.min(len);
    let places = [offset, offset + (len - sample) / 2, offset + len - sample];
    let (mut cached, mut asked) = (0, 0);
    for place in places {
        match sys::at(Site::CacheLook, || sys::cachestat(fd, place, sample)) {
            Ok(stat) => {
                cached += stat.cached;
                asked += sample.div_ceil(4096);
            }
            // Not ours to ask (neither owner nor writer), or an older kernel: try to read without waiting.
            Err(_) => {
                let now = || sys::readable_now(fd, offset + len / 2);
                return sys::at(Site::CacheProbe, now).unwrap_or(false);
            }
        }
    }
    cached * 2 > asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_widen_with_what_is_alike() {
        let mib = [4, 64, 124, 128, 192, 256, 1 << 20].map(|end| window_after(end << 20) >> 20);
        assert_eq!(mib, [4, 4, 4, 8, 12, 16, 16]);
    }

    #[test]
    fn what_is_carried_in_place_is_aligned_in_memory_too() {
        let run = |offset, address, len| aligned_run(offset, address, len, (4096, 512), PageCache::Auto);
        assert_eq!(run(0, 512, 8192), (Cache::Around, 8192));
        assert_eq!(run(0, 511, 8192), (Cache::Through, 8192));
        assert_eq!(run(4000, 416, 9000), (Cache::Through, 96), "aligned from the first whole block on");
        assert_eq!(run(4000, 0, 9000), (Cache::Through, 9000));
        assert_eq!(run(0, 0, 4095), (Cache::Through, 4095));
    }

    #[test]
    fn writes_are_cut_at_whole_pages() {
        let cut = |offset, len| write_run(offset, len, 4096, PageCache::Auto);
        assert_eq!(cut(0, 8192), (Cache::Around, 8192));
        assert_eq!(cut(0, 8193), (Cache::Around, 8192));
        assert_eq!(cut(8192, 1), (Cache::Through, 1));
        assert_eq!(cut(1, 8192), (Cache::Through, 4095));
        assert_eq!(cut(1, 100), (Cache::Through, 100));
        assert_eq!(cut(4095, 1), (Cache::Through, 1));
        assert_eq!(write_run(1, 100, 4096, PageCache::NoCache), (Cache::LeaveNothing, 100));
    }
}
