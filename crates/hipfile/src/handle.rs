//! Owned handles for Rust programs: a registered file, a registered or allocated buffer. They add lifetimes, no rules.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::buffer::{BufferRecord, DevPtr, Place};
use crate::config::PageCache;
use crate::driver::{Driver, FileId};
use crate::error::{Error, ErrorKind, Result};
use crate::info::FileInfo;
use crate::rangemap::Ranged;
use crate::user_fs::UserFs;

/// A registered file that owns its descriptor. Deregistered and closed when dropped.
#[derive(Debug)]
pub struct File {
    driver: Driver,
    id: FileId,
    fd: Option<OwnedFd>,
}

impl File {
    /// Registers a file.
    ///
    /// # Errors
    /// As [`Driver::register_file`].
    pub fn register(driver: &Driver, file: impl Into<OwnedFd>) -> Result<File> {
        let fd = file.into();
        let id = driver.register_file(fd.as_raw_fd())?;
        Ok(File { driver: driver.clone(), id, fd: Some(fd) })
    }

    /// Registers a file on a file system of the program's own; `stands_for` is the descriptor that stands for it.
    ///
    /// # Errors
    /// As [`Driver::register_user_file`].
    pub fn register_user(
        driver: &Driver,
        stands_for: impl Into<OwnedFd>,
        fs: Arc<dyn UserFs>,
    ) -> Result<File> {
        let fd = stands_for.into();
        let id = driver.register_user_file(fd.as_raw_fd(), fs)?;
        Ok(File { driver: driver.clone(), id, fd: Some(fd) })
    }

    /// Its id, for the driver's own verbs.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Reads `buffer_range.len()` bytes at `file_offset` into that range of the buffer. Fewer come back only at end of
    /// file, above [`MAX_TRANSFER`](crate::MAX_TRANSFER) bytes, or when an error came after them.
    ///
    /// # Errors
    /// As [`Driver::read`].
    pub fn read_at(
        &self,
        buffer: &mut Buffer,
        buffer_range: Range<usize>,
        file_offset: u64,
    ) -> Result<usize> {
        let (len, offset) = parts("read", &buffer_range, file_offset)?;
        // SAFETY: the buffer is borrowed exclusively for the call and keeps its memory valid.
        unsafe { self.driver.read(self.id, buffer.ptr, len, offset, buffer_range.start as i64) }
    }

    /// Writes that range of the buffer at `file_offset`.
    ///
    /// # Errors
    /// As [`Driver::write`].
    pub fn write_at(&self, buffer: &Buffer, buffer_range: Range<usize>, file_offset: u64) -> Result<usize> {
        let (len, offset) = parts("write", &buffer_range, file_offset)?;
        // SAFETY: the buffer is borrowed for the call and keeps its memory valid; a write only reads it.
        unsafe { self.driver.write(self.id, buffer.ptr, len, offset, buffer_range.start as i64) }
    }

    /// Gives the file a page cache setting of its own, or with `None` the driver's again.
    ///
    /// # Errors
    /// `HandleNotRegistered` after the driver was closed.
    pub fn set_page_cache(&self, setting: Option<PageCache>) -> Result<()> {
        self.driver.set_page_cache(self.id, setting)
    }

    /// What is known about it.
    ///
    /// # Errors
    /// `HandleNotRegistered` after the driver was closed.
    pub fn info(&self) -> Result<FileInfo> {
        self.driver.file_info(self.id)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Some(fd) => fd.as_fd(),
            None => unreachable!("the descriptor leaves only when the file is dropped"),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // No transfer can be under way: each borrows the file. After a close of the driver there is nothing to end.
        let _ = self.driver.deregister_file(self.id);
    }
}

fn parts(op: &'static str, range: &Range<usize>, file_offset: u64) -> Result<(usize, i64)> {
    let len = range.end.checked_sub(range.start).ok_or_else(|| {
        let why = format!("the range {}..{} ends before it starts", range.start, range.end);
        Error::message(ErrorKind::InvalidValue, op, why)
    })?;
    let too_far = |_| Error::os_because(op, libc::EINVAL, format!("file offset {file_offset} is too large"));
    Ok((len, i64::try_from(file_offset).map_err(too_far)?))
}

/// Registered GPU memory: allocated and owned, or registered over memory of the caller's.
#[derive(Debug)]
pub struct Buffer {
    driver: Driver,
    ptr: DevPtr,
    len: usize,
    place: Place,
    owned: bool,
}

impl Buffer {
    /// Allocates `len` bytes (at least 1) on a GPU and registers them; freed when dropped.
    ///
    /// # Errors
    /// `DeviceNotFound`, `HipDriverError` with the runtime's code, or why no runtime serves.
    pub fn alloc(driver: &Driver, ordinal: u32, len: usize) -> Result<Buffer> {
        if len == 0 {
            return Err(Error::message(
                ErrorKind::InvalidValue,
                "allocate",
                "a buffer has at least one byte",
            ));
        }
        let device = driver.inner.devices().first()?;
        let ptr = device.alloc(ordinal, len)?;
        // SAFETY: the memory was just allocated and is freed only after it is deregistered.
        if let Err(error) = unsafe { driver.register_buffer(ptr, len, 0) } {
            let _ = device.free(ordinal, ptr);
            return Err(error);
        }
        let place = Place::of(device, ordinal);
        Ok(Buffer { driver: driver.clone(), ptr, len, place, owned: true })
    }

    /// Registers GPU memory of the caller's; deregistered when dropped, not freed.
    ///
    /// # Errors
    /// As [`Driver::register_buffer`].
    ///
    /// # Safety
    /// The memory must stay valid, and not be accessed in a conflicting way, until the buffer is dropped.
    pub unsafe fn register(driver: &Driver, ptr: DevPtr, len: usize) -> Result<Buffer> {
        // SAFETY: passed on to the caller.
        unsafe { driver.register_buffer(ptr, len, 0) }?;
        let place = driver
            .inner
            .place_of(ptr)
            .ok_or_else(|| Error::new(ErrorKind::MemoryNotRegistered, "register buffer"))?;
        Ok(Buffer { driver: driver.clone(), ptr, len, place, owned: false })
    }

    /// Its address.
    pub fn ptr(&self) -> DevPtr {
        self.ptr
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its memory as transfers know it, on a device of the test's choice.
    #[cfg(test)]
    pub(crate) fn record(&self, place: Place) -> BufferRecord {
        // SAFETY: tests keep the buffer for as long.
        unsafe { BufferRecord::new(self.ptr.0, self.len, place) }
    }

    /// The GPU it lies on; `None` for host memory.
    pub fn ordinal(&self) -> Option<u32> {
        match &self.place {
            Place::Device { ordinal, .. } => Some(*ordinal),
            Place::Host => None,
        }
    }

    /// Copies host bytes into the buffer.
    ///
    /// # Errors
    /// `InvalidValue` when they do not fit, `IONotSupported` for host memory, or the runtime's error.
    pub fn upload(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        const OP: &str = "upload";
        self.with_span(OP, offset, bytes.len(), |device, span| device.upload(span, bytes))
    }

    /// Copies bytes of the buffer to the host.
    ///
    /// # Errors
    /// As [`Buffer::upload`].
    pub fn download(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        const OP: &str = "download";
        let len = bytes.len();
        self.with_span(OP, offset, len, |device, span| device.download(span, bytes))
    }

    fn with_span(
        &self,
        op: &'static str,
        offset: usize,
        len: usize,
        copy: impl FnOnce(&dyn crate::device::Device, &crate::buffer::Span<'_>) -> Result<()>,
    ) -> Result<()> {
        if self.driver.in_forked_child() {
            return Err(Error::message(ErrorKind::DriverClosing, op, "the buffer was made before fork"));
        }
        let Place::Device { device, .. } = &self.place else {
            return Err(Error::message(ErrorKind::IONotSupported, op, "the buffer is host memory"));
        };
        // SAFETY: the buffer keeps the memory valid, and is borrowed as the direction of the copy needs it.
        let record = unsafe { BufferRecord::new(self.ptr.0, self.len, self.place.clone()) };
        let Some(span) = record.span(offset, len) else {
            let why = format!("{len} bytes at {offset} leave the buffer of {} bytes", record.len());
            return Err(Error::message(ErrorKind::InvalidValue, op, why));
        };
        if len == 0 {
            return Ok(());
        }
        copy(device.as_ref(), &span)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.driver.in_forked_child() {
            return;
        }
        let _ = self.driver.deregister_buffer(self.ptr);
        if let (true, Place::Device { device, ordinal, .. }) = (self.owned, &self.place) {
            let _ = device.free(*ordinal, self.ptr);
        }
    }
}
