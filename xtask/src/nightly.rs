//! The nightly toolchain, for tools that stable ones lack. It is used where it is installed and never installed here; a
//! missing part of it is, by rustup.

use std::path::PathBuf;

use crate::cmd::{Cmd, cmd};

/// An installed nightly toolchain.
pub(crate) struct Nightly {
    cargo: PathBuf,
}

/// The toolchain with one of its parts; without it the skip is told.
pub(crate) fn with_component(what: &str, component: &str) -> Option<Nightly> {
    let Ok(cargo) = cmd("rustup").words("which --toolchain nightly cargo").output() else {
        println!("SKIP: {what}: rustup has no nightly toolchain");
        return None;
    };
    if let Err(why) = cmd("rustup").words("component add --toolchain nightly").arg(component).run() {
        println!("SKIP: {what}: the nightly toolchain has no {component}: {why}");
        return None;
    }
    Some(Nightly { cargo: PathBuf::from(cargo.trim()) })
}

impl Nightly {
    /// Its cargo. What that starts finds it too.
    pub(crate) fn cargo(&self) -> Cmd {
        self.within(cmd("rustup").words("run nightly cargo"))
    }

    /// A command that starts cargo and compilers, made to start these.
    pub(crate) fn within(&self, command: Cmd) -> Cmd {
        command.env("RUSTUP_TOOLCHAIN", "nightly").env("CARGO", &self.cargo)
    }
}
