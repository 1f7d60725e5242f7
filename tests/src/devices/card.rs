//! Cards of this machine, moved to the testbed's namespaces and back.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
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

/// True in an emulated machine that has cards for tests: those of another one are left alone.
pub fn are_there() -> bool {
    std::env::var_os("LIMITER_VM_CARDS").is_some()
}

/// Moves two cards of a driver to namespaces, as `dev0`. False where there are no two.
pub(super) fn taken(wanted: &str, to: [&Netns; 2]) -> Result<bool> {
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

/// The address of a card on its bus, `0000:00:02.0`.
///
/// # Errors
///
/// When `ethtool` does not say it.
pub fn place(netns: &Netns, interface: &str) -> Result<String> {
    let text = netns.run("ethtool", ["-i", interface])?;
    let place = text.lines().find_map(|line| line.strip_prefix("bus-info: "));
    Ok(place.context("`ethtool -i` has no bus-info")?.to_owned())
}

/// Takes a card away from its driver and gives it back, by sysfs: the interface goes, and another
/// one comes, which is moved to the namespace under the old name.
///
/// # Errors
///
/// When the driver does not take it again within half a minute.
pub fn bound_again(netns: &Netns, interface: &str) -> Result<()> {
    let place = place(netns, interface)?;
    let device = Path::new("/sys/bus/pci/devices").join(&place);
    let driver = fs::canonicalize(device.join("driver")).context("no driver")?;
    for change in ["unbind", "bind"] {
        fs::write(driver.join(change), &place).with_context(|| format!("{change} {place}"))?;
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    let name = loop {
        if let Some(name) = name_of(&device)? {
            break name;
        }
        ensure!(Instant::now() < deadline, "{place} has no interface again");
        thread::sleep(Duration::from_millis(50));
    };
    command::run("ip", ["link", "set", &name, "netns", netns.name(), "name", interface])?;
    Ok(())
}

/// The interface of a device: right below it, or below the virtio device in it.
fn name_of(device: &Path) -> Result<Option<String>> {
    let mut places = vec![device.to_owned()];
    for entry in fs::read_dir(device)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("virtio")) {
            places.push(path);
        }
    }
    for place in places {
        if let Ok(mut entries) = fs::read_dir(place.join("net"))
            && let Some(entry) = entries.next()
        {
            return Ok(Some(entry?.file_name().to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}
