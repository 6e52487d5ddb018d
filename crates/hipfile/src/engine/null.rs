//! Moves nothing and says it did: measures everything around an engine. Serves only when named.

use super::{Engine, Fit, Outcome, Parts, Staging};
use crate::reason::Reason;
use crate::transfer::Transfer;

#[derive(Debug)]
struct Null;

pub(super) fn new(_: &Parts) -> Box<dyn Engine> {
    Box::new(Null)
}

impl Engine for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn fit(&self, transfer: &Transfer<'_>) -> Result<Fit, Reason> {
        Ok(Fit::whole(0, transfer))
    }

    fn staging(&self) -> Option<&dyn Staging> {
        Some(self)
    }

    fn run(&self, transfer: &Transfer<'_>) -> Outcome {
        Outcome::done(transfer.len())
    }
}

impl Staging for Null {
    fn stage(&self, transfer: &Transfer<'_>, _: &mut [u8], _: u64) -> Outcome {
        Outcome::done(transfer.len())
    }
}
