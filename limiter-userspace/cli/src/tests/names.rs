//! Names that would steer a terminal or begin lines of their own, in every answer. Rule files may
//! not have them; a daemon of another version may.

use limiter_api::bans::Bans;
use limiter_api::bypass::Detached;
use limiter_api::events::{Events, Line};
use limiter_api::explain::ExplainedNow;
use limiter_api::limits::Limits;
use limiter_api::lists::Lists;
use limiter_api::render::{self, Render};
use limiter_api::rules::Changed;
use limiter_api::rules::RulesDiff;
use limiter_api::sources::SourceList;
use limiter_api::sources::source::SourceView;
use limiter_api::stats::Stats;
use limiter_api::status::Status;
use limiter_text::plain::is_plain;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::changes::rule_sets;

const STEERING: &str =
    "b\u{1b}[2Jud\nget\"} 1\r\n\u{202e}fake\u{9b}31m\u{2028}x\u{7}\u{0}\u{200b}\u{85}\u{7f}";

/// A document with `name` in the place of every text "NAME".
fn named<T: DeserializeOwned>(document: &Value, name: &str) -> T {
    fn put(value: &mut Value, name: &str) {
        match value {
            Value::String(text) if text == "NAME" => name.clone_into(text),
            Value::Array(list) => {
                for value in list {
                    put(value, name);
                }
            }
            Value::Object(fields) => {
                for value in fields.values_mut() {
                    put(value, name);
                }
            }
            _ => {}
        }
    }
    let mut document = document.clone();
    put(&mut document, name);
    serde_json::from_value(document).unwrap()
}

/// Texts with such a name and with a plain one have the same lines.
fn reported<T: DeserializeOwned>(document: &Value, text: impl Fn(&T) -> String) {
    let (plain, steering) = (text(&named(document, "ordinary")), text(&named(document, STEERING)));
    assert!(plain.contains("ordinary"), "no name is reported: {plain}");
    assert!(steering.chars().all(|c| is_plain(c) || c == '\n'), "{steering:?}");
    assert_eq!(steering.lines().count(), plain.lines().count(), "{steering:?}");
    let replaced = |text: &str| text.matches('\u{fffd}').count();
    assert!(replaced(&steering) >= plain.matches("ordinary").count() * 10, "{steering:?}");
}

fn rendered<T: DeserializeOwned + Render>(document: &Value) {
    reported::<T>(document, render::text);
}

#[test]
fn names_neither_steer_a_terminal_nor_begin_lines() {
    let counts = json!({"packets": 5, "bytes": 6});
    let outcomes = json!({"passed": counts, "dropped": counts, "shadowed": counts});
    let rule = json!({
        "rule": "NAME", "passed": counts, "dropped": counts, "shadowed": counts, "marked": counts,
    });
    let view = json!({
        "text": "NAME", "algorithm": "NAME", "rate": "NAME", "count": "NAME",
        "upper": {"kind": "NAME", "rate": "NAME", "burst": 1},
    });
    let limit = json!({
        "source": "NAME", "name": "NAME", "origin": "file", "limit": "NAME", "shadow": false,
        "passed": counts, "dropped": counts, "shadowed": counts, "limits": [view, view],
        "action": "NAME", "budget": "NAME", "label": "NAME",
    });
    let mut labelled = limit.clone();
    labelled["name"] = Value::Null;
    labelled["limits"] = json!([]);
    rendered::<Limits>(&json!({
        "generation": 1, "limits": [limit, labelled], "budgets": [limit], "warnings": [],
    }));
    rendered::<Changed>(&json!({"generation": 1, "rules": 2, "warnings": ["NAME"]}));
    rendered::<Stats>(&json!({
        "seen": counts, "passed": counts, "dropped": counts, "removed": outcomes,
        "reasons": [{"reason": "NAME", "verdict": "NAME", "packets": 1, "bytes": 2}],
        "rules": [rule], "budgets": [rule],
    }));
    rendered::<Detached>(&json!({"interfaces": ["NAME", "NAME"]}));
    rendered::<Bans>(&json!({
        "entries": [{"source": "NAME", "ends_in_seconds": 1, "bans": 2, "rule": "NAME", "by_hand": false}],
        "watched": 0,
    }));
    rendered::<Lists>(&json!({
        "entries": [{"source": "NAME", "list": "deny", "expires_in_seconds": null}],
    }));
}

#[test]
fn names_of_sources_and_of_the_daemon_do_neither() {
    let view = json!({
        "text": "NAME", "algorithm": "NAME", "rate": "NAME", "count": "NAME",
        "upper": {"kind": "NAME", "rate": "NAME", "burst": 1},
    });
    let row = json!({
        "source": "NAME", "passed": 1, "dropped": 2, "rule": "NAME", "limit": "NAME", "listed": null,
    });
    rendered::<SourceList>(&json!({
        "by": "rate", "tracked_v4": 1, "tracked_v6": 1, "within": 1, "sources": [row],
    }));
    rendered::<SourceView>(&json!({
        "source": "NAME", "tracked": true, "rule": "NAME", "limit": "NAME", "burst": 5, "count": "NAME",
        "shadow": false, "passed": 1, "dropped": 2, "remaining": 3, "full_in_ns": 4,
        "limits": [view, view], "action": "NAME", "budget": "NAME",
    }));
    rendered::<Status>(&json!({
        "version": "NAME", "pid": 1, "generation": 2, "rules": 3, "bypass": false, "edits": 0,
        "interfaces": [
            {"name": "NAME", "mode": "NAME", "ifindex": 1, "program_id": 2, "adopted": false},
            {"name": "NAME", "mode": "x", "ifindex": 1, "program_id": 2, "adopted": false, "attached": false},
        ],
        "sources": {"max_v4": 1, "max_v6": 1}, "rules_files": ["NAME"], "management": ["NAME"],
        "warnings": ["NAME"], "over_soft_limit": ["NAME"], "no_room_for": ["NAME"],
        "last_reload": {"ok": false, "error": "NAME"},
        "last_trial": {"confirmed": false, "reason": "NAME"},
    }));
}

#[test]
fn names_in_what_is_reported_packets_do_neither() {
    let of_step = json!({
        "step": "NAME", "reached": true, "says": "NAME", "rule": "NAME", "name": "NAME", "origin": "NAME",
        "place": "NAME", "budget": "NAME", "action": "NAME", "shadow": false, "key": "NAME",
        "limits": [{
            "limit": "NAME", "count": "NAME", "size": 1, "remaining": 2, "conforms": true,
            "conforms_in_ns": null, "full_in_ns": null,
        }],
    });
    rendered::<ExplainedNow>(&json!({
        "packet": "NAME", "source": "NAME", "verdict": "NAME", "reason": "NAME", "rule": "NAME",
        "happens": "NAME", "exact": false, "assumed": ["NAME"], "not_looked_at": ["NAME"], "generation": 1,
        "steps": [of_step],
    }));
    let sample = json!({"interface": "NAME", "bytes": 60});
    let episode = json!({
        "source": "NAME", "rule": "NAME", "reason": "NAME", "began": "NAME", "seconds": 1, "sampled": 2,
        "ended": false, "last": sample,
    });
    let none = json!({
        "sent": 0, "over_budget": 0, "lost": 0, "forgotten": 0, "not_logged": 0, "hooks_left_out": 0,
        "followers": 0,
    });
    rendered::<Events>(&json!({"episodes": [episode], "counts": none}));
    for event in ["drop", "start", "still", "end", "table-full"] {
        let mut line = if event == "drop" { sample.clone() } else { episode.clone() };
        for (field, value) in [
            ("event", event),
            ("source", "NAME"),
            ("rule", "NAME"),
            ("reason", "NAME"),
            ("phase", "end"),
            ("table", "NAME"),
        ] {
            line[field] = json!(value);
        }
        line["packets"] = json!(5);
        reported::<Line>(&line, limiter_api::events::text);
    }
    let line = json!({"subject": "NAME", "text": "NAME"});
    let diff = json!({
        "generation": 1, "same": false, "added": [line], "removed": [line], "unchanged": 0, "edits": [line],
        "changed": [{"subject": "NAME", "old": "NAME", "new": "NAME"}],
    });
    reported::<RulesDiff>(&diff, |diff| rule_sets::text(diff, false));
}
