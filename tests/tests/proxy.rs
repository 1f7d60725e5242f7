//! A proxy that asks before it answers: the configuration of nginx in docs/api.md, with a real
//! nginx.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::netns::Netns;
use limiter_tests::nginx::Nginx;
use limiter_tests::packet::Frame;
use limiter_tests::packet_socket::PacketSocket;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

/// An hour for each packet: nothing of it comes back while the test runs.
const RULES: &str = "descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, burst: 5}}\n";

/// Source over its limit. The packets come in by the limited interface, and the requests over the
/// loopback: a source over its limit could not ask by the same way.
const OVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const WITHIN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 8);

const PAGE: &str = "what is behind the proxy\n";

/// The configuration of the page, with this test's paths.
fn documented(socket: &Path, root: &Path) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/api.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```nginx\n").unwrap();
    let (mut text, _) =
        rest.split_once("```").map(|(block, rest)| (block.to_owned(), rest)).unwrap();
    for (from, to) in [
        ("/run/limiter/limiter.sock", socket.to_str().unwrap()),
        ("/var/www/html", root.to_str().unwrap()),
    ] {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text = text.replace(from, to);
    }
    text
}

/// Status, head in lower case, and body.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let start = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(start.as_str()))
    }

    fn number(&self, name: &str) -> Result<u64> {
        let value = self.header(name).with_context(|| format!("no {name}: {}", self.head))?;
        Ok(value.parse()?)
    }
}

/// One request from an address of the namespace itself.
fn get(netns: &Netns, from: Ipv4Addr) -> Result<Answer> {
    let said = netns.enter(|| -> Result<String> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], 80)).into())?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.write_all(b"GET /page.txt HTTP/1.0\r\nhost: test\r\n\r\n")?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    })??;
    let (head, body) = said.split_once("\r\n\r\n").context("no head")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    let head = head.replace('\r', "").to_lowercase();
    Ok(Answer { status, head, body: body.to_owned() })
}

/// The first answer, once somebody listens.
fn first(netns: &Netns, from: Ipv4Addr) -> Result<Answer> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match get(netns, from) {
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(20)),
            Ok(answer) => return Ok(answer),
        }
    }
}

/// Sends packets of a source by the cable; all of them are judged when this returns.
fn send(bed: &Testbed, limiter: &Limiter, source: Ipv4Addr, count: u64) -> Result<()> {
    let seen = || -> Result<u64> {
        let shown = limiter.json(&["show", &source.to_string()])?;
        let number = |name: &str| shown[name].as_u64().context("no number");
        Ok(number("passed")? + number("dropped")?)
    };
    let before = seen()?;
    let frame =
        Frame::ipv4(source.octets(), RECEIVER.ipv4.octets()).macs(SENDER.mac, RECEIVER.mac).build();
    bed.sender.enter(|| -> Result<()> {
        let socket = PacketSocket::sender(SENDER.interface)?;
        for _ in 0..count {
            socket.send(&frame)?;
        }
        Ok(())
    })??;
    let deadline = Instant::now() + Duration::from_secs(30);
    while seen()? < before + count {
        ensure!(Instant::now() < deadline, "not all packets of {source} came in");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[test]
fn nginx_reports_who_is_over_and_fails_open() -> Result<()> {
    require_root();
    let bed = Testbed::create("proxy")?;
    for address in [OVER, WITHIN] {
        bed.receiver.ip(["address", "add", &format!("{address}/32"), "dev", "lo"])?;
    }
    let root = bed.dir.path().join("www");
    fs::create_dir(&root)?;
    fs::write(root.join("page.txt"), PAGE)?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    send(&bed, &limiter, OVER, 9)?;
    send(&bed, &limiter, WITHIN, 2)?;

    let nginx = Nginx::start(&bed.receiver, bed.dir.path(), &documented(limiter.socket(), &root))?;
    let within = first(&bed.receiver, WITHIN)?;
    ensure!(within.status == 200 && within.body == PAGE, "{}", within.head);
    ensure!(within.number("x-ratelimit-limit")? == 5, "{}", within.head);
    ensure!(within.number("x-ratelimit-remaining")? == 3, "{}", within.head);
    let reset = within.number("x-ratelimit-reset")?;
    ensure!((1..=2 * 3_600).contains(&reset), "{}", within.head);
    ensure!(within.header("retry-after").is_none(), "{}", within.head);

    let over = get(&bed.receiver, OVER)?;
    ensure!(over.status == 429 && !over.body.contains(PAGE), "{}", over.head);
    ensure!(over.number("x-ratelimit-limit")? == 5, "{}", over.head);
    ensure!(over.number("x-ratelimit-remaining")? == 0, "{}", over.head);
    ensure!((1..=5 * 3_600).contains(&over.number("x-ratelimit-reset")?), "{}", over.head);
    ensure!((1..=3_600).contains(&over.number("retry-after")?), "{}", over.head);
    // And that is what the kernel does: the next one is dropped, as the daemon was not asked.
    let dropped = |address: Ipv4Addr| -> Result<Value> {
        Ok(limiter.json(&["show", &address.to_string()])?["dropped"].clone())
    };
    ensure!(dropped(OVER)? == 4, "the questions were charged");
    send(&bed, &limiter, OVER, 1)?;
    send(&bed, &limiter, WITHIN, 3)?;
    ensure!(dropped(OVER)? == 5 && dropped(WITHIN)? == 0, "not what was reported");

    // Here the clients are this machine's own addresses.
    limiter.ok(["deny", "203.0.113.8", "--for", "1h", "--force"])?;
    let denied = get(&bed.receiver, WITHIN)?;
    ensure!(denied.status == 429, "{}", denied.head);
    ensure!((1..=3_600).contains(&denied.number("retry-after")?), "{}", denied.head);

    // Without a daemon everybody is served.
    limiter.terminate()?;
    for address in [OVER, WITHIN] {
        let open = get(&bed.receiver, address)?;
        ensure!(open.status == 200 && open.body == PAGE, "{}", open.head);
        ensure!(open.header("x-ratelimit-limit").is_none(), "{}", open.head);
    }
    nginx.close()?;
    limiter.close()?;
    bed.close()
}
