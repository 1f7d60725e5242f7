//! `cargo xtask fuzz`: the long, coverage-guided run of the fuzz targets.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::failure::Refused;
use crate::setup::{self, Tools};
use crate::{process, workspace};

/// As in `fuzz/Cargo.toml` and in `limiter-fuzz-targets`.
const TARGETS: [&str; 4] = ["packet", "rules", "decision", "import"];

/// The longest input of each, in bytes: enough for everything, short enough to be fast.
const LONGEST: [u32; 4] = [4096, 8192, 2048, 8192];

/// The longest that is committed, as in `limiter-fuzz-targets`.
const LONGEST_KEPT: [(&str, u32); 4] =
    [("packet", 256), ("rules", 160), ("decision", 301), ("import", 400)];

/// Options of `fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this one of packet, rules, decision and import
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
    let packer = workspace::build(&toolchain, "limiter-fuzz-targets", "limiter-fuzz-corpus", true)?;
    let fuzz = workspace::root()?.join("fuzz");
    for (target, longest) in targets {
        let found = fuzz.join("found").join(target);
        process::run(process::command(&packer).args(["unpack", target]).arg(&found))?;
        let mut run = cargo_fuzz(&toolchain, target)?;
        run.arg(&found).arg("--");
        run.arg(format!("-max_total_time={}", arguments.seconds));
        run.arg(format!("-max_len={longest}"));
        run.args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]);
        let words = fuzz.join(format!("{target}.dict"));
        if words.is_file() {
            run.arg(format!("-dict={}", words.display()));
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
            keep(&toolchain, target, &found, &packer)?;
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
fn keep(toolchain: &str, target: &str, found: &Path, packer: &Path) -> Result<()> {
    let merged = tempfile::tempdir().context("no directory for the corpus could be made")?;
    let mut merge = cargo_fuzz(toolchain, target)?;
    merge.arg(merged.path()).arg(found).arg("--");
    // By lines reached, not by how often: the corpus is to stay small.
    merge.args(["-set_cover_merge=1", "-use_counters=0", "-timeout=10", "-rss_limit_mb=2048"]);
    let longest = LONGEST_KEPT.into_iter().find(|(name, _)| *name == target);
    let (_, longest) = longest.context("a target without a longest input")?;
    // Longer ones are cut, and kept if that is still something new.
    merge.arg(format!("-max_len={longest}"));
    process::run(&mut merge)?;
    process::run(process::command(packer).args(["pack", target]).arg(merged.path()))
}
