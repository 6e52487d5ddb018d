//! Which engine carries which part of a transfer, and what may be tried on the next one. The only place that knows
//! either.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::{Config, Fallback};
use crate::engine::{self, DIRECT_RANK, Engine, Fit, Parts, Stop};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::file::FileRecord;
use crate::notice;
use crate::reason::Reason;
use crate::stats::Counters;
use crate::transfer::Transfer;

/// The engines in use.
#[derive(Debug)]
pub(crate) struct Router {
    engines: Vec<(usize, Box<dyn Engine>)>,
    fallback: Fallback,
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

/// What is known about a transfer's way before it starts.
struct Choice<'r> {
    index: usize,
    engine: &'r dyn Engine,
    fit: Fit,
    /// Why the best direct engine does not carry it, when it does not.
    reason: Option<Reason>,
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
            no_direct: (!any_direct).then_some(Reason::Configuration),
            said: AtomicU64::new(0),
        }
    }

    /// The best engine for the start of a transfer, among those not in `excluded`.
    fn choose(&self, transfer: &Transfer<'_>, excluded: u8) -> Option<Choice<'_>> {
        let mut best: Option<Choice<'_>> = None;
        let mut reason = self.no_direct;
        for (index, engine) in &self.engines {
            if excluded & 1 << index != 0 {
                continue;
            }
            let fit = if transfer.file.breakers[*index].is_open() || !engine.is_direct() {
                engine.fit(transfer)
            } else {
                Err(Reason::Backoff)
            };
            match fit {
                Ok(fit) if best.as_ref().is_none_or(|b| fit.rank > b.fit.rank) => {
                    best = Some(Choice { index: *index, engine: engine.as_ref(), fit, reason: None });
                }
                Ok(_) => {}
                Err(why) if engine.is_direct() => {
                    reason.get_or_insert(why);
                }
                Err(_) => {}
            }
        }
        let mut best = best?;
        best.reason = reason.filter(|_| best.fit.rank < DIRECT_RANK);
        Some(best)
    }

    /// Carries a transfer out, engine by engine.
    ///
    /// # Errors
    /// Only when no byte moved; an error after that shows on the next call.
    pub(crate) fn run(&self, transfer: &Transfer<'_>, counters: &[&Counters]) -> Result<usize> {
        let mut excluded = 0_u8;
        let mut done = 0;
        // Why the rest is no longer carried direct, once that is so.
        let mut given_up: Option<Reason> = None;
        let mut failure: Option<(&'static str, Error)> = None;
        // The engine whose turn it was before, so that each counts an operation once.
        let mut counted = 0_u8;
        while done < transfer.len() {
            let rest = transfer.rest(done);
            let Some(choice) = self.choose(&rest, excluded) else { break };
            let Some((choice, part)) = self.piece(&rest, choice, excluded) else {
                // Staging is forbidden and needed.
                return self.refuse(transfer, done, failure, given_up);
            };
            let staged = choice.fit.rank < DIRECT_RANK;
            let reason = given_up.or(choice.reason).unwrap_or(Reason::Alignment);
            if staged {
                if self.fallback == Fallback::Forbid {
                    return self.refuse(transfer, done, failure, Some(reason));
                }
                self.warn(transfer.file, reason);
            }
            let piece = rest.part(part.clone());
            let outcome = choice.engine.run(&piece);
            let (op, index) = (transfer.op, choice.index);
            let first = counted & 1 << index == 0;
            if outcome.moved > 0 || matches!(outcome.stop, Stop::Done) {
                counters.iter().for_each(|c| c.moved(op, index, outcome.moved, first));
                if staged {
                    counters.iter().for_each(|c| c.staged(op, reason, outcome.moved, first));
                }
                counted |= 1 << index;
            }
            done += outcome.moved;
            match outcome.stop {
                Stop::Done => {
                    if choice.engine.is_direct() {
                        transfer.file.breakers[index].succeeded();
                    }
                    if outcome.moved < piece.len() {
                        return Ok(done);
                    }
                }
                Stop::Yielded(why) => {
                    if outcome.moved > 0 {
                        transfer.file.breakers[index].succeeded();
                    }
                    excluded |= 1 << index;
                    given_up = Some(why);
                }
                Stop::Failed(error) => {
                    counters.iter().for_each(|c| c.failed(op, index));
                    let why = retry(&error).filter(|_| choice.engine.is_direct());
                    if let (Some(_), Some(errno)) = (why, error.os_error()) {
                        transfer.file.breakers[index].failed(errno);
                    }
                    failure = Some((choice.engine.name(), error));
                    match why {
                        Some(why) if self.fallback != Fallback::Forbid => {
                            excluded |= 1 << index;
                            given_up = Some(why);
                        }
                        _ => break,
                    }
                }
            }
        }
        if done > 0 {
            return Ok(done);
        }
        match failure {
            Some((engine, error)) => Err(self.explain(transfer, Some(engine), error)),
            None => {
                let error = Error::message(
                    ErrorKind::InternalError,
                    transfer.op.name(),
                    "no engine can carry this transfer",
                );
                Err(self.explain(transfer, None, error))
            }
        }
    }

    /// The engine and the part of `rest` for the next step: what is before a direct engine's body goes to the next
    /// engine. `None` when that may not be.
    fn piece<'r>(
        &'r self,
        rest: &Transfer<'_>,
        choice: Choice<'r>,
        excluded: u8,
    ) -> Option<(Choice<'r>, Range<usize>)> {
        let body = choice.fit.body.clone();
        if self.fallback == Fallback::Forbid && choice.fit.rank >= DIRECT_RANK && body != (0..rest.len()) {
            return None;
        }
        if body.start == 0 {
            return Some((choice, body));
        }
        let head = rest.part(0..body.start);
        let mut other = self.choose(&head, excluded | 1 << choice.index)?;
        other.reason = Some(Reason::Alignment);
        Some((other, 0..body.start))
    }

    /// The answer when staging is needed and forbidden.
    fn refuse(
        &self,
        transfer: &Transfer<'_>,
        done: usize,
        failure: Option<(&'static str, Error)>,
        reason: Option<Reason>,
    ) -> Result<usize> {
        if done > 0 {
            return Ok(done);
        }
        if let Some((engine, error)) = failure {
            return Err(self.explain(transfer, Some(engine), error));
        }
        let reason = reason.unwrap_or(Reason::Alignment);
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

    /// What an aligned transfer would be carried by, and why not direct when it is not.
    pub(crate) fn verdict(&self, transfer: &Transfer<'_>) -> (&'static str, Option<Reason>) {
        match self.choose(transfer, 0) {
            Some(choice) => (choice.engine.name(), choice.reason),
            None => ("none", self.no_direct),
        }
    }
}
