//! What packets are on the wire when limits at tc meet them, behind translation and offloads, with
//! the tools that change that.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{self, RECEIVER, SENDER};

use crate::tc_end_to_end::{answers, limited};

/// What [`RECEIVER`]'s address becomes on the wire.
const TRANSLATED: &str = "192.0.2.250";

/// Behind POSTROUTING: a rule for an address that is translated there matches nothing.
#[test]
fn outgoing_packets_have_the_addresses_of_the_wire() -> Result<()> {
    require_root();
    for (source, wanted) in [(RECEIVER.ipv4.to_string(), 40), (TRANSLATED.to_owned(), 10)] {
        let bed = Testbed::create("tcsnat")?;
        bed.receiver.ip(["address", "add", &format!("{TRANSLATED}/32"), "dev", "recv0"])?;
        bed.sender.ip(["route", "add", TRANSLATED, "via", &RECEIVER.ipv4.to_string()])?;
        for words in [
            "add table ip t",
            "add chain ip t c { type nat hook postrouting priority srcnat; }",
            &format!("add rule ip t c ip protocol icmp snat to {TRANSLATED}"),
        ] {
            bed.receiver.run("nft", [words])?;
        }
        let rules = format!(
            "domain: test\ndescriptors:\n  - key: source_address\n    value: {source}\n    \
             direction: out\n    rate_limit: {{rate: 10/week, algorithm: fixed_window}}\n"
        );
        let limiter = limited(&bed, &rules, ["--direction", "out"])?;
        let count = answers(&bed)?;
        ensure!(count == wanted, "{count} answers with a rule for {source}");
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}

/// Bytes of one TCP stream that arrive, of four million; it stands still when its quota is used up.
fn streamed(bed: &Testbed, is_out: bool) -> Result<u64> {
    let ((near, from), (far, to)) = if is_out {
        ((&bed.receiver, RECEIVER.ipv4), (&bed.sender, SENDER.ipv4))
    } else {
        ((&bed.sender, SENDER.ipv4), (&bed.receiver, RECEIVER.ipv4))
    };
    let target = SocketAddr::from((to, 9_001));
    let listener = far.enter(|| TcpListener::bind(target))??;
    let mut stream = near.enter(|| -> Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&target, Duration::from_secs(5))?;
        stream.set_write_timeout(Some(Duration::from_millis(300)))?;
        ensure!(stream.local_addr()?.ip() == from, "{stream:?}");
        Ok(stream)
    })??;
    let (mut accepted, _) = listener.accept()?;
    accepted.set_read_timeout(Some(Duration::from_secs(1)))?;
    let reading = thread::spawn(move || {
        let (mut buffer, mut sum) = (vec![0; 1 << 16], 0);
        while let Ok(bytes @ 1..) = accepted.read(&mut buffer) {
            sum += u64::try_from(bytes).unwrap_or(0);
        }
        sum
    });
    let block = vec![0; 1 << 16];
    for _ in 0..64 {
        if stream.write(&block).is_err() {
            break;
        }
    }
    let sum = reading.join().map_err(|panic| anyhow::anyhow!("the reader panicked: {panic:?}"))?;
    drop(stream);
    Ok(sum)
}

/// With super-frames of TCP and without, out and in, a quota in bytes is one of bytes on the wire.
#[test]
fn a_quota_of_bytes_holds_whatever_the_offloads() -> Result<()> {
    const QUOTA: u64 = 1_000_000;
    /// Ethernet, IPv4, and TCP with time stamps, of a packet of 1,448 bytes.
    const TCP_HEADERS: u64 = 66;
    require_root();
    for (is_out, is_off) in [(true, false), (true, true), (false, false), (false, true)] {
        let bed = Testbed::create("tctcp")?;
        if is_off {
            veth::offloads_off(&bed.sender, &bed.receiver)?;
        }
        let direction = if is_out { "out" } else { "in" };
        let quota = format!(
            "domain: test\ndescriptors:\n  - key: protocol\n    value: tcp\n    direction: \
             {direction}\n    descriptors:\n      - key: remote_address\n        rate_limit: {{unit: \
             week, requests_per_unit: {QUOTA}, count: bytes, algorithm: fixed_window}}\n"
        );
        let options = if is_out { ["--direction", "out"] } else { ["--hook", "tc"] };
        let limiter = limited(&bed, &quota, options)?;
        let bytes = streamed(&bed, is_out)?;
        let most = QUOTA * 1_448 / (1_448 + TCP_HEADERS);
        let context = format!("{bytes} bytes, {direction}, offloads off: {is_off}");
        ensure!(bytes <= most, "{context}: more than {most}");
        // What is sent again is charged again, and so is the last attempt of a large frame not.
        ensure!(bytes >= most * 8 / 10, "{context}: less than eight tenths of {most}");
        eprintln!("{context}, at most {most}");
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}
