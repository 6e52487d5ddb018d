//! Many small reads in one ring: each kernel entry starts and reaps as many as there are, several share a Block, and
//! those whose memory touches are copied to the GPU in one piece. It retries nothing; what does not come out whole is
//! handed back.

use std::collections::TryReserveError;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use io_uring::{IoUring, opcode, squeue, types};

use super::{ENTRIES, Lost, RING, Uring, answer, none_taken, submit};
use crate::block::Block;
use crate::buffer::{Place, Span};
use crate::engine::Queue;
use crate::op::Op;
use crate::queued::{Queued, Source};
use crate::sys::{self, Site};
use crate::transfer::{Cache, Transfer};
use crate::warm::has_waited;

/// Most Blocks of one flight; all but the first only if they are free at once.
const MOST_BLOCKS: usize = 8;
/// Longest reads, through the page cache and around it. Of larger ones a thread each is as good or better: then the copy is
/// the work.
const MOST_CACHED: usize = 64 << 10;
const MOST_AROUND: usize = 128 << 10;
/// Where a piece may start in a Block read around the page cache, which memory must be aligned for, and otherwise.
const PAGE: usize = 4096;
const LINE: usize = 64;
/// What is read at once out of the page cache before it is copied to the GPU: it should still be in the processor's cache.
/// Where each round of copies is queued and waited for it is more, so that small entries are as many as are given together.
const GATHER: usize = 64 << 10;
const GATHER_QUEUED: usize = 256 << 10;
/// Copies that are given to the GPU's runtime together.
const MOST_COPIES: usize = 64;
/// After a miss in the page cache so many pieces go to the ring without a look.
const MISSES: usize = 16;

impl Queue for Uring {
    fn takes(&self, transfer: &Transfer<'_>) -> bool {
        transfer.op == Op::Read
            && transfer.len() > 0
            && !transfer.span.place().is_reached()
            && !self.refused.load(std::sync::atomic::Ordering::Relaxed)
            && Ask::of(transfer).is_some_and(|ask| ask.len <= self.blocks.block_len())
    }

    fn run(&self, source: &mut dyn Source) {
        let _ = RING.try_with(|cell| {
            let mut seat = cell.try_borrow_mut().ok()?;
            let ring = self.ring(&mut seat)?;
            let entered = self.fly(ring, source);
            self.keep(&mut seat, entered);
            Some(())
        });
        // What is left, for lack of a ring or of memory, goes the ordinary way.
        while let Some((piece, _)) = source.next() {
            source.again(piece);
        }
    }
}

/// What to ask the file for.
struct Ask {
    fd: i32,
    at: u64,
    len: usize,
    /// Bytes at the start of the answer that nobody wants.
    skip: usize,
    /// What its place in the Block must be a multiple of.
    align: usize,
}

impl Ask {
    fn of(transfer: &Transfer<'_>) -> Option<Ask> {
        match transfer.cache {
            Cache::Through | Cache::Cached if transfer.len() > MOST_CACHED => None,
            Cache::Around if transfer.len() > MOST_AROUND => None,
            Cache::Around => {
                let (fd, align) = transfer.file.staged_direct(Op::Read)?;
                let (at, len, skip) = transfer.widened(align);
                Some(Ask { fd: fd.as_raw_fd(), at, len, skip, align: PAGE })
            }
            Cache::Through | Cache::Cached => {
                let plain = transfer.file.plain("read").ok().filter(|plain| !plain.direct_only)?;
                let (at, len) = (transfer.file_offset, transfer.len());
                Some(Ask { fd: plain.fd.as_raw_fd(), at, len, skip: 0, align: LINE })
            }
            Cache::LeaveNothing => None,
        }
    }

    /// Whether it can be read out of the page cache, and was. Where every read finds its bytes there, by a call that would
    /// wait for storage but is a tenth of all the work faster; it is looked whether it did.
    fn now(&self, work: &Queued, bytes: &mut [u8], looked: &mut Option<Instant>) -> bool {
        let file = work.file();
        let (found, waited) = if file.warm.is_likely() {
            let began = looked.unwrap_or_else(Instant::now);
            let whole = sys::at(Site::QueueNow, || sys::read_whole(self.fd, bytes, self.at));
            let ended = Instant::now();
            *looked = Some(ended);
            (whole, has_waited(self.len, ended - began))
        } else {
            (sys::at(Site::QueueNow, || sys::read_now(self.fd, bytes, self.at)), false)
        };
        if found && !waited {
            file.warm.found(|| work.is_local());
        } else {
            file.warm.missed();
        }
        found
    }
}

/// A Block that pieces share: filled from the front, empty again when the last of them is done.
struct Shared<'p> {
    block: Block<'p>,
    filled: usize,
    pieces: usize,
}

/// A piece in flight. Its descriptor stays open because the piece owns its file.
struct Piece {
    work: Queued,
    block: usize,
    /// Where the wanted bytes begin in the Block.
    from: usize,
    /// How many bytes the answer must have at least.
    least: usize,
    /// Whether it is in the GPU's memory.
    copied: bool,
}

struct Flight<'r, 'p> {
    ring: &'r mut IoUring,
    blocks: Vec<Shared<'p>>,
    pieces: Vec<Option<Piece>>,
    free: Vec<usize>,
    /// Requests in the ring.
    started: usize,
    /// Pieces that were in the page cache, and are not copied yet; and their bytes.
    ready: Vec<Piece>,
    gathered: usize,
    /// Pieces that are not looked for in the page cache.
    blind: usize,
    /// When a read out of it ended last, since the last copies.
    looked: Option<Instant>,
}

impl Uring {
    fn fly(&self, ring: &mut IoUring, source: &mut dyn Source) -> Result<(), Lost> {
        let Some((first, cache)) = source.next() else { return Ok(()) };
        let node = first.transfer().and_then(|transfer| transfer.span.place().node());
        let queued = first.transfer().is_some_and(
            |transfer| matches!(transfer.span.place(), Place::Device { device, .. } if device.copies_later()),
        );
        let gather = if queued { GATHER_QUEUED } else { GATHER };
        let Ok(block) = self.blocks.take(node) else {
            source.again(first);
            return Ok(());
        };
        let mut flight = Flight {
            ring,
            blocks: vec![Shared { block, filled: 0, pieces: 0 }],
            pieces: Vec::new(),
            free: Vec::new(),
            started: 0,
            ready: Vec::new(),
            gathered: 0,
            blind: 0,
            looked: None,
        };
        let mut next = Some((first, cache));
        loop {
            while flight.started < ENTRIES as usize && flight.gathered < gather {
                let Some((piece, cache)) = next.take().or_else(|| source.next()) else { break };
                let more = || {
                    let block = self.blocks.try_take(node)?;
                    Some(Shared { block, filled: 0, pieces: 0 })
                };
                match flight.start(piece, cache, more) {
                    Started::Yes => {}
                    Started::NoRoom(piece) => {
                        next = Some((piece, cache));
                        break;
                    }
                    Started::Never(piece) => source.again(piece),
                }
            }
            let entered = match (flight.started, flight.ready.len()) {
                (0, 0) => break,
                (0, _) => Ok(()),
                (_, ready) => {
                    if ready == 0 {
                        // What waits for room here is anybody's meanwhile, and may be had again afterwards.
                        source.waits(next.take().map(|(piece, _)| piece));
                    }
                    submit(flight.ring, ready == 0)
                }
            };
            flight.land(source);
            if entered.is_err() {
                let left = std::mem::take(&mut flight.pieces).into_iter().flatten().map(|piece| piece.work);
                left.chain(next.map(|(piece, _)| piece)).for_each(|piece| source.again(piece));
                flight.let_go();
                return entered;
            }
        }
        if let Some((piece, _)) = next {
            source.again(piece);
        }
        Ok(())
    }
}

enum Started {
    Yes,
    /// Not before another is done.
    NoRoom(Queued),
    Never(Queued),
}

impl<'p> Flight<'_, 'p> {
    /// A place for `len` bytes in a Block.
    fn place(
        &mut self,
        len: usize,
        align: usize,
        more: impl FnOnce() -> Option<Shared<'p>>,
    ) -> Option<(usize, usize)> {
        let fits =
            |shared: &Shared<'_>| shared.filled.next_multiple_of(align) + len <= shared.block.bytes().len();
        let at = match self.blocks.iter().position(fits) {
            Some(at) => at,
            None if self.blocks.len() < MOST_BLOCKS => {
                self.blocks.push(more()?);
                self.blocks.len() - 1
            }
            None => return None,
        };
        let shared = &mut self.blocks[at];
        let from = shared.filled.next_multiple_of(align);
        shared.filled = from + len;
        shared.pieces += 1;
        Some((at, from))
    }

    /// Room for one more piece, wherever it gets to.
    fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.ready.try_reserve(self.started + 1)?;
        self.pieces.try_reserve(1)?;
        self.free.try_reserve(self.pieces.len() + 1)
    }

    fn start(&mut self, work: Queued, cache: Cache, more: impl FnOnce() -> Option<Shared<'p>>) -> Started {
        let ask = match work.transfer() {
            Some(transfer) => Ask::of(&Transfer { cache, ..transfer }),
            None => None,
        };
        let Some(ask) = ask else { return Started::Never(work) };
        // The ordinary way needs none of this memory.
        if self.reserve().is_err() {
            return Started::Never(work);
        }
        let Some((block, from)) = self.place(ask.len, ask.align, more) else {
            return Started::NoRoom(work);
        };
        let bytes = &mut self.blocks[block].block.bytes_mut()[from..from + ask.len];
        // What is in the page cache is had sooner without the ring.
        if cache != Cache::Around {
            if self.blind > 0 {
                self.blind -= 1;
            } else if ask.now(&work, bytes, &mut self.looked) {
                self.gathered += ask.len;
                self.ready.push(Piece { work, block, from, least: ask.len, copied: false });
                return Started::Yes;
            } else {
                self.blind = MISSES;
            }
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.pieces.push(None);
            self.pieces.len() - 1
        });
        let entry = opcode::Read::new(types::Fd(ask.fd), bytes.as_mut_ptr(), ask.len as u32)
            .offset(ask.at)
            .build()
            .user_data(number as u64);
        // Some file systems behind a process or a network would have the submission wait for the answer.
        let entry = if work.is_local() { entry } else { entry.flags(squeue::Flags::ASYNC) };
        let least = ask.skip + work.len();
        self.pieces[number] = Some(Piece { work, block, from: from + ask.skip, least, copied: false });
        // SAFETY: the bytes are a part of a Block that no other piece has, and the flight keeps both the Block and the
        // file until the request is reaped.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "a ring has room for every piece");
        self.started += 1;
        Started::Yes
    }

    /// Lets go of the requests in a lost ring. Blocks that the kernel may still work on are nobody's from now on.
    fn let_go(&mut self) {
        let safe = none_taken(self.ring, self.started);
        self.started = 0;
        for shared in self.blocks.drain(..).filter(|shared| shared.pieces > 0 && !safe) {
            shared.block.lose();
        }
    }

    /// Takes what is finished, copies it to the GPU and tells.
    fn land(&mut self, source: &mut dyn Source) {
        let mut whole = std::mem::take(&mut self.ready);
        self.gathered = 0;
        self.looked = None;
        for entry in self.ring.completion() {
            self.started -= 1;
            let number = entry.user_data() as usize;
            let Some(piece) = self.pieces[number].take() else { continue };
            self.free.push(number);
            if sys::moves(Site::QueueEntry, || answer(&entry)).is_ok_and(|got| got >= piece.least) {
                whole.push(piece);
            } else {
                // The end of the file, an error, or a kernel that could do but a part now.
                release(&mut self.blocks, piece.block);
                source.again(piece.work);
            }
        }
        whole.sort_unstable_by_key(|piece| (piece.block, piece.from));
        copy(&self.blocks, &mut whole);
        for piece in whole.drain(..) {
            release(&mut self.blocks, piece.block);
            if piece.copied {
                source.moved(piece.work);
            } else {
                source.again(piece.work);
            }
        }
        source.landed();
        // For its room.
        self.ready = whole;
    }
}

fn release(blocks: &mut [Shared<'_>], at: usize) {
    blocks[at].pieces -= 1;
    if blocks[at].pieces == 0 {
        blocks[at].filled = 0;
    }
}

/// Copies pieces to the GPU, neighbours on both sides together, and marks those that made it.
fn copy(blocks: &[Shared<'_>], pieces: &mut [Piece]) {
    let mut at = 0;
    while at < pieces.len() {
        let (count, copied) = copy_some(blocks, &pieces[at..]);
        pieces[at..at + count].iter_mut().for_each(|piece| piece.copied = copied);
        at += count;
    }
}

/// Copies the first piece and those that follow it to the same GPU; how many they are, and whether they made it.
fn copy_some(blocks: &[Shared<'_>], pieces: &[Piece]) -> (usize, bool) {
    let Some((_, first)) = neighbours(pieces) else { return (1, false) };
    let Place::Device { device, ordinal, .. } = first.place() else { return (1, false) };
    let mut copies: [(Span<'_>, &[u8]); MOST_COPIES] = [(first, &[]); MOST_COPIES];
    let (mut count, mut filled) = (0, 0);
    while filled < MOST_COPIES
        && let Some((together, span)) = neighbours(&pieces[count..])
        && let Place::Device { device: other, ordinal: number, .. } = span.place()
        && Arc::ptr_eq(device, other)
        && ordinal == number
    {
        let Piece { block, from, .. } = &pieces[count];
        copies[filled] = (span, &blocks[*block].block.bytes()[*from..from + span.len()]);
        (count, filled) = (count + together, filled + 1);
    }
    (count, device.upload_many(&copies[..filled]).is_ok())
}

/// The first piece and those that follow it on both sides: how many they are, and where they go.
fn neighbours(pieces: &[Piece]) -> Option<(usize, Span<'_>)> {
    let Piece { work, block, from, .. } = pieces.first()?;
    let mut span = work.transfer()?.span;
    let mut count = 1;
    while let Some(next) = pieces.get(count)
        && next.block == *block
        && next.from == from + span.len()
        && let Some(joined) = next.work.transfer().and_then(|next| span.joined(&next.span))
    {
        span = joined;
        count += 1;
    }
    Some((count, span))
}

impl Drop for Flight<'_, '_> {
    fn drop(&mut self) {
        // The kernel may still write into the Blocks of a flight that ends by a panic.
        while self.started > 0 {
            if submit(self.ring, true).is_err() {
                return self.let_go();
            }
            self.started -= self.ring.completion().count();
        }
    }
}
