//! The Driver: what is registered, and the verbs on it. It checks nothing that `transfer` checks and moves no byte.

mod counted;
mod live;
mod memory;

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub(crate) use self::memory::{is_current, serves};
use crate::block::{BlockPool, Pin};
use crate::buffer::{BufferRecord, DevPtr};
use crate::config::{Config, PageCache};
use crate::desk::Side;
use crate::device::{DeviceInfo, Devices};
use crate::engine::{self, Parts};
use crate::error::{Error, ErrorKind, Result};
use crate::file::FileRecord;
use crate::lane::Lanes;
use crate::limits::Limits;
use crate::log;
use crate::monitor::Statistics;
use crate::op::Op;
use crate::pool::Helpers;
use crate::queued::Ends;
use crate::rangemap::{RangeMap, Ranged};
use crate::reason::Reason;
use crate::registry::Registry;
use crate::route::Router;
use crate::stats::{self, Event, Meters, Snapshot, Stats};
use crate::sys;
use crate::transfer::{self, Transfer};
use crate::usage::Hold;
use crate::user_fs::UserFs;
use crate::workers::Workers;

/// Threads for queued work; most of them wait for storage most of the time.
const QUEUE_THREADS: usize = 16;

/// A registered file's number. Any number may be asked about; one that was never given out, or whose file is
/// deregistered, is simply not registered. Numbers are never given out twice in a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId(u64);

impl FileId {
    /// The id with this number.
    pub fn from_raw(raw: u64) -> FileId {
        FileId(raw)
    }

    /// The number; never 0.
    pub fn as_raw(self) -> u64 {
        self.0
    }
}

/// Files, buffers and a GPU runtime, and the transfers between them. Cheap to clone; all clones are one driver.
/// Every method may be called from any thread at any time.
#[derive(Clone, Debug)]
pub struct Driver {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    config: Config,
    /// The settings as they are now: some change while the driver is open.
    now: Mutex<Config>,
    files: Registry<FileRecord>,
    /// Which registration a descriptor number belongs to.
    by_fd: Mutex<HashMap<RawFd, u64>>,
    pub(crate) buffers: RangeMap<BufferRecord>,
    devices: OnceLock<Devices>,
    blocks: Arc<BlockPool>,
    limits: Arc<Limits>,
    router: Router,
    /// For each side of the batches' desks.
    workers: [Workers; 2],
    lanes: Lanes,
    statistics: Statistics,
    meters: Meters,
    /// [`sys::forks`] at open; another number means that this is a child that inherited the driver.
    forks: u32,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Driver {
    /// Opens a driver. Loads no GPU runtime and takes no staging memory; the first use of GPU memory does.
    ///
    /// # Errors
    /// None today; later settings may be refused.
    pub fn open(config: Config) -> Result<Driver> {
        let statistics = if config.stats_level > 0 { Statistics::new() } else { Statistics::none() };
        statistics.serve();
        Driver::open_with(config, &statistics)
    }

    /// As [`Driver::open`], and counts where others have counted: for a process that opens one driver after the other.
    /// Nobody is shown it unless [`Statistics::serve`] is called.
    ///
    /// # Errors
    /// As [`Driver::open`].
    pub fn open_with(config: Config, statistics: &Statistics) -> Result<Driver> {
        let level = config.stats_level;
        let lanes = Lanes::new(config.block_len, config.stream_max(), config.threads_ahead());
        let pool_max = config.pool_max(lanes.limit(config.stream_max()));
        let blocks = BlockPool::new(config.block_len, pool_max, config.pool_idle);
        let limits = Arc::new(Limits::new(&config));
        let helpers = Arc::new(Helpers::new(config.helpers()));
        let parts = Parts { blocks: Arc::clone(&blocks), helpers, limits: Arc::clone(&limits), config };
        let router = Router::new(&parts.config, &parts);
        log::driver_opened(&parts.config);
        Ok(Driver {
            inner: Arc::new(Inner {
                now: Mutex::new(parts.config.clone()),
                config: parts.config,
                files: Registry::new(),
                by_fd: Mutex::new(HashMap::new()),
                buffers: RangeMap::new(),
                devices: OnceLock::new(),
                blocks,
                limits,
                router,
                workers: ["hipfile-batch", "hipfile-far"].map(|name| Workers::new(name, QUEUE_THREADS)),
                lanes,
                meters: Meters::new(statistics.ledger().cloned(), level),
                statistics: statistics.clone(),
                forks: sys::forks(),
            }),
        })
    }

    /// Deregisters everything. Transfers under way finish; the driver stays usable for new registrations.
    pub fn close(&self) {
        if self.in_forked_child() {
            return;
        }
        self.inner.by_fd.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.inner.files.drain().iter().for_each(|f| f.usage.retire_anyway());
        for buffer in self.inner.buffers.drain() {
            buffer.usage.retire_anyway();
            buffer.let_go();
            self.inner.count_memory(buffer.place().gpu(), false, buffer.len());
        }
        self.inner.statistics.publish();
        log::driver_closed();
    }

    /// The settings it was opened with.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// What it has moved so far, by engine and reason; nothing where nothing is counted ([`Config::stats_level`]).
    pub fn stats(&self) -> Stats {
        self.snapshot().stats(&engine::NAMES)
    }

    /// All that is counted, of all drivers that count where this one does.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.statistics.snapshot()
    }

    /// Where it counts.
    pub fn statistics(&self) -> &Statistics {
        &self.inner.statistics
    }

    /// The GPUs. Loads the runtime.
    ///
    /// # Errors
    /// Why no runtime serves, or the runtime's own error.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.inner.devices().first()?;
        let mut all = Vec::new();
        for device in self.inner.devices().serving() {
            all.extend(device.list()?);
        }
        Ok(all)
    }

    /// Whether this process is a fork of the one that opened the driver; nothing of it may be used here.
    pub fn in_forked_child(&self) -> bool {
        sys::forks() != self.inner.forks
    }

    pub(crate) fn check_process(&self, op: &'static str, kind: ErrorKind) -> Result<()> {
        if self.in_forked_child() {
            let why = "the driver was opened before fork; open one in the child";
            return Err(Error::message(kind, op, why));
        }
        Ok(())
    }

    /// Registers an open descriptor of a regular file or device for I/O. The descriptor is not changed and stays the
    /// caller's. It must stay open until the file is deregistered.
    ///
    /// # Errors
    /// `Io` with errno for a bad descriptor, `InvalidFileType` for a pipe, socket or directory,
    /// `HandleAlreadyRegistered` when this number is registered already and still names the same file.
    pub fn register_file(&self, fd: RawFd) -> Result<FileId> {
        let result = self.begin_file(fd, FileRecord::inspect);
        self.counted(&result, Event::FileOk, Event::FileErr);
        result
    }

    /// Registers a file on a file system of the program's own, which reads and writes it by functions ([`UserFs`]). The
    /// descriptor stands for the file: its number is registered once, it stays open and is never read or written, but for a
    /// direction that the functions do not serve. If they serve both, it may be of anything, for instance a memfd.
    ///
    /// GPU memory is staged through host memory, with the reason [`Reason::UserspaceFs`]; host memory is handed over as it
    /// is. [`WriteSync`](crate::WriteSync) does not concern such files.
    ///
    /// # Errors
    /// As [`Driver::register_file`]; `InvalidFileType` only where the descriptor is needed.
    pub fn register_user_file(&self, fd: RawFd, fs: Arc<dyn UserFs>) -> Result<FileId> {
        let result = self.begin_file(fd, |fd| FileRecord::inspect_user(fd, fs));
        self.counted(&result, Event::FileOk, Event::FileErr);
        result
    }

    /// Has the functions of a file's own file system called by one thread at a time, or again by any number; calls under way
    /// are not waited for.
    ///
    /// # Errors
    /// `HandleNotRegistered`, `InvalidValue` when the file is on no such file system.
    pub fn set_serialized(&self, file: FileId, on: bool) -> Result<()> {
        const OP: &str = "serialize file system";
        let found = self.inner.files.get(file.0).ok_or_else(|| unknown(OP, file))?;
        if found.serialize(on) {
            return Ok(());
        }
        let why = format!("handle {:#x} is not on a file system of the program's own", file.as_raw());
        Err(Error::message(ErrorKind::InvalidValue, OP, why))
    }

    fn begin_file(&self, fd: RawFd, inspect: impl FnOnce(RawFd) -> Result<FileRecord>) -> Result<FileId> {
        const OP: &str = "register file";
        self.check_process(OP, ErrorKind::DriverClosing)?;
        let record = inspect(fd)?;
        let mut by_fd = self.inner.by_fd.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = by_fd.get(&fd).copied() {
            if self.inner.files.get(old).is_some_and(|known| known.is_same_file(&record)) {
                let why = format!("descriptor {fd} is registered");
                return Err(Error::message(ErrorKind::HandleAlreadyRegistered, OP, why));
            }
            // The number was closed and names another file now: the old handle must not reach it.
            if let Some(stale) = self.inner.files.remove(old) {
                stale.usage.retire_anyway();
            }
        }
        let record = Arc::new(record);
        match self.inner.files.insert(Arc::clone(&record)) {
            Some(id) => {
                by_fd.insert(fd, id);
                drop(by_fd);
                log::file_registered(&record, self.inner.config.unsupported_file_systems);
                Ok(FileId(id))
            }
            None => Err(Error::message(ErrorKind::InternalError, OP, "too many files are registered")),
        }
    }

    /// Ends a registration. The caller's descriptor stays open.
    ///
    /// # Errors
    /// `HandleNotRegistered`, or `InternalError` while a transfer uses the file (nothing changes then).
    pub fn deregister_file(&self, id: FileId) -> Result<()> {
        let result = self.end_file(id);
        self.counted(&result, Event::FileEndOk, Event::FileEndErr);
        result
    }

    fn end_file(&self, id: FileId) -> Result<()> {
        const OP: &str = "deregister file";
        self.check_process(OP, ErrorKind::HandleNotRegistered)?;
        let mut by_fd = self.inner.by_fd.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = || unknown(OP, id);
        let fd = {
            let found = self.inner.files.get(id.0).ok_or_else(unknown)?;
            if !found.usage.retire() {
                return Err(Error::message(ErrorKind::InternalError, OP, "a transfer is using the file"));
            }
            found.fd()
        };
        let removed = self.inner.files.remove(id.0).ok_or_else(unknown)?;
        if by_fd.get(&fd) == Some(&id.0) {
            by_fd.remove(&fd);
        }
        drop(by_fd);
        log::file_deregistered(&removed);
        // Private descriptors are closed here, outside the lock.
        drop(removed);
        Ok(())
    }

    /// Reads from a file into memory: `len` bytes at `file_offset`, to `buffer + buffer_offset`. The memory need not be
    /// registered. At most [`MAX_TRANSFER`](crate::MAX_TRANSFER) bytes move.
    ///
    /// Returns the bytes read; fewer than asked for only at end of file, at that limit, or when an error came after
    /// them (the next call shows it).
    ///
    /// # Errors
    /// In this order: `HandleNotRegistered`; for the memory as [`Driver::register_buffer`]; `Io`/EINVAL for negative
    /// offsets; `InvalidValue` for a range outside the memory; then what the file and the GPU answer.
    ///
    /// # Safety
    /// The memory must be valid, and not accessed in a conflicting way, until the call returns.
    pub unsafe fn read(
        &self,
        file: FileId,
        buffer: DevPtr,
        len: usize,
        file_offset: i64,
        buffer_offset: i64,
    ) -> Result<usize> {
        self.transfer(Op::Read, file, buffer, len, file_offset, buffer_offset)
    }

    /// Writes memory to a file; the mirror image of [`Driver::read`].
    ///
    /// Written data is visible to every reader at once; it is durable when the caller syncs the descriptor, or
    /// before the call returns with [`WriteSync::Data`](crate::WriteSync::Data).
    ///
    /// # Errors
    /// As [`Driver::read`].
    ///
    /// # Safety
    /// As [`Driver::read`].
    pub unsafe fn write(
        &self,
        file: FileId,
        buffer: DevPtr,
        len: usize,
        file_offset: i64,
        buffer_offset: i64,
    ) -> Result<usize> {
        self.transfer(Op::Write, file, buffer, len, file_offset, buffer_offset)
    }

    fn transfer(
        &self,
        op: Op,
        file: FileId,
        ptr: DevPtr,
        len: usize,
        file_offset: i64,
        buffer_offset: i64,
    ) -> Result<usize> {
        self.transfer_at(op, file, ptr, len, file_offset, buffer_offset).unwrap_or_else(|refused| {
            self.inner.meters.count(if op == Op::Read { Event::ReadRefused } else { Event::WriteRefused }, 1);
            Err(refused)
        })
    }

    /// # Errors
    /// Nothing was tried.
    fn transfer_at(
        &self,
        op: Op,
        file: FileId,
        ptr: DevPtr,
        len: usize,
        file_offset: i64,
        buffer_offset: i64,
    ) -> Result<Result<usize>> {
        let inner = &*self.inner;
        let unknown = || unknown(op.name(), file);
        if self.in_forked_child() {
            return Err(Error::os_because(op.name(), libc::EINVAL, "the driver was opened before fork"));
        }
        let file = inner.files.get(file.0).ok_or_else(unknown)?;
        let _file_in_use = file.usage.enter().ok_or_else(unknown)?;
        let view = inner.buffers.view();
        let registered = inner
            .registered(&view, ptr, len, buffer_offset)
            .and_then(|record| Some((&**record, record.usage.enter()?)));
        let temporary;
        let (record, _buffer_in_use) = match registered {
            Some((record, in_use)) => (record, Some(in_use)),
            None => {
                temporary = inner.unregistered(ptr, len, buffer_offset, op)?;
                (&temporary, None)
            }
        };
        let transfer = transfer::check(op, &file, record, ptr.0, len, file_offset, buffer_offset)?;
        Ok(inner.carry(&transfer))
    }

    /// Gives a file a page cache setting of its own, or with `None` the driver's again.
    ///
    /// # Errors
    /// `HandleNotRegistered`.
    pub fn set_page_cache(&self, file: FileId, setting: Option<PageCache>) -> Result<()> {
        const OP: &str = "set page cache";
        let found = self.inner.files.get(file.0).ok_or_else(|| unknown(OP, file))?;
        found.set_page_cache(setting);
        Ok(())
    }

    pub(crate) fn file_record(&self, id: FileId) -> Option<Arc<FileRecord>> {
        self.inner.files.get(id.0).map(|found| found.to_arc())
    }
}

/// What requests of this driver work on.
pub(crate) fn ends(driver: &Arc<Inner>, op: Op, file: Hold<FileRecord>, buffer: Hold<BufferRecord>) -> Ends {
    let local = file.user(op).is_none() && file.storage().is_local();
    Ends { driver: Arc::clone(driver) as _, file, buffer, local }
}

/// The error for a handle that is not, or no longer, registered.
pub(crate) fn unknown(op: &'static str, id: FileId) -> Error {
    Error::message(ErrorKind::HandleNotRegistered, op, format!("handle {:#x}", id.as_raw()))
}

impl Inner {
    /// The settings that may change.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What operations on streams share.
    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The engines, for work that takes a queue of theirs.
    pub(crate) fn router(&self) -> &Router {
        &self.router
    }

    /// The threads that carry out queued work.
    pub(crate) fn workers(&self, side: Side) -> &Workers {
        &self.workers[side as usize]
    }

    /// How many threads should work at the same time where they are busy rather than wait.
    pub(crate) fn busy_threads(&self) -> usize {
        self.config.io_threads
    }

    /// A file, held for queued work.
    pub(crate) fn hold_file(&self, id: FileId) -> Option<Hold<FileRecord>> {
        Hold::new(self.files.get(id.0)?.to_arc())
    }

    /// What would carry a transfer, and why it would be staged.
    pub(crate) fn verdict(&self, transfer: &Transfer<'_>) -> (&'static str, Option<Reason>) {
        self.router.verdict(transfer)
    }

    /// The runtimes; looked for at first use.
    pub(crate) fn devices(&self) -> &Devices {
        self.devices.get_or_init(|| {
            let began = stats::now();
            let devices = Devices::find(&self.config);
            for device in devices.serving() {
                let device = Arc::clone(device);
                // Looked up now, for the first transfer is to find everything there.
                let _ = device.p2p();
                // Unpinned memory works too, only slower: a refusal is not passed on.
                let (runtime, again) = (device.name(), Arc::clone(&device));
                self.blocks.pin_with(Pin {
                    runtime,
                    pin: Box::new(move |start, len| drop(device.pin(start, len))),
                    unpin: Box::new(move |start| drop(again.unpin(start))),
                });
            }
            self.describe(&devices);
            self.meters.count(Event::SetUpNs, stats::now().saturating_sub(began));
            devices
        })
    }
}
