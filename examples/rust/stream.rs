//! Device memory to a file and back on streams, in pieces: each stream does its pieces in order, and the streams work at the
//! same time. The C twin is `examples/c/async_roundtrip.c`.
//!
//! ```text
//! cargo run -p hipfile --example stream -- FILE [GPU]
//! HIPFILE_DEVICE=emulated cargo run ...        on a machine without a GPU
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports to its user")]

use std::error::Error;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use hipfile::{Buffer, Config, Driver, EventStatus, File, Job, Op, Stream};

/// Of no alignment, as data often is.
const PIECE: usize = 256 * 1024 + 100;
const PIECES: usize = 16;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (path, gpu) = match args.as_slice() {
        [path] => (path, "0"),
        [path, gpu] => (path, gpu.as_str()),
        _ => {
            eprintln!("usage: stream FILE [GPU]\nFILE is replaced.");
            return ExitCode::from(2);
        }
    };
    for streams in [1, 4] {
        if let Err(error) = round_trip(Path::new(path), gpu, streams) {
            eprintln!("stream: {error}");
            return ExitCode::FAILURE;
        }
        println!("OK {path} ({} bytes, there and back on {streams} streams)", PIECE * PIECES);
    }
    ExitCode::SUCCESS
}

fn round_trip(path: &Path, gpu: &str, count: usize) -> Result<(), Box<dyn Error>> {
    let driver = Driver::open(Config::from_env())?;
    let gpu = gpu.parse()?;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let file = Arc::new(File::register(&driver, file)?);
    let streams = (0..count).map(|_| Stream::new(&driver, gpu)).collect::<Result<Vec<_>, _>>()?;
    let mut pending = Vec::new();
    for number in 0..PIECES {
        let file_offset = (number * PIECE) as u64;
        let mut from = Buffer::alloc(&driver, gpu, PIECE)?;
        from.upload(0, &piece(number))?;
        let into = Buffer::alloc(&driver, gpu, PIECE)?;
        // On one stream: the read finds what the write before it has written.
        for (op, buffer) in [(Op::Write, from), (Op::Read, into)] {
            let job = Job { op, file: Arc::clone(&file), file_offset, buffer, range: 0..PIECE };
            pending.push(streams[number % count].submit(job).map_err(|(error, _)| error)?);
        }
    }
    for pending in pending {
        let finished = pending.wait();
        let number = finished.job.file_offset as usize / PIECE;
        match finished.status {
            EventStatus::Complete(PIECE) => {}
            EventStatus::Failed(error) => return Err(error.into()),
            other => return Err(format!("piece {number}: {other:?}").into()),
        }
        let mut bytes = vec![0; PIECE];
        finished.job.buffer.download(0, &mut bytes)?;
        if bytes != piece(number) {
            return Err(format!("piece {number} differs").into());
        }
    }
    Ok(())
}

/// Bytes that differ from piece to piece, so that one cannot pass for another.
fn piece(number: usize) -> Vec<u8> {
    (0..PIECE)
        .map(|i| ((number * PIECE + i) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0])
        .collect()
}
