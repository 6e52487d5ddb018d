//! The rows of the table. Each says what it compares and what must come of it; sizes, rounds and requirements are the project's
//! own choice, made where others had been measured first.

use std::process::{Command, Stdio};
use std::time::Duration;

use hipfile::{DeviceChoice, PageCache};

use super::super::cache;
use super::super::contender::{Baseline, Who};
use super::super::job::{Cache, Job, Mix};
use super::super::report::short;
use super::super::rounds::{Entry, Spread, ratio, run_once};
use super::super::run::Sample;
use super::{Bench, Finding, Required, baseline};
use crate::failure::Failure;

/// A row: some findings out of one measurement.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) run: fn(&Bench<'_>) -> Result<Vec<Finding>, Failure>,
}

pub(super) const ROWS: &[Row] = &[
    Row { name: "warm-small", run: warm_small },
    Row { name: "cold-sequential", run: cold_sequential },
    Row { name: "warm-sequential", run: warm_sequential },
    Row { name: "warm-timed-link", run: warm_timed_link },
    Row { name: "cold-timed-link", run: cold_timed_link },
    Row { name: "cold-unaligned", run: cold_unaligned },
    Row { name: "cold-calls", run: cold_calls },
    Row { name: "adaptive", run: adaptive },
    Row { name: "random-direct", run: random_direct },
    Row { name: "many-threads", run: many_threads },
    Row { name: "statistics", run: statistics },
    Row { name: "first-use", run: first_use },
    Row { name: "cache-growth", run: cache_growth },
    Row { name: "memory", run: memory },
    Row { name: "write", run: write },
];

/// The engines of the table, as `--engine` takes them.
pub(super) const STAGED: &str = "uring,bounce";
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// A large call: what a loader asks for at once.
const LARGE: usize = 512 * MIB;

/// `ours` times as fast as `other`.
fn faster(case: impl Into<String>, ours: &Entry, other: &Entry, at_least: f64) -> Finding {
    Finding {
        case: case.into(),
        ours: speed(ours),
        baseline: format!("{} {}", other.label, speed(other)),
        measure: ratio(ours, other),
        unit: "x",
        required: Required::AtLeast(at_least),
    }
}

/// Time per call where calls are short, calls per second where several are under way, else throughput.
fn speed(entry: &Entry) -> String {
    let job = &entry.job;
    if job.block > MIB {
        return format!("{} GB/s", short(entry.spread(Sample::gb_per_s).median()));
    }
    match (job.mix, job.cache) {
        (Mix::Randread, Cache::Cold) => format!("{:.0} /s", 1e6 / entry.spread(call_us).median()),
        _ => format!("{} us", short(entry.spread(call_us).median())),
    }
}

fn call_us(sample: &Sample) -> f64 {
    sample.seconds * 1e6 / (sample.operations as f64).max(1.0)
}

fn warm_small(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for (block, span, need) in [(4 * KIB, 64 * MIB, 8.0), (64 * KIB, 256 * MIB, 7.0), (MIB, 512 * MIB, 5.0)] {
        let span = bench.bytes(span as u64);
        let job = Job {
            mix: Mix::Randread,
            cache: Cache::Warm,
            limit: Some(bench.time(Duration::from_millis(400))),
            ..Job::read(span, block)
        };
        let name = crate::units::show_size(block as u64);
        let entries = bench.compare(
            &[
                ("hipfile", bench.ours(), &job),
                ("serial", baseline(Baseline::Serial), &job),
                ("pread+memcpy", baseline(Baseline::Host), &job),
                ("pread+copy", baseline(Baseline::Posix), &job),
            ],
            9,
        )?;
        let [ours, serial, host, posix] = &entries[..] else { return Ok(findings) };
        findings.push(faster(format!("{name} read, warm"), ours, serial, need));
        if block == 4 * KIB {
            findings.push(faster(format!("{name} read, warm"), ours, posix, 0.8));
            let pairs = ours.samples.iter().zip(&host.samples);
            findings.push(Finding {
                case: format!("{name} read, warm, above pread + memcpy"),
                ours: speed(ours),
                baseline: format!("{} {}", host.label, speed(host)),
                measure: pairs.map(|(ours, host)| call_us(ours) - call_us(host)).collect(),
                unit: "us",
                required: Required::AtMost(0.4),
            });
        }
    }
    Ok(findings)
}

fn cold_sequential(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    let span = bench.bytes(4 << 30);
    let job = Job::read(span, bench.block(LARGE, span));
    // Which requests suit this device best, on a part of the file.
    let part = Job { span: bench.bytes(1 << 30).min(span), ..job.clone() };
    let mut cells = Vec::new();
    for chunk in [512 * KIB, MIB, 2 * MIB, 4 * MIB] {
        for depth in [2, 4, 8] {
            cells.push(Job { chunk, depth, ..part.clone() });
        }
    }
    let sweep: Vec<_> = cells.iter().map(|cell| ("raw", baseline(Baseline::Raw), cell)).collect();
    let swept = bench.compare(&sweep, 3)?;
    let speed_of = |entry: &&Entry| entry.spread(Sample::gb_per_s).median();
    let best = swept.iter().max_by(|a, b| speed_of(a).total_cmp(&speed_of(b)));
    let best = best.map_or(job.clone(), |best| Job { span, ..best.job.clone() });
    let best_label = format!("raw's best ({} x {})", crate::units::show_size(best.chunk as u64), best.depth);
    drop(swept);
    let entries = bench.compare(
        &[
            ("hipfile", bench.ours(), &job),
            ("serial", baseline(Baseline::Serial), &job),
            ("raw", baseline(Baseline::Raw), &job),
            (&best_label, baseline(Baseline::Raw), &best),
        ],
        9,
    )?;
    let [ours, serial, raw, best] = &entries[..] else { return Ok(Vec::new()) };
    let case = format!("sequential cold read, {}", crate::units::show_size(span));
    Ok(vec![faster(&case, ours, serial, 1.6), faster(&case, ours, raw, 0.95), faster(&case, ours, best, 0.9)])
}

fn warm_sequential(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    let span = bench.bytes(2 << 30);
    let job = Job { cache: Cache::Warm, ..Job::read(span, bench.block(LARGE, span)) };
    let entries =
        bench.compare(&[("hipfile", bench.ours(), &job), ("serial", baseline(Baseline::Serial), &job)], 9)?;
    let [ours, serial] = &entries[..] else { return Ok(Vec::new()) };
    Ok(vec![faster(
        format!("sequential warm read, {}, copies by the CPU", crate::units::show_size(span)),
        ours,
        serial,
        1.4,
    )])
}

/// A run of `bench` over a link of so many GB/s, in a process of its own: the emulated link is chosen when one starts.
fn over_link(
    bench: &Bench<'_>,
    gb_per_s: u32,
    (state, baseline): (&str, &str),
    span: u64,
) -> Result<serde_json::Value, Failure> {
    let rounds = bench.table.repeat.unwrap_or(9);
    let mut child = own_command()?;
    child
        .args(["bench", "--json", state, "--engine", STAGED, "--baseline", baseline])
        .args(["--size", &span.to_string(), "--block", &bench.block(LARGE, span).to_string()])
        .args(["--repeat", &rounds.to_string(), "--gpu", &bench.table.gpu.to_string()])
        .arg(bench.path())
        .env("HIP_EMU_LINK", gb_per_s.to_string())
        .env("HIPFILE_DEVICE", "emulated");
    answer(child)
}

fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// The median speed of a contender of [`over_link`].
fn median_of(report: &serde_json::Value, contender: usize) -> String {
    format!("{} GB/s", short(number(&report["contenders"][contender]["gb_per_s"]["median"])))
}

/// The speeds of its runs in bytes per second, in order of the rounds.
fn speeds_of(report: &serde_json::Value, contender: usize) -> Vec<f64> {
    let runs = report["contenders"][contender]["runs"].as_array().cloned().unwrap_or_default();
    runs.iter().map(|run| number(&run["bytes"]) / number(&run["seconds"])).collect()
}

fn warm_timed_link(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    const LINK: u32 = 50;
    let report = over_link(bench, LINK, ("--warm", "serial"), bench.bytes(2 << 30))?;
    let pairs = speeds_of(&report, 0).into_iter().zip(speeds_of(&report, 1));
    Ok(vec![Finding {
        case: format!("the same over a timed link of {LINK} GB/s that copies no bytes of pinned memory"),
        ours: median_of(&report, 0),
        baseline: format!("serial {}", median_of(&report, 1)),
        measure: pairs.map(|(ours, serial)| ours / serial).collect(),
        unit: "x",
        required: Required::AtLeast(2.0),
    }])
}

/// A link about as fast as the storage: one after the other, the two would come to half of either.
fn cold_timed_link(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    const LINK: u32 = 2;
    let report = over_link(bench, LINK, ("--cold", "raw"), bench.bytes(2 << 30))?;
    let link = f64::from(LINK) * 1e9;
    let pairs = speeds_of(&report, 0).into_iter().zip(speeds_of(&report, 1));
    Ok(vec![Finding {
        case: format!(
            "sequential cold read over a link of {LINK} GB/s, against the slower of storage and link"
        ),
        ours: median_of(&report, 0),
        baseline: format!("raw {}", median_of(&report, 1)),
        measure: pairs.map(|(ours, raw)| ours / raw.min(link)).collect(),
        unit: "x",
        required: Required::AtLeast(0.85),
    }])
}

fn cold_unaligned(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    let span = bench.bytes(2 << 30);
    let block = bench.block(64 * MIB, span);
    let aligned = Job::read(span, block);
    let ragged = Job { shift: 1, ..Job::read(span - 3, block - 1) };
    let entries =
        bench.compare(&[("hipfile", bench.ours(), &ragged), ("aligned", bench.ours(), &aligned)], 9)?;
    let [ragged, aligned] = &entries[..] else { return Ok(Vec::new()) };
    Ok(vec![faster("sequential cold read from offset 1 in calls of odd size", ragged, aligned, 0.85)])
}

fn cold_calls(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for (block, span, need) in [
        (4 * KIB, 512 * MIB, 3.0),
        (64 * KIB, 1024 * MIB, 1.3),
        (MIB, 1024 * MIB, 1.3),
        (16 * MIB, 1024 * MIB, 2.0),
    ] {
        let job = Job::read(bench.bytes(span as u64), block);
        let entries = bench
            .compare(&[("hipfile", bench.ours(), &job), ("serial", baseline(Baseline::Serial), &job)], 5)?;
        let [ours, serial] = &entries[..] else { return Ok(findings) };
        let case = format!("sequential calls of {}, cold", crate::units::show_size(block as u64));
        findings.push(faster(case, ours, serial, need));
    }
    Ok(findings)
}

fn adaptive(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    let span = bench.bytes(2 << 30);
    let mut findings = Vec::new();
    for state in [Cache::Cold, Cache::Half, Cache::Warm] {
        let job = Job { cache: state, ..Job::read(span, bench.block(LARGE, span)) };
        let entries = bench.compare(
            &[
                ("auto", bench.library(PageCache::Auto), &job),
                ("buffered", bench.library(PageCache::Buffered), &job),
                ("direct", bench.library(PageCache::Direct), &job),
            ],
            5,
        )?;
        let [auto, buffered, direct] = &entries[..] else { return Ok(findings) };
        let speed = |entry: &Entry| entry.spread(Sample::gb_per_s).median();
        let better = if speed(buffered) > speed(direct) { buffered } else { direct };
        let case = format!("policy auto, {} {}", state.word(), crate::units::show_size(span));
        findings.push(faster(case, auto, better, 0.9));
    }
    Ok(findings)
}

fn random_direct(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    let span = bench.bytes(4 << 30);
    let limit = Some(bench.time(Duration::from_secs(2)));
    let by = |threads| Job { mix: Mix::Randread, limit, threads, ..Job::read(span, 4 * KIB) };
    let (one, some, many) = (by(1), by(16), by(32));
    let entries = bench.compare(
        &[
            ("hipfile", bench.library(PageCache::Direct), &some),
            ("uring16", baseline(Baseline::Uring16), &one),
            ("pread", baseline(Baseline::Pread), &one),
            ("hipfile", bench.library(PageCache::Direct), &many),
            ("pread by 32", baseline(Baseline::Pread), &many),
        ],
        5,
    )?;
    let [some, ring, pread, many, threads] = &entries[..] else { return Ok(Vec::new()) };
    let case = |entry: &Entry| format!("random 4 KiB O_DIRECT cold reads, {} threads", entry.job.threads);
    Ok(vec![
        faster(case(some), some, ring, 0.9),
        faster(case(some), some, pread, 3.0),
        faster(case(many), many, threads, 0.8),
    ])
}

fn many_threads(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    const MOST: usize = 64;
    let mut findings = Vec::new();
    for state in [Cache::Cold, Cache::Warm] {
        let span = bench.bytes(1 << 30);
        let block = bench.block(4 * MIB, span / MOST as u64);
        // Few threads fill as much device memory as many: what fits into a processor's cache is no match.
        let by = |threads| Job { cache: state, threads, places: MOST / threads, ..Job::read(span, block) };
        let jobs: Vec<Job> = [MOST, 1, 2, 4, 8, 16, 32].map(by).into();
        let contenders: Vec<_> = jobs.iter().map(|job| ("hipfile", bench.ours(), job)).collect();
        let entries = bench.compare(&contenders, 5)?;
        let Some((most, fewer)) = entries.split_first() else { return Ok(findings) };
        let speed = |entry: &Entry| entry.spread(Sample::gb_per_s).median();
        let Some(best) = fewer.iter().max_by(|a, b| speed(a).total_cmp(&speed(b))) else { continue };
        let mut finding =
            faster(format!("{MOST} threads, calls of 4 MiB, {}", state.word()), most, best, 0.9);
        finding.baseline = format!("{} threads {} GB/s", best.job.threads, short(speed(best)));
        findings.push(finding);
    }
    Ok(findings)
}

/// What counting costs where it costs most: many threads, small transfers, nothing to wait for.
fn statistics(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    const THREADS: usize = 64;
    let job = Job {
        mix: Mix::Randread,
        cache: Cache::Warm,
        threads: THREADS,
        limit: Some(bench.time(Duration::from_millis(150))),
        ..Job::read(bench.bytes(64 << 20), 4 * KIB)
    };
    let with = |level| {
        let Who::Library(door, mut config) = bench.ours() else { return bench.ours() };
        config.stats_level = level;
        Who::Library(door, config)
    };
    let contenders = [("off", with(0), &job), ("level 1", with(1), &job), ("level 3", with(3), &job)];
    // Threads that take all processors feel every neighbour of this machine: many short rounds find the middle sooner than few long.
    let entries = bench.compare(&contenders, 61)?;
    let [off, usual, all] = &entries[..] else { return Ok(Vec::new()) };
    let case = |level: &str| format!("{THREADS} threads, 4 KiB read, warm, statistics at {level}");
    Ok(vec![faster(case("level 1"), usual, off, 0.97), faster(case("level 3"), all, off, 0.9)])
}

/// How a process that has just begun compares with itself a moment later.
fn first_use(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    const THREADS: usize = 72;
    let block = bench.block(MIB, bench.bytes(4 << 30) / THREADS as u64);
    let job = Job { cache: Cache::Warm, threads: THREADS, ..Job::read((THREADS * block) as u64, block) };
    let mut pairs = Vec::new();
    let (mut first_time, mut later_time) = (Vec::new(), Vec::new());
    for _ in 0..bench.table.repeat.unwrap_or(9) {
        // A driver of its own, whose staging memory nobody has used.
        let mut fresh = Entry::new("hipfile", &bench.ours(), &job, &bench.lab)?;
        let first = run_once(&mut fresh, bench.subject, &job)?;
        let steady = (0..5).map(|_| run_once(&mut fresh, bench.subject, &job).map(|sample| sample.seconds));
        let steady: Spread = steady.collect::<Result<Vec<_>, _>>()?.into_iter().collect();
        pairs.push(first.seconds / steady.median());
        first_time.push(first.seconds * 1e3);
        later_time.push(steady.median() * 1e3);
    }
    let ms = |times: Vec<f64>| format!("{} ms", short(times.into_iter().collect::<Spread>().median()));
    Ok(vec![Finding {
        case: format!("first read of 1 MiB by {THREADS} threads at once, warm file"),
        ours: ms(first_time),
        baseline: format!("later ones {}", ms(later_time)),
        measure: pairs.into_iter().collect(),
        unit: "times as long",
        required: Required::AtMost(2.0),
    }])
}

fn cache_growth(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    /// Bytes read in all, at full scale.
    const IN_ALL: u64 = 10 << 30;
    let span = bench.bytes(4 << 30);
    let mut findings = Vec::new();
    for (policy, word, block) in [
        (PageCache::Auto, "auto", MIB),
        (PageCache::Auto, "auto", 16 * MIB),
        (PageCache::NoCache, "no-cache", 64 * KIB),
    ] {
        let cold = Job::read(span, block);
        let go_on = Job { cache: Cache::AsIs, ..cold.clone() };
        let mut ours = Entry::new("hipfile", &bench.library(policy), &cold, &bench.lab)?;
        let mut left = bench.bytes(IN_ALL);
        let (mut read, mut seconds) = (0, 0.0);
        while left > 0 {
            let job = if read == 0 { &cold } else { &go_on };
            let sample = run_once(&mut ours, bench.subject, &Job { span: span.min(left), ..job.clone() })?;
            left = left.saturating_sub(sample.bytes);
            read += sample.bytes;
            seconds += sample.seconds;
        }
        let cached = cache::cached(bench.subject, 0, 0)
            .map_err(|error| Failure::new("cachestat", error).and("the growth cannot be known"))?;
        let (read, block) = (crate::units::show_size(read), crate::units::show_size(block as u64));
        findings.push(Finding {
            case: format!("page cache after {read} of cold reads in calls of {block}, {word}"),
            ours: format!("{} GB/s", short(bench.bytes(IN_ALL) as f64 / 1e9 / seconds)),
            baseline: "empty".to_owned(),
            measure: std::iter::once(cached as f64 / MIB as f64).collect(),
            unit: "MiB",
            required: Required::AtMost(64.0),
        });
    }
    Ok(findings)
}

/// Memory is a property of a whole process: one of its own measures this row.
fn memory(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    let mut child = own_command()?;
    child
        .args(["bench", "--memory-probe", "--engine", STAGED, "--gpu", &bench.table.gpu.to_string()])
        .arg(bench.path());
    if bench.base.device == DeviceChoice::Emulated {
        child.env("HIPFILE_DEVICE", "emulated");
    }
    let probe = answer(child)?;
    let mib = |name: &str| probe[name].as_f64().unwrap_or(f64::NAN) / MIB as f64;
    let finding = |case: &str, mib: f64, most: f64| Finding {
        case: case.to_owned(),
        ours: format!("{} MiB", short(mib)),
        baseline: "the process before".to_owned(),
        measure: std::iter::once(mib).collect(),
        unit: "MiB",
        required: Required::AtMost(most),
    };
    let staging = mib("staging_bytes");
    Ok(vec![
        finding("memory with no GPU use", mib("idle_growth_bytes"), 8.0),
        finding("staging memory while 32 threads read", staging, mib("pool_bound_bytes")),
        finding("other memory while 32 threads read", mib("load_growth_bytes") - staging, 8.0),
    ])
}

fn write(bench: &Bench<'_>) -> Result<Vec<Finding>, Failure> {
    let span = bench.bytes(1 << 30);
    let overwrite = Job { mix: Mix::Write, sync: true, ..Job::read(span, bench.block(LARGE, span)) };
    let mut findings = Vec::new();
    for (extend, need) in [(false, 4.5), (true, 3.0)] {
        let job = Job { extend, ..overwrite.clone() };
        let entries = bench.compare(
            &[
                ("hipfile", bench.ours(), &job),
                ("serial", baseline(Baseline::Serial), &job),
                ("raw", baseline(Baseline::Raw), &job),
            ],
            7,
        )?;
        let [ours, serial, raw] = &entries[..] else { return Ok(findings) };
        let kind = if extend { "extending" } else { "overwriting" };
        let case = format!("sequential write, {kind} {}, synced at the end", crate::units::show_size(span));
        findings.push(faster(&case, ours, serial, need));
        findings.push(faster(&case, ours, raw, 0.9));
    }
    Ok(findings)
}

fn own_command() -> Result<Command, Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::new("the path of this program", error))?;
    let mut command = Command::new(own);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    Ok(command)
}

/// The JSON that a child prints.
fn answer(mut child: Command) -> Result<serde_json::Value, Failure> {
    let output = child.output().map_err(|error| Failure::new("the measuring process", error))?;
    if !output.status.success() {
        return Err(Failure::new("the measuring process", output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::new("the measuring process's answer", error))
}
