//! Conditions of random rules, in either language.

use fastrand::Rng;

/// Languages of rule sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Iptables,
    Nft,
}

/// Sources that rules name.
const NETS: [&str; 3] = ["10.1.0.0/16", "10.1.2.3", "203.0.113.0/24"];
/// Destination ports that rules and packets have.
pub(super) const PORTS: [u16; 5] = [22, 80, 81, 443, 8080];
/// Addresses of the machine, and of one behind it.
pub(super) const HERE: &str = "192.0.2.254";
pub(super) const BEHIND: &str = "10.9.9.9";

/// Conditions of a rule.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    pub(super) protocol: Option<&'static str>,
    ports: Vec<(u16, u16)>,
    source: Option<(bool, &'static str)>,
    destination: Option<&'static str>,
    state: Option<&'static str>,
    interface: Option<&'static str>,
    ttl: bool,
    length: bool,
}

pub(super) fn one_of<T: Copy>(random: &mut Rng, values: &[T]) -> T {
    values[random.usize(..values.len())]
}

/// True in so many of a hundred.
pub(super) fn percent(random: &mut Rng, percent: u8) -> bool {
    random.u8(..100) < percent
}

impl Conditions {
    /// Conditions of a small set are few, so that most of its limits are translated.
    pub(super) fn random(random: &mut Rng, small: bool) -> Self {
        if small {
            let port = one_of(random, &PORTS[..3]);
            return Self {
                protocol: Some(one_of(random, &["tcp", "tcp", "udp"])),
                ports: if percent(random, 65) { vec![(port, port)] } else { Vec::new() },
                source: percent(random, 25).then(|| (false, one_of(random, &NETS))),
                state: percent(random, 25).then_some("NEW"),
                ..Self::default()
            };
        }
        let protocol = match random.u8(..20) {
            0..=11 => Some("tcp"),
            12..=16 => Some("udp"),
            17 => Some("icmp"),
            _ => None,
        };
        let mut ports = Vec::new();
        if matches!(protocol, Some("tcp" | "udp")) {
            match random.u8(..10) {
                0..=5 => {
                    let port = one_of(random, &PORTS);
                    ports.push((port, port));
                }
                6 => ports.push((80, 81)),
                7 => ports.extend([(22, 22), (80, 80)]),
                _ => {}
            }
        }
        Self {
            protocol,
            ports,
            source: percent(random, 22).then(|| (percent(random, 15), one_of(random, &NETS))),
            destination: percent(random, 6).then(|| one_of(random, &[HERE, BEHIND])),
            state: match random.u8(..20) {
                0..=4 => Some("NEW"),
                5 => Some("RELATED,ESTABLISHED"),
                _ => None,
            },
            interface: percent(random, 4).then(|| one_of(random, &["recv0", "other0", "lo"])),
            ttl: percent(random, 4),
            length: percent(random, 4),
        }
    }

    pub(super) fn text(&self, language: Language) -> String {
        let mut text = String::new();
        let mut put = |part: String| text.push_str(&part);
        match language {
            Language::Iptables => {
                if let Some((not, net)) = self.source {
                    put(format!("{} -s {net}", if not { " !" } else { "" }));
                }
                self.destination.into_iter().for_each(|net| put(format!(" -d {net}")));
                self.interface.into_iter().for_each(|name| put(format!(" -i {name}")));
                self.protocol.into_iter().for_each(|name| put(format!(" -p {name}")));
                let ports: Vec<String> = self
                    .ports
                    .iter()
                    .map(
                        |(low, high)| {
                            if low == high { low.to_string() } else { format!("{low}:{high}") }
                        },
                    )
                    .collect();
                match ports.as_slice() {
                    [] => {}
                    [one] => put(format!(" --dport {one}")),
                    many => put(format!(" -m multiport --dports {}", many.join(","))),
                }
                self.state
                    .into_iter()
                    .for_each(|state| put(format!(" -m conntrack --ctstate {state}")));
                if self.ttl {
                    put(" -m ttl --ttl-lt 70".to_owned());
                }
                if self.length {
                    put(" -m length --length 0:100".to_owned());
                }
            }
            Language::Nft => {
                if let Some((not, net)) = self.source {
                    put(format!(" ip saddr {}{net}", if not { "!= " } else { "" }));
                }
                self.destination.into_iter().for_each(|net| put(format!(" ip daddr {net}")));
                self.interface.into_iter().for_each(|name| put(format!(" iifname \"{name}\"")));
                let ports: Vec<String> = self
                    .ports
                    .iter()
                    .map(
                        |(low, high)| {
                            if low == high { low.to_string() } else { format!("{low}-{high}") }
                        },
                    )
                    .collect();
                match (self.protocol, ports.as_slice()) {
                    (None, _) => {}
                    (Some(name), []) => put(format!(" meta l4proto {name}")),
                    (Some(name), [one]) => put(format!(" {name} dport {one}")),
                    (Some(name), many) => put(format!(" {name} dport {{ {} }}", many.join(", "))),
                }
                self.state
                    .into_iter()
                    .for_each(|state| put(format!(" ct state {}", state.to_lowercase())));
                if self.ttl {
                    put(" ip ttl < 70".to_owned());
                }
                if self.length {
                    put(" meta length 0-100".to_owned());
                }
            }
        }
        text
    }
}
