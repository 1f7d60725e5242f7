//! Judgements on fixed facts about interfaces, and the report.

use limiter_api::render;
use limiter_api::status::Status;
use limiter_common::header::Direction;
use limiter_datapath::machine::{Below, Link, NativeMode, Queues};
use limiter_datapath::{
    DatapathError, Fq, Framing, Hook, Interface, Mode, Neighbour, Offloads, OtherPins, Queueing,
};
use serde_json::{Value, json};

use super::attaching::{self, Owner};
use super::daemon::tests::status;
use super::finding::{Finding, Level, Report};
use super::frames::{self, Peer};
use super::{is_candidate, neighbours, place};
use crate::args::defaults::{PIN_DIR, SOCKET};
use crate::output::Output;

/// An interface that is up, of a kind.
pub(super) fn link(index: u32, name: &str, kind: Option<&str>) -> Link {
    let interface = Interface {
        name: name.to_owned(),
        index,
        mtu: 1500,
        framing: Framing::Ethernet,
        program: None,
    };
    Link {
        name: name.to_owned(),
        index,
        interface: Ok(interface),
        kind: kind.map(str::to_owned),
        driver: None,
        controller: None,
        below: None,
        is_up: true,
        is_loopback: false,
    }
}

fn port_of(controller: u32, link: Link) -> Link {
    Link { controller: Some(controller), ..link }
}

fn no_answer() -> DatapathError {
    let source = std::io::Error::from_raw_os_error(libc::EIO);
    DatapathError::Netlink { interface: "eth0".to_owned(), source }
}

fn foreign(name: &str, other: Option<OtherPins>) -> Owner {
    let (interface, name) = ("eth0".to_owned(), name.to_owned());
    Owner::Other(DatapathError::Foreign { interface, name, id: 7, other })
}

#[expect(clippy::unnecessary_wraps, reason = "as the kernel answers")]
fn on(names: &[&str], switchable: &[&str]) -> Result<Offloads, DatapathError> {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Ok(Offloads { active: owned(names), switchable: owned(switchable) })
}

const NATIVE: NativeMode = NativeMode { is_there: true, takes_buffers: true };

#[test]
fn a_program_of_somebody_else_is_a_problem_with_its_way_out() {
    let judged = |owner: &Owner| attaching::program("eth0", owner, &[]);
    assert_eq!(judged(&Owner::Nobody).level, Level::Ok);
    assert_eq!(judged(&Owner::Ours(Mode::Generic)).level, Level::Ok);
    assert_eq!(judged(&Owner::Unseen(7)).level, Level::Unknown);
    let dropper = judged(&foreign("dropper", None));
    assert_eq!(dropper.level, Level::Problem);
    assert!(dropper.seen.ends_with("\"dropper\" (id 7), which is not ours"), "{dropper:?}");
    // The command removes nobody else's program, and the text says what `xdp off` does.
    assert_eq!(dropper.command.as_deref(), Some("limiter run --iface eth0 --hook tc --rules FILE"));
    assert!(dropper.remedy.unwrap().contains("xdp off`, which ends what the program does"));
    let dispatcher = judged(&foreign("xdp_dispatcher", None));
    assert!(dispatcher.remedy.unwrap().contains("`xdp-loader unload eth0 --all`"));
    let interfaces = vec!["eth0".to_owned()];
    let pins = OtherPins { directory: "/sys/fs/bpf/b".into(), interfaces };
    let other = judged(&foreign("limiter", Some(pins)));
    assert_eq!(other.command.as_deref(), Some("limiter detach --pin-dir /sys/fs/bpf/b"));
    // `xdp off` does not remove a limiter's.
    assert_eq!(judged(&foreign("limiter", None)).command, None);
}

/// Where limiter is at tc, a program at XDP is no obstacle, nor is a driver without native mode.
#[test]
fn what_hinders_xdp_is_no_problem_of_limits_at_tc() {
    let (both, out) = ([Direction::In, Direction::Out], [Direction::Out]);
    let dropper = foreign("dropper", None);
    for (at_tc, words) in [(&both[..], "see what it lets pass"), (&out[..], "what goes out")] {
        let found = attaching::program("eth0", &dropper, at_tc);
        assert_eq!((found.level, &found.command), (Level::Note, &None), "{found:?}");
        assert!(
            found.seen.contains("\"dropper\" (id 7)") && found.seen.contains(words),
            "{found:?}"
        );
        let eth0 = link(2, "eth0", None);
        let none = NativeMode { is_there: false, takes_buffers: false };
        for owner in [&dropper, &Owner::Nobody] {
            let native = attaching::native(&eth0, owner, &Ok(Some(none)), true, at_tc);
            assert_eq!(native.level, Level::Ok, "{native:?}");
            let one = NativeMode { is_there: true, takes_buffers: false };
            let large = Interface { mtu: 9000, ..link(2, "eth0", None).interface.unwrap() };
            let mtu = attaching::mtu(&large, owner, &Ok(Some(one)), at_tc);
            assert_eq!(mtu.level, Level::Ok, "{mtu:?}");
        }
    }
}

#[test]
fn native_mode_is_a_problem_only_where_it_was_asked_for() {
    let eth0 = link(2, "eth0", None);
    let judged =
        |owner: &Owner, native, asked| attaching::native(&eth0, owner, &native, asked, &[]);
    let none = NativeMode { is_there: false, takes_buffers: false };
    assert_eq!(judged(&Owner::Nobody, Ok(Some(NATIVE)), true).level, Level::Ok);
    let refused = judged(&Owner::Nobody, Ok(Some(none)), true);
    assert_eq!(refused.level, Level::Problem);
    assert!(refused.remedy.unwrap().contains("--mode auto"));
    assert_eq!(judged(&Owner::Nobody, Ok(Some(none)), false).level, Level::Note);
    assert_eq!(judged(&Owner::Ours(Mode::Generic), Ok(Some(none)), true).level, Level::Note);
    assert_eq!(judged(&Owner::Ours(Mode::Native), Ok(None), true).level, Level::Ok);
    assert_eq!(judged(&Owner::Nobody, Ok(None), true).level, Level::Unknown);
    assert_eq!(judged(&Owner::Nobody, Err(no_answer()), true).level, Level::Unknown);
    let forgetful = Link { driver: Some("vmxnet3".to_owned()), ..link(2, "eth0", None) };
    let owner = Owner::Ours(Mode::Native);
    let judged = attaching::native(&forgetful, &owner, &Ok(Some(NATIVE)), true, &[]);
    assert_eq!(judged.level, Level::Warning, "{judged:?}");
    let judged = attaching::native(&forgetful, &Owner::Nobody, &Ok(Some(NATIVE)), true, &[]);
    assert_eq!(judged.level, Level::Ok, "{judged:?}");
    let generic = attaching::native(&forgetful, &Owner::Ours(Mode::Generic), &Ok(None), true, &[]);
    assert_eq!(generic.level, Level::Note);
    // Before Linux 6.3, which does not say it.
    let known = Link { driver: Some("e1000e".to_owned()), ..link(2, "eth0", None) };
    let known = attaching::native(&known, &Owner::Nobody, &Ok(None), true, &[]);
    assert_eq!(known.level, Level::Problem);
    assert!(known.seen.contains("no kernel has native XDP for its driver, e1000e,"), "{known:?}");
}

#[test]
fn a_large_mtu_takes_a_driver_for_several_buffers() {
    let judged = |mtu, native, owner: &Owner| {
        let interface = Interface { mtu, ..link(2, "eth0", None).interface.unwrap() };
        attaching::mtu(&interface, owner, &Ok(native), &[])
    };
    let one = NativeMode { is_there: true, takes_buffers: false };
    assert_eq!(judged(1500, Some(one), &Owner::Nobody).level, Level::Ok);
    assert_eq!(judged(9000, Some(NATIVE), &Owner::Nobody).level, Level::Ok);
    assert_eq!(judged(9000, Some(one), &Owner::Ours(Mode::Native)).level, Level::Ok);
    for native in [Some(one), None] {
        let large = judged(9000, native, &Owner::Nobody);
        assert_eq!(large.level, Level::Warning);
        assert_eq!(large.command.as_deref(), Some("ip link set dev eth0 mtu 1500"));
    }
}

#[test]
fn a_bridge_a_member_and_a_vlan_name_the_interface_to_limit() {
    let bridge = link(1, "br0", Some("bridge"));
    let ports = [port_of(1, link(2, "eth0", None)), port_of(1, link(3, "eth1", None))];
    let [eth0, eth1] = ports;
    let bond = link(4, "bond0", Some("bond"));
    let member = port_of(4, link(5, "eth2", None));
    let on = |index, is_here| {
        let below = Some(Below { index, is_here });
        Link { below, ..link(6, "eth2.5", Some("vlan")) }
    };
    let links = [bridge, eth0, eth1, bond, member, on(5, true)];
    let judged = |at: usize, asked| place::device(&links[at], &links, asked);
    assert_eq!(judged(0, false).level, Level::Note);
    assert_eq!(judged(0, true).level, Level::Warning);
    let command = judged(0, true).command.unwrap();
    assert_eq!(command, "limiter run --iface eth0 --iface eth1 --rules FILE");
    assert_eq!(judged(1, true).level, Level::Ok);
    assert_eq!(judged(3, true).level, Level::Ok);
    assert_eq!(judged(4, true).command.unwrap(), "limiter run --iface bond0 --rules FILE");
    assert_eq!(judged(5, true).command.unwrap(), "limiter run --iface eth2 --rules FILE");
    // An index of another network namespace is of another interface.
    let far = on(5, false);
    let finding = place::device(&far, &links, true);
    assert_eq!((finding.level, finding.command), (Level::Warning, None));
    let empty = [link(1, "br0", Some("bridge"))];
    assert_eq!(place::device(&empty[0], &empty, true).command, None);
}

#[test]
fn interfaces_of_containers_are_no_candidates() {
    let down = Link { is_up: false, ..link(6, "eth9", None) };
    let loopback = Link { is_loopback: true, ..link(7, "lo", None) };
    let links = [
        link(1, "docker0", Some("bridge")),
        port_of(1, link(2, "veth1", Some("veth"))),
        link(3, "br0", Some("bridge")),
        port_of(3, link(4, "eth0", None)),
        link(5, "veth0", Some("veth")),
        down,
        loopback,
    ];
    let candidates = links.iter().filter(|link| is_candidate(link, &links));
    let names: Vec<&str> = candidates.map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["br0", "eth0", "veth0"]);
}

#[test]
fn tags_are_hidden_by_either_end() {
    let judged = |own, peer: &Peer| frames::tags("eth0", &own, peer);
    assert_eq!(judged(on(&[], &[]), &Peer::None).level, Level::Ok);
    let hidden = judged(on(&["rx-vlan-hw-parse"], &[]), &Peer::None);
    assert_eq!(hidden.level, Level::Note);
    assert_eq!(hidden.command.as_deref(), Some("ethtool -K eth0 rxvlan off"));
    let peer = Peer::Here("eth1".to_owned(), on(&["tx-vlan-hw-insert"], &[]));
    let command = judged(on(&[], &[]), &peer).command;
    assert_eq!(command.as_deref(), Some("ethtool -K eth1 txvlan off"));
    let peer = Peer::Here("eth1".to_owned(), on(&[], &[]));
    assert_eq!(judged(on(&[], &[]), &peer).level, Level::Ok);
    assert_eq!(judged(on(&[], &[]), &Peer::Elsewhere).level, Level::Unknown);
    assert_eq!(judged(Err(no_answer()), &Peer::None).level, Level::Unknown);
}

#[test]
fn a_card_that_joins_frames_is_warned_of() {
    assert_eq!(frames::joined("eth0", &on(&["rx-gro"], &[]), false).level, Level::Ok);
    let software = frames::joined("eth0", &on(&["rx-gro"], &[]), true);
    assert_eq!(software.level, Level::Note);
    assert_eq!(software.command.as_deref(), Some("ethtool -K eth0 gro off"));
    assert_eq!(frames::joined("eth0", &on(&[], &[]), true).level, Level::Ok);
    let lro = frames::joined("eth0", &on(&["rx-lro"], &["rx-lro"]), false);
    assert_eq!(lro.level, Level::Warning);
    assert!(!lro.seen.contains("switched off"), "{lro:?}");
    let fixed = frames::joined("eth0", &on(&["rx-gro-hw"], &[]), false);
    assert!(fixed.seen.contains("rx-gro-hw, which it does not let be switched off"), "{fixed:?}");
    assert_eq!(frames::joined("eth0", &Err(no_answer()), true).level, Level::Unknown);
}

#[test]
fn queues_are_counted_against_cpus() {
    let judged = |used, most, cpus| {
        let queues = Ok(Some(Queues { used, most, is_combined: false }));
        frames::queues("eth0", &queues, cpus)
    };
    assert_eq!(judged(1, 1, 8).level, Level::Ok);
    assert_eq!(judged(4, 16, 4).level, Level::Ok);
    assert_eq!(judged(0, 1, 4).level, Level::Ok);
    let few = judged(1, 16, 4);
    assert_eq!(few.level, Level::Note);
    assert_eq!(few.command.as_deref(), Some("ethtool -L eth0 rx 4"));
    let queues = Ok(Some(Queues { used: 1, most: 2, is_combined: true }));
    let command = frames::queues("eth0", &queues, 4).command;
    assert_eq!(command.as_deref(), Some("ethtool -L eth0 combined 2"));
    assert_eq!(frames::queues("eth0", &Ok(None), 4).level, Level::Ok);
}

#[test]
fn programs_at_tc_are_judged_by_their_place() {
    let at = |hook, is_before, name: &str| {
        let pins = None;
        Neighbour { hook, program_id: 7, name: Some(name.to_owned()), is_before, pins }
    };
    let (inside, out) = (Hook::Tc(Direction::In), Hook::Tc(Direction::Out));
    let behind = |filters, found, may_bpf| neighbours::behind("eth0", &filters, &found, may_bpf);
    assert_eq!(behind(Ok(Vec::new()), Ok(Vec::new()), true).level, Level::Ok);
    let filters = Ok(vec!["bpf".to_owned(), "flower".to_owned()]);
    let found = behind(filters, Ok(vec![at(inside, false, "acl"), at(out, true, "way")]), true);
    assert_eq!(found.level, Level::Note);
    assert!(found.seen.contains("bpf, flower, program 7 (acl) at tc in)"), "{found:?}");
    assert!(behind(Err(no_answer()), Ok(Vec::new()), false).seen.contains("needs CAP_BPF"));
    assert_eq!(behind(Err(no_answer()), Ok(Vec::new()), true).level, Level::Unknown);

    let before = |found| neighbours::before("eth0", &found, true);
    assert_eq!(before(Ok(vec![at(inside, false, "acl")])).level, Level::Ok);
    // One at XDP may drop, and what it passes comes to tc.
    assert_eq!(before(Ok(vec![at(Hook::Xdp, false, "acl")])).level, Level::Ok);
    let warned = before(Ok(vec![at(out, true, "acl")]));
    assert_eq!(warned.level, Level::Warning);
    assert!(warned.seen.contains("(program 7 (acl) at tc out)"), "{warned:?}");
    assert_eq!(before(Err(no_answer())).level, Level::Unknown);

    let limiters = |found| neighbours::limiters("eth0", &found, true);
    assert_eq!(limiters(Ok(vec![at(inside, true, "acl")])).level, Level::Ok);
    let interfaces = vec!["eth0".to_owned()];
    let pins = Some(OtherPins { directory: "/sys/fs/bpf/b".into(), interfaces });
    let other = limiters(Ok(vec![Neighbour { pins, ..at(inside, true, "limiter") }]));
    assert_eq!(other.command.as_deref(), Some("limiter detach --pin-dir /sys/fs/bpf/b"));
    // It lets nothing by: what it passes goes on.
    assert_eq!(before(Ok(vec![at(inside, true, "limiter")])).level, Level::Ok);
    assert_eq!(limiters(Ok(vec![at(inside, true, "limiter_l3")])).command, None);
}

/// Doctor and daemon have one text, with the room that the rules in force take.
#[test]
fn packets_wait_in_fq_alone() {
    let fq = |flow_packets| Ok(Queueing::Fq(Fq { flow_packets, packets: 10_000 }));
    let other = |kind: &str| Ok(Queueing::Other(kind.to_owned()));
    let of = |queueing, status| frames::waiting("eth0", &queueing, status);
    assert_eq!(of(fq(100), None).unwrap().level, Level::Ok);
    let none = of(other("noqueue"), None).unwrap();
    assert_eq!((none.level, none.command), (Level::Ok, None));
    assert!(none.seen.contains("would not wait: it has noqueue"), "{}", none.seen);
    assert_eq!(of(Err(no_answer()), None).unwrap().level, Level::Unknown);

    let status = status(&json!({
        "delays": {"who": "the rule x", "packets": 8334},
        "interfaces": [{"name": "eth0", "mode": "tc out", "ifindex": 2, "program_id": 5,
            "adopted": false}],
    }));
    assert_eq!(of(fq(8_334), Some(&status)).unwrap().level, Level::Ok);
    assert_eq!(of(fq(100), Some(&status)).unwrap().level, Level::Warning);
    let replaced = of(other("pfifo_fast"), Some(&status)).unwrap();
    assert_eq!(replaced.level, Level::Warning);
    let command = "tc qdisc replace dev eth0 root fq flow_limit 8334 limit 10000";
    assert!(replaced.seen.ends_with(command), "{}", replaced.seen);
    // Of an interface that is not limited, no packet waits.
    let elsewhere = frames::waiting("eth1", &other("pfifo_fast"), Some(&status)).unwrap();
    assert_eq!(elsewhere.level, Level::Ok);
    // What the daemon has said stands there once.
    let told = Status { warnings: vec![replaced.seen], ..status.clone() };
    let found = frames::waiting("eth0", &other("pfifo_fast"), Some(&told));
    assert_eq!(found, None);
}

#[test]
fn devices_without_native_mode_name_what_works() {
    let judged = |kind: &str| {
        // As Linux before 6.3, which does not say it.
        attaching::native(&link(2, "x0", Some(kind)), &Owner::Nobody, &Ok(None), true, &[])
    };
    for kind in ["wireguard", "vxlan", "bridge", "vlan", "macvlan", "netkit"] {
        let found = judged(kind);
        assert_eq!(found.level, Level::Problem, "{kind}");
        let remedy = found.remedy.unwrap();
        assert!(remedy.contains("--mode auto") && remedy.contains("--hook tc"), "{kind}: {remedy}");
    }
    for kind in ["veth", "tun", "bond", "nosuchkind"] {
        assert_eq!(judged(kind).level, Level::Unknown, "{kind}");
    }
    let none = NativeMode { is_there: false, takes_buffers: false };
    let bond = link(2, "bond0", Some("bond"));
    let found = attaching::native(&bond, &Owner::Nobody, &Ok(Some(none)), true, &[]);
    assert!(found.remedy.unwrap().contains("vlan+srcmac"));
}

#[test]
fn a_dummy_is_no_place_for_what_comes_in() {
    let links = [link(1, "dummy0", Some("dummy")), link(2, "wg0", Some("wireguard"))];
    let judged = |at: usize, asked| place::device(&links[at], &links, asked);
    assert_eq!(judged(0, true).level, Level::Warning);
    assert_eq!(judged(0, false).level, Level::Note);
    assert_eq!(judged(1, true).level, Level::Ok);
}

#[test]
fn the_report_has_the_gravest_first_and_counts_the_good() {
    let findings = || {
        vec![
            Finding::ok("a", "fine"),
            Finding::note("b", "see"),
            Finding::problem("c", "bad\u{1b}[2J").remedy("mend it").command("mend").on("eth0"),
            Finding::ok("d", "fine, too"),
        ]
    };
    let report = Report::of(findings(), false);
    assert!(!report.ok);
    let text = render::text(&report);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("problem  c eth0: bad"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert_eq!(lines[1..3], ["         mend it", "         # mend"]);
    assert_eq!(lines[3], "note     b: see");
    assert_eq!(lines[4], "ok       2 more checks: --verbose shows them");
    let verbose = render::text(&Report::of(findings(), true));
    assert!(verbose.ends_with("ok       a: fine\nok       d: fine, too\n"), "{verbose}");
    let json = Output::Json.document(&report).unwrap().unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["ok"], false);
    assert_eq!(json["findings"].as_array().unwrap().len(), 4);
    assert_eq!(json["findings"][0]["level"], "problem");
    assert_eq!(json["findings"][0]["command"], "mend");
    assert_eq!(json["findings"][1]["interface"], Value::Null);
}

#[test]
fn the_command_for_more_names_what_the_start_was_given() {
    let of = |socket: &str, interfaces: &[&str], pin_dir: &str| {
        let interfaces: Vec<String> = interfaces.iter().map(|&name| name.to_owned()).collect();
        super::command::command(socket.as_ref(), &interfaces, pin_dir.as_ref())
    };
    let usual = of(SOCKET, &["eth0"], PIN_DIR);
    assert_eq!(usual, "limiter doctor --iface eth0");
    let all = "limiter --socket /s doctor --iface eth0 --iface eth1 --pin-dir /x";
    assert_eq!(of("/s", &["eth0", "eth1"], "/x"), all);
}
