//! Measures what limiter costs, and writes a file of results for each group. Exit codes: 0 it was
//! measured, and with `--check` every ratio holds; 1 one does not, or the run broke off; 2 it could
//! not run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum as _};
use limiter_bench::figure::{self, Figure, LOOKS};
use limiter_bench::group::{Group, Measured, Options};
use limiter_bench::requests::served;
use limiter_tests::root::is_root;

/// Measures what limiter costs, group by group.
#[derive(Debug, Parser)]
#[command(name = "limiter-bench", version)]
struct Args {
    /// Groups to measure; all of them unless named.
    groups: Vec<Group>,
    /// The directory for the results.
    #[arg(long, value_name = "DIRECTORY", default_value = "bench/results")]
    output: PathBuf,
    /// The directory of the results as they are, for `--check`.
    #[arg(long, value_name = "DIRECTORY", default_value = "bench/results")]
    results: PathBuf,
    /// Fewer cases and rounds.
    #[arg(long)]
    quick: bool,
    /// Only the cases under this heading.
    #[arg(long, value_name = "HEADING")]
    only: Option<String>,
    /// After a quick look, fail where a ratio is not what it is held to; write nothing. A group
    /// with such a ratio is looked at up to twice more; one look in which a ratio holds is enough.
    #[arg(long)]
    check: bool,
    /// Be one of the servers that are measured: its name, its address, and the socket of Redis.
    #[arg(long, hide = true, num_args = 3)]
    serve: Option<Vec<String>>,
}

/// Answers as one of the servers that `requests` measures.
fn serve(words: &[String]) -> Result<()> {
    let [peer, address, redis] = words else { bail!("--serve takes three words") };
    served::answer(peer.parse()?, address.parse()?, redis)
}

fn main() -> ExitCode {
    let Args { mut groups, output, results, quick, only, check, serve: server } = Args::parse();
    if let Some(words) = server {
        return match serve(&words) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("limiter-bench: {error:#}");
                ExitCode::from(1)
            }
        };
    }
    if !is_root() {
        eprintln!("limiter-bench: it loads BPF programs: run it as root");
        return ExitCode::from(2);
    }
    if groups.is_empty() {
        groups = Group::value_variants().to_vec();
    }
    let options = Options { quick: quick || check, only };
    let looks = if check { LOOKS } else { 1 };
    let mut all = Vec::new();
    for group in groups {
        match look(group, &options, looks) {
            Ok(measured) => {
                println!("{}\n{}", group.name(), figure::table(&measured.figures));
                all.push((group, measured));
            }
            Err(error) => {
                eprintln!("limiter-bench: {}: {error:#}", group.name());
                return ExitCode::from(1);
            }
        }
    }
    if check {
        return checked(&all, &results);
    }
    for (group, measured) in &all {
        if let Err(error) = group.write(measured, &output) {
            eprintln!("limiter-bench: {}: {error:#}", group.name());
            return ExitCode::from(1);
        }
    }
    ExitCode::SUCCESS
}

/// Measures a group, and again while a ratio is not what it is held to, `looks` times at most. The
/// report is that of the first time.
fn look(group: Group, options: &Options, looks: u32) -> Result<Measured> {
    let mut measured = group.report(options)?;
    for _ in 1..looks {
        if measured.figures.iter().all(Figure::holds) {
            break;
        }
        println!("{}\n{}", group.name(), figure::table(&measured.figures));
        eprintln!("limiter-bench: {}: not every ratio holds: another look", group.name());
        figure::renew(&mut measured.figures, &group.report(options)?.figures);
    }
    Ok(measured)
}

/// Names the ratios that are not what they are held to, and those that are held to less than the
/// results say.
fn checked(all: &[(Group, Measured)], results: &Path) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (group, measured) in all {
        let path = results.join(format!("{}.tsv", group.name()));
        let results = match fs::read_to_string(&path) {
            Ok(results) => results,
            Err(error) => {
                eprintln!("limiter-bench: {}: {error}", path.display());
                return ExitCode::from(2);
            }
        };
        for figure in &measured.figures {
            let fault = match (figure.holds(), figure.is_tight(&results)) {
                (false, _) => "does not hold",
                (_, Some(false)) => "is held more than 1.5 times worse than the results have it",
                _ => continue,
            };
            eprintln!("limiter-bench: {}: {fault}: {}", group.name(), figure.markdown());
            code = ExitCode::from(1);
        }
    }
    code
}
