//! The right interface to limit: bridges, bonds, VLANs, tunnels.

use limiter_datapath::machine::Link;

use super::finding::Finding;

/// Judges the place of an interface among the others. A wrong place is more than a note only if the
/// interface was asked for.
pub(super) fn device(link: &Link, links: &[Link], asked: bool) -> Finding {
    let check = "device";
    let name = &link.name;
    let wrong = |seen: String| {
        if asked { Finding::warning(check, seen) } else { Finding::note(check, seen) }
    };
    let at = |index: u32| links.iter().find(|other| other.index == index);
    let over = link.controller.and_then(at);
    let below = link.below.filter(|below| below.is_here).and_then(|below| at(below.index));
    let finding = match (link.kind.as_deref(), over) {
        (Some("bridge"), _) => {
            let ports = links.iter().filter(|port| port.controller == Some(link.index));
            let ports: Vec<&str> = ports.map(|port| port.name.as_str()).collect();
            let seen = wrong(format!(
                "{name} is a bridge: only what is for this machine is limited there, in generic \
                 mode, and not what goes from port to port"
            ));
            if ports.is_empty() {
                seen.remedy("limit its ports, once it has some")
            } else {
                let options: Vec<String> =
                    ports.iter().map(|port| format!("--iface {port}")).collect();
                seen.remedy("limit its ports, those on which strangers are")
                    .command(format!("limiter run {} --rules FILE", options.join(" ")))
            }
        }
        (_, Some(over)) if over.is("bridge") => Finding::ok(
            check,
            format!("a port of the bridge {}: also what it forwards is limited", over.name),
        ),
        (_, Some(over)) if over.is("bond") => wrong(format!(
            "{name} is a member of {}: what comes by the other members is not limited",
            over.name
        ))
        .remedy(format!("limit {}", over.name))
        .command(format!("limiter run --iface {} --rules FILE", over.name)),
        (Some("vlan"), _) => {
            let seen = format!("{name} is a VLAN of another interface, which takes the tag off");
            match below {
                Some(below) => wrong(seen)
                    .remedy(format!(
                        "limit {} with rules that have the key `vlan`: in native mode, and all \
                         its VLANs at once",
                        below.name
                    ))
                    .command(format!("limiter run --iface {} --rules FILE", below.name)),
                None => wrong(seen).remedy("limit the interface below, by the key `vlan`"),
            }
        }
        (Some("dummy"), _) => wrong(format!(
            "nothing comes in by {name}, which is a dummy: packets to its addresses come in by \
             other interfaces"
        ))
        .remedy("limit those interfaces; here only what goes out can be limited"),
        (Some("macvlan"), _) => match below {
            Some(below) => Finding::ok(
                check,
                format!(
                    "a macvlan of {}: limited there, all its macvlans share a limit",
                    below.name
                ),
            ),
            None => Finding::ok(check, "a macvlan: only its own packets are limited"),
        },
        (Some("wireguard" | "vxlan" | "gretap" | "tun"), _) => Finding::ok(
            check,
            format!(
                "sources are those inside the tunnel {name}; on the interface that carries the \
                 tunnel, WireGuard's other end is one source"
            ),
        ),
        _ => Finding::ok(check, "no bridge, bond or VLAN is in the way"),
    };
    finding.on(name)
}
