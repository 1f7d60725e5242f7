//! Several interfaces, and interfaces that go away and come back.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::cables::{FAR, NEAR, SEEN_WITHIN, passed_of, second_cable, send_ten};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use serde_json::Value;

const SOURCE: [u8; 4] = [203, 0, 113, 77];
const OTHER: [u8; 4] = [203, 0, 113, 78];

/// Five packets, then one in three minutes.
const DRAINING: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 20, burst: 5}}\n";

/// Waits until the first interface is attached or not, and returns what `status` has of it.
fn wait_for_attached(limiter: &Limiter, attached: bool) -> Result<Value> {
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let interface = limiter.json(&["status"])?["interfaces"][0].clone();
        if interface["attached"] == attached {
            return Ok(interface);
        }
        ensure!(Instant::now() < deadline, "{interface}; it said: {}", limiter.said());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the log has a text as often as asked, which is not more often.
fn wait_for_lines(limiter: &Limiter, text: &str, times: usize) -> Result<()> {
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let said = limiter.said();
        match said.matches(text).count() {
            found if found == times => return Ok(()),
            found => ensure!(
                found < times && Instant::now() < deadline,
                "{text:?} {found} times, not {times}: {said}"
            ),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn two_interfaces_have_one_bucket_for_a_source() -> Result<()> {
    require_root();
    let bed = Testbed::create("twoifaces")?;
    second_cable(&bed)?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.options(["--iface", NEAR]);
    let ready = limiter.start()?;
    ensure!(ready.contains("recv0 native, recv1 native, 1 rule"), "{ready}");
    send_ten(&bed, SENDER.interface, SOURCE)?;
    ensure!(passed_of(&limiter, SOURCE, 10)? == 5);
    send_ten(&bed, FAR, SOURCE)?;
    ensure!(passed_of(&limiter, SOURCE, 20)? == 5, "the second interface has a bucket of its own");
    // And the other way round.
    send_ten(&bed, FAR, OTHER)?;
    send_ten(&bed, SENDER.interface, OTHER)?;
    ensure!(passed_of(&limiter, OTHER, 20)? == 5, "the first interface has a bucket of its own");
    send_ten(&bed, FAR, OTHER)?;
    ensure!(passed_of(&limiter, OTHER, 30)? == 5);
    ensure!(counted_by(&limiter, RECEIVER.interface)? == Some((5, 15)));
    ensure!(counted_by(&limiter, NEAR)? == Some((5, 25)));
    limiter.close()?;
    bed.close()
}

/// Packets that came in by an interface: those that passed, and those that were dropped.
fn counted_by(limiter: &Limiter, interface: &str) -> Result<Option<(u64, u64)>> {
    let stats = limiter.json(&["stats"])?;
    let all = stats["interfaces"].as_array().context("`stats` has no interfaces")?;
    let Some(found) = all.iter().find(|entry| entry["interface"] == interface) else {
        return Ok(None);
    };
    let packets = |key: &str| found[key]["packets"].as_u64().context("no count");
    Ok(Some((packets("passed")?, packets("dropped")?)))
}

/// Waits until a rule has counted so many packets, and says how many passed.
fn passed_of_rule(limiter: &Limiter, name: &str, packets: u64) -> Result<u64> {
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let limits = limiter.json(&["list"])?;
        let all = limits["limits"].as_array().context("`list` has no limits")?;
        let rule = all.iter().find(|entry| entry["name"] == name).context("no such rule")?;
        let number = |what: &str| rule[what]["packets"].as_u64().context("no counter");
        let (passed, dropped) = (number("passed")?, number("dropped")?);
        if passed + dropped == packets {
            return Ok(passed);
        }
        ensure!(Instant::now() < deadline, "{passed} passed and {dropped} dropped of {packets}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Beside `two_interfaces_have_one_bucket_for_a_source`: a key without a value makes a bucket for
/// each.
#[test]
fn a_source_has_a_bucket_on_each_interface_if_the_rule_says_so() -> Result<()> {
    require_root();
    let bed = Testbed::create("apart")?;
    second_cable(&bed)?;
    let mut limiter = bed.limiter(
        "descriptors:\n  - key: interface\n    descriptors:
      - {key: remote_address, rate_limit: {name: apart, unit: hour, requests_per_unit: 20, burst: \
      5}}\n",
    )?;
    limiter.options(["--iface", NEAR]).start()?;
    for (interface, packets, passed) in
        [(SENDER.interface, 10, 5), (FAR, 20, 10), (SENDER.interface, 30, 10), (FAR, 40, 10)]
    {
        send_ten(&bed, interface, SOURCE)?;
        let now = passed_of_rule(&limiter, "apart", packets)?;
        ensure!(now == passed, "{now} of {packets} passed");
    }
    limiter.close()?;
    bed.close()
}

fn passed_by_interface(limiter: &Limiter) -> Result<u64> {
    let limits = limiter.json(&["list"])?;
    let all = limits["limits"].as_array().context("`list` has no limits")?;
    let rule = all.iter().find(|entry| entry["name"] == "cable").context("no such rule")?;
    rule["passed"]["packets"].as_u64().context("no counter")
}

#[test]
fn an_interface_that_comes_back_is_limited_again() -> Result<()> {
    require_root();
    let bed = Testbed::create("comesback")?;
    second_cable(&bed)?;
    // A rule that knows the interface by its index, which is another one afterwards.
    let mut limiter = bed.limiter(&format!(
        "{DRAINING}  - {{key: interface, value: {NEAR}, rate_limit: {{name: cable, unit: second, \
         requests_per_unit: 100000}}}}\n"
    ))?;
    limiter.on(NEAR);
    limiter.start()?;
    send_ten(&bed, FAR, SOURCE)?;
    ensure!(passed_of(&limiter, SOURCE, 10)? == 5);
    let before = wait_for_attached(&limiter, true)?;
    for round in 1..=2 {
        bed.receiver.ip(["link", "delete", NEAR])?;
        let gone = wait_for_attached(&limiter, false)?;
        ensure!(gone["ifindex"] == 0, "{gone}");
        ensure!(counted_by(&limiter, NEAR)?.is_none(), "an interface that is gone is counted");
        wait_for_lines(&limiter, "recv1 is gone", round)?;
        second_cable(&bed)?;
        let back = wait_for_attached(&limiter, true)?;
        ensure!(back["ifindex"] != before["ifindex"] && back["mode"] == "native", "{back}");
        wait_for_lines(&limiter, "recv1 is back", round)?;
    }
    ensure!(limiter.xdp()?["prog"]["name"] == "limiter", "{}", limiter.xdp()?);
    send_ten(&bed, FAR, SOURCE)?;
    ensure!(passed_of(&limiter, SOURCE, 20)? == 5, "the interface came back with a full bucket");
    let counted = passed_by_interface(&limiter)?;
    send_ten(&bed, FAR, OTHER)?;
    ensure!(passed_of(&limiter, OTHER, 10)? == 5);
    ensure!(passed_by_interface(&limiter)? == counted + 5, "the rule on the interface lost it");
    // The new link is pinned like the first.
    limiter.kill()?;
    let ready = limiter.start()?;
    ensure!(limiter.json(&["status"])?["interfaces"][0]["adopted"] == true, "{ready}");
    // Counters go on, and those of another interface with its index begin anew.
    ensure!(counted_by(&limiter, NEAR)? == Some((5, 15)));
    let index = limiter.json(&["status"])?["interfaces"][0]["ifindex"].clone();
    bed.receiver.ip(["link", "delete", NEAR])?;
    wait_for_attached(&limiter, false)?;
    bed.receiver.ip(["link", "add", NEAR, "index", &index.to_string(), "type", "veth"])?;
    let again = wait_for_attached(&limiter, true)?;
    ensure!(again["ifindex"] == index, "{again}");
    ensure!(counted_by(&limiter, NEAR)? == Some((0, 0)), "counted before it was there");
    limiter.close()?;
    bed.close()
}

/// Removing the pin is a bypass for an emergency: nobody undoes it.
#[test]
fn a_pin_that_was_removed_stays_so() -> Result<()> {
    require_root();
    let bed = Testbed::create("pinremoved")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.start()?;
    fs::remove_file(limiter.pins().join("links").join(RECEIVER.interface))?;
    wait_for_attached(&limiter, false)?;
    limiter.wait_until_logged("recv0 is not limited any more")?;
    // Whatever else happens to the interface.
    for alias in ["one", "two"] {
        bed.receiver.ip(["link", "set", RECEIVER.interface, "alias", alias])?;
        limiter.json(&["status"])?;
    }
    ensure!(limiter.xdp()?.is_null(), "a removed link came back: {}", limiter.xdp()?);
    ensure!(limiter.json(&["status"])?["interfaces"][0]["attached"] == false);
    limiter.kill()?;
    limiter.start()?;
    wait_for_attached(&limiter, true)?;
    limiter.close()?;
    bed.close()
}

/// With and without a daemon, and until a start that names the interface.
#[test]
fn one_interface_is_freed_and_the_other_stays_limited() -> Result<()> {
    require_root();
    let bed = Testbed::create("freed")?;
    second_cable(&bed)?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.options(["--iface", NEAR]).start()?;
    let has_program = |name| anyhow::Ok(!bed.receiver.link(name)?["xdp"].is_null());
    send_ten(&bed, FAR, SOURCE)?;
    ensure!(passed_of(&limiter, SOURCE, 10)? == 5);
    let output = limiter.ok(["detach", "--iface", NEAR])?;
    ensure!(output.contains("detached from recv1\neverything else stays"), "{output}");
    ensure!(!has_program(NEAR)? && has_program(RECEIVER.interface)?);
    // The freed interface counts for nobody, and the other is limited as before.
    send_ten(&bed, FAR, SOURCE)?;
    send_ten(&bed, SENDER.interface, OTHER)?;
    ensure!(passed_of(&limiter, OTHER, 10)? == 5);
    ensure!(passed_of(&limiter, SOURCE, 10)? == 5, "packets of a free interface were counted");
    let interfaces = limiter.json(&["status"])?["interfaces"].clone();
    ensure!(interfaces[0]["attached"] == true && interfaces[1]["attached"] == false);
    let refused = limiter.cli(["detach", "--iface", NEAR])?;
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(2), "{error}");
    ensure!(error.contains("recv1 is not limited by this limiter: limited are recv0"), "{error}");
    // A start limits it again, and without a daemon its pin is enough.
    limiter.terminate()?;
    limiter.start()?;
    ensure!(has_program(NEAR)?);
    limiter.kill()?;
    // One that does not name it reports it, for as long as it is limited.
    let is_reported = |limiter: &Limiter| {
        let warnings = limiter.json(&["status"])?["warnings"].to_string();
        let left = "recv1 is still limited as an earlier start left it, by these rules: name it \
                    with --iface, or run `limiter detach --iface recv1`";
        anyhow::Ok(warnings.contains(left))
    };
    limiter.without_options().start()?;
    ensure!(is_reported(&limiter)?);
    limiter.kill()?;
    let pins = limiter.pins().display().to_string();
    limiter.ok(["detach", "--iface", NEAR, "--pin-dir", &pins])?;
    ensure!(!has_program(NEAR)? && has_program(RECEIVER.interface)?);
    limiter.start()?;
    ensure!(!is_reported(&limiter)?);
    limiter.close()?;
    bed.close()
}
