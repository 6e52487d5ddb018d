//! The loop that moves the data: one thread reads the source into device memory, the calling one writes it out, so that with two
//! buffers reading and writing overlap. It opens and closes nothing.

use std::sync::mpsc::{Receiver, Sender, channel};

use hipfile::Buffer;

use super::sink::Sink;
use super::source::Source;
use crate::extents::Step;
use crate::failure::Failure;
use crate::progress::Progress;

/// What was copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copied {
    /// The size of the source, as found by reading to its end.
    pub(super) size: u64,
    /// The bytes of it that are not in holes.
    pub(super) moved: u64,
}

/// What the reader hands to the writer, in the order of the file.
enum Piece {
    Hole { offset: u64, len: u64 },
    Data { offset: u64, len: usize, buffer: Buffer },
}

/// Copies all of `source`, read through `input`, into `sink`. `buffers` must not be empty.
pub(super) fn run(
    source: &Source,
    input: &hipfile::File,
    sink: &mut Sink,
    buffers: Vec<Buffer>,
    progress: &mut Progress,
) -> Result<Copied, Failure> {
    let (give_back, free) = channel();
    let (hand_over, pieces) = channel();
    for buffer in buffers {
        // The receiver is right here.
        let _ = give_back.send(buffer);
    }
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new()
            .name("hipfile-read".into())
            .spawn_scoped(scope, move || read(source, input, &free, &hand_over))
            .map_err(|error| Failure::new("reader thread", error))?;
        let moved = write(sink, pieces, give_back, progress);
        // The writer's end of both channels is gone: a reader that still waits for it ends now.
        let read = reader.join().map_err(|_| Failure::at(&source.path, "the reader thread panicked"))?;
        // A reader that was stopped by the writer's failure reports a size too, so the writer's word comes first.
        let moved = moved?;
        let size = read?;
        if size < source.size {
            let why =
                format_args!("it ended after {size} of {} bytes: it shrank while it was copied", source.size);
            return Err(Failure::at(&source.path, why));
        }
        Ok(Copied { size, moved })
    })
}

/// Reads to the end of the file; returns where that is. Returns early when the writer has gone.
fn read(
    source: &Source,
    input: &hipfile::File,
    free: &Receiver<Buffer>,
    hand_over: &Sender<Piece>,
) -> Result<u64, Failure> {
    let mut extents = source.extents();
    let mut offset = 0;
    loop {
        let step = extents.step(offset).map_err(|error| Failure::os(&source.path, error))?;
        let (data, end) = match step {
            Step::Data { start, end } => (start, Some(end)),
            Step::End { end } => (end, None),
        };
        if data > offset && hand_over.send(Piece::Hole { offset, len: data - offset }).is_err() {
            return Ok(data);
        }
        offset = data;
        let Some(end) = end else { return Ok(offset) };
        while offset < end {
            let Ok(mut buffer) = free.recv() else {
                return Ok(offset);
            };
            let wanted = buffer.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
            let len = fill(input, &mut buffer, wanted, offset).map_err(|error| source.failed(error))?;
            if len > 0 && hand_over.send(Piece::Data { offset, len, buffer }).is_err() {
                return Ok(offset);
            }
            offset += len as u64;
            if len < wanted {
                return Ok(offset);
            }
        }
    }
}

/// Reads until `wanted` bytes are there or the file ends. A short count may also hide an error that the next call shows, so
/// only a read of nothing is believed to be the end.
fn fill(input: &hipfile::File, buffer: &mut Buffer, wanted: usize, offset: u64) -> hipfile::Result<usize> {
    let mut len = 0;
    while len < wanted {
        match input.read_at(buffer, len..wanted, offset + len as u64)? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

/// Writes what arrives and gives the buffers back, until the reader is done; returns the bytes of data.
fn write(
    sink: &mut Sink,
    pieces: Receiver<Piece>,
    give_back: Sender<Buffer>,
    progress: &mut Progress,
) -> Result<u64, Failure> {
    let mut moved = 0;
    for piece in pieces {
        match piece {
            Piece::Hole { offset, len } => {
                sink.hole(offset, len)?;
                progress.advance(len);
            }
            Piece::Data { offset, len, buffer } => {
                sink.data(&buffer, len, offset)?;
                progress.advance(len as u64);
                moved += len as u64;
                // A reader that has found the end needs it no more.
                let _ = give_back.send(buffer);
            }
        }
    }
    Ok(moved)
}
