//! `limiter-cni` as a container runtime calls it, with network namespaces in the place of
//! containers, beside a daemon that limits `veth*`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::cables::SEEN_WITHIN;
use limiter_tests::limiter::{Limiter, cni};
use limiter_tests::netns::Netns;
use limiter_tests::packet::Frame;
use limiter_tests::packet_socket::PacketSocket;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth;
use serde_json::{Value, json};

/// Rules without which the daemon does not start: nobody here is limited by them.
const RULES: &str =
    "descriptors:\n  - {key: remote_address, value: 203.0.113.1, rate_limit: {rate: 5/s}}\n";

/// Bytes of each frame that is sent.
const FRAME: usize = 100;

/// Bytes at once, of limits so slow that nothing more passes in the time of a test.
pub(crate) const BURST: u64 = 3_000;

/// Frames that pass.
pub(crate) const PASS: u64 = 30;

/// The runtime, and the host that its containers are on.
pub(crate) struct Runtime<'a> {
    pub(crate) bed: &'a Testbed,
    pub(crate) socket: PathBuf,
}

/// A container with a cable to the host.
pub(crate) struct Container {
    pub(crate) netns: Netns,
    id: &'static str,
    host: &'static str,
}

impl Container {
    pub(crate) fn create(bed: &Testbed, id: &'static str, host: &'static str) -> Result<Self> {
        let netns = Netns::create(&format!("cni-{id}"))?;
        veth::lay((&netns, "eth0"), (&bed.receiver, host))?;
        Ok(Self { netns, id, host })
    }

    /// The result of the plugin that laid the cable.
    fn result(&self) -> Value {
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [
                {"name": "cni0"}, {"name": self.host},
                {"name": "eth0", "sandbox": self.path(), "mtu": 1500},
            ],
            "ips": [{"address": "198.51.100.2/24", "interface": 2}],
            "dns": {"nameservers": ["198.51.100.1"]},
        })
    }

    fn path(&self) -> String {
        format!("/run/netns/{}", self.netns.name())
    }

    /// Sends frames of both families from one end of the cable to the other: in turns, so that one
    /// limit of both counts each.
    pub(crate) fn send(from: (&Netns, &str), frames: usize) -> Result<()> {
        let v4 = Frame::ipv4([198, 51, 100, 2], [198, 51, 100, 1]).payload(&[0; 58]).build();
        let v6 = Frame::ipv6([0x20; 16], [0x21; 16]).payload(&[0; 38]).build();
        ensure!(v4.len() == FRAME && v6.len() == FRAME, "{} and {}", v4.len(), v6.len());
        let (netns, interface) = from;
        netns.enter(|| {
            let socket = PacketSocket::sender(interface)?;
            for frame in [v4, v6].iter().cycle().take(frames) {
                // What is dropped on its way out is refused.
                match socket.send(frame) {
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                    sent => sent?,
                }
            }
            anyhow::Ok(())
        })?
    }
}

/// What a container may get and send: a burst, and then nearly nothing.
fn bandwidth() -> Value {
    let burst = BURST * 8;
    json!({"ingressRate": 8, "ingressBurst": burst, "egressRate": 8, "egressBurst": burst})
}

impl Runtime<'_> {
    fn start(&self, command: &str, container: &Container, config: &str) -> Result<Child> {
        let mut call = Command::new(cni()?);
        call.env("CNI_COMMAND", command).env("CNI_CONTAINERID", container.id);
        call.env("CNI_IFNAME", "eth0").env("CNI_NETNS", container.path());
        call.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.bed.receiver.spawn(&mut call)?;
        child.stdin.take().context("no standard input")?.write_all(config.as_bytes())?;
        Ok(child)
    }

    pub(crate) fn call(&self, command: &str, container: &Container, more: Value) -> Result<Output> {
        let config = self.config(container, more).to_string();
        Ok(self.start(command, container, &config)?.wait_with_output()?)
    }

    fn config(&self, container: &Container, more: Value) -> Value {
        let mut config = json!({
            "cniVersion": "1.1.0", "name": "pods", "type": "limiter-cni",
            "capabilities": {"bandwidth": true}, "socket": self.socket,
            "prevResult": container.result(),
        });
        if let (Some(config), Value::Object(more)) = (config.as_object_mut(), more) {
            config.extend(more);
        }
        config
    }

    /// A call that must succeed; its standard output.
    fn ok(&self, command: &str, container: &Container, more: Value) -> Result<String> {
        let output = self.call(command, container, more)?;
        let [said, log] =
            [output.stdout, output.stderr].map(|of| String::from_utf8_lossy(&of).into_owned());
        ensure!(output.status.success(), "{command} {}: {said} {log}", container.id);
        Ok(said)
    }

    fn add(&self, container: &Container) -> Result<()> {
        let said =
            self.ok("ADD", container, json!({"runtimeConfig": {"bandwidth": bandwidth()}}))?;
        let result: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
        ensure!(result == container.result(), "the result is another one: {said}");
        Ok(())
    }

    /// A call that must fail; the code and the text of its error.
    fn fails(&self, command: &str, container: &Container, more: Value) -> Result<(u64, String)> {
        error_of(&self.call(command, container, more)?)
    }
}

fn error_of(output: &Output) -> Result<(u64, String)> {
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(!output.status.success(), "it succeeded: {said}");
    let error: Value = serde_json::from_str(&said).with_context(|| said.to_string())?;
    let code = error["code"].as_u64().with_context(|| said.to_string())?;
    ensure!(error["cniVersion"] == "1.1.0", "{said}");
    Ok((code, error["msg"].as_str().with_context(|| said.to_string())?.to_owned()))
}

/// Limits of the plugin: the cable, the direction, and the packets that passed and were dropped.
pub(crate) fn limits(limiter: &Limiter) -> Result<Vec<(String, String, u64, u64)>> {
    let list = limiter.json(&["list"])?;
    let all = list["limits"].as_array().context("no limits")?;
    let ours =
        all.iter().filter(|of| of["name"].as_str().is_some_and(|name| name.starts_with("cni/")));
    let mut limits = ours
        .map(|of| {
            let text = |name: &str| of[name].as_str().with_context(|| of.to_string());
            let packets = |name: &str| of[name]["packets"].as_u64().with_context(|| of.to_string());
            let (_, cable) = text("source")?.split_once("interface=").context("no interface")?;
            let direction = text("direction")?.to_owned();
            Ok((cable.to_owned(), direction, packets("passed")?, packets("dropped")?))
        })
        .collect::<Result<Vec<_>>>()?;
    limits.sort();
    Ok(limits)
}

/// The cables that have limits, each in both directions.
fn cables(limiter: &Limiter) -> Result<Vec<String>> {
    let all = limits(limiter)?;
    let mut cables: Vec<String> = all.iter().map(|(cable, ..)| cable.clone()).collect();
    cables.dedup();
    ensure!(all.len() == 2 * cables.len(), "{all:?}");
    Ok(cables)
}

/// Waits until so many packets of a cable's direction passed and were dropped.
pub(crate) fn wait_for(
    limiter: &Limiter,
    cable: &str,
    direction: &str,
    counts: (u64, u64),
) -> Result<()> {
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let all = limits(limiter)?;
        let found = all.iter().find(|of| of.0 == cable && of.1 == direction);
        let (_, _, passed, dropped) = found.with_context(|| format!("{all:?}"))?;
        if (*passed, *dropped) == counts {
            return Ok(());
        }
        if passed + dropped >= counts.0 + counts.1 || Instant::now() > deadline {
            bail!("{cable} {direction}: {passed} passed and {dropped} dropped, not {counts:?}");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn daemon(bed: &Testbed) -> Result<Limiter> {
    let mut limiter = bed.limiter(RULES)?;
    limiter.on("veth*").options(["--hook", "tc", "--direction", "both"]);
    limiter.start()?;
    Ok(limiter)
}

/// What a container gets and sends, in IPv4 and IPv6 together, also after restarts of the daemon;
/// and nothing is left of it, whether it is removed once, twice or never.
#[test]
fn a_container_is_limited_as_long_as_it_is_there() -> Result<()> {
    require_root();
    let bed = Testbed::create("cni")?;
    let mut limiter = daemon(&bed)?;
    let runtime = Runtime { bed: &bed, socket: limiter.socket().to_owned() };
    let one = Container::create(&bed, "one", "veth1")?;
    runtime.add(&one)?;
    let host = (&*bed.receiver, "veth1");
    Container::send((&one.netns, "eth0"), 40)?;
    wait_for(&limiter, "veth1", "in", (PASS, 10))?;
    Container::send(host, 40)?;
    wait_for(&limiter, "veth1", "out", (PASS, 10))?;

    // Added again, and checked: nothing changes, and the bucket stays as it is.
    runtime.add(&one)?;
    let given = || json!({"runtimeConfig": {"bandwidth": bandwidth()}});
    runtime.ok("CHECK", &one, given())?;
    limiter.kill()?;
    limiter.start()?;
    limiter.ok(["reload"])?;
    runtime.ok("CHECK", &one, given())?;
    Container::send((&one.netns, "eth0"), 10)?;
    wait_for(&limiter, "veth1", "in", (PASS, 20))?;
    let other = json!({"runtimeConfig": {"bandwidth": {"egressRate": 16, "egressBurst": 24_000}}});
    let (code, text) = runtime.fails("CHECK", &one, other)?;
    let part = "16bit/s is not in force on veth1 for what cni/pods/one/eth0 sends";
    ensure!(code == 100 && text.contains(part), "{text}");

    for _ in 0..2 {
        runtime.ok("DEL", &one, json!({}))?;
        ensure!(cables(&limiter)?.is_empty());
    }
    let (code, text) = runtime.fails("CHECK", &one, given())?;
    ensure!(code == 100 && text.contains("is not in force on veth1"), "{text}");

    // A container that goes without DEL leaves limits that harm nobody, and the next one removes.
    runtime.add(&one)?;
    drop(one);
    let gone = || bed.receiver.link("veth1").is_err();
    let deadline = Instant::now() + SEEN_WITHIN;
    while !gone() {
        ensure!(Instant::now() < deadline, "veth1 stays");
        thread::sleep(Duration::from_millis(10));
    }
    limiter.ok(["reload"])?;
    limiter.kill()?;
    limiter.start()?;
    ensure!(cables(&limiter)? == ["veth1"]);
    let two = Container::create(&bed, "two", "veth2")?;
    runtime.add(&two)?;
    ensure!(cables(&limiter)? == ["veth2"]);

    // One that gets a cable of the same name does not get its limits, whether it has any or none.
    drop(two);
    let three = Container::create(&bed, "three", "veth2")?;
    runtime.ok("ADD", &three, json!({}))?;
    ensure!(cables(&limiter)?.is_empty());

    // Two at the same time, of which GC leaves one, and those of other networks.
    let four = Container::create(&bed, "four", "veth4")?;
    let config = |of: &Container| runtime.config(of, given()).to_string();
    let children = [&three, &four].map(|of| runtime.start("ADD", of, &config(of)));
    for child in children {
        let output = child?.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    ensure!(cables(&limiter)? == ["veth2", "veth4"]);
    let valid = json!([{"containerID": "four", "ifname": "eth0"}]);
    let gc = |network: &str| {
        runtime.ok("GC", &four, json!({"name": network, "cni.dev/valid-attachments": valid}))
    };
    gc("others")?;
    ensure!(cables(&limiter)? == ["veth2", "veth4"]);
    for _ in 0..2 {
        gc("pods")?;
        ensure!(cables(&limiter)? == ["veth4"]);
    }
    limiter.close()?;
    drop((three, four));
    bed.close()
}

/// A call that cannot be carried out is an error that says why, and leaves nothing.
#[test]
fn what_fails_is_said_and_leaves_nothing() -> Result<()> {
    require_root();
    let bed = Testbed::create("cnibad")?;
    let mut limiter = daemon(&bed)?;
    let runtime = Runtime { bed: &bed, socket: limiter.socket().to_owned() };
    let one = Container::create(&bed, "bad", "veth1")?;
    let given = |more: Value| {
        let mut all = json!({"runtimeConfig": {"bandwidth": bandwidth()}});
        if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
            all.extend(more);
        }
        all
    };
    let fails = |command, of: &Container, more, code: u64, part: &str| -> Result<()> {
        let (found, text) = runtime.fails(command, of, given(more))?;
        ensure!(
            found == code && text.contains(part),
            "{command}: {found} {text:?}, not {code} {part:?}"
        );
        Ok(())
    };

    // Half a configuration.
    let whole = runtime.config(&one, given(json!({}))).to_string();
    let half = whole.get(..whole.len() / 2).context("no half")?;
    let (code, text) = error_of(&runtime.start("ADD", &one, half)?.wait_with_output()?)?;
    ensure!(code == 6 && text.contains("EOF"), "{text}");
    fails("ADD", &one, json!({"prevResult": null}), 7, "no prevResult")?;
    fails("ADD", &one, json!({"cniVersion": "1.1.0", "longest": 1}), 2, "no field \"longest\"")?;
    // A burst that holds no frame, in the second direction: the first one is taken back.
    let second =
        json!({"ingressRate": 8, "ingressBurst": 24_000, "egressRate": 8, "egressBurst": 80});
    fails("ADD", &one, json!({"runtimeConfig": {"bandwidth": second}}), 101, "burst")?;
    ensure!(limits(&limiter)?.is_empty());

    // A container that is gone, and one that has no cable.
    let gone = Container {
        netns: Netns::create("cni-gone")?,
        ..Container::create(&bed, "gone", "veth5")?
    };
    fails("ADD", &gone, json!({}), 100, "is no end of a cable (veth) to the host")?;
    gone.netns.ip(["tuntap", "add", "dev", "eth0", "mode", "tap"])?;
    fails("ADD", &gone, json!({}), 100, "is no end of a cable (veth) to the host")?;

    // A cable that no pattern of the daemon matches, and rules on trial.
    let other = Container::create(&bed, "other", "cable0")?;
    fails(
        "ADD",
        &other,
        json!({}),
        100,
        "limits nothing on cable0 in direction out: start it with",
    )?;
    let rules = limiter.rules().to_owned();
    limiter.ok(["apply".as_ref(), rules.as_os_str(), "--confirm".as_ref(), "1h".as_ref()])?;
    fails("ADD", &one, json!({}), 11, "rules are on trial")?;
    limiter.ok(["revert"])?;
    ensure!(limits(&limiter)?.is_empty());
    runtime.add(&one)?;

    // The daemon is away: as the configuration says. A container can always be removed.
    limiter.terminate()?;
    fails("ADD", &one, json!({}), 11, "start")?;
    fails("STATUS", &one, json!({}), 50, "start")?;
    fails("CHECK", &one, json!({}), 11, "start")?;
    let unlimited = || json!({"daemonAway": "unlimited"});
    runtime.ok("STATUS", &one, unlimited())?;
    let output = runtime.call("ADD", &one, given(unlimited()))?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success() && log.contains("cni/pods/bad/eth0 goes without limits"),
        "{log}"
    );
    runtime.ok("DEL", &one, json!({}))?;
    limiter.start()?;
    runtime.ok("STATUS", &one, json!({}))?;
    runtime.ok("GC", &one, json!({"cni.dev/valid-attachments": []}))?;
    ensure!(limits(&limiter)?.is_empty());
    limiter.close()?;
    drop((one, gone, other));
    bed.close()
}
