//! `hipfile bench --report`: the same job in calls of many sizes, and with many requests under way. How the outcome is shown is in
//! `report/page.rs`.

use std::path::Path;
use std::time::Duration;

use hipfile::{Config, PageCache};

use super::contender::{Baseline, Door, Lab, Who};
use super::job::{Cache, Job, Mix};
use super::report::page::{self, By, Series};
use super::report::{Device, Report, Skipped};
use super::rounds::{Entry, run_rounds};
use crate::failure::{Failure, note};
use crate::units::show_size;

/// Bytes of a call.
const SIZES: [usize; 8] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
/// Requests under way.
const DEPTHS: [usize; 6] = [1, 4, 16, 64, 256, 1024];
/// What is read with so many under way.
const SMALL: usize = 4 << 10;
/// How long one run takes at most, unless the command line says.
const TIME: Duration = Duration::from_secs(1);

/// The library beside baselines.
pub(super) struct Comparison<'a> {
    pub(super) lab: Lab<'a>,
    pub(super) device: Device,
    pub(super) repeat: u32,
}

impl Comparison<'_> {
    /// Runs a job by all of them; a baseline that cannot is named in the report.
    ///
    /// # Errors
    /// The library cannot be made ready, or a run fails.
    pub(super) fn run(
        &self,
        door: Door,
        config: &Config,
        job: &Job,
        baselines: &[Baseline],
    ) -> Result<Report, Failure> {
        let who = Who::Library(door, Box::new(config.clone()));
        let mut entries = vec![Entry::new("hipfile", &who, job, &self.lab)?];
        let mut skipped = Vec::new();
        for &baseline in baselines {
            match Entry::new(baseline.name(), &Who::Baseline(baseline), job, &self.lab) {
                Ok(entry) => entries.push(entry),
                Err(why) => skipped.push(Skipped { name: baseline.name().to_owned(), why: why.to_string() }),
            }
        }
        run_rounds(&mut entries, &self.lab, self.repeat)?;
        Ok(Report::new(self.device.clone(), self.lab.subject, job, door, self.repeat, &entries, skipped))
    }
}

/// A job that is run in many sizes and depths.
pub(super) struct Sweep<'a> {
    pub(super) comparison: Comparison<'a>,
    /// In calls of many sizes; with many requests under way there are others.
    pub(super) baselines: &'a [Baseline],
    pub(super) config: Config,
    pub(super) job: Job,
}

impl Sweep<'_> {
    /// Runs it, and writes the page into a folder.
    ///
    /// # Errors
    /// A run fails, or a file cannot be written.
    pub(super) fn run(&self, folder: &Path) -> Result<(), Failure> {
        let sizes = SIZES.into_iter().filter(|size| *size as u64 <= self.job.span);
        let by_size = sizes.map(|block| {
            note(format_args!("calls of {}", show_size(block as u64)));
            self.comparison.run(Door::Sync, &self.config, &Job { block, ..self.limited() }, self.baselines)
        });
        let mut series = vec![Series { reports: by_size.collect::<Result<_, _>>()?, by: By::Size }];
        if !self.job.mix.writes() {
            let mut around = self.config.clone();
            around.page_cache = PageCache::Direct;
            let by_depth = DEPTHS.into_iter().map(|depth| {
                note(format_args!("{depth} under way"));
                let job = Job {
                    mix: Mix::Randread,
                    cache: Cache::Cold,
                    block: SMALL,
                    threads: 1,
                    depth,
                    ..self.limited()
                };
                self.comparison.run(Door::Batch, &around, &job, &[Baseline::Pread, Baseline::Uring16])
            });
            series.push(Series { reports: by_depth.collect::<Result<_, _>>()?, by: By::Depth });
        }
        page::write(folder, &series)
    }

    fn limited(&self) -> Job {
        Job { limit: self.job.limit.or(Some(TIME)), ..self.job.clone() }
    }
}
