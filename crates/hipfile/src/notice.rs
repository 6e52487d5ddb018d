//! The one place that writes to standard error: rare, one line each. Not a log; nothing on the way of data comes here.

/// Writes one line, prefixed with the library's name. A closed or full standard error is not our failure.
pub(crate) fn line(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let line = format!("hipfile: {text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
