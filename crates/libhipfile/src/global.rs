//! The process's one Driver: reference count, implicit opening, what a fork and a close leave behind. The quirks that the
//! C interface has here are written down in `docs/abi.md`; the core knows none of them.
//!
//! Nothing here runs at exit: an open driver is left as it is.

use core::ffi::{CStr, c_uint};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::{ArcSwapOption, Guard};
use hipfile::monitor::{BatchCall, Statistics};
use hipfile::{Config, Driver, Setting, Snapshot, Value, notice};

use crate::abi::{hipFileDriverAlreadyOpen, hipFileDriverClosing, hipFileDriverNotInitialized};
use crate::guard::Failure;
use crate::log;
use crate::params::Call;

/// What the process holds. Made at the first use and never freed: a thread may be inside at any time, and the child of a
/// fork must not run destructors of what its parent owns.
struct State {
    /// Held while the driver is opened or closed, never during I/O or a call of the GPU runtime. What calls have set for
    /// the driver that is opened next, or was opened last; the last close forgets it.
    gate: Mutex<Vec<Call>>,
    /// The use count. Changed under the gate, read without it.
    count: AtomicI64,
    /// The driver while the count is above zero. Reading it writes no shared memory.
    open: ArcSwapOption<Driver>,
    /// What was counted since the process began to count; closing leaves it.
    statistics: OnceLock<Statistics>,
    /// Registered streams and their flags. Theirs is no driver's life: closing leaves them.
    streams: Mutex<HashMap<usize, c_uint>>,
    /// Why operations on streams failed, by the address of their result; the last ones only.
    failures: Mutex<VecDeque<(usize, StreamFailure)>>,
}

/// A failed operation: the function it was asked for by, and why.
pub(crate) type StreamFailure = (&'static CStr, hipfile::Error);

/// How many failures of operations on streams are kept.
const FAILURES: usize = 256;

/// This process's state; null before the first use and in the child of a fork.
static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());
/// Whether a fork resets `STATE`.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// In the child of a fork: forget the parent's state. Its locks may be held by threads that do not exist here, so it is
/// left alone, not freed.
extern "C" fn forget() {
    STATE.store(std::ptr::null_mut(), Ordering::Relaxed);
}

fn state() -> &'static State {
    let known = STATE.load(Ordering::Acquire);
    let place = if known.is_null() { make_state() } else { known };
    // SAFETY: `place` came from Box::into_raw below, fully made before it was published, and is never freed.
    unsafe { &*place }
}

/// Makes the state without a lock or a Once: a fork in the middle of either would block the child for ever.
#[cold]
fn make_state() -> *mut State {
    if !WATCHED.load(Ordering::Acquire) {
        // Two threads may both come here. A handler that runs twice does no harm.
        // SAFETY: the handler only stores to an atomic, which the child of a threaded process may do; its code stays
        // mapped because the library is linked with -z nodelete.
        unsafe { libc::pthread_atfork(None, None, Some(forget)) };
        WATCHED.store(true, Ordering::Release);
    }
    let fresh = Box::into_raw(Box::new(State {
        gate: Mutex::default(),
        count: AtomicI64::new(0),
        open: ArcSwapOption::empty(),
        statistics: OnceLock::new(),
        streams: Mutex::default(),
        failures: Mutex::default(),
    }));
    match STATE.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(theirs) => {
            // SAFETY: `fresh` came from Box::into_raw above and nobody else has seen it.
            drop(unsafe { Box::from_raw(fresh) });
            theirs
        }
    }
}

impl State {
    fn gate(&self) -> MutexGuard<'_, Vec<Call>> {
        // Nothing under the gate leaves half a change behind, so a panic in there poisons nothing.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `driver` the process's. The gate is held.
    fn install(&self, driver: Driver) -> Arc<Driver> {
        let driver = Arc::new(driver);
        driver.statistics().serve();
        self.open.store(Some(Arc::clone(&driver)));
        self.count.store(1, Ordering::Release);
        driver
    }
}

/// The settings as file, environment and calls have them now. The log follows them from here on, and hears their warnings.
fn configure(calls: &[Call]) -> Config {
    let (config, warnings) = Config::gather(calls);
    log::configure(&config);
    for warning in warnings {
        notice::line(format_args!("{warning}"));
    }
    config
}

/// A driver set by file and environment as they are now, and by calls.
fn make_driver(state: &State, calls: &[Call]) -> Result<Driver, Failure> {
    let config = configure(calls);
    let statistics = match config.stats_level {
        0 => Statistics::none(),
        _ => state.statistics.get_or_init(Statistics::new).clone(),
    };
    Ok(Driver::open_with(config, &statistics)?)
}

/// A driver like the one that would be opened, for one use that is not counted.
pub(crate) fn passing_driver() -> Result<Driver, Failure> {
    let calls = state().gate().clone();
    Ok(Driver::open_with(configure(&calls), &Statistics::none())?)
}

/// What was counted so far. Opens nothing.
pub(crate) fn snapshot() -> Snapshot {
    state().statistics.get().map_or_else(Snapshot::default, Statistics::snapshot)
}

/// Counts a call about a batch, which needs no driver.
pub(crate) fn count_batch(call: BatchCall, ok: bool) {
    if let Some(statistics) = state().statistics.get() {
        statistics.count_batch(call, ok);
    }
}

/// Adds to what was set, in place of what was set before.
fn put(calls: &mut Vec<Call>, (setting, value): Call) {
    calls.retain(|(other, _)| other.name != setting.name);
    calls.push((setting, value));
}

/// Sets a parameter for the next opening.
pub(crate) fn stage(call: impl FnOnce() -> Result<Call, Failure>) -> Result<(), Failure> {
    let state = state();
    let mut calls = state.gate();
    if state.count.load(Ordering::Acquire) > 0 {
        return Err(Failure::new(hipFileDriverAlreadyOpen, "parameters are frozen while the driver is open"));
    }
    let (setting, value) = call()?;
    setting.check(&value)?;
    put(&mut calls, (setting, value));
    Ok(())
}

/// Changes live settings now, or for the next opening. The values are checked.
pub(crate) fn change(changes: Vec<Call>) -> Result<(), Failure> {
    let state = state();
    let mut calls = state.gate();
    match state.open.load_full() {
        Some(driver) => driver.change(&changes)?,
        None => changes.into_iter().for_each(|call| put(&mut calls, call)),
    }
    Ok(())
}

/// What a call has set for the next opening.
pub(crate) fn staged(setting: &Setting) -> Option<Value> {
    let state = state();
    let calls = state.gate();
    if state.count.load(Ordering::Acquire) > 0 {
        return None;
    }
    calls.iter().find(|(other, _)| other.name == setting.name).map(|(_, value)| value.clone())
}

/// The settings as they are, or as they would be if the driver were opened now.
pub(crate) fn settings() -> Config {
    let state = state();
    if let Some(driver) = state.open.load_full() {
        return driver.settings();
    }
    let calls = state.gate().clone();
    Config::gather(&calls).0
}

/// The registered streams, locked. The GPU runtime must not be called meanwhile.
pub(crate) fn streams() -> MutexGuard<'static, HashMap<usize, c_uint>> {
    state().streams.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps why an operation on a stream failed.
pub(crate) fn keep_failure(result: usize, failure: StreamFailure) {
    let mut failures = state().failures.lock().unwrap_or_else(PoisonError::into_inner);
    failures.truncate(FAILURES - 1);
    failures.push_front((result, failure));
}

/// Why the last failed operation with this result variable failed.
pub(crate) fn kept_failure(result: usize) -> Option<StreamFailure> {
    let failures = state().failures.lock().unwrap_or_else(PoisonError::into_inner);
    failures.iter().find(|(other, _)| *other == result).map(|(_, failure)| failure.clone())
}

/// The use count.
pub(crate) fn use_count() -> i64 {
    state().count.load(Ordering::Acquire)
}

/// Adds one to the count; opens the driver if it was zero.
pub(crate) fn open() -> Result<(), Failure> {
    let state = state();
    let calls = state.gate();
    match state.count.load(Ordering::Acquire) {
        0 => drop(state.install(make_driver(state, &calls)?)),
        count => state.count.store(count + 1, Ordering::Release),
    }
    Ok(())
}

/// Takes one from the count; closes the driver if it reaches zero.
pub(crate) fn close() -> Result<(), Failure> {
    let state = state();
    let last = {
        let mut calls = state.gate();
        match state.count.load(Ordering::Acquire) {
            0 => {
                return Err(Failure::new(hipFileDriverNotInitialized, "the driver is not open"));
            }
            1 => {
                calls.clear();
                state.count.store(0, Ordering::Release);
                state.open.swap(None)
            }
            count => {
                state.count.store(count - 1, Ordering::Release);
                None
            }
        }
    };
    // Outside the gate: operations may still be in flight, and others may open the driver again meanwhile.
    if let Some(driver) = last {
        driver.close();
        log::finish();
    }
    Ok(())
}

/// The driver if it is open. Never opens it. The guard keeps the driver's record alive, also across a close.
pub(crate) fn current() -> Option<OpenDriver> {
    let guard = state().open.load();
    guard.is_some().then_some(OpenDriver(guard))
}

/// Proof that the driver was open.
pub(crate) struct OpenDriver(Guard<Option<Arc<Driver>>>);

impl std::ops::Deref for OpenDriver {
    type Target = Driver;
    fn deref(&self) -> &Driver {
        match self.0.as_ref() {
            Some(driver) => driver,
            None => unreachable!("an OpenDriver is made of an open driver only"),
        }
    }
}

/// The driver, or the failure that a closed one is to functions which answer with a status.
pub(crate) fn current_or_closing() -> Result<OpenDriver, Failure> {
    current().ok_or_else(|| Failure::new(hipFileDriverClosing, "the driver is not open"))
}

/// Runs `register` on the driver. A closed driver is opened if, and only if, `register` succeeds.
///
/// `register` may run under the gate, so it must not call the GPU runtime.
pub(crate) fn open_on_success<T>(register: impl FnOnce(&Driver) -> hipfile::Result<T>) -> Result<T, Failure> {
    let state = state();
    if let Some(driver) = state.open.load_full() {
        // Closed in this moment, it takes the registration with it: as if the close had come after this call.
        return Ok(register(&driver)?);
    }
    let gate = state.gate();
    if let Some(driver) = state.open.load_full() {
        drop(gate);
        return Ok(register(&driver)?);
    }
    let driver = make_driver(state, &gate)?;
    let value = register(&driver)?;
    drop(state.install(driver));
    Ok(value)
}

/// The driver; a closed one is opened.
pub(crate) fn open_first() -> Result<Arc<Driver>, Failure> {
    let state = state();
    if let Some(driver) = state.open.load_full() {
        return Ok(driver);
    }
    let calls = state.gate();
    if let Some(driver) = state.open.load_full() {
        return Ok(driver);
    }
    Ok(state.install(make_driver(state, &calls)?))
}
