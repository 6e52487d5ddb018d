//! Child processes: each is echoed, runs in the checkout's root without standard input, and fails with its own
//! command line in the error. It interprets no output.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command to be run from the checkout's root.
pub(crate) struct Cmd {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

/// Starts a [`Cmd`].
pub(crate) fn cmd(program: impl AsRef<OsStr>) -> Cmd {
    Cmd { program: program.as_ref().to_owned(), args: Vec::new(), env: Vec::new() }
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Cmd {
    cmd(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

impl Cmd {
    /// Adds the words of `line`, which are separated by blanks.
    pub(crate) fn words(mut self, line: &str) -> Self {
        self.args.extend(line.split_whitespace().map(OsString::from));
        self
    }

    /// Adds one argument as it is.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Sets an environment variable of the child.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Runs it, its output going where ours goes.
    ///
    /// # Errors
    /// It could not be started, or did not exit with 0.
    pub(crate) fn run(self) -> Result<(), String> {
        let line = self.line();
        println!("$ {line}");
        let status = self.command().status().map_err(|e| format!("{line}: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("failed ({status}): {line}")) }
    }

    /// Runs it silently and gives its standard output; its standard error goes where ours goes.
    ///
    /// # Errors
    /// As [`Cmd::run`], or the output is not UTF-8.
    pub(crate) fn output(self) -> Result<String, String> {
        let line = self.line();
        let out = self.command().stderr(Stdio::inherit()).output().map_err(|e| format!("{line}: {e}"))?;
        if !out.status.success() {
            return Err(format!("failed ({}): {line}", out.status));
        }
        String::from_utf8(out.stdout).map_err(|e| format!("{line}: {e}"))
    }

    /// Runs it silently; all that it said, or the same as an error.
    ///
    /// # Errors
    /// As [`Cmd::run`].
    pub(crate) fn told(self) -> Result<String, String> {
        let line = self.line();
        let out = self.command().output().map_err(|e| format!("{line}: {e}"))?;
        let said = [out.stderr, out.stdout].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        if out.status.success() { Ok(said) } else { Err(format!("{said}failed ({}): {line}", out.status)) }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).current_dir(crate::layout::root());
        for (name, value) in &self.env {
            command.env(name, value);
        }
        command
    }

    fn line(&self) -> String {
        let env =
            self.env.iter().map(|(name, value)| format!("{}={}", name.to_string_lossy(), quoted(value)));
        env.chain(std::iter::once(quoted(&self.program)))
            .chain(self.args.iter().map(|arg| quoted(arg)))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Where a program is: on `PATH`, or in the folders for administrators that a user's `PATH` may lack.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|candidate| is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let line = cmd("cc").words("-O2 -I include").arg("a b.c").arg("it's").env("CFLAGS", "-g -O0").line();
        assert_eq!(line, r"CFLAGS='-g -O0' cc -O2 -I include 'a b.c' 'it'\''s'");
    }

    #[test]
    fn a_failing_child_is_an_error_that_names_it() {
        let error = cmd("sh").arg("-c").arg("exit 3").run().expect_err("exit status 3");
        assert!(error.contains("exit status: 3") && error.contains("sh -c 'exit 3'"), "{error}");
        let error = cmd("no-such-program-here").run().expect_err("no such program");
        assert!(error.contains("no-such-program-here"), "{error}");
    }

    #[test]
    fn which_finds_programs_and_nothing_else() {
        assert!(which("sh").is_some());
        assert_eq!(which("no-such-program-here"), None);
    }
}
