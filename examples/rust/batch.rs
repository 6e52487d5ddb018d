//! Device memory to a file and back by a batch, in pieces, each place refilled as its event comes. The C twin is
//! `examples/c/batch_roundtrip.c`.
//!
//! ```text
//! cargo run -p hipfile --example batch -- FILE [GPU]
//! HIPFILE_DEVICE=emulated cargo run ...        on a machine without a GPU
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports to its user")]

use std::error::Error;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use hipfile::{Batch, Buffer, Config, Driver, EventStatus, File, Job, Op};

const PIECE: usize = 4096;
const PIECES: usize = 512;
const DEPTH: usize = 32;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (path, gpu) = match args.as_slice() {
        [path] => (path, "0"),
        [path, gpu] => (path, gpu.as_str()),
        _ => {
            eprintln!("usage: batch FILE [GPU]\nFILE is replaced.");
            return ExitCode::from(2);
        }
    };
    match round_trip(Path::new(path), gpu) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("batch: {error}");
            ExitCode::FAILURE
        }
    }
}

fn round_trip(path: &Path, gpu: &str) -> Result<(), Box<dyn Error>> {
    let driver = Driver::open(Config::from_env())?;
    let gpu = gpu.parse()?;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let file = Arc::new(File::register(&driver, file)?);
    let mut batch = Batch::new(&driver, DEPTH)?;
    for op in [Op::Write, Op::Read] {
        let (mut next, mut done) = (0, 0);
        let mut spare = Vec::new();
        while done < PIECES {
            let mut jobs = Vec::new();
            while next < PIECES && next - done < DEPTH {
                let mut buffer = match spare.pop() {
                    Some(buffer) => buffer,
                    None => Buffer::alloc(&driver, gpu, PIECE)?,
                };
                buffer.upload(0, &if op == Op::Write { piece(next) } else { vec![0; PIECE] })?;
                let file_offset = (next * PIECE) as u64;
                jobs.push(Job { op, file: Arc::clone(&file), file_offset, buffer, range: 0..PIECE });
                next += 1;
            }
            batch.submit(jobs).map_err(|(error, _)| error)?;
            for finished in batch.wait(1, None)? {
                let at = finished.job.file_offset as usize / PIECE;
                match finished.status {
                    EventStatus::Complete(PIECE) => {}
                    EventStatus::Failed(error) => return Err(error.into()),
                    other => return Err(format!("piece {at}: {other:?}").into()),
                }
                let mut bytes = vec![0; PIECE];
                finished.job.buffer.download(0, &mut bytes)?;
                if bytes != piece(at) {
                    return Err(format!("piece {at} differs").into());
                }
                spare.push(finished.job.buffer);
                done += 1;
            }
        }
    }
    println!("OK {} ({} bytes, there and back)", path.display(), PIECE * PIECES);
    Ok(())
}

/// Bytes that differ from piece to piece, so that one cannot pass for another.
fn piece(number: usize) -> Vec<u8> {
    (0..PIECE)
        .map(|i| ((number * PIECE + i) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0])
        .collect()
}
