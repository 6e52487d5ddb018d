//! `hipfile bench --table`: the project's own yardsticks, one after the other on one file, each with what it must reach. What the
//! rows measure is in `table/rows.rs`; here are the file, the settings they share, and how the outcome is told.

mod rows;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hipfile::{Config, PageCache};
use serde::Serialize;

use super::contender::{Baseline, Door, Lab, Who};
use super::job::Job;
use super::machine::Machine;
use super::report::{Device, short};
use super::rounds::{Entry, Spread, run_rounds};
use super::subject::Subject;
use crate::failure::{Failure, note};
use crate::standard;
use crate::units::show_size;
use rows::{ROWS, Row};

/// Bytes of the file at full scale.
const FILE: u64 = 4 << 30;

/// How the table is run.
pub(super) struct Table {
    /// 1 for full sizes and times.
    pub(super) scale: f64,
    /// Rounds, where not each row's own number.
    pub(super) repeat: Option<u32>,
    /// Only rows whose name holds this.
    pub(super) only: Option<String>,
    pub(super) json: bool,
    pub(super) gpu: u32,
    /// The file to make and remove.
    pub(super) path: PathBuf,
}

/// What the rows work with.
struct Bench<'a> {
    lab: Lab<'a>,
    subject: &'a Subject,
    base: Config,
    table: &'a Table,
}

/// What a row asks for.
#[derive(Clone, Copy, Debug)]
enum Required {
    /// A ratio: times as fast as the baseline.
    AtLeast(f64),
    /// A quantity in the unit that the finding names.
    AtMost(f64),
}

/// One line of the table.
struct Finding {
    case: String,
    ours: String,
    baseline: String,
    /// Times as fast, or the quantity, round by round.
    measure: Spread,
    unit: &'static str,
    required: Required,
}

impl Finding {
    fn reached(&self) -> bool {
        match self.required {
            Required::AtLeast(least) => self.measure.median() >= least,
            Required::AtMost(most) => self.measure.median() <= most,
        }
    }
}

impl Table {
    /// Runs the rows and prints the table, row by row as it comes to be.
    pub(super) fn run(&self, driver: &hipfile::Driver, device: Device) -> Result<(), Failure> {
        if let Some(why) = device.moves_no_bytes() {
            let hint = "the row that needs such a link makes one for itself";
            return Err(Failure::new("--table", format_args!("not possible here: {why} ({hint})")));
        }
        let wanted = |row: &&Row| self.only.as_ref().is_none_or(|only| row.name.contains(only.as_str()));
        let chosen: Vec<&Row> = ROWS.iter().filter(wanted).collect();
        if let (true, Some(only)) = (chosen.is_empty(), &self.only) {
            let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
            let hint = format!("rows are {}", names.join(", "));
            return Err(Failure::new("--row", format_args!("no row's name holds {only:?}")).and(hint));
        }
        let begun = Instant::now();
        let size = self.bytes(FILE) + (1 << 20);
        note(format_args!("making a file of {}", show_size(size)));
        let subject = Subject::make(&self.path, size, false)?;
        let mut base = driver.config().clone();
        // The staged path is what this table is about; a direct engine would be faster than its yardsticks.
        base.engines = Some(rows::STAGED.split(',').map(str::to_owned).collect());
        let lab = Lab { subject: &subject, gpu: self.gpu, driver };
        let bench = Bench { lab, subject: &subject, base, table: self };
        let machine = Machine::here();
        if !self.json {
            self.say(&format!(
                "machine: {machine}  \ndevice: {device}  \n{}\n{}",
                file_line(&subject, self.scale),
                HEAD
            ))?;
        }
        let mut lines = Vec::new();
        for row in chosen {
            let start = Instant::now();
            let findings = (row.run)(&bench).map_err(|failure| Failure::new(row.name, failure))?;
            note(format_args!("{}: {:.0} s", row.name, start.elapsed().as_secs_f64()));
            for finding in &findings {
                if !self.json {
                    self.say(&finding.markdown())?;
                }
                lines.push(finding.line(row.name));
            }
        }
        let missed = lines.iter().filter(|line| !line.reached).count();
        if self.json {
            let outcome = Outcome {
                schema_version: 1,
                tool_version: env!("CARGO_PKG_VERSION"),
                machine,
                device,
                scale: self.scale,
                seconds: begun.elapsed().as_secs_f64(),
                rows: lines,
            };
            let text = serde_json::to_string(&outcome).map_err(|error| Failure::new("--json", error))?;
            self.say(&text)?;
        }
        note(format_args!("{missed} not reached, after {:.0} s", begun.elapsed().as_secs_f64()));
        Ok(())
    }

    fn say(&self, text: &str) -> Result<(), Failure> {
        standard::out(&format!("{text}\n"))
    }

    /// A size at the table's scale, in whole MiB and not below 4 MiB.
    fn bytes(&self, full: u64) -> u64 {
        (((full as f64 * self.scale) as u64) >> 20 << 20).max(4 << 20)
    }

    fn time(&self, full: Duration) -> Duration {
        full.mul_f64(self.scale.min(1.0)).max(Duration::from_millis(20))
    }
}

const HEAD: &str = "\n| case | hipfile | against | times as fast, or quantity: median (min..max), rounds | required | reached |\n|---|---|---|---|---|---|";

fn file_line(subject: &Subject, scale: f64) -> String {
    let disk = match &subject.disk {
        Ok(disk) => format!("on {}", disk.name),
        Err(why) => format!("disk unknown: {why}"),
    };
    format!("file: {}, {} {disk}; scale {scale}  ", show_size(subject.size), subject.fs_type)
}

#[derive(Serialize)]
struct Outcome {
    schema_version: u32,
    tool_version: &'static str,
    machine: Machine,
    device: Device,
    scale: f64,
    seconds: f64,
    rows: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    row: &'static str,
    case: String,
    ours: String,
    against: String,
    /// `x` for a ratio.
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    rounds: usize,
    at_least: Option<f64>,
    at_most: Option<f64>,
    reached: bool,
}

impl Finding {
    fn markdown(&self) -> String {
        let (median, min, max) = (self.measure.median(), self.measure.min(), self.measure.max());
        let required = match self.required {
            Required::AtLeast(least) => format!("at least {least} {}", self.unit),
            Required::AtMost(most) => format!("at most {most} {}", self.unit),
        };
        format!(
            "| {} | {} | {} | {} {} ({}..{}), {} | {required} | {} |",
            self.case,
            self.ours,
            self.baseline,
            short(median),
            self.unit,
            short(min),
            short(max),
            self.measure.len(),
            if self.reached() { "yes" } else { "**no**" },
        )
    }

    fn line(&self, row: &'static str) -> Line {
        let (at_least, at_most) = match self.required {
            Required::AtLeast(least) => (Some(least), None),
            Required::AtMost(most) => (None, Some(most)),
        };
        Line {
            row,
            case: self.case.clone(),
            ours: self.ours.clone(),
            against: self.baseline.clone(),
            unit: self.unit,
            median: self.measure.median(),
            min: self.measure.min(),
            max: self.measure.max(),
            rounds: self.measure.len(),
            at_least,
            at_most,
            reached: self.reached(),
        }
    }
}

impl Bench<'_> {
    /// The library with the table's settings and a page cache policy.
    fn library(&self, page_cache: PageCache) -> Who {
        let mut config = self.base.clone();
        config.page_cache = page_cache;
        Who::Library(Door::Sync, Box::new(config))
    }

    fn ours(&self) -> Who {
        self.library(PageCache::Auto)
    }

    /// Runs these in turn. The first one's label stands for the library in messages.
    fn compare(&self, contenders: &[(&str, Who, &Job)], rounds: u32) -> Result<Vec<Entry>, Failure> {
        let ready = contenders.iter().map(|(label, who, job)| Entry::new(*label, who, job, &self.lab));
        let mut entries = ready.collect::<Result<Vec<_>, _>>()?;
        run_rounds(&mut entries, &self.lab, self.table.repeat.unwrap_or(rounds))?;
        Ok(entries)
    }

    fn bytes(&self, full: u64) -> u64 {
        self.table.bytes(full)
    }

    /// The size of a call of up to `full` bytes within `span`.
    fn block(&self, full: usize, span: u64) -> usize {
        full.min(usize::try_from(span).unwrap_or(full))
    }

    fn time(&self, full: Duration) -> Duration {
        self.table.time(full)
    }

    fn path(&self) -> PathBuf {
        self.subject.path.clone()
    }
}

fn baseline(baseline: Baseline) -> Who {
    Who::Baseline(baseline)
}
