//! The progress bar: on a terminal, and nowhere else.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Lab, faulty, pattern};

/// Both ends of a terminal: that of who looks at it, and that of programs.
pub(crate) fn terminal(rows: u16, columns: u16) -> (OwnedFd, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let slave = File::options().read(true).write(true).open(path).unwrap();
    let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&slave, size).unwrap();
    (master, slave)
}

/// Runs the command with a terminal of 80 columns as its standard error; returns its status and what the terminal got.
fn on_a_terminal(command: &mut Command) -> (Option<i32>, String) {
    let (master, slave) = terminal(24, 80);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(slave).spawn().unwrap();
    // The command's own copy of the terminal goes with it, ours went into the command.
    command.stderr(Stdio::null());
    let mut seen = Vec::new();
    // When the last descriptor of the other side is closed, reading fails with EIO.
    let _ = File::from(master).read_to_end(&mut seen);
    (child.wait().unwrap().code(), String::from_utf8(seen).unwrap())
}

#[test]
fn a_terminal_gets_a_bar() {
    let lab = Lab::new();
    lab.write("source", &pattern(1 << 20, 1));
    let (code, seen) = on_a_terminal(&mut lab.copy(&["source", "destination", "--chunk", "64K"]));
    assert_eq!(code, Some(0), "{seen}");
    let bar = seen.rsplit('\r').find(|part| part.contains("100%")).expect(&seen);
    assert!(bar.starts_with("source ") && bar.contains("1.0 MiB / 1.0 MiB") && bar.contains("GB/s"), "{bar}");
    let width = bar.trim_end().trim_end_matches("\x1b[K").chars().count();
    assert!(width < 80, "{width}: {bar}");
    assert!(lab.read("destination") == lab.read("source"));
}

#[test]
fn a_failure_wipes_the_bar() {
    let lab = Lab::new();
    lab.write("source", &pattern(1 << 20, 1));
    let mut command = lab.copy(&["source", "destination", "--chunk", "64K"]);
    let (code, seen) = on_a_terminal(faulty(&mut command, "9+"));
    assert_eq!(code, Some(1), "{seen}");
    let (_, error) = seen.rsplit_once("\r\x1b[K").expect(&seen);
    assert!(error.starts_with("hipfile: copy: ") && error.contains("hipErrorUnknown"), "{seen}");
}

#[test]
fn a_pipe_gets_none() {
    let lab = Lab::new();
    lab.write("source", &pattern(1 << 20, 1));
    let run = lab.copies(&["source", "destination", "--chunk", "64K", "--verify"]);
    assert!(!run.stderr.contains(['\r', '\x1b', '%']), "{}", run.stderr);
}
