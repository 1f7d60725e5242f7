//! Pairs of `recent`, one rule that notes and one that counts: rules between the two, and other
//! uses of their list, are taken into account, or the pair is refused.

use super::*;

const SSH: &str = "-A INPUT -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -m recent";
const TABLE: &str = "protocol=tcp destination_port=22";

/// A chain with the two rules, C that counts and S that notes, and lines between.
fn around(first: &str, between: &str, second: &str) -> Imported {
    let rule = |which: &str| match which {
        "S" => format!("{SSH} --set --name L"),
        "S accepts" => format!("{SSH} --set --name L -j ACCEPT"),
        "S drops" => format!("{SSH} --set --name L -j DROP"),
        "S returns" => format!("{SSH} --set --name L -j RETURN"),
        "C" => format!("{SSH} --update --seconds 60 --hitcount 4 --name L -j DROP"),
        other => panic!("{other}"),
    };
    iptables(&format!("{}\n{between}\n{}", rule(first), rule(second)))
}

#[test]
fn what_stands_between_a_pair_is_accounted_for_or_refused() {
    let log = |most: u32| format!("{TABLE} remote_address=0.0.0.0/0: sliding_log {most} syns/60s");
    let spared = |net: &str| format!("{TABLE} remote_address={net}: unlimited");
    for (between, expected) in [
        ("", Some(vec![])),
        ("-A INPUT -j LOG", Some(vec![])),
        ("-A INPUT -p tcp -m limit --limit 3/min -j LOG", Some(vec![])),
        ("-A INPUT -p udp -j DROP", Some(vec![])),
        ("-A INPUT -p tcp --dport 80 -j ACCEPT", Some(vec![])),
        ("-A INPUT -m conntrack --ctstate INVALID -j DROP", Some(vec![])),
        ("-A INPUT -i lo -j ACCEPT", Some(vec![])),
        ("-A INPUT -s 192.0.2.7 -j DROP", Some(vec![])),
        // An accepted source is noted but not counted, or counted but never noted.
        ("-A INPUT -s 198.51.100.0/24 -j ACCEPT", Some(vec![spared("198.51.100.0/24")])),
        (
            "-A INPUT -s 198.51.100.0/24 -p tcp --dport 22 -j ACCEPT\n-A INPUT -s 10.0.0.0/8 -j ONE\n\
             -A ONE -p tcp -j ACCEPT",
            Some(vec![spared("198.51.100.0/24"), spared("10.0.0.0/8")]),
        ),
        // Chains that do not decide on these packets.
        ("-A INPUT -j ONE\n-A ONE -p udp -j DROP\n-A ONE -j RETURN", Some(vec![])),
        ("-A INPUT -j ONE\n-A ONE -s 192.0.2.7 -j REJECT\n-A ONE -j RETURN", Some(vec![])),
        (
            "-A INPUT -p tcp -j ONE\n-A ONE -m limit --limit 3/min -j RETURN\n-A ONE -j LOG",
            Some(vec![]),
        ),
        // Each of these rules takes away some of the packets.
        ("-A INPUT -p tcp -j ACCEPT", None),
        ("-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED,NEW -j ACCEPT", None),
        ("-A INPUT -p tcp --dport 22 -j DROP", None),
        ("-A INPUT -p tcp -d 192.0.2.1 -j DROP", None),
        ("-A INPUT -p tcp -j RETURN", None),
        ("-A INPUT -s 10.0.0.0/8 -j RETURN", None),
        ("-A INPUT -p tcp --syn -j RETURN", None),
        ("-A INPUT -i eth0 -j RETURN", None),
        ("-A INPUT -p tcp -j ONE\n-A ONE -p tcp --dport 22 -j ACCEPT", None),
        ("-A INPUT -p tcp -g ONE\n-A ONE -p udp -j DROP", None),
        ("-A INPUT -j ONE\n-A ONE -j TWO\n-A TWO -m mark --mark 1 -j ACCEPT", None),
        (
            "-A INPUT -j ONE\n-A ONE -p tcp --sport 9 -j RETURN\n-A ONE -s 10.0.0.0/8 -j ACCEPT",
            None,
        ),
        ("-A INPUT -j NOWHERE", None),
        ("-A INPUT -j NFQUEUE --queue-num 1", None),
        ("-A INPUT -p tcp -m limit --limit 5/s -j ACCEPT", None),
        ("-A INPUT -p tcp -m string --string x -j ACCEPT", None),
        (
            "-A INPUT -p tcp -m hashlimit --hashlimit-above 1/s --hashlimit-mode srcip --hashlimit-name h -j DROP",
            None,
        ),
    ] {
        for (first, second, most) in [("S", "C", 3), ("C", "S", 4), ("C", "S accepts", 4)] {
            let imported = around(first, between, second);
            let text = format!("{first} {second}: {between}\n{}", imported.text);
            let name = if first == "C" { 0 } else { imported.rules.len() - 1 };
            let Some(more) = &expected else {
                let rule = &imported.rules[name];
                assert_eq!(rule.outcome, Outcome::NotTranslated, "{text}");
                assert!(rule.reason.as_ref().is_some_and(|why| why.contains("line ")), "{text}");
                continue;
            };
            let mut expected = vec![log(most)];
            expected.extend(more.iter().cloned());
            let made = rules(&imported);
            let own: Vec<_> = made.into_iter().filter(|rule| rule.starts_with(TABLE)).collect();
            assert_eq!(own, expected, "{text}");
        }
    }
}

#[test]
fn a_pair_is_about_what_goes_on_behind_its_note() {
    let made = around("C", "", "S drops");
    assert!(made.text.contains("drops what it notes"), "{}", made.text);
    for first in ["S drops", "S accepts"] {
        let made = around(first, "", "C");
        assert!(refusal(&made).contains("no packet comes as far: line 3"), "{}", made.text);
    }
    assert_eq!(rules(&around("C", "", "S returns")).len(), 1);
    // The trap in guides: only packets that no earlier rule accepted are noted.
    let trap = "*filter\n:INPUT DROP [0:0]\n:TCP - [0:0]\n-A INPUT -p tcp -m recent --update \
                --seconds 60 --hitcount 2 --name T --rsource -j REJECT\n-A INPUT -p tcp --syn -j \
                TCP\n-A INPUT -p tcp -m recent --set --name T --rsource -j REJECT\n-A TCP -p tcp \
                --dport 80 -j ACCEPT\nCOMMIT\n";
    assert_eq!(rules(&imported(Format::Iptables, trap)), [""; 0]);
    // Without the target, the chain in between still takes away some packets.
    let open = trap.replace("--set --name T --rsource -j REJECT", "--set --name T --rsource");
    let made = imported(Format::Iptables, &open);
    let why = made.rules[0].reason.as_ref().unwrap();
    assert!(why.contains("line 7 stands between"), "{}", made.text);
}

#[test]
fn a_list_is_for_its_pairs_alone() {
    let pair = |port: u16, list: &str| {
        format!(
            "-A INPUT -p tcp --dport {port} -m recent --set --name {list}\n-A INPUT -p tcp --dport \
             {port} -m recent --update --seconds 60 --hitcount 4 --name {list} -j DROP\n"
        )
    };
    // As in ufw: each pair applies to other packets.
    let both = iptables(&format!("{}{}", pair(22, "D"), pair(80, "D")));
    assert_eq!(rules(&both).len(), 2, "{}", both.text);
    assert!(both.text.contains("N: there its list is shared"));
    for (more, why) in [
        ("-A INPUT -p tcp --dport 23 -m recent --set --name D", "uses its list as well"),
        ("-A INPUT -p tcp --dport 23 -m recent --remove --name D", "uses its list as well"),
        ("-A INPUT -m recent --update --name D -j DROP", "uses its list as well"),
        // Each packet to port 22 would count twice.
        (
            "-A INPUT -p tcp -m recent --set --name D\n-A INPUT -p tcp -m recent --update \
             --seconds 60 --hitcount 9 --name D -j DROP",
            "counts in the same list",
        ),
    ] {
        let made = iptables(&format!("{}{more}", pair(22, "D")));
        assert_eq!(rules(&made), [""; 0], "{more}");
        assert!(made.text.contains(why), "{more}: {}", made.text);
        // The other tables of netfilter work in the same way.
        let raw = more.replace("INPUT", "PREROUTING");
        let text = format!(
            "*raw\n:PREROUTING ACCEPT [0:0]\n{raw}\nCOMMIT\n*filter\n:INPUT ACCEPT \
             [0:0]\n{}COMMIT\n",
            pair(22, "D")
        );
        assert_eq!(rules(&imported(Format::Iptables, &text)), [""; 0], "{text}");
    }
    // Packets of the first are gone before they come to the second.
    let ends = "-A INPUT -p tcp --dport 22 -j ACCEPT\n-A INPUT -p tcp -m recent --set --name D\n-A \
                INPUT -p tcp -m recent --update --seconds 60 --hitcount 9 --name D -j DROP";
    let made = iptables(&format!("{}{ends}", pair(22, "D")));
    assert!(!made.text.contains("counts in the same list"), "{}", made.text);
    // A rule that only reports it changes nothing.
    let output = "-A INPUT -m recent --rcheck --seconds 60 --hitcount 4 --name D -j LOG";
    assert_eq!(rules(&iptables(&format!("{}{output}", pair(22, "D")))).len(), 1);
}

/// Guides log refused packets with `--update`, which notes them once more: as long as the log has
/// the same condition as the rule after it, it notes no packet that passes.
#[test]
fn a_log_of_what_a_pair_refuses_is_none_of_its_business() {
    let log = |ask: &str| format!("{SSH} {ask} --name L -j LOG --log-prefix \"SSH \"");
    let same = log("--update --seconds 60 --hitcount 4");
    for (first, second, most) in [("S", "C", 3), ("C", "S", 4)] {
        let made = around(first, &same, second);
        let expected = format!("{TABLE} remote_address=0.0.0.0/0: sliding_log {most} syns/60s");
        assert_eq!(rules(&made), [expected], "{}", made.text);
        assert!(made.text.contains("N: there what is refused counts as well"), "{}", made.text);
    }
    // The form of a chain that only new connections reach.
    let chain = "-A INPUT -p tcp --dport 22 -m state --state NEW -j SCAN\n-A SCAN -m recent --set \
                 --name L\n-A SCAN -m recent --update --seconds 300 --hitcount 20 --name L -j LOG\n\
                 -A SCAN -m recent --update --seconds 300 --hitcount 20 --name L -j DROP";
    let made = rules(&iptables(chain));
    assert_eq!(made, [format!("{TABLE} remote_address=0.0.0.0/0: sliding_log 19 syns/300s")]);
    for other in [
        log("--update --seconds 60 --hitcount 3"),
        log("--update --seconds 90 --hitcount 4"),
        log("--update"),
        log("--remove"),
        format!("{same} -m conntrack --ctstate NEW -m tcp --sport 9"),
    ] {
        let made = around("S", &other, "C");
        assert_eq!(rules(&made), [""; 0], "{other}: {}", made.text);
    }
}

#[test]
fn two_logs_that_do_not_fit_leave_the_first() {
    let pair = |list: &str, seconds: u32| {
        format!(
            "-A INPUT -p tcp --dport 80 -m recent --set --name {list}\n-A INPUT -p tcp --dport 80 \
             -m recent --update --seconds {seconds} --hitcount 20 --name {list} -j DROP\n"
        )
    };
    let made = iptables(&format!("{}{}", pair("a", 10), pair("b", 1)));
    assert_eq!(
        rules(&made),
        ["protocol=tcp destination_port=80 remote_address=0.0.0.0/0: sliding_log 19/10s"]
    );
    assert!(refusal(&made).contains("32 words"), "{}", made.text);
}
