//! `hipfile generate`: manual pages and shell completions, written from the definition of the command line itself, for who
//! packages the tools. It says nothing that `--help` does not say.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::{Shell, generate_to};

use crate::failure::Failure;
use crate::{TOOLS, Tool, VERSION, command_line};

/// Write the manual pages and the shell completions of this command
///
/// They are of this very version. Below DIR they lie as they are installed: share/man/man1,
/// share/bash-completion/completions, share/zsh/site-functions, share/fish/vendor_completions.d.
#[derive(clap::Args)]
pub(crate) struct Generate {
    /// Folder, made if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Tool for Generate {
    fn prints(&self) -> bool {
        false
    }

    fn run(self) -> Result<(), Failure> {
        let pages = folder(&self.dir, "share/man/man1")?;
        let shown = || TOOLS.iter().filter(|tool| !tool.hidden);
        page(&pages, "hipfile", command_line(shown()), "hipfile")?;
        for tool in shown() {
            let name = format!("hipfile-{}", tool.name);
            page(&pages, &name, tool.command(tool.name), &format!("hipfile {}", tool.name))?;
            if !tool.amd_name.is_empty() {
                page(&pages, tool.amd_name, tool.command(tool.amd_name).version(VERSION), tool.amd_name)?;
            }
        }
        for (shell, to) in [
            (Shell::Bash, "share/bash-completion/completions"),
            (Shell::Zsh, "share/zsh/site-functions"),
            (Shell::Fish, "share/fish/vendor_completions.d"),
        ] {
            let to = folder(&self.dir, to)?;
            let at = |error| Failure::new(to.display().to_string(), error);
            let made = generate_to(shell, &mut command_line(shown()), "hipfile", &to).map_err(at)?;
            // A shell looks for bash's under the command's own name.
            if shell == Shell::Bash {
                fs::rename(made, to.join("hipfile")).map_err(at)?;
            }
        }
        Ok(())
    }
}

fn folder(below: &Path, path: &str) -> Result<PathBuf, Failure> {
    let path = below.join(path);
    match fs::create_dir_all(&path) {
        Ok(()) => Ok(path),
        Err(error) => Err(Failure::new(path.display().to_string(), error)),
    }
}

/// Writes the page `name`(1) of a command that is called as `called`.
fn page(folder: &Path, name: &str, command: Command, called: &str) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    let command = command.display_name(name.to_owned()).bin_name(called.to_owned());
    let man = clap_mangen::Man::new(command)
        .title(name.to_uppercase())
        .source(format!("hipfile {VERSION}"))
        .manual("hipfile");
    let mut text = Vec::new();
    man.render(&mut text)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| Failure::new(path.display().to_string(), error))
}
