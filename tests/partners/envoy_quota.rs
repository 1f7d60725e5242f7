//! Envoy's quota filter.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use crate::envoy::{lines, machine, start, yaml};
use crate::machine::{Machine, until};
use crate::page::Page;
use crate::partner::tried;
use crate::proxy::{self, serve};

/// A limit for all requests of the page's bucket.
const RULES: &str = "domain: auth\ndescriptors:\n  - {key: auth_type, value: login, rate_limit: \
                     {rate: 10/s, burst: 10}}\n";

/// What passes of 30 requests a second.
fn offer(machine: &Machine, seconds: u32) -> Result<(u32, u32)> {
    let begin = Instant::now();
    let mut passed = 0;
    for number in 0..30 * seconds {
        let due = begin + Duration::from_millis(33) * number;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        passed += u32::from(machine.get("/login", "")?.starts_with("HTTP/1.1 200 "));
    }
    Ok((passed, u32::try_from(begin.elapsed().as_secs())? + 1))
}

fn try_it(version: &mut String) -> Result<()> {
    let machine = machine(version)?;
    let [page, reference] = [proxy::page()?, Page::read("docs/requests-reference.md")?];
    let name = "name: envoy.filters.http.rate_limit_quota\n";
    let quota = yaml(&format!("{name}{}", reference.block(&format!("```yaml\n{name}"))?))?;
    machine.put("/etc/limiter/requests.d/auth.yaml", RULES)?;
    machine.application("")?;
    serve(&machine, &page)?;
    start(&machine, &json!([quota]), &lines(&page)?["clusters"], &json!({}))?;
    let passes = || -> Result<()> {
        let answer = machine.get("/login", "")?;
        ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        Ok(())
    };
    // It does not wait for its first answer, and the page's lines refuse until there is one.
    ensure!(passes().is_err(), "the first request passes");
    until("an assignment", passes)?;
    // The bound of the page: burst + rate x (t + life), the first life being of 30 s.
    let (hits, seconds) = offer(&machine, 20)?;
    ensure!((60..=10 + 10 * (seconds + 30)).contains(&hits), "{hits} in {seconds} s");
    machine.signal("serve", "STOP")?;
    passes().or_else(|_| until("an assignment in force", passes))?;
    until("an assignment that ends while limiter hangs", || {
        ensure!(passes().is_err(), "it passes");
        // Not just a bucket that is empty for a moment.
        thread::sleep(Duration::from_secs(3));
        ensure!(passes().is_err(), "it passes again");
        Ok(())
    })?;
    machine.end("serve", "KILL")?;
    ensure!(passes().is_err(), "it passes without limiter");
    serve(&machine, &page)?;
    until("an assignment after a restart", passes)
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn envoy_keeps_quotas_by_the_lines_of_the_page() -> Result<()> {
    let what = "the page's lines: refuses before the first assignment and after the last, with \
                `limiter serve` stopped or killed; three times the rate; restarted";
    tried("Envoy, quotas", what, try_it)
}
