//! Measures what limiter costs, and writes the parts of `performance.md`. Exit codes: 0 it was measured, and with
//! `--check` every ratio holds; 1 one does not, or the run broke off; 2 it could not run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum as _};
use limiter_tests::bench::figure;
use limiter_tests::bench::group::{Group, Options};
use limiter_tests::root::is_root;

/// Measures what limiter costs, group by group.
#[derive(Debug, Parser)]
#[command(name = "limiter-bench", version)]
struct Args {
    /// What to measure; all of it unless named.
    groups: Vec<Group>,
    /// The directory for the parts of performance.md, one a group, and the pictures.
    #[arg(long, value_name = "DIRECTORY")]
    output: PathBuf,
    /// Fewer cases and rounds.
    #[arg(long)]
    quick: bool,
    /// Only the cases under this heading.
    #[arg(long, value_name = "HEADING")]
    only: Option<String>,
    /// Fail where a ratio is not what it is held to.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let Args { mut groups, output, quick, only, check } = Args::parse();
    if !is_root() {
        eprintln!("limiter-bench: it loads BPF programs: run it as root");
        return ExitCode::from(2);
    }
    if groups.is_empty() {
        groups = Group::value_variants().to_vec();
    }
    let options = Options { quick, only };
    let mut holds = true;
    for group in groups {
        match group.report(&options, &output) {
            Ok(figures) => {
                println!("{}\n{}", group.name(), figure::table(&figures));
                for figure in figures.iter().filter(|figure| check && !figure.holds()) {
                    holds = false;
                    eprintln!(
                        "limiter-bench: {}: does not hold: {}",
                        group.name(),
                        figure.markdown()
                    );
                }
            }
            Err(error) => {
                eprintln!("limiter-bench: {}: {error:#}", group.name());
                return ExitCode::from(1);
            }
        }
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
