//! `hipfile tune`: tries the settings that storage and GPU decide about, one after the other, and writes those that pay into a
//! configuration file, with the evidence. It judges by pairs of runs, as the rest of the benchmark does.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use hipfile::{Config, Driver, Kind, PageCache, SETTINGS, Setting, Unit, Value};

use super::contender::{Door, Lab, Who};
use super::job::{Cache, Job};
use super::machine::Machine;
use super::report::{Device, short};
use super::rounds::{Entry, Spread, ratio, run_rounds};
use super::run::Sample;
use super::subject::Subject;
use crate::failure::{Failure, note};
use crate::units::show_size;
use crate::{Tool, device, standard, units};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Find settings that suit this machine's storage and GPU
///
/// Measures reads of a file in PATH with one setting after the other changed, in turn with the settings in force, and prints a
/// configuration file with those that are faster by a twentieth and more; HIPFILE_CONFIG then names that file. A setting that makes no
/// clear difference keeps its value. Takes some minutes; on a machine that is busy with other things it finds nothing.
#[derive(clap::Args)]
pub(crate) struct Tune {
    /// Directory to make a file in, or a file to read [default: the current folder]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,

    /// Write the configuration file here instead of printing it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace an existing configuration file
    #[arg(long, requires = "output")]
    force: bool,

    /// Bytes of the file to make
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = units::parse_size)]
    size: u64,

    /// Rounds for each setting
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(3..=1000))]
    repeat: u32,

    /// GPU, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: u32,
}

/// A setting that is tried.
struct Knob {
    setting: &'static str,
    values: &'static [u64],
    /// What is read while it is tried.
    workload: Workload,
}

/// Reads from the beginning to the end of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Workload {
    cache: Cache,
    block: u64,
    /// How the library treats the page cache; what it decides itself is not tried.
    policy: PageCache,
}

const fn cold(block: u64, policy: PageCache) -> Workload {
    Workload { cache: Cache::Cold, block, policy }
}

const fn warm(block: u64) -> Workload {
    Workload { cache: Cache::Warm, block, policy: PageCache::Auto }
}

/// In this order: what is found for one holds for the next.
const KNOBS: &[Knob] = &[
    Knob {
        setting: "block_size",
        values: &[512 * KIB, MIB, 2 * MIB, 4 * MIB],
        workload: cold(64 * MIB, PageCache::Direct),
    },
    Knob { setting: "queue_depth", values: &[2, 4, 8, 16, 32], workload: cold(64 * MIB, PageCache::Direct) },
    Knob { setting: "uring_min", values: &[0, 2 * MIB, 1 << 40], workload: cold(MIB, PageCache::Direct) },
    Knob {
        setting: "direct_min",
        values: &[64 * KIB, 512 * KIB, 1 << 40],
        workload: cold(256 * KIB, PageCache::Auto),
    },
    Knob { setting: "direct_min", values: &[512 * KIB, 1 << 40], workload: cold(4 * MIB, PageCache::Auto) },
    Knob { setting: "io_threads", values: &[1, 2, 4, 8, 16], workload: warm(64 * MIB) },
    Knob { setting: "parallel_min", values: &[512 * KIB, MIB, 4 * MIB, 1 << 40], workload: warm(2 * MIB) },
];

/// How much faster a value must be to be taken.
const PAYS: f64 = 1.05;
/// The share of the pairs that must say so.
const AGREED: f64 = 0.75;

/// What came of trying a value.
struct Trial {
    value: u64,
    times_as_fast: Spread,
    /// The share of its pairs in which it was the faster.
    wins: f64,
    gb_per_s: f64,
}

impl Trial {
    fn pays(&self) -> bool {
        self.times_as_fast.median() >= PAYS && self.wins >= AGREED
    }
}

/// What came of a knob.
struct Finding {
    knob: &'static Knob,
    usual: u64,
    usual_gb_per_s: f64,
    trials: Vec<Trial>,
}

impl Finding {
    /// The value to take, if another than the usual one.
    fn best(&self) -> Option<&Trial> {
        let paying = self.trials.iter().filter(|trial| trial.pays());
        paying.max_by(|a, b| a.times_as_fast.median().total_cmp(&b.times_as_fast.median()))
    }
}

impl Tool for Tune {
    fn prints(&self) -> bool {
        self.output.is_none()
    }

    fn run(self) -> Result<(), Failure> {
        if let Some(path) = self.output.as_ref().filter(|path| path.exists() && !self.force) {
            return Err(Failure::at(path, "exists; --force replaces it"));
        }
        let (driver, info) = device::open(self.gpu)?;
        let device = Device::from(info);
        if let Some(why) = device.moves_no_bytes() {
            return Err(Failure::new("tune", format_args!("not possible here: {why}")));
        }
        let subject = self.subject()?;
        let span = self.size.min(subject.size);
        if span < 64 * MIB {
            return Err(Failure::at(&subject.path, "less than 64M tell nothing"));
        }
        let mut config = driver.config().clone();
        let mut findings = Vec::new();
        for knob in KNOBS {
            let finding = self.try_knob(knob, &config, &subject, &driver, span)?;
            tell(&finding);
            if let Some(best) = finding.best() {
                set(knob, &mut config, best.value)?;
            }
            findings.push(finding);
        }
        let text = configuration(
            &findings,
            driver.config(),
            &config,
            &Machine::here().to_string(),
            &device,
            &subject,
        );
        match &self.output {
            None => standard::out(&text),
            Some(path) => save(path, &text, self.force),
        }
    }
}

impl Tune {
    fn subject(&self) -> Result<Subject, Failure> {
        let path = self.path.clone().unwrap_or_else(|| PathBuf::from("."));
        if path.is_dir() {
            let name = Subject::name();
            let name = name.file_name().unwrap_or_default();
            note(format_args!("making a file of {} in {}", show_size(self.size), path.display()));
            return Subject::make(&path.join(name), self.size, false);
        }
        Subject::open(&path, false)
    }

    fn try_knob(
        &self,
        knob: &'static Knob,
        config: &Config,
        subject: &Subject,
        driver: &Driver,
        span: u64,
    ) -> Result<Finding, Failure> {
        let lab = Lab { subject, gpu: self.gpu, driver };
        let usual = number(knob, config)?;
        let block = usize::try_from(knob.workload.block.min(span)).unwrap_or(usize::MAX);
        let job = Job { cache: knob.workload.cache, ..Job::read(span, block) };
        let mut values = vec![usual];
        values.extend(knob.values.iter().copied().filter(|value| *value != usual));
        let mut entries = Vec::new();
        for value in &values {
            let mut with = config.clone();
            // Direct access knows none of these.
            with.engines = Some(vec!["uring".to_owned(), "bounce".to_owned()]);
            with.page_cache = knob.workload.policy;
            set(knob, &mut with, *value)?;
            let who = Who::Library(Door::Sync, Box::new(with));
            entries.push(Entry::new(format!("{}={value}", knob.setting), &who, &job, &lab)?);
        }
        run_rounds(&mut entries, &lab, self.repeat)?;
        let speed = |entry: &Entry| entry.spread(Sample::gb_per_s).median();
        let Some((first, others)) = entries.split_first() else {
            return Err(Failure::new(knob.setting, "nothing to try"));
        };
        let trials = others.iter().zip(&values[1..]).map(|(entry, value)| {
            let pairs = entry.samples.iter().zip(&first.samples);
            let won = pairs.filter(|(new, old)| new.seconds_per_byte() < old.seconds_per_byte()).count();
            Trial {
                value: *value,
                times_as_fast: ratio(entry, first),
                wins: won as f64 / entry.samples.len().max(1) as f64,
                gb_per_s: speed(entry),
            }
        });
        Ok(Finding { knob, usual, usual_gb_per_s: speed(first), trials: trials.collect() })
    }
}

fn setting(knob: &Knob) -> Result<&'static Setting, Failure> {
    Setting::named(knob.setting).ok_or_else(|| Failure::new(knob.setting, "no such setting"))
}

fn number(knob: &Knob, config: &Config) -> Result<u64, Failure> {
    match setting(knob)?.get(config) {
        Value::Number(number) => Ok(number),
        other => Err(Failure::new(knob.setting, format_args!("{other} is no number"))),
    }
}

fn set(knob: &Knob, config: &mut Config, value: u64) -> Result<(), Failure> {
    let set = setting(knob)?.set(config, &Value::Number(value));
    set.map_err(|invalid| Failure::new(knob.setting, format_args!("{value}: {invalid}")))
}

/// The value as it stands in a configuration file.
fn written(setting: &Setting, config: &Config) -> String {
    let value = match setting.get(config) {
        Value::Number(value) => value,
        other => return other.to_string(),
    };
    let is_size = matches!(setting.kind, Kind::Number { unit: Unit::Bytes, .. });
    let units = [("G", 30), ("M", 20), ("K", 10)];
    let unit = units.iter().find(|(_, bits)| value >> bits << bits == value && value > 0);
    match unit.filter(|_| is_size) {
        Some((letter, bits)) => format!("\"{}{letter}\"", value >> bits),
        None => value.to_string(),
    }
}

fn tell(finding: &Finding) {
    match finding.best() {
        Some(best) => note(format_args!(
            "{}: {} is {} times as fast as {}",
            finding.knob.setting,
            best.value,
            short(best.times_as_fast.median()),
            finding.usual
        )),
        None => note(format_args!("{}: {} stays", finding.knob.setting, finding.usual)),
    }
}

/// The configuration file: what pays, and as comments all that was measured.
fn configuration(
    findings: &[Finding],
    before: &Config,
    after: &Config,
    machine: &str,
    device: &Device,
    subject: &Subject,
) -> String {
    let mut text = format!(
        "# Settings found by hipfile {} tune; HIPFILE_CONFIG names this file.\n# machine: {machine}\n# device: {device}\n\
         # file: {}, {}\n",
        env!("CARGO_PKG_VERSION"),
        show_size(subject.size),
        subject.fs_type,
    );
    let changed = SETTINGS.iter().filter(|setting| setting.get(after) != setting.get(before));
    let lines: String =
        changed.map(|setting| format!("{} = {}\n", setting.name, written(setting, after))).collect();
    text.push_str(if lines.is_empty() {
        "# Nothing pays: the settings in force are right.\n"
    } else {
        &lines
    });
    text.push_str("\n# What was measured, in GB/s; in brackets times as fast as the first (lowest, highest of the pairs).\n");
    for finding in findings {
        let Workload { cache, block, .. } = finding.knob.workload;
        let _ = writeln!(
            text,
            "# {}, {} in calls of {}: {} {}",
            finding.knob.setting,
            cache.word(),
            show_size(block),
            finding.usual,
            short(finding.usual_gb_per_s)
        );
        for Trial { value, times_as_fast, gb_per_s, .. } in &finding.trials {
            let (middle, low, high) = (times_as_fast.median(), times_as_fast.min(), times_as_fast.max());
            let _ = writeln!(
                text,
                "#   {value} {} ({}; {}, {})",
                short(*gb_per_s),
                short(middle),
                short(low),
                short(high)
            );
        }
    }
    text
}

/// Writes a new file, or replaces one at once.
fn save(path: &Path, text: &str, replace: bool) -> Result<(), Failure> {
    let at = |error: std::io::Error| Failure::at(path, error);
    if !replace {
        let mut file = fs::File::create_new(path).map_err(at)?;
        return file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(at);
    }
    let name = path.file_name().ok_or_else(|| Failure::at(path, "it is no name of a file"))?;
    let new = path.with_file_name(format!(".{}.{}.new", name.display(), std::process::id()));
    let mut file = fs::File::create_new(&new).map_err(at)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&new, path)).map_err(|error| {
        let _ = fs::remove_file(&new);
        at(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(ratios: &[f64], wins: f64) -> Finding {
        let trial = Trial { value: 8, times_as_fast: ratios.iter().copied().collect(), wins, gb_per_s: 1.0 };
        Finding { knob: &KNOBS[1], usual: 4, usual_gb_per_s: 1.0, trials: vec![trial] }
    }

    #[test]
    fn every_value_is_one_that_its_setting_takes() {
        for knob in KNOBS {
            let mut config = Config::default();
            for value in knob.values {
                assert!(set(knob, &mut config, *value).is_ok(), "{} {value}", knob.setting);
                assert_eq!(number(knob, &config).ok(), Some(*value));
            }
            let usual = number(knob, &Config::default()).expect("a number");
            assert!(knob.values.contains(&usual) || knob.setting == "io_threads", "{}", knob.setting);
        }
    }

    #[test]
    fn a_value_is_taken_only_when_the_pairs_agree() {
        assert!(finding(&[1.06, 1.1, 1.2], 1.0).best().is_some());
        assert!(finding(&[1.01, 1.02, 1.2], 1.0).best().is_none(), "too little");
        assert!(finding(&[0.7, 1.1, 1.2], 0.66).best().is_none(), "the pairs disagree");
    }

    #[test]
    fn sizes_are_written_as_people_write_them() {
        let written = |name: &str, value| {
            let setting = Setting::named(name).expect("a setting");
            let mut config = Config::default();
            setting.set(&mut config, &Value::Number(value)).expect("a value");
            written(setting, &config)
        };
        assert_eq!(written("block_size", 2 * MIB), "\"2M\"");
        assert_eq!(written("uring_min", 0), "0");
        assert_eq!(written("uring_min", 1 << 40), "\"1024G\"");
        assert_eq!(written("queue_depth", 64), "64");
    }
}
