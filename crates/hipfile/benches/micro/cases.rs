//! The cases: a call that moves nothing, small reads beside what the kernel needs for them, look-ups and staging Blocks under 1 to
//! 64 threads.

use std::error::Error;
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;

use hipfile::bench_hooks::{Blocks, Ranges, Records};
use hipfile::{Buffer, Config, DeviceChoice, Driver, File};

use crate::timing::{Case, Plan, Step, measure};

const SMALL: usize = 4096;
/// The file that small reads roam over; it stays in the page cache.
const FILE: u64 = 16 << 20;

/// Memory as staging memory is. Copies between places that lie a few bytes apart within their pages take twice as long.
#[repr(align(4096))]
struct Page([u8; SMALL]);

pub(crate) fn all(plan: &Plan, selected: &dyn Fn(&str) -> bool) -> Result<(), Box<dyn Error>> {
    let file = tempfile::tempfile()?;
    file.set_len(FILE)?;
    for at in (0..FILE).step_by(1 << 20) {
        file.write_all_at(&[at as u8; 1 << 20], at)?;
    }
    if selected("small reads") {
        small_reads(plan, &file)?;
    }
    if selected("calls that move nothing") {
        calls(plan, &file)?;
    }
    if selected("registry") {
        registry(plan);
    }
    if selected("ranges") {
        ranges(plan);
    }
    if selected("blocks") {
        blocks(plan);
    }
    Ok(())
}

fn driver(engine: &str) -> Result<Driver, Box<dyn Error>> {
    let mut config = Config::from_env();
    config.device = DeviceChoice::Emulated;
    config.engines = Some(vec![engine.to_owned()]);
    Ok(Driver::open(config)?)
}

fn place(n: usize) -> u64 {
    // An odd multiple visits every block of the file, none after its neighbour.
    (n as u64).wrapping_mul(1_299_709) % (FILE / SMALL as u64) * SMALL as u64
}

fn read(file: &File, buffer: &mut Buffer, n: usize) {
    let moved = file.read_at(buffer, 0..SMALL, place(n));
    assert!(matches!(black_box(moved), Ok(SMALL)), "a read inside the file is whole");
}

fn small_reads(plan: &Plan, file: &std::fs::File) -> Result<(), Box<dyn Error>> {
    println!("small reads, 4 KiB from the page cache, one thread");
    let driver = driver("bounce")?;
    let registered = File::register(&driver, file.try_clone()?)?;
    let mut buffer = Buffer::alloc(&driver, 0, SMALL)?;
    let mut other = Buffer::alloc(&driver, 0, SMALL)?;
    let [mut staging, mut memory, mut more] = std::array::from_fn(|_| Box::new(Page([0; SMALL])));
    measure(
        plan,
        &mut [
            Case::one("hipfile, engine bounce", |n| read(&registered, &mut buffer, n)),
            Case::one("pread and memcpy", |n| {
                let moved = file.read_at(&mut staging.0, place(n));
                assert!(matches!(moved, Ok(SMALL)), "a read inside the file is whole");
                memory.0.copy_from_slice(&staging.0);
                black_box(&mut memory);
            }),
            Case::one("pread and copy to the emulated GPU", |n| {
                let moved = file.read_at(&mut more.0, place(n)).is_ok();
                assert!(moved && other.upload(0, &more.0).is_ok(), "a copy inside the buffer succeeds");
            }),
        ],
    );
    Ok(())
}

fn calls(plan: &Plan, file: &std::fs::File) -> Result<(), Box<dyn Error>> {
    println!(
        "calls that move nothing: look-up, checks, choice of an engine, counting; engine null, one file"
    );
    let driver = driver("null")?;
    let registered = File::register(&driver, file.try_clone()?)?;
    let mut buffers =
        (0..plan.threads).map(|_| Buffer::alloc(&driver, 0, SMALL)).collect::<hipfile::Result<Vec<_>>>()?;
    for threads in doubling(plan) {
        let steps = buffers.iter_mut().take(threads).map(|buffer| {
            let registered = &registered;
            Box::new(move |n| read(registered, buffer, n)) as Step<'_>
        });
        measure(plan, &mut [Case { name: with(threads), steps: steps.collect() }]);
    }
    Ok(())
}

fn registry(plan: &Plan) {
    println!("registry: one look-up in 1000 records");
    let records = Records::new(1000);
    for threads in doubling(plan) {
        let same = steps(threads, |_| assert!(black_box(records.look_up(0)).is_some(), "it is registered"));
        let other = steps(threads, |n| assert!(black_box(records.look_up(n)).is_some(), "it is registered"));
        let name = with(threads);
        measure(
            plan,
            &mut [
                Case { name: format!("{name}, all the same record"), steps: same },
                Case { name: format!("{name}, one after the other"), steps: other },
            ],
        );
    }
}

fn ranges(plan: &Plan) {
    println!("ranges: registered memory by address, among few and among many; one thread");
    let all = [100, 1000, 10_000, 100_000].map(|count| (count, Ranges::new(count)));
    let mut cases = Vec::new();
    for (count, ranges) in &all {
        cases.push(Case::one(&format!("one look-up in {count}"), |n| {
            assert!(black_box(ranges.look_up(n)), "it is there");
        }));
    }
    for (count, ranges) in &all {
        cases.push(Case::one(&format!("one out and in again, of {count}"), |n| {
            assert!(ranges.renew(n), "it was there");
        }));
    }
    measure(plan, &mut cases);
}

fn blocks(plan: &Plan) {
    println!("blocks: one taken and returned, from a pool of 64 of 1 MiB");
    let blocks = Blocks::new(1 << 20, 64 << 20);
    for threads in doubling(plan) {
        let steps = steps(threads, |_| assert!(blocks.take_and_return(), "there is memory"));
        measure(plan, &mut [Case { name: with(threads), steps }]);
    }
}

fn steps<'a>(threads: usize, step: impl Fn(usize) + Send + Sync + Copy + 'a) -> Vec<Step<'a>> {
    (0..threads).map(|_| Box::new(step) as Step<'a>).collect()
}

fn doubling(plan: &Plan) -> impl Iterator<Item = usize> {
    let most = plan.threads;
    std::iter::successors(Some(1), |n| Some(n * 2)).take_while(move |n| *n <= most)
}

fn with(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}
