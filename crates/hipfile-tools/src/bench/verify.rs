//! Whether the right bytes arrived: device memory against the file after a read, the file against device memory after a write. The
//! clock stands still meanwhile. It trusts the kernel's plain pread and the runtime's plain copies.

use std::os::fd::OwnedFd;

use bench_support::Request;
use hipfile::Buffer;
use rustix::io::Errno;

use super::cache::quiet_reader;
use super::job::Job;
use super::subject::{Subject, pattern};
use crate::failure::{Failure, reason_of};

/// Bytes compared at a time.
const PIECE: usize = 4 << 20;

/// Checks the calls of one thread.
pub(super) struct Verifier {
    /// Reads no more than asked for, so that a cold file stays cold but for what was read already.
    reader: OwnedFd,
    writes: bool,
    seed: u64,
    in_file: Vec<u8>,
    in_device: Vec<u8>,
}

impl Verifier {
    /// `seed` makes the bytes of one round differ from those of the round before.
    pub(super) fn new(subject: &Subject, job: &Job, seed: u64) -> Result<Verifier, Failure> {
        let reader = quiet_reader(subject).map_err(|error| Failure::os(&subject.path, error))?;
        let piece = PIECE.min(job.block);
        let (in_file, in_device) = (vec![0; piece], vec![0; piece]);
        Ok(Verifier { reader, writes: job.mix.writes(), seed: seed + 1, in_file, in_device })
    }

    /// Before a call: puts bytes into device memory that are nowhere else yet.
    pub(super) fn before(&mut self, buffer: &mut Buffer, request: Request) -> Result<(), Failure> {
        for (at, len) in pieces(request) {
            let bytes = &mut self.in_device[..len];
            // A read must overwrite them: they are the file's bytes of no place.
            let seed = if self.writes { self.seed } else { u64::MAX - self.seed };
            pattern(bytes, request.offset + at as u64, seed);
            buffer.upload(at, bytes).map_err(|error| Failure::new("--verify: device copy", error))?;
        }
        Ok(())
    }

    /// After a call: compares.
    pub(super) fn after(&mut self, buffer: &Buffer, request: Request) -> Result<(), Failure> {
        for (at, len) in pieces(request) {
            let offset = request.offset + at as u64;
            let (in_file, in_device) = (&mut self.in_file[..len], &mut self.in_device[..len]);
            read(&self.reader, in_file, offset)?;
            match self.writes {
                true => pattern(in_device, offset, self.seed),
                false => buffer
                    .download(at, in_device)
                    .map_err(|error| Failure::new("--verify: device copy", error))?,
            }
            if let Some(first) = in_file.iter().zip(in_device.iter()).position(|(a, b)| a != b) {
                let place = offset + first as u64;
                let side = if self.writes {
                    "the file does not hold what was written"
                } else {
                    "the GPU does not hold the file's bytes"
                };
                let call = format_args!("in the call of {} bytes at {}", request.len, request.offset);
                return Err(Failure::new(
                    "--verify",
                    format_args!("{side}: first at offset {place}, {call}"),
                ));
            }
        }
        Ok(())
    }
}

fn pieces(request: Request) -> impl Iterator<Item = (usize, usize)> {
    (0..request.len).step_by(PIECE).map(move |at| (at, PIECE.min(request.len - at)))
}

fn read(file: &OwnedFd, bytes: &mut [u8], offset: u64) -> Result<(), Failure> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(file, &mut bytes[done..], offset + done as u64) {
            Ok(0) => return Err(Failure::new("--verify", "the file ends before the bytes that were moved")),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(error) => return Err(Failure::new("--verify: file", reason_of(error))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;
    use std::sync::Arc;

    use hipfile::{Config, DeviceChoice, Driver};

    use super::super::job::Mix;
    use super::super::movers::{Library, Mover as _};
    use super::*;

    const LEN: usize = 3 * 4096 + 5;

    #[test]
    fn one_wrong_byte_is_found_wherever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut content = vec![0; 10 + LEN];
        pattern(&mut content, 0, 0);
        std::fs::write(&path, &content).unwrap();
        let mut config = Config::default();
        config.device = DeviceChoice::Emulated;
        let driver = Driver::open(config).unwrap();
        for mix in [Mix::Read, Mix::Write] {
            for at in [None, Some(0), Some(4096), Some(LEN - 1)] {
                let subject = Subject::open(&path, true).unwrap();
                let file = subject.reopen().unwrap();
                let mut library = Library {
                    file: Arc::new(hipfile::File::register(&driver, file).unwrap()),
                    buffer: Buffer::alloc(&driver, 0, LEN).unwrap(),
                    direction: mix.direction(),
                };
                let job = Job { mix, ..Job::read(LEN as u64, LEN) };
                let mut verifier = Verifier::new(&subject, &job, 5).unwrap();
                let request = Request { offset: 10, len: LEN };
                verifier.before(&mut library.buffer, request).unwrap();
                assert_eq!(library.call(0, request).unwrap(), LEN);
                let other: std::fs::File = subject.reopen().unwrap().into();
                let mut byte = [0];
                match (at, mix.writes()) {
                    (None, _) => {}
                    (Some(at), false) => {
                        library.buffer.download(at, &mut byte).unwrap();
                        library.buffer.upload(at, &[!byte[0]]).unwrap();
                    }
                    (Some(at), true) => {
                        other.read_exact_at(&mut byte, 10 + at as u64).unwrap();
                        other.write_all_at(&[!byte[0]], 10 + at as u64).unwrap();
                    }
                }
                let outcome = verifier.after(&library.buffer, request).map_err(|failure| failure.to_string());
                match at {
                    None => assert_eq!(outcome, Ok(())),
                    Some(at) => {
                        let place = format!("first at offset {},", 10 + at);
                        assert!(outcome.as_ref().unwrap_err().contains(&place), "{outcome:?}");
                    }
                }
            }
        }
    }
}
