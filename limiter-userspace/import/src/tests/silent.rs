//! Rules that another translation would have changed in silence: each is refused with the reason,
//! or has the letter of its difference.

use super::*;

const HASH: &str = "-m hashlimit --hashlimit-mode srcip --hashlimit-above";

/// Letters beside the last rule.
fn letters(imported: &Imported) -> String {
    let last = imported.rules.last().expect("a rule");
    assert_eq!(last.outcome, Outcome::Translated, "{}", imported.text);
    last.differences.iter().filter_map(|one| one.chars().next()).collect()
}

/// Rules of iptables after those of the table `raw`.
fn behind_raw(raw: &str, rules: &str) -> Imported {
    let text = format!(
        "*raw\n:PREROUTING ACCEPT [0:0]\n{raw}\nCOMMIT\n*filter\n:INPUT ACCEPT \
         [0:0]\n{rules}\nCOMMIT\n"
    );
    imported(Format::Iptables, &text)
}

#[test]
fn options_that_change_what_a_rule_is_for_are_not_lost() {
    for (rule, reason) in [
        (
            format!("-p tcp -j DROP -m conntrack --ctorigdstport 22 {HASH} 5/s --hashlimit-name a"),
            "and so for its replies",
        ),
        (
            format!("-p tcp -j DROP --tcp-option 2 {HASH} 5/s --hashlimit-name a"),
            "`--tcp-option` is not known",
        ),
        (
            format!(
                "-p tcp -m conntrack --ctstate NEW -m state --state INVALID {HASH} 5/s \
                 --hashlimit-name a -j DROP"
            ),
            "its states exclude each other",
        ),
        (
            format!(
                "-p icmp -m icmp --icmp-type 8 -m icmp --icmp-type 0 {HASH} 5/s --hashlimit-name a \
                 -j DROP"
            ),
            "--icmp-type twice",
        ),
        (
            format!("-p icmp --icmp-type 1 {HASH} 5/s --hashlimit-name a -j DROP"),
            "--icmp-type 1: limiter has",
        ),
        // Others ask for the mark, or for the entry of the set.
        (format!("{HASH} 5/s --hashlimit-name a -j SET --add-set bad src"), "the target SET"),
        (format!("{HASH} 5/s --hashlimit-name a -j MARK --set-mark 1"), "the target MARK"),
    ] {
        let imported = iptables(&format!("-A INPUT {rule}"));
        assert_made(&imported, Err(reason), &rule);
    }
    let marked = iptables(&format!(
        "-A INPUT {HASH} 5/s --hashlimit-name a -j MINE\n-A MINE -j MARK \
         --set-mark 1\n-A MINE -j LOG"
    ));
    assert_eq!(marked.rules[0].outcome, Outcome::NotTranslated, "{}", marked.text);
    let v6 = "*filter\n-A INPUT -p ipv6-icmp --icmpv6-type 8 -m limit --limit 5/s -j ACCEPT\n-A \
              INPUT -j DROP\nCOMMIT\n";
    let made = imported(Format::Ip6tables, v6);
    assert!(made.rules[0].reason.as_ref().is_some_and(|why| why.contains("--icmpv6-type 8")));
}

/// New connections of several protocols in one bucket have no unit here: a flood of pings between
/// one pair of addresses would be a single flow. For one protocol they are translated, with the
/// letter.
#[test]
fn new_connections_are_counted_where_one_protocol_is_named() {
    let reason = "counts new connections of more than one protocol in one bucket";
    let new = "-m conntrack --ctstate NEW";
    for (protocol, unit) in
        [("", None), ("-p tcp", Some("syns")), ("-p udp", Some("flows")), ("-p icmp", Some(""))]
    {
        let rule = format!("{protocol} {new} {HASH} 10/s --hashlimit-name n -j DROP");
        let made = iptables(&format!("-A INPUT {rule}"));
        match unit {
            None => assert!(refusal(&made).contains(reason), "{rule}"),
            Some(unit) => {
                let rules = rules(&made);
                assert!(rules.iter().any(|made| made.contains(unit)), "{rule}: {rules:?}");
                assert!(letters(&made).contains('F'), "{rule}: {}", made.text);
            }
        }
    }
    let state = r#"{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "new"}}"#;
    let limit = r#"{"limit": {"rate": 10, "per": "second", "inv": true}}, {"drop": null}"#;
    assert!(refusal(&nft(&[&format!("[{state}, {limit}]")])).contains(reason));
}

#[test]
fn chains_before_and_limits_beside_are_reported() {
    let limit =
        format!("-A INPUT -p udp {HASH} 100/s --hashlimit-burst 9 --hashlimit-name a -j DROP");
    let before = behind_raw("-A PREROUTING -p udp --dport 53 -j DROP", &limit);
    assert!(letters(&before).contains('H'), "{}", before.text);
    let all = behind_raw("-A PREROUTING -p udp -j DROP", &limit);
    assert!(refusal(&all).contains("no packet comes as far: line 3"), "{}", all.text);
    // Accepted is accepted for one chain.
    let accepted = behind_raw("-A PREROUTING -s 10.0.0.0/8 -j ACCEPT", &limit);
    assert_eq!(rules(&accepted), ["protocol=udp remote_address=0.0.0.0/0: 100/s burst 9"]);
    // Other tables of the rule file, and some packets for both.
    let port = format!("-A INPUT -p udp --dport 53 {HASH} 50/s --hashlimit-name b -j DROP");
    let both = iptables(&format!("{limit}\n{port}"));
    assert!(letters(&both).contains('O'), "{}", both.text);
    assert!(both.rules[0].differences.iter().any(|one| one.starts_with("O: ")));
    let apart = iptables(&format!("{limit}\n{}", port.replace("udp", "tcp")));
    assert!(!letters(&apart).contains('O'), "{}", apart.text);
}

#[test]
fn packets_that_are_not_tracked_are_neither_new_nor_established() {
    let rules = format!(
        "-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -p udp --dport 53 \
         {HASH} 20/s --hashlimit-name a -j DROP"
    );
    for raw in ["-A PREROUTING -p udp --dport 53 -j NOTRACK", "-A PREROUTING -j CT --notrack"] {
        let imported = behind_raw(raw, &rules);
        assert!(refusal(&imported).contains("out of connection tracking"), "{}", imported.text);
    }
    let other = behind_raw("-A PREROUTING -p udp --dport 123 -j NOTRACK", &rules);
    assert!(letters(&other).contains('E'));
    // Messages of neighbours are never tracked.
    let text = format!(
        "*filter\n-A INPUT -m conntrack --ctstate ESTABLISHED,UNTRACKED -j ACCEPT\n-A INPUT -p \
         ipv6-icmp {HASH} 5/s --hashlimit-name a -j DROP\nCOMMIT\n"
    );
    assert!(refusal(&imported(Format::Ip6tables, &text)).contains("line 2 takes some"));
}

#[test]
fn there_are_no_states_before_connection_tracking() {
    let text = |table: &str, state: &str| {
        format!(
            "*{table}\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp --dport 53 {state} {HASH} 20/s \
             --hashlimit-name a -j DROP\nCOMMIT\n"
        )
    };
    let new = "-m conntrack --ctstate NEW";
    let raw = imported(Format::Iptables, &text("raw", new));
    assert!(refusal(&raw).contains("before connection tracking"), "{}", raw.text);
    for (table, state) in [("raw", ""), ("mangle", new)] {
        let made = imported(Format::Iptables, &text(table, state));
        assert_eq!(rules(&made).len(), 1, "{}", made.text);
    }
}

#[test]
fn a_return_to_a_policy_that_drops_lets_nobody_in() {
    let text = format!(
        "*filter\n:INPUT DROP [0:0]\n-A INPUT -s 192.0.2.0/24 -j RETURN\n-A INPUT -p tcp {HASH} \
         5/s --hashlimit-burst 9 --hashlimit-name a -j DROP\n-A INPUT -j ACCEPT\nCOMMIT\n"
    );
    let made = imported(Format::Iptables, &text);
    assert_eq!(rules(&made), ["protocol=tcp remote_address=0.0.0.0/0: 5/s burst 9"]);
}

#[test]
fn a_list_notifies_nobody() {
    let made = iptables("-A INPUT -s 192.0.2.7 -j REJECT");
    let output = made.rules[0].differences.iter().find(|one| one.starts_with("M: ")).unwrap();
    assert!(output.contains("in silence"), "{output}");
}

#[test]
fn an_entry_that_is_forgotten_has_its_bytes_again() {
    let rule =
        |more: &str| iptables(&format!("-A INPUT {HASH} 1kb/s {more} --hashlimit-name a -j DROP"));
    assert!(letters(&rule("--hashlimit-burst 60kb")).contains('K'));
    assert!(letters(&rule("--hashlimit-htable-expire 500")).contains('K'));
    assert!(!letters(&rule("")).contains('K'));
}

#[test]
fn texts_of_either_family_are_of_the_one_that_they_show() {
    let text =
        |rules: &str| format!("# Generated by xtables-save v1.8.2 on x\n*filter\n{rules}COMMIT\n");
    let limit =
        format!("-A INPUT -p tcp {HASH} 5/s --hashlimit-burst 9 --hashlimit-name a -j DROP\n");
    let of = |format, text: &str| {
        let made = imported(format, text);
        (rules(&made).join("|"), made.remarks.len())
    };
    let (v4, v6) = ("0.0.0.0/0: 5/s burst 9", "::/0: 5/s burst 9");
    let shown = format!("-A INPUT -s 2001:db8::/32 -j ACCEPT\n{}", limit.replace("tcp", "udp"));
    assert!(of(Format::Iptables, &text(&shown)).0.contains(v6));
    let (made, remarks) = of(Format::Iptables, &text(&limit));
    assert!(made.contains(v4) && remarks == 1, "{made}");
    let (made, remarks) = of(Format::Ip6tables, &text(&limit));
    assert!(made.contains(v6) && remarks == 0, "{made}");
    // Both, one after the other.
    let two = format!("{}{}", text("-A INPUT -p icmp -j ACCEPT\n"), text(&shown));
    assert!(of(Format::Iptables, &two).0.contains(v6));
    // `ip6tables -S` has no head.
    assert!(of(Format::Iptables, &shown).0.contains(v6));
}

#[test]
fn policers_that_filters_share_and_chains_that_filters_jump_to() {
    let filter = |chain: u32, port: u16, police: &str| {
        format!(
            "filter protocol ip pref {port} flower chain {chain} \nfilter protocol ip pref {port} \
             flower chain {chain} handle 0x1 \n  eth_type ipv4\n  ip_proto udp\n  dst_port \
             {port}\n  not_in_hw\n\taction order 1:  police {police} overhead 0b \n\tref 2 \
             bind 2 \n"
        )
    };
    let of = |text: &str| imported(Format::Tc, text);
    let drop = "rate 1Mbit burst 10Kb mtu 2Kb action drop";
    let shared = filter(0, 53, &format!("0x5 {drop}")) + &filter(0, 80, &format!("0x5 {drop}"));
    assert!(refusal(&of(&shared)).contains("the policer 5"));
    let own = filter(0, 53, &format!("0x5 {drop}")) + &filter(0, 80, &format!("0x6 {drop}"));
    assert_eq!(rules(&of(&own)).len(), 2);
    assert!(refusal(&of(&filter(7, 53, &format!("0x5 {drop}")))).contains("chain 7"));
    assert!(refusal(&of(&filter(0, 53, &format!("0x5 {drop}/drop")))).contains("its action"));
    assert_eq!(rules(&of(&filter(0, 53, &format!("0x5 {drop}/pipe")))).len(), 1);
    let bpf = "filter protocol all pref 1 bpf chain 0 \nfilter protocol all pref 1 bpf chain 0 \
               handle 0x1 \
               x.o:[tc] direct-action not_in_hw id 5 tag ab jited \n";
    assert!(refusal(&of(bpf)).contains("the filter bpf"));
    let json = |chain: u32| {
        format!(
            r#"[{{"protocol":"all","pref":1,"kind":"matchall","chain":{chain},"options":
            {{"handle":1,
            "actions":[{{"order":1,"kind":"police","index":1,"rate":1000000,"burst":102400,
            "mtu":2048,"control_action":{{"type":"drop"}},"overhead":0,"ref":1,"bind":1}}]}}}}]"#
        )
    };
    assert_eq!(rules(&of(&json(0))).len(), 1);
    assert!(refusal(&of(&json(3))).contains("chain 3"));
}

#[test]
fn lists_say_what_their_times_and_masks_are() {
    let text = "192.0.2.7 \t2026-11-23 10:00:00 + 600 = 2026-11-23 10:10:00\n";
    assert!(imported(Format::Fail2ban, text).text.contains("it begins anew"));
    let text = "create a hash:ip family inet bitmask 255.255.0.255\nadd a 192.0.2.7\n";
    let made = imported(Format::Ipset, text);
    assert_eq!(made.translated, 0);
    assert!(refusal(&made).contains("bitmask"), "{}", made.text);
}

#[test]
fn each_interface_is_its_own() {
    let limit = |device: &str| {
        format!(
            "-A INPUT -i {device} {HASH} 5/s --hashlimit-burst 9 --hashlimit-name {device} -j DROP"
        )
    };
    let both = iptables(&format!("{}\n{}", limit("eth0"), limit("eth1")));
    assert_eq!(
        rules(&both),
        [
            "interface=eth0 remote_address=0.0.0.0/0: 5/s burst 9",
            "interface=eth1 remote_address=0.0.0.0/0: 5/s burst 9"
        ]
    );
}
