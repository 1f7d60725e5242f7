//! `GET /metrics` of a real daemon: on the socket, and over TCP for who asks for it.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::netns::Netns;
use limiter_tests::packet::Frame;
use limiter_tests::packet_socket::PacketSocket;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(30));

/// Nothing of it comes back while the test runs.
const RULES: &str = "descriptors:
  - {key: remote_address, rate_limit: {unit: week, requests_per_unit: 1, burst: 3}}\n";

fn ask(mut stream: impl std::io::Read + std::io::Write, path: &str) -> Result<String> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

fn over_tcp(netns: &Netns, path: &str) -> Result<String> {
    netns.enter(|| {
        let stream = TcpStream::connect(("127.0.0.1", 9464))?;
        stream.set_read_timeout(TIMEOUT)?;
        ask(stream, path)
    })?
}

fn value(page: &str, sample: &str) -> Result<u64> {
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    Ok(line.with_context(|| format!("no {sample}: {page}"))?.parse()?)
}

#[test]
fn metrics_are_served_where_asked_for() -> Result<()> {
    require_root();
    let bed = Testbed::create("metrics")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let listening =
        bed.receiver.run("cat", ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"])?;
    ensure!(!listening.contains(" 0A "), "somebody listens without being asked to: {listening}");
    limiter.terminate()?;
    limiter.options(["--metrics-listen", "127.0.0.1:9464"]);
    limiter.start()?;

    let frame = Frame::ipv4([203, 0, 113, 7], RECEIVER.ipv4.octets());
    let frame = frame.macs(SENDER.mac, RECEIVER.mac).build();
    bed.sender.enter(|| -> Result<()> {
        let socket = PacketSocket::sender(SENDER.interface)?;
        for _ in 0..8 {
            socket.send(&frame)?;
        }
        Ok(())
    })??;
    let mut stats = limiter.json(&["stats"])?;
    for _ in 0..1_000 {
        if stats["dropped"]["packets"].as_u64() >= Some(5) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        stats = limiter.json(&["stats"])?;
    }
    let dropped = stats["dropped"]["packets"].as_u64().context("no count")?;
    ensure!(dropped == 5 && stats["seen"]["packets"] == 8, "{stats}");
    let unix = UnixStream::connect(limiter.socket())?;
    unix.set_read_timeout(TIMEOUT)?;
    for page in [ask(unix, "/metrics")?, over_tcp(&bed.receiver, "/metrics")?] {
        ensure!(page.starts_with("HTTP/1.1 200 "), "{page}");
        let over =
            "limiter_rule_packets_total{rule=\"every source\",rule_name=\"\",verdict=\"over\"}";
        ensure!(value(&page, over)? == 5, "{page}");
        let over = "limiter_packets_total{verdict=\"drop\",reason=\"over-limit\"}";
        ensure!(value(&page, over)? == 5, "{page}");
        let mode = "limiter_interface_info{interface=\"recv0\",mode=\"native\"}";
        ensure!(value(&page, mode)? == 1, "{page}");
        ensure!(value(&page, "limiter_entries{table=\"ipv4_sources\"}")? >= 1, "{page}");
    }
    let nothing = over_tcp(&bed.receiver, "/v1/status")?;
    ensure!(nothing.starts_with("HTTP/1.1 404 "), "{nothing}");
    limiter.close()?;
    bed.close()
}
