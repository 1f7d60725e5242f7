//! The choice of a toolchain, or of what is installed to have one: a pure function of the facts.

use std::fmt;

use super::facts::{Candidate, Facts, Fault};
use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::workspace::TOOLCHAIN_VARIABLE;

/// Name that set-up links Debian's toolchain as; ebpf-build looks for it.
pub(super) const DEBIAN_TOOLCHAIN: &str = "limiter-bpf";
/// The bpf-linker that was tried with Debian's LLVM.
pub(super) const LINKER_VERSION: &str = "0.13.0";

/// Release and minor number of a rustc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u32, pub(super) u32);

impl Version {
    /// The workspace's `rust-version`; the test below holds the two together.
    pub(super) const NEEDED: Self = Self(1, 95);

    /// From `rustc 1.96.0 (hash date)`.
    pub(super) fn of_rustc(text: &str) -> Option<Self> {
        Self::parse(text.strip_prefix("rustc ")?)
    }

    /// From anything that begins as `1.96.0`, as Debian's `1.96.0+dfsg1-1`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.');
        Some(Self(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoesNotRun(why) => write!(f, "its rustc does not run ({why})"),
            Self::NoSource => write!(f, "it has no rust-src"),
            Self::NoCargo => write!(f, "it has no cargo"),
            Self::TooOld(version) => write!(f, "it is {version}, {} is needed", Version::NEEDED),
            Self::NoLinker => write!(f, "there is no bpf-linker in PATH"),
            Self::DoesNotLink(why) => write!(f, "bpf-linker does not link its output ({why})"),
        }
    }
}

/// Plan of an installation. An empty one means that nothing is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) packages: Vec<String>,
    pub(super) linker: bool,
    /// The name for Debian's toolchain, with rustup.
    pub(super) link: bool,
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        self.packages.is_empty() && !self.linker && !self.link
    }

    /// Checks that this process may carry out the plan: packages need apt and root, the rest only
    /// the user.
    pub(super) fn may(&self, facts: &Facts) -> Result<(), Refused> {
        if self.packages.is_empty() {
            return Ok(());
        }
        let packages = self.packages.join(" ");
        if !facts.apt || !facts.release.is_debian() {
            return Err(Refused::new(
                format!("not installed: what Debian calls {packages}"),
                format!("install it with the package manager of {}", system(facts)),
            ));
        }
        if facts.privilege == Privilege::None {
            return Err(Refused::new(
                format!("not installed: {packages}; not root, and no sudo that could be asked"),
                format!("run as root: apt-get install --no-install-recommends {packages}"),
            ));
        }
        Ok(())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.packages.is_empty() {
            parts.push(format!("Debian packages {}", self.packages.join(" ")));
        }
        if self.linker {
            parts.push(format!("bpf-linker {LINKER_VERSION} with cargo install"));
        }
        if self.link {
            parts.push(format!("rustup toolchain {DEBIAN_TOOLCHAIN}, a link to /usr"));
        }
        write!(f, "{}", parts.join("; "))
    }
}

/// Decision that follows from the facts.
#[derive(Debug)]
pub(super) enum Choice {
    Use(String),
    Install(Plan),
    Blocked(Refused),
}

/// The named toolchain, else a nightly, else Debian's. A named one that does not work is an error:
/// somebody wanted that one.
pub(super) fn choose(facts: &Facts) -> Choice {
    if !facts.rustup {
        return Choice::Blocked(no_rustup(facts));
    }
    if let Some(named) = &facts.named {
        return match &named.fault {
            None => Choice::Use(named.name.clone()),
            Some(fault) => Choice::Blocked(Refused::new(
                format!("the toolchain `{}` of {TOOLCHAIN_VARIABLE}: {fault}", named.name),
                remedy(named, fault),
            )),
        };
    }
    let known = facts.nightlies.iter().chain([&facts.debian]);
    if let Some(good) = known.into_iter().find(|candidate| candidate.fault.is_none()) {
        return Choice::Use(good.name.clone());
    }
    match &facts.debian.fault {
        _ if !facts.release.is_debian() || !facts.apt => Choice::Blocked(nothing_to_install(facts)),
        _ if facts.rustup_package => Choice::Blocked(Refused::new(
            "Debian's package rustup excludes its package rustc-web",
            "remove it (apt-get remove rustup) and install rustup from https://rustup.rs",
        )),
        Some(fault) => {
            let plan = Plan {
                packages: facts.packages.clone(),
                linker: !facts.linker,
                link: matches!(fault, Fault::DoesNotRun(_)),
            };
            if plan.is_empty() {
                // As a bpf-linker of another project: not ours to overwrite.
                let what = format!("the toolchain {DEBIAN_TOOLCHAIN}: {fault}");
                return Choice::Blocked(Refused::new(what, remedy(&facts.debian, fault)));
            }
            Choice::Install(plan)
        }
        None => Choice::Use(facts.debian.name.clone()),
    }
}

fn no_rustup(facts: &Facts) -> Refused {
    let there = facts.other_rustc.as_ref().map_or_else(String::new, |path| {
        format!(
            " (there is {}, but the BPF build names its toolchain through rustup)",
            path.display()
        )
    });
    Refused::new(
        format!("rustup is not in PATH{there}"),
        "install it from https://rustup.rs with its stable toolchain",
    )
}

/// Neither a nightly that works nor Debian's packages: the nightly is the way, and what it lacks.
fn nothing_to_install(facts: &Facts) -> Refused {
    let what =
        format!("no toolchain can build for BPF, and {} has no packages for it", system(facts));
    let nightly = facts.nightlies.iter().find_map(|known| Some((known, known.fault.as_ref()?)));
    match nightly {
        Some((known, fault)) => {
            Refused::new(format!("{what}; {}: {fault}", known.name), remedy(known, fault))
        }
        None => Refused::new(
            what,
            format!(
                "run `rustup toolchain install nightly --component rust-src` and {INSTALL_LINKER}"
            ),
        ),
    }
}

const INSTALL_LINKER: &str = "put the bpf-linker of https://github.com/aya-rs/bpf-linker/releases \
                              into PATH";

fn system(facts: &Facts) -> &str {
    if facts.release.name.is_empty() { "this system" } else { &facts.release.name }
}

fn remedy(candidate: &Candidate, fault: &Fault) -> String {
    let name = &candidate.name;
    match fault {
        _ if name == DEBIAN_TOOLCHAIN
            && !matches!(fault, Fault::NoLinker | Fault::DoesNotLink(_)) =>
        {
            format!(
                "it must be a link to Debian's /usr: rustup toolchain uninstall {name}, and again"
            )
        }
        Fault::DoesNotRun(_) | Fault::NoCargo => {
            format!(
                "`rustup toolchain list` shows what there is; unset {TOOLCHAIN_VARIABLE} to let \
                     set-up choose"
            )
        }
        Fault::NoSource => format!("run `rustup component add rust-src --toolchain {name}`"),
        Fault::TooOld(_) => format!("run `rustup update {name}`"),
        Fault::NoLinker => INSTALL_LINKER.to_owned(),
        Fault::DoesNotLink(_) if name == DEBIAN_TOOLCHAIN => format!(
            "take the bpf-linker out of PATH (`command -v bpf-linker` shows it), and run `cargo \
             xtask setup`, which installs {LINKER_VERSION} built with the LLVM of that rustc"
        ),
        Fault::DoesNotLink(_) => {
            format!("its LLVM must be as new as the toolchain's: {INSTALL_LINKER}")
        }
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
