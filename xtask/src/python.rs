//! The Python package: builds its wheel, and runs its tests from the installed wheel in a new environment, by the oldest and
//! the newest Python of this machine. What the package promises is in its tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::cmd::{Cmd, cmd, which};
use crate::{layout, package};

/// Builds wheels.
const MATURIN: &str = "maturin==1.16.0";
/// What the tests need beside the package.
const REQUIREMENTS: &str = "crates/hipfile-python/tests/requirements.txt";
/// Looks at which systems a wheel runs with.
const AUDITWHEEL: &str = "auditwheel==6.8.2";
/// The first that has the stable interface the wheel is built for.
const OLDEST: (u32, u32) = (3, 11);

/// A Python on this machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Python {
    version: (u32, u32),
    free_threaded: bool,
    pub(crate) path: PathBuf,
}

impl Python {
    /// Its version, as in `3.13` or `3.13t`.
    pub(crate) fn name(&self) -> String {
        let (major, minor) = self.version;
        format!("{major}.{minor}{}", if self.free_threaded { "t" } else { "" })
    }

    /// Whether modules in C can be built for it.
    pub(crate) fn has_headers(&self) -> bool {
        const QUESTION: &str = "import sysconfig; print(sysconfig.get_path('include'))";
        let folder = cmd(&self.path).arg("-Ic").arg(QUESTION).output();
        folder.is_ok_and(|folder| Path::new(folder.trim()).join("Python.h").is_file())
    }

    /// What a program is, by its own word; `None` for what does not start.
    fn ask(path: PathBuf) -> Option<Python> {
        const QUESTION: &str = "import sys, sysconfig; \
             print(*sys.version_info[:2], int(sysconfig.get_config_var('Py_GIL_DISABLED') or 0), sys.executable)";
        let answer = std::process::Command::new(&path).arg("-Ic").arg(QUESTION).output().ok()?;
        answer.status.success().then(|| Python::understand(&String::from_utf8_lossy(&answer.stdout)))?
    }

    fn understand(answer: &str) -> Option<Python> {
        let mut words = answer.trim().splitn(4, ' ');
        let mut number = || words.next()?.parse().ok();
        let (version, free) = ((number()?, number()?), number()?);
        Some(Python { version, free_threaded: free != 0, path: words.next()?.into() })
    }
}

/// Every Python that can be found, from the oldest to the newest.
pub(crate) fn pythons() -> &'static [Python] {
    static FOUND: OnceLock<Vec<Python>> = OnceLock::new();
    FOUND.get_or_init(find)
}

/// Looks on `PATH`, and where pyenv keeps its own.
fn find() -> Vec<Python> {
    let names =
        (OLDEST.1..OLDEST.1 + 10).flat_map(|minor| [format!("python3.{minor}"), format!("python3.{minor}t")]);
    let mut paths: Vec<PathBuf> =
        names.chain(["python3".to_owned()]).filter_map(|name| which(&name)).collect();
    let home = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    if let Some(entries) = home.and_then(|home| home.join("versions").read_dir().ok()) {
        paths.extend(
            entries.flatten().map(|entry| entry.path().join("bin/python3")).filter(|path| path.is_file()),
        );
    }
    let mut found: Vec<Python> = paths.into_iter().filter_map(Python::ask).collect();
    found.retain(|python| python.version >= OLDEST);
    found.sort();
    found.dedup_by(|a, b| (a.version, a.free_threaded) == (b.version, b.free_threaded));
    found
}

/// The oldest and the newest of those with an interpreter lock.
fn ends(found: &[Python]) -> Vec<&Python> {
    let usual: Vec<&Python> = found.iter().filter(|python| !python.free_threaded).collect();
    match usual.as_slice() {
        [] => vec![],
        [only] => vec![only],
        [first, .., last] => vec![first, last],
    }
}

/// The oldest with an interpreter lock.
pub(crate) fn oldest() -> Option<&'static Python> {
    ends(pythons()).first().copied()
}

/// The step of `cargo xtask ci`.
///
/// # Errors
/// The wheel does not build, or a test fails.
pub(crate) fn run() -> Result<(), String> {
    let found = pythons();
    let chosen = ends(found);
    let Some(first) = chosen.first() else {
        println!("SKIP: the Python package: there is no Python 3.{} or later", OLDEST.1);
        return Ok(());
    };
    if chosen.len() == 1 {
        println!("SKIP: the package on a newer Python: {} is the only one here", first.name());
    }
    let wheel = build()?;
    chosen.iter().enumerate().try_for_each(|(at, python)| tests(python, &wheel, at == 0))?;
    examples(first, &wheel)?;
    // The interface of Pythons with a lock is not theirs: each has a wheel of its own.
    let free: Vec<&Python> = found.iter().filter(|python| python.free_threaded).collect();
    if free.is_empty() {
        println!("SKIP: the package on a free-threaded Python: there is none here");
    }
    free.iter().try_for_each(|python| tests(python, &build_for(&python.path, &python.name())?, false))
}

/// The tests, by one Python, of the installed wheel.
fn tests(python: &Python, wheel: &Path, with_types: bool) -> Result<(), String> {
    // The annotations are the same for all.
    let but = if with_types { "" } else { "--ignore crates/hipfile-python/tests/test_types.py" };
    let environment = environment(python, "test", Some(Path::new(REQUIREMENTS)), &[wheel])?;
    let staged = layout::dist(true);
    let interpreter = interpreter(&environment);
    let interpreter =
        if staged.is_dir() { interpreter.env("HIPFILE_TEST_DIST", &staged) } else { interpreter };
    interpreter
        .words("-m pytest -c crates/hipfile-python/pyproject.toml crates/hipfile-python/tests")
        .words(but)
        .run()
}

/// An environment's interpreter, as users start it: without the library path that cargo sets, where the emulated HIP lies.
fn interpreter(environment: &Path) -> Cmd {
    let python = cmd(environment.join("bin/python"));
    python.env("LD_LIBRARY_PATH", "").env("PYTHONDONTWRITEBYTECODE", "1")
}

/// The example programs, from the same wheel.
fn examples(python: &Python, wheel: &Path) -> Result<(), String> {
    let folder = Path::new("examples/python");
    let home = environment(python, "examples", Some(&folder.join("requirements.txt")), &[wheel])?;
    let scratch = layout::target().join("python/scratch");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let run = |name: &str| interpreter(&home).arg(folder.join(name)).arg(&scratch);
    run("numpy_roundtrip.py").run()?;
    run("kv_cache.py").run()?;
    let plot = scratch.join("plot.png");
    run("checkpoint_loader.py").words("--largest 32 --plot").arg(&plot).run()?;
    if plot.is_file() { Ok(()) } else { Err(format!("{}: the plot was not written", plot.display())) }
}

/// Builds the wheel, unoptimized like everything that tests use.
///
/// # Errors
/// It does not build.
pub(crate) fn build() -> Result<PathBuf, String> {
    build_for(&kitchen()?.join("bin/python"), "")
}

/// As [`build`], for an interpreter, in a folder of its own.
fn build_for(interpreter: &Path, folder: &str) -> Result<PathBuf, String> {
    let out = layout::target().join("python").join(format!("wheels{folder}"));
    let _ = fs::remove_dir_all(&out);
    cmd(kitchen()?.join("bin/maturin"))
        .words("build --quiet --locked --profile dev --manifest-path crates/hipfile-python/Cargo.toml --out")
        .arg(&out)
        .arg("--interpreter")
        .arg(interpreter)
        .run()?;
    only_wheel(&out)
}

/// The wheel that others install: optimized, for every glibc from that version on, and with these files about what of others is in it.
///
/// # Errors
/// It does not build.
pub(crate) fn portable_wheel(
    out: &Path,
    (major, minor): (u32, u32),
    epoch: &str,
    others: &[PathBuf],
) -> Result<Option<PathBuf>, String> {
    if oldest().is_none() {
        println!("SKIP: the wheel: there is no Python 3.{} or later", OLDEST.1);
        return Ok(None);
    }
    let kitchen = kitchen()?;
    let path = package::path_with_zig()?;
    let build = cmd(kitchen.join("bin/maturin"))
        .words(
            "build --quiet --locked --release --strip --zig --manifest-path crates/hipfile-python/Cargo.toml",
        )
        .arg("--compatibility")
        .arg(format!("manylinux_{major}_{minor}"))
        .arg("--target-dir")
        .arg(layout::target().join("portable"))
        .arg("--interpreter")
        .arg(kitchen.join("bin/python"))
        .arg("--out")
        .arg(out)
        .env("PATH", path)
        .env("RUSTFLAGS", package::flags())
        .env("SOURCE_DATE_EPOCH", epoch);
    others.iter().fold(build, |build, file| build.arg("--sbom-include").arg(file)).run()?;
    let wheel = only_wheel(out)?;
    audit(&wheel, &format!("manylinux_{major}_{minor}_x86_64"))?;
    Ok(Some(wheel))
}

/// Has auditwheel say whether the wheel runs wherever its name says.
fn audit(wheel: &Path, platform: &str) -> Result<(), String> {
    let home = from_pypi(AUDITWHEEL)?;
    // The program beside it names the folder it was installed in, and build folders are moved.
    let told = cmd(home.join("bin/python")).words("-m auditwheel show").arg(wheel).output()?;
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    match told.contains(&format!("consistent with the following platform tag: \"{platform}\"")) {
        true => Ok(()),
        false => Err(format!("{}: no wheel for {platform}: {told}", wheel.display())),
    }
}

/// The wheel in a folder that has just one.
///
/// # Errors
/// It has none, or several.
pub(crate) fn only_wheel(folder: &Path) -> Result<PathBuf, String> {
    let entries = folder.read_dir().map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut wheels: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    wheels.retain(|path| path.extension().is_some_and(|end| end == "whl"));
    match wheels.as_slice() {
        [wheel] => Ok(wheel.clone()),
        others => Err(format!("{}: one wheel was to be there, not {}", folder.display(), others.len())),
    }
}

/// Where what is fetched or built once is kept.
pub(crate) fn tools() -> PathBuf {
    layout::target().join("tools")
}

/// The environment with pip and maturin that the others are made from.
fn kitchen() -> Result<PathBuf, String> {
    from_pypi(MATURIN)
}

/// An environment with pip and these packages, separated by blanks; made once.
///
/// # Errors
/// There is no Python, or the packages cannot be had.
pub(crate) fn from_pypi(packages: &str) -> Result<PathBuf, String> {
    let python = oldest().ok_or_else(|| format!("there is no Python for {packages}"))?;
    let home = packages.replace("==", "-").replace(' ', "-");
    let home = tools().join(format!("python{}-{home}", python.name()));
    once(&home, || {
        cmd(&python.path).words("-m venv").arg(&home).run()?;
        cmd(home.join("bin/python")).words("-m pip install --quiet").words(packages).run()
    })?;
    Ok(home)
}

/// Runs `make` unless it succeeded before; what it left unfinished goes first.
///
/// # Errors
/// As `make`.
pub(crate) fn once(home: &Path, make: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let mark = home.join("complete");
    if mark.is_file() {
        return Ok(());
    }
    let _ = fs::remove_dir_all(home);
    make()?;
    fs::write(&mark, "").map_err(|e| format!("{}: {e}", mark.display()))
}

/// pip, installing for another interpreter: new environments need none of their own, which takes most of their time.
///
/// # Errors
/// There is no Python, or pip cannot be had.
pub(crate) fn pip(target: &Path) -> Result<Cmd, String> {
    Ok(cmd(kitchen()?.join("bin/python")).words("-m pip --quiet --python").arg(target))
}

/// A new environment with these wheels and what a list of requirements names. The packages are fetched once for each list
/// and Python; later runs need no network.
///
/// # Errors
/// A package cannot be had.
pub(crate) fn environment(
    python: &Python,
    name: &str,
    requirements: Option<&Path>,
    wheels: &[&Path],
) -> Result<PathBuf, String> {
    let home = layout::target().join("python").join(format!("{name}-{}", python.name()));
    let _ = fs::remove_dir_all(&home);
    cmd(&python.path).words("-m venv --without-pip").arg(&home).run()?;
    let mut install = pip(&home.join("bin/python"))?.words("install --no-index");
    if let Some(requirements) = requirements {
        let listed = layout::root().join(requirements);
        install =
            install.arg("--find-links").arg(fetched(python, &listed)?).arg("--requirement").arg(&listed);
    }
    wheels.iter().fold(install, |install, wheel| install.arg(wheel)).run()?;
    Ok(home)
}

/// The folder with the packages that a list names.
fn fetched(python: &Python, listed: &Path) -> Result<PathBuf, String> {
    let text = fs::read(listed).map_err(|e| format!("{}: {e}", listed.display()))?;
    let house = tools().join(format!("wheels-python{}-{:016x}", python.name(), fingerprint(&text)));
    once(&house, || {
        let fetch = pip(&python.path)?.words("download --only-binary :all: --dest").arg(&house);
        fetch.arg("--requirement").arg(listed).run()
    })?;
    Ok(house)
}

/// FNV-1a: names a folder by a list's contents.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(minor: u32, free_threaded: bool) -> Python {
        Python { version: (3, minor), free_threaded, path: format!("python3.{minor}").into() }
    }

    #[test]
    fn what_an_interpreter_says_is_understood() {
        let said = Python::understand("3 13 1 /opt/my python/bin/python3\n").expect("an answer");
        assert_eq!((said.version, said.free_threaded), ((3, 13), true));
        assert_eq!(
            (said.name().as_str(), said.path.as_path()),
            ("3.13t", Path::new("/opt/my python/bin/python3"))
        );
        assert_eq!(Python::understand("pyenv: not found"), None);
        assert_eq!(Python::understand(""), None);
    }

    #[test]
    fn the_oldest_and_the_newest_are_chosen() {
        let all = [python(11, false), python(12, false), python(13, false), python(14, true)];
        let minors = |found: &[Python]| ends(found).iter().map(|python| python.version.1).collect::<Vec<_>>();
        assert_eq!(minors(&all), [11, 13]);
        assert_eq!(minors(&all[..1]), [11]);
        assert_eq!(minors(&all[3..]), [0_u32; 0]);
    }

    #[test]
    fn different_lists_have_different_folders() {
        assert_ne!(fingerprint(b"numpy==2.0"), fingerprint(b"numpy==2.1"));
    }
}
