//! Rules for requests, as the daemon shows them: what `limiter serve` counts, while it reports.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::serve::Serve;
use limiter_tests::testbed::Testbed;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Nothing comes back of a limit while the test runs.
const RULES: &str = "domain: auth
descriptors:
  - key: auth_type
    value: login
    descriptors:
      - key: remote_address
        rate_limit: {unit: hour, requests_per_unit: 2, burst: 2}
  - key: auth_type
    value: reset
    rate_limit: {name: resets, unit: hour, requests_per_unit: 1, burst: 1}
    shadow_mode: true
";

/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

fn until(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn processes(limiter: &Limiter) -> Result<Vec<Value>> {
    let top = limiter.json(&["top", "--once"])?;
    Ok(top["processes"].as_array().cloned().unwrap_or_default())
}

/// The only process that is shown.
fn process(limiter: &Limiter) -> Result<Value> {
    let mut all = processes(limiter)?;
    ensure!(all.len() == 1, "{all:?}");
    all.pop().context("no process")
}

/// Waits until the rows are these: the rule, and of its requests how many passed within the limit,
/// passed in shadow mode, and were refused.
fn wait_for(limiter: &Limiter, rows: &Value) -> Result<()> {
    until(&format!("{rows} is shown"), || {
        let processes = processes(limiter)?;
        let shown = processes.iter().filter_map(|process| process["rules"].as_array());
        let row = |row: &Value| {
            let counts = &row["counts"];
            json!([row["domain"], row["rule"], counts["within"], counts["shadow"], counts["over"]])
        };
        Ok(json!(shown.flatten().map(row).collect::<Vec<_>>()) == *rows)
    })
}

fn ask(serve: &Serve, entries: &Value, times: usize) -> Result<Vec<u16>> {
    let body = json!({"domain": "auth", "descriptors": [{"entries": entries}]}).to_string();
    (0..times).map(|_| Ok(serve.ask("POST", "/json", &body)?.0)).collect()
}

#[test]
fn rules_for_requests_are_shown_while_limiter_serve_reports() -> Result<()> {
    require_root();
    let bed = Testbed::create("request-rows")?;
    let mut limiter = bed.limiter("descriptors: []\n")?;
    limiter.start()?;
    let is_quiet = |limiter: &Limiter| -> Result<()> {
        let top = limiter.json(&["top", "--once"])?;
        ensure!(top.get("processes").is_none(), "{top}");
        for shown in [limiter.ok(["top", "--once"])?, limiter.ok(["status"])?] {
            ensure!(!shown.contains("requests"), "{shown}");
        }
        Ok(())
    };
    is_quiet(&limiter)?;

    let rules = bed.dir.write("requests.yaml", RULES)?;
    let serve = Serve::start(&limiter, bed.dir.path(), &rules)?;
    let login = json!([
        {"key": "auth_type", "value": "login"}, {"key": "remote_address", "value": "192.0.2.7"},
    ]);
    let reset = json!([{"key": "auth_type", "value": "reset"}]);
    ensure!(ask(&serve, &login, 5)? == [200, 200, 429, 429, 429]);
    ensure!(ask(&serve, &reset, 3)? == [200; 3]);
    let rows = json!([
        ["auth", "auth_type=login remote_address", 2, 0, 3],
        ["auth", "auth_type=reset", 1, 2, 0],
    ]);
    wait_for(&limiter, &rows)?;
    until("rates", || Ok(process(&limiter)?["rules"][0]["rates"]["refused"].is_number()))?;
    let shown = process(&limiter)?;
    ensure!(shown["rules"][1]["name"] == "resets", "{shown}");
    ensure!(shown["listen"] == json!([format!("unix:{}", serve.socket().display())]), "{shown}");
    ensure!(shown["keys"] == 2 && shown["silent"] == false, "{shown}");
    let text = limiter.ok(["top", "--once"])?;
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = text.lines().map(words).collect();
    ensure!(lines.iter().any(|line| line.ends_with(": 2 rules, 2 of 1,000,000 keys in use")));
    for (begin, end) in
        [("auth: auth_type=login remote_address ", " 3 2 0"), ("auth: resets ", " 0 3 2")]
    {
        let is_row = |line: &String| line.starts_with(begin) && line.ends_with(end);
        ensure!(lines.iter().any(is_row), "{begin}: {text}");
    }
    let status = limiter.ok(["status"])?;
    ensure!(status.contains("2 rules of 1 process of `limiter serve`"), "{status}");

    // Without a daemon nothing is said of it, and the next one is told.
    limiter.terminate()?;
    ensure!(ask(&serve, &login, 1)? == [429]);
    thread::sleep(Duration::from_secs(2));
    limiter.start()?;
    let rows = json!([
        ["auth", "auth_type=login remote_address", 2, 0, 4],
        ["auth", "auth_type=reset", 1, 2, 0],
    ]);
    wait_for(&limiter, &rows)?;
    ensure!(!serve.said()?.contains("daemon"), "{}", serve.said()?);

    // A process that hangs has old numbers, until it goes on.
    let pid = process(&limiter)?["pid"].as_i64().context("no process id")?;
    let pid = Pid::from_raw(i32::try_from(pid)?).context("no process id")?;
    kill_process(pid, Signal::STOP)?;
    let old = until("it is silent", || {
        let shown = process(&limiter)?;
        Ok(shown["silent"] == true && shown["rules"][0]["rates"].is_null())
    });
    let text = limiter.ok(["top", "--once"]);
    kill_process(pid, Signal::CONT)?;
    old?;
    let text = text?;
    ensure!(text.contains(": these numbers are old"), "{text}");
    until("it goes on", || Ok(process(&limiter)?["silent"] == false))?;

    // With the process its rows are gone.
    serve.close()?;
    is_quiet(&limiter)?;
    limiter.close()?;
    bed.close()
}
