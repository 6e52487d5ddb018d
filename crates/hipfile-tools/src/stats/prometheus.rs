//! The report in Prometheus's text format: counters with labels, one sample a line. It knows no rates; Prometheus makes them.

use std::fmt::Write as _;

use hipfile::{Op, Snapshot};

/// Samples of one metric: labels and value.
type Samples = Vec<(String, f64)>;

fn metric(text: &mut String, name: &str, kind: &str, help: &str, samples: Samples) {
    if samples.is_empty() {
        return;
    }
    let _ = writeln!(text, "# HELP hipfile_{name} {help}\n# TYPE hipfile_{name} {kind}");
    for (labels, value) in samples {
        let _ = writeln!(text, "hipfile_{name}{{{labels}}} {value}");
    }
}

/// A label's value, which may hold anything.
fn quoted(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The whole report.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let pid = snapshot.pid;
    let directions = [(Op::Read, "read"), (Op::Write, "write")];
    let each_gpu = |value: &dyn Fn(&hipfile::Side) -> Vec<(String, f64)>| -> Samples {
        let mut samples = Vec::new();
        for gpu in &snapshot.gpus {
            let name = gpu.ordinal.map_or("none".to_owned(), |ordinal| ordinal.to_string());
            for (op, direction) in directions {
                let labels = format!("pid=\"{pid}\",gpu=\"{name}\",direction=\"{direction}\"");
                let values = value(gpu.side(op));
                samples.extend(values.into_iter().map(|(more, value)| (format!("{labels}{more}"), value)));
            }
        }
        samples
    };
    let one = |value: f64| vec![(String::new(), value)];
    let emulated = f64::from(u8::from(snapshot.emulated == Some(true)));
    let plain = |value: f64| vec![(format!("pid=\"{pid}\""), value)];
    metric(&mut text, "emulated", "gauge", "1 if the GPU is the emulated one.", plain(emulated));
    metric(&mut text, "stats_level", "gauge", "How much is counted.", plain(snapshot.level as f64));
    metric(
        &mut text,
        "transfers_total",
        "counter",
        "Transfers that ended well.",
        each_gpu(&|side| one(side.operations() as f64)),
    );
    metric(
        &mut text,
        "bytes_total",
        "counter",
        "Bytes moved between files and memory.",
        each_gpu(&|side| one(side.bytes() as f64)),
    );
    metric(
        &mut text,
        "errors_total",
        "counter",
        "Transfers that failed.",
        each_gpu(&|side| one(side.errors() as f64)),
    );
    let refused = directions.map(|(op, direction)| {
        (format!("pid=\"{pid}\",direction=\"{direction}\""), snapshot.refused[op as usize] as f64)
    });
    metric(&mut text, "refused_total", "counter", "Requests refused before anything moved.", refused.into());
    let engine = |side: &hipfile::Side| {
        let rows = side.engines.iter();
        rows.map(|row| (format!(",engine=\"{}\"", quoted(&row.name)), row.bytes as f64)).collect()
    };
    metric(&mut text, "engine_bytes_total", "counter", "Bytes moved, by engine.", each_gpu(&engine));
    let reason = |side: &hipfile::Side| {
        let rows = side.reasons.iter();
        rows.map(|row| (format!(",reason=\"{}\"", quoted(&row.name)), row.bytes as f64)).collect()
    };
    metric(
        &mut text,
        "staged_bytes_total",
        "counter",
        "Bytes staged through host memory, by reason.",
        each_gpu(&reason),
    );
    let latency = |side: &hipfile::Side| {
        let shares = [(0.5, "0.5"), (0.99, "0.99"), (0.999, "0.999")];
        let known = shares
            .into_iter()
            .filter_map(|(share, name)| Some((format!(",quantile=\"{name}\""), side.latency(share)? / 1e9)));
        known.collect()
    };
    metric(
        &mut text,
        "transfer_seconds",
        "gauge",
        "Time that a share of all transfers did not exceed, since counting began.",
        each_gpu(&latency),
    );
    metric(
        &mut text,
        "transfer_seconds_total",
        "counter",
        "Time of all transfers, one after the other.",
        each_gpu(&|side| one(side.microseconds() as f64 / 1e6)),
    );
    let registered = [("file", &snapshot.files), ("buffer", &snapshot.buffers)];
    let labels = |what: &str| format!("pid=\"{pid}\",what=\"{what}\"");
    let begun = registered.map(|(what, count)| (labels(what), count.begun.ok as f64)).into();
    metric(&mut text, "registrations_total", "counter", "Registrations of files and memory.", begun);
    let failed = registered.map(|(what, count)| (labels(what), count.begun.failed as f64)).into();
    metric(&mut text, "registrations_failed_total", "counter", "Registrations that failed.", failed);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_comment_or_a_sample() {
        let text = text(&Snapshot::default());
        assert!(text.contains("# TYPE hipfile_emulated gauge\nhipfile_emulated{pid=\"0\"} 0\n"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(
                name.starts_with("hipfile_") && name.ends_with('}') && value.parse::<f64>().is_ok(),
                "{line}"
            );
        }
        assert_eq!(quoted("a\"\\\n"), "a\\\"\\\\\\n");
    }
}
