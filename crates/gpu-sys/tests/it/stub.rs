//! Makes stand-ins for libamdhip64 with `cc`. They load and answer `hipRuntimeGetVersion`; nothing else works.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpu_sys::hip::HipApi;

/// A library to be compiled.
pub(crate) struct Stub {
    version_code: i32,
    version: i32,
    without: Vec<&'static str>,
    with_optional: bool,
    soname: Option<String>,
    extra: String,
}

impl Stub {
    /// A complete runtime of this version.
    pub(crate) fn new(version: i32) -> Self {
        Stub {
            version_code: 0,
            version,
            without: Vec::new(),
            with_optional: true,
            soname: None,
            extra: String::new(),
        }
    }

    /// `hipRuntimeGetVersion` returns this code.
    pub(crate) fn version_code(mut self, code: i32) -> Self {
        self.version_code = code;
        self
    }

    /// Leaves one function out.
    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.without.push(name);
        self
    }

    /// Leaves out whatever may be absent.
    pub(crate) fn without_optional(mut self) -> Self {
        self.with_optional = false;
        self
    }

    pub(crate) fn soname(mut self, name: &str) -> Self {
        self.soname = Some(name.to_owned());
        self
    }

    /// Adds C source.
    pub(crate) fn extra(mut self, source: &str) -> Self {
        self.extra.push_str(source);
        self
    }

    /// Compiles the library as `folder/name`.
    pub(crate) fn build(self, folder: &Path, name: &str) -> PathBuf {
        let mut source = String::from("#include <stddef.h>\n#include <stdint.h>\n");
        let optional = if self.with_optional { HipApi::OPTIONAL } else { &[] };
        for function in HipApi::REQUIRED.iter().chain(optional) {
            if self.without.contains(function) || self.extra.contains(&format!(" {function}(")) {
                continue;
            }
            if *function == "hipRuntimeGetVersion" {
                let (version, code) = (self.version, self.version_code);
                let _ = writeln!(source, "int {function}(int *v) {{ *v = {version}; return {code}; }}");
            } else {
                let _ = writeln!(source, "int {function}(void) {{ return 801; }}");
            }
        }
        source.push_str(&self.extra);

        std::fs::create_dir_all(folder).unwrap();
        let source_path = folder.join(format!("{name}.c"));
        std::fs::write(&source_path, source).unwrap();
        let library = folder.join(name);
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O0", "-o"]).arg(&library).arg(&source_path);
        if let Some(soname) = self.soname {
            cc.arg(format!("-Wl,-soname,{soname}"));
        }
        let done = cc.output().expect("cc runs");
        assert!(done.status.success(), "cc: {}", String::from_utf8_lossy(&done.stderr));
        library
    }
}
