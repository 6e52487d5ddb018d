//! The synchronous verbs: registration, reads and writes by address. Each releases the interpreter while it may wait. The
//! Python half keeps the objects alive whose memory the addresses are.

use std::time::{Duration, Instant};

use hipfile::{DevPtr, Driver, ErrorKind, FileId, MAX_TRANSFER, Op, PageCache, StreamPtr};
use pyo3::exceptions::{PyEOFError, PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::errors::ForPython;
use crate::global;
use crate::numbers::{Address, Descriptor, Flags, Handle, Offset, Size, StreamHandle};
use crate::stream::{is_over, sweep};

/// Bytes that one call of a sequence of pieces moves at most: what is between two is when signals are heard.
const PIECE: usize = 1 << 30;

/// Between two looks at whether a file that is to be closed is still used.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Registers an open descriptor. Returns the file's id.
#[pyfunction]
pub(crate) fn register_file(py: Python<'_>, fd: Descriptor) -> PyResult<u64> {
    global::open_on_success(py, |driver| driver.register_file(fd.0)).map(FileId::as_raw).for_python(py)
}

/// Ends a file's registration. Its descriptor stays open.
#[pyfunction]
pub(crate) fn deregister_file(py: Python<'_>, file: Handle) -> PyResult<()> {
    let driver = global::current_or_closed(py)?;
    py.detach(|| driver.deregister_file(FileId::from_raw(file.0))).for_python(py)
}

/// Ends a file's registration when nothing uses it any more: waits for what is under way on streams and in batches.
/// After the time that is set for notices it says so.
#[pyfunction]
pub(crate) fn close_file(py: Python<'_>, file: Handle) -> PyResult<()> {
    let driver = global::current_or_closed(py)?;
    let begun = Instant::now();
    let (mut pause, mut patience) = (SHORTEST_PAUSE, driver.config().wait_notice);
    loop {
        if is_over(py, file.0) {
            match py.detach(|| driver.deregister_file(FileId::from_raw(file.0))) {
                Err(error) if error.kind() == ErrorKind::InternalError => {}
                ended => {
                    sweep();
                    return ended.for_python(py);
                }
            }
        }
        py.check_signals()?;
        if let Some(seconds) = patience.filter(|patience| *patience <= begun.elapsed()).map(|p| p.as_secs()) {
            patience = None;
            let path = driver.file_info(FileId::from_raw(file.0)).ok().and_then(|info| info.path);
            let path = path.map_or_else(|| "a file".to_owned(), |path| path.display().to_string());
            hipfile::notice::line(format_args!(
                "closing {path} waits for transfers of it that are under way since {seconds} s"
            ));
        }
        py.detach(|| std::thread::sleep(pause));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Registers memory by address.
#[pyfunction]
pub(crate) fn register_buffer(py: Python<'_>, address: Address, length: Size, flags: Flags) -> PyResult<()> {
    let driver = global::opened_for(py)?;
    // SAFETY: the package documents that memory stays valid until it is deregistered, as AMD's does.
    py.detach(|| unsafe { driver.register_buffer(DevPtr(address.0), length.0, flags.0) }).for_python(py)
}

/// Ends a registration of memory.
#[pyfunction]
pub(crate) fn deregister_buffer(py: Python<'_>, address: Address) -> PyResult<()> {
    let driver = global::current_or_closed(py)?;
    py.detach(|| driver.deregister_buffer(DevPtr(address.0))).for_python(py)
}

fn transfer(
    driver: &Driver,
    op: Op,
    file: u64,
    address: usize,
    size: usize,
    file_offset: i64,
    buffer_offset: i64,
) -> hipfile::Result<usize> {
    let (file, address) = (FileId::from_raw(file), DevPtr(address));
    match op {
        // SAFETY: the caller holds the object whose memory it is until the call returns; an address given as a number is
        // documented to be the user's to keep valid.
        Op::Read => unsafe { driver.read(file, address, size, file_offset, buffer_offset) },
        // SAFETY: as above.
        Op::Write => unsafe { driver.write(file, address, size, file_offset, buffer_offset) },
    }
}

/// One transfer, with the interpreter lock let go of.
fn once(
    py: Python<'_>,
    op: Op,
    file: Handle,
    address: Address,
    size: Size,
    file_offset: Offset,
    buffer_offset: Offset,
) -> PyResult<usize> {
    let driver = global::current_for_io(py)?;
    py.detach(|| transfer(&driver, op, file.0, address.0, size.0, file_offset.0, buffer_offset.0))
        .for_python(py)
}

/// Reads `size` bytes at `file_offset` into `address + buffer_offset`. Returns the bytes read.
#[pyfunction]
pub(crate) fn read(
    py: Python<'_>,
    file: Handle,
    address: Address,
    size: Size,
    file_offset: Offset,
    buffer_offset: Offset,
) -> PyResult<usize> {
    once(py, Op::Read, file, address, size, file_offset, buffer_offset)
}

/// Writes `size` bytes of `address + buffer_offset` at `file_offset`. Returns the bytes written.
#[pyfunction]
pub(crate) fn write(
    py: Python<'_>,
    file: Handle,
    address: Address,
    size: Size,
    file_offset: Offset,
    buffer_offset: Offset,
) -> PyResult<usize> {
    once(py, Op::Write, file, address, size, file_offset, buffer_offset)
}

/// Where, how much, and from where in the file.
type Piece = (Address, Size, Offset);

/// Moves whole pieces.
fn whole(py: Python<'_>, op: Op, file: Handle, pieces: &[Piece]) -> PyResult<usize> {
    let driver = global::current_for_io(py)?;
    let mut total = 0;
    for &(Address(address), Size(size), Offset(file_offset)) in pieces {
        let mut done = 0;
        while done < size {
            py.check_signals()?;
            let next = (size - done).min(PIECE).min(MAX_TRANSFER);
            let at = file_offset.saturating_add_unsigned(done as u64);
            let moved =
                py.detach(|| transfer(&driver, op, file.0, address + done, next, at, 0)).for_python(py)?;
            if moved == 0 {
                let at = file_offset.saturating_add_unsigned(done as u64);
                return Err(match op {
                    Op::Read => PyEOFError::new_err(format!(
                        "the file ends at {at}: {} of {size} bytes are missing",
                        size - done
                    )),
                    Op::Write => PyOSError::new_err(format!("nothing was written at {at}")),
                });
            }
            done += moved;
        }
        total += done;
    }
    Ok(total)
}

/// Reads pieces `(address, bytes, file offset)`, each wholly, one after the other. Returns the bytes read.
///
/// Raises EOFError when the file ends before a piece does.
#[pyfunction]
pub(crate) fn read_pieces(py: Python<'_>, file: Handle, pieces: Vec<Piece>) -> PyResult<usize> {
    whole(py, Op::Read, file, &pieces)
}

/// Writes pieces `(address, bytes, file offset)`, each wholly, one after the other. Returns the bytes written.
#[pyfunction]
pub(crate) fn write_pieces(py: Python<'_>, file: Handle, pieces: Vec<Piece>) -> PyResult<usize> {
    whole(py, Op::Write, file, &pieces)
}

/// How staged transfers of a file treat the page cache: `auto`, `direct` or `buffered`.
#[pyfunction]
pub(crate) fn set_page_cache(py: Python<'_>, file: Handle, word: &str) -> PyResult<()> {
    let setting = match word {
        "auto" => None,
        "direct" => Some(PageCache::Direct),
        "buffered" => Some(PageCache::Buffered),
        other => return Err(PyValueError::new_err(format!("{other:?} is none of auto, direct, buffered"))),
    };
    let driver = global::current_or_closed(py)?;
    driver.set_page_cache(FileId::from_raw(file.0), setting).for_python(py)
}

/// Waits until a stream of the GPU runtime has nothing more to do.
#[pyfunction]
pub(crate) fn wait_for_stream(py: Python<'_>, stream: StreamHandle) -> PyResult<()> {
    let driver = global::opened_for(py)?;
    // SAFETY: the handle came from the user's library, which keeps the stream while the call lasts.
    py.detach(|| unsafe { driver.wait_for_stream(StreamPtr(stream.0)) }).for_python(py)
}
