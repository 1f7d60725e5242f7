//! Limits after a translation of addresses: translated for the packets on the wire, or refused with
//! the line that translates addresses.

use super::*;

const HASH: &str = "-m hashlimit --hashlimit-above 5/s --hashlimit-burst 9 --hashlimit-mode";

/// Rules of `nat` in PREROUTING, and one limit in a chain of `filter`.
fn behind(nat: &str, chain: &str, limit: &str) -> Imported {
    let limit = limit.replace("HASH", HASH);
    let text = format!(
        "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n{nat}\nCOMMIT\n*filter\n:INPUT \
         ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n-A {chain} {limit} --hashlimit-name h -j \
         DROP\nCOMMIT\n"
    );
    imported(Format::Iptables, &text)
}

#[test]
fn limits_behind_a_translation_are_for_the_wire_or_refused() {
    let redirect = "-A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080";
    let docker = "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n-A DOCKER ! -i docker0 -p udp \
                  --dport 27016 -j DNAT --to-destination 172.17.0.2:27016";
    let dnat = "-A PREROUTING -p tcp --dport 80 -j DNAT --to-destination 10.0.0.5";
    let masquerade = "-A POSTROUTING -s 10.0.0.0/8 -o eth0 -j MASQUERADE";
    for (nat, chain, limit, is_same) in [
        // To the port that is written, and to the one that it is written over.
        (redirect, "INPUT", "-p tcp --dport 8080 HASH srcip", true),
        (redirect, "INPUT", "-p tcp --dport 8080 HASH srcip,dstip", false),
        (redirect, "INPUT", "-p tcp --dport 80 HASH srcip", false),
        (redirect, "INPUT", "-p tcp --dport 8000:9000 HASH srcip", false),
        (redirect, "INPUT", "-p tcp HASH srcip,dstport", false),
        (redirect, "INPUT", "-p tcp --dport 443 HASH srcip", true),
        (redirect, "INPUT", "-p udp --dport 80 HASH srcip", true),
        (redirect, "INPUT", "-p tcp HASH srcip", true),
        // The original direction of the connection is what is on the wire.
        (
            redirect,
            "INPUT",
            "-p tcp -m conntrack --ctstate NEW --ctorigdstport 80 --ctdir ORIGINAL HASH srcip",
            true,
        ),
        (docker, "FORWARD", "-d 172.17.0.2 -p udp --dport 27016 HASH srcip", false),
        (docker, "FORWARD", "-d 172.17.0.3 -p udp --dport 27016 HASH srcip", false),
        (docker, "FORWARD", "-d 172.17.0.3 -p udp --dport 53 HASH srcip", true),
        (docker, "FORWARD", "-p udp HASH srcip,dstip", false),
        // They go through the machine, and never to it.
        (docker, "INPUT", "-p udp --dport 27016 HASH srcip", false),
        (dnat, "INPUT", "-p tcp --dport 80 HASH srcip", false),
        (dnat, "INPUT", "-p tcp HASH srcip", false),
        (dnat, "INPUT", "-p udp HASH srcip", true),
        (redirect, "FORWARD", "-p tcp HASH srcip", false),
        (dnat, "FORWARD", "-p tcp --dport 80 HASH srcip", true),
        (dnat, "FORWARD", "-p tcp -d 10.0.0.5 HASH srcip", false),
        (redirect, "FORWARD", "-p tcp --dport 80 HASH srcip", false),
        (
            "-A PREROUTING -d 192.0.2.0/24 -j NETMAP --to 10.1.0.0/24",
            "FORWARD",
            "-d 10.1.0.7 HASH srcip",
            false,
        ),
        // Replies come to the address that was written as their source.
        (masquerade, "FORWARD", "-d 10.0.0.7 -p udp HASH srcip", false),
        (masquerade, "FORWARD", "-d 10.0.0.7 -p tcp -m conntrack --ctstate NEW HASH srcip", true),
        (masquerade, "INPUT", "-d 192.0.2.7 -p udp HASH srcip", true),
        (masquerade, "FORWARD", "-d 192.0.2.7 -p udp HASH srcip", true),
        // Packets that this host sends do not come in.
        (
            "-A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 8080",
            "INPUT",
            "-p tcp --dport 8080 HASH srcip",
            true,
        ),
    ] {
        let made = behind(nat, chain, limit);
        let limit = made.rules.last().unwrap();
        let reported = format!("{nat}: {limit:?}\n{}", made.text);
        assert_eq!(limit.outcome == Outcome::Translated, is_same, "{reported}");
        if !is_same {
            assert!(limit.reason.as_ref().is_some_and(|why| why.contains("line ")), "{reported}");
        }
    }
}

/// If a single rule redirects all packets of another port, the limit applies to both ports, in one
/// bucket where a rule here can express that.
#[test]
fn a_limit_behind_one_redirection_is_for_the_port_on_the_wire() {
    let redirect = "-A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080";
    let of = |nat: &str, limit: &str| {
        let made = behind(nat, "INPUT", limit);
        let reported = made.rules.last().unwrap().differences.iter();
        let twice = reported.filter(|reported| reported.starts_with("R: ")).count();
        (rules(&made), twice)
    };
    let both = |key: &str| {
        let rule = |port| format!("protocol=tcp destination_port={port} {key}: 5/s burst 9");
        (vec![rule(80), rule(8080)], 1)
    };
    let source = both("remote_address=0.0.0.0/0");
    let limit = "-p tcp --dport 8080 HASH srcip";
    assert_eq!(of(redirect, limit), source);
    let dnat = "-A PREROUTING -p tcp --dport 80 -j DNAT --to-destination 127.0.0.1:8080";
    assert_eq!(of(dnat, limit), source);
    let logged = format!(
        "-A PREROUTING -p tcp -j LOG\n-A PREROUTING -s 10.1.0.0/16 -p udp -j \
                          ACCEPT\n{redirect}\n-A PREROUTING -p tcp --dport 81 -j REDIRECT \
                          --to-ports 82"
    );
    assert_eq!(of(&logged, limit), source);
    // One bucket for all sources, and a range, are one bucket here as well.
    let text = format!(
        "*nat\n{redirect}\nCOMMIT\n*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp --dport 8080 -m \
         limit --limit 5/s --limit-burst 9 -j ACCEPT\n-A INPUT -p tcp --dport 8080 -j \
         DROP\nCOMMIT\n"
    );
    let made = imported(Format::Iptables, &text);
    let one = [80, 8080].map(|port| {
        format!(
            "protocol=tcp destination_port={port} remote_address=0.0.0.0/0: together 5/s burst 9"
        )
    });
    assert_eq!(rules(&made), one, "{}", made.text);
    assert!(!made.text.contains("R: "), "{}", made.text);
    let range = "-A PREROUTING -p tcp --dport 8081 -j REDIRECT --to-ports 8080";
    let joined = "protocol=tcp destination_port=8080-8081 remote_address=0.0.0.0/0: 5/s burst 9";
    assert_eq!(of(range, limit), (vec![joined.to_owned()], 0));
    // Other rules have a say in what comes to the port.
    for nat in [
        "-A PREROUTING -s 10.1.0.0/16 -j RETURN\nREDIRECT",
        "-A PREROUTING -s 10.1.0.0/16 -p tcp --dport 80 -j ACCEPT\nREDIRECT",
        "-A PREROUTING -p tcp -j OTHER\nREDIRECT",
        "-A PREROUTING -j OTHER\n-A OTHER -p tcp --dport 80 -j REDIRECT --to-ports 8080",
        "-A PREROUTING -s 10.1.0.0/16 -p tcp --dport 80 -j REDIRECT --to-ports 81\nREDIRECT",
        "REDIRECT\n-A PREROUTING -p tcp --dport 81 -j REDIRECT --to-ports 8080",
        "REDIRECT\n-A PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 9",
        "-A PREROUTING -i eth0 -p tcp --dport 80 -j REDIRECT --to-ports 8080",
        "-A PREROUTING -p tcp --dport 80:81 -j REDIRECT --to-ports 8080",
        "-A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080-8090",
        "-A PREROUTING -p tcp --dport 80 -j DNAT --to-destination 10.0.0.5:8080",
        "REDIRECT\nCOMMIT\n*raw\n-A PREROUTING -p tcp --dport 80 -j NOTRACK",
        "REDIRECT\nCOMMIT\n*raw\n-A PREROUTING -p tcp --dport 80 -j DROP",
    ] {
        let nat = nat
            .replace("REDIRECT\n", &format!("{redirect}\n"))
            .replace("\nREDIRECT", &format!("\n{redirect}"));
        assert_eq!(of(&nat, limit).0, [""; 0], "{nat}");
    }
    // Some of the packets are dropped before, which is named.
    let raw = format!(
        "{redirect}\nCOMMIT\n*raw\n-A PREROUTING -s 10.1.0.0/16 -p tcp --dport 80 -j \
                       DROP"
    );
    let made = behind(&raw, "INPUT", limit);
    let reported = &made.rules.last().unwrap().differences;
    assert!(reported.iter().any(|reported| reported.starts_with("H: ")), "{reported:?}");
    assert_eq!(of(&raw, limit), source);
}

#[test]
fn tables_before_the_translation_see_the_wire() {
    let nat = "*nat\n-A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080\nCOMMIT\n";
    for (table, expected) in [("raw", true), ("mangle", true)] {
        let text = format!(
            "*{table}\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp --dport 80 {HASH} srcip \
             --hashlimit-name h -j DROP\nCOMMIT\n{nat}"
        );
        let made = imported(Format::Iptables, &text);
        assert_eq!(made.rules[0].outcome == Outcome::Translated, expected, "{}", made.text);
    }
}

#[test]
fn nft_translates_as_well() {
    let rule = |chain: &str, expr: &str| {
        format!(
            r#"{{"rule": {{"family": "inet", "table": "f", "chain": "{chain}", "expr": {expr}}}}}"#
        )
    };
    let port = |port: u16| {
        format!(
            r#"{{"match": {{"op": "==", "left": {{"payload": {{"protocol": "tcp", "field": "dport"}}}},
            "right": {port}}}}}"#
        )
    };
    let of = |nat: &str, condition: &str| {
        let limit = format!(
            r#"[{condition}, {{"limit": {{"rate": 5, "burst": 9, "per": "second", "inv": true}}}},
            {{"drop": null}}]"#
        );
        let nat = format!("[{}, {nat}]", port(80));
        imported(
            Format::Nft,
            &format!(
                r#"{{"nftables": [{{"chain": {{"family": "inet", "table": "f", "name": "p", "type":
                "nat", "hook": "prerouting", "prio": -100}}}}, {{"chain": {{"family": "inet",
                "table": "f", "name": "i", "type": "filter", "hook": "input", "prio": 0}}}}, {},
                {}]}}"#,
                rule("p", &nat),
                rule("i", &limit)
            ),
        )
    };
    let redirect = r#"{"redirect": {"port": 8080}}"#;
    let made = of(redirect, &port(8080));
    let both = [80, 8080].map(|port| {
        ["0.0.0.0/0", "::/0"].map(|all| {
            format!(
                "protocol=tcp destination_port={port} remote_address={all}: together 5/s burst 9"
            )
        })
    });
    assert_eq!(rules(&made), both.concat(), "{}", made.text);
    assert_eq!(rules(&of(redirect, &port(80))), [""; 0]);
    for nat in [
        r#"{"dnat": {"addr": "10.0.0.1", "port": 8080}}"#,
        r#"{"dnat": {"addr": {"map": {"key": 1, "data": {"set": []}}}}}"#,
        r#"{"xt": {"type": "target", "name": "REDIRECT"}}"#,
        r#"{"xt": null}"#,
        r#"{"mangle": {"key": {"payload": {"protocol": "tcp", "field": "dport"}}, "value": 8080}}"#,
    ] {
        let made = of(nat, &port(8080));
        let why = refusal(&made);
        assert!(
            why.contains("translates addresses") || why.contains("writes into"),
            "{nat}: {why}"
        );
        assert_eq!(rules(&of(nat, &port(80))), [""; 0], "{nat}");
    }
    assert_eq!(rules(&of(r#"{"redirect": {"port": 8080}}"#, &port(443))).len(), 1);
    let original = r#"{"match": {"op": "==", "left": {"ct": {"key": "proto-dst", "dir":
        "original"}}, "right": 80}}, {"match": {"op": "==", "left": {"ct": {"key": "direction"}},
        "right": "original"}}, {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}},
        "right": "tcp"}}"#;
    let made = of(r#"{"redirect": {"port": 8080}}"#, original);
    assert_eq!(rules(&made).len(), 1, "{}", made.text);
    assert!(made.text.contains("value: 80\n"), "{}", made.text);
}

#[test]
fn what_accepts_the_translated_takes_nothing_where_nothing_is() {
    let limit = format!("-A INPUT -p tcp --dport 22 {HASH} srcip --hashlimit-name h -j DROP");
    let accept = "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT";
    let made = iptables(&format!("{accept}\n{limit}"));
    assert_eq!(
        rules(&made),
        ["protocol=tcp destination_port=22 remote_address=0.0.0.0/0: 5 syns/s burst 9"]
    );
    let nat = "*nat\n-A PREROUTING -p tcp --dport 2222 -j REDIRECT --to-ports 22\nCOMMIT\n";
    let text = format!("{nat}*filter\n:INPUT ACCEPT [0:0]\n{accept}\n{limit}\nCOMMIT\n");
    assert_eq!(rules(&imported(Format::Iptables, &text)), [""; 0]);
}

#[test]
fn headers_that_are_written_are_not_asked_for() {
    let text = |target: &str, chain: &str| {
        format!(
            "*mangle\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n-A {chain} {target}\n\
             COMMIT\n*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m dscp --dscp 0x2e {HASH} srcip \
             --hashlimit-name h -j DROP\nCOMMIT\n"
        )
    };
    let of = |target: &str, chain: &str| imported(Format::Iptables, &text(target, chain));
    let why = refusal(&of("-j DSCP --set-dscp 0x2e", "PREROUTING"));
    assert!(why.contains("writes into headers"), "{why}");
    assert_eq!(rules(&of("-j TTL --ttl-set 9", "PREROUTING")).len(), 1);
    assert_eq!(rules(&of("-j DSCP --set-dscp 0x2e", "POSTROUTING")).len(), 1);
    // The time to live is decremented before a packet is forwarded.
    let forward = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m ttl --ttl-lt 5 HASH srcip \
                   --hashlimit-name h -j DROP\nCOMMIT\n";
    let made = imported(Format::Iptables, &forward.replace("HASH", HASH));
    assert_eq!(rules(&made), ["ttl=1-5 remote_address=0.0.0.0/0: 5/s burst 9"]);
}
