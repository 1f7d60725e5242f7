//! Calls and configurations, good and bad; what needs a daemon is in tests/tests/cni.rs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::call::{Attachment, Call};
use crate::config::Config;

fn read(variables: &[(&str, &str)]) -> Result<Call, Failure> {
    let all: BTreeMap<_, _> = variables.iter().copied().collect();
    Call::read(&|name| all.get(name).map(|value| (*value).to_owned()))
}

fn config(own: Value) -> Value {
    let mut all = json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "limiter-cni",
        "capabilities": {"bandwidth": true},
    });
    if let (Some(all), Value::Object(own)) = (all.as_object_mut(), own) {
        all.extend(own);
    }
    all
}

fn parsed(own: Value) -> Result<Config, Failure> {
    Config::read(config(own).to_string().as_bytes(), true)
}

fn given(bandwidth: &Value) -> Value {
    json!({ "runtimeConfig": { "bandwidth": bandwidth } })
}

#[test]
fn calls_are_read_from_the_environment() {
    let container = [("CNI_CONTAINERID", "a1.b_c-d"), ("CNI_IFNAME", "eth0")];
    let with = |command, more: &[(&'static str, &'static str)]| {
        read(&[&[("CNI_COMMAND", command)], &container[..], more].concat())
    };
    let at = Attachment::new("a1.b_c-d".to_owned(), "eth0".to_owned()).unwrap();
    let netns = [("CNI_NETNS", "/run/netns/a")];
    assert_eq!(with("ADD", &netns), Ok(Call::Add(at.clone(), "/run/netns/a".into())));
    assert_eq!(with("CHECK", &netns), Ok(Call::Check(at.clone(), "/run/netns/a".into())));
    // The namespace may be gone.
    assert_eq!(with("DEL", &[]), Ok(Call::Del(at)));
    for (command, call) in [("GC", Call::Gc), ("STATUS", Call::Status), ("VERSION", Call::Version)]
    {
        assert_eq!(read(&[("CNI_COMMAND", command)]), Ok(call));
    }
    let long = "a".repeat(201);
    for (variables, named) in [
        (vec![], "CNI_COMMAND is not set"),
        (vec![("CNI_COMMAND", "add")], "CNI_COMMAND is \"add\""),
        (vec![("CNI_COMMAND", "DEL")], "CNI_CONTAINERID is not set"),
        (vec![("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "a")], "CNI_IFNAME is not set"),
        ([&[("CNI_COMMAND", "ADD")], &container[..]].concat(), "CNI_NETNS is not set"),
        (
            vec![("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "a/b"), ("CNI_IFNAME", "eth0")],
            "CNI_CONTAINERID is \"a/b\"",
        ),
        (
            vec![("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", &long), ("CNI_IFNAME", "eth0")],
            "CNI_CONTAINERID is",
        ),
        (
            vec![("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "a"), ("CNI_IFNAME", "e 0")],
            "CNI_IFNAME is \"e 0\"",
        ),
    ] {
        let failure = read(&variables).unwrap_err();
        assert_eq!(failure.code, code::ENVIRONMENT, "{failure:?}");
        assert!(failure.text.starts_with(named), "{failure:?}");
    }
}

/// What a container gets goes out at the host's end; rates are in bits, and bursts too.
#[test]
fn limits_are_those_of_the_runtime() {
    let limits = |own| {
        let wanted = parsed(own).unwrap().wanted().unwrap();
        let of = |of: &config::Wanted| (of.direction, of.rate(), of.burst(true), of.burst(false));
        wanted.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(limits(json!({})), []);
    assert_eq!(limits(given(&json!({}))), []);
    let both = json!({
        "ingressRate": 20_000_000, "ingressBurst": 1_600_000,
        "egressRate": 1_000_001, "egressBurst": 240_000,
    });
    let wanted = [
        ("out", "20000000bit/s".to_owned(), 200_000, 200_000),
        ("in", "1000000bit/s".to_owned(), 30_000, 30_000),
    ];
    assert_eq!(limits(given(&both)), wanted);
    // In the file, they stand at the top.
    assert_eq!(limits(both), wanted);
    // What runtimes write where nobody said a burst.
    for burst in [0, i64::from(i32::MAX), i64::from(u32::MAX)] {
        let own = given(&json!({"egressRate": 200_000_000, "egressBurst": burst}));
        assert_eq!(limits(own), [("in", "200000000bit/s".to_owned(), 250_000, 6_250_000)]);
    }
    let slow = given(&json!({"egressRate": 8_000}));
    assert_eq!(limits(slow), [("in", "8000bit/s".to_owned(), 16_000, 64_000)]);
    let wanted = parsed(given(&json!({"ingressRate": 20_000_000}))).unwrap().wanted().unwrap();
    assert_eq!(wanted[0].waiting(200), 8_334);
}

#[test]
fn bad_configurations_are_refused() {
    for (own, code, named) in [
        (json!({"cniVersion": "2.0.0"}), code::VERSION, "cniVersion is \"2.0.0\": give one of"),
        (json!({"cniVersion": ""}), code::VERSION, "cniVersion is \"\""),
        (json!({"name": ""}), code::CONFIG, "name is \"\""),
        (json!({"name": "a/b"}), code::CONFIG, "name is \"a/b\""),
        (json!({"daemonaway": "fail"}), code::FIELD, "there is no field \"daemonaway\""),
        (json!({"daemonAway": "wait"}), code::CONFIG, "the network configuration: unknown variant"),
        (json!({"delayMs": 2_001}), code::CONFIG, "delayMs is 2001: give 0 to 2000"),
        (
            given(&json!({"egressRate": -1})),
            code::CONFIG,
            "the network configuration: invalid value",
        ),
    ] {
        let failure = parsed(own.clone()).unwrap_err();
        assert_eq!(failure.code, code, "{own}: {failure:?}");
        assert!(failure.text.starts_with(named), "{own}: {failure:?}");
    }
    for (bandwidth, code, named) in [
        (json!({"egressRate": 7}), code::CONFIG, "egressRate is 7: give at least 8"),
        (json!({"ingressBurst": 80}), code::CONFIG, "ingressRate is 0"),
        (
            json!({"egressRate": 8, "shapedSubnets": ["192.0.2.0/24"]}),
            code::FIELD,
            "shapedSubnets [\"192.0.2.0/24\"]: limiter-cni limits whole cables",
        ),
    ] {
        let failure = parsed(given(&bandwidth)).unwrap().wanted().unwrap_err();
        assert_eq!(failure.code, code, "{failure:?}");
        assert!(failure.text.starts_with(named), "{failure:?}");
    }
    let whole = config(given(&json!({"egressRate": 8_000}))).to_string();
    for end in 0..whole.len() {
        let failure = Config::read(&whole.as_bytes()[..end], true).unwrap_err();
        assert_eq!(failure.code, code::DECODE, "{failure:?}");
    }
    assert!(parsed(json!({})).unwrap().result().unwrap_err().text.contains("no prevResult"));
    assert!(parsed(json!({})).unwrap().valid().unwrap_err().text.contains("valid-attachments"));
}

/// Fields of runtimes and of the specification are known, and one that is not keeps no container
/// from being removed.
#[test]
fn fields_of_others_are_left_alone() {
    let own = json!({
        "args": {"labels": {}}, "dns": {}, "ipam": {}, "ipMasq": true, "disableCheck": true,
        "cni.dev/attachments": [], "prevResult": {"cniVersion": "1.1.0"},
    });
    assert!(parsed(own).unwrap().result().is_ok());
    let typo = config(json!({"daemonaway": "fail", "delayMs": 5_000})).to_string();
    assert!(Config::read(typo.as_bytes(), false).is_ok());
}

#[test]
fn errors_and_versions_are_documents() {
    let failure = Failure::new(code::AGAIN, "later");
    let document = failure.document(&config::version_of(b"{\"cniVersion\": \"0.4.0\"}"));
    assert_eq!(document, json!({"cniVersion": "0.4.0", "code": 11, "msg": "limiter: later"}));
    for input in ["", "{", "{}", "[]"] {
        let answer = commands::answer(&Call::Version, input.as_bytes()).unwrap().unwrap();
        assert_eq!(answer["cniVersion"], "1.1.0");
        assert_eq!(answer["supportedVersions"], json!(["0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
    }
}
