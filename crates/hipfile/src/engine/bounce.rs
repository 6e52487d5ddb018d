//! Plain pread and pwrite into and out of a Block, one piece after the other; host memory is read and written in place.
//! It carries everything, so it is the last resort; it is not the fast one.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::{DIRECT_RANK, Engine, Fit, Outcome, Parts};
use crate::block::{Block, BlockPool};
use crate::buffer::{Place, Span};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::file::{DirectAlign, PlainFd};
use crate::op::Op;
use crate::reason::Reason;
use crate::sys;
use crate::transfer::Transfer;

#[derive(Debug)]
struct Bounce {
    blocks: Arc<BlockPool>,
}

pub(super) fn new(parts: &Parts) -> Box<dyn Engine> {
    Box::new(Bounce { blocks: Arc::clone(&parts.blocks) })
}

impl Engine for Bounce {
    fn name(&self) -> &'static str {
        "bounce"
    }

    fn fit(&self, transfer: &Transfer<'_>) -> Result<Fit, Reason> {
        let rank = match transfer.span.place() {
            Place::Device { .. } => 1,
            // In place there is no bounce.
            Place::Host => DIRECT_RANK,
        };
        Ok(Fit::whole(rank, transfer))
    }

    fn run(&self, transfer: &Transfer<'_>) -> Outcome {
        let mut moved = 0;
        match self.carry(transfer, &mut moved) {
            Ok(()) => Outcome::done(moved),
            Err(error) => Outcome::failed(moved, error),
        }
    }
}

impl Bounce {
    fn carry(&self, transfer: &Transfer<'_>, moved: &mut usize) -> Result<()> {
        let op = transfer.op.name();
        let plain = transfer.file.plain(op)?;
        // The kernel ignores offsets on appended files: each write must be one unbroken piece. The turn is taken
        // before the Block, so that nobody waits for it with a Block in hand.
        let _turn =
            (transfer.op == Op::Write && transfer.file.appends()).then(|| transfer.file.append_turn());
        match transfer.span.place() {
            Place::Host => self.in_place(transfer, plain, moved),
            Place::Device { device, .. } => {
                let align = Align::of(transfer, plain);
                if transfer.op == Op::Write {
                    align.check_write(transfer)?;
                }
                let mut block = self.blocks.take().map_err(|e| Error::os(op, e))?;
                while *moved < transfer.len() {
                    let rest = transfer.rest(*moved);
                    let n = match transfer.op {
                        Op::Read => read_piece(device, &rest, plain.fd, align, &mut block)?,
                        Op::Write => write_piece(device, &rest, plain.fd, &mut block)?,
                    };
                    if n == 0 {
                        break;
                    }
                    *moved += n;
                }
                Ok(())
            }
        }
    }

    fn in_place(&self, transfer: &Transfer<'_>, plain: PlainFd<'_>, moved: &mut usize) -> Result<()> {
        let op = transfer.op.name();
        let fd = plain.fd.as_raw_fd();
        let align = Align::of(transfer, plain);
        if align.0 > 1 {
            let mem = transfer.file.direct_align().map_or(1, |a| a.mem as usize);
            let ragged = !transfer.span.start().is_multiple_of(mem)
                || !transfer.len().is_multiple_of(align.0)
                || !transfer.file_offset.is_multiple_of(align.0 as u64);
            if ragged {
                return self.direct_only_host(transfer, plain, align, moved);
            }
        }
        while *moved < transfer.len() {
            let rest = transfer.rest(*moved);
            let result = match transfer.op {
                // SAFETY: the span is memory its registration promised for this; the kernel answers EFAULT for holes.
                Op::Read => unsafe { sys::pread_raw(fd, rest.span.start(), rest.len(), rest.file_offset) },
                // SAFETY: the span is memory its registration promised for this; the kernel only reads it.
                Op::Write => unsafe { sys::pwrite_raw(fd, rest.span.start(), rest.len(), rest.file_offset) },
            };
            match result {
                Ok(0) if transfer.op == Op::Read => break,
                Ok(0) => return Err(wrote_nothing()),
                Ok(n) => *moved += n,
                Err(libc::EINTR) => {}
                Err(errno) => return Err(Error::os(op, errno)),
            }
        }
        Ok(())
    }

    /// Ragged host memory on a file that only an O_DIRECT descriptor reaches: through a Block after all.
    fn direct_only_host(
        &self,
        transfer: &Transfer<'_>,
        plain: PlainFd<'_>,
        align: Align,
        moved: &mut usize,
    ) -> Result<()> {
        if transfer.op == Op::Write {
            align.check_write(transfer)?;
        }
        let mut block = self.blocks.take().map_err(|e| Error::os(transfer.op.name(), e))?;
        while *moved < transfer.len() {
            let rest = transfer.rest(*moved);
            let n = match transfer.op {
                Op::Read => {
                    let (skip, n) = fill(&rest, plain.fd, align, &mut block)?;
                    host_copy(&rest.span.slice(0, n), &mut block.bytes_mut()[skip..skip + n], Op::Read);
                    n
                }
                Op::Write => {
                    let n = rest.len().min(block.bytes().len());
                    host_copy(&rest.span.slice(0, n), &mut block.bytes_mut()[..n], Op::Write);
                    drain(&rest, plain.fd, &block.bytes()[..n])?
                }
            };
            if n == 0 {
                break;
            }
            *moved += n;
        }
        Ok(())
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

/// What file offsets and lengths must be multiples of: 1 on ordinary descriptors.
#[derive(Clone, Copy)]
struct Align(usize);

impl Align {
    fn of(transfer: &Transfer<'_>, plain: PlainFd<'_>) -> Align {
        if !plain.direct_only {
            return Align(1);
        }
        let fallback = DirectAlign { mem: 4096, offset: 4096, read_offset: 4096 };
        let align = transfer.file.direct_align().unwrap_or(fallback);
        Align(match transfer.op {
            Op::Read => align.read_offset,
            Op::Write => align.offset,
        } as usize)
    }

    fn check_write(self, transfer: &Transfer<'_>) -> Result<()> {
        let align = self.0;
        if transfer.file_offset.is_multiple_of(align as u64) && transfer.len().is_multiple_of(align) {
            return Ok(());
        }
        Err(Error::os_because(
            "write",
            libc::EINVAL,
            format!(
                "only an O_DIRECT descriptor of the file could be had, and offset {} or size {} is no multiple of {align}",
                transfer.file_offset,
                transfer.len()
            ),
        ))
    }
}

/// Reads the next piece of the file into the Block, from an aligned place at or before the offset. Where in the Block
/// the wanted bytes begin, and how many there are.
fn fill(
    transfer: &Transfer<'_>,
    fd: BorrowedFd<'_>,
    align: Align,
    block: &mut Block<'_>,
) -> Result<(usize, usize)> {
    let skip = (transfer.file_offset % align.0 as u64) as usize;
    let room = block.bytes().len();
    let want = (skip + transfer.len()).next_multiple_of(align.0).min(room);
    let at = transfer.file_offset - skip as u64;
    let got = loop {
        match rustix::io::pread(fd, &mut block.bytes_mut()[..want], at) {
            Ok(n) => break n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::errno("read", errno)),
        }
    };
    Ok((skip, got.saturating_sub(skip).min(transfer.len())))
}

fn read_piece(
    device: &Arc<dyn Device>,
    transfer: &Transfer<'_>,
    fd: BorrowedFd<'_>,
    align: Align,
    block: &mut Block<'_>,
) -> Result<usize> {
    let (skip, n) = fill(transfer, fd, align, block)?;
    if n > 0 {
        device.upload(&transfer.span.slice(0, n), &block.bytes()[skip..skip + n])?;
    }
    Ok(n)
}

fn write_piece(
    device: &Arc<dyn Device>,
    transfer: &Transfer<'_>,
    fd: BorrowedFd<'_>,
    block: &mut Block<'_>,
) -> Result<usize> {
    let n = transfer.len().min(block.bytes().len());
    let bytes = &mut block.bytes_mut()[..n];
    device.download(&transfer.span.slice(0, n), bytes)?;
    drain(transfer, fd, bytes)
}

fn drain(transfer: &Transfer<'_>, fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize> {
    loop {
        match rustix::io::pwrite(fd, bytes, transfer.file_offset) {
            Ok(0) => return Err(wrote_nothing()),
            Ok(n) => return Ok(n),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::errno("write", errno)),
        }
    }
}

fn wrote_nothing() -> Error {
    Error::os_because("write", libc::EIO, "the file took no byte and gave no reason")
}
