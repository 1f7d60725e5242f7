//! The checkout: where it is, and building programs of it.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::process;

/// Names the BPF toolchain to ebpf-build, and to set-up if the user knows better.
pub const TOOLCHAIN_VARIABLE: &str = "LIMITER_BPF_TOOLCHAIN";

/// A file that only the root of the checkout has.
const AT_ROOT: &str = "rust-toolchain.toml";

/// The root of the checkout.
pub fn root() -> Result<PathBuf> {
    // Cargo sets it when it runs us; the compiled-in one is for the binary started by itself.
    let own = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let mut above = own.ancestors();
    let root = above.find(|path| path.join(AT_ROOT).exists());
    let root = root.with_context(|| format!("{} is in no checkout", own.display()))?;
    Ok(root.to_owned())
}

/// Beginnings of the names of variables by which cargo describes the package to a program.
const OF_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// `cargo`, in the checkout, with the BPF toolchain named.
pub(crate) fn cargo(toolchain: &str) -> Result<Command> {
    let mut cargo = process::command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()?).env(TOOLCHAIN_VARIABLE, toolchain);
    // Cargo told us about our package. The build script of ring reads that: with it, ring and all
    // above it would be built anew whenever cargo and we took turns.
    for (name, _) in env::vars_os() {
        if OF_PACKAGE.iter().any(|begin| name.as_encoded_bytes().starts_with(begin.as_bytes())) {
            cargo.env_remove(name);
        }
    }
    Ok(cargo)
}

/// The target of this machine's programs.
pub fn host_triple() -> Result<String> {
    let version = process::output(process::command("rustc").arg("-vV"))?;
    let triple = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(triple.context("`rustc -vV` names no host")?.to_owned())
}

/// Packages of BPF programs, which are not for the host's compiler.
pub(crate) const EBPF: [&str; 2] = ["limiter-ebpf", "limiter-tests-ebpf"];

/// Arguments that choose all other packages. Features are those of all that are chosen: what is
/// built of another choice is built again.
pub fn host() -> impl Iterator<Item = &'static str> {
    ["--workspace"].into_iter().chain(EBPF.into_iter().flat_map(|package| ["--exclude", package]))
}

/// Programs of a build that the kernel tests are run with.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) limiter: PathBuf,
    /// The plugin, which the tests find beside `limiter`.
    pub(crate) cni: PathBuf,
    /// The program with all kernel and end-to-end tests.
    pub(crate) tests: PathBuf,
}

/// Target of the tests that [`Programs::tests`] has.
pub(crate) const TESTS: &str = "kernel";

/// Runs a build of [`host`]'s packages. `what` names its targets, beside the binary under test.
pub(crate) fn programs(mut cargo: Command, what: &[&str]) -> Result<Programs> {
    cargo.args(host());
    for name in ["limiter", "limiter-cni", "limiter-sandbox"] {
        cargo.args(["--bin", name]);
    }
    cargo.args(what);
    let shown = process::shown(&cargo);
    let built = executables(&mut cargo)?;
    let find = |wanted: &str| {
        let found = built.iter().find(|(name, _)| name == wanted);
        let (_, path) = found.with_context(|| format!("{shown} built no program {wanted}"))?;
        anyhow::Ok(path.clone())
    };
    Ok(Programs { limiter: find("limiter")?, cni: find("limiter-cni")?, tests: find(TESTS)? })
}

/// Builds programs of [`host`]'s packages in one call, so that nothing is built twice, and says
/// where they are.
pub(crate) fn binaries<const N: usize>(toolchain: &str, names: [&str; N]) -> Result<[PathBuf; N]> {
    let mut cargo = cargo(toolchain)?;
    cargo.arg("build").args(host());
    for name in names {
        cargo.args(["--bin", name]);
    }
    let shown = process::shown(&cargo);
    let built = executables(&mut cargo)?;
    let mut paths = names.map(|_| PathBuf::new());
    for (path, name) in paths.iter_mut().zip(names) {
        let found = built.iter().find(|(program, _)| program == name);
        path.clone_from(&found.with_context(|| format!("{shown} built no program {name}"))?.1);
    }
    Ok(paths)
}

/// The manifest of the measurements, a workspace of its own.
pub(crate) const BENCH: &str = "bench/Cargo.toml";

/// Builds one program of a package and says where it is.
pub(crate) fn build(toolchain: &str, package: &str, program: &str, debug: bool) -> Result<PathBuf> {
    let mut cargo = cargo(toolchain)?;
    cargo.args(["build", "--package", package, "--bin", program]);
    if !debug {
        cargo.arg("--release");
    }
    built(cargo, program)
}

/// Builds one program of the measurements and says where it is. What both workspaces build alike is
/// built once.
pub(crate) fn build_measurement(toolchain: &str, program: &str) -> Result<PathBuf> {
    let mut cargo = cargo(toolchain)?;
    cargo.args(["build", "--manifest-path", BENCH, "--target-dir", "target", "--release"]);
    cargo.args(["--bin", program]);
    built(cargo, program)
}

/// Builds one program of the measurements that is compiled quickly, and not optimised.
pub(crate) fn build_light(toolchain: &str, program: &str) -> Result<PathBuf> {
    let mut cargo = cargo(toolchain)?;
    cargo.args(["build", "--manifest-path", BENCH, "--target-dir", "target", "--package", program]);
    built(cargo, program)
}

/// Runs a build of one program and says where it is.
pub(crate) fn built(mut cargo: Command, program: &str) -> Result<PathBuf> {
    let shown = process::shown(&cargo);
    let built = executables(&mut cargo)?;
    let found = built.into_iter().rfind(|(name, _)| name == program);
    let (_, path) = found.with_context(|| format!("{shown} built no program {program}"))?;
    Ok(path)
}

/// Runs a build and says what programs it made, by the names of their targets.
pub(crate) fn executables(cargo: &mut Command) -> Result<Vec<(String, PathBuf)>> {
    let mut executables = Vec::new();
    messages(cargo, |line| executables.extend(executable_of(line)))?;
    Ok(executables)
}

/// Runs a build and hands on the lines of its JSON messages.
pub fn messages(cargo: &mut Command, mut each: impl FnMut(&str)) -> Result<()> {
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let shown = process::shown(cargo);
    let mut child = cargo
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{shown} could not be started"))?;
    let messages = child.stdout.take().context("cargo has no standard output")?;
    for line in BufReader::new(messages).lines() {
        each(&line.with_context(|| format!("{shown}: reading its messages"))?);
    }
    let status = child.wait().with_context(|| format!("{shown}: waiting for it"))?;
    if !status.success() {
        bail!("{shown} failed ({status})");
    }
    Ok(())
}

/// Name and path in one line of cargo's JSON messages, if it is about a program, be it one of
/// integration tests. Unit tests have the names of what they are of.
fn executable_of(line: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let kind = message.pointer("/target/kind/0")?;
    if kind != "test" && message.pointer("/profile/test")?.as_bool()? {
        return None;
    }
    let name = message.pointer("/target/name")?.as_str()?;
    Some((name.to_owned(), Path::new(message.get("executable")?.as_str()?).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name() {
        let line = |kind: &str, is_test: bool, path: &str| {
            let line = format!(
                r#"{{"reason":"compiler-artifact","target":{{"name":"limiter","kind":["{kind}"]}},
                "profile":{{"test":{is_test}}},"executable":{path}}}"#
            );
            executable_of(&line)
        };
        let expected = Some(("limiter".to_owned(), PathBuf::from("/t/limiter")));
        assert_eq!(line("bin", false, "\"/t/limiter\""), expected);
        assert_eq!(line("test", true, "\"/t/limiter\""), expected);
        assert_eq!(line("bin", true, "\"/t/limiter\""), None);
        assert_eq!(line("lib", false, "null"), None);
        assert_eq!(executable_of("no JSON"), None);
    }
}
