//! What is known about files, GPUs, the machine and what was moved, as dictionaries. It gathers; it decides nothing.

use std::path::PathBuf;

use hipfile::platform::{Answer, Finding, Platform, Reach};
use hipfile::storage::{FsClass, Roots};
use hipfile::{Config, Driver, Error, Fallback, FileId, Named, Op, SETTINGS, Setting, Side, Value};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::errors::ForPython;
use crate::global;
use crate::numbers::Handle;

/// Seconds after which a wait says what for; None for never.
#[pyfunction]
pub(crate) fn wait_notice() -> Option<f64> {
    global::settings_now().wait_notice.map(|patience| patience.as_secs_f64())
}

/// Says one line on standard error, unless that is full or closed.
#[pyfunction]
pub(crate) fn say(text: &str) {
    hipfile::notice::line(format_args!("{text}"));
}

/// What is known about a registered file.
#[pyfunction]
pub(crate) fn file_info(py: Python<'_>, file: Handle) -> PyResult<Bound<'_, PyDict>> {
    let driver = global::current_or_closed(py)?;
    let info = py.detach(|| driver.file_info(FileId::from_raw(file.0))).for_python(py)?;
    let dict = PyDict::new(py);
    dict.set_item("path", info.path.map(PathBuf::into_os_string))?;
    dict.set_item("file_type", format!("{:?}", info.file_type).to_lowercase())?;
    dict.set_item("file_system", info.file_system)?;
    dict.set_item(
        "direct_align",
        info.direct_align.map(|align| (align.mem, align.offset, align.read_offset)),
    )?;
    dict.set_item("private_descriptors", info.private_descriptors)?;
    dict.set_item("engine", info.engine)?;
    dict.set_item("reason", info.reason.map(|reason| reason.word()))?;
    dict.set_item("reason_text", info.reason.map(|reason| reason.text()))?;
    dict.set_item("emulated", info.emulated)?;
    Ok(dict)
}

/// The GPUs, as `(list, why there is none)`.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<(Bound<'_, PyList>, Option<String>)> {
    let driver = global::allocating().for_python(py)?;
    let list = PyList::empty(py);
    let why = match py.detach(|| driver.devices()) {
        Err(error) => Some(error.to_string()),
        Ok(found) => {
            for device in found {
                let dict = PyDict::new(py);
                dict.set_item("ordinal", device.ordinal)?;
                dict.set_item("name", device.name)?;
                dict.set_item("runtime", device.runtime)?;
                dict.set_item("runtime_version", device.runtime_version)?;
                dict.set_item("emulated", device.emulated)?;
                dict.set_item("note", device.emulation_note)?;
                dict.set_item("pci", device.pci)?;
                list.append(dict)?;
            }
            None
        }
    };
    Ok((list, why))
}

/// Why no real runtime serves, by runtime; None for one that does.
#[pyfunction]
pub(crate) fn runtimes(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, choice) in [("hip", hipfile::DeviceChoice::Hip), ("cuda", hipfile::DeviceChoice::Cuda)] {
        let mut config = global::environment();
        config.device = choice;
        let asked = py.detach(|| {
            Driver::open_with(config, &hipfile::monitor::Statistics::none())
                .and_then(|driver| driver.devices())
        });
        dict.set_item(name, asked.err().map(|error: Error| error.to_string()))?;
    }
    Ok(dict)
}

fn rows<'py>(py: Python<'py>, rows: &[Named]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for row in rows {
        let counts = PyDict::new(py);
        counts.set_item("operations", row.operations)?;
        counts.set_item("bytes", row.bytes)?;
        counts.set_item("errors", row.errors)?;
        dict.set_item(&row.name, counts)?;
    }
    Ok(dict)
}

fn side<'py>(py: Python<'py>, side: &Side) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("engines", rows(py, &side.engines)?)?;
    dict.set_item("staged", rows(py, &side.reasons)?)?;
    dict.set_item("bytes", side.engines.iter().map(|row| row.bytes).fold(0, u64::wrapping_add))?;
    Ok(dict)
}

/// What this process has moved since it first opened the driver.
#[pyfunction]
pub(crate) fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    let snapshot =
        global::counted().map(|statistics| py.detach(|| statistics.snapshot())).unwrap_or_default();
    dict.set_item("level", snapshot.level)?;
    dict.set_item("emulated", snapshot.emulated)?;
    dict.set_item("read", side(py, &snapshot.total(Op::Read))?)?;
    dict.set_item("write", side(py, &snapshot.total(Op::Write))?)?;
    let batches = PyDict::new(py);
    batches.set_item("submitted", snapshot.batches.submitted.ok)?;
    batches.set_item("entries_done", snapshot.batches.done.ok)?;
    batches.set_item("entries_failed", snapshot.batches.done.failed)?;
    dict.set_item("batches", batches)?;
    let streams = PyDict::new(py);
    streams.set_item("submitted", snapshot.streams.submitted.ok)?;
    streams.set_item("done", snapshot.streams.done.ok)?;
    streams.set_item("failed", snapshot.streams.done.failed)?;
    dict.set_item("streams", streams)?;
    Ok(dict)
}

fn finding<'py>(py: Python<'py>, finding: &Finding) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let answer = match finding.answer {
        Answer::Yes => Some(true),
        Answer::No => Some(false),
        Answer::Unknown => None,
    };
    dict.set_item("answer", answer)?;
    dict.set_item("found", &finding.found)?;
    dict.set_item("advice", &finding.advice)?;
    Ok(dict)
}

/// Whether this machine can move bytes straight between storage and GPU memory.
#[pyfunction]
pub(crate) fn check(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let config = global::settings_now();
    let platform = py.detach(|| Platform::probe(&config, &Roots::real()));
    let dict = PyDict::new(py);
    dict.set_item("kernel", &platform.kernel.release)?;
    for (name, found) in [
        ("p2pdma", &platform.p2pdma),
        ("hip", &platform.hip),
        ("amdgpu", &platform.amdgpu),
        ("io_uring", &platform.io_uring),
        ("nvidia_driver", &platform.nvidia.driver),
        ("cufile", &platform.nvidia.cufile),
    ] {
        dict.set_item(name, finding(py, found)?)?;
    }
    dict.set_item("gpus", platform.gpus.iter().map(|gpu| gpu.name.clone()).collect::<Vec<_>>())?;
    dict.set_item("warnings", platform.warnings())?;
    dict.set_item("unseen", &platform.unseen)?;
    Ok(dict)
}

/// The settings in force, by name.
#[pyfunction]
pub(crate) fn settings(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let config = global::settings_now();
    let dict = PyDict::new(py);
    for setting in SETTINGS {
        match setting.get(&config) {
            Value::Bool(value) => dict.set_item(setting.name, value)?,
            Value::Number(value) => dict.set_item(setting.name, value)?,
            Value::Text(value) => dict.set_item(setting.name, value)?,
        }
    }
    Ok(dict)
}

fn number(config: &Config, name: &str) -> u64 {
    match Setting::named(name).map(|setting| setting.get(config)) {
        Some(Value::Number(number)) => number,
        _ => 0,
    }
}

/// What the driver supports and its limits, for `driver_get_properties`: `(file systems, NVMe, settings)`.
#[pyfunction]
pub(crate) fn properties(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let config = global::settings_now();
    let reach = py.detach(|| Reach::probe(&config, &Roots::real()));
    let dict = PyDict::new(py);
    for (name, class) in [
        ("lustre", FsClass::Lustre),
        ("weka", FsClass::Weka),
        ("nfs", FsClass::Nfs),
        ("gpfs", FsClass::Gpfs),
        ("beegfs", FsClass::Beegfs),
    ] {
        dict.set_item(name, reach.network.contains(&class))?;
    }
    dict.set_item("nvme", reach.nvme)?;
    dict.set_item("poll", config.poll)?;
    dict.set_item("compat", config.fallback != Fallback::Forbid)?;
    dict.set_item("parallel", config.threads_per_request() > 1)?;
    for name in
        ["poll_max", "max_direct_io", "pool_size", "block_size", "max_pinned", "batch_size", "batch_timeout"]
    {
        dict.set_item(name, number(&config, name))?;
    }
    Ok(dict)
}
