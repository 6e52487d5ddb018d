//! Large staged transfers around the page cache: several pieces in flight in a ring, each copied to or from the GPU
//! while the storage works on the others. Small ones are its business only as many at once, which is `queue`.

mod queue;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use io_uring::{IoUring, cqueue, opcode, types};
use rustix::fs::FallocateFlags;

use super::chunks::{Chunk, Chunks, Prefix};
use super::{Engine, Fit, Outcome, Parts, Queue};
use crate::block::{Block, BlockPool};
use crate::buffer::Place;
use crate::device::Device;
use crate::error::Error;
use crate::log;
use crate::op::Op;
use crate::private::Identity;
use crate::reason::Reason;
use crate::sys::{self, Site};
use crate::transfer::{Cache, Transfer};
use crate::turns::Turns;

/// From so many pieces on the ring is told of the Blocks beforehand.
const WORTH_REGISTERING: usize = 8;
/// Entries of a ring; the queue depth is never more.
const ENTRIES: u32 = 128;

/// So long is waited for what a lost ring has under way.
const SETTLES: types::Timespec = types::Timespec::new().sec(10);

/// After so many lost rings there are no more: with each some Blocks are lost.
const MOST_LOST: usize = 4;

#[derive(Debug)]
struct Uring {
    blocks: Arc<BlockPool>,
    min: usize,
    depth: usize,
    /// As many transfers at a time as the pool has Blocks for at their full depth: more would only take them from each other.
    turns: Turns,
    /// The kernel or a sandbox does not allow rings.
    refused: AtomicBool,
    /// Rings that were lost.
    lost: AtomicUsize,
}

pub(super) fn new(parts: &Parts) -> Box<dyn Engine> {
    Box::new(Uring {
        blocks: Arc::clone(&parts.blocks),
        min: if parts.config.prefer_io_uring { 0 } else { parts.config.uring_min },
        depth: parts.config.queue_depth,
        turns: Turns::new(parts.config.pool_len / parts.config.block_len / parts.config.queue_depth.max(1)),
        refused: AtomicBool::new(false),
        lost: AtomicUsize::new(0),
    })
}

thread_local! {
    /// This thread's ring.
    static RING: RefCell<Seat> = const { RefCell::new(Seat { made_in: 0, ring: None, identity: None }) };
}

/// A place for a ring, with the count of forks it was made in: a child must not use its parent's.
struct Seat {
    made_in: u32,
    ring: Option<IoUring>,
    identity: Option<Identity>,
}

impl Seat {
    /// Forgets the ring and closes nothing: its number may be that of another file by now.
    fn leave(&mut self) {
        std::mem::forget(self.ring.take());
    }

    /// Whether the ring's number may be used and closed: the process is the one that made it, and the program has not closed it.
    fn is_intact(&self) -> bool {
        self.ring.as_ref().is_none_or(|ring| {
            self.made_in == sys::forks() && self.identity.is_some() && ring_identity(ring) == self.identity
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.is_intact() {
            self.leave();
        }
    }
}

fn ring_identity(ring: &IoUring) -> Option<Identity> {
    // SAFETY: the number is only asked about.
    Identity::of(unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) })
}

/// The kernel lets this thread into its ring no more: a sandbox closed behind it, or somebody closed the descriptor.
struct Lost(i32);

impl Engine for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn fit(&self, transfer: &Transfer<'_>) -> Result<Fit, Reason> {
        let staged = !transfer.span.place().is_reached();
        let refused = self.refused.load(Ordering::Relaxed);
        if !staged || refused || transfer.cache != Cache::Around || transfer.len() < self.min {
            return Err(Reason::Refused);
        }
        Ok(Fit::whole(2, transfer))
    }

    fn run(&self, transfer: &Transfer<'_>) -> Outcome {
        let Place::Device { device, .. } = transfer.span.place() else {
            unreachable!("fit refuses other memory");
        };
        let Some((fd, align)) = transfer.file.staged_direct(transfer.op) else { return Outcome::short(0) };
        let ran = RING.try_with(|cell| {
            let mut seat = cell.try_borrow_mut().ok()?;
            let ring = self.ring(&mut seat)?;
            let (outcome, entered) = self.carry(ring, transfer, device, fd, align);
            if transfer.op == Op::Write && entered.is_err() {
                settle(&seat, fd, transfer.file_offset);
            }
            self.keep(&mut seat, entered);
            Some(outcome)
        });
        // Without a ring another engine carries it.
        ran.ok().flatten().unwrap_or_else(|| Outcome::short(0))
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }
}

/// A Block and the piece that has it.
struct Slot<'p> {
    block: Block<'p>,
    piece: Option<(usize, Chunk)>,
    /// Whether the kernel may be working on it.
    in_flight: bool,
}

impl<'p> Slot<'p> {
    fn new(block: Block<'p>) -> Slot<'p> {
        Slot { block, piece: None, in_flight: false }
    }
}

/// One transfer's requests in a ring.
struct Flight<'a, 'p> {
    ring: &'a mut IoUring,
    fd: BorrowedFd<'a>,
    op: Op,
    slots: Vec<Slot<'p>>,
    /// Slots without a piece.
    free: Vec<usize>,
    in_flight: usize,
    /// Whether the ring knows the Blocks, each by the number of its slot.
    registered: bool,
    /// Slots whose requests have finished, with the bytes that moved, until this thread has time for them.
    waiting: VecDeque<(usize, usize)>,
}

impl Uring {
    /// This thread's ring, made at first use; `None` when there can be none.
    fn ring<'c>(&self, seat: &'c mut Seat) -> Option<&'c mut IoUring> {
        let forks = sys::forks();
        if !seat.is_intact() {
            seat.leave();
        }
        if seat.ring.is_none() {
            // The thread that makes a ring is the only one that uses it, so completions may wait until it asks.
            let make = || {
                let mut builder = IoUring::builder();
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
                builder.build(ENTRIES).or_else(|_| IoUring::new(ENTRIES))
            };
            match sys::at(Site::RingSetup, make) {
                Ok(ring) => {
                    // Reads that the kernel gives to threads are as many as the ring has room for, or some that hang would
                    // keep the others: by itself it has four threads per processor. Where it knows no such call it stays so.
                    let workers = || ring.submitter().register_iowq_max_workers(&mut [ENTRIES, 0]);
                    let _ = sys::at(Site::RingWorkers, workers);
                    *seat = Seat { made_in: forks, identity: ring_identity(&ring), ring: Some(ring) };
                }
                Err(error) => {
                    self.note_refusal(error.raw_os_error().unwrap_or_default());
                    return None;
                }
            }
        }
        seat.ring.as_mut()
    }

    /// Stops asking for rings when the kernel or a sandbox does not allow them.
    fn note_refusal(&self, errno: i32) {
        if [libc::ENOSYS, libc::EPERM, libc::EACCES].contains(&errno)
            && !self.refused.swap(true, Ordering::Relaxed)
        {
            log::refused("uring", "a ring", errno);
        }
    }

    /// Leaves a ring that was lost in a flight.
    fn keep(&self, seat: &mut Seat, entered: Result<(), Lost>) {
        if let Err(Lost(errno)) = entered {
            self.note_refusal(errno);
            if self.lost.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_LOST
                && !self.refused.swap(true, Ordering::Relaxed)
            {
                log::refused("uring", "a ring", errno);
            }
            // Closed if it is still ours. The kernel ends in its own time what it works on, in Blocks that are nobody's.
            match seat.is_intact() {
                true => drop(seat.ring.take()),
                false => seat.leave(),
            }
        }
    }

    fn carry(
        &self,
        ring: &mut IoUring,
        transfer: &Transfer<'_>,
        device: &Arc<dyn Device>,
        fd: BorrowedFd<'_>,
        align: usize,
    ) -> (Outcome, Result<(), Lost>) {
        let chunks = Chunks::new(transfer, self.blocks.block_len(), align);
        let node = transfer.span.place().node();
        // Before a Block, so that nobody waits for a turn with a Block in hand.
        let _turn = self.turns.take();
        // Without memory for one another engine carries it.
        let Ok(first) = self.blocks.take(node) else { return (Outcome::short(0), Ok(())) };
        // One more than the depth: while one piece is copied, the storage has its full queue. More of them would be more
        // memory than caches hold, which costs more than it brings. Only the first Block was waited for.
        let most = (self.depth + 1).min(chunks.count());
        let mut slots = Vec::with_capacity(most);
        slots.push(Slot::new(first));
        let more =
            || if transfer.held { self.blocks.try_take(node) } else { self.blocks.try_take_more(node) };
        slots.extend(std::iter::from_fn(more).take(most - 1).map(Slot::new));
        let (free, waiting) = ((0..slots.len()).rev().collect(), VecDeque::with_capacity(most));
        let mut flight =
            Flight { ring, fd, op: transfer.op, slots, free, in_flight: 0, registered: false, waiting };
        if chunks.count() >= WORTH_REGISTERING {
            flight.register();
        }
        let prefix = Prefix::new();
        let entered = match transfer.op {
            Op::Read => flight.read(transfer, device, &chunks, &prefix, self.depth),
            Op::Write => flight.write(transfer, device, &chunks, &prefix, self.depth),
        };
        if entered.is_err() {
            // Another engine goes on from the first piece that is not known to be done.
            flight.abandon(&prefix);
        }
        (prefix.outcome(&chunks), entered)
    }
}

/// Hands what was started to the kernel, and waits until something is finished if asked to.
fn submit(ring: &IoUring, wait: bool) -> Result<(), Lost> {
    loop {
        match sys::at(Site::RingSubmit, || ring.submitter().submit_and_wait(usize::from(wait))) {
            Ok(_) => return Ok(()),
            Err(error) => match error.raw_os_error().unwrap_or_default() {
                libc::EINTR | libc::EAGAIN | libc::EBUSY => {}
                errno => return Err(Lost(errno)),
            },
        }
    }
}

/// Waits for what the kernel still writes for a lost ring, or it would come after what is written next: what it has not begun is
/// canceled, and file systems wait for the rest before they change what is allocated, here of a byte that is to be written anyway.
fn settle(seat: &Seat, fd: BorrowedFd<'_>, at: u64) {
    if let Some(ring) = seat.ring.as_ref().filter(|_| seat.is_intact()) {
        let cancel = || ring.submitter().register_sync_cancel(Some(SETTLES), types::CancelBuilder::any());
        // As long as it finds some. Where there is no such call, or nothing is left, that is an error.
        let _ = (0..ENTRIES).all(|_| sys::at(Site::RingCancel, cancel).is_ok());
    }
    let _ = sys::at(Site::RingSettle, || rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, at, 1));
}

/// How a request ended: the bytes, or its errno.
fn answer(entry: &cqueue::Entry) -> Result<usize, i32> {
    usize::try_from(entry.result()).map_err(|_| -entry.result())
}

/// Whether the kernel works on none of `started` requests: it has not even taken them, and of a ring that is left it never
/// will.
fn none_taken(ring: &mut IoUring, started: usize) -> bool {
    ring.submission().len() >= started
}

impl Flight<'_, '_> {
    /// Has the kernel look the Blocks' pages up once, and not for each request. It may refuse, for a limit on locked memory.
    fn register(&mut self) {
        let all: Vec<_> = self
            .slots
            .iter_mut()
            .map(|slot| slot.block.bytes_mut())
            .map(|bytes| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() })
            .collect();
        // SAFETY: the Blocks are the flight's until it ends, and it ends with their registration.
        let register = || unsafe { self.ring.submitter().register_buffers(&all) };
        self.registered = sys::at(Site::RingRegister, register).is_ok();
    }

    /// Ends the piece of a slot. The slot is the next to be used: its memory is in somebody's cache still.
    fn release(&mut self, slot: usize) -> Option<(usize, Chunk)> {
        self.free.push(slot);
        self.slots[slot].piece.take()
    }

    /// Hands the piece of a slot to the ring.
    fn start(&mut self, slot: usize) {
        let Slot { block, piece, in_flight } = &mut self.slots[slot];
        let Some((_, chunk)) = piece else { return };
        *in_flight = true;
        let (fd, ask) = (types::Fd(self.fd.as_raw_fd()), chunk.ask as u32);
        let (at, index) = (block.bytes_mut().as_mut_ptr(), slot as u16);
        let entry = match (self.op, self.registered) {
            (Op::Read, true) => opcode::ReadFixed::new(fd, at, ask, index).offset(chunk.at).build(),
            (Op::Read, false) => opcode::Read::new(fd, at, ask).offset(chunk.at).build(),
            (Op::Write, true) => opcode::WriteFixed::new(fd, at, ask, index).offset(chunk.at).build(),
            (Op::Write, false) => opcode::Write::new(fd, at, ask).offset(chunk.at).build(),
        };
        let entry = entry.user_data(slot as u64);
        // SAFETY: the Block belongs to this flight, which reaps every request before it lets go of its slots; the
        // descriptor is borrowed for as long.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "a ring has room for every slot");
        self.in_flight += 1;
    }

    fn submit(&self, wait: bool) -> Result<(), Lost> {
        submit(self.ring, wait)
    }

    /// Gives up a lost ring with what is in it.
    fn abandon(&mut self, prefix: &Prefix) {
        while self.finished().is_some() {}
        for (index, _) in self.slots.iter().filter_map(|slot| slot.piece) {
            prefix.broke(index, 0, None);
        }
        self.let_go();
    }

    /// Lets go of the requests in a lost ring. Blocks that the kernel may still work on are nobody's from now on.
    fn let_go(&mut self) {
        let safe = none_taken(self.ring, self.in_flight);
        self.in_flight = 0;
        for slot in self.slots.drain(..).filter(|slot| slot.in_flight && !safe) {
            slot.block.lose();
        }
    }

    /// One finished request: its slot and result.
    fn finished(&mut self) -> Option<(usize, Result<usize, i32>)> {
        let entry = self.ring.completion().next()?;
        self.in_flight -= 1;
        let result = sys::moves(Site::RingEntry, || answer(&entry));
        let slot = entry.user_data() as usize;
        self.slots[slot].in_flight = false;
        Some((slot, result))
    }

    /// Reaps what has finished: lets what succeeded wait for this thread, and starts again what was only interrupted.
    fn reap(&mut self, prefix: &Prefix) {
        while let Some((slot, result)) = self.finished() {
            match result {
                Err(libc::EINTR | libc::EAGAIN) => self.start(slot),
                Err(errno) => {
                    if let Some((index, _)) = self.release(slot) {
                        prefix.broke(index, 0, Some(Error::os(self.op.name(), errno)));
                    }
                }
                Ok(n) => self.waiting.push_back((slot, n)),
            }
        }
    }

    fn read(
        &mut self,
        transfer: &Transfer<'_>,
        device: &Arc<dyn Device>,
        chunks: &Chunks,
        prefix: &Prefix,
        depth: usize,
    ) -> Result<(), Lost> {
        let mut next = 0;
        loop {
            // The storage gets its next requests before this thread is busy with a copy.
            while self.in_flight < depth && next < chunks.count() && prefix.wants(next) {
                let Some(slot) = self.free.pop() else { break };
                self.slots[slot].piece = Some((next, chunks.get(next)));
                self.start(slot);
                next += 1;
            }
            if self.in_flight > 0 {
                let before = self.in_flight;
                self.submit(self.waiting.is_empty())?;
                self.reap(prefix);
                if self.in_flight < before {
                    continue;
                }
            }
            let Some((slot, got)) = self.waiting.pop_front() else {
                if self.in_flight == 0 {
                    return Ok(());
                }
                continue;
            };
            let Some((index, chunk)) = self.slots[slot].piece else { continue };
            let n = chunk.wanted(got);
            let bytes = &self.slots[slot].block.bytes()[chunk.skip..chunk.skip + n];
            let copied = match n {
                0 => Ok(()),
                _ => device.upload(&transfer.span.slice(chunk.offset, n), bytes),
            };
            match copied {
                Err(error) => prefix.broke(index, 0, Some(error)),
                Ok(()) if n < chunk.len => prefix.broke(index, n, None),
                Ok(()) => {}
            }
            self.release(slot);
        }
    }

    fn write(
        &mut self,
        transfer: &Transfer<'_>,
        device: &Arc<dyn Device>,
        chunks: &Chunks,
        prefix: &Prefix,
        depth: usize,
    ) -> Result<(), Lost> {
        let mut next = 0;
        // Slots whose bytes have come from the GPU.
        let mut ready = VecDeque::with_capacity(self.slots.len());
        loop {
            while self.in_flight < depth
                && let Some(slot) = ready.pop_front()
            {
                self.start(slot);
            }
            let more = next < chunks.count() && prefix.wants(next);
            let ahead = if more { self.free.pop() } else { None };
            if self.in_flight > 0 {
                // With nothing to fetch ahead this thread has time to wait.
                self.submit(ahead.is_none())?;
                self.reap(prefix);
                while let Some((slot, n)) = self.waiting.pop_front() {
                    if let Some((index, chunk)) = self.release(slot)
                        && n < chunk.len
                    {
                        prefix.broke(index, n, None);
                    }
                }
            } else if ahead.is_none() && !more {
                return Ok(());
            }
            let Some(slot) = ahead else { continue };
            let chunk = chunks.get(next);
            let span = transfer.span.slice(chunk.offset, chunk.len);
            match device.download(&span, &mut self.slots[slot].block.bytes_mut()[..chunk.len]) {
                Ok(()) => {
                    self.slots[slot].piece = Some((next, chunk));
                    ready.push_back(slot);
                }
                Err(error) => {
                    prefix.broke(next, 0, Some(error));
                    self.free.push(slot);
                }
            }
            next += 1;
        }
    }
}

impl Drop for Flight<'_, '_> {
    fn drop(&mut self) {
        // The kernel may still write into the Blocks of a flight that ends by a panic.
        while self.in_flight > 0 {
            if self.submit(true).is_err() {
                return self.let_go();
            }
            while self.finished().is_some() {}
        }
        if self.registered {
            // A ring that is lost keeps them pinned until the process ends.
            let _ = self.ring.submitter().unregister_buffers();
        }
    }
}
