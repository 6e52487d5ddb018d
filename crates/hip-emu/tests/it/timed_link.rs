//! The timed link, in processes of its own since it changes what copies are.

use std::time::{Duration, Instant};

use gpu_sys::hip::{MEMCPY_DEFAULT, STREAM_NON_BLOCKING};

use crate::support::*;

#[test]
fn timed_link() {
    assert!(!hip_emu::is_timed_link() || std::env::args().any(|argument| argument == "--ignored"));
    child_passes("timed_link::child_with_a_link", &[("HIP_EMU_LINK", "0.1,100")]);
}

#[test]
#[ignore = "needs a timed link: run by timed_link"]
fn child_with_a_link() {
    // 0.1 GB/s: 100 ms for these, and 0.1 ms for each copy.
    const LEN: usize = 10_000_000;
    let api = hip_emu::api();
    assert!(hip_emu::is_timed_link());
    let mut name = [0i8; 64];
    ok!((api.hipDeviceGetName)(name.as_mut_ptr(), 64, 0));
    // SAFETY: the name ends in NUL.
    let name = unsafe { core::ffi::CStr::from_ptr(name.as_ptr()) }.to_str().unwrap();
    assert!(name.contains("bytes are not moved"), "{name}");

    let (device, host) = (malloc(api, LEN), pinned(api, LEN));
    let mut plain = vec![1u8; LEN];
    host.fill(2);
    let time = |f: &mut dyn FnMut()| {
        let start = Instant::now();
        f();
        start.elapsed()
    };
    // Pageable copies stay copies.
    write(api, device, &plain);
    // Pinned ones take their time and move nothing.
    let took = time(&mut || ok!((api.hipMemcpy)(device, host.as_ptr().cast(), LEN, MEMCPY_DEFAULT)));
    assert!(took >= Duration::from_micros(100_100) && took < Duration::from_millis(400), "{took:?}");
    ok!((api.hipMemcpy)(plain.as_mut_ptr().cast(), device, LEN, MEMCPY_DEFAULT));
    assert!(plain.iter().all(|byte| *byte == 1));

    // Queued ones return at once. Two of one direction share the link.
    let (up, down) = (stream(api, STREAM_NON_BLOCKING), stream(api, STREAM_NON_BLOCKING));
    let took = time(&mut || {
        let queued = time(&mut || {
            copy_async(api, device, host.as_ptr().cast(), LEN, up);
            copy_async(api, device, host.as_ptr().cast(), LEN, down);
        });
        assert!(queued < Duration::from_millis(90), "{queued:?}");
        ok!((api.hipDeviceSynchronize)());
    });
    assert!(took >= Duration::from_micros(200_100) && took < Duration::from_millis(600), "{took:?}");
    // The other direction works besides.
    let took = time(&mut || {
        copy_async(api, device, host.as_ptr().cast(), LEN, up);
        copy_async(api, host.as_mut_ptr().cast(), device, LEN, down);
        ok!((api.hipDeviceSynchronize)());
    });
    assert!(took >= Duration::from_micros(100_100) && took < Duration::from_millis(190), "{took:?}");
}
