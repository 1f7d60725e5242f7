//! Tags that are not in the frame any more when the program sees it: rx-vlan-offload of a card, and
//! what veth makes of it.

use anyhow::{Context as _, Result, ensure};
use limiter_tests::frames::v4;
use limiter_tests::netns::Netns;
use limiter_tests::veth::{self, RECEIVER, SENDER};
use serde_json::Value;

use super::scene::{Count, Counters, MODES, Scene};

/// Whatever has this tag, and nothing else.
const BY_TAG: &str =
    "key: vlan, value: 5, rate_limit: {unit: second, requests_per_unit: 100, burst: 100}";

/// The outer end of a cable into the bridge of [`bridge`].
const INTO_BRIDGE: &str = "in0";

fn ethtool(netns: &Netns, interface: &str, feature: &str, state: &str) -> Result<()> {
    netns.run("ethtool", ["-K", interface, feature, state]).map(|_| ())
}

/// A bridge in front of the sending end. What goes through it has its tag beside the frame rather
/// than in it, as what comes from a VLAN device has.
fn bridge(netns: &Netns) -> Result<()> {
    veth::lay((netns, INTO_BRIDGE), (netns, "in1"))?;
    // With snooping, the bridge itself reports that it listens.
    netns.ip(["link", "add", "bridge0", "type", "bridge", "mcast_snooping", "0"])?;
    netns.silence("bridge0")?;
    for port in ["in1", SENDER.interface] {
        netns.ip(["link", "set", port, "master", "bridge0"])?;
    }
    netns.ip(["link", "set", "bridge0", "up"])?;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    for port in ["in1", SENDER.interface] {
        let state = "/linkinfo/info_slave_data/state";
        while netns.link(port)?.pointer(state) != Some(&Value::from("forwarding")) {
            ensure!(std::time::Instant::now() < deadline, "{port} does not forward");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    Ok(())
}

/// One frame of the rule's, or one of which nobody knows that it is.
fn counted(charged: bool, bytes: usize) -> Counters {
    let one = Count { packets: 1, bytes: bytes as u64 };
    let reason = if charged { "conforming" } else { "no-rule" };
    Counters {
        seen: 1,
        reasons: [(reason.to_owned(), one)].into(),
        passed: if charged { one } else { Count::default() },
        dropped: Count::default(),
    }
}

/// In both modes, a tag in the frame is seen. One beside it is not, and its four bytes are
/// not counted; on a veth pair the sending end decides where it is, and rx-vlan-offload of the
/// receiving one changes nothing.
#[test]
fn a_tag_beside_the_frame_is_not_seen() -> Result<()> {
    for mode in MODES {
        let scene = Scene::start("tags", mode, 1_500, BY_TAG)?;
        bridge(&scene.bed.sender)?;
        let direct = scene.socket(SENDER.interface)?;
        let bridged = scene.socket(INTO_BRIDGE)?;
        let frame = v4().vlan(5).payload(&[0; 18]).build();
        for here in ["on", "off"] {
            ethtool(&scene.bed.receiver, RECEIVER.interface, "rxvlan", here)?;
            for there in ["on", "off"] {
                ethtool(&scene.bed.sender, SENDER.interface, "txvlan", there)?;
                let what = format!("{mode}, rxvlan {here}, txvlan {there} at the other end");
                let moved = scene.send(&direct, &frame, 1)?;
                ensure!(moved == counted(true, frame.len()), "{what}, in the frame: {moved:?}");
                let seen = there == "off";
                let bytes = if seen { frame.len() } else { frame.len() - 4 };
                let moved = scene.send(&bridged, &frame, 1)?;
                ensure!(moved == counted(seen, bytes), "{what}, beside it: {moved:?}");
            }
        }
        scene.close()?;
    }
    Ok(())
}

/// As above, with the same frames: at tc the kernel says what it took off.
#[test]
fn at_tc_a_tag_beside_the_frame_is_seen() -> Result<()> {
    let scene = Scene::start("tags", "tc", 1_500, BY_TAG)?;
    bridge(&scene.bed.sender)?;
    let direct = scene.socket(SENDER.interface)?;
    let bridged = scene.socket(INTO_BRIDGE)?;
    let frame = v4().vlan(5).payload(&[0; 18]).build();
    for there in ["on", "off"] {
        ethtool(&scene.bed.sender, SENDER.interface, "txvlan", there)?;
        for (socket, way) in [(&direct, "in the frame"), (&bridged, "beside it")] {
            let moved = scene.send(socket, &frame, 1)?;
            ensure!(moved == counted(true, frame.len()), "txvlan {there}, {way}: {moved:?}");
        }
    }
    scene.close()
}

/// Warnings about tags; the daemon here has no management prefix, which it says as well.
fn warnings(scene: &Scene) -> Result<String> {
    let status = scene.limiter.json(&["status"])?;
    let lines = status["warnings"].as_array().context("no warnings")?;
    let of_tags = lines.iter().filter_map(Value::as_str).filter(|line| line.contains("VLAN"));
    Ok(of_tags.collect::<Vec<_>>().join("\n"))
}

/// At the start and at a reload, in the log and in `limiter status`; not once the feature is off,
/// and not without a rule that asks for tags.
#[test]
fn the_daemon_says_where_a_rule_for_a_vlan_sees_no_tags() -> Result<()> {
    let scene = Scene::start("warned", "native", 1_500, BY_TAG)?;
    for text in [warnings(&scene)?, scene.limiter.said()] {
        for words in ["vlan=5", &format!("ethtool -K {} rxvlan off", RECEIVER.interface)] {
            ensure!(text.contains(words), "no {words:?}: {text}");
        }
    }
    ethtool(&scene.bed.receiver, RECEIVER.interface, "rxvlan", "off")?;
    scene.change(BY_TAG)?;
    ensure!(warnings(&scene)?.is_empty(), "{}", warnings(&scene)?);
    ethtool(&scene.bed.receiver, RECEIVER.interface, "rxvlan", "on")?;
    scene.change(BY_TAG)?;
    ensure!(!warnings(&scene)?.is_empty(), "nothing is said at a reload");
    scene.change("key: remote_address, rate_limit: {unit: second, requests_per_unit: 9}")?;
    ensure!(warnings(&scene)?.is_empty(), "{}", warnings(&scene)?);
    scene.close()
}
