//! Files of the program's own file systems: their functions read into Blocks and write out of them, and into host memory in
//! place. It knows neither descriptors nor the page cache.

use std::sync::Arc;

use super::{Engine, Fit, Outcome, Parts, Staging};
use crate::block::BlockPool;
use crate::buffer::Place;
use crate::device::Device;
use crate::error::Error;
use crate::op::Op;
use crate::reason::Reason;
use crate::transfer::Transfer;
use crate::user_fs::User;

#[derive(Debug)]
struct Userspace {
    blocks: Arc<BlockPool>,
}

pub(super) fn new(parts: &Parts) -> Box<dyn Engine> {
    Box::new(Userspace { blocks: Arc::clone(&parts.blocks) })
}

fn user<'a>(transfer: &Transfer<'a>) -> &'a User {
    match transfer.file.user(transfer.op) {
        Some(user) => user,
        None => unreachable!("the router gives it no other files"),
    }
}

/// What a call of the file system's came to, as an outcome. It is short at the end of the file only.
fn outcome(op: Op, (moved, errno): (usize, Option<i32>)) -> Outcome {
    match errno {
        Some(errno) => Outcome::failed(moved, Error::os(op.name(), errno)),
        None => Outcome::done(moved),
    }
}

impl Engine for Userspace {
    fn name(&self) -> &'static str {
        "userspace"
    }

    fn fit(&self, transfer: &Transfer<'_>) -> Result<Fit, Reason> {
        Ok(Fit::last_resort(transfer))
    }

    fn staging(&self) -> Option<&dyn Staging> {
        Some(self)
    }

    fn run(&self, transfer: &Transfer<'_>) -> Outcome {
        match transfer.span.place() {
            Place::Device { device, ordinal, shared: true, .. } => {
                // As for the engines of the kernel's files.
                match if transfer.held { Ok(()) } else { device.settle(*ordinal) } {
                    Ok(()) => in_place(transfer),
                    Err(error) => Outcome::failed(0, error),
                }
            }
            Place::Device { device, .. } => self.staged(transfer, device),
            Place::Host => in_place(transfer),
        }
    }
}

impl Userspace {
    fn staged(&self, transfer: &Transfer<'_>, device: &Arc<dyn Device>) -> Outcome {
        let (op, user) = (transfer.op, user(transfer));
        // Others that hold Blocks may be long in the program's functions, so none is waited for.
        let mut block = self.blocks.try_take(transfer.span.place().node());
        let mut own = Vec::new();
        let bytes = match &mut block {
            Some(block) => block.bytes_mut(),
            None => {
                let len = self.blocks.block_len().min(transfer.len());
                if own.try_reserve_exact(len).is_err() {
                    return Outcome::failed(0, Error::os(op.name(), libc::ENOMEM));
                }
                own.resize(len, 0);
                &mut own[..]
            }
        };
        let mut moved = 0;
        while moved < transfer.len() {
            let rest = transfer.rest(moved);
            let len = bytes.len().min(rest.len());
            let bytes = &mut bytes[..len];
            let span = rest.span.slice(0, len);
            let (done, errno) = match op {
                Op::Read => user.fill(bytes, rest.file_offset),
                Op::Write => match device.download(&span, bytes) {
                    Ok(()) => user.drain(bytes, rest.file_offset),
                    Err(error) => return Outcome::failed(moved, error),
                },
            };
            if op == Op::Read
                && done > 0
                && let Err(error) = device.upload(&span.slice(0, done), &bytes[..done])
            {
                return Outcome::failed(moved, error);
            }
            moved += done;
            if done < len {
                return outcome(op, (moved, errno));
            }
        }
        Outcome::done(moved)
    }
}

fn in_place(transfer: &Transfer<'_>) -> Outcome {
    let (user, at, len) = (user(transfer), transfer.span.start(), transfer.len());
    let moved = match transfer.op {
        Op::Read => {
            let start = std::ptr::with_exposed_provenance_mut(at);
            // SAFETY: the span is host memory of the caller, promised for this transfer and used by nobody else meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts_mut::<u8>(start, len) };
            user.fill(bytes, transfer.file_offset)
        }
        Op::Write => {
            let start = std::ptr::with_exposed_provenance(at);
            // SAFETY: as above; nobody writes to it meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts::<u8>(start, len) };
            user.drain(bytes, transfer.file_offset)
        }
    };
    outcome(transfer.op, moved)
}

impl Staging for Userspace {
    fn stage(&self, transfer: &Transfer<'_>, bytes: &mut [u8], from: u64) -> Outcome {
        let at = usize::try_from(transfer.file_offset - from).unwrap_or(usize::MAX);
        let bytes = at.checked_add(transfer.len()).and_then(|end| bytes.get_mut(at..end));
        let Some(bytes) = bytes else {
            return Outcome::failed(0, Error::os(transfer.op.name(), libc::ENOMEM));
        };
        let moved = match transfer.op {
            Op::Read => user(transfer).fill(bytes, transfer.file_offset),
            Op::Write => user(transfer).drain(bytes, transfer.file_offset),
        };
        outcome(transfer.op, moved)
    }
}
