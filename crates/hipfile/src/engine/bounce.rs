//! Plain reads and writes into and out of Blocks, by several threads when that pays; host memory is read and written in
//! place. It carries everything, so it is the last resort.

mod mapped;
mod read;
mod scant;

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;

use self::mapped::Mapped;
use self::read::Read;
use super::chunks::{Chunk, Chunks, Prefix};
use super::{Engine, Fit, Outcome, Parts, Staging, Stop};
use crate::block::{Block, BlockPool};
use crate::buffer::{Place, Span};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::file::FileRecord;
use crate::op::Op;
use crate::pool::Helpers;
use crate::reason::Reason;
use crate::sys::{self, RWF_DONTCACHE, Site};
use crate::transfer::{Cache, Transfer};
use crate::turns::Turns;

/// One at work and one that may be waiting for a copy engine, for each processor.
const TURNS_PER_THREAD: usize = 2;

#[derive(Debug)]
struct Bounce {
    blocks: Arc<BlockPool>,
    helpers: Arc<Helpers>,
    /// For large reads of cached data. More of them at a time than processors only push each other's Blocks out of the
    /// processors' caches.
    busy: Turns,
    parallel_min: usize,
    threads: usize,
    mapped: Mapped,
}

/// Adjacent Blocks are one piece of a large read up to here, where copies run beside reads: what a copy costs beyond its
/// bytes is paid once for each. Larger pieces leave the processors' caches.
const WIDE: usize = 2 << 20;
/// So many of them for each thread, or the last ones would be waited for too long.
const WIDE_ROUNDS: usize = 4;

pub(super) fn new(parts: &Parts) -> Box<dyn Engine> {
    Box::new(Bounce {
        blocks: Arc::clone(&parts.blocks),
        helpers: Arc::clone(&parts.helpers),
        busy: Turns::new(TURNS_PER_THREAD * parts.config.io_threads),
        parallel_min: parts.config.parallel_min,
        threads: parts.config.threads_per_request(),
        mapped: Mapped::new(&parts.config),
    })
}

/// Less is copied sooner than another thread has come to help.
const LEAST_PIECE: usize = 256 << 10;

/// The descriptor a transfer uses, and how.
#[derive(Clone, Copy)]
struct Way<'a> {
    file: &'a FileRecord,
    fd: BorrowedFd<'a>,
    /// What file offsets and lengths must be multiples of.
    align: usize,
    /// Whether nothing should stay in the page cache.
    leave_nothing: bool,
}

impl Engine for Bounce {
    fn name(&self) -> &'static str {
        "bounce"
    }

    fn fit(&self, transfer: &Transfer<'_>) -> Result<Fit, Reason> {
        Ok(Fit::last_resort(transfer))
    }

    fn staging(&self) -> Option<&dyn Staging> {
        Some(self)
    }

    /// A small transfer is mostly what surrounds its system call, and code is slow right after one.
    fn run_small(&self, transfer: &Transfer<'_>, cache: Cache) -> Option<Result<usize>> {
        let (file, op, len) = (transfer.file, transfer.op, transfer.len());
        let Place::Device { device, shared: false, .. } = transfer.span.place() else { return None };
        let fd = if cache == Cache::Around {
            let (fd, align) = file.staged_direct(op)?;
            // A power of two, as statx reports it.
            let ragged = (transfer.file_offset | len as u64) & (align as u64 - 1);
            (ragged == 0).then_some(fd)?
        } else {
            let plain = file.plain(op.name()).ok()?;
            (!plain.direct_only).then_some(plain.fd)?
        };
        if op == Op::Read && len <= device.plain_max() && cache != Cache::Around {
            return read_plain(transfer, device, fd);
        }
        let mut block = self.blocks.take(transfer.span.place().node()).ok()?;
        let bytes = block.bytes_mut().get_mut(..len)?;
        match op {
            Op::Read => {
                let read = || rustix::io::pread(fd, &mut *bytes, transfer.file_offset);
                let got = sys::moves(Site::SmallRead, read).ok()?;
                // Short: the end of the file, or not; the long way knows.
                (got == len).then_some(())?;
                Some(device.upload(&transfer.span, bytes).map(|()| len))
            }
            Op::Write => {
                if let Err(error) = device.download(&transfer.span, bytes) {
                    return Some(Err(error));
                }
                let write = || rustix::io::pwrite(fd, &*bytes, transfer.file_offset);
                let put = sys::moves(Site::SmallWrite, write).ok()?;
                (put == len).then_some(Ok(len))
            }
        }
    }

    fn run(&self, transfer: &Transfer<'_>) -> Outcome {
        let way = match way(transfer) {
            Ok(way) => way,
            Err(error) => return Outcome::failed(0, error),
        };
        match transfer.span.place() {
            Place::Device { device, ordinal, shared: true, .. } => {
                self.shared(transfer, device, *ordinal, way)
            }
            Place::Device { device, .. } => {
                if let Some(outcome) = self.by_mapping(transfer, device, way) {
                    return outcome;
                }
                let appends = transfer.op == Op::Write && transfer.file.appends();
                if appends && transfer.len() > self.blocks.block_len() {
                    append(transfer, device, way)
                } else {
                    self.staged(transfer, device, way)
                }
            }
            Place::Host => self.in_place(transfer, way),
        }
    }
}

thread_local! {
    /// For reads that need no pinned memory.
    static PLAIN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A small read by way of memory that is not pinned, as [`Engine::run_small`].
fn read_plain(
    transfer: &Transfer<'_>,
    device: &Arc<dyn Device>,
    fd: BorrowedFd<'_>,
) -> Option<Result<usize>> {
    let ran = PLAIN.try_with(|cell| {
        let mut bytes = cell.try_borrow_mut().ok()?;
        if bytes.len() < transfer.len() {
            bytes.clear();
            bytes.try_reserve_exact(device.plain_max()).ok()?;
            bytes.resize(device.plain_max(), 0);
        }
        let bytes = bytes.get_mut(..transfer.len())?;
        let read = || rustix::io::pread(fd, &mut *bytes, transfer.file_offset);
        let got = sys::moves(Site::PlainRead, read).ok()?;
        (got == bytes.len()).then(|| device.upload(&transfer.span, bytes).map(|()| got))
    });
    ran.ok().flatten()
}

fn way<'a>(transfer: &Transfer<'a>) -> Result<Way<'a>> {
    let (file, op) = (transfer.file, transfer.op);
    let leave_nothing = transfer.cache == Cache::LeaveNothing;
    if transfer.cache == Cache::Around
        && let Some((fd, align)) = file.staged_direct(op)
    {
        return Ok(Way { file, fd, align, leave_nothing });
    }
    let plain = file.plain(op.name())?;
    if !plain.direct_only {
        return Ok(Way { file, fd: plain.fd, align: 1, leave_nothing });
    }
    let align = file.direct_align().map_or(4096, |align| align.of_offsets(op)) as usize;
    if op == Op::Write
        && !(transfer.file_offset.is_multiple_of(align as u64) && transfer.len().is_multiple_of(align))
    {
        let (offset, len) = (transfer.file_offset, transfer.len());
        return Err(Error::os_because(
            op.name(),
            libc::EINVAL,
            format!(
                "only an O_DIRECT descriptor of the file could be had, and offset {offset} or size {len} is no \
                 multiple of {align}"
            ),
        ));
    }
    Ok(Way { file, fd: plain.fd, align, leave_nothing: false })
}

impl Bounce {
    fn staged(&self, transfer: &Transfer<'_>, device: &Arc<dyn Device>, way: Way<'_>) -> Outcome {
        let piece = self.piece(transfer, device);
        let chunks = Chunks::new(transfer, piece, way.align);
        let prefix = Prefix::new();
        let take = || prefix.next(&chunks);
        let node = transfer.span.place().node();
        let overlapped = transfer.op == Op::Read && device.copies_later() && chunks.count() > 1;
        let wide = self.blocks.adjacent(piece);
        let read = Read { device, transfer, way, prefix: &prefix };
        // A helper without a Block is of no use; it must not wait for one.
        let carry = |mine: Option<Block<'_>>| {
            if overlapped
                && wide > 1
                && let Some(mut one) = self.blocks.try_take_wide(node, wide)
                && let Some(mut other) = self.blocks.try_take_wide(node, wide)
            {
                drop(mine);
                return read.overlapped([one.bytes_mut(), other.bytes_mut()], take);
            }
            let Some(mut block) = mine.or_else(|| self.blocks.try_take_more(node)) else { return };
            if overlapped && let Some(mut other) = self.blocks.try_take_more(node) {
                return read.overlapped([block.bytes_mut(), other.bytes_mut()], take);
            }
            if transfer.op == Op::Read {
                return read.one_by_one(block.bytes_mut(), take);
            }
            while let Some((index, chunk)) = take() {
                match write_chunk(device.as_ref(), transfer, way, &chunk, block.bytes_mut()) {
                    Ok(n) if n == chunk.len => {}
                    Ok(n) => prefix.broke(index, n, None),
                    Err((n, error)) => prefix.broke(index, n, Some(error)),
                }
            }
        };
        // Before a Block, so that nobody waits for a turn with a Block in hand.
        let busy = transfer.cache == Cache::Cached && transfer.len() >= self.parallel_min;
        let _turn = busy.then(|| self.busy.take());
        let first = match self.blocks.take(node) {
            Ok(block) => block,
            Err(errno) => return scant::run(transfer, device.as_ref(), way, errno),
        };
        let helpers = self.helpers_for(transfer, way, chunks.count());
        self.share(helpers, first, &carry);
        let outcome = prefix.outcome(&chunks);
        if way.leave_nothing {
            way.forget(transfer.op, transfer.file_offset, outcome.moved);
        }
        // Here a short read is the end of the file: what came out short was asked for again.
        match outcome.stop {
            Stop::Short => Outcome::done(outcome.moved),
            _ => outcome,
        }
    }

    /// Has the calling thread and up to so many helpers do a work; one of them is given the Block.
    fn share<'b>(&'b self, helpers: usize, first: Block<'b>, carry: &(impl Fn(Option<Block<'b>>) + Sync)) {
        if helpers == 0 {
            return carry(Some(first));
        }
        let mine = std::sync::Mutex::new(Some(first));
        self.helpers.share(helpers, &|| {
            // A statement of its own: the lock must not be held while the work is done.
            let taken = mine.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            carry(taken);
        });
    }

    /// The size of a transfer's pieces: a Block, or less for what several threads copy out of the page cache at once, or
    /// more where there is much of it and copies run beside reads.
    fn piece(&self, transfer: &Transfer<'_>, device: &Arc<dyn Device>) -> usize {
        let (block, len) = (self.blocks.block_len(), transfer.len());
        let cached = matches!(transfer.cache, Cache::Cached | Cache::Through);
        let wide = block * self.blocks.adjacent(WIDE);
        if cached
            && transfer.op == Op::Read
            && device.copies_later()
            && len >= self.parallel_min.max(self.threads * WIDE_ROUNDS * wide)
        {
            wide
        } else if transfer.cache == Cache::Cached && len >= self.parallel_min && self.threads > 1 {
            len.div_ceil(self.threads).next_multiple_of(LEAST_PIECE).min(block)
        } else {
            block
        }
    }

    /// How many threads should help: reads of large ranges, and writes that neither grow the file nor go through the
    /// page cache, where the file system takes one at a time.
    fn helpers_for(&self, transfer: &Transfer<'_>, way: Way<'_>, chunks: usize) -> usize {
        if transfer.len() < self.parallel_min || chunks < 2 {
            return 0;
        }
        let end = transfer.file_offset + transfer.len() as u64;
        let parallel = match transfer.op {
            Op::Read => true,
            Op::Write => way.align > 1 && way.file.size().is_some_and(|size| end <= size),
        };
        if parallel { (self.threads - 1).min(chunks - 1) } else { 0 }
    }

    fn in_place(&self, transfer: &Transfer<'_>, way: Way<'_>) -> Outcome {
        let mem = transfer.file.direct_align().map_or(1, |a| a.mem as usize);
        let aligned = way.align == 1
            || transfer.span.start().is_multiple_of(mem)
                && transfer.len().is_multiple_of(way.align)
                && transfer.file_offset.is_multiple_of(way.align as u64);
        if !aligned {
            return self.in_place_by_block(transfer, way);
        }
        let (op, fd) = (transfer.op, way.fd.as_raw_fd());
        let mut moved = 0;
        while moved < transfer.len() {
            let rest = transfer.rest(moved);
            let (start, len, at) = (rest.span.start(), rest.len(), rest.file_offset);
            let result = match op {
                // SAFETY: the span is memory its registration promised for this; the kernel answers EFAULT for holes.
                Op::Read => sys::moves(Site::HostRead, || unsafe { sys::pread_raw(fd, start, len, at) }),
                // SAFETY: the span is memory its registration promised for this; the kernel only reads it.
                Op::Write => sys::moves(Site::HostWrite, || unsafe { sys::pwrite_raw(fd, start, len, at) }),
            };
            match result {
                Ok(0) if op == Op::Read => break,
                Ok(0) => return Outcome::failed(moved, wrote_nothing()),
                Ok(n) => moved += n,
                Err(libc::EINTR) => {}
                // Behind a last, partial block there is nothing an O_DIRECT read could begin at.
                Err(libc::EINVAL) if op == Op::Read && !moved.is_multiple_of(way.align) => break,
                Err(errno) => return Outcome::failed(moved, Error::os(op.name(), errno)),
            }
        }
        Outcome::done(moved)
    }

    /// Memory that GPU and processor share: in place, after what a copy would wait for.
    fn shared(
        &self,
        transfer: &Transfer<'_>,
        device: &Arc<dyn Device>,
        ordinal: u32,
        way: Way<'_>,
    ) -> Outcome {
        let op = transfer.op.name();
        // A stream that is held for it has waited, and would be waited for for ever.
        if !transfer.held
            && let Err(error) = device.settle(ordinal)
        {
            return Outcome::failed(0, error);
        }
        let outcome = self.in_place(transfer, way);
        let Stop::Failed(error) = &outcome.stop else { return outcome };
        match transfer.file.plain(op) {
            // Some drivers' memory cannot be pinned, and so not be read into around the page cache.
            Ok(plain) if error.os_error() == Some(libc::EFAULT) && way.align > 1 && !plain.direct_only => {
                let rest = transfer.rest(outcome.moved);
                let again = self.in_place(&rest, Way { fd: plain.fd, align: 1, ..way });
                Outcome { moved: outcome.moved + again.moved, ..again }
            }
            _ => outcome,
        }
    }

    /// Ragged host memory on a file that only an O_DIRECT descriptor reaches: through a Block after all.
    fn in_place_by_block(&self, transfer: &Transfer<'_>, way: Way<'_>) -> Outcome {
        let op = transfer.op;
        let mut block = match self.blocks.take(transfer.span.place().node()) {
            Ok(block) => block,
            Err(errno) => return Outcome::failed(0, Error::os(op.name(), errno)),
        };
        let chunks = Chunks::new(transfer, block.bytes().len(), way.align);
        let mut moved = 0;
        for chunk in (0..chunks.count()).map(|i| chunks.get(i)) {
            let host = transfer.span.slice(chunk.offset, chunk.len);
            let result = match op {
                Op::Read => way.fill(&chunk, block.bytes_mut()).inspect(|n| {
                    host_copy(&host.slice(0, *n), &mut block.bytes_mut()[chunk.skip..chunk.skip + n], op);
                }),
                Op::Write => {
                    host_copy(&host, &mut block.bytes_mut()[..chunk.len], op);
                    way.drain(&chunk, block.bytes())
                }
            };
            match result {
                Ok(n) => {
                    moved += n;
                    if n < chunk.len {
                        break;
                    }
                }
                Err((n, error)) => return Outcome::failed(moved + n, error),
            }
        }
        Outcome::done(moved)
    }
}

impl Staging for Bounce {
    fn stage(&self, transfer: &Transfer<'_>, bytes: &mut [u8], from: u64) -> Outcome {
        let way = match way(transfer) {
            Ok(way) => way,
            Err(error) => return Outcome::failed(0, error),
        };
        let chunk = Chunks::new(transfer, usize::MAX / 2, way.align).get(0);
        let Some(bytes) = usize::try_from(chunk.at - from).ok().and_then(|at| bytes.get_mut(at..)) else {
            return Outcome::failed(0, Error::os(transfer.op.name(), libc::ENOMEM));
        };
        if bytes.len() < chunk.ask.max(chunk.skip + chunk.len) {
            let why = format!("{} bytes aligned to {} do not fit into a Block", chunk.len, way.align);
            return Outcome::failed(0, Error::os_because(transfer.op.name(), libc::ENOMEM, why));
        }
        let result = match transfer.op {
            Op::Read => way.fill(&chunk, bytes),
            Op::Write => way.drain(&chunk, bytes),
        };
        let outcome = match result {
            Ok(n) => Outcome::done(n),
            Err((n, error)) => Outcome::failed(n, error),
        };
        if way.leave_nothing {
            way.forget(transfer.op, transfer.file_offset, outcome.moved);
        }
        outcome
    }
}

/// The kernel ignores offsets on appended files: only what one system call writes stays together. So it is collected first.
fn append(transfer: &Transfer<'_>, device: &Arc<dyn Device>, way: Way<'_>) -> Outcome {
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(transfer.len()).is_err() {
        return Outcome::failed(0, Error::os(transfer.op.name(), libc::ENOMEM));
    }
    bytes.resize(transfer.len(), 0);
    if let Err(error) = device.download(&transfer.span, &mut bytes) {
        return Outcome::failed(0, error);
    }
    let whole = Chunks::new(transfer, usize::MAX / 2, way.align).get(0);
    match way.drain(&whole, &bytes) {
        Ok(moved) => Outcome::done(moved),
        Err((moved, error)) => Outcome::failed(moved, error),
    }
}

/// Bytes done, and why no more.
type Partial = Result<usize, (usize, Error)>;

fn write_chunk(
    device: &dyn Device,
    transfer: &Transfer<'_>,
    way: Way<'_>,
    chunk: &Chunk,
    bytes: &mut [u8],
) -> Partial {
    let span = transfer.span.slice(chunk.offset, chunk.len);
    device.download(&span, &mut bytes[..chunk.len]).map_err(|e| (0, e))?;
    way.drain(chunk, bytes)
}

impl Way<'_> {
    /// Reads a piece into the Block; how many wanted bytes there are. Short only at end of file.
    fn fill(&self, chunk: &Chunk, bytes: &mut [u8]) -> Partial {
        let mut got = 0;
        while got < chunk.ask {
            match self.read(&mut bytes[got..chunk.ask], chunk.at + got as u64) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) => return Err((chunk.wanted(got), error)),
            }
            // The rest of a short answer may not be aligned; then it is asked for from the last aligned place.
            let ragged = got % self.align;
            if ragged > 0 && got < chunk.ask {
                let again = got - ragged;
                match self.read(&mut bytes[again..chunk.ask], chunk.at + again as u64) {
                    Ok(n) if again + n > got => got = again + n - n % self.align,
                    Ok(_) => break,
                    Err(error) => return Err((chunk.wanted(got), error)),
                }
            }
        }
        Ok(chunk.wanted(got))
    }

    /// Writes a piece out of a Block's bytes. Never short without an error.
    fn drain(&self, chunk: &Chunk, bytes: &[u8]) -> Partial {
        let mut done = 0;
        while done < chunk.len {
            match self.write(&bytes[done..chunk.len], chunk.at + done as u64) {
                Ok(0) => return Err((done, wrote_nothing())),
                Ok(n) => done += n,
                Err(error) => return Err((done, error)),
            }
        }
        Ok(done)
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> Result<usize> {
        loop {
            let result = if self.leave_nothing {
                let mut parts = [std::io::IoSliceMut::new(bytes)];
                let uncached = || rustix::io::preadv2(self.fd, &mut parts, at, RWF_DONTCACHE);
                match sys::moves(Site::BounceReadUncached, uncached) {
                    Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                        sys::moves(Site::BounceRead, || rustix::io::pread(self.fd, &mut *bytes, at))
                    }
                    result => result,
                }
            } else {
                sys::moves(Site::BounceRead, || rustix::io::pread(self.fd, &mut *bytes, at))
            };
            match result {
                Err(Errno::INTR) => {}
                result => return result.map_err(|e| Error::errno("read", e)),
            }
        }
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<usize> {
        loop {
            let result = if self.leave_nothing {
                let parts = [std::io::IoSlice::new(bytes)];
                let uncached = || rustix::io::pwritev2(self.fd, &parts, at, RWF_DONTCACHE);
                match sys::moves(Site::BounceWriteUncached, uncached) {
                    Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                        sys::moves(Site::BounceWrite, || rustix::io::pwrite(self.fd, bytes, at))
                    }
                    result => result,
                }
            } else {
                sys::moves(Site::BounceWrite, || rustix::io::pwrite(self.fd, bytes, at))
            };
            match result {
                Err(Errno::INTR) => {}
                result => return result.map_err(|e| Error::errno("write", e)),
            }
        }
    }

    /// Drops what a transfer brought into the page cache, on kernels that did not do so themselves. Dirty pages stay
    /// until they are written, which is the kernel's business.
    fn forget(&self, op: Op, offset: u64, len: usize) {
        if let Some(len) = std::num::NonZeroU64::new(len as u64) {
            // Advice: a file system that does not know it has nothing to drop.
            if op == Op::Write {
                let _ = sys::start_writeback(self.fd, offset, len.get());
            }
            let _ = rustix::fs::fadvise(self.fd, offset, Some(len), rustix::fs::Advice::DontNeed);
        }
    }
}

fn host_copy(span: &Span<'_>, bytes: &mut [u8], op: Op) {
    let host: *mut u8 = std::ptr::with_exposed_provenance_mut(span.start());
    match op {
        // SAFETY: the span is host memory of the caller, promised for this transfer, and a Block never overlaps it.
        Op::Read => unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), host, bytes.len()) },
        // SAFETY: as above, in the other direction.
        Op::Write => unsafe { std::ptr::copy_nonoverlapping(host, bytes.as_mut_ptr(), bytes.len()) },
    }
}

fn wrote_nothing() -> Error {
    Error::os_because("write", libc::EIO, "the file took no byte and gave no reason")
}
