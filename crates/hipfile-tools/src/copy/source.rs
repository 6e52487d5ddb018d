//! The file or object that is read: what it may be, and what was true of it when it was opened.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use hipfile::Driver;
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use super::object::{self, Object};
use crate::extents::Extents;
use crate::failure::Failure;

/// An open regular file, block device or object.
pub(super) struct Source {
    /// As the user gave it.
    pub(super) path: PathBuf,
    pub(super) stat: Stat,
    /// The size when it was opened; 0 for files that do not tell (/proc).
    pub(super) size: u64,
    /// Of an object, a file in memory that has its size and the mode of a new file, and nothing in it.
    fd: OwnedFd,
    object: Option<Object>,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::os(path, error);
        if let Some(url) = object::url(path) {
            return Self::of_object(path, object::open(url)?).map_err(failed);
        }
        // Asked before it is opened, because opening a FIFO waits for its other end, and asked again of what was opened.
        refuse(path, &rustix::fs::stat(path).map_err(failed)?)?;
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
            .map_err(failed)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        let kind = refuse(path, &stat)?;
        let size = match kind {
            FileType::BlockDevice => rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(failed)?,
            _ => stat.st_size.unsigned_abs(),
        };
        Ok(Self { path: path.to_owned(), stat, size, fd, object: None })
    }

    fn of_object(path: &Path, object: Object) -> Result<Self, Errno> {
        let fd = rustix::fs::memfd_create("object", MemfdFlags::CLOEXEC)?;
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o666))?;
        rustix::fs::ftruncate(&fd, object.size())?;
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Self { path: path.to_owned(), stat, size: object.size(), fd, object: Some(object) })
    }

    /// The descriptor is shared with the driver: both see the same open file.
    pub(super) fn register(&self, driver: &Driver) -> Result<hipfile::File, Failure> {
        if let Some(object) = &self.object {
            return object.register(driver);
        }
        let fd = self.fd.try_clone().map_err(|error| Failure::at(&self.path, error))?;
        hipfile::File::register(driver, fd).map_err(|error| Failure::at(&self.path, error))
    }

    /// For reading without the GPU.
    pub(super) fn reopen(&self) -> Result<Plain, Failure> {
        if let Some(object) = &self.object {
            return Ok(Plain::Object(object.clone()));
        }
        self.fd.try_clone().map(|fd| Plain::File(fd.into())).map_err(|error| Failure::at(&self.path, error))
    }

    /// Where it holds data.
    pub(super) fn extents(&self) -> Extents<'_> {
        match self.object {
            Some(_) => Extents::all_data(),
            None => Extents::new(self.fd.as_fd(), self.size),
        }
    }

    /// A read of it failed.
    pub(super) fn failed(&self, error: impl std::fmt::Display) -> Failure {
        match &self.object {
            Some(object) => object.failed(error),
            None => Failure::at(&self.path, error),
        }
    }

    /// What the progress bar calls it.
    pub(super) fn label(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }
}

/// One end, for reading without the GPU.
pub(super) enum Plain {
    File(File),
    Object(Object),
}

impl Plain {
    /// Where it holds data; `size` is how much there is to be.
    pub(super) fn extents(&self, size: u64) -> Extents<'_> {
        match self {
            Plain::File(file) => Extents::new(file.as_fd(), size),
            Plain::Object(_) => Extents::all_data(),
        }
    }

    /// Reads at an offset; fewer bytes are no end, none are.
    pub(super) fn read_at(&self, path: &Path, into: &mut [u8], offset: u64) -> Result<usize, Failure> {
        let file = match self {
            Plain::File(file) => file,
            Plain::Object(object) => return object.read_at(into, offset),
        };
        loop {
            match file.read_at(into, offset) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                result => return result.map_err(|error| Failure::at(path, error)),
            }
        }
    }
}

fn refuse(path: &Path, stat: &Stat) -> Result<FileType, Failure> {
    let kind = kind_of(stat);
    match kind {
        FileType::RegularFile | FileType::BlockDevice => Ok(kind),
        other => Err(Failure::at(
            path,
            format_args!("it is {}; only a file or a block device can be copied", name_of(other)),
        )),
    }
}

/// What makes two names the same file.
pub(super) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

pub(super) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The kind of a file in words.
pub(super) fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        _ => "of an unknown kind",
    }
}
