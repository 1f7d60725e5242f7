//! How many instructions the verifier walks, against the committed table in
//! docs/design/verifier.md.

// Also on other kernels, and in the quick part: 300 s each.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, thread};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use limiter_common::header::Direction;
use limiter_datapath::{Datapath as _, Framing, Hook, Kernel, Options, SourceTable, TcOrder};
use limiter_tests::bpffs::Bpffs;
use limiter_tests::program::SHIPPED;
use limiter_tests::root::require_root;
use limiter_tests::test_run::verified_instructions;
use limiter_tests::work_dir::WorkDir;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// As it was at the build: a guest of `cargo xtask vm` has no files of the repository.
const RECORDED: &str = include_str!("../../docs/design/verifier.md");

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/design/verifier.md");

/// Word in the row of a kernel that does not take the program.
const REFUSED: &str = "refused";

/// Words of such a kernel, of a loop and of the stack: docs/design/verifier.md.
const REFUSALS: [&str; 3] =
    ["too complex", "infinite loop detected", "attempt to corrupt spilled pointer on stack"];

/// Half of what the kernel takes.
const MOST: u32 = 500_000;

/// Three quarters, for tc without `CAP_PERFMON`.
const MOST_AT_TC_WITH_TWO: u32 = 750_000;

/// A program, with one source store or the other.
type Shipped = (Hook, Framing, SourceTable);

const XDP: [(Hook, Framing); 2] = [(Hook::Xdp, Framing::Ethernet), (Hook::Xdp, Framing::Layer3)];

/// Those of frames with Ethernet headers, which need more.
const TC: [(Hook, Framing); 2] =
    [(Hook::Tc(Direction::In), Framing::Ethernet), (Hook::Tc(Direction::Out), Framing::Ethernet)];

const FIRST: Shipped = (Hook::Xdp, Framing::Ethernet, SourceTable::Hash);

/// A loaded data path, and the ids of its programs. They are in the kernel as long as it lives.
type Loaded = (Kernel, Vec<(Shipped, u32)>);

/// Loads the shipped programs, as this thread may.
fn load(pins: &Path) -> Result<Vec<Loaded>> {
    let load = |source_table: SourceTable| {
        let options = Options {
            pin_dir: pins.join(source_table.name()),
            max_sources: 256,
            source_table,
            max_rules: 16,
            max_keys: 16,
            kernel_log: 0,
            tc_order: TcOrder::First,
            then: None,
        };
        let mut kernel = Kernel::open(SHIPPED, &options)?;
        let ids = XDP
            .iter()
            .chain(&TC)
            .map(|&(hook, framing)| {
                Ok(((hook, framing, source_table), kernel.program_id(hook, framing)?))
            })
            .collect::<Result<_>>()?;
        Ok((kernel, ids))
    };
    [SourceTable::Hash, SourceTable::Lines].into_iter().map(load).collect()
}

/// How many instructions of each program the verifier walked through. They are gone afterwards.
fn verified(loaded: Vec<Loaded>) -> Result<Vec<(Shipped, u32)>> {
    let mut counts = Vec::new();
    for (kernel, ids) in loaded {
        for (shipped, id) in ids {
            counts.push((shipped, verified_instructions(id)?));
        }
        Box::new(kernel).detach()?;
    }
    Ok(counts)
}

/// Loads them in a thread that may do nothing but `CAP_BPF` and `CAP_NET_ADMIN`.
fn load_with_two(pins: &Path) -> Result<Vec<Loaded>> {
    let pins = pins.to_owned();
    let loading = thread::spawn(move || {
        let mut sets = capabilities(None)?;
        sets.effective = CapabilitySet::BPF | CapabilitySet::NET_ADMIN;
        set_capabilities(None, sets)?;
        load(&pins)
    });
    loading.join().map_err(|panic| anyhow!("the loading thread panicked: {panic:?}"))?
}

/// 6 and 18 of `6.18.5-1-cloud`.
fn release() -> Result<(u32, u32)> {
    let name = rustix::system::uname();
    let release = name.release().to_str()?;
    let mut parts = release.split(['.', '-']);
    let mut number = || -> Result<u32> { Ok(parts.next().context("no release")?.parse()?) };
    Ok((number()?, number()?))
}

/// The start of a row, up to the count.
fn head(shipped: Shipped, kernel: &str, capabilities: &str) -> String {
    format!("| {} | {kernel} | {capabilities} | ", name(shipped))
}

fn name((hook, framing, table): Shipped) -> String {
    let hook = match hook {
        Hook::Xdp => "",
        Hook::Tc(Direction::In) => ", tc in",
        Hook::Tc(Direction::Out) => ", tc out",
    };
    let table = match table {
        SourceTable::Hash => "",
        SourceTable::Lines => ", lines",
    };
    format!("{}{hook}{table}", framing.program())
}

/// The rows of what was loaded.
fn rows(counts: Vec<(Shipped, u32)>, kernel: &str, capabilities: &str) -> Vec<(String, u32)> {
    let row = |(shipped, count)| (head(shipped, kernel, capabilities), count);
    counts.into_iter().map(row).collect()
}

fn recorded(table: &str, head: &str) -> Option<u32> {
    let row = table.lines().find_map(|line| line.strip_prefix(head))?;
    row.trim_end_matches(['|', ' ']).parse().ok()
}

/// The table with the rows of this kernel replaced, or put at its end.
fn rewritten(table: &str, counts: &[(String, u32)]) -> String {
    let mut text = String::new();
    let mut in_table = false;
    let mut written = false;
    for line in table.lines() {
        let is_row = line.starts_with("| limiter");
        if in_table && !is_row && !written {
            for (head, count) in counts {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{head}{count} |");
            }
            written = true;
        }
        in_table |= is_row;
        if !counts.iter().any(|(head, _)| line.starts_with(head.as_str())) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[test]
fn the_verifier_walks_no_more_than_recorded() -> Result<()> {
    require_root();
    let dir = WorkDir::create("verifier")?;
    let bpffs = Bpffs::mount(dir.path().join("bpf"))?;
    let (major, minor) = release()?;
    let kernel = format!("{major}.{minor}");
    let table = RECORDED;
    let two = head(FIRST, &kernel, "two");
    let mut counts = rows(verified(load(&bpffs.path().join("all"))?)?, &kernel, "all");
    let loaded = load_with_two(&bpffs.path().join("two"));
    if table.contains(&format!("{two}{REFUSED} |")) {
        let Err(error) = loaded else {
            bail!("{two}this kernel takes the program now: write a row for it");
        };
        let why = format!("{error:#}");
        ensure!(
            REFUSALS.iter().any(|words| why.contains(words)),
            "{two}refused, but for another reason: {why}"
        );
    } else {
        counts.extend(rows(verified(loaded?)?, &kernel, "two"));
    }
    if env::var_os("LIMITER_VERIFIER_WRITE").is_some() {
        fs::write(TABLE, rewritten(table, &counts))?;
    }
    // All rows before the first fault: they are the ones to write.
    for (head, count) in &counts {
        println!("{head}{count} |");
    }
    for (head, count) in &counts {
        let at_tc = head.contains(", tc ") && head.contains("| two |");
        let most = if at_tc { MOST_AT_TC_WITH_TWO } else { MOST };
        ensure!(*count <= most, "{head}{count}: more than {most}");
        let Some(before) = recorded(table, head) else {
            ensure!(
                !table.contains(&format!(" | {kernel} | ")),
                "{head}{count} |: no such row in docs/design/verifier.md, but others of this kernel: \
                 write it, by hand or with LIMITER_VERIFIER_WRITE=1"
            );
            // Nothing to compare with on this kernel: the absolute bound was asked.
            continue;
        };
        ensure!(
            u64::from(*count) * 5 <= u64::from(before) * 6,
            "{head}{count}: 20 % more than the {before} in docs/design/verifier.md, or even more"
        );
    }
    Ok(())
}

#[test]
fn rows_are_replaced_and_added() {
    let table = "| a |\n| limiter | 6.1 | all | 5 |\n| limiter | 6.18 | all | 7 |\n\nend\n";
    let new =
        rewritten(table, &[(head(FIRST, "6.18", "all"), 9), (head(FIRST, "6.18", "two"), 11)]);
    assert_eq!(recorded(&new, &head(FIRST, "6.1", "all")), Some(5));
    assert_eq!(recorded(&new, &head(FIRST, "6.18", "all")), Some(9));
    assert_eq!(recorded(&new, &head(FIRST, "6.18", "two")), Some(11));
    assert!(new.ends_with("| limiter | 6.18 | two | 11 |\n\nend\n"), "{new}");
}
