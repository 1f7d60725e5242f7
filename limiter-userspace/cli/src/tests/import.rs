//! `limiter import`, and what comes to the lists from other programs.

use std::fs;
use std::path::Path;
use std::process::Command as Process;

use limiter_datapath::fake::Fake;
use serde_json::Value;

use super::{execute, failure, parse};
use crate::args::Command;

const RULES: &str = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p icmp -m hashlimit \
                     --hashlimit-above 5/s --hashlimit-mode srcip --hashlimit-name a -j \
                     DROP\nCOMMIT\n";

#[test]
fn a_format_or_a_file_comes_first() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    fs::write(at("saved"), RULES).unwrap();
    let answer = |line: String| execute(&parse(&line).unwrap(), &Fake::default()).unwrap();
    let found = answer(format!("limiter import {}", at("saved")));
    assert_eq!(found.code, 0);
    assert!(found.text.contains("value: icmp\n"), "{}", found.text);
    assert_eq!(
        found.errors,
        ["1 rule translated, 0 not, 0 left to the firewall: no limits; nothing was applied"]
    );
    let named = answer(format!("limiter import iptables {} --shadow", at("saved")));
    assert!(named.text.contains("shadow_mode: true\n"), "{}", named.text);
    // Rules that are not translated are reported, and by the exit code as well.
    fs::write(
        at("half"),
        RULES.replace("COMMIT", "-A INPUT -m connlimit --connlimit-above 5 -j DROP\nCOMMIT"),
    )
    .unwrap();
    let half = answer(format!("limiter import {} --output json", at("half")));
    assert_eq!((half.code, half.errors.len()), (2, 2));
    let document: Value = serde_json::from_str(&half.text).unwrap();
    assert_eq!(document["translated"], 1);
    assert_eq!(document["rules"][1]["outcome"], "not_translated");
    let written = answer(format!("limiter import {} --to {}", at("saved"), at("r.yaml")));
    assert_eq!(written.text, format!("written: {}\n", at("r.yaml")));
    assert_eq!(fs::read_to_string(at("r.yaml")).unwrap(), found.text);
}

#[test]
fn refusals_name_the_text_and_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x").display().to_string();
    fs::write(&file, "hello\n").unwrap();
    for (line, message) in [
        (
            format!("limiter import {file}"),
            format!("{file} is of no format that is known: name it"),
        ),
        (
            format!("limiter import nft {file}"),
            format!("{file} is no JSON: expected value at line 1"),
        ),
        (
            format!("limiter import frob {file}"),
            "frob is no format: use one of nft, iptables".to_owned(),
        ),
        (
            "limiter import /nowhere/x".to_owned(),
            "/nowhere/x cannot be read: No such file".to_owned(),
        ),
    ] {
        let refused = failure(&line);
        assert!(refused.starts_with(&message), "{line}: {refused}");
    }
}

/// The commands that an action of fail2ban runs, with its words filled in.
fn commands(key: &str, address: &str, bantime: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/fail2ban/limiter.conf");
    let file = fs::read_to_string(path).unwrap();
    let action = file.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix('='));
    let action = action.unwrap().replace("<ip>", address).replace("<bantime>", bantime);
    let action = action.replace("<name>", "sshd");
    assert!(!action.contains('<'), "{action}");
    let script = format!("limiter() {{ echo limiter \"$@\"; }}; {action}");
    let output = Process::new("sh").args(["-e", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn the_action_of_fail2ban_types_commands_that_there_are() {
    let deny = "limiter deny 192.0.2.1 --by fail2ban-sshd";
    assert_eq!(commands("actionban", "192.0.2.1", "600"), format!("{deny} --for 660s"));
    assert_eq!(commands("actionban", "192.0.2.1", "-1"), deny);
    for (key, time) in [("actionban", "600"), ("actionban", "-1"), ("actionunban", "600")] {
        let line = commands(key, "2001:db8::7", time);
        let args = parse(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(matches!(args.command, Command::Deny(_) | Command::Unlist(_)), "{line}");
    }
}

#[test]
fn lines_of_lists_have_times() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("list").display().to_string();
    let refused = |text: &str| {
        fs::write(&file, text).unwrap();
        failure(&format!("limiter deny --strict --file {file} --socket /nowhere/s"))
    };
    for (text, message) in [
        ("192.0.2.1 10m # x\n192.0.2.2\n\n", "no daemon at /nowhere/s"),
        ("192.0.2.1\n192.0.2.2 10\n", ":2: \"10\" is no length of time"),
        ("192.0.2.1 10m more\n", ":1: \"10m more\" is no length of time"),
        ("x 10m\n", ":1: \"x\" is not an IP address"),
        ("# nothing\n", "no source is named"),
    ] {
        assert!(refused(text).contains(message), "{text}: {}", refused(text));
    }
    assert!(parse("limiter deny 192.0.2.1 --replace").is_err(), "without a file");
}

/// A translated rule is warned of in the words of `check`: a slow limit of all packets of TCP, and
/// a burst of bytes that TCP cannot live with.
#[test]
fn a_translation_is_warned_of_as_check_would() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("saved").display().to_string();
    let errors = |rule: &str| {
        let text = format!("*filter\n:INPUT ACCEPT [0:0]\n{rule} -j DROP\nCOMMIT\n");
        fs::write(&file, text).unwrap();
        let line = format!("limiter import iptables {file}");
        execute(&parse(&line).unwrap(), &Fake::default()).unwrap().errors
    };
    let report = errors(
        "-A INPUT -p tcp -m tcp --dport 22 -m hashlimit --hashlimit-above 5/min --hashlimit-burst 5 \
         --hashlimit-mode srcip --hashlimit-name ssh",
    );
    let of_tcp = |line: &String| {
        line.starts_with("warning: the rule for ")
            && line.contains("carries no TCP session")
            && line.contains("`rate: 5 syns/min`")
    };
    assert!(report.iter().any(of_tcp), "{report:?}");
    let report = errors(
        "-A INPUT -p tcp -m tcp --dport 22 --syn -m hashlimit --hashlimit-above 5/min \
         --hashlimit-burst 5 --hashlimit-mode srcip --hashlimit-name ssh",
    );
    assert!(!report.iter().any(|line| line.starts_with("warning: ")), "{report:?}");
}
