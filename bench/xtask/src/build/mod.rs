//! `cargo xtask bench build`: the cost of building and testing limiter, for this checkout and, if
//! one is named, for another revision beside it.

mod clone;
mod spent;
mod table;
mod units;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use xtask::setup::{self, Tools};
use xtask::summary::Tally;
use xtask::{process, workspace};

use self::clone::Clone;
use self::table::{Column, Figure};
use self::units::Units;

/// Options of `bench build`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Measure this revision too, before the checkout, and compare
    #[arg(long, value_name = "REVISION")]
    against: Option<String>,
    /// Also run `.ci/run` in a clone with nothing built
    #[arg(long)]
    suite: bool,
    /// Fetch all crates and build bpf-linker anew for each revision
    #[arg(long)]
    fresh: bool,
    /// Measure only these parts
    #[arg(long, value_name = "PART", value_enum, conflicts_with = "suite")]
    only: Vec<Part>,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// `cargo xtask run` in a clean clone
    Run,
    /// Crates that are compiled more than once for one target
    Units,
    /// The size of the release binary
    Release,
    /// Builds after an edit in the command line
    Edit,
    /// `.ci/run` in a clean clone
    Suite,
}

impl Arguments {
    fn has(&self, part: Part) -> bool {
        if self.only.is_empty() {
            part != Part::Suite || self.suite
        } else {
            self.only.contains(&part)
        }
    }
}

/// Measures, prints the table, and fails if a build compiled a crate twice for one target.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let root = workspace::root()?;
    clone::say_changes(&root)?;
    let revision = clone::revision(&root, "HEAD")?;
    let other =
        arguments.against.as_deref().map(|name| clone::revision(&root, name)).transpose()?;
    // Before the clock runs: an installation of packages would be part of the first revision only.
    let tools = if arguments.has(Part::Suite) { Tools::Test } else { Tools::Run };
    let toolchain = setup::ensure(tools)?;
    let head = table::head(arguments.fresh, &toolchain)?;
    let mut columns = Vec::new();
    if let Some(revision) = other {
        let (figures, _) = measure(arguments, &toolchain, &revision)?;
        columns.push(Column { revision, figures });
    }
    let (figures, twice) = measure(arguments, &toolchain, &revision)?;
    columns.push(Column { revision, figures });
    let shown = table::table(&columns);
    println!("{head}\n{shown}");
    for line in &twice {
        println!("compiled more than once for one target: {line}");
    }
    Ok(if twice.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measures one revision. Returns the crates that one of its builds compiles twice for one target.
fn measure(
    arguments: &Arguments,
    toolchain: &str,
    revision: &str,
) -> Result<(Vec<Figure>, BTreeSet<String>)> {
    let (mut figures, mut twice) = (Vec::new(), BTreeSet::new());
    let clone = Clone::make(revision, arguments.fresh, toolchain)?;
    let say = |what: &str| eprintln!("xtask: {revision}: {what}");
    if arguments.has(Part::Run) {
        say("cargo xtask run, with nothing built");
        let spent = spent::timed(clone.command("cargo").args(["xtask", "run"]))?;
        figures.extend(Figure::times("`cargo xtask run`, with nothing built", spent));
    }
    if arguments.has(Part::Units) {
        say("crates that are compiled more than once");
        let built = clone.built()?;
        let own = units(&clone, &[vec!["build", "--package", "xtask"]])?;
        let run = units(&clone, &clone.layout.run)?;
        let all = own.and(&run);
        // A count of other builds would prove nothing.
        if let (true, Some(file)) = (arguments.has(Part::Run), all.beside(&built)) {
            bail!("{revision}: `cargo xtask run` is built otherwise than here: it had no {file}");
        }
        let (of_run, of_tests) = (run.twice(), units(&clone, &clone.layout.tests)?.twice());
        let beside = all.twice().difference(&of_run).cloned().collect::<Vec<_>>();
        for (what, lines) in [("run", &of_run), ("tests", &of_tests)] {
            for line in lines {
                say(&format!("{what}: {line}"));
            }
        }
        for line in &beside {
            say(&format!("for xtask and again for run: {line}"));
        }
        figures.extend([
            Figure::count(
                "crates compiled more than once by the build of `run`",
                of_run.len() as u64,
            ),
            Figure::count("the same, by the build of the tests", of_tests.len() as u64),
            Figure::count(
                "crates compiled for `xtask`, and otherwise for `run`",
                beside.len() as u64,
            ),
        ]);
        twice = of_run;
        twice.extend(of_tests);
    }
    if arguments.has(Part::Release) {
        say("cargo xtask build");
        figures.push(Figure::megabytes("the release binary, stripped", stripped_size(&clone)?));
    }
    if arguments.has(Part::Edit) {
        figures.extend(edit(&clone, &say)?);
    }
    // Gigabytes.
    drop(clone);
    if arguments.has(Part::Suite) {
        say("the suite, with nothing built");
        let clone = Clone::make(revision, arguments.fresh, toolchain)?;
        let (tally, spent) = spent::around(|| suite(&clone))?;
        figures.extend(Figure::times("`.ci/run`, with nothing built", spent));
        figures.extend([
            Figure::count("tests passed", tally.passed),
            Figure::count("tests failed", tally.failed),
            Figure::count("tests not run, with those of `--long`", tally.skipped),
        ]);
    }
    Ok((figures, twice))
}

/// All crates of some cargo commands. Nothing is compiled that is there already.
fn units(clone: &Clone, commands: &[Vec<&str>]) -> Result<Units> {
    let mut units = Units::default();
    for arguments in commands {
        let mut cargo = clone.cargo(arguments);
        workspace::messages(&mut cargo, |line| units.add(line))?;
    }
    Ok(units)
}

/// The bytes of `limiter` as it is released, without symbols.
fn stripped_size(clone: &Clone) -> Result<u64> {
    let mut build = clone.command("cargo");
    let shown = process::output(build.args(["xtask", "build"]))?;
    let program = shown.lines().last().context("`cargo xtask build` names no program")?;
    let stripped = clone.path.join("target/stripped");
    process::run(process::command("strip").arg("-o").arg(&stripped).arg(program))?;
    let size = fs::metadata(&stripped).map(|file| file.len());
    size.with_context(|| format!("{} is not there", stripped.display()))
}

/// Builds after an edit in the command line, where everything was built before.
fn edit(clone: &Clone, say: &impl Fn(&str)) -> Result<Vec<Figure>> {
    let build = vec!["build"];
    let tests = vec!["test", "--no-run", "--package", clone.layout.package];
    say("everything that is built before the edit");
    for arguments in [&build, &tests] {
        process::run(&mut clone.cargo(arguments))?;
    }
    let path = clone.path.join(clone.layout.source);
    let mut file = OpenOptions::new()
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    // A comment would leave the compiler with nothing to do.
    writeln!(file, "const _: u8 = 1;")
        .with_context(|| format!("cannot write {}", path.display()))?;
    let mut figures = Vec::new();
    for (name, arguments) in [("`cargo build`", build), ("its unit tests", tests)] {
        let mut cargo = clone.cargo(&arguments);
        say(&format!("after the edit: {}", process::shown(&cargo)));
        let spent = spent::timed(&mut cargo)?;
        let name = format!("{name} after an edit in the command line");
        figures.extend(Figure::times(&name, spent));
    }
    Ok(figures)
}

/// Runs what CI runs, and reads its last line. Tests may fail: that is a figure.
fn suite(clone: &Clone) -> Result<Tally> {
    let mut command = clone.command("./.ci/run");
    let shown = process::shown(&command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{shown} could not be started"))?;
    let output = child.stdout.take().context("no standard output")?;
    let mut tally = None;
    for line in BufReader::new(output).lines() {
        let line = line.with_context(|| format!("{shown}: reading its output"))?;
        eprintln!("{line}");
        tally = Tally::from_closing(&line).or(tally);
    }
    let status = child.wait().with_context(|| format!("{shown}: waiting for it"))?;
    tally.with_context(|| format!("{shown} ended without its closing line ({status})"))
}
