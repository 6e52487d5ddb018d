//! Every kind of memory with every kind of file that this machine has, by every door, against a plain model. The bytes of
//! each memory are its own, so that a neighbour's cannot pass.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;

use hipfile::{Buffer, Config, FileId, Op};
use test_support::fuse;

use crate::support::doors::{Ask, Door, Doors};
use crate::support::gpu::is_emulated_hip;
use crate::support::memory::{Kind, Memory};
use crate::support::streams::Watchdog;
use crate::support::{HugePages, Random, Storage, driver_with, operations, skip};

/// Usable bytes of each memory: beyond the second border of one that is mapped in pieces of 2 MiB.
const SPACE: usize = (2 << 20) + 20_000;
/// How long files are at first.
const LEN: usize = 3 << 20;

/// A file of some kind, and what it must hold.
struct Subject {
    name: String,
    file: std::fs::File,
    content: Vec<u8>,
    /// Whether it is as long as it is.
    fixed: bool,
    writable: bool,
    /// What must outlive it.
    _keep: Option<Storage>,
    _pages: Option<HugePages>,
    undo: Option<Vec<String>>,
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Some(command) = self.undo.take() {
            let _ = Command::new(&command[0]).args(&command[1..]).status();
        }
    }
}

impl Subject {
    fn new(name: &str, file: std::fs::File, content: Vec<u8>, keep: Option<Storage>) -> Subject {
        file.write_all_at(&content, 0).unwrap();
        Subject {
            name: name.into(),
            file,
            content,
            fixed: false,
            writable: true,
            _keep: keep,
            _pages: None,
            undo: None,
        }
    }

    /// A regular file of random bytes there.
    fn regular(storage: Storage, random: &mut Random) -> Subject {
        let file = open(&storage, 0);
        Subject::new(&storage.name.clone(), file, bytes(random, LEN), Some(storage))
    }

    /// The same, and the caller's descriptor is O_DIRECT.
    fn around(storage: Storage, random: &mut Random) -> Option<Subject> {
        let mut subject = Subject::regular(storage, random);
        let mut options = std::fs::File::options();
        options.read(true).write(true).custom_flags(libc::O_DIRECT);
        let name = format!("{}, O_DIRECT", subject.name);
        match options.open(format!("/proc/self/fd/{}", subject.file.as_raw_fd())) {
            Ok(file) => {
                (subject.file, subject.name) = (file, name);
                Some(subject)
            }
            Err(error) => {
                skip(&name, &error.to_string());
                None
            }
        }
    }
}

fn open(storage: &Storage, flags: i32) -> std::fs::File {
    let mut options = std::fs::File::options();
    options.read(true).write(true).create(true).truncate(true).custom_flags(flags);
    options.open(storage.path("file")).unwrap()
}

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut all = vec![0; len];
    random.fill(&mut all);
    all
}

fn run(command: &[&str]) -> std::result::Result<String, String> {
    let output = Command::new(command[0]).args(&command[1..]).output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// A block device over a file.
fn block(random: &mut Random) -> Option<Subject> {
    let storage = Storage::here();
    let image = storage.path("image");
    std::fs::File::create(&image).unwrap().set_len(LEN as u64).unwrap();
    let device = match run(&["losetup", "-f", "--show", image.to_str().unwrap()]) {
        Ok(device) => device,
        Err(why) => {
            skip("a block device", &why);
            return None;
        }
    };
    let undo = ["losetup", "-d", &device].map(str::to_owned).to_vec();
    let file = match std::fs::File::options().read(true).write(true).open(&device) {
        Ok(file) => file,
        Err(error) => {
            skip("a block device", &error.to_string());
            let _ = run(&["losetup", "-d", &device]);
            return None;
        }
    };
    let mut subject = Subject::new("a block device", file, bytes(random, LEN), Some(storage));
    subject.fixed = true;
    subject.undo = Some(undo);
    Some(subject)
}

/// A file of huge pages: it is read by read(2), and written through a mapping only.
fn huge(random: &mut Random) -> Option<Subject> {
    const LEN: usize = 4 << 20;
    let pages = match HugePages::take(LEN as u64 >> 21) {
        Ok(pages) => pages,
        Err(why) => {
            skip("hugetlbfs", &why);
            return None;
        }
    };
    let storage = Storage::hugetlbfs()?;
    let file = open(&storage, 0);
    file.set_len(LEN as u64).unwrap();
    let content = bytes(random, LEN);
    // SAFETY: a new mapping, nowhere in particular.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), LEN, libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if at == libc::MAP_FAILED {
        skip("hugetlbfs", &std::io::Error::last_os_error().to_string());
        return None;
    }
    // SAFETY: the mapping is that long, and this test's own.
    unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), at.cast(), LEN) };
    // SAFETY: mapped just now, and used no more.
    unsafe { libc::munmap(at, LEN) };
    Some(Subject {
        name: "hugetlbfs".into(),
        file,
        content,
        fixed: true,
        writable: false,
        _keep: Some(storage),
        _pages: Some(pages),
        undo: None,
    })
}

/// What regular files lie on.
fn storages() -> impl Iterator<Item = Storage> {
    let all = [
        Some(Storage::here()),
        Storage::ext4(&[]),
        Storage::xfs(),
        Storage::btrfs(),
        Storage::overlay(),
        Storage::tmpfs(),
        Storage::shared_memory(),
        Some(Storage::memfd()),
    ];
    all.into_iter().flatten()
}

/// Every kind that this machine has.
fn subjects(random: &mut Random) -> Vec<Subject> {
    let mut all = Vec::new();
    all.extend(storages().map(|storage| Subject::regular(storage, random)));
    all.extend(storages().filter_map(|storage| Subject::around(storage, random)));
    let storage = Storage::here();
    let sparse = open(&storage, 0);
    sparse.set_len(LEN as u64).unwrap();
    sparse.write_all_at(b"an island", 1_500_000).unwrap();
    let mut content = vec![0; LEN];
    content[1_500_000..][..9].copy_from_slice(b"an island");
    let made = Subject {
        name: "sparse".into(),
        file: sparse,
        content,
        fixed: false,
        writable: true,
        _keep: Some(storage),
        _pages: None,
        undo: None,
    };
    all.push(made);
    let storage = Storage::here();
    let unlinked = open(&storage, 0);
    std::fs::remove_file(storage.path("file")).unwrap();
    all.push(Subject::new("unlinked", unlinked, bytes(random, LEN), Some(storage)));
    let storage = Storage::here();
    let mut options = std::fs::File::options();
    match options.read(true).write(true).custom_flags(libc::O_TMPFILE).open(storage.folder()) {
        Ok(file) => all.push(Subject::new("O_TMPFILE", file, bytes(random, LEN), Some(storage))),
        Err(error) => skip("O_TMPFILE", &error.to_string()),
    }
    if let Some(storage) = Storage::fuse() {
        // Its one file is there from the start.
        let file = std::fs::File::options().read(true).write(true).open(storage.path(fuse::NAME)).unwrap();
        all.push(Subject::new("FUSE", file, bytes(random, LEN), Some(storage)));
    }
    all.extend(block(random));
    all.extend(huge(random));
    all
}

/// Random operations of one memory on one file, by one door.
fn roam(
    doors: &Doors,
    door: Door,
    (subject, id): (&mut Subject, FileId),
    memory: &mut Memory,
    random: &mut Random,
) {
    let what = format!("{:?} memory, {}, {door:?}", memory.kind, subject.name);
    let edges = [0, 1, 511, 4096, 4097, 65_536, 300_000, 1 << 20, 2 << 20];
    for _ in 0..operations(6) {
        let len = (random.one_of(&edges) + random.below(3)).min(SPACE);
        let mut at = random.one_of(&[0, 4096, 5000, 9000, SPACE]).min(SPACE - len);
        // Usually at the same place in a block of memory as in one of the file.
        let mut offset = random.below(subject.content.len() + 10);
        if random.below(3) > 0 {
            offset = offset / 4096 * 4096 + (memory.ptr().0 + at) % 4096;
        }
        if random.below(2) == 0 && memory.ptr().0.is_multiple_of(4096) {
            (at, offset) = (at / 4096 * 4096, offset / 4096 * 4096);
        }
        let write = random.below(2) == 0;
        if write && !subject.writable {
            continue;
        }
        let room = subject.content.len().saturating_sub(offset);
        let len = if write && subject.fixed { len.min(room) } else { len };
        if at >= SPACE {
            continue;
        }
        let op = if write { Op::Write } else { Op::Read };
        let result = doors.transfer(door, op, id, Ask { ptr: memory.ptr(), len, at, offset });
        let due = if write { len } else { room.min(len) };
        assert_eq!(
            result.map_err(|e| e.to_string()),
            Ok(due),
            "{what}: {op:?} {len} at {offset}, memory {at}"
        );
        if write {
            let end = subject.content.len().max(if len > 0 { offset + len } else { 0 });
            subject.content.resize(end, 0);
            subject.content[offset.min(end)..][..len].copy_from_slice(memory.known(at, len));
            // Other bytes, so that a read that moves nothing is noticed.
            let fresh = bytes(random, 3000);
            memory.fill(random.below(SPACE - 3000), &fresh);
        } else {
            let from = offset.min(subject.content.len());
            let there = subject.content[from..][..due].to_vec();
            memory.expect(at, &there);
        }
    }
    memory.check(&what);
    let mut now = vec![0; subject.content.len()];
    // A plain descriptor would do, but the file's own may be O_DIRECT: so by the library of the system, aligned.
    read_plainly(&subject.file, &mut now);
    if let Some(bad) = (0..now.len()).find(|n| now[*n] != subject.content[*n]) {
        panic!("{what}: byte {bad} of the file is {} and not {}", now[bad], subject.content[bad]);
    }
}

/// All of a file, by another description that is not O_DIRECT where there is one.
fn read_plainly(file: &std::fs::File, to: &mut [u8]) {
    let again = std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    again.as_ref().unwrap_or(file).read_exact_at(to, 0).unwrap();
}

#[test]
fn behaviour_107_every_kind_of_memory_goes_with_every_kind_of_file() {
    if !is_emulated_hip("it allocates by HIP's functions") {
        return;
    }
    let mut random = Random::new();
    let subjects = subjects(&mut random);
    all_with_all(Kind::ALL, subjects, &["p2p", "uring", "bounce"], &mut random);
}

/// An APU's, which the kernel reaches too: nothing is copied by the GPU.
#[test]
fn behaviour_107_behaviour_158_memory_of_an_apu_goes_with_every_kind_of_file() {
    if !is_emulated_hip("it makes an emulated GPU that shares memory") {
        return;
    }
    // SAFETY: set before the emulation reads it, while this process has one thread of interest.
    unsafe { std::env::set_var("HIP_EMU_INTEGRATED", "all") };
    let mut random = Random::new();
    let subjects = subjects(&mut random);
    all_with_all(&Kind::ALL[..4], subjects, &["uring", "bounce"], &mut random);
}

fn all_with_all(kinds: &[Kind], subjects: Vec<Subject>, engines: &[&str], random: &mut Random) {
    let _watchdog = Watchdog::new(600);
    let doors = Doors::new(driver_with(engines, |c: &mut Config| {
        c.allow_system_memory = true;
        c.direct_min = 60_000;
    }));
    let mut done = 0;
    let mut memories: Vec<_> =
        kinds.iter().zip(1..).map(|(kind, n)| Memory::new(*kind, SPACE, 17 * n)).collect();
    for mut subject in subjects {
        let id = doors.driver.register_file(subject.file.as_raw_fd()).unwrap();
        for memory in &mut memories {
            if random.below(2) == 0 {
                // SAFETY: the memory outlives the registration.
                unsafe { doors.driver.register_buffer(memory.ptr(), SPACE, 0) }.unwrap();
            }
            for door in Door::ALL {
                roam(&doors, door, (&mut subject, id), memory, random);
                done += 1;
            }
            let _ = doors.driver.deregister_buffer(memory.ptr());
        }
        doors.driver.deregister_file(id).unwrap();
        eprintln!("{}: well", subject.name);
    }
    assert!(memories.iter().any(|memory| memory.kind.is_device()));
    memories.iter().for_each(|memory| memory.check("at the end"));
    eprintln!("{done} combinations");
}

#[test]
fn behaviour_107_a_block_device_ends_where_it_ends() {
    let mut random = Random::new();
    let Some(subject) = block(&mut random) else { return };
    let end = LEN;
    let doors = Doors::new(driver_with(&["p2p", "uring", "bounce"], |c| c.direct_min = 4096));
    let id = doors.driver.register_file(subject.file.as_raw_fd()).unwrap();
    let mut buffer = Buffer::alloc(&doors.driver, 0, 1 << 20).unwrap();
    let ask = |offset, len| Ask { ptr: buffer.ptr(), len, at: 0, offset };
    for door in Door::ALL {
        for (offset, len, due) in [
            (end - 4096, 1 << 20, 4096),
            (end - 4097, 8192, 4097),
            (end - 1, 1, 1),
            (end - 1, 4096, 1),
            (end, 1, 0),
            (end + 4096, 4096, 0),
            (0, 1 << 20, 1 << 20),
        ] {
            let read = doors.transfer(door, Op::Read, id, ask(offset, len));
            assert_eq!(read.map_err(|e| e.to_string()), Ok(due), "{door:?}: {len} at {offset}");
            let mut bytes = vec![0; due];
            buffer.download(0, &mut bytes).unwrap();
            assert!(bytes == subject.content[end.min(offset)..][..due], "{door:?}: {len} at {offset}");
        }
    }
    buffer.upload(0, &vec![9; 1 << 20]).unwrap();
    // As pwrite(2) has it: what fits, and ENOSPC where nothing does.
    let ask = |offset, len| Ask { ptr: buffer.ptr(), len, at: 0, offset };
    for door in Door::ALL {
        let written = |offset, len| doors.transfer(door, Op::Write, id, ask(offset, len)).unwrap();
        assert_eq!(written(end - 4096, 4096), 4096, "{door:?}");
        assert_eq!(written(end - 4096, 8192), 4096, "{door:?}");
        assert_eq!(written(end - 5, 100), 5, "{door:?}");
        for offset in [end, end + 4096] {
            let errno = doors.errno(door, Op::Write, id, ask(offset, 4096));
            assert_eq!(errno, Some(libc::ENOSPC), "{door:?} at {offset}");
        }
    }
}

#[test]
fn behaviour_107_a_file_that_grows_is_read_as_far_as_it_is_long() {
    for door in Door::ALL {
        let doors = Doors::new(driver_with(&["p2p", "uring", "bounce"], |c| c.direct_min = 4096));
        let storage = Storage::here();
        let file = open(&storage, 0);
        let id = doors.driver.register_file(file.as_raw_fd()).unwrap();
        let mut buffer = Buffer::alloc(&doors.driver, 0, 1 << 20).unwrap();
        buffer.upload(0, &vec![0; 1 << 20]).unwrap();
        let pattern = |n: usize| (n % 249) as u8 + 1;
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let all: Vec<u8> = (0..900_000).map(pattern).collect();
                for (n, piece) in all.chunks(1777).enumerate() {
                    file.write_all_at(piece, n as u64 * 1777).unwrap();
                }
                stop.store(true, std::sync::atomic::Ordering::Release);
            });
            let mut last = 0;
            loop {
                let over = stop.load(std::sync::atomic::Ordering::Acquire);
                let ask = Ask { ptr: buffer.ptr(), len: 1 << 20, at: 0, offset: 0 };
                let n = doors.transfer(door, Op::Read, id, ask).unwrap();
                assert!(n >= last, "{door:?}: {n} after {last}: it never shrinks");
                let mut bytes = vec![0; n];
                buffer.download(0, &mut bytes).unwrap();
                let bad = bytes.iter().enumerate().find(|(at, byte)| **byte != pattern(*at));
                assert_eq!(bad, None, "{door:?}: of {n}");
                last = n;
                if over {
                    assert_eq!(n, 900_000);
                    break;
                }
            }
        });
    }
}

/// As pread(2) and pwrite(2) answer, by every door and whatever engine would serve it.
#[test]
fn behaviour_107_descriptors_used_the_wrong_way_give_ebadf() {
    for engines in [&["p2p", "uring", "bounce"][..], &["bounce"]] {
        let doors = Doors::new(driver_with(engines, |c| (c.direct_min, c.uring_min) = (0, 0)));
        let buffer = Buffer::alloc(&doors.driver, 0, 1 << 20).unwrap();
        for storage in storages() {
            let path = match storage.name.as_str() {
                // It has a name in /proc only.
                "memfd" => continue,
                _ => storage.path("file"),
            };
            std::fs::write(&path, vec![1; 1 << 20]).unwrap();
            for (op, flags) in [(Op::Read, libc::O_WRONLY), (Op::Write, libc::O_RDONLY)] {
                for around in [0, libc::O_DIRECT] {
                    let mut options = std::fs::File::options();
                    options.read(op == Op::Write).write(op == Op::Read).custom_flags(around);
                    let Ok(file) = options.open(&path) else {
                        skip(&storage.name, "no O_DIRECT");
                        continue;
                    };
                    let id = doors.driver.register_file(file.as_raw_fd()).unwrap();
                    for door in Door::ALL {
                        for len in [1, 4096, 1 << 20] {
                            let ask = Ask { ptr: buffer.ptr(), len, at: 0, offset: 0 };
                            let errno = doors.errno(door, op, id, ask);
                            let what = format!("{}, {door:?}, {len}, flags {flags:#x}", storage.name);
                            assert_eq!(errno, Some(libc::EBADF), "{what}");
                        }
                    }
                    doors.driver.deregister_file(id).unwrap();
                }
            }
            assert!(std::fs::read(&path).unwrap() == vec![1; 1 << 20], "{}", storage.name);
        }
    }
}

/// What is appended goes to the end, whatever offset is said, and is whole: by every door.
#[test]
fn behaviour_107_appended_writes_go_to_the_end_by_every_door() {
    const RECORD: usize = 150_001;
    let doors = Doors::new(driver_with(&["p2p", "uring", "bounce"], |c| c.direct_min = 4096));
    let mut buffer = Buffer::alloc(&doors.driver, 0, RECORD).unwrap();
    for storage in storages().filter(|storage| storage.name != "memfd") {
        let mut options = std::fs::File::options();
        let file = options.read(true).append(true).create(true).open(storage.path("log")).unwrap();
        let id = doors.driver.register_file(file.as_raw_fd()).unwrap();
        let mut due = Vec::new();
        for round in 0..2 {
            for (door, n) in Door::ALL.into_iter().zip(1..) {
                let record: Vec<u8> = (0..RECORD).map(|at| (at % 251) as u8 ^ (n * 8 + round)).collect();
                buffer.upload(0, &record).unwrap();
                let ask = Ask { ptr: buffer.ptr(), len: RECORD, at: 0, offset: 4096 * usize::from(round) };
                assert_eq!(doors.transfer(door, Op::Write, id, ask).unwrap(), RECORD, "{}", storage.name);
                due.extend(record);
            }
        }
        assert!(std::fs::read(storage.path("log")).unwrap() == due, "{}", storage.name);
        doors.driver.deregister_file(id).unwrap();
    }
}
