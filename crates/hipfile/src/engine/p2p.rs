//! Storage to GPU memory and back with no host copy, by the runtime's own file functions. It stages nothing: what it
//! cannot carry it leaves to others.

use std::sync::Arc;

use super::{DIRECT_RANK, Engine, Fit, Outcome, Parts, aligned_body, class};
use crate::buffer::Place;
use crate::config::Fallback;
use crate::error::{Error, Result};
use crate::file::FileType;
use crate::limits::Limits;
use crate::op::Op;
use crate::reason::Reason;
use crate::transfer::Transfer;

/// The kernel driver takes file offsets and sizes in units of this, whatever the file system would allow.
const DRIVER_ALIGN: u64 = 4096;

#[derive(Debug)]
struct P2p {
    any_file_system: bool,
    forbid_staging: bool,
    limits: Arc<Limits>,
}

pub(super) fn new(parts: &Parts) -> Box<dyn Engine> {
    Box::new(P2p {
        any_file_system: parts.config.unsupported_file_systems,
        forbid_staging: parts.config.fallback == Fallback::Forbid,
        limits: Arc::clone(&parts.limits),
    })
}

impl Engine for P2p {
    fn name(&self) -> &'static str {
        "p2p"
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn fit(&self, transfer: &Transfer<'_>) -> Result<Fit, Reason> {
        let Place::Device { device, .. } = transfer.span.place() else { return Err(Reason::NotDeviceMemory) };
        let file = transfer.file;
        if device.p2p().is_none() {
            return Err(Reason::NoSymbols);
        }
        if file.appends() && transfer.op == Op::Write {
            return Err(Reason::Append);
        }
        // The block stack under an emulated GPU is whatever the machine has; the emulation does not mind.
        file.storage().direct(self.any_file_system, device.is_emulated())?;
        let align = file.direct_align().ok_or(Reason::NoDirectIo)?;
        if file.direct().is_none() {
            return Err(Reason::NoDirectIo);
        }
        let align = DRIVER_ALIGN.max(align.of_offsets(transfer.op).into()).max(align.mem.into());
        let body = aligned_body(transfer, align)?;
        if file.demoted.contains(transfer.op, class(transfer, &body)) {
            return Err(Reason::Demoted);
        }
        Ok(Fit { rank: DIRECT_RANK, body })
    }

    fn run(&self, transfer: &Transfer<'_>) -> Outcome {
        let mut moved = 0;
        while moved < transfer.len() {
            let rest = transfer.rest(moved);
            let want = match reachable(&rest) {
                // With staging forbidden there is nobody to read the last block: the driver may try.
                0 if self.forbid_staging => rest.span.unbroken(),
                0 => return Outcome::yielded(moved, Reason::EndOfFile),
                // At least the unit in which the driver moves, so the next place is aligned too.
                n => n.min(self.limits.direct_max()).min(rest.span.unbroken()),
            };
            match step(&rest, want) {
                Ok(0) if self.forbid_staging => return nothing_moved(moved, &rest),
                Ok(0) => return Outcome::yielded(moved, Reason::Refused),
                Ok(n) => {
                    moved += n;
                    if !(n as u64).is_multiple_of(DRIVER_ALIGN) && moved < transfer.len() {
                        // The next place is not aligned, so the driver cannot go on.
                        return match self.forbid_staging {
                            true => Outcome::done(moved),
                            false => Outcome::yielded(moved, Reason::EndOfFile),
                        };
                    }
                }
                // The driver answers EIO to a read that meets the end of the file; so the file shrank meanwhile.
                Err(error)
                    if error.os_error() == Some(libc::EIO)
                        && !self.forbid_staging
                        && reachable(&rest) < want =>
                {
                    return Outcome::yielded(moved, Reason::EndOfFile);
                }
                Err(error) => {
                    if error.os_error() == Some(libc::EINVAL) {
                        let whole = 0..rest.len();
                        transfer.file.demoted.insert(transfer.op, class(&rest, &whole));
                    }
                    return Outcome::failed(moved, error);
                }
            }
        }
        Outcome::done(moved)
    }
}

/// How much of a read lies in whole blocks of the file: the driver cannot read a last, partial block. All of a write, but for
/// what a block device has no room for: the driver may fail it whole.
fn reachable(transfer: &Transfer<'_>) -> usize {
    if transfer.op == Op::Write && transfer.file.file_type() != FileType::Block {
        return transfer.len();
    }
    let Some(size) = transfer.file.size() else { return transfer.len() };
    let whole = (size - size % DRIVER_ALIGN).saturating_sub(transfer.file_offset);
    transfer.len().min(usize::try_from(whole).unwrap_or(usize::MAX))
}

/// The driver moved nothing and called that success: the end of the file, or else a defect that nobody else makes good.
fn nothing_moved(moved: usize, rest: &Transfer<'_>) -> Outcome {
    let at_the_end = rest.op == Op::Read && rest.file.size().is_none_or(|size| size <= rest.file_offset);
    if at_the_end {
        return Outcome::done(moved);
    }
    let why =
        format!("the driver moved none of {} bytes at {} and gave no reason", rest.len(), rest.file_offset);
    Outcome::failed(moved, Error::os_because(rest.op.name(), libc::EIO, why))
}

fn step(transfer: &Transfer<'_>, want: usize) -> Result<usize> {
    let op = transfer.op;
    let Place::Device { device, .. } = transfer.span.place() else {
        unreachable!("fit refuses other memory");
    };
    let Some(p2p) = device.p2p() else {
        unreachable!("fit refuses a device without");
    };
    // It was there, and somebody has closed it meanwhile.
    let Some(fd) = transfer.file.direct() else { return Err(Error::os(op.name(), libc::ENODEV)) };
    let span = transfer.span.slice(0, want);
    match op {
        Op::Read => p2p.read(fd, &span, transfer.file_offset, transfer.held),
        Op::Write => p2p.write(fd, &span, transfer.file_offset, transfer.held),
    }
}
