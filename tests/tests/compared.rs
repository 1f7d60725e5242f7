//! The jobs of docs/comparison.md: what it shows of limiter, nft and iptables is taken by each of
//! them, and has as many lines as its table says.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::netns::Netns;
use limiter_tests::root::require_root;
use limiter_tests::work_dir::WorkDir;
use limiter_tests::{command, limiter};

/// The languages of the blocks, in the order of the columns of the table.
const LANGUAGES: [&str; 3] = ["yaml", "nft", "iptables"];

/// A job: its heading, and a block in each language, as far as it has one.
struct Job {
    name: String,
    blocks: [Option<String>; 3],
}

/// The section of the jobs.
fn section(page: &str) -> Result<&str> {
    let (_, rest) = page.split_once("\n## Job by job\n").context("no jobs")?;
    Ok(rest.split_once("\n## ").map_or(rest, |(section, _)| section))
}

fn jobs(section: &str) -> Vec<Job> {
    let mut jobs = Vec::new();
    for part in section.split("\n### ").skip(1) {
        let name = part.lines().next().unwrap_or_default().to_owned();
        let block = |language: &str| {
            let (_, rest) = part.split_once(&format!("```{language}\n"))?;
            Some(rest.split_once("```")?.0.to_owned())
        };
        jobs.push(Job { name, blocks: LANGUAGES.map(block) });
    }
    jobs
}

/// Lines of a block that count: not the list around descriptors and budgets.
fn lines(block: &str) -> usize {
    block.lines().filter(|line| !["descriptors:", "budgets:"].contains(line)).count()
}

fn row<'a>(section: &'a str, job: &str) -> Result<Vec<&'a str>> {
    let begin = format!("| [{job}](");
    let line = section.lines().find(|line| line.starts_with(&begin));
    let line = line.with_context(|| format!("{job} has no row"))?;
    Ok(line.split('|').map(str::trim).skip(2).collect())
}

/// The whole of nft: sets in a table, rules in a chain.
fn ruleset(block: &str) -> String {
    let is_set = |line: &&str| line.starts_with("set ");
    let sets: Vec<&str> = block.lines().filter(is_set).collect();
    let rules: Vec<&str> = block.lines().filter(|line| !is_set(line)).collect();
    format!(
        "table inet job {{\n{}\nchain input {{\ntype filter hook input priority \
         filter;\n{}\n}}\n}}\n",
        sets.join("\n"),
        rules.join("\n")
    )
}

/// Gives a program in a namespace a text.
fn feed(netns: &Netns, program: &str, arguments: &[&str], file: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::from(fs::File::open(file)?));
    let output = netns.output(&mut command)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {said}\n{}", fs::read_to_string(file)?);
    Ok(())
}

/// Rules that a program of a namespace lists.
fn listed(netns: &Netns, program: &str, arguments: &[&str], begin: &str) -> Result<usize> {
    let said = netns.run(program, arguments)?;
    Ok(said.lines().filter(|line| line.trim_start().starts_with(begin)).count())
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn jobs_have_the_lines_that_are_shown_and_are_taken() -> Result<()> {
    require_root();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/comparison.md");
    let page = fs::read_to_string(page)?;
    let section = section(&page)?;
    let (dir, mut loaded) = (WorkDir::create("compared")?, [0; 3]);
    for (number, job) in jobs(section).iter().enumerate() {
        let cells = row(section, &job.name)?;
        for ((language, block), cell) in LANGUAGES.iter().zip(&job.blocks).zip(&cells) {
            let Some(block) = block else {
                ensure!(cell.parse::<usize>().is_err(), "{}: {language} {cell}", job.name);
                continue;
            };
            let is = lines(block).to_string();
            ensure!(is == *cell, "{}: {language} has {is} lines, and not {cell}", job.name);
        }
        let netns = Netns::create(&format!("job{number}"))?;
        let [yaml, nft, iptables] = &job.blocks;
        if let Some(yaml) = yaml {
            let file = dir.write(&format!("{number}.yaml"), yaml)?;
            command::checked(Command::new(limiter::binary()?).arg("check").arg(file))?;
            loaded[0] += 1;
        }
        if let Some(nft) = nft {
            let file = dir.write(&format!("{number}.nft"), ruleset(nft))?;
            feed(&netns, "nft", &["-f", "-"], &file)?;
            ensure!(
                listed(&netns, "nft", &["list", "ruleset"], "set ")? > 0 || !nft.contains("set ")
            );
            loaded[1] += 1;
        }
        if let Some(iptables) = iptables {
            let text = format!("*filter\n{iptables}COMMIT\n");
            let file = dir.write(&format!("{number}.iptables"), text)?;
            feed(&netns, "iptables-restore", &[], &file)?;
            let rules = listed(&netns, "iptables", &["-S"], "-A ")?;
            ensure!(rules == lines(iptables), "{}: {rules} rules are in force", job.name);
            loaded[2] += 1;
        }
    }
    ensure!(loaded.into_iter().min() >= Some(6), "{loaded:?}");
    let wrong = dir.write("wrong.nft", ruleset("ip saddr @nobody drop\n"))?;
    let netns = Netns::create("jobwrong")?;
    ensure!(feed(&netns, "nft", &["-f", "-"], &wrong).is_err(), "a wrong rule is taken");
    Ok(())
}
