//! The code blocks of the documentation: C, Python, shell, TOML and Rust are compiled, and programs in C run. A block says what it is in
//! its first line; one that says nothing is text.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::files;
use crate::cmd::{cmd, which};
use crate::layout;

struct Block {
    /// The file and line where it begins.
    at: String,
    language: String,
    text: String,
}

/// Each kind of block, and how one is checked.
type Check = fn(&Block, &Path) -> Result<(), String>;
const KINDS: [(&str, Check); 6] =
    [("c", c), ("python", python), ("sh", shell), ("toml", toml), ("cmake", cmake), ("rust", rust)];

/// Checks every block of docs/ and of the pages at the root.
pub(super) fn check() -> Result<(), String> {
    let root = layout::root();
    let scratch = layout::target().join("blocks");
    fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let mut pages = files(&root.join("docs"), ".md")?;
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    let mut count = 0;
    for page in pages {
        // Declarations, from headers that are compiled by tests.
        if page.ends_with("docs/reference.md") {
            continue;
        }
        for block in blocks(&layout::read(&page)?, &page) {
            if block.language.is_empty() || block.language == "text" {
                continue;
            }
            let kind = KINDS.iter().find(|(name, _)| *name == block.language);
            let (_, check) =
                kind.ok_or_else(|| format!("{}: nobody checks {:?}", block.at, block.language))?;
            check(&block, &scratch).map_err(|problem| format!("{}: {problem}", block.at))?;
            count += 1;
        }
    }
    println!("{count} blocks of code in the documentation were compiled or run");
    Ok(())
}

fn blocks(text: &str, page: &Path) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => {
                let language = language.trim().to_owned();
                open = Some(Block {
                    at: format!("{}:{}", page.display(), number + 1),
                    language,
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

fn save(block: &Block, scratch: &Path, name: &str) -> Result<PathBuf, String> {
    let path = scratch.join(name);
    fs::write(&path, &block.text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// Runs what must succeed, and tells what it said if it did not.
fn quiet(command: &mut Command) -> Result<(), String> {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    Err(format!(
        "{command:?}: {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    ))
}

/// A program, on the staged tree's emulated GPU.
fn c(block: &Block, scratch: &Path) -> Result<(), String> {
    let (dist, source, program) =
        (layout::dist(true), save(block, scratch, "block.c")?, scratch.join("block"));
    let folder = |path: &str| dist.join(path).display().to_string();
    quiet(
        Command::new("gcc")
            .args(["-Wall", "-Wextra", "-Werror", "-D__HIP_PLATFORM_AMD__"])
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .args(["-I", &folder("include"), "-I", &folder("include/hip-emu")])
            .args(["-L", &folder("lib"), "-lhipfile", "-L", &folder("lib/hip-emu"), "-lamdhip64"]),
    )?;
    let libraries = format!("{}:{}", folder("lib"), folder("lib/hip-emu"));
    quiet(Command::new(&program).current_dir(scratch).env("LD_LIBRARY_PATH", libraries))
}

fn python(block: &Block, scratch: &Path) -> Result<(), String> {
    let source = save(block, scratch, "block.py")?;
    quiet(
        Command::new("python3")
            .args(["-c", "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')"])
            .arg(source),
    )
}

/// That it parses, and that the options of our own commands are options: what it would do is not for here.
fn shell(block: &Block, scratch: &Path) -> Result<(), String> {
    quiet(Command::new("bash").arg("-n").arg(save(block, scratch, "block.sh")?))?;
    let hipfile = layout::dist(true).join("bin/hipfile");
    for line in block.text.lines().filter_map(|line| line.strip_prefix("hipfile ")) {
        let words: Vec<&str> = line.split(" #").next().unwrap_or(line).split_whitespace().collect();
        let (Some(tool), options) =
            (words.first(), words.iter().filter(|word| word.starts_with("--") && word.len() > 2))
        else {
            continue;
        };
        let help = cmd(&hipfile).arg(tool).arg("--help").output()?;
        for option in options {
            let name = option.split('=').next().unwrap_or(option);
            if !help.contains(name) {
                return Err(format!("hipfile {tool} has no option {name}"));
            }
        }
    }
    Ok(())
}

fn toml(block: &Block, scratch: &Path) -> Result<(), String> {
    let source = save(block, scratch, "block.toml")?;
    quiet(
        Command::new("python3")
            .args(["-c", "import sys, tomllib; tomllib.load(open(sys.argv[1], 'rb'))"])
            .arg(source),
    )
}

/// In a project around it.
fn cmake(block: &Block, scratch: &Path) -> Result<(), String> {
    if which("cmake").is_none() {
        println!("SKIP: {}: there is no cmake", block.at);
        return Ok(());
    }
    let project = scratch.join("cmake");
    // What it found before would hide what is not there now, and a checkout that has moved is refused.
    let _ = fs::remove_dir_all(&project);
    fs::create_dir_all(&project).map_err(|e| format!("{}: {e}", project.display()))?;
    let head = "cmake_minimum_required(VERSION 3.16)\nproject(user C)\nadd_executable(first x.c)\n";
    let write =
        |name: &str, text: &str| fs::write(project.join(name), text).map_err(|e| format!("{name}: {e}"));
    write("CMakeLists.txt", &format!("{head}{}", block.text))?;
    let (include, body) = match block.text.contains("hipfile::emulation") {
        true => (
            "#include <hip/hip_runtime_api.h>\n",
            "int n; return hipGetDeviceCount(&n) != hipSuccess || n < 1;",
        ),
        false => ("", "return (int)hipFileUseCount();"),
    };
    write("x.c", &format!("{include}#include <hipfile.h>\nint main(void) {{ {body} }}\n"))?;
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", layout::dist(true).display());
    quiet(Command::new("cmake").arg("-S").arg(&project).arg("-B").arg(project.join("build")).arg(prefix))?;
    quiet(Command::new("cmake").arg("--build").arg(project.join("build")))?;
    quiet(&mut Command::new(project.join("build/first")))
}

/// Checked by `cargo test --doc`, which has README.md; others have none.
fn rust(block: &Block, _: &Path) -> Result<(), String> {
    if block.at.contains("README.md:") {
        Ok(())
    } else {
        Err("Rust belongs into README.md or the crate".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_with_their_language_and_place() {
        let text = "a\n```c\nint x;\n```\n\n```\nout\n```\n  ```sh\n  ls\n  ```\n";
        let found: Vec<_> =
            blocks(text, Path::new("p.md")).into_iter().map(|b| (b.at, b.language, b.text)).collect();
        let expected = [("p.md:2", "c", "int x;\n"), ("p.md:6", "", "out\n"), ("p.md:9", "sh", "  ls\n")];
        assert_eq!(
            found,
            expected.map(|(at, language, text)| (at.to_owned(), language.to_owned(), text.to_owned()))
        );
    }

    #[test]
    fn an_option_that_no_tool_has_is_an_error() {
        let scratch = tempfile::tempdir().expect("a folder");
        let block =
            |text: &str| Block { at: String::new(), language: "sh".to_owned(), text: text.to_owned() };
        assert!(shell(&block("if"), scratch.path()).is_err());
        if layout::dist(true).join("bin/hipfile").exists() {
            assert!(
                shell(&block("hipfile copy --fast a b"), scratch.path()).is_err_and(|e| e.contains("--fast"))
            );
            assert_eq!(shell(&block("hipfile copy --verify a b   # says so"), scratch.path()), Ok(()));
        } else {
            eprintln!("SKIP: the options of the tools: nothing is staged");
        }
    }
}
