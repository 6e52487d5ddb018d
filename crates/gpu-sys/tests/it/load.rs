//! Which library serves, and what is said of one that cannot.

use std::path::Path;
use std::process::Command;

use crate::probe::Probe;
use crate::stub::Stub;

const NEW: i32 = 71_400_000;
const OLD: i32 = 50_221_153;

/// Whether this machine has a HIP runtime of its own, so that a search never comes back empty.
fn machine_has_hip(case: &str) -> bool {
    let found = Probe::new().run();
    let has = !found.get("error").is_some_and(|error| error.starts_with("no HIP runtime found"));
    if has {
        eprintln!("SKIP: {case}: this machine has a HIP runtime in a standard place");
    }
    has
}

#[test]
fn the_named_library_serves() {
    let folder = tempfile::tempdir().unwrap();
    let library = Stub::new(NEW).build(folder.path(), "libanything.so");
    let found = Probe::new().library(&library).run();
    found.serves(&library);
    assert_eq!(found.get("version"), Some("71400000"));
    assert_eq!(found.get("emulated"), Some("false"));
    assert_eq!(found.get("already_loaded"), Some("false"));
    assert_eq!(found.get("optional"), Some("true"));
}

#[test]
fn the_first_rocm_6_serves_and_may_lack_what_is_optional() {
    let folder = tempfile::tempdir().unwrap();
    let library = Stub::new(60_000_000).without_optional().build(folder.path(), "libanything.so");
    let found = Probe::new().library(&library).run();
    found.serves(&library);
    assert_eq!(found.get("optional"), Some("false"));
}

#[test]
fn the_marker_means_emulated() {
    let folder = tempfile::tempdir().unwrap();
    let library =
        Stub::new(NEW).extra("const int hipfile_emulated_gpu = 1;\n").build(folder.path(), "libmarked.so");
    assert_eq!(Probe::new().library(&library).run().get("emulated"), Some("true"));
}

#[test]
fn an_old_runtime_is_refused_by_its_version() {
    let folder = tempfile::tempdir().unwrap();
    // Its other functions are not even looked at.
    let library = Stub::new(OLD).without("hipMalloc").build(folder.path(), "libold.so");
    assert_eq!(
        Probe::new().library(&library).run().error(),
        format!(
            "ROCm 5.2 at {} is too old: ROCm 6.0 or newer is needed; its memory-type numbers differ",
            library.display()
        )
    );
    let almost = Stub::new(59_999_999).build(folder.path(), "libalmost.so");
    assert!(Probe::new().library(&almost).run().error().contains("is too old"));
}

#[test]
fn the_first_missing_function_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["hipRuntimeGetVersion", "hipInit", "hipMalloc", "hipLaunchHostFunc"] {
        let file = format!("libwithout-{name}.so");
        let library = Stub::new(NEW).without(name).build(folder.path(), &file);
        let error = Probe::new().library(&library).run().error().to_owned();
        assert_eq!(error, format!("the HIP library {} has no {name}", library.display()));
    }
}

#[test]
fn a_runtime_without_a_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let failing = Stub::new(NEW).version_code(303).build(folder.path(), "libfailing.so");
    let error = Probe::new().library(&failing).run().error().to_owned();
    assert!(error.ends_with("cannot tell its version: hipErrorSharedObjectInitFailed"), "{error}");
    for (version, file) in [(0, "libzero.so"), (-1, "libminus.so")] {
        let library = Stub::new(version).build(folder.path(), file);
        let error = Probe::new().library(&library).run().error().to_owned();
        assert!(error.ends_with(&format!("reports the impossible version {version}")), "{error}");
    }
}

#[test]
fn what_is_no_library_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let good = Stub::new(NEW).build(folder.path(), "libgood.so");
    let bytes = std::fs::read(&good).unwrap();
    let path = |name: &str| folder.path().join(name);

    std::fs::write(path("text"), "This is no library.\n".repeat(20)).unwrap();
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("half"), &bytes[..bytes.len() / 2]).unwrap();
    std::fs::write(path("header-only"), &bytes[..64]).unwrap();
    let patched = |name: &str, at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        std::fs::write(path(name), bytes).unwrap();
    };
    patched("32-bit", 4, 1);
    patched("other-order", 5, 2);
    patched("program", 16, 2);
    patched("other-machine", 18, 8);
    patched("odd-headers", 54, 1);
    let fifo = Command::new("mkfifo").arg(path("fifo")).status().unwrap();
    assert!(fifo.success());

    for (name, reason) in [
        ("absent", "No such file"),
        ("text", "not an ELF file"),
        ("empty", "too short"),
        ("half", "truncated"),
        ("header-only", "truncated"),
        ("32-bit", "ELF class 1 where 64-bit code (2) is needed"),
        ("other-order", "other byte order"),
        ("program", "ELF type 2"),
        ("other-machine", ""),
        ("odd-headers", "program headers of 1 bytes"),
        ("fifo", "not a regular file"),
        (".", "not a regular file"),
        ("text/below", "Not a directory"),
    ] {
        let path = path(name);
        let error = Probe::new().library(&path).run().error().to_owned();
        let start = format!("the HIP library {} cannot be loaded: ", path.display());
        assert!(error.starts_with(&start) && error[start.len()..].contains(reason), "{name}: {error}");
    }
    let error = Probe::new().library("").run().error().to_owned();
    assert_eq!(error, "the HIP library  cannot be loaded: the name is empty");
}

#[test]
fn a_named_library_may_be_one_for_the_loader_to_find() {
    let folder = tempfile::tempdir().unwrap();
    let library = Stub::new(NEW).build(folder.path(), "libsearched.so");
    Probe::new().library("libsearched.so").search(folder.path()).run().serves(&library);
    let error = Probe::new().library("libsearched.so").run().error().to_owned();
    assert!(error.starts_with("the HIP library libsearched.so cannot be loaded: "), "{error}");
}

#[test]
fn the_newest_name_on_the_search_path_serves() {
    let folder = tempfile::tempdir().unwrap();
    let unversioned = Stub::new(NEW).build(folder.path(), "libamdhip64.so");
    Probe::new().search(folder.path()).run().serves(&unversioned);
    let six = Stub::new(60_200_000).build(folder.path(), "libamdhip64.so.6");
    Probe::new().search(folder.path()).run().serves(&six);
    let seven = Stub::new(NEW).build(folder.path(), "libamdhip64.so.7");
    let found = Probe::new().search(folder.path()).run();
    found.serves(&seven);
    assert_eq!(found.get("already_loaded"), Some("false"));
    assert!(found.has_mapped(folder.path()), "{found:?}");
}

#[test]
fn an_unusable_file_does_not_end_the_search() {
    let folder = tempfile::tempdir().unwrap();
    let search = folder.path().join("search");
    let old = Stub::new(OLD).build(&search, "libamdhip64.so");
    std::fs::write(search.join("libamdhip64.so.7"), "no library").unwrap();
    let rocm = folder.path().join("rocm");
    let six = Stub::new(60_200_000).build(&rocm.join("lib"), "libamdhip64.so.6");
    Probe::new().search(&search).rocm_path(&rocm).run().serves(&six);

    if machine_has_hip("an old runtime alone") {
        return;
    }
    let error = Probe::new().search(&search).run().error().to_owned();
    assert!(error.starts_with(&format!("ROCm 5.2 at {} is too old", old.display())), "{error}");
}

#[test]
fn rocm_path_serves_after_the_search_path() {
    let folder = tempfile::tempdir().unwrap();
    let rocm = folder.path().join("rocm");
    let six = Stub::new(60_200_000).build(&rocm.join("lib"), "libamdhip64.so.6");
    if !machine_has_hip("ROCM_PATH alone") {
        Probe::new().rocm_path(&rocm).run().serves(&six);
    }
    let search = folder.path().join("search");
    let seven = Stub::new(NEW).build(&search, "libamdhip64.so.7");
    Probe::new().rocm_path(&rocm).search(&search).run().serves(&seven);
}

#[test]
fn nothing_found_lists_what_was_tried() {
    if machine_has_hip("no runtime at all") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let error = Probe::new().rocm_path(folder.path()).run().error().to_owned();
    let in_rocm = folder.path().join("lib/libamdhip64.so");
    let names = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"];
    let all = |folder: &str| names.map(|name| format!("{folder}{name}")).join(", ");
    let folders = ["", in_rocm.to_str().unwrap().trim_end_matches(names[2]), "/opt/rocm/lib/"];
    assert_eq!(error, format!("no HIP runtime found: there is no {}", folders.map(all).join(", ")));
}

#[test]
fn a_library_that_is_there_and_cannot_be_loaded_says_why_beside_those_that_are_not_there() {
    if machine_has_hip("a runtime that cannot be loaded") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libamdhip64.so.6"), "no library").unwrap();
    let needy = Stub::new(NEW).build(&folder.path().join("rocm/lib"), "libneeded.so");
    std::fs::create_dir_all(folder.path().join("rocm/lib")).unwrap();
    let lacks = folder.path().join("rocm/lib/libamdhip64.so.7");
    let linked = std::process::Command::new("gcc")
        .args(["-shared", "-nostdlib", "-Wl,--no-as-needed", "-o"])
        .args([&lacks, &needy])
        .status()
        .unwrap();
    assert!(linked.success());
    std::fs::remove_file(&needy).unwrap();
    let probe = Probe::new().rocm_path(&folder.path().join("rocm")).search(folder.path());
    let error = probe.run().error().to_owned();
    let start = "no HIP runtime found: there is no libamdhip64.so.7, libamdhip64.so, ";
    assert!(error.starts_with(start), "{error}");
    for part in ["; libamdhip64.so.6: ", &format!("; {}: ", lacks.display()), "libneeded.so"] {
        assert!(error.contains(part), "{part} is missing in: {error}");
    }
}

/// Three ways in which a program has HIP already; the one on the search path must not be loaded beside it.
#[test]
fn the_copy_in_the_process_serves() {
    let folder = tempfile::tempdir().unwrap();
    let search = folder.path().join("search");
    Stub::new(NEW).build(&search, "libamdhip64.so.7");
    let own = folder.path().join("own");

    let by_soname = Stub::new(60_300_000).soname("libamdhip64.so.6").build(&own, "libbundled.so");
    let by_file = Stub::new(60_300_000).soname("libx.so").build(&own, "libamdhip64-8f3a.so.6");
    let by_symbol = Stub::new(60_300_000).build(&own, "libwrapped.so");
    let runs: [(&Path, Probe); 3] = [
        (&by_soname, Probe::new().loaded_locally(&by_soname)),
        (&by_file, Probe::new().loaded_locally(&by_file)),
        (&by_symbol, Probe::new().preload(&by_symbol)),
    ];
    for (library, probe) in runs {
        let found = probe.search(&search).run();
        found.serves(library);
        assert_eq!(found.get("already_loaded"), Some("true"));
        assert_eq!(found.get("version"), Some("60300000"));
        assert!(!found.has_mapped(&search), "{found:?}");
    }
    let only = Probe::new().only_if_loaded().loaded_locally(&by_file).run();
    only.serves(&by_file);
}

#[test]
fn an_old_copy_in_the_process_is_refused_not_joined() {
    let folder = tempfile::tempdir().unwrap();
    let search = folder.path().join("search");
    Stub::new(NEW).build(&search, "libamdhip64.so.7");
    let by_soname = Stub::new(OLD).soname("libamdhip64.so.5").build(folder.path(), "libbundled.so");
    let by_symbol = Stub::new(OLD).build(folder.path(), "libwrapped.so");
    for (library, probe) in [
        (&by_soname, Probe::new().loaded_locally(&by_soname)),
        (&by_symbol, Probe::new().preload(&by_symbol)),
    ] {
        let found = probe.search(&search).run();
        let error = found.error();
        assert!(error.starts_with(&format!("ROCm 5.2 at {} is too old", library.display())), "{error}");
        assert!(!found.has_mapped(&search), "{found:?}");
    }
}

#[test]
fn the_named_library_wins_over_the_copy_in_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = Stub::new(OLD).soname("libamdhip64.so.5").build(folder.path(), "libloaded.so");
    let named = Stub::new(NEW).build(folder.path(), "libnamed.so");
    let found = Probe::new().loaded_locally(&loaded).library(&named).run();
    found.serves(&named);
    assert_eq!(found.get("already_loaded"), Some("false"));

    let found = Probe::new().loaded_locally(&named).library(&named).only_if_loaded().run();
    found.serves(&named);
    assert_eq!(found.get("already_loaded"), Some("true"));
}

#[test]
fn nothing_is_loaded_when_only_a_loaded_one_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let seven = Stub::new(NEW).build(folder.path(), "libamdhip64.so.7");
    let error = Probe::new().only_if_loaded().search(folder.path()).run().error().to_owned();
    assert_eq!(error, "no HIP runtime found: libamdhip64: not loaded in this process");
    let error = Probe::new().only_if_loaded().library(&seven).run().error().to_owned();
    assert!(error.ends_with("libamdhip64.so.7: not loaded in this process"), "{error}");
}
