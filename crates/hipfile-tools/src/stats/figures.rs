//! The report as JSON: what its members are called, and nothing about how they come to be.

use hipfile::{Calls, GpuStats, Named, Op, Registrations, Side, Snapshot};
use serde::Serialize;

use crate::failure::Failure;

/// One process. Grows by members; a member that changes its meaning changes `schema_version`.
#[derive(Serialize)]
pub(super) struct Report {
    schema_version: u32,
    pid: u32,
    /// `hipfile`, or `amd` for a process that shows AMD's page only: what is not on it is 0, null or empty.
    source: &'static str,
    level: u64,
    emulated: Option<bool>,
    /// What the rates of `read` and `write` are about: seconds of the clock, of both together.
    seconds: f64,
    files: Registered,
    buffers: Registered,
    set_up_us: u64,
    refused_reads: u64,
    refused_writes: u64,
    fast_path_rejections: u64,
    read: Direction,
    write: Direction,
    gpus: Vec<Gpu>,
    batches: Batches,
    streams: Streams,
}

#[derive(Serialize)]
struct Registered {
    registered: u64,
    failed: u64,
    deregistered: u64,
}

#[derive(Serialize)]
struct Direction {
    operations: u64,
    bytes: u64,
    errors: u64,
    unaligned: u64,
    gb_per_s: f64,
    operations_per_s: f64,
    latency_us: Latency,
    engines: Vec<Row>,
    reasons: Vec<Row>,
    sizes: Vec<Size>,
}

/// Of transfers whose time was taken, as they stand for all; null where there are none.
#[derive(Serialize)]
struct Latency {
    average: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    p99_9: Option<f64>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    operations: u64,
    bytes: u64,
    errors: u64,
}

#[derive(Serialize)]
struct Size {
    /// The smallest size of the class, in bytes.
    from: u64,
    operations: u64,
    bytes: u64,
    errors: u64,
}

#[derive(Serialize)]
struct Gpu {
    /// Null for host memory and for GPUs beyond the sixteenth.
    gpu: Option<u32>,
    uuid: Option<String>,
    registered_bytes: u64,
    read: Direction,
    write: Direction,
}

#[derive(Serialize)]
struct Batches {
    submissions: u64,
    submissions_refused: u64,
    entries: u64,
    entries_done: u64,
    entries_failed: u64,
    entries_canceled: u64,
    entries_timed_out: u64,
    read_bytes: u64,
    write_bytes: u64,
}

#[derive(Serialize)]
struct Streams {
    operations: u64,
    operations_refused: u64,
    operations_failed: u64,
    read_bytes: u64,
    write_bytes: u64,
}

/// What is shown of a side: that of all memory, or of one GPU's or no GPU's.
type Part<'a> = dyn Fn(Option<Option<u32>>, Op, &Side) -> Side + 'a;

pub(super) fn json(report: &Report) -> Result<String, Failure> {
    serde_json::to_string(report).map_err(|error| Failure::new("--json", error))
}

impl Report {
    /// All that was counted.
    pub(super) fn new(snapshot: &Snapshot, is_amds: bool) -> Report {
        let mut both = snapshot.total(Op::Read);
        both.add(&snapshot.total(Op::Write));
        let source = if is_amds { "amd" } else { "hipfile" };
        let rate = |side: &Side, amount: u64| side.per_second(amount);
        Report { source, ..Report::of(snapshot, both.seconds(), &|_, _, side| side.clone(), &rate) }
    }

    /// What came between two looks; what is no transfer is told from the beginning.
    pub(super) fn between(before: &Snapshot, now: &Snapshot, seconds: f64) -> Report {
        let earlier = |ordinal: Option<Option<u32>>, op: Op, side: &Side| match ordinal {
            None => side.since(&before.total(op)),
            Some(ordinal) => before.gpu(ordinal).map_or_else(|| side.clone(), |gpu| side.since(gpu.side(op))),
        };
        Report::of(now, seconds, &earlier, &move |_, amount| amount as f64 / seconds.max(1e-9))
    }

    fn of(snapshot: &Snapshot, seconds: f64, part: &Part<'_>, rate: &dyn Fn(&Side, u64) -> f64) -> Report {
        let direction = |ordinal, op, side: &Side| Direction::of(&part(ordinal, op, side), rate);
        let gpu = |gpu: &GpuStats| Gpu {
            gpu: gpu.ordinal,
            uuid: (gpu.uuid != [0; 16]).then(|| gpu.uuid.iter().map(|byte| format!("{byte:02x}")).collect()),
            registered_bytes: gpu.memory_bytes[0].saturating_sub(gpu.memory_bytes[1]),
            read: direction(Some(gpu.ordinal), Op::Read, &gpu.read),
            write: direction(Some(gpu.ordinal), Op::Write, &gpu.write),
        };
        let (batches, streams) = (&snapshot.batches, &snapshot.streams);
        Report {
            schema_version: 1,
            pid: snapshot.pid,
            source: "hipfile",
            level: snapshot.level,
            emulated: snapshot.emulated,
            seconds,
            files: Registered::of(&snapshot.files),
            buffers: Registered::of(&snapshot.buffers),
            set_up_us: snapshot.set_up_nanoseconds / 1000,
            refused_reads: snapshot.refused[0],
            refused_writes: snapshot.refused[1],
            fast_path_rejections: snapshot.rejections(),
            read: direction(None, Op::Read, &snapshot.total(Op::Read)),
            write: direction(None, Op::Write, &snapshot.total(Op::Write)),
            gpus: snapshot.gpus.iter().map(gpu).collect(),
            batches: Batches {
                submissions: batches.submitted.ok,
                submissions_refused: batches.submitted.failed,
                entries: batches.entries.ok,
                entries_done: batches.done.ok,
                entries_failed: batches.done.failed,
                entries_canceled: batches.entries_canceled,
                entries_timed_out: batches.entries_timed_out,
                read_bytes: batches.bytes[0],
                write_bytes: batches.bytes[1],
            },
            streams: Streams {
                operations: streams.submitted.ok,
                operations_refused: streams.submitted.failed,
                operations_failed: streams.done.failed,
                read_bytes: streams.bytes[0],
                write_bytes: streams.bytes[1],
            },
        }
    }
}

impl Registered {
    fn of(registrations: &Registrations) -> Registered {
        let Registrations { begun: Calls { ok, failed }, ended } = *registrations;
        Registered { registered: ok, failed, deregistered: ended.ok }
    }
}

impl Direction {
    fn of(side: &Side, rate: &dyn Fn(&Side, u64) -> f64) -> Direction {
        let row = |named: &Named| Row {
            name: named.name.clone(),
            operations: named.operations,
            bytes: named.bytes,
            errors: named.errors,
        };
        let (bytes, operations) = (side.bytes(), side.operations());
        let latency = |share| side.latency(share).map(|nanoseconds| nanoseconds / 1000.0);
        Direction {
            operations,
            bytes,
            errors: side.errors(),
            unaligned: side.unaligned[0] + side.unaligned[1],
            gb_per_s: rate(side, bytes) / 1e9,
            operations_per_s: rate(side, operations),
            latency_us: Latency {
                average: (operations > 0).then(|| side.microseconds() as f64 / operations as f64),
                p50: latency(0.5),
                p99: latency(0.99),
                p99_9: latency(0.999),
            },
            engines: side.engines.iter().map(row).collect(),
            reasons: side.reasons.iter().map(row).collect(),
            sizes: sizes(side),
        }
    }
}

fn sizes(side: &Side) -> Vec<Size> {
    let classes = side.direct.iter().zip(&side.staged).enumerate();
    let sizes = classes.map(|(class, (direct, staged))| Size {
        from: if class == 0 { 0 } else { 4096 << (class - 1).min(50) },
        operations: direct.operations + staged.operations,
        bytes: direct.bytes + staged.bytes,
        errors: direct.errors + staged.errors,
    });
    sizes.filter(|size| (size.operations, size.bytes, size.errors) != (0, 0, 0)).collect()
}
