//! IP inside frames that are not IP: no limit holds, and the daemon says so.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_common::verdict::Reason;
use limiter_tests::frames;
use limiter_tests::veth::SENDER;

use super::scene::{MODES, Scene};

const ONE: &str = "key: remote_address, rate_limit: {unit: week, requests_per_unit: 1, burst: 1}";

/// Frames of each kind: of all kinds more within ten seconds than the daemon takes for the noise of
/// a link.
const TURNS: u64 = 10;
const TURN: u64 = 50;

const SAID_WITHIN: Duration = Duration::from_secs(30);

fn frame_of(what: &str) -> Result<Vec<u8>> {
    let row = frames::table().into_iter().find(|row| row.what == what);
    Ok(row.with_context(|| format!("no row {what}"))?.frame)
}

#[test]
fn a_port_whose_packets_are_not_ip_is_warned_of() -> Result<()> {
    for mode in MODES {
        let scene = Scene::start("inside", mode, 1_500, ONE)?;
        let socket = scene.socket(SENDER.interface)?;
        let warnings =
            || Ok::<_, anyhow::Error>(scene.limiter.json(&["status"])?["warnings"].to_string());
        for what in ["IPv4 in a PPPoE session", "IPv4 under an MPLS label", "IPv4 in MACsec"] {
            let frame = frame_of(what)?;
            // A few at a time, so that the cable has room for them.
            for _ in 0..TURNS {
                let moved = scene.send(&socket, &frame, TURN)?;
                let exempt = moved.reasons.get(Reason::NotIp.name());
                let exempt = exempt.map_or(0, |count| count.packets);
                ensure!(exempt == TURN && moved.dropped.packets == 0, "{what}: {moved:?}");
            }
        }
        let deadline = Instant::now() + SAID_WITHIN;
        while !warnings()?.contains("have no IP header that limiter finds") {
            ensure!(Instant::now() < deadline, "no warning: {}", warnings()?);
            thread::sleep(Duration::from_millis(50));
        }
        scene.limiter.wait_until_logged("recv0 have no IP header that limiter finds")?;
        scene.close()?;
    }
    Ok(())
}
