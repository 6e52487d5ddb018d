//! One line on the terminal that says how far a copy is. Draws nothing when standard error is not a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::units::show_size;

const REDRAW: Duration = Duration::from_millis(100);
/// Ends the line's old text: the new one may be shorter.
const CLEAR_TO_END: &str = "\x1b[K";

/// The bar. Dropped unfinished, it wipes itself, so that an error message starts on a clean line.
pub(crate) struct Progress {
    label: String,
    total: u64,
    done: u64,
    started: Instant,
    drawn: Option<Instant>,
    on: bool,
}

impl Progress {
    /// A bar for `total` bytes, shown as `label`. A total that proves too small is raised on the way.
    pub(crate) fn new(label: &str, total: u64) -> Self {
        let label = label.chars().filter(|c| !c.is_control()).collect();
        let on = std::io::stderr().is_terminal();
        Self { label, total, done: 0, started: Instant::now(), drawn: None, on }
    }

    /// `bytes` more are done.
    pub(crate) fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        self.total = self.total.max(self.done);
        if self.on && self.drawn.is_none_or(|at| at.elapsed() >= REDRAW) {
            self.draw("");
        }
    }

    /// Draws the last state and leaves it on the screen.
    pub(crate) fn finish(mut self) {
        if self.on {
            self.draw("\n");
            self.on = false;
        }
    }

    fn draw(&mut self, end: &str) {
        self.drawn = Some(Instant::now());
        let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| size.ws_col);
        let line = render(&self.label, self.done, self.total, self.started.elapsed(), columns.into());
        let mut out = std::io::stderr().lock();
        // A terminal that went away does not stop the copy.
        let _ = write!(out, "\r{line}{CLEAR_TO_END}{end}");
        let _ = out.flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.on && self.drawn.is_some() {
            let _ = write!(std::io::stderr(), "\r{CLEAR_TO_END}");
        }
    }
}

/// The line for one state, never wider than `columns` - 1 (the last column would wrap on some terminals). What does not
/// fit is left out, the least important first.
fn render(label: &str, done: u64, total: u64, elapsed: Duration, columns: usize) -> String {
    let share = if total == 0 { 1.0 } else { done as f64 / total as f64 };
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let rate = done as f64 / seconds;
    let left = if done == 0 || done >= total { 0.0 } else { (total - done) as f64 / rate };
    let numbers = format!(
        " {:3.0}% {} / {}  {:.2} GB/s  {}",
        (share * 100.0).floor(),
        show_size(done),
        show_size(total),
        rate / 1e9,
        clock(if done >= total { seconds } else { left }),
    );
    let width = columns.saturating_sub(1);
    let room = width.saturating_sub(numbers.chars().count());
    let bar_width = 24.min(room / 2);
    let mut line: String = label.chars().take(room - bar_width.min(room)).collect();
    if bar_width >= 8 {
        let filled = ((bar_width - 3) as f64 * share) as usize;
        line.push_str(" [");
        line.extend((0..bar_width - 3).map(|at| if at < filled { '#' } else { '.' }));
        line.push(']');
    }
    line.push_str(&numbers);
    line.chars().take(width).collect()
}

/// `m:ss`, or `h:mm:ss` from one hour on.
fn clock(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_it_is() {
        let line = render("model.bin", 1 << 30, 4 << 30, Duration::from_secs(2), 100);
        assert_eq!(line, "model.bin [#####................]  25% 1.0 GiB / 4.0 GiB  0.54 GB/s  0:06");
        let done = render("empty", 0, 0, Duration::from_secs(0), 100);
        assert!(done.contains("100%"), "{done}");
    }

    #[test]
    fn the_line_never_wraps() {
        for columns in 0..200 {
            let line =
                render("a-rather-long-file-name.safetensors", 7, 9, Duration::from_secs(4000), columns);
            assert!(line.chars().count() <= columns.saturating_sub(1), "{columns}: {line}");
        }
    }
}
