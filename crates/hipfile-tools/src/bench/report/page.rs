//! A sweep as a page to look at: charts, and the figures they are drawn from. It measures nothing.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use plotters::prelude::*;

use super::{Contender, Report, Skipped, describe, short};
use crate::failure::Failure;
use crate::units::show_size;

/// Reports of one subject that differ in one thing.
pub(in super::super) struct Series {
    pub(in super::super) reports: Vec<Report>,
    /// What they differ in.
    pub(in super::super) by: By,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum By {
    /// Bytes of a call.
    Size,
    /// Requests under way.
    Depth,
}

impl By {
    fn word(self) -> &'static str {
        match self {
            By::Size => "size",
            By::Depth => "depth",
        }
    }

    fn axis(self) -> &'static str {
        match self {
            By::Size => "bytes of a call",
            By::Depth => "requests under way",
        }
    }

    fn of(self, report: &Report) -> usize {
        match self {
            By::Size => report.job.block,
            By::Depth => report.job.depth,
        }
    }

    fn label(self, value: usize) -> String {
        match self {
            By::Size => show_size(value as u64).replace(".0", ""),
            By::Depth => value.to_string(),
        }
    }
}

/// Writes `index.html`, the charts and `report.json` into a folder, which is made if it is not there.
///
/// # Errors
/// A file cannot be written.
pub(in super::super) fn write(folder: &Path, series: &[Series]) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::at(folder, error))?;
    let save = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| Failure::at(&path, error))
    };
    let mut body = String::new();
    for series in series {
        let Some(first) = series.reports.first() else { continue };
        let by = series.by;
        let _ = writeln!(body, "<h2>By {}</h2>\n<p>{}</p>", by.axis(), escaped(&what(first, by)));
        for (name, title, unit, lines) in charts(series) {
            let file = format!("{name}-by-{}.svg", by.word());
            save(&file, &chart(title, unit, series, &lines)?)?;
            let _ = writeln!(body, "<img src=\"{file}\" alt=\"{title} by {}\">", by.axis());
        }
        table(series, &mut body);
    }
    let all: Vec<&Report> = series.iter().flat_map(|series| &series.reports).collect();
    save("report.json", &serde_json::to_string(&all).map_err(|error| Failure::new("report.json", error))?)?;
    save("index.html", &frame(all.first().copied(), &body))
}

/// A job without what differs from report to report.
fn what(report: &Report, by: By) -> String {
    let text = describe(&report.job, report.door, report.repeat);
    let part = match by {
        By::Size => format!(" in calls of {}", show_size(report.job.block as u64)),
        By::Depth => format!(" with up to {} under way", report.job.depth),
    };
    text.replace(&part, "")
}

/// A line of a chart: a name, and a value for each report that has one.
type Line = (String, Vec<(usize, f64)>);

/// The charts of a series: file, title, unit, lines.
fn charts(series: &Series) -> Vec<(&'static str, &'static str, &'static str, Vec<Line>)> {
    let names: Vec<&str> = series.reports.iter().flat_map(|report| &report.contenders).fold(
        Vec::new(),
        |mut names, contender| {
            if !names.contains(&contender.name.as_str()) {
                names.push(&contender.name);
            }
            names
        },
    );
    let each = |figure: &dyn Fn(&Contender) -> Option<f64>| -> Vec<Line> {
        let line = |name: &&str| {
            let values = series.reports.iter().enumerate().filter_map(|(at, report)| {
                let contender = report.contenders.iter().find(|contender| contender.name == **name)?;
                Some((at, figure(contender)?))
            });
            ((*name).to_owned(), values.collect())
        };
        names.iter().map(line).collect()
    };
    let ours = |name: &str, figure: &dyn Fn(&Contender) -> Option<f64>| -> Line {
        let values = series.reports.iter().enumerate();
        (
            name.to_owned(),
            values.filter_map(|(at, report)| Some((at, figure(report.contenders.first()?)?))).collect(),
        )
    };
    let latency = vec![
        ours("p50", &|contender| Some(contender.latency.p50_us)),
        ours("p99", &|contender| Some(contender.latency.p99_us)),
        ours("p99.9", &|contender| Some(contender.latency.p99_9_us)),
    ];
    let engines: Vec<String> = series.reports.iter().flat_map(|report| report.contenders.first()).fold(
        Vec::new(),
        |mut known, contender| {
            known.extend(contender.moved.engines.iter().map(|share| share.name.clone()));
            known.sort();
            known.dedup();
            known
        },
    );
    let share = |engine: &String| {
        ours(engine, &|contender| {
            let all: u64 = contender.moved.engines.iter().map(|share| share.bytes).sum();
            let own = contender.moved.engines.iter().find(|share| share.name == *engine);
            Some(own.map_or(0, |share| share.bytes) as f64 * 100.0 / (all as f64).max(1.0))
        })
    };
    vec![
        ("throughput", "Throughput", "GB/s", each(&|contender| Some(contender.gb_per_s.median))),
        ("latency", "Latency of hipfile", "us", latency),
        ("engines", "Bytes by engine, of hipfile's", "%", engines.iter().map(share).collect()),
        (
            "physical",
            "Bytes that the disk moved, for each of the run",
            "%",
            each(&|contender| Some(contender.physical_share.as_ref()?.median * 100.0)),
        ),
        ("cpu", "CPU time", "s/GB", each(&|contender| Some(contender.cpu_s_per_gb.median))),
    ]
}

const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 90, 160),
    RGBColor(213, 94, 0),
    RGBColor(0, 140, 100),
    RGBColor(170, 80, 140),
    RGBColor(120, 120, 120),
    RGBColor(200, 150, 0),
    RGBColor(60, 170, 220),
    RGBColor(0, 0, 0),
];

/// One chart as SVG: the reports at even distances, values from 0; latencies, which span decades, by their logarithm.
fn chart(title: &str, unit: &str, series: &Series, lines: &[Line]) -> Result<String, Failure> {
    let mut svg = String::new();
    draw(title, unit, series, lines, &mut svg).map_err(|error| Failure::new(title, error))?;
    Ok(svg)
}

fn draw(
    title: &str,
    unit: &str,
    series: &Series,
    lines: &[Line],
    svg: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    let values = || lines.iter().flat_map(|(_, values)| values.iter().map(|(_, value)| *value));
    let (low, high) =
        values().fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let count = series.reports.len().max(2) - 1;
    let root = SVGBackend::with_string(svg, (760, 380)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut builder = ChartBuilder::on(&root);
    builder
        .caption(format!("{title}, {unit}"), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64);
    let label = |at: &f64| {
        let report = (at.fract().abs() < 1e-6).then(|| series.reports.get(at.round() as usize)).flatten();
        report.map_or_else(String::new, |report| series.by.label(series.by.of(report)))
    };
    let x = -0.1..count as f64 + 0.1;
    macro_rules! finish {
        ($chart:expr) => {{
            let mut chart = $chart;
            chart
                .configure_mesh()
                .x_labels(count + 1)
                .x_label_formatter(&label)
                .y_label_formatter(&|value: &f64| short(*value))
                .x_desc(series.by.axis())
                .label_style(("sans-serif", 14))
                .light_line_style(WHITE)
                .draw()?;
            for (at, (name, values)) in lines.iter().enumerate() {
                let colour = COLOURS[at % COLOURS.len()];
                let points: Vec<(f64, f64)> = values.iter().map(|(x, y)| (*x as f64, *y)).collect();
                chart
                    .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
                    .label(name.as_str())
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
                chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
            }
            chart
                .configure_series_labels()
                .label_font(("sans-serif", 14))
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .border_style(RGBColor(180, 180, 180))
                .draw()?;
        }};
    }
    if unit == "us" && low > 0.0 && high > low {
        finish!(builder.build_cartesian_2d(x, (low * 0.8..high * 6.0).log_scale())?);
    } else {
        finish!(builder.build_cartesian_2d(x, 0.0..(high * 1.35).max(1e-3))?);
    }
    root.present()?;
    Ok(())
}

fn table(series: &Series, out: &mut String) {
    let _ = writeln!(
        out,
        "<table><tr><th>{}</th><th></th><th>GB/s</th><th>min..max</th><th>IOPS</th><th>p50 us</th><th>p99 us</th>\
         <th>p99.9 us</th><th>CPU s/GB</th><th>physical</th><th>time / hipfile</th><th>engines</th><th>staged for</th></tr>",
        series.by.axis()
    );
    for report in &series.reports {
        for Contender { name, gb_per_s, iops, cpu_s_per_gb, latency, physical_share, moved, .. } in
            &report.contenders
        {
            let list = |shares: &[super::super::moved::Share]| {
                shares
                    .iter()
                    .map(|s| format!("{} {}", s.name, show_size(s.bytes)))
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            let physical = physical_share
                .as_ref()
                .map_or("unknown".to_owned(), |s| format!("{:.0} %", s.median * 100.0));
            let times = report.ratios.iter().find(|ratio| ratio.to == *name);
            let times = times.map_or(String::new(), |ratio| short(ratio.figures.median));
            let cells = [
                series.by.label(series.by.of(report)),
                name.clone(),
                short(gb_per_s.median),
                format!("{}..{}", short(gb_per_s.min), short(gb_per_s.max)),
                format!("{:.0}", iops.median),
                short(latency.p50_us),
                short(latency.p99_us),
                short(latency.p99_9_us),
                format!("{:.3}", cpu_s_per_gb.median),
                physical,
                times,
                list(&moved.engines),
                list(&moved.staged),
            ];
            let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
            let _ = writeln!(out, "<tr>{cells}</tr>");
        }
        for Skipped { name, why } in &report.skipped {
            let _ = writeln!(
                out,
                "<tr><td></td><td>{}</td><td colspan=\"11\">{}</td></tr>",
                escaped(name),
                escaped(why)
            );
        }
    }
    out.push_str("</table>\n");
}

fn frame(first: Option<&Report>, body: &str) -> String {
    let facts = first.map_or_else(String::new, |report| {
        let file = &report.file;
        let disk = file.disk.as_ref().map_or_else(
            || format!("disk unknown: {}", file.disk_unknown.as_deref().unwrap_or("no reason")),
            |disk| format!("on {disk}"),
        );
        let rows = [
            ("machine", report.machine.to_string()),
            ("device", report.device.to_string()),
            ("file", format!("{}, {}, {} {disk}", file.path, show_size(file.bytes), file.file_system)),
            ("hipfile", report.tool_version.to_owned()),
        ];
        rows.iter()
            .map(|(what, text)| format!("<tr><th>{what}</th><td>{}</td></tr>", escaped(text)))
            .collect()
    });
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>hipfile bench</title>\n<style>\n\
         body {{ font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 1180px; padding: 0 1em; color: #222 }}\n\
         table {{ border-collapse: collapse; font-size: 13px; margin: 1em 0 }}\n\
         th, td {{ text-align: left; padding: .25em .6em; border-bottom: 1px solid #ddd }}\n\
         img {{ width: 560px; max-width: 100%; border: 1px solid #ddd; margin: .3em }}\n</style>\n\
         <h1>hipfile bench</h1>\n<table>{facts}</table>\n\
         <p>Medians over the rounds; in each round everyone ran once, in an order that changed. The figures as JSON: \
         <a href=\"report.json\">report.json</a>.</p>\n{body}</html>\n"
    )
}

/// Text as it may stand in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_html_is_text() {
        assert_eq!(escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!((By::Size.label(4096), By::Depth.label(16)), ("4 KiB".to_owned(), "16".to_owned()));
    }
}
