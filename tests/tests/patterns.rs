//! Interfaces by patterns of names, as those of containers and guests: they are limited as they
//! appear, and let go as they leave.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::cables::{SEEN_WITHIN, passed_of, send_ten};
use limiter_tests::foreign::pin_pass_program;
use limiter_tests::limiter::Limiter;
use limiter_tests::netns::Netns;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{self, RECEIVER, SENDER};
use serde_json::Value;

use crate::privilege::{alone, give};
use crate::succession::age;
use crate::totals::request;

const SOURCE: [u8; 4] = [203, 0, 113, 77];

/// Five packets, then one in three minutes.
const DRAINING: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 20, burst: 5}}\n";

/// A pattern for the interfaces of these tests.
const PATTERN: &str = "cont*";

fn interfaces(limiter: &Limiter) -> Result<Vec<Value>> {
    let status = limiter.json(&["status"])?;
    Ok(status["interfaces"].as_array().context("no interfaces")?.clone())
}

/// Names of the interfaces that the daemon says are attached.
fn attached(limiter: &Limiter) -> Result<BTreeSet<String>> {
    let all = interfaces(limiter)?;
    let names = all.iter().filter(|at| at["attached"] == true).map(|at| &at["name"]);
    Ok(names.filter_map(|name| Some(name.as_str()?.to_owned())).collect())
}

/// Waits until exactly these interfaces are attached, and each is pinned at each hook.
fn wait_for(limiter: &Limiter, names: &[&str]) -> Result<()> {
    let wanted: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let found = attached(limiter)?;
        if found == wanted {
            break;
        }
        ensure!(Instant::now() < deadline, "{found:?}, not {wanted:?}: {}", limiter.said());
        thread::sleep(Duration::from_millis(10));
    }
    for hook in ["links", "links-in", "links-out"] {
        let pins = pins(limiter, hook)?;
        ensure!(pins.is_empty() || pins == wanted, "{hook}: {pins:?}, not {wanted:?}");
    }
    Ok(())
}

/// Names of the pinned links of a hook.
fn pins(limiter: &Limiter, hook: &str) -> Result<BTreeSet<String>> {
    fs::read_dir(limiter.pins().join(hook))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// A container's cable: `near` on the side with limits, `far` on the other.
fn lay(bed: &Testbed, near: &str, far: &str) -> Result<()> {
    veth::lay((&bed.sender, far), (&bed.receiver, near))
}

/// Runs many commands of `ip`, one a line, in the namespace with limits.
fn batch(bed: &Testbed, lines: &str) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(["-force", "-batch", "-"]).stdin(Stdio::piped());
    let mut child = bed.receiver.spawn(&mut command)?;
    child.stdin.take().context("no standard input")?.write_all(lines.as_bytes())?;
    ensure!(child.wait()?.success(), "a line of `ip -batch` failed");
    Ok(())
}

/// Waits until no program is on an interface: the kernel ends a link a moment after its last pin.
fn wait_until_free(netns: &Netns, interface: &str) -> Result<()> {
    let deadline = Instant::now() + SEEN_WITHIN;
    while has_program(netns, interface)? {
        ensure!(Instant::now() < deadline, "{interface} is still limited");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn has_program(netns: &Netns, interface: &str) -> Result<bool> {
    Ok(!netns.link(interface)?["xdp"].is_null())
}

#[test]
fn interfaces_that_match_are_limited_as_they_come_and_go() -> Result<()> {
    require_root();
    let bed = Testbed::create("patterns")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.on(PATTERN);
    let ready = limiter.start()?;
    ensure!(ready.contains("ready: no interface cont* yet, 1 rule"), "{ready}");
    let status = limiter.ok(["status"])?;
    ensure!(status.contains("cont*: no interface is here that matches"), "{status}");
    lay(&bed, "cont0", "send1")?;
    wait_for(&limiter, &["cont0"])?;
    send_ten(&bed, "send1", SOURCE)?;
    ensure!(passed_of(&limiter, SOURCE, 10)? == 5);
    // All share the buckets, and what does not match is left alone.
    lay(&bed, "cont1", "send2")?;
    wait_for(&limiter, &["cont0", "cont1"])?;
    send_ten(&bed, "send2", SOURCE)?;
    ensure!(passed_of(&limiter, SOURCE, 20)? == 5, "another interface has a bucket of its own");
    ensure!(!has_program(&bed.receiver, RECEIVER.interface)?, "recv0 does not match");
    let status = limiter.ok(["status"])?;
    ensure!(status.contains("cont*: 2 interfaces"), "{status}");
    let counters = limiter.ok(["stats"])?;
    ensure!(counters.contains("cont0") && counters.contains("cont1"), "{counters}");
    bed.receiver.ip(["link", "delete", "cont0"])?;
    wait_for(&limiter, &["cont1"])?;
    // One with the name of another one is a new one.
    lay(&bed, "cont0", "send1")?;
    wait_for(&limiter, &["cont0", "cont1"])?;
    send_ten(&bed, "send1", SOURCE)?;
    ensure!(passed_of(&limiter, SOURCE, 30)? == 5);
    // A start adopts what is there, limits what came while there was no daemon, and forgets what
    // went.
    limiter.kill()?;
    bed.receiver.ip(["link", "delete", "cont1"])?;
    lay(&bed, "cont2", "send3")?;
    ensure!(limiter.on_pins("stats")?.contains("cont0"));
    let ready = limiter.start()?;
    ensure!(ready.contains("ready: cont0 native, cont2 native, 1 rule"), "{ready}");
    wait_for(&limiter, &["cont0", "cont2"])?;
    let adopted: Vec<_> = interfaces(&limiter)?.iter().map(|at| at["adopted"].clone()).collect();
    ensure!(adopted == [true, false], "{adopted:?}");
    send_ten(&bed, "send1", SOURCE)?;
    ensure!(passed_of(&limiter, SOURCE, 40)? == 5, "a restart forgot the bucket");
    let detached = limiter.ok(["detach"])?;
    ensure!(detached.contains("detached from cont0, cont2"), "{detached}");
    wait_until_free(&bed.receiver, "cont2")?;
    limiter.wait_until_ended()?;
    limiter.close()?;
    bed.close()
}

/// Whatever makes a container makes both ends of the pair on the host, and moves one of them.
#[test]
fn what_moves_into_a_container_is_let_go() -> Result<()> {
    require_root();
    for options in [["--hook", "xdp", "--direction", "in"], ["--hook", "tc", "--direction", "both"]]
    {
        let bed = Testbed::create("patmove")?;
        let container = Netns::create("patcont")?;
        let mut limiter = bed.limiter(DRAINING)?;
        limiter.on(PATTERN).options(options);
        limiter.start()?;
        batch(&bed, "link add cont0 type veth peer name cont1\n")?;
        wait_for(&limiter, &["cont0", "cont1"])?;
        bed.receiver.ip(["link", "set", "cont1", "netns", container.name()])?;
        wait_for(&limiter, &["cont0"])?;
        limiter.wait_until_logged("cont1 is not here any more by a name that matches")?;
        wait_until_free(&container, "cont1")?;
        // Nor is one that gets a name that does not match, until it gets one that does.
        bed.receiver.ip(["link", "set", "cont0", "name", "other0"])?;
        wait_for(&limiter, &[])?;
        wait_until_free(&bed.receiver, "other0")?;
        bed.receiver.ip(["link", "set", "other0", "name", "cont7"])?;
        wait_for(&limiter, &["cont7"])?;
        bed.receiver.ip(["link", "set", "cont7", "name", "cont8"])?;
        wait_for(&limiter, &["cont8"])?;
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}

/// The loopback has what a machine sends to itself: nobody means it by a pattern.
#[test]
fn a_pattern_never_means_the_loopback() -> Result<()> {
    require_root();
    let bed = Testbed::create("patlo")?;
    let mut limiter = bed.limiter(DRAINING)?;
    // Names and patterns together, and a name that a pattern matches.
    limiter.on("*").options(["--iface", "l?", "--iface", RECEIVER.interface, "--mode", "auto"]);
    limiter.start()?;
    wait_for(&limiter, &[RECEIVER.interface])?;
    ensure!(!has_program(&bed.receiver, "lo")?);
    // Nor is it one that is to be limited, and cannot be.
    ensure!(interfaces(&limiter)?.len() == 1, "{:?}", interfaces(&limiter)?);
    // What is asked for by name is limited again when it is back, and still there until then.
    bed.receiver.ip(["link", "delete", RECEIVER.interface])?;
    limiter.wait_until_logged("recv0 is gone: it is limited again when it is back")?;
    ensure!(interfaces(&limiter)?[0]["state"] == "gone");
    lay(&bed, RECEIVER.interface, SENDER.interface)?;
    limiter.wait_until_logged("recv0 is back, and limited")?;
    limiter.close()?;
    let mut twice = bed.limiter(DRAINING)?;
    twice.on("*").options(["--iface", "*"]);
    let said = String::from_utf8(twice.run_to_end()?.stderr)?;
    ensure!(said.contains("--iface * is given twice"), "{said}");
    twice.close()?;
    bed.close()
}

/// One that cannot be limited is said by everything that says what is, and keeps no other.
#[test]
fn an_interface_that_cannot_be_limited_keeps_no_other() -> Result<()> {
    require_root();
    let bed = Testbed::create("patrefuse")?;
    let foreign = bed.bpffs.path().join("foreign");
    pin_pass_program(&foreign)?;
    let take = |name: &str| {
        let place = foreign.display().to_string();
        bed.receiver.ip(["link", "set", name, "xdp", "pinned", &place]).map(drop)
    };
    lay(&bed, "cont0", "send1")?;
    lay(&bed, "cont1", "send2")?;
    take("cont0")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.on(PATTERN);
    let ready = limiter.start()?;
    ensure!(ready.contains("ready: cont1 native, 1 not attached, 1 rule"), "{ready}");
    wait_for(&limiter, &["cont1"])?;
    let said = limiter.wait_until_logged("cont0 is not limited at XDP: ")?;
    ensure!(said.matches("cont0 is not limited").count() == 1, "{said}");
    let refused = |name: &str| -> Result<Option<String>> {
        let all = interfaces(&limiter)?;
        let found = all.iter().find(|at| at["name"] == name && at["state"] == "refused");
        Ok(found.and_then(|at| Some(at["error"].as_str()?.to_owned())))
    };
    let error = refused("cont0")?.context("`status` does not have it")?;
    ensure!(error.contains("cont0") && error.contains("foreign"), "{error}");
    let status = limiter.ok(["status"])?;
    ensure!(status.contains("cont0 native, not attached: packets pass ("), "{status}");
    let metrics = request(&limiter, "/metrics")?;
    for line in [
        "limiter_interface_attached{interface=\"cont0\",direction=\"in\"} 0",
        "limiter_interface_attached{interface=\"cont1\",direction=\"in\"} 1",
    ] {
        ensure!(metrics.contains(line), "no {line} in {metrics}");
    }
    let doctor = limiter.cli(["doctor", "--iface", PATTERN])?;
    let report = String::from_utf8(doctor.stdout)?;
    ensure!(doctor.status.code() == Some(1), "{report}");
    ensure!(report.contains("problem  attached cont0: the program is not on it"), "{report}");
    // The cause is gone, and nobody has to say so.
    bed.receiver.ip(["link", "set", "cont0", "xdp", "off"])?;
    wait_for(&limiter, &["cont0", "cont1"])?;
    ensure!(refused("cont0")?.is_none());
    // One that comes with the daemon there is treated alike, and forgotten when it leaves.
    limiter.terminate()?;
    bed.receiver.ip(["link", "delete", "cont0"])?;
    limiter.start()?;
    batch(&bed, "link add other0 type veth peer name other1\n")?;
    take("other0")?;
    bed.receiver.ip(["link", "set", "other0", "name", "cont5"])?;
    limiter.wait_until_logged("cont5 is not limited at XDP: ")?;
    bed.receiver.ip(["link", "delete", "cont5"])?;
    let deadline = Instant::now() + SEEN_WITHIN;
    while interfaces(&limiter)?.iter().any(|at| at["name"] == "cont5") {
        ensure!(Instant::now() < deadline, "an interface that is gone is still refused");
        thread::sleep(Duration::from_millis(10));
    }
    limiter.close()?;
    bed.close()
}

/// At the hook of an earlier start it stays limited until it is at the one of this start, and then
/// no packet meets both.
#[test]
fn one_that_is_attached_later_leaves_the_hook_of_before() -> Result<()> {
    require_root();
    let bed = Testbed::create("pathook")?;
    let foreign = bed.bpffs.path().join("foreign");
    pin_pass_program(&foreign)?;
    lay(&bed, "cont0", "send1")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.on(PATTERN).options(["--hook", "tc"]);
    limiter.start()?;
    wait_for(&limiter, &["cont0"])?;
    limiter.terminate()?;
    let place = foreign.display().to_string();
    bed.receiver.ip(["link", "set", "cont0", "xdp", "pinned", &place])?;
    limiter.without_options().start()?;
    limiter.wait_until_logged("cont0 is not limited at XDP: ")?;
    ensure!(pins(&limiter, "links-in")?.len() == 1, "nothing limits it in between");
    bed.receiver.ip(["link", "set", "cont0", "xdp", "off"])?;
    wait_for_pins(&limiter, "links-in", 0)?;
    wait_for(&limiter, &["cont0"])?;
    limiter.close()?;
    bed.close()
}

/// Waits until a hook has so many pinned links.
fn wait_for_pins(limiter: &Limiter, hook: &str, wanted: usize) -> Result<()> {
    let deadline = Instant::now() + SEEN_WITHIN;
    while pins(limiter, hook)?.len() != wanted {
        ensure!(Instant::now() < deadline, "{hook}: {:?}", pins(limiter, hook)?);
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// By hand it is free until it is gone, with and without a daemon.
#[test]
fn one_that_was_freed_stays_free() -> Result<()> {
    require_root();
    let bed = Testbed::create("patfree")?;
    lay(&bed, "cont0", "send1")?;
    lay(&bed, "cont1", "send2")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.on(PATTERN).start()?;
    wait_for(&limiter, &["cont0", "cont1"])?;
    limiter.ok(["detach", "--iface", "cont0"])?;
    // Whatever else happens.
    for alias in ["one", "two"] {
        bed.receiver.ip(["link", "set", "cont0", "alias", alias])?;
        wait_for(&limiter, &["cont1"])?;
    }
    lay(&bed, "cont2", "send3")?;
    wait_for(&limiter, &["cont1", "cont2"])?;
    wait_until_free(&bed.receiver, "cont0")?;
    bed.receiver.ip(["link", "delete", "cont0"])?;
    lay(&bed, "cont0", "send1")?;
    wait_for(&limiter, &["cont0", "cont1", "cont2"])?;
    limiter.close()?;
    bed.close()
}

/// What appears during a trial is limited by the rules on trial, and by those before afterwards.
#[test]
fn what_appears_during_a_trial_is_limited() -> Result<()> {
    require_root();
    let bed = Testbed::create("pattrial")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.on(PATTERN).start()?;
    let file = bed.dir.path().join("trial.yaml");
    fs::write(&file, DRAINING.replace("burst: 5", "burst: 3"))?;
    limiter.ok(["apply", &file.display().to_string(), "--confirm", "60s"])?;
    lay(&bed, "cont0", "send1")?;
    wait_for(&limiter, &["cont0"])?;
    send_ten(&bed, "send1", SOURCE)?;
    ensure!(passed_of(&limiter, SOURCE, 10)? == 3);
    limiter.ok(["revert"])?;
    let other = [203, 0, 113, 78];
    send_ten(&bed, "send1", other)?;
    ensure!(passed_of(&limiter, other, 10)? == 5);
    limiter.close()?;
    bed.close()
}

/// Rules on an interface take it as it is now, and those that are not about it stay as they are.
#[test]
fn a_rule_on_an_interface_that_appears_is_in_force() -> Result<()> {
    require_root();
    let bed = Testbed::create("patrule")?;
    lay(&bed, "cont0", "send1")?;
    let mut limiter = bed.limiter(
        "descriptors:\n  - {key: interface, value: cont0, rate_limit: {rate: 7/week, algorithm: \
         fixed_window}}\n",
    )?;
    limiter.on(PATTERN).start()?;
    wait_for(&limiter, &["cont0"])?;
    let generation = || -> Result<Value> { Ok(limiter.json(&["status"])?["generation"].clone()) };
    let first = generation()?;
    lay(&bed, "cont1", "send2")?;
    wait_for(&limiter, &["cont0", "cont1"])?;
    ensure!(generation()? == first, "an interface that no rule is about changed the rule set");
    bed.receiver.ip(["link", "delete", "cont0"])?;
    wait_for(&limiter, &["cont1"])?;
    lay(&bed, "cont0", "send1")?;
    wait_for(&limiter, &["cont0", "cont1"])?;
    ensure!(generation()? != first, "the rule does not know the new interface");
    send_ten(&bed, "send1", SOURCE)?;
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let limits = limiter.json(&["list"])?;
        let rule = &limits["limits"][0];
        let packets = |what: &str| rule[what]["packets"].as_u64().unwrap_or_default();
        if packets("passed") + packets("dropped") == 10 {
            ensure!(packets("passed") == 7, "{rule}");
            break;
        }
        ensure!(Instant::now() < deadline, "{limits}");
        thread::sleep(Duration::from_millis(10));
    }
    limiter.close()?;
    bed.close()
}

/// An upgrade over maps of another layout takes the interfaces over as they are then.
#[test]
fn an_upgrade_takes_over_what_matches() -> Result<()> {
    require_root();
    let bed = Testbed::create("patabi")?;
    lay(&bed, "cont0", "send1")?;
    lay(&bed, "cont1", "send2")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.on(PATTERN).options(["--direction", "both"]);
    limiter.start()?;
    wait_for(&limiter, &["cont0", "cont1"])?;
    limiter.kill()?;
    age(&limiter, 1)?;
    bed.receiver.ip(["link", "delete", "cont1"])?;
    lay(&bed, "cont2", "send3")?;
    limiter.start()?;
    wait_for(&limiter, &["cont0", "cont2"])?;
    lay(&bed, "cont3", "send4")?;
    wait_for(&limiter, &["cont0", "cont2", "cont3"])?;
    for (far, packets) in [("send1", 10), ("send3", 20), ("send4", 30)] {
        send_ten(&bed, far, SOURCE)?;
        let passed = passed_of(&limiter, SOURCE, packets)?;
        ensure!(passed == 5, "{passed} of {packets} passed, the last ones by {far}");
    }
    // Without any that matches, too.
    limiter.kill()?;
    age(&limiter, 1)?;
    for name in ["cont0", "cont2", "cont3"] {
        bed.receiver.ip(["link", "delete", name])?;
    }
    limiter.start()?;
    lay(&bed, "cont4", "send1")?;
    wait_for(&limiter, &["cont4"])?;
    limiter.close()?;
    bed.close()
}

/// There are counters for 1,024 indices: who shares some is said, and each is limited.
#[test]
fn interfaces_that_are_counted_together_are_said_to_be() -> Result<()> {
    require_root();
    let bed = Testbed::create("patplaces")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.on(PATTERN).start()?;
    for (name, far, index) in [("cont0", "send1", "300"), ("cont1", "send2", "1324")] {
        let pair = ["index", index, "type", "veth", "peer", "name", far];
        bed.receiver.ip(["link", "add", name].into_iter().chain(pair))?;
        bed.receiver.ip(["link", "set", far, "netns", bed.sender.name(), "up"])?;
        bed.receiver.ip(["link", "set", name, "up"])?;
    }
    wait_for(&limiter, &["cont0", "cont1"])?;
    bed.sender.ip(["link", "set", "send1", "up"])?;
    let stats = limiter.json(&["stats"])?;
    let names: Vec<_> = stats["interfaces"].as_array().context("no interfaces")?.iter().collect();
    ensure!(names.len() == 1 && names[0]["interface"] == "cont0, cont1", "{names:?}");
    limiter.close()?;
    bed.close()
}

fn label_in(interfaces: &Value, name: &str) -> Option<String> {
    let all = interfaces.as_array()?;
    let found = all.iter().find(|at| at["name"] == name || at["interface"] == name)?;
    Some(found["label"].as_str()?.to_owned())
}

/// By a user without any privilege but those that the daemon needs in any case.
#[test]
fn what_is_behind_an_interface_has_a_name() -> Result<()> {
    require_root();
    let bed = Testbed::create("patlabel")?;
    let container = Netns::create("web-1")?;
    for (near, far) in [("cont0", "in0"), ("cont1", "in1"), ("cont2", "in2")] {
        veth::lay((&container, far), (&bed.receiver, near))?;
    }
    bed.receiver.ip(["link", "set", "cont1", "alias", "the database"])?;
    bed.receiver.ip(["link", "set", "cont2", "alias", "steers\u{1b}[2Jit"])?;
    give(bed.dir.path())?;
    give(bed.bpffs.path())?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.on(PATTERN).options(["--iface", RECEIVER.interface]).through(alone());
    limiter.start()?;
    let recv0 = Some(bed.sender.name());
    for question in ["status", "stats"] {
        let interfaces = limiter.json(&[question])?["interfaces"].clone();
        let label = |name| label_in(&interfaces, name);
        ensure!(label("cont0").as_deref() == Some(container.name()), "{interfaces}");
        ensure!(label("cont1").as_deref() == Some("the database"), "{interfaces}");
        ensure!(label(RECEIVER.interface).as_deref() == recv0, "{interfaces}");
        let text = limiter.ok([question])?;
        let wanted = format!("cont0 ({})", container.name());
        ensure!(text.contains(&wanted) && text.contains("cont1 (the database)"), "{text}");
        ensure!(text.contains("cont2 (steers\u{fffd}[2Jit)"), "{text:?}");
    }
    // A name follows what it is a name of.
    bed.receiver.ip(["link", "set", "cont1", "alias", ""])?;
    let interfaces = limiter.json(&["status"])?["interfaces"].clone();
    ensure!(label_in(&interfaces, "cont1").as_deref() == Some(container.name()), "{interfaces}");
    // Without a daemon, too.
    limiter.kill()?;
    let text = limiter.on_pins("stats")?;
    ensure!(text.contains(&format!("cont0 ({})", container.name())), "{text}");
    limiter.close()?;
    bed.close()
}

/// Pairs of a machine with many containers.
const MANY: usize = 100;

/// Lines for `ip -batch` about each pair.
fn of_each(line: impl Fn(usize) -> String) -> String {
    (0..MANY).map(line).collect()
}

/// Two hundred pairs come and go faster than anybody looks, at two hooks each.
#[test]
fn many_interfaces_come_and_go_quickly() -> Result<()> {
    require_root();
    let bed = Testbed::create("patmany")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.on(PATTERN).options(["--hook", "tc", "--direction", "both"]);
    limiter.start()?;
    let add = of_each(|n| format!("link add cont{n} type veth peer name far{n}\n"));
    let delete = of_each(|n| format!("link delete cont{n}\n"));
    let names: Vec<String> = (0..MANY).map(|n| format!("cont{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    batch(&bed, &add)?;
    wait_for(&limiter, &names)?;
    ensure!(pins(&limiter, "links-out")?.len() == MANY);
    let status = limiter.ok(["status"])?;
    ensure!(status.contains("and 180 more that are attached"), "{status}");
    ensure!(status.contains("cont*: 100 interfaces"), "{status}");
    // A start adopts them all.
    limiter.kill()?;
    let ready = limiter.start()?;
    ensure!(ready.contains("and 192 more, 1 rule"), "{ready}");
    wait_for(&limiter, &names)?;
    ensure!(interfaces(&limiter)?.iter().all(|at| at["adopted"] == true));
    batch(&bed, &delete)?;
    wait_for(&limiter, &[])?;
    // Each is gone before most are seen.
    for _ in 0..3 {
        batch(
            &bed,
            &of_each(|n| {
                format!("link add cont{n} type veth peer name far{n}\nlink delete cont{n}\n")
            }),
        )?;
    }
    wait_for(&limiter, &[])?;
    let said = limiter.said();
    ensure!(!said.contains("is not limited at"), "one that was gone was reported: {said}");
    batch(&bed, &add)?;
    wait_for(&limiter, &names)?;
    limiter.close()?;
    bed.close()
}
