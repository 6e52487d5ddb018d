//! What an object says about its memory: by the buffer protocol, or in a DLPack capsule. It looks and keeps the memory
//! alive; what is acceptable is decided by the Python half.

use core::ffi::{CStr, c_void};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyMemoryView};

/// Host memory of an object with the buffer protocol, which cannot be resized or freed while this lives.
#[pyclass(frozen, module = "hipfile._core")]
pub(crate) struct HostView {
    buffer: PyUntypedBuffer,
}

impl HostView {
    /// The size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len_bytes()
    }

    /// Whether the elements lie one after the other, in C order.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.buffer.is_c_contiguous()
    }

    /// Copies the bytes from `at` on, as many as there is room for. Of the contiguous ones only.
    pub(crate) fn copy(&self, at: usize, to: &mut [u8]) -> PyResult<()> {
        let inside = at.checked_add(to.len()).is_some_and(|end| end <= self.len());
        if !inside || !self.is_contiguous() {
            return Err(PyValueError::new_err("these bytes are not there"));
        }
        let start = self.buffer.buf_ptr().cast::<u8>().cast_const();
        // SAFETY: it lies in the exporter's memory, by the check above.
        let from = unsafe { start.add(at) };
        // SAFETY: the exporter keeps that many bytes there while this lives, and `to` is none of them. Threads that write to
        // them meanwhile have themselves to blame, as with every copy that Python makes of a buffer.
        unsafe { core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        Ok(())
    }
}

#[pymethods]
impl HostView {
    /// Raises BufferError or TypeError for an object without the protocol.
    #[new]
    fn new(object: &Bound<'_, PyAny>) -> PyResult<HostView> {
        // Some exporters leave strides out where there is but one order; a memoryview puts them in.
        let view = PyMemoryView::from(object)?;
        Ok(HostView { buffer: PyUntypedBuffer::get(&view)? })
    }

    /// The address of the first element.
    #[getter]
    fn ptr(&self) -> usize {
        self.buffer.buf_ptr().addr()
    }

    /// The size in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.buffer.len_bytes()
    }

    /// Whether it may not be written to.
    #[getter]
    fn readonly(&self) -> bool {
        self.buffer.readonly()
    }

    /// Whether the elements lie one after the other, in C order.
    #[getter]
    fn contiguous(&self) -> bool {
        self.buffer.is_c_contiguous()
    }

    /// What an element is, as the module struct writes it.
    #[getter]
    fn format(&self) -> String {
        self.buffer.format().to_string_lossy().into_owned()
    }

    /// Elements by dimension.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.buffer.shape().to_vec()
    }

    /// Bytes from one element to the next by dimension.
    #[getter]
    fn strides(&self) -> Vec<isize> {
        self.buffer.strides().to_vec()
    }
}

/// DLPack's `DLTensor`, as its header has it since version 0.2.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensorVersioned` up to the tensor.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
/// The layout that this module knows.
const MAJOR: u32 = 1;
const READ_ONLY: u64 = 1;
/// More dimensions than any library has; a larger number is a damaged capsule.
const MOST_DIMENSIONS: i32 = 64;

/// What a DLPack capsule says. The capsule is not consumed: it frees the tensor when this and it are gone.
#[pyclass(frozen, get_all, module = "hipfile._core")]
pub(crate) struct DlpackView {
    /// The address of the first element.
    ptr: usize,
    /// DLPack's number for the kind of device.
    device_type: i32,
    /// The number of the device among its kind.
    device_id: i32,
    /// Bits of one element.
    bits: u32,
    /// DLPack's number for the kind of element.
    code: u8,
    /// Elements by dimension.
    shape: Vec<i64>,
    /// Elements from one to the next by dimension; None when they lie in C order.
    strides: Option<Vec<i64>>,
    /// Whether it says that it may not be written to. Capsules without a version do not say.
    readonly: bool,
    /// Keeps the memory.
    capsule: Py<PyCapsule>,
}

/// # Safety
/// `from` is null or points to `ndim` numbers.
unsafe fn numbers(from: *const i64, ndim: i32) -> Option<Vec<i64>> {
    if ndim == 0 {
        return Some(Vec::new());
    }
    if from.is_null() {
        return None;
    }
    // SAFETY: passed on to the caller; a negative number of dimensions was refused.
    Some(unsafe { core::slice::from_raw_parts(from, ndim as usize) }.to_vec())
}

#[pymethods]
impl DlpackView {
    /// Raises ValueError for a capsule that is used up, damaged, or of a version that is not known.
    #[new]
    fn new(capsule: &Bound<'_, PyCapsule>) -> PyResult<DlpackView> {
        let (tensor, readonly) = if capsule.is_valid_checked(Some(VERSIONED)) {
            let whole = capsule.pointer_checked(Some(VERSIONED))?.cast::<Versioned>();
            // SAFETY: a capsule of this name that is valid points to one, whose version lies first in every version.
            let major = unsafe { (*whole.as_ptr()).major };
            if major != MAJOR {
                let why = format!("the DLPack capsule is of version {major}, and {MAJOR} is known");
                return Err(PyValueError::new_err(why));
            }
            // SAFETY: the layout of this version; the capsule keeps it.
            let whole = unsafe { whole.as_ref() };
            (&whole.tensor, whole.flags & READ_ONLY != 0)
        } else if capsule.is_valid_checked(Some(PLAIN)) {
            // `DLManagedTensor` begins with the tensor.
            let tensor = capsule.pointer_checked(Some(PLAIN))?.cast::<Tensor>();
            // SAFETY: a capsule of this name that is valid points to one, and keeps it.
            (unsafe { tensor.as_ref() }, false)
        } else {
            return Err(PyValueError::new_err("this is no DLPack capsule, or it is used up"));
        };
        if !(0..=MOST_DIMENSIONS).contains(&tensor.ndim) {
            let why = format!("the DLPack capsule has {} dimensions", tensor.ndim);
            return Err(PyValueError::new_err(why));
        }
        // SAFETY: DLPack promises one number for each dimension, or null.
        let Some(shape) = (unsafe { numbers(tensor.shape, tensor.ndim) }) else {
            return Err(PyValueError::new_err("the DLPack capsule has dimensions and no shape"));
        };
        // SAFETY: as above.
        let strides = unsafe { numbers(tensor.strides, tensor.ndim) };
        Ok(DlpackView {
            ptr: tensor.data.addr().wrapping_add(tensor.byte_offset as usize),
            device_type: tensor.device_type,
            device_id: tensor.device_id,
            bits: u32::from(tensor.bits) * u32::from(tensor.lanes),
            code: tensor.code,
            shape,
            strides,
            readonly,
            capsule: capsule.clone().unbind(),
        })
    }
}
