//! Compiles a C program against the staged tree and runs it in a folder of its own, plainly or under a tool that watches
//! its memory. It knows nothing about what the programs check.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Exit status of a program in which a tool found something; none of the programs uses it.
const FINDING: i32 = 9;

/// What a program is compiled and run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Plain,
    /// Compiled as C++17: a header or example that is C only would not pass.
    Cpp,
    Valgrind,
    Asan,
}

/// Which libraries a program is linked with, and can find when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Libraries {
    /// libhipfile and the emulated runtime.
    Both,
    /// Linked with neither, but both can be found: a program that uses dlopen.
    FindOnly,
    /// libhipfile alone, compiled without HIP's header; there is no runtime.
    NoRuntime,
}

/// One C program and how it is run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    source: PathBuf,
    args: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
    libraries: Libraries,
    status: i32,
    silent: bool,
    limit: Duration,
    leaks: bool,
    input: Option<usize>,
    /// A source beside the program's, and the library that it is built as.
    beside: Option<(&'static str, &'static str)>,
}

impl Program {
    /// A program of `tests/c`.
    pub(crate) fn test(name: &str) -> Program {
        Program::new(manifest_dir().join("tests/c"), name)
    }

    /// A program of `examples/c`.
    pub(crate) fn example(name: &str) -> Program {
        Program::new(root().join("examples/c"), name)
    }

    fn new(folder: PathBuf, name: &str) -> Program {
        Program {
            source: folder.join(name).with_extension("c"),
            args: Vec::new(),
            // Small: a search for leaks looks into all of it.
            env: vec![("HIP_EMU_MEMORY", "128M".into())],
            libraries: Libraries::Both,
            status: 0,
            silent: false,
            limit: Duration::from_secs(60),
            leaks: true,
            input: None,
            beside: None,
        }
    }

    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Program {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Program {
        self.env.push((name, value.into()));
        self
    }

    pub(crate) fn finds_libraries(mut self) -> Program {
        self.libraries = Libraries::FindOnly;
        self
    }

    pub(crate) fn without_runtime(mut self) -> Program {
        self.libraries = Libraries::NoRuntime;
        self
    }

    /// The library is loaded before everything else.
    pub(crate) fn preloads_it(self) -> Program {
        let library = dist().join("lib/libhipfile.so.0");
        self.env("LD_PRELOAD", library)
    }

    /// The exit status it must end with, instead of 0.
    pub(crate) fn ends_with(mut self, status: i32) -> Program {
        self.status = status;
        self
    }

    /// Valgrind looks for wrong accesses only.
    pub(crate) fn without_a_search_for_leaks(mut self) -> Program {
        self.leaks = false;
        self
    }

    /// Nothing may stand on stderr but that the GPU is emulated.
    pub(crate) fn silent(mut self) -> Program {
        self.silent = true;
        self
    }

    /// A file `input` of that many bytes in its folder.
    pub(crate) fn input(mut self, len: usize) -> Program {
        self.input = Some(len);
        self
    }

    /// A source of `tests/c` that is built as a library of this name, which it finds.
    pub(crate) fn beside(mut self, source: &'static str, library: &'static str) -> Program {
        self.beside = Some((source, library));
        self
    }

    /// Compiles and runs it; fails the test unless it ends as it should and says so.
    pub(crate) fn run(self, variant: Variant) {
        if let Some(reason) = missing(variant) {
            return skip(&self.title(variant), reason);
        }
        let outcome = self.outcome(variant);
        for line in outcome.stderr.lines().filter(|line| line.starts_with("SKIP: ")) {
            say(line);
        }
        let skipped = outcome.stderr.lines().any(|line| line.starts_with("SKIP: "));
        let expected = |line: &str| line.starts_with("hipfile: using the emulated GPU");
        assert!(!self.silent || outcome.stderr.lines().all(expected), "{outcome}");
        let done = outcome.stdout.lines().any(|line| line.starts_with("OK "));
        assert!(outcome.status.code() == Some(self.status) && (done || skipped), "{outcome}");
    }

    /// Compiles and runs it; fails the test unless the tool of `variant` finds something wrong in it.
    pub(crate) fn must_be_caught(self, variant: Variant, message: &str) {
        if let Some(reason) = missing(variant) {
            return skip(&self.title(variant), reason);
        }
        let outcome = self.outcome(variant);
        assert!(outcome.status.code() == Some(FINDING) && outcome.stderr.contains(message), "{outcome}");
    }

    /// Compiles and runs it.
    pub(crate) fn outcome(&self, variant: Variant) -> Outcome {
        let dir = tempfile::Builder::new()
            .prefix("c-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .expect("a folder for the program");
        let program = dir.path().join("program");
        self.compile(variant, &program);
        if let Some(len) = self.input {
            let bytes: Vec<u8> =
                (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
            fs::write(dir.path().join("input"), bytes).expect("the input file");
        }
        if let Some((source, library)) = self.beside {
            let mut cc = Command::new(tool("CC", "cc"));
            cc.args([
                "-std=c11",
                "-D_GNU_SOURCE",
                "-O1",
                "-g",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-shared",
                "-fPIC",
            ]);
            cc.arg(manifest_dir().join("tests/c").join(source)).arg("-o").arg(dir.path().join(library));
            cc.arg(format!("-Wl,-soname,{library}"));
            let out = cc.output().unwrap_or_else(|e| panic!("{cc:?}: {e}"));
            assert!(out.status.success(), "{cc:?}: {}", String::from_utf8_lossy(&out.stderr));
        }
        let mut command = self.command(variant, &program, dir.path());
        command.current_dir(dir.path());
        let limit = if variant == Variant::Valgrind { self.limit * 4 } else { self.limit };
        run_within(command, dir.path(), limit)
    }

    fn title(&self, variant: Variant) -> String {
        let name = self.source.file_stem().unwrap_or_default().to_string_lossy();
        let args: String = self.args.iter().map(|arg| format!(" {}", arg.to_string_lossy())).collect();
        format!("{name}{args} ({variant:?})")
    }

    fn compile(&self, variant: Variant, program: &Path) {
        let dist = dist();
        let mut cc = match variant {
            Variant::Cpp => Command::new(tool("CXX", "c++")),
            _ => Command::new(tool("CC", "cc")),
        };
        match variant {
            Variant::Cpp => cc.args(["-std=c++17", "-xc++", "-Wpedantic"]),
            _ => cc.args(["-std=c11", "-D_GNU_SOURCE"]),
        };
        cc.args(["-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", "-I"]).arg(dist.join("include"));
        if variant == Variant::Asan {
            cc.args(["-fsanitize=address", "-fno-omit-frame-pointer"]);
        }
        if self.libraries == Libraries::NoRuntime {
            cc.arg("-DHIPFILE_NO_HIP");
        } else {
            cc.arg("-D__HIP_PLATFORM_AMD__").arg("-I").arg(dist.join("include/hip-emu"));
        }
        cc.arg(&self.source).arg("-o").arg(program).arg("-L").arg(dist.join("lib"));
        match self.libraries {
            Libraries::Both => cc
                .args(["-xnone", "-lhipfile", "-L"])
                .arg(dist.join("lib/hip-emu"))
                .args(["-lamdhip64", "-ldl"]),
            Libraries::NoRuntime => cc.args(["-lhipfile", "-ldl"]),
            Libraries::FindOnly => cc.arg("-ldl"),
        };
        let out = cc.output().unwrap_or_else(|e| panic!("{cc:?}: {e}"));
        assert!(out.status.success(), "{cc:?}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
        if variant == Variant::Asan {
            assert_sanitized(program);
        }
    }

    fn command(&self, variant: Variant, program: &Path, dir: &Path) -> Command {
        let dist = dist();
        let mut command = if variant == Variant::Valgrind {
            let mut valgrind = Command::new("valgrind");
            valgrind
                .args(["--quiet", "--num-callers=30", "--fair-sched=yes"])
                .arg(format!("--error-exitcode={FINDING}"))
                // What is still reachable at exit is left on purpose; what nobody points to any more is a leak.
                .arg(if self.leaks { "--leak-check=full" } else { "--leak-check=no" })
                .args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"])
                .arg(program);
            valgrind
        } else {
            Command::new(program)
        };
        let mut search = vec![dist.join("lib")];
        if self.libraries != Libraries::NoRuntime {
            search.push(dist.join("lib/hip-emu"));
        }
        if self.beside.is_some() {
            search.push(dir.to_owned());
        }
        // Nothing of the caller's environment: its HIPFILE_* and HIP_EMU_* would change what is tested.
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LD_LIBRARY_PATH", std::env::join_paths(search).expect("no colon in the folder's name"))
            .env(
                "ASAN_OPTIONS",
                format!("exitcode={FINDING}:detect_stack_use_after_return=1:verify_asan_link_order=1"),
            )
            .env("LSAN_OPTIONS", format!("exitcode={FINDING}"))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .args(&self.args);
        command
    }
}

/// How a program ended and what it printed.
#[derive(Debug)]
pub(crate) struct Outcome {
    command: String,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { command, status, stdout, stderr } = self;
        write!(f, "{command}\n{status}\n--- stdout\n{stdout}--- stderr\n{stderr}---")
    }
}

/// Runs a command whose output goes to files in `dir`; kills it and fails the test when it takes too long.
fn run_within(mut command: Command, dir: &Path, limit: Duration) -> Outcome {
    let (out, err) = (dir.join("stdout"), dir.join("stderr"));
    command
        .stdin(Stdio::null())
        .stdout(File::create(&out).expect("a file for stdout"))
        .stderr(File::create(&err).expect("a file for stderr"));
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    let ended = loop {
        if let Some(status) = child.try_wait().expect("the child's status") {
            break Some(status);
        }
        if start.elapsed() > limit {
            child.kill().expect("the child can be killed");
            child.wait().expect("the child's status");
            break None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let (stdout, stderr) = (text(&out), text(&err));
    let command = format!("{command:?}");
    match ended {
        Some(status) => Outcome { command, status, stdout, stderr },
        None => panic!("{command} still runs after {limit:?}\n--- stdout\n{stdout}--- stderr\n{stderr}---"),
    }
}

/// The sanitizer must really be in the program: its start-up, and checks of single accesses.
fn assert_sanitized(program: &Path) {
    let out = Command::new("nm").arg(program).output().expect("nm");
    let symbols = String::from_utf8_lossy(&out.stdout);
    for symbol in ["__asan_init", "__asan_report_load", "__asan_report_store"] {
        assert!(symbols.contains(symbol), "{} has no {symbol}:\n{symbols}", program.display());
    }
}

/// Why a variant cannot run on this machine.
fn missing(variant: Variant) -> Option<&'static str> {
    let succeeds =
        |command: &mut Command| command.stderr(Stdio::null()).output().is_ok_and(|out| out.status.success());
    match variant {
        Variant::Valgrind if !succeeds(Command::new("valgrind").arg("--version")) => {
            Some("valgrind is not installed")
        }
        Variant::Asan => {
            let library = Command::new(tool("CC", "cc")).arg("-print-file-name=libasan.so").output().ok()?;
            // Without a folder: the compiler knows the name, but has no such file.
            let found = library.stdout.contains(&b'/');
            (!found).then_some("the compiler has no address sanitizer")
        }
        Variant::Cpp if !succeeds(Command::new(tool("CXX", "c++")).arg("--version")) => {
            Some("no C++ compiler")
        }
        _ => None,
    }
}

/// The staged tree: `HIPFILE_TEST_DIST`, or what `cargo xtask dist --debug` makes.
fn dist() -> &'static Path {
    static DIST: OnceLock<PathBuf> = OnceLock::new();
    DIST.get_or_init(|| match std::env::var_os("HIPFILE_TEST_DIST") {
        Some(dir) => PathBuf::from(dir),
        None => stage(),
    })
}

/// Stages once per run of the tests, though a runner may start each test as a process of its own: the stamp names the
/// runner.
fn stage() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let lock = File::create(tmp.join("dist.lock")).expect("the lock file");
    lock.lock().expect("the lock");
    let stamp = tmp.join("dist.stamp");
    let runner = format!("{} {}\n", std::os::unix::process::parent_id(), start_time_of_parent());
    if let Ok(text) = fs::read_to_string(&stamp)
        && let Some(dir) = text.strip_prefix(&runner)
    {
        return PathBuf::from(dir);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args(["xtask", "dist", "--debug"])
        .current_dir(root())
        .output()
        .expect("cargo xtask dist --debug");
    let text = String::from_utf8_lossy(&out.stdout);
    let staged = text.lines().find_map(|line| line.strip_prefix("staged in "));
    let Some(dir) = staged.filter(|_| out.status.success()) else {
        panic!("cargo xtask dist --debug: {}\n{text}{}", out.status, String::from_utf8_lossy(&out.stderr));
    };
    fs::write(&stamp, format!("{runner}{dir}")).expect("the stamp");
    PathBuf::from(dir)
}

/// Tells two processes of the same number apart.
fn start_time_of_parent() -> String {
    let stat =
        fs::read_to_string(format!("/proc/{}/stat", std::os::unix::process::parent_id())).unwrap_or_default();
    // The name before it may hold blanks; it ends at the last parenthesis.
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    after_name.split(' ').nth(19).unwrap_or_default().to_owned()
}

fn manifest_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn root() -> &'static Path {
    manifest_dir().ancestors().nth(2).expect("the crate lies two folders below the root")
}

fn tool(variable: &str, default: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| default.into())
}

/// Says that a case did not run.
pub(crate) fn skip(what: &str, reason: &str) {
    say(&format!("SKIP: {what}: {reason}"));
}

/// Past the test runner's capture, which hides what a passing test prints.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
