//! Spellings of nft, and their translations.

use super::*;

#[test]
fn limits_of_nft_are_read_in_every_spelling() {
    let source = r#"{"payload": {"protocol": "ip", "field": "saddr"}}"#;
    let port = |protocol: &str, ports: &str| {
        format!(
            r#"{{"match": {{"op": "==", "left": {{"payload": {{"protocol": "{protocol}",
                "field": "dport"}}}}, "right": {ports}}}}}"#
        )
    };
    let elements = |key: &str, limit: &str| {
        format!(r#"{{"set": {{"op": "add", "elem": {key}, "set": "@s", "stmt": [{limit}]}}}}"#)
    };
    let over = r#"{"limit": {"rate": 10, "per": "second", "burst": 9, "inv": true}}"#;
    let drop = r#"{"drop": null}"#;
    for (statements, expected) in [
        (vec![elements(source, over), drop.into()], Ok("0.0.0.0/0: 10/s burst 9")),
        (
            vec![elements(&format!(r#"{{"elem": {{"val": {source}, "timeout": 60}}}}"#), over), drop.into()],
            Ok("0.0.0.0/0: 10/s burst 9"),
        ),
        (
            vec![format!(r#"{{"meter": {{"key": {source}, "stmt": {over}, "size": 9, "name": "m"}}}}"#), drop.into()],
            Ok("0.0.0.0/0: 10/s burst 9"),
        ),
        (
            vec![
                port("tcp", "22"),
                elements(&format!(r#"{{"concat": [{source}, {{"payload": {{"protocol": "tcp", "field": "dport"}}}}]}}"#), over),
                drop.into(),
            ],
            Ok("protocol=tcp destination_port=22 remote_address=0.0.0.0/0: 10/s burst 9"),
        ),
        (
            vec![elements(&format!(r#"{{"&": [{source}, "255.255.255.0"]}}"#), over), drop.into()],
            Ok("masked_remote_address/v4:24: 10/s burst 9"),
        ),
        (
            vec![elements(&format!(r#"{{"prefix": {{"addr": {source}, "len": 16}}}}"#), over), drop.into()],
            Ok("masked_remote_address/v4:16: 10/s burst 9"),
        ),
        (vec![over.into(), drop.into()], Ok("every packet: 10/s burst 9")),
        (vec![port("udp", "53"), over.into(), r#"{"counter": null}"#.into(), drop.into()], Ok("protocol=udp destination_port=53: 10/s burst 9")),
        (
            vec![r#"{"limit": {"rate": 2, "rate_unit": "mbytes", "per": "second", "burst": 4, "burst_unit": "kbytes", "inv": true}}"#.into(), drop.into()],
            Ok("every packet: 2MiB/s burst 2101248 bytes"),
        ),
        (
            vec![r#"{"limit": {"rate": 3, "per": "week", "burst": 2, "inv": true}}"#.into(), drop.into()],
            Ok("every packet: 3/week burst 2"),
        ),
        (vec![port("tcp", r#"{"set": [22, 80]}"#), over.into(), drop.into()], Ok("protocol=tcp destination_port=22 remote_address=0.0.0.0/0: together 10/s burst 9|protocol=tcp destination_port=22 remote_address=::/0: together 10/s burst 9|protocol=tcp destination_port=80 remote_address=0.0.0.0/0: together 10/s burst 9|protocol=tcp destination_port=80 remote_address=::/0: together 10/s burst 9")),
        (vec![r#"{"limit": {"rate": 3, "per": "second"}}"#.into(), drop.into()], Err("within the limit")),
        (vec![r#"{"limit": {"rate": 3, "per": "second", "inv": true, "new": 1}}"#.into(), drop.into()], Err("not known")),
        (vec![r#"{"limit": {"rate": 0, "per": "second", "inv": true}}"#.into(), drop.into()], Err("no rate")),
        (vec![r#"{"limit": "nosuch"}"#.into(), drop.into()], Err("is not there")),
        (vec![over.into(), over.into(), drop.into()], Err("several limits")),
        (vec![over.into(), port("tcp", "22"), drop.into()], Err("behind the limit")),
        (vec![r#"{"ct count": {"val": 10, "inv": true}}"#.into(), drop.into()], Err("ct count")),
        (vec![elements(source, r#"{"ct count": {"val": 10, "inv": true}}"#), drop.into()], Err("ct count")),
        (vec![r#"{"quota": {"val": 10, "val_unit": "mbytes"}}"#.into(), drop.into()], Err("quota")),
        (vec![r#"{"xt": {"type": "match", "name": "hashlimit"}}"#.into(), drop.into()], Err("iptables-save")),
        (vec![r#"{"frobnicate": null}"#.into(), drop.into()], Err("behind the verdict")),
        (vec![elements(r#"{"payload": {"protocol": "ether", "field": "saddr"}}"#, over), drop.into()], Err("no buckets by")),
        (vec![elements(r#"{"payload": {"protocol": "tcp", "field": "sport"}}"#, over), drop.into()], Err("no buckets by")),
        (
            vec![r#"{"match": {"op": "<", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 1024}}"#.into(), over.into(), drop.into()],
            Err("no condition with"),
        ),
        (
            vec![r#"{"match": {"op": "in", "left": {"payload": {"protocol": "tcp", "field": "flags"}}, "right": "syn"}}"#.into(), over.into(), drop.into()],
            Err("no condition as"),
        ),
        (
            vec![r#"{"match": {"op": "==", "left": {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, {"|": ["syn", "ack"]}]}, "right": "syn"}}"#.into(), over.into(), drop.into()],
            Ok("protocol=tcp: 10 syns/s burst 9"),
        ),
    ] {
        let rule = format!("[{}]", statements.join(", "));
        let imported = nft(&[&rule]);
        match expected {
            Ok(made) => {
                let made: Vec<&str> = made.split('|').collect();
                assert_eq!(rules(&imported), made, "{rule}\n{}", imported.text);
            }
            Err(reason) => assert_made(&imported, Err(reason), &rule),
        }
    }
}

#[test]
fn conditions_name_the_family_that_they_imply() {
    let over =
        r#"{"limit": {"rate": 10, "per": "second", "burst": 9, "inv": true}}, {"drop": null}"#;
    let payload = |protocol: &str, field: &str, right: &str| {
        format!(
            r#"[{{"match": {{"op": "==", "left": {{"payload": {{"protocol": "{protocol}",
                "field": "{field}"}}}}, "right": {right}}}}}, {over}]"#
        )
    };
    let limit = "together 10/s burst 9";
    for (rule, expected) in [
        (
            payload("ip", "protocol", "\"tcp\""),
            Ok(vec![format!("protocol=tcp remote_address=0.0.0.0/0: {limit}")]),
        ),
        (payload("ip", "protocol", "\"icmp\""), Ok(vec!["protocol=icmp: 10/s burst 9".to_owned()])),
        (
            payload("icmpv6", "type", "\"echo-request\""),
            Ok(vec!["protocol=icmpv6 icmp_type=echo-request: 10/s burst 9".to_owned()]),
        ),
        (
            payload("icmpv6", "type", "\"nd-neighbor-solicit\""),
            Ok(vec!["protocol=icmpv6 icmp_type=neighbour-solicitation: 10/s burst 9".to_owned()]),
        ),
        (payload("ip6", "nexthdr", "\"tcp\""), Err("no condition as")),
        (payload("icmp", "code", "0"), Err("no condition as")),
        (payload("tcp", "dport", "\"@nosuch\""), Err("is not in the text")),
        (payload("tcp", "dport", "70000"), Err("its values are not read")),
        (payload("ip", "saddr", "\"2001:db8::1\""), Err("its values are not read")),
    ] {
        let imported = nft(&[&rule]);
        match expected {
            Ok(made) => assert_eq!(rules(&imported), made, "{rule}\n{}", imported.text),
            Err(reason) => assert_made(&imported, Err(reason), &rule),
        }
    }
}

#[test]
fn a_verdict_map_of_states_is_understood() {
    let vmap = r#"[{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [
        ["invalid", {"drop": null}], ["established", {"accept": null}], ["related", {"accept": null}]]}}}]"#;
    let limit = r#"[{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 22}},
        {"set": {"op": "add", "elem": {"payload": {"protocol": "ip", "field": "saddr"}}, "set": "@s",
        "stmt": [{"limit": {"rate": 10, "per": "minute", "burst": 5, "inv": true}}]}}, {"drop": null}]"#;
    let imported = nft(&[vmap, limit]);
    let made = "protocol=tcp destination_port=22 remote_address=0.0.0.0/0: 10 syns/min burst 5";
    assert_eq!(rules(&imported), [made], "{}", imported.text);
    assert_eq!(bare(&imported).lines().next(), Some("descriptors:"));
}
