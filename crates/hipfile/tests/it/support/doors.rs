//! One transfer by any door: a call, an operation on a stream, a batch.

use hipfile::{DevPtr, Driver, Entry, EventStatus, FileId, Op, RawBatch, Result};

use super::streams::{self, Stream, Variables};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Door {
    Call,
    Stream,
    Batch,
}

/// What is asked for: so many bytes at a place of a memory and of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) ptr: DevPtr,
    pub(crate) len: usize,
    pub(crate) at: usize,
    pub(crate) offset: usize,
}

pub(crate) struct Doors {
    pub(crate) driver: Driver,
    stream: Stream,
    batch: RawBatch,
}

impl Door {
    pub(crate) const ALL: [Door; 3] = [Door::Call, Door::Stream, Door::Batch];
}

impl Doors {
    /// With a stream of the GPU that is current.
    pub(crate) fn new(driver: Driver) -> Doors {
        let doors = Doors { driver, stream: Stream::free(), batch: RawBatch::new(8).unwrap() };
        doors.driver.prepare_stream(doors.stream.ptr()).unwrap();
        doors
    }

    /// What a transfer is refused with, as an errno.
    pub(crate) fn errno(&self, door: Door, op: Op, id: FileId, ask: Ask) -> Option<i32> {
        self.transfer(door, op, id, ask).err().and_then(|error| error.os_error())
    }

    pub(crate) fn transfer(&self, door: Door, op: Op, id: FileId, ask: Ask) -> Result<usize> {
        let Ask { ptr, len, at, offset } = ask;
        match (door, op) {
            // SAFETY: the range lies in memory that outlives the call and that nobody else uses.
            (Door::Call, Op::Read) => unsafe { self.driver.read(id, ptr, len, offset as i64, at as i64) },
            // SAFETY: as above.
            (Door::Call, _) => unsafe { self.driver.write(id, ptr, len, offset as i64, at as i64) },
            (Door::Stream, _) => {
                let variables = Variables::new(len, offset as i64, at as i64);
                streams::enqueue(&self.driver, op, id, ptr, self.stream, 0, &variables)?;
                self.stream.wait();
                variables.result()
            }
            (Door::Batch, _) => {
                let (file_offset, buffer_offset) = (offset as i64, at as i64);
                let entry =
                    Entry { op: Ok(op), file: id, buffer: ptr, buffer_offset, file_offset, len, cookie: 7 };
                // SAFETY: as above; the event is waited for.
                unsafe { self.batch.submit(&self.driver, &[entry]) }?;
                let events = self.batch.poll(1, 1, None)?;
                match events.into_iter().next().map(|event| event.status) {
                    Some(EventStatus::Complete(moved)) => Ok(moved),
                    Some(EventStatus::Failed(error)) => Err(error),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}
