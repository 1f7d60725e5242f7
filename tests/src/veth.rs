//! A virtual cable between two namespaces, quiet enough for counting packets on it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::netns::Netns;
use crate::packet::Mac;

/// The sending end.
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

const A_WEEK_IN_MS: &str = "604800000";

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

/// Connects the two namespaces by a veth pair that is up at return.
///
/// Neighbours are static and IPv6 link-local addresses are off, so no ARP, discovery or multicast
/// traffic mixes with what is counted. The receiver routes every source back and does not check
/// reverse paths, so spoofed sources reach its stack. The pair ends with its namespaces.
///
/// # Errors
///
/// When an `ip` command fails or the carrier is not up within five seconds.
pub fn connect(sender: &Netns, receiver: &Netns) -> Result<()> {
    connect_as(sender, receiver, &RECEIVER)
}

/// [`connect`], with another receiving end than [`RECEIVER`].
///
/// # Errors
///
/// As [`connect`].
pub fn connect_as(sender: &Netns, receiver: &Netns, end: &End) -> Result<()> {
    sender.ip([
        "link",
        "add",
        SENDER.interface,
        "type",
        "veth",
        "peer",
        "name",
        end.interface,
        "netns",
        receiver.name(),
    ])?;
    set_up(sender, &SENDER, end)?;
    set_up(receiver, end, &SENDER)?;
    wait_for_carrier(sender, &SENDER)?;
    wait_for_carrier(receiver, end)?;
    for (family, via) in [("-4", IpAddr::from(SENDER.ipv4)), ("-6", IpAddr::from(SENDER.ipv6))] {
        receiver.ip([
            family,
            "route",
            "add",
            "default",
            "via",
            &via.to_string(),
            "dev",
            end.interface,
        ])?;
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

/// Switches segmentation and checksum offloads off at both ends, so that one packet of a tool is
/// one frame on the wire. The own generator sends finished frames and does not need it.
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

fn set_up(netns: &Netns, own: &End, peer: &End) -> Result<()> {
    let interface = own.interface;
    for scope in ["all", "default", interface] {
        netns.sysctl(&format!("ipv4/conf/{scope}/rp_filter"), "0")?;
        netns.sysctl(&format!("ipv6/conf/{scope}/accept_ra"), "0")?;
        netns.sysctl(&format!("ipv6/conf/{scope}/router_solicitations"), "0")?;
        // Multicast listener reports are repeated after a random part of this.
        for interval in ["mldv1_unsolicited_report_interval", "mldv2_unsolicited_report_interval"] {
            netns.sysctl(&format!("ipv6/conf/{scope}/{interval}"), A_WEEK_IN_MS)?;
        }
    }
    netns.ip(["link", "set", interface, "address", &mac_text(own.mac), "addrgenmode", "none"])?;
    netns.ip(["address", "add", &format!("{}/24", own.ipv4), "dev", interface])?;
    netns.ip(["address", "add", &format!("{}/64", own.ipv6), "dev", interface, "nodad"])?;
    netns.ip(["link", "set", interface, "up"])?;
    for address in [IpAddr::from(peer.ipv4), IpAddr::from(peer.ipv6)] {
        let address = address.to_string();
        let mac = mac_text(peer.mac);
        netns.ip([
            "neighbour",
            "replace",
            &address,
            "lladdr",
            &mac,
            "dev",
            interface,
            "nud",
            "permanent",
        ])?;
    }
    Ok(())
}

fn mac_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn wait_for_carrier(netns: &Netns, end: &End) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while netns.link(end.interface)?["operstate"] != "UP" {
        ensure!(
            Instant::now() < deadline,
            "{} in {} has no carrier after five seconds",
            end.interface,
            netns.name()
        );
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
