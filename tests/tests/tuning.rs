//! `limiter tune`, `simulate` and `explain` on captures that are unordered, empty, cut off, many,
//! or of very many sources.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use limiter_tests::command;
use limiter_tests::limiter::binary;
use limiter_tests::pcap::{header, packet};
use limiter_tests::work_dir::WorkDir;
use serde_json::Value;

const RULES: &str = "descriptors:
  - {key: remote_address, rate_limit: {name: ten, rate: 10/s, burst: 3}}\n";

/// More files than these cannot be open.
const DESCRIPTORS: u32 = 40;

fn limiter(args: &[&str]) -> Result<Output> {
    let mut command = Command::new("sh");
    let limited = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\"");
    command.args(["-c", &limited]).arg(binary()?).args(args);
    command::output(command.stdin(Stdio::null()))
}

fn json(args: &[&str]) -> Result<Value> {
    let output = limiter(args)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{args:?}: {}: {said}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn write(path: &Path, packets: impl IntoIterator<Item = (u64, u32)>) -> Result<()> {
    let mut file = header();
    file.extend(packets.into_iter().flat_map(|(micros, host)| packet(micros, host)));
    Ok(fs::write(path, file)?)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path of other characters")
}

/// Captures of one time, as of two interfaces, and more of them than may be open at once: what is
/// read is as if all of it were in one file.
#[test]
fn captures_of_one_time_are_read_as_one() -> Result<()> {
    let dir = WorkDir::create("merged")?;
    let rules = dir.write("rules.yaml", RULES)?;
    let (parts, whole) = (dir.path().join("parts"), dir.path().join("whole.pcap"));
    fs::create_dir(&parts)?;
    // Two files a second, of one source each 100 ms in turn, for 100 seconds.
    for second in 0..100u64 {
        for (name, first) in [("b", 0), ("a", 50_000)] {
            let packets = (0..10).map(|at| (second * 1_000_000 + at * 100_000 + first, 7));
            write(&parts.join(format!("{name}{second}.pcap")), packets)?;
        }
    }
    write(&whole, (0..2000).map(|at| (at * 50_000, 7)))?;
    let (parts, whole, rules) = (text(&parts)?, text(&whole)?, text(&rules)?);
    let tuned = json(&["tune", "--pcap", parts, "--spare", "100%", "--json"])?;
    ensure!(tuned["packets"] == 2000 && tuned["notes"][0] != Value::Null, "{tuned}");
    ensure!(tuned["top"][0]["most"] == serde_json::json!([1, 20, 1200, 2000]), "{tuned}");
    ensure!(!tuned["notes"].to_string().contains("older"), "{tuned}");
    let of = |json: Value| (json["rates"].clone(), json["top"].clone(), json["proposal"].clone());
    let one = json(&["tune", "--pcap", whole, "--spare", "100%", "--json"])?;
    ensure!(of(tuned) == of(one), "in parts or not, it is the same");
    let simulate = |pcap| json(&["simulate", "--pcap", pcap, "--rules", rules, "--json"]);
    let [parts, whole] =
        [simulate(parts)?, simulate(whole)?].map(|reported| reported["candidates"].clone());
    ensure!(parts == whole && parts[0]["dropped"] != 0, "{parts} {whole}");
    Ok(())
}

/// A file whose packets are not in order is read in its order, and that is said.
#[test]
fn packets_that_are_not_in_order_are_reported() -> Result<()> {
    let dir = WorkDir::create("unordered")?;
    let rules = dir.write("rules.yaml", RULES)?;
    let file = dir.path().join("late.pcap");
    write(&file, [(0, 1), (3_000_000, 1), (1_000_000, 1), (2_000_000, 2), (4_000_000, 1)])?;
    let (file, rules) = (text(&file)?, text(&rules)?);
    let words = "2 packets are older than one before them, by up to 2 s";
    for args in [
        &["tune", "--pcap", file][..],
        &["simulate", "--pcap", file, "--rules", rules],
        &["explain", "--pcap", file, "--rules", rules],
        &["explain", "--pcap", file, "--rules", rules, "--summary"],
    ] {
        let output = limiter(args)?;
        let said = String::from_utf8_lossy(&output.stdout);
        // So few packets carry no proposal.
        let expected = if args[0] == "tune" { 2 } else { 0 };
        ensure!(output.status.code() == Some(expected), "{args:?}: {said}");
        ensure!(said.contains(words), "{args:?}: {said}");
    }
    let reported = json(&["explain", "--pcap", file, "--rules", rules, "--summary", "--json"])?;
    ensure!(
        reported["summary"]["late"] == 2 && reported["summary"]["seen"]["packets"] == 5,
        "{reported}"
    );
    Ok(())
}

/// Nothing in a file, or only a header: no proposal, no picture of what was not there.
#[test]
fn captures_without_packets_give_no_proposal() -> Result<()> {
    let dir = WorkDir::create("nothing")?;
    let rules = dir.write("rules.yaml", RULES)?;
    let (empty, head) = (dir.write("empty.pcap", [])?, dir.write("head.pcap", header())?);
    let cut = dir.write("cut.pcap", &header()[..11])?;
    let rules = text(&rules)?;
    for (file, words) in [(&empty, "it is empty"), (&cut, "it ends within its header")] {
        let file = text(file)?;
        for args in [
            &["tune", "--pcap", file][..],
            &["simulate", "--pcap", file, "--rules", rules],
            &["explain", "--pcap", file, "--rules", rules, "--summary"],
        ] {
            let output = limiter(args)?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.code() == Some(2) && said.contains(words), "{args:?}: {said}");
            ensure!(output.stdout.is_empty(), "{args:?}");
        }
    }
    let head = text(&head)?;
    let output = limiter(&["tune", "--pcap", head])?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.code() == Some(2) && said.contains("no limit is proposed"), "{said}");
    let reported = json(&["simulate", "--pcap", head, "--rules", rules, "--json"])?;
    ensure!(reported["packets"] == 0 && reported["candidates"][0]["passed"] == 0, "{reported}");
    Ok(())
}

/// More than two million sources through a pipe: a share of them is looked at, and that is said.
#[test]
fn two_million_sources_are_tuned_by_a_share_of_them() -> Result<()> {
    const SOURCES: u32 = 2_100_000;
    let mut command = Command::new(binary()?);
    command.args(["tune", "--pcap", "-", "--json"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let to = child.stdin.take().context("no input")?;
    let writer = thread::spawn(move || -> std::io::Result<()> {
        let mut to = BufWriter::with_capacity(1 << 16, to);
        to.write_all(&header())?;
        for host in 0..SOURCES {
            to.write_all(&packet(u64::from(host), host))?;
        }
        to.flush()
    });
    let output = child.wait_with_output()?;
    writer.join().map_err(|_panic| anyhow!("the writer panicked"))??;
    let said = String::from_utf8_lossy(&output.stderr);
    // One packet of each source carries no proposal.
    ensure!(output.status.code() == Some(2), "{}: {said}", output.status);
    let reported: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(
        reported["packets"] == SOURCES && reported["one_of"] == 2,
        "{} {}",
        reported["packets"],
        reported["one_of"]
    );
    // Half of them, with seven standard deviations.
    let sources = reported["sources"].as_u64().context("no sources")?;
    ensure!((1_045_000..=1_055_000).contains(&sources), "{sources}");
    ensure!(
        reported["notes"].to_string().contains("one of 2 was looked at"),
        "{}",
        reported["notes"]
    );
    ensure!(reported["proposal"].is_null(), "{}", reported["proposal"]);
    Ok(())
}
