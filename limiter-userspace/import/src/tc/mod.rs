//! Policers of `tc filter show`, in text and in JSON.

mod json;
mod police;
mod text;

pub(super) use json::read as read_json;
pub(super) use text::read as read_text;

use super::difference::Difference;
use super::firewall::{Case, Chain, Firewall, Hook, Limit, Rule, Verdict};
use super::packets::{Family, Packets};
use police::Police;

#[derive(Debug)]
enum Action {
    Police(Police),
    Drop,
    Pass,
    /// Something else, with its name.
    Other(String),
}

#[derive(Debug, Default)]
struct Filter {
    place: String,
    text: String,
    packets: Packets,
    actions: Vec<Action>,
    egress: bool,
    /// Number of its chain. Only other filters lead to a chain other than 0.
    chain: u64,
}

/// Makes a chain of filters: the first that matches decides.
fn firewall(filters: Vec<Filter>) -> Firewall {
    let mut firewall = Firewall::default();
    let name = ("tc".to_owned(), "ingress".to_owned());
    let chain = Chain { hook: Some(Hook::Prerouting), ..Chain::default() };
    firewall.chains.insert(name.clone(), chain);
    for filter in filters {
        let Filter { place, text, mut packets, mut actions, egress, chain } = filter;
        if chain != 0 {
            packets.lacks_limit(format!("chain {chain} is for what other filters send there"));
        }
        if egress {
            packets
                .lacks_limit("a filter of what leaves: write a rule with `direction: out` by hand");
        }
        if packets.settle().is_err() {
            packets.lacks("its addresses are of several families");
        }
        if actions.len() > 1 {
            packets.lacks_limit("it has several actions");
        }
        let cases = match actions.pop() {
            None | Some(Action::Pass) => vec![Case::new(packets, Verdict::Accept)],
            Some(Action::Drop) => vec![Case::new(packets, Verdict::Drop)],
            Some(Action::Other(what)) => {
                vec![Case::new(packets, Verdict::Unknown(format!("the action {what}")))]
            }
            Some(Action::Police(police)) => policed(packets, police),
        };
        firewall.push(name.clone(), Rule { place, text, name: None, cases });
    }
    firewall
}

fn is_ingress(parent: &str) -> bool {
    matches!(parent, "ffff:" | "ffff:fff1" | "ffff:fff2")
}

/// A policer drops what is over its rate, and ends the search for packets within it.
fn policed(mut packets: Packets, police: Police) -> Vec<Case> {
    let goes_on = police.goes_on;
    let memory = police.index.map(|index| format!("the policer {index}"));
    let limit = match police.meter() {
        Ok((meter, mut differences)) => {
            differences.push(Difference::Policed(
                "the device is not in this text: run limiter on that one alone, or add `interface`",
            ));
            let key = Vec::new();
            Some(Limit { meter, over: true, key, memory, shared: None, pair: None, differences })
        }
        Err(reason) => {
            packets.lacks_limit(reason);
            None
        }
    };
    let within = if goes_on { Verdict::Continue } else { Verdict::Accept };
    let drop = Case { packets: packets.clone(), limit, verdict: Verdict::Drop, times: Vec::new() };
    vec![drop, Case::new(packets, within)]
}

/// Reads the Ethernet protocol of a filter.
fn ethernet(name: &str, packets: &mut Packets) {
    match name {
        "ip" | "ipv4" => packets.family = Some(Family::V4),
        "ipv6" => packets.family = Some(Family::V6),
        "all" => {}
        name => packets.lacks(format!("packets of the protocol {name} have no limits")),
    }
}

fn flower(key: &str, value: &str, packets: &mut Packets) {
    use super::iptables::{net, protocol_number};
    let mut unread = || packets.lacks(format!("limiter has no condition as {key} {value}"));
    match key {
        "eth_type" => ethernet(value, packets),
        "ip_proto" => match protocol_number(value) {
            Some(number) if number > 0 => packets.protocols = Some(vec![number]),
            _ => unread(),
        },
        "src_ip" => match net(value) {
            Some(net) => packets.sources = Some(vec![net]),
            None => unread(),
        },
        "dst_ip" => match net(value) {
            Some(net) => packets.destinations = Some(vec![net]),
            None => unread(),
        },
        "dst_port" => {
            let digits = value.bytes().all(|byte| byte.is_ascii_digit());
            match value.parse().ok().filter(|_| digits) {
                Some(port) => packets.ports = Some(vec![(port, port)]),
                None => unread(),
            }
        }
        _ => unread(),
    }
}
