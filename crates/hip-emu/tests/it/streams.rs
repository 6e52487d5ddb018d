//! Streams: order, shared queues, host functions, and what a call from inside one does.

use core::ffi::c_void;
use std::os::unix::process::ExitStatusExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gpu_sys::hip::{STREAM_DEFAULT, STREAM_NON_BLOCKING, STREAM_PER_THREAD, StreamPtr};

use crate::support::*;

/// Appends a number to the list in `user_data`.
struct Note<'a>(&'a Mutex<Vec<u32>>, u32);

unsafe extern "C" fn note(user_data: *mut c_void) {
    // SAFETY: the tests pass a boxed Note, once.
    let note = unsafe { Box::from_raw(user_data.cast::<Note<'_>>()) };
    note.0.lock().unwrap().push(note.1);
}

fn launch(api: &gpu_sys::hip::HipApi, stream: StreamPtr, list: &Mutex<Vec<u32>>, number: u32) {
    let user_data = Box::into_raw(Box::new(Note(list, number)));
    ok!((api.hipLaunchHostFunc)(stream, Some(note), user_data.cast()));
}

#[test]
fn a_stream_keeps_its_order() {
    let api = hip();
    let stream = stream(api, STREAM_NON_BLOCKING);
    let list = Mutex::default();
    for number in 0..500 {
        launch(api, stream, &list, number);
    }
    ok!((api.hipStreamSynchronize)(stream));
    assert!(is_done(api, stream));
    assert!(list.lock().unwrap().iter().copied().eq(0..500));
    ok!((api.hipStreamDestroy)(stream));
}

#[test]
fn a_held_stream_holds_what_shares_its_queue_and_nothing_else() {
    let api = own();
    let word = word(api);
    let list = Mutex::default();
    // Four queues, the first with the default stream too: streams 0 and 4 share one, as do 3 and the default stream.
    let streams: Vec<_> = (0..5).map(|_| stream(api, STREAM_NON_BLOCKING)).collect();
    hold(api, streams[0], word);
    for (number, stream) in streams.iter().enumerate() {
        launch(api, *stream, &list, number as u32);
    }
    for other in &streams[1..4] {
        ok!((api.hipStreamSynchronize)(*other));
    }
    assert_held(api, streams[4]);
    assert_held(api, streams[0]);
    let mut done = list.lock().unwrap().clone();
    done.sort_unstable();
    assert_eq!(done, [1, 2, 3]);
    release(word);
    ok!((api.hipStreamSynchronize)(streams[4]));
    assert_eq!(list.lock().unwrap()[3..], [0, 4]);

    // And a stream that does not wait for the default stream is held with it all the same.
    let word = self::word(api);
    hold(api, NULL, word);
    launch(api, streams[3], &list, 9);
    assert_held(api, streams[3]);
    release(word);
    ok!((api.hipStreamSynchronize)(streams[3]));
}

#[test]
fn a_full_queue_makes_who_submits_wait() {
    child_passes("streams::child_with_a_short_queue", &[("HIP_EMU_QUEUE_LIMIT", "4")]);
}

#[test]
#[ignore = "needs an option of its own: run by a_full_queue_makes_who_submits_wait"]
fn child_with_a_short_queue() {
    let api = hip_emu::api();
    let word = word(api);
    let (list, submitted) = (Mutex::default(), AtomicUsize::new(0));
    let (held, other) = (stream(api, STREAM_NON_BLOCKING) as usize, stream(api, STREAM_NON_BLOCKING));
    hold(api, held as StreamPtr, word);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..20 {
                launch(api, held as StreamPtr, &list, number);
                submitted.fetch_add(1, Ordering::SeqCst);
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(submitted.load(Ordering::SeqCst) <= 3, "the wait and three functions fill the queue");
        // Another queue takes work meanwhile.
        launch(api, other, &list, 100);
        ok!((api.hipStreamSynchronize)(other));
        release(word);
    });
    ok!((api.hipStreamSynchronize)(held as StreamPtr));
    assert!(list.lock().unwrap().iter().copied().eq(std::iter::once(100).chain(0..20)));
}

#[test]
fn with_one_queue_everything_is_held_at_once() {
    child_passes("streams::child_with_one_queue", &[("HIP_EMU_QUEUES", "1")]);
}

#[test]
#[ignore = "needs a machine with one queue: run by with_one_queue_everything_is_held_at_once"]
fn child_with_one_queue() {
    let api = hip_emu::api();
    let word = word(api);
    let list = Mutex::default();
    let (first, second) = (stream(api, STREAM_NON_BLOCKING), stream(api, STREAM_NON_BLOCKING));
    hold(api, first, word);
    launch(api, second, &list, 1);
    assert_held(api, second);
    release(word);
    ok!((api.hipStreamSynchronize)(second));
    assert_eq!(*list.lock().unwrap(), [1]);
}

#[test]
fn host_functions_run_elsewhere_and_hold_their_stream() {
    let api = own();
    let stream = stream(api, STREAM_NON_BLOCKING);
    let list = Mutex::default();
    let held_back = list.lock().unwrap();
    // Were it run on this thread it would wait for the lock that this thread has.
    launch(api, stream, &list, 1);
    assert_held(api, stream);
    drop(held_back);
    ok!((api.hipStreamSynchronize)(stream));
    assert_eq!(*list.lock().unwrap(), [1]);
    gives!(INVALID_VALUE, (api.hipLaunchHostFunc)(stream, None, core::ptr::null_mut()));
}

#[test]
fn queue_threads_have_names_and_block_signals() {
    unsafe extern "C" fn look(user_data: *mut c_void) {
        let mut blocked = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: without a new set the call only writes the present one.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), blocked.as_mut_ptr()) };
        // SAFETY: written just now.
        let blocked = unsafe { blocked.assume_init() };
        let all_blocked = [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGALRM].iter().all(|signal| {
            // SAFETY: the set is initialised, the signals exist.
            unsafe { libc::sigismember(&raw const blocked, *signal) == 1 }
        });
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        // SAFETY: the test passes the address of its own variable and waits.
        let answer = unsafe { &mut *user_data.cast::<(String, bool)>() };
        *answer = (name, all_blocked);
    }
    let api = hip();
    let mut answer = (String::new(), false);
    ok!((api.hipLaunchHostFunc)(NULL, Some(look), (&raw mut answer).cast()));
    ok!((api.hipStreamSynchronize)(NULL));
    assert_eq!(answer.0, format!("hip-emu-q{}.0", current(api)));
    assert!(answer.1);
}

#[test]
fn hip_called_from_a_host_function_ends_the_process() {
    let output = child("streams::child_that_calls_hip_from_a_host_function", &[]);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("hipGetDevice was called from inside a host function"), "{said}");
}

#[test]
#[ignore = "ends its process: run by hip_called_from_a_host_function_ends_the_process"]
fn child_that_calls_hip_from_a_host_function() {
    unsafe extern "C" fn misbehave(_: *mut c_void) {
        // Texts of errors may be asked for anywhere.
        // SAFETY: nothing to keep.
        unsafe { (hip_emu::api().hipGetErrorName)(gpu_sys::hip::HipError::SUCCESS) };
        let mut device = 0;
        // SAFETY: the pointer is valid; the call is the forbidden one.
        unsafe { (hip_emu::api().hipGetDevice)(&raw mut device) };
    }
    let api = hip_emu::api();
    ok!((api.hipLaunchHostFunc)(NULL, Some(misbehave), core::ptr::null_mut()));
    ok!((api.hipStreamSynchronize)(NULL));
}

#[test]
fn a_destroyed_stream_still_does_its_work() {
    let api = own();
    let word = word(api);
    let list = Mutex::default();
    let (first, after) = (stream(api, STREAM_NON_BLOCKING), event(api));
    hold(api, first, word);
    launch(api, first, &list, 7);
    ok!((api.hipEventRecord)(after, first));
    ok!((api.hipStreamDestroy)(first));
    gives!(CONTEXT_IS_DESTROYED, (api.hipStreamQuery)(first));
    gives!(CONTEXT_IS_DESTROYED, (api.hipStreamDestroy)(first));
    gives!(NOT_READY, (api.hipEventQuery)(after));
    release(word);
    ok!((api.hipEventSynchronize)(after));
    assert_eq!(*list.lock().unwrap(), [7]);
}

#[test]
fn default_streams_cannot_be_destroyed() {
    let api = hip();
    for handle in [0, 1, 2] {
        gives!(INVALID_HANDLE, (api.hipStreamDestroy)(core::ptr::without_provenance_mut(handle)));
    }
    gives!(INVALID_VALUE, (api.hipStreamCreateWithFlags)(core::ptr::null_mut(), 0));
    let mut made = NULL;
    gives!(INVALID_VALUE, (api.hipStreamCreateWithFlags)(&raw mut made, 2));
}

#[test]
fn what_a_stream_says_of_itself() {
    let api = hip();
    let device = current(api);
    let stream = stream(api, STREAM_NON_BLOCKING);
    let (mut flags, mut at, mut priority) = (99, -1, 99);
    let get_device = api.hipStreamGetDevice.unwrap();
    ok!((api.hipStreamGetFlags)(stream, &raw mut flags));
    assert_eq!(flags, STREAM_NON_BLOCKING);
    gives!(INVALID_VALUE, (api.hipStreamGetFlags)(NULL, &raw mut flags));
    ok!((api.hipStreamGetFlags)(core::ptr::without_provenance_mut(STREAM_PER_THREAD), &raw mut flags));
    assert_eq!(flags, STREAM_DEFAULT);
    on((device as usize + 1) % SHARED);
    ok!(get_device(stream, &raw mut at));
    assert_eq!(at, device);
    ok!(get_device(NULL, &raw mut at));
    assert_eq!(at, current(api));
    let mut urgent = NULL;
    ok!(hip_emu::stream::hipStreamCreateWithPriority(&raw mut urgent, 0, -100));
    ok!(hip_emu::stream::hipStreamGetPriority(urgent, &raw mut priority));
    assert_eq!(priority, -1);
}

#[test]
fn synchronising_the_default_stream_waits_for_blocking_streams() {
    let api = own();
    let word = word(api);
    let held = stream(api, STREAM_DEFAULT);
    hold(api, held, word);
    gives!(NOT_READY, (api.hipStreamQuery)(NULL));
    assert_waits(api, word, || ok!((api.hipStreamSynchronize)(NULL)));
    ok!((api.hipStreamQuery)(NULL));
}

#[test]
fn device_synchronise_waits_for_everything() {
    let api = own();
    let word = word(api);
    let held = stream(api, STREAM_NON_BLOCKING);
    hold(api, held, word);
    assert_waits(api, word, || ok!((api.hipDeviceSynchronize)()));
    assert!(is_done(api, held));
}

#[test]
fn creating_a_stream_waits_only_where_told() {
    let api = own();
    let word = word(api);
    let held = stream(api, STREAM_NON_BLOCKING);
    hold(api, held, word);
    assert_returns(|| stream(api, STREAM_NON_BLOCKING));
    release(word);
    child_passes("streams::child_whose_stream_creation_waits", &[("HIP_EMU_STREAM_CREATE", "wait")]);
}

#[test]
#[ignore = "needs an option of its own: run by creating_a_stream_waits_only_where_told"]
fn child_whose_stream_creation_waits() {
    let api = hip_emu::api();
    let word = word(api);
    let held = stream(api, STREAM_NON_BLOCKING);
    hold(api, held, word);
    assert_waits(api, word, || _ = stream(api, STREAM_NON_BLOCKING));
}
