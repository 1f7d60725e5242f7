//! Cards of this machine, moved to the testbed's namespaces and back.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::command;
use crate::netns::Netns;

/// Interfaces of the namespace that sysfs was mounted in: the machine's own.
const CLASS: &str = "/sys/class/net";

/// The driver of a card.
fn driver(interface: &Path) -> Option<String> {
    let link = fs::read_link(interface.join("device/driver")).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

/// Moves two cards of a driver to namespaces, as `dev0`. False where there are no two: those of an
/// ordinary machine, with addresses, are not taken.
pub(super) fn taken(wanted: &str, to: [&Netns; 2]) -> Result<bool> {
    if std::env::var_os("LIMITER_VM_SERIAL").is_none() {
        // Only an emulated machine's cards are for tests.
        return Ok(false);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(CLASS).context(CLASS)? {
        let path = entry?.path();
        if driver(&path).as_deref() == Some(wanted) {
            let name = path.file_name().context("no name")?.to_string_lossy().into_owned();
            found.push(name);
        }
    }
    found.sort();
    let [one, other] = &*found else { return Ok(false) };
    for (name, netns) in [one, other].into_iter().zip(to) {
        command::run("ip", ["link", "set", name, "down"])?;
        command::run("ip", ["link", "set", name, "netns", netns.name(), "name", "dev0"])?;
    }
    Ok(true)
}

/// True of a card: every other interface but the loopback has a kind.
pub(super) fn is_one(link: &Value) -> bool {
    link["link_type"] == "ether" && link["linkinfo"]["info_kind"].is_null()
}

/// Moves a card back to the machine's own namespace.
pub(super) fn give_back(netns: &Netns, link: &Value) -> Result<()> {
    let name = link["ifname"].as_str().context("no name")?;
    netns.ip(["link", "set", name, "down"])?;
    // Both ends may have had one name. Process 1 is in the machine's own namespace.
    let back = format!("card{}", link["ifindex"]);
    netns.ip(["link", "set", name, "netns", "1", "name", &back])?;
    Ok(())
}
