//! Each header alone, in every language it is meant for, with warnings as errors.

use crate::cc::{compiler, header};

const HEADERS: &[&str] = &["hip_runtime_api.h", "hip_runtime.h", "hiprtc.h", "hip_version.h"];

#[test]
fn each_header_compiles_alone() {
    let folder = tempfile::tempdir().unwrap();
    for name in HEADERS {
        let source = folder.path().join("alone.c");
        std::fs::write(&source, format!("#include <hip/{name}>\nint used(void);\n")).unwrap();
        for (language, compiler_name, standards) in [
            ("c", "cc", &["c99", "c11", "c17", "c2x"][..]),
            ("c++", "c++", &["c++11", "c++14", "c++17", "c++20"][..]),
        ] {
            for standard in standards {
                let mut command = compiler(compiler_name);
                command.args(["-x", language, &format!("-std={standard}"), "-fsyntax-only"]).arg(&source);
                let done = command.output().unwrap();
                assert!(
                    done.status.success(),
                    "{name}, {standard}: {}",
                    String::from_utf8_lossy(&done.stderr)
                );
            }
        }
    }
}

#[test]
fn the_platform_must_be_named_and_be_amd() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("platform.c");
    std::fs::write(&source, "#include <hip/hip_runtime.h>\nint used(void);\n").unwrap();
    for macros in [&["-U__HIP_PLATFORM_AMD__"][..], &["-D__HIP_PLATFORM_NVIDIA__"][..]] {
        let done = compiler("cc").args(macros).arg("-fsyntax-only").arg(&source).output().unwrap();
        assert!(!done.status.success(), "{macros:?}");
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(errors.contains("define __HIP_PLATFORM_AMD__"), "{errors}");
    }
}

#[test]
fn each_header_says_whose_it_is() {
    for name in HEADERS.iter().chain(&["hip_emu_types.h"]) {
        let text = header(name);
        let first = text.split("*/").next().unwrap();
        assert!(
            first.contains(&format!("hip/{name} - header of hipfile's emulated GPU, not AMD's")),
            "{name}"
        );
    }
}
