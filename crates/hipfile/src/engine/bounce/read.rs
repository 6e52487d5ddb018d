//! What one thread does of a staged read: pieces into Blocks and on to the GPU. It shares out nothing and takes no Blocks.

use std::sync::Arc;

use super::{Partial, Way};
use crate::device::{Device, UnderWay};
use crate::engine::chunks::{Chunk, Chunks, Prefix};
use crate::error::Error;
use crate::transfer::Transfer;

/// A read that several threads may have a share in.
#[derive(Clone, Copy)]
pub(super) struct Read<'a> {
    pub(super) device: &'a Arc<dyn Device>,
    pub(super) transfer: &'a Transfer<'a>,
    pub(super) way: Way<'a>,
    pub(super) prefix: &'a Prefix,
}

/// A piece, or what fits into a Block of one.
struct Part {
    /// The piece's.
    index: usize,
    /// Bytes of the piece before this part.
    before: usize,
    chunk: Chunk,
}

/// A copy that nobody has waited for, and the part it is of.
type Copying<'a> = (usize, usize, Box<dyn UnderWay + 'a>);

impl Read<'_> {
    /// Cuts pieces to what fits into `block` bytes, and leaves out the rest of one that is broken.
    fn parts(self, block: usize, take: impl Fn() -> Option<(usize, Chunk)>) -> impl FnMut() -> Option<Part> {
        let mut now: Option<(usize, Chunk, Chunks, usize)> = None;
        move || {
            loop {
                if let Some((index, piece, parts, next)) = &mut now
                    && *next < parts.count()
                    && self.prefix.wants(*index)
                {
                    let mut chunk = parts.get(*next);
                    let before = chunk.offset;
                    chunk.offset += piece.offset;
                    *next += 1;
                    return Some(Part { index: *index, before, chunk });
                }
                let (index, piece) = take()?;
                let parts = Chunks::of(piece.at + piece.skip as u64, piece.len, block, self.way.align);
                now = Some((index, piece, parts, 0));
            }
        }
    }

    /// Reads pieces into one Block and copies each before the next is read.
    pub(super) fn one_by_one(self, bytes: &mut [u8], take: impl Fn() -> Option<(usize, Chunk)>) {
        let mut parts = self.parts(bytes.len(), take);
        while let Some(part) = parts() {
            let filled = self.way.fill(&part.chunk, bytes);
            self.upload(&part, bytes, filled);
        }
    }

    /// Copies what was read of a part, also before an error: that is of the counted prefix.
    fn upload(self, part: &Part, bytes: &[u8], filled: Partial) {
        let chunk = &part.chunk;
        let (mut n, mut error) = match filled {
            Ok(n) => (n, None),
            Err((n, error)) => (n, Some(error)),
        };
        if n > 0 {
            let bytes = &bytes[chunk.skip..chunk.skip + n];
            if let Err(failed) = self.device.upload(&self.transfer.span.slice(chunk.offset, n), bytes) {
                (n, error) = (0, Some(failed));
            }
        }
        if error.is_some() || n < chunk.len {
            self.prefix.broke(part.index, part.before + n, error);
        }
    }

    /// Reads pieces into two Blocks in turn, each while the other is copied to the GPU.
    pub(super) fn overlapped(self, mut blocks: [&mut [u8]; 2], take: impl Fn() -> Option<(usize, Chunk)>) {
        let mut parts = self.parts(blocks[0].len().min(blocks[1].len()), take);
        // Dropped before the Blocks go back, so that nothing is copied from them any more.
        let mut before: Option<Copying<'_>> = None;
        let finish = |copy: Option<Copying<'_>>| {
            if let Some((index, moved, copy)) = copy
                && let Err(error) = copy.wait()
            {
                self.prefix.broke(index, moved, Some(error));
            }
        };
        while let Some(part) = parts() {
            let chunk = &part.chunk;
            let filled = self.way.fill(chunk, blocks[0]);
            if !matches!(filled, Ok(n) if n == chunk.len) {
                // First what is before it: of one piece the first break counts.
                finish(before.take());
                self.upload(&part, blocks[0], filled);
                continue;
            }
            let span = self.transfer.span.slice(chunk.offset, chunk.len);
            let bytes = &blocks[0][chunk.skip..chunk.skip + chunk.len];
            // SAFETY: the Block is used again only after this copy was waited for, a round later; the span's memory is in
            // use for as long as the transfer runs.
            let copy: Result<_, Error> = unsafe { self.device.upload_later(&span, bytes) };
            finish(before.take());
            match copy {
                Ok(later) => before = later.map(|later| (part.index, part.before, later)),
                Err(error) => self.prefix.broke(part.index, part.before, Some(error)),
            }
            blocks.swap(0, 1);
        }
        finish(before);
    }
}
