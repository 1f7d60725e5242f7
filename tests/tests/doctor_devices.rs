//! `limiter doctor` on interfaces of each kind: the one to limit, and programs that are on it.

// Also on other kernels: 120 s each.

use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::doctor::{Report, follow, report, typed};
use limiter_tests::foreign::pin_pass_program;
use limiter_tests::frames::v4;
use limiter_tests::limiter::Limiter;
use limiter_tests::packet_socket::PacketSocket;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;
use serde_json::Value;

const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, burst: 8}}\n";

/// True if an interface was made; false where the kernel has no such kind, which is said.
fn made(output: &Output) -> Result<bool> {
    if output.status.success() {
        return Ok(true);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains("Unknown device type"), "{said}");
    eprintln!("not tried: {}", said.trim());
    Ok(false)
}

/// It changes nothing, and needs no daemon.
#[test]
fn a_fit_interface_has_no_problem_and_is_left_as_it_was() -> Result<()> {
    require_root();
    let bed = Testbed::create("docfit")?;
    let mut limiter = bed.limiter(RULES)?;
    let before = bed.receiver.ip(["-d", "link"])?;
    let fit = report(&limiter, RECEIVER.interface)?;
    ensure!(fit.code == Some(0), "{}", fit.json);
    for check in ["kernel", "capabilities", "bpffs", "pins", "other-xdp", "device", "mtu"] {
        ensure!(fit.level(check, &[])? == "ok", "{}", fit.json);
    }
    // The kernel says it or does not; it never denies it.
    ensure!(["ok", "unknown"].contains(&fit.level("native-mode", &[])?), "{}", fit.json);
    ensure!(fit.level("daemon", &["no daemon answers"])? == "note", "{}", fit.json);
    ensure!(!limiter.pins().exists(), "doctor made {}", limiter.pins().display());
    ensure!(bed.receiver.ip(["-d", "link"])? == before, "doctor changed an interface");
    limiter.start()?;
    let after = report(&limiter, RECEIVER.interface)?;
    for check in ["native-mode", "other-xdp", "pins", "daemon", "table-fill"] {
        ensure!(after.level(check, &[])? == "ok", "{}", after.json);
    }
    let text = limiter.ok(["doctor", "--iface", RECEIVER.interface])?;
    ensure!(text.contains("more checks: --verbose") && !text.contains("problem"), "{text}");
    limiter.close()?;
    bed.close()
}

/// A start that fails names the command.
#[test]
fn a_foreign_program_is_found_and_limits_go_beside_it_as_proposed() -> Result<()> {
    require_root();
    let bed = Testbed::create("docforeign")?;
    let pin = bed.bpffs.path().join("foreign");
    pin_pass_program(&pin)?;
    let path = pin.to_str().context("the path is not UTF-8")?;
    bed.receiver.ip(["link", "set", "dev", RECEIVER.interface, "xdp", "pinned", path])?;
    let mut limiter = bed.limiter(RULES)?;
    let found = report(&limiter, RECEIVER.interface)?;
    let level = found.level("other-xdp", &["foreign", "not ours", "remove it first"])?;
    ensure!(level == "problem" && found.code == Some(1), "{}", found.json);
    // The start that fails names the command, which finds the same.
    let failed = limiter.run_to_end()?;
    let said = String::from_utf8(failed.stderr)?;
    let (_, more) = said.split_once("; more: `").with_context(|| said.clone())?;
    let (more, _) = more.split_once('`').with_context(|| said.clone())?;
    let again = Report::of(&typed(&bed.receiver, &format!("{more} --json"))?)?;
    ensure!(again.level("other-xdp", &[])? == "problem", "`{more}`: {}", again.json);
    // The command ends nothing that others run.
    ensure!(found.command("other-xdp")?.contains(" --hook tc "), "{}", found.json);
    limiter.options(["--hook", "tc"]);
    limiter.start()?;
    let beside = report(&limiter, RECEIVER.interface)?;
    ensure!(beside.level("other-xdp", &["foreign"])? == "note", "{}", beside.json);
    limiter.close()?;
    bed.close()
}

#[test]
fn an_interface_without_native_mode_is_found_and_limited_as_proposed() -> Result<()> {
    require_root();
    let bed = Testbed::create("docgeneric")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.on("lo");
    let found = report(&limiter, "lo")?;
    // Linux before 6.3 does not say it.
    let level = found.level("native-mode", &["--mode auto"])?;
    ensure!(["problem", "unknown"].contains(&level), "{}", found.json);
    limiter.options(["--mode", "auto"]).start()?;
    ensure!(report(&limiter, "lo")?.level("native-mode", &["generic mode"])? == "note");
    limiter.close()?;
    let none = bed.limiter(RULES)?;
    let missing = report(&none, "nosuch0")?;
    ensure!(missing.level("interface", &["nosuch0", "ip link"])? == "problem", "{}", missing.json);
    none.close()?;
    bed.close()
}

#[test]
fn a_bridge_names_its_ports_and_a_port_is_limited() -> Result<()> {
    require_root();
    let bed = Testbed::create("docbridge")?;
    let netns = &bed.receiver;
    for line in [
        "ip link add name br0 type bridge",
        "ip link add name port0 type veth peer name far0",
        "ip link set port0 master br0",
        "ip link set br0 up",
        "ip link set port0 up",
        "ip link set far0 up",
    ] {
        follow(netns, line)?;
    }
    let mut limiter = bed.limiter(RULES)?;
    let found = report(&limiter, "br0")?;
    ensure!(found.level("device", &["br0 is a bridge"])? == "warning", "{}", found.json);
    let command = found.command("device")?;
    ensure!(command == "limiter run --iface port0 --rules FILE", "{command}");
    limiter.on("port0").start()?;
    let port = report(&limiter, "port0")?;
    ensure!(port.level("device", &["the bridge br0"])? == "ok", "{}", port.json);
    ensure!(port.level("other-xdp", &["limits of these pins"])? == "ok", "{}", port.json);
    limiter.close()?;
    bed.close()
}

/// A member of a bond, where the kernel has bonds.
#[test]
fn a_member_names_its_bond_and_that_is_limited() -> Result<()> {
    require_root();
    let bed = Testbed::create("docbond")?;
    let netns = &bed.receiver;
    if !made(&typed(netns, "ip link add name bond0 type bond mode active-backup")?)? {
        return bed.close();
    }
    for line in [
        "ip link add name member0 type veth peer name far0",
        "ip link set member0 master bond0",
        "ip link set bond0 up",
        "ip link set member0 up",
        "ip link set far0 up",
    ] {
        follow(netns, line)?;
    }
    let mut limiter = bed.limiter(RULES)?;
    let found = report(&limiter, "member0")?;
    ensure!(found.level("device", &["a member of bond0"])? == "warning", "{}", found.json);
    ensure!(found.command("device")? == "limiter run --iface bond0 --rules FILE");
    limiter.on("bond0").start()?;
    ensure!(report(&limiter, "bond0")?.level("device", &[])? == "ok");
    limiter.close()?;
    bed.close()
}

/// In native mode the members of a bond run the program. A rule that names the bond meets what
/// comes by them, and the bond's counters have it, where the kernel has bonds.
#[test]
fn a_rule_that_names_a_bond_meets_what_comes_by_its_members() -> Result<()> {
    require_root();
    let bed = Testbed::create("bondrule")?;
    let netns = &bed.receiver;
    if !made(&typed(netns, "ip link add name bond0 type bond mode active-backup miimon 100")?)? {
        return bed.close();
    }
    let mut limiter = bed.limiter(
        "domain: test\ndescriptors:
  - {key: interface, value: bond0, rate_limit: {unit: hour, requests_per_unit: 3, burst: 3}}\n",
    )?;
    // The second member joins a bond that is limited.
    for number in 0..2 {
        follow(netns, &format!("ip link add name member{number} type veth peer name far{number}"))?;
    }
    follow(netns, "ip link set member0 master bond0")?;
    follow(netns, "ip address add 203.0.113.1/24 dev bond0")?;
    limiter.on("bond0").start()?;
    follow(netns, "ip link set member1 master bond0")?;
    for name in ["bond0", "member0", "member1", "far0", "far1"] {
        follow(netns, &format!("ip link set {name} up"))?;
    }
    let sent = || -> Result<()> {
        for name in ["far0", "far1"] {
            let socket = PacketSocket::sender(name)?;
            for _ in 0..3 {
                socket.send(&v4().build())?;
            }
        }
        Ok(())
    };
    let counted = |limiter: &Limiter| -> Result<[u64; 3]> {
        let stats = limiter.json(&["stats"])?;
        let at = stats["interfaces"].as_array().context("no interfaces")?;
        let at = at.iter().find(|at| at["interface"] == "bond0").context("no bond0")?;
        let [rule, bond] = [&stats["rules"][0], at];
        let number = |of: &Value| of["dropped"]["packets"].as_u64().context("no number");
        Ok([rule["passed"]["packets"].as_u64().context("no number")?, number(rule)?, number(bond)?])
    };
    // The program is told of a new member within a second or so.
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut before = 0;
    loop {
        netns.enter(sent)??;
        let [passed, dropped, by_bond] = counted(&limiter)?;
        ensure!(passed <= 3 && dropped <= by_bond, "{passed} passed, {dropped} of {by_bond}");
        if passed == 3 && dropped == by_bond && dropped - before == 6 {
            break;
        }
        ensure!(Instant::now() < deadline, "{passed} passed, {dropped} of {by_bond} dropped");
        before = dropped;
        thread::sleep(Duration::from_millis(100));
    }
    limiter.close()?;
    bed.close()
}

/// A VLAN device, where the kernel has them.
#[test]
fn a_vlan_names_the_interface_below_and_that_is_limited() -> Result<()> {
    require_root();
    let bed = Testbed::create("docvlan")?;
    let netns = &bed.receiver;
    let line = format!("ip link add link {} name vlan5 type vlan id 5", RECEIVER.interface);
    if !made(&typed(netns, &line)?)? {
        return bed.close();
    }
    follow(netns, "ip link set vlan5 up")?;
    let mut limiter = bed.limiter(RULES)?;
    let found = report(&limiter, "vlan5")?;
    ensure!(found.level("device", &["a VLAN of another"])? == "warning", "{}", found.json);
    let wanted = format!("limiter run --iface {} --rules FILE", RECEIVER.interface);
    ensure!(found.command("device")? == wanted, "{}", found.json);
    limiter.start()?;
    ensure!(report(&limiter, RECEIVER.interface)?.level("device", &[])? == "ok");
    limiter.close()?;
    bed.close()
}
