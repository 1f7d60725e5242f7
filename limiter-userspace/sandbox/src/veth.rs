//! A virtual cable between two namespaces that carries only the frames of a test.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::netns::Netns;

/// The sending end of the cable.
pub const SENDER: End = End {
    interface: "send0",
    mac: [2, 0, 0, 0, 0, 1],
    ipv4: Ipv4Addr::new(192, 0, 2, 1),
    ipv6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x1),
};

/// The receiving end, where the limiter sits.
pub const RECEIVER: End = End {
    interface: "recv0",
    mac: [2, 0, 0, 0, 0, 2],
    ipv4: Ipv4Addr::new(192, 0, 2, 254),
    ipv6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe),
};

/// Much longer than the kernel needs to report a carrier, also on a busy machine.
const CARRIER_WITHIN: Duration = Duration::from_secs(30);

/// An Ethernet address.
pub type Mac = [u8; 6];

/// One end of the cable. The addresses are from the documentation prefixes (RFC 5737, RFC 3849).
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Interface name, inside its namespace.
    pub interface: &'static str,
    /// Hardware address.
    pub mac: Mac,
    /// Address in 192.0.2.0/24.
    pub ipv4: Ipv4Addr,
    /// Address in `2001:db8::/64`.
    pub ipv6: Ipv6Addr,
}

/// Lays a cable between a new interface of one namespace and one of another, or of the same. Both
/// are [silent](Netns::silence), and up at return. The cable ends with either interface.
///
/// # Errors
///
/// When an `ip` command fails or the carrier is not up within half a minute.
pub fn lay((near, one): (&Netns, &str), (far, other): (&Netns, &str)) -> Result<()> {
    add((near, one), (far, other))?;
    up([(near, one), (far, other)])
}

/// Connects the two namespaces by a cable that is up at return.
///
/// The cable is [silent](Netns::silence), and neighbours are static, so that no ARP, discovery or
/// multicast traffic mixes with the counted frames. The receiver routes every source back and does
/// not check reverse paths, so spoofed sources reach its stack. The pair ends with its namespaces.
///
/// # Errors
///
/// As [`lay`].
pub fn connect(sender: &Netns, receiver: &Netns) -> Result<()> {
    connect_as(sender, receiver, &RECEIVER)
}

/// As [`connect`], with another receiving end than [`RECEIVER`].
///
/// # Errors
///
/// As [`connect`].
pub fn connect_as(sender: &Netns, receiver: &Netns, end: &End) -> Result<()> {
    let ends = [(sender, SENDER.interface), (receiver, end.interface)];
    add(ends[0], ends[1])?;
    address(sender, &SENDER)?;
    address(receiver, end)?;
    up(ends)?;
    introduce(sender, &SENDER, end)?;
    introduce(receiver, end, &SENDER)?;
    for (family, via) in [("-4", IpAddr::from(SENDER.ipv4)), ("-6", IpAddr::from(SENDER.ipv6))] {
        let route = ["route", "add", "default", "via", &via.to_string(), "dev", end.interface];
        receiver.ip([family].into_iter().chain(route))?;
    }
    Ok(())
}

/// Gives the sending end one more address, such as `198.51.100.7/32`, for tools to send from.
///
/// # Errors
///
/// When the address cannot be added.
pub fn add_source(sender: &Netns, address: &str) -> Result<()> {
    if address.contains(':') {
        sender.ip(["address", "add", address, "dev", SENDER.interface, "nodad"])?;
    } else {
        sender.ip(["address", "add", address, "dev", SENDER.interface])?;
    }
    Ok(())
}

/// [`add_source`] of an address which the receiving end `interface` can answer, too: no ARP mixes
/// with what is counted.
///
/// # Errors
///
/// When the address cannot be added.
pub fn add_peer(
    sender: &Netns,
    (receiver, interface): (&Netns, &str),
    address: &str,
) -> Result<()> {
    add_source(sender, address)?;
    let address = address.split('/').next().unwrap_or(address);
    let mac = mac_text(SENDER.mac);
    let to = ["lladdr", &mac, "dev", interface, "nud", "permanent"];
    receiver.ip(["neighbour", "replace", address].into_iter().chain(to))?;
    Ok(())
}

/// Switches segmentation and checksum offloads off at both ends, so that one packet of a tool is
/// one frame on the wire. The sandbox's own generator sends finished frames and does not need it.
///
/// # Errors
///
/// Without `ethtool`.
pub fn offloads_off(sender: &Netns, receiver: &Netns) -> Result<()> {
    for (netns, end) in [(sender, &SENDER), (receiver, &RECEIVER)] {
        let off = ["gso", "off", "tso", "off", "gro", "off", "tx", "off", "rx", "off"];
        netns.run("ethtool", ["-K", end.interface].into_iter().chain(off))?;
    }
    Ok(())
}

/// Makes a cable whose ends are still down.
fn add((near, one): (&Netns, &str), (far, other): (&Netns, &str)) -> Result<()> {
    near.ip(["link", "add", one, "type", "veth", "peer", "name", other, "netns", far.name()])?;
    near.silence(one)?;
    far.silence(other)
}

fn up(ends: [(&Netns, &str); 2]) -> Result<()> {
    for (netns, interface) in ends {
        netns.ip(["link", "set", interface, "up"])?;
    }
    ends.into_iter().try_for_each(|(netns, interface)| wait_for_carrier(netns, interface))
}

/// Sets the end's own addresses; packets may come from any address.
fn address(netns: &Netns, own: &End) -> Result<()> {
    let interface = own.interface;
    for scope in ["all", "default", interface] {
        netns.sysctl(&format!("ipv4/conf/{scope}/rp_filter"), "0")?;
    }
    netns.ip(["link", "set", interface, "address", &mac_text(own.mac)])?;
    netns.ip(["address", "add", &format!("{}/24", own.ipv4), "dev", interface])?;
    netns.ip(["address", "add", &format!("{}/64", own.ipv6), "dev", interface, "nodad"])?;
    Ok(())
}

/// Tells an end the hardware address of the other end.
fn introduce(netns: &Netns, own: &End, peer: &End) -> Result<()> {
    for address in [IpAddr::from(peer.ipv4), IpAddr::from(peer.ipv6)] {
        let (address, mac) = (address.to_string(), mac_text(peer.mac));
        let entry = ["lladdr", &mac, "dev", own.interface, "nud", "permanent"];
        netns.ip(["neighbour", "replace", &address].into_iter().chain(entry))?;
    }
    Ok(())
}

fn mac_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn wait_for_carrier(netns: &Netns, interface: &str) -> Result<()> {
    let deadline = Instant::now() + CARRIER_WITHIN;
    while netns.link(interface)?["operstate"] != "UP" {
        let name = netns.name();
        ensure!(
            Instant::now() < deadline,
            "{interface} in {name} has no carrier after {CARRIER_WITHIN:?}"
        );
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
