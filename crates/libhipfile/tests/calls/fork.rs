//! The child of a fork starts afresh and never touches what its parent had, not even a lock that was held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;

/// Runs `body` in a forked child; it must return true within ten seconds. A child that hangs is killed and said.
#[track_caller]
pub(crate) fn in_child(body: impl FnOnce() -> bool) {
    assert_eq!(status_of_child(body), 0, "the child failed");
}

/// As [`in_child`], and gives the status with which the child ended: 0 when `body` returned true.
#[track_caller]
pub(crate) fn status_of_child(body: impl FnOnce() -> bool) -> c_int {
    // SAFETY: the child runs only `body` and _exit. It may allocate: glibc makes its allocator usable in the child.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(if passed { 0 } else { 1 }) };
    }
    assert!(pid > 0);
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut status = 0;
    loop {
        // SAFETY: `status` may be written to.
        let done = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        if done == pid {
            break;
        }
        if Instant::now() > deadline {
            // SAFETY: the child is ours and has not been waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    status
}

#[test]
fn the_child_knows_nothing_of_the_parents() {
    start();
    ok(hipFileDriverOpen());
    ok(hipFileDriverOpen());
    let (_file, handle) = registered_file(b"0123456789");
    let device = Device::new(4096, 0);
    ok(register_memory(device.start, 4096));
    in_child(|| {
        let closed = hipFileUseCount() == 0
            && read(handle, device.start, 10, 0, 0) == (-1, libc::EINVAL)
            && write(handle, device.start, 10, 0, 0) == (-1, libc::EINVAL)
            && code(hipFileBufDeregister(device.start)) == hipFileDriverClosing
            && code(hipFileDriverClose()) == hipFileDriverNotInitialized;
        hipFileHandleDeregister(handle);
        ok(hipFileDriverOpen());
        let fresh = hipFileUseCount() == 1
            && read(handle, device.start, 10, 0, 0).0 == -(hipFileHandleNotRegistered.0 as isize)
            && code(hipFileBufDeregister(device.start)) == hipFileMemoryNotRegistered;
        ok(hipFileDriverClose());
        closed && fresh && hipFileUseCount() == 0
    });
    // The parent goes on as if nothing had happened.
    assert_eq!(hipFileUseCount(), 2);
    assert_eq!(read(handle, device.start, 10, 0, 0), (10, MARK));
}

#[test]
fn the_child_can_register_the_parents_descriptors_under_new_handles() {
    start();
    let (file, handle) = registered_file(b"0123456789");
    in_child(|| {
        let new = register(file.as_raw_fd()).unwrap();
        new != handle && hipFileUseCount() == 1
    });
    assert_eq!(hipFileUseCount(), 1);
}

#[test]
fn a_fork_while_other_threads_are_inside_does_not_block_the_child() {
    start();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let file = file(b"x");
                while !stop.load(Ordering::Relaxed) {
                    ok(hipFileDriverOpen());
                    if let Ok(handle) = register(file.as_raw_fd()) {
                        hipFileHandleDeregister(handle);
                    }
                    ok(hipFileDriverClose());
                }
            });
        }
        for _ in 0..50 {
            in_child(|| {
                let before = hipFileUseCount();
                ok(hipFileDriverOpen());
                let during = hipFileUseCount();
                ok(hipFileDriverClose());
                (before, during, hipFileUseCount()) == (0, 1, 0)
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(hipFileUseCount(), 0);
}

#[test]
fn a_fork_before_the_first_call_is_harmless() {
    start();
    in_child(|| {
        ok(hipFileDriverOpen());
        hipFileUseCount() == 1
    });
    assert_eq!(hipFileUseCount(), 0);
}

#[test]
fn a_childs_child_starts_afresh_too() {
    start();
    ok(hipFileDriverOpen());
    in_child(|| {
        ok(hipFileDriverOpen());
        ok(hipFileDriverOpen());
        in_child(|| hipFileUseCount() == 0 && code(hipFileDriverClose()) == hipFileDriverNotInitialized);
        hipFileUseCount() == 2
    });
    assert_eq!(hipFileUseCount(), 1);
}
