//! Plots of what each algorithm admits, made by the code of the data path from the same loads, of
//! all algorithms side by side, of what nodes that share a limit pass, made by the simulator of
//! their tests, the chart of the README, of the results in bench/results, and that of
//! docs/shaping-figures.md, of the figures there. The tables of these results, too, in their pages.
//!
//! `cargo xtask plots` writes them to docs/plots and docs; with `--check` it compares them with
//! what is there.

mod cluster;
mod compare;
mod cost;
mod draw;
mod lane;
mod loads;
mod meters;
mod results;
#[path = "../../../limiter-userspace/cluster/tests/cluster/simulator/mod.rs"]
#[expect(dead_code, reason = "tests look at more than plots")]
#[expect(clippy::expect_used, reason = "as in the tests")]
#[expect(clippy::cast_precision_loss, reason = "loads are drawn from floats")]
#[expect(clippy::cast_possible_truncation, reason = "small numbers of a simulation")]
mod simulator;
mod tables;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

fn main() -> Result<ExitCode> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let (directory, check) = match arguments.as_slice() {
        [directory] => (PathBuf::from(directory), false),
        [directory, flag] if flag == "--check" => (PathBuf::from(directory), true),
        _ => {
            eprintln!("usage: plots DIRECTORY [--check]");
            return Ok(ExitCode::from(2));
        }
    };
    let mut plots = Vec::new();
    for meter in meters::all()? {
        plots.push((directory.join(format!("{}.svg", meter.name)), draw::plot(&meter)?));
    }
    let docs = directory.parent().unwrap_or(&directory);
    let results = docs.join("../bench/results");
    plots.push((directory.join("cost.svg"), cost::plot(&results)?));
    plots.extend(tables::pages(docs, &results)?);
    plots.push((directory.join("slower-lane.svg"), lane::plot(docs)?));
    let loads = docs.join("loads");
    plots.push((directory.join("cluster-loads.svg"), cluster::plot()?));
    for (name, svg) in compare::plots(&loads)? {
        plots.push((directory.join(format!("{name}.svg")), svg));
    }
    if !check {
        fs::create_dir_all(&directory)
            .with_context(|| format!("making {}", directory.display()))?;
        for (path, svg) in &plots {
            fs::write(path, svg).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    let stale = stale(&directory, &plots)?;
    if stale.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    bail!("not what the code makes: {}: run `cargo xtask plots`", stale.join(", "))
}

/// The files that are missing, differ, or are drawn by nothing.
fn stale(directory: &Path, plots: &[(PathBuf, String)]) -> Result<Vec<String>> {
    let mut stale = Vec::new();
    for (path, svg) in plots {
        if fs::read_to_string(path).ok().as_ref() != Some(svg) {
            stale.push(path.display().to_string());
        }
    }
    let reading = || format!("reading {}", directory.display());
    for entry in fs::read_dir(directory).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        if plots.iter().all(|(known, _)| *known != path) {
            stale.push(format!("{} (drawn by nothing)", path.display()));
        }
    }
    Ok(stale)
}
