//! The log: what stands in it at which level, where it stands, how much of it there may be, and what it costs when it is off.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hip_emu::fault::{self, When};

use super::fork::{in_child, status_of_child};
use super::*;

const LEN: usize = 4096;

fn set(variable: &str, value: impl AsRef<std::ffi::OsStr>) {
    // SAFETY: the test has a process of its own, and no other thread of it reads the environment now.
    unsafe { std::env::set_var(variable, value) };
}

fn unset(variable: &str) {
    // SAFETY: as above.
    unsafe { std::env::remove_var(variable) };
}

/// All is staged: what fails and what is told does not depend on the file system then.
fn start_staged() {
    start();
    set("HIPFILE_FORCE_COMPAT_MODE", "true");
}

/// A folder, and the file in it that is logged to.
fn log_file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    set("HIPFILE_LOG_FILE", &path);
    (folder, path)
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// What `body` has written to standard error.
fn stderr_of(body: impl FnOnce()) -> String {
    let (kept, to) =
        (std::io::stderr().as_fd().try_clone_to_owned().unwrap(), tempfile::NamedTempFile::new().unwrap());
    // SAFETY: both are open, and the test has nothing else to say meanwhile.
    assert_eq!(unsafe { libc::dup2(to.as_raw_fd(), 2) }, 2);
    body();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::dup2(kept.as_raw_fd(), 2) }, 2);
    text(to.path())
}

/// A driver's life with a bit of everything: a transfer that is staged, one that fails, and a call that is refused.
fn life() {
    ok(hipFileDriverOpen());
    let (_file, handle) = registered_file(&[7; LEN]);
    let device = Device::new(LEN, 0);
    ok(register_memory(device.start, LEN));
    assert_eq!(read(handle, device.start, LEN, 0, 0).0, LEN as isize);
    failing_read(handle, &device);
    assert_eq!(code(register_memory(device.start, LEN)), hipFileMemoryAlreadyRegistered);
    ok(hipFileBufDeregister(device.start));
    hipFileHandleDeregister(handle);
    ok(hipFileDriverClose());
}

/// A read whose copy fails.
fn failing_read(handle: hipFileHandle_t, device: &Device) {
    fault::inject("hipMemcpy", When::Every, HipError::LAUNCH_FAILURE).unwrap();
    assert!(read(handle, device.start, LEN, 0, 0).0 < 0);
    fault::clear();
}

/// The level of a line of the file; its form is checked on the way.
fn level_of(line: &str) -> String {
    let mut words = line.split(' ');
    let time = words.next().unwrap();
    let digits = |text: &str| {
        text.bytes().map(|b| if b.is_ascii_digit() { '9' } else { char::from(b) }).collect::<String>()
    };
    assert_eq!(digits(time), "9999-99-99T99:99:99.999999Z", "{line}");
    let (process, thread) = words.next().unwrap().split_once('/').unwrap();
    assert_eq!(process.parse(), Ok(std::process::id()), "{line}");
    assert!(thread.parse::<u32>().is_ok(), "{line}");
    let level = words.next().unwrap().to_owned();
    assert!(words.next().unwrap().starts_with("hipfile"), "{line}");
    level
}

#[test]
fn each_level_shows_its_lines_and_no_more() {
    start_staged();
    // A warning at each opening.
    set("HIPFILE_QUEUE_DEPTH", "many");
    let expected: [(&str, &[&str]); 6] = [
        ("error", &["transfer failed"]),
        ("warn", &["HIPFILE_QUEUE_DEPTH"]),
        ("info", &["driver opened", "runtime found", "staging through host memory", "driver closed"]),
        ("debug", &["file registered", "buffer registered", "call fails", "setting name=force_compat_mode"]),
        ("trace", &["transfer begins", "engine carries", "transfer ends"]),
        ("off", &[]),
    ];
    for (count, (level, _)) in expected.iter().enumerate() {
        let (_folder, path) = log_file();
        set("HIPFILE_LOG_LEVEL", level);
        life();
        let text = text(&path);
        let levels: BTreeSet<_> = text.lines().map(level_of).collect();
        let shown = if *level == "off" { 0 } else { count + 1 };
        for (at, (name, lines)) in expected.iter().enumerate() {
            assert_eq!(levels.contains(*name), at < shown, "{name} at {level}:\n{text}");
            for line in *lines {
                assert_eq!(text.contains(line), at < shown, "{line} at {level}:\n{text}");
            }
        }
    }
}

#[test]
fn behaviour_88_a_failure_is_logged_with_file_place_size_memory_and_engine() {
    start_staged();
    let (_folder, path) = log_file();
    let data = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(data.path(), [1; 2 * LEN]).unwrap();
    let handle = register(data.as_raw_fd()).unwrap();
    let device = Device::new(LEN, 0);
    set("HIPFILE_LOG_LEVEL", "error");
    failing_read(handle, &device);
    let text = text(&path);
    let line = text.lines().find(|line| line.contains("transfer failed")).unwrap();
    let memory = format!("{:#x}", device.start.addr());
    let fd = data.as_raw_fd().to_string();
    for part in [data.path().to_str().unwrap(), &fd, &LEN.to_string(), &memory, "bounce"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn the_end_of_a_transfer_names_what_it_was() {
    start_staged();
    let (_folder, path) = log_file();
    set("HIPFILE_LOG_LEVEL", "trace");
    let (file, handle) = registered_file(&[7; LEN]);
    let device = Device::new(LEN, 0);
    assert_eq!(read(handle, device.start, 1000, 96, 0).0, 1000);
    let text = text(&path);
    let line = |what: &str| {
        text.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {text}"))
    };
    let place = format!("fd={} offset=96 size=1000", file.as_raw_fd());
    for (what, rest) in [
        ("transfer begins op=read", ""),
        ("engine carries op=read", "engine=bounce reason=configuration moved=1000"),
        ("transfer ends op=read", "engine=bounce direct=0 staged=1000 moved=1000 outcome=done"),
    ] {
        let line = line(what);
        assert!(line.contains(&place) && line.contains(rest), "{line}");
    }
}

#[test]
fn the_file_is_named_by_file_folder_and_process() {
    start_staged();
    let folder = tempfile::tempdir().unwrap();
    std::env::set_current_dir(folder.path()).unwrap();
    set("HIPFILE_LOG_LEVEL", "info");
    let id = std::process::id();
    let rows: [(Option<&str>, Option<&str>, String); 4] = [
        (Some("plain"), None, "plain".into()),
        (None, Some("."), format!("hipfile-{id}.log")),
        (Some("inside"), Some("."), "inside".into()),
        (Some("of-%p-"), None, format!("of-{id}-")),
    ];
    for (file, dir, expected) in rows {
        for (variable, value) in [("HIPFILE_LOG_FILE", file), ("HIPFILE_LOG_DIR", dir)] {
            match value {
                Some(value) => set(variable, value),
                None => unset(variable),
            }
        }
        let said = stderr_of(|| {
            ok(hipFileDriverOpen());
            ok(hipFileDriverClose());
        });
        let there = text(&folder.path().join(&expected));
        assert!(there.contains("driver opened") && there.contains("driver closed"), "{expected}: {there}");
        assert_eq!(said, "", "{expected}");
    }
    unset("HIPFILE_LOG_FILE");
    unset("HIPFILE_LOG_DIR");
    let said = stderr_of(|| {
        ok(hipFileDriverOpen());
        ok(hipFileDriverClose());
    });
    assert!(said.starts_with("hipfile: info: driver opened version="), "{said}");
    assert!(said.ends_with("hipfile: info: driver closed\n"), "{said}");
}

#[test]
fn calls_set_the_log_too() {
    start_staged();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let string = |parameter, value: &str| {
        let value = std::ffi::CString::new(value).unwrap();
        // SAFETY: a C string that lives during the call.
        ok(unsafe { hipFileSetParameterString(parameter, value.as_ptr()) });
    };
    string(hipFileParamLoggingLevel, "info");
    string(hipFileParamEnvLogfilePath, path.to_str().unwrap());
    ok(hipFileDriverOpen());
    assert!(text(&path).contains("driver opened"));
    ok(hipFileDriverClose());
    string(hipFileParamLoggingLevel, "info");
    string(hipFileParamLogDir, folder.path().to_str().unwrap());
    ok(hipFileDriverOpen());
    ok(hipFileDriverClose());
    let path = folder.path().join(format!("hipfile-{}.log", std::process::id()));
    assert!(text(&path).contains("driver opened"));
}

#[test]
fn a_kind_of_line_is_limited_and_the_rest_is_counted() {
    start_staged();
    let (_folder, path) = log_file();
    ok(hipFileDriverOpen());
    let (_file, handle) = registered_file(&[7; LEN]);
    let device = Device::new(LEN, 0);
    let count = 300;
    let began = Instant::now();
    (0..count).for_each(|_| failing_read(handle, &device));
    let seconds = began.elapsed().as_secs() as usize + 2;
    ok(hipFileDriverClose());
    let text = text(&path);
    let written = text.lines().filter(|line| line.contains(" hipfile: transfer failed ")).count();
    assert!((20..=20 * seconds).contains(&written) && written < count, "{written} in {seconds} s");
    let left_out: usize = text
        .lines()
        .filter_map(|line| line.split_once(" more lines were left out: transfer failed"))
        .map(|(start, _)| start.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
        .sum();
    assert_eq!(written + left_out, count, "{text}");
}

#[test]
fn a_file_that_cannot_be_written_is_named_once_and_nothing_fails() {
    start_staged();
    set("HIPFILE_LOG_FILE", "/nonexistent/folder/log");
    set("HIPFILE_LOG_LEVEL", "info");
    let said = stderr_of(|| {
        for _ in 0..3 {
            ok(hipFileDriverOpen());
            ok(hipFileDriverClose());
        }
    });
    assert_eq!(said.matches("/nonexistent/folder/log").count(), 1, "{said}");
    assert_eq!(said.matches("hipfile: info: driver opened").count(), 3, "{said}");
    // A FIFO that nobody reads does not hold the program up.
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: a C string that lives during the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    set("HIPFILE_LOG_FILE", &fifo);
    watchdog(Duration::from_secs(20));
    let said = stderr_of(life);
    assert!(said.contains(fifo.to_str().unwrap()), "{said}");
}

#[test]
fn no_standard_error_is_nobodys_failure() {
    start_staged();
    set("HIPFILE_LOG_LEVEL", "trace");
    // SAFETY: as a C program has it: a write to a pipe that nobody reads ends the process.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    in_child(|| {
        // SAFETY: the child has nothing to say.
        unsafe { libc::dup2(writer.as_raw_fd(), 2) };
        life();
        true
    });
    in_child(|| {
        // SAFETY: the child has nothing to say.
        unsafe { libc::close(2) };
        life();
        true
    });
}

/// As a C program has it: these end the process.
fn let_signals_end_the_process() {
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: no handler of anyone's is replaced.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// No file may grow beyond so many bytes from here on.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it is read only.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

#[test]
fn a_log_that_may_not_grow_gives_way_to_standard_error() {
    start_staged();
    let (_folder, path) = log_file();
    set("HIPFILE_LOG_LEVEL", "trace");
    let said = stderr_of(|| {
        in_child(|| {
            let_signals_end_the_process();
            limit_files(20_000);
            (0..20).for_each(|_| life());
            true
        });
    });
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 20_000);
    assert!(said.contains("hipfile: trace: transfer ends"), "{said}");
    let (_file, handle) = registered_file(&[1; LEN]);
    let device = Device::new(LEN, 0);
    assert_eq!(read(handle, device.start, LEN, 0, 0).0, LEN as isize);
}

#[test]
fn a_full_standard_error_holds_nobody_up_and_is_told_later() {
    start_staged();
    watchdog(Duration::from_secs(60));
    set("HIPFILE_LOG_LEVEL", "trace");
    let (mut reader, writer) = std::io::pipe().unwrap();
    let kept = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
    // SAFETY: both are open, and the test has nothing else to say meanwhile.
    assert_eq!(unsafe { libc::dup2(writer.as_raw_fd(), 2) }, 2);
    drop(writer);
    // More than a pipe holds, and nobody reads.
    (0..100).for_each(|_| life());
    let mut said = vec![0; 32 << 10];
    reader.read_exact(&mut said).unwrap();
    life();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::dup2(kept.as_raw_fd(), 2) }, 2);
    reader.read_to_end(&mut said).unwrap();
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains(" lines were left out: standard error was full\n"), "{} bytes", said.len());
    assert!(said.lines().all(|line| line.starts_with("hipfile: ")), "lines are whole");
}

#[test]
fn children_that_are_forked_in_the_midst_of_it_log_on_in_files_of_their_own() {
    start_staged();
    let folder = tempfile::tempdir().unwrap();
    set("HIPFILE_LOG_FILE", folder.path().join("log-%p"));
    set("HIPFILE_LOG_LEVEL", "trace");
    ok(hipFileDriverOpen());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (_file, handle) = registered_file(&[7; LEN]);
                let device = Device::new(LEN, 0);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(read(handle, device.start, LEN, 0, 0).0, LEN as isize);
                }
            });
        }
        for _ in 0..20 {
            in_child(|| {
                ok(hipFileDriverOpen());
                let (_file, _handle) = registered_file(&[7; LEN]);
                ok(hipFileDriverClose());
                let mine = text(&folder.path().join(format!("log-{}", std::process::id())));
                mine.contains("driver opened") && mine.lines().all(|line| level_of(line) != "error")
            });
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    ok(hipFileDriverClose());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 21);
}

/// What a log has to ask of the system; a thread that does it from here on ends its process.
fn forbid_logging() {
    const CALLS: [libc::c_long; 9] = [
        libc::SYS_open,
        libc::SYS_openat,
        libc::SYS_readlink,
        libc::SYS_readlinkat,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_rt_sigprocmask,
        libc::SYS_gettid,
        libc::SYS_getpid,
    ];
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for (at, number) in CALLS.iter().enumerate() {
        let to_end = (CALLS.len() - at) as u8;
        program.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, to_end, 0, *number as u32));
    }
    program.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    program.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_PROCESS));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: it only forbids the thread to gain privileges.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program lives during the call, and its jumps stay inside it.
    let set =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) };
    assert_eq!(set, 0);
}

/// Reads of data in the page cache, after which none of what a log does has been done.
fn quiet_reads() -> bool {
    ok(hipFileDriverOpen());
    let (_file, handle) = registered_file(&[7; 16 * LEN]);
    let device = Device::new(16 * LEN, 0);
    ok(register_memory(device.start, 16 * LEN));
    let all = |len: usize| read(handle, device.start, len, 0, 0).0 == len as isize;
    let warm = all(LEN) && all(16 * LEN);
    forbid_logging();
    warm && (0..100).all(|_| all(LEN) && all(16 * LEN))
}

#[test]
fn a_log_that_is_off_asks_nothing_of_the_system() {
    start_staged();
    let (_folder, _path) = log_file();
    for level in ["off", "warn", "info", "debug"] {
        set("HIPFILE_LOG_LEVEL", level);
        in_child(quiet_reads);
    }
    // The control: that would have been seen.
    set("HIPFILE_LOG_LEVEL", "trace");
    let status = status_of_child(quiet_reads);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSYS, "{status:#x}");
}
