//! Published rules of various kinds: rules that are not limits give none here, and rules that
//! cannot be expressed are not translated in part.

use super::*;

/// Outcome of a rule in a line of the text, and some words of the reason.
type Expected = (usize, Outcome, &'static str);

/// The kind, the text after the head of its table, and each rule.
type Kind = (&'static str, &'static str, &'static [Expected]);

const HEAD: &str = "*filter\n:INPUT ACCEPT [0:0]\n";

const KINDS: &[Kind] = &[
    (
        "a limit behind a rule that accepts all it could limit",
        "-A INPUT -p udp -m udp --dport 53 -j ACCEPT
-A INPUT -p udp -m udp --dport 53 -m hashlimit --hashlimit-upto 30/min --hashlimit-burst 10 \
         --hashlimit-mode srcip --hashlimit-srcmask 24 --hashlimit-name dns -j ACCEPT
-A INPUT -p udp -m udp --dport 53 -j DROP",
        &[
            (3, Outcome::Left, "accepts"),
            (4, Outcome::NotTranslated, "no packet comes as far: line 3 takes all"),
            (5, Outcome::NotTranslated, "drops whatever the rate"),
        ],
    ),
    (
        "a limit whose match stands behind it",
        "-A INPUT -p udp -m hashlimit --hashlimit-upto 30/min --hashlimit-burst 10 \
         --hashlimit-mode srcip --hashlimit-name dns -m udp --dport 53 -j ACCEPT
-A INPUT -p udp -m udp --dport 53 -j DROP",
        &[
            (3, Outcome::NotTranslated, "stands behind the limit"),
            (4, Outcome::NotTranslated, "drops whatever the rate"),
        ],
    ),
    (
        "a list that one kind of packets fills and all packets are counted by",
        "-A INPUT -p udp -m udp --dport 53 -m recent --set --name dns --rsource
-A INPUT -m recent --update --seconds 10 --hitcount 20 --name dns --rsource -j LOG
-A INPUT -m recent --update --seconds 10 --hitcount 20 --name dns --rsource -j DROP",
        &[
            (3, Outcome::NotTranslated, "no pair of rules with the same conditions"),
            (4, Outcome::NotTranslated, "no pair of rules with the same conditions"),
            (5, Outcome::NotTranslated, "no pair of rules with the same conditions"),
        ],
    ),
    (
        "a list by the time to live, and a chain that takes sources off it",
        ":KNOWN - [0:0]
-A INPUT -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -m recent --set --name ssh --rsource
-A INPUT -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -j KNOWN
-A INPUT -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -m recent --update --seconds 60 \
         --hitcount 4 --rttl --name ssh --rsource -j DROP
-A KNOWN -s 198.51.100.56/32 -m recent --remove --name ssh --rsource -j ACCEPT",
        &[
            (4, Outcome::NotTranslated, "no pair of rules"),
            (5, Outcome::Left, "only leads to other rules"),
            (6, Outcome::NotTranslated, "--rttl"),
            (7, Outcome::NotTranslated, "in more ways than one pair"),
        ],
    ),
    (
        "a condition on bytes of the packet before the limit",
        ":LIMITED - [0:0]
-A INPUT -p udp -m udp --dport 53 -m u32 --u32 \"0x0>>0x16&0x3c@0x14=0xff\" -j LIMITED
-A LIMITED -m hashlimit --hashlimit-above 20/sec --hashlimit-burst 100 --hashlimit-mode srcip \
         --hashlimit-name dns --hashlimit-srcmask 28 -j DROP",
        &[
            (4, Outcome::Left, "only leads to other rules"),
            (5, Outcome::NotTranslated, "no condition as `-m u32`"),
        ],
    ),
    (
        "open connections, with sources that are exempt",
        "-A INPUT -s 198.51.100.53/32 -p tcp -m tcp --dport 53 -j ACCEPT
-A INPUT -p tcp -m tcp --dport 53 -m connlimit --connlimit-above 10 --connlimit-mask 32 \
         --connlimit-saddr -j REJECT",
        &[
            (3, Outcome::Left, "accepts"),
            (4, Outcome::NotTranslated, "connections that are open are not counted"),
        ],
    ),
];

#[test]
fn what_cannot_be_said_here_is_not_said_by_half() {
    for (kind, rules_there, expected) in KINDS {
        let text = format!("{HEAD}{rules_there}\nCOMMIT\n");
        let imported = imported(Format::Iptables, &text);
        let reported = || format!("{kind}\n{}", imported.text);
        let found: Vec<_> = imported
            .rules
            .iter()
            .map(|rule| (rule.place.clone(), rule.outcome, rule.reason.clone().unwrap_or_default()))
            .collect();
        assert_eq!(found.len(), expected.len(), "{}", reported());
        for ((place, outcome, reason), (line, wanted, words)) in found.iter().zip(*expected) {
            assert_eq!(
                (place.as_str(), *outcome),
                (&*format!("line {line}"), *wanted),
                "{}",
                reported()
            );
            assert!(reason.contains(words), "{kind}, line {line}: {reason}");
        }
        // The remaining rules limit nobody, and the file states this.
        assert_eq!(rules(&imported), [""; 0], "{}", reported());
        assert_eq!(bare(&imported), "descriptors: []\n", "{}", reported());
    }
}

/// All SYNs together, in a chain that returns packets within the limit and drops the rest.
#[test]
fn one_limit_for_everybody_is_a_budget() {
    let flags = "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN";
    let text = format!(
        "{HEAD}:flood - [0:0]\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
         -A INPUT {flags} -j flood\n-A flood {flags} -m limit --limit 25/sec --limit-burst 50 -j \
         RETURN\n-A flood -j DROP\nCOMMIT\n"
    );
    let imported = imported(Format::Iptables, &text);
    assert_eq!(
        rules(&imported),
        ["protocol=tcp remote_address=0.0.0.0/0: together 25 syns/s burst 50"],
        "{}",
        imported.text
    );
}

/// Two ports whose lists have one name: there each counts the tries at the other as well.
#[test]
fn lists_of_one_name_are_reported_as_a_difference() {
    let pair = |port: &str, seconds: u32| {
        let list = "--name DEFAULT --mask 255.255.255.255 --rsource";
        format!(
            "-A INPUT {port} -m state --state NEW -m recent --set {list}\n-A INPUT {port} -m state \
             --state NEW -m recent --update --seconds {seconds} --hitcount 4 {list} -j DROP\n"
        )
    };
    let (game, voice) = (pair("-p tcp -m tcp --dport 25565", 10), pair("-p udp --dport 30001", 60));
    let imported = iptables(format!("{game}{voice}").trim_end());
    let found = rules(&imported);
    assert_eq!(
        found,
        [
            "protocol=tcp destination_port=25565 remote_address=0.0.0.0/0: sliding_log 3 syns/10s",
            "protocol=udp destination_port=30001 remote_address=0.0.0.0/0: sliding_log 3 flows/60s",
        ]
    );
    let limits = imported.rules.iter().filter(|rule| rule.outcome == Outcome::Translated);
    for rule in limits {
        let shared = |it: &String| it.contains("its list is shared with other rules");
        assert!(rule.differences.iter().any(shared), "{:?}", rule.differences);
    }
}

/// A policer on a port, by its offset in the packet, and one on everything behind it.
#[test]
fn a_policer_behind_one_that_cannot_be_said_is_not_translated_either() {
    let text = "filter parent ffff: protocol ip pref 49150 u32 chain 0 
filter parent ffff: protocol ip pref 49150 u32 chain 0 fh 801: ht divisor 1 
filter parent ffff: protocol ip pref 49150 u32 chain 0 fh 801::800 order 2048 key ht 801 bkt 0 \
                *flowid :1 not_in_hw 
  match c6336400/ffffff00 at 12
  match 00160000/ffff0000 at nexthdr+0
 police 0x2 rate 8Mbit burst 10Kb mtu 2Kb action drop overhead 0b 
	ref 1 bind 1 
filter parent ffff: protocol all pref 49151 matchall chain 0 
filter parent ffff: protocol all pref 49151 matchall chain 0 handle 0x1 
  not_in_hw
	action order 1:  police 0x1 rate 10Mbit burst 10Kb mtu 2Kb action drop/pipe overhead 0b 
	ref 1 bind 1 
";
    let imported = imported(Format::Tc, text);
    let reasons: Vec<_> = imported.rules.iter().filter_map(|rule| rule.reason.clone()).collect();
    let [first, second] = reasons.as_slice() else { panic!("{}", imported.text) };
    assert!(first.contains("match 00160000/ffff0000 at nexthdr+0"), "{first}");
    assert!(second.contains("takes some of its packets away before"), "{second}");
    assert_eq!(rules(&imported), [""; 0]);
}

/// The file of another XDP program matches no format, and no format is guessed.
#[test]
fn a_file_of_no_format_is_refused_with_those_there_are() {
    let text =
        "interface = \"eth0\";\nfilters = (\n  { action = 0, pps = 2500, blocktime = 60 }\n);\n";
    let error = import(text.as_bytes(), &Options::default()).unwrap_err().to_string();
    assert!(error.contains("no format that is known") && error.contains("iptables"), "{error}");
}
