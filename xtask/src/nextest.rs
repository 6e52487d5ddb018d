//! Runs tests with cargo-nextest and then prints what they skipped: nextest shows no output of a test that passed,
//! so the `SKIP: what: reason` lines are taken from its report. It does not decide what is tested.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cmd::Cmd;
use crate::nightly::Nightly;
use crate::{layout, tools};

/// One run of the tests.
pub(crate) struct Nextest {
    profile: &'static str,
    target: PathBuf,
    select: String,
    filter: Option<String>,
    env: Vec<(String, String)>,
    nightly: Option<Nightly>,
}

impl Nextest {
    /// All tests of the workspace.
    pub(crate) fn new() -> Self {
        Nextest {
            profile: "ci",
            target: layout::target(),
            select: "--workspace".to_owned(),
            filter: None,
            env: Vec::new(),
            nightly: None,
        }
    }

    /// Only one test binary of one package.
    pub(crate) fn test_binary(mut self, package: &str, binary: &str) -> Self {
        self.select = format!("--package {package} --test {binary}");
        self
    }

    /// What these words of cargo's select.
    pub(crate) fn select(mut self, words: &str) -> Self {
        self.select = words.to_owned();
        self
    }

    /// Built by another toolchain, with options of its own (the last one takes the name of this machine's target), and only
    /// what these words select.
    pub(crate) fn with(mut self, nightly: Nightly, options: &str, select: &str) -> Self {
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        self.select = format!("{options} {target} {select}");
        self.nightly = Some(nightly);
        self
    }

    /// Only the tests that this filter expression selects.
    pub(crate) fn filter(mut self, expression: &str) -> Self {
        self.filter = Some(expression.to_owned());
        self
    }

    /// Another profile of `.config/nextest.toml`.
    pub(crate) fn profile(mut self, profile: &'static str) -> Self {
        self.profile = profile;
        self
    }

    /// A build folder of its own.
    pub(crate) fn target(mut self, dir: PathBuf) -> Self {
        self.target = dir;
        self
    }

    /// An environment variable of the build and the tests.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Lets the tests use what `dist --debug` staged.
    pub(crate) fn staged(self) -> Self {
        let dist = layout::dist(true);
        self.env("HIPFILE_TEST_DIST", &dist.to_string_lossy())
    }

    /// Runs it.
    ///
    /// # Errors
    /// A test failed or does not build, nothing was selected, or there is no cargo-nextest.
    pub(crate) fn run(self) -> Result<(), String> {
        let report = self.target.join("nextest").join(self.profile).join("junit.xml");
        let stale = std::fs::remove_file(&report);
        if let Err(e) = stale
            && e.kind() != std::io::ErrorKind::NotFound
        {
            return Err(format!("{}: {e}", report.display()));
        }
        let result = self.command()?.run();
        print_skips(&report);
        result
    }

    fn command(&self) -> Result<Cmd, String> {
        let mut command = tools::tool("nextest")?
            .words("run --locked --no-tests fail")
            .words(&self.select)
            .arg("--profile")
            .arg(self.profile)
            .arg("--target-dir")
            .arg(&self.target);
        if let Some(filter) = &self.filter {
            command = command.arg("-E").arg(filter);
        }
        for (name, value) in &self.env {
            command = command.env(name, value);
        }
        Ok(match &self.nightly {
            Some(nightly) => nightly.within(command),
            None => command,
        })
    }
}

fn print_skips(report: &Path) {
    // No report: nothing was built, and the run has failed already.
    let Ok(xml) = std::fs::read_to_string(report) else {
        return;
    };
    let skips = skips(&xml);
    for skip in &skips {
        println!("{skip}");
    }
    println!("{} cases skipped", skips.len());
}

/// The distinct SKIP lines of a JUnit report.
fn skips(xml: &str) -> BTreeSet<String> {
    xml.lines()
        .filter_map(|line| line.find("SKIP: ").map(|at| &line[at..]))
        // The first line of an output follows its tag, the last one stands before the closing tag.
        .map(|line| line.split('<').next().unwrap_or(line).trim_end())
        .map(|line| {
            let line = line.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
            line.replace("&apos;", "'").replace("&#39;", "'").replace("&amp;", "&")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skip_lines_are_found_wherever_they_stand_in_a_report() {
        let xml = "<system-err>SKIP: xfs: no mkfs.xfs\nnoise\nSKIP: a &lt;b&gt;: c &amp;&amp; d</system-err>\n\
                   <system-err>SKIP: xfs: no mkfs.xfs</system-err>\n<testcase name=\"skips_nothing\"/>";
        let found: Vec<String> = skips(xml).into_iter().collect();
        assert_eq!(found, ["SKIP: a <b>: c && d", "SKIP: xfs: no mkfs.xfs"]);
    }
}
