//! Several contenders, several rounds: in each round everyone runs once, in an order that differs from round to round, so that
//! a machine that drifts does so for all. What two runs of one round say about each other is a pair.

use super::contender::{Lab, Ready, Who};
use super::job::{Job, shuffle};
use super::moved::Moved;
use super::run::{Sample, run};
use super::subject::Subject;
use crate::failure::{Failure, note};
use bench_support::Request;

/// Most bytes of the call by which each contender opens what it opens at first use, before anything is timed.
const WARM_UP: usize = 16 << 20;

/// A contender with its runs.
pub(super) struct Entry {
    pub(super) label: String,
    pub(super) job: Job,
    ready: Ready,
    pub(super) samples: Vec<Sample>,
}

impl Entry {
    /// # Errors
    /// The contender cannot be made ready, for instance where O_DIRECT is refused.
    pub(super) fn new(
        label: impl Into<String>,
        who: &Who,
        job: &Job,
        lab: &Lab<'_>,
    ) -> Result<Entry, Failure> {
        let label = label.into();
        let ready = lab.ready(who, job).map_err(|failure| Failure::new(&label, failure))?;
        Ok(Entry { label, job: job.clone(), ready, samples: Vec::new() })
    }

    fn warm_up(&mut self) -> Result<(), Failure> {
        let len = WARM_UP.min(self.job.block).min(usize::try_from(self.job.span).unwrap_or(WARM_UP));
        let first = Request { offset: self.job.shift, len };
        match &mut self.ready {
            Ready::Calls { movers, .. } => {
                for mover in movers {
                    mover.call(0, first)?;
                }
            }
            Ready::Batch { batched, .. } => batched.warm_up(first)?,
            Ready::Streams { streamed, .. } => streamed.warm_up(first)?,
            Ready::Ring { .. } => {}
        }
        Ok(())
    }

    /// One figure of each run.
    pub(super) fn spread(&self, figure: impl Fn(&Sample) -> f64) -> Spread {
        self.samples.iter().map(figure).collect()
    }

    /// How the library moved the bytes of all runs.
    pub(super) fn moved(&self) -> Moved {
        let mut total = Moved::default();
        self.samples.iter().for_each(|sample| total.add(&sample.moved));
        total
    }
}

/// Runs every entry `repeat` times.
///
/// # Errors
/// The first failure of any, named by its label.
pub(super) fn run_rounds(entries: &mut [Entry], lab: &Lab<'_>, repeat: u32) -> Result<(), Failure> {
    let named = |label: &str, failure: Failure| Failure::new(label, failure);
    for entry in entries.iter_mut() {
        entry.warm_up().map_err(|failure| named(&entry.label, failure))?;
    }
    let mut told = false;
    for round in 0..u64::from(repeat) {
        let mut order: Vec<usize> = (0..entries.len()).collect();
        shuffle(&mut order, 0x6870_6266 + round);
        for index in order {
            let entry = &mut entries[index];
            let sample = run(&mut entry.ready, lab.subject, &entry.job, round)
                .map_err(|failure| named(&entry.label, failure))?;
            if let Some(problem) = sample.found.problem.as_ref().filter(|_| !told) {
                note(format_args!("{}: {problem}", lab.subject.path.display()));
                told = true;
            }
            entry.samples.push(sample);
        }
    }
    Ok(())
}

/// One run by itself, of another job than the entry's own.
pub(super) fn run_once(entry: &mut Entry, subject: &Subject, job: &Job) -> Result<Sample, Failure> {
    run(&mut entry.ready, subject, job, 0)
}

/// How many times as long as `of` the entry `to` took for a byte, round by round.
pub(super) fn ratio(of: &Entry, to: &Entry) -> Spread {
    let pairs = of.samples.iter().zip(&to.samples);
    pairs.map(|(of, to)| to.seconds_per_byte() / of.seconds_per_byte()).collect()
}

/// Figures of several runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Spread {
    sorted: Vec<f64>,
}

impl FromIterator<f64> for Spread {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Spread { sorted }
    }
}

impl Spread {
    /// Of an even number the mean of the middle two; 0 of none.
    pub(super) fn median(&self) -> f64 {
        let middle = self.sorted.len() / 2;
        match self.sorted.get(middle) {
            None => 0.0,
            Some(upper) if self.sorted.len() % 2 == 1 => *upper,
            Some(upper) => f64::midpoint(self.sorted[middle - 1], *upper),
        }
    }

    pub(super) fn min(&self) -> f64 {
        self.sorted.first().copied().unwrap_or(0.0)
    }

    pub(super) fn max(&self) -> f64 {
        self.sorted.last().copied().unwrap_or(0.0)
    }

    pub(super) fn len(&self) -> usize {
        self.sorted.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        let spread = |figures: &[f64]| figures.iter().copied().collect::<Spread>();
        assert_eq!(spread(&[]).median(), 0.0);
        assert_eq!(spread(&[3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        let few = spread(&[5.0, -1.0]);
        assert_eq!((few.min(), few.max(), few.len()), (-1.0, 5.0, 2));
    }
}
