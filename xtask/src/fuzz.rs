//! `cargo xtask fuzz`: the long, coverage-guided run of the fuzz targets.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::failure::Refused;
use crate::setup::{self, Tools};
use crate::{process, workspace};

/// As in `fuzz/Cargo.toml` and in `limiter-fuzz-targets`.
const TARGETS: [&str; 3] = ["packet", "rules", "decision"];

/// The longest input of each, in bytes: enough for everything, short enough to be fast.
const LONGEST: [u32; 3] = [4096, 8192, 2048];

/// What `fuzz` is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this one of packet, rules and decision
    target: Option<String>,
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
    /// Put what was found into the committed corpus, no more of it than adds coverage
    #[arg(long)]
    keep: bool,
}

/// Sets up, seeds and runs; the first broken promise ends it.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let targets: Vec<(&str, u32)> = TARGETS
        .into_iter()
        .zip(LONGEST)
        .filter(|(name, _)| arguments.target.as_deref().is_none_or(|wanted| wanted == *name))
        .collect();
    if targets.is_empty() {
        let wanted = arguments.target.as_deref().unwrap_or_default();
        return Err(Refused::new(
            format!("there is no fuzz target {wanted}"),
            format!("give one of {}", TARGETS.join(", ")),
        )
        .into());
    }
    let toolchain = setup::ensure(Tools::None)?;
    if process::find("cargo-fuzz").is_none() {
        eprintln!("xtask: installing cargo-fuzz with cargo");
        process::run(process::command("cargo").args(["install", "--locked", "cargo-fuzz"]))?;
    }
    if process::find("c++").is_none() {
        return Err(Refused::new(
            "there is no C++ compiler (c++), which libFuzzer is built with",
            "install g++",
        )
        .into());
    }
    let seed = workspace::build(&toolchain, "limiter-fuzz-targets", "limiter-fuzz-seed", true)?;
    let fuzz = workspace::root()?.join("fuzz");
    for (target, longest) in targets {
        let found = fuzz.join("found").join(target);
        let corpus = fuzz.join("corpus").join(target);
        process::run(process::command(&seed).arg(target).arg(&found))?;
        fs::create_dir_all(&corpus).with_context(|| format!("cannot make {}", corpus.display()))?;
        let mut run = cargo_fuzz(&toolchain, target)?;
        // What is new goes into the first directory.
        run.arg(&found).arg(&corpus).arg("--");
        run.arg(format!("-max_total_time={}", arguments.seconds));
        run.arg(format!("-max_len={longest}"));
        run.args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]);
        if target == "rules" {
            run.arg(format!("-dict={}", fuzz.join("rules.dict").display()));
        }
        eprintln!("xtask: {}", process::shown(&run));
        if !process::status(&mut run)?.success() {
            println!(
                "fuzz: {target}: a promise is broken: the input is under fuzz/artifacts/{target}"
            );
            return Ok(ExitCode::FAILURE);
        }
        println!("fuzz: {target}: {} s, nothing found", arguments.seconds);
        if arguments.keep {
            keep(&toolchain, target, &found, &corpus)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `cargo fuzz run` of a target. The sanitizers need a nightly's runtime; the code has next to no
/// `unsafe` that they could watch. The flag for coverage is all that needs `RUSTC_BOOTSTRAP`.
fn cargo_fuzz(toolchain: &str, target: &str) -> Result<Command> {
    let mut cargo = workspace::cargo(toolchain)?;
    let root = workspace::root()?;
    cargo.env("RUSTC_BOOTSTRAP", "1");
    // A build directory of the caller's is the main workspace's, whose flags are others.
    let directory = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("fuzz/target"), |dir| Path::new(&dir).join("fuzz"));
    cargo.env("CARGO_TARGET_DIR", directory);
    cargo.args(["fuzz", "run", "--sanitizer", "none", "--fuzz-dir"]);
    cargo.arg(root.join("fuzz")).arg(target);
    Ok(cargo)
}

/// Replaces the corpus by the fewest of all inputs that reach what they reach together.
fn keep(toolchain: &str, target: &str, found: &Path, corpus: &Path) -> Result<()> {
    let merged = tempfile::tempdir().context("no directory for the corpus could be made")?;
    let mut merge = cargo_fuzz(toolchain, target)?;
    merge.arg(merged.path()).arg(corpus).arg(found).arg("--");
    merge.args(["-set_cover_merge=1", "-timeout=10", "-rss_limit_mb=2048"]);
    process::run(&mut merge)?;
    fs::remove_dir_all(corpus)
        .and_then(|()| fs::create_dir(corpus))
        .with_context(|| format!("cannot empty {}", corpus.display()))?;
    let mut files = 0;
    for entry in fs::read_dir(merged.path()).context("the merged corpus cannot be listed")? {
        let from = entry.context("the merged corpus cannot be listed")?;
        let to = corpus.join(from.file_name());
        fs::copy(from.path(), &to).with_context(|| format!("cannot write {}", to.display()))?;
        files += 1;
    }
    println!("fuzz: {target}: {files} inputs in {}", corpus.display());
    Ok(())
}
