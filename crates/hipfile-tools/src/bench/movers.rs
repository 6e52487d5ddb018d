//! Those who move bytes call by call: the library, and the baselines that stand for what else one could do. Each does one
//! request at a time on the thread that asks; who asks for what, and the clock, are elsewhere.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use bench_support::{Direction, FreshPages, HugePages, Request};
use hipfile::Buffer;
use rustix::io::Errno;

use crate::failure::{Failure, reason_of};

/// AMD's staging memory: so much is mapped for every call, however short it is.
const AMD_CHUNK: usize = 16 << 20;

/// Moves one request after the other, for one thread.
pub(super) trait Mover: Send {
    /// Moves a request, or its beginning; 0 at the end of the file. `at` is the place in device memory.
    fn call(&mut self, at: usize, request: Request) -> Result<usize, Failure>;

    /// The device memory it works on, for those that have some.
    fn buffer(&mut self) -> Option<&mut Buffer> {
        None
    }
}

/// The library itself.
pub(super) struct Library {
    pub(super) file: Arc<hipfile::File>,
    pub(super) buffer: Buffer,
    pub(super) direction: Direction,
}

impl Mover for Library {
    fn call(&mut self, at: usize, request: Request) -> Result<usize, Failure> {
        let range = at..at + request.len;
        match self.direction {
            Direction::Read => self.file.read_at(&mut self.buffer, range, request.offset),
            Direction::Write => self.file.write_at(&self.buffer, range, request.offset),
        }
        .map_err(|error| Failure::new("hipfile", error))
    }

    fn buffer(&mut self) -> Option<&mut Buffer> {
        Some(&mut self.buffer)
    }
}

/// The scheme of AMD's library for files without a direct path: memory mapped for each call, one chunk at a time through it
/// and the page cache, each written chunk synced.
pub(super) struct Serial {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) buffer: Buffer,
    pub(super) direction: Direction,
}

impl Mover for Serial {
    fn call(&mut self, at: usize, request: Request) -> Result<usize, Failure> {
        let mut staging =
            FreshPages::map(AMD_CHUNK).map_err(|error| Failure::new("serial: staging memory", error))?;
        let mut moved = 0;
        while moved < request.len {
            let chunk = &mut staging[..AMD_CHUNK.min(request.len - moved)];
            let (offset, at) = (request.offset + moved as u64, at + moved);
            let n = match self.direction {
                Direction::Read => {
                    let n = again(|| rustix::io::pread(&self.fd, &mut *chunk, offset))?;
                    copied(self.buffer.upload(at, &chunk[..n]))?;
                    n
                }
                Direction::Write => {
                    copied(self.buffer.download(at, chunk))?;
                    let n = again(|| rustix::io::pwrite(&self.fd, &*chunk, offset))?;
                    again(|| rustix::fs::fdatasync(&self.fd))?;
                    n
                }
            };
            if n == 0 {
                break;
            }
            moved += n;
        }
        Ok(moved)
    }
}

/// One system call through the page cache and one copy, with memory that is always the same.
pub(super) struct Posix {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) staging: HugePages,
    pub(super) buffer: Buffer,
    pub(super) direction: Direction,
}

impl Mover for Posix {
    fn call(&mut self, at: usize, request: Request) -> Result<usize, Failure> {
        let staging = &mut self.staging[..request.len];
        match self.direction {
            Direction::Read => {
                let n = again(|| rustix::io::pread(&self.fd, &mut *staging, request.offset))?;
                copied(self.buffer.upload(at, &staging[..n]))?;
                Ok(n)
            }
            Direction::Write => {
                copied(self.buffer.download(at, staging))?;
                again(|| rustix::io::pwrite(&self.fd, &*staging, request.offset))
            }
        }
    }
}

/// As [`Posix`], but with a second piece of host memory in place of the device's: pread and memcpy, no runtime at all.
pub(super) struct Host {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) staging: HugePages,
    pub(super) memory: HugePages,
    pub(super) direction: Direction,
}

impl Mover for Host {
    fn call(&mut self, at: usize, request: Request) -> Result<usize, Failure> {
        let staging = &mut self.staging[..request.len];
        let memory = &mut self.memory[at..at + request.len];
        match self.direction {
            Direction::Read => {
                let n = again(|| rustix::io::pread(&self.fd, &mut *staging, request.offset))?;
                memory[..n].copy_from_slice(&staging[..n]);
                std::hint::black_box(memory);
                Ok(n)
            }
            Direction::Write => {
                staging.copy_from_slice(memory);
                again(|| rustix::io::pwrite(&self.fd, &*staging, request.offset))
            }
        }
    }
}

/// The copy between host and device alone, from and to memory that is always the same.
pub(super) struct Copy {
    pub(super) staging: HugePages,
    pub(super) buffer: Buffer,
    pub(super) direction: Direction,
}

impl Mover for Copy {
    fn call(&mut self, at: usize, request: Request) -> Result<usize, Failure> {
        let staging = &mut self.staging[..request.len];
        copied(match self.direction {
            Direction::Read => self.buffer.upload(at, staging),
            Direction::Write => self.buffer.download(at, staging),
        })?;
        Ok(request.len)
    }
}

/// One system call past the page cache and no copy. Offsets and lengths must be aligned.
pub(super) struct Direct {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) staging: HugePages,
    pub(super) direction: Direction,
}

impl Mover for Direct {
    fn call(&mut self, _at: usize, request: Request) -> Result<usize, Failure> {
        let staging = &mut self.staging[..request.len];
        match self.direction {
            Direction::Read => again(|| rustix::io::pread(self.fd.as_fd(), &mut *staging, request.offset)),
            Direction::Write => again(|| rustix::io::pwrite(self.fd.as_fd(), &*staging, request.offset)),
        }
    }
}

fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> Result<T, Failure> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other.map_err(|error| Failure::new("file", reason_of(error))),
        }
    }
}

fn copied(result: hipfile::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| Failure::new("device copy", error))
}
