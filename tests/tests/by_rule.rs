//! Drops of sources by every kind of rule, as `limiter show`, `sources` and `top` report them.

use std::fs;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::cables::{SEEN_WITHIN, send_ten};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::SENDER;
use serde_json::{Value, json};

const SOURCE: [u8; 4] = [203, 0, 113, 77];

/// The first drops what the others would let pass.
const KEYED: &str = "domain: test
descriptors:
  - key: protocol
    value: udp
    descriptors:
      - {key: remote_address, rate_limit: {name: datagrams, rate: 20/hour, burst: 2}}
  - {key: masked_remote_address, v4_prefix_mask_len: 24, rate_limit: {rate: 20/hour, burst: 4}}\n";

const BUDGET: &str = "domain: test
budgets:
  - {name: uplink, rate_limit: {rate: 20/hour, burst: 2}}
descriptors:
  - {key: protocol, value: udp, budget: uplink}\n";

/// What drops packets of a source, as `sources` and `top` have it.
fn among_all(limiter: &Limiter, source: &str) -> Result<Vec<Value>> {
    let list = limiter.json(&["sources"])?;
    let rows = list["sources"].as_array().context("no sources")?;
    let row = rows.iter().find(|row| row["source"] == source);
    let by = row.and_then(|row| row["by"].as_array()).with_context(|| format!("{list}"))?;
    for text in [limiter.ok(["sources"])?, limiter.ok(["top", "--once"])?] {
        ensure!(text.contains("REASON") && text.contains(source), "{text}");
    }
    Ok(by.clone())
}

/// Waits until `show` has a rule with such a field, and returns it.
fn row(limiter: &Limiter, field: &str, value: &Value) -> Result<Value> {
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let shown = limiter.json(&["show", &IpAddr::from(SOURCE).to_string()])?;
        let rules = shown["by_rule"].as_array().context("no drops by rule")?;
        let found = rules.iter().find(|row| row[field] == *value);
        if let Some(row) = found.filter(|row| row["exact"] == false || row["passed"] != 0) {
            return Ok(row.clone());
        }
        ensure!(Instant::now() < deadline, "{field} {value}: {shown}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn drops_by_every_kind_of_rule_are_found_by_the_source() -> Result<()> {
    require_root();
    let bed = Testbed::create("byrule")?;
    let mut limiter = bed.limiter(KEYED)?;
    limiter.start()?;
    send_ten(&bed, SENDER.interface, SOURCE)?;
    // A bucket of its own is exact.
    let datagrams = row(&limiter, "rule_name", &json!("datagrams"))?;
    let expected = json!({
        "rule": "protocol=udp remote_address", "rule_name": "datagrams", "reason": "over-limit",
        "passed": 2, "dropped": 8, "dropped_per_second": datagrams["dropped_per_second"],
        "since": datagrams["since"], "keys": 1, "exact": true, "with_before": false,
        "of": null,
    });
    ensure!(datagrams == expected, "{datagrams}");
    let block = row(&limiter, "rule", &json!("masked_remote_address/v4:24"))?;
    ensure!(block["passed"] == 2 && block["dropped"] == 0 && block["exact"] == true, "{block}");
    ensure!(block["of"] == "203.0.113.0/24", "{block}");
    let text = limiter.ok(["show", &IpAddr::from(SOURCE).to_string()])?;
    ensure!(text.contains("BY RULE") && text.contains("datagrams"), "{text}");
    let address = IpAddr::from(SOURCE).to_string();
    let rows = among_all(&limiter, &address)?;
    let [found] = rows.as_slice() else { bail!("{rows:?}") };
    ensure!(found["rule_name"] == "datagrams" && found["dropped"] == 8, "{found}");
    ensure!(found["exact"] == true && found["reason"] == "over-limit", "{found}");
    // Only what is in the prefix that is asked for.
    let elsewhere = limiter.json(&["sources", "--within", "198.51.100.0/24"])?;
    ensure!(elsewhere["sources"] == json!([]), "{elsewhere}");
    // One of another /24 has no key.
    let other = limiter.json(&["show", "203.0.114.77"])?;
    ensure!(other["by_rule"] == json!([]), "{other}");
    // A budget and the deny list have no bucket of a source: events report, and are a sample.
    fs::write(limiter.rules(), BUDGET)?;
    limiter.ok(["reload"])?;
    send_ten(&bed, SENDER.interface, SOURCE)?;
    let uplink = row(&limiter, "rule", &json!("budget uplink"))?;
    ensure!(uplink["exact"] == false && uplink["passed"].is_null(), "{uplink}");
    ensure!((1..=8).contains(&uplink["dropped"].as_u64().unwrap_or(0)), "{uplink}");
    limiter.ok(["deny", &IpAddr::from(SOURCE).to_string(), "--reason", "a test"])?;
    send_ten(&bed, SENDER.interface, SOURCE)?;
    let denied = row(&limiter, "reason", &json!("denied"))?;
    ensure!(denied["rule"].is_null() && denied["exact"] == false, "{denied}");
    let rows = among_all(&limiter, &address)?;
    let of = |field: &str, value: &str| rows.iter().find(|row| row[field] == value);
    let (uplink, denied) = (of("rule", "budget uplink"), of("reason", "denied"));
    let (uplink, denied) = uplink.zip(denied).with_context(|| format!("{rows:?}"))?;
    ensure!(uplink["exact"] == false && denied["exact"] == false, "{rows:?}");
    limiter.close()?;
    bed.close()
}
