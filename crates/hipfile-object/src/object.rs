//! One object as a file of the library. How it is read and written is in the modules of these names.

use std::sync::{Arc, Mutex, PoisonError};

use hipfile::{Driver, File, Op, UserFs};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::objects::Shared;
use crate::read::Reader;
use crate::write::Writer;

/// An object that is read, or one that is written. Cheap to clone: both are the same object.
#[derive(Clone, Debug)]
pub struct Object(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    shared: Arc<Shared>,
    way: Way,
    last: Mutex<Option<Error>>,
}

#[derive(Debug)]
enum Way {
    In(Reader),
    Out(Writer),
}

impl From<Arc<Inner>> for Object {
    fn from(inner: Arc<Inner>) -> Object {
        Object(inner)
    }
}

impl Object {
    pub(crate) fn reading(shared: &Arc<Shared>, reader: Reader) -> Object {
        Object::new(shared, Way::In(reader))
    }

    pub(crate) fn writing(shared: &Arc<Shared>, writer: Writer) -> Object {
        Object::new(shared, Way::Out(writer))
    }

    fn new(shared: &Arc<Shared>, way: Way) -> Object {
        Object(Arc::new(Inner { shared: Arc::clone(shared), way, last: Mutex::default() }))
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        match &self.0.way {
            Way::In(reader) => reader.url(),
            Way::Out(writer) => writer.url(),
        }
    }

    /// How long it is; for one that is being written, how long it would be if it ended now.
    pub fn size(&self) -> u64 {
        match &self.0.way {
            Way::In(reader) => reader.size(),
            Way::Out(writer) => writer.size(),
        }
    }

    /// Registers it as a file of the driver: its descriptor is a file in memory that stands for it, without a byte of it.
    /// [`Objects::of_file`](crate::Objects::of_file) finds it by the handle.
    ///
    /// # Errors
    /// No descriptor is to be had, or as [`Driver::register_user_file`].
    pub fn register(&self, driver: &Driver) -> Result<File> {
        let failed = |error: Errno| Error::new(self.url(), error.raw_os_error(), error);
        let stands_for = rustix::fs::memfd_create("hipfile-object", MemfdFlags::CLOEXEC).map_err(failed)?;
        // So that whoever asks the descriptor for the size gets the object's.
        rustix::fs::ftruncate(&stands_for, self.size()).map_err(failed)?;
        let file = File::register_user(driver, stands_for, Arc::new(self.clone())).map_err(|error| {
            Error::new(self.url(), error.os_error().unwrap_or(Errno::IO.raw_os_error()), error)
        })?;
        self.0.shared.enter(file.id(), &self.0);
        Ok(file)
    }

    /// Why the last transfer failed, in the words of the store. Transfers themselves say an errno only.
    pub fn last_error(&self) -> Option<Error> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the writing: waits for all parts and has the store put them together. What was not written below the end is zeros.
    /// Nothing can be written after it.
    ///
    /// # Errors
    /// A part was not taken, now or earlier; then there is no object, or still the old one. EBADF for an object that is read.
    pub fn finish(&self) -> Result<()> {
        match &self.0.way {
            Way::Out(writer) => writer.finish(),
            Way::In(reader) => Err(Error::new(reader.url(), EBADF, "it is open for reading")),
        }
    }

    /// Gives the writing up, and has the store forget the parts it got. Dropping the last clone before
    /// [`finish`](Self::finish) does the same. For an object that is read it does nothing.
    pub fn discard(&self) {
        if let Way::Out(writer) = &self.0.way {
            writer.discard();
        }
    }

    /// Zeros from `offset` on, so many. Only needed where they are many: what is never written is zeros too, but no more than
    /// twice [`Options::parallel`](crate::Options::parallel) parts may be begun.
    ///
    /// # Errors
    /// As writes.
    pub fn write_zeros(&self, offset: u64, len: u64) -> Result<()> {
        match &self.0.way {
            Way::Out(writer) => writer.write_zeros(offset, len),
            Way::In(reader) => Err(Error::new(reader.url(), EBADF, "it is open for reading")),
        }
    }

    fn told<T>(&self, result: Result<T>) -> std::result::Result<T, i32> {
        result.map_err(|error| {
            let errno = error.errno();
            tracing::warn!(object = self.url(), error = %error, "a transfer failed");
            *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            errno
        })
    }
}

const EBADF: i32 = Errno::BADF.raw_os_error();

impl UserFs for Object {
    fn name(&self) -> String {
        "objects".into()
    }

    /// Both, or the wrong one would go to the descriptor.
    fn serves(&self, _: Op) -> bool {
        true
    }

    fn read(&self, into: &mut [u8], offset: u64) -> std::result::Result<usize, i32> {
        self.told(match &self.0.way {
            Way::In(reader) => reader.read(into, offset),
            Way::Out(writer) => {
                Err(Error::new(writer.url(), EBADF, "it is being written, so it cannot be read"))
            }
        })
    }

    fn write(&self, from: &[u8], offset: u64) -> std::result::Result<usize, i32> {
        self.told(match &self.0.way {
            Way::Out(writer) => writer.write(from, offset),
            Way::In(reader) => Err(Error::new(reader.url(), EBADF, "it is open for reading")),
        })
    }
}
