//! Which engine carries which part of a transfer, and what may be tried on the next one. The only place that knows
//! either.

mod stage;
#[cfg(test)]
#[cfg(feature = "emulation")]
mod tests;
mod walk;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::buffer::Place;
use crate::config::{Adaptive, Config, Fallback};
use crate::engine::{self, DIRECT_RANK, Engine, Fit, Parts, Queue, Stop};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::file::FileRecord;
use crate::log;
use crate::notice;
use crate::op::Op;
use crate::pace;
use crate::policy::Policy;
use crate::reason::Reason;
use crate::stats::Meter;
use crate::transfer::{Cache, Transfer};

pub(crate) use stage::Stage;
pub(crate) use walk::Walk;

/// The engines in use.
#[derive(Debug)]
pub(crate) struct Router {
    engines: Vec<(usize, Box<dyn Engine>)>,
    /// Those that can neither go direct nor stage in memory they are given, one bit each.
    no_staging: u8,
    /// The largest transfer that may go the short way; 0 when none may.
    small_max: usize,
    fallback: Fallback,
    adaptive: Adaptive,
    policy: Policy,
    /// Why the direct engine of most GPUs is not in the list, when it is not.
    no_direct: Option<Reason>,
    /// Reasons already said on standard error (warn mode), one bit each.
    said: AtomicU64,
    /// Those that the log was told of.
    told: AtomicU64,
}

/// From so many bytes on it costs nothing to ask before each transfer whether private descriptors are what they were.
const LOOK_FROM: usize = 1 << 20;

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

/// Whether a write met the end of the room there is. A direct engine's driver says so of all that it was given, also after
/// part of that was written; engines that stage say how far they came.
fn is_without_room(op: Op, errno: Option<i32>) -> bool {
    op == Op::Write && matches!(errno, Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}

/// Where the GPU's window is small that is the likely cause of what drivers say of memory and paths that do not suit.
fn blamed(why: Reason, transfer: &Transfer<'_>) -> Reason {
    let path = matches!(
        why,
        Reason::NoStorageDevice | Reason::RemoteIo | Reason::NoMemory | Reason::Demoted | Reason::Refused
    );
    match transfer.span.place() {
        Place::Device { device, ordinal, .. } if path && device.has_small_window(*ordinal) => {
            Reason::SmallBar
        }
        _ => why,
    }
}

/// The reason to tell, of one that is known and that of one more direct engine: that an engine is another runtime's says
/// nothing where there is a second.
fn nearest(known: Option<Reason>, why: Reason) -> Reason {
    match known {
        None | Some(Reason::NoSymbols) => why,
        Some(Reason::Configuration) if why != Reason::NoSymbols => why,
        // Of a file system that knows RDMA the others' refusal says nothing.
        Some(Reason::UserspaceFs) => why,
        Some(known) => known,
    }
}

/// Whether a file system of the program's own serves it, and nobody else may.
fn is_users(transfer: &Transfer<'_>) -> bool {
    transfer.file.user(transfer.op).is_some()
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

impl Way {
    /// The engine's index.
    pub(crate) fn engine(self) -> u8 {
        self.index as u8
    }
}

/// The next step of a transfer.
struct Step<'r, 'a> {
    choice: Choice<'r>,
    part: Transfer<'a>,
    /// Why it is staged; `None` when it is not.
    staged: Option<Reason>,
}

/// What the short way has moved, and why it was not direct.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Small {
    pub(crate) moved: usize,
    pub(crate) reason: Reason,
}

/// Why [`Router::carry`] returned.
#[derive(Debug)]
pub(crate) enum Pause {
    Finished(Result<usize>),
    /// The stage is full (reads), or must be filled (writes).
    Copy,
}

impl Router {
    pub(crate) fn new(config: &Config, parts: &Parts) -> Router {
        let wanted = |name: &str| match &config.engines {
            // Its files have no other.
            _ if name == engine::NAMES[engine::USERSPACE] => true,
            Some(names) => names.iter().any(|n| n == name),
            // It moves nothing, so it must be asked for by name.
            None => name != "null",
        };
        let engines: Vec<_> = engine::ENGINES
            .iter()
            .enumerate()
            .filter(|(_, (name, _))| wanted(name) && (config.use_p2p || *name != "p2p"))
            .map(|(index, (_, new))| (index, new(parts)))
            .filter(|(_, engine)| !(config.force_compat && engine.is_direct()))
            .collect();
        let stages = |engine: &dyn Engine| engine.is_direct() || engine.staging().is_some();
        let no_staging =
            engines.iter().filter(|(_, e)| !stages(e.as_ref())).fold(0, |bits, (index, _)| bits | 1 << index);
        let has_p2p = engines.iter().any(|(index, _)| *index == engine::P2P);
        // The short way says nothing and knows the last resort only.
        let simple = config.fallback == Fallback::Allow
            && engines.iter().any(|(index, _)| *index == engine::LAST_RESORT)
            && !engines.iter().any(|(_, engine)| engine.name() == "null")
            // Asked for, the ring carries what goes around the cache, however small.
            && !config.prefer_io_uring;
        let small_max = config.block_len.min(config.parallel_min.saturating_sub(1));
        Router {
            engines,
            no_staging,
            small_max: if simple { small_max } else { 0 },
            fallback: config.fallback,
            adaptive: config.adaptive,
            policy: Policy::new(config),
            no_direct: (!has_p2p).then_some(Reason::Configuration),
            said: AtomicU64::new(0),
            told: AtomicU64::new(0),
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
            match self.offer(*index, engine.as_ref(), transfer) {
                Ok(fit) if !staging && fit.rank < DIRECT_RANK => {}
                Ok(fit) if best.as_ref().is_none_or(|b| fit.rank > b.fit.rank) => {
                    best = Some(Choice { index: *index, engine: engine.as_ref(), fit });
                }
                Ok(_) => {}
                Err(why) if engine.is_direct() => reason = Some(nearest(reason, why)),
                Err(_) => {}
            }
        }
        best.ok_or(reason.unwrap_or(Reason::Refused))
    }

    /// Who carries the start of a transfer, how much of it, and why it is staged if it is. `None` when nobody can.
    fn next_step<'r, 'a>(&'r self, rest: &Transfer<'a>, excluded: u8, around: bool) -> Option<Step<'r, 'a>> {
        let around = around && !is_users(rest);
        let (limit, reason) = match self.choose(rest, excluded, false) {
            Ok(choice) if choice.fit.body.start == 0 => {
                let mut part = rest.part(choice.fit.body.clone());
                if around && rest.span.place().is_reached() {
                    let (cache, len) = self.policy.next_run_in_place(&part);
                    part = part.part(0..len);
                    part.cache = cache;
                }
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

    /// Whether a transfer may go another way than step by step. It begins here, so its file is looked after.
    fn may_go_apart(&self, transfer: &Transfer<'_>) -> bool {
        transfer.file.look_after();
        self.fallback != Fallback::Forbid && transfer.len() > 0 && !is_users(transfer)
    }

    /// The queue that a whole transfer may take, if it would be staged in one step and an engine has a queue for such.
    pub(crate) fn queue_for(&self, transfer: &Transfer<'_>) -> Option<Way> {
        if !self.may_go_apart(transfer) {
            return None;
        }
        let Step { part, staged, .. } = self.next_step(transfer, 0, true)?;
        let staged = staged.filter(|_| part.len() == transfer.len())?;
        let takes = |engine: &dyn Engine| engine.queue().is_some_and(|queue| queue.takes(&part));
        let (index, _) = self.engines.iter().find(|(_, engine)| takes(engine.as_ref()))?;
        Some(Way { index: *index, cache: part.cache, staged })
    }

    /// The way of a held stream's transfer that is staged whatever direct engines say, if it is one read around the page cache
    /// by the last resort.
    pub(crate) fn aside_for(&self, transfer: &Transfer<'_>) -> Option<Way> {
        if !self.may_go_apart(transfer) {
            return None;
        }
        let why = self.choose(transfer, self.no_staging, false).err();
        let Step { choice, part, .. } =
            self.next_step(transfer, self.direct_engines() | self.no_staging, true)?;
        let whole = part.len() == transfer.len() && part.cache == Cache::Around;
        let staged = why.unwrap_or(Reason::HeldStream);
        (whole && choice.index == engine::LAST_RESORT).then_some(Way {
            index: choice.index,
            cache: part.cache,
            staged,
        })
    }

    /// Whether a small read is likely to be one of those, by what is known without a look at the file.
    pub(crate) fn may_be_aside(&self, transfer: &Transfer<'_>) -> bool {
        !is_users(transfer) && self.policy.small(transfer) == Some(Cache::Around)
    }

    /// The queue of a way.
    pub(crate) fn queue(&self, way: Way) -> Option<&dyn Queue> {
        self.engines.iter().find(|(index, _)| *index == way.index)?.1.queue()
    }

    /// Counts a transfer that a queue has moved wholly.
    pub(crate) fn queue_moved(&self, way: Way, transfer: &Transfer<'_>, meter: &Meter<'_>) {
        self.warn(transfer.file, way.staged);
        log::carried(transfer, engine::NAMES[way.index], Some(way.staged), transfer.len());
        meter.moved(way.index, transfer.len(), true, Some(way.staged));
    }

    /// The short way: for a small transfer that the last resort carries in one piece. `None` when it is not so simple; then
    /// nothing was done. An error is the GPU's.
    #[inline]
    pub(crate) fn run_small(&self, transfer: &Transfer<'_>) -> Option<Result<Small>> {
        if transfer.len() > self.small_max {
            return None;
        }
        if is_users(transfer) {
            return None;
        }
        let cache = self.policy.small(transfer)?;
        let (mut reason, mut last) = (self.no_direct, None);
        for (index, engine) in &self.engines {
            if *index == engine::LAST_RESORT {
                last = Some(engine.as_ref());
            } else if engine.is_direct() {
                match self.offer(*index, engine.as_ref(), transfer) {
                    Ok(_) => return None,
                    Err(why) => reason = Some(nearest(reason, why)),
                }
            }
        }
        let (reason, engine) = (reason?, last?);
        if transfer.op == Op::Write && transfer.file.appends() {
            return None;
        }
        transfer.watch.inspect(|ticket| ticket.reached(engine::LAST_RESORT as u8));
        let moved = match engine.run_small(transfer, cache)? {
            Ok(moved) => moved,
            // The GPU's own error is the answer; to try again could hide it.
            Err(error) => return Some(Err(self.explain(transfer, Some(engine.name()), error))),
        };
        log::staged(&self.told, transfer.file, reason);
        log::carried(transfer, engine.name(), Some(reason), moved);
        Some(Ok(Small { moved, reason }))
    }

    /// What an engine offers, if it does not rest.
    fn offer(&self, index: usize, engine: &dyn Engine, transfer: &Transfer<'_>) -> Result<Fit, Reason> {
        if is_users(transfer) != matches!(index, engine::USERSPACE | engine::RDMA) {
            Err(Reason::UserspaceFs)
        } else if !engine.is_direct() || transfer.file.breakers[index].is_open() {
            engine.fit(transfer)
        } else {
            Err(Reason::Backoff)
        }
    }

    /// Carries a transfer out, engine by engine.
    ///
    /// # Errors
    /// Only when no byte moved; an error after that shows on the next call.
    pub(crate) fn run(&self, transfer: &Transfer<'_>, meter: &Meter<'_>) -> Result<usize> {
        let started = (self.adaptive != Adaptive::Off).then(Instant::now);
        let mut walk = Walk::default();
        let Pause::Finished(result) = self.carry(transfer, meter, &mut walk, None) else {
            unreachable!("only a transfer with a stage pauses");
        };
        if let (Some(started), Some(direct), Ok(moved)) = (started, walk.went(), &result)
            && *moved == transfer.len()
        {
            transfer.file.pace.measured(transfer.op, direct, *moved, started.elapsed());
        }
        result
    }

    /// Goes on with a transfer. With a stage, what would be staged goes through it alone, and the transfer pauses where
    /// the GPU has to copy; the stage then says what.
    pub(crate) fn carry(
        &self,
        transfer: &Transfer<'_>,
        meter: &Meter<'_>,
        walk: &mut Walk,
        mut stage: Option<&mut Stage<'_>>,
    ) -> Pause {
        let op = transfer.op;
        let unfit = if stage.is_some() { self.no_staging } else { 0 };
        if walk.paced.is_none() {
            if transfer.len() >= LOOK_FROM {
                transfer.file.finds_lost();
            } else {
                transfer.file.look_after();
            }
            let paced = self.is_paced(transfer);
            walk.paced = Some(paced);
            if let Some(reason) = paced.then(|| transfer.file.pace.turn(op)).flatten() {
                walk.excluded |= self.direct_engines();
                walk.given_up = Some(reason);
            }
        }
        if walk.staged_only
            && !is_users(transfer)
            && walk.excluded & self.direct_engines() != self.direct_engines()
        {
            let why = self.choose(transfer, walk.excluded | unfit, false).err();
            walk.excluded |= self.direct_engines();
            walk.given_up.get_or_insert(why.unwrap_or(Reason::HeldStream));
        }
        while walk.done < transfer.len() {
            let rest = transfer.rest(walk.done);
            let step = self.next_step(&rest, walk.excluded | unfit, !walk.through_cache);
            let Some(Step { choice, mut part, staged }) = step else { break };
            let staged = staged.map(|reason| walk.given_up.unwrap_or(reason));
            // An engine may keep it for long: who waits can be told which.
            transfer.watch.inspect(|ticket| ticket.reached(choice.index as u8));
            if self.fallback == Fallback::Forbid {
                // Known beforehand: part of it would have to be staged.
                let in_place = rest.span.place().is_reached();
                let ragged = part.len() < rest.len() && !in_place;
                let reason = staged.or(ragged.then_some(Reason::Alignment));
                if let Some(reason) = reason {
                    return Pause::Finished(self.refuse(transfer, walk.done, walk.failure.take(), reason));
                }
            }
            let outcome = match &mut stage {
                Some(stage) if staged.is_some() && op == Op::Write && transfer.file.appends() => {
                    if stage.collected.len() < transfer.len() {
                        match stage.collect(transfer) {
                            Err(error) => return Pause::Finished(Err(self.explain(transfer, None, error))),
                            Ok(()) if !stage.range.is_empty() => return Pause::Copy,
                            Ok(()) => {}
                        }
                    }
                    part = rest;
                    staged.into_iter().for_each(|reason| self.warn(transfer.file, reason));
                    stage.append(&choice, &part)
                }
                Some(stage) if staged.is_some() => {
                    let whole =
                        || self.next_step(&rest, walk.excluded | unfit, false).map_or(0, |s| s.part.len());
                    let room = stage.room(transfer, walk.done, whole);
                    if room == 0 {
                        return Pause::Copy;
                    }
                    part = part.part(0..part.len().min(room));
                    staged.into_iter().for_each(|reason| self.warn(transfer.file, reason));
                    stage.carry(&choice, transfer, &part, walk.done)
                }
                // What is in the stage comes first, or it would not be one piece.
                Some(stage) if op == Op::Read && !stage.range.is_empty() => return Pause::Copy,
                _ => {
                    staged.into_iter().for_each(|reason| self.warn(transfer.file, reason));
                    choice.engine.run(&part)
                }
            };
            log::carried(&part, choice.engine.name(), staged, outcome.moved);
            let (index, bit) = (choice.index, 1 << choice.index);
            if outcome.moved > 0 || matches!(outcome.stop, Stop::Done) {
                let first = walk.counted & bit == 0;
                walk.counted |= bit;
                meter.moved(index, outcome.moved, first, staged);
                if choice.engine.is_direct() {
                    transfer.file.breakers[index].succeeded();
                }
            }
            walk.done += outcome.moved;
            // What failed or came to its end may have been another file. A held stream has copied what came before.
            let suspect = match outcome.stop {
                Stop::Failed(_) => true,
                Stop::Done => outcome.moved < part.len(),
                _ => false,
            };
            if suspect && transfer.file.finds_lost() {
                walk.done = if stage.is_some() { walk.done - outcome.moved } else { 0 };
                continue;
            }
            match outcome.stop {
                Stop::Done if outcome.moved < part.len() => return Pause::Finished(Ok(walk.done)),
                Stop::Done => {}
                Stop::Short => walk.excluded |= bit,
                Stop::Yielded(why) => {
                    log::given_up(transfer.file, choice.engine.name(), why, None);
                    walk.excluded |= bit;
                    walk.given_up = Some(why);
                }
                Stop::Failed(error) => {
                    meter.failed(index, choice.engine.is_direct());
                    let retry = retry(&error);
                    let errno = error.os_error();
                    walk.failure = Some((choice.engine.name(), error));
                    match retry {
                        Some(why) if choice.engine.is_direct() && self.fallback != Fallback::Forbid => {
                            let why = blamed(why, &part);
                            log::given_up(transfer.file, choice.engine.name(), why, errno);
                            if let Some(rest) =
                                transfer.file.breakers[index].failed(errno.unwrap_or_default())
                            {
                                log::rests(transfer.file, choice.engine.name(), errno, rest);
                            }
                            walk.excluded |= bit;
                            walk.given_up = Some(why);
                        }
                        None if choice.engine.is_direct()
                            && self.fallback != Fallback::Forbid
                            // A file system of the program's own says itself how far it came.
                            && !is_users(transfer)
                            && is_without_room(op, errno) =>
                        {
                            log::given_up(transfer.file, choice.engine.name(), Reason::Refused, errno);
                            walk.excluded |= bit;
                            walk.given_up = Some(Reason::Refused);
                        }
                        // O_DIRECT was accepted at open and is refused now: the page cache will do.
                        Some(_) if part.cache == Cache::Around => transfer.file.refuse_direct(op),
                        // Direct reads that meet buffered writers can fail where a plain read does not; if the
                        // data is at fault, that one says so too.
                        None if part.cache == Cache::Around && op == Op::Read => walk.through_cache = true,
                        _ => break,
                    }
                }
            }
        }
        if walk.done > 0 || transfer.len() == 0 {
            return Pause::Finished(Ok(walk.done));
        }
        let (engine, error) = match walk.failure.take() {
            Some((engine, error)) => (Some(engine), error),
            None => {
                let why = "no engine can carry this transfer";
                (None, Error::message(ErrorKind::InternalError, op.name(), why))
            }
        };
        Pause::Finished(Err(self.explain(transfer, engine, error)))
    }

    /// Whether a direct engine may have a part in transfers between this file and memory of this place.
    pub(crate) fn may_go_direct(&self, file: &FileRecord, place: &Place) -> bool {
        let Place::Device { device, .. } = place else { return false };
        self.engines.iter().any(|(_, engine)| engine.is_direct())
            && device.p2p().is_some()
            && file.direct().is_some()
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
        let mode = transfer.file.mode_against(transfer.op).filter(|_| error.os_error() == Some(libc::EBADF));
        let error = mode.map_or(error, |why| Error::os_because(transfer.op.name(), libc::EBADF, why));
        error.with_context(Context {
            path: transfer.file.path(),
            fd: Some(transfer.file.fd()),
            file_offset: transfer.file_offset as i64,
            len: transfer.len(),
            buffer: transfer.span.start(),
            engine,
        })
    }

    /// Tells once per reason: the log, and in warn mode standard error.
    fn warn(&self, file: &FileRecord, reason: Reason) {
        log::staged(&self.told, file, reason);
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
        let slower = self.is_paced(transfer) && !transfer.file.pace.prefers_direct(transfer.op);
        let excluded = if slower { self.direct_engines() } else { 0 };
        match self.next_step(transfer, excluded, true) {
            Some(step) => {
                (step.choice.engine.name(), if slower { Some(Reason::Slower) } else { step.staged })
            }
            None => ("none", self.no_direct),
        }
    }

    /// Whether a transfer is one of those that are measured both ways: most of it could go direct.
    fn is_paced(&self, transfer: &Transfer<'_>) -> bool {
        let here = match self.adaptive {
            Adaptive::Off => false,
            Adaptive::Network => transfer.file.storage().is_network(),
            Adaptive::All => true,
        };
        here && self.fallback != Fallback::Forbid
            && transfer.len() >= pace::FROM
            && !transfer.span.place().is_reached()
            && self.choose(transfer, 0, false).is_ok_and(|choice| choice.fit.body.len() >= transfer.len() / 2)
    }

    fn direct_engines(&self) -> u8 {
        self.engines.iter().filter(|(_, e)| e.is_direct()).fold(0, |bits, (index, _)| bits | 1 << index)
    }
}
