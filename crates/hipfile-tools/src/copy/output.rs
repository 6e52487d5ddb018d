//! The open destination: its size, its stable storage, its name. Where it came from is not known here.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::attributes::Attributes;
use super::object::{self, Object};
use super::seat::{Seat, Temporary};
use super::source::{Plain, Source, identity};
use crate::failure::{Failure, note, reason_of};
use crate::scratch;

/// The open destination. Dropped before [`Output::publish`], it removes what it created.
pub(super) struct Output {
    path: PathBuf,
    seat: Option<Seat>,
    fd: OwnedFd,
    pub(super) kind: FileType,
    /// What the descriptor names held data before: holes must be made, not left.
    pub(super) had_content: bool,
    /// What it is called until it is published.
    temporary: Temporary,
    attributes: Option<Attributes>,
    in_place: Option<String>,
    published: bool,
    pub(super) object: Option<Object>,
}

impl Output {
    /// A new file, to take the name of `seat`.
    pub(super) fn replacement(seat: Seat, fd: OwnedFd, temporary: Temporary, attributes: Attributes) -> Self {
        Self {
            path: seat.path.clone(),
            seat: Some(seat),
            fd,
            kind: FileType::RegularFile,
            had_content: false,
            temporary,
            attributes: Some(attributes),
            in_place: None,
            published: false,
            object: None,
        }
    }

    /// An object that is there when it is settled; `stands_for` is a file in memory.
    pub(super) fn object(path: PathBuf, stands_for: OwnedFd, object: Object) -> Self {
        Self {
            path,
            seat: None,
            fd: stands_for,
            kind: FileType::RegularFile,
            had_content: false,
            temporary: Temporary::Not,
            attributes: None,
            in_place: None,
            published: false,
            object: Some(object),
        }
    }

    /// A new file that has its name already.
    pub(super) fn new_in_place(seat: Seat, fd: OwnedFd, attributes: Attributes, reason: String) -> Self {
        Self {
            path: seat.path.clone(),
            seat: Some(seat),
            fd,
            kind: FileType::RegularFile,
            had_content: false,
            temporary: Temporary::Not,
            attributes: Some(attributes),
            in_place: Some(reason),
            published: false,
            object: None,
        }
    }

    /// A file, device or FIFO that was there before, and stays whatever happens.
    pub(super) fn existing(path: PathBuf, fd: OwnedFd, kind: FileType, reason: String) -> Self {
        Self {
            path,
            seat: None,
            fd,
            kind,
            had_content: true,
            temporary: Temporary::Not,
            attributes: None,
            in_place: Some(reason),
            published: true,
            object: None,
        }
    }

    /// Gives it the attributes that do not open it to others. The error says what cannot be given.
    pub(super) fn give_attributes(&self) -> Result<(), String> {
        self.attributes.as_ref().map_or(Ok(()), |attributes| attributes.give(&self.fd))
    }

    /// The file that is written in the end.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Why it is not replaced.
    pub(super) fn in_place(&self) -> Option<&str> {
        self.in_place.as_deref()
    }

    /// A second descriptor of the open file.
    pub(super) fn descriptor(&self) -> Result<OwnedFd, Failure> {
        self.fd.try_clone().map_err(|error| Failure::at(&self.path, error))
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A block device cannot grow.
    pub(super) fn refuse_too_small(&self, source: &Source) -> Result<(), Failure> {
        if self.kind != FileType::BlockDevice {
            return Ok(());
        }
        let capacity = rustix::fs::seek(&self.fd, rustix::fs::SeekFrom::End(0))
            .map_err(|error| Failure::os(&self.path, error))?;
        if capacity < source.size {
            let why = format_args!("it holds {capacity} bytes, the source has {}", source.size);
            return Err(Failure::at(&self.path, why));
        }
        Ok(())
    }

    /// Adds what a failure means for the content.
    pub(super) fn explain(&self, failure: Failure) -> Failure {
        match (self.had_content, &self.temporary) {
            (true, Temporary::Not) => {
                failure.and("the destination was being written in place and is incomplete")
            }
            _ => failure,
        }
    }

    /// All data is written: sets the size and the access rights, and brings both to stable storage.
    pub(super) fn settle(&self, size: u64) -> Result<(), Failure> {
        if let Some(object) = &self.object {
            return object.finish();
        }
        let failed = |error: Errno| Failure::os(&self.path, error);
        if self.kind == FileType::RegularFile {
            rustix::fs::ftruncate(&self.fd, size).map_err(failed)?;
        }
        if let Some(attributes) = &self.attributes {
            attributes.give_access(&self.fd).map_err(failed)?;
        }
        match rustix::fs::fsync(&self.fd) {
            // Pipes and some devices have nothing to bring anywhere.
            Err(Errno::INVAL | Errno::ROFS | Errno::OPNOTSUPP) if self.kind != FileType::RegularFile => {
                Ok(())
            }
            result => result.map_err(failed),
        }
    }

    /// The written file for reading without the GPU.
    pub(super) fn reopen(&self) -> Result<Plain, Failure> {
        if let (Some(_), Some(url)) = (&self.object, object::url(&self.path)) {
            return object::open(url).map(Plain::Object);
        }
        let failed = |error: Errno| Failure::os(&self.path, error);
        let readable = rustix::fs::fcntl_getfl(&self.fd).map_err(failed)?.contains(OFlags::RDWR);
        if readable {
            return Ok(Plain::File(self.descriptor()?.into()));
        }
        let fd =
            rustix::fs::open(&self.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        let same = identity(&rustix::fs::fstat(&fd).map_err(failed)?)
            == identity(&rustix::fs::fstat(&self.fd).map_err(failed)?);
        if same {
            Ok(Plain::File(fd.into()))
        } else {
            Err(Failure::at(&self.path, "another file took its name"))
        }
    }

    /// Gives the file its name, for good.
    pub(super) fn publish(&mut self) -> Result<(), Failure> {
        if let Some(seat) = &self.seat
            && !self.published
        {
            scratch::publish(|| seat.give_name(&self.fd, &self.temporary))
                .map_err(|error| Failure::os(&self.path, error))?;
            match rustix::fs::fsync(&seat.dir) {
                // Some directories cannot be synced (no right to open them, a file system without it).
                Ok(()) | Err(Errno::BADF | Errno::INVAL | Errno::OPNOTSUPP) => {}
                // The copy is there and complete, so this is no failure of the copy.
                Err(error) => note(format_args!(
                    "{}: after a power failure now the old content may be back: {}",
                    self.path.display(),
                    reason_of(error)
                )),
            }
        }
        self.published = true;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(object) = &self.object {
            object.discard();
        } else if !self.published {
            scratch::discard();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_and_without_a_temporary_name_it_takes_the_place_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("destination");
        let count = || std::fs::read_dir(folder.path()).unwrap().count();
        for there in [false, true] {
            for named in [true, false] {
                let _ = std::fs::remove_file(&path);
                if there {
                    std::fs::write(&path, "old").unwrap();
                }
                let seat = Seat::at(path.clone()).unwrap();
                let (fd, temporary) = if named {
                    let (fd, name) = seat.create_named().unwrap();
                    (fd, Temporary::Named(name))
                } else {
                    seat.create_temporary().unwrap()
                };
                let visible = usize::from(there) + usize::from(matches!(temporary, Temporary::Named(_)));
                assert_eq!(count(), visible);
                rustix::io::write(&fd, b"new").unwrap();
                let attributes = Attributes::of_source(&path, &rustix::fs::fstat(&fd).unwrap());
                let mut output = Output::replacement(seat, fd, temporary, attributes);
                output.settle(3).unwrap();
                output.publish().unwrap();
                drop(output);
                assert_eq!((std::fs::read(&path).unwrap(), count()), (b"new".to_vec(), 1));
            }
        }
    }
}
