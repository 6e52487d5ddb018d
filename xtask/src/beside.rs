//! What takes minutes and little of the processors: it runs beside the steps of `ci` that compile, at low priority, and is waited for
//! at the end. What it does is in the programs that it starts.

use std::fs;
use std::sync::Mutex;
use std::thread::JoinHandle;

use crate::cmd::cmd;
use crate::layout;

/// How long the mixed work lasts, and how long each reader is given hostile input.
const SOAK: &str = "120";
const HOSTILE: &str = "10";

static RUNNING: Mutex<Option<JoinHandle<Result<String, String>>>> = Mutex::new(None);

fn running() -> std::sync::MutexGuard<'static, Option<JoinHandle<Result<String, String>>>> {
    RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Begins it.
///
/// # Errors
/// There is no folder for its files.
pub(crate) fn start() -> Result<(), String> {
    let folder = layout::target().join("soak");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let programs = layout::target().join("debug");
    *running() = Some(std::thread::spawn(move || {
        let soak = cmd("nice")
            .words("-n 10")
            .arg(programs.join("hipfile"))
            .arg("bench")
            .arg(folder.join("file"))
            .words("--threads 4 --json --soak")
            .arg(SOAK)
            .env("HIP_EMU_DEVICES", "2")
            .env("HIPFILE_DEVICE", "emulated")
            .env("HIPFILE_LOG_LEVEL", "off")
            .told()?;
        let hostile = cmd("nice").words("-n 10").arg(programs.join("hostile")).arg("all").arg(HOSTILE);
        Ok(soak + &hostile.env("TMPDIR", &folder).told()?)
    }));
    Ok(())
}

/// Waits for its end.
///
/// # Errors
/// What was found.
pub(crate) fn collect() -> Result<(), String> {
    if running().is_none() {
        // Asked for alone.
        crate::cmd::cargo().words("build --locked --workspace --all-targets").run()?;
        start()?;
    }
    let Some(running) = running().take() else { return Ok(()) };
    let said = running.join().unwrap_or_else(|_| Err("it panicked".to_owned()))?;
    print!("{said}");
    Ok(())
}
