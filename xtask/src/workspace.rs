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

/// Builds one program of a package and says where it is.
pub(crate) fn build(toolchain: &str, package: &str, program: &str, debug: bool) -> Result<PathBuf> {
    let mut cargo = cargo(toolchain)?;
    cargo.args(["build", "--package", package, "--bin", program]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    if !debug {
        cargo.arg("--release");
    }
    let shown = process::shown(&cargo);
    let mut child = cargo
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{shown} could not be started"))?;
    let messages = child.stdout.take().context("cargo has no standard output")?;
    let mut executable = None;
    for line in BufReader::new(messages).lines() {
        let line = line.with_context(|| format!("{shown}: reading its messages"))?;
        executable = executable_of(&line, program).or(executable);
    }
    let status = child.wait().with_context(|| format!("{shown}: waiting for it"))?;
    if !status.success() {
        bail!("{shown} failed ({status})");
    }
    executable.with_context(|| format!("{shown} built no program {program}"))
}

/// The path in one line of cargo's JSON messages, if it is about this program.
fn executable_of(line: &str, program: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message.pointer("/target/name")?.as_str()? != program {
        return None;
    }
    Some(Path::new(message.get("executable")?.as_str()?).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_program_is_found() {
        let line = r#"{"reason":"compiler-artifact","target":{"name":"limiter"},"executable":"/t/limiter"}"#;
        assert_eq!(executable_of(line, "limiter"), Some(PathBuf::from("/t/limiter")));
        assert_eq!(executable_of(line, "xtask"), None);
        let library = r#"{"target":{"name":"limiter"},"executable":null}"#;
        assert_eq!(executable_of(library, "limiter"), None);
        assert_eq!(executable_of("no JSON", "limiter"), None);
    }
}
