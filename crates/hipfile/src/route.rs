//! Which engine carries a transfer, and what may be tried on the next one. The only place that knows either.

use crate::config::{Config, Fallback};
use crate::engine::{self, DIRECT_RANK, Engine, Parts};
use crate::error::{Error, ErrorKind, Result};
use crate::stats::{Counters, MAX_ENGINES};
use crate::transfer::Transfer;

/// The engines in use.
#[derive(Debug)]
pub(crate) struct Router {
    engines: Vec<(usize, Box<dyn Engine>)>,
    fallback: Fallback,
}

/// errno values after which the next engine is asked: the path is missing, not the data.
const RETRY: &[i32] = &[
    libc::ENODEV,
    libc::EREMOTEIO,
    libc::ENOTTY,
    libc::EOPNOTSUPP,
    libc::ENOSYS,
];

impl Router {
    pub(crate) fn new(config: &Config, parts: &Parts) -> Router {
        let wanted = |name: &str| match &config.engines {
            Some(names) => names.iter().any(|n| n == name),
            // It moves nothing, so it must be asked for by name.
            None => name != "null",
        };
        let engines = engine::ENGINES
            .iter()
            .enumerate()
            .filter(|(_, (name, _))| wanted(name))
            .map(|(index, (_, new))| (index, new(parts)))
            .collect();
        Router {
            engines,
            fallback: config.fallback,
        }
    }

    /// Carries a transfer out: engine by engine while nothing has moved and the error says that the path is missing.
    ///
    /// # Errors
    /// Only when no byte moved; an error after that shows on the next call.
    pub(crate) fn run(&self, transfer: &Transfer<'_>, counters: &[&Counters]) -> Result<usize> {
        let op = transfer.op;
        let mut order = [(0, 0); MAX_ENGINES];
        let mut count = 0;
        for (place, (_, engine)) in self.engines.iter().enumerate() {
            let Some(rank) = engine.rank(transfer) else {
                continue;
            };
            if self.fallback != Fallback::Forbid || rank >= DIRECT_RANK {
                order[count] = (rank, place);
                count += 1;
            }
        }
        // Stable, so that among equals the order of the list decides.
        order[..count].sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        let mut last = None;
        for (_, place) in &order[..count] {
            let (index, engine) = &self.engines[*place];
            let index = *index;
            let outcome = engine.run(transfer);
            if outcome.error.is_some() {
                counters.iter().for_each(|c| c.failed(op, index));
            }
            match outcome.error {
                Some(error) if outcome.moved == 0 => {
                    let retry = error.os_error().is_some_and(|errno| RETRY.contains(&errno));
                    last = Some((engine.name(), error));
                    if !retry {
                        break;
                    }
                }
                _ => {
                    counters.iter().for_each(|c| c.moved(op, index, outcome.moved));
                    return Ok(outcome.moved);
                }
            }
        }
        Err(match last {
            Some((engine, error)) => error.with_context(crate::error::Context {
                path: transfer.file.path(),
                fd: Some(transfer.file.fd()),
                file_offset: transfer.file_offset as i64,
                len: transfer.len(),
                buffer: transfer.span.start(),
                engine: Some(engine),
            }),
            None if self.fallback == Fallback::Forbid => Error::message(
                ErrorKind::IONotSupported,
                op.name(),
                "no direct path serves this transfer, and staging is forbidden by configuration",
            ),
            None => Error::message(
                ErrorKind::InternalError,
                op.name(),
                "no engine can carry this transfer",
            ),
        })
    }
}
