//! Spellings of rules, and their translations in short form: keys with values and the limit, or a
//! part of the reason.

use super::*;

const HASH: &str = "-m hashlimit --hashlimit-mode srcip --hashlimit-name a";

/// Two options of which limiter has neither, for one reason.
#[test]
fn a_reason_is_said_once() {
    let made = iptables(
        "-A INPUT -m hashlimit --hashlimit-above 10/s --hashlimit-rate-match \
         --hashlimit-rate-interval 10 --hashlimit-mode srcip --hashlimit-name b -j DROP",
    );
    assert_eq!(refusal(&made), "rate-match estimates a rate, and has no bucket");
}

#[test]
fn hashlimit_is_read_in_every_spelling() {
    let every = "0.0.0.0/0";
    for (options, expected) in [
        ("--hashlimit-above 10/sec --hashlimit-burst 7", Ok("10/s burst 7")),
        ("--hashlimit-above 10/second --hashlimit-burst 7", Ok("10/s burst 7")),
        ("! --hashlimit-upto 10/s --hashlimit-burst 7", Ok("10/s burst 7")),
        ("! --hashlimit 10/s --hashlimit-burst 7", Ok("10/s burst 7")),
        ("--hashlimit-above 10 --hashlimit-burst 7", Ok("10/s burst 7")),
        ("--hashlimit-above 6/minute", Ok("6/min burst 5")),
        ("--hashlimit-above 6/hour --hashlimit-burst 9", Ok("6/hour burst 9")),
        ("--hashlimit-above 6/day --hashlimit-burst 9", Ok("6/day burst 9")),
        ("--hashlimit-above 512kb/s", Ok("512KiB/s burst 524288 bytes")),
        ("--hashlimit-above 1mb/s --hashlimit-burst 1mb", Ok("1MiB/s burst 2097152 bytes")),
        ("--hashlimit-above 100b/s", Ok("100B/s burst 1522 bytes")),
        (
            "--hashlimit-above 10/s --hashlimit-htable-size 4096 --hashlimit-htable-max 9",
            Ok("10/s burst 5"),
        ),
        ("--hashlimit-upto 10/s", Err("drops what is within the limit")),
        ("--hashlimit 10/s", Err("drops what is within the limit")),
        ("--hashlimit-above 0/s", Err("cannot be read")),
        ("--hashlimit-above 10/fortnight", Err("cannot be read")),
        ("--hashlimit-above 10gb/s", Err("cannot be read")),
        ("--hashlimit-above", Err("cannot be read")),
        ("--hashlimit-above 10/s --hashlimit-burst x", Err("cannot be read")),
        ("--hashlimit-burst 5", Err("without a rate")),
        ("--hashlimit-above 10/s --hashlimit-rate-match", Err("rate-match")),
        ("--hashlimit-above 10/s --hashlimit-new 5", Err("cannot be read")),
        ("--hashlimit-above 10/s --hashlimit-above 5/s", Err("cannot be read")),
        ("--hashlimit-above 400000000/s", Err("faster than can be held")),
    ] {
        let imported = iptables(&format!("-A INPUT {HASH} {options} -j DROP"));
        let expected = expected.map(|limit| format!("{every}: {limit}"));
        let made = expected.as_ref().map(String::as_str).map_err(|reason| *reason);
        match made {
            Ok(made) => assert_eq!(rules(&imported), [made], "{options}"),
            Err(reason) => assert_made(&imported, Err(reason), options),
        }
    }
}

/// Conditions and keys with their translations, separated by bars.
const KEYS: &[(&str, Result<&str, &str>)] = &[
    (
        "-p tcp --dport 22 --hashlimit-mode srcip",
        Ok("protocol=tcp destination_port=22 remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    (
        "-p tcp --hashlimit-mode srcip,dstport",
        Ok("protocol=tcp destination_port remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    (
        "-p tcp -m multiport --dports 22,80 --hashlimit-mode dstport,srcip",
        Ok("protocol=tcp destination_port=22 remote_address=0.0.0.0/0: 10/s burst 9|protocol=tcp \
            destination_port=80 remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    (
        "--hashlimit-mode srcip,dstip",
        Ok("destination_address=0.0.0.0/0 remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    ("--hashlimit-mode dstip", Ok("destination_address=0.0.0.0/0: 10/s burst 9")),
    (
        "--hashlimit-mode srcip --hashlimit-srcmask 24",
        Ok("masked_remote_address/v4:24: 10/s burst 9"),
    ),
    (
        "-s 10.0.0.0/8 --hashlimit-mode srcip --hashlimit-srcmask 24",
        Ok("masked_remote_address/v4:24=10.0.0.0/8: 10/s burst 9"),
    ),
    (
        "-s 10.0.0.0/25 --hashlimit-mode srcip --hashlimit-srcmask 24",
        Ok("masked_remote_address/v4:25=10.0.0.0/25: 10/s burst 9"),
    ),
    ("-s 10.0.0.0/255.0.0.0 --hashlimit-mode srcip", Ok("10.0.0.0/8: 10/s burst 9")),
    ("-i eth0 --hashlimit-mode srcip", Ok("interface=eth0 remote_address=0.0.0.0/0: 10/s burst 9")),
    ("! -i lo --hashlimit-mode srcip", Ok("0.0.0.0/0: 10/s burst 9")),
    ("! -s 10.0.0.0/8 --hashlimit-mode srcip", Ok("0.0.0.0/0: 10/s burst 9|10.0.0.0/8: unlimited")),
    ("", Ok("0.0.0.0/0: together 10/s burst 9")),
    ("-s 10.0.0.0/8", Ok("masked_remote_address/v4:8=10.0.0.0/8: 10/s burst 9")),
    ("-s 10.0.0.1", Ok("10.0.0.1: 10/s burst 9")),
    (
        "-d 10.0.0.0/8",
        Ok("destination_address=10.0.0.0/8 remote_address=0.0.0.0/0: together 10/s burst 9"),
    ),
    ("-p icmp --icmp-type 8", Ok("protocol=icmp icmp_type=echo-request: 10/s burst 9")),
    (
        "-p icmp --icmp-type echo-request --hashlimit-mode srcip",
        Ok("protocol=icmp icmp_type=echo-request remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    ("-p icmp -m icmp --icmp-type 8/0", Ok("protocol=icmp icmp_type=echo-request: 10/s burst 9")),
    ("-p icmp --icmp-type any", Ok("protocol=icmp: 10/s burst 9")),
    ("-p 47", Ok("protocol=gre remote_address=0.0.0.0/0: together 10/s burst 9")),
    (
        "-p tcp --syn --hashlimit-mode srcip",
        Ok("protocol=tcp remote_address=0.0.0.0/0: 10 syns/s burst 9"),
    ),
    (
        "-p tcp --tcp-flags SYN,ACK,FIN,RST SYN --hashlimit-mode srcip",
        Ok("protocol=tcp remote_address=0.0.0.0/0: 10 syns/s burst 9"),
    ),
    (
        "-p tcp -m state --state NEW --hashlimit-mode srcip",
        Ok("protocol=tcp remote_address=0.0.0.0/0: 10 syns/s burst 9"),
    ),
    (
        "-p udp -m conntrack --ctstate NEW --hashlimit-mode srcip",
        Ok("protocol=udp remote_address=0.0.0.0/0: 10 flows/s burst 9"),
    ),
    (
        "-p udp -m conntrack ! --ctstate ESTABLISHED,RELATED --hashlimit-mode srcip",
        Ok("protocol=udp remote_address=0.0.0.0/0: 10 flows/s burst 9"),
    ),
    ("-m conntrack --ctstate ESTABLISHED --hashlimit-mode srcip", Err("by a state of connections")),
    ("-m conntrack --ctstate NEW,ESTABLISHED --hashlimit-mode srcip", Err("a mix of states")),
    ("-m conntrack --ctstate DNAT --hashlimit-mode srcip", Err("destination was translated")),
    ("-p tcp --tcp-flags ALL NONE --hashlimit-mode srcip", Err("tcp_flags")),
    ("-p tcp ! --syn --hashlimit-mode srcip", Err("a rule with `tcp_flags` by hand")),
    ("--hashlimit-mode srcport", Err("leave `srcport` out")),
    ("--hashlimit-mode srcip,dstport", Err("without naming a protocol")),
    ("--hashlimit-mode srcip,dstip --hashlimit-dstmask 24", Err("no masks of destinations")),
    ("--hashlimit-mode srcip --hashlimit-srcmask 0", Err("cannot be read")),
    ("--hashlimit-mode srcip --hashlimit-srcmask 64", Err("longer ones than addresses")),
    (
        "-p tcp -m multiport --dports 22,80 --hashlimit-mode srcip",
        Err("one bucket there is for all"),
    ),
    ("-p tcp --dport 1000:2000 --hashlimit-mode srcip,dstport", Err("1001 ports")),
    ("-p tcp --dport ssh --hashlimit-mode srcip", Err("cannot be read")),
    (
        "-p tcp --sport 53 --hashlimit-mode srcip",
        Ok("protocol=tcp source_port=53 remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    (
        "-p udp --dport 27015:27030 --hashlimit-mode srcip",
        Ok("protocol=udp destination_port=27015-27030 remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    (
        "-p udp -m multiport --dports 80,82:90,81 --hashlimit-mode srcip",
        Ok("protocol=udp destination_port=80-90 remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    (
        "-p udp -m length --length 1000:65535 --hashlimit-mode srcip",
        Ok("protocol=udp packet_length=1000-65535 remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    (
        "-m ttl --ttl-lt 5 --hashlimit-mode srcip",
        Ok("ttl=0-4 remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    (
        "-m ttl --ttl-gt 200 --hashlimit-mode srcip",
        Ok("ttl=201-255 remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    ("-m ttl ! --ttl-eq 64 --hashlimit-mode srcip", Err("one bucket there is for all")),
    (
        "-m dscp --dscp 0x2e --hashlimit-mode srcip",
        Ok("dscp=46 remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    (
        "-m dscp --dscp-class EF --hashlimit-mode srcip",
        Ok("dscp=46 remote_address=0.0.0.0/0: 10/s burst 9"),
    ),
    (
        "-p tcp -m conntrack --ctstate NEW --ctorigdstport 8080 --ctdir ORIGINAL --hashlimit-mode srcip",
        Ok("protocol=tcp destination_port=8080 remote_address=0.0.0.0/0: 10 syns/s burst 9"),
    ),
    ("-p tcp -m conntrack --ctorigdstport 8080 --hashlimit-mode srcip", Err("for its replies")),
    (
        "-p udp -m multiport --sports 53,123 --hashlimit-mode srcip",
        Err("one bucket there is for all"),
    ),
    ("-m conntrack --ctstate NEW --hashlimit-mode srcip", Err("more than one protocol")),
    ("-p tcp ! --dport 22 --hashlimit-mode srcip", Err("by hand, write a rule for all")),
    ("-d 10.0.0.0/8 --hashlimit-mode srcip", Err("one bucket there is for all")),
    ("! -d 10.0.0.1 --hashlimit-mode srcip", Err("by hand, write a rule for all")),
    ("! -p tcp --hashlimit-mode srcip", Err("by hand, write a rule for all")),
    ("-i eth+ --hashlimit-mode srcip", Err("a pattern")),
    ("! -i eth0 --hashlimit-mode srcip", Err("all but one")),
    ("-i lo --hashlimit-mode srcip", Err("limits lo")),
    ("-o eth0 --hashlimit-mode srcip", Err("packets leave by")),
    ("-f --hashlimit-mode srcip", Err("fragment")),
    ("-s example.org --hashlimit-mode srcip", Err("no address or prefix")),
    ("-s 192.0.2.1,2001:db8::1 --hashlimit-mode srcip", Err("of another family")),
    ("-p nosuch --hashlimit-mode srcip", Err("the protocol nosuch")),
    ("-p icmp --icmp-type 3/4 --hashlimit-mode srcip", Err("types without codes")),
    ("-m owner --uid-owner root --hashlimit-mode srcip", Err("-m owner")),
    ("-m set --match-set black src --hashlimit-mode srcip", Err("ipset save")),
    ("-m mark --mark 0x1 --hashlimit-mode srcip", Err("-m mark")),
    ("-m time --timestart 08:00 --hashlimit-mode srcip", Err("-m time")),
    ("-m geoip --src-cc DE --hashlimit-mode srcip", Err("-m geoip")),
    ("-m statistic --mode random --probability 0.5 --hashlimit-mode srcip", Err("at random")),
    ("-m connlimit --connlimit-above 5 --hashlimit-mode srcip", Err("connlimit")),
    ("-m limit --limit 5/s --hashlimit-mode srcip", Err("several limits")),
    ("--frobnicate 5 --hashlimit-mode srcip", Err("`--frobnicate` is not known")),
];

#[test]
fn keys_of_hashlimit_become_keys() {
    let limit = "--hashlimit-above 10/s --hashlimit-burst 9 --hashlimit-name a -j DROP";
    for (options, expected) in KEYS.iter().copied() {
        let imported = iptables(&format!(
            "-A INPUT {} -m hashlimit {} {limit}",
            conditions(options),
            modes(options)
        ));
        match expected {
            Ok(made) => {
                assert_eq!(rules(&imported), made.split('|').collect::<Vec<_>>(), "{options}");
            }
            Err(reason) => assert_made(&imported, Err(reason), options),
        }
    }
}

/// The text before the options of hashlimit.
fn conditions(options: &str) -> &str {
    options.split("--hashlimit").next().unwrap()
}

fn modes(options: &str) -> &str {
    options.get(conditions(options).len()..).unwrap()
}

#[test]
fn limits_of_ipv6_are_of_a_64() {
    let of = |options: &str| {
        let rule =
            format!("-A INPUT {options} -m hashlimit --hashlimit-above 10/s --hashlimit-name a");
        let text = format!("*filter\n:INPUT ACCEPT [0:0]\n{rule} -j DROP\nCOMMIT\n");
        imported(Format::Ip6tables, &text.replace("HM", "--hashlimit-mode srcip"))
    };
    let with = |options: &str, mode: &str| {
        let rule = format!(
            "-A INPUT {options} -m hashlimit {mode} --hashlimit-above 10/s --hashlimit-burst 9 \
             --hashlimit-name a -j DROP"
        );
        imported(Format::Ip6tables, &format!("*filter\n:INPUT ACCEPT [0:0]\n{rule}\nCOMMIT\n"))
    };
    let srcip = "--hashlimit-mode srcip";
    let by_source = with("", srcip);
    assert_eq!(rules(&by_source), ["::/0: 10/s burst 9"]);
    assert!(by_source.rules[0].differences.iter().any(|one| one.starts_with("D: ")));
    assert_eq!(
        rules(&with("-p ipv6-icmp --icmpv6-type 128", srcip)),
        ["protocol=icmpv6 icmp_type=echo-request remote_address=::/0: 10/s burst 9"]
    );
    let masked = with("", "--hashlimit-mode srcip --hashlimit-srcmask 48");
    assert_eq!(rules(&masked), ["masked_remote_address/v6:48: 10/s burst 9"]);
    assert!(!masked.rules[0].differences.iter().any(|one| one.starts_with("D: ")));
    assert_eq!(
        rules(&with("-s 2001:db8::7", srcip)),
        ["masked_remote_address/v6:128=2001:db8::7: 10/s burst 9"]
    );
    assert_eq!(rules(&of("-p icmpv6")), ["protocol=icmpv6: 10/s burst 5"]);
}

#[test]
fn a_condition_behind_a_limit_is_not_translated() {
    for rule in [
        "-p tcp -m limit --limit 5/s -m tcp --dport 22",
        "-p tcp -m limit --limit 5/s --dport 22",
        "-m limit --limit 5/s -m conntrack --ctstate NEW",
        "-m limit --limit 5/s -m mark --mark 1",
    ] {
        let imported = iptables(&format!("-A INPUT {rule} -j ACCEPT\n-A INPUT -j DROP"));
        let reason = imported.rules[0].reason.clone().unwrap_or_default();
        assert!(reason.contains("behind the limit"), "{rule}: {reason}");
    }
}

#[test]
fn limits_that_accept_need_a_rule_that_drops() {
    let limit = "-A INPUT -p icmp -m limit --limit 5/s --limit-burst 9 -j ACCEPT";
    let made: &[&str] = &["protocol=icmp: 5/s burst 9"];
    for (lines, expected) in [
        (format!("{limit}\n-A INPUT -p icmp -j DROP"), true),
        (format!("{limit}\n-A INPUT -p tcp -j ACCEPT\n-A INPUT -j DROP"), true),
        (format!("{limit}\n-A INPUT -j LOG\n-A INPUT -j DROP"), true),
        (format!("{limit}\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\n-A INPUT -j DROP"), false),
        (format!("{limit}\n-A INPUT -p icmp -s 10.0.0.0/8 -j DROP\n-A INPUT -j DROP"), true),
        (format!("{limit}\n-A INPUT -p icmp -s 10.0.0.0/8 -j DROP"), false),
        (limit.to_owned(), false),
    ] {
        let imported = iptables(&lines);
        let translated = imported.rules[0].outcome == Outcome::Translated;
        assert_eq!(translated, expected, "{lines}\n{}", imported.text);
        if expected {
            assert_eq!(rules(&imported), made);
        }
    }
    // The policy of the chain drops.
    let text = format!("*filter\n:INPUT DROP [0:0]\n{limit}\nCOMMIT\n");
    assert_eq!(rules(&imported(Format::Iptables, &text)), made);
    // One chain returns packets within the limit and drops the rest; another replaces DROP.
    let text = "*filter\n:INPUT ACCEPT [0:0]\n:SYN - [0:0]\n:LOGDROP - [0:0]\n-A INPUT -p tcp \
                --syn -j SYN\n-A INPUT -p udp -m hashlimit --hashlimit-above 9/s --hashlimit-mode \
                srcip --hashlimit-name u -j LOGDROP\n-A SYN -m limit --limit 25/s --limit-burst \
                50 -j RETURN\n-A SYN -j DROP\n-A LOGDROP -m limit --limit 3/min -j LOG\n-A \
                LOGDROP -j DROP\nCOMMIT\n";
    let made = imported(Format::Iptables, text);
    assert_eq!(
        rules(&made),
        [
            "protocol=tcp remote_address=0.0.0.0/0: together 25 syns/s burst 50",
            "protocol=udp remote_address=0.0.0.0/0: 9/s burst 5",
        ]
    );
    assert_eq!(made.count(Outcome::NotTranslated), 0, "{}", made.text);
}

#[test]
fn what_comes_before_a_limit_matters() {
    let limit = "-A INPUT -p tcp --dport 22 -m hashlimit --hashlimit-above 5/s --hashlimit-burst 9 \
        --hashlimit-mode srcip --hashlimit-name a -j DROP";
    let path = "protocol=tcp destination_port=22 remote_address";
    let limited = format!("{path}=0.0.0.0/0: 5/s burst 9");
    let syns = format!("{path}=0.0.0.0/0: 5 syns/s burst 9");
    let exempt = format!("{path}=10.0.0.0/8: unlimited");
    for (before, expected) in [
        ("-i lo -j ACCEPT", Ok(vec![limited.clone()])),
        ("-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", Ok(vec![syns.clone()])),
        ("-m state --state ESTABLISHED -j ACCEPT", Ok(vec![syns])),
        ("-p tcp --dport 80 -j ACCEPT", Ok(vec![limited.clone()])),
        ("-p udp -j ACCEPT", Ok(vec![limited.clone()])),
        ("-s 10.0.0.0/8 -j ACCEPT", Ok(vec![limited.clone(), exempt.clone()])),
        ("-s 10.0.0.0/8 -p tcp -j ACCEPT", Ok(vec![limited.clone(), exempt])),
        ("-s 10.0.0.0/8 -j DROP", Ok(vec![limited.clone()])),
        ("-p tcp -m multiport --dports 25,80 -j DROP", Ok(vec![limited.clone()])),
        ("-m mark --mark 1 -p udp -j ACCEPT", Ok(vec![limited])),
        ("-p tcp --dport 22 -j ACCEPT", Err("no packet comes as far: line 3")),
        ("-p tcp -j DROP", Err("no packet comes as far: line 3")),
        ("-m mark --mark 1 -j ACCEPT", Err("line 3 takes some of its packets away")),
        ("-p tcp -d 192.0.2.1 -j ACCEPT", Err("line 3 takes some")),
        ("-m conntrack --ctstate NEW -j ACCEPT", Err("line 3 takes some")),
        ("-p tcp --syn -j ACCEPT", Err("line 3 takes some")),
        ("-j NFQUEUE --queue-num 1", Err("line 3 takes all")),
        ("-p tcp -j TARPIT", Err("line 3 takes all")),
        ("-i eth1 -j ACCEPT", Err("line 3 takes some")),
    ] {
        let imported = iptables(&format!("-A INPUT {before}\n{limit}"));
        match expected {
            Ok(made) => assert_eq!(rules(&imported), made, "{before}\n{}", imported.text),
            Err(reason) => assert_made(&imported, Err(reason), before),
        }
    }
}

#[test]
fn limits_for_the_same_packets_stand_in_one_rule() {
    let limit = |conditions: &str, name: &str, rate: u32| {
        format!(
            "-A INPUT {conditions} -m hashlimit --hashlimit-above {rate}/s --hashlimit-burst \
             {rate} --hashlimit-mode srcip --hashlimit-name {name} -j DROP"
        )
    };
    let both = iptables(&format!("{}\n{}", limit("", "a", 100), limit("-s 10.0.0.0/8", "b", 7)));
    assert_eq!(
        rules(&both),
        ["0.0.0.0/0: 100/s burst 100", "10.0.0.0/8: 100/s burst 100; 7/s burst 7",]
    );
    assert!(both.rules[1].differences.iter().any(|one| one.starts_with("O: ")), "{}", both.text);
    let same = iptables(&format!("{}\n{}", limit("", "a", 100), limit("", "a", 7)));
    assert!(refusal(&same).contains("another rule uses"), "{}", same.text);
    let five: Vec<String> = (1..=5).map(|n| limit("", &format!("n{n}"), n)).collect();
    assert!(refusal(&iptables(&five.join("\n"))).contains("more than 4 limits"));
}

#[test]
fn other_chains_and_tables_are_distinguished() {
    let of = |table: &str, chain: &str| {
        imported(
            Format::Iptables,
            &format!(
                "*{table}\n:{chain} - [0:0]\n-A {chain} -m hashlimit --hashlimit-above 5/s \
                 --hashlimit-mode srcip --hashlimit-name a -j DROP\nCOMMIT\n"
            ),
        )
    };
    assert!(refusal(&of("filter", "OUTPUT")).contains("what leaves"));
    assert!(refusal(&of("nat", "PREROUTING")).contains("nat"));
    assert!(refusal(&of("filter", "MINE")).contains("no chain with a hook"));
    for (table, chain, difference) in
        [("raw", "PREROUTING", None), ("filter", "FORWARD", Some("forwarded"))]
    {
        let imported = of(table, chain);
        assert_eq!(rules(&imported), ["0.0.0.0/0: 5/s burst 5"]);
        let output = imported.rules[0].differences.iter().find(|one| one.starts_with("G: "));
        assert_eq!(output.is_some(), difference.is_some(), "{}", imported.text);
    }
}

#[test]
fn recent_is_a_log_where_its_rules_are_a_pair() {
    let of = |rules: &str| iptables(&rules.replace("SSH", "-A INPUT -p tcp --dport 22 -m recent"));
    let log = |most: u32| {
        format!("protocol=tcp destination_port=22 remote_address=0.0.0.0/0: sliding_log {most}/60s")
    };
    for (text, expected) in [
        ("SSH --set\nSSH --update --seconds 60 --hitcount 4 -j DROP", Ok(log(3))),
        ("SSH --rcheck --seconds 60 --hitcount 4 -j DROP\nSSH --set -j ACCEPT", Ok(log(4))),
        (
            "SSH --set --name x --rsource\nSSH --rcheck --seconds 60 --hitcount 4 --name x \
             --rsource -j DROP",
            Ok(log(3)),
        ),
        (
            "SSH --set --name y\nSSH --rcheck --seconds 60 --hitcount 4 --name x -j DROP",
            Err("no pair"),
        ),
        ("SSH --set\nSSH --rcheck --hitcount 4 -j DROP", Err("is a ban")),
        ("SSH --set\nSSH --rcheck --seconds 60 --hitcount 4 --rttl -j DROP", Err("--rttl")),
        ("SSH --set\nSSH --rcheck --seconds 60 --hitcount 1 -j DROP", Err("lets nothing pass")),
        ("SSH --set\nSSH --rcheck --seconds 60 --hitcount 40 -j DROP", Err("sliding_counter")),
        (
            "SSH --set\nSSH --remove\nSSH --rcheck --seconds 60 --hitcount 4 -j DROP",
            Err("more ways"),
        ),
        ("SSH --rcheck --seconds 60 -j DROP", Err("no pair")),
    ] {
        let imported = of(text);
        match expected {
            Ok(made) => assert_eq!(rules(&imported), [made], "{text}\n{}", imported.text),
            Err(reason) => assert_made(&imported, Err(reason), text),
        }
    }
}

#[test]
fn rules_that_drop_sources_are_lists() {
    for (rule, expected) in [
        ("-s 192.0.2.7 -j DROP", Ok("  - 192.0.2.7")),
        ("-s 192.0.2.0/24 -m comment --comment x -j REJECT", Ok("  - 192.0.2.0/24")),
        ("-s 128.0.0.0/1 -j DROP", Err("a large part of all addresses")),
        ("-s 192.0.2.7 -p tcp -j DROP", Err("not by source alone")),
        ("-s 192.0.2.7 -i eth0 -j DROP", Err("not by source alone")),
        ("! -s 192.0.2.7 -j DROP", Err("not by source alone")),
        ("-p tcp --dport 23 -j DROP", Err("not by source alone")),
        ("-s 192.0.2.7 -m mac --mac-source 02:00:00:00:00:01 -j DROP", Err("-m mac")),
    ] {
        let imported = iptables(&format!("-A INPUT {rule}"));
        match expected {
            Ok(command) => {
                let listed = format!("\ndeny:\n{command}\n");
                assert!(imported.text.contains(&listed), "{}", imported.text);
            }
            Err(reason) => assert_made(&imported, Err(reason), rule),
        }
    }
    let after = iptables("-A INPUT -p tcp --dport 80 -j ACCEPT\n-A INPUT -s 192.0.2.7 -j DROP");
    assert!(refusal(&after).contains("line 3 lets some of its packets pass"));
}

#[test]
fn ranges_that_no_table_holds_leave_the_rules_before() {
    let rule = |ports: &str, more: &str| {
        format!(
            "-A INPUT -p udp --dport {ports} {more} -m hashlimit --hashlimit-above 5/s \
             --hashlimit-burst 9 --hashlimit-mode srcip --hashlimit-name h{ports} -j DROP\n"
        )
    };
    let table = "protocol=udp destination_port";
    let limit = "remote_address=0.0.0.0/0: 5/s burst 9";
    let range = format!("{table}=80-90 {limit}");
    for (second, more, expected) in [
        ("85:95", "", "overlap in part"),
        ("80", "", "inside of a range"),
        ("84", "", "inside of a range"),
        ("82:84", "-s 10.0.0.0/8", "inside of a range"),
        ("70:95", "", "inside of a range"),
    ] {
        let made = iptables(&(rule("80:90", "") + &rule(second, more)));
        assert_eq!(rules(&made), [range.as_str()], "{second}: {}", made.text);
        assert!(refusal(&made).contains(expected), "{second}: {}", made.text);
    }
    assert_eq!(rules(&iptables(&(rule("80:90", "") + &rule("91:95", "")))).len(), 2);
    let many: String =
        (1..25).map(|at| rule(&format!("{}:{}", at * 100, at * 100 + 5), "")).collect();
    let made = iptables(&many);
    assert_eq!(rules(&made).len(), 16, "{}", made.text);
    assert!(refusal(&made).contains("more than 16 ranges"), "{}", made.text);
}
