//! The only place that validates a request. What comes out is a transfer nobody needs to check again.

use crate::buffer::{BufferRecord, Span};
use crate::error::{Error, ErrorKind, Result};
use crate::file::FileRecord;
use crate::op::Op;
use crate::rangemap::Ranged;
use crate::ticket::Ticket;

/// Most bytes one call moves: what one system call of the kernel moves at most. Larger requests are shortened.
pub const MAX_TRANSFER: usize = 0x7fff_f000;

/// How a staged transfer treats the page cache; means nothing to direct engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Plain reads and writes.
    Through,
    /// Plain reads of what is in the cache already: a processor's work, with nothing to wait for.
    Cached,
    /// Plain reads and writes that leave nothing in the cache, as far as the kernel can.
    LeaveNothing,
    /// O_DIRECT.
    Around,
}

/// A checked request: the span exists, the offset is not negative.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer<'a> {
    pub(crate) op: Op,
    pub(crate) file: &'a FileRecord,
    pub(crate) span: Span<'a>,
    pub(crate) file_offset: u64,
    pub(crate) cache: Cache,
    /// Whether a stream is held until it is done. Then nothing may wait for the GPU, nor for anyone who might.
    pub(crate) held: bool,
    /// Who is told which engine it is given to.
    pub(crate) watch: Option<&'a Ticket>,
}

impl<'a> Transfer<'a> {
    pub(crate) fn len(&self) -> usize {
        self.span.len()
    }

    /// As it is before anybody has decided anything about it.
    pub(crate) fn new(op: Op, file: &'a FileRecord, span: Span<'a>, file_offset: u64) -> Transfer<'a> {
        Transfer { op, file, span, file_offset, cache: Cache::Through, held: false, watch: None }
    }

    /// Where in the buffer it lies.
    pub(crate) fn offset_in(&self, buffer: &BufferRecord) -> usize {
        self.span.start() - buffer.base()
    }

    /// A part of it.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Transfer<'a> {
        Transfer {
            span: self.span.slice(range.start, range.len()),
            file_offset: self.file_offset + range.start as u64,
            ..*self
        }
    }

    /// The aligned range of the file that has all of it: where it begins, its bytes, and how many of them are before it.
    pub(crate) fn widened(&self, align: usize) -> (u64, usize, usize) {
        let skip = (self.file_offset % align as u64) as usize;
        (self.file_offset - skip as u64, (skip + self.len()).next_multiple_of(align), skip)
    }

    /// The part that starts `done` bytes in.
    pub(crate) fn rest(&self, done: usize) -> Transfer<'a> {
        self.part(done..self.len())
    }
}

/// Checks a request, in the order in which hipFile answers: signs, then the shortening to [`MAX_TRANSFER`], then the
/// range. `base` is the address the caller gave, inside or at the start of the buffer.
#[inline]
pub(crate) fn check<'a>(
    op: Op,
    file: &'a FileRecord,
    buffer: &'a BufferRecord,
    base: usize,
    len: usize,
    file_offset: i64,
    buffer_offset: i64,
) -> Result<Transfer<'a>> {
    let (Ok(file_offset), Ok(buffer_offset)) = (u64::try_from(file_offset), usize::try_from(buffer_offset))
    else {
        let why = format!("file offset {file_offset} and buffer offset {buffer_offset} must not be negative");
        return Err(Error::os_because(op.name(), libc::EINVAL, why));
    };
    let asked = len;
    let len = len.min(MAX_TRANSFER);
    let range_error = |why: String| Error::message(ErrorKind::InvalidValue, op.name(), why);
    let inner = base.wrapping_sub(buffer.base());
    let usable = buffer.len().saturating_sub(inner);
    // A size of zero at the very end is refused too: the offset must name a byte of the buffer.
    if buffer_offset >= usable {
        return Err(range_error(format!(
            "buffer offset {buffer_offset} is not inside the {usable} bytes of the buffer"
        )));
    }
    match buffer.span(inner + buffer_offset, len) {
        Some(span) => Ok(Transfer::new(op, file, span, file_offset)),
        None => Err(range_error(format!(
            "size {asked} at buffer offset {buffer_offset} passes the end of the buffer ({usable} bytes)"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Place;
    use std::os::fd::AsRawFd;

    fn expect(len: usize, file_offset: i64, buffer_offset: i64, buffer_len: usize) -> Result<(usize, usize)> {
        let file = tempfile::tempfile().unwrap();
        let file = FileRecord::inspect(file.as_raw_fd()).unwrap();
        // SAFETY: the range is never accessed.
        let buffer = unsafe { BufferRecord::new(0x10_0000, buffer_len, Place::Host) };
        check(Op::Read, &file, &buffer, 0x10_0000, len, file_offset, buffer_offset)
            .map(|t| (t.span.start() - 0x10_0000, t.len()))
    }

    #[test]
    fn a_refusal_names_the_size_that_was_asked_for() {
        let error = expect(usize::MAX, 0, 0, 10).unwrap_err().to_string();
        assert!(error.contains(&usize::MAX.to_string()), "{error}");
    }

    #[test]
    fn requests_are_accepted_and_refused_as_documented() {
        const BIG: usize = 1 << 40;
        let einval = Err((ErrorKind::Io, Some(libc::EINVAL)));
        let value = Err((ErrorKind::InvalidValue, None));
        for (len, file_offset, buffer_offset, buffer_len, expected) in [
            (10, 0, 0, 10, Ok((0, 10))),
            (0, 0, 9, 10, Ok((9, 0))),
            (0, 0, 10, 10, value),
            (0, 0, 0, 0, value),
            (11, 0, 0, 10, value),
            (1, 0, 10, 10, value),
            (usize::MAX, 0, 0, 10, value),
            (usize::MAX, 0, 0, BIG, Ok((0, MAX_TRANSFER))),
            (MAX_TRANSFER + 1, 0, 5, BIG, Ok((5, MAX_TRANSFER))),
            (10, -1, 0, 10, einval),
            (10, 0, -1, 10, einval),
            (usize::MAX, -1, i64::MIN, 10, einval),
            (1, i64::MAX, i64::MAX, 10, value),
            (1, i64::MAX, 0, 10, Ok((0, 1))),
        ] {
            let got =
                expect(len, file_offset, buffer_offset, buffer_len).map_err(|e| (e.kind(), e.os_error()));
            assert_eq!(got, expected, "size {len} at {file_offset}/{buffer_offset} of {buffer_len}");
        }
    }
}
