//! The error of a tool: one line that names the thing and the reason. Not the library's error: that one becomes the reason.

use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use rustix::io::Errno;

static PREFIX: OnceLock<String> = OnceLock::new();

/// Why a tool gives up. Displayed as `what: why`, always on one line.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// `what` is the thing it happened to, `why` the reason, both as a user would name them.
    pub(crate) fn new(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self(one_line(&format!("{what}: {why}")))
    }

    /// A failure that has been told by other means: only the exit status says it.
    pub(crate) fn silent() -> Self {
        Self(String::new())
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.0.is_empty()
    }

    /// A failure of the file at `path`.
    pub(crate) fn at(path: &Path, why: impl fmt::Display) -> Self {
        Self::new(path.display(), why)
    }

    /// A system call on the file at `path` failed.
    pub(crate) fn os(path: &Path, error: Errno) -> Self {
        Self::at(path, reason_of(error))
    }

    /// The same failure with what it means for the user added.
    pub(crate) fn and(self, consequence: impl fmt::Display) -> Self {
        Self(one_line(&format!("{} ({consequence})", self.0)))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The system's own words for an error.
pub(crate) fn reason_of(error: Errno) -> std::io::Error {
    error.into()
}

/// Sets what every [`note`] begins with. The first call counts.
pub(crate) fn set_prefix(prefix: String) {
    let _ = PREFIX.set(prefix);
}

/// Writes one line to standard error.
pub(crate) fn note(message: impl fmt::Display) {
    let prefix = PREFIX.get().map_or("hipfile", String::as_str);
    let line = one_line(&format!("{prefix}: {message}"));
    // A closed standard error must not turn a good copy into a failed one.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// File names may hold line breaks and terminal sequences: both are shown as escapes.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut line, c| {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
        line
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_whatever_the_name() {
        let failure = Failure::at(Path::new("a\nb\x1b[31m"), "not found").and("kept");
        assert_eq!(failure.to_string(), "a\\nb\\u{1b}[31m: not found (kept)");
    }
}
