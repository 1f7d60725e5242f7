//! How quick a service stays beside clients that take all they can, without a limit and with each
//! thing that limiter can do about them: figures of an emulated kernel with `fq` and `htb`, for
//! docs/shaping-figures.md.

// Figures of other kernels, in docs/shaping-figures.md: 1800 s each.

use std::fs;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::delay::report::percentile;
use limiter_tests::limiter::Limiter;
use limiter_tests::netns::Netns;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{self, RECEIVER, SENDER};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Times that everything is measured, in turn.
const ROUNDS: usize = 3;

/// Of each part: the start, which is not counted, and the rest.
const FIRST: Duration = Duration::from_millis(1_500);
const LENGTH: Duration = Duration::from_millis(3_500);

/// People, each with an address: a page, then a pause.
const PEOPLE: u8 = 8;
const PAGE: usize = 5_000;
const PAUSE: Duration = Duration::from_millis(450);

/// Crawlers, each with an address: one file after the other.
const CRAWLERS: [u8; 4] = [0, 2, 8, 32];
const FILE: usize = 1 << 18;

/// The line between the service and everybody else, which an emulated machine keeps full, and the
/// limit of each address.
const LINE: &str = "rate 5mbit burst 10000 latency 100ms";
const LIMIT: &str = "{name: client, rate: 100kbit/s, burst: 20kB}";

const NETWORK: &str = "198.51.100.0/24";
const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 254);
const PORT: u16 = 8_080;

/// The line's interfaces, on the side of the clients and at their end.
const LINE_INTERFACE: &str = "line0";
const CLIENTS_INTERFACE: &str = "clients0";

/// What happens to packets over the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    NoLimit,
    Dropping,
    Lane,
    Waiting,
}

impl Way {
    const ALL: [Self; 4] = [Self::NoLimit, Self::Dropping, Self::Lane, Self::Waiting];

    const fn text(self) -> &'static str {
        match self {
            Self::NoLimit => "no limit",
            Self::Dropping => "`action: drop`",
            Self::Lane => "`{mark: {dscp: cs1}}`, and a slower class of htb",
            Self::Waiting => "`{delay: {longest: 200ms}}`",
        }
    }

    const fn action(self) -> &'static str {
        match self {
            Self::NoLimit | Self::Dropping => "drop",
            Self::Lane => "{mark: {dscp: cs1}}",
            Self::Waiting => "{delay: {longest: 200ms}}",
        }
    }

    /// The commands of `tc` at the service, without the device.
    const fn commands(self) -> &'static [&'static str] {
        match self {
            Self::NoLimit | Self::Dropping => &[],
            Self::Waiting => &["qdisc replace dev DEV root fq flow_limit 10000"],
            Self::Lane => &[
                "qdisc replace dev DEV root handle 1: htb default 10",
                "class replace dev DEV parent 1: classid 1:1 htb rate 4800kbit",
                "class replace dev DEV parent 1:1 classid 1:10 htb rate 4mbit ceil 4800kbit prio 0",
                "class replace dev DEV parent 1:1 classid 1:20 htb rate 250kbit ceil 4800kbit prio 1",
                "filter replace dev DEV parent 1: protocol ip prio 1 u32 match ip dsfield 0x20 \
                 0xfc flowid 1:20",
            ],
        }
    }
}

fn tc(netns: &Netns, command: &str, interface: &str) -> Result<bool> {
    let command = command.replace("DEV", interface);
    let output = netns.output(Command::new("tc").args(command.split_whitespace()))?;
    if !output.status.success() {
        eprintln!("{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.status.success())
}

fn rules(way: Way) -> String {
    format!(
        "descriptors:\n  - key: remote_address\n    direction: out\n    rate_limit: {LIMIT}\n    \
         action: {}\n",
        way.action()
    )
}

/// A service, everybody else, and a line between them.
struct Scene {
    bed: Testbed,
    clients: Arc<Netns>,
    limiter: Limiter,
    /// Those that this kernel has the queueing disciplines for.
    ways: Vec<Way>,
}

impl Scene {
    fn build() -> Result<Self> {
        let bed = Testbed::create("lane")?;
        let clients = Arc::new(Netns::create("lane-clients")?);
        let (near, far) = ((&*bed.receiver, LINE_INTERFACE), (&*clients, CLIENTS_INTERFACE));
        veth::lay(near, far)?;
        bed.receiver.sysctl("ipv4/ip_forward", "1")?;
        bed.sender.ip(["route", "add", NETWORK, "via", &RECEIVER.ipv4.to_string()])?;
        for (netns, interface, first, last) in
            [(near.0, near.1, 254, 254), (far.0, far.1, 1, PEOPLE + 32)]
        {
            for number in first..=last {
                let address = format!("198.51.100.{number}/24");
                netns.ip(["address", "add", &address, "dev", interface])?;
            }
        }
        let mac = |(netns, interface): (&Netns, &str)| -> Result<String> {
            let link = netns.link(interface)?;
            Ok(link["address"].as_str().context("no address")?.to_owned())
        };
        let know = |(netns, interface): (&Netns, &str), address: Ipv4Addr, mac: &str| {
            let entry = ["lladdr", mac, "dev", interface, "nud", "permanent"];
            netns.ip(["neighbour", "replace", &address.to_string()].into_iter().chain(entry))
        };
        know(far, GATEWAY, &mac(near)?)?;
        for number in 1..=PEOPLE + 32 {
            know(near, client(number), &mac(far)?)?;
        }
        clients.ip(["route", "add", "default", "via", &GATEWAY.to_string()])?;
        let line = format!("qdisc replace dev DEV root tbf {LINE}");
        ensure!(tc(near.0, &line, near.1)?, "{line} is refused");
        let mut ways = Vec::new();
        for way in Way::ALL {
            let mut is_here = true;
            for command in way.commands() {
                is_here = is_here && tc(&bed.sender, command, SENDER.interface)?;
            }
            if is_here {
                ways.push(way);
            } else {
                println!("this kernel has not what it takes: {}", way.text());
            }
            if bed.sender.link(SENDER.interface)?["qdisc"] != "noqueue" {
                tc(&bed.sender, "qdisc del dev DEV root", SENDER.interface)?;
            }
        }
        let file = bed.dir.write("rules.yaml", rules(Way::NoLimit))?;
        let (binary, interface) = (limiter_tests::limiter::binary()?, SENDER.interface);
        let (dir, bpffs) = (bed.dir.path(), bed.bpffs.path());
        let mut limiter = Limiter::within(&bed.sender, binary, &file, interface, dir, bpffs);
        limiter.options(["--direction", "out"]);
        limiter.start()?;
        Ok(Self { bed, clients, limiter, ways })
    }

    fn prepare(&self, way: Way) -> Result<()> {
        for command in way.commands() {
            ensure!(tc(&self.bed.sender, command, SENDER.interface)?, "{command} is refused");
        }
        fs::write(self.limiter.rules(), rules(way))?;
        self.limiter.ok(["reload"])?;
        self.limiter.ok([if way == Way::NoLimit { "off" } else { "on" }])?;
        Ok(())
    }

    /// What people and crawlers get, side by side.
    fn measure(&self, crawlers: u8) -> Result<Got> {
        let service = SocketAddr::from((SENDER.ipv4, PORT));
        let listener = self.bed.sender.enter(|| TcpListener::bind(service))??;
        let connect = |number| connect(&self.clients, client(number), service);
        thread::scope(|scope| {
            let mut connections = Vec::new();
            for number in 1..=PEOPLE + crawlers {
                let here = connect(number)?;
                let (there, _) = listener.accept()?;
                scope.spawn(move || serve(there));
                connections.push(here);
            }
            let begun = Instant::now();
            let counted = begun + FIRST;
            let end = counted + LENGTH;
            let crawling = connections.split_off(PEOPLE.into());
            let people: Vec<_> = (0..)
                .zip(connections)
                .map(|(number, connection)| {
                    let start = begun + PAUSE * number / u32::from(PEOPLE);
                    scope.spawn(move || read_pages(connection, [start, counted, end]))
                })
                .collect();
            let crawling: Vec<_> = crawling
                .into_iter()
                .map(|connection| scope.spawn(move || crawl(connection, [counted, end])))
                .collect();
            let mut got = Got::default();
            for person in people {
                got.pages.extend(person.join().unwrap_or_else(|p| std::panic::resume_unwind(p))?);
            }
            for crawler in crawling {
                got.crawled += crawler.join().unwrap_or_else(|p| std::panic::resume_unwind(p))?;
            }
            Ok(got)
        })
    }

    fn close(self) -> Result<()> {
        self.limiter.close()?;
        drop(self.clients);
        self.bed.close()
    }
}

/// Pages of people, by the nanoseconds that each took, and bytes of crawlers.
#[derive(Debug, Default)]
struct Got {
    pages: Vec<u64>,
    crawled: u64,
}

/// The address of a client, from 1 on.
const fn client(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, number)
}

fn connect(netns: &Netns, from: Ipv4Addr, to: SocketAddr) -> Result<TcpStream> {
    netns.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.bind(&SockAddr::from(SocketAddr::from((from, 0))))?;
        socket.connect(&SockAddr::from(to))?;
        anyhow::Ok(TcpStream::from(socket))
    })?
}

/// Sends as many bytes as each request of eight bytes says, until the other end is closed.
fn serve(mut connection: TcpStream) {
    let content = vec![0; FILE];
    let mut asked = [0; 8];
    while connection.read_exact(&mut asked).is_ok() {
        let bytes = usize::try_from(u64::from_le_bytes(asked)).unwrap_or(FILE);
        if connection.write_all(content.get(..bytes).unwrap_or(&content)).is_err() {
            return;
        }
    }
}

fn ask(connection: &mut TcpStream, bytes: usize) -> std::io::Result<()> {
    connection.write_all(&u64::try_from(bytes).unwrap_or(u64::MAX).to_le_bytes())
}

/// Pages from a start on; of those asked for between two times, how long each took.
fn read_pages(mut connection: TcpStream, [start, counted, end]: [Instant; 3]) -> Result<Vec<u64>> {
    connection.set_nodelay(true)?;
    thread::sleep(start.saturating_duration_since(Instant::now()));
    let mut page = vec![0; PAGE];
    let mut pages = Vec::new();
    loop {
        let asked = Instant::now();
        if asked >= end {
            return Ok(pages);
        }
        ask(&mut connection, PAGE)?;
        connection.read_exact(&mut page)?;
        if asked >= counted {
            pages.push(u64::try_from(asked.elapsed().as_nanos())?);
        }
        thread::sleep(PAUSE);
    }
}

/// One file after the other; the bytes that come between two times.
fn crawl(mut connection: TcpStream, [counted, end]: [Instant; 2]) -> Result<u64> {
    // One that starves still ends.
    connection.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut buffer = vec![0; 64 << 10];
    let (mut left, mut crawled) = (0, 0);
    while Instant::now() < end {
        if left == 0 {
            ask(&mut connection, FILE)?;
            left = FILE;
        }
        let Ok(read) = connection.read(&mut buffer) else { continue };
        ensure!(read > 0, "the service closed a connection");
        left -= read;
        if Instant::now() >= counted {
            crawled += u64::try_from(read)?;
        }
    }
    Ok(crawled)
}

#[test]
#[ignore = "figures of an emulated kernel: `cargo xtask bench figures`"]
fn people_beside_crawlers() -> Result<()> {
    require_root();
    let scene = Scene::build()?;
    let mut all: Vec<(Way, Vec<Vec<Got>>)> = Vec::new();
    for way in &scene.ways {
        all.push((*way, CRAWLERS.iter().map(|_| Vec::new()).collect()));
    }
    for _ in 0..ROUNDS {
        for (way, of_way) in &mut all {
            let way = *way;
            scene.prepare(way)?;
            for (crawlers, rounds) in CRAWLERS.into_iter().zip(of_way) {
                let got = scene.measure(crawlers)?;
                let mut pages = got.pages.clone();
                pages.sort_unstable();
                let [median, most] = [50, 95].map(|of_100| percentile(&pages, of_100) / 1_000_000);
                eprintln!(
                    "{way:?}, {crawlers} crawlers: {} pages, {median} ms, {most} ms; {} bytes",
                    pages.len(),
                    got.crawled
                );
                ensure!(!pages.is_empty(), "{way:?}, {crawlers} crawlers: nobody got a page");
                rounds.push(got);
            }
            if !way.commands().is_empty() {
                tc(&scene.bed.sender, "qdisc del dev DEV root", SENDER.interface)?;
            }
        }
    }
    // Not behind libtest's own words.
    println!();
    let people = format!("a page of {} kB takes, ms", PAGE / 1_000);
    table(&people, &all, |rounds| {
        let mut pages: Vec<u64> = rounds.iter().flat_map(|got| got.pages.clone()).collect();
        pages.sort_unstable();
        // Tenths of milliseconds.
        let [median, most] = [50, 95].map(|of_100| decimal(percentile(&pages, of_100) / 100_000));
        format!("{median} ({most})")
    });
    let millis = u64::try_from(LENGTH.as_millis())?;
    table("all crawlers get, Mbit/s", &all, |rounds| {
        let mut each: Vec<u64> = rounds.iter().map(|got| got.crawled * 8 / millis / 100).collect();
        each.sort_unstable();
        let [median, least, most] = [50, 1, 100].map(|of_100| decimal(percentile(&each, of_100)));
        format!("{median} ({least} to {most})")
    });
    scene.close()
}

fn decimal(tenths: u64) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// A row for each way, a column for each number of crawlers.
fn table(what: &str, all: &[(Way, Vec<Vec<Got>>)], cell: impl Fn(&[Got]) -> String) {
    let heads: String = CRAWLERS.map(|crawlers| format!(" {crawlers} |")).concat();
    println!("figure: | crawlers: {what} |{heads}");
    println!("figure: |---|{}", "--:|".repeat(CRAWLERS.len()));
    for (way, of_way) in all {
        let cells: Vec<String> = of_way.iter().map(|rounds| cell(rounds)).collect();
        println!("figure: | {} | {} |", way.text(), cells.join(" | "));
    }
    println!("figure:");
}
