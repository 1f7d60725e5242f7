//! `cargo xtask check`: everything that is judged without running the program.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::plots;
use crate::process;
use crate::setup::{self, Tools};
use crate::{lines, partners, workspace};

/// Committed files that commands make.
const GENERATED: &str = "\
Files to make again after a change of their source:
  docs/rules.schema.json       limiter schema > docs/rules.schema.json
  docs/requests.schema.json    limiter schema --requests > docs/requests.schema.json
  docs/loads.schema.json       limiter schema --load > docs/loads.schema.json
  docs/openapi.json            LIMITER_UPDATE_OPENAPI=1 cargo test -p limiter-daemon --lib \
the_committed_description
  described.bin of requests    LIMITER_UPDATE_DESCRIBED=1 cargo test -p limiter-requests --lib \
described
  the help of every command    LIMITER_UPDATE_HELP=1 cargo test -p limiter-cli --lib the_help
  dist/debian/files            LIMITER_UPDATE_PACKAGE=1 cargo test -p limiter-tests --test kernel \
packages::
  plots, tables of bench/results in pages    cargo xtask plots";

/// Options of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = GENERATED)]
pub(crate) struct Arguments {
    /// Install cargo-deny and typos with cargo where they are missing
    #[arg(long)]
    install: bool,
    /// Check only what takes seconds: format, lines, and the files at the root
    #[arg(long, conflicts_with = "bench")]
    quick: bool,
    /// Check the measurements of bench/ instead, and the plots that they draw
    #[arg(long)]
    bench: bool,
}

/// A program that a developer may not have, and the crate it comes from.
const EXTRAS: [(&str, &str); 3] =
    [("cargo-deny", "cargo-deny"), ("cargo-machete", "cargo-machete"), ("typos", "typos-cli")];

/// Folders and files at the root: what else lies there was forgotten.
const AT_ROOT: &[&str] = &[
    ".cargo",
    ".ci",
    ".config",
    ".devcontainer",
    ".dockerignore",
    ".editorconfig",
    ".github",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-GPL2",
    "LICENSE-MIT",
    "README.md",
    "SECURITY.md",
    "bench",
    "ci",
    "clippy.toml",
    "deny.toml",
    "dist",
    "docs",
    "ebpf-build",
    "examples",
    "findings",
    "fuzz",
    "fuzz-targets",
    "limiter-common",
    "limiter-ebpf",
    "limiter-userspace",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "tests",
    "typos.toml",
    "xtask",
];

/// Names the files at the root that nobody named; whether there is none.
fn root_is_tidy() -> Result<bool> {
    let mut git = process::command("git");
    git.args(["ls-tree", "--name-only", "HEAD"]).current_dir(workspace::root()?);
    let listed = process::output(&mut git)?;
    let others: Vec<&str> = listed.lines().filter(|name| !AT_ROOT.contains(name)).collect();
    for name in &others {
        println!("{name}: what is it, at the root? Remove it, or name it in xtask/src/check.rs");
    }
    Ok(others.is_empty())
}

/// Runs all checks, also after one failed, and names those that did.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let toolchain = setup::ensure(Tools::None)?;
    if arguments.bench {
        let checks = vec![
            ("format", of_bench(&toolchain, &["fmt", "--all", "--check"])?),
            ("clippy", clippy_of_bench(&toolchain)?),
            ("plots", plots::command(&toolchain, true)?),
        ];
        return run(checks, &[], Vec::new());
    }
    let mut failed = Vec::new();
    eprintln!("xtask: lines of comments and pages");
    if !lines::check()? {
        failed.push("lines");
    }
    if !root_is_tidy()? {
        failed.push("files at the root");
    }
    let mut checks = vec![
        ("format", format(&toolchain)?),
        ("format of the fuzz targets", fuzz_format(&toolchain)?),
    ];
    if arguments.quick {
        return run(checks, &[], failed);
    }
    let mut missing = Vec::new();
    for (program, package) in EXTRAS {
        if process::find(program).is_none() && arguments.install {
            eprintln!("xtask: installing {package} with cargo");
            process::run(process::command("cargo").args(["install", "--locked", package]))?;
        }
        if process::find(program).is_none() {
            missing.push(program);
        }
    }
    checks.extend([
        ("clippy", clippy(&toolchain)?),
        ("clippy of the BPF programs", ebpf_clippy(&toolchain)?),
        ("build for BPF", ebpf_build(&toolchain)?),
        ("documentation", documentation(&toolchain)?),
    ]);
    if !missing.contains(&"cargo-machete") {
        let mut machete = workspace::cargo(&toolchain)?;
        machete.args(["machete", "--skip-target-dir"]);
        checks.push(("unused dependencies", machete));
    }
    if !missing.contains(&"cargo-deny") {
        let mut deny = workspace::cargo(&toolchain)?;
        deny.args(["deny", "--all-features", "check", "--hide-inclusion-graph"]);
        checks.push(("dependencies", deny));
    }
    if !missing.contains(&"typos") {
        let mut typos = process::command("typos");
        typos.current_dir(workspace::root()?);
        checks.push(("spelling", typos));
    }
    run(checks, &missing, failed)
}

/// Runs checks, also after one failed, and names those that did, with those that `failed` before,
/// and programs that are not there.
fn run<'a>(
    checks: Vec<(&'a str, Command)>,
    missing: &[&str],
    mut failed: Vec<&'a str>,
) -> Result<ExitCode> {
    for (name, mut command) in checks {
        eprintln!("xtask: {name}: {}", process::shown(&command));
        if !process::status(&mut command)?.success() {
            failed.push(name);
        }
    }
    for program in missing {
        println!(
            "NOT CHECKED: {program} is not installed; `cargo xtask check --install` installs it"
        );
    }
    if failed.is_empty() {
        println!("check: ok");
        return Ok(ExitCode::SUCCESS);
    }
    println!("check: failed: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn format(toolchain: &str) -> Result<Command> {
    let mut cargo = workspace::cargo(toolchain)?;
    cargo.args(["fmt", "--all", "--check"]);
    Ok(cargo)
}

/// Format of the fuzz targets for libFuzzer, which are a workspace of their own.
fn fuzz_format(toolchain: &str) -> Result<Command> {
    let mut cargo = workspace::cargo(toolchain)?;
    cargo.args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]);
    Ok(cargo)
}

/// A cargo command on the workspace of the measurements.
fn of_bench(toolchain: &str, command: &[&str]) -> Result<Command> {
    let mut cargo = workspace::cargo(toolchain)?;
    cargo.args(command).args(["--manifest-path", workspace::BENCH]);
    Ok(cargo)
}

fn clippy_of_bench(toolchain: &str) -> Result<Command> {
    let mut cargo = of_bench(toolchain, &["clippy", "--target-dir", "target", "--all-targets"])?;
    cargo.args(["--package", "limiter-bench", "--package", "limiter-plots"]);
    cargo.args(["--package", "limiter-bench-xtask"]);
    cargo.args(["--", "--deny", "warnings"]);
    Ok(cargo)
}

fn packages_ebpf() -> impl Iterator<Item = &'static str> {
    workspace::EBPF.into_iter().flat_map(|package| ["--package", package])
}

fn clippy(toolchain: &str) -> Result<Command> {
    let mut cargo = workspace::cargo(toolchain)?;
    cargo.arg("clippy").args(workspace::host()).arg("--all-targets");
    // No target of `--all-targets`, as no ordinary run has them.
    cargo.args(["--test", partners::TESTS, "--", "--deny", "warnings"]);
    Ok(cargo)
}

/// With the host's clippy, since Debian's toolchain has none: the lints are the same.
fn ebpf_clippy(toolchain: &str) -> Result<Command> {
    let mut cargo = workspace::cargo(toolchain)?;
    cargo.args(["clippy", "--lib", "--bins", "--all-features"]).args(packages_ebpf());
    // The program has no unwinding and uses unstable intrinsics.
    cargo.env("CARGO_PROFILE_DEV_PANIC", "abort").env("RUSTC_BOOTSTRAP", "1");
    cargo.args(["--", "--deny", "warnings"]);
    Ok(cargo)
}

/// As aya-build does it, with warnings denied.
fn ebpf_build(toolchain: &str) -> Result<Command> {
    let mut cargo = process::command("rustup");
    let root = workspace::root()?;
    cargo.args(["run", toolchain, "cargo", "build", "--bins", "--all-features", "--release"]);
    cargo.args(packages_ebpf());
    let target = if cfg!(target_endian = "big") { "bpfeb" } else { "bpfel" };
    cargo.args(["--target", &format!("{target}-unknown-none"), "-Zbuild-std=core"]);
    cargo.arg("--target-dir").arg(root.join("target/bpf-check"));
    let flags = [
        &format!("--cfg=bpf_target_arch=\"{}\"", std::env::consts::ARCH),
        "-Cdebuginfo=2",
        "-Clink-arg=--btf",
        "-Dwarnings",
    ];
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")).env("RUSTC_BOOTSTRAP", "1");
    cargo.env_remove("RUSTC").env_remove("RUSTC_WORKSPACE_WRAPPER").current_dir(root);
    Ok(cargo)
}

fn documentation(toolchain: &str) -> Result<Command> {
    let mut cargo = workspace::cargo(toolchain)?;
    cargo.arg("doc").args(workspace::host()).arg("--no-deps");
    cargo.env("RUSTDOCFLAGS", "--deny warnings");
    Ok(cargo)
}
