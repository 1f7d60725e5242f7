//! The command line: what is refused, and that what is accepted comes back.

mod documents;
mod metrics;
mod rule_sets;

use std::fs;
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::{Limiter, binary};
use limiter_tests::netns::Netns;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::work_dir::WorkDir;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 100, burst: 20}}
  - {key: remote_address, value: 192.0.2.0/24, rate_limit: {name: office, unit: second, \
  requests_per_unit: 10}}\n";

/// The call must have ended with exit code 2 and exactly one error that has all of `words`.
fn check_refused(what: &str, output: Output, words: &[&str]) -> Result<()> {
    let said = String::from_utf8(output.stderr)?;
    ensure!(
        output.status.code() == Some(2),
        "{what}: exit code {:?}: {said}",
        output.status.code()
    );
    let errors: Vec<_> = said.lines().filter(|line| line.starts_with("limiter: ")).collect();
    ensure!(errors.len() == 1, "{what}: not one error: {said}");
    for word in words {
        ensure!(errors[0].contains(word), "{what}: the error does not name {word:?}: {said}");
    }
    ensure!(output.stdout.is_empty(), "{what}: an error, and also an answer");
    Ok(())
}

/// All that a refused call must leave as it is.
fn state(limiter: &Limiter) -> Result<(Value, Value)> {
    let mut limits = limiter.json(&["list"])?;
    for entry in limits["limits"].as_array_mut().context("`list` has no limits")? {
        // Counters may go on.
        for counter in ["passed", "dropped"] {
            entry[counter].take();
        }
    }
    let status = limiter.json(&["status"])?;
    ensure!(status["generation"] == limits["generation"], "{status}, but {limits}");
    Ok((limits, status["edits"].clone()))
}

fn entry(limiter: &Limiter, source: &str) -> Result<Option<Value>> {
    let limits = limiter.json(&["list"])?;
    let all = limits["limits"].as_array().context("`list` has no limits")?;
    Ok(all.iter().find(|entry| entry["source"] == source).cloned())
}

fn rule(rest: &str) -> String {
    format!("domain: test\ndescriptors:\n  - key: remote_address\n{rest}")
}

#[test]
#[expect(clippy::too_many_lines, reason = "one case after the other")]
fn a_bad_rule_file_is_refused_and_changes_nothing() -> Result<()> {
    require_root();
    let bed = Testbed::create("badfile")?;
    let limit = "    rate_limit: {unit: second, requests_per_unit: 5}\n";
    let texts: [(&str, Vec<u8>, &[&str]); 15] = [
        (
            "unknown field",
            rule(
                "    rate_limitz: {unit: \
            second}\n",
            )
            .into(),
            &["rate_limitz", "rate_limit", ":4"],
        ),
        ("no list", rule("    rate_limits: {unit: second}\n").into(), &[":4", "a list"]),
        (
            "field unknown in a limit",
            rule(
                "    rate_limit: {unit: second, request_per_unit: \
            5}\n",
            )
            .into(),
            &["request_per_unit", "requests_per_unit"],
        ),
        (
            "rate of zero",
            rule(
                "    rate_limit: {unit: second, requests_per_unit: \
            0}\n",
            )
            .into(),
            &[":4", "requests_per_unit"],
        ),
        (
            "negative rate",
            rule(
                "    rate_limit: {unit: second, requests_per_unit: \
            -5}\n",
            )
            .into(),
            &[":4"],
        ),
        ("no rate", rule("    rate_limit: {unit: second}\n").into(), &["requests_per_unit"]),
        (
            "unknown unit",
            rule(
                "    rate_limit: {unit: fortnight, requests_per_unit: \
            5}\n",
            )
            .into(),
            &["fortnight"],
        ),
        (
            "host bits",
            rule(&format!(
                "    value: \
            192.0.2.7/24\n{limit}"
            ))
            .into(),
            &["192.0.2.7/24", "192.0.2.0/24"],
        ),
        ("no address", rule(&format!("    value: example.org\n{limit}")).into(), &["example.org"]),
        (
            "IPv6 longer than /64",
            rule(&format!(
                "    value: \
            2001:db8::/96\n{limit}"
            ))
            .into(),
            &["2001:db8::/96", "/64"],
        ),
        (
            "burst of nothing",
            rule(
                "    rate_limit: {unit: second, requests_per_unit: 5, burst: \
            0}\n",
            )
            .into(),
            &[":4", "burst"],
        ),
        (
            "burst under one packet",
            rule(
                "    rate_limit: {unit: second, requests_per_unit: 5000, \
            count: bytes, burst: 100}\n",
            )
            .into(),
            &["burst", "1522"],
        ),
        (
            "the same prefix twice",
            rule(&format!(
                "{limit}  - key: \
            remote_address\n{limit}"
            ))
            .into(),
            &[":5"],
        ),
        (
            "HTTP only",
            rule(&limit.replace("remote", "x")).replace("remote_address", "header_match").into(),
            &["header_match"],
        ),
        ("not UTF-8", [rule(limit).as_bytes(), b"# caf\xe9\n"].concat(), &["UTF-8"]),
    ];
    for (what, text, words) in texts {
        let limiter = bed.limiter("")?;
        fs::write(limiter.rules(), text)?;
        let file = limiter.rules().to_str().context("path")?.to_owned();
        check_refused(what, limiter.run_to_end()?, &[words, &[&file]].concat())?;
        check_untouched(what, &limiter)?;
    }
    let limiter = bed.limiter("")?;
    fs::remove_file(limiter.rules())?;
    check_refused("no file", limiter.run_to_end()?, &["rules.yaml"])?;
    check_untouched("no file", &limiter)?;
    limiter.close()?;
    bed.close()
}

fn check_untouched(what: &str, limiter: &Limiter) -> Result<()> {
    ensure!(limiter.xdp()?.is_null(), "{what}: refused, but a program is attached");
    ensure!(!limiter.pins().exists(), "{what}: refused, but there are pins");
    ensure!(!limiter.socket().exists(), "{what}: refused, but there is a socket");
    Ok(())
}

#[test]
fn without_privilege_it_does_not_start() -> Result<()> {
    require_root();
    let bed = Testbed::create("noprivilege")?;
    let mut limiter = bed.limiter(RULES)?;
    // Root in name only: its files stay readable, its capabilities are gone.
    limiter.through(["setpriv", "--bounding-set=-all", "--inh-caps=-all"]);
    check_refused(
        "no privilege",
        limiter.run_to_end()?,
        &["privilege", "CAP_BPF", "CAP_NET_ADMIN"],
    )?;
    check_untouched("no privilege", &limiter)?;
    limiter.close()?;
    bed.close()
}

#[test]
fn without_a_daemon_every_request_is_refused() -> Result<()> {
    require_root();
    let bed = Testbed::create("nodaemon")?;
    let limiter = bed.limiter(RULES)?;
    let socket = limiter.socket().to_str().context("path")?.to_owned();
    let rules = limiter.rules().to_str().context("path")?.to_owned();
    let requests: [&[&str]; 10] = [
        &["export"],
        &["diff", &rules],
        &["apply", &rules],
        &["status"],
        &["list"],
        &["stats"],
        &["show", "192.0.2.1"],
        &["set", "192.0.2.1", "5/s"],
        &["unset", "192.0.2.1"],
        &["reload"],
    ];
    for request in requests {
        check_refused(&request.join(" "), limiter.cli(request)?, &[&socket])?;
    }
    for command in ["off", "on", "detach"] {
        let pins = limiter.pins().to_str().context("path")?.to_owned();
        check_refused(command, limiter.cli([command, "--pin-dir", &pins])?, &[&pins])?;
    }
    limiter.close()?;
    bed.close()
}

#[test]
fn a_bad_request_is_refused_and_changes_nothing() -> Result<()> {
    require_root();
    let bed = Testbed::create("badrequest")?;
    let mut limiter = bed.limiter(RULES)?;
    // The file is changed for `reload`, and back for a second daemon.
    limiter.options(["--watch", "off"]);
    limiter.start()?;
    let before = state(&limiter)?;
    let requests: [(&[&str], &[&str]); 15] = [
        (&["set", "192.0.2.7/24", "5/s"], &["192.0.2.7/24", "192.0.2.0/24"]),
        (&["set", "2001:db8::1/64", "5/s"], &["2001:db8::/64"]),
        (&["set", "2001:db8::/96", "5/s"], &["/64"]),
        (&["set", "nobody", "5/s"], &["nobody"]),
        (&["set", "192.0.2.300", "5/s"], &["192.0.2.300"]),
        (&["set", "203.0.113.1", "0/s"], &["0"]),
        (&["set", "203.0.113.1", "5/fortnight"], &["fortnight"]),
        (&["set", "203.0.113.1", "fast"], &["fast"]),
        (&["set", "203.0.113.1", "-5/s"], &["-5/s"]),
        (&["set", "203.0.113.1", "5/s", "--burst", "0"], &["burst"]),
        (&["set", "203.0.113.1", "1mbit/s", "--burst", "100"], &["burst"]),
        (&["set", "203.0.113.1", "unlimited", "--burst", "5"], &["burst"]),
        (&["unset", "203.0.113.99"], &["203.0.113.99"]),
        (&["unset", "192.0.2.0/24"], &["192.0.2.0/24", "reload"]),
        (&["show", "192.0.2.0/24"], &["192.0.2.0/24"]),
    ];
    for (request, words) in requests {
        let what = request.join(" ");
        check_refused(&what, limiter.cli(request)?, words)?;
        ensure!(state(&limiter)? == before, "{what}: refused, but something changed");
    }

    fs::write(limiter.rules(), rule("    rate_limitz: {}\n"))?;
    check_refused("reload", limiter.cli(["reload"])?, &["rules.yaml", "rate_limitz"])?;
    ensure!(state(&limiter)? == before, "a refused reload changed something");
    let reload = limiter.json(&["status"])?["last_reload"].clone();
    ensure!(reload["ok"] == false && reload["error"].is_string(), "{reload}");

    // A second daemon for the same files does not disturb the first.
    fs::write(limiter.rules(), RULES)?;
    check_refused("a second daemon", limiter.run_to_end()?, &[])?;
    ensure!(state(&limiter)? == before, "a second daemon changed something");
    limiter.close()?;
    bed.close()
}

#[test]
fn what_is_set_comes_back() -> Result<()> {
    require_root();
    let bed = Testbed::create("roundtrip")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let before = state(&limiter)?;
    let settings: [(&str, &[&str], u64, &str); 4] = [
        ("203.0.113.0/24", &["100/s", "--burst", "7"], 7, "packets"),
        ("203.0.113.5", &["5/day"], 5, "packets"),
        ("2001:db8:1::/48", &["10mbit/s", "--burst", "50000"], 50_000, "bytes"),
        ("192.0.2.0/24", &["600/min"], 600, "packets"),
    ];
    for (source, rate, burst, count) in settings {
        limiter.ok(["set", source].iter().chain(rate))?;
        let entry = entry(&limiter, source)?.with_context(|| format!("`list` has no {source}"))?;
        ensure!(entry["limit"] == rate[0] && entry["burst"] == burst, "{entry}");
        ensure!(entry["count"] == count && entry["origin"] == "cli", "{entry}");
    }
    let shown = |address: &str| limiter.json(&["show", address]);
    // The longest prefix wins, and an IPv6 source is a /64.
    ensure!(shown("203.0.113.5")?["rule"] == "203.0.113.5", "{}", shown("203.0.113.5")?);
    ensure!(shown("203.0.113.6")?["rule"] == "203.0.113.0/24", "{}", shown("203.0.113.6")?);
    let v6 = shown("2001:db8:1:2::9")?;
    ensure!(v6["rule"] == "2001:db8:1::/48" && v6["tracked"] == false, "{v6}");
    ensure!(v6["remaining"] == 50_000 && v6["passed"] == 0 && v6["dropped"] == 0, "{v6}");

    // A reload keeps what was set; so does a restart, also after a crash.
    let set = state(&limiter)?.0["limits"].clone();
    limiter.ok(["reload"])?;
    ensure!(state(&limiter)?.0["limits"] == set, "a reload lost an edit");
    limiter.signal(Signal::HUP)?;
    limiter.terminate()?;
    limiter.start()?;
    ensure!(state(&limiter)?.0["limits"] == set, "a restart lost an edit");
    limiter.kill()?;
    limiter.start()?;
    ensure!(state(&limiter)?.0["limits"] == set, "a crash lost an edit");

    for (source, ..) in settings {
        limiter.ok(["unset", source])?;
    }
    let after = state(&limiter)?;
    ensure!(
        after.0["limits"] == before.0["limits"] && after.1 == before.1,
        "unset left something: {after:?}, before: {before:?}"
    );
    limiter.close()?;
    bed.close()
}

#[test]
fn a_reload_takes_the_changed_file() -> Result<()> {
    require_root();
    let bed = Testbed::create("reload")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    fs::write(limiter.rules(), RULES.replace("192.0.2.0/24", "198.51.100.0/24"))?;
    limiter.ok(["reload"])?;
    ensure!(entry(&limiter, "192.0.2.0/24")?.is_none(), "the old rule is still there");
    let new = entry(&limiter, "198.51.100.0/24")?.context("the new rule is not there")?;
    ensure!(new["name"] == "office" && new["origin"] == "file", "{new}");
    ensure!(limiter.json(&["status"])?["last_reload"]["ok"] == true);
    limiter.close()?;
    bed.close()
}

#[test]
fn tables_are_for_people() -> Result<()> {
    require_root();
    let bed = Testbed::create("tables")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    for (request, words) in [
        (vec!["status"], ["recv0", "native"]),
        (vec!["list"], ["192.0.2.0/24", "10/s"]),
        (vec!["stats"], ["passed", "dropped"]),
        (vec!["show", "192.0.2.1"], ["192.0.2.0/24", "10/s"]),
    ] {
        let text = limiter.ok(&request)?;
        for word in words {
            ensure!(text.contains(word), "`{}` does not show {word:?}: {text}", request.join(" "));
        }
        ensure!(serde_json::from_str::<Value>(&text).is_err(), "JSON without being asked: {text}");
    }
    limiter.close()?;
    bed.close()
}

/// Without `--iface` the first limit is put where the default route is; where there is none, or
/// several, an error says so. The YAML that is printed stands for the limit.
#[test]
fn an_interface_that_is_not_named_is_that_of_the_default_route() -> Result<()> {
    require_root();
    let (netns, dir) = (Arc::new(Netns::create("no-iface")?), WorkDir::create("no-iface")?);
    let pins = format!("/sys/fs/bpf/{}", netns.name());
    let command = || -> Result<Command> {
        let mut command = Command::new(binary()?);
        command.args(["run", "--limit", "1000/s", "--hook", "tc", "--detach-on-exit"]);
        command.args(["--pin-dir", &pins, "--socket"]).arg(dir.path().join("socket"));
        command.arg("--state-dir").arg(dir.path().join("state"));
        Ok(command)
    };
    let run = || netns.output(&mut command()?);
    check_refused("no route", run()?, &["no interface has a default route", "--iface eth0"])?;
    for (number, (one, other)) in
        [("wan0", "wan0-peer"), ("wan1", "wan1-peer")].into_iter().enumerate()
    {
        netns.ip(["link", "add", one, "type", "veth", "peer", "name", other])?;
        netns.ip(["link", "set", one, "up"])?;
        netns.ip(["link", "set", other, "up"])?;
        let metric = number.to_string();
        netns.ip(["route", "add", "default", "dev", one, "metric", &metric])?;
    }
    let words = ["wan0 and wan1 have a default route", "--iface wan0"];
    check_refused("two routes", run()?, &words)?;
    netns.ip(["route", "del", "default", "dev", "wan1"])?;
    let (said, printed) = (dir.path().join("said"), dir.path().join("printed"));
    let mut command = command()?;
    command.stderr(fs::File::create(&said)?).stdout(fs::File::create(&printed)?);
    let mut daemon = netns.spawn(&mut command)?;
    let deadline = Instant::now() + Duration::from_mins(1);
    while !fs::read_to_string(&said)?.contains("limiter: ready: wan0 tc in") {
        let text = fs::read_to_string(&said)?;
        ensure!(daemon.try_wait()?.is_none() && Instant::now() < deadline, "{text}");
        thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&daemon), Signal::TERM)?;
    ensure!(daemon.wait()?.success(), "{}", fs::read_to_string(&said)?);
    let text = fs::read_to_string(&said)?;
    ensure!(text.contains("limiter: --iface wan0: the default route is there"), "{text}");
    let rules = dir.write("printed.yaml", fs::read_to_string(&printed)?)?;
    let checked = Command::new(binary()?).arg("check").arg(rules).output()?;
    let sentence = "each source: 1000/s, and 1000 more at once";
    let text = String::from_utf8(checked.stdout)?;
    ensure!(checked.status.success() && text.contains(sentence), "{text}");
    Ok(())
}
