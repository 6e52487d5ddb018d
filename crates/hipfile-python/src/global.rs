//! The process's one driver for Python: its use count, what opens it, what a fork and the interpreter's end leave behind.
//! What it does with files and memory is in `calls`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use hipfile::monitor::Statistics;
use hipfile::{Config, Driver, Error};
use pyo3::prelude::*;

use crate::errors::ForPython;

/// Held while the driver is opened or closed, and never while the interpreter is released: a fork, which happens with the
/// interpreter held, then never finds it locked.
static GATE: Mutex<()> = Mutex::new(());
/// The use count. Changed under the gate, read without it.
static COUNT: AtomicI64 = AtomicI64::new(0);
/// The driver while the count is above zero.
static OPEN: ArcSwapOption<Driver> = ArcSwapOption::const_empty();
/// The driver that device memory is allocated with, which is never closed.
static ALLOCATING: ArcSwapOption<Driver> = ArcSwapOption::const_empty();
/// What was counted since the process began to count; closing leaves it.
static STATISTICS: ArcSwapOption<Statistics> = ArcSwapOption::const_empty();
/// Whether the interpreter is ending: from then on nothing is freed or waited for.
static EXITING: AtomicBool = AtomicBool::new(false);
/// How many forks lie between this process and the one that imported the package.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// What was said of settings that are ignored. Never held while the interpreter is released.
static SAID: Mutex<Option<HashSet<String>>> = Mutex::new(None);

fn gate() -> MutexGuard<'static, ()> {
    // Nothing under the gate leaves half a change behind.
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Settings of file and environment. What is wrong with them is said once, however often they are asked for.
pub(crate) fn environment() -> Config {
    let (config, warnings) = Config::gather(&[]);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    for warning in warnings {
        if said.get_or_insert_default().insert(warning.clone()) {
            hipfile::notice::line(format_args!("{warning}"));
        }
    }
    config
}

/// The settings with what the package promises: host arrays are welcome, and a machine without a GPU gets the emulated one.
fn config() -> Config {
    let mut config = environment();
    config.allow_system_memory = true;
    config.emulated_without_gpu = true;
    config
}

fn statistics(config: &Config) -> Statistics {
    if config.stats_level == 0 {
        return Statistics::none();
    }
    STATISTICS.rcu(|old| old.clone().unwrap_or_else(|| Arc::new(Statistics::new())));
    STATISTICS.load_full().map_or_else(Statistics::none, |found| (*found).clone())
}

fn make_driver() -> hipfile::Result<Arc<Driver>> {
    let config = config();
    let statistics = statistics(&config);
    Driver::open_with(config, &statistics).map(Arc::new)
}

/// Makes `driver` the process's. The gate is held.
fn install(driver: &Arc<Driver>) {
    driver.statistics().serve();
    OPEN.store(Some(Arc::clone(driver)));
    COUNT.store(1, Ordering::Release);
}

/// The driver if it is open. Never opens it.
pub(crate) fn current() -> Option<Arc<Driver>> {
    OPEN.load_full()
}

/// The driver; a closed one is opened, once for all who use it so.
pub(crate) fn opened() -> hipfile::Result<Arc<Driver>> {
    if let Some(driver) = current() {
        return Ok(driver);
    }
    let _gate = gate();
    if let Some(driver) = current() {
        return Ok(driver);
    }
    let driver = make_driver()?;
    install(&driver);
    Ok(driver)
}

/// Runs `register` on the driver, with the interpreter released. A closed driver is opened if, and only if, it succeeds.
pub(crate) fn open_on_success<T: Send>(
    py: Python<'_>,
    register: impl Fn(&Driver) -> hipfile::Result<T> + Send + Sync,
) -> hipfile::Result<T> {
    loop {
        if let Some(driver) = current() {
            return py.detach(|| register(&driver));
        }
        let fresh = make_driver()?;
        let value = py.detach(|| register(&fresh))?;
        let gate = gate();
        if current().is_none() {
            install(&fresh);
            return Ok(value);
        }
        // Another thread opened it meanwhile: once more, on theirs.
        drop(gate);
        fresh.close();
    }
}

/// The driver to allocate device memory with and to ask about the machine: like the one in use, and not counted.
pub(crate) fn allocating() -> hipfile::Result<Arc<Driver>> {
    if let Some(driver) = ALLOCATING.load_full() {
        return Ok(driver);
    }
    let _gate = gate();
    if let Some(driver) = ALLOCATING.load_full() {
        return Ok(driver);
    }
    let driver = Arc::new(Driver::open_with(config(), &Statistics::none())?);
    ALLOCATING.store(Some(Arc::clone(&driver)));
    Ok(driver)
}

/// What was counted so far, if anything is.
pub(crate) fn counted() -> Option<Arc<Statistics>> {
    STATISTICS.load_full()
}

/// Whether the interpreter is ending.
pub(crate) fn is_exiting() -> bool {
    EXITING.load(Ordering::Acquire)
}

/// The settings as they are, or as they would be if the driver were opened now.
pub(crate) fn settings_now() -> Config {
    current().map_or_else(config, |driver| driver.settings())
}

/// Adds one to the use count; opens the driver if it was zero.
#[pyfunction]
pub(crate) fn open_driver(py: Python<'_>) -> PyResult<()> {
    let _gate = gate();
    match COUNT.load(Ordering::Acquire) {
        0 => {
            let driver = make_driver().for_python(py)?;
            install(&driver);
        }
        count => COUNT.store(count + 1, Ordering::Release),
    }
    Ok(())
}

/// Takes one from the use count and closes the driver if it reaches zero; False if it was zero.
#[pyfunction]
pub(crate) fn close_driver(py: Python<'_>) -> bool {
    let last = {
        let _gate = gate();
        match COUNT.load(Ordering::Acquire) {
            0 => return false,
            1 => {
                COUNT.store(0, Ordering::Release);
                OPEN.swap(None)
            }
            count => {
                COUNT.store(count - 1, Ordering::Release);
                None
            }
        }
    };
    if let Some(driver) = last {
        // The last to go may wait for threads of its own.
        py.detach(|| {
            driver.close();
            drop(driver);
        });
    }
    true
}

/// The use count.
#[pyfunction]
pub(crate) fn use_count() -> i64 {
    COUNT.load(Ordering::Acquire)
}

/// Forgets, in the child of a fork, what the parent has open. It is the parent's: nothing of it is freed.
#[pyfunction]
pub(crate) fn after_fork_in_child(py: Python<'_>) {
    crate::stream::after_fork_in_child(py);
    FORKS.fetch_add(1, Ordering::Release);
    COUNT.store(0, Ordering::Release);
    for driver in [OPEN.swap(None), ALLOCATING.swap(None)] {
        std::mem::forget(driver);
    }
    std::mem::forget(STATISTICS.swap(None));
}

/// What was made while this had another value was made by a process of which this one is a fork.
#[pyfunction]
pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::Acquire)
}

/// Says that the interpreter is ending.
#[pyfunction]
pub(crate) fn exiting() {
    EXITING.store(true, Ordering::Release);
}

fn made_by(py: Python<'_>, maker: &str) -> PyErr {
    let made = py.import("hipfile._errors").and_then(|errors| errors.getattr(maker)?.call0());
    made.map_or_else(|damage| damage, PyErr::from_value)
}

/// The error of a call on what a parent made.
pub(crate) fn of_parent(py: Python<'_>, what: &str) -> PyErr {
    let made = py.import("hipfile._errors").and_then(|errors| errors.getattr("of_parent")?.call1((what,)));
    made.map_or_else(|damage| damage, PyErr::from_value)
}

/// The error of a call that needs the driver open.
pub(crate) fn not_open(py: Python<'_>) -> PyErr {
    made_by(py, "driver_closing")
}

/// The driver, or what reads and writes of a closed one raise: EINVAL.
pub(crate) fn current_for_io(py: Python<'_>) -> PyResult<Arc<Driver>> {
    current().ok_or_else(|| made_by(py, "driver_closed_for_io"))
}

/// The driver, or the exception of a closed one.
pub(crate) fn current_or_closed(py: Python<'_>) -> PyResult<Arc<Driver>> {
    current().ok_or_else(|| not_open(py))
}

/// The driver, opened if need be, or the exception.
pub(crate) fn opened_for(py: Python<'_>) -> PyResult<Arc<Driver>> {
    opened().map_err(|error: Error| crate::errors::exception(py, &error))
}
