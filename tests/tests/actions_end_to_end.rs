//! Actions with real sockets: what a sender sees of a reject, and whom a ban meets.

use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::foreign::pin_pass_program;
use limiter_tests::generator::{Pattern, Stream};
use limiter_tests::limiter::Limiter;
use limiter_tests::netns::Netns;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use rustix::net::sockopt::set_socket_linger;
use serde_json::Value;

/// For what is not to happen: a banned source gets no answer. Less than the first retransmission of
/// a SYN.
const NOT_WITHIN: Duration = Duration::from_millis(500);

/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

const PORT: u16 = 8080;

/// veth wakes its other end for frames that XDP sends back only when that runs an XDP program, too.
fn take_answers(bed: &Testbed) -> Result<()> {
    let path = bed.bpffs.path().join("pass");
    pin_pass_program(&path)?;
    let path = path.to_str().context("the path is not UTF-8")?;
    bed.sender.ip(["link", "set", "dev", SENDER.interface, "xdp", "pinned", path])?;
    Ok(())
}

/// Packets that were dropped and answered.
fn rejected(limiter: &Limiter) -> Result<u64> {
    let stats = limiter.json(&["stats"])?;
    let reasons = stats["reasons"].as_array().context("no reasons")?;
    let row = reasons.iter().find(|row| row["reason"] == "rejected").context("no such reason")?;
    row["packets"].as_u64().context("no count")
}

/// Keeps a TCP port open until the process ends, and takes what comes.
fn listen(netns: &Netns, address: SocketAddr) -> Result<()> {
    let listener = netns.enter(|| TcpListener::bind(address))??;
    thread::spawn(move || {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            open.push(stream);
        }
    });
    Ok(())
}

fn both(port: u16) -> [SocketAddr; 2] {
    [IpAddr::from(RECEIVER.ipv4), IpAddr::from(RECEIVER.ipv6)].map(|to| SocketAddr::new(to, port))
}

#[test]
fn a_rejected_connect_is_refused_at_once() -> Result<()> {
    require_root();
    let bed = Testbed::create("reject-tcp")?;
    take_answers(&bed)?;
    let mut limiter = bed.limiter(
        "replies: {unit: second, requests_per_unit: 100}\ndescriptors:\n  - key: destination_port
    value: 8080\n    descriptors:\n      - key: remote_address
        rate_limit: {unit: hour, requests_per_unit: 1, count: syns}\n        action: reject\n",
    )?;
    limiter.start()?;
    for address in both(PORT) {
        listen(&bed.receiver, address)?;
        let connect = || TcpStream::connect_timeout(&address, PATIENCE);
        bed.sender.enter(connect)?.with_context(|| format!("the first connection to {address}"))?;
        let before = rejected(&limiter)?;
        let second = bed.sender.enter(connect)?;
        let error = second.err().context("the second connection is over the limit")?;
        ensure!(error.kind() == ErrorKind::ConnectionRefused, "{address}: {error}");
        // One answer to one SYN: the sender did not wait for the next one. A machine that is too
        // busy for a second may have it sent all the same.
        let answers = rejected(&limiter)? - before;
        ensure!((1..=2).contains(&answers), "{address}: refused by {answers} answers");
    }
    limiter.close()?;
    bed.close()
}

#[test]
fn a_rejected_datagram_gets_an_error() -> Result<()> {
    require_root();
    let bed = Testbed::create("reject-udp")?;
    take_answers(&bed)?;
    let mut limiter = bed.limiter(
        "replies: {unit: second, requests_per_unit: 100}\ndescriptors:\n  - key: destination_port
    value: 8080\n    descriptors:\n      - key: remote_address
        rate_limit: {unit: hour, requests_per_unit: 1}\n        action: reject\n",
    )?;
    limiter.start()?;
    // As Linux reads ICMP 3/13 and ICMPv6 1/1.
    for (address, expected) in both(PORT).into_iter().zip([libc::EHOSTUNREACH, libc::EACCES]) {
        let receiver = bed.receiver.enter(|| UdpSocket::bind(address))??;
        let socket = bed.sender.enter(|| -> std::io::Result<_> {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            socket.connect(address)?;
            Ok(socket)
        })??;
        socket.set_read_timeout(Some(PATIENCE))?;
        receiver.set_read_timeout(Some(PATIENCE))?;
        socket.send(&[7; 100])?;
        ensure!(receiver.recv(&mut [0; 200])? == 100, "the first datagram is within the limit");
        socket.send(&[7; 100])?;
        let error = socket.recv(&mut [0; 8]).err().context("nobody sends data")?;
        ensure!(error.raw_os_error() == Some(expected), "{address}: {error}");
    }
    limiter.close()?;
    bed.close()
}

/// The banned sources, as `limiter bans` says.
fn banned(bans: &Value) -> Vec<&str> {
    let entries = bans["entries"].as_array().map_or(&[][..], Vec::as_slice);
    entries.iter().filter_map(|entry| entry["source"].as_str()).collect()
}

/// A source that floods its own connection is banned; the same segments with forged sources ban
/// nobody.
#[test]
fn a_ban_needs_an_established_connection() -> Result<()> {
    require_root();
    let bed = Testbed::create("evidence")?;
    let mut limiter = bed.limiter(
        "descriptors:\n  - key: destination_port\n    value: 8080\n    descriptors:
      - key: remote_address\n        rate_limit: {unit: hour, requests_per_unit: 5, burst: 5}
        action: {ban: {first: 1h, longest: 1h, memory: 1h, strikes: 3}}\n",
    )?;
    limiter.start()?;
    let [v4, v6] = both(PORT);
    let forged = [203, 0, 113, 77];
    let segment = Transport::Tcp { source: 40_000, destination: PORT, flags: 16 };
    for address in [v4, v6] {
        listen(&bed.receiver, address)?;
    }
    // Also the peer's own address, but no connection of it.
    let frames = [forged, SENDER.ipv4.octets()]
        .map(|from| Frame::ipv4(from, RECEIVER.ipv4.octets()).transport(segment).build());
    let pattern = Pattern::Burst { frames: 100, every: Duration::from_secs(10) };
    bed.measure(vec![Stream { frames: frames.to_vec(), pattern }], Duration::from_millis(200))?;
    let bans = limiter.json(&["bans"])?;
    ensure!(banned(&bans).is_empty(), "forged segments ban: {bans}");
    // The IPv4 source has an empty bucket: the connection is of the other family.
    let flood = || -> Result<()> {
        let mut stream = TcpStream::connect_timeout(&v6, PATIENCE)?;
        stream.set_nodelay(true)?;
        // Reset when it is closed: what is sent again later would be strikes for a new ban.
        set_socket_linger(&stream, Some(Duration::ZERO))?;
        for _ in 0..30 {
            stream.write_all(&[1; 10])?;
        }
        // Open until it is banned: what an end sends is no evidence.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let bans = limiter.json(&["bans"])?;
            if banned(&bans) == ["2001:db8::/64"] {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "who flooded is not banned: {bans}");
            thread::sleep(Duration::from_millis(20));
        }
    };
    bed.sender.enter(flood)??;
    let second = bed.sender.enter(|| TcpStream::connect_timeout(&v6, NOT_WITHIN))?;
    ensure!(second.is_err(), "a banned source connects");
    ensure!(limiter.ok(["bans"])?.contains("2001:db8::/64"), "the table has the source");
    ensure!(limiter.ok(["unban", "2001:db8::1"])? == "1 source forgotten\n", "one is banned");
    ensure!(limiter.ok(["bans"])? == "nobody is banned\n", "nobody is left");
    limiter.close()?;
    bed.close()
}
