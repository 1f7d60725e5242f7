//! The help of `limiter`: all commands in groups, those of the first hour first. clap groups
//! options only. The help of each command is clap's.

use std::fmt::Write as _;

/// A heading, and rows of commands that share a description.
type Group = (&'static str, &'static [Row]);

/// Names of commands, separated by commas, and what they do.
type Row = (&'static str, &'static str);

const GROUPS: &[Group] = &[
    (
        "The first hour",
        &[
            ("run", "Start the daemon: attach, and put the rules in force"),
            ("set", "Limit an address, a prefix or a port"),
            ("top", "Watch who sends and who is dropped, and act on it"),
            ("show", "Show one source: its limit, and what is left of it"),
            ("off, on", "Let every packet pass, and limit again"),
        ],
    ),
    (
        "Run",
        &[
            ("status", "Show the daemon, its interfaces and its warnings"),
            #[cfg(feature = "requests")]
            ("serve", "Answer proxies that ask about requests"),
            ("doctor", "Find what keeps limits from holding on this machine"),
            ("demo", "See limits at work on a virtual cable"),
            ("cluster", "Show the nodes that share limits with this one"),
            ("detach", "Remove the program and all limits"),
        ],
    ),
    (
        "Limits",
        &[
            ("list, stats", "List the rules in force, and all counters"),
            ("unset", "Remove a limit that `set` made"),
        ],
    ),
    (
        "Lists",
        &[
            ("allow, deny", "Let addresses pass, or drop them, before any rule"),
            ("lists, unlist", "Show these lists, and take addresses off"),
            #[cfg(feature = "import")]
            ("crowdsec", "Deny whom CrowdSec bans, as its bouncer"),
            ("ban, bans, unban", "Ban an address for a time, list bans, end one"),
        ],
    ),
    (
        "Look",
        &[
            #[cfg(not(feature = "requests"))]
            ("sources", "List the sources that stand out"),
            #[cfg(feature = "requests")]
            ("sources, refused", "List sources that stand out, and keys that `serve` refuses"),
            ("events", "Show who was dropped, when, by which rule and why"),
            ("explain", EXPLAIN),
            ("capture", "Write packets with their verdicts, for Wireshark"),
            ("observe", "Record all packets of a share of the sources"),
        ],
    ),
    (
        "Rules",
        &[
            ("check", "Check rule files and say what they mean"),
            ("apply", "Put rule files in force, for good or on trial"),
            ("confirm, revert", "Keep the rules on trial, or take them back"),
            ("reload", "Read the daemon's own rule files again"),
            ("diff, export", "Compare files with the rules in force; print those"),
        ],
    ),
    (
        "Tools",
        &[
            #[cfg(feature = "import")]
            ("import", "Translate rules and lists of nft, iptables, ufw and more"),
            #[cfg(feature = "replay")]
            ("tune", "Find the limit that traffic needs, and whether limits fit"),
            #[cfg(feature = "replay")]
            ("simulate", "Try rule files on captures, logs or loads, side by side"),
            ("schema", "Print the JSON schema of rule files"),
            ("completions, man", "Print the completions of a shell, and the manual"),
        ],
    ),
];

#[cfg(feature = "replay")]
const EXPLAIN: &str = "Say what becomes of a packet, or of a capture, and why";
#[cfg(not(feature = "replay"))]
const EXPLAIN: &str = "Say what becomes of a packet, and why";

const OPTIONS: &str = "\
Options:
  --socket PATH             The socket [default: /run/limiter/limiter.sock]
  --output table|json|yaml  For people, or for programs [default: table]
  -h, --help; -V, --version

Exit codes: 0 done, 1 failed, 2 refused. Details: `limiter COMMAND --help`.
";

/// Command lines below the help of a command, without the name of the program.
pub(crate) const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "run",
        &[
            "run --limit 1000/s",
            "run --iface eth0 --limit 'udp/27015 128/s' --management 192.0.2.0/24",
            "run --iface eth0 --direction out --limit 20mbit/s",
            "run --iface eth0 --rules /etc/limiter/rules.yaml",
        ],
    ),
    #[cfg(feature = "requests")]
    ("serve", &["serve --rules auth.yaml --listen 127.0.0.1:8081"]),
    #[cfg(feature = "requests")]
    ("refused", &["refused", "refused auth auth_type=login remote_address=192.0.2.7"]),
    ("status", &["status", "status --output json"]),
    (
        "set",
        &[
            "set 192.0.2.7 100/s",
            "set 192.0.2.0/24 20mbit/s --for 1h",
            "set --port 22/tcp --count syns --for 1h --name ssh 10/min",
        ],
    ),
    ("unset", &["unset 192.0.2.7", "unset --port 22/tcp", "unset --all"]),
    ("list", &["list"]),
    ("stats", &["stats", "stats --all"]),
    ("show", &["show 192.0.2.7"]),
    ("sources", &["sources", "sources --within 192.0.2.0/24"]),
    ("top", &["top", "top --once"]),
    ("allow", &["allow 192.0.2.7", "allow --file office.txt --replace"]),
    ("deny", &["deny 192.0.2.0/24 --for 2h --reason scan"]),
    ("unlist", &["unlist 192.0.2.7"]),
    ("lists", &["lists"]),
    #[cfg(feature = "import")]
    ("crowdsec", &["crowdsec --key-file /etc/limiter/crowdsec.key"]),
    ("ban", &["ban 192.0.2.7 --for 10m"]),
    ("bans", &["bans"]),
    ("unban", &["unban 192.0.2.7"]),
    ("events", &["events --follow", "events --source 203.0.113.9 --since 14:00 --until 14:10"]),
    (
        "capture",
        &[
            "capture --dropped --source 192.0.2.0/24 -w dropped.pcapng",
            "capture --dropped --snap 96 | tshark -r - -T fields -e frame.comment",
        ],
    ),
    ("observe", &["observe --for 10m -w seen.pcapng"]),
    ("reload", &["reload"]),
    ("diff", &["diff new.yaml"]),
    ("apply", &["apply new.yaml --confirm 60s"]),
    ("confirm", &["confirm"]),
    ("revert", &["revert"]),
    ("export", &["export --to rules.yaml"]),
    ("check", &["check rules.yaml"]),
    ("demo", &["demo"]),
    ("doctor", &["doctor --iface eth0"]),
    #[cfg(feature = "import")]
    ("import", &["import nft ruleset.json"]),
    ("schema", &["schema"]),
    ("completions", &["completions bash"]),
    ("man", &["man --dir man1"]),
    #[cfg(not(feature = "replay"))]
    ("explain", &["explain 192.0.2.7 --to 22/tcp --flags SYN"]),
    #[cfg(feature = "replay")]
    (
        "explain",
        &[
            "explain 192.0.2.7 --to 22/tcp --flags SYN",
            "explain --pcap in.pcap --rules rules.yaml --summary --top 50",
        ],
    ),
    #[cfg(feature = "replay")]
    (
        "simulate",
        &[
            "simulate --pcap in.pcap --rules now.yaml --rules new.yaml",
            "simulate --load stall.yaml --rules rules.yaml --algorithms --plot stall.svg",
            "simulate --access-log access.log --path /login --rules requests.yaml",
        ],
    ),
    #[cfg(feature = "replay")]
    (
        "tune",
        &[
            "tune --pcap monday.pcap --pcap tuesday.pcap --spare 99%",
            "tune --for 10m --by /24,/48 --share 1 --to tuned.yaml",
            "tune --access-log access.log --path /login",
        ],
    ),
    ("cluster", &["cluster"]),
    ("off", &["off"]),
    ("on", &["on"]),
    ("detach", &["detach", "detach --iface eth0"]),
];

const NAMES: usize = 16;

pub(crate) fn text() -> String {
    let mut text = String::from(
        "Limit what each source may send, before the network stack sees it.\n\n\
         Usage: limiter [OPTIONS] <COMMAND>\n\n",
    );
    for (heading, rows) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{heading}:");
        for (names, does) in *rows {
            let _ = writeln!(text, "  {names:NAMES$}  {does}");
        }
    }
    text.push('\n');
    text.push_str(OPTIONS);
    text
}

#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(_, rows)| *rows).flat_map(|(names, _)| names.split(", "))
}
