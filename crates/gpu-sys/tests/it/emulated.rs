//! The emulated runtime as the loader meets it.

use crate::probe::Probe;

#[test]
fn the_emulation_is_known_by_its_marker() {
    let emulation = test_support::emulation();
    for probe in [Probe::new().library(emulation.runtime()), Probe::new().search(&emulation.lib)] {
        let found = probe.run();
        found.serves(&emulation.runtime());
        assert_eq!(found.get("emulated"), Some("true"));
        assert_eq!(found.get("version"), Some("71460850"));
        assert_eq!((found.get("optional"), found.get("amd_file")), (Some("true"), Some("both")));
    }
}

#[test]
fn the_emulation_of_an_old_runtime_is_refused_as_that_is() {
    let runtime = test_support::emulation().runtime();
    let found = Probe::new().library(&runtime).env("HIP_EMU_VERSION", "5.7").run();
    assert!(found.error().starts_with("ROCm 5.7 at "), "{found:?}");
    let found = Probe::new().library(&runtime).env("HIP_EMU_VERSION", "6.0").run();
    assert_eq!(found.get("version"), Some("60000000"));
}
