//! Rule files that are too long, too deep, too many, or no files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use limiter_tests::command;
use limiter_tests::limiter::binary;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::work_dir::WorkDir;

use super::scene::{DRAINING, MANAGEMENT, drain, ensure_clear_output, ensure_in_force};

/// Address space in bytes that a check may take, however bad the file is.
const ROOM: u64 = 1 << 30;

fn ports(count: u32) -> String {
    (1..=count).map(|port| port.to_string()).collect::<Vec<_>>().join(", ")
}

/// Aliases of aliases: ten to the power of nine values.
fn laughs() -> String {
    let levels = (1..10).map(|level| {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        format!("  - &a{level} [{aliases}]\n")
    });
    let first = "descriptors:\n  - &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    std::iter::once(first).chain(levels).collect::<Vec<_>>().concat()
}

/// Three keys with a thousand values each: a thousand million rules.
fn product() -> String {
    let values = ports(1000);
    format!(
        "descriptors:\n  - key: destination_port\n    value: [{values}]\n    descriptors:\n      \
         - key: source_port\n        value: [{values}]\n        descriptors:\n          - {{key: \
         remote_address, rate_limit: {{unit: second, requests_per_unit: 5}}}}\n"
    )
}

/// A rule file of `bytes` at least, of which nothing is wrong.
fn long(bytes: usize) -> String {
    let rule = |number: u32| {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + number);
        format!(
            "  - {{key: remote_address, value: {address}, rate_limit: {{unit: second, \
             requests_per_unit: 100, burst: 20}}}}\n"
        )
    };
    let mut text = DRAINING.to_owned();
    for number in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&rule(number));
    }
    text
}

/// Files that are no rule files, by name.
fn bad(dir: &WorkDir) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut bad = Vec::new();
    for (name, text) in [
        ("a flow 100,000 deep", "[".repeat(100_000)),
        ("a closed flow 100,000 deep", "[".repeat(100_000) + &"]".repeat(100_000)),
        ("mappings 100,000 deep", "{a: ".repeat(100_000)),
        ("blocks 3,000 deep", (0..3000).map(|level| " ".repeat(level) + "a:\n").collect()),
        ("aliases that expand", laughs()),
        ("values that multiply", product()),
        ("over 16 MiB", long((16 << 20) + 1)),
        ("NUL bytes", "\0".repeat(1000)),
        ("NUL bytes in a value", "domain: a\0b\ndescriptors: []\n".to_owned()),
        ("a scalar of 10 MB", "domain: ".to_owned() + &"x: ".repeat(3 << 20)),
        ("a million documents", "---\n".repeat(1_000_000)),
        ("an anchor of itself", "descriptors: &a [*a]\n".to_owned()),
    ] {
        bad.push((name, dir.write(&format!("bad{}.yaml", bad.len()), text)?));
    }
    let path = |name: &str| dir.path().join(name);
    command::run("mkfifo", [path("fifo.yaml")])?;
    symlink(path("loop.yaml"), path("loop.yaml"))?;
    fs::create_dir(path("round"))?;
    symlink(path("round"), path("round/again.yaml"))?;
    symlink("/dev/zero", path("zero.yaml"))?;
    let others = [
        ("a FIFO", "fifo.yaml"),
        ("a link to itself", "loop.yaml"),
        ("a directory in itself", "round"),
    ];
    bad.extend(others.map(|(what, name)| (what, path(name))));
    bad.extend([
        ("/dev/zero", PathBuf::from("/dev/zero")),
        ("a link to /dev/zero", path("zero.yaml")),
    ]);
    Ok(bad)
}

/// `limiter check`, in bounded memory, and with an end.
fn check(file: &Path) -> Result<Output> {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", "prlimit", &format!("--as={ROOM}")]);
    command::output(command.arg(binary()?).arg("check").arg(file))
}

#[test]
fn whatever_is_no_rule_file_is_refused_in_one_line_and_little_memory() -> Result<()> {
    let dir = WorkDir::create("badfiles")?;
    for (what, file) in bad(&dir)? {
        let output = check(&file)?;
        ensure_clear_output(&output, what)?;
        ensure!(output.status.code() == Some(2), "{what}: {}", output.status);
        ensure!(output.stderr.len() < 1000, "{what}: {} bytes said", output.stderr.len());
    }
    Ok(())
}

#[test]
fn ten_megabytes_of_rules_are_checked_in_bounded_memory() -> Result<()> {
    let dir = WorkDir::create("longfile")?;
    let file = dir.write("long.yaml", long(10 << 20))?;
    let output = check(&file)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // More rules than there is room for by default, which is said with its remedy.
    ensure!(output.status.success() || said.contains("--max-rules"), "{}: {said}", output.status);
    Ok(())
}

#[test]
fn a_daemon_whose_rule_file_turns_bad_keeps_its_rules() -> Result<()> {
    require_root();
    let bed = Testbed::create("badreload")?;
    let mut limiter = bed.limiter(DRAINING)?;
    let management = std::net::Ipv4Addr::from(MANAGEMENT).to_string();
    limiter.options(["--management", &management, "--watch", "off"]);
    limiter.start()?;
    drain(&bed)?;
    let export = limiter.ok(["export"])?;
    let rules = limiter.rules().to_owned();
    for (what, file) in bad(&bed.dir)? {
        fs::remove_file(&rules)?;
        symlink(&file, &rules)?;
        ensure_clear_output(&limiter.cli(["reload"])?, what)?;
        ensure!(limiter.ok(["export"])? == export, "{what}: other rules");
        if !file.is_dir() {
            ensure_clear_output(
                &limiter
                    .cli(["apply", "--force"].map(Path::new).iter().chain([&file.as_path()]))?,
                what,
            )?;
        }
    }
    ensure_in_force(&bed, 0, "after all of them")?;
    ensure!(!limiter.said().contains("panicked"), "{}", limiter.said());
    fs::remove_file(&rules)?;
    fs::write(&rules, DRAINING)?;
    limiter.ok(["reload"])?;
    ensure_in_force(&bed, 0, "with a good one again")?;
    limiter.close()?;
    bed.close()
}
