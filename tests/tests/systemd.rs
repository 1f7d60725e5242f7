//! The unit in dist/systemd: what systemd's own tools say of it, and the daemon run as it would run
//! it. No systemd starts it here; what that does before it executes the daemon is done by hand,
//! from what the unit says. `dist/systemd/try-unit` has a real one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::command;
use limiter_tests::limiter::{self, Limiter};
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;
use limiter_tests::work_dir::WorkDir;
use rustix::process::Signal;

const DIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/systemd");

/// In the place of the user `limiter`.
const NOBODY: u32 = 65534;

/// An exposure of 2.0 of 10.
const THRESHOLD: &str = "--threshold=20";

const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 20, burst: 5}}\n";

const MESSAGE_WITHIN: Duration = Duration::from_secs(30);

struct Unit(String);

impl Unit {
    fn read() -> Result<Self> {
        let path = format!("{DIST}/limiter.service");
        Ok(Self(fs::read_to_string(&path).with_context(|| path)?))
    }

    /// Values behind every `KEY=`.
    fn all(&self, key: &str) -> Vec<&str> {
        let lines = self.0.lines();
        lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
    }

    fn one(&self, key: &str) -> Result<&str> {
        let all = self.all(key);
        ensure!(all.len() == 1, "{key}= stands {} times in the unit", all.len());
        Ok(all[0])
    }

    /// `CAP_BPF CAP_NET_ADMIN` as `setpriv` has it.
    fn capabilities(&self, key: &str) -> Result<String> {
        let names = self.one(key)?.split_whitespace();
        let names = names.map(|name| name.strip_prefix("CAP_").context("not a capability"));
        let names = names.map(|name| Ok(format!(",+{}", name?.to_lowercase())));
        Ok(format!("-all{}", names.collect::<Result<String>>()?))
    }

    /// The names of the system calls that its filter lets through, by what this systemd knows.
    fn system_calls(&self) -> Result<BTreeSet<String>> {
        let sets = system_call_sets()?;
        let mut allowed = BTreeSet::new();
        for (index, line) in self.all("SystemCallFilter").into_iter().enumerate() {
            let (denies, line) = match line.strip_prefix('~') {
                Some(line) => (true, line),
                None => (false, line),
            };
            ensure!(index > 0 || !denies, "the filter does not begin with what it allows");
            for name in line.split_whitespace() {
                for call in expand(name, &sets)? {
                    if denies {
                        allowed.remove(&call);
                    } else {
                        allowed.insert(call);
                    }
                }
            }
        }
        Ok(allowed)
    }
}

/// `@file-system` and the like, with what is in them.
fn system_call_sets() -> Result<BTreeMap<String, Vec<String>>> {
    let text = command::run("systemd-analyze", ["syscall-filter", "--no-pager"])?;
    let mut sets: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        if line.starts_with('@') {
            current = Some(sets.entry(line.trim().to_owned()).or_default());
        } else if let (Some(set), false) = (&mut current, line.trim().is_empty()) {
            set.push(line.trim().to_owned());
        }
    }
    Ok(sets)
}

fn expand(name: &str, sets: &BTreeMap<String, Vec<String>>) -> Result<Vec<String>> {
    if !name.starts_with('@') {
        return Ok(vec![name.to_owned()]);
    }
    let names = sets.get(name).with_context(|| format!("systemd knows no {name}"))?;
    let calls = names.iter().map(|name| expand(name, sets)).collect::<Result<Vec<_>>>()?;
    Ok(calls.concat())
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn systemd_takes_the_unit_and_finds_it_hardened() -> Result<()> {
    let unit = Unit::read()?;
    let dir = WorkDir::create("unit")?;
    // The unit's own path need not be on this machine.
    let binary = limiter::binary()?;
    let text = unit.0.replace("/usr/bin/limiter", binary.to_str().context("path")?);
    let path = dir.write("limiter.service", text)?;
    let path = path.to_str().context("path")?;
    command::run("systemd-analyze", ["verify", "--man=no", path])?;
    command::run("systemd-analyze", ["security", "--offline=yes", THRESHOLD, path])?;
    // The threshold is one: without its hardening the unit is over it.
    let bare = unit.0.lines().filter(|line| !line.starts_with("SystemCallFilter="));
    let bare = bare.collect::<Vec<_>>().join("\n");
    let bare = dir.write("bare.service", bare)?;
    let bare = bare.to_str().context("path")?;
    let bare = command::run("systemd-analyze", ["security", "--offline=yes", THRESHOLD, bare]);
    ensure!(bare.is_err(), "the threshold is met without a filter of system calls");
    // That of requests, which no capability keeps from a tighter one.
    let serve = fs::read_to_string(format!("{DIST}/limiter-serve.service"))?;
    let text = serve.replace("/usr/bin/limiter", binary.to_str().context("path")?);
    let path = dir.write("limiter-serve.service", text)?;
    let path = path.to_str().context("path")?;
    command::run("systemd-analyze", ["verify", "--man=no", path])?;
    command::run("systemd-analyze", ["security", "--offline=yes", "--threshold=15", path])?;
    let socket = fs::read_to_string(format!("{DIST}/limiter-serve.socket"))?;
    let socket = dir.write("limiter-serve.socket", socket)?;
    let socket = socket.to_str().context("path")?;
    command::run("systemd-analyze", ["verify", "--man=no", socket])?;
    let users = format!("{DIST}/limiter.sysusers.conf");
    let made = command::run("systemd-sysusers", ["--dry-run", &users])?;
    // systemd-sysusers says so on standard error; an error in the file is an exit code.
    ensure!(!made.to_lowercase().contains("error"), "{made}");
    Ok(())
}

/// Socket of the manager, to which the daemon reports its state.
struct Manager(UnixDatagram);

impl Manager {
    fn listen(path: &Path) -> Result<Self> {
        let socket = UnixDatagram::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        socket.set_read_timeout(Some(MESSAGE_WITHIN))?;
        Ok(Self(socket))
    }

    fn next(&self) -> Result<String> {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).context("the daemon said nothing more")?;
        Ok(String::from_utf8(buffer[..length].to_vec())?)
    }

    /// The next message that is wanted. Signs of life come for ever.
    fn next_of(&self, is_wanted: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Instant::now() + MESSAGE_WITHIN;
        loop {
            let message = self.next()?;
            if is_wanted(&message) {
                return Ok(message);
            }
            ensure!(Instant::now() < deadline, "not what is waited for: {message}");
        }
    }

    /// The next message but signs of life and changes of the status.
    fn next_state(&self) -> Result<String> {
        self.next_of(|message| !message.starts_with("WATCHDOG=") && !message.starts_with("STATUS="))
    }

    fn expect(&self, begin: &str, part: &str) -> Result<()> {
        let message = self.next_state()?;
        ensure!(message.starts_with(begin) && message.contains(part), "not {begin}: {message}");
        Ok(())
    }

    fn expect_beat(&self) -> Result<()> {
        self.next_of(|message| message == "WATCHDOG=1").map(drop)
    }
}

/// Does what the unit's `ExecStartPre=` lines say, on the test's BPF file system and for its user.
fn prepare(unit: &Unit, bed: &Testbed, limiter: &Limiter) -> Result<()> {
    let nobody = NOBODY.to_string();
    // Lines that may fail are for a machine that starts: they wait for its interfaces.
    for line in unit.all("ExecStartPre").into_iter().filter(|line| !line.starts_with('-')) {
        let words = line.strip_prefix('+').context("not run as root")?.split_whitespace();
        let words = words
            .map(|word| match word {
                "/sys/fs/bpf" => bed.bpffs.path().to_str().context("path"),
                "/sys/fs/bpf/limiter" => limiter.pins().to_str().context("path"),
                "limiter" => Ok(nobody.as_str()),
                word => Ok(word),
            })
            .collect::<Result<Vec<_>>>()?;
        command::run(words[0], &words[1..])?;
    }
    Ok(())
}

/// A limiter that is started as the unit starts it, with what `between` is put before the binary.
fn as_the_unit(unit: &Unit, bed: &Testbed, between: &[&str]) -> Result<Limiter> {
    let binary = bed.dir.path().join("limiter");
    fs::copy(limiter::binary()?, &binary)?;
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))?;
    let rules = bed.dir.write("rules.yaml", RULES)?;
    // As RuntimeDirectory= and StateDirectory=; the BPF file system stays root's.
    for path in [bed.dir.path(), &rules] {
        chown(path, Some(NOBODY), Some(NOBODY))?;
    }
    let mut limiter = Limiter::new(binary, &rules, RECEIVER.interface, bed);
    ensure!(unit.one("NoNewPrivileges")? == "yes" && unit.one("Type")? == "notify");
    let user = NOBODY.to_string();
    let (ambient, bounding) =
        (unit.capabilities("AmbientCapabilities")?, unit.capabilities("CapabilityBoundingSet")?);
    let setpriv = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"];
    let sets = ["--no-new-privs", "--bounding-set", &bounding];
    let given = ["--inh-caps", &ambient, "--ambient-caps", &ambient];
    limiter.through([setpriv.as_slice(), &sets, &given, between].concat());
    prepare(unit, bed, &limiter)?;
    Ok(limiter)
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn the_service_manager_is_notified() -> Result<()> {
    require_root();
    let unit = Unit::read()?;
    let bed = Testbed::create("notify")?;
    let path = bed.dir.path().join("notify");
    let manager = Manager::listen(&path)?;
    let socket = format!("NOTIFY_SOCKET={}", path.display());
    let mut limiter = as_the_unit(&unit, &bed, &["env", &socket, "WATCHDOG_USEC=400000"])?;
    limiter.start()?;
    manager.expect("READY=1\n", "STATUS=recv0 native, 1 rule, generation 1")?;
    manager.expect_beat()?;
    manager.expect_beat()?;

    // By request, which is what ExecReload= is, and by signal.
    limiter.json(&["reload"])?;
    manager.expect("RELOADING=1\nMONOTONIC_USEC=", "")?;
    manager.expect("READY=1\n", "generation 2")?;
    limiter.signal(Signal::HUP)?;
    manager.expect("RELOADING=1\nMONOTONIC_USEC=", "")?;
    manager.expect("READY=1\n", "generation 3")?;
    // One that is refused is over, too. The daemon sees the file as well, at the same or another
    // time.
    fs::write(limiter.rules(), "descriptors: {}\n")?;
    ensure!(limiter.cli(["reload"])?.status.code() == Some(2));
    manager.expect("RELOADING=1\nMONOTONIC_USEC=", "")?;
    manager.expect("READY=1\n", "generation 3")?;
    manager.expect_beat()?;
    limiter.ok(["off"])?;
    manager.next_of(|message| message.contains("nothing is limited until"))?;

    limiter.terminate()?;
    let passing = ["WATCHDOG=", "STATUS=", "RELOADING=1", "READY=1"];
    let ending =
        manager.next_of(|message| !passing.iter().any(|begin| message.starts_with(begin)))?;
    ensure!(ending.starts_with("STOPPING=1\n"), "{ending}");
    fs::write(limiter.rules(), RULES)?;
    limiter.start()?;
    manager.expect("READY=1\n", "recv0 native")?;
    limiter.close()?;
    bed.close()
}

/// A plain user that may not make the directory of pins may not remove it either.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn a_detached_service_starts_again() -> Result<()> {
    require_root();
    let unit = Unit::read()?;
    let bed = Testbed::create("unitdetach")?;
    let mut limiter = as_the_unit(&unit, &bed, &[])?;
    for by_the_daemon in [true, false] {
        prepare(&unit, &bed, &limiter)?;
        limiter.start()?;
        if by_the_daemon {
            limiter.on_pins("detach")?;
            limiter.wait_until_ended()?;
            ensure!(fs::read_dir(limiter.pins())?.next().is_none(), "pins are left");
        } else {
            limiter.terminate()?;
            limiter.on_pins("detach")?;
            ensure!(!limiter.pins().exists(), "root left the directory of pins");
        }
        ensure!(limiter.xdp()?.is_null(), "detached, but a program is attached");
    }
    limiter.close()?;
    bed.close()
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn the_filter_lets_all_through_that_the_daemon_calls() -> Result<()> {
    require_root();
    let unit = Unit::read()?;
    let allowed = unit.system_calls()?;
    ensure!(allowed.contains("bpf") && !allowed.contains("reboot"), "{allowed:?}");
    let bed = Testbed::create("syscalls")?;
    let path = bed.dir.path().join("strace");
    let trace = path.to_str().context("path")?.to_owned();
    // -D: the daemon stays our child, and takes our signals.
    let mut limiter = as_the_unit(&unit, &bed, &["strace", "-D", "-f", "-o", &trace])?;
    limiter.start()?;
    let file = limiter.rules().to_str().context("path")?.to_owned();
    limiter.json(&["set", "192.0.2.7", "5/s"])?;
    limiter.json(&["deny", "198.51.100.0/24"])?;
    limiter.json(&["reload"])?;
    limiter.json(&["apply", &file])?;
    for command in ["status", "list", "stats", "lists", "bans", "off", "on"] {
        limiter.json(&[command])?;
    }
    fs::write(&file, format!("{RULES}# changed\n"))?;
    let deadline = Instant::now() + MESSAGE_WITHIN;
    while limiter.json(&["status"])?["applied"] == true {
        ensure!(Instant::now() < deadline, "the changed file was not seen");
        std::thread::sleep(Duration::from_millis(50));
    }
    limiter.terminate()?;
    let text = loop {
        let text = fs::read_to_string(&path)?;
        if text.contains("+++ exited with 0 +++") {
            break text;
        }
        ensure!(Instant::now() < deadline + MESSAGE_WITHIN, "strace did not end");
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut called = BTreeSet::new();
    for line in text.lines() {
        // `1234 openat(...`, or `1234 <... read resumed>` and signals, which have no name before a
        // bracket.
        let Some((_pid, call)) = line.split_once(' ') else { continue };
        if let Some((name, _)) = call.trim_start().split_once('(')
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        {
            called.insert(name.to_owned());
        }
    }
    ensure!(called.contains("bpf") && called.contains("accept4"), "not a trace: {called:?}");
    let refused: Vec<_> = called.difference(&allowed).collect();
    ensure!(refused.is_empty(), "the unit's filter would refuse {refused:?}");
    limiter.close()?;
    bed.close()
}

/// The kernel decides, not the one that the package was installed under.
#[test]
fn the_generator_gives_the_capability_that_the_kernel_asks_for() -> Result<()> {
    let generator = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/systemd/limiter-generator");
    let kernels = [
        ("6.1.0-28-amd64", true),
        ("6.8.0-51-generic", true),
        ("6.12.57+deb13-amd64", true),
        ("6.17", true),
        ("5.15.0", true),
        ("6.18.0", false),
        ("6.18-rc1", false),
        ("7.0.1", false),
        ("10.1", false),
    ];
    for (release, needed) in kernels {
        let directory = tempfile::tempdir()?;
        let mut command = Command::new("sh");
        command.arg(&generator).arg(directory.path()).env("LIMITER_KERNEL", release);
        ensure!(command.status()?.success(), "{release}");
        let made = directory.path().join("limiter.service.d/perfmon.conf");
        let given = fs::read_to_string(made).is_ok_and(|text| text.contains("CAP_PERFMON"));
        ensure!(given == needed, "{release}: {given}");
    }
    Ok(())
}
