//! `hipfile bench --report` and `hipfile tune`: that what they write is whole, says what was measured, and can be used.

use std::fs;
use std::path::Path;

use crate::support::{HIPFILE, Lab, Run, run};

fn hipfile(lab: &Lab, arguments: &[&str]) -> Run {
    run(lab.command(Path::new(HIPFILE)).args(arguments))
}

#[test]
fn a_page_has_its_charts_and_the_figures_behind_them() {
    let lab = Lab::new();
    let done = hipfile(
        &lab,
        &[
            "bench",
            "--size",
            "2M",
            "--repeat",
            "2",
            "--duration",
            "0.02",
            "--baseline",
            "posix",
            "--report",
            "page",
        ],
    );
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let page = fs::read_to_string(lab.path("page/index.html")).unwrap();
    let charts: Vec<&str> =
        page.split("<img src=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(charts.len(), 10, "{charts:?}");
    for chart in charts {
        let svg = fs::read_to_string(lab.path(&format!("page/{chart}"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{chart}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{chart}");
    }
    let text = fs::read_to_string(lab.path("page/report.json")).unwrap();
    let reports: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let blocks: Vec<u64> =
        reports.iter().filter(|r| r["door"] == "sync").map(|r| r["job"]["block"].as_u64().unwrap()).collect();
    assert_eq!(blocks, [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]);
    assert_eq!(reports.iter().filter(|r| r["door"] == "batch").count(), 6);
    assert!(reports.iter().all(|r| r["schema_version"] == 1 && r["device"]["emulated"] == true));
    assert!(page.contains("EMULATED"), "it says that there is no GPU");
    assert_eq!(fs::read_dir(lab.path(".")).unwrap().count(), 1, "the file that was read is gone");
}

#[test]
fn behaviour_121_what_tune_writes_is_a_configuration_that_is_understood() {
    let lab = Lab::new();
    let done = hipfile(&lab, &["tune", "--size", "64M", "--repeat", "3", "--output", "found.toml"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let text = fs::read_to_string(lab.path("found.toml")).unwrap();
    for tried in ["block_size", "queue_depth", "uring_min", "direct_min", "io_threads", "parallel_min"] {
        assert!(text.contains(&format!("# {tried}, ")), "{tried} was tried: {text}");
    }
    assert!(text.contains("EMULATED"), "{text}");
    let mut check = lab.command(Path::new(HIPFILE));
    let listed = run(check.args(["check", "--config"]).env("HIPFILE_CONFIG", "found.toml"));
    assert_eq!(listed.said(), Vec::<String>::new(), "no line of it is complained of");
    assert_eq!(fs::read_dir(lab.path(".")).unwrap().count(), 1, "the file that was read is gone");

    // What is there stays, unless it may go.
    fs::write(lab.path("found.toml"), "queue_depth = 3\n").unwrap();
    let refused = hipfile(&lab, &["tune", "--output", "found.toml"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("found.toml") && refused.stderr.contains("--force"),
        "{}",
        refused.stderr
    );
    assert_eq!(lab.read("found.toml"), b"queue_depth = 3\n");
}

#[test]
fn too_small_a_file_is_not_tuned_on() {
    let lab = Lab::new();
    lab.write("small", &[7; 4096]);
    let refused = hipfile(&lab, &["tune", "small"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("small") && refused.stderr.contains("64M"), "{}", refused.stderr);
    assert_eq!(lab.read("small"), [7; 4096]);
}
