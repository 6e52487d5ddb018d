//! `hipfile check`: its words about made-up machines, compared with files, and its truthfulness about the real one.
//!
//! `HIPFILE_UPDATE_GOLDEN=1` writes the files under `check/golden` anew; look at the difference before keeping it.

mod consistency;
mod machines;

use std::path::{Path, PathBuf};
use std::process::Command;

use test_support::fake_root::FakeRoot;

use crate::support::{HIPFILE, Lab, NOBODY, Run, is_root, run, skip};

/// The command with an empty environment, so that nothing of the machine running the test shows.
fn check(arguments: &[&str]) -> Command {
    let mut command = Command::new(HIPFILE);
    command.env_clear().arg("check").args(arguments);
    command
}

fn on(root: &FakeRoot, arguments: &[&str]) -> Run {
    let root = root.path().to_str().unwrap();
    run(check(&["--root", root]).args(arguments))
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/check/golden").join(format!("{name}.txt"))
}

/// Compares everything a run says with a file.
#[expect(clippy::disallowed_methods, reason = "a switch of the test's own")]
fn compare(name: &str, arguments: &[&str], run: &Run) {
    let arguments: String = arguments.iter().map(|argument| format!(" {argument}")).collect();
    let said = format!(
        "$ hipfile check{arguments}\n{}--- standard error\n{}--- exit status {}\n",
        run.stdout,
        run.stderr,
        run.code.unwrap()
    );
    let path = golden(name);
    if std::env::var_os("HIPFILE_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &said).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(said, expected, "{}", path.display());
}

#[test]
fn behaviour_127_golden_words_about_made_up_machines() {
    for (name, arguments, machine) in machines::ALL {
        let root = machine();
        compare(name, arguments, &on(&root, arguments));
    }
}

#[test]
fn every_golden_file_belongs_to_a_machine() {
    let names: Vec<&str> = machines::ALL.iter().map(|(name, ..)| *name).collect();
    let folder = golden("x").parent().unwrap().to_owned();
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        assert!(names.contains(&file.strip_suffix(".txt").unwrap()), "{file} is left over");
    }
}

#[test]
fn quiet_answers_by_exit_status_only() {
    let ready = machines::mi300x();
    let bare = machines::bare_vm();
    for (root, status) in [(&ready, 0), (&bare, 1)] {
        let run = on(root, &["-q"]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(status), "", ""));
    }
    let run = on(&ready, &["-q", "-v"]);
    assert_eq!(run.code, Some(2));
}

#[test]
fn it_answers_to_ais_check() {
    let lab = Lab::new();
    std::os::unix::fs::symlink(HIPFILE, lab.path("ais-check")).unwrap();
    let ready = machines::mi300x();
    let call = |arguments: &[&str]| run(Command::new(lab.path("ais-check")).env_clear().args(arguments));
    let root = ready.path().to_str().unwrap();
    let named = call(&["--root", root]);
    assert_eq!((named.code, &named.stdout), (Some(0), &on(&ready, &[]).stdout));
    assert_eq!(call(&["-q", "-v"]).code, Some(1));
    let bare = machines::bare_vm();
    let named = call(&["--root", bare.path().to_str().unwrap()]);
    assert!(named.stderr.starts_with("ais-check: missing: "), "{}", named.stderr);
}

#[test]
fn behaviour_38_json_tells_the_window_to_each_gpus_memory() {
    let window = |root| on(&root, &["--json"]).json()["gpus"][0]["window"].clone();
    let all = 192_u64 << 30;
    let due = serde_json::json!({"reached": all, "memory": all, "most": null, "small": false});
    assert_eq!(window(machines::mi300x()), due);
    let due = serde_json::json!({"reached": 256 << 20, "memory": all, "most": 256_u64 << 30, "small": true});
    assert_eq!(window(machines::small_bar()), due);
    assert!(window(machines::nvidia_open()).is_null(), "nothing is told");
}

#[test]
fn json_has_a_version_and_every_layer() {
    let run = on(&machines::mi300x(), &["--json"]);
    let json = run.json();
    assert_eq!(
        (run.code, json["schema_version"].as_u64(), json["ready"].as_bool()),
        (Some(0), Some(1), Some(true))
    );
    let names: Vec<_> =
        json["components"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Kernel P2PDMA support", "HIP runtime", "amdgpu", "hipFile-capable volume"]);
    let json = on(&machines::md(), &["--json"]).json();
    let row =
        json["volumes"].as_array().unwrap().iter().find(|row| row["mountpoint"] == "/data").unwrap().clone();
    assert_eq!(row["reason"], "block-stack(md)");
    assert_eq!((&row["hipfile"], &row["backing"]), (&"no".into(), &"md".into()));
    assert!(row["advice"].is_string() && row["stack"].is_array());
}

#[test]
fn behaviour_160_a_root_of_garbage_is_described_too() {
    let garbage: Vec<u8> = (0..=255u8).cycle().take(300_000).collect();
    let root = machines::mi300x();
    let mut files = Vec::new();
    let mut folders = vec![root.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    assert!(files.len() > 40);
    for file in &files {
        let before = std::fs::read(file).unwrap();
        std::fs::write(file, &garbage).unwrap();
        let run = on(&root, &["-v"]);
        assert!(matches!(run.code, Some(0 | 1)), "{}: {}", file.display(), run.stderr);
        let odd = run.stdout.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(odd, None, "{}", file.display());
        std::fs::write(file, before).unwrap();
    }
    files.iter().for_each(|file| std::fs::write(file, &garbage).unwrap());
    assert_eq!(on(&root, &["-v"]).code, Some(1));
}

#[test]
fn the_real_machine_is_described_without_privileges_and_without_traces() {
    let lab = Lab::for_all_users();
    let mut command = Command::new(lab.path("hipfile"));
    command.env_clear().args(["check", "--json"]).current_dir(lab.path("."));
    if is_root() {
        std::os::unix::process::CommandExt::uid(&mut command, NOBODY);
    }
    let run = run(&mut command);
    assert!(matches!(run.code, Some(0 | 1)), "{}", run.stderr);
    let json = run.json();
    assert!(json["system"].as_str().unwrap().starts_with("Linux "), "{json}");
    assert!(!json["volumes"].as_array().unwrap().is_empty());
    let left = |folder: &Path| {
        let names = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with(".hipfile-odirect")).count()
    };
    assert_eq!((left(Path::new("/")), left(&std::env::temp_dir()), left(&lab.path("."))), (0, 0, 0));
}

/// Whoever has the emulated runtime on the library path must not take it for a real one.
#[test]
fn an_emulated_runtime_does_not_count() {
    let library = test_support::emulation().runtime();
    for command in [
        check(&["--json"]).env("HIPFILE_HIP_LIBRARY", library),
        check(&["--json"]).env("HIPFILE_DEVICE", "emulated"),
    ] {
        let json = run(command).json();
        let hip = &json["components"][1];
        assert_eq!((&hip["name"], &hip["ok"]), (&"HIP runtime".into(), &false.into()));
        assert!(hip["found"].as_str().unwrap().starts_with("emulated: "), "{hip}");
    }
}

/// A runtime that is there and cannot serve is not "no runtime", for the machine and for a file.
#[test]
fn a_runtime_that_cannot_serve_is_told_from_none() {
    let library = test_support::emulation().runtime();
    let lab = Lab::new();
    lab.write("file", &[1; 8192]);
    let file = lab.path("file");
    let file = file.to_str().unwrap();
    let library = library.to_str().unwrap();
    for (library, setting, words) in [
        (library, ("HIP_EMU_VERSION", "5.7"), "ROCm 5.7"),
        ("libc.so.6", ("HIP_EMU_VERSION", ""), "has no hipRuntimeGetVersion"),
        (library, ("HIP_EMU_DEVICES", "0"), "hipErrorNoDevice"),
    ] {
        let with = |arguments: &[&str]| {
            let mut command = check(arguments);
            run(command.env("HIPFILE_HIP_LIBRARY", library).env(setting.0, setting.1))
        };
        let json = with(&["--json", file]).json();
        assert_eq!(json["reason"], "runtime-unfit", "{words}: {json}");
        let text = with(&[file]);
        let gpu = text.stdout.lines().find(|line| line.trim_start().starts_with("GPU")).unwrap();
        assert!(gpu.contains("none: ") && gpu.contains(words), "{gpu}");
        if setting.0 != "HIP_EMU_DEVICES" {
            let hip = &with(&["--json"]).json()["components"][1];
            assert!(hip["found"].as_str().unwrap().contains(words), "{hip}");
            assert!(hip["advice"].as_str().unwrap().contains("older runtimes"), "{hip}");
        }
    }
    let none = run(check(&["--json", file]).env("HIPFILE_DEVICE", "cuda")).json();
    assert_eq!(none["reason"], "no-runtime", "{none}");
    let wrong = run(check(&[file, "--gpu", "7"]).env("HIPFILE_DEVICE", "emulated"));
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("there is no GPU 7; this process has 1"), "{}", wrong.stderr);
}

/// On Windows' Linux everything is described, nothing is loaded that could end the process, and what it lacks is said.
#[test]
fn behaviour_105_windows_linux_is_told() {
    let run = on(&machines::wsl(), &["--json"]);
    let json = run.json();
    assert_eq!((run.code, run.signal), (Some(1), None));
    let warnings = json["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|warning| warning.as_str().unwrap().contains("WSL")), "{json}");
    let row =
        json["volumes"].as_array().unwrap().iter().find(|row| row["mountpoint"] == "/").unwrap().clone();
    assert_eq!((&row["hipfile"], &row["reason"]), (&"no".into(), &"not-nvme".into()));
}

#[test]
fn behaviour_155_consumer_gpus_are_named_as_such_and_other_ways_are_looked_at() {
    let json = on(&machines::nvidia_proprietary(), &["--json"]).json();
    let warnings = json["warnings"].as_array().unwrap();
    let plain = |warning: &&serde_json::Value| warning.as_str().unwrap().contains("is a consumer GPU");
    assert_eq!(warnings.iter().filter(plain).count(), 1, "{json}");
    // Whether the way through dma-buf is open, and what would open it, is said beside it.
    let way = |json: &serde_json::Value| {
        let rows = json["nvidia"].as_array().unwrap();
        let way = rows.iter().find(|row| row["name"] == "P2PDMA (dma-buf)").unwrap();
        way["advice"].as_str().unwrap().to_owned()
    };
    assert!(way(&json).contains("open kernel module"), "{json}");
    let open = on(&machines::nvidia_open(), &["--json"]).json();
    assert_ne!(way(&open), way(&json));
    assert!(!open["warnings"].as_array().unwrap().iter().any(|warning| plain(&warning)));
}

#[test]
fn behaviour_153_refused_io_uring_is_told() {
    let root = machines::mi300x();
    root.file("proc/sys/kernel/io_uring_disabled", "2\n");
    let json = on(&root, &["--json"]).json();
    assert_eq!(json["other"][0]["ok"], false);
    assert!(json["other"][0]["advice"].as_str().unwrap().contains("io_uring_disabled=0"), "{json}");
}

#[test]
fn a_path_that_cannot_be_opened_is_one_line() {
    let lab = Lab::new();
    let run = run(check(&["absent"]).current_dir(lab.path(".")));
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
    assert!(run.stderr.starts_with("hipfile: check: absent: "), "{}", run.stderr);
}

#[test]
fn every_setting_is_listed_with_its_value() {
    let lab = Lab::new();
    lab.write("hipfile.toml", b"queue_depth = 9\nquue_depth = 9\n");
    let mut command = check(&["--config"]);
    command.env("HIPFILE_CONFIG", lab.path("hipfile.toml")).env("HIPFILE_IO_THREADS", "3");
    command.env("HIPFILE_FALBACK", "forbid");
    let told = run(&mut command);
    assert_eq!(told.code, Some(0));
    let line =
        |name: &str| told.stdout.lines().find(|line| line[2..].starts_with(&format!("{name} "))).unwrap();
    assert_eq!(told.stdout.lines().count(), hipfile::SETTINGS.len());
    for setting in hipfile::SETTINGS {
        assert!(line(setting.name).contains(setting.variable));
        assert_eq!(line(setting.name).contains("no effect"), !setting.effect, "{}", setting.name);
    }
    assert!(line("queue_depth").starts_with("* "), "{}", told.stdout);
    assert!(line("queue_depth").contains(" 9 ") && line("io_threads").contains(" 3 "));
    assert!(line("queue_depth").contains("from the file"), "{}", told.stdout);
    assert!(line("io_threads").contains("from the environment"), "{}", told.stdout);
    assert!(line("pool_size").starts_with("  "));
    assert!(told.stderr.contains("hipfile.toml:2: quue_depth"), "{}", told.stderr);
    assert!(told.stderr.contains("is HIPFILE_FALLBACK meant?"), "{}", told.stderr);
    let json: serde_json::Value = serde_json::from_str(&run(command.arg("--json")).stdout).unwrap();
    assert_eq!(json["schema_version"], 1);
    let rows = json["settings"].as_array().unwrap();
    assert_eq!(rows.len(), hipfile::SETTINGS.len());
    assert!(
        rows.iter().any(|row| row["name"] == "queue_depth" && row["value"] == "9" && row["from"] == "file")
    );
    assert!(rows.iter().any(|row| row["name"] == "pool_size" && row["from"].is_null()));
}
