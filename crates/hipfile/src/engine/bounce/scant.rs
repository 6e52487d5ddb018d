//! Staging where the system gives no memory for a Block: piece by piece through a few pages of the heap. The last of last
//! resorts; it is slow and takes no part in anything else.

use super::{Way, write_chunk};
use crate::device::Device;
use crate::engine::Outcome;
use crate::engine::chunks::Chunks;
use crate::error::Error;
use crate::op::Op;
use crate::transfer::Transfer;

/// What the smallest Block has, which every alignment fits into.
const LEN: usize = 64 << 10;
/// O_DIRECT of a Block is asked for with memory that is aligned to pages, so this must be.
const PAGE: usize = 4096;

/// Carries a transfer out; `errno` is the answer if there is not even this much memory.
pub(super) fn run(transfer: &Transfer<'_>, device: &dyn Device, way: Way<'_>, errno: i32) -> Outcome {
    let op = transfer.op;
    let mut memory = Vec::new();
    if memory.try_reserve_exact(LEN + PAGE).is_err() {
        return Outcome::failed(0, Error::os(op.name(), errno));
    }
    memory.resize(LEN + PAGE, 0);
    let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
    let bytes = &mut memory[start..start + LEN];
    let chunks = Chunks::new(transfer, LEN, way.align);
    let mut moved = 0;
    for chunk in (0..chunks.count()).map(|index| chunks.get(index)) {
        let result = match op {
            Op::Write => write_chunk(device, transfer, way, &chunk, bytes),
            Op::Read => {
                let (filled, error) = match way.fill(&chunk, bytes) {
                    Ok(n) => (n, None),
                    Err((n, error)) => (n, Some(error)),
                };
                let span = transfer.span.slice(chunk.offset, filled);
                match device.upload(&span, &bytes[chunk.skip..chunk.skip + filled]) {
                    Ok(()) => error.map_or(Ok(filled), |error| Err((filled, error))),
                    Err(error) => Err((0, error)),
                }
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
