//! Devices of every kind that Linux has in software, between the testbed's namespaces, and traffic
//! through them.

mod kinds;
mod limited;
mod netkit;
mod traffic;

use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

pub use self::kinds::KINDS;
pub use self::limited::{QUOTA, is_limited, wait_until_forgotten, wanted};
pub use self::traffic::{Carried, Load, both_ways, carried};

use serde_json::Value;

use crate::netns::Netns;
use crate::testbed::Testbed;
use crate::tun::{self, Layer};
use crate::veth::{RECEIVER, SENDER};

/// Address of the limited end of every device.
pub const NEAR: [u8; 4] = [198, 51, 100, 254];

/// How long a device may take until its first packet gets through: a bond looks at its members, a
/// bridge at its ports.
const WORKS_WITHIN: Duration = Duration::from_mins(1);

/// A kind of device.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in the table.
    pub row: &'static str,
    /// What makes both ends, before they have addresses.
    pub steps: &'static [Step],
    /// The interface to limit, which is not the one with the address, `dev0`, for a port or a
    /// member.
    pub limited: &'static str,
    /// What is at the other end.
    pub far: Far,
}

/// The other end of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Far {
    /// A device `dev0` in the sender's namespace.
    Device,
    /// Nothing: what goes out is gone, and nothing comes in.
    None,
}

/// A step towards a device. In commands `{far}` is the other namespace, and `{near_ip}` and
/// `{far_ip}` are addresses of the cable below a tunnel.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Arguments of `ip` in the namespace of the limited end.
    Run(&'static str),
    /// The same in the other one.
    RunFar(&'static str),
    /// A netkit pair. `ip` of iproute2 before 6.7 cannot ask for a mode.
    Netkit {
        /// With Ethernet headers.
        layer_2: bool,
        /// The limited end is the one that a container would have.
        limited_is_peer: bool,
    },
    /// A tun or tap at each end, and two threads between them.
    Tuntap {
        /// With Ethernet headers.
        tap: bool,
    },
    /// A tunnel over the cable.
    WireGuard,
}

/// Makes a device between the namespaces of a testbed, with [`NEAR`] and another address, of which
/// the interface to limit gets its name last, once both ends are there. False where the kernel has
/// no such kind, which is the only thing not to fail.
///
/// # Errors
///
/// When a step fails for another reason.
pub fn made(bed: &Testbed, kind: &Kind, name: &str, far: Ipv4Addr) -> Result<bool> {
    for step in kind.steps {
        if !taken(bed, *step).with_context(|| format!("{}: {step:?}", kind.row))? {
            return Ok(false);
        }
    }
    bed.receiver.ip(["link", "set", kind.limited, "down"])?;
    bed.receiver.ip(["link", "set", kind.limited, "name", name])?;
    bed.receiver.ip(["link", "set", name, "up"])?;
    let addressed = if kind.limited == "dev0" { name } else { "dev0" };
    let mut ends = vec![(&bed.receiver, addressed, Ipv4Addr::from(NEAR))];
    if kind.far != Far::None {
        ends.push((&bed.sender, "dev0", far));
    }
    for (netns, interface, address) in ends {
        netns.ip(["address", "add", &format!("{address}/24"), "dev", interface])?;
        netns.ip(["link", "set", interface, "up"])?;
    }
    Ok(true)
}

/// Removes every device that [`made`] may have left, but the testbed's cable.
///
/// # Errors
///
/// When the interfaces cannot be listed.
pub fn removed(bed: &Testbed) -> Result<()> {
    for (netns, cable) in [(&bed.receiver, RECEIVER.interface), (&bed.sender, SENDER.interface)] {
        for link in links(netns)? {
            let name = link["ifname"].as_str().context("no name")?;
            if name == "lo" || name == cable {
                continue;
            }
            // Some are gone with another one, and some belong to the kernel.
            let delete = ["-n", netns.name(), "link", "delete", name];
            drop(netns.output(Command::new("ip").args(delete))?);
        }
    }
    Ok(())
}

fn links(netns: &Netns) -> Result<Vec<Value>> {
    let text = netns.ip(["-json", "-details", "link"])?;
    serde_json::from_str(&text).context("`ip -json link`: not JSON")
}

/// Waits until a ping is answered through the device.
///
/// # Errors
///
/// When none is for a minute.
pub fn wait_until_it_works(bed: &Testbed, far: Ipv4Addr) -> Result<()> {
    let deadline = Instant::now() + WORKS_WITHIN;
    loop {
        let ping = ["-n", "-c", "1", "-W", "1", &far.to_string()];
        let output = bed.receiver.output(Command::new("ping").args(ping))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(Instant::now() < deadline, "nothing gets through the device: {said}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// True if a step was taken; false where the kernel has no such kind of device.
fn taken(bed: &Testbed, step: Step) -> Result<bool> {
    match step {
        Step::Run(line) => typed(bed, &bed.receiver, line),
        Step::RunFar(line) => typed(bed, &bed.sender, line),
        Step::Netkit { layer_2, limited_is_peer } => {
            let (primary, peer) = if limited_is_peer {
                (&bed.sender, &bed.receiver)
            } else {
                (&bed.receiver, &bed.sender)
            };
            netkit::made(primary, peer, layer_2)
        }
        Step::Tuntap { tap } => {
            let layer = if tap { Layer::Two } else { Layer::Three };
            tun::joined((&bed.receiver, "dev0"), (&bed.sender, "dev0"), layer)
        }
        Step::WireGuard => wireguard(bed),
    }
}

fn typed(bed: &Testbed, netns: &Netns, line: &str) -> Result<bool> {
    let line = line
        .replace("{far}", bed.sender.name())
        .replace("{near_ip}", &RECEIVER.ipv4.to_string())
        .replace("{far_ip}", &SENDER.ipv4.to_string());
    let words = ["-n", netns.name()].into_iter().chain(line.split(' '));
    let output = netns.output(Command::new("ip").args(words))?;
    if output.status.success() {
        return Ok(true);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("Unknown device type") {
        return Ok(false);
    }
    bail!("`ip {line}`: {}", said.trim())
}

/// A tunnel whose ends have keys of their own.
fn wireguard(bed: &Testbed) -> Result<bool> {
    let ends = [(&bed.receiver, RECEIVER.ipv4), (&bed.sender, SENDER.ipv4)];
    let mut keys = Vec::new();
    for (place, (netns, _)) in ends.iter().enumerate() {
        if !typed(bed, netns, "link add dev0 type wireguard")? {
            return Ok(false);
        }
        let private = netns.run("wg", ["genkey"])?;
        let file = bed.dir.write(&format!("key{place}"), &private)?;
        let file = file.to_str().context("the path is not UTF-8")?;
        netns.run("wg", ["set", "dev0", "private-key", file, "listen-port", "51820"])?;
        keys.push(netns.run("wg", ["show", "dev0", "public-key"])?.trim().to_owned());
    }
    for ((netns, _), ((_, address), key)) in ends.iter().zip(ends.iter().zip(&keys).rev()) {
        let endpoint = format!("{address}:51820");
        let peer = ["set", "dev0", "peer", key, "endpoint", &endpoint, "allowed-ips", "0.0.0.0/0"];
        netns.run("wg", peer)?;
    }
    Ok(true)
}
