//! Calls counted, and calls made to fail: by the environment from the start, or by tests while the process runs.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use gpu_sys::hip::HipError;

use crate::function::Function;
use crate::lock::lock;
use crate::thread;

/// Which calls of a function are meant, counted from 1 and from the moment of injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This call only.
    Nth(u64),
    /// This call and all later ones.
    From(u64),
    /// Every call.
    Every,
}

impl When {
    fn includes(self, call: u64) -> bool {
        match self {
            When::Nth(n) => call == n,
            When::From(n) => call >= n,
            When::Every => true,
        }
    }
}

/// What happens to such a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does nothing and returns this code (for hiprtc functions: the hiprtcResult of that number).
    Error(HipError),
    /// `hipAmdFileRead`, `hipAmdFileWrite`: moves nothing, `*status` is minus this errno, returns hipErrorUnknown.
    Status(i32),
    /// `hipAmdFileRead`, `hipAmdFileWrite`: moves at most this many bytes, rounded up to whole pages, says that it was no
    /// more than this many, and succeeds.
    Short(u64),
    /// It works, this much later.
    Delay(Duration),
}

impl From<HipError> for Fault {
    fn from(error: HipError) -> Self {
        Fault::Error(error)
    }
}

/// One fault: the function, which of its calls, and what happens to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The function.
    pub function: Function,
    /// Which calls.
    pub when: When,
    /// What happens.
    pub fault: Fault,
}

/// Whether any rule is in force: what a call looks at when none is.
static ARMED: AtomicBool = AtomicBool::new(false);
/// The rules in force, each with the calls it has seen. All delays that include a call add up; of the other faults the
/// first decides.
static RULES: Mutex<Vec<(Rule, u64)>> = Mutex::new(Vec::new());

/// Counters are spread over shards by thread, so that many threads that copy do not fight for a cache line.
const SHARDS: usize = 16;

#[repr(align(128))]
struct Shard([AtomicU64; Function::ALL.len()]);

static COUNTS: [Shard; SHARDS] =
    [const { Shard([const { AtomicU64::new(0) }; Function::ALL.len()]) }; SHARDS];

/// Makes calls of a function fail from now on, beside the faults already in force.
///
/// # Errors
/// The name, when no function of the emulation has it.
pub fn inject(function: &str, when: When, fault: impl Into<Fault>) -> Result<(), String> {
    let function = Function::by_name(function).ok_or_else(|| format!("no function is named {function}"))?;
    add(Rule { function, when, fault: fault.into() });
    Ok(())
}

/// Puts a rule in force.
pub fn add(rule: Rule) {
    let mut rules = lock(&RULES);
    rules.push((rule, 0));
    ARMED.store(true, Ordering::Release);
}

/// Ends every fault, those of the environment too.
pub fn clear() {
    let mut rules = lock(&RULES);
    rules.clear();
    ARMED.store(false, Ordering::Release);
}

/// How often a function has been called in this process; 0 for a name no function has.
pub fn calls(function: &str) -> u64 {
    let Some(function) = Function::by_name(function) else { return 0 };
    COUNTS.iter().map(|shard| shard.0[function as usize].load(Ordering::Relaxed)).sum()
}

/// Counts a call and answers what is to happen to it. Delays are served here.
pub(crate) fn hit(function: Function) -> Option<Fault> {
    let shard = &COUNTS[thread::index() % SHARDS];
    shard.0[function as usize].fetch_add(1, Ordering::Relaxed);
    if ARMED.load(Ordering::Acquire) { look_up(function) } else { None }
}

#[cold]
fn look_up(function: Function) -> Option<Fault> {
    let (mut decided, mut delay) = (None, Duration::ZERO);
    {
        let mut rules = lock(&RULES);
        for (rule, seen) in rules.iter_mut().filter(|(rule, _)| rule.function == function) {
            *seen += 1;
            if !rule.when.includes(*seen) {
                continue;
            }
            match rule.fault {
                Fault::Delay(more) => delay = delay.saturating_add(more),
                fault => decided = decided.or(Some(fault)),
            }
        }
    }
    if !delay.is_zero() {
        std::thread::sleep(delay);
    }
    decided
}

/// Reads `FUNCTION:WHEN:WHAT`.
///
/// WHEN is `3` (the third call), `3+` (from the third on) or `*`; WHAT is the name or number of a HIP error,
/// `status=ERRNO` or `short=BYTES` (file transfers only), or `delay=MICROSECONDS`.
///
/// # Errors
/// What part is wrong.
pub fn parse(rule: &str) -> Result<Rule, String> {
    let mut parts = rule.splitn(3, ':');
    let (Some(name), Some(when), Some(what)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(format!("{rule} is not FUNCTION:WHEN:WHAT"));
    };
    let function = Function::by_name(name).ok_or_else(|| format!("no function is named {name}"))?;
    let when = if when == "*" {
        When::Every
    } else if let Some(from) = when.strip_suffix('+') {
        When::From(count(from)?)
    } else {
        When::Nth(count(when)?)
    };
    let fault = match what.split_once('=') {
        Some(("status", errno)) => Fault::Status(errno_of(errno)?),
        Some(("short", bytes)) => Fault::Short(number(bytes)?),
        Some(("delay", micros)) => Fault::Delay(Duration::from_micros(number(micros)?)),
        Some((other, _)) => return Err(format!("{other}= is not one of status=, short=, delay=")),
        None => Fault::Error(error_of(what)?),
    };
    let is_file = matches!(function, Function::hipAmdFileRead | Function::hipAmdFileWrite);
    if matches!(fault, Fault::Status(_) | Fault::Short(_)) && !is_file {
        return Err(format!("{name} moves no file, so {what} has no meaning"));
    }
    Ok(Rule { function, when, fault })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

fn count(text: &str) -> Result<u64, String> {
    match number(text)? {
        0 => Err("calls are counted from 1".to_owned()),
        n => Ok(n),
    }
}

fn error_of(text: &str) -> Result<HipError, String> {
    if let Some((code, _)) = HipError::NAMED.iter().find(|(_, name)| *name == text) {
        return Ok(*code);
    }
    text.parse()
        .map(HipError)
        .map_err(|_| format!("{text} is neither the name nor the number of a HIP error"))
}

fn errno_of(text: &str) -> Result<i32, String> {
    const NAMES: &[(&str, i32)] = &[
        ("EPERM", libc::EPERM),
        ("EIO", libc::EIO),
        ("ESRCH", libc::ESRCH),
        ("EINTR", libc::EINTR),
        ("EBADF", libc::EBADF),
        ("EAGAIN", libc::EAGAIN),
        ("ENOMEM", libc::ENOMEM),
        ("EACCES", libc::EACCES),
        ("EFAULT", libc::EFAULT),
        ("EBUSY", libc::EBUSY),
        ("ENODEV", libc::ENODEV),
        ("EINVAL", libc::EINVAL),
        ("ENOTTY", libc::ENOTTY),
        ("EFBIG", libc::EFBIG),
        ("ENOSPC", libc::ENOSPC),
        ("EROFS", libc::EROFS),
        ("EOPNOTSUPP", libc::EOPNOTSUPP),
        ("EREMOTEIO", libc::EREMOTEIO),
        ("EDQUOT", libc::EDQUOT),
        ("ETIMEDOUT", libc::ETIMEDOUT),
    ];
    if let Some((_, errno)) = NAMES.iter().find(|(name, _)| *name == text) {
        return Ok(*errno);
    }
    match text.parse::<i32>() {
        Ok(errno) if errno > 0 => Ok(errno),
        _ => Err(format!("{text} is neither the name nor the number of an errno known here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let read = |text| parse(text).map(|rule| (rule.when, rule.fault));
        assert_eq!(read("hipMemcpy:3:hipErrorUnknown"), Ok((When::Nth(3), Fault::Error(HipError::UNKNOWN))));
        assert_eq!(read("hipMalloc:*:2"), Ok((When::Every, Fault::Error(HipError(2)))));
        assert_eq!(
            read("hipAmdFileRead:1+:status=EREMOTEIO"),
            Ok((When::From(1), Fault::Status(libc::EREMOTEIO)))
        );
        assert_eq!(read("hipAmdFileWrite:1:short=4096"), Ok((When::Nth(1), Fault::Short(4096))));
        assert_eq!(read("hipFree:2:delay=10"), Ok((When::Nth(2), Fault::Delay(Duration::from_micros(10)))));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "hipMemcpy",
            "hipMemcpy:1",
            "hipNothing:1:1",
            "hipMemcpy:0:1",
            "hipMemcpy:x:1",
            "hipMemcpy:1:hipErrorNo",
            "hipMemcpy:1:status=EIO",
            "hipAmdFileRead:1:status=ENONSENSE",
            "hipAmdFileRead:1:long=2",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn when_counts_from_one() {
        assert!(!When::Nth(2).includes(1) && When::Nth(2).includes(2) && !When::Nth(2).includes(3));
        assert!(!When::From(2).includes(1) && When::From(2).includes(2) && When::From(2).includes(3));
        assert!(When::Every.includes(1));
    }
}
