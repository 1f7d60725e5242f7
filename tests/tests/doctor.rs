//! `limiter doctor` on machines with something wrong, made in network namespaces: the finding, the
//! command that it names, and that nothing is left of it then.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::doctor::{Report, follow, report};
use limiter_tests::foreign::pin_pass_program;
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;
use serde_json::Value;

const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, burst: 8}}\n";

#[test]
fn another_limiter_and_the_bypass_are_found_and_gone_by_their_commands() -> Result<()> {
    require_root();
    let bed = Testbed::create("docother")?;
    let mut first = bed.limiter(RULES)?;
    first.start()?;
    let mut second = bed.limiter(RULES)?;
    second.apart("second");
    first.on_pins("off")?;
    let off = report(&first, RECEIVER.interface)?;
    ensure!(off.level("pins", &["lets every packet pass"])? == "problem", "{}", off.json);
    follow(&bed.receiver, off.command("pins")?)?;
    ensure!(report(&first, RECEIVER.interface)?.level("pins", &[])? == "ok");
    let pins = first.pins().display().to_string();
    let found = report(&second, RECEIVER.interface)?;
    ensure!(found.level("other-xdp", &[&pins])? == "problem", "{}", found.json);
    follow(&bed.receiver, found.command("other-xdp")?)?;
    first.wait_until_detached()?;
    ensure!(report(&second, RECEIVER.interface)?.level("other-xdp", &[])? == "ok");
    second.start()?;
    second.close()?;
    first.close()?;
    bed.close()
}

#[test]
fn hidden_tags_and_idle_queues_are_found_and_gone_by_their_commands() -> Result<()> {
    require_root();
    let bed = Testbed::create("docframes")?;
    let netns = &bed.receiver;
    follow(netns, "ip link add name near0 type veth peer name far0")?;
    let limiter = bed.limiter(RULES)?;
    for by in ["near0 takes VLAN tags off", "far0, keeps VLAN tags"] {
        let found = report(&limiter, "near0")?;
        ensure!(found.level("vlan-tags", &[by])? == "note", "{}", found.json);
        follow(netns, found.command("vlan-tags")?)?;
    }
    let seen = report(&limiter, "near0")?;
    ensure!(seen.level("vlan-tags", &[])? == "ok", "{}", seen.json);
    // One queue on one CPU is all that there can be.
    if seen.level("queues", &[])? != "ok" {
        follow(netns, seen.command("queues")?)?;
        let more = report(&limiter, "near0")?;
        ensure!(more.level("queues", &[])? == "ok", "{}", more.json);
    }
    // Of a machine with two CPUs a pair has two queues, and uses one.
    let cpus = std::thread::available_parallelism()?.get();
    ensure!(cpus == 1 || seen.level("queues", &[])? == "note", "{}", seen.json);
    limiter.close()?;
    bed.close()
}

#[test]
fn a_large_mtu_is_found_and_gone_by_its_command() -> Result<()> {
    require_root();
    let bed = Testbed::create("docmtu")?;
    bed.receiver.ip(["tuntap", "add", "dev", "tap0", "mode", "tap"])?;
    bed.receiver.ip(["link", "set", "tap0", "mtu", "9000"])?;
    let limiter = bed.limiter(RULES)?;
    let found = report(&limiter, "tap0")?;
    ensure!(found.level("mtu", &["9000"])? == "warning", "{}", found.json);
    follow(&bed.receiver, found.command("mtu")?)?;
    ensure!(report(&limiter, "tap0")?.level("mtu", &["1500"])? == "ok");
    limiter.close()?;
    bed.close()
}

#[test]
fn filters_of_tc_are_named() -> Result<()> {
    require_root();
    let bed = Testbed::create("doctc")?;
    let limiter = bed.limiter(RULES)?;
    ensure!(report(&limiter, RECEIVER.interface)?.level("tc", &[])? == "ok");
    let dev = format!("dev {}", RECEIVER.interface);
    follow(&bed.receiver, &format!("tc qdisc add {dev} clsact"))?;
    let filter = format!("filter add {dev} ingress bpf bytecode");
    let pass = ["1,6 0 0 4294967295", "classid", "1:1"];
    bed.receiver.run("tc", filter.split(' ').chain(pass))?;
    ensure!(report(&limiter, RECEIVER.interface)?.level("tc", &["(bpf)"])? == "note");
    limiter.close()?;
    bed.close()
}

#[test]
fn a_session_that_rules_may_cut_is_found_and_allowed_as_proposed() -> Result<()> {
    require_root();
    let bed = Testbed::create("docssh")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let asked = |limiter: &Limiter| {
        let mut command = Command::new(limiter.binary());
        command.arg("--socket").arg(limiter.socket()).args(["doctor", "--json"]);
        command.env("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.254 22");
        Report::of(&bed.receiver.output(&mut command)?)
    };
    let found = asked(&limiter)?;
    ensure!(found.level("ssh", &["192.0.2.1"])? == "warning", "{}", found.json);
    ensure!(found.level("ssh-path", &[RECEIVER.interface])? == "ok", "{}", found.json);
    follow(&bed.receiver, found.command("ssh")?)?;
    ensure!(asked(&limiter)?.level("ssh", &["never limited"])? == "ok");
    limiter.close()?;
    bed.close()
}

#[test]
fn a_missing_bpf_file_system_is_found_and_gone_by_its_command() -> Result<()> {
    require_root();
    let bed = Testbed::create("docbpffs")?;
    let limiter = bed.limiter(RULES)?;
    // Mounts of its own: those of the machine stay.
    let line = format!(
        "umount /sys/fs/bpf; {} doctor --json; mount -t bpf bpf /sys/fs/bpf; {} doctor --json",
        limiter.binary().display(),
        limiter.binary().display(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &line]);
    let output = bed.receiver.output(&mut command)?;
    let text = String::from_utf8(output.stdout)?;
    let reports: Vec<Value> =
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>().context(text.clone())?;
    let [missing, mounted] = reports.as_slice() else { anyhow::bail!("{text}") };
    let [missing, mounted] =
        [missing, mounted].map(|json| Report { json: json.clone(), code: None });
    ensure!(missing.level("bpffs", &["no BPF file system"])? == "note", "{}", missing.json);
    ensure!(missing.command("bpffs")? == "mount -t bpf bpf /sys/fs/bpf");
    ensure!(mounted.level("bpffs", &[])? == "ok", "{}", mounted.json);
    let place = bed.dir.path().join("pins").display().to_string();
    let output = limiter.cli(["doctor", "--json", "--pin-dir", &place])?;
    let elsewhere = Report::of(&output)?;
    ensure!(elsewhere.level("bpffs", &[&place])? == "problem", "{}", elsewhere.json);
    limiter.close()?;
    bed.close()
}

/// Where its pins are not seen, the daemon's own program is no stranger to the doctor that asks it.
#[test]
fn the_daemon_s_program_is_known_from_another_mount_namespace() -> Result<()> {
    require_root();
    let bed = Testbed::create("docmount")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let line = format!(
        "umount /sys/fs/bpf; {} --socket {} doctor --json --iface {}",
        limiter.binary().display(),
        limiter.socket().display(),
        RECEIVER.interface,
    );
    let mut command = Command::new("unshare");
    let found = Report::of(&bed.receiver.output(command.args(["--mount", "sh", "-c", &line]))?)?;
    ensure!(found.level("other-xdp", &[])? == "ok", "{}", found.json);
    limiter.close()?;
    bed.close()
}

#[test]
fn a_plain_user_learns_what_was_not_seen() -> Result<()> {
    require_root();
    let bed = Testbed::create("docplain")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    // The checkout may be where the user cannot go.
    let binary = bed.dir.path().join("limiter");
    fs::copy(limiter.binary(), &binary)?;
    for path in [bed.dir.path(), binary.as_path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(&binary).args(["doctor", "--json", "--iface", RECEIVER.interface]);
    command.arg("--pin-dir").arg(limiter.pins()).arg("--socket").arg(limiter.socket());
    let plain = Report::of(&bed.receiver.output(&mut command)?)?;
    let level = plain.level("capabilities", &["CAP_BPF and CAP_NET_ADMIN"])?;
    ensure!(level == "problem" && plain.code == Some(1), "{}", plain.json);
    for check in ["kernel", "bpffs", "pins", "other-xdp", "tc"] {
        ensure!(plain.level(check, &[])? == "unknown", "{check}: {}", plain.json);
    }
    for check in ["kernel", "pins", "other-xdp", "tc"] {
        plain.level(check, &["needs CAP_BPF"])?;
    }
    ensure!(plain.level("daemon", &["no permission"])? == "unknown", "{}", plain.json);
    ensure!(plain.level("device", &[])? == "ok", "{}", plain.json);
    limiter.close()?;
    bed.close()
}

#[test]
fn every_check_is_in_the_report_once() -> Result<()> {
    require_root();
    let bed = Testbed::create("docall")?;
    let limiter = bed.limiter(RULES)?;
    let all = report(&limiter, RECEIVER.interface)?;
    for check in [
        "capabilities",
        "kernel",
        "memlock",
        "bpffs",
        "pins",
        "docker",
        "other-xdp",
        "native-mode",
        "mtu",
        "device",
        "vlan-tags",
        "joined-frames",
        "queues",
        "tc",
        "tc-before",
        "other-limiter",
        "waiting",
        "conntrack",
        "clock",
        "ssh",
        "daemon",
    ] {
        all.finding(check)?;
    }
    limiter.close()?;
    bed.close()
}

/// Where limiter is at tc, a program of somebody else at XDP is no problem, with a daemon and
/// without one, and the doctor names nothing that ends it.
#[test]
fn a_program_at_xdp_is_no_problem_of_limits_at_tc() -> Result<()> {
    require_root();
    let bed = Testbed::create("docxdptc")?;
    let path = bed.bpffs.path().join("foreign");
    pin_pass_program(&path)?;
    let path = path.to_str().context("a path of another encoding")?;
    bed.receiver.ip(["link", "set", "dev", RECEIVER.interface, "xdp", "pinned", path])?;
    let mut limiter = bed.limiter(RULES)?;
    let found = report(&limiter, RECEIVER.interface)?;
    ensure!(found.level("other-xdp", &["which ends what the program does"])? == "problem");
    ensure!(found.command("other-xdp")?.contains("--hook tc"), "{}", found.json);
    for options in [&["--hook", "tc"][..], &["--direction", "out"]] {
        limiter.without_options().options(options.iter().copied());
        limiter.start()?;
        for with_daemon in [true, false] {
            let found = report(&limiter, RECEIVER.interface)?;
            ensure!(found.level("other-xdp", &["foreign"])? == "note", "{}", found.json);
            ensure!(found.command("other-xdp").is_err(), "{}", found.json);
            ensure!(found.level("native-mode", &["at tc"])? == "ok", "{}", found.json);
            if with_daemon {
                limiter.terminate()?;
            }
        }
        limiter.on_pins("detach")?;
    }
    limiter.close()?;
    bed.close()
}
