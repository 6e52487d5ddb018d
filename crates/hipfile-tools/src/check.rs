//! `hipfile check`: whether this machine, or one file, can be read straight into GPU memory, and what is missing. The facts
//! are the library's; this chooses what to show of them and how.

mod config;
mod file;
mod o_direct;
mod report;
mod text;

use std::path::PathBuf;

use hipfile::Config;
use hipfile::storage::Roots;
use serde::Serialize;

use crate::failure::{Failure, note};
use crate::{Tool, standard};
use report::Report;

/// Say whether files can be moved directly between storage and GPU memory, and what is missing
///
/// Without PATH: the components that direct access needs, and every mounted volume with the reason why files on it cannot
/// be reached directly. With PATH: one file, registered and read as a program would, or a new file in a directory. No
/// privileges are needed; what cannot be seen without them is listed. Exit status 0 if every component is there (with PATH:
/// if the file is reached directly), else 1.
#[derive(clap::Args)]
pub(crate) struct Check {
    /// File, block device or directory to answer for
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,

    /// Print nothing; the exit status is the answer
    #[arg(short, long, conflicts_with_all = ["verbose", "json"])]
    quiet: bool,

    /// Show everything that was looked at
    #[arg(short, long)]
    verbose: bool,

    /// Print the answer as JSON on standard output
    #[arg(long)]
    json: bool,

    /// List every setting, with its value and what it takes; nothing is checked
    #[arg(long, conflicts_with_all = ["path", "quiet", "verbose"])]
    config: bool,

    /// GPU to read into with PATH, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: u32,

    /// Describe the machine whose /proc, /sys and so on lie in this folder
    #[arg(long, value_name = "DIR", hide = true, conflicts_with = "path")]
    root: Option<PathBuf>,
}

impl Tool for Check {
    fn prints(&self) -> bool {
        !self.quiet
    }

    fn run(self) -> Result<(), Failure> {
        if self.config {
            let settings = config::settings(&Config::from_env());
            return self.print(&settings, || config::text(&settings));
        }
        match &self.path {
            Some(path) => {
                let answer = file::check(path, self.gpu)?;
                self.print(&answer, || text::file(&answer))?;
                match &answer.direct {
                    true => Ok(()),
                    false => Err(self.failure(path.display(), &answer.why())),
                }
            }
            None => self.machine(),
        }
    }
}

impl Check {
    fn machine(&self) -> Result<(), Failure> {
        let roots = self.root.as_ref().map_or_else(Roots::real, Roots::under);
        let config = Config::from_env();
        let report = Report::gather(&config, &roots);
        self.print(&report, || text::machine(&report, self.verbose))?;
        if !self.quiet && !self.json {
            for warning in &report.warnings {
                note(format_args!("warning: {warning}"));
            }
        }
        let missing = report.missing();
        if missing.is_empty() { Ok(()) } else { Err(self.failure("missing", &missing.join(", "))) }
    }

    fn print(&self, answer: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        let text = match self.json {
            true => serde_json::to_string(answer).map_err(|error| Failure::new("--json", error))? + "\n",
            false => text(),
        };
        standard::out(&text)
    }

    fn failure(&self, what: impl std::fmt::Display, why: &str) -> Failure {
        if self.quiet { Failure::silent() } else { Failure::new(what, why) }
    }
}

/// Whether the emulated GPU is what was asked for: the block devices below do not matter to it.
fn is_emulated(config: &Config) -> bool {
    config.device.is_emulated()
}
