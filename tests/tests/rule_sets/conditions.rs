//! Conditions of random rules, in either language.

use fastrand::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Iptables,
    Nft,
}

/// Destination ports that rules and packets have.
pub(super) const PORTS: [u16; 5] = [22, 80, 81, 443, 8080];

/// Address families of rules and packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Family {
    #[default]
    V4,
    V6,
}

impl Family {
    pub(super) fn other(self) -> Self {
        if self == Self::V4 { Self::V6 } else { Self::V4 }
    }

    const fn nets(self) -> [&'static str; 3] {
        match self {
            Self::V4 => ["10.1.0.0/16", "10.1.2.3", "203.0.113.0/24"],
            Self::V6 => ["2001:db8:a::/48", "2001:db8:a:1::3", "2001:db8:cb::/48"],
        }
    }

    /// Sources of packets. Those of IPv6 are of several /64s: a source is a /64 here (letter D).
    pub(super) const fn sources(self) -> [&'static str; 5] {
        match self {
            Self::V4 => ["10.1.2.3", "10.1.2.4", "10.1.77.1", "203.0.113.9", "198.51.100.20"],
            Self::V6 => [
                "2001:db8:a:1::3",
                "2001:db8:a:2::4",
                "2001:db8:a:4d::1",
                "2001:db8:cb::9",
                "2001:db8:c6::20",
            ],
        }
    }

    /// The address of the machine.
    pub(super) const fn here(self) -> &'static str {
        match self {
            Self::V4 => "192.0.2.254",
            Self::V6 => "2001:db8::fe",
        }
    }

    pub(super) const fn behind(self) -> &'static str {
        match self {
            Self::V4 => "10.9.9.9",
            Self::V6 => "2001:db8:9::9",
        }
    }

    /// That address with a port.
    pub(super) fn behind_at(self, port: u16) -> String {
        match self {
            Self::V4 => format!("{}:{port}", self.behind()),
            Self::V6 => format!("[{}]:{port}", self.behind()),
        }
    }

    pub(super) const fn nft(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    family: Family,
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
    pub(super) fn random(random: &mut Rng, family: Family, small: bool) -> Self {
        if small {
            let port = one_of(random, &PORTS[..3]);
            return Self {
                family,
                protocol: Some(one_of(random, &["tcp", "tcp", "udp"])),
                ports: if percent(random, 65) { vec![(port, port)] } else { Vec::new() },
                source: percent(random, 25).then(|| (false, one_of(random, &family.nets()))),
                state: percent(random, 25).then_some("NEW"),
                ..Self::default()
            };
        }
        let protocol = match random.u8(..20) {
            0..=11 => Some("tcp"),
            12..=16 => Some("udp"),
            17 if family == Family::V6 => Some("ipv6-icmp"),
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
        let nets = family.nets();
        Self {
            family,
            protocol,
            ports,
            source: percent(random, 22).then(|| (percent(random, 15), one_of(random, &nets))),
            destination: percent(random, 6)
                .then(|| one_of(random, &[family.here(), family.behind()])),
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
                    let ttl = match self.family {
                        Family::V4 => " -m ttl --ttl-lt 70",
                        Family::V6 => " -m hl --hl-lt 70",
                    };
                    put(ttl.to_owned());
                }
                if self.length {
                    put(" -m length --length 0:100".to_owned());
                }
            }
            Language::Nft => {
                let ip = self.family.nft();
                if let Some((not, net)) = self.source {
                    put(format!(" {ip} saddr {}{net}", if not { "!= " } else { "" }));
                }
                self.destination.into_iter().for_each(|net| put(format!(" {ip} daddr {net}")));
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
                    let hops = if self.family == Family::V4 { "ttl" } else { "hoplimit" };
                    put(format!(" {ip} {hops} < 70"));
                }
                if self.length {
                    put(" meta length 0-100".to_owned());
                }
            }
        }
        text
    }
}
