//! Other parts of the machine: docker, connection tracking, the clock.

use std::path::Path;
use std::{fs, io};

use limiter_datapath::machine::Link;

use super::finding::Finding;

/// Sources of time that take a microsecond or more to read, for each packet.
const SLOW: [&str; 4] = ["acpi_pm", "hpet", "jiffies", "refined-jiffies"];

/// Part of the room for connections from which on there is something to say, in percent.
const NEARLY_FULL: u64 = 80;

/// Judges whether docker is in the way.
pub(super) fn docker(links: &[Link]) -> Finding {
    let check = "docker";
    let bridges: Vec<&str> =
        links.iter().filter(|link| is_of_docker(link)).map(|link| link.name.as_str()).collect();
    if bridges.is_empty() {
        return Finding::ok(check, "no bridge of docker is here");
    }
    Finding::note(
        check,
        format!(
            "containers are behind {}: packets from outside are judged on the interface that they \
             come in by, with the ports from before docker changes them",
            bridges.join(", ")
        ),
    )
    .remedy("limit that interface, and write rules for the published ports")
}

/// True for the bridges that docker makes: `docker0`, and `br-` with twelve digits of their id.
fn is_of_docker(link: &Link) -> bool {
    let is_id = |id: &str| id.len() == 12 && id.chars().all(|c| c.is_ascii_hexdigit());
    link.is("bridge")
        && (link.name == "docker0" || link.name.strip_prefix("br-").is_some_and(is_id))
}

/// Connections that the kernel tracks, and those that it has room for.
pub(super) fn tracked() -> Option<(u64, u64)> {
    let read = |name: &str| {
        let text = fs::read_to_string(Path::new("/proc/sys/net/netfilter").join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    Some((read("nf_conntrack_count")?, read("nf_conntrack_max")?))
}

/// Judges the room for connections.
pub(super) fn conntrack(tracked: Option<(u64, u64)>) -> Finding {
    let check = "conntrack";
    match tracked {
        None => Finding::ok(check, "connections are not tracked here"),
        // Without a maximum there is no bound.
        Some((count, most))
            if most == 0 || count.saturating_mul(100) < most.saturating_mul(NEARLY_FULL) =>
        {
            Finding::ok(check, format!("{count} of {most} connections are tracked"))
        }
        Some((count, most)) => Finding::warning(
            check,
            format!(
                "{count} of {most} connections are tracked: new ones are dropped when it is full, \
                 and not by limiter"
            ),
        )
        .remedy("make more room, or limit new connections: rules with `count: syns`")
        .command(format!("sysctl -w net.netfilter.nf_conntrack_max={}", most.saturating_mul(2))),
    }
}

/// The kernel's source of time, and all that there are.
pub(super) fn clocks() -> Option<(String, String)> {
    let read = |name: &str| {
        let directory = Path::new("/sys/devices/system/clocksource/clocksource0");
        Some(fs::read_to_string(directory.join(name)).ok()?.trim().to_owned())
    };
    Some((read("current_clocksource")?, read("available_clocksource")?))
}

/// Judges the source of time, which the program reads for most packets.
pub(super) fn clock(clocks: Option<(String, String)>) -> Finding {
    let check = "clock";
    let Some((current, available)) = clocks else {
        return Finding::unknown(check, "which source of time the kernel uses");
    };
    if !SLOW.contains(&current.as_str()) {
        return Finding::ok(check, format!("the kernel's source of time is {current}"));
    }
    let seen = format!("the kernel's source of time is {current}: slow to read, once a packet");
    let finding = Finding::warning(check, seen);
    match available.split_whitespace().find(|name| !SLOW.contains(name)) {
        Some(better) => finding.remedy("take a faster one").command(format!(
            "echo {better} > /sys/devices/system/clocksource/clocksource0/current_clocksource"
        )),
        None => finding.remedy("the kernel offers no faster one"),
    }
}

/// Judges the clock of this process, beside the kernel's.
pub(super) fn time_namespace(ahead: &io::Result<i64>) -> Finding {
    let check = "time-namespace";
    match ahead {
        Ok(0) => Finding::ok(check, "this process has the kernel's clock"),
        Ok(nanos) => Finding::note(
            check,
            format!(
                "this is a time namespace, whose clock is {} s from the kernel's: limiter takes \
                 the kernel's",
                nanos / 1_000_000_000
            ),
        ),
        Err(error) => Finding::unknown(
            check,
            format!(
                "whether this is a time namespace: /proc/self/timens_offsets: {error}; in one, \
                 trials, bans and entries for a time end at other times than they should"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::tests::link;
    use super::*;

    #[test]
    fn docker_is_known_by_its_bridges() {
        let one = |name: &str, kind: &str| docker(&[link(1, name, Some(kind))]);
        assert_eq!(one("docker0", "bridge").level, Level::Note);
        assert!(one("br-0123456789ab", "bridge").seen.contains("br-0123456789ab"));
        for (name, kind) in [("docker0", "veth"), ("br-lan", "bridge"), ("br0", "bridge")] {
            assert_eq!(one(name, kind).level, Level::Ok, "{name}");
        }
    }

    #[test]
    fn connections_may_fill_their_room() {
        assert_eq!(conntrack(None).level, Level::Ok);
        assert_eq!(conntrack(Some((79, 100))).level, Level::Ok);
        assert_eq!(conntrack(Some((5, 0))).level, Level::Ok);
        assert_eq!(conntrack(Some((0, 50))).level, Level::Ok);
        let full = conntrack(Some((80, 100)));
        assert_eq!(full.level, Level::Warning);
        assert_eq!(full.command.unwrap(), "sysctl -w net.netfilter.nf_conntrack_max=200");
    }

    #[test]
    fn a_slow_source_of_time_is_named_with_a_faster_one() {
        let of = |current: &str, all: &str| clock(Some((current.to_owned(), all.to_owned())));
        assert_eq!(of("tsc", "tsc kvm-clock").level, Level::Ok);
        let slow = of("hpet", "hpet acpi_pm tsc");
        assert_eq!(slow.level, Level::Warning);
        assert!(slow.command.unwrap().starts_with("echo tsc > "));
        assert_eq!(of("hpet", "hpet acpi_pm").command, None);
        assert_eq!(clock(None).level, Level::Unknown);
    }

    #[test]
    fn a_time_namespace_is_reported_in_both_directions() {
        assert_eq!(time_namespace(&Ok(0)).level, Level::Ok);
        for ahead in [1_000_000_000_000_000, -1_000_000_000_000] {
            let found = time_namespace(&Ok(ahead));
            let seconds = (ahead / 1_000_000_000).to_string();
            assert!(found.level == Level::Note && found.seen.contains(&seconds), "{}", found.seen);
        }
        let unseen = time_namespace(&Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(unseen.level, Level::Unknown);
    }
}
