//! Waits on a plain thread for what the runtime does. Unlike the runtime's own way it may borrow, and works on any thread, a
//! runtime's included.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tokio::runtime::Handle;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for `future`, whose timers and connections the runtime's threads serve.
pub(crate) fn wait<F: Future>(runtime: &Handle, future: F) -> F::Output {
    let _inside = runtime.enter();
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}
