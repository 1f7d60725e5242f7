//! Reads the output of `tc -j filter show dev X ingress`.

use serde_json::Value;

use super::police::Police;
use super::{Action, Filter, ethernet, firewall, flower, is_ingress};
use crate::error::ImportError;
use crate::firewall::Firewall;

const COMMAND: &str = "`tc -j filter show dev IFACE ingress`";

pub(crate) fn read(text: &str) -> Result<Firewall, ImportError> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| ImportError::Json(error.to_string(), COMMAND))?;
    let Some(objects) = value.as_array() else {
        return Err(ImportError::Shape("is no list of filters", COMMAND));
    };
    let mut filters = Vec::new();
    let mut actions = 0;
    for (index, object) in objects.iter().enumerate() {
        // The first object of a filter kind does not describe a filter yet.
        let Some(options) = object.get("options") else { continue };
        let filter = filter(index, object, options);
        actions += filter.actions.len();
        filters.push(filter);
    }
    // A JSON reader sees only the last of two fields with the same name, and tc writes both
    // verdicts with one name.
    if text.matches("\"control_action\"").count() > actions {
        for action in filters.iter_mut().flat_map(|filter| &mut filter.actions) {
            if let Action::Police(police) = action {
                police.refused = Some(
                    "tc writes both of its verdicts under one name: give `tc filter show` \
                     without -j"
                        .to_owned(),
                );
            }
        }
    }
    Ok(firewall(filters))
}

fn filter(index: usize, object: &Value, options: &Value) -> Filter {
    let word = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut filter = Filter {
        place: format!("filter {}", index + 1),
        text: object.to_string(),
        egress: object.get("parent").is_some_and(|parent| !parent.as_str().is_some_and(is_ingress)),
        chain: object.get("chain").and_then(Value::as_u64).unwrap_or(0),
        ..Filter::default()
    };
    ethernet(word("protocol"), &mut filter.packets);
    match word("kind") {
        "matchall" => {}
        "flower" => {
            let keys = options.get("keys").and_then(Value::as_object);
            for (key, value) in keys.into_iter().flatten() {
                let value = match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                flower(key, &value, &mut filter.packets);
            }
        }
        // Its matches have the same name, so a JSON reader sees only the last one.
        "u32" => filter.packets.lacks_limit("u32 in JSON: give `tc filter show` without -j"),
        kind => filter.packets.lacks_limit(format!("the filter {kind} is not known")),
    }
    let actions = options.get("actions").and_then(Value::as_array);
    for action in actions.into_iter().flatten() {
        let verdict = action.get("control_action").and_then(|control| control.get("type"));
        let verdict = verdict.and_then(Value::as_str).unwrap_or_default();
        let kind = action.get("kind").and_then(Value::as_str).unwrap_or_default();
        filter.actions.push(match (kind, verdict) {
            ("police", _) => Action::Police(police(action, verdict)),
            ("gact", "drop") => Action::Drop,
            ("gact", "pass") => Action::Pass,
            (kind, _) => Action::Other(kind.to_owned()),
        });
    }
    if options.get("police").is_some() {
        filter.packets.lacks_limit("a policer of an old form: give `tc filter show` without -j");
    }
    filter
}

fn police(action: &Value, verdict: &str) -> Police {
    let number = |name: &str| action.get(name).and_then(Value::as_u64);
    let known = [
        "order",
        "kind",
        "index",
        "control_action",
        "rate",
        "burst",
        "mtu",
        "overhead",
        "ref",
        "bind",
        "linklayer",
        "installed",
        "last_used",
        "stats",
        "pkts_rate",
        "pkts_burst",
        "cookie",
    ];
    let foreign = action
        .as_object()
        .and_then(|fields| fields.keys().find(|key| !known.contains(&key.as_str())));
    let mut refused = foreign.map(|field| format!("its {field} is not known"));
    if number("overhead").is_some_and(|overhead| overhead > 0) {
        refused = Some("its overhead cannot be added here".to_owned());
    }
    Police {
        rate: number("rate"),
        burst: number("burst"),
        packets: number("pkts_rate"),
        packets_burst: number("pkts_burst"),
        exceed: Some(verdict.to_owned()),
        goes_on: false,
        index: number("index"),
        refused,
    }
}
