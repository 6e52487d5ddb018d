//! A large transfer cut into pieces of one Block each, and the bookkeeping of which prefix is whole. It does no I/O.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Outcome, Stop};
use crate::error::Error;
use crate::transfer::Transfer;

/// The pieces of a transfer, on a grid that is aligned in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    /// File offset of the first piece: the transfer's own, rounded down.
    start: u64,
    /// Bytes between the first piece's start and the transfer's.
    lead: usize,
    len: usize,
    chunk: usize,
    align: usize,
}

/// One piece: what to ask the file for, and which part of the answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// File offset to start at; aligned.
    pub(super) at: u64,
    /// Bytes to ask for; aligned.
    pub(super) ask: usize,
    /// Bytes at the start of the answer that nobody wants.
    pub(super) skip: usize,
    /// Where the wanted bytes belong in the transfer.
    pub(super) offset: usize,
    /// How many bytes are wanted.
    pub(super) len: usize,
}

impl Chunks {
    /// Pieces of at most `chunk` bytes, of which there are at least `align`.
    pub(super) fn new(transfer: &Transfer<'_>, chunk: usize, align: usize) -> Chunks {
        Chunks::of(transfer.file_offset, transfer.len(), chunk, align)
    }

    /// As [`Self::new`], of any range.
    pub(super) fn of(offset: u64, len: usize, chunk: usize, align: usize) -> Chunks {
        let lead = (offset % align as u64) as usize;
        // The size of a Block need be no multiple of the file's alignment.
        Chunks { start: offset - lead as u64, lead, len, chunk: chunk - chunk % align, align }
    }

    pub(super) fn count(&self) -> usize {
        (self.lead + self.len).div_ceil(self.chunk)
    }

    pub(super) fn get(&self, index: usize) -> Chunk {
        let from = index * self.chunk;
        let to = (from + self.chunk).min(self.lead + self.len);
        let skip = self.lead.saturating_sub(from);
        Chunk {
            at: self.start + from as u64,
            ask: (to - from).next_multiple_of(self.align),
            skip,
            offset: (from + skip) - self.lead,
            len: to - from - skip,
        }
    }
}

impl Chunk {
    /// How many wanted bytes an answer of `got` bytes holds.
    pub(super) fn wanted(&self, got: usize) -> usize {
        got.saturating_sub(self.skip).min(self.len)
    }
}

/// Where a transfer's unbroken prefix ends: at the first piece that came out short or failed.
#[derive(Debug)]
pub(super) struct Prefix {
    /// Index of that piece so far; pieces from there on need not be started.
    first_broken: AtomicUsize,
    /// How many pieces were given to threads.
    given: AtomicUsize,
    broken: Mutex<Option<Broken>>,
}

#[derive(Debug)]
struct Broken {
    index: usize,
    moved: usize,
    error: Option<Error>,
}

impl Prefix {
    pub(super) fn new() -> Prefix {
        Prefix {
            first_broken: AtomicUsize::new(usize::MAX),
            given: AtomicUsize::new(0),
            broken: Mutex::new(None),
        }
    }

    /// The next piece, for whichever thread asks, if it is still of use; each once.
    pub(super) fn next(&self, chunks: &Chunks) -> Option<(usize, Chunk)> {
        let index = self.given.fetch_add(1, Ordering::Relaxed);
        (index < chunks.count() && self.wants(index)).then(|| (index, chunks.get(index)))
    }

    /// Whether a piece is still of use.
    pub(super) fn wants(&self, index: usize) -> bool {
        index < self.first_broken.load(Ordering::Relaxed)
    }

    /// A piece ended early: after `moved` of its bytes, for a reason or at the end of the file.
    pub(super) fn broke(&self, index: usize, moved: usize, error: Option<Error>) {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if broken.as_ref().is_none_or(|b| index < b.index) {
            *broken = Some(Broken { index, moved, error });
            self.first_broken.store(index, Ordering::Relaxed);
        }
    }

    /// The outcome, once every piece before the first broken one is done.
    pub(super) fn outcome(self, chunks: &Chunks) -> Outcome {
        match self.broken.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Outcome::done(chunks.len),
            Some(Broken { index, moved, error }) => {
                let moved = chunks.get(index).offset + moved;
                match error {
                    Some(error) => Outcome::failed(moved, error),
                    None => Outcome { moved, stop: Stop::Short },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(offset: u64, len: usize, chunk: usize, align: usize) -> Vec<Chunk> {
        let all = Chunks::of(offset, len, chunk, align);
        (0..all.count()).map(|i| all.get(i)).collect()
    }

    #[test]
    fn pieces_cover_the_transfer_once_and_stay_aligned() {
        for (align, block) in [(1, 65536), (512, 65536), (4096, 65536), (65536, 65536), (16384, 69632)] {
            for offset in [0, 1, 511, 4096, 5000, 65535] {
                for len in [1, 2, 4095, 4096, 65536, 65537, 200_001] {
                    let mut expected = 0;
                    for piece in chunks(offset, len, block, align) {
                        assert_eq!(piece.offset, expected);
                        assert_eq!(piece.at + piece.skip as u64, offset + expected as u64);
                        assert!(piece.at.is_multiple_of(align as u64) && piece.ask.is_multiple_of(align));
                        assert!(piece.len > 0 && piece.skip + piece.len <= piece.ask && piece.ask <= block);
                        expected += piece.len;
                    }
                    assert_eq!(expected, len, "{offset}+{len} by {align}");
                }
            }
        }
    }

    #[test]
    fn the_first_broken_piece_decides() {
        let all = Chunks { start: 0, lead: 0, len: 1000, chunk: 100, align: 1 };
        let prefix = Prefix::new();
        prefix.broke(7, 3, None);
        prefix.broke(4, 50, Some(Error::os("read", libc::EIO)));
        prefix.broke(5, 0, None);
        assert!(prefix.wants(3) && !prefix.wants(4));
        let outcome = prefix.outcome(&all);
        assert_eq!(outcome.moved, 450);
        assert!(matches!(outcome.stop, Stop::Failed(_)));
        assert_eq!(Prefix::new().outcome(&all).moved, 1000);
    }
}
