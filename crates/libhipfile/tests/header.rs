//! The public headers compile alone, in every standard they promise, with warnings as errors; and their macros do what
//! they say. Needs a C and a C++ compiler; one that is not installed is skipped and says so.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test: what fails panics, what is skipped is said"
)]

mod support;

use std::path::PathBuf;
use std::process::Command;

use support::{HEADERS, crate_dir, include_dir, installed, stderr};

const C: [(&str, &[&str]); 2] =
    [("gcc", &["c99", "c11", "c17", "c2x"]), ("clang", &["c99", "c11", "c17", "c2x"])];
const CPP: [(&str, &[&str]); 2] = [
    ("g++", &["c++11", "c++14", "c++17", "c++20", "c++2b"]),
    ("clang++", &["c++11", "c++14", "c++17", "c++20", "c++2b"]),
];
const WARNINGS: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wundef", "-Wshadow"];

const BESIDE_CUDA: &str = "beside CUDA";

/// A way to come by HIP's two types.
struct Setting {
    name: &'static str,
    flags: Vec<String>,
}

fn settings() -> Vec<Setting> {
    let stub = crate_dir().join("tests/hip-stub");
    let emulation = crate_dir().join("../hip-emu-so/include");
    let with = |platform: &str, dir: &PathBuf| {
        vec![format!("-D{platform}"), "-isystem".into(), dir.display().to_string()]
    };
    let cuda = crate_dir().join("tests/cuda-stub").display().to_string();
    let beside_cuda = ["-isystem", &cuda, "-include", "cuda_runtime.h"].map(str::to_owned).to_vec();
    let mut settings = vec![
        Setting { name: "without HIP", flags: vec![] },
        Setting {
            name: "HIP unwanted",
            flags: vec!["-D__HIP_PLATFORM_AMD__".into(), "-DHIPFILE_NO_HIP".into()],
        },
        Setting { name: "HIP for AMD", flags: with("__HIP_PLATFORM_AMD__", &stub) },
        Setting { name: "HIP for NVIDIA", flags: with("__HIP_PLATFORM_NVIDIA__", &stub) },
        Setting { name: BESIDE_CUDA, flags: beside_cuda },
    ];
    if emulation.join("hip/hip_runtime_api.h").is_file() {
        settings.push(Setting { name: "emulated HIP", flags: with("__HIP_PLATFORM_AMD__", &emulation) });
    } else {
        eprintln!("SKIP: headers with emulated HIP: {} has no hip/hip_runtime_api.h", emulation.display());
    }
    settings
}

/// The compilers that are there; the system's own pair must be.
fn compilers() -> Vec<(&'static str, &'static [&'static str], &'static str)> {
    let c = C.map(|(compiler, standards)| (compiler, standards, "c"));
    let cpp = CPP.map(|(compiler, standards)| (compiler, standards, "c++"));
    let mut found: Vec<_> = c.into_iter().chain(cpp).collect();
    found.retain(|(compiler, ..)| {
        let there = installed(compiler);
        if !there {
            eprintln!("SKIP: headers with {compiler}: not installed");
        }
        there
    });
    for language in ["c", "c++"] {
        assert!(found.iter().any(|f| f.2 == language), "no {language} compiler is installed");
    }
    found
}

/// Compiles a source; the compiler's complaint if it has any.
fn compile(
    compiler: &str,
    language: &str,
    standard: &str,
    flags: &[String],
    source: &str,
) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("source.txt");
    std::fs::write(&path, source).unwrap();
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(WARNINGS).args(flags);
    if language == "c" {
        command.args(["-Wstrict-prototypes", "-Wmissing-prototypes"]);
    }
    command.arg("-I").arg(include_dir()).args(["-fsyntax-only", "-x", language]).arg(&path);
    let output = command.output().unwrap();
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}\n{}", stderr(&output))) }
}

/// Compiles a source in every language standard and setting.
fn compiles_everywhere(what: &str, source: &str) {
    let mut count = 0;
    for (compiler, standards, language) in compilers() {
        for standard in standards {
            for Setting { name, flags } in settings() {
                if let Err(why) = compile(compiler, language, standard, &flags, source) {
                    panic!("{what}, {compiler} {standard}, {name}: {why}");
                }
                count += 1;
            }
        }
    }
    // gcc's and g++'s nine standards in five settings.
    assert!(count >= 45, "only {count} combinations were compiled");
}

#[test]
fn each_header_compiles_alone() {
    for header in HEADERS {
        compiles_everywhere(header, &format!("#include <{header}>\nextern int used;\n"));
    }
}

#[test]
fn the_headers_compile_together_in_any_order_and_twice() {
    let forward: String = HEADERS.iter().map(|h| format!("#include <{h}>\n")).collect();
    let backward: String = HEADERS.iter().rev().map(|h| format!("#include <{h}>\n")).collect();
    compiles_everywhere("all headers", &format!("{forward}{backward}extern int used;\n"));
    compiles_everywhere("all headers, backwards", &format!("{backward}{forward}extern int used;\n"));
}

#[test]
fn the_headers_go_after_those_of_hip_even_if_hip_is_unwanted() {
    let flags = settings().remove(2).flags;
    let source =
        "#include <hip/hip_runtime_api.h>\n#define HIPFILE_NO_HIP\n#include <hipfile.h>\nextern int used;\n";
    for (compiler, standards, language) in compilers() {
        for standard in standards {
            compile(compiler, language, standard, &flags, source).unwrap();
        }
    }
}

#[test]
fn behaviour_149_a_stream_of_cuda_is_passed_as_it_is() {
    let flags = settings().into_iter().find(|setting| setting.name == BESIDE_CUDA).unwrap().flags;
    let source = "#include <hipfile.h>\nint used(cudaStream_t stream);\n\
        int used(cudaStream_t stream) { return (int)hipFileStreamRegister(stream, 0).err; }\n";
    for (compiler, standards, language) in compilers() {
        for standard in standards {
            compile(compiler, language, standard, &flags, source).unwrap();
            assert!(compile(compiler, language, standard, &[], source).is_err(), "{compiler} {standard}");
        }
    }
}

#[test]
fn the_example_for_cuda_compiles() {
    let flags = settings().into_iter().find(|setting| setting.name == BESIDE_CUDA).unwrap().flags;
    let source = std::fs::read_to_string(crate_dir().join("../../examples/cuda/roundtrip.c")).unwrap();
    // It includes the header that the flags include as well.
    assert!(source.contains("#include <cuda_runtime.h>\n\n#include <hipfile.h>"));
    for (compiler, standards, language) in compilers() {
        for standard in standards {
            compile(compiler, language, standard, &flags[..2], &source).unwrap();
        }
    }
}

#[test]
fn the_macros_can_be_used() {
    let source = r#"
        #include <hipfile.h>
        int used(hipFileError_t error, ssize_t n);
        int used(hipFileError_t error, ssize_t n) {
            const char *text = HIPFILE_ERRSTR(n);
            if (IS_HIP_DRV_ERR(error)) return (int)HIP_DRV_ERR(error);
            if (IS_HIPFILE_ERR(n) || IS_HIPFILE_ERR(error.err)) return text[0];
            return (HIPFILE_RDMA_REGISTER | HIPFILE_RDMA_RELAXED_ORDERING) + HIPFILE_STREAM_FLAGS_MASK;
        }
    "#;
    compiles_everywhere("macros", source);
}

#[test]
fn a_program_may_define_the_driver_error_macros_itself() {
    let source = "#define IS_HIP_DRV_ERR(e) 7\n#define HIP_DRV_ERR(e) 8\n#include <hipfile.h>\n\
                  extern int used[IS_HIP_DRV_ERR(0) == 7 && HIP_DRV_ERR(0) == 8 ? 1 : -1];\n";
    compiles_everywhere("own macros", source);
}

#[test]
fn a_dropped_error_is_warned_of_where_the_language_can() {
    let source = "#include <hipfile.h>\nvoid used(void);\nvoid used(void) { hipFileDriverOpen(); }\n\
         #ifdef __HIPFILE_NODISCARD\n#error it must not be left behind\n#endif\n";
    for (compiler, standards, language) in compilers() {
        for standard in standards {
            let result = compile(compiler, language, standard, &[], source);
            let warns = ["c2x", "c++17", "c++20", "c++2b"].contains(standard);
            assert_eq!(result.is_err(), warns, "{compiler} {standard}: {result:?}");
            if let Err(why) = result {
                assert!(why.contains("nodiscard"), "{why}");
            }
        }
    }
}

#[test]
fn a_warning_fails_the_compilation() {
    for (compiler, standards, language) in compilers() {
        for standard in standards {
            let source = "#include <hipfile.h>\nint used(int);\nint used(int unused) { return 0; }\n";
            assert!(compile(compiler, language, standard, &[], source).is_err(), "{compiler} {standard}");
        }
    }
}
