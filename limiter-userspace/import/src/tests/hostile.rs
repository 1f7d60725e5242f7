//! Any input gives either a valid rule file or an error in one line.

use std::fmt::Write as _;

use limiter_rules::RuleFile;
use limiter_text::plain::is_plain;
use proptest::prelude::*;

use super::*;

/// Checks all guarantees for any input.
fn check(bytes: &[u8], format: Option<Format>) {
    let options = Options { format, ..Options::default() };
    match import(bytes, &options) {
        Ok(imported) => {
            let steers = imported.text.chars().find(|c| !is_plain(*c) && *c != '\n');
            assert_eq!(steers, None, "{}", imported.text);
            if !imported.is_list {
                let file = RuleFile::parse("x", imported.text.as_bytes(), 1522);
                assert!(file.is_ok(), "{file:?}\n{}", imported.text);
            }
        }
        Err(error) => {
            let error = error.to_string();
            assert!(!error.is_empty() && !error.contains("report this as a bug"), "{error}");
        }
    }
}

const LINES: [&str; 16] = [
    "*filter",
    ":INPUT DROP [0:0]",
    ":A - [0:0]",
    "-A INPUT -j A",
    "-A A -j INPUT",
    "-A A -g A",
    "-A INPUT -s 10.0.0.0/8 -j ACCEPT",
    "-A INPUT -m hashlimit --hashlimit-above 5/s --hashlimit-mode srcip --hashlimit-name a -j DROP",
    "-A A -m limit --limit 5/s -j RETURN",
    "-A A -j DROP",
    "-A INPUT -m recent --set",
    "-A INPUT -m recent --update --seconds 9 --hitcount 9 -j DROP",
    "-A INPUT -i a/b -p udp -m comment --comment \"limiter:\u{1b}[2J\" -m limit --limit 5/s -j \
     ACCEPT",
    "-A INPUT -p icmp -m comment --comment \"limiter:\u{1b}[2J\" -m limit --limit 5/s -j ACCEPT",
    "-A INPUT -m comment --comment \"a\u{1b}[31m\u{202e}\\\"b\" -s 192.0.2.1 -j DROP",
    "COMMIT",
];

proptest! {
    #[test]
    fn any_lines_in_any_order(lines in prop::collection::vec(0..LINES.len(), 0..40)) {
        let text: Vec<&str> = lines.iter().flat_map(|line| [LINES[*line], "\n"]).collect();
        let text = text.concat();
        check(text.as_bytes(), None);
        check(text.as_bytes(), Some(Format::Ip6tables));
    }

    #[test]
    fn any_text(text in ".{0,200}") {
        check(text.as_bytes(), None);
        for (_, format) in Format::NAMED {
            check(text.as_bytes(), Some(format));
        }
    }

    #[test]
    fn any_options(words in prop::collection::vec("-{0,2}[a-z]{0,9}|[0-9./:]{1,9}|!|\"|--hashlimit-above|--dport|-m|tcp|-p|-j|DROP|limit", 0..30)) {
        check(format!("-A INPUT {}\n", words.join(" ")).as_bytes(), None);
    }
}

#[test]
fn names_of_sets_are_cleaned_wherever_they_stand() {
    check(b"create a\x1b[2Jb hash:ip,port\n", Some(Format::Ipset));
    check(b"Status for the jail: a\x1b[2Jb\n", Some(Format::Fail2ban));
}

/// Mutations of the committed texts: changed, missing or truncated bytes.
#[test]
fn changed_and_truncated_texts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/texts");
    let mut random = fastrand::Rng::with_seed(7);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|of| of == "out") {
            continue;
        }
        let text = std::fs::read(&path).unwrap();
        for _ in 0..40 {
            let mut text = text.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..text.len());
                match random.u8(..4) {
                    0 => text.truncate(at.max(1)),
                    1 => text[at] = random.u8(..),
                    2 => drop(text.remove(at)),
                    _ => {
                        let to = random.usize(at..text.len().min(at + 40).max(at + 1));
                        let part = text[at..to].to_vec();
                        text.splice(at..at, part);
                    }
                }
                if text.is_empty() {
                    break;
                }
            }
            check(&text, None);
        }
    }
}

#[test]
fn large_inputs_take_bounded_time() {
    let begin = std::time::Instant::now();
    let limit = |n: usize| {
        format!(
            "-A INPUT -s 10.{}.{}.0/24 -m hashlimit --hashlimit-above 5/s --hashlimit-mode srcip \
             --hashlimit-name n{n} -j DROP\n",
            n / 256 % 256,
            n % 256
        )
    };
    let many = (0..1_500).map(limit).collect::<Vec<_>>().concat();
    check(format!("*filter\n:INPUT ACCEPT [0:0]\n{many}COMMIT\n").as_bytes(), None);
    let accepts = (0..1_500)
        .map(|n| format!("-A INPUT -s 172.16.{}.{} -j ACCEPT\n", n / 256, n % 256))
        .collect::<Vec<_>>()
        .concat();
    check(format!("*filter\n:INPUT ACCEPT [0:0]\n{accepts}{many}COMMIT\n").as_bytes(), None);
    // Each chain jumps to the next one twice.
    let mut doubling = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j C0\n".to_owned();
    for n in 0..40 {
        let twice = format!("-A C{n} -j C{0}\n-A C{n} -j C{0}\n", n + 1);
        doubling.push_str(&twice);
    }
    doubling.push_str("-A C15 -m limit --limit 5/s -j ACCEPT\nCOMMIT\n");
    check(doubling.as_bytes(), None);
    // Each goto searches for the rule after it, each pair for rules between, and each limit for a
    // translation of addresses.
    let rules = (0..1_000)
        .map(|n| {
            format!(
                "-A INPUT -i e{n} -g ZONE\n-A INPUT -p tcp --dport {n} -m recent --set --name \
                 l{0}\n-A INPUT -p tcp --dport {n} -m recent --update --seconds 60 --hitcount 4 \
                 --name l{0} -j DROP\n{1}",
                n % 9,
                limit(n)
            )
        })
        .collect::<Vec<_>>()
        .concat();
    let nat = (0..1_000)
        .map(|n| format!("-A PREROUTING -p udp --dport {n} -j REDIRECT --to-ports {}\n", n + 1))
        .collect::<Vec<_>>()
        .concat();
    let text = format!(
        "*nat\n{nat}COMMIT\n*filter\n:INPUT ACCEPT [0:0]\n{rules}-A ZONE -j DROP\nCOMMIT\n"
    );
    check(text.as_bytes(), None);
    check("[".repeat(1 << 20).as_bytes(), Some(Format::Nft));
    let lines = (0..100_000)
        .map(|n| format!("add x 10.{}.{}.{}\n", n >> 16, n >> 8 & 255, n & 255))
        .collect::<Vec<_>>()
        .concat();
    check(format!("create x hash:ip\n{lines}").as_bytes(), None);
    let too_long = |most: usize, format| {
        let options = Options { format, ..Options::default() };
        let text = vec![b'#'; most + 1];
        assert_eq!(import(&text, &options).unwrap_err(), crate::ImportError::TooLong(most));
    };
    too_long(crate::MAX_BYTES, Some(Format::Iptables));
    too_long(crate::MAX_LIST_BYTES, Some(Format::Ipset));
    too_long(crate::MAX_LIST_BYTES, None);
    assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
}

/// Chains that lead to each other in a long row, with jumps or gotos, cost no depth of the stack;
/// those as deep as nftables allows are followed.
#[test]
fn a_long_row_of_chains_ends_no_process() {
    for (row, verb, followed) in
        [(12, "-j", true), (15, "-g", true), (50_000, "-j", false), (50_000, "-g", false)]
    {
        let rules = (1..row).fold(String::new(), |mut text, n| {
            writeln!(text, "-A C{} {verb} C{n}", n - 1).unwrap();
            text
        });
        let text = format!(
            "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p udp -j C0\n{rules}-A C{} -m hashlimit \
             --hashlimit-above 5/s --hashlimit-mode srcip --hashlimit-name a -j DROP\nCOMMIT\n",
            row - 1
        );
        let imported = import(text.as_bytes(), &Options::default()).unwrap();
        assert_eq!(imported.translated == 1, followed, "{row} {verb}");
        check(text.as_bytes(), None);
    }
}

/// As many sources as the lists can hold, in each format of lists.
#[test]
fn a_list_of_a_million_sources_is_translated() {
    let mut sets = "create s hash:ip timeout 600 comment\n".to_owned();
    let mut jail = "[{'sshd': [".to_owned();
    for n in 0..1_000_000u32 {
        let address = std::net::Ipv4Addr::from(0xcbc8_0000 + n);
        writeln!(sets, "add s {address} timeout 599 comment \"of a feed\"").unwrap();
        write!(jail, "'{address}', ").unwrap();
    }
    jail.push_str("'192.0.2.1']}]");
    for (text, sources) in [(sets, 1_000_000), (jail, 1_000_001)] {
        assert!(text.len() > crate::MAX_BYTES);
        let imported = import(text.as_bytes(), &Options::default()).unwrap();
        assert_eq!((imported.translated, imported.is_list), (sources, true));
    }
}
