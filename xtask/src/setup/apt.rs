//! Debian's packages, and carrying out a plan.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::choice::{DEBIAN_TOOLCHAIN, LINKER_VERSION, Plan, Version};
use super::facts::Facts;
use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::process;

/// Debian's rustc, its cargo, the source of `core`, and the LLVM of that rustc, for bpf-linker.
const TOOLCHAIN: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", LLVM];
const LLVM: &str = "libllvm22";
/// Its only library, without which bpf-linker is not linked.
const LLVM_LIBRARY: &str = "libLLVM.so.22.1";

/// Packages of the toolchain that are not installed, or too old.
pub(super) fn missing() -> Vec<String> {
    let there = |name: &str| installed(name).is_some_and(|version| is_new_enough(name, &version));
    TOOLCHAIN.iter().filter(|name| !there(name)).map(|&name| name.to_owned()).collect()
}

/// The version of the package that dpkg has installed; none without dpkg.
pub(super) fn installed(package: &str) -> Option<String> {
    let mut dpkg = process::command("dpkg-query");
    dpkg.args(["--show", "--showformat=${db:Status-Status} ${Version}", package]);
    Some(process::output(&mut dpkg).ok()?.strip_prefix("installed ")?.to_owned())
}

/// Packages that Debian starts a service of when it installs them, and the service: a test wants
/// the program, and nobody asked for something that listens.
const SERVICES: [(&str, &str); 3] =
    [("nginx-light", "nginx"), ("redis-server", "redis-server"), ("prometheus", "prometheus")];

impl Plan {
    /// Installs it. Output of apt-get and cargo goes to standard error as it comes.
    pub(super) fn carry_out(&self, facts: &Facts) -> Result<()> {
        if !self.packages.is_empty() {
            install(facts, &self.packages)?;
            quieten(facts.privilege, &self.packages);
        }
        if self.link {
            let mut rustup = process::command("rustup");
            process::run(rustup.args(["toolchain", "link", DEBIAN_TOOLCHAIN, "/usr"]))
                .with_context(|| format!("linking /usr as toolchain {DEBIAN_TOOLCHAIN}"))?;
        }
        if self.linker {
            install_linker()?;
        }
        Ok(())
    }
}

/// Installs packages; the lists are only updated when they do not have what is wanted.
fn install(facts: &Facts, packages: &[String]) -> Result<()> {
    let updated = !packages.iter().all(|name| is_offered(name));
    if updated {
        update(facts.privilege)?;
    }
    if let Some(package) = packages.iter().find(|name| !is_offered(name)) {
        return Err(not_offered(facts, package).into());
    }
    let get = || {
        let mut apt = apt_get(facts.privilege);
        // Nothing of the user's is removed for it; Recommends would bring a second compiler.
        apt.args(["install", "--yes", "--no-remove", "--no-install-recommends"]).args(packages);
        apt
    };
    if process::status(&mut get())?.success() {
        return Ok(());
    }
    if !updated {
        // Old lists name files that the mirror has no more.
        update(facts.privilege)?;
        if process::status(&mut get())?.success() {
            return Ok(());
        }
    }
    Err(Refused::new(
        format!("apt-get could not install {}", packages.join(" ")),
        "see its message above; set-up goes on from there when it is run again",
    )
    .into())
}

/// Ends the services of packages that were installed just now, and keeps them from the next boot.
fn quieten(privilege: Privilege, packages: &[String]) {
    let started = SERVICES.iter().filter(|(package, _)| packages.iter().any(|p| p == package));
    for (_, service) in started {
        let commands: &[&[&str]] = if Path::new("/run/systemd/system").is_dir() {
            &[&["systemctl", "disable", "--now", service]]
        } else {
            &[&["service", service, "stop"], &["update-rc.d", service, "disable"]]
        };
        for command in commands {
            let Some((program, arguments)) = command.split_first() else { continue };
            let mut run = process::as_root(privilege, program, &[]);
            // Machines without a service manager have not started anything.
            if !process::status(run.args(arguments)).is_ok_and(|status| status.success()) {
                eprintln!("xtask: `{}` failed: see whether {service} runs", command.join(" "));
            }
        }
    }
}

/// Reads the lists of packages again.
pub(super) fn update(privilege: Privilege) -> Result<()> {
    if privilege == Privilege::None {
        return Err(Refused::new(
            "the lists of apt are read as root, and there is no sudo that could be asked",
            "run `apt-get update` as root",
        )
        .into());
    }
    let mut apt = apt_get(privilege);
    // Without the option a mirror that cannot be reached is a warning and exit code 0.
    if process::status(apt.args(["-o", "APT::Update::Error-Mode=any", "update"]))?.success() {
        return Ok(());
    }
    Err(Refused::new(
        "apt-get update failed",
        "see its message above: the network or a mirror in /etc/apt/sources.list.d",
    )
    .into())
}

fn apt_get(privilege: Privilege) -> Command {
    let quiet = [("DEBIAN_FRONTEND", OsString::from("noninteractive"))];
    let mut apt = process::as_root(privilege, "apt-get", &quiet);
    apt.arg("--quiet");
    apt
}

/// True if apt would install the package, in a version that does.
fn is_offered(package: &str) -> bool {
    offered(package).is_some_and(|version| is_new_enough(package, &version))
}

/// The version of a package that apt would install.
pub(super) fn offered(package: &str) -> Option<String> {
    let mut apt = process::command("apt-cache");
    // The words before the colon are translated otherwise.
    let policy = process::output(apt.env("LC_ALL", "C").args(["policy", package])).ok()?;
    candidate(&policy).map(str::to_owned)
}

/// The version apt would install, from `apt-cache policy`.
fn candidate(policy: &str) -> Option<&str> {
    let line = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (line != "(none)").then_some(line)
}

/// Stable Debian first had a rustc-web that is too old; the newer one came as an update.
fn is_new_enough(package: &str, version: &str) -> bool {
    let numbered = ["rustc-web", "cargo-web", "rust-web-src"].contains(&package);
    !numbered || Version::parse(version).is_some_and(|version| version >= Version::NEEDED)
}

fn not_offered(facts: &Facts, package: &str) -> Refused {
    let version = if is_new_enough(package, "") {
        String::new()
    } else {
        format!(" of {} or newer", Version::NEEDED)
    };
    Refused::new(
        format!("the apt sources of {} have no {package}{version}", facts.release.name),
        "add the updates and security suites to the sources, or install a nightly: `rustup \
         toolchain install nightly --component rust-src` and a bpf-linker of \
         https://github.com/aya-rs/bpf-linker/releases",
    )
}

/// Builds bpf-linker with the LLVM library that rustc needs anyway. The C linker looks for it as
/// `libLLVM.so`, a name that comes with llvm-22-dev; a link in a temporary directory stands in for
/// those 411 MB. bpf-linker's own search path is the system's directory, through the link `lib`: a
/// path into the temporary one could be made again by another user.
fn install_linker() -> Result<()> {
    let listed = process::output(process::command("dpkg-query").args(["--listfiles", LLVM]))?;
    let library = listed.lines().map(Path::new).find(|path| path.ends_with(LLVM_LIBRARY));
    let library = library.with_context(|| format!("{LLVM} has no {LLVM_LIBRARY}"))?;
    let folder = library.parent().context("a library is in a directory")?;
    let prefix = tempfile::tempdir().context("no temporary folder for the name of LLVM")?;
    for (of, name) in [(folder, "lib"), (library, "libLLVM.so")] {
        let link = prefix.path().join(name);
        symlink(of, &link).with_context(|| format!("cannot make the link {}", link.display()))?;
    }
    let mut cargo = process::command("cargo");
    cargo.env("LLVM_PREFIX", prefix.path()).env("LIBRARY_PATH", prefix.path());
    // Not optimised, it is built in half of the time. Its work is that of LLVM.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "false");
    cargo.args(["install", "--debug", "bpf-linker", "--version", LINKER_VERSION, "--locked"]);
    cargo.args(["--no-default-features", "--features", "llvm-22"]);
    if process::status(&mut cargo)?.success() {
        return Ok(());
    }
    Err(Refused::new(
        format!("`{}` failed", process::shown(&cargo)),
        "see its message above; it needs the crate registry, a C compiler and 400 MB of disk",
    )
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_candidate_is_read() {
        let policy = "rustc-web:\n  Installed: (none)\n  Candidate: 1.96.0+dfsg1-1~deb12u2\n";
        assert_eq!(candidate(policy), Some("1.96.0+dfsg1-1~deb12u2"));
        assert_eq!(candidate("x:\n  Installed: (none)\n  Candidate: (none)\n"), None);
        assert_eq!(candidate(""), None);
    }

    #[test]
    fn an_old_rustc_is_not_enough() {
        assert!(is_new_enough("rustc-web", "1.96.0+dfsg1-1~deb12u2"));
        assert!(!is_new_enough("rustc-web", "1.85.0+dfsg3-1~deb12u3"));
        assert!(!is_new_enough("cargo-web", "x"));
        assert!(is_new_enough("iproute2", "6.1.0-3"));
    }
}
