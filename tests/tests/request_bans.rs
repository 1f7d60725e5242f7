//! From a request to packets: what `limiter serve` refuses often enough is dropped at the card.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::generator::{Pattern, Stream};
use limiter_tests::limiter::Limiter;
use limiter_tests::packet::Frame;
use limiter_tests::root::require_root;
use limiter_tests::serve::Serve;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;
use serde_json::{Value, json};

/// Nothing comes back of a limit while the test runs, and no ban ends.
const RULES: &str = "domain: auth
descriptors:
  - key: auth_type
    value: login
    descriptors:
      - key: remote_address
        rate_limit: {unit: hour, requests_per_unit: 2, burst: 2}
        action: {ban: {first: 1h, longest: 1h}}
";

const RULE: &str = "requests of auth: auth_type=login remote_address";

const OVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const LATER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 8);
const MANAGER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 250);
const WITHIN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the tests ask `limiter serve`.
trait Ask {
    /// The statuses of requests to log in.
    fn log_in(&self, from: &str, times: usize) -> Result<Vec<u16>>;

    /// Sources that were to be banned, of which this became.
    fn became(&self, what: &str) -> Result<u64>;

    fn wait_until(&self, what: &str, count: u64) -> Result<()>;
}

impl Ask for Serve {
    fn log_in(&self, from: &str, times: usize) -> Result<Vec<u16>> {
        let entries = json!([
            {"key": "auth_type", "value": "login"}, {"key": "remote_address", "value": from},
        ]);
        let body = json!({"domain": "auth", "descriptors": [{"entries": entries}]}).to_string();
        (0..times).map(|_| Ok(self.ask("POST", "/json", &body)?.0)).collect()
    }

    fn became(&self, what: &str) -> Result<u64> {
        let (_, page) = self.ask("GET", "/metrics", "")?;
        let is_it = |line: &&str| {
            line.starts_with("limiter_request_bans_total{")
                && line.contains(&format!("became=\"{what}\""))
        };
        let line = page.lines().find(is_it).with_context(|| format!("no {what}: {page}"))?;
        Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
    }

    fn wait_until(&self, what: &str, count: u64) -> Result<()> {
        until(what, || Ok(self.became(what)? >= count))
    }
}

fn until(what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Of ten packets of each source, those that arrive.
fn arrive<const N: usize>(bed: &Testbed, sources: [Ipv4Addr; N]) -> Result<[u64; N]> {
    let frame = |from: Ipv4Addr| Frame::ipv4(from.octets(), RECEIVER.ipv4.octets()).build();
    let streams = sources.map(|from| Stream {
        frames: vec![frame(from)],
        pattern: Pattern::Burst { frames: 10, every: Duration::from_secs(10) },
    });
    let (_, counts) = bed.measure(streams.into(), Duration::from_millis(200))?;
    Ok(sources.map(|from| counts.of(from.into())))
}

fn banned(limiter: &Limiter) -> Result<Vec<String>> {
    let bans = limiter.json(&["bans"])?;
    let entries = bans["entries"].as_array().context("no entries")?;
    Ok(entries.iter().filter_map(|ban| Some(ban["source"].as_str()?.to_owned())).collect())
}

/// Over a limit of requests, dropped at the card, on record with its rule; a management prefix is
/// not; without a daemon, and with the next one.
#[test]
fn a_source_over_a_limit_of_requests_is_dropped_at_the_card() -> Result<()> {
    require_root();
    let bed = Testbed::create("request-bans")?;
    let mut limiter = bed.limiter("descriptors: []\n")?;
    limiter.options(["--management", &MANAGER.to_string()]);
    limiter.start()?;
    let rules = bed.dir.write("requests.yaml", RULES)?;
    let serve = Serve::start(&limiter, bed.dir.path(), &rules)?;
    let four = [OVER, LATER, MANAGER, WITHIN];
    ensure!(arrive(&bed, four)? == [10; 4], "nobody is banned yet");

    ensure!(serve.log_in(&WITHIN.to_string(), 2)? == [200; 2]);
    ensure!(serve.log_in(&OVER.to_string(), 3)? == [200, 200, 429]);
    ensure!(serve.log_in(&MANAGER.to_string(), 3)? == [200, 200, 429]);
    ensure!(serve.log_in("2001:db8:1:2::3", 3)? == [200, 200, 429]);
    ensure!(serve.log_in("an unknown one", 3)? == [200, 200, 429]);
    serve.wait_until("made", 2)?;
    serve.wait_until("refused", 1)?;
    ensure!(serve.became("no_address")? == 1);
    ensure!(arrive(&bed, four)? == [0, 10, 10, 10], "one is banned");

    // Who it was, and what did it.
    let mut all = banned(&limiter)?;
    all.sort();
    ensure!(all == ["2001:db8:1:2::/64", "203.0.113.7"], "{all:?}");
    let table = limiter.ok(["bans"])?;
    let lines = table.lines().filter(|line| line.trim_end().ends_with(RULE)).count();
    ensure!(lines == 2, "{table}");
    let from = OVER.to_string();
    let explained = limiter.ok(["explain", "--from", &from, "--to", "80/tcp"])?;
    ensure!(explained.contains(&format!("by {RULE}")), "{explained}");
    let shown = limiter.json(&["show", &from])?;
    ensure!(shown["banned_by"] == RULE, "{shown}");
    until("an event names the rule", || {
        let events = limiter.json(&["events"])?;
        let episodes = events["episodes"].as_array().cloned().unwrap_or_default();
        let is_it = |at: &Value| at["source"] == from.as_str() && at["rule"] == RULE;
        Ok(episodes.iter().any(is_it))
    })?;

    // Without a daemon: the ban holds, requests are answered, and a ban that cannot be made is
    // reported.
    limiter.terminate()?;
    ensure!(serve.log_in(&LATER.to_string(), 3)? == [200, 200, 429]);
    serve.wait_until("no_daemon", 1)?;
    until("it says so", || Ok(serve.said()?.contains("the daemon could not be asked")))?;
    ensure!(serve.said()?.contains("inside the management prefix"), "{}", serve.said()?);
    ensure!(arrive(&bed, four)? == [0, 10, 10, 10], "one is still banned");

    // The next daemon knows which rule it was, and the next request over the limit asks it.
    limiter.start()?;
    ensure!(limiter.ok(["bans"])?.contains(RULE), "{}", limiter.ok(["bans"])?);
    until("the other one is banned", || {
        ensure!(serve.log_in(&LATER.to_string(), 1)? == [429]);
        Ok(banned(&limiter)?.contains(&LATER.to_string()))
    })?;
    ensure!(arrive(&bed, four)? == [0, 0, 10, 10], "two are banned");
    ensure!(limiter.ok(["unban", &from])? == "1 source forgotten\n");
    ensure!(arrive(&bed, four)? == [10, 0, 10, 10], "one is forgotten");
    drop(serve);
    limiter.close()?;
    bed.close()
}
