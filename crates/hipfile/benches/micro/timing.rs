//! A clock for loops of some nanoseconds, over one or several threads. Medians of samples; no statistics beyond that.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    samples: usize,
    /// Of one sample.
    time: Duration,
    /// Largest number of threads.
    pub(crate) threads: usize,
}

impl Plan {
    pub(crate) fn full() -> Plan {
        Plan { samples: 15, time: Duration::from_millis(20), threads: 64 }
    }

    pub(crate) fn moment() -> Plan {
        Plan { samples: 1, time: Duration::from_micros(50), threads: 2 }
    }
}

/// Something to do again and again on one thread. The argument counts the calls.
pub(crate) type Step<'a> = Box<dyn FnMut(usize) + Send + 'a>;

/// A case: its name, and a step for each thread.
pub(crate) struct Case<'a> {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step<'a>>,
}

impl<'a> Case<'a> {
    pub(crate) fn one(name: &str, step: impl FnMut(usize) + Send + 'a) -> Case<'a> {
        Case { name: name.to_owned(), steps: vec![Box::new(step)] }
    }
}

/// Measures the cases in turn, sample by sample, and prints for each what one step costs: median, least and most. With more
/// threads than processors that is the time in which a processor gets one step done, waiting included.
pub(crate) fn measure(plan: &Plan, cases: &mut [Case<'_>]) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let counts: Vec<usize> = cases.iter_mut().map(|case| calibrate(plan, case, cpus)).collect();
    let mut samples = vec![Vec::new(); cases.len()];
    for _ in 0..plan.samples {
        for ((case, count), samples) in cases.iter_mut().zip(&counts).zip(&mut samples) {
            let took = sample(case, *count).as_nanos() as f64 / *count as f64;
            let threads = case.steps.len();
            samples.push(took * threads.min(cpus) as f64 / threads as f64);
        }
    }
    for (case, samples) in cases.iter().zip(&mut samples) {
        samples.sort_by(f64::total_cmp);
        let (median, last) = (samples[samples.len() / 2], samples[samples.len() - 1]);
        println!("{:<44} {median:>10.1} ns ({:.1}..{last:.1})", case.name, samples[0]);
    }
}

/// How many steps of each thread take about the time of a sample, by how long the first one's take alone.
fn calibrate(plan: &Plan, case: &mut Case<'_>, cpus: usize) -> usize {
    let in_turn = case.steps.len().div_ceil(cpus) as f64;
    let Some(step) = case.steps.first_mut() else { return 1 };
    let mut count = 16;
    loop {
        let (start, end) = run(step, count);
        let took = end - start;
        if took >= plan.time / 4 || count >= 1 << 30 {
            let scale = plan.time.as_secs_f64() / took.as_secs_f64().max(1e-9) / in_turn;
            return ((count as f64 * scale) as usize).max(1);
        }
        count *= 4;
    }
}

/// The time of `count` steps of every thread, from the first to begin to the last to end.
fn sample(case: &mut Case<'_>, count: usize) -> Duration {
    if let [step] = &mut case.steps[..] {
        let (start, end) = run(step, count);
        return end - start;
    }
    let begin = Barrier::new(case.steps.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = case
            .steps
            .iter_mut()
            .enumerate()
            .map(|(thread, step)| {
                let begin = &begin;
                scope.spawn(move || {
                    pin(thread);
                    begin.wait();
                    run(step, count)
                })
            })
            .collect();
        let times: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        let first = times.iter().map(|(start, _)| *start).min();
        let last = times.iter().map(|(_, end)| *end).max();
        first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first)
    })
}

fn run(step: &mut Step<'_>, count: usize) -> (Instant, Instant) {
    let start = Instant::now();
    for n in 0..count {
        step(black_box(n));
    }
    (start, Instant::now())
}

/// Two threads that share a processor would never meet in a cache line: each gets one of its own, as far as there are.
fn pin(thread: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let mut one = CpuSet::new();
    if let Some(cpu) = cpus.get(thread % cpus.len().max(1)) {
        one.set(*cpu);
        // A refusal costs only steadiness.
        let _ = sched_setaffinity(None, &one);
    }
}
