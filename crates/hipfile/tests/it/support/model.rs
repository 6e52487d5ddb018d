//! Random operations against a plain model of a file and of GPU memory: every byte, every count, every guard byte.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use gpu_sys::hip::HipError;
use hip_emu::fault::{self, Fault, Rule, When};
use hip_emu::function::Function;
use hipfile::{
    Buffer, Config, DevPtr, Driver, Entry, Error, ErrorKind, EventStatus, Fallback, FileId, Op, RawBatch,
    Result,
};

use super::gpu::is_emulated_hip;
use super::streams::{self, LEGACY, PER_THREAD, Stream, Variables, Watchdog};
use super::{Random, Storage, driver_with, operations};

/// Usable device bytes, and bytes on each side that nothing may touch.
const SPACE: usize = 1 << 20;
const GUARD: usize = 4096;
/// Where the interesting sizes and offsets lie.
const EDGES: &[usize] =
    &[0, 1, 2, 511, 512, 513, 4095, 4096, 4097, 8192, 65535, 65536, 65537, 131071, 131072, 131073, 300_000];
/// The unit of the direct path.
const UNIT: usize = 4096;
/// What the direct path may answer without the caller noticing, and what is the answer.
const RETRIED: &[i32] = &[libc::ENODEV, libc::EREMOTEIO, libc::EINVAL, libc::ENOMEM, libc::ENOTTY];
const FINAL: [Fault; 2] = [Fault::Status(libc::EIO), Fault::Error(HipError::INVALID_CONTEXT)];

/// What an operation must come to, as long as nothing fails.
#[derive(Clone, Copy, Debug)]
enum Due {
    Moves(usize),
    Fails(i32),
    /// Staging is needed and forbidden: nothing moves.
    Refused,
}

struct World {
    /// The streams to use; none for synchronous calls.
    streams: Vec<Stream>,
    gate: &'static std::sync::atomic::AtomicU64,
    driver: Driver,
    file: std::fs::File,
    id: FileId,
    buffer: Buffer,
    /// What the file must hold.
    disk: Vec<u8>,
    /// What the device memory must hold, guards included.
    memory: Vec<u8>,
    random: Random,
    faults: bool,
    /// The injected fault that may end the current operation early.
    may_fail: Option<Fault>,
    /// Whether staging is forbidden, and whether whole units of the file go direct at all.
    forbidden: bool,
    direct: bool,
    batch: Option<RawBatch>,
}

/// How operations are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// By calls that return when it is done.
    Calls,
    /// On streams, with parameters that change before the stream gets there.
    Streams,
    /// By a batch, in up to three pieces.
    Batches,
}

/// One way to serve the model test.
pub(crate) struct Row {
    pub(crate) engines: &'static [&'static str],
    /// Changes the settings; whether the direct path meets faults.
    pub(crate) change: fn(&mut Config) -> bool,
    pub(crate) door: Door,
}

/// Runs the model over one row on one file system.
pub(crate) fn run(row: &Row, storage: Storage) {
    let _watchdog = Watchdog::new(600);
    let (mut faults, mut forbidden) = (false, false);
    let driver = driver_with(row.engines, |config| {
        // Low, so that transfers of some hundred KiB meet every way.
        config.direct_min = 20_000;
        config.uring_min = 100_000;
        config.parallel_min = 130_000;
        (config.mapped_min, config.mapped_threads) = (60_000, 3);
        config.io_threads = 3;
        faults = (row.change)(config);
        forbidden = config.fallback == Fallback::Forbid;
    });
    if faults && !is_emulated_hip("the faults are those of a path past the host") {
        return;
    }
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(storage.path("file"))
        .expect("a file");
    let id = driver.register_file(file.as_raw_fd()).expect("any file registers");
    let mut buffer = Buffer::alloc(&driver, 0, SPACE + 2 * GUARD).expect("device memory");
    let mut random = Random::new();
    let mut memory = vec![0; SPACE + 2 * GUARD];
    random.fill(&mut memory);
    buffer.upload(0, &memory).expect("an upload");
    let disk = Vec::new();
    let batch = (row.door == Door::Batches).then(|| RawBatch::new(8).expect("a batch"));
    let streams = match row.door {
        Door::Calls | Door::Batches => Vec::new(),
        Door::Streams => vec![Stream::free(), Stream::new(0), Stream::free(), LEGACY, PER_THREAD],
    };
    // While a stream is held nothing can be allocated, so all is made ready now.
    streams.iter().for_each(|stream| driver.prepare_stream(stream.ptr()).expect("a stream"));
    let direct = driver.file_info(id).expect("a registered file").reason.is_none();
    let mut world = World {
        forbidden,
        direct,
        streams,
        gate: streams::word(),
        driver,
        file,
        id,
        buffer,
        disk,
        memory,
        random,
        faults,
        may_fail: None,
        batch,
    };
    let count = operations(3000);
    for step in 0..count {
        world.step(step);
        if step % 100 == 99 || step + 1 == count {
            world.check_all(step);
            world.register_anew();
        }
    }
    eprintln!("{count} operations on {}: {:?}", storage.name, world.driver.stats());
}

impl World {
    /// A fresh registration forgets what the faults have taught about the file.
    fn register_anew(&mut self) {
        self.driver.deregister_file(self.id).expect("nothing is under way");
        self.id = self.driver.register_file(self.file.as_raw_fd()).expect("any file registers");
    }

    fn near_edge(&mut self) -> usize {
        let edge = self.random.one_of(EDGES);
        match self.random.below(4) {
            0 => edge,
            1 => edge.saturating_sub(self.random.below(3)),
            2 => edge + self.random.below(3),
            _ => self.random.below(edge.max(1) + 1),
        }
    }

    /// An offset around an edge, or around the end of the file.
    fn file_offset(&mut self) -> usize {
        if self.random.below(3) == 0 {
            (self.disk.len() + self.random.below(5)).saturating_sub(2)
        } else {
            self.near_edge()
        }
    }

    fn step(&mut self, step: usize) {
        let mut len = self.near_edge();
        let mut at = (self.near_edge() + self.random.below(9)).min(SPACE - len) + GUARD;
        let mut offset = self.file_offset();
        match self.random.below(4) {
            // All aligned, or aligned to each other only: what the direct path is for.
            0 => (len, at, offset) = (len & !4095, at & !4095, offset & !4095),
            1 => at = ((at & !4095) + offset % 4096).min(GUARD + SPACE - len),
            _ => {}
        }
        self.may_fail = None;
        let operation = self.random.below(8);
        if self.faults && operation < 7 && self.random.below(3) == 0 {
            self.inject(len, at, offset);
        }
        match operation {
            0..=3 => self.read(step, len, at, offset),
            4..=6 => self.write(step, len, at, offset),
            _ => self.outside(offset),
        }
        fault::clear();
        if self.may_fail == Some(Fault::Status(libc::EINVAL)) {
            // Otherwise such ranges would be known not to go direct from here on.
            self.register_anew();
        }
    }

    /// Something goes wrong in the direct path: at its first call, at one in the middle, or at its last.
    fn inject(&mut self, len: usize, at: usize, offset: usize) {
        let (start, end) = (offset.next_multiple_of(UNIT), (offset + len) / UNIT * UNIT);
        let body = if at % UNIT == offset % UNIT { end.saturating_sub(start) } else { 0 };
        let mut fault = Fault::Status(RETRIED[self.random.below(RETRIED.len())]);
        if self.random.below(5) == 0 {
            fault = FINAL[self.random.below(FINAL.len())];
            self.may_fail = Some(fault);
        }
        if self.forbidden {
            self.may_fail = Some(fault);
        }
        let piece = [None, Some(UNIT), Some(4 * UNIT), Some(16 * UNIT), Some(UNIT + 1)][self.random.below(5)];
        let calls = piece.map_or(1, |piece| body.div_ceil(piece)).max(1);
        let nth = self.random.one_of(&[1, calls / 2 + 1, calls]) as u64;
        for function in [Function::hipAmdFileRead, Function::hipAmdFileWrite] {
            fault::add(Rule { function, when: When::Nth(nth), fault });
            if let Some(piece) = piece {
                fault::add(Rule { function, when: When::Every, fault: Fault::Short(piece as u64) });
            }
        }
    }

    /// The same place said in one of three ways: base and offset, inner pointer, or half of each.
    fn address(&mut self, at: usize) -> (DevPtr, i64) {
        let base = self.buffer.ptr().0;
        match self.random.below(3) {
            0 => (DevPtr(base), at as i64),
            1 => (DevPtr(base + at), 0),
            _ => (DevPtr(base + at / 2), (at - at / 2) as i64),
        }
    }

    fn due(&self, op: Op, len: usize, at: usize, offset: usize) -> Due {
        let there = match op {
            Op::Read => self.disk.len().saturating_sub(offset).min(len),
            Op::Write => len,
        };
        if !self.forbidden || len == 0 {
            return Due::Moves(there);
        }
        if !self.direct || [len, at, offset].iter().any(|n| !n.is_multiple_of(UNIT)) {
            return Due::Refused;
        }
        match there / UNIT * UNIT {
            // The last, partial block of a file is what the driver cannot read.
            0 if there > 0 => Due::Fails(libc::EIO),
            whole => Due::Moves(whole),
        }
    }

    /// How many bytes moved, if any were allowed to; a fault that is the answer may leave fewer, but always says so.
    fn count(&self, what: &str, result: &Result<usize>, due: Due) -> Option<usize> {
        let injected = |error: &Error| match self.may_fail {
            Some(Fault::Status(errno)) => error.os_error() == Some(errno),
            Some(Fault::Error(code)) => error.device_code() == Some(code.0 as i32),
            _ => false,
        };
        match (result, due) {
            (Ok(n), Due::Moves(m)) if *n == m || (self.may_fail.is_some() && *n < m && *n > 0) => Some(*n),
            (Err(error), Due::Fails(errno)) if error.os_error() == Some(errno) => Some(0),
            (Err(error), Due::Moves(_) | Due::Fails(_)) if injected(error) => Some(0),
            (Err(error), Due::Refused) if error.kind() == ErrorKind::IONotSupported => None,
            _ => panic!("{what}: {result:?} instead of {due:?} with {:?}", self.may_fail),
        }
    }

    fn transfer(
        &mut self,
        op: Op,
        ptr: DevPtr,
        len: usize,
        offset: i64,
        buffer_offset: i64,
    ) -> Result<usize> {
        if self.batch.is_some() {
            return self.by_batch(op, ptr, len, offset, buffer_offset);
        }
        if self.streams.is_empty() {
            return match op {
                // SAFETY: the range lies inside the buffer, which outlives the call and is used by this thread alone.
                Op::Read => unsafe { self.driver.read(self.id, ptr, len, offset, buffer_offset) },
                // SAFETY: as for read.
                Op::Write => unsafe { self.driver.write(self.id, ptr, len, offset, buffer_offset) },
            };
        }
        let stream = self.streams[self.random.below(self.streams.len())];
        let (flags, late) = (self.random.below(16) as u32, self.random.below(2) == 0);
        let gate = self.gate;
        gate.store(0, std::sync::atomic::Ordering::Release);
        // What is not fixed is something else at submit: a smaller offset, a larger size.
        let fixed = |bit: u32| flags & bit != 0 || !late;
        let (file_first, buffer_first) = (
            if fixed(2) { offset } else { offset / 2 },
            if fixed(1) { buffer_offset } else { buffer_offset / 2 },
        );
        let size_first = if fixed(4) { len } else { len + (buffer_offset - buffer_first) as usize };
        let variables = Variables::new(size_first, file_first, buffer_first);
        if late {
            stream.hold(gate);
        }
        let queued = streams::enqueue(&self.driver, op, self.id, ptr, stream, flags, &variables);
        variables.set(len, offset, buffer_offset);
        gate.store(1, std::sync::atomic::Ordering::Release);
        stream.wait();
        queued.and_then(|()| variables.result())
    }

    fn by_batch(
        &mut self,
        op: Op,
        buffer: DevPtr,
        len: usize,
        file_offset: i64,
        buffer_offset: i64,
    ) -> Result<usize> {
        // In pieces, which may not overlap: they run at the same time. With faults only the first would meet them, and
        // with staging forbidden none of them may be ragged.
        let whole = self.may_fail.is_some() || self.forbidden;
        let pieces = if whole { 1 } else { 1 + self.random.below(3.min(len)) };
        let entry = |piece: usize| {
            let (from, to) = (len * piece / pieces, len * (piece + 1) / pieces);
            let (file_offset, buffer_offset) = (file_offset + from as i64, buffer_offset + from as i64);
            let (file, cookie) = (self.id, piece as u64);
            Entry { op: Ok(op), file, buffer, buffer_offset, file_offset, len: to - from, cookie }
        };
        let entries: Vec<_> = (0..pieces).map(entry).collect();
        let batch = self.batch.as_ref().expect("a batch");
        // SAFETY: the range lies inside the buffer, which outlives the events and is used by this thread alone.
        unsafe { batch.submit(&self.driver, &entries) }?;
        let mut results: Vec<Option<Result<usize>>> = vec![None; pieces];
        while results.iter().any(Option::is_none) {
            let events = batch.poll(1, 8, Some(std::time::Duration::from_secs(60)))?;
            assert!(!events.is_empty(), "no event for one of {entries:?}");
            for event in events {
                let result = match event.status {
                    EventStatus::Complete(moved) => Ok(moved),
                    EventStatus::Failed(error) => Err(error),
                    other => panic!("{other:?}"),
                };
                let place = &mut results[event.cookie as usize];
                assert!(place.replace(result).is_none(), "one event for each of {entries:?}");
            }
        }
        let mut moved = 0;
        for (entry, result) in entries.iter().zip(results.into_iter().flatten()) {
            let n = result?;
            assert!(
                n == 0 || moved == entry.file_offset as usize - file_offset as usize,
                "no gap: {entries:?}"
            );
            moved += n;
        }
        Ok(moved)
    }

    fn read(&mut self, step: usize, len: usize, at: usize, offset: usize) {
        let (ptr, buffer_offset) = self.address(at);
        let due = self.due(Op::Read, len, at, offset);
        let result = self.transfer(Op::Read, ptr, len, offset as i64, buffer_offset);
        let what = format!("step {step}: read {len} at {offset} to {at}");
        let Some(n) = self.count(&what, &result, due) else { return self.check(step, at, len) };
        let expected = self.disk.len().saturating_sub(offset).min(len);
        self.memory[at..at + n].copy_from_slice(&self.disk[offset.min(self.disk.len())..][..n]);
        if n < expected {
            // What lies behind a counted prefix may have changed, up to the end of the request.
            let mut rest = vec![0; len - n];
            self.buffer.download(at + n, &mut rest).expect("a download");
            self.memory[at + n..at + len].copy_from_slice(&rest);
        }
        self.check(step, at, len);
    }

    fn write(&mut self, step: usize, len: usize, at: usize, offset: usize) {
        let (ptr, buffer_offset) = self.address(at);
        let due = self.due(Op::Write, len, at, offset);
        let result = self.transfer(Op::Write, ptr, len, offset as i64, buffer_offset);
        let what = format!("step {step}: write {len} at {offset} from {at}");
        let Some(n) = self.count(&what, &result, due) else {
            return self.check_file(step, offset.saturating_sub(5000), len + 10_000);
        };
        if n > 0 {
            self.disk.resize(self.disk.len().max(offset + n), 0);
            self.disk[offset..offset + n].copy_from_slice(&self.memory[at..at + n]);
        }
        if n < len {
            let size = self.file.metadata().expect("metadata").len() as usize;
            assert!(size <= self.disk.len().max(offset + len), "step {step}: the file grew past the request");
            self.disk.resize(size, 0);
            let behind = (offset + n).min(size)..(offset + len).min(size);
            let mut rest = vec![0; behind.len()];
            self.file.read_exact_at(&mut rest, behind.start as u64).expect("a plain read");
            self.disk[behind].copy_from_slice(&rest);
        }
        self.check_file(step, offset.saturating_sub(5000), len + 10_000);
        // Now and then other memory content, so that a read that moves nothing is noticed.
        let mut fresh = vec![0; 777];
        self.random.fill(&mut fresh);
        let place = GUARD + self.random.below(SPACE - fresh.len());
        self.buffer.upload(place, &fresh).expect("an upload");
        self.memory[place..place + fresh.len()].copy_from_slice(&fresh);
    }

    /// Somebody else changes the file by plain means.
    fn outside(&mut self, offset: usize) {
        if self.random.below(3) == 0 {
            let len = self.file_offset();
            self.file.set_len(len as u64).expect("a truncation");
            self.disk.resize(len, 0);
        } else {
            let mut bytes = vec![0; self.near_edge().min(5000)];
            self.random.fill(&mut bytes);
            self.file.write_all_at(&bytes, offset as u64).expect("a plain write");
            if !bytes.is_empty() {
                self.disk.resize(self.disk.len().max(offset + bytes.len()), 0);
                self.disk[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
        }
    }

    /// The device memory around a range.
    fn check(&self, step: usize, at: usize, len: usize) {
        let (from, to) = (at.saturating_sub(GUARD), (at + len + GUARD).min(self.memory.len()));
        let mut now = vec![0; to - from];
        self.buffer.download(from, &mut now).expect("a download");
        if let Some(bad) = (0..now.len()).find(|i| now[*i] != self.memory[from + i]) {
            panic!("step {step}: device byte {} is wrong (range {at}+{len})", from + bad);
        }
    }

    /// The file around a range, by plain reads.
    fn check_file(&self, step: usize, from: usize, len: usize) {
        assert_eq!(self.file.metadata().expect("metadata").len() as usize, self.disk.len(), "step {step}");
        let (from, to) = (from.min(self.disk.len()), (from + len).min(self.disk.len()));
        let mut now = vec![0; to - from];
        self.file.read_exact_at(&mut now, from as u64).expect("a plain read");
        if let Some(bad) = (0..now.len()).find(|i| now[*i] != self.disk[from + i]) {
            panic!("step {step}: file byte {} is wrong", from + bad);
        }
    }

    fn check_all(&self, step: usize) {
        self.check(step, 0, self.memory.len());
        self.check_file(step, 0, self.disk.len());
        if self.forbidden {
            let stats = self.driver.stats();
            let engines = stats.read.iter().chain(&stats.write).filter(|engine| engine.engine != "p2p");
            let touched: Vec<_> =
                engines.filter(|e| (e.operations, e.bytes, e.errors) != (0, 0, 0)).collect();
            assert!(touched.is_empty(), "step {step}: {touched:?}");
            assert!(stats.read_staged.is_empty() && stats.write_staged.is_empty(), "step {step}: {stats:?}");
        }
    }
}
