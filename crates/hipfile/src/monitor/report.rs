//! The report that AMD's `ais-stats` gives, from whatever page. Text only; what the words stand for is counted elsewhere.

use std::fmt::Write as _;

use crate::op::Op;
use crate::stats::{GpuStats, Side, SizeClass, Snapshot};

const GIB: f64 = (1_u64 << 30) as f64;

/// One row of a table of sizes.
type Cells = [(&'static str, fn(&SizeClass) -> String); 4];

const CELLS: Cells = [
    ("size (B)", |class| class.bytes.to_string()),
    ("bandwidth (GiB/s)", |class| decimal(rate(class))),
    ("latency (us)", |class| decimal(latency(class))),
    ("errors", |class| class.errors.to_string()),
];

fn decimal(number: f64) -> String {
    format!("{number:.3}")
}

/// What one transfer gets, on average.
fn rate(class: &SizeClass) -> f64 {
    let seconds = class.all_nanoseconds() / 1e9;
    if seconds > 0.0 { class.bytes as f64 / GIB / seconds } else { 0.0 }
}

fn latency(class: &SizeClass) -> f64 {
    if class.timed > 0 { class.nanoseconds as f64 / class.timed as f64 / 1000.0 } else { 0.0 }
}

fn sum(classes: &[SizeClass]) -> SizeClass {
    let mut sum = SizeClass::default();
    for class in classes {
        sum.operations = sum.operations.wrapping_add(class.operations);
        sum.bytes = sum.bytes.wrapping_add(class.bytes);
        // Small transfers stand for those whose time was not taken.
        sum.nanoseconds = sum.nanoseconds.wrapping_add(class.all_nanoseconds() as u64);
        sum.errors = sum.errors.wrapping_add(class.errors);
    }
    sum.timed = sum.operations;
    sum
}

/// The report as text, lines and all.
pub fn report(snapshot: &Snapshot) -> String {
    let mut text = String::from("AIS-STATS Version: 1\n");
    let mut line = |label: &str, value: &dyn std::fmt::Display| _ = writeln!(text, "{label}: {value}");
    line("HipFile Stats Level", &snapshot.level);
    if snapshot.emulated == Some(true) {
        line("GPU", &"emulated, no real GPU memory is involved");
    }
    line("Files registered", &snapshot.files.begun.ok);
    line("Buffers registered", &snapshot.buffers.begun.ok);
    line("Fast path rejections", &snapshot.rejections());
    for (path, way) in [("fast path", 0), ("fallback path", 1)] {
        for (op, name) in [(Op::Read, "read"), (Op::Write, "write")] {
            let side = snapshot.total(op);
            let total = sum(classes(&side, way));
            // By the clock, where it is known when transfers began and ended.
            let bandwidth =
                if side.last > side.first { total.bytes as f64 / GIB / side.seconds() } else { rate(&total) };
            line(&format!("Total {path} {name}s (B)"), &total.bytes);
            line(&format!("Average {path} {name} bandwidth (GiB/s)"), &decimal(bandwidth));
            line(&format!("Average {path} {name} latency (us)"), &decimal(latency(&total)));
            line(&format!("{path} {name} errors"), &total.errors);
            line(&format!("Unaligned {path} {name}s"), &side.unaligned[way]);
        }
    }
    snapshot.gpus.iter().for_each(|gpu| gpu_report(&mut text, gpu));
    text
}

fn classes(side: &Side, way: usize) -> &[SizeClass] {
    if way == 0 { &side.direct } else { &side.staged }
}

fn gpu_report(text: &mut String, gpu: &GpuStats) {
    let name = gpu.ordinal.map_or("Host memory".to_owned(), |ordinal| format!("GPU {ordinal}"));
    for (path, way) in [("fast path", 0), ("fallback path", 1)] {
        for (op, direction) in [(Op::Read, "reads"), (Op::Write, "writes")] {
            let side = gpu.side(op);
            let classes = classes(side, way);
            let used = |class: &SizeClass| (class.operations, class.bytes, class.errors) != (0, 0, 0);
            if !classes.iter().any(used) {
                continue;
            }
            for (what, cell) in CELLS {
                let _ = writeln!(text, "\n{name} {path} {direction}, {what} by size of request (KiB)");
                for (at, class) in classes.iter().enumerate().filter(|(_, class)| used(class)) {
                    let range = range(at, classes.len());
                    let _ = writeln!(text, "  {range:>17}: {}", cell(class));
                }
            }
            let _ = writeln!(text, "{name} unaligned {path} {direction}: {}", side.unaligned[way]);
        }
    }
}

/// The sizes of a class, in KiB.
fn range(class: usize, classes: usize) -> String {
    match class {
        0 => "0 - 4".to_owned(),
        _ if class + 1 == classes || class > 40 => format!("{} -", 4_u64 << (class - 1).min(50)),
        _ => format!("{} - {}", 4_u64 << (class - 1), 4_u64 << class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_amds_lines() {
        let mut side = Side { staged: vec![SizeClass::default(); 20], ..Side::default() };
        side.staged[9] =
            SizeClass { operations: 2, bytes: 2 << 20, timed: 2, nanoseconds: 4_000_000, errors: 1 };
        (side.first, side.last, side.unaligned) = (1, 1 + 1_000_000_000, [0, 3]);
        let mut snapshot = Snapshot { level: 2, emulated: Some(true), ..Snapshot::default() };
        snapshot.gpus = vec![GpuStats { ordinal: Some(0), read: side, ..GpuStats::default() }];
        let text = report(&snapshot);
        assert!(text.starts_with("AIS-STATS Version: 1\nHipFile Stats Level: 2\nGPU: emulated"), "{text}");
        for line in [
            "Files registered: 0",
            "Total fast path reads (B): 0",
            "Total fallback path reads (B): 2097152",
            "Average fallback path read bandwidth (GiB/s): 0.002",
            "Average fallback path read latency (us): 2000.000",
            "fallback path read errors: 1",
            "Unaligned fallback path reads: 3",
            "        1024 - 2048: 2097152",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(!text.contains("GPU 0 fast path"), "{text}");
    }
}
