//! Lists of steps that run in order and stop at the first failure; each can be run alone by its name. What the steps are is
//! for `ci` and `deep` to say.

use std::time::{Duration, Instant};

/// One step.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// Whether `--fast` has it.
    pub(crate) fast: bool,
    pub(crate) run: fn() -> Result<(), String>,
}

/// Runs the steps that the command line of `cargo xtask COMMAND` asks for.
///
/// # Errors
/// A wrong argument, or the first step that failed.
pub(crate) fn main(command: &str, all: &'static [Step], args: &[&str]) -> Result<(), String> {
    let steps = match args {
        ["--list"] => {
            for step in all {
                println!("{:<12} {}{}", step.name, step.what, if step.fast { " (fast)" } else { "" });
            }
            return Ok(());
        }
        [] => all.iter().collect(),
        ["--fast"] if all.iter().any(|step| step.fast) => all.iter().filter(|step| step.fast).collect(),
        names => chosen(command, all, names)?,
    };
    let start = Instant::now();
    let mut times = Vec::new();
    for step in steps {
        println!("==> {}: {}", step.name, step.what);
        let begin = Instant::now();
        let result = (step.run)();
        let took = begin.elapsed();
        times.push((step.name, took));
        match result {
            Ok(()) => println!("<== {}: passed in {}", step.name, readable(took)),
            Err(why) => {
                println!("<== {}: FAILED after {}", step.name, readable(took));
                let name = step.name;
                return Err(format!("{why}\nxtask: only this step again: cargo xtask {command} {name}"));
            }
        }
    }
    println!("==> all passed in {}", readable(start.elapsed()));
    for (name, took) in times {
        println!("    {name:<12} {}", readable(took));
    }
    Ok(())
}

fn chosen(command: &str, all: &'static [Step], names: &[&str]) -> Result<Vec<&'static Step>, String> {
    let find = |wanted: &str| {
        let step = all.iter().find(|step| step.name == wanted);
        step.ok_or_else(|| {
            format!("{command}: there is no step {wanted}; cargo xtask {command} --list names them")
        })
    };
    names.iter().map(|name| find(name)).collect()
}

fn readable(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{:.1} s", time.as_secs_f32())
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What holds for every list of steps.
    pub(crate) fn check(command: &str, all: &'static [Step]) {
        let names: std::collections::BTreeSet<&str> = all.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), all.len(), "{command}: the names are unique");
        let (first, last) = (all[0].name, all[all.len() - 1].name);
        let picked = chosen(command, all, &[last, first]).expect("steps");
        assert_eq!(picked.iter().map(|step| step.name).collect::<Vec<_>>(), [last, first]);
        assert!(chosen(command, all, &[first, "frob"]).is_err_and(|e| e.contains("no step frob")));
        assert!(main(command, all, &["--slow"]).is_err_and(|e| e.contains("--slow")));
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(readable(Duration::from_millis(1230)), "1.2 s");
        assert_eq!(readable(Duration::from_secs(125)), "2 min 5 s");
    }
}
