//! The kinds of devices, each by the commands that make it.

use super::Step::{Netkit, Run, RunFar, Tuntap, WireGuard};
use super::{Far, Kind, Step};

/// A veth pair with the names `low0` below what is to be limited.
const LOW: Step = Run("link add low0 type veth peer name low0 netns {far}");

/// A bond of two veths, and a bridge that joins them at the far end.
const fn bond(mode: &'static str) -> [Step; 11] {
    [
        Run(mode),
        Run("link add member0 type veth peer name port0 netns {far}"),
        Run("link add member1 type veth peer name port1 netns {far}"),
        Run("link set member0 master dev0"),
        Run("link set member1 master dev0"),
        Run("link set member0 up"),
        Run("link set member1 up"),
        RunFar("link add dev0 type bridge"),
        RunFar("link set port0 master dev0 up"),
        RunFar("link set port1 master dev0 up"),
        RunFar("link set dev0 up"),
    ]
}

const ACTIVE_BACKUP: [Step; 11] = bond("link add dev0 type bond mode active-backup miimon 100");
const ROUND_ROBIN: [Step; 11] = bond("link add dev0 type bond mode balance-rr miimon 100");
const BY_TAG: [Step; 11] =
    bond("link add dev0 type bond mode balance-xor xmit_hash_policy vlan+srcmac miimon 100");

const fn kind(row: &'static str, steps: &'static [Step]) -> Kind {
    Kind { row, steps, limited: "dev0", far: Far::Device }
}

/// Every kind, in the order of the table.
pub const KINDS: &[Kind] = &[
    kind("veth", &[Run("link add dev0 type veth peer name dev0 netns {far}")]),
    kind("netkit, layer 2", &[Netkit { layer_2: true, limited_is_peer: false }]),
    kind("netkit, layer 3", &[Netkit { layer_2: false, limited_is_peer: false }]),
    kind("netkit, the peer", &[Netkit { layer_2: false, limited_is_peer: true }]),
    kind("tun", &[Tuntap { tap: false }]),
    kind("tap", &[Tuntap { tap: true }]),
    kind("WireGuard", &[WireGuard]),
    kind(
        "ipip",
        &[
            Run("link add dev0 type ipip local {near_ip} remote {far_ip}"),
            RunFar("link add dev0 type ipip local {far_ip} remote {near_ip}"),
        ],
    ),
    kind(
        "gre",
        &[
            Run("link add dev0 type gre local {near_ip} remote {far_ip}"),
            RunFar("link add dev0 type gre local {far_ip} remote {near_ip}"),
        ],
    ),
    kind(
        "gretap",
        &[
            Run("link add dev0 type gretap local {near_ip} remote {far_ip}"),
            RunFar("link add dev0 type gretap local {far_ip} remote {near_ip}"),
        ],
    ),
    kind(
        "vxlan",
        &[
            Run("link add dev0 type vxlan id 5 dstport 4789 local {near_ip} remote {far_ip}"),
            RunFar("link add dev0 type vxlan id 5 dstport 4789 local {far_ip} remote {near_ip}"),
        ],
    ),
    kind(
        "bridge",
        &[
            Run("link add dev0 type bridge"),
            Run("link add port0 type veth peer name dev0 netns {far}"),
            Run("link set port0 master dev0 up"),
        ],
    ),
    Kind {
        limited: "port0",
        ..kind(
            "port of a bridge",
            &[
                Run("link add dev0 type bridge"),
                Run("link add port0 type veth peer name dev0 netns {far}"),
                Run("link set port0 master dev0 up"),
            ],
        )
    },
    kind("bond, active-backup", &ACTIVE_BACKUP),
    kind("bond, balance-rr", &ROUND_ROBIN),
    kind("bond, `vlan+srcmac`", &BY_TAG),
    Kind { limited: "member0", ..kind("member of a bond", &ACTIVE_BACKUP) },
    kind(
        "VLAN",
        &[
            LOW,
            Run("link set low0 up"),
            RunFar("link set low0 up"),
            Run("link add link low0 name dev0 type vlan id 5"),
            RunFar("link add link low0 name dev0 type vlan id 5"),
        ],
    ),
    kind(
        "macvlan",
        &[
            Run("link add low0 type veth peer name dev0 netns {far}"),
            Run("link set low0 up"),
            Run("link add link low0 name dev0 type macvlan mode bridge"),
        ],
    ),
    Kind { far: Far::None, ..kind("dummy", &[Run("link add dev0 type dummy")]) },
];
