//! Reads one rule of nft: from statements to packets, limit and verdict.

use limiter_rules::model::Fact;
use serde_json::Value;

use super::condition::{apply, condition};
use super::field::field;
use super::limit::{OPEN_CONNECTIONS, limit, of_elements};
use super::objects::Objects;
use super::set::{Set, nets, ports};
use crate::firewall::{Case, Limit, Verdict, Written};
use crate::packets::Packets;
use crate::rate;
use crate::translation::{Change, To};

/// Statements that change no verdict.
const GO_ON: [&str; 4] = ["counter", "last", "log", "dup"];

/// Statements that change the packet, or what is known about it or its connection.
const MARKS: [&str; 7] =
    ["mangle", "notrack", "ct helper", "ct timeout", "ct expectation", "flow", "secmark"];

/// Statements that translate addresses, after which a packet is accepted.
const TRANSLATES: [&str; 4] = ["snat", "dnat", "masquerade", "redirect"];

const MOST_CASES: usize = 4096;

pub(super) fn sets_filled(rule: &Value) -> Vec<String> {
    let expressions = rule.get("expr").and_then(Value::as_array);
    let statements = expressions.into_iter().flatten();
    let names = statements.filter_map(|statement| {
        let body = statement.get("set").or_else(|| statement.get("map"))?;
        let name = body.get("set").or_else(|| body.get("map"))?.as_str()?;
        Some(name.trim_start_matches('@').to_owned())
    });
    names.collect()
}

struct ExpressionReader<'a> {
    objects: &'a Objects<'a>,
    table: &'a str,
    packets: Packets,
    limit: Option<Limit>,
    verdict: Option<Verdict>,
    /// The first statement after a limit that marks something.
    marks: Option<String>,
    times: Vec<Option<u64>>,
    /// Cases of a verdict map.
    mapped: Vec<Case>,
    /// True in a chain of the address translation.
    translating: bool,
    /// The part of the headers that it changes.
    writes: Option<Written>,
}

/// The result of reading a rule: its cases, and the part of the headers that it changes.
pub(super) struct ReadExpressions {
    pub(super) cases: Vec<Case>,
    pub(super) writes: Option<Written>,
}

/// Reads a rule. `translating` means that its chain translates addresses.
pub(super) fn read(
    objects: &Objects<'_>,
    table: &str,
    expressions: &Value,
    translating: bool,
) -> ReadExpressions {
    let mut reading = ExpressionReader {
        objects,
        table,
        packets: Packets::default(),
        limit: None,
        verdict: None,
        marks: None,
        times: Vec::new(),
        mapped: Vec::new(),
        translating,
        writes: None,
    };
    match expressions {
        Value::Array(statements) => {
            for statement in statements {
                reading.statement(statement);
            }
        }
        _ => reading.packets.lacks_limit("its statements cannot be read"),
    }
    let ExpressionReader { mut packets, limit, verdict, marks, times, mut mapped, writes, .. } =
        reading;
    if !times.is_empty()
        && (matches!(verdict, Some(Verdict::Jump(_) | Verdict::Goto(_))) || !mapped.is_empty())
    {
        packets.lacks("the set of the jump to its chain has sources for a time");
    }
    if packets.settle().is_err() {
        packets.lacks("its addresses are of several families");
    }
    if mapped.is_empty() {
        let marks = marks.map_or(Verdict::Continue, Verdict::Marks);
        let verdict = verdict.filter(|verdict| *verdict != Verdict::Continue).unwrap_or(marks);
        return ReadExpressions { cases: vec![Case { packets, limit, verdict, times }], writes };
    }
    if limit.is_some() {
        packets.lacks_limit("a verdict map behind a limit");
    }
    for case in &mut mapped {
        match packets.and(&case.packets) {
            Ok(both) => case.packets = both,
            Err(_) => case.verdict = Verdict::Continue,
        }
    }
    ReadExpressions { cases: mapped, writes }
}

/// The part of the headers that a statement changes; `None` for marks and the like.
fn writes(body: &Value) -> Option<Written> {
    let payload = body.get("key").and_then(|key| key.get("payload"))?;
    Some(match payload.get("field").and_then(Value::as_str) {
        Some("dscp") => Written::Fact(Fact::Dscp),
        Some("ttl" | "hoplimit") => Written::Fact(Fact::Ttl),
        _ => Written::Any,
    })
}

/// The change by a translating statement.
fn change(name: &str, body: &Value) -> Change {
    let source = matches!(name, "snat" | "masquerade");
    let addresses = match (body.get("addr"), name) {
        (None, "redirect" | "masquerade") => To::Any,
        (None, _) => To::Same,
        (Some(address), _) => nets(address).map_or(To::Any, To::One),
    };
    // A map may also give ports.
    let mapped = body.get("addr").is_some_and(|address| address.get("map").is_some());
    let to = match body.get("port") {
        None if mapped => To::Any,
        None => To::Same,
        Some(port) => ports(port).map_or(To::Any, To::One),
    };
    Change { source, here: name == "redirect", addresses, ports: to }.settled()
}

impl ExpressionReader<'_> {
    fn statement(&mut self, statement: &Value) {
        let Some((name, body)) = statement.as_object().and_then(|object| object.iter().next())
        else {
            return self.packets.lacks_limit("a statement cannot be read");
        };
        if self.verdict.is_some() || !self.mapped.is_empty() {
            return self.packets.lacks_limit("a statement stands behind the verdict");
        }
        let decides = match name.as_str() {
            "match" => {
                if self.limit.is_some() {
                    self.packets.lacks_limit(
                        "a condition stands behind the limit, which is charged by what it does not \
                         match",
                    );
                }
                let times = condition(self.objects, self.table, body, &mut self.packets);
                if !times.is_empty() {
                    self.times = times;
                }
                None
            }
            "limit" => {
                let read = match body.as_str() {
                    Some(name) => self.named(name),
                    None => limit(body).map_err(str::to_owned),
                };
                self.limited(read);
                None
            }
            "set" | "map" => {
                self.elements(body);
                None
            }
            "meter" => {
                let empty = Value::Null;
                let (key, statements) =
                    (body.get("key").unwrap_or(&empty), body.get("stmt").unwrap_or(&empty));
                // If it has a time, each use restarts it.
                let read = of_elements(key, statements, false, None, &mut self.packets);
                let name = body.get("name").and_then(Value::as_str).unwrap_or_default();
                let memory = Some(format!("the meter {name} of {}", self.table));
                self.limited(read.map(|limit| Limit { memory, ..limit }));
                None
            }
            "ct count" => {
                self.packets.lacks_limit(OPEN_CONNECTIONS);
                None
            }
            "quota" => {
                self.packets.lacks_limit(format!("quota: {}", rate::QUOTA));
                None
            }
            "xt" if self.translating => {
                // The text only names targets, or not even that.
                let name = body.get("name").and_then(Value::as_str).unwrap_or_default();
                let source = matches!(name, "SNAT" | "MASQUERADE" | "SNPT");
                let known = matches!(name, "DNAT" | "REDIRECT" | "NETMAP" | "DNPT") || source;
                let is_target = body.get("type").and_then(Value::as_str) != Some("match");
                if !known {
                    self.packets.lacks("a part of a rule of iptables-nft");
                }
                (known || is_target).then(|| Verdict::Translates(Change::any(source)))
            }
            "xt" => {
                self.packets.lacks_limit(
                    "a rule of iptables-nft: `iptables-save | limiter import iptables -` reads it",
                );
                None
            }
            "vmap" => {
                self.map(body);
                None
            }
            "accept" => Some(Verdict::Accept),
            "drop" => Some(Verdict::Drop),
            "reject" => Some(Verdict::Reject),
            "return" => Some(Verdict::Return),
            "continue" => Some(Verdict::Continue),
            "jump" | "goto" => Some(target(name, body)),
            name if GO_ON.contains(&name) => None,
            "mangle" if writes(body).is_some() => {
                self.writes = self.writes.or_else(|| writes(body));
                self.marks("the statement \"mangle\"".to_owned());
                None
            }
            name if MARKS.contains(&name) => {
                self.marks(format!("the statement {name:?}"));
                None
            }
            name if TRANSLATES.contains(&name) => Some(Verdict::Translates(change(name, body))),
            "fwd" => Some(Verdict::Accept),
            name => Some(Verdict::Unknown(format!("the statement {name:?}"))),
        };
        self.verdict = self.verdict.take().or(decides);
    }

    fn limited(&mut self, read: Result<Limit, String>) {
        match read {
            Ok(limit) => {
                if self.limit.replace(limit).is_some() {
                    self.packets
                        .lacks_limit("it has several limits, each asked after the one before");
                }
            }
            Err(reason) => self.packets.lacks_limit(reason),
        }
    }

    fn marks(&mut self, what: String) {
        if self.limit.is_some() {
            self.marks.get_or_insert(what);
        }
    }

    fn named(&self, name: &str) -> Result<Limit, String> {
        let key = (self.table.to_owned(), name.to_owned());
        let body = self
            .objects
            .limits
            .get(&key)
            .ok_or_else(|| format!("the limit {name} is not there"))?;
        let limit = limit(body)?;
        Ok(Limit { shared: Some(format!("limit {name} of {}", self.table)), ..limit })
    }

    /// Reads `{"set": {"op": "add", "elem": ..., "set": "@name", "stmt": [...]}}`.
    fn elements(&mut self, body: &Value) {
        let name = body.get("set").or_else(|| body.get("map")).and_then(Value::as_str);
        let name = name.unwrap_or_default().trim_start_matches('@');
        let op = body.get("op").and_then(Value::as_str);
        let known = (self.table.to_owned(), name.to_owned());
        let set = self.objects.sets.get(&known);
        let own = body.get("stmt").filter(|statements| {
            statements.as_array().is_none_or(|statements| !statements.is_empty())
        });
        let statements = own.or_else(|| set.and_then(|set| set.statements));
        let (Some(statements), true) = (statements, op != Some("delete")) else {
            // It only notes the source; another rule handles the noted ones.
            return self.marks(format!("the set {name}"));
        };
        let Some(key) = body.get("elem") else {
            return self.packets.lacks_limit("a statement on a set cannot be read");
        };
        if self.objects.filled.get(&known).is_some_and(|rules| *rules > 1) {
            self.packets.lacks_limit(format!(
                "another rule uses the set {name} of {} as well, and both share its buckets",
                self.table
            ));
        }
        let keeps = op != Some("update");
        let timeout = set.and_then(|set| set.timeout);
        let read = of_elements(key, statements, keeps, timeout, &mut self.packets);
        self.limited(read);
    }

    /// Reads `{"vmap": {"key": ..., "data": {"set": [[value, verdict], ...]}}}`.
    fn map(&mut self, body: &Value) {
        let unread = "a verdict map of this shape";
        let known;
        let set = match body.get("data") {
            Some(Value::String(name)) => {
                let name = name.trim_start_matches('@').to_owned();
                match self.objects.sets.get(&(self.table.to_owned(), name)) {
                    Some(set) => set,
                    None => return self.unknown(unread),
                }
            }
            Some(data) => {
                known = Set::anonymous(data.get("set").unwrap_or(&Value::Null));
                &known
            }
            None => return self.unknown(unread),
        };
        let field = body.get("key").and_then(field);
        let (Some(field), Some(values)) = (field, set.values()) else {
            return self.unknown(unread);
        };
        if values.len() > MOST_CASES {
            return self.unknown("a verdict map of so many cases");
        }
        if values.iter().any(|(_, time)| time.is_some()) {
            return self.unknown("a verdict map whose elements leave it after a time");
        }
        // Cases with the same verdict are merged: no value is in two of them.
        let mut cases: Vec<(Verdict, Vec<&Value>)> = Vec::new();
        for (element, _) in values {
            let Some([value, verdict]) = element.as_array().map(Vec::as_slice) else {
                return self.unknown(unread);
            };
            let value = value.get("elem").and_then(|inner| inner.get("val")).unwrap_or(value);
            let named = verdict.as_object().and_then(|object| object.iter().next());
            let verdict = match named.map(|(name, body)| (name.as_str(), body)) {
                Some(("accept", _)) => Verdict::Accept,
                Some(("drop", _)) => Verdict::Drop,
                Some(("return", _)) => Verdict::Return,
                Some(("continue", _)) => Verdict::Continue,
                Some((name @ ("jump" | "goto"), body)) => target(name, body),
                _ => return self.unknown(unread),
            };
            match cases.iter_mut().find(|(known, _)| *known == verdict) {
                Some((_, values)) => values.push(value),
                None => cases.push((verdict, vec![value])),
            }
        }
        for (verdict, values) in cases {
            let mut packets = Packets::default();
            if apply(field, false, &values, &mut packets).is_err() || packets.settle().is_err() {
                return self.unknown(unread);
            }
            self.mapped.push(Case::new(packets, verdict));
        }
    }

    fn unknown(&mut self, reason: &str) {
        self.mapped.clear();
        self.verdict = Some(Verdict::Unknown(reason.to_owned()));
    }
}

fn target(name: &str, body: &Value) -> Verdict {
    match body.get("target").and_then(Value::as_str) {
        Some(chain) if name == "jump" => Verdict::Jump(chain.to_owned()),
        Some(chain) => Verdict::Goto(chain.to_owned()),
        None => Verdict::Unknown("a jump to no chain".to_owned()),
    }
}
