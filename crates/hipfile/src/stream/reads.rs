//! Small reads of streams around the page cache that the kernel does by itself: a thread that waits for one costs more than it
//! does. What is not read wholly goes the ordinary way. It calls nothing of the GPU's runtime, and waits for nothing.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;

use super::{Call, Operation, by_thread, checked, lock};
use crate::driver::Inner;
use crate::op::Op;
use crate::queued::Ends;
use crate::route::Way;
use crate::transfer::Transfer;

/// Whether a read of at most so many bytes is likely to be one. Storage that may not answer is better waited for by a thread.
pub(super) fn may_be_aside(inner: &Inner, ends: &Ends, most: usize) -> bool {
    let first = || ends.buffer.span(0, most).map(|span| Transfer::new(Op::Read, &ends.file, span, 0));
    ends.local && first().is_some_and(|transfer| inner.router().may_be_aside(&transfer))
}

/// One that may be started.
struct Read {
    ends: Arc<Ends>,
    way: Way,
    /// When it began, if that time is taken.
    began: Option<u64>,
    /// What the file is asked for, aligned.
    at: u64,
    ask: usize,
    /// Bytes at the start of the answer that nobody wants, and those that are.
    skip: usize,
    len: usize,
}

/// Starts what counts as given to a thread.
pub(super) fn start(call: Call) {
    let Some(read) = call.operation.to_read() else { return by_thread(call) };
    let Read { at, ask, .. } = read;
    let inner = Arc::clone(&call.operation.inner);
    let Some(fd) = read.ends.file.staged_direct(Op::Read).map(|(fd, _)| fd.as_raw_fd()) else {
        return read.end(call, Err(libc::EOPNOTSUPP));
    };
    // SAFETY: the Block is this lane's, whose operations take turns; the copy from it is not yet begun, and no other thread has
    // the operation before the read has ended.
    let into = unsafe { call.operation.seat.part(0..ask) };
    let done = Box::new(move |result| read.end(call, result));
    // By its number: once `done` was called nobody may have the file any more, or who sees the result could not deregister it.
    // SAFETY: `done` has the file, which keeps its descriptor open; afterwards the number is not used.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // SAFETY: the same.
    let started = unsafe { inner.lanes().aside().read(fd, at, into, done) };
    if let Err(done) = started {
        done(Err(libc::EAGAIN));
    }
}

impl Read {
    fn end(self, call: Call, result: Result<usize, i32>) {
        let Read { ends, way, began, skip, len, .. } = self;
        if matches!(result, Err(libc::EAGAIN | libc::EOPNOTSUPP | libc::EINVAL)) {
            ends.file.aside.refused();
        }
        // Who finds the operation in no thread's hands takes its file.
        drop(ends);
        if result.is_ok_and(|got| got >= skip + len) {
            call.operation.was_read(way, began, skip);
            call.operation.open(call.ticket);
        } else {
            by_thread(call);
        }
    }
}

impl Operation {
    /// `None` where it is not one of these reads.
    fn to_read(&self) -> Option<Read> {
        let mut state = lock(&self.state);
        if state.result.is_some() {
            return None;
        }
        if let Err(error) = self.bind(&mut state) {
            state.result = Some(Err(error));
            return None;
        }
        let ends = state.uses.clone()?;
        let transfer = checked(self.op, &ends.file, &ends.buffer, self.base, state.first).ok()?;
        let way = self.inner.router().aside_for(&transfer)?;
        let (_, align) = ends.file.staged_direct(Op::Read)?;
        let ((at, ask, skip), len) = (transfer.widened(align), transfer.len());
        if ask > self.seat.block.len || !ends.file.aside.asks() {
            return None;
        }
        let began = self.inner.queue_begins(&transfer);
        Some(Read { ends, way, began, at, ask, skip, len })
    }

    /// All that is wanted is in the Block, `skip` bytes behind its start.
    fn was_read(&self, way: Way, began: Option<u64>, skip: usize) {
        let mut state = lock(&self.state);
        self.seat.say(0, 0, 0);
        // It may have been given up meanwhile.
        if state.result.is_some() {
            return;
        }
        let Some(Ends { file, buffer, .. }) = state.uses.as_deref() else { return };
        let Ok(transfer) = checked(self.op, file, buffer, self.base, state.first) else { return };
        self.seat.say(transfer.span.start(), self.seat.block.device + skip, transfer.len());
        self.inner.queue_moved(way, &transfer, began);
        let result = Ok(transfer.len());
        self.count_operation(&result);
        state.result = Some(result);
    }
}
