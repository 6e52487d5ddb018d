//! What every behaviour test needs: drivers on the suite's GPU, file systems to work on, random numbers, skips.

pub(crate) mod doors;
#[cfg(debug_assertions)]
pub(crate) mod faulty;
pub(crate) mod gpu;
pub(crate) mod memory;
pub(crate) mod model;
pub(crate) mod streams;

use std::path::{Path, PathBuf};
use std::process::Command;

use hipfile::{Config, Driver};
use test_support::afterwards::Afterwards;

/// A driver on the suite's GPU that uses these engines and staging sizes.
pub(crate) fn driver_with(engines: &[&str], change: impl FnOnce(&mut Config)) -> Driver {
    let mut config = Config::default();
    config.device = gpu::choice();
    config.engines = Some(engines.iter().map(|e| (*e).to_owned()).collect());
    // Small Blocks, so that the edges between them are met often.
    config.block_len = 64 << 10;
    config.pool_len = 1 << 20;
    change(&mut config);
    Driver::open(config).expect("a driver opens anywhere")
}

/// A driver on the suite's GPU.
pub(crate) fn driver() -> Driver {
    driver_with(&["bounce"], |_| {})
}

/// Says that a case did not run, and why.
pub(crate) fn skip(what: &str, why: &str) {
    eprintln!("SKIP: {what}: {why}");
}

/// Lets this thread alone see one folder in the place of another. False, said aloud, where that is not allowed.
pub(crate) fn mount_over(what: &std::path::Path, over: &str) -> bool {
    // SAFETY: unshare only gives this thread a mount table of its own.
    if unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_FS) } != 0 {
        skip(over, "a mount namespace is not allowed here");
        return false;
    }
    let mount =
        |args: &[&str]| std::process::Command::new("mount").args(args).status().is_ok_and(|s| s.success());
    let done = mount(&["--make-rprivate", "/"]) && mount(&["--bind", what.to_str().unwrap(), over]);
    if !done {
        skip(over, "mounting is not allowed here");
    }
    done
}

/// How many random operations a model test does; more for long runs.
pub(crate) fn operations(usual: usize) -> usize {
    std::env::var("HIPFILE_TEST_OPS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// From here on this process gets no io_uring, as in a container with the usual seccomp profile.
pub(crate) fn refuse_io_uring() {
    refuse(&[libc::SYS_io_uring_setup], libc::EPERM, 0);
    // SAFETY: a refused call changes nothing.
    assert_eq!(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, 0) }, -1);
}

/// From here on no thread of this process is let into a ring, also not into one that it has.
pub(crate) fn refuse_entering_rings() {
    refuse(&[libc::SYS_io_uring_enter], libc::EPERM, libc::SECCOMP_FILTER_FLAG_TSYNC);
}

/// From here on no file of this process can be flushed by its wish.
pub(crate) fn refuse_flushes() {
    let flushes = [libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_sync_file_range, libc::SYS_msync];
    refuse(&flushes, libc::EIO, 0);
    // SAFETY: a refused call changes nothing.
    assert_eq!(unsafe { libc::fdatasync(0) }, -1);
}

/// Refuses system calls, whatever their arguments.
fn refuse(calls: &[libc::c_long], errno: i32, flags: libc::c_ulong) {
    let mut program = vec![NUMBER];
    for (at, number) in calls.iter().enumerate() {
        let to_refusal = (calls.len() - at) as u8;
        program.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, to_refusal, 0, *number as u32));
    }
    program.extend([ALLOWED, refusal(errno)]);
    install(&mut program, flags);
}

/// From here on no file can be opened with O_DIRECT, as on a platform or file system without it.
pub(crate) fn refuse_o_direct() {
    // Where the lower halves of the second and of the third argument are: the flags of open and of openat.
    const SECOND: u32 = 16 + 8;
    const THIRD: u32 = 16 + 2 * 8;
    let is = |number: libc::c_long, skip| {
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, skip, number as u32)
    };
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let has_flag = |skip| step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, skip, libc::O_DIRECT as u32);
    install(
        &mut [
            NUMBER,
            is(libc::SYS_open, 3),
            load(SECOND),
            has_flag(1),
            refusal(libc::EINVAL),
            NUMBER,
            is(libc::SYS_openat, 3),
            load(THIRD),
            has_flag(1),
            refusal(libc::EINVAL),
            ALLOWED,
        ],
        0,
    );
}

const fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Loads the number of the system call.
const NUMBER: libc::sock_filter = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0);

const ALLOWED: libc::sock_filter = step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW);

const fn refusal(errno: i32) -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32)
}

/// For this thread and those that it starts; with the flag of that, for all.
fn install(program: &mut [libc::sock_filter], flags: libc::c_ulong) {
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let operation = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the filter and its program are valid for the call, which copies them.
    assert_eq!(unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, &raw const filter) }, 0);
}

/// A folder on some file system; a mount made for the test goes with it.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) name: String,
    folder: PathBuf,
    /// Unmounts it, whatever becomes of this process.
    mounted: Option<Afterwards>,
    /// What `mount` was told.
    mounting: Vec<String>,
    /// The one file there is, whatever it is called.
    only: Option<std::os::fd::OwnedFd>,
    _scratch: tempfile::TempDir,
}

/// Under the build folder; on a machine without one `HIPFILE_TEST_DIR` says where.
fn scratch_folder() -> tempfile::TempDir {
    let folder = std::env::var_os("HIPFILE_TEST_DIR");
    let folder = folder.unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    tempfile::tempdir_in(folder).expect("a scratch folder")
}

impl Storage {
    /// The file system the build lies on.
    pub(crate) fn here() -> Storage {
        let scratch = scratch_folder();
        Storage {
            name: "here".into(),
            folder: scratch.path().into(),
            mounted: None,
            mounting: Vec::new(),
            only: None,
            _scratch: scratch,
        }
    }

    /// The machine's shared memory.
    pub(crate) fn shared_memory() -> Option<Storage> {
        match tempfile::tempdir_in("/dev/shm") {
            Ok(scratch) => {
                let folder = scratch.path().into();
                Some(Storage {
                    name: "/dev/shm".into(),
                    folder,
                    mounted: None,
                    mounting: Vec::new(),
                    only: None,
                    _scratch: scratch,
                })
            }
            Err(error) => {
                skip("/dev/shm", &error.to_string());
                None
            }
        }
    }

    /// A file of memory that has no name anywhere.
    pub(crate) fn memfd() -> Storage {
        let memory = rustix::fs::memfd_create("model", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
        let mut storage = Storage::here();
        storage.name = "memfd".into();
        storage.only = Some(memory);
        storage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        use std::os::fd::AsRawFd;
        match &self.only {
            Some(fd) => format!("/proc/self/fd/{}", fd.as_raw_fd()).into(),
            None => self.folder.join(name),
        }
    }

    /// A file to read and write, made if need be.
    #[cfg(debug_assertions)]
    pub(crate) fn open(&self, name: &str) -> std::fs::File {
        let mut options = std::fs::File::options();
        let opened = options.create(true).truncate(false).read(true).write(true).open(self.path(name));
        // One without a name needs /proc to be opened anew.
        let copied = |error| self.only.as_ref().and_then(|fd| fd.try_clone().ok()).ok_or(error);
        opened.or_else(|error| copied(error).map(std::fs::File::from)).unwrap()
    }

    /// A file `f` of random bytes, open both ways, and its content.
    pub(crate) fn random_file(&self, len: usize) -> (std::fs::File, Vec<u8>) {
        let mut content = vec![0; len];
        Random::new().fill(&mut content);
        std::fs::write(self.path("f"), &content).unwrap();
        (std::fs::File::options().read(true).write(true).open(self.path("f")).unwrap(), content)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A fresh ext4 in a loop-mounted file.
    pub(crate) fn ext4(options: &[&str]) -> Option<Storage> {
        let options = ["loop"].iter().chain(options).copied().collect::<Vec<_>>().join(",");
        Storage::image("ext4", &["mkfs.ext4", "-q", "-F"], 256 << 20, &options)
    }

    /// A fresh ext4 that is full after some 20 MiB.
    pub(crate) fn small_ext4() -> Option<Storage> {
        Storage::image("ext4", &["mkfs.ext4", "-q", "-F"], 24 << 20, "loop")
    }

    /// A fresh xfs in a loop-mounted file.
    pub(crate) fn xfs() -> Option<Storage> {
        Storage::image("xfs", &["mkfs.xfs", "-q", "-f"], 320 << 20, "loop")
    }

    /// A fresh btrfs in a loop-mounted file.
    pub(crate) fn btrfs() -> Option<Storage> {
        Storage::image("btrfs", &["mkfs.btrfs", "-q", "-f"], 256 << 20, "loop")
    }

    /// A fresh overlay whose upper folder is a tmpfs.
    pub(crate) fn overlay() -> Option<Storage> {
        let upper = Storage::tmpfs()?;
        let scratch = scratch_folder();
        let folder = scratch.path().join("mnt");
        for made in [&upper.path("lower"), &upper.path("upper"), &upper.path("work"), &folder] {
            std::fs::create_dir(made).expect("an empty folder");
        }
        let of = |name: &str| upper.path(name).display().to_string();
        let options = format!("lowerdir={},upperdir={},workdir={}", of("lower"), of("upper"), of("work"));
        // The folders below stay reachable for the overlay when their own mount is taken away.
        Storage::mount("overlay", &["-t", "overlay", "-o", &options, "overlay"], folder, scratch)
    }

    /// A FUSE file system of this process's own, with one file in it, named file.
    pub(crate) fn fuse() -> Option<Storage> {
        let scratch = scratch_folder();
        let folder = scratch.path().join("mnt");
        std::fs::create_dir(&folder).expect("an empty folder");
        match test_support::fuse::serve(&folder, Vec::new()) {
            Ok(()) => {
                let (name, mounting) = ("FUSE".into(), Vec::new());
                let mounted = Some(Afterwards::unmount(&folder));
                Some(Storage { name, folder, mounted, mounting, only: None, _scratch: scratch })
            }
            Err(why) => {
                skip("FUSE", &why);
                None
            }
        }
    }

    /// A fresh hugetlbfs; [`HugePages`] must be there while it is used.
    pub(crate) fn hugetlbfs() -> Option<Storage> {
        let scratch = scratch_folder();
        let folder = scratch.path().join("mnt");
        std::fs::create_dir(&folder).expect("an empty folder");
        let args = ["-t", "hugetlbfs", "-o", "pagesize=2M", "hugetlbfs"];
        Storage::mount("hugetlbfs", &args, folder, scratch)
    }

    /// A fresh tmpfs.
    pub(crate) fn tmpfs() -> Option<Storage> {
        Storage::tmpfs_of("256m")
    }

    /// A fresh tmpfs that is full after 8 MiB.
    #[cfg(debug_assertions)]
    pub(crate) fn small_tmpfs() -> Option<Storage> {
        Storage::tmpfs_of("8m")
    }

    fn tmpfs_of(size: &str) -> Option<Storage> {
        let scratch = scratch_folder();
        let folder = scratch.path().join("mnt");
        std::fs::create_dir(&folder).expect("an empty folder");
        Storage::mount("tmpfs", &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], folder, scratch)
    }

    fn image(name: &str, mkfs: &[&str], size: u64, options: &str) -> Option<Storage> {
        let scratch = scratch_folder();
        let image = scratch.path().join("image");
        std::fs::File::create(&image).and_then(|f| f.set_len(size)).expect("an image file");
        let made = Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image).output();
        match made {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                skip(
                    name,
                    &format!("{} failed: {}", mkfs[0], String::from_utf8_lossy(&output.stderr).trim()),
                );
                return None;
            }
            Err(error) => {
                skip(name, &format!("{}: {error}", mkfs[0]));
                return None;
            }
        }
        let folder = scratch.path().join("mnt");
        std::fs::create_dir(&folder).expect("an empty folder");
        let image = image.to_str().expect("a plain path").to_owned();
        Storage::mount(name, &["-t", name, "-o", options, &image], folder, scratch)
    }

    /// What ext4 and xfs do when their device vanishes, and when it comes back: what had not been written to it is lost. Nobody
    /// may go on using what is open there; `stop` sees to that.
    pub(crate) fn lose_power(&self, stop: impl FnOnce()) {
        use std::os::fd::AsRawFd;
        // Of xfs, whose number ext4 has taken over; and without what stands in the journal only.
        const SHUTDOWN: libc::c_ulong = 0x8004_587d;
        let without_log = 2_u32;
        let folder = std::fs::File::open(&self.folder).unwrap();
        // SAFETY: the call reads one word.
        assert_eq!(unsafe { libc::ioctl(folder.as_raw_fd(), SHUTDOWN, &raw const without_log) }, 0);
        drop(folder);
        stop();
        let done = |command: &mut Command| command.output().unwrap().status.success();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let wait = || {
            assert!(std::time::Instant::now() < end, "it stays in use");
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        loop {
            while !done(Command::new("umount").arg(&self.folder)) {
                wait();
            }
            assert!(done(Command::new("mount").args(&self.mounting).arg(&self.folder)));
            // A process with mounts of its own, as other tests make, may have kept the old one: then this is it again.
            if std::fs::write(self.path("there again"), "").is_ok() {
                return;
            }
            wait();
        }
    }

    fn mount(name: &str, args: &[&str], folder: PathBuf, scratch: tempfile::TempDir) -> Option<Storage> {
        match Command::new("mount").args(args).arg(&folder).output() {
            Ok(output) if output.status.success() => {
                let mounted = Some(Afterwards::unmount(&folder));
                let mounting = args.iter().map(|arg| (*arg).to_owned()).collect();
                Some(Storage { name: name.into(), folder, mounted, mounting, only: None, _scratch: scratch })
            }
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                skip(name, &format!("mounting is not allowed here: {why}"));
                None
            }
            Err(error) => {
                skip(name, &format!("mount: {error}"));
                None
            }
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // Lazily, so that a failing test with open files leaves nothing behind; and before the folder is removed.
        drop(self.mounted.take());
    }
}

/// Huge pages of 2 MiB for this machine, given back when it is dropped. Whoever asks at the same time gets fewer.
pub(crate) struct HugePages {
    before: u64,
}

impl HugePages {
    const COUNT: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

    /// Sees to it that so many more are free.
    pub(crate) fn take(wanted: u64) -> Result<HugePages, String> {
        let read = |path: &str| std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        let number = |text: String| text.trim().parse::<u64>().map_err(|e| e.to_string());
        let before = number(read(HugePages::COUNT)?)?;
        let pages = HugePages { before };
        let set = std::fs::write(HugePages::COUNT, (before + wanted).to_string());
        set.map_err(|e| format!("{}: {e}", HugePages::COUNT))?;
        let free = number(read(&HugePages::COUNT.replace("/nr_", "/free_"))?)?;
        if free >= wanted { Ok(pages) } else { Err(format!("{free} of {wanted} huge pages are to be had")) }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(HugePages::COUNT, self.before.to_string());
    }
}

/// Small, fast, repeatable randomness (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    /// Seeded from HIPFILE_TEST_SEED, else from the clock; the seed is printed, so that a failure can be repeated.
    pub(crate) fn new() -> Random {
        let seed = std::env::var("HIPFILE_TEST_SEED")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64) | 1);
        eprintln!("HIPFILE_TEST_SEED={seed}");
        Random(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub(crate) fn one_of(&mut self, choices: &[usize]) -> usize {
        choices[self.below(choices.len())]
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let value = self.next().to_le_bytes();
            chunk.copy_from_slice(&value[..chunk.len()]);
        }
    }
}
