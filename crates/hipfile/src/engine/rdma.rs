//! Files of the program's own file systems that know RDMA: a device of theirs writes into GPU memory and reads from it. It stages
//! nothing: what no device reaches it leaves to the engine `userspace`.

use std::net::IpAddr;
use std::sync::Arc;

use super::{DIRECT_RANK, Engine, Fit, Outcome, Parts};
use crate::buffer::Place;
use crate::error::Error;
use crate::op::Op;
use crate::rdma::{Nic, Rdma};
use crate::reason::Reason;
use crate::transfer::Transfer;
use crate::user_fs::User;

#[derive(Debug, Default)]
struct ByRdma {
    rdma: Rdma,
}

pub(super) fn new(_: &Parts) -> Box<dyn Engine> {
    Box::new(ByRdma::default())
}

impl ByRdma {
    /// The device that the file system prefers for this range, of those that are here.
    fn choose(&self, transfer: &Transfer<'_>, user: &User) -> Option<Arc<Nic>> {
        let mut best: Option<(i32, IpAddr)> = None;
        for nic in user.rdma_devices() {
            if self.rdma.nic(*nic).is_none() {
                continue;
            }
            let priority =
                user.rdma_priority(transfer.span.start(), transfer.len(), transfer.file_offset, *nic);
            // Of equal ones the first.
            if priority >= 0 && best.is_none_or(|(other, _)| priority > other) {
                best = Some((priority, *nic));
            }
        }
        self.rdma.nic(best?.1)
    }
}

impl Engine for ByRdma {
    fn name(&self) -> &'static str {
        "rdma"
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn fit(&self, transfer: &Transfer<'_>) -> Result<Fit, Reason> {
        let Place::Device { device, .. } = transfer.span.place() else { return Err(Reason::NotDeviceMemory) };
        let user = transfer.file.user(transfer.op).ok_or(Reason::UserspaceFs)?;
        if user.rdma_devices().is_empty() {
            return Err(Reason::UserspaceFs);
        }
        let any = || user.rdma_devices().iter().any(|nic| self.rdma.nic(*nic).is_some());
        // To export memory may wait for the stream that is held.
        if transfer.held || !device.exports() || !any() {
            return Err(Reason::NoRdma);
        }
        Ok(Fit::whole(DIRECT_RANK, transfer))
    }

    fn run(&self, transfer: &Transfer<'_>) -> Outcome {
        let op = transfer.op;
        let (Place::Device { device, ordinal, .. }, Some(user)) =
            (transfer.span.place(), transfer.file.user(op))
        else {
            unreachable!("fit refuses others");
        };
        if let Err(error) = device.settle(*ordinal) {
            return Outcome::failed(0, error);
        }
        let mut moved = 0;
        while moved < transfer.len() {
            let rest = transfer.rest(moved);
            let want = rest.span.unbroken();
            let part = rest.part(0..want);
            let Some(nic) = self.choose(&part, user) else { return Outcome::yielded(moved, Reason::NoRdma) };
            let reached = match nic.reach(op, &part.span) {
                Ok(Some(reached)) => reached,
                Ok(None) => return Outcome::yielded(moved, Reason::NoRdma),
                Err(error) => {
                    crate::log::event!(DEBUG, "GPU memory is not registered for RDMA", %error);
                    return Outcome::yielded(moved, Reason::NoRdma);
                }
            };
            let (done, errno) = user.by_rdma(op, want, part.file_offset, &reached.memory);
            drop(reached);
            moved += done;
            match errno {
                Some(errno) => return Outcome::failed(moved, Error::os(op.name(), errno)),
                None if done < want && op == Op::Read => return Outcome::done(moved),
                None if done < want => return Outcome::failed(moved, Error::os(op.name(), libc::EIO)),
                None => {}
            }
        }
        Outcome::done(moved)
    }
}
