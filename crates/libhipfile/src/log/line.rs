//! What a line of the log looks like: one line whatever the values hold, of bounded length. It writes nothing.

use std::fmt::{self, Write as _};
use std::time::{Duration, SystemTime};

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata};

use super::word;

/// Longest line in bytes: what a pipe takes in one piece.
const LONGEST: usize = libc::PIPE_BUF;

/// The text of an event.
pub(super) struct Line {
    message: String,
    fields: String,
}

impl Line {
    pub(super) fn of(event: &Event<'_>) -> Line {
        let mut line = Line { message: String::new(), fields: String::new() };
        event.record(&mut line);
        line
    }

    pub(super) fn plain(message: fmt::Arguments<'_>) -> Line {
        Line { message: message.to_string(), fields: String::new() }
    }

    /// As it stands on standard error.
    pub(super) fn for_people(&self, metadata: &Metadata<'_>) -> String {
        self.after(format!("hipfile: {}: ", word(*metadata.level())))
    }

    /// As it stands in a file: with the time in UTC, process, thread and where in the library.
    pub(super) fn for_file(&self, metadata: &Metadata<'_>) -> String {
        let (time, level, target) = (Utc(now()), word(*metadata.level()), metadata.target());
        // SAFETY: it takes no argument and cannot fail. The C library has a name for it only since glibc 2.30.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) };
        self.after(format!("{time} {}/{thread} {level} {target}: ", std::process::id()))
    }

    fn after(&self, mut start: String) -> String {
        for c in self.message.chars().chain(self.fields.chars()) {
            if start.len() > LONGEST - 8 {
                start.push_str("...");
                break;
            }
            // A file's name may hold what would look like another line, or command a terminal.
            match c.is_control() {
                true => start.extend(c.escape_default()),
                false => start.push(c),
            }
        }
        start.truncate(start.floor_char_boundary(LONGEST - 1));
        start.push('\n');
        start
    }

    fn put(&mut self, field: &Field, value: &str) {
        let bare = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || c == '"' || c == '=');
        let _ = match bare {
            true => write!(self.fields, " {}={value}", field.name()),
            false => write!(self.fields, " {}={value:?}", field.name()),
        };
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            _ => self.put(field, &text),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }
}

/// The time since 1970.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// A time since 1970, as people and machines read it.
struct Utc(Duration);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, rest) = (self.0.as_secs() / 86_400, self.0.as_secs() % 86_400);
        // Years begin in March here, so that the day which some have and others have not is the last one. 719468 days lie
        // between the first of March of the year 0 and 1970; 146097 are in 400 years.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year + u64::from(month <= 2);
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        let micros = self.0.subsec_micros();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_709_251_200, "2024-03-01T00:00:00.000000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(Utc(Duration::from_secs(seconds)).to_string(), expected);
        }
    }

    #[test]
    fn a_line_is_one_line_of_bounded_length() {
        let line = Line::plain(format_args!("a\nb\x1b[2J{}", "ä".repeat(10_000)));
        let text = line.after("start ".into());
        assert!(text.starts_with("start a\\nb\\u{1b}[2Jää") && text.ends_with("...\n"), "{text}");
        assert!(text.len() <= LONGEST && text.lines().count() == 1);
        assert_eq!(Line::plain(format_args!("short")).after("s ".into()), "s short\n");
    }
}
