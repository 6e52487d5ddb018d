//! What a small copy costs beside plain memcpy. Printed, not asserted: machines differ.

use std::hint::black_box;
use std::time::Instant;

use gpu_sys::hip::MEMCPY_HOST_TO_DEVICE;

use crate::support::*;

#[test]
fn cost_of_a_small_copy() {
    const ROUNDS: u32 = 20_000;
    const LEN: usize = 4096;
    let api = hip();
    let device = malloc(api, LEN);
    // Not the same place within their pages: that alone makes a copy many times slower on some processors.
    let (source, mut spare) = (vec![1u8; LEN], vec![0u8; 2 * LEN]);
    let offset = (source.as_ptr().addr() + LEN / 2).wrapping_sub(spare.as_ptr().addr()) % LEN;
    let target = &mut spare[offset..offset + LEN];
    let per_call = |f: &mut dyn FnMut()| {
        (0..5)
            .map(|_| {
                let start = Instant::now();
                (0..ROUNDS).for_each(|_| f());
                start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
            })
            .fold(f64::INFINITY, f64::min)
    };
    let plain = per_call(&mut || black_box(&mut *target).copy_from_slice(black_box(&source)));
    let copied =
        per_call(&mut || ok!((api.hipMemcpy)(device, source.as_ptr().cast(), LEN, MEMCPY_HOST_TO_DEVICE)));
    eprintln!("{LEN}-byte copy: memcpy {plain:.0} ns, hipMemcpy {copied:.0} ns");
    assert_eq!(read(api, device, LEN), source);
    free(api, device);
}
