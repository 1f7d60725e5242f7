//! The texts of iptables-save, ip6tables-save and `iptables -S`, and the rule files of ufw, which
//! have the same form.

mod hashlimit;
mod matches;
mod recent;
mod rule;
mod target;

pub(super) use matches::{icmp_message, is_opening, net, protocol_number, state_bits};

use std::collections::{BTreeMap, BTreeSet};

use super::error::ImportError;
use super::firewall::{Case, Chain, ChainName, Firewall, Hook, Rule, Verdict};
use super::packets::{Family, Packets, state};
use super::words::words;

/// Advice for a line that cannot be understood.
const REMEDY: &str = "give the output of iptables-save or ip6tables-save";

/// How ufw names its chains.
const UFW: [(&str, Family); 2] = [("ufw-", Family::V4), ("ufw6-", Family::V6)];

/// Reads a text. `family` is the one of a text that does not say.
pub(super) fn read(text: &str, family: Option<Family>) -> Result<Firewall, ImportError> {
    let mut reading = Reading {
        firewall: Firewall::default(),
        family: family.unwrap_or(Family::V4),
        said: family,
        table: "filter".to_owned(),
        open: false,
        recent: BTreeMap::new(),
    };
    for (index, line) in text.lines().enumerate() {
        reading.line(index + 1, line)?;
    }
    if reading.open {
        return Err(ImportError::CutOff("ends without COMMIT"));
    }
    let Reading { mut firewall, recent, .. } = reading;
    recent::pair(&mut firewall, recent);
    ufw(&mut firewall);
    Ok(firewall)
}

/// Gives the chain of ufw's users the place that it has, where only the file of these rules is
/// given: behind what ufw accepts before.
fn ufw(firewall: &mut Firewall) {
    let cases = firewall.rules.iter().flat_map(|rule| &rule.cases);
    let led_to: BTreeSet<&str> = cases
        .filter_map(|case| match &case.verdict {
            Verdict::Jump(to) | Verdict::Goto(to) => Some(to.as_str()),
            _ => None,
        })
        .collect();
    let is_first = |name: &ChainName| {
        UFW.iter().any(|(prefix, _)| name.1.strip_prefix(prefix) == Some("user-input"))
            && !led_to.contains(name.1.as_str())
    };
    let first: Vec<ChainName> =
        firewall.chains.keys().filter(|name| is_first(name)).cloned().collect();
    let states = Some(state::ESTABLISHED | state::RELATED);
    let established = Packets { states, ..Packets::default() };
    let lo = Packets { interfaces: Some(vec!["lo".to_owned()]), ..Packets::default() };
    for name in first {
        let at = firewall.rules.len();
        for packets in [&lo, &established] {
            let cases = vec![Case::new(packets.clone(), Verdict::Accept)];
            let place = "before.rules of ufw".to_owned();
            firewall.rules.push(Rule { place, text: String::new(), name: None, cases });
        }
        if let Some(chain) = firewall.chains.get_mut(&name) {
            chain.hook = Some(Hook::Input);
            chain.rules.splice(0..0, [at, at + 1]);
        }
    }
}

struct Reading {
    firewall: Firewall,
    family: Family,
    /// The family that was asked for.
    said: Option<Family>,
    table: String,
    /// True between the name of a table and its end.
    open: bool,
    recent: recent::Uses,
}

impl Reading {
    fn line(&mut self, number: usize, line: &str) -> Result<(), ImportError> {
        let refused = |what: String| ImportError::Line { line: number, what, remedy: REMEDY };
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            return self.comment(number, comment.trim());
        }
        if line.is_empty() {
            return Ok(());
        }
        if line == "COMMIT" {
            self.open = false;
            return Ok(());
        }
        if let Some(table) = line.strip_prefix('*') {
            if self.open {
                return Err(ImportError::CutOff("a table begins before the one before it ends"));
            }
            table.trim().clone_into(&mut self.table);
            self.open = true;
            return Ok(());
        }
        if let Some(chain) = line.strip_prefix(':') {
            let mut parts = chain.split_ascii_whitespace();
            let (name, policy) = (parts.next().unwrap_or_default(), parts.next());
            self.declare(name, policy.unwrap_or("-"));
            return Ok(());
        }
        let mut found = words(line).map_err(|_open| refused("a quote is not closed".to_owned()))?;
        if found.first().is_some_and(|first| counters(first)) {
            found.remove(0);
        }
        let mut parts = found.iter().map(String::as_str);
        match (parts.next(), parts.next()) {
            (Some("-P" | "--policy"), Some(chain)) => {
                let policy = parts.next().unwrap_or("-");
                self.declare(chain, policy);
                Ok(())
            }
            (Some("-N" | "--new-chain"), Some(chain)) => {
                self.declare(chain, "-");
                Ok(())
            }
            (Some("-A" | "--append"), Some(chain)) => {
                self.rule(number, line, chain, found.get(2..).unwrap_or_default());
                Ok(())
            }
            (first, _) => {
                let first: String = first.unwrap_or_default().chars().take(40).collect();
                Err(refused(format!("{first:?} begins no line of a saved rule set")))
            }
        }
    }

    /// The head of a saved rule set says of which family it is.
    fn comment(&mut self, number: usize, comment: &str) -> Result<(), ImportError> {
        let Some(program) = comment.strip_prefix("Generated by ") else { return Ok(()) };
        let family = if program.starts_with("ip6tables") { Family::V6 } else { Family::V4 };
        if self.said.is_some_and(|said| said != family) {
            let (what, line) = ("it is of the other address family".to_owned(), number);
            let remedy = "name the format that it is of, or none";
            return Err(ImportError::Line { line, what, remedy });
        }
        self.family = family;
        Ok(())
    }

    fn name(&self, family: Family, chain: &str) -> ChainName {
        let number = if family == Family::V4 { 4 } else { 6 };
        (format!("{number} {}", self.table), chain.to_owned())
    }

    /// The chain of a name, with its hook if it has one.
    fn chain(&mut self, chain: &str) -> ChainName {
        let ufw = UFW.into_iter().find(|(prefix, _)| chain.starts_with(prefix));
        let family = ufw.map_or(self.family, |(_, family)| family);
        let name = self.name(family, chain);
        if self.firewall.chains.contains_key(&name) {
            return name;
        }
        let packets = Packets { family: Some(family), ..Packets::default() };
        let entry = Chain { hook: hook(&self.table, chain), packets, ..Chain::default() };
        self.firewall.chains.insert(name.clone(), entry);
        name
    }

    fn declare(&mut self, chain: &str, policy: &str) {
        let name = self.chain(chain);
        if let Some(chain) = self.firewall.chains.get_mut(&name) {
            chain.drops = policy == "DROP";
        }
    }

    fn rule(&mut self, number: usize, line: &str, chain: &str, words: &[String]) {
        let name = self.chain(chain);
        let family = if name.0.starts_with('6') { Family::V6 } else { Family::V4 };
        let rule::Read { case, comment, recent } = rule::read(words, family);
        let at = self.firewall.rules.len();
        for what in recent {
            self.recent.entry((name.clone(), what.list.clone())).or_default().push((at, what));
        }
        let place = format!("line {number}");
        let (text, cases) = (line.to_owned(), vec![case]);
        self.firewall.push(name, Rule { place, text, name: comment, cases });
    }
}

/// True for `[packets:bytes]`.
fn counters(word: &str) -> bool {
    let inner = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
    inner.is_some_and(|inner| inner.bytes().all(|byte| byte.is_ascii_digit() || byte == b':'))
}

fn hook(table: &str, chain: &str) -> Option<Hook> {
    let hook = match chain {
        "PREROUTING" => Hook::Prerouting,
        "INPUT" => Hook::Input,
        "FORWARD" => Hook::Forward,
        "OUTPUT" | "POSTROUTING" => Hook::Outgoing,
        _ => return None,
    };
    Some(if table == "nat" { Hook::Nat } else { hook })
}
