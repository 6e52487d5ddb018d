//! `hipfile bench`: how fast files and GPU memory are connected, beside baselines that run in turn with it. The command line is
//! here; who takes part, the clock and the report are in the modules below. It tunes nothing.

mod batched;
mod cache;
mod contender;
mod disk;
mod histogram;
mod job;
mod machine;
mod moved;
mod movers;
mod probe;
mod report;
mod rounds;
mod run;
mod soak;
mod streamed;
mod subject;
mod sweep;
mod table;
mod tune;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use hipfile::{Config, PageCache};

use crate::failure::{Failure, note};
use crate::{Tool, device, standard, units};
use contender::{Baseline, Door, Lab};
use job::{Cache, Job, Mix};
use subject::Subject;
pub(crate) use tune::Tune;

/// Measure how fast files and the memory of a GPU are connected
///
/// Reads or writes a file through the library, in turn with baselines: in each round everyone runs once, in an order that
/// changes, and figures are medians over the rounds. Without FILE, a temporary file is made in the current folder. A FILE that
/// exists is never written unless --destroy is given. The physical share is what the block device really moved.
#[derive(clap::Args)]
pub(crate) struct Bench {
    /// File or block device to measure on; made and removed again if it does not exist
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// What to do
    #[arg(long, value_enum, default_value = "read")]
    rw: Mix,

    /// Bytes of the file to use, 1G unless FILE exists [default: all of FILE]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    size: Option<u64>,

    /// Bytes of one call, up to 1G
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = block_size)]
    block: usize,

    /// Threads that call at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,

    /// By which door the library is entered
    #[arg(long, value_enum, default_value = "sync")]
    door: Door,

    /// Engines that may serve, separated by commas, or auto for all
    #[arg(long, value_name = "NAMES", default_value = "auto")]
    engine: String,

    /// Whether the library goes through the page cache
    #[arg(long, value_enum, default_value = "auto")]
    policy: Policy,

    /// Drop the file's pages from the page cache before each run
    #[arg(long, conflicts_with_all = ["warm", "half_warm"])]
    cold: bool,

    /// Have the file in the page cache before each run
    #[arg(long, conflicts_with = "half_warm")]
    warm: bool,

    /// Have every other stretch of the file in the page cache before each run
    #[arg(long)]
    half_warm: bool,

    /// Let a write find the file empty and make it grow
    #[arg(long)]
    extend: bool,

    /// Do not sync at the end of a write
    #[arg(long)]
    no_sync: bool,

    /// Bytes by which all offsets in the file are shifted
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = units::parse_size)]
    offset_shift: u64,

    /// End each run after so many seconds; warm reads and overwriting go on until then
    #[arg(long, value_name = "SECONDS", value_parser = duration)]
    duration: Option<Duration>,

    /// Rounds [default: 5, with --table as each row needs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,

    /// Baselines to run in turn with the library, separated by commas
    #[arg(long, value_enum, value_name = "NAMES", value_delimiter = ',', default_value = "serial,raw")]
    baseline: Vec<Baseline>,

    /// Run no baseline
    #[arg(long, conflicts_with = "baseline")]
    alone: bool,

    /// Requests that the doors batch and async and the baseline raw keep under way
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,

    /// Bytes of one request of the baseline raw
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = block_size)]
    chunk: usize,

    /// Check every byte that the library moves, with the clock stopped
    #[arg(long)]
    verify: bool,

    /// Bind each of several threads to one processor
    #[arg(long)]
    pin: bool,

    /// GPU, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: u32,

    /// Write to FILE although it exists: its content is lost
    #[arg(long)]
    destroy: bool,

    /// Do not remove the FILE that was made
    #[arg(long)]
    keep: bool,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,

    /// Run the job in calls of many sizes and with many requests under way, and write a page with charts into DIR
    #[arg(long, value_name = "DIR", conflicts_with_all = ["table", "json", "verify"])]
    report: Option<PathBuf>,

    /// Run the project's own table of cases, each with what it must reach, on a file of 4G
    #[arg(long)]
    table: bool,

    /// Sizes and times of the table, 1 being full size
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "table", value_parser = scale)]
    scale: f64,

    /// Only the rows of the table whose name holds this
    #[arg(long, value_name = "NAME", requires = "table")]
    row: Option<String>,

    /// Look for faults and leaks instead: mixed work by every door for so many seconds, every byte checked
    #[arg(long, value_name = "SECONDS", value_parser = duration, conflicts_with = "table")]
    soak: Option<Duration>,

    /// Print what the library costs in memory while it reads FILE; the table starts this
    #[arg(long, hide = true, requires = "file")]
    memory_probe: bool,
}

/// The library's page cache policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// By what is cached, sizes and file system
    Auto,
    /// Around the page cache
    Direct,
    /// Through the page cache
    Buffered,
    /// Leave nothing in the page cache
    NoCache,
}

impl From<Policy> for PageCache {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Auto => PageCache::Auto,
            Policy::Direct => PageCache::Direct,
            Policy::Buffered => PageCache::Buffered,
            Policy::NoCache => PageCache::NoCache,
        }
    }
}

fn block_size(text: &str) -> Result<usize, String> {
    const MOST: u64 = 1 << 30;
    match units::parse_size(text)? {
        size @ 1..=MOST => usize::try_from(size).map_err(|error| error.to_string()),
        _ => Err("the range is 1 byte to 1G".to_owned()),
    }
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.001..=4.0).contains(&factor) => Ok(factor),
        _ => Err("a number from 0.001 to 4 is needed".to_owned()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is needed, such as 2.5".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("a time above 0 is needed".to_owned()),
    }
}

impl Tool for Bench {
    fn run(self) -> Result<(), Failure> {
        if let (true, Some(path)) = (self.memory_probe, &self.file) {
            return print_json(&probe::measure(path, self.gpu, self.config(&device::config())?)?);
        }
        let opened = device::open(self.gpu)?;
        let device = report::Device::from(opened.1);
        if self.table {
            return self.table().run(&opened.0, device);
        }
        if let Some(time) = self.soak {
            return self.soak(&opened.0, device.moves_no_bytes(), time);
        }
        if self.verify
            && let Some(why) = device.moves_no_bytes()
        {
            return Err(Failure::new("--verify", format_args!("not possible here: {why}")));
        }
        let config = self.config(opened.0.config())?;
        let subject = self.subject()?;
        let job = self.job(&subject)?;
        let lab = Lab { subject: &subject, gpu: self.gpu, driver: &opened.0 };
        let baselines = if self.alone { &[][..] } else { &self.baseline };
        let repeat = self.repeat.unwrap_or(5);
        let comparison = sweep::Comparison { lab, device, repeat };
        if let Some(folder) = &self.report {
            return sweep::Sweep { comparison, baselines, config, job }.run(folder);
        }
        let report = comparison.run(self.door, &config, &job, baselines)?;
        match self.json {
            true => print_json(&report),
            false => standard::out(&report.to_string()),
        }
    }
}

fn print_json(report: &impl serde::Serialize) -> Result<(), Failure> {
    standard::out(&(serde_json::to_string(report).map_err(|error| Failure::new("--json", error))? + "\n"))
}

impl Bench {
    /// On a new file: it is written to all over.
    fn soak(&self, driver: &hipfile::Driver, no_bytes: Option<&str>, time: Duration) -> Result<(), Failure> {
        if let Some(why) = no_bytes {
            return Err(Failure::new("--soak", format_args!("not possible here: {why}")));
        }
        let threads = usize::from(self.threads);
        let path = self.file.clone().unwrap_or_else(Subject::name);
        let subject = Subject::make(&path, soak::size(threads), self.keep)?;
        let gpus = driver.devices().map_err(|error| Failure::new("GPU", error))?.len();
        let report = soak::run(driver.config(), gpus as u32, &subject, threads, time)?;
        match self.json {
            true => print_json(&report),
            false => standard::out(&report.to_string()),
        }
    }

    fn table(&self) -> table::Table {
        table::Table {
            scale: self.scale,
            repeat: self.repeat,
            only: self.row.clone(),
            json: self.json,
            gpu: self.gpu,
            path: self.file.clone().unwrap_or_else(Subject::name),
        }
    }

    /// The library's settings: those of the environment, and on top those of the command line.
    fn config(&self, base: &Config) -> Result<Config, Failure> {
        let mut config = base.clone();
        if self.engine != "auto" {
            let names: Vec<String> = self.engine.split(',').map(|name| name.trim().to_owned()).collect();
            if let Some(unknown) = names.iter().find(|name| !hipfile::ENGINE_NAMES.contains(&name.as_str())) {
                let known = hipfile::ENGINE_NAMES.join(", ");
                return Err(Failure::new("--engine", format_args!("{unknown}: known are {known}")));
            }
            config.engines = Some(names);
        }
        config.page_cache = self.policy.into();
        let moves_nothing = config.engines.iter().flatten().any(|name| name == "null");
        if moves_nothing && self.verify {
            return Err(Failure::new("--verify", "the engine null moves no bytes"));
        }
        if moves_nothing {
            note("the engine null moves no bytes: what it carries is the cost of a call and nothing else");
        }
        Ok(config)
    }

    fn subject(&self) -> Result<Subject, Failure> {
        const DEFAULT: u64 = 1 << 30;
        let size = self.size.unwrap_or(DEFAULT).checked_add(self.offset_shift).ok_or_else(|| {
            Failure::new(
                "--offset-shift",
                format_args!("{} bytes behind such a size are too far", self.offset_shift),
            )
        })?;
        match &self.file {
            None => Subject::make(&Subject::name(), size, false),
            Some(path) if path.exists() && self.rw.writes() && !self.destroy => {
                Err(Failure::at(path, "exists, and its content would be lost; --destroy allows that"))
            }
            Some(path) if path.exists() => Subject::open(path, self.rw.writes()),
            Some(path) => Subject::make(path, size, self.keep),
        }
    }

    fn job(&self, subject: &Subject) -> Result<Job, Failure> {
        let room = subject.size.saturating_sub(self.offset_shift);
        let span = self.size.unwrap_or(room);
        let grows = self.extend && self.rw == Mix::Write;
        if span == 0 {
            return Err(Failure::at(&subject.path, "there are no bytes to measure with"));
        }
        if span > room && !grows {
            let why = format_args!(
                "{span} bytes from offset {} on are asked for, it has {}",
                self.offset_shift, subject.size
            );
            return Err(Failure::at(&subject.path, why));
        }
        if self.extend && !grows {
            return Err(Failure::new("--extend", "only a sequential write can make a file grow"));
        }
        if self.door != Door::Sync && self.threads > 1 {
            let why = format_args!("the door {} has one thread and --depth", self.door.word());
            return Err(Failure::new("--threads", why));
        }
        let whole_blocks = matches!(self.rw, Mix::Randread | Mix::Randwrite);
        if whole_blocks && !(1..=u64::from(u32::MAX)).contains(&(span / self.block as u64)) {
            let why = format_args!("{} bytes hold no or too many blocks of {}", span, self.block);
            return Err(Failure::new("--block", why));
        }
        // Writes start from an empty cache too, or each would find what the one before left.
        let cache = match (self.cold || self.rw.writes(), self.warm, self.half_warm) {
            (_, true, _) => Cache::Warm,
            (_, _, true) => Cache::Half,
            (true, ..) => Cache::Cold,
            _ => Cache::AsIs,
        };
        Ok(Job {
            mix: self.rw,
            extend: self.extend,
            shift: self.offset_shift,
            span,
            threads: self.threads.into(),
            depth: self.depth.into(),
            chunk: self.chunk,
            cache,
            limit: self.duration,
            sync: self.rw.writes() && !self.no_sync,
            verify: self.verify,
            pin: self.pin,
            places: 1,
            ..Job::read(span, self.block)
        })
    }
}
