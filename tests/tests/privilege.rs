//! With which privileges the daemon runs.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::generator::{Pattern, Stream};
use limiter_tests::limiter::{self, Limiter};
use limiter_tests::packet::Frame;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;

/// `nobody` on most systems; no file but those of the test is its own.
const NOBODY: u32 = 65534;

/// `CAP_NET_ADMIN` is 12, `CAP_BPF` 39 (include/uapi/linux/capability.h).
const TWO: u64 = 1 << 12 | 1 << 39;

const SOURCE: [u8; 4] = [203, 0, 113, 5];

/// Every part of the program is asked: the source table, and a table with two limits.
const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 20, burst: 5}}
  - key: remote_address
    descriptors:
      - {key: protocol, value: udp, rate_limit: {unit: hour, requests_per_unit: 1000}}\n";

/// Ten packets of one source: five are its burst.
fn check_limit(bed: &Testbed) -> Result<()> {
    let frames = vec![Frame::ipv4(SOURCE, RECEIVER.ipv4.octets()).build()];
    let pattern = Pattern::Burst { frames: 10, every: Duration::from_secs(10) };
    let (recordings, counts) =
        bed.measure(vec![Stream { frames, pattern }], Duration::from_millis(200))?;
    ensure!(recordings[0].times.len() == 10, "{} were sent", recordings[0].times.len());
    let passed = counts.of(IpAddr::from(SOURCE));
    ensure!(passed == 5, "{passed} of 10 passed a limit of five");
    Ok(())
}

/// The sets of capabilities of every thread, and its `no_new_privs`.
fn check_two_are_left(limiter: &Limiter) -> Result<()> {
    let pid = limiter.pid().context("the daemon is not running")?;
    let mut threads = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.map(str::trim).with_context(|| format!("no {name} in {status}"))
        };
        let set = |name: &str| Ok::<_, anyhow::Error>(u64::from_str_radix(field(name)?, 16)?);
        for name in ["CapPrm:", "CapEff:", "CapBnd:"] {
            ensure!(set(name)? == TWO, "{name} {:016x}", set(name)?);
        }
        for name in ["CapInh:", "CapAmb:"] {
            ensure!(set(name)? == 0, "{name} {:016x}", set(name)?);
        }
        ensure!(field("NoNewPrivs:")? == "1", "it may get new privileges");
        threads += 1;
    }
    ensure!(threads > 0, "no threads were seen");
    Ok(())
}

/// Gives a file, or a directory but not what is in it, to the plain user.
pub(crate) fn give(path: &Path) -> Result<()> {
    std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY))
        .with_context(|| format!("cannot give {} away", path.display()))
}

/// Words that start a program as the plain user with the two capabilities alone.
pub(crate) fn alone() -> [String; 13] {
    let (user, two) = (NOBODY.to_string(), "-all,+bpf,+net_admin");
    [
        "setpriv",
        "--reuid",
        &user,
        "--regid",
        &user,
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set",
        two,
        "--inh-caps",
        two,
        "--ambient-caps",
        two,
    ]
    .map(str::to_owned)
}

#[test]
fn a_plain_user_with_two_capabilities_loads_and_runs() -> Result<()> {
    require_root();
    ["hash", "lines"].into_iter().try_for_each(a_plain_user_loads_and_runs)
}

fn a_plain_user_loads_and_runs(source_store: &str) -> Result<()> {
    let bed = Testbed::create("plainuser")?;
    // The checkout may be where the user cannot go.
    let binary = bed.dir.path().join("limiter");
    fs::copy(limiter::binary()?, &binary)?;
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))?;
    let rules = bed.dir.write("rules.yaml", RULES)?;
    for path in [bed.dir.path(), bed.bpffs.path(), &rules] {
        give(path)?;
    }
    let mut limiter = Limiter::new(binary, &rules, RECEIVER.interface, &bed);
    limiter.through(alone());
    limiter.options(["--source-table", source_store]);
    limiter.start()?;
    let pid = limiter.pid().context("the daemon is not running")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let uids = format!("Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}");
    ensure!(status.contains(&uids), "it does not run as the plain user: {status}");
    check_two_are_left(&limiter)?;
    check_limit(&bed)?;
    let show = limiter.json(&["show", &IpAddr::from(SOURCE).to_string()])?;
    ensure!(show["passed"] == 5 && show["dropped"] == 5, "{source_store}: {show}");
    let sources = limiter.json(&["sources"])?.to_string();
    ensure!(sources.contains(&IpAddr::from(SOURCE).to_string()), "{source_store}: {sources}");
    limiter.json(&["reload"])?;
    // The pins are the daemon's own: another one is kept out, by the same lock.
    let mut other = Limiter::new(limiter.binary().to_owned(), &rules, RECEIVER.interface, &bed);
    other.through(alone()).keep_in(&bed.dir.path().join("other"));
    other.listen_at(&bed.dir.path().join("other.sock"));
    let said = String::from_utf8(other.run_to_end()?.stderr)?;
    ensure!(said.contains("uses this pin directory"), "{said}");
    other.pin_in(&bed.dir.path().join("none"));
    other.close()?;
    // The next start takes over: the rules and the buckets are found again.
    limiter.kill()?;
    let ready = limiter.start()?;
    ensure!(ready.contains("2 rules"), "{ready}");
    ensure!(limiter.json(&["status"])?["interfaces"][0]["adopted"] == true);
    check_two_are_left(&limiter)?;
    limiter.close()?;
    bed.close()
}

/// Against an attempt to use what the daemon may do.
#[test]
fn a_daemon_of_root_keeps_two_capabilities() -> Result<()> {
    require_root();
    let bed = Testbed::create("rootdaemon")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    check_two_are_left(&limiter)?;
    check_limit(&bed)?;
    // Tasks of the daemon without the rest: read its rule file, keep an edit, and take over after
    // it.
    limiter.json(&["set", "192.0.2.1", "5/s"])?;
    limiter.json(&["reload"])?;
    limiter.kill()?;
    limiter.start()?;
    check_two_are_left(&limiter)?;
    limiter.close()?;
    bed.close()
}
