//! The driver's transfers, counted: what the statistics are told about each. It decides nothing about them.

use super::{Driver, Inner};
use crate::config::WriteSync;
use crate::device::Devices;
use crate::engine;
use crate::error::{Error, Result};
use crate::log;
use crate::op::Op;
use crate::probe;
use crate::route::{Pause, Small, Stage, Walk, Way};
use crate::stats::{self, Event, Meter, Meters, Split, Start};
use crate::sys::{self, Site};
use crate::transfer::Transfer;

/// Makes a write durable. Its failure fails the call: the data may not be safe.
fn sync(transfer: &Transfer<'_>) -> Result<()> {
    const OP: &str = "write";
    // What it makes durable, and when, is the file system's own affair.
    if transfer.file.user(Op::Write).is_some() {
        return Ok(());
    }
    let plain = transfer.file.plain(OP)?;
    rustix::io::retry_on_intr(|| sys::at(Site::WriteSync, || rustix::fs::fdatasync(plain.fd)))
        .map_err(|e| Error::errno(OP, e))
}

/// Whether direct access would want it otherwise aligned.
fn is_unaligned(transfer: &Transfer<'_>) -> bool {
    let align = transfer.file.direct_align();
    let (mem, offset) = align.map_or((4096, 4096), |align| (align.mem, align.of_offsets(transfer.op)));
    let off = transfer.file_offset | transfer.len() as u64;
    off & u64::from(offset - 1) != 0 || transfer.span.start() & (mem as usize - 1) != 0
}

/// Tells who listens that a transfer begins.
fn begins(transfer: &Transfer<'_>) {
    log::began(transfer);
    let Transfer { op, file, file_offset, span, .. } = transfer;
    probe::transfer_begin(*op, file.fd(), *file_offset, span.len(), span.place().gpu());
}

/// Tells who listens how a transfer ended.
fn ends(transfer: &Transfer<'_>, result: &Result<usize>, split: &Split) {
    log::ended(transfer, result, split);
    let moved = result.as_ref().map_or(-1, |moved| *moved as i64);
    probe::transfer_end(transfer.op, transfer.file.fd(), transfer.file_offset, moved, split.direct);
}

impl Driver {
    /// Counts how a call ended.
    pub(super) fn counted<T>(&self, result: &Result<T>, well: Event, badly: Event) {
        if !self.in_forked_child() {
            self.inner.meters.ended(result.is_ok(), well, badly);
        }
    }
}

impl Inner {
    /// Counts a registration of memory, or its end.
    pub(super) fn count_memory(&self, gpu: Option<u32>, begun: bool, len: usize) {
        if let Some(ledger) = self.meters.ledger() {
            ledger.memory(gpu, begun, len as u64);
        }
    }

    /// Tells the statistics which GPUs there are.
    pub(super) fn describe(&self, devices: &Devices) {
        let Some(ledger) = self.meters.ledger() else { return };
        for device in devices.serving() {
            ledger.set_emulated(device.is_emulated());
            // One that cannot be described has no name then.
            for info in device.list().unwrap_or_default() {
                ledger.set_gpu(info.ordinal as usize, info.uuid);
            }
        }
    }

    /// How this driver counts.
    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    fn meter<'a>(&'a self, transfer: &Transfer<'a>, start: Start) -> Meter<'a> {
        self.meters.meter(&transfer.file.counters, transfer.op, transfer.span.place().gpu(), start)
    }

    /// Whether it is made durable before anyone is told that it is done.
    fn is_synced(&self, transfer: &Transfer<'_>) -> bool {
        transfer.op == Op::Write && self.config.write_sync == WriteSync::Data
    }

    /// Carries a checked transfer out on this thread.
    pub(crate) fn carry(&self, transfer: &Transfer<'_>) -> Result<usize> {
        self.carry_split(transfer).0
    }

    /// As [`Inner::carry`], and says which way it went.
    #[inline]
    pub(crate) fn carry_split(&self, transfer: &Transfer<'_>) -> (Result<usize>, Split) {
        if transfer.len() == 0 {
            return (Ok(0), Split::default());
        }
        begins(transfer);
        let start = self.meters.start(transfer.len());
        if start.is_sixteenth() {
            transfer.file.look_after();
        }
        let synced = self.is_synced(transfer);
        let small = if synced { None } else { self.router.run_small(transfer) };
        let (result, split) = match small {
            Some(Ok(small)) => (Ok(small.moved), self.count_small(transfer, start, small)),
            Some(Err(error)) => self.carry_on(transfer, start, |meter| {
                meter.failed(engine::LAST_RESORT, false);
                Err(error)
            }),
            None => self.carry_on(transfer, start, |meter| {
                let moved = self.router.run(transfer, meter)?;
                if synced { sync(transfer).map(|()| moved) } else { Ok(moved) }
            }),
        };
        ends(transfer, &result, &split);
        (result, split)
    }

    /// Carries a transfer out in a way that counts its own parts.
    #[inline(never)]
    fn carry_on(
        &self,
        transfer: &Transfer<'_>,
        start: Start,
        run: impl FnOnce(&Meter<'_>) -> Result<usize>,
    ) -> (Result<usize>, Split) {
        let meter = self.meter(transfer, start);
        let result = run(&meter);
        meter.end(transfer.len(), result.is_ok(), || is_unaligned(transfer), None);
        (result, meter.split())
    }

    /// Counts what went the short way.
    #[inline]
    fn count_small(&self, transfer: &Transfer<'_>, start: Start, small: Small) -> Split {
        let Small { moved, reason } = small;
        let (file, op, gpu) = (&transfer.file.counters, transfer.op, transfer.span.place().gpu());
        let way = (engine::LAST_RESORT, reason, moved);
        let unaligned = || is_unaligned(transfer);
        self.meters.staged_whole(start, file, (op, gpu, transfer.len()), way, unaligned);
        Split {
            staged: moved,
            engines: 1 << engine::LAST_RESORT,
            timed: start.is_timed(),
            ..Split::default()
        }
    }

    /// Goes on with the transfer of a held stream; `split` says how it went so far.
    pub(crate) fn carry_held(
        &self,
        transfer: &Transfer<'_>,
        walk: &mut Walk,
        stage: &mut Stage<'_>,
        split: &mut Split,
    ) -> Pause {
        if walk.is_new() {
            begins(transfer);
        }
        let meter = self.meter(transfer, Start::of(None)).resume(*split);
        let pause = self.router.carry(transfer, &meter, walk, Some(stage));
        *split = meter.pause();
        match pause {
            Pause::Finished(Ok(moved)) if self.is_synced(transfer) => {
                Pause::Finished(sync(transfer).map(|()| moved))
            }
            pause => pause,
        }
    }

    /// Carries a part of a held stream's transfer, of which others may be under way; `split` says how it went.
    pub(crate) fn carry_part(
        &self,
        part: &Transfer<'_>,
        first: bool,
        stage: &mut Stage<'_>,
        split: &mut Split,
    ) -> Pause {
        let meter = self.meter(part, Start::of(None));
        let pause = self.router.carry(part, &meter, &mut Walk::of_part(first), Some(stage));
        *split = meter.pause();
        pause
    }

    /// Tells who listens that a held stream's transfer begins, of which parts are carried.
    pub(crate) fn parts_begin(&self, transfer: &Transfer<'_>) {
        begins(transfer);
    }

    /// Counts the end of a held stream's transfer, which took so many nanoseconds of our threads.
    pub(crate) fn held_ended(
        &self,
        transfer: &Transfer<'_>,
        result: &Result<usize>,
        split: Split,
        took: u64,
    ) {
        let began = self.meters.begin(usize::MAX).map(|now| now.saturating_sub(took));
        let meter = self.meter(transfer, Start::of(began)).resume(split);
        meter.end(transfer.len(), result.is_ok(), || is_unaligned(transfer), Some(took));
        ends(transfer, result, &split);
    }

    /// A queue is given a transfer. The time, if it is taken. Where it comes back unmoved it begins again.
    pub(crate) fn queue_begins(&self, transfer: &Transfer<'_>) -> Option<u64> {
        begins(transfer);
        self.meters.begin(transfer.len())
    }

    /// Counts what a queue has moved wholly.
    pub(crate) fn queue_moved(&self, way: Way, transfer: &Transfer<'_>, began: Option<u64>) {
        let meter = self.meter(transfer, Start::of(began));
        self.router.queue_moved(way, transfer, &meter);
        meter.end(transfer.len(), true, || is_unaligned(transfer), None);
        ends(transfer, &Ok(transfer.len()), &meter.split());
    }

    /// Counts a submission to a batch that began at `since`: so many entries, and the bytes to read and to write.
    pub(crate) fn count_submission(&self, entries: [u64; 2], bytes: [u64; 2], ok: bool, since: u64) {
        let Some(ledger) = self.meters.ledger() else { return };
        let count = entries[0] + entries[1];
        if !ok {
            ledger.count(Event::BatchSubmitErr, 1);
            return ledger.count(Event::EntryRefused, count);
        }
        ledger.set_last_batch(bytes);
        ledger.count(Event::BatchSubmitOk, 1);
        ledger.count(Event::BatchSubmitNs, stats::now().saturating_sub(since));
        ledger.count(Event::BatchMixed, u64::from(entries[0] > 0 && entries[1] > 0));
        ledger.count(Event::EntryAccepted, count);
    }

    /// Counts an entry of a batch that ran; it was handed in at `since`.
    pub(crate) fn count_entry(&self, op: Op, result: &Result<usize>, split: Split, since: u64) {
        let Some(ledger) = self.meters.ledger() else { return };
        let Ok(moved) = result else { return ledger.count(Event::EntryFailed, 1) };
        ledger.count(Event::EntryDone, 1);
        ledger.count(if split.direct > 0 { Event::EntryDirect } else { Event::EntryStaged }, 1);
        if split.engines & 1 << engine::URING != 0 {
            ledger.count(Event::EntryUring, 1);
        }
        let bytes = if op == Op::Read { Event::EntryReadBytes } else { Event::EntryWriteBytes };
        ledger.count(bytes, *moved as u64);
        if split.timed {
            ledger.count(Event::EntryTimed, 1);
            ledger.count(Event::EntryNs, stats::now().saturating_sub(since));
        }
    }
}
