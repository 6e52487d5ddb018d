//! What a program can learn about the path its bytes took, and that this is told from the open file and nothing else.

use std::process::Command;
use std::time::Duration;

use hip_emu::fault::{self, Fault, Rule, When};
use hip_emu::function::Function;
use hipfile::{Adaptive, Buffer, Driver, Fallback, File, PageCache, Reason};

use crate::support::gpu::is_emulated_hip;
use crate::support::model::{self, Door, Row};
use crate::support::{Storage, driver_with, refuse_o_direct, skip};

const SIZE: usize = 256 << 10;

fn file_on(storage: &Storage) -> std::fs::File {
    std::fs::write(storage.path("f"), vec![7; SIZE]).unwrap();
    std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap()
}

/// Reads and writes all of it, and pieces of odd places and sizes.
fn works(driver: &Driver, file: &File) {
    let mut buffer = Buffer::alloc(driver, 0, SIZE).unwrap();
    for (at, len, offset) in [(0, SIZE, 0), (1, 5000, 4097), (4096, 8192, 8192)] {
        buffer.upload(0, &vec![0; SIZE]).unwrap();
        assert_eq!(file.read_at(&mut buffer, at..at + len, offset).unwrap(), len);
        let mut bytes = vec![0; SIZE];
        buffer.download(0, &mut bytes).unwrap();
        assert!(
            bytes
                .iter()
                .enumerate()
                .all(|(n, byte)| *byte == if (at..at + len).contains(&n) { 7 } else { 0 })
        );
        assert_eq!(file.write_at(&buffer, at..at + len, offset).unwrap(), len);
    }
}

#[test]
fn behaviour_93_a_program_can_tell_whether_its_bytes_went_direct() {
    if !is_emulated_hip("it needs a runtime that moves files past the host") {
        return;
    }
    let (Some(ext4), Some(tmpfs)) = (Storage::ext4(&[]), Storage::tmpfs()) else { return };
    let driver = driver_with(&["p2p", "uring", "bounce"], |_| {});
    let files = [&ext4, &tmpfs].map(|storage| File::register(&driver, file_on(storage)).unwrap());
    // Before anything moved: which way it would be, and why.
    let before = files.each_ref().map(|file| file.info().unwrap());
    assert_eq!((before[0].engine, before[0].reason), ("p2p", None));
    assert_eq!((before[1].engine, before[1].reason), ("bounce", Some(Reason::FileSystem)));
    files.iter().for_each(|file| works(&driver, file));
    let stats = files.each_ref().map(|file| file.info().unwrap().stats);
    let bytes = |stats: &hipfile::Stats, direct: bool| -> (u64, u64) {
        let of = |side: &[hipfile::EngineStats]| {
            side.iter().filter(|engine| (engine.engine == "p2p") == direct).map(|engine| engine.bytes).sum()
        };
        (of(&stats.read), of(&stats.write))
    };
    let asked = (SIZE + 5000 + 8192) as u64;
    // Of 5000 bytes at 4097 into memory at 1, no whole block is aligned.
    assert_eq!(bytes(&stats[0], true), (asked - 5000, asked - 5000));
    assert_eq!(bytes(&stats[0], false), (5000, 5000));
    assert_eq!((bytes(&stats[1], true), bytes(&stats[1], false)), ((0, 0), (asked, asked)));
    // The process is the sum of its handles, in bytes by engine and by reason.
    let process = driver.stats();
    for direct in [true, false] {
        let parts = stats.each_ref().map(|stats| bytes(stats, direct));
        assert_eq!(bytes(&process, direct), (parts[0].0 + parts[1].0, parts[0].1 + parts[1].1));
    }
    for side in [&process.read_staged, &process.write_staged] {
        let by_reason: Vec<_> = side.iter().map(|staged| (staged.reason, staged.bytes)).collect();
        assert_eq!(by_reason, [(Reason::FileSystem, asked), (Reason::Alignment, 5000)]);
    }
}

#[test]
fn behaviour_102_the_faster_way_is_measured_taken_and_told() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    const LEN: usize = 1 << 20;
    let Some(ext4) = Storage::ext4(&[]) else { return };
    let slow = |function, millis| {
        fault::clear();
        let fault = Fault::Delay(Duration::from_millis(millis));
        fault::add(Rule { function, when: When::Every, fault });
    };
    for (adaptive, fallback) in [
        (Adaptive::All, Fallback::Allow),
        (Adaptive::Network, Fallback::Allow),
        (Adaptive::All, Fallback::Forbid),
    ] {
        let driver = driver_with(&["p2p", "uring", "bounce"], |c| {
            (c.adaptive, c.fallback) = (adaptive, fallback);
            (c.block_len, c.pool_len) = (LEN, 4 * LEN);
        });
        std::fs::write(ext4.path("f"), vec![9; LEN]).unwrap();
        let open = std::fs::File::options().read(true).write(true).open(ext4.path("f")).unwrap();
        let file = File::register(&driver, open).unwrap();
        let mut buffer = Buffer::alloc(&driver, 0, LEN).unwrap();
        let mut reads = |count: usize| {
            for _ in 0..count {
                assert_eq!(file.read_at(&mut buffer, 0..LEN, 0).unwrap(), LEN);
            }
            let mut bytes = vec![0; LEN];
            buffer.download(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 9));
            file.info().unwrap()
        };
        // By so much that a machine with a lot else to do does not turn it round.
        slow(
            Function::hipAmdFileRead,
            if adaptive == Adaptive::All && fallback == Fallback::Allow { 300 } else { 5 },
        );
        let info = reads(20);
        let moved = |name| info.stats.read.iter().find(|e| e.engine == name).map_or(0, |e| e.operations);
        if (adaptive, fallback) != (Adaptive::All, Fallback::Allow) {
            assert_eq!(
                (moved("p2p"), info.engine, info.reason),
                (20, "p2p", None),
                "{adaptive:?} {fallback:?}"
            );
            assert_eq!(info.read_rates, hipfile::Rates::default());
            continue;
        }
        assert_eq!((moved("p2p"), info.reason), (4, Some(Reason::Slower)), "{info:?}");
        assert!(info.engine != "p2p" && info.read_rates.direct < info.read_rates.staged, "{info:?}");
        let reasons: Vec<_> = info.stats.read_staged.iter().map(|r| (r.reason, r.operations)).collect();
        assert_eq!(reasons, [(Reason::Trial, 4), (Reason::Slower, 12)]);
        // By direction: nobody has written yet.
        assert_eq!(file.info().unwrap().write_rates, hipfile::Rates::default());
        // When the other way becomes the slower one, that is found out too.
        slow(Function::hipMemcpy, 20);
        // Each 64th takes the slower way; some of them may be slow for reasons of the machine's.
        let mut found = (0..10).map(|_| reads(64));
        let info = found.find(|info| info.engine == "p2p").expect("the faster way is found again");
        assert_eq!(info.reason, None, "{info:?}");
        fault::clear();
    }
}

#[test]
fn behaviour_97_files_in_memory_take_everything() {
    let in_memory = || [Storage::tmpfs(), Storage::shared_memory(), Some(Storage::memfd())];
    let engines = &["p2p", "uring", "bounce"];
    for door in [Door::Calls, Door::Streams, Door::Batches] {
        for storage in in_memory().into_iter().flatten() {
            model::run(&Row { engines, change: |_| false, door }, storage);
        }
    }
    if !is_emulated_hip("it needs a runtime that moves files past the host") {
        return;
    }
    let driver = driver_with(engines, |_| {});
    for storage in in_memory().into_iter().flatten() {
        let file = File::register(&driver, file_on(&storage)).unwrap();
        works(&driver, &file);
        let info = file.info().unwrap();
        assert!(info.storage.is_memory() && info.emulated, "{}: {info:?}", storage.name);
        assert_eq!(info.file_system.as_deref(), Some("tmpfs"), "{}, with or without a mount", storage.name);
        assert_eq!((info.engine, info.reason), ("bounce", Some(Reason::FileSystem)), "{}", storage.name);
    }
}

#[test]
fn behaviour_98_whether_there_is_o_direct_is_found_out_at_run_time() {
    if !is_emulated_hip("it needs a runtime that moves files past the host") {
        return;
    }
    let Some(ext4) = Storage::ext4(&[]) else { return };
    let open = [(); 5].map(|()| file_on(&ext4));
    refuse_o_direct();
    let settings = [PageCache::Auto, PageCache::Direct, PageCache::Buffered, PageCache::NoCache];
    let mut open = open.into_iter();
    for (page_cache, file) in settings.into_iter().zip(&mut open) {
        let driver = driver_with(&["p2p", "uring", "bounce"], |c| {
            c.page_cache = page_cache;
            (c.direct_min, c.uring_min) = (0, 0);
        });
        let file = File::register(&driver, file).unwrap();
        works(&driver, &file);
        let info = file.info().unwrap();
        assert_eq!((info.engine, info.reason), ("bounce", Some(Reason::NoDirectIo)), "{page_cache:?}");
        assert_eq!(info.private_descriptors, 1);
    }
    let driver = driver_with(&["p2p", "bounce"], |c| c.fallback = Fallback::Forbid);
    let file = File::register(&driver, open.next().unwrap()).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 4096).unwrap();
    let error = file.read_at(&mut buffer, 0..4096, 0).unwrap_err();
    assert!(error.to_string().contains("O_DIRECT"), "{error}");
    assert_eq!(fault::calls("hipAmdFileRead"), 0);
}

/// Where O_DIRECT is troublesome, as on Windows' Linux: two settings keep the library from ever asking for it.
#[test]
fn behaviour_105_o_direct_can_be_switched_off() {
    let storage = Storage::here();
    let file = file_on(&storage);
    let driver = driver_with(&["p2p", "uring", "bounce"], |c| {
        c.force_compat = true;
        c.page_cache = PageCache::Buffered;
        (c.direct_min, c.uring_min, c.parallel_min) = (0, 0, 0);
    });
    let file = File::register(&driver, file).unwrap();
    works(&driver, &file);
    let info = file.info().unwrap();
    assert_eq!((info.engine, info.reason), ("bounce", Some(Reason::Configuration)));
    let mut seen = 0;
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        let flags = i32::from_str_radix(flags, 8).unwrap();
        assert_eq!(flags & libc::O_DIRECT, 0, "{entry:?}");
        seen += 1;
    }
    assert!(seen >= 4, "{seen}");
}

/// In a container the path of a file often leads elsewhere, or nowhere: the descriptor alone decides.
#[test]
fn behaviour_154_probes_go_by_the_descriptor_alone() {
    if !is_emulated_hip("it needs a runtime that moves files past the host") {
        return;
    }
    let Some(ext4) = Storage::ext4(&[]) else { return };
    let driver = driver_with(&["p2p", "bounce"], |_| {});
    let hidden = file_on(&ext4);
    let over = ext4.folder().to_str().unwrap().to_owned();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs", &over]).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skip("a mount over the file's folder", "mounting is not allowed here");
    }
    std::fs::write(ext4.path("f"), b"another file of that name").unwrap();
    let file = File::register(&driver, hidden).unwrap();
    let told = |file: &File| {
        works(&driver, file);
        let info = file.info().unwrap();
        (info.engine, info.reason, info.storage.fs_text())
    };
    let direct = ("p2p", None, "ext4 (ordered)".to_owned());
    let under_another_mount = told(&file);
    assert!(Command::new("umount").arg(&over).status().unwrap().success());
    assert_eq!(under_another_mount, direct);
    drop(file);
    // Renamed, then without any name.
    let file = File::register(&driver, file_on(&ext4)).unwrap();
    std::fs::rename(ext4.path("f"), ext4.path("renamed")).unwrap();
    assert_eq!(told(&file), direct);
    let unnamed = File::register(
        &driver,
        std::fs::File::options().read(true).write(true).open(ext4.path("renamed")).unwrap(),
    )
    .unwrap();
    std::fs::remove_file(ext4.path("renamed")).unwrap();
    assert_eq!(told(&unnamed), direct);
}
