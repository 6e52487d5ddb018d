//! Large writes into files in memory (tmpfs) by several threads. Into such a file the kernel lets one write at a time, so the
//! pages that are there already are copied into by way of a mapping; what does not suit that is left to plain writes. The
//! mapping is never touched by code (`sys::FileMap` says why).

use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use super::{Bounce, LEAST_PIECE, Partial, WIDE, Way, scant};
use crate::block::Block;
use crate::config::Config;
use crate::device::Device;
use crate::engine::chunks::{Chunk, Chunks, Prefix};
use crate::engine::{Outcome, Stop};
use crate::log::{self, Singly};
use crate::op::Op;
use crate::storage::FsClass;
use crate::sys::{self, FileMap, Site};
use crate::transfer::Transfer;

/// So many pieces for each thread, or the last ones would be waited for too long.
const ROUNDS: usize = 2;

/// When writes go this way.
#[derive(Debug)]
pub(super) struct Mapped {
    /// Bytes from which on.
    min: usize,
    /// By so many threads, the caller's among them; 1 for none.
    threads: usize,
    /// Whether the system does not let this process copy that way at all.
    refused: AtomicBool,
    /// Why large writes went one at a time, as far as the log was told, one bit each.
    told: AtomicU8,
}

impl Mapped {
    pub(super) fn new(config: &Config) -> Mapped {
        Mapped {
            min: config.mapped_min,
            threads: config.threads_per_mapped_write(),
            refused: AtomicBool::new(false),
            told: AtomicU8::new(0),
        }
    }

    fn tell(&self, transfer: &Transfer<'_>, why: Singly, errno: i32) {
        log::singly(&self.told, transfer.file, why, errno);
    }

    /// What of a write goes this way, and is worth it: whole pages of what the file has already, with a byte of that before
    /// them and behind.
    fn body(&self, transfer: &Transfer<'_>, way: Way<'_>) -> Option<Range<usize>> {
        let size = sys::at(Site::MappedSize, || sys::statx(way.fd.as_raw_fd())).ok()?.size;
        let page = rustix::param::page_size() as u64;
        let start = transfer.file_offset;
        let end = (start + transfer.len() as u64).min(size);
        let (from, to) = ((start / page + 1) * page, end.saturating_sub(1) / page * page);
        let worth = to > from && end - start >= self.min as u64;
        worth.then(|| (from - start) as usize..(to - start) as usize)
    }
}

impl Bounce {
    /// A large write into a file in memory. `None` when it is none, or the system does not allow it; then nothing is done.
    pub(super) fn by_mapping(
        &self,
        transfer: &Transfer<'_>,
        device: &Arc<dyn Device>,
        way: Way<'_>,
    ) -> Option<Outcome> {
        let mapped = &self.mapped;
        let large = transfer.op == Op::Write && transfer.len() >= mapped.min;
        if !large || mapped.threads < 2 || way.align > 1 || mapped.refused.load(Ordering::Relaxed) {
            return None;
        }
        if transfer.file.storage().fs != FsClass::Tmpfs {
            return None;
        }
        if transfer.file.appends() {
            mapped.tell(transfer, Singly::Append, 0);
            return None;
        }
        let body = mapped.body(transfer, way)?;
        let from = transfer.file_offset + body.start as u64;
        let map = match sys::at(Site::MappedMap, || FileMap::new(way.fd, from, body.len())) {
            Ok(map) => map,
            Err(errno) => {
                mapped.tell(transfer, Singly::NoMapping, errno);
                return None;
            }
        };
        // What is before and behind goes by plain writes: they change the file's times, take the set-user-ID bit away and wake
        // who watches the file; and one that is not allowed says so before anything was changed.
        let before = || self.staged(&transfer.part(0..body.start), device, way);
        let inside = || self.inside(&transfer.part(body.clone()), device, way, map);
        let behind = || self.staged(&transfer.rest(body.end), device, way);
        let outcome = before();
        let outcome = and_then(outcome, body.start, inside);
        Some(and_then(outcome, body.end, behind))
    }

    /// Whole pages that the file has, or had a moment ago.
    fn inside(&self, part: &Transfer<'_>, device: &Arc<dyn Device>, way: Way<'_>, map: FileMap) -> Outcome {
        let piece = self.mapped_piece(part.len());
        // On a grid of whole pieces in the file, so that none has a share in another one's huge page.
        let chunks = Chunks::new(part, piece, piece);
        let prefix = Prefix::new();
        let take = || prefix.next(&chunks);
        let (node, wide) = (part.span.place().node(), self.blocks.adjacent(piece));
        let carry = |mine: Option<Block<'_>>| {
            let large = if wide > 1 { self.blocks.try_take_wide(node, wide) } else { None };
            let Some(mut block) = large.or(mine).or_else(|| self.blocks.try_take_more(node)) else { return };
            while let Some((index, chunk)) = take() {
                let work = Piece { part, device: device.as_ref(), way, map: &map, chunk };
                if let Err((n, error)) = self.put_piece(&work, block.bytes_mut()) {
                    prefix.broke(index, n, Some(error));
                }
            }
        };
        // Before a Block, so that nobody waits for a turn with a Block in hand.
        let _turn = self.busy.take();
        let first = match self.blocks.take(node) {
            Ok(block) => block,
            Err(errno) => return scant::run(part, device.as_ref(), way, errno),
        };
        self.share((self.mapped.threads - 1).min(chunks.count() - 1), first, &carry);
        prefix.outcome(&chunks)
    }

    /// As large as is good for huge pages and the calls of the system, or less where there is not that much for each thread.
    fn mapped_piece(&self, len: usize) -> usize {
        let share = (len / (ROUNDS * self.mapped.threads)).max(1);
        let least = LEAST_PIECE.min(self.blocks.block_len());
        (1_usize << share.ilog2()).clamp(least, WIDE).next_multiple_of(rustix::param::page_size())
    }

    /// Writes a piece, one Block after the other.
    fn put_piece(&self, work: &Piece<'_>, block: &mut [u8]) -> Partial {
        let Piece { part, device, way, map, chunk } = *work;
        let mut done = 0;
        while done < chunk.len {
            let at = chunk.offset + done;
            let len = block.len().min(chunk.len - done);
            let bytes = &mut block[..len];
            device
                .download_beside(&part.span.slice(at, len), bytes, &mut || map.prepare(at, len))
                .map_err(|error| (done, error))?;
            let put = self.put(work, at, bytes);
            if put < len {
                // A plain write knows what is the matter, if anything is.
                let rest = Chunk {
                    at: part.file_offset + (at + put) as u64,
                    ask: len - put,
                    skip: 0,
                    offset: 0,
                    len: len - put,
                };
                way.drain(&rest, &bytes[put..]).map_err(|(n, error)| (done + put + n, error))?;
            }
            done += len;
        }
        map.release(chunk.offset, chunk.len);
        Ok(done)
    }

    /// Copies into the mapping; how many bytes.
    fn put(&self, work: &Piece<'_>, at: usize, bytes: &[u8]) -> usize {
        if self.mapped.refused.load(Ordering::Relaxed) {
            return 0;
        }
        match sys::moves(Site::MappedCopy, || work.map.put(at, bytes)) {
            Ok(n) => n,
            Err(errno) => {
                // Not of this place but of the process: a filter of system calls, or a kernel without it.
                let whole = matches!(errno, libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EOPNOTSUPP);
                if whole {
                    self.mapped.refused.store(true, Ordering::Relaxed);
                }
                let why = if whole { Singly::NoCopy } else { Singly::Changed };
                self.mapped.tell(work.part, why, errno);
                0
            }
        }
    }
}

/// A piece, and what it is written by.
struct Piece<'a> {
    part: &'a Transfer<'a>,
    device: &'a dyn Device,
    way: Way<'a>,
    map: &'a FileMap,
    chunk: Chunk,
}

/// What a transfer comes to whose first `whole` bytes came to `first`.
fn and_then(first: Outcome, whole: usize, next: impl FnOnce() -> Outcome) -> Outcome {
    if first.moved < whole || !matches!(first.stop, Stop::Done) {
        return first;
    }
    let next = next();
    Outcome { moved: whole + next.moved, ..next }
}
