//! What a measurement says, for people and as JSON. Every report names the machine and the device and says when the GPU is not
//! real; nothing that came out of the page cache is called the disk's speed.

pub(super) mod page;

use hipfile::DeviceInfo;
use serde::Serialize;

use super::contender::Door;
use super::job::{Job, Mix};
use super::machine::Machine;
use super::moved::Moved;
use super::rounds::{Entry, Spread, ratio};
use super::run::Sample;
use super::subject::Subject;
use crate::units::show_size;

/// Fields are only ever added; a change of meaning raises `schema_version`.
#[derive(Serialize)]
pub(super) struct Report {
    schema_version: u32,
    tool_version: &'static str,
    machine: Machine,
    device: Device,
    file: File,
    job: Job,
    /// By which door the library was entered.
    door: Door,
    repeat: u32,
    contenders: Vec<Contender>,
    ratios: Vec<Ratio>,
    /// Baselines that could not run here.
    skipped: Vec<Skipped>,
}

/// The GPU.
#[derive(Clone, Serialize)]
pub(super) struct Device {
    gpu: u32,
    name: String,
    runtime: &'static str,
    runtime_version: String,
    emulated: bool,
    /// What makes this emulation no measure of the truth, such as a timed link.
    emulation_note: Option<String>,
}

#[derive(Serialize)]
struct File {
    /// Names that are not UTF-8 are shown with replacement characters.
    path: String,
    bytes: u64,
    file_system: String,
    /// The block device, or null where there is none to be seen.
    disk: Option<String>,
    /// Why the physical figures are null.
    disk_unknown: Option<String>,
}

#[derive(Serialize)]
struct Contender {
    name: String,
    gb_per_s: Figures,
    iops: Figures,
    cpu_s_per_gb: Figures,
    latency: Latency,
    /// Bytes that the block device moved for a byte of the run, or null where that cannot be known.
    physical_share: Option<Figures>,
    #[serde(flatten)]
    moved: Moved,
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Figures {
    median: f64,
    min: f64,
    max: f64,
}

/// Over all runs. Of calls shorter than 64 KiB one in 16 is timed.
#[derive(Serialize)]
struct Latency {
    timed: u64,
    p50_us: f64,
    p99_us: f64,
    p99_9_us: f64,
}

#[derive(Serialize)]
struct Run {
    seconds: f64,
    bytes: u64,
    operations: u64,
    cpu_seconds: f64,
    physical_bytes: Option<u64>,
    cached_bytes_before: Option<u64>,
    cache_problem: Option<String>,
}

/// How many times as long as `of` the contender `to` took for a byte, pair by pair of one round.
#[derive(Serialize)]
struct Ratio {
    of: String,
    to: String,
    pairs: usize,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Clone, Serialize)]
pub(super) struct Skipped {
    pub(super) name: String,
    pub(super) why: String,
}

impl From<&Spread> for Figures {
    fn from(spread: &Spread) -> Self {
        Figures { median: spread.median(), min: spread.min(), max: spread.max() }
    }
}

impl From<DeviceInfo> for Device {
    fn from(info: DeviceInfo) -> Self {
        Device {
            gpu: info.ordinal,
            name: info.name,
            runtime: info.runtime,
            runtime_version: info.runtime_version,
            emulated: info.emulated,
            emulation_note: info.emulation_note,
        }
    }
}

impl Device {
    /// Why the bytes that arrive on it cannot be checked, if so.
    pub(super) fn moves_no_bytes(&self) -> Option<&str> {
        self.emulation_note.as_deref()
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} {})", self.name, self.runtime, self.runtime_version)?;
        if self.emulated {
            write!(f, ", EMULATED: copies cost this machine's CPU, no GPU is involved")?;
        }
        match &self.emulation_note {
            Some(note) => write!(f, "; {note}"),
            None => Ok(()),
        }
    }
}

impl Report {
    pub(super) fn new(
        device: Device,
        subject: &Subject,
        job: &Job,
        door: Door,
        repeat: u32,
        entries: &[Entry],
        skipped: Vec<Skipped>,
    ) -> Report {
        let (first, others) = match entries {
            [first, others @ ..] => (Some(first), others),
            [] => (None, &[][..]),
        };
        Report {
            schema_version: 1,
            tool_version: env!("CARGO_PKG_VERSION"),
            machine: Machine::here(),
            device,
            file: File {
                path: subject.path.to_string_lossy().into_owned(),
                bytes: subject.size,
                file_system: subject.fs_type.clone(),
                disk: subject.disk.as_ref().ok().map(|disk| disk.name.clone()),
                disk_unknown: subject.disk.as_ref().err().cloned(),
            },
            job: job.clone(),
            door,
            repeat,
            contenders: entries.iter().map(contender).collect(),
            ratios: first
                .into_iter()
                .flat_map(|of| others.iter().map(move |to| (of, to)))
                .map(|(of, to)| {
                    let spread = ratio(of, to);
                    let (of, to) = (of.label.clone(), to.label.clone());
                    Ratio { of, to, pairs: spread.len(), figures: Figures::from(&spread) }
                })
                .collect(),
            skipped,
        }
    }
}

fn contender(entry: &Entry) -> Contender {
    let mut latency = super::histogram::Histogram::default();
    entry.samples.iter().for_each(|sample| latency.merge(&sample.latency));
    let physical: Option<Spread> = entry.samples.iter().map(physical_share).collect::<Option<_>>();
    Contender {
        name: entry.label.clone(),
        gb_per_s: Figures::from(&entry.spread(Sample::gb_per_s)),
        iops: Figures::from(&entry.spread(|sample| sample.operations as f64 / sample.seconds)),
        cpu_s_per_gb: Figures::from(
            &entry.spread(|sample| sample.cpu_seconds / (sample.bytes as f64 / 1e9).max(1e-9)),
        ),
        latency: Latency {
            timed: latency.total(),
            p50_us: latency.quantile(0.5),
            p99_us: latency.quantile(0.99),
            p99_9_us: latency.quantile(0.999),
        },
        physical_share: physical.as_ref().map(Figures::from),
        moved: entry.moved(),
        runs: entry.samples.iter().map(run).collect(),
    }
}

fn physical_share(sample: &Sample) -> Option<f64> {
    Some(sample.disk_bytes? as f64 / (sample.bytes as f64).max(1.0))
}

fn run(sample: &Sample) -> Run {
    Run {
        seconds: sample.seconds,
        bytes: sample.bytes,
        operations: sample.operations,
        cpu_seconds: sample.cpu_seconds,
        physical_bytes: sample.disk_bytes,
        cached_bytes_before: sample.found.cached_bytes,
        cache_problem: sample.found.problem.clone(),
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let disk = match (&self.file.disk, &self.file.disk_unknown) {
            (Some(disk), _) => format!("on {disk}"),
            (None, why) => format!("disk unknown: {}", why.as_deref().unwrap_or("no reason")),
        };
        let size = show_size(self.file.bytes);
        writeln!(f, "machine   {}", self.machine)?;
        writeln!(f, "device    {}", self.device)?;
        writeln!(f, "file      {}, {size}, {} {disk}", self.file.path, self.file.file_system)?;
        writeln!(f, "job       {}", describe(&self.job, self.door, self.repeat))?;
        writeln!(f)?;
        writeln!(
            f,
            "{:<12}{:>8} {:>16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>14}",
            "",
            "GB/s",
            "min..max",
            "IOPS",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "CPU s/GB",
            "physical",
            "time / hipfile"
        )?;
        for contender in &self.contenders {
            let gb = &contender.gb_per_s;
            let physical = contender
                .physical_share
                .as_ref()
                .map_or_else(|| "unknown".to_owned(), |share| format!("{:.0} %", share.median * 100.0));
            let times = self.ratios.iter().find(|ratio| ratio.to == contender.name).map(|ratio| {
                let Figures { median, min, max } = ratio.figures;
                format!("{median:.2} ({min:.2}..{max:.2})")
            });
            writeln!(
                f,
                "{:<12}{:>8} {:>16} {:>9.0} {:>9} {:>9} {:>9} {:>9.3} {:>9} {:>14}",
                contender.name,
                short(gb.median),
                format!("{}..{}", short(gb.min), short(gb.max)),
                contender.iops.median,
                short(contender.latency.p50_us),
                short(contender.latency.p99_us),
                short(contender.latency.p99_9_us),
                contender.cpu_s_per_gb.median,
                physical,
                times.unwrap_or_default(),
            )?;
        }
        for contender in &self.contenders {
            let moved = &contender.moved;
            for (what, shares) in [("engines", &moved.engines), ("staged for", &moved.staged)] {
                if !shares.is_empty() {
                    let list: Vec<String> =
                        shares.iter().map(|s| format!("{} {}", s.name, show_size(s.bytes))).collect();
                    writeln!(f, "{}: {what} {}", contender.name, list.join(", "))?;
                }
            }
        }
        for Skipped { name, why } in &self.skipped {
            writeln!(f, "skipped {name}: {why}")?;
        }
        Ok(())
    }
}

/// Three significant digits.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn describe(job: &Job, door: Door, repeat: u32) -> String {
    let mix = match (job.mix, job.extend) {
        (Mix::Read, _) => "sequential read",
        (Mix::Write, false) => "sequential overwrite",
        (Mix::Write, true) => "sequential write to an empty file",
        (Mix::Randread, _) => "random read",
        (Mix::Randwrite, _) => "random overwrite",
    };
    let synced = match (job.mix.writes(), job.sync) {
        (true, true) => ", synced at the end",
        (true, false) => ", not synced",
        _ => "",
    };
    let verified = match (job.verify, door) {
        (false, _) => "",
        (true, Door::Sync) => ", verified",
        (true, Door::Async | Door::Batch) => ", verified (the checks are in hipfile's figures)",
    };
    let door = match door {
        Door::Sync => String::new(),
        Door::Async => format!(", hipfile by {} streams with one under way on each", job.depth),
        Door::Batch => format!(", hipfile by a batch with up to {} under way", job.depth),
    };
    format!(
        "{mix} of {} in calls of {}, {} thread{}{door}, offset {}, {}{synced}{}; {repeat} rounds",
        show_size(job.span),
        show_size(job.block as u64),
        job.threads,
        if job.threads == 1 { "" } else { "s" },
        job.shift,
        job.cache.word(),
        verified,
    )
}
