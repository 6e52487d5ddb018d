//! Device memory that Python owns: for tests, for laptops, and for code that brings no array library. It moves bytes
//! between host and device, never files.

use std::sync::{Mutex, PoisonError};

use hipfile::{Buffer, Driver};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::ForPython;
use crate::global;
use crate::numbers::{Ordinal, Size};
use crate::views::HostView;

/// Bytes of the host that are copied at a time.
const PIECE: usize = 4 << 20;

/// Device memory, freed with the object.
#[pyclass(frozen, module = "hipfile._core")]
pub(crate) struct DeviceMemory {
    /// Locked with the interpreter released only.
    buffer: Mutex<Option<Buffer>>,
    /// The address.
    #[pyo3(get)]
    ptr: usize,
    /// The size in bytes.
    #[pyo3(get)]
    nbytes: usize,
    /// The number of the GPU.
    #[pyo3(get)]
    device: u32,
    /// Whether the GPU is the emulated one.
    #[pyo3(get)]
    emulated: bool,
    forks: u64,
}

impl DeviceMemory {
    fn make(driver: &Driver, nbytes: usize, device: u32) -> hipfile::Result<DeviceMemory> {
        let buffer = Buffer::alloc(driver, device, nbytes)?;
        // It is for the user to register, with the driver that transfers are made by.
        driver.deregister_buffer(buffer.ptr())?;
        let emulated = driver.devices()?.iter().any(|known| known.ordinal == device && known.emulated);
        let ptr = buffer.ptr().0;
        Ok(DeviceMemory {
            buffer: Mutex::new(Some(buffer)),
            ptr,
            nbytes,
            device,
            emulated,
            forks: global::forks(),
        })
    }

    fn check(&self, py: Python<'_>, offset: usize, nbytes: usize) -> PyResult<()> {
        if self.forks != global::forks() {
            // Its lock may be held for ever, and the runtime does not serve here.
            return Err(global::of_parent(py, "the memory of the GPU"));
        }
        if offset.checked_add(nbytes).is_some_and(|end| end <= self.nbytes) {
            return Ok(());
        }
        let whole = self.nbytes;
        Err(PyValueError::new_err(format!("{nbytes} bytes at {offset} leave the memory of {whole} bytes")))
    }
}

#[pymethods]
impl DeviceMemory {
    /// `nbytes` bytes, at least 1, on a GPU; not registered.
    #[new]
    fn new(py: Python<'_>, nbytes: Size, device: Ordinal) -> PyResult<DeviceMemory> {
        let driver = global::allocating().for_python(py)?;
        py.detach(|| DeviceMemory::make(&driver, nbytes.0, device.0)).for_python(py)
    }

    /// Copies host bytes to `offset`.
    fn upload(&self, py: Python<'_>, offset: Size, data: &HostView) -> PyResult<()> {
        let offset = offset.0;
        self.check(py, offset, data.len())?;
        let mut piece = vec![0; data.len().min(PIECE)];
        for at in (0..data.len()).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(data.len() - at)];
            data.copy(at, piece)?;
            let copied = py.detach(|| {
                let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
                buffer.as_mut().map_or(Ok(()), |buffer| buffer.upload(offset + at, piece))
            });
            copied.for_python(py)?;
        }
        Ok(())
    }

    /// `nbytes` bytes from `offset` on.
    fn download<'py>(&self, py: Python<'py>, offset: Size, nbytes: Size) -> PyResult<Bound<'py, PyBytes>> {
        let (offset, nbytes) = (offset.0, nbytes.0);
        self.check(py, offset, nbytes)?;
        PyBytes::new_with(py, nbytes, |to| {
            let copied = py.detach(|| {
                let buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
                buffer.as_ref().map_or(Ok(()), |buffer| buffer.download(offset, to))
            });
            copied.for_python(py)
        })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let buffer = self.buffer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if global::is_exiting() || self.forks != global::forks() {
            // The GPU's runtime may be gone already, and the process's end frees the memory; in a child it is the parent's.
            return std::mem::forget(buffer);
        }
        // Freeing waits for the GPU.
        Python::attach(|py| py.detach(|| drop(buffer)));
    }
}
