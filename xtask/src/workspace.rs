//! The checkout: where it is, and building programs of it.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::process;

/// Names the BPF toolchain to limiter-userspace/build.rs, and to set-up if the user knows better.
pub(crate) const TOOLCHAIN_VARIABLE: &str = "LIMITER_BPF_TOOLCHAIN";

/// The root of the checkout.
pub(crate) fn root() -> Result<PathBuf> {
    // Cargo sets it when it runs us; the compiled-in one is for the binary started by itself.
    let own = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = own.parent().with_context(|| format!("{} has no parent", own.display()))?;
    Ok(root.to_owned())
}

/// `cargo`, in the checkout, with the BPF toolchain named.
pub(crate) fn cargo(toolchain: &str) -> Result<Command> {
    let mut cargo = process::command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()?).env(TOOLCHAIN_VARIABLE, toolchain);
    Ok(cargo)
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
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let shown = process::shown(cargo);
    let mut child = cargo
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{shown} could not be started"))?;
    let messages = child.stdout.take().context("cargo has no standard output")?;
    let mut executables = Vec::new();
    for line in BufReader::new(messages).lines() {
        let line = line.with_context(|| format!("{shown}: reading its messages"))?;
        executables.extend(executable_of(&line));
    }
    let status = child.wait().with_context(|| format!("{shown}: waiting for it"))?;
    if !status.success() {
        bail!("{shown} failed ({status})");
    }
    Ok(executables)
}

/// Name and path in one line of cargo's JSON messages, if it is about a program.
fn executable_of(line: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let name = message.pointer("/target/name")?.as_str()?;
    Some((name.to_owned(), Path::new(message.get("executable")?.as_str()?).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name() {
        let line = r#"{"reason":"compiler-artifact",
            "target":{"name":"limiter"},"executable":"/t/limiter"}"#;
        let expected = ("limiter".to_owned(), PathBuf::from("/t/limiter"));
        assert_eq!(executable_of(line), Some(expected));
        let library = r#"{"target":{"name":"limiter"},"executable":null}"#;
        assert_eq!(executable_of(library), None);
        assert_eq!(executable_of("no JSON"), None);
    }
}
