//! Reads the output of `nft -j list ruleset`. Examines its values one by one: an unknown statement
//! only prevents its own rule from being translated.

mod concat;
mod condition;
mod connection;
mod field;
mod flags;
mod limit;
mod number;
mod objects;
mod rule;
mod set;

use std::collections::BTreeSet;

use serde_json::Value;

use super::error::ImportError;
use super::firewall::{Chain, ChainName, Firewall, Hook, Rewrite, Rule};
use super::packets::{Family, Packets};
use objects::Objects;
use set::Set;

const COMMAND: &str = "`nft -j list ruleset`";

pub(super) fn read(text: &str) -> Result<Firewall, ImportError> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| ImportError::Json(error.to_string(), COMMAND))?;
    let Some(objects) = value.get("nftables").and_then(Value::as_array) else {
        return Err(ImportError::Shape("has no list \"nftables\"", COMMAND));
    };
    let mut firewall = Firewall::default();
    let mut named = Objects::default();
    let mut rules = Vec::new();
    let mut dormant = Vec::new();
    for object in objects {
        // `nft -j -f` accepts the same objects inside commands.
        let object = object.get("add").unwrap_or(object);
        let Some((kind, body)) = object.as_object().and_then(|object| object.iter().next()) else {
            return Err(ImportError::Shape("an object of the list has no kind", COMMAND));
        };
        match kind.as_str() {
            "chain" => chain(&mut firewall, body)?,
            "rule" => rules.push(body),
            "set" | "map" => {
                named.sets.insert(name_of(body, "name")?, Set::of(body));
            }
            "element" => {
                let name = name_of(body, "name")?;
                if let Some(set) = named.sets.get_mut(&name) {
                    set.add(body);
                }
            }
            "limit" => {
                named.limits.insert(name_of(body, "name")?, body);
            }
            "table" => dormant.extend(dormant_table(body)),
            "metainfo" | "counter" | "quota" | "meter" | "flowtable" | "ct helper"
            | "ct timeout" | "ct expectation" | "synproxy" | "secmark" | "tunnel" => {}
            "flush" | "delete" | "insert" | "replace" | "reset" | "create" | "rename"
            | "destroy" => {
                return Err(ImportError::Shape("is a list of commands", COMMAND));
            }
            _ => firewall.remarks.push(format!("not looked at: an object of the kind {kind:?}")),
        }
    }
    for rule in &rules {
        let table = table_of(rule)?;
        for set in rule::sets_filled(rule) {
            *named.filled.entry((table.clone(), set)).or_default() += 1;
        }
    }
    let offloads = rules.iter().any(|rule| offloads(rule));
    for chain in firewall.chains.values_mut().filter(|_| offloads) {
        if matches!(chain.hook, Some(Hook::Prerouting | Hook::Forward)) {
            chain.packets.lacks("a flowtable takes open connections past its chain");
        }
    }
    let is_nat = |chain: &Chain| matches!(chain.hook, Some(Hook::Nat | Hook::NatLater));
    let nat = firewall.chains.iter().filter(|(_, chain)| is_nat(chain));
    let nat: BTreeSet<String> = nat.map(|((table, _), _)| table.clone()).collect();
    for body in rules {
        add_rule(&mut firewall, &named, &nat, body)?;
    }
    for table in dormant {
        for chain in firewall.chains.iter_mut().filter(|((of, _), _)| *of == table) {
            chain.1.hook = None;
        }
        firewall.remarks.push(format!("the table {table} is dormant: none of it is in force"));
    }
    Ok(firewall)
}

/// Family and name of a disabled table; nft 1.0 prints only one letter of that flag.
fn dormant_table(table: &Value) -> Option<String> {
    let is = |flag: &Value| flag.as_str().is_some_and(|flag| matches!(flag, "d" | "dormant"));
    let off = match table.get("flags")? {
        Value::Array(flags) => flags.iter().any(is),
        flag => is(flag),
    };
    off.then_some(())?;
    Some(format!("{} {}", text(table, "family")?, text(table, "name")?))
}

/// True for a rule that hands connections to a flowtable, which bypasses later hooks.
fn offloads(rule: &Value) -> bool {
    let statements = rule.get("expr").and_then(Value::as_array);
    statements.into_iter().flatten().any(|statement| statement.get("flow").is_some())
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field).and_then(Value::as_str)
}

/// Family and table of an object, as one name.
fn table_of(body: &Value) -> Result<String, ImportError> {
    match (text(body, "family"), text(body, "table")) {
        (Some(family), Some(table)) => Ok(format!("{family} {table}")),
        _ => Err(ImportError::Shape("an object has no family and table", COMMAND)),
    }
}

fn name_of(body: &Value, field: &str) -> Result<ChainName, ImportError> {
    let name = text(body, field).ok_or(ImportError::Shape("an object has no name", COMMAND))?;
    Ok((table_of(body)?, name.to_owned()))
}

fn chain(firewall: &mut Firewall, body: &Value) -> Result<(), ImportError> {
    let name = name_of(body, "name")?;
    let family = text(body, "family").unwrap_or_default();
    let of_ip = matches!(family, "ip" | "ip6" | "inet" | "netdev");
    let hook = text(body, "hook").map(|hook| match (text(body, "type"), hook) {
        _ if !of_ip => Hook::Other,
        (Some("nat"), "prerouting") => Hook::Nat,
        (Some("nat"), _) => Hook::NatLater,
        (_, "ingress" | "prerouting") => Hook::Prerouting,
        (_, "input") => Hook::Input,
        (_, "forward") => Hook::Forward,
        (_, "output" | "postrouting" | "egress") => Hook::Outgoing,
        _ => Hook::Other,
    });
    let mut packets = Packets { family: family_of(family), ..Packets::default() };
    match body.get("dev") {
        Some(Value::String(name)) => packets.interfaces = Some(vec![name.clone()]),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str).map(str::to_owned);
            packets.interfaces = Some(names.collect());
        }
        // Some versions omit the device.
        _ if family == "netdev" || text(body, "hook") == Some("ingress") => {
            packets.lacks("the device of its chain is not in the text");
        }
        _ => {}
    }
    let drops = text(body, "policy") == Some("drop");
    let entry = firewall.chains.entry(name).or_default();
    let priority = body.get("prio").and_then(Value::as_i64).unwrap_or(0);
    // Ingress comes before prerouting.
    let first = if text(body, "hook") == Some("ingress") { i64::from(i32::MIN) * 2 } else { 0 };
    let priority = priority.saturating_add(first);
    *entry = Chain { hook, priority, drops, packets, rules: std::mem::take(&mut entry.rules) };
    Ok(())
}

fn family_of(family: &str) -> Option<Family> {
    match family {
        "ip" => Some(Family::V4),
        "ip6" => Some(Family::V6),
        _ => None,
    }
}

fn add_rule(
    firewall: &mut Firewall,
    objects: &Objects<'_>,
    nat: &BTreeSet<String>,
    body: &Value,
) -> Result<(), ImportError> {
    let name = name_of(body, "chain")?;
    let comment = text(body, "comment").map(str::to_owned);
    let handle = body.get("handle").and_then(Value::as_u64);
    let place = match handle {
        Some(handle) => format!("{} {} handle {handle}", name.0, name.1),
        None => format!("{} {} rule {}", name.0, name.1, firewall.rules.len() + 1),
    };
    let empty = Value::Array(Vec::new());
    let expressions = body.get("expr").unwrap_or(&empty);
    let rule::ReadExpressions { cases, writes } =
        rule::read(objects, &name.0, expressions, nat.contains(&name.0));
    let hook = firewall.chains.get(&name).and_then(|chain| chain.hook);
    if let Some(what) = writes.filter(|_| !matches!(hook, Some(Hook::Outgoing | Hook::Other))) {
        let rewrites = cases.iter().map(|case| Rewrite {
            place: place.clone(),
            packets: case.packets.clone(),
            what,
        });
        firewall.rewrites.extend(rewrites);
    }
    let notrack = expressions.as_array().is_some_and(|statements| {
        statements.iter().any(|statement| statement.get("notrack").is_some())
    });
    if notrack && firewall.chains.get(&name).is_none_or(|chain| chain.hook != Some(Hook::Outgoing))
    {
        let packets = cases.iter().map(|case| (place.clone(), case.packets.clone()));
        firewall.untracked.extend(packets);
    }
    let text = expressions.to_string();
    firewall.push(name, Rule { place, text, name: comment, cases });
    Ok(())
}
