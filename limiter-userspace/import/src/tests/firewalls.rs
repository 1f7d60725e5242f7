//! Rule sets as made by ufw, firewalld and others, and the reasons given for rules from public
//! guides.

use super::*;

/// ufw's own chains, as its files have them, and some rules of a user.
const UFW: &str = "*filter\n:ufw-user-input - [0:0]\n:ufw-user-logging-input - [0:0]\n\
    :ufw-logging-deny - [0:0]\n:ufw-user-limit - [0:0]\n:ufw-user-limit-accept - [0:0]\n### RULES \
    ###\n\n### tuple ### limit tcp 22 0.0.0.0/0 any 0.0.0.0/0 in\n-A ufw-user-input -p tcp --dport \
    22 -m conntrack --ctstate NEW -m recent --set\n-A ufw-user-input -p tcp --dport 22 -m conntrack \
    --ctstate NEW -m recent --update --seconds 30 --hitcount 6 -j ufw-user-limit\n-A ufw-user-input \
    -p tcp --dport 22 -j ufw-user-limit-accept\n\n### tuple ### limit tcp 80:90 0.0.0.0/0 any \
    0.0.0.0/0 in\n-A ufw-user-input -p tcp -m multiport --dports 80:90 -m conntrack --ctstate NEW -m \
    recent --set\n-A ufw-user-input -p tcp -m multiport --dports 80:90 -m conntrack --ctstate NEW -m \
    recent --update --seconds 30 --hitcount 6 -j ufw-user-limit\n-A ufw-user-input -p tcp -m \
    multiport --dports 80:90 -j ufw-user-limit-accept\n\n### LOGGING ###\n-A \
    ufw-user-logging-input -m conntrack --ctstate NEW -m limit --limit 3/min --limit-burst 10 -j LOG \
    --log-prefix \"[UFW ALLOW] \"\n-I ufw-logging-deny -m conntrack --ctstate INVALID -j RETURN -m \
    limit --limit 3/min --limit-burst 10\n-A ufw-logging-deny -j LOG --log-prefix \"[UFW BLOCK] \" \
    -m limit --limit 3/min --limit-burst 10\n### END LOGGING ###\n-A ufw-user-limit -m limit --limit \
    3/minute -j LOG --log-prefix \"[UFW LIMIT BLOCK] \"\n-A ufw-user-limit -j REJECT\n-A \
    ufw-user-limit-accept -j ACCEPT\nCOMMIT\n";

#[test]
fn ufw_as_it_comes_with_its_logging() {
    let made = imported(Format::Ufw, UFW);
    let log = "sliding_log 5 syns/30s; reject";
    let expected = [
        format!("protocol=tcp destination_port=22 remote_address=0.0.0.0/0: {log}"),
        format!("protocol=tcp destination_port=80-90 remote_address=0.0.0.0/0: {log}"),
    ];
    assert_eq!(rules(&made), expected, "{}", made.text);
    assert_eq!(made.count(Outcome::NotTranslated), 0, "{}", made.text);
    // In the output of iptables-save, chains that log stand before the user's.
    let saved = "*filter\n:INPUT DROP [0:0]\n-A INPUT -j before\n-A INPUT -j ufw-user-input\n-A before \
                 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A before -m conntrack \
                 --ctstate INVALID -j ufw-logging-deny\n-A before -m conntrack --ctstate INVALID -j \
                 DROP\n-A before -j not-local\n-A not-local -m addrtype --dst-type LOCAL -j \
                 RETURN\n-A not-local -m limit --limit 3/min --limit-burst 10 -j \
                 ufw-logging-deny\n-A not-local -m addrtype --dst-type UNICAST -j DROP\n";
    let made = imported(Format::Iptables, &UFW.replacen("*filter\n", saved, 1));
    assert_eq!(rules(&made), expected, "{}", made.text);
}

/// Route rules match addresses that DNAT wrote, such as a container's, which ufw's files do not
/// show.
#[test]
fn route_rules_of_ufw_are_refused_for_what_they_are() {
    let route = "*filter\n:ufw-user-input - [0:0]\n:ufw-user-forward - [0:0]\n### tuple ### \
                 route:limit tcp 443 172.17.0.2 any 0.0.0.0/0 in\n-A ufw-user-forward -p tcp -d \
                 172.17.0.2 --dport 443 -m conntrack --ctstate NEW -m recent --set\n-A \
                 ufw-user-forward -p tcp -d 172.17.0.2 --dport 443 -m conntrack --ctstate NEW -m \
                 recent --update --seconds 30 --hitcount 6 -j ufw-user-limit\n-A ufw-user-forward -p \
                 tcp -d 172.17.0.2 --dport 443 -j ufw-user-limit-accept\n-A ufw-user-forward -s \
                 192.0.2.7 -j DROP\n-A ufw-user-limit -j REJECT\n-A ufw-user-limit-accept -j \
                 ACCEPT\nCOMMIT\n";
    let made = imported(Format::Ufw, route);
    assert_eq!(rules(&made), [""; 0], "{}", made.text);
    let refused = made.rules.iter().filter(|rule| rule.outcome == Outcome::NotTranslated);
    let reasons: Vec<&str> = refused.filter_map(|rule| rule.reason.as_deref()).collect();
    assert_eq!(reasons.len(), 2, "{}", made.text);
    assert!(reasons.iter().all(|why| why.contains("give iptables-save")), "{}", made.text);
    assert!(!made.text.contains("no chain with a hook"), "{}", made.text);
}

/// A type of ICMP with a code applies to no other type, and does not accept all of that type.
#[test]
fn openwrt_limits_icmpv6_by_type_and_code() {
    let kind =
        |field: &str| format!(r#"{{"payload": {{"protocol": "icmpv6", "field": "{field}"}}}}"#);
    let by_type = format!(
        r#"[{{"match": {{"op": "==", "left": {}, "right": {{"set": ["echo-request",
            "time-exceeded"]}}}}}}, {{"limit": {{"rate": 1000, "per": "second", "burst": 5}}}},
            {{"accept": null}}]"#,
        kind("type")
    );
    let both = |row: &str, verdict: &str| {
        format!(
            r#"[{{"match": {{"op": "==", "left": {{"concat": [{}, {}]}}, "right": {{"set":
                [{{"concat": ["{row}", "no-route"]}}, {{"concat": ["parameter-problem", 1]}}]}}}}}},
                {{"{verdict}": null}}]"#,
            kind("type"),
            kind("code")
        )
    };
    let rest = r#"[{"reject": {"type": "icmpx", "expr": "port-unreachable"}}]"#;
    let made = nft(&[&by_type, &both("packet-too-big", "accept"), rest]);
    assert_eq!(rules(&made).len(), 2, "{}", made.text);
    assert!(rules(&made)[0].contains("together 1000/s burst 5; reject"), "{}", made.text);
    let made = nft(&[&by_type, &both("echo-request", "accept"), rest]);
    assert_eq!(rules(&made), [""; 0], "{}", made.text);
    // A drop by several fields at once is no denial.
    let made = nft(&[&both("echo-request", "drop")]);
    assert_eq!(rules(&made), [""; 0], "{}", made.text);
    assert!(made.text.contains("code"), "{}", made.text);
}

/// A rule with a negated condition does not apply to the packets that it excludes.
#[test]
fn what_a_rule_is_not_for_narrows_nothing() {
    let limit = "-A INPUT -p udp --dport 53 -m hashlimit --hashlimit-above 5/s --hashlimit-burst 9 \
                 --hashlimit-mode srcip --hashlimit-name a -j DROP";
    for (before, translated) in [
        ("! -p tcp -j ACCEPT", false),
        ("-p tcp -j ACCEPT", true),
        ("-p icmp ! --icmp-type 8 -j ACCEPT", true),
        ("-p icmp --icmp-type 3/4 -j ACCEPT", true),
    ] {
        let made = iptables(&format!("-A INPUT {before}\n{limit}"));
        assert_eq!(!rules(&made).is_empty(), translated, "{before}: {}", made.text);
    }
    let pings = limit.replace("-p udp --dport 53", "-p icmp --icmp-type 0");
    for (before, translated) in [
        ("-p icmp ! --icmp-type 8 -j ACCEPT", false),
        ("-p icmp --icmp-type 3/4 -j ACCEPT", true),
        ("-p icmp --icmp-type 0/1 -j ACCEPT", false),
    ] {
        let made = iptables(&format!("-A INPUT {before}\n{pings}"));
        assert_eq!(!rules(&made).is_empty(), translated, "{before}: {}", made.text);
    }
}

#[test]
fn a_limit_on_icmp_that_rules_share_is_of_its_family() {
    let text = r#"{"nftables": [{"chain": {"family": "inet", "table": "f", "name": "input", "type":
        "filter", "hook": "input", "prio": 0, "policy": "drop"}}, {"limit": {"family": "inet",
        "table": "f", "name": "lim", "rate": 400, "per": "minute", "burst": 5}}, {"rule": {"family":
        "inet", "table": "f", "chain": "input", "handle": 4, "expr": [{"match": {"op": "==", "left":
        {"meta": {"key": "l4proto"}}, "right": "NAME"}}, {"limit": "lim"}, {"accept": null}]}}]}"#;
    for (name, expected) in [("icmp", "0.0.0.0/0"), ("ipv6-icmp", "::/0")] {
        let made = imported(Format::Nft, &text.replace("NAME", name));
        let made = rules(&made);
        assert_eq!(made.len(), 1, "{made:?}");
        assert!(made[0].contains(&format!("remote_address={expected}: together")), "{made:?}");
    }
}

/// A limit after an unknown condition is refused for that condition, not for the rules after it.
#[test]
fn the_first_reason_is_the_one_that_is_reported() {
    let made = iptables(
        "-A INPUT -p tcp --dport 80 --syn -m connlimit --connlimit-above 1 -j FLOOD\n-A INPUT -j \
         ACCEPT\n-A FLOOD -m limit --limit 10/s --limit-burst 10 -j RETURN\n-A FLOOD -j DROP",
    );
    let why: Vec<_> = made.rules.iter().filter_map(|rule| rule.reason.as_deref()).collect();
    assert!(why[2].contains("connlimit: connections that are open"), "{}", made.text);
}

/// Limits without a time, and words that are not options.
#[test]
fn what_cannot_be_meant_is_reported_with_its_way_out() {
    let quota = r#"[{"quota": {"val": 25, "val_unit": "mbytes", "inv": true}}, {"drop": null}]"#;
    assert!(refusal(&nft(&[quota])).contains("algorithm: fixed_window"));
    let each = r#"[{"set": {"op": "add", "set": "@users", "elem": {"payload": {"protocol": "ip",
        "field": "saddr"}}, "stmt": [{"quota": {"val": 10, "val_unit": "mbytes"}}]}}, {"drop": null}]"#;
    assert!(refusal(&nft(&[each])).contains("algorithm: fixed_window"));
    // More packets than a log can hold.
    let noted = "-A INPUT -p udp --dport 27015 -m recent --name D --set\n-A INPUT -p udp --dport \
                 27015 -m recent --name D --update --seconds 30 --hitcount 8000 -j DROP";
    assert!(refusal(&iptables(noted)).contains("algorithm: sliding_counter"));
    let saved = "-N gfwlist nethash --hashsize 1024\n-A gfwlist 192.0.2.0/24\nCOMMIT\n";
    let made = import(saved.as_bytes(), &Options::default()).unwrap();
    assert_eq!((made.format.as_str(), made.translated), ("ipset", 1), "{}", made.text);
    let made = imported(Format::Iptables, "-N list\n-A list 192.0.2.0/24\n");
    assert!(refusal(&made).contains("`192.0.2.0/24` is not known"), "{}", made.text);
    let listed = "Name: f\nType: hash:ip\nRevision: 4\nMembers:\n192.0.2.1 timeout 5\n";
    let said = import(listed.as_bytes(), &Options::default()).unwrap_err().to_string();
    assert!(said.contains("give the output of `ipset save`"), "{said}");
}

#[test]
fn a_rule_that_is_inserted_comes_first() {
    let limit = "-A INPUT -p tcp --dport 22 -m hashlimit --hashlimit-above 5/s --hashlimit-burst 9 \
                 --hashlimit-mode srcip --hashlimit-name a -j DROP";
    let made = iptables(&format!("{limit}\n-I INPUT -s 192.0.2.7 -j ACCEPT"));
    let table = "protocol=tcp destination_port=22";
    let limited = format!("{table} remote_address=0.0.0.0/0: 5/s burst 9");
    let spared = format!("{table} remote_address=192.0.2.7: unlimited");
    assert_eq!(rules(&made), [limited.as_str(), &spared]);
    let made = iptables(&format!("{limit}\n-I INPUT 2 -s 192.0.2.7 -j ACCEPT"));
    assert_eq!(rules(&made), [limited]);
}

/// Chains of firewalld's zone `public`, with rules that allow.
fn firewalld(allow: &str) -> String {
    let input = "-m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT\n-i lo -j ACCEPT\n-j \
                 ZONES\n-m conntrack --ctstate INVALID -j DROP\n-j REJECT";
    let zones = "-i eth0 -g IN_public\n-i eth1 -g IN_home\n-i eth2 -g IN_public\n-g IN_public";
    let public =
        "-j POLICIES_pre\n-j public_deny\n-j public_allow\n-j POLICIES_post\n-p icmp -j ACCEPT";
    let mut text = "*filter\n:INPUT ACCEPT [0:0]\n:POLICIES_post - [0:0]\n:public_deny - [0:0]\n\
                    :IN_home - [0:0]\n"
        .to_owned();
    for (chain, lines) in [
        ("INPUT", input),
        ("ZONES", zones),
        ("IN_public", public),
        ("POLICIES_pre", "-p icmp -j ACCEPT"),
        ("public_allow", allow),
        ("IN_home", "-p tcp --dport 80 -j ACCEPT"),
    ] {
        for line in lines.lines() {
            text.extend(["-A ", chain, " ", line, "\n"]);
        }
    }
    text + "COMMIT\n"
}

#[test]
fn a_limit_of_firewalld_is_dropped_by_the_chain_that_jumped() {
    let ssh = "-p tcp --dport 22 -m conntrack --ctstate NEW,UNTRACKED -m limit --limit 3/min \
               --limit-burst 5 -j ACCEPT";
    // The zone `home` takes some of the packets.
    let made = imported(Format::Iptables, &firewalld(ssh));
    assert!(made.text.contains("takes some of its packets away"), "{}", made.text);
    let one = firewalld(ssh).replace("-A ZONES -i eth1 -g IN_home\n", "");
    let made = imported(Format::Iptables, &one);
    assert_eq!(
        rules(&made),
        [
            "protocol=tcp destination_port=22 remote_address=0.0.0.0/0: together 3 syns/min burst 5; reject"
        ],
        "{}",
        made.text
    );
    // The zone accepts all packets over this limit.
    let ping = "-p icmp --icmp-type 8 -m limit --limit 1/min -j ACCEPT";
    let icmp = one.replace(ssh, ping).replace("-A POLICIES_pre -p icmp -j ACCEPT\n", "");
    let made = imported(Format::Iptables, &icmp);
    assert_eq!(rules(&made), [""; 0]);
    assert!(made.text.contains("which does not drop all of it"), "{}", made.text);
    let open = one.replace("-A INPUT -j REJECT\n", "");
    assert!(imported(Format::Iptables, &open).text.contains("no rule behind it drops"));
}

#[test]
fn a_rule_is_reached_by_the_jumps_that_lead_to_it() {
    let hash = "-m hashlimit --hashlimit-above 6/sec --hashlimit-burst 30 --hashlimit-mode srcip \
                --hashlimit-name";
    let text = |more: &str| {
        format!(
            "*raw\n:PREROUTING ACCEPT [0:0]\n:DNS - [0:0]\n-A PREROUTING -p udp --dport 53 -j DNS\n-A \
             PREROUTING -p tcp --dport 53 -j DNS\n{more}-A DNS -p tcp {hash} t -j DROP\n-A DNS -p \
             udp {hash} u -j DROP\n-A DNS {hash} all -j DROP\n-A DNS -p sctp {hash} s -j \
             DROP\nCOMMIT\n"
        )
    };
    let made = imported(Format::Iptables, &text(""));
    let limit = "remote_address=0.0.0.0/0: 6/s burst 30";
    assert_eq!(
        rules(&made),
        [
            format!("protocol=udp destination_port=53 {limit}"),
            format!("protocol=tcp destination_port=53 {limit}"),
        ],
        "{}",
        made.text
    );
    let reason = |name: &str| {
        let found = made.rules.iter().find(|rule| rule.rule.contains(name)).unwrap();
        found.reason.clone().unwrap_or_default()
    };
    assert!(reason("name all").contains("several jumps"));
    assert!(reason("name s ").contains("no packet meets"));
    let spared = "-A PREROUTING -s 192.0.2.0/25 -i eth0 -j ACCEPT\n";
    let made = imported(
        Format::Iptables,
        &text("").replacen("-A PREROUTING", &format!("{spared}-A PREROUTING"), 1),
    );
    assert!(made.rules[3].reason.as_ref().unwrap().contains("line 4 takes some"), "{}", made.text);
}

#[test]
fn texts_that_cannot_be_read_say_what_to_give() {
    let part = "*filter\n:ufw-before-input - [0:0]\n:ufw-http - [0:0]\n-A ufw-before-input -p tcp \
                --dport 80 -j ufw-http\n-A ufw-http -m hashlimit --hashlimit-above 5/s \
                --hashlimit-mode srcip --hashlimit-name a -j DROP\nCOMMIT\n";
    assert!(refusal(&imported(Format::Iptables, part)).contains("iptables-save has"));
    let of = |text: &str| import(text.as_bytes(), &Options::default()).unwrap_err().to_string();
    assert!(of("#!/bin/sh\nIPT=/sbin/iptables\n$IPT -F\n").contains("run it and give"));
    let crowdsec = r#"[{"capacity": 0, "decisions": [{"duration": "3h", "origin": "cscli",
        "scenario": "manual 'ban' from 'x'", "value": "203.0.113.5"}], "id": 1}]"#;
    let named = Options { format: Some(Format::Fail2ban), ..Options::default() };
    let said = import(crowdsec.as_bytes(), &named).unwrap_err().to_string();
    assert!(said.contains("`limiter import crowdsec` reads"), "{said}");
    // An entry of JSON is identified only by its place.
    let captcha = r#"[{"decisions": [{"duration": "1h", "type": "captcha",
        "scenario": "manual 'ban' from 'x'", "value": "203.0.113.77"}]}]"#;
    let made = imported(Format::Crowdsec, captcha);
    let skipped = "# Not translated, decision 1\n#   its remedy is captcha, and a list drops\n";
    assert!(made.text.contains(skipped), "{}", made.text);
}

#[test]
fn bans_without_times_are_reported() {
    for text in [
        "[{'sshd': ['203.0.113.5', '2001:db8::7']}, {'recidive': []}]",
        "Status for the jail: sshd\n`- Banned IP list:\t203.0.113.5\n",
        "203.0.113.5\n203.0.113.6\n",
    ] {
        let made = imported(Format::Fail2ban, text);
        assert!(made.text.contains("There are no times"), "{}", made.text);
        let output = made.remarks.first().unwrap();
        assert!(output.contains("get JAIL banip --with-time"), "{output}");
    }
    let timed = "203.0.113.5 \t2026-11-27 04:00:00 + 600 = 2026-11-27 04:10:00\n203.0.113.6 \
                 \t2026-11-27 04:00:00 + -1 = 9999-12-31 23:59:59\n";
    let made = imported(Format::Fail2ban, timed);
    assert!(made.remarks.is_empty(), "{:?}", made.remarks);
    assert!(made.text.contains("203.0.113.5 600s\n203.0.113.6\n"), "{}", made.text);
    assert!(imported(Format::Fail2ban, "[{'sshd': []}]").remarks.is_empty());
}
