//! The end of the pump that writes: device memory to a file or an object by the driver, or to a FIFO or a character device by way of host
//! memory. Holes are left, made or filled here.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use hipfile::{Buffer, Driver};
use rustix::fs::{FallocateFlags, FileType};
use rustix::io::Errno;

use super::object::Object;
use super::output::Output;
use crate::failure::Failure;

/// Zeros for holes that cannot be made.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Takes pieces in the order of their offsets.
pub(super) struct Sink {
    path: PathBuf,
    fd: OwnedFd,
    door: Door,
    holes: Holes,
    touched: bool,
}

enum Door {
    /// Written by the driver, at any offset.
    File(hipfile::File),
    /// The same, by way of the program's own functions.
    Object(hipfile::File, Object),
    /// No offsets, and nothing that a driver could be given: written by this process, from a copy in host memory.
    Pipe { host: Vec<u8>, written: u64 },
}

/// What is to be done where the source has a hole.
#[derive(Clone, Copy)]
enum Holes {
    /// Nothing: there is a hole already.
    Leave,
    /// Free what the old content had there.
    Punch,
    /// Write zeros.
    Fill,
}

impl Sink {
    pub(super) fn new(driver: &Driver, output: &Output) -> Result<Self, Failure> {
        let door = match (&output.object, output.kind) {
            (Some(object), _) => Door::Object(object.register(driver)?, object.clone()),
            (None, FileType::RegularFile | FileType::BlockDevice) => Door::File(
                hipfile::File::register(driver, output.descriptor()?)
                    .map_err(|error| Failure::at(output.path(), error))?,
            ),
            _ => Door::Pipe { host: Vec::new(), written: 0 },
        };
        let holes = match output.kind {
            FileType::RegularFile if output.had_content => Holes::Punch,
            FileType::RegularFile => Holes::Leave,
            _ => Holes::Fill,
        };
        Ok(Self { path: output.path().to_owned(), fd: output.descriptor()?, door, holes, touched: false })
    }

    /// Bytes that went past the driver, if it was not asked.
    pub(super) fn piped(&self) -> Option<u64> {
        match self.door {
            Door::File(_) | Door::Object(..) => None,
            Door::Pipe { written, .. } => Some(written),
        }
    }

    /// Whether the destination may have changed.
    pub(super) fn touched(&self) -> bool {
        self.touched
    }

    /// Writes the first `len` bytes of `buffer` at `offset`.
    pub(super) fn data(&mut self, buffer: &Buffer, len: usize, offset: u64) -> Result<(), Failure> {
        self.touched = true;
        match &mut self.door {
            Door::File(file) | Door::Object(file, _) => {
                let mut done = 0;
                // A short count means an error that the next call will show.
                while done < len {
                    match file.write_at(buffer, done..len, offset + done as u64) {
                        Ok(0) => {
                            return Err(Failure::at(
                                &self.path,
                                "nothing could be written, and no reason was given",
                            ));
                        }
                        Ok(written) => done += written,
                        Err(error) => {
                            return Err(match &self.door {
                                Door::Object(_, object) => object.failed(error),
                                _ => Failure::at(&self.path, error),
                            });
                        }
                    }
                }
                Ok(())
            }
            Door::Pipe { host, written } => {
                host.resize(host.len().max(len), 0);
                buffer.download(0, &mut host[..len]).map_err(|error| Failure::at(&self.path, error))?;
                write_all(&self.fd, &host[..len]).map_err(|error| Failure::os(&self.path, error))?;
                *written += len as u64;
                Ok(())
            }
        }
    }

    /// The source has `len` bytes of hole at `offset`.
    pub(super) fn hole(&mut self, offset: u64, len: u64) -> Result<(), Failure> {
        self.touched = true;
        if let Door::Object(_, object) = &self.door {
            return object.write_zeros(offset, len);
        }
        if let Holes::Punch = self.holes {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(&self.fd, mode, offset, len) {
                Ok(()) => return Ok(()),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.holes = Holes::Fill,
                Err(error) => return Err(self.failed(error)),
            }
        }
        match self.holes {
            Holes::Fill => self.fill(offset, len).map_err(|error| self.failed(error)),
            Holes::Leave | Holes::Punch => Ok(()),
        }
    }

    fn fill(&mut self, mut offset: u64, len: u64) -> Result<(), Errno> {
        let end = offset + len;
        while offset < end {
            let piece = &ZEROS[..ZEROS.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX))];
            offset += match &mut self.door {
                Door::File(_) | Door::Object(..) => match rustix::io::pwrite(&self.fd, piece, offset) {
                    Ok(0) => return Err(Errno::NOSPC),
                    Ok(written) => written as u64,
                    Err(Errno::INTR) => 0,
                    Err(error) => return Err(error),
                },
                Door::Pipe { written, .. } => {
                    write_all(&self.fd, piece)?;
                    *written += piece.len() as u64;
                    piece.len() as u64
                }
            };
        }
        Ok(())
    }

    fn failed(&self, error: Errno) -> Failure {
        Failure::os(&self.path, error)
    }
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
