//! What a transfer is staged in while a stream is held: which part of it lies where in a Block. It chooses no engine.

use std::ops::Range;

use super::Choice;
use crate::engine::Outcome;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::transfer::Transfer;

/// A Block that a held stream's transfer is staged in. Its bytes stand for the file from an aligned offset on.
#[derive(Debug)]
pub(crate) struct Stage<'b> {
    bytes: &'b mut [u8],
    quantum: u64,
    /// The part of the transfer that is in it.
    pub(super) range: Range<usize>,
    /// Where an appended write is collected.
    pub(super) collected: &'b mut Vec<u8>,
}

impl<'b> Stage<'b> {
    /// `quantum` is a power of two that the file's alignment divides; there are at least as many bytes. `range` and
    /// `collected` are what they were when the transfer paused.
    pub(crate) fn new(
        bytes: &'b mut [u8],
        quantum: u64,
        range: Range<usize>,
        collected: &'b mut Vec<u8>,
    ) -> Stage<'b> {
        // The size of a Block need be no multiple of it.
        let whole = bytes.len() - bytes.len() % quantum as usize;
        Stage { bytes: &mut bytes[..whole], quantum, range, collected }
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The file offset of its first byte.
    fn from(&self, transfer: &Transfer<'_>) -> u64 {
        let start = transfer.file_offset + self.range.start as u64;
        start - start % self.quantum
    }

    /// Where a byte of the transfer lies in it.
    pub(crate) fn position(&self, transfer: &Transfer<'_>, at: usize) -> usize {
        (transfer.file_offset + at as u64 - self.from(transfer)) as usize
    }

    /// How much of the transfer from `at` on it can take (reads) or has (writes). At 0 a write's next part is planned,
    /// as much of `whole` as there is room for.
    pub(super) fn room(
        &mut self,
        transfer: &Transfer<'_>,
        at: usize,
        whole: impl FnOnce() -> usize,
    ) -> usize {
        if transfer.op == Op::Write && self.range.contains(&at) {
            return self.range.end - at;
        }
        if transfer.op == Op::Write || self.range.is_empty() {
            self.range = at..at;
        }
        let room = self.bytes.len().saturating_sub(self.position(transfer, at));
        if transfer.op == Op::Read {
            return room;
        }
        self.range.end = at + whole().min(room);
        0
    }

    /// Takes the next part of an appended write, which the kernel keeps together only if one system call writes it.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn collect(&mut self, transfer: &Transfer<'_>) -> Result<()> {
        let missing = transfer.len() - self.collected.len();
        if self.collected.try_reserve_exact(missing).is_err() {
            return Err(Error::os(transfer.op.name(), libc::ENOMEM));
        }
        let at = self.position(transfer, self.range.start);
        self.collected.extend_from_slice(&self.bytes[at..at + self.range.len()]);
        let start = self.collected.len();
        self.range = start..start;
        let room = self.bytes.len() - self.position(transfer, start);
        self.range.end = transfer.len().min(start + room);
        Ok(())
    }

    /// Writes the rest of what was collected.
    pub(super) fn append(&mut self, choice: &Choice<'_>, rest: &Transfer<'_>) -> Outcome {
        let at = self.collected.len() - rest.len();
        match choice.engine.staging() {
            Some(staging) => staging.stage(rest, &mut self.collected[at..], rest.file_offset),
            None => Outcome::short(0),
        }
    }

    /// Has the engine read into it or write from it. Of a read it holds then what was moved.
    pub(super) fn carry(
        &mut self,
        choice: &Choice<'_>,
        transfer: &Transfer<'_>,
        part: &Transfer<'_>,
        at: usize,
    ) -> Outcome {
        let Some(staging) = choice.engine.staging() else { return Outcome::short(0) };
        let from = self.from(transfer);
        let outcome = staging.stage(part, self.bytes, from);
        if transfer.op == Op::Read {
            self.range.end = at + outcome.moved;
        }
        outcome
    }
}
