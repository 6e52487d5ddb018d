//! Storage to CUDA's memory and back with no host copy, by NVIDIA's libcufile where the device says that it can. It stages
//! nothing: what it cannot carry it leaves to others. It is not for held streams, during which the library may not be called.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DIRECT_RANK, Engine, Fit, Outcome, Parts, aligned_body, class};
use crate::buffer::Place;
use crate::device::DirectFiles;
use crate::error::Result;
use crate::file::FileRecord;
use crate::limits::Limits;
use crate::op::Op;
use crate::reason::Reason;
use crate::transfer::Transfer;

/// What is aligned to this, in the file and in memory, the library moves as it is; anything else through memory of its own.
const UNIT: u64 = 4096;

#[derive(Debug)]
struct Cufile {
    limits: Arc<Limits>,
}

/// Handles of files that are gone. A destructor calls no GPU library, so they are given back before the next file is made
/// known, which may have the same descriptor number, and be another driver's: the library is the process's.
static GONE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn gone() -> MutexGuard<'static, Vec<usize>> {
    GONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the library knows a file by, if it takes it.
#[derive(Debug)]
struct Known(Option<usize>);

impl Drop for Known {
    fn drop(&mut self) {
        gone().extend(self.0);
    }
}

pub(super) fn new(parts: &Parts) -> Box<dyn Engine> {
    Box::new(Cufile { limits: Arc::clone(&parts.limits) })
}

/// The file's handle, made at its first transfer. `None` for one that the library does not take.
fn handle(files: &dyn DirectFiles, ordinal: u32, file: &FileRecord) -> Option<usize> {
    let known = file.known_to_library.get_or_init(|| {
        // Not under the lock: a call of the library's may take long.
        let gone = std::mem::take(&mut *gone());
        gone.into_iter().for_each(|handle| files.forget(handle));
        Box::new(Known(file.direct().and_then(|fd| files.know(ordinal, fd).ok())))
    });
    known.downcast_ref::<Known>()?.0
}

impl Engine for Cufile {
    fn name(&self) -> &'static str {
        "cufile"
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn fit(&self, transfer: &Transfer<'_>) -> Result<Fit, Reason> {
        let Place::Device { device, ordinal, .. } = transfer.span.place() else {
            return Err(Reason::NotDeviceMemory);
        };
        let Some(files) = device.direct_files() else { return Err(Reason::NoSymbols) };
        files.could()?;
        let file = transfer.file;
        if transfer.held {
            return Err(Reason::HeldStream);
        }
        files.ready()?;
        if file.appends() && transfer.op == Op::Write {
            return Err(Reason::Append);
        }
        let align = file.direct_align().ok_or(Reason::NoDirectIo)?;
        if file.direct().is_none() {
            return Err(Reason::NoDirectIo);
        }
        let unit = UNIT.max(align.of_offsets(transfer.op).into()).max(align.mem.into());
        let body = aligned_body(transfer, unit)?;
        if file.demoted.contains(transfer.op, class(transfer, &body)) {
            return Err(Reason::Demoted);
        }
        // Which file systems and drives it can reach the library knows best.
        handle(files, *ordinal, file).map(|_| Fit { rank: DIRECT_RANK, body }).ok_or(Reason::Refused)
    }

    fn run(&self, transfer: &Transfer<'_>) -> Outcome {
        let (op, file) = (transfer.op, transfer.file);
        let Place::Device { device, ordinal, .. } = transfer.span.place() else {
            unreachable!("fit refuses other memory");
        };
        let mut moved = 0;
        while moved < transfer.len() {
            let rest = transfer.rest(moved);
            // The descriptor was there, and somebody may have closed it meanwhile: its number is not to be trusted then.
            let handle = device
                .direct_files()
                .filter(|_| file.direct().is_some())
                .and_then(|files| Some((files, handle(files, *ordinal, file)?)));
            let Some((files, handle)) = handle else { return Outcome::yielded(moved, Reason::NoDirectIo) };
            let want = self.limits.direct_max().min(rest.span.unbroken()).min(rest.len());
            let span = rest.span.slice(0, want);
            let step = match op {
                Op::Read => files.read(handle, &span, rest.file_offset),
                Op::Write => files.write(handle, &span, rest.file_offset),
            };
            match step {
                Ok(n) => {
                    moved += n;
                    if n < want {
                        return ended(transfer, moved);
                    }
                }
                Err(error) => {
                    if error.os_error() == Some(libc::EINVAL) {
                        file.demoted.insert(op, class(&rest, &(0..rest.len())));
                    }
                    return Outcome::failed(moved, error);
                }
            }
        }
        Outcome::done(moved)
    }
}

/// Fewer bytes than were asked for: the end of the file, or nobody knows why, and another engine goes on.
fn ended(transfer: &Transfer<'_>, moved: usize) -> Outcome {
    let at_the_end = transfer.op == Op::Read
        && transfer.file.size().is_some_and(|size| size <= transfer.file_offset + moved as u64);
    if at_the_end { Outcome::done(moved) } else { Outcome::yielded(moved, Reason::Refused) }
}
