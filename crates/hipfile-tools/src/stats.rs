//! `hipfile stats`: what a process moves, seen from outside. It starts or finds the process and chooses how to show what the
//! process counts; what is counted is the library's business.

mod figures;
mod prometheus;
mod watch;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::process::{Child, Command};
use std::time::Duration;

use hipfile::Snapshot;
use hipfile::monitor::{self, Children, Target, Unreachable};

use crate::Tool;
use crate::failure::{Failure, note};
use crate::standard::out;

/// Show what a process moves: rates, latencies, engines, and why something was staged
///
/// Runs PROGRAM and reports when it has ended, or reports on the running process PID. The process must be of the same user,
/// or the caller root, and must count (HIPFILE_STATS_LEVEL is not 0). Only the process itself is shown, not its children.
/// Exit status 0 if there is a report, and the program ended well; else 1.
#[derive(clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("whom").args(["pid", "program"]).required(true))]
pub(crate) struct Stats {
    /// Report on this process
    #[arg(short, long, value_name = "PID")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: Option<u32>,

    /// Report on it now; without this, when it has ended
    #[arg(short, long, requires = "pid")]
    immediate: bool,

    /// Print the report as JSON on standard output
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,

    /// Show what happens while it happens: a view on a terminal, else a line for each interval
    #[arg(long, conflicts_with_all = ["prometheus", "immediate"])]
    watch: bool,

    /// Seconds between two looks with --watch
    #[arg(long, value_name = "SECONDS", default_value = "1", requires = "watch", value_parser = interval)]
    interval: Duration,

    /// Print the report as text for Prometheus; with -p, now
    #[arg(long)]
    prometheus: bool,

    /// Program to run, and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// How long a process that is already there may take to answer before a line says what is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds is needed, 0.01 to 86400".to_owned()),
    }
}

impl Tool for Stats {
    fn run(self) -> Result<(), Failure> {
        match self.pid {
            Some(pid) => self.attach(pid),
            None => self.start(),
        }
    }
}

impl Stats {
    fn attach(&self, pid: u32) -> Result<(), Failure> {
        let what = format!("process {pid}");
        let failed = |why: Unreachable| Failure::new(&what, why);
        let mut target = Target::new(pid).map_err(failed)?;
        let now = self.immediate || self.prometheus;
        match target.connect(Some(PATIENCE)) {
            Err(Unreachable::Silent) if !now => {
                note(format_args!("{what}: {}; waiting until it does (-i: not)", Unreachable::Silent));
                target.connect(None).map_err(failed)?;
            }
            other => other.map_err(failed)?,
        }
        if self.watch {
            return self.live(&target);
        }
        if !now {
            target.wait(None);
        }
        self.print(&target.snapshot().map_err(failed)?, target.is_amds())
    }

    fn start(&self) -> Result<(), Failure> {
        let Some((program, arguments)) = self.program.split_first() else {
            return Err(Failure::new("arguments", "a program or a process is needed"));
        };
        let name = program.to_string_lossy().into_owned();
        let children = Children::new();
        let mut child =
            Command::new(program).args(arguments).spawn().map_err(|error| Failure::new(&name, error))?;
        let shown = self.follow(&name, &child, children);
        let ended = finish(&name, &mut child);
        shown.and(ended)
    }

    /// Shows what a program does until it has ended. It stays a child that was not waited for, so its number is its own.
    fn follow(&self, name: &str, child: &Child, children: Children) -> Result<(), Failure> {
        let failed = |why: Unreachable| Failure::new(name, why);
        let mut target = Target::child(child.id(), children).map_err(failed)?;
        target.connect(None).map_err(failed)?;
        if self.watch {
            return self.live(&target);
        }
        target.wait(None);
        self.print(&target.snapshot().map_err(failed)?, target.is_amds())
    }

    fn live(&self, target: &Target) -> Result<(), Failure> {
        let terminal = !self.json && std::io::stdout().is_terminal();
        let failed = |why: Unreachable| Failure::new(format_args!("process {}", target.pid()), why);
        let mut screen = watch::Screen::new(terminal);
        let mut before = target.snapshot().map_err(failed)?;
        loop {
            let ended = target.wait(Some(self.interval));
            let now = target.snapshot().map_err(failed)?;
            let seconds = now.taken.saturating_sub(before.taken) as f64 / 1e9;
            if self.json {
                out(&(figures::json(&figures::Report::between(&before, &now, seconds))? + "\n"))?;
            } else {
                out(&screen.show(&watch::View::new(&before, &now, seconds)))?;
            }
            if ended {
                return Ok(());
            }
            before = now;
        }
    }

    fn print(&self, snapshot: &Snapshot, is_amds: bool) -> Result<(), Failure> {
        out(&match (self.json, self.prometheus) {
            (true, _) => figures::json(&figures::Report::new(snapshot, is_amds))? + "\n",
            (_, true) => prometheus::text(snapshot),
            _ if is_amds => monitor::report(snapshot),
            _ => monitor::report(snapshot) + &watch::ways(snapshot),
        })
    }
}

fn finish(name: &str, child: &mut Child) -> Result<(), Failure> {
    let status = child.wait().map_err(|error| Failure::new(name, error))?;
    if status.success() { Ok(()) } else { Err(Failure::new(name, status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "0", "-1", "x", "inf", "nan", "1e9"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
