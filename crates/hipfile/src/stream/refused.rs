//! How an operation ends whose commands the stream did not all take. It waits for no stream.

use std::sync::Arc;
use std::time::Duration;

use super::queueing::Queueing;
use super::{Operation, Uses, done, lock};
use crate::buffer::BufferRecord;
use crate::lane::Mark;
use crate::usage::Hold;

/// How often, and at what intervals, a stream that takes nothing any more is asked whether it has nothing to do.
const LOOKS: (u32, Duration) = (100, Duration::from_millis(1));

/// How it is known that the stream has passed what was queued.
enum Passing {
    Marked(Mark),
    Passed,
    /// It takes nothing and does not come to an end: its memory is never used again.
    Never,
}

impl Queueing<'_> {
    /// Something could not be queued: what is queued must do nothing, and the caller's variables are not touched again.
    pub(super) fn give_up(&self, queued: usize) {
        let mut state = lock(&self.operation.state);
        state.caller = None;
        state.result = Some(Ok(0));
        self.operation.abandon(&mut state, queued);
        drop(state);
        if self.call(done, 0).is_err() {
            self.end_uncalled();
        }
    }

    /// The stream takes no function, so that nothing of the stream's ends the operation.
    fn end_uncalled(&self) {
        let (operation, lanes) = (Arc::clone(self.operation), self.operation.inner.lanes());
        let (mut passing, mut buffer) = (self.passing(), None);
        let mut look = move || operation.ends(&mut passing, &mut buffer);
        if lanes.can_watch() {
            return lanes.watch(Box::new(look));
        }
        // Without a thread that could look. What it waits for is a read or a write, or a stream that does not hang.
        while !look() {
            std::thread::sleep(LOOKS.1);
        }
    }

    fn passing(&self) -> Passing {
        let lane = &self.operation.lane;
        if let Some(mark) = lane.mark() {
            // SAFETY: the words say that nothing is to be copied; their memory is never given back.
            let queued =
                unsafe { self.streams.copy(self.gpu, self.stream, lane.kernel, mark.late_device(), 0) };
            if queued.is_ok() {
                return Passing::Marked(mark);
            }
            lane.leave_mark(mark);
        }
        for _ in 0..LOOKS.0 {
            if self.streams.is_idle(self.stream) {
                return Passing::Passed;
            }
            std::thread::sleep(LOOKS.1);
        }
        Passing::Never
    }
}

impl Operation {
    /// Lets go of the file once no thread has to do with the operation, and of the rest once the stream has passed it. Whether
    /// that is done; functions of the stream's that come later find that there is nothing to do.
    fn ends(&self, passing: &mut Passing, buffer: &mut Option<Hold<BufferRecord>>) -> bool {
        let uses = {
            let mut state = lock(&self.state);
            if state.threads > 0 {
                return false;
            }
            state.uses.take()
        };
        // Nobody else has them: threads let go before they leave.
        if let Some(Uses { file, buffer: held }) = uses.and_then(Arc::into_inner) {
            drop(file);
            *buffer = Some(held);
        }
        match passing {
            Passing::Marked(mark) if !mark.is_passed() => return false,
            Passing::Never => {
                std::mem::forget(buffer.take());
                return true;
            }
            Passing::Marked(_) | Passing::Passed => {}
        }
        if let Passing::Marked(mark) = std::mem::replace(passing, Passing::Passed) {
            self.lane.leave_mark(mark);
        }
        drop(buffer.take());
        self.lane.leave();
        true
    }
}
