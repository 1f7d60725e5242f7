//! By which of its queues a card receives and sends.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Card;
use crate::netns::Netns;

/// True if a card has one queue for a direction, and none besides.
///
/// # Errors
///
/// When `ip` does not say how many it has.
pub fn is_one(netns: &Netns, interface: &str, is_out: bool) -> Result<bool> {
    let link = netns.link(interface)?;
    let count = &link[if is_out { "num_tx_queues" } else { "num_rx_queues" }];
    Ok(count.as_u64().context("no number of queues")? == 1)
}

/// What each queue has done so far. On the way out: the packets of its qdisc. On the way in: those
/// that the driver counts, or the interrupts of the queue where it counts none, as `virtio_net`
/// does since Linux 6.10.
///
/// # Errors
///
/// Without `tc` or `ethtool`, or where nothing is counted.
pub fn used(
    netns: &Netns,
    (card, interface): (&Card, &str),
    is_out: bool,
) -> Result<BTreeMap<u32, u64>> {
    if is_out {
        let qdiscs =
            netns.run("tc", ["-statistics", "-json", "qdisc", "show", "dev", interface])?;
        return Ok(sent(&serde_json::from_str(&qdiscs).context("`tc -json`: not JSON")?));
    }
    let statistics = netns.run("ethtool", ["-S", interface])?;
    let packets = packets(&statistics);
    if !packets.is_empty() {
        return Ok(packets);
    }
    let all = fs::read_to_string("/proc/interrupts").context("/proc/interrupts")?;
    let interrupts = interrupts(&all, &format!("{}-input.", card.device_name()?));
    ensure!(!interrupts.is_empty(), "nobody counts what each queue does: {statistics}{all}");
    Ok(interrupts)
}

/// The children of `mq`, which are numbered from 1, in hexadecimal digits.
fn sent(qdiscs: &Value) -> BTreeMap<u32, u64> {
    let of_queue = |qdisc: &Value| {
        // That of clsact is in another place.
        let minor = qdisc["parent"].as_str()?.strip_prefix(':')?;
        Some((u32::from_str_radix(minor, 16).ok()?.checked_sub(1)?, qdisc["packets"].as_u64()?))
    };
    qdiscs.as_array().into_iter().flatten().filter_map(of_queue).collect()
}

/// Of lines as `24:   0   7   PCI-MSIX-0000:00:01.0   1-edge   virtio0-input.0`: the sums.
fn interrupts(all: &str, name: &str) -> BTreeMap<u32, u64> {
    let of_line = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let queue = rest.split_whitespace().last()?.strip_prefix(name)?.parse().ok()?;
        Some((queue, rest.split_whitespace().map_while(|word| word.parse::<u64>().ok()).sum()))
    };
    all.lines().filter_map(of_line).collect()
}

/// Of lines as `rx_queue_0_packets: 5` and `rx0_packets: 5`, or as vmxnet3 has them: `Rx Queue#: 0`
/// and, below it, `ucast pkts rx: 5`.
fn packets(statistics: &str) -> BTreeMap<u32, u64> {
    let mut found = BTreeMap::new();
    let mut heading = None;
    for line in statistics.lines() {
        let Some((name, value)) = line.trim().rsplit_once(": ") else { continue };
        let Ok(value) = value.trim().parse::<u64>() else { continue };
        if name == "Rx Queue#" {
            heading = u32::try_from(value).ok();
        } else if let (Some(queue), "ucast pkts rx") = (heading, name) {
            found.insert(queue, value);
        } else if let Some(queue) = queue_of(name) {
            found.insert(queue, value);
        }
    }
    found
}

fn queue_of(name: &str) -> Option<u32> {
    let queue = name.strip_prefix("rx")?.strip_suffix("_packets")?;
    queue.strip_prefix("_queue_").unwrap_or(queue).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_queues_are_found_whatever_the_driver_calls_them() {
        let virtio = "NIC statistics:\n     rx_queue_0_packets: 5\n     rx_queue_0_bytes: 9\n     \
                      rx_queue_1_packets: 6\n     tx_queue_0_packets: 7\n";
        assert_eq!(packets(virtio), [(0, 5), (1, 6)].into());
        assert_eq!(packets("     rx3_packets: 2\n     rx_packets: 9\n"), [(3, 2)].into());
        let vmxnet3 = "     Tx Queue#: 0\n       ucast pkts tx: 3\n     Rx Queue#: 0\n       \
                       ucast pkts rx: 4\n     Rx Queue#: 1\n       ucast pkts rx: 0\n";
        assert_eq!(packets(vmxnet3), [(0, 4), (1, 0)].into());
        assert_eq!(packets("     rx0_drops: 1\n     rx0_xdp_packets: 3\n"), [].into());
    }

    #[test]
    fn a_queue_that_sends_has_a_qdisc() {
        let qdiscs = serde_json::json!([
            {"kind": "mq", "handle": "0:", "root": true, "packets": 9},
            {"kind": "pfifo_fast", "handle": "0:", "parent": ":b", "packets": 5},
            {"kind": "pfifo_fast", "handle": "0:", "parent": ":1", "packets": 4},
            {"kind": "clsact", "handle": "ffff:", "parent": "ffff:fff1", "packets": 3},
        ]);
        assert_eq!(sent(&qdiscs), [(0, 4), (10, 5)].into());
    }

    #[test]
    fn interrupts_are_those_of_the_card_and_the_direction() {
        let all = "           CPU0       CPU1\n  0:          9          0   IO-APIC  2-edge  timer\n \
                   24:  0  0  PCI-MSIX-0000:00:01.0  0-edge  virtio1-config\n \
                   25:  3  4  PCI-MSIX-0000:00:01.0  1-edge  virtio1-input.0\n \
                   26:  1  0  PCI-MSIX-0000:00:01.0  2-edge  virtio1-output.0\n \
                   27:  0  8  PCI-MSIX-0000:00:01.0  3-edge  virtio1-input.1\n \
                   28:  5  0  PCI-MSIX-0000:00:02.0  1-edge  virtio11-input.0\nERR:  0\n";
        assert_eq!(interrupts(all, "virtio1-input."), [(0, 7), (1, 8)].into());
        assert_eq!(interrupts(all, "virtio2-input."), [].into());
    }
}
