//! The file that is read: what it may be, and what was true of it when it was opened.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use hipfile::Driver;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat};

use crate::failure::Failure;

/// An open regular file or block device.
pub(super) struct Source {
    /// As the user gave it.
    pub(super) path: PathBuf,
    pub(super) stat: Stat,
    /// The size when it was opened; 0 for files that do not tell (/proc).
    pub(super) size: u64,
    fd: OwnedFd,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::os(path, error);
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
        Ok(Self { path: path.to_owned(), stat, size, fd })
    }

    /// The descriptor is shared with the driver: both see the same open file.
    pub(super) fn register(&self, driver: &Driver) -> Result<hipfile::File, Failure> {
        let fd = self.fd.try_clone().map_err(|error| Failure::at(&self.path, error))?;
        hipfile::File::register(driver, fd).map_err(|error| Failure::at(&self.path, error))
    }

    /// For reading without the GPU.
    pub(super) fn reopen(&self) -> Result<File, Failure> {
        self.fd.try_clone().map(File::from).map_err(|error| Failure::at(&self.path, error))
    }

    /// What the progress bar calls it.
    pub(super) fn label(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
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
