//! What happens now, for people: a few lines that are drawn over each other on a terminal, or one line for each interval. It
//! shows differences between two looks and counts nothing.

use std::fmt::Write as _;

use hipfile::{Named, Op, Side, Snapshot};

/// Ends a line's old text: the new one may be shorter.
const CLEAR_TO_END: &str = "\x1b[K";
/// Clears what is below: there may be fewer lines than before.
const CLEAR_BELOW: &str = "\x1b[J";

/// What came between two looks.
pub(super) struct View<'a> {
    now: &'a Snapshot,
    seconds: f64,
    sides: [(&'static str, Side); 2],
    /// Bytes per second of each GPU, read and written.
    gpus: Vec<(Option<u32>, [f64; 2])>,
}

impl<'a> View<'a> {
    pub(super) fn new(before: &Snapshot, now: &'a Snapshot, seconds: f64) -> View<'a> {
        let seconds = seconds.max(1e-9);
        let sides = [("read", Op::Read), ("write", Op::Write)];
        let gpus = now.gpus.iter().map(|gpu| {
            let rate = |op: Op| {
                let earlier = before.gpu(gpu.ordinal).map_or(0, |gpu| gpu.side(op).bytes());
                gpu.side(op).bytes().saturating_sub(earlier) as f64 / seconds
            };
            (gpu.ordinal, [rate(Op::Read), rate(Op::Write)])
        });
        View {
            now,
            seconds,
            sides: sides.map(|(name, op)| (name, now.total(op).since(&before.total(op)))),
            gpus: gpus.collect(),
        }
    }

    fn gb_per_s(&self, side: &Side) -> f64 {
        side.bytes() as f64 / self.seconds / 1e9
    }

    fn age(&self) -> f64 {
        self.now.taken.saturating_sub(self.now.started) as f64 / 1e9
    }

    /// Both directions together.
    fn both(&self) -> Side {
        let mut both = self.sides[0].1.clone();
        both.add(&self.sides[1].1);
        both
    }

    /// The lines of the view on a terminal.
    fn lines(&self) -> Vec<String> {
        let gpu = match self.now.emulated {
            Some(true) => ", emulated GPU",
            _ => "",
        };
        let mut lines = vec![format!("process {}{gpu}, level {}", self.now.pid, self.now.level)];
        if self.now.started > 0 {
            let _ = write!(lines[0], ", {:.0} s", self.age());
        }
        lines.push(format!(
            "{:<6}{:>9}{:>11}{:>10}{:>10}{:>11}{:>8}",
            "", "GB/s", "/s", "p50 us", "p99 us", "p99.9 us", "errors"
        ));
        for (name, side) in &self.sides {
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| time(side, share));
            lines.push(format!(
                "{name:<6}{:>9.3}{:>11.0}{p50:>10}{p99:>10}{p999:>11}{:>8}",
                self.gb_per_s(side),
                side.operations() as f64 / self.seconds,
                side.errors(),
            ));
        }
        let both = self.both();
        lines.push(format!("engines  {}", shares(&both.engines)));
        lines.push(format!("reasons  {}", shares(&both.reasons)));
        for (ordinal, [read, write]) in &self.gpus {
            let name = ordinal.map_or("host".to_owned(), |ordinal| format!("GPU {ordinal}"));
            lines.push(format!("{name:<7}  read {:.3} GB/s, write {:.3} GB/s", read / 1e9, write / 1e9));
        }
        lines
    }

    /// All on one line, for files and pipes.
    fn line(&self) -> String {
        let mut line = format!("{:.1} s", self.age());
        for (name, side) in &self.sides {
            let _ = write!(
                line,
                "; {name} {:.3} GB/s {:.0} /s p50 {} p99 {} p99.9 {} us errors {}",
                self.gb_per_s(side),
                side.operations() as f64 / self.seconds,
                time(side, 0.5),
                time(side, 0.99),
                time(side, 0.999),
                side.errors(),
            );
        }
        let both = self.both();
        let _ = write!(line, "; engines {}; reasons {}", shares(&both.engines), shares(&both.reasons));
        for (ordinal, [read, write]) in &self.gpus {
            let name = ordinal.map_or("host".to_owned(), |ordinal| format!("GPU {ordinal}"));
            let _ = write!(line, "; {name} {:.3} + {:.3} GB/s", read / 1e9, write / 1e9);
        }
        if self.now.emulated == Some(true) {
            line.push_str("; emulated");
        }
        line
    }
}

fn time(side: &Side, share: f64) -> String {
    match side.latency(share) {
        None => "-".to_owned(),
        Some(nanoseconds) if nanoseconds < 10_000.0 => format!("{:.1}", nanoseconds / 1000.0),
        Some(nanoseconds) => format!("{:.0}", nanoseconds / 1000.0),
    }
}

/// Two lines for the report: what moved the bytes, and why some were staged.
pub(super) fn ways(snapshot: &Snapshot) -> String {
    let mut both = snapshot.total(Op::Read);
    both.add(&snapshot.total(Op::Write));
    format!("Engines: {}\nStaged for: {}\n", shares(&both.engines), shares(&both.reasons))
}

/// What part of all bytes each row has, the largest first.
fn shares(rows: &[Named]) -> String {
    let total: u64 = rows.iter().fold(0, |sum, row| sum.saturating_add(row.bytes));
    let mut rows: Vec<_> = rows.iter().filter(|row| row.bytes > 0).collect();
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    let share =
        |row: &&Named| format!("{} {:.0} %", row.name, row.bytes as f64 * 100.0 / total.max(1) as f64);
    if rows.is_empty() { "-".to_owned() } else { rows.iter().map(share).collect::<Vec<_>>().join(", ") }
}

/// Where views are shown.
pub(super) struct Screen {
    terminal: bool,
    /// Lines of the view that was drawn last.
    drawn: usize,
}

impl Screen {
    pub(super) fn new(terminal: bool) -> Screen {
        Screen { terminal, drawn: 0 }
    }

    /// The text that shows a view, over the one before if this is a terminal.
    pub(super) fn show(&mut self, view: &View<'_>) -> String {
        if !self.terminal {
            return view.line() + "\n";
        }
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
        let (columns, rows) =
            size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        let mut text = String::new();
        if self.drawn > 0 {
            let _ = write!(text, "\x1b[{}A\r", self.drawn);
        }
        // A line that is too long would take two, and drawing over it would miss one; so would lines out of sight.
        let lines = view.lines();
        let lines = lines.iter().take(rows.max(2) - 1);
        self.drawn = lines.len();
        for line in lines {
            let line: String = line.chars().take(columns.max(2) - 1).collect();
            let _ = writeln!(text, "{line}{CLEAR_TO_END}");
        }
        text + CLEAR_BELOW
    }
}
