//! Loads send what their files describe, and errors name the place in the file.

use std::fs;
use std::path::Path;

use limiter_common::source::Source;
use limiter_json_schema::valid;
use serde_json::Value;

use super::*;

/// The times of a load's packets in milliseconds, and their sources.
fn sent(senders: &str) -> Vec<(u64, Option<Source>)> {
    let text = format!("duration: 4s\nseed: 3\nsenders:\n  - {senders}\n");
    let load = parse("l.yaml", &text).unwrap();
    load.packets().map(|packet| ((packet.nanos - BEGAN) / 1_000_000, packet.source())).collect()
}

fn millis(senders: &str) -> Vec<u64> {
    sent(senders).into_iter().map(|(at, _)| at).collect()
}

#[test]
fn patterns_send_when_they_say() {
    assert_eq!(millis("{pattern: steady, rate: 2/s, to: 2s}"), [0, 500, 1000, 1500]);
    let stalled = millis("{pattern: stall, rate: 2/s, from: 1s, stall_from: 500ms, stall_for: 1s}");
    assert_eq!(stalled, [1000, 2500, 2500, 2500, 3000, 3500]);
    let pulses = millis("{pattern: onoff, rate: 4/s, on_for: 500ms, off_for: 1500ms}");
    assert_eq!(pulses, [0, 250, 2000, 2250]);
    // 1 to 3 a second over 4 s are 8.
    let ramp = millis("{pattern: ramp, rate: 1/s, rate_at_end: 3/s}");
    assert_eq!(ramp.len(), 8);
    assert!(ramp.windows(3).all(|three| three[2] - three[1] < three[1] - three[0]), "{ramp:?}");
    let down = millis("{pattern: ramp, rate: 4/s, rate_at_end: 1/min}");
    assert_eq!(down.len(), 9, "{down:?}");
}

#[test]
fn random_loads_are_the_same_each_time_and_have_their_rate() {
    let poisson = "{pattern: poisson, rate: 100/s, sources: 20}";
    let first = sent(poisson);
    assert_eq!(first, sent(poisson));
    // 8,000 expected; four standard deviations are 358.
    assert!((7642..8358).contains(&first.len()), "{}", first.len());
    let sources: std::collections::BTreeSet<_> = first.iter().map(|(_, source)| *source).collect();
    assert_eq!(sources.len(), 20);
    let flood = sent("{pattern: flood, rate: 1000/s, address: 203.0.113.0/24}");
    assert_eq!(flood.len(), 4000);
    let sources: std::collections::BTreeSet<_> = flood.iter().map(|(_, source)| *source).collect();
    assert!(sources.len() > 240, "{}", sources.len());
    assert!(sources.iter().all(|source| matches!(source, Some(Source::V4([203, 0, 113, _])))));
}

#[test]
fn senders_have_addresses_of_their_own() {
    let text = "duration: 1s\nsenders:\n  - {pattern: steady, rate: 1/s, sources: 3}\n  - \
                {pattern: steady, rate: 1/s, sources: 2}\n  - {pattern: steady, rate: 1/s, \
                sources: 2, address: \"2001:db8::/48\", port: 22/syn, size: 74}\n";
    let load = parse("l.yaml", text).unwrap();
    let sources: std::collections::BTreeSet<_> =
        load.packets().map(|packet| packet.source().unwrap()).collect();
    assert_eq!(sources.len(), 7, "{sources:?}");
    assert!(load.packets().all(|packet| packet.frame.len() as u64 <= packet.length));
}

#[test]
fn mistakes_have_their_line() {
    for (senders, reported) in [
        ("{pattern: wave, rate: 1/s}", "l.yaml:3:15: pattern: \"wave\" is not known: write steady"),
        ("{pattern: steady, rate: 1mbit/s}", "l.yaml:3:29: rate: write packets, as in 100/s"),
        ("{pattern: steady, rate: quick}", "l.yaml:3:29: rate: "),
        (
            "{pattern: stall, rate: 1/s, stall_for: 1s}",
            "l.yaml:3:15: the pattern stall needs stall_from",
        ),
        (
            "{pattern: steady, rate: 1/s, on_for: 1s}",
            "l.yaml:3:42: on_for: it belongs to the pattern onoff",
        ),
        ("{pattern: onoff, rate: 1/s, on_for: 0s, off_for: 1s}", "l.yaml:3:41: on_for: give more"),
        ("{pattern: steady, rate: 1/s, from: 2s, to: 1s}", "l.yaml:3:5: the sender ends before"),
        ("{pattern: steady, rate: 1/s, to: 9s}", "l.yaml:3:38: to: it is after the end"),
        ("{pattern: steady, rate: 1/s, sources: 0}", "l.yaml:3:43: sources: give from 1"),
        ("{pattern: flood, rate: 1/s, sources: 2}", "l.yaml:3:5: sources: every packet of a flood"),
        ("{pattern: steady, rate: 1/s, size: 1}", "l.yaml:3:40: size: give from 74"),
        ("{pattern: steady, rate: 1/s, port: 53}", "l.yaml:3:40: port: write 53/udp"),
        (
            "{pattern: steady, rate: 1/s, sources: 9, address: 192.0.2.0/30}",
            "l.yaml:3:55: address: it has 4 sources",
        ),
        (
            "{pattern: steady, rate: 1/s, address: here}",
            "l.yaml:3:43: address: \"here\" is not an IP",
        ),
        ("{pattern: steady, rate: 100M/s, sources: 99999}", "l.yaml:3:5: with these senders"),
        ("{pattern: steady, rate: 1/s, form: 1s}", "l.yaml:3:34: unknown field \"form\""),
        ("{rate: 1/s}", "l.yaml:3:6: not a load: missing field"),
    ] {
        let text = format!("duration: 4s\nsenders:\n  - {senders}\n");
        let error = parse("l.yaml", &text).unwrap_err().to_string();
        assert!(error.starts_with(reported), "{error}");
    }
    for (text, reported) in [
        ("duration: 4s\nsenders: []\n", "l.yaml: senders: give from one"),
        ("duration: 0s\nsenders: [{pattern: steady, rate: 1/s}]\n", "l.yaml:1:11: duration: give"),
        ("senders: [\n", "l.yaml:"),
    ] {
        let error = parse("l.yaml", text).unwrap_err().to_string();
        assert!(error.starts_with(reported), "{error}");
    }
}

/// The committed schema takes the loads of the pages, and refuses what the reader refuses.
#[test]
fn the_schema_of_loads_is_what_is_read() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let schema = load_schema();
    let committed = fs::read_to_string(docs.join("loads.schema.json")).unwrap();
    let committed: Value = serde_json::from_str(&committed).unwrap();
    assert!(committed == schema, "run `limiter schema --load > docs/loads.schema.json`");
    let check = |text: &str| {
        let document: Value = serde_saphyr::from_str(text).unwrap();
        valid(&schema, &schema, &document)
    };
    let mut loads = 0;
    for entry in fs::read_dir(docs.join("loads")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        if parse("l.yaml", &text).is_ok() {
            check(&text).unwrap();
            loads += 1;
        }
    }
    assert!(loads >= 5, "{loads} loads");
    for wrong in [
        "duration: 1s",
        "duration: 1s\nsenders: []",
        "duration: 1s\nsenders: [{rate: 1/s}]",
        "duration: 1s\nsenders: [{pattern: steady}]",
        "duration: 1s\nsenders: [{pattern: odd, rate: 1/s}]",
        "duration: 1s\nsenders: [{pattern: ramp, rate: 1/s}]",
        "duration: 1s\nsenders: [{pattern: steady, rate: 1/s, stall_for: 1s}]",
        "duration: 1s\nsenders: [{pattern: steady, rate: 1/s, sources: 0}]",
        "duration: 1s\nsenders: [{pattern: steady, rate: 1/s, port: 53}]",
        "duration: 1s\nsenders: [{pattern: steady, rate: 1/s}]\nend: 1s",
    ] {
        assert!(check(wrong).is_err(), "{wrong}");
        assert!(parse("l.yaml", wrong).is_err(), "{wrong}");
    }
}
