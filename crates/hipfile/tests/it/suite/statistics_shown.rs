//! Statistics as other processes see them: while many threads count, when a process dies, and who gets to see nothing.

use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hipfile::monitor::{Statistics, Target, Unreachable};
use hipfile::{Buffer, Driver, File, Op};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::support::streams::Watchdog;
use crate::support::{Storage, driver_with, skip};

fn registered(driver: &Driver, storage: &Storage, size: usize) -> (File, Buffer) {
    std::fs::write(storage.path("f"), vec![5; size]).unwrap();
    let open = std::fs::File::open(storage.path("f")).unwrap();
    (File::register(driver, open).unwrap(), Buffer::alloc(driver, 0, size).unwrap())
}

/// The name of a socket as AMD's tools make it.
fn address(name: &str, pid: u32) -> SocketAddr {
    let mut bytes = [0; 107];
    let text = format!("{name}{pid:08x}");
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    SocketAddr::from_abstract_name(bytes).unwrap()
}

/// What a client of AMD's gets: the number in the message, and the file.
fn ask_as_amd(pid: u32) -> std::io::Result<(Vec<u8>, std::fs::File)> {
    let socket = UnixStream::connect_addr(&address("AISSTATS", pid))?;
    let mut bytes = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    let n = rustix::net::recvmsg(&socket, &mut parts, &mut control, RecvFlags::empty())?.bytes;
    let files: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(files.len(), 1);
    Ok((bytes[..n].to_vec(), files.into_iter().next().unwrap().into()))
}

fn word(file: &std::fs::File, at: u64) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Threads of a process that serve statistics: their numbers.
fn servers(pid: u32) -> Vec<std::path::PathBuf> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().map(|task| task.path());
    let named = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "hipfile-stats")
    };
    tasks.filter(named).collect()
}

fn until(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what} did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn amds_page_is_current_and_cannot_be_written() {
    let _watchdog = Watchdog::new(60);
    let storage = Storage::here();
    let own = std::process::id();
    assert!(servers(own).is_empty());
    let driver = driver_with(&["bounce"], |_| {});
    let (file, mut buffer) = registered(&driver, &storage, 8192);
    file.read_at(&mut buffer, 0..8192, 0).unwrap();
    let (greeting, page) = ask_as_amd(own).unwrap();
    assert_eq!((greeting, page.metadata().unwrap().len()), (1_i32.to_ne_bytes().to_vec(), 33_576));
    assert_eq!([0, 8, 16, 24, 32].map(|at| word(&page, at)), [1, 1, 1, 1, 1]);
    let fallback = 40 + 1048;
    let count = fallback + 264 + 2 * 8;
    assert_eq!((word(&page, fallback), word(&page, count), word(&page, fallback + 8 + 16)), (1, 1, 8192));
    for _ in 0..9 {
        file.read_at(&mut buffer, 0..8192, 0).unwrap();
    }
    until("what was read later", || word(&page, count) == 10);
    assert!(page.write_at(&[1], 0).is_err() && page.set_len(0).is_err());
    // Closing is at once.
    file.read_at(&mut buffer, 0..8192, 0).unwrap();
    driver.close();
    assert_eq!(word(&page, count), 11);
    let [task] = &servers(own)[..] else { panic!("one thread serves") };
    let status = std::fs::read_to_string(task.join("status")).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
    // All that can be blocked, but for those the C library keeps to itself.
    assert_eq!(u64::from_str_radix(blocked, 16).unwrap() & 0x7fff_ffff, 0x7fff_ffff & !(1 << 8 | 1 << 18));
    drop((file, buffer, driver));
    until("the end of the thread", || servers(own).is_empty());
    assert!(ask_as_amd(own).is_err());
}

#[test]
fn a_process_can_look_at_itself_and_at_nothing_else() {
    let _watchdog = Watchdog::new(60);
    let storage = Storage::here();
    let driver = driver_with(&["bounce"], |_| {});
    let (file, mut buffer) = registered(&driver, &storage, 4096);
    file.read_at(&mut buffer, 0..4096, 0).unwrap();
    let mut target = Target::new(std::process::id()).unwrap();
    assert_eq!(target.snapshot().unwrap_err(), Unreachable::Silent);
    target.connect(Some(Duration::from_secs(10))).unwrap();
    let (seen, known) = (target.snapshot().unwrap(), driver.snapshot());
    assert_eq!((seen.total(Op::Read), seen.pid), (known.total(Op::Read), std::process::id()));
    assert!(!target.is_amds() && !target.wait(Some(Duration::ZERO)));
    // A process that exists and does not use the library; one that does not exist.
    let mut sleeping = Command::new("sleep").arg("60").spawn().unwrap();
    let mut other = Target::new(sleeping.id()).unwrap();
    assert_eq!(other.connect(Some(Duration::from_millis(50))), Err(Unreachable::Silent));
    // Somebody who answers in its name.
    let squatter = UnixListener::bind_addr(&address("HIPFSTAT", sleeping.id())).unwrap();
    let refused = other.connect(Some(Duration::from_secs(5))).unwrap_err();
    assert!(matches!(&refused, Unreachable::Refused(why) if why.contains("in the name of")), "{refused}");
    drop(squatter);
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
    assert!(other.wait(None));
    assert_eq!(other.connect(None), Err(Unreachable::Ended));
    assert_eq!(Target::new(sleeping.id()).unwrap_err(), Unreachable::NotFound);
    assert_eq!(Target::new(0).unwrap_err(), Unreachable::NotFound);
}

#[test]
fn behaviour_159_other_users_and_level_0_are_shown_nothing() {
    let _watchdog = Watchdog::new(60);
    let own = std::process::id();
    let off = driver_with(&["bounce"], |c| c.stats_level = 0);
    assert!(servers(own).is_empty() && ask_as_amd(own).is_err());
    drop(off);
    let driver = driver_with(&["bounce"], |_| {});
    assert!(ask_as_amd(own).is_ok());
    if !rustix::process::geteuid().is_root() {
        return skip("another user's look at statistics", "it takes root to be another user");
    }
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("another user's look at statistics", "there is no python3");
    }
    for name in ["AISSTATS", "HIPFSTAT"] {
        let script = format!(
            "import socket\ns = socket.socket(socket.AF_UNIX)\n\
             s.connect(('\\0{name}{own:08x}').ljust(108, '\\0'))\nprint(len(s.recv(64)))"
        );
        let mut command = Command::new("python3");
        let seen = |command: &mut Command| String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(seen(command.args(["-c", &script])), "4\n", "root, {name}");
        assert_eq!(seen(command.uid(65_534).gid(65_534)), "0\n", "nobody, {name}");
    }
    drop(driver);
}

#[test]
fn a_name_that_is_taken_costs_only_the_socket() {
    let _watchdog = Watchdog::new(60);
    let own = std::process::id();
    let taken = UnixListener::bind_addr(&address("AISSTATS", own)).unwrap();
    let driver = driver_with(&["bounce"], |_| {});
    let mut target = Target::new(own).unwrap();
    target.connect(Some(Duration::from_secs(10))).unwrap();
    assert!(!target.is_amds());
    // A second driver finds both taken, and counts all the same.
    let storage = Storage::here();
    let second = driver_with(&["bounce"], |_| {});
    let (file, mut buffer) = registered(&second, &storage, 4096);
    file.read_at(&mut buffer, 0..4096, 0).unwrap();
    assert_eq!((second.snapshot().files.begun.ok, driver.snapshot().files.begun.ok), (1, 0));
    drop(taken);
}

#[test]
fn the_child_of_a_fork_shows_and_changes_nothing() {
    let statistics = Statistics::new();
    let mut config = hipfile::Config::default();
    config.device = hipfile::DeviceChoice::Emulated;
    let driver = Driver::open_with(config.clone(), &statistics).unwrap();
    statistics.serve();
    let storage = Storage::here();
    let (_file, _buffer) = registered(&driver, &storage, 4096);
    // SAFETY: the child only looks at itself, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let quiet = servers(std::process::id()).is_empty()
            && driver.snapshot().files.begun.ok == 0
            && driver.register_file(-1).is_err()
            && Driver::open_with(config, &statistics).is_ok();
        statistics.serve();
        let quiet = quiet && servers(std::process::id()).is_empty();
        drop(statistics);
        // SAFETY: it ends the child without running anything of the parent's.
        unsafe { libc::_exit(if quiet { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: `status` may be written to.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(driver.snapshot().files.begun, hipfile::Calls { ok: 1, failed: 0 });
    // The parent's thread is still there.
    assert!(ask_as_amd(std::process::id()).is_ok());
}

/// The process that is looked at by the test below: reads until it is killed.
#[test]
#[ignore = "it reads until it is killed: run by a_reader_sees_no_torn_numbers_and_does_not_hang_when_processes_die"]
fn reads_for_ever() {
    let storage = Storage::here();
    let driver = driver_with(&["bounce"], |_| {});
    let (file, _) = registered(&driver, &storage, 4096);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let mut buffer = Buffer::alloc(&driver, 0, 4096).unwrap();
                loop {
                    file.read_at(&mut buffer, 0..4096, 0).unwrap();
                }
            });
        }
    });
}

/// A test that fails leaves nobody behind.
fn end_with_the_test() -> std::io::Result<()> {
    // SAFETY: a plain call.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn reader() -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "suite::statistics_shown::reads_for_ever"]);
    // SAFETY: the function makes one system call, which is allowed after a fork.
    unsafe { command.pre_exec(end_with_the_test) };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_reader_sees_no_torn_numbers_and_does_not_hang_when_processes_die() {
    let _watchdog = Watchdog::new(120);
    for round in 0..4 {
        let mut child = reader();
        let mut target = Target::new(child.id()).unwrap();
        target.connect(Some(Duration::from_secs(60))).unwrap();
        let amds = ask_as_amd(child.id()).unwrap().1;
        until("reads", || target.snapshot().unwrap().total(Op::Read).operations() > 100);
        let mut before = target.snapshot().unwrap().total(Op::Read);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(200) {
            let now = target.snapshot().unwrap().total(Op::Read);
            assert!(now.operations() >= before.operations() && now.bytes() >= before.bytes());
            // Both count the same transfers, but for those that end meanwhile: one a thread, and those that end between
            // the first word that is summed and the last.
            let later = target.snapshot().unwrap().total(Op::Read);
            assert!(now.bytes() / 4096 <= later.operations() + 64, "{} {}", now.bytes(), later.operations());
            assert!(later.bytes() / 4096 + 64 >= now.operations());
            let count = word(&amds, 40 + 1048 + 264 + 8);
            assert!(count <= target.snapshot().unwrap().total(Op::Read).operations() + 64);
            before = later;
        }
        if round % 2 == 0 {
            child.kill().unwrap();
            assert!(target.wait(Some(Duration::from_secs(60))), "it was killed");
        } else {
            // While somebody looks all the time.
            std::thread::scope(|scope| {
                let looking = scope.spawn(|| {
                    while !target.wait(Some(Duration::ZERO)) {
                        target.snapshot().unwrap();
                    }
                });
                std::thread::sleep(Duration::from_millis(20));
                child.kill().unwrap();
                looking.join().unwrap();
            });
        }
        child.wait().unwrap();
        let last = target.snapshot().unwrap().total(Op::Read);
        assert!(last.operations() >= before.operations());
        assert!(
            last.bytes().abs_diff(last.operations() * 4096) <= 64 * 4096,
            "what was under way may be half in it"
        );
        assert_eq!(target.snapshot().unwrap().total(Op::Read), last, "nobody counts any more");
        assert_eq!(target.connect(None), Err(Unreachable::Ended));
        assert_eq!(target.snapshot().unwrap().total(Op::Read), last, "asked in vain, it is still there");
    }
    // One that dies before it is asked.
    let mut child = reader();
    let mut target = Target::new(child.id()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(target.connect(None), Err(Unreachable::Ended));
}

#[test]
fn behaviour_159_answers_that_are_malformed_are_refused() {
    let _watchdog = Watchdog::new(60);
    let own = std::process::id();
    let listener = UnixListener::bind_addr(&address("HIPFSTAT", own)).unwrap();
    let mut target = Target::new(own).unwrap();
    for answer in [&b""[..], b"\x01\0\0\0", b"\x02\0\0\0", b"\x01", b"a much longer answer than there may be"]
    {
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut peer, _) = listener.accept().unwrap();
                peer.write_all(answer).unwrap();
                peer.shutdown(std::net::Shutdown::Write).unwrap();
                let _ = peer.read(&mut [0; 1]);
            });
            target.connect(Some(Duration::from_secs(10))).unwrap_err()
        });
        assert!(matches!(refused, Unreachable::Refused(_)), "{answer:?}: {refused}");
    }
}
