//! One thread of a soak: its part of the file, what must be in it, and random operations on it. It shares nothing with the others
//! but the process.

use std::fs::File as OsFile;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hipfile::{
    Batch, Buffer, Driver, Error, EventStatus, Fallback, File, Job, Op, PageCache, Stream, WriteSync,
};

use super::{Random, SPAN, Shared, add};

/// Longest transfer.
const MOST: usize = 2 << 20;
/// Most transfers handed over together.
const TOGETHER: usize = 8;

const ENGINES: &[Option<&[&str]>] = &[
    None,
    Some(&["bounce"]),
    Some(&["uring", "bounce"]),
    Some(&["p2p", "bounce"]),
    Some(&["p2p", "uring", "bounce"]),
];
const CACHES: &[PageCache] = &[PageCache::Auto, PageCache::Direct, PageCache::Buffered, PageCache::NoCache];

/// A driver and what was made with it.
struct Kit {
    driver: Driver,
    file: Arc<File>,
    stream: Option<Stream>,
    /// The stream's, whose operations are on memory of that GPU alone.
    gpu: u32,
}

pub(super) struct Worker<'a> {
    shared: &'a Shared,
    path: &'a Path,
    /// Where its part of the file begins.
    base: usize,
    plain: OsFile,
    /// What its part holds.
    model: Vec<u8>,
    random: Random,
    kit: Option<Kit>,
}

/// One transfer: the place in the worker's part, and in the buffer.
#[derive(Clone, Copy)]
struct Piece {
    at: usize,
    len: usize,
    from: usize,
}

/// A transfer, what a write is to move, and the same for the library.
type Order = (Piece, Option<Vec<u8>>, Job);

impl<'a> Worker<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        path: &'a Path,
        base: usize,
        seed: u64,
    ) -> Result<Worker<'a>, String> {
        let plain = OsFile::options().read(true).write(true).open(path).map_err(|error| error.to_string())?;
        let mut model = vec![0; SPAN];
        plain.read_exact_at(&mut model, base as u64).map_err(|error| error.to_string())?;
        Ok(Worker { shared, path, base, plain, model, random: Random::new(seed + 1), kit: None })
    }

    /// Works until the soak stops.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) fn work(&mut self) -> Result<(), String> {
        while !self.shared.stops() {
            if self.random.one_in(100) {
                self.kit = None;
            }
            let Some(kit) = self.kit.take().or_else(|| self.open()) else {
                self.pause()?;
                continue;
            };
            let done = match self.random.below(10) {
                0..5 => self.calls(&kit),
                5..7 => self.batch(&kit),
                7..9 => self.stream(kit.stream.as_ref(), &kit),
                _ => self.misuse(&kit),
            };
            match done? {
                // Of what failed in between nothing is used again.
                false => drop(kit),
                true => self.kit = Some(self.renewed(kit)),
            }
            if self.random.one_in(200) {
                self.compare_all()?;
            }
        }
        self.kit = None;
        self.compare_all()
    }

    /// Something could not be made, which may be only while calls fail.
    fn pause(&self) -> Result<(), String> {
        let window = self.shared.window();
        std::thread::sleep(Duration::from_millis(2));
        if !self.shared.is_faulty() && window == self.shared.window() && !self.shared.stops() {
            let probe =
                Driver::open(self.shared.config.clone()).and_then(|driver| Buffer::alloc(&driver, 0, 4096));
            if let (Err(error), false, true) =
                (probe, self.shared.is_faulty(), window == self.shared.window())
            {
                return Err(format!("no driver or memory: {error}"));
            }
        }
        Ok(())
    }

    fn open(&mut self) -> Option<Kit> {
        let mut config = self.shared.config.clone();
        let random = &mut self.random;
        config.engines = ENGINES[random.below(ENGINES.len())]
            .map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        config.page_cache = CACHES[random.below(CACHES.len())];
        config.fallback = Fallback::Allow;
        config.write_sync = if random.one_in(20) { WriteSync::Data } else { WriteSync::None };
        config.block_len = [64 << 10, 256 << 10, 1 << 20][random.below(3)];
        config.pool_len = config.block_len * [1, 4, 32][random.below(3)];
        let driver = Driver::open(config).ok()?;
        add(&self.shared.counts.drivers, 1);
        let file = self.register(&driver)?;
        let gpu = self.gpu();
        let stream = match self.random.one_in(2) {
            true => Stream::new(&driver, gpu).ok(),
            false => None,
        };
        Some(Kit { driver, file, stream, gpu })
    }

    fn gpu(&mut self) -> u32 {
        self.random.below(self.shared.gpus as usize) as u32
    }

    fn register(&self, driver: &Driver) -> Option<Arc<File>> {
        let open = OsFile::options().read(true).write(true).open(self.path).ok()?;
        add(&self.shared.counts.registrations, 1);
        File::register(driver, open).ok().map(Arc::new)
    }

    /// Now and then the file is registered anew.
    fn renewed(&mut self, kit: Kit) -> Kit {
        if !self.random.one_in(10) {
            return kit;
        }
        let file = self.register(&kit.driver).unwrap_or_else(|| Arc::clone(&kit.file));
        Kit { file, ..kit }
    }

    /// A piece of the `n`th of `of` parts of what the worker has.
    fn piece(&mut self, n: usize, of: usize) -> Piece {
        let room = SPAN / of;
        let len = (1 << self.random.below(21)) + self.random.below(1 << 12);
        let mut len = len.clamp(1, MOST.min(room));
        let mut at = n * room + self.random.below(room - len + 1);
        // Aligned ones have ways of their own.
        if self.random.one_in(2) && len >= 4096 {
            len -= len % 4096;
            at -= at % 4096;
        }
        let from = if self.random.one_in(2) { 0 } else { self.random.below(5000) };
        Piece { at, len, from }
    }

    /// Memory that holds what a write is to move.
    fn buffer(&mut self, kit: &Kit, gpu: u32, piece: Piece, bytes: Option<&[u8]>) -> Option<Buffer> {
        let mut buffer = Buffer::alloc(&kit.driver, gpu, piece.from + piece.len).ok()?;
        add(&self.shared.counts.registrations, 1);
        match bytes {
            Some(bytes) => buffer.upload(piece.from, bytes).ok().map(|()| buffer),
            None => Some(buffer),
        }
    }

    fn absolute(&self, piece: Piece) -> u64 {
        (self.base + piece.at) as u64
    }

    fn calls(&mut self, kit: &Kit) -> Result<bool, String> {
        let piece = self.piece(0, 1);
        let range = piece.from..piece.from + piece.len;
        let at = self.absolute(piece);
        let write = self.random.one_in(2);
        let bytes = write.then(|| self.random.bytes(piece.len));
        let before = self.shared.window();
        let gpu = self.gpu();
        let Some(mut buffer) = self.buffer(kit, gpu, piece, bytes.as_deref()) else {
            self.pause()?;
            return Ok(false);
        };
        let result = match write {
            true => kit.file.write_at(&buffer, range, at),
            false => kit.file.read_at(&mut buffer, range, at),
        };
        add(&self.shared.counts.calls, 1);
        self.judge(piece, bytes.as_deref(), &buffer, result, before)
    }

    fn jobs(&mut self, kit: &Kit, one: Option<u32>) -> Option<Vec<Order>> {
        let count = 1 + self.random.below(TOGETHER);
        let mut jobs = Vec::new();
        for n in 0..count {
            let piece = self.piece(n, count);
            let bytes = self.random.one_in(2).then(|| self.random.bytes(piece.len));
            let gpu = one.unwrap_or_else(|| self.gpu());
            let buffer = self.buffer(kit, gpu, piece, bytes.as_deref())?;
            let op = if bytes.is_some() { Op::Write } else { Op::Read };
            let range = piece.from..piece.from + piece.len;
            let file = Arc::clone(&kit.file);
            jobs.push((piece, bytes, Job { op, file, file_offset: self.absolute(piece), buffer, range }));
        }
        Some(jobs)
    }

    fn batch(&mut self, kit: &Kit) -> Result<bool, String> {
        let before = self.shared.window();
        let Some(jobs) = self.jobs(kit, None) else {
            self.pause()?;
            return Ok(false);
        };
        let Ok(mut batch) = Batch::new(&kit.driver, TOGETHER) else { return Err("no batch".to_owned()) };
        let mut known = Vec::new();
        let mut handed = Vec::new();
        for (piece, bytes, job) in jobs {
            known.push((piece, bytes));
            handed.push(job);
        }
        let count = handed.len();
        if let Err((error, _)) = batch.submit(handed) {
            return self.refused("a batch", &error, before).map(|()| false);
        }
        if self.random.one_in(10) {
            batch.cancel().map_err(|error| error.to_string())?;
        }
        let mut good = true;
        let mut ended = 0;
        while ended < count {
            let events = batch.wait(1, Some(Duration::from_secs(100))).map_err(|error| error.to_string())?;
            if events.is_empty() {
                return Err("a batch gives no event".to_owned());
            }
            for finished in events {
                ended += 1;
                let at = finished.job.file_offset as usize - self.base;
                let Some((piece, bytes)) = known.iter().find(|(piece, _)| piece.at == at).cloned() else {
                    return Err("an event of an entry that was not submitted".to_owned());
                };
                add(&self.shared.counts.batches, 1);
                let result = match finished.status {
                    EventStatus::Complete(n) => Ok(n),
                    EventStatus::Failed(error) => Err(error),
                    // Nothing was moved.
                    _ => continue,
                };
                good &= self.judge(piece, bytes.as_deref(), &finished.job.buffer, result, before)?;
            }
        }
        Ok(good)
    }

    fn stream(&mut self, stream: Option<&Stream>, kit: &Kit) -> Result<bool, String> {
        let Some(stream) = stream else { return Ok(true) };
        let before = self.shared.window();
        let Some(jobs) = self.jobs(kit, Some(kit.gpu)) else {
            self.pause()?;
            return Ok(false);
        };
        let mut pending = Vec::new();
        let mut good = true;
        for (piece, bytes, job) in jobs {
            match stream.submit(job) {
                Ok(job) => pending.push((piece, bytes, job)),
                Err((error, _)) => {
                    self.refused("an operation on a stream", &error, before)?;
                    self.look_again(piece)?;
                    good = false;
                }
            }
        }
        for (piece, bytes, job) in pending {
            let finished = job.wait();
            add(&self.shared.counts.streams, 1);
            let result = match finished.status {
                EventStatus::Complete(n) => Ok(n),
                EventStatus::Failed(error) => Err(error),
                other => return Err(format!("an operation on a stream ended as {other:?}")),
            };
            good &= self.judge(piece, bytes.as_deref(), &finished.job.buffer, result, before)?;
        }
        Ok(good)
    }

    /// Wrong requests are refused, and change nothing.
    fn misuse(&mut self, kit: &Kit) -> Result<bool, String> {
        let piece = Piece { at: 0, len: 4096, from: 0 };
        let Some(mut buffer) = self.buffer(kit, kit.gpu, piece, None) else {
            self.pause()?;
            return Ok(false);
        };
        let refused = match self.random.below(3) {
            0 => kit.file.read_at(&mut buffer, 0..8192, 0).is_err(),
            1 => kit.file.read_at(&mut buffer, 0..4096, u64::MAX - 5).is_err(),
            _ => kit.driver.deregister_buffer(hipfile::DevPtr(buffer.ptr().0 + 64)).is_err(),
        };
        add(&self.shared.counts.refused, 1);
        if refused { Ok(true) } else { Err("a wrong request was not refused".to_owned()) }
    }

    /// An error is allowed while calls are made to fail, and only then.
    fn refused(&self, what: &str, error: &Error, before: u64) -> Result<(), String> {
        add(&self.shared.counts.failed, 1);
        match before % 2 == 1 || self.shared.window() != before {
            true => Ok(()),
            false => Err(format!("{what}: {error}")),
        }
    }

    /// Whether all is well; after an error or a prefix that had a reason, not.
    fn judge(
        &mut self,
        piece: Piece,
        bytes: Option<&[u8]>,
        buffer: &Buffer,
        result: Result<usize, Error>,
        before: u64,
    ) -> Result<bool, String> {
        let Piece { at, len, from } = piece;
        let what = || format!("{len} bytes at {at} ({})", if bytes.is_some() { "write" } else { "read" });
        let moved = match result {
            Ok(n) => n,
            Err(error) => {
                self.refused(&what(), &error, before)?;
                self.look_again(piece)?;
                return Ok(false);
            }
        };
        if moved < len {
            add(&self.shared.counts.short, 1);
            if before.is_multiple_of(2) && self.shared.window() == before {
                return Err(format!("{}: only {moved}", what()));
            }
        }
        if let Some(bytes) = bytes {
            self.model[at..at + moved].copy_from_slice(&bytes[..moved]);
            let mut there = vec![0; moved];
            self.plain.read_exact_at(&mut there, self.absolute(piece)).map_err(|error| error.to_string())?;
            if there != bytes[..moved] {
                return Err(format!("{}: other bytes are in the file", what()));
            }
            if moved < len {
                self.look_again(piece)?;
            }
        } else {
            let mut there = vec![0; moved];
            loop {
                match buffer.download(from, &mut there) {
                    Ok(()) => break,
                    Err(_) if self.shared.is_faulty() => std::thread::sleep(Duration::from_millis(1)),
                    // It may have ended just now.
                    Err(_) if self.shared.window() != before => {
                        buffer.download(from, &mut there).map_err(|error| error.to_string())?;
                        break;
                    }
                    Err(error) => return Err(format!("a copy out of the GPU: {error}")),
                }
            }
            if let Some(wrong) = (0..moved).find(|n| there[*n] != self.model[at + n]) {
                return Err(format!("{}: byte {wrong} is another", what()));
            }
        }
        add(&self.shared.counts.verified, moved as u64);
        Ok(moved == len)
    }

    /// What a failed write may have left: anything inside its range.
    fn look_again(&mut self, piece: Piece) -> Result<(), String> {
        let at = self.absolute(piece);
        let part = &mut self.model[piece.at..piece.at + piece.len];
        self.plain.read_exact_at(part, at).map_err(|error| error.to_string())
    }

    fn compare_all(&mut self) -> Result<(), String> {
        let mut now = vec![0; SPAN];
        self.plain.read_exact_at(&mut now, self.base as u64).map_err(|error| error.to_string())?;
        match (0..SPAN).find(|n| now[*n] != self.model[*n]) {
            Some(wrong) => Err(format!("byte {wrong} of the file was changed by nobody")),
            None => Ok(()),
        }
    }
}
