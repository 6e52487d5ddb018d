//! How an operation ends whose commands the stream did not all take. It waits for no stream longer than a moment.

use std::sync::Arc;
use std::time::Duration;

use super::queueing::Queueing;
use super::{done, lock};
use crate::lane::{Lane, Mark};
use crate::queued::Ends;

/// How often, and at what intervals, a stream that takes nothing any more is asked whether it has nothing to do.
const LOOKS: (u32, Duration) = (100, Duration::from_millis(1));

/// How it is known that the stream has passed what was queued.
enum Passing {
    Marked(Mark),
    Passed,
    /// Only what comes of later operations tells.
    Unknown,
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
        let operation = Arc::clone(self.operation);
        let lane = Arc::clone(&operation.lane);
        // A thread whose gate could not be queued works in the Block of whoever comes next. It waits for a read or a write.
        let mut state = operation.await_threads();
        let uses = state.uses.take();
        drop(state);
        // Nobody else has them: threads let go before they leave. Of the memory the stream may have to copy some nothing.
        let buffer = uses.and_then(Arc::into_inner).map(|Ends { file, buffer, .. }| {
            drop(file);
            buffer
        });
        match self.passing(&lane) {
            Passing::Passed => {
                drop(buffer);
                lane.leave();
            }
            Passing::Marked(mark) if operation.inner.lanes().can_watch() => {
                let mut ends = Some((mark, buffer));
                operation.inner.lanes().watch(Box::new(move || {
                    if ends.as_ref().is_some_and(|(mark, _)| !mark.is_passed()) {
                        return false;
                    }
                    if let Some((mark, buffer)) = ends.take() {
                        lane.leave_mark(mark);
                        drop(buffer);
                        lane.leave();
                    }
                    true
                }));
            }
            Passing::Marked(mark) => self.end_later(move |lane| {
                lane.leave_mark(mark);
                drop(buffer);
            }),
            Passing::Unknown => self.end_later(move |_| drop(buffer)),
        }
    }

    /// Once something of the stream's says that it has passed the operation. Until then its memory is not used by others.
    fn end_later(&self, end: impl FnOnce(&Lane) + Send + 'static) {
        self.operation.lane.end_when_passed(self.operation.number, Box::new(end));
    }

    fn passing(&self, lane: &Lane) -> Passing {
        if self.given.get() == 0 {
            return Passing::Passed;
        }
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
            if self.streams.is_drained(self.stream) {
                return Passing::Passed;
            }
            std::thread::sleep(LOOKS.1);
        }
        Passing::Unknown
    }
}
