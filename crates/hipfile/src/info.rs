//! What is known about registered files and memory, put together for people and tools. It gathers; it decides nothing.

use std::path::PathBuf;

use crate::buffer::{BufferRecord, DevPtr, Place};
use crate::config::PageCache;
use crate::driver::{Driver, FileId, is_current, unknown};
use crate::engine;
use crate::error::{Error, ErrorKind, Result};
use crate::file::{DirectAlign, FileType};
use crate::op::Op;
use crate::pace::Rates;
use crate::rangemap::Ranged as _;
use crate::reason::Reason;
use crate::stats::Stats;
use crate::storage::{FsClass, Node, StorageFacts};
use crate::transfer;

/// What is known about a registered file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileInfo {
    /// Where it is, if it has a name the process can see.
    pub path: Option<PathBuf>,
    /// What it is.
    pub file_type: FileType,
    /// The file system's type, or what the program's own file system calls itself; `None` for a block device, and for a
    /// type that is not known.
    pub file_system: Option<String>,
    /// What lies under it: file system, mount and block devices.
    pub storage: StorageFacts,
    /// Alignments of direct I/O, where the file has it.
    pub direct_align: Option<DirectAlign>,
    /// Descriptors the library opened for it: 0 to 2.
    pub private_descriptors: usize,
    /// The engine an aligned read of 1 MiB into GPU memory would start with now, by the very choice that a real one
    /// meets; of the staging engines, the one for data that is or is not in the page cache now.
    pub engine: &'static str,
    /// Why that engine stages; `None` when it is direct.
    pub reason: Option<Reason>,
    /// The page cache setting in force.
    pub page_cache: PageCache,
    /// Whether the GPU that the answer is for is the emulated one.
    pub emulated: bool,
    /// How fast large reads went either way, where [`Adaptive`](crate::Adaptive) has them measured.
    pub read_rates: Rates,
    /// The same of writes.
    pub write_rates: Rates,
    /// What moved, by engine, and why it was staged.
    pub stats: Stats,
}

/// A registration of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferInfo {
    /// Where the registered range begins.
    pub start: DevPtr,
    /// How many bytes it has.
    pub len: usize,
    /// The GPU whose memory it is; `None` for memory of the host.
    pub gpu: Option<u32>,
    /// Whether that is the emulated GPU.
    pub emulated: bool,
    /// Whether the memory at its address is still what was registered. If it was freed, and its address given out anew,
    /// transfers follow the rules for memory that is not registered.
    pub current: bool,
    /// Of how many pieces it is made: more than one where the virtual-memory API mapped several side by side.
    pub pieces: usize,
}

/// An address for a transfer that is only asked about: no memory lies there, and any alignment is met.
const NOWHERE: usize = 1 << 46;
const ASKED: usize = 1 << 20;

impl Driver {
    /// The registration that holds a whole range, from whose bounds a transfer is served; of several, the one that begins last.
    ///
    /// # Errors
    /// `MemoryNotRegistered` if none does, `DriverClosing` in the child of a fork.
    pub fn buffer_info(&self, ptr: DevPtr, len: usize) -> Result<BufferInfo> {
        const OP: &str = "describe buffer";
        self.check_process(OP, ErrorKind::DriverClosing)?;
        let view = self.inner.buffers.view();
        let record = view.holding(ptr.0, len.max(1)).ok_or_else(|| {
            let why = format!("no registration holds {len} bytes at {:#x}", ptr.0);
            Error::message(ErrorKind::MemoryNotRegistered, OP, why)
        })?;
        let emulated = match record.place() {
            Place::Device { device, .. } => device.is_emulated(),
            Place::Host => false,
        };
        let (start, len, gpu) = (DevPtr(record.base()), record.len(), record.place().gpu());
        let (current, pieces) = (is_current(record), record.pieces());
        Ok(BufferInfo { start, len, gpu, emulated, current, pieces })
    }

    /// What is known about a registered file. Loads the GPU runtime, for the answer depends on it.
    ///
    /// # Errors
    /// `HandleNotRegistered`.
    pub fn file_info(&self, id: FileId) -> Result<FileInfo> {
        let record = self.file_record(id).ok_or_else(|| unknown("describe file", id))?;
        let (engine, reason) = match self.inner.devices().serving().first() {
            None => ("bounce", Some(self.inner.devices().absence())),
            Some(device) => {
                // SAFETY: no transfer is made of it, so the range is never accessed.
                let nowhere = unsafe { BufferRecord::new(NOWHERE, ASKED, Place::of(device, 0)) };
                let asked = transfer::check(Op::Read, &record, &nowhere, NOWHERE, ASKED, 0, 0)?;
                debug_assert!(matches!(asked.span.place(), Place::Device { .. }));
                self.inner.verdict(&asked)
            }
        };
        let storage = record.storage();
        let own = record.user_name();
        let has_type = storage.node != Node::Block && storage.fs_type != FsClass::Other.name();
        Ok(FileInfo {
            path: record.path(),
            file_type: record.file_type(),
            file_system: own.or_else(|| has_type.then(|| storage.fs_type.clone())),
            storage: storage.clone(),
            direct_align: record.direct_align(),
            private_descriptors: record.private_descriptors(),
            engine,
            reason,
            page_cache: record.page_cache().unwrap_or(self.config().default_page_cache()),
            emulated: self.inner.devices().serving().first().is_some_and(|device| device.is_emulated()),
            read_rates: record.pace.rates(Op::Read),
            write_rates: record.pace.rates(Op::Write),
            stats: record.counters.sum(&engine::NAMES),
        })
    }
}
