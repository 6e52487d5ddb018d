//! Device memory to a file, to other device memory, to a second file; then both files are compared with what the device
//! memory held at the start. The C twin is `examples/c/roundtrip_verify.c`.
//!
//! ```text
//! cargo run -p hipfile --example roundtrip -- CREATED COPIED [GPU]
//! HIPFILE_DEVICE=emulated cargo run ...        on a machine without a GPU
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports to its user")]

use std::error::Error;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;

use hipfile::{Buffer, Config, Driver, File};

/// Ends in the middle of a block.
const SIZE: usize = 4 * 1024 * 1024 + 321;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (created, copied, gpu) = match args.as_slice() {
        [created, copied] => (created, copied, "0"),
        [created, copied, gpu] => (created, copied, gpu.as_str()),
        _ => {
            eprintln!("usage: roundtrip CREATED COPIED [GPU]\nBoth files are replaced.");
            return ExitCode::from(2);
        }
    };
    match round_trip(Path::new(created), Path::new(copied), gpu) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("roundtrip: {error}");
            ExitCode::FAILURE
        }
    }
}

fn round_trip(created: &Path, copied: &Path, gpu: &str) -> Result<(), Box<dyn Error>> {
    let driver = Driver::open(Config::from_env())?;
    let gpu = gpu.parse()?;
    let device = driver
        .devices()?
        .into_iter()
        .find(|device| device.ordinal == gpu)
        .ok_or_else(|| format!("there is no GPU {gpu}"))?;
    println!("GPU {gpu}: {}{}", device.name, if device.emulated { ", emulated" } else { "" });

    let pattern = pattern(SIZE);
    let mut first = Buffer::alloc(&driver, gpu, SIZE)?;
    let mut second = Buffer::alloc(&driver, gpu, SIZE)?;
    first.upload(0, &pattern)?;

    write_all(&driver, created, &first)?;
    read_all(&driver, created, &mut second)?;
    write_all(&driver, copied, &second)?;

    // Read without hipfile: the independent witness.
    let expected = fnv1a(&pattern);
    for path in [created, copied] {
        let bytes = std::fs::read(path)?;
        if bytes != pattern {
            return Err(format!(
                "{} differs: hash {:016x}, expected {expected:016x}",
                path.display(),
                fnv1a(&bytes)
            )
            .into());
        }
    }
    println!("OK {} == {} ({SIZE} bytes, hash {expected:016x})", created.display(), copied.display());
    Ok(())
}

fn write_all(driver: &Driver, path: &Path, from: &Buffer) -> Result<(), Box<dyn Error>> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let durable = file.try_clone()?;
    // The file now owns the descriptor; dropping it deregisters and closes.
    let file = File::register(driver, file)?;
    let mut done = 0;
    while done < from.len() {
        done += file.write_at(from, done..from.len(), done as u64)?;
    }
    // Written data is visible to every reader at once. That it survives a power cut is asked for separately.
    durable.sync_data()?;
    Ok(())
}

fn read_all(driver: &Driver, path: &Path, to: &mut Buffer) -> Result<(), Box<dyn Error>> {
    let file = File::register(driver, std::fs::File::open(path)?)?;
    let (mut done, len) = (0, to.len());
    while done < len {
        match file.read_at(to, done..len, done as u64)? {
            0 => return Err(format!("{} ends after {done} bytes", path.display()).into()),
            n => done += n,
        }
    }
    Ok(())
}

/// Bytes that differ from place to place, so that a shifted copy cannot pass for a right one.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
