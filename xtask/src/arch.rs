//! Architectures that packages are made for, and whose kernels are tested: their names, and how
//! their programs are run here.

use std::env::consts::ARCH;
use std::path::Path;
use std::process::Command;

use clap::ValueEnum;

use crate::process;

/// An architecture, by Debian's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arch {
    /// x86-64
    Amd64,
    /// 64-bit ARM
    Arm64,
}

impl Arch {
    /// The architectures that are made when none is named: on x86-64 all, elsewhere its own.
    pub(crate) fn usual() -> Vec<Self> {
        let all = Self::value_variants().iter().copied();
        all.filter(|arch| Self::Amd64.is_host() || arch.is_host()).collect()
    }

    /// True if this machine runs its programs by itself.
    pub(crate) fn is_host(self) -> bool {
        self.gnu() == ARCH
    }

    /// The name in Debian and of Go, which container images take.
    pub(crate) const fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The name of the GNU tools, of rpm and of Rust.
    pub(crate) const fn gnu(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// Debian's package of this architecture, as apt names it here.
    pub(crate) fn package(self, name: &str) -> String {
        if self.is_host() { name.to_owned() } else { format!("{name}:{}", self.debian()) }
    }

    pub(crate) fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.gnu())
    }

    /// The program that loads others, as they name it.
    pub(crate) const fn loader(self) -> &'static str {
        match self {
            Self::Amd64 => "lib64/ld-linux-x86-64.so.2",
            Self::Arm64 => "lib/ld-linux-aarch64.so.1",
        }
    }

    /// A program of this architecture with the libraries below `root`, by the emulator of the
    /// architecture where this machine does not run it.
    pub(crate) fn run_in(self, root: &Path, program: &Path) -> Command {
        if self.is_host() {
            let mut command = process::command(root.join(self.loader()));
            command.arg("--library-path").arg(root.join(self.libraries())).arg(program);
            return command;
        }
        self.emulated(root, program)
    }

    /// A program that was built here.
    pub(crate) fn run(self, program: &Path) -> Command {
        if self.is_host() {
            return process::command(program);
        }
        // Libraries of the cross compiler.
        self.emulated(Path::new(&format!("/usr/{}-linux-gnu", self.gnu())), program)
    }

    /// Directory of libraries in Debian.
    pub(crate) fn libraries(self) -> String {
        format!("lib/{}-linux-gnu", self.gnu())
    }

    fn emulated(self, root: &Path, program: &Path) -> Command {
        let mut command = process::command(format!("qemu-{}-static", self.gnu()));
        command.arg("-L").arg(root).arg(program);
        command
    }
}
