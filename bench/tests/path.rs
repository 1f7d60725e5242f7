//! The ground of the measurement of whole paths: every tool has the same limit, and passes and
//! drops the same packets.

use anyhow::{Result, ensure};
use limiter_bench::path::contender::{Limit, Tool};
use limiter_bench::path::stand::Stand;
use limiter_bench::peers::{self, Hook, Kept, Of};
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;

const SOURCES: u32 = 1_000;
const ENTRIES: u32 = 4_096;

/// Every tool that this kernel has.
fn tools() -> Result<Vec<Tool>> {
    let has_police = peers::has_police()?;
    let all = Tool::ALL.into_iter().chain(Tool::AT_TC.into_iter().flatten());
    Ok(all.filter(|tool| has_police || !tool.is_police()).collect())
}

/// The one bucket of tc's filter lets one packet pass.
#[test]
fn police_passes_one_packet() -> Result<()> {
    require_root();
    if !peers::has_police()? {
        println!("this kernel has no `tc police`: others show this");
    }
    for tool in tools()?.into_iter().filter(|tool| tool.is_police()) {
        let stand = Stand::build(tool, Limit::Once, ENTRIES)?;
        stand.meet(1, 1_000)?;
        let run = stand.send(1, 20_000)?;
        ensure!(run.passed == 0, "{}: {run:?}", tool.name());
        stand.close()?;
    }
    Ok(())
}

/// On one CPU, counted by the namespace's IP stack, which knows nothing of any tool.
#[test]
fn every_tool_passes_one_packet_of_each_source() -> Result<()> {
    require_root();
    for tool in tools()?.into_iter().filter(|tool| !tool.is_police()) {
        let stand = Stand::build(tool, Limit::Once, ENTRIES)?;
        // Fails unless exactly these pass.
        stand.meet(SOURCES, 20_000)?;
        let run = stand.send(SOURCES, 20_000)?;
        let sent = run.sent.frames;
        ensure!(sent == 20_000 && run.link.lost == 0, "{}: {run:?}", tool.name());
        let expected = if tool == Tool::Nothing { sent } else { 0 };
        ensure!(run.passed == expected, "{}: {run:?}", tool.name());
        stand.close()?;
    }
    Ok(())
}

/// On two CPUs, under the limit of the latencies: nobody passes more than burst and rate, but for
/// rounding by the peers, and everybody passes the burst.
#[test]
fn every_tool_passes_the_burst() -> Result<()> {
    require_root();
    let (rate, _, burst) = Limit::Wide.parts();
    let limits = |tool: &Tool| tool.limits() && !tool.is_police();
    for tool in tools()?.into_iter().filter(limits) {
        let mut stand = Stand::build(tool, Limit::Wide, ENTRIES)?;
        stand.part()?;
        let run = stand.send(1, 20_000)?;
        ensure!(run.sent.frames == 20_000, "{}: {run:?}", tool.name());
        let refilled = u64::from(rate) * run.sent.nanos / 1_000_000_000;
        let most = (u64::from(burst) + refilled) * 11 / 10;
        let fits = (u64::from(burst)..=most).contains(&run.passed);
        ensure!(fits, "{}: not {burst} to {most}: {run:?}", tool.name());
        stand.close()?;
    }
    Ok(())
}

/// nft's rule in all of its forms, as the measurements install it.
#[test]
fn nft_takes_every_form_of_its_rule() -> Result<()> {
    require_root();
    for hook in [Hook::Ingress, Hook::Egress, Hook::Prerouting] {
        for (kept, word) in [(Kept::Minute, "update"), (Kept::Always, "add")] {
            for of in [Of::All, Of::Udp, Of::Port(9), Of::Dscp(0), Of::Ttl(64)] {
                let bed = Testbed::create("path-nft")?;
                let limit =
                    peers::Limit { name: "form", rate: "10/second", burst: 5, entries: 16, of };
                let listed = peers::nft(&bed.receiver, hook, kept, &[limit])?;
                ensure!(listed.contains(word), "{hook:?} {of:?}: {listed}");
                bed.close()?;
            }
        }
    }
    Ok(())
}

/// Three wide rules charge a packet before the fourth drops it: one packet of each source passes,
/// as with one rule, and the tools that limit agree.
#[test]
fn four_rules_let_one_packet_of_a_source_pass() -> Result<()> {
    require_root();
    for tool in [Tool::Limiter, Tool::Lines, Tool::NftIngress, Tool::Hashlimit] {
        let stand = Stand::build(tool, Limit::Four, 1 << 16)?;
        let run = stand.send(16, 2_000)?;
        ensure!(run.sent.frames == 2_000 && run.passed == 16, "{}: {run:?}", tool.name());
        stand.close()?;
    }
    Ok(())
}
