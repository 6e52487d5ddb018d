//! A real runtime that is too old: Debian's libamdhip64-5 (ROCm 5.2.3), as far as it is installed.

use std::path::Path;

use crate::probe::Probe;

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5";

#[test]
fn the_real_rocm_5_is_refused_in_every_position() {
    if !Path::new(LIBRARY).exists() {
        eprintln!("SKIP: Debian's ROCm 5.2: {LIBRARY} is absent (apt-get install libamdhip64-5)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lib = folder.path().join("lib");
    std::fs::create_dir(&lib).unwrap();
    std::os::unix::fs::symlink(LIBRARY, lib.join("libamdhip64.so")).unwrap();

    let library = Path::new(LIBRARY);
    for (position, probe) in [
        ("named", Probe::new().library(library)),
        ("preloaded", Probe::new().preload(library)),
        ("loaded locally", Probe::new().loaded_locally(library)),
        ("loaded, nothing else wanted", Probe::new().loaded_locally(library).only_if_loaded()),
        ("on the search path", Probe::new().search(&lib)),
        ("under ROCM_PATH", Probe::new().rocm_path(folder.path())),
    ] {
        let found = probe.run();
        let error = found.error();
        assert!(error.starts_with("ROCm 5.2 at "), "{position}: {error}");
        assert!(error.ends_with("ROCm 6.0 or newer is needed; its memory-type numbers differ"), "{error}");
    }
}
