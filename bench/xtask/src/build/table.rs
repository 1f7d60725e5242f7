//! What the measurement prints.

use std::fs;

use anyhow::{Context as _, Result};
use xtask::process;

use super::spent::Spent;

/// A row of the table, of one revision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    name: String,
    value: f64,
    decimals: usize,
}

impl Figure {
    #[expect(clippy::cast_precision_loss, reason = "far under 2^52")]
    pub(super) fn count(name: &str, number: u64) -> Self {
        Self { name: name.to_owned(), value: number as f64, decimals: 0 }
    }

    /// Bytes, shown in millions.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a file are far under 2^52")]
    pub(super) fn megabytes(name: &str, bytes: u64) -> Self {
        Self { name: format!("{name}, MB"), value: bytes as f64 / 1e6, decimals: 2 }
    }

    /// The two times of a command.
    pub(super) fn times(name: &str, spent: Spent) -> [Self; 2] {
        [("s", spent.wall), ("processor time, s", spent.processor)].map(|(unit, value)| Self {
            name: format!("{name}, {unit}"),
            value,
            decimals: 1,
        })
    }

    fn shown(&self) -> String {
        format!("{:.*}", self.decimals, self.value)
    }
}

/// Figures of one revision. All revisions have the same figures, in the same order.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// The commit, as short as git shows it.
    pub(super) revision: String,
    pub(super) figures: Vec<Figure>,
}

/// The figures in Markdown. The last column is the checkout; before it there may be another
/// revision, and then each row has the ratio of the two.
pub(super) fn table(columns: &[Column]) -> String {
    let Some((this, others)) = columns.split_last() else { return String::new() };
    let mut cells = vec![String::new()];
    cells.extend(columns.iter().map(|column| format!("`{}`", column.revision)));
    cells.extend(others.first().map(|_| "ratio".to_owned()));
    let rule = "--:|".repeat(cells.len() - 1);
    let mut table = format!("{}|---|{rule}\n", row(&cells));
    for (index, figure) in this.figures.iter().enumerate() {
        let mut cells = vec![figure.name.clone()];
        let others = others.iter().filter_map(|column| column.figures.get(index));
        let others: Vec<&Figure> = others.collect();
        cells.extend(others.iter().map(|other| other.shown()));
        cells.push(figure.shown());
        cells.extend(others.first().map(|other| ratio(figure.value, other.value)));
        table.push_str(&row(&cells));
    }
    table
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Nothing over nothing is no ratio, and neither is anything else.
fn ratio(this: f64, other: f64) -> String {
    if other > 0.0 { format!("{:.2}", this / other) } else { String::new() }
}

/// The lines above the table: the machine, and what was there before the builds.
pub(super) fn head(fresh: bool, toolchain: &str) -> Result<String> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    let system = rustix::system::uname();
    let processors = std::thread::available_parallelism()?;
    let said = |program: &str, arguments: &[&str]| {
        anyhow::Ok(process::output(process::command(program).args(arguments))?.trim().to_owned())
    };
    let load = read("/proc/loadavg")?;
    let before = if fresh {
        "Debian's packages of the toolchain; bpf-linker and all crates were fetched and built for \
         each revision"
    } else {
        "Debian's packages of the toolchain, bpf-linker, the sources of all crates"
    };
    let rows = [
        ("date", said("date", &["-u", "+%Y-%m-%d"])?),
        ("processor", format!("{}, {processors} used", processor(&read("/proc/cpuinfo")?))),
        (
            "kernel",
            format!(
                "{} ({})",
                system.release().to_string_lossy(),
                system.machine().to_string_lossy()
            ),
        ),
        ("compiler", said("rustc", &["--version"])?),
        ("toolchain for BPF", format!("`{toolchain}`")),
        ("there before", before.to_owned()),
        ("load average before", load.split(' ').next().unwrap_or_default().to_owned()),
    ];
    let rows = rows.map(|(name, value)| row(&[name.to_owned(), value])).concat();
    Ok(format!("One run each, in the same hour, on one machine.\n\n| | |\n|---|---|\n{rows}"))
}

/// The name of the processor, in the text of /proc/cpuinfo.
fn processor(cpuinfo: &str) -> &str {
    let name = |line| str::strip_prefix(line, "model name")?.split_once(": ");
    cpuinfo.lines().find_map(name).map_or("not reported by the kernel", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(revision: &str, wall: f64, twice: u64) -> Column {
        let spent = Spent { wall, processor: 2.0 * wall };
        let mut figures = Figure::times("run", spent).to_vec();
        figures.push(Figure::count("crates twice", twice));
        figures.push(Figure::megabytes("binary", 12_345_678));
        Column { revision: revision.to_owned(), figures }
    }

    #[test]
    fn two_revisions_have_their_ratio() {
        let table = table(&[column("aaa", 100.0, 7), column("bbb", 50.0, 0)]);
        let expected = "|  | `aaa` | `bbb` | ratio |\n|---|--:|--:|--:|\n\
                        | run, s | 100.0 | 50.0 | 0.50 |\n\
                        | run, processor time, s | 200.0 | 100.0 | 0.50 |\n\
                        | crates twice | 7 | 0 | 0.00 |\n\
                        | binary, MB | 12.35 | 12.35 | 1.00 |\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn nothing_before_has_no_ratio() {
        let table = table(&[column("aaa", 100.0, 0), column("bbb", 50.0, 0)]);
        assert!(table.contains("| crates twice | 0 | 0 |  |\n"), "{table}");
    }

    #[test]
    fn one_revision_stands_alone() {
        let table = table(&[column("bbb", 50.0, 0)]);
        assert!(table.starts_with("|  | `bbb` |\n|---|--:|\n| run, s | 50.0 |\n"), "{table}");
        assert_eq!(super::table(&[]), "");
    }

    #[test]
    fn the_processor_is_named() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: A B, C\nflags\t: x\n"), "A B, C");
        assert_eq!(processor("processor\t: 0\n"), "not reported by the kernel");
    }
}
