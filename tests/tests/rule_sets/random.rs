//! Random rule sets of iptables and nft: chains that jump, limits, pairs of `recent` with other
//! rules between them, and translations of addresses. All rates are so slow that nothing comes back
//! while a test runs, so the same packets pass each time.

use std::fmt::Write as _;

use fastrand::Rng;

use super::conditions::{Conditions, Family, Language, PORTS, one_of, percent};

struct Making<'r> {
    random: &'r mut Rng,
    language: Language,
    family: Family,
    small: bool,
    /// Number of the next limit.
    next: usize,
    sets: String,
    text: String,
}

impl Making<'_> {
    fn rule(&mut self, chain: &str, conditions: &Conditions, rest: &str) {
        let conditions = conditions.text(self.language);
        let line = match self.language {
            Language::Iptables => format!("-A {chain}{conditions} {rest}\n"),
            Language::Nft => format!("{conditions} {rest}\n"),
        };
        self.text.push_str(&line);
    }

    fn verdict(&self, name: &str) -> String {
        match self.language {
            Language::Iptables => format!("-j {name}"),
            Language::Nft => match name {
                "LOG" => "counter".to_owned(),
                "ACCEPT" | "DROP" | "RETURN" => name.to_lowercase(),
                chain => format!("jump {chain}"),
            },
        }
    }

    fn goes(&self, chain: &str) -> String {
        match self.language {
            Language::Iptables => format!("-g {chain}"),
            Language::Nft => format!("goto {chain}"),
        }
    }

    /// A rule without a limit.
    fn plain(&mut self, chain: &str, below: &[&str]) {
        let conditions = Conditions::random(self.random, self.family, self.small);
        let verdict = match self.random.u8(..10) {
            // Whatever is accepted is limited no more.
            0..=1 if self.small && percent(self.random, 60) => self.verdict("LOG"),
            0..=2 => self.verdict("ACCEPT"),
            3 => self.verdict("DROP"),
            4 => self.verdict("RETURN"),
            5 => self.verdict("LOG"),
            _ if below.is_empty() => self.verdict("ACCEPT"),
            goes => {
                let to = one_of(self.random, below);
                if goes == 6 { self.goes(to) } else { self.verdict(to) }
            }
        };
        self.rule(chain, &conditions, &verdict);
    }

    /// A limit, with what drops the rest.
    fn limit(&mut self, chain: &str) {
        let mut conditions = Conditions::random(self.random, self.family, self.small);
        self.next += 1;
        let (number, burst) = (self.next, self.random.u8(2..7));
        let kind = self.random.u8(..3);
        let by_port =
            percent(self.random, 20) && matches!(conditions.protocol, Some("tcp" | "udp"));
        let above = match (self.language, kind) {
            (Language::Iptables, 0 | 1) => {
                let what = if kind == 0 { "above" } else { "upto" };
                let mode = match (by_port, percent(self.random, 15)) {
                    (true, _) => "srcip,dstport",
                    (false, true) if self.family == Family::V6 => "srcip --hashlimit-srcmask 48",
                    (false, true) => "srcip --hashlimit-srcmask 24",
                    (false, false) => "srcip",
                };
                format!(
                    "-m hashlimit --hashlimit-{what} 2/hour --hashlimit-burst {burst} \
                     --hashlimit-mode {mode} --hashlimit-name h{number}"
                )
            }
            (Language::Iptables, _) => format!("-m limit --limit 2/hour --limit-burst {burst}"),
            (Language::Nft, 0 | 1) => {
                let what = if kind == 0 { " over" } else { "" };
                let ip = self.family.nft();
                let address = if self.family == Family::V4 { "ipv4_addr" } else { "ipv6_addr" };
                let (kind, key) = match conditions.protocol.filter(|_| by_port) {
                    Some(name) => {
                        (format!("{address} . inet_service"), format!("{ip} saddr . {name} dport"))
                    }
                    None => (address.to_owned(), format!("{ip} saddr")),
                };
                let set = format!("set s{number} {{ type {kind}; size 65535; flags dynamic; }}\n");
                self.sets.push_str(&set);
                let does = one_of(self.random, &["add", "update"]);
                format!(
                    "{does} @s{number} {{ {key} limit rate{what} 2/hour burst {burst} packets }}"
                )
            }
            (Language::Nft, _) => format!("limit rate 2/hour burst {burst} packets"),
        };
        let within = if percent(self.random, 25) { "RETURN" } else { "ACCEPT" };
        let verdict = self.verdict(if kind == 0 { "DROP" } else { within });
        self.rule(chain, &conditions, &format!("{above} {verdict}"));
        if kind != 0 {
            if percent(self.random, 20) {
                self.plain(chain, &[]);
            }
            if percent(self.random, 20) {
                conditions = Conditions::default();
            }
            let drop = self.verdict("DROP");
            self.rule(chain, &conditions, &drop);
        }
    }

    /// Two rules that note and count, and whatever stands between them.
    fn pair(&mut self, chain: &str, below: &[&str]) {
        let conditions = Conditions::random(self.random, self.family, self.small);
        self.next += 1;
        let list =
            if percent(self.random, 25) { "SHARED".to_owned() } else { format!("r{}", self.next) };
        let hits = self.random.u8(2..6);
        let does = one_of(self.random, &["--rcheck", "--update"]);
        let counts =
            format!("-m recent {does} --seconds 3600 --hitcount {hits} --name {list} -j DROP");
        let after = one_of(self.random, &["", "", "", " -j ACCEPT", " -j DROP", " -j RETURN"]);
        let notes = format!("-m recent --set --name {list}{after}");
        let first = self.random.bool();
        let odd = percent(self.random, 6);
        let (one, other) = if first { (&notes, &counts) } else { (&counts, &notes) };
        self.rule(chain, &conditions, one);
        let between = if self.small { [0, 1, 1, 1, 2] } else { [0, 0, 1, 1, 2] };
        for _ in 0..one_of(self.random, &between) {
            match self.random.u8(..8) {
                0 => self.limit(chain),
                _ => self.plain(chain, below),
            }
        }
        let conditions =
            if odd { Conditions::random(self.random, self.family, self.small) } else { conditions };
        self.rule(chain, &conditions, other);
        if percent(self.random, 5) {
            let removes = format!("-m recent --remove --name {list}");
            self.rule(chain, &conditions, &removes);
        }
    }

    /// Rules of a chain, which jump only to those below.
    fn chain(&mut self, chain: &str, most: u8, below: &[&str]) {
        let most = if self.small { most / 2 } else { most };
        for _ in 0..self.random.u8(1..=most) {
            let plain = if self.small { 2 } else { 4 };
            match (self.random.u8(..10), self.language) {
                (kind, _) if kind < plain => self.plain(chain, below),
                (..=6, Language::Iptables) => self.pair(chain, below),
                (4..=5, Language::Nft) if percent(self.random, 30) => {
                    let to = below.first().map_or("drop".to_owned(), |to| format!("jump {to}"));
                    let map = format!("tcp dport vmap {{ 22 : accept, 80 : {to}, 81 : return }}");
                    self.rule(chain, &Conditions::default(), &map);
                }
                _ => self.limit(chain),
            }
        }
    }

    fn translation(&mut self) {
        let most = if self.small { 1 } else { 2 };
        for _ in 0..self.random.u8(1..=most) {
            let protocol = one_of(self.random, &["tcp", "tcp", "udp"]);
            let ports = if self.small { &PORTS[..3] } else { &PORTS[..] };
            let from = self.random.usize(..ports.len());
            let to = (from + self.random.usize(1..ports.len())) % ports.len();
            let [from, to] = [ports[from], ports[to]];
            let kind = if self.small { self.random.u8(..3) } else { self.random.u8(..4) };
            let (behind, behind_at) = (self.family.behind(), self.family.behind_at(to));
            let line = match (self.language, kind) {
                (Language::Iptables, 0 | 1) => format!(
                    "-A PREROUTING -p {protocol} --dport {from} -j REDIRECT --to-ports {to}\n"
                ),
                (Language::Iptables, 2) => format!(
                    "-A PREROUTING -p {protocol} --dport {from} -j DNAT --to-destination \
                     {behind_at}\n"
                ),
                (Language::Iptables, _) => format!(
                    "-A PREROUTING -p {protocol} --dport {from} -j DNAT --to-destination {behind}\n"
                ),
                (Language::Nft, 0 | 1) => format!("{protocol} dport {from} redirect to :{to}\n"),
                (Language::Nft, 2) => format!("{protocol} dport {from} dnat to {behind_at}\n"),
                (Language::Nft, _) => format!("{protocol} dport {from} dnat to {behind}\n"),
            };
            self.text.push_str(&line);
        }
    }
}

/// A rule set in a language, for a family, and whether it is a small one.
pub(super) fn rule_set(random: &mut Rng, language: Language, family: Family) -> (String, bool) {
    let small = percent(random, 70);
    let translates = percent(random, if small { 60 } else { 40 });
    let forwards = percent(random, if small { 10 } else { 40 });
    let policy = if percent(random, if small { 8 } else { 25 }) { "drop" } else { "accept" };
    let (sets, text) = (String::new(), String::new());
    let mut making = Making { random, language, family, small, next: 0, sets, text };
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let mut line = |part: &str| {
        let _: std::fmt::Result = writeln!(text, "{part}");
    };
    match language {
        Language::Iptables => {
            if translates {
                making.translation();
                line("*nat\n:PREROUTING ACCEPT [0:0]");
                line(making.text.trim_end());
                line("COMMIT");
                making.text.clear();
            }
            line("*filter");
            line(&format!(":INPUT {} [0:0]", policy.to_uppercase()));
            line(":FORWARD ACCEPT [0:0]\n:ONE - [0:0]\n:TWO - [0:0]");
            making.chain("INPUT", 7, &["ONE", "TWO"]);
            if forwards {
                making.chain("FORWARD", 4, &["ONE", "TWO"]);
            }
            making.chain("ONE", 4, &["TWO"]);
            making.chain("TWO", 3, &[]);
            line(making.text.trim_end());
            line("COMMIT");
        }
        Language::Nft => {
            if translates {
                making.translation();
                line(&format!("table {} n {{", family.nft()));
                line("chain p {\ntype nat hook prerouting priority dstnat;");
                line(making.text.trim_end());
                line("}\n}");
                making.text.clear();
            }
            let mut chains = Vec::new();
            for (name, most, below) in [
                ("two", 3, &[][..]),
                ("one", 4, &["two"][..]),
                ("forward", 4, &["one", "two"][..]),
                ("input", 7, &["one", "two"][..]),
            ] {
                if name != "forward" || forwards {
                    making.chain(name, most, below);
                }
                let hook = match name {
                    "input" => {
                        format!("type filter hook input priority filter; policy {policy};\n")
                    }
                    "forward" => "type filter hook forward priority filter;\n".to_owned(),
                    _ => String::new(),
                };
                chains.push(format!("chain {name} {{\n{hook}{}}}", making.text));
                making.text.clear();
            }
            line("table inet f {");
            line(making.sets.trim_end());
            for chain in &chains {
                line(chain);
            }
            line("}");
        }
    }
    (text, small)
}
