//! A large read on a stream, of which later pieces are filled while earlier ones are copied. The stream's copies each wait
//! for their own piece, and each tells when it begins that those before it are done. No thread waits for that longer than a
//! moment: who finds nothing to fill leaves it to somebody who looks from time to time. It queues nothing on the stream.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};

use super::plan::{Cut, Part, Plan, Ready, Room, ring_blocks};
use super::{Ask, Call, Operation, State, checked, lock};
use crate::error::{Error, Result};
use crate::lane::{Lane, Lanes, Seat, Slot, Slots};
use crate::queued::Ends;
use crate::route::{Pause, Stage};
use crate::stats::{self, Split};
use crate::sync::linger;
use crate::workers::Came;

/// Where the pieces of a read lie in turn, and who fills them.
#[derive(Debug)]
pub(super) struct Ahead {
    cut: Cut,
    slots: Slots,
    /// Most threads that fill at the same time.
    threads: usize,
}

impl Ahead {
    /// Takes slots for a read that has entered its stream's lane: of at most `most` bytes, the first up to `lead` behind a
    /// multiple of `align`. `None` where one Block does as well, or has to.
    pub(super) fn new(
        lane: &Lane,
        most: usize,
        lead: usize,
        align: usize,
        lanes: &Lanes,
    ) -> Option<(Ahead, Plan)> {
        let (block, threads) = (lane.block_len(), lanes.threads_ahead());
        let wanted = ring_blocks(most, block, threads);
        if wanted == 0 || !lanes.can_watch() {
            return None;
        }
        let room = Room { ring: lane.ring(wanted), block, half: lane.half_block() };
        let cut = Cut::new(most, lead, align, room, threads)?;
        let slots = lane.slots(cut.slots, cut.step, cut.pieces, |slot| cut.uses(slot))?;
        Some((Ahead { cut, slots, threads }, Plan::new(cut)))
    }

    pub(super) fn cut(&self) -> &Cut {
        &self.cut
    }

    /// Where a piece lies, and what its word reaches when it is there.
    pub(super) fn slot(&self, piece: usize) -> (Seat, u64) {
        let Slot { seat, before } = self.slots.all[piece % self.cut.slots];
        (seat, before + 1 + (piece / self.cut.slots) as u64)
    }

    /// How many pieces the stream is known to have copied.
    fn copied(&self) -> usize {
        self.slots.told.get().saturating_sub(self.slots.before) as usize
    }
}

/// What became of a part: bytes that are there, why no more, and how it was carried.
struct Filled {
    part: Part,
    moved: usize,
    error: Option<Error>,
    split: Split,
}

/// What a thread needs to fill a part.
struct Task {
    part: Part,
    ask: Ask,
    uses: Arc<Ends>,
}

impl Operation {
    /// The stream is there.
    pub(super) fn arrive(self: &Arc<Self>) {
        if self.wants_thread() {
            return self.push(None);
        }
        let mut state = lock(&self.state);
        self.look_on(&mut state);
        self.have_watched(&mut state);
    }

    /// Nothing is to be filled any more, nor copied but what is filled; so many copies were queued.
    pub(super) fn abandon(self: &Arc<Self>, state: &mut State, queued: usize) {
        if let Some(plan) = &mut state.plan {
            plan.abandon(queued);
            self.look_on(state);
            self.have_watched(state);
        }
    }

    /// Has somebody look for what the stream has copied, if there are pieces that wait for it.
    fn have_watched(self: &Arc<Self>, state: &mut State) {
        if !state.watched && state.plan.as_ref().is_some_and(Plan::is_waiting) {
            state.watched = true;
            let operation = Arc::clone(self);
            self.inner.lanes().watch(Box::new(move || operation.glance()));
        }
    }

    /// Looks once for what the stream has copied, and gives to a thread what is to be filled then. Whether that is all.
    fn glance(self: &Arc<Self>) -> bool {
        let mut state = lock(&self.state);
        if self.ahead.as_ref().is_some_and(|ahead| state.threads >= ahead.threads) {
            // One of them will look.
            return false;
        }
        let task = self.next(&mut state);
        state.watched = task.is_none() && state.plan.as_ref().is_some_and(Plan::is_waiting);
        state.threads += usize::from(task.is_some());
        let done = !state.watched;
        drop(state);
        if task.is_some() {
            self.push(task);
        }
        done
    }

    /// What to fill next, if there is something within a moment. Of several threads without work one waits for it.
    fn next_soon<'s>(&'s self, mut state: MutexGuard<'s, State>) -> (MutexGuard<'s, State>, Option<Task>) {
        let task = self.next(&mut state);
        let (Some(ahead), Some(plan)) = (&self.ahead, &state.plan) else { return (state, task) };
        let lanes = self.inner.lanes();
        if task.is_some() || state.lingers || state.watched || !plan.is_waiting() || lanes.is_behind() {
            return (state, task);
        }
        let known = plan.copied();
        state.lingers = true;
        drop(state);
        linger(|| ahead.copied() > known || lanes.is_behind());
        state = lock(&self.state);
        state.lingers = false;
        let task = self.next(&mut state);
        (state, task)
    }

    /// Gives the operation to a thread that counts already, to begin it or to fill a part.
    fn push(self: &Arc<Self>, task: Option<Task>) {
        let operation = Arc::clone(self);
        self.inner.lanes().push(Box::new(move || {
            operation.serve(task);
            Came::ForWork
        }));
    }

    /// What one thread does: it fills one part after the other, as long as there are any and nobody else waits for a thread.
    fn serve(self: &Arc<Self>, task: Option<Task>) {
        let mut task = match task {
            Some(task) => Some(task),
            None => self.begin(),
        };
        while let Some(now) = task {
            // Others first: this one will be busy. Each calls two, since to wake up takes as long as to fill some.
            let _ = self.call_help() && self.call_help();
            let filled = self.fill(now);
            let mut state = lock(&self.state);
            self.fits_in(&mut state, filled);
            (state, task) = self.next_soon(state);
            if task.is_none() {
                self.have_watched(&mut state);
                return self.leave(&mut state);
            }
            drop(state);
            if self.inner.lanes().is_behind() {
                return self.push(task);
            }
        }
    }

    /// Binds the parameters. The first part; without one the thread has left.
    fn begin(self: &Arc<Self>) -> Option<Task> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let begun = match self.bind(state) {
            Ok(()) if state.result.is_some() => None,
            Ok(()) => self.lay_out(state).err(),
            Err(error) => Some(error),
        };
        if let Some(error) = begun {
            state.result = Some(Err(error));
        }
        self.settle(state, Vec::new());
        let task = self.next(state);
        if task.is_none() {
            self.have_watched(state);
            self.leave(state);
        }
        task
    }

    fn lay_out(&self, state: &mut State) -> Result<()> {
        let Some(uses) = state.uses.clone() else { return Ok(()) };
        let transfer = checked(self.op, &uses.file, &uses.buffer, self.base, state.first)?;
        self.inner.parts_begin(&transfer);
        // When it began, until it has ended.
        state.took = stats::now();
        if let Some(plan) = &mut state.plan {
            plan.bind((transfer.file_offset % self.quantum) as usize, transfer.len());
        }
        Ok(())
    }

    /// Has another thread fill the next part, if there is one and not enough of them are at it. Whether it has.
    fn call_help(self: &Arc<Self>) -> bool {
        let mut state = lock(&self.state);
        if self.ahead.as_ref().is_none_or(|ahead| state.threads >= ahead.threads) {
            return false;
        }
        let Some(task) = self.next(&mut state) else { return false };
        state.threads += 1;
        drop(state);
        self.push(Some(task));
        true
    }

    /// The next part to fill, if there is one now.
    fn next(&self, state: &mut State) -> Option<Task> {
        if !self.look_on(state) {
            return None;
        }
        let (plan, uses) = (state.plan.as_mut()?, state.uses.as_ref()?);
        Some(Task { part: plan.take(), ask: state.first, uses: Arc::clone(uses) })
    }

    /// Goes past what has no bytes. Whether there is something to fill.
    fn look_on(&self, state: &mut State) -> bool {
        let (Some(plan), Some(ahead)) = (&mut state.plan, &self.ahead) else { return false };
        plan.was_copied(ahead.copied());
        let mut ready = Vec::new();
        let more = plan.advance(&mut ready);
        self.publish(state, &ready);
        more
    }

    /// Lets the stream copy what is ready.
    fn publish(&self, state: &State, ready: &[Ready]) {
        let Some(ahead) = &self.ahead else { return };
        // Where there is something to be copied, this was checked.
        let memory = self.base.wrapping_add(state.first.buffer_offset as usize);
        for Ready { piece, at, range } in ready {
            let (seat, ticket) = ahead.slot(*piece);
            let (to, from) = (memory.wrapping_add(range.start), seat.block.device + at);
            let Slots { told, before, .. } = ahead.slots;
            seat.say_and_tell(to, from, range.len(), told, before + *piece as u64);
            self.lane.open(seat.word(), ticket);
        }
    }

    /// Reads a part into its slot.
    fn fill(&self, task: Task) -> Filled {
        let Task { part, ask, uses } = task;
        let mut split = Split::default();
        let ran = catch_unwind(AssertUnwindSafe(|| self.read(&part, ask, &uses, &mut split)));
        let (moved, error) = match ran.unwrap_or_else(|_| Err(self.defect())) {
            Ok(moved) => (moved, None),
            Err(error) => (0, Some(error)),
        };
        Filled { part, moved, error, split }
    }

    fn read(&self, part: &Part, ask: Ask, uses: &Ends, split: &mut Split) -> Result<usize> {
        let Some(ahead) = &self.ahead else { return Ok(0) };
        let whole = checked(self.op, &uses.file, &uses.buffer, self.base, ask)?;
        let transfer = whole.part(part.range.clone());
        // SAFETY: the slot is this operation's, the part this thread's; the copy from it is over or not yet begun.
        let bytes = unsafe { ahead.slots.all[part.slot].seat.part(part.place.clone()) };
        let mut collected = Vec::new();
        let mut stage = Stage::new(bytes, self.quantum, 0..0, &mut collected);
        match self.inner.carry_part(&transfer, part.is_first(), &mut stage, split) {
            Pause::Finished(Ok(moved)) if stage.range() == (0..moved) => Ok(moved),
            // No engine may have a part in it that does not stage.
            Pause::Finished(Ok(_)) | Pause::Copy => Err(self.defect()),
            Pause::Finished(Err(error)) => Err(error.of_len(whole.len())),
        }
    }

    /// Notes what became of a part.
    fn fits_in(&self, state: &mut State, filled: Filled) {
        let Filled { part, moved, error, split } = filled;
        state.split.add(split);
        let Some(plan) = &mut state.plan else { return };
        let mut ready = Vec::new();
        if plan.done(&part, moved, &mut ready) {
            state.broken = error;
        }
        self.settle(state, ready);
    }

    /// Says what it came to, once that is known, and then lets the stream copy what is ready: when it is done with that, the
    /// result must be there.
    fn settle(&self, state: &mut State, mut ready: Vec<Ready>) {
        let Some(plan) = &mut state.plan else { return };
        plan.advance(&mut ready);
        if state.result.is_none() && plan.is_read() {
            let result = match (plan.end(), state.broken.take()) {
                (0, Some(error)) => Err(error),
                (end, _) => Ok(end),
            };
            if let Some(uses) = state.uses.clone()
                && let Ok(transfer) = checked(self.op, &uses.file, &uses.buffer, self.base, state.first)
            {
                let took = stats::now().saturating_sub(state.took);
                self.count(&transfer, &result, state.split, took);
            }
            state.result = Some(result);
        }
        self.publish(state, &ready);
    }
}

/// # Safety
/// As [`super::hand_over`].
pub(super) unsafe extern "C" fn arrive(data: *mut c_void) {
    // SAFETY: as this function demands.
    unsafe { Box::from_raw(data.cast::<Call>()) }.operation.arrive();
}

/// Where streams cannot wait: holds the stream until the piece that the ticket names is there.
///
/// # Safety
/// As [`super::hand_over`].
pub(super) unsafe extern "C" fn park_ahead(data: *mut c_void) {
    // SAFETY: as this function demands.
    let Call { operation, ticket: piece } = unsafe { *Box::from_raw(data.cast::<Call>()) };
    if let Some(ahead) = &operation.ahead {
        let (seat, ticket) = ahead.slot(piece as usize);
        operation.lane.await_open(seat.word(), ticket);
    }
}
