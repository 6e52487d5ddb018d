//! What an operation gives to its stream: all of its commands, before the call that submits it returns. It moves nothing.

use std::cell::Cell;
use std::sync::Arc;

use super::ahead::{Ahead, arrive, park_ahead};
use super::{Call, Operation, done, hand_over, park, plan_write, start};
use crate::device::{HostFn, StreamPtr, Streams};
use crate::error::Result;
use crate::op::Op;

/// The commands of one operation, given to the stream one after the other.
pub(super) struct Queueing<'a> {
    pub(super) streams: &'a dyn Streams,
    pub(super) gpu: u32,
    pub(super) stream: StreamPtr,
    pub(super) operation: &'a Arc<Operation>,
    /// How many it took.
    pub(super) given: Cell<usize>,
}

impl Queueing<'_> {
    /// `copies` where nothing is filled ahead; `direct` where an engine may move some of it past the host. `queued` counts
    /// the pieces filled ahead that the stream waits for, also when it fails.
    pub(super) fn all(&self, copies: usize, direct: bool, queued: &mut usize) -> Result<()> {
        if let Some(ahead) = &self.operation.ahead {
            self.ahead(ahead, queued)?;
            return self.call(done, 0);
        }
        match self.operation.op {
            Op::Read => {
                for piece in 0..copies {
                    self.gate(piece == 0 && self.has_come())?;
                    self.copy()?;
                }
                if copies == 0 {
                    self.gate(false)?;
                }
            }
            Op::Write => {
                // What is to be copied must be known before the copy. Where no direct engine can have a part in it, that
                // takes no thread.
                if direct || copies == 0 {
                    self.gate(false)?;
                } else {
                    self.call(plan_write, 0)?;
                }
                for _ in 0..copies {
                    self.copy()?;
                    self.gate(false)?;
                }
            }
        }
        self.call(done, 0)
    }

    /// Copies that each wait for their piece only, so that those behind are filled meanwhile.
    fn ahead(&self, ahead: &Ahead, queued: &mut usize) -> Result<()> {
        let (operation, cut) = (self.operation, ahead.cut());
        if self.has_come() {
            operation.arrive();
        } else {
            self.call(arrive, 0)?;
        }
        for piece in 0..cut.pieces {
            let (slot, ticket) = ahead.slot(piece);
            if operation.lane.parks() {
                self.call(park_ahead, piece as u64)?;
            } else {
                self.wait(slot.word_address(), ticket)?;
            }
            *queued = piece + 1;
            let (kernel, late) = (operation.lane.kernel, slot.late_device());
            // SAFETY: the words are set before the wait is over, to a piece of the buffer, which is held, and of the slot's
            // Blocks; both stay until `done`, which comes after all copies.
            self.took(unsafe { self.streams.copy(self.gpu, self.stream, kernel, late, cut.piece()) })?;
        }
        Ok(())
    }

    pub(super) fn call(&self, function: HostFn, ticket: u64) -> Result<()> {
        let call = Box::into_raw(Box::new(Call { operation: Arc::clone(self.operation), ticket }));
        // SAFETY: the functions below take the box back, once.
        let queued = unsafe { self.streams.call(self.gpu, self.stream, function, call.cast()) };
        if queued.is_err() {
            // SAFETY: the stream did not take it.
            drop(unsafe { Box::from_raw(call) });
        }
        self.took(queued)
    }

    fn wait(&self, word: usize, ticket: u64) -> Result<()> {
        self.took(self.streams.wait(self.gpu, self.stream, word, ticket))
    }

    /// Counts a command if the stream took it.
    fn took(&self, queued: Result<()>) -> Result<()> {
        self.given.set(self.given.get() + usize::from(queued.is_ok()));
        queued
    }

    /// Holds the stream until a thread has done its part. Of a stream that is `here` no function need say so.
    fn gate(&self, here: bool) -> Result<()> {
        let operation = self.operation;
        let ticket = operation.lane.next_ticket();
        if operation.lane.parks() {
            return self.call(park, ticket);
        }
        if here {
            start(Call { operation: Arc::clone(operation), ticket });
        } else {
            self.call(hand_over, ticket)?;
        }
        self.wait(operation.seat.word_address(), ticket)
    }

    /// Whether the stream is here already. Then no function of the stream's need say so, which costs more than most reads,
    /// and nothing of other streams that share its hardware queue has to pass first.
    fn has_come(&self) -> bool {
        let lane = &self.operation.lane;
        !lane.parks() && lane.is_alone() && self.streams.is_idle(self.stream)
    }

    fn copy(&self) -> Result<()> {
        let operation = self.operation;
        let (kernel, late) = (operation.lane.kernel, operation.seat.late_device());
        let most = operation.most.min(operation.seat.block.len);
        // SAFETY: the words are set before each copy to a piece of the buffer, which is held, and of the seat's Block;
        // both stay until `done`, which comes after all copies.
        self.took(unsafe { self.streams.copy(self.gpu, self.stream, kernel, late, most) })
    }
}
