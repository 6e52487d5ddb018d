//! The answers of `check` for people: plain text, columns, nothing that a terminal could take for a command.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::file::FileReport;
use super::report::{Component, Report, VolumeRow};
use crate::failure::one_line;
use crate::units::show_size;

pub(super) fn machine(report: &Report, verbose: bool) -> String {
    let system = if report.system.is_empty() { "an unknown system" } else { &report.system };
    let mut out = format!("{}\n", one_line(system));
    if report.emulated {
        out += "Emulated GPU: no real one is involved, and the block devices below a file system do not matter.\n";
    }
    volumes(&mut out, report, verbose);
    out += "\nAIS support in:\n";
    components(&mut out, &report.components);
    if verbose || report.has_nvidia() {
        out += "\nNVIDIA:\n";
        components(&mut out, &report.nvidia);
    }
    if verbose {
        out += "\nHelpful:\n";
        components(&mut out, &report.other);
    }
    if verbose || !report.gpus.is_empty() {
        gpus(&mut out, report, verbose);
    }
    if let Some(container) = &report.container {
        let _ = writeln!(out, "\nContainer ({}):", one_line(&container.sign));
        for missing in &container.missing {
            let _ = writeln!(out, "  lacks {}; give it: {}", missing.path, missing.give);
        }
        if container.missing.is_empty() {
            out += "  nothing that is needed is kept from it\n";
        }
    }
    to_do(&mut out, report);
    if !report.unseen.is_empty() {
        out += "\nNot seen:\n";
        report.unseen.iter().for_each(|line| _ = writeln!(out, "  {}", one_line(line)));
    }
    out
}

fn volumes(out: &mut String, report: &Report, verbose: bool) {
    const HEAD: [&str; 7] = ["MOUNTPOINT", "FSTYPE", "DEVICE", "BACKING", "O_DIRECT", "HIPFILE", "REASON"];
    let shown: Vec<&VolumeRow> = report.volumes.iter().filter(|row| verbose || row.for_data).collect();
    let cells = |row: &VolumeRow| {
        let unseen = row.unseen.map(|what| format!("{what} not seen"));
        [
            &row.mountpoint,
            &row.fstype,
            &row.device,
            row.backing.as_str(),
            row.o_direct,
            row.hipfile,
            row.reason.or(unseen.as_deref()).unwrap_or_default(),
        ]
        .map(one_line)
    };
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(shown.iter().map(|row| cells(row)));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    out.push('\n');
    for (index, row) in rows.iter().enumerate() {
        let line: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(out, "{}", line.join("  ").trim_end());
        if let (true, Some(row)) = (verbose, index.checked_sub(1).and_then(|index| shown.get(index))) {
            row.stack.iter().for_each(|device| _ = writeln!(out, "    {}", one_line(device)));
        }
    }
    let left_out = report.volumes.len() - shown.len();
    if left_out > 0 {
        let _ = writeln!(out, "({left_out} more in memory, in images or of containers: -v shows them)");
    }
}

fn components(out: &mut String, components: &[Component]) {
    let width = components.iter().map(|component| component.name.len()).max().unwrap_or(0);
    for component in components {
        let answer = match component.ok {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let _ = writeln!(out, "  {:width$}  {answer:7}  {}", component.name, one_line(&component.found));
    }
}

fn gpus(out: &mut String, report: &Report, verbose: bool) {
    out.push_str("\nGPUs:\n");
    if report.gpus.is_empty() {
        out.push_str("  none on the PCI bus\n");
    }
    for gpu in &report.gpus {
        let mut line = format!("{}  {}", gpu.pci, gpu.name);
        if gpu.virtual_function {
            line += ", virtual function";
        }
        match &gpu.driver {
            Some(driver) => line += &format!(", driver {driver}"),
            None => line += ", no driver",
        }
        if let Some(link) = &gpu.link {
            line += &format!(", link {link}");
        }
        if let Some(window) = &gpu.window {
            line += &format!(", BAR {}", show_size(window.reached));
            if let Some(memory) = window.memory {
                line += &format!(" of {}", show_size(memory));
            }
        }
        let _ = writeln!(out, "  {}", one_line(&line));
        if !verbose {
            continue;
        }
        for peer in &gpu.peers {
            let way = match peer.path {
                "switch" => "through a switch or port above both",
                "host-bridge" => "through the host bridge",
                "refused" => "not at all: the host bridge is not known to pass peer traffic on",
                _ => "in a way that cannot be told",
            };
            let _ = writeln!(out, "    reaches NVMe {} {way}", peer.nvme);
        }
        let iommu = gpu.iommu.as_deref().unwrap_or("none");
        let _ = writeln!(out, "    IOMMU: {}", one_line(iommu));
    }
}

/// What is missing and what to do: each component, then each reason once, with the volumes it holds for.
fn to_do(out: &mut String, report: &Report) {
    let mut lines = Vec::new();
    for component in report.components.iter().filter(|component| component.ok != Some(true)) {
        if let Some(advice) = &component.advice {
            lines.push(format!("{}: {advice}", component.name));
        }
    }
    if report.has_nvidia() {
        lines.extend(report.missing_of_nvidia().map(|(name, advice)| format!("NVIDIA {name}: {advice}")));
    }
    let mut reasons: BTreeMap<&str, (&VolumeRow, Vec<&str>)> = BTreeMap::new();
    for row in report.volumes.iter().filter(|row| row.for_data) {
        if let Some(word) = row.reason {
            reasons.entry(word).or_insert_with(|| (row, Vec::new())).1.push(&row.mountpoint);
        }
    }
    for (row, mounts) in reasons.values() {
        let (text, advice) = (row.text.unwrap_or_default(), row.advice.unwrap_or_default());
        lines.push(format!("{}: {text}; {advice}", mounts.join(", ")));
    }
    if !lines.is_empty() {
        out.push_str("\nTo do:\n");
        lines.iter().for_each(|line| _ = writeln!(out, "  {}", one_line(line)));
    }
}

pub(super) fn file(report: &FileReport) -> String {
    let mut lines = vec![];
    let mut say = |name: &str, value: String| lines.push(format!("  {name:13}  {}", one_line(&value)));
    let mut place = report.fstype.clone();
    if let Some(mountpoint) = &report.mountpoint {
        place += &format!(" on {mountpoint}");
    }
    if let Some(device) = &report.device {
        place += &format!(", {device}");
    }
    say("file system", place);
    match report.stack.is_empty() {
        true => say("block devices", report.backing.clone()),
        false => report.stack.iter().for_each(|device| say("block device", device.clone())),
    }
    match &report.align {
        Some(align) => say(
            "O_DIRECT",
            format!(
                "memory in units of {}, offsets of {}, when reading of {}",
                align.memory, align.offset, align.read_offset
            ),
        ),
        None => say("O_DIRECT", "no".to_owned()),
    }
    match &report.storage {
        Some(below) => say("storage", format!("no direct path: {} [{}]", below.text, below.reason)),
        None => say("storage", "fit for direct access".to_owned()),
    }
    if let (None, Some(why)) = (&report.gpu, &report.trial) {
        say("GPU", format!("none: {why}"));
    }
    if let Some(gpu) = &report.gpu {
        say("GPU", if report.emulated { format!("{gpu} (emulated)") } else { gpu.clone() });
    }
    if let Some(engine) = report.engine {
        say("engine", engine.to_owned());
    }
    // Without a GPU there was none.
    if let (Some(_), Some(trial)) = (&report.gpu, &report.trial) {
        say("trial", trial.clone());
    }
    let below = report.storage.as_ref().map(|below| below.advice);
    let mut advice: Vec<&str> = report.advice.into_iter().chain(below).collect();
    advice.dedup();
    advice.iter().for_each(|line| say("to do", (*line).to_owned()));
    let new = if report.directory { " (new files)" } else { "" };
    let head = match report.direct {
        true => format!("{}{new}: direct", report.path),
        false => format!("{}{new}: not direct, {}", report.path, report.why()),
    };
    format!("{}\n{}\n", one_line(&head), lines.join("\n"))
}
