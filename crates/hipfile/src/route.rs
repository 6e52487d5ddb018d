//! Which engine carries which part of a transfer, and what may be tried on the next one. The only place that knows
//! either.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::{Config, Fallback};
use crate::engine::{self, DIRECT_RANK, Engine, Fit, Parts, Queue, Stop};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::file::FileRecord;
use crate::notice;
use crate::op::Op;
use crate::policy::Policy;
use crate::reason::Reason;
use crate::stats::Counters;
use crate::transfer::{Cache, Transfer};

/// The engines in use.
#[derive(Debug)]
pub(crate) struct Router {
    engines: Vec<(usize, Box<dyn Engine>)>,
    fallback: Fallback,
    policy: Policy,
    /// Why no direct engine is in the list, when none is.
    no_direct: Option<Reason>,
    /// Reasons already said on standard error (warn mode), one bit each.
    said: AtomicU64,
}

/// Errors after which the next engine is asked: the path is missing or does not suit, the data is not at fault.
const RETRY: &[(i32, Reason)] = &[
    (libc::ENODEV, Reason::NoStorageDevice),
    (libc::EREMOTEIO, Reason::RemoteIo),
    (libc::ENOTTY, Reason::NoKernelSupport),
    (libc::ENOSYS, Reason::NoKernelSupport),
    (libc::EOPNOTSUPP, Reason::Refused),
    (libc::EINVAL, Reason::Demoted),
    (libc::ENOMEM, Reason::NoMemory),
];

/// Why a failed attempt leads to the next engine; `None` when the error is the answer.
fn retry(error: &Error) -> Option<Reason> {
    let errno = error.os_error()?;
    RETRY.iter().find(|(number, _)| *number == errno).map(|(_, reason)| *reason)
}

/// An engine and its offer.
struct Choice<'r> {
    index: usize,
    engine: &'r dyn Engine,
    fit: Fit,
}

/// A transfer's way through an engine's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    index: usize,
    pub(crate) cache: Cache,
    staged: Reason,
}

/// The next step of a transfer.
struct Step<'r, 'a> {
    choice: Choice<'r>,
    part: Transfer<'a>,
    /// Why it is staged; `None` when it is not.
    staged: Option<Reason>,
}

impl Router {
    pub(crate) fn new(config: &Config, parts: &Parts) -> Router {
        let wanted = |name: &str| match &config.engines {
            Some(names) => names.iter().any(|n| n == name),
            // It moves nothing, so it must be asked for by name.
            None => name != "null",
        };
        let engines: Vec<_> = engine::ENGINES
            .iter()
            .enumerate()
            .filter(|(_, (name, _))| wanted(name))
            .map(|(index, (_, new))| (index, new(parts)))
            .filter(|(_, engine)| !(config.force_compat && engine.is_direct()))
            .collect();
        let any_direct = engines.iter().any(|(_, engine)| engine.is_direct());
        Router {
            engines,
            fallback: config.fallback,
            policy: Policy::new(config),
            no_direct: (!any_direct).then_some(Reason::Configuration),
            said: AtomicU64::new(0),
        }
    }

    /// The best engine for the start of a transfer, of those that stage or of those that do not.
    fn choose(&self, transfer: &Transfer<'_>, excluded: u8, staging: bool) -> Result<Choice<'_>, Reason> {
        let mut best: Option<Choice<'_>> = None;
        let mut reason = self.no_direct;
        for (index, engine) in &self.engines {
            if excluded & 1 << index != 0 || (staging && engine.is_direct()) {
                continue;
            }
            let fit = if !engine.is_direct() || transfer.file.breakers[*index].is_open() {
                engine.fit(transfer)
            } else {
                Err(Reason::Backoff)
            };
            match fit {
                Ok(fit) if !staging && fit.rank < DIRECT_RANK => {}
                Ok(fit) if best.as_ref().is_none_or(|b| fit.rank > b.fit.rank) => {
                    best = Some(Choice { index: *index, engine: engine.as_ref(), fit });
                }
                Ok(_) => {}
                Err(why) if engine.is_direct() => {
                    reason.get_or_insert(why);
                }
                Err(_) => {}
            }
        }
        best.ok_or(reason.unwrap_or(Reason::Refused))
    }

    /// Who carries the start of a transfer, how much of it, and why it is staged if it is. `None` when nobody can.
    fn next_step<'r, 'a>(&'r self, rest: &Transfer<'a>, excluded: u8, around: bool) -> Option<Step<'r, 'a>> {
        let (limit, reason) = match self.choose(rest, excluded, false) {
            Ok(choice) if choice.fit.body.start == 0 => {
                let part = rest.part(choice.fit.body.clone());
                return Some(Step { choice, part, staged: None });
            }
            // What is before a direct engine's body goes another way.
            Ok(choice) => (choice.fit.body.start, Reason::Alignment),
            Err(reason) => (rest.len(), reason),
        };
        let mut part = rest.part(0..limit);
        if around {
            let (cache, len) = self.policy.next_run(&part);
            part = part.part(0..len);
            part.cache = cache;
        }
        let choice = self.choose(&part, excluded, true).ok()?;
        let body = choice.fit.body.clone();
        Some(Step { choice, part: part.part(body), staged: Some(reason) })
    }

    /// The queue that a whole transfer may take, if it would be staged in one step and an engine has a queue for such.
    pub(crate) fn queue_for(&self, transfer: &Transfer<'_>) -> Option<Way> {
        if self.fallback == Fallback::Forbid || transfer.len() == 0 {
            return None;
        }
        let Step { part, staged, .. } = self.next_step(transfer, 0, true)?;
        let staged = staged.filter(|_| part.len() == transfer.len())?;
        let takes = |engine: &dyn Engine| engine.queue().is_some_and(|queue| queue.takes(&part));
        let (index, _) = self.engines.iter().find(|(_, engine)| takes(engine.as_ref()))?;
        Some(Way { index: *index, cache: part.cache, staged })
    }

    /// The queue of a way.
    pub(crate) fn queue(&self, way: Way) -> Option<&dyn Queue> {
        self.engines.iter().find(|(index, _)| *index == way.index)?.1.queue()
    }

    /// Counts a transfer that a queue has moved wholly.
    pub(crate) fn queue_moved(&self, way: Way, transfer: &Transfer<'_>, counters: &[&Counters]) {
        self.warn(transfer.file, way.staged);
        for counters in counters {
            counters.moved(transfer.op, way.index, transfer.len(), true);
            counters.staged(transfer.op, way.staged, transfer.len(), true);
        }
    }

    /// Carries a transfer out, engine by engine.
    ///
    /// # Errors
    /// Only when no byte moved; an error after that shows on the next call.
    pub(crate) fn run(&self, transfer: &Transfer<'_>, counters: &[&Counters]) -> Result<usize> {
        let op = transfer.op;
        let mut excluded = 0_u8;
        // Engines that have counted this transfer as an operation of theirs.
        let mut counted = 0_u8;
        let mut done = 0;
        // Whether the page cache may still be gone around.
        let mut around = true;
        // Why the rest is no longer carried direct, once that is so.
        let mut given_up: Option<Reason> = None;
        let mut failure: Option<(&'static str, Error)> = None;
        while done < transfer.len() {
            let rest = transfer.rest(done);
            let Some(Step { choice, part, staged }) = self.next_step(&rest, excluded, around) else { break };
            let staged = staged.map(|reason| given_up.unwrap_or(reason));
            if self.fallback == Fallback::Forbid {
                // Known beforehand: part of it would have to be staged.
                let reason = staged.or((part.len() < rest.len()).then_some(Reason::Alignment));
                if let Some(reason) = reason {
                    return self.refuse(transfer, done, failure, reason);
                }
            }
            if let Some(reason) = staged {
                self.warn(transfer.file, reason);
            }
            let outcome = choice.engine.run(&part);
            let (index, bit) = (choice.index, 1 << choice.index);
            if outcome.moved > 0 || matches!(outcome.stop, Stop::Done) {
                let first = counted & bit == 0;
                counted |= bit;
                for counters in counters {
                    counters.moved(op, index, outcome.moved, first);
                    if let Some(reason) = staged {
                        counters.staged(op, reason, outcome.moved, first);
                    }
                }
                if choice.engine.is_direct() {
                    transfer.file.breakers[index].succeeded();
                }
            }
            done += outcome.moved;
            match outcome.stop {
                Stop::Done if outcome.moved < part.len() => return Ok(done),
                Stop::Done => {}
                Stop::Short => excluded |= bit,
                Stop::Yielded(why) => {
                    excluded |= bit;
                    given_up = Some(why);
                }
                Stop::Failed(error) => {
                    counters.iter().for_each(|c| c.failed(op, index));
                    let retry = retry(&error);
                    let errno = error.os_error();
                    failure = Some((choice.engine.name(), error));
                    match retry {
                        Some(why) if choice.engine.is_direct() && self.fallback != Fallback::Forbid => {
                            transfer.file.breakers[index].failed(errno.unwrap_or_default());
                            excluded |= bit;
                            given_up = Some(why);
                        }
                        // O_DIRECT was accepted at open and is refused now: the page cache will do.
                        Some(_) if part.cache == Cache::Around => transfer.file.refuse_direct(op),
                        // Direct reads that meet buffered writers can fail where a plain read does not; if the
                        // data is at fault, that one says so too.
                        None if part.cache == Cache::Around && op == Op::Read => around = false,
                        _ => break,
                    }
                }
            }
        }
        if done > 0 {
            return Ok(done);
        }
        let (engine, error) = match failure {
            Some((engine, error)) => (Some(engine), error),
            None => {
                let why = "no engine can carry this transfer";
                (None, Error::message(ErrorKind::InternalError, op.name(), why))
            }
        };
        Err(self.explain(transfer, engine, error))
    }

    /// The answer when staging is needed and forbidden.
    fn refuse(
        &self,
        transfer: &Transfer<'_>,
        done: usize,
        failure: Option<(&'static str, Error)>,
        reason: Reason,
    ) -> Result<usize> {
        if done > 0 {
            return Ok(done);
        }
        if let Some((engine, error)) = failure {
            return Err(self.explain(transfer, Some(engine), error));
        }
        let why = format!("staging through host memory is forbidden by configuration, and {reason}");
        let error = Error::message(ErrorKind::IONotSupported, transfer.op.name(), why);
        Err(self.explain(transfer, None, error))
    }

    fn explain(&self, transfer: &Transfer<'_>, engine: Option<&'static str>, error: Error) -> Error {
        error.with_context(Context {
            path: transfer.file.path(),
            fd: Some(transfer.file.fd()),
            file_offset: transfer.file_offset as i64,
            len: transfer.len(),
            buffer: transfer.span.start(),
            engine,
        })
    }

    /// In warn mode, one line per reason and process.
    fn warn(&self, file: &FileRecord, reason: Reason) {
        if self.fallback != Fallback::Warn {
            return;
        }
        let bit = 1 << reason as u8;
        if self.said.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let path = file.path().map_or_else(|| format!("fd {}", file.fd()), |p| p.display().to_string());
            notice::line(format_args!("{path}: staging through host memory: {reason} [{}]", reason.word()));
        }
    }

    /// Which engine a transfer would start with, and why it is staged if it is.
    pub(crate) fn verdict(&self, transfer: &Transfer<'_>) -> (&'static str, Option<Reason>) {
        match self.next_step(transfer, 0, true) {
            Some(step) => (step.choice.engine.name(), step.staged),
            None => ("none", self.no_direct),
        }
    }
}
