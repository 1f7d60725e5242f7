//! `limiter simulate` and `limiter tune` as they are typed.

use std::fs;

use limiter_datapath::fake::Fake;
use serde_json::Value;

use super::explain::capture;
use super::{execute, failure, parse};
use crate::answer::Answer;

fn answer(line: &str) -> Answer {
    execute(&parse(line).unwrap(), &Fake::default()).unwrap()
}

const RULES: &str = "descriptors:\n  - {key: remote_address, rate_limit: {unit: second, \
                     requests_per_unit: 50, burst: 20}}\n";
const LOAD: &str =
    "duration: 4s\nsenders:\n  - {pattern: stall, rate: 45/s, stall_from: 1s, stall_for: 1s}\n";

#[test]
fn a_load_is_put_before_all_algorithms() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    fs::write(at("r.yaml"), RULES).unwrap();
    fs::write(at("l.yaml"), LOAD).unwrap();
    let line = format!("limiter simulate --load {} --rules {}", at("l.yaml"), at("r.yaml"));
    let reported = answer(&format!("{line} --algorithms --plot {}", at("p.svg")));
    assert_eq!((reported.code, reported.errors), (0, vec![format!("written: {}", at("p.svg"))]));
    let rows: Vec<&str> = reported.text.lines().skip(3).collect();
    let names =
        ["token_bucket", "leaky_bucket", "fixed_window", "sliding_counter", "sliding_slots"];
    assert!(rows.iter().zip(names).all(|(row, name)| row.starts_with(name)), "{}", reported.text);
    // A log of 50 is refused, and that is said.
    assert!(rows[5].starts_with("sliding_log cannot hold these limits: "), "{}", reported.text);
    assert!(!reported.text.contains("tcpdump"), "{}", reported.text);
    let svg = fs::read_to_string(at("p.svg")).unwrap();
    assert_eq!(svg.matches("<polyline").count(), 6);
    let json: Value = serde_json::from_str(&answer(&format!("{line} --json")).text).unwrap();
    assert_eq!((&json["packets"], &json["candidates"][0]["sources_hit"]), (&180.into(), &1.into()));
    for (line, reported) in [
        (line.replace("l.yaml", "none.yaml"), "No such file or directory"),
        (format!("{line} --rules {}", at("l.yaml")), "unknown field \"duration\""),
    ] {
        assert!(failure(&line).contains(reported), "{line}");
    }
}

#[test]
fn captures_are_put_before_two_rule_files() {
    let directory = tempfile::tempdir().unwrap();
    let capture = capture(&directory);
    let at = |name: &str| directory.path().join(name).display().to_string();
    fs::write(at("r.yaml"), RULES).unwrap();
    fs::write(at("s.yaml"), RULES.replace("20", "1")).unwrap();
    let reported = answer(&format!(
        "limiter simulate --pcap {capture} --rules {} --rules {}",
        at("r.yaml"),
        at("s.yaml")
    ));
    let rows: Vec<Vec<&str>> =
        reported.text.lines().map(|line| line.split_whitespace().collect()).collect();
    let passed = |row: &[&str]| [row[1].to_owned(), row[2].to_owned()];
    assert_eq!([passed(&rows[3]), passed(&rows[4])], [["2", "0"], ["1", "1"]]);
    assert!(
        reported.text.ends_with("XDP drops before tcpdump sees a packet\n"),
        "{}",
        reported.text
    );
}

/// Packets of 192.0.2.1 at these milliseconds.
fn pcap(times: &[u32]) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    file.extend([0; 8]);
    file.extend([255, 255, 0, 0, 1, 0, 0, 0]);
    for time in times {
        for word in [time / 1000, time % 1000 * 1000, 42, 42] {
            file.extend(word.to_le_bytes());
        }
        file.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]);
        file.extend([0, 0, 192, 0, 2, 1, 198, 51, 100, 1, 4, 210, 0, 53, 0, 8, 0, 0]);
    }
    file
}

/// What attacks is a user to a share of sources, so the proposal spares it: it is named.
#[test]
fn a_source_far_above_the_others_is_named_where_the_limit_spares_it() {
    let directory = tempfile::tempdir().unwrap();
    let one = fs::read(capture(&directory)).unwrap();
    let (header, packet) = (&one[..24], &one[24..82]);
    let tuned = |users: u8, flood: u32| {
        let mut sent: Vec<(u32, u8)> = (0..flood).map(|i| (i * 60_000 / flood, 200)).collect();
        for user in 0..users {
            sent.extend((0..60).map(|second| (second * 1000 + u32::from(user), user)));
        }
        sent.sort_unstable();
        let mut file = header.to_vec();
        for (millis, source) in sent {
            let mut packet = packet.to_vec();
            packet[..4].copy_from_slice(&(millis / 1000).to_le_bytes());
            packet[4..8].copy_from_slice(&(millis % 1000 * 1000).to_le_bytes());
            packet[45] = source;
            file.extend(packet);
        }
        let path = directory.path().join("tuned.pcap");
        fs::write(&path, file).unwrap();
        answer(&format!("limiter tune --pcap {} --spare 100%", path.display())).text
    };
    let named = "192.0.2.200 sent 6,000 packets, 100 times as many as the others on average, and \
                 the limit spares it: if it attacks, leave it out with `--exclude 192.0.2.200`";
    let text = tuned(30, 6000);
    assert!(text.contains(named), "{text}");
    for (users, flood) in [(30, 600), (5, 6000)] {
        let text = tuned(users, flood);
        assert!(!text.contains("if it attacks"), "{text}");
    }
}

/// A directory of captures, of which one comes before the other, one was cut off and one is none.
#[test]
fn a_directory_of_captures_is_tuned() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let folder = at("c\u{1b}[31m");
    fs::create_dir(&folder).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(format!("{folder}/{name}"), bytes).unwrap();
    write("b.pcap", &pcap(&[0, 1000]));
    let cut = pcap(&[2000, 2000, 3000, 4000]);
    write("a.pcap", &cut[..cut.len() - 7]);
    write("notes", b"what I have seen that day\n");
    let reported =
        answer(&format!("limiter tune --pcap {folder} --to {} --spare 100%", at("t.yaml")));
    assert_eq!(reported.code, 2, "{}", reported.text);
    assert!(reported.errors[1].contains("it ends within packet 4"), "{:?}", reported.errors);
    assert!(
        reported.text.starts_with("5 packets, 210 bytes of 1 source in 3 s; "),
        "{}",
        reported.text
    );
    assert!(reported.text.contains("an hourly peak is not in it"), "{}", reported.text);
    assert!(reported.text.contains("left out: ") && reported.text.contains("notes: neither pcap"));
    assert!(reported.text.contains("proposed, to spare 100 %: 2/s, burst 3"), "{}", reported.text);
    assert!(
        !reported.text.contains('\u{1b}')
            && reported.errors.iter().all(|line| !line.contains('\u{1b}'))
    );
    let rules = fs::read_to_string(at("t.yaml")).unwrap();
    assert!(reported.text.ends_with(&rules) && rules.contains("shadow_mode: true"), "{rules}");
    assert!(!rules.contains('\u{1b}'), "{rules}");
    assert!(answer(&format!("limiter check {}", at("t.yaml"))).text.starts_with("ok: 1 file"));
    fs::write(at("out.txt"), "# mine\n192.0.2.0/24 # all of them\n").unwrap();
    for out in ["192.0.2.1".to_owned(), at("out.txt")] {
        let json = answer(&format!("limiter tune --pcap {folder} --exclude {out} --json"));
        let json: Value = serde_json::from_str(&json.text).unwrap();
        assert_eq!((&json["excluded"], &json["proposal"]), (&5.into(), &Value::Null));
    }
    let bytes = answer(&format!("limiter tune --pcap {folder} --count bytes --by /24,/48"));
    let counted = ["B/", "bit/"].iter().any(|unit| bytes.text.contains(unit));
    assert!(bytes.text.contains("192.0.2.0/24") && counted, "{}", bytes.text);
    for wrong in
        ["--by /33", "--by 24", "--spare 101%", "--spare 0", "--spare half", "--by /24,/65"]
    {
        assert!(parse(&format!("limiter tune --pcap x {wrong}")).is_err(), "{wrong}");
    }
    assert!(
        failure(&format!("limiter tune --pcap {folder} --exclude nowhere"))
            .contains("nor is it a file")
    );
    fs::create_dir(at("empty")).unwrap();
    assert!(failure(&format!("limiter tune --pcap {}", at("empty"))).contains("no file is in it"));
}

/// Once, however many candidates have the rule.
#[test]
fn a_rule_for_what_goes_out_is_said_to_have_no_packets() {
    let directory = tempfile::tempdir().unwrap();
    let capture = capture(&directory);
    let at = |name: &str| directory.path().join(name).display().to_string();
    fs::write(at("r.yaml"), RULES.replace("address,", "address, direction: out,")).unwrap();
    let line = format!("limiter simulate --pcap {capture} --rules {} --algorithms", at("r.yaml"));
    let words = "only what comes in is judged here: the rule for direction=out remote_address has \
                 no packets";
    let text = answer(&line).text;
    assert_eq!(text.matches(&format!("{words}\n")).count(), 1, "{text}");
    let json: Value = serde_json::from_str(&answer(&format!("{line} --json")).text).unwrap();
    assert!(json["notes"].as_array().unwrap().contains(&words.into()), "{json}");
}

/// Requests of the clients 192.0.2.1 to 9, one each ten seconds for ten minutes, and of 192.0.2.200
/// ten a second for one of them; all as nginx writes them.
fn log() -> String {
    let line = |second: u32, client: u32, path: &str| {
        let (minute, second) = (second / 60, second % 60);
        format!(
            "192.0.2.{client} - - [29/Nov/2026:12:{minute:02}:{second:02} +0000] \"POST {path} \
             HTTP/1.1\" 200 100 \"-\" \"curl\"\n"
        )
    };
    let mut log = String::new();
    for second in 0..600u32 {
        let users = (1..10).filter(|user| second % 10 == *user);
        log.extend(users.map(|user| line(second, user, "/login")));
        if second / 60 == 3 {
            log.extend((0..10).map(|_| line(second, 200, "/login")));
        }
        if second % 60 == 0 {
            log.push_str(&line(second, 50, "/static/a.css"));
        }
    }
    log
}

#[test]
fn an_access_log_is_put_before_rules_for_requests() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let rules = |number: u32| {
        format!(
            "domain: auth\ncheck:\n  - [{{key: auth_type, value: login}}, {{key: remote_address, \
             header: X-Real-IP}}]\ndescriptors:\n  - key: auth_type\n    value: login\n    \
             descriptors:\n      - key: remote_address\n        rate_limit: {{name: logins, unit: \
             minute, requests_per_unit: {number}}}\n"
        )
    };
    fs::write(at("a.log"), log()).unwrap();
    fs::write(at("tight.yaml"), rules(3)).unwrap();
    fs::write(at("wide.yaml"), rules(60)).unwrap();
    let line = format!(
        "limiter simulate --access-log {} --path /login --rules {} --rules {}",
        at("a.log"),
        at("tight.yaml"),
        at("wide.yaml")
    );
    let json: Value = serde_json::from_str(&answer(&format!("{line} --json")).text).unwrap();
    assert_eq!((&json["requests"], &json["clients"]), (&1140.into(), &10.into()));
    let [tight, wide] = [&json["candidates"][0], &json["candidates"][1]];
    // Users ask six times a minute. Of 60 at once and one a second, 600 in a minute pass 119.
    assert_eq!((&tight["clients_hit"], &tight["requests_of_hit"]), (&10.into(), &1140.into()));
    let most = &wide["most_refused"][0];
    assert_eq!((&wide["clients_hit"], &most["client"]), (&1.into(), &"192.0.2.200".into()));
    assert_eq!(
        (&most["requests"], &most["refused"], &most["rule"]),
        (&600.into(), &481.into(), &"logins".into())
    );
    assert_eq!(wide["passed"].as_u64().unwrap() + wide["refused"].as_u64().unwrap(), 1140);
    let text = answer(&line).text;
    assert!(text.starts_with("1,140 requests of 10 clients\n"), "{text}");
    assert!(text.contains("whole seconds"), "{text}");
    // No header that the log has, no file with a `check`, no log.
    fs::write(at("key.yaml"), rules(3).replace("X-Real-IP", "X-Api-Key")).unwrap();
    fs::write(at("none.yaml"), "domain: x\ndescriptors: []\n").unwrap();
    fs::write(at("no.log"), "hello\n").unwrap();
    for (line, reported) in [
        (line.replace("tight", "key"), "--field x-api-key=FIELD"),
        (line.replace("tight", "none"), "it has no `check`"),
        (line.replace("a.log", "no.log"), "no.log:1: it is neither in the combined format"),
        (line.replace("/login", "/nothing"), "give another --path"),
        (format!("{line} --field client"), "write NAME=FIELD"),
    ] {
        let failed = parse(&line).map_err(|error| error.to_string());
        let failed = failed.map_or_else(|error| error, |_| failure(&line));
        assert!(failed.contains(reported), "{line}: {failed}");
    }
}

#[test]
fn a_limit_of_requests_is_proposed_from_an_access_log() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    // A line of a clock that went back, and one that is none.
    fs::write(at("a.log"), log() + &log().lines().next().unwrap().replace(":00:", ":08:")).unwrap();
    let json: Vec<String> = log()
        .lines()
        .map(|line| {
            let mut words = line.split([':', ' ']);
            let client = words.next().unwrap();
            let mut number = |at: usize| words.nth(at).unwrap().parse::<u32>().unwrap();
            let (minute, second) = (number(4), number(0));
            let ts = 1_795_953_600 + minute * 60 + second;
            format!("{{\"ts\": {ts}.5, \"request\": {{\"client_ip\": \"{client}\"}}}}\n")
        })
        .collect();
    fs::write(at("b.log"), format!("no line\n{}", json.concat())).unwrap();
    for (name, note) in [
        ("a.log", "1 line is older than one before"),
        ("b.log", "lines that are no requests, and were left out: 1; "),
    ] {
        let tuned = answer(&format!(
            "limiter tune --access-log {} --exclude 192.0.2.200 --spare 90% --to {}",
            at(name),
            at("t.yaml")
        ));
        assert!(tuned.text.contains("requests, "), "{}", tuned.text);
        assert!(tuned.text.contains(note), "{}", tuned.text);
        assert!(!tuned.text.contains("packets"), "{}", tuned.text);
        let json = answer(&format!("limiter tune --access-log {} --json", at(name))).text;
        assert!(json.contains("\"requests\":") && !json.contains("\"packets"), "{json}");
        let rules = fs::read(at("t.yaml")).unwrap();
        let (file, errors) = limiter_rules::file::requests::RequestFile::check("t.yaml", &rules);
        assert!(errors.is_empty(), "{errors:?}");
        assert!(file.rules()[0].1.shadow);
        let simulated = answer(&format!(
            "limiter simulate --access-log {} --rules {} --json",
            at(name),
            at("t.yaml")
        ));
        let json: Value = serde_json::from_str(&simulated.text).unwrap();
        // It only counts, so nobody is hit.
        assert_eq!(json["candidates"][0]["refused"], 0);
        fs::remove_file(at("t.yaml")).unwrap();
    }
}
