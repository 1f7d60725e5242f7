//! Rules by source for iptables, nft and tc, as their manuals have them, at the receiving end of a
//! cable.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use limiter_tests::command;
use limiter_tests::netns::Netns;
use limiter_tests::veth::RECEIVER;

/// A limit by source address: what is over it is dropped.
#[derive(Clone, Copy, Debug)]
pub struct Limit<'a> {
    /// Of the table or set.
    pub name: &'a str,
    /// As both tools write it, such as `2000/second`.
    pub rate: &'a str,
    /// Packets at once.
    pub burst: u32,
    /// Sources that there is room for.
    pub entries: u32,
    /// Packets that the rule is for.
    pub of: Of,
}

/// Packets that a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All packets, whatever they are.
    All,
    /// Those of UDP.
    Udp,
    /// Those to a port of UDP.
    Port(u16),
    /// Those with a differentiated services code point.
    Dscp(u8),
    /// Those with a time to live.
    Ttl(u8),
}

impl Of {
    fn iptables(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Udp => "-p udp".to_owned(),
            Self::Port(port) => format!("-p udp --dport {port}"),
            Self::Dscp(point) => format!("-m dscp --dscp {point}"),
            Self::Ttl(ttl) => format!("-m ttl --ttl-eq {ttl}"),
        }
    }

    fn nft(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Udp => "meta l4proto udp".to_owned(),
            Self::Port(port) => format!("udp dport {port}"),
            Self::Dscp(point) => format!("ip dscp {point}"),
            Self::Ttl(ttl) => format!("ip ttl {ttl}"),
        }
    }
}

/// Hook of nft's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// At ingress of the interface, before the IP stack.
    Ingress,
    /// At egress of the interface, by destination: behind all but what tc does.
    Egress,
    /// In prerouting, at raw priority: before connection tracking and routing.
    Prerouting,
}

/// How long nft keeps an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A minute after the last packet (`update`), as in the examples of nft's wiki.
    Minute,
    /// For good (`add`), which is the least work.
    Always,
}

/// `iptables -m hashlimit` in raw PREROUTING by `program`, with further options; returns the rule
/// as it is listed.
///
/// # Errors
///
/// When it is refused.
pub fn hashlimit(netns: &Netns, program: &str, limit: &Limit<'_>, more: &str) -> Result<String> {
    let Limit { name, rate, burst, entries, of } = limit;
    let rule = format!(
        "-A PREROUTING -i {} {} -m hashlimit --hashlimit-above {rate} --hashlimit-burst {burst} \
         --hashlimit-mode srcip --hashlimit-name {name} --hashlimit-htable-max {entries} \
         --hashlimit-htable-size {entries} {more} -j DROP",
        RECEIVER.interface,
        of.iptables()
    );
    netns.run(program, ["-t", "raw"].into_iter().chain(rule.split_whitespace()))?;
    let listed = netns.run(program, ["-t", "raw", "-S", "PREROUTING"])?;
    let named = format!("--hashlimit-name {name} ");
    let listed = listed.lines().find(|line| line.contains(&named));
    listed.map(|rule| rule.trim().to_owned()).context("iptables does not list its rule")
}

/// `nft limit` in a dynamic set for each limit, in one chain, in this order: the table has the name
/// of the first one. Returns the rules as they are listed.
///
/// # Errors
///
/// When they are refused.
pub fn nft(netns: &Netns, hook: Hook, kept: Kept, limits: &[Limit<'_>]) -> Result<String> {
    let table = limits.first().context("no limit")?.name;
    let device = |chain| format!("hook {chain} device {} priority -500", RECEIVER.interface);
    let (family, chain, place, address) = match hook {
        Hook::Ingress => ("netdev", "ingress", device("ingress"), "saddr"),
        Hook::Egress => ("netdev", "egress", device("egress"), "daddr"),
        Hook::Prerouting => {
            ("ip", "prerouting", "hook prerouting priority raw".to_owned(), "saddr")
        }
    };
    let (statement, timeout, listed_as) = match kept {
        Kept::Minute => ("update", "timeout 1m;", ", timeout 1m"),
        Kept::Always => ("add", "", ""),
    };
    let (mut sets, mut rules) = (String::new(), String::new());
    for Limit { name, rate, burst, entries, of } in limits {
        let of = of.nft();
        writeln!(
            sets,
            "set {name} {{ type ipv4_addr; size {entries}; flags dynamic; {timeout} }}"
        )?;
        writeln!(
            rules,
            "{of} {statement} @{name} {{ ip {address} limit rate over {rate} burst {burst} \
             packets }} drop"
        )?;
    }
    let script = format!(
        "table {family} {table} {{\n{sets}chain {chain} {{\ntype filter {place};\n{rules}}}\n}}\n"
    );
    netns.enter(|| command::feed("nft", &["-f", "-"], &script))??;
    let listed = netns.run("nft", ["list", "chain", family, table, chain])?;
    let each = limits.iter().map(|Limit { name, entries, .. }| {
        let set = format!("@{name} ");
        let rule = listed.lines().find(|line| line.contains(&set));
        let rule = rule.context("nft does not list its rule")?.trim();
        Ok(format!("{rule}, with set size {entries}{listed_as}"))
    });
    Ok(each.collect::<Result<Vec<_>>>()?.join("; "))
}

/// `tc police` for everything in a direction, `ingress` or `egress`: the least rate and burst that
/// it takes, which let a packet of 60 bytes pass each minute. Returns the filter as it was given.
/// It has one bucket, so that many sources need as many filters.
///
/// # Errors
///
/// When it is refused, as by a kernel without `act_police` or `cls_matchall`.
pub fn police(netns: &Netns, interface: &str, direction: &str) -> Result<String> {
    netns.run("tc", ["qdisc", "add", "dev", interface, "clsact"])?;
    let filter = format!(
        "filter add dev {interface} {direction} protocol all pref 1 matchall action police rate \
         8bit burst 64 conform-exceed drop/ok"
    );
    netns.run("tc", filter.split(' '))?;
    Ok(format!("tc {filter}"))
}

/// True if this kernel has what [`police`] takes.
///
/// # Errors
///
/// When no namespace can be made to try it in.
pub fn has_police() -> Result<bool> {
    let netns = Netns::create("police")?;
    Ok(police(&netns, "lo", "ingress").is_ok())
}
