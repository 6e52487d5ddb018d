//! Manual pages and completions: that there is one for each tool, and that the programs they are written for take them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{HIPFILE, Lab, run, skip};

fn generated(lab: &Lab) -> std::path::PathBuf {
    let run = run(lab.command(Path::new(HIPFILE)).args(["generate", "out"]));
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""));
    lab.path("out")
}

/// The tools that `hipfile --help` names.
fn tools(lab: &Lab) -> Vec<String> {
    let help = run(lab.command(Path::new(HIPFILE)).arg("--help")).stdout;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_tool_has_a_page_that_names_each_of_its_options() {
    let lab = Lab::new();
    let pages = generated(&lab).join("share/man/man1");
    let page = |name: &str| fs::read_to_string(pages.join(format!("{name}.1"))).unwrap().replace('\\', "");
    let root = page("hipfile");
    let tools = tools(&lab);
    assert!(tools.len() >= 4, "{tools:?}");
    for tool in &tools {
        assert!(root.contains(&format!("hipfile-{tool}(1)")), "{tool}: {root}");
        let help = run(lab.command(Path::new(HIPFILE)).args([tool, "--help"])).stdout;
        let options = help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 3);
        let text = page(&format!("hipfile-{tool}"));
        for option in options {
            let option = option.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            assert!(text.contains(option), "hipfile-{tool}.1 lacks {option}");
        }
    }
    for name in ["aiscp", "ais-check", "ais-stats"] {
        assert!(page(name).contains(name), "{name}");
    }
    assert!(!root.contains("generate"), "{root}");
}

#[test]
fn man_and_bash_take_what_is_generated() {
    let lab = Lab::new();
    let out = generated(&lab);
    if Command::new("groff").arg("--version").output().is_ok() {
        for page in fs::read_dir(out.join("share/man/man1")).unwrap() {
            let page = page.unwrap().path();
            let groff =
                Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(&page).output().unwrap();
            let said = String::from_utf8_lossy(&groff.stderr);
            assert!(groff.status.success() && said.is_empty(), "{}: {said}", page.display());
        }
    } else {
        skip("the manual pages", "groff is not installed");
    }
    let file = out.join("share/bash-completion/completions/hipfile");
    let script = "source \"$0\"; COMP_WORDS=(hipfile copy --ver); COMP_CWORD=2; _hipfile hipfile --ver copy; echo ${COMPREPLY[*]}";
    let bash = Command::new("bash").arg("-c").arg(script).arg(&file).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&bash.stdout).trim(), "--verify");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let lab = Lab::new();
    lab.write("file", b"x");
    let run = run(lab.command(Path::new(HIPFILE)).args(["generate", "file"]));
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("file/share/man/man1"), "{}", run.stderr);
}
