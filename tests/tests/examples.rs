//! Every rule file in `examples/` is loaded into the kernel and driven with the traffic that it is
//! written for.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::path::Path;

use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_rules::RuleFile;
use limiter_rules::warnings::Warnings;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::program::Program;
use limiter_tests::root::require_root;

const SECOND: u64 = 1_000_000_000;

/// A machine that runs one of the files, and its clock.
struct Machine {
    program: Program,
    now: u64,
}

impl Machine {
    fn with(example: &str) -> Self {
        require_root();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(example);
        let file = RuleFile::parse(example, &std::fs::read(path).unwrap(), 1522).unwrap();
        let mut program = Program::load(1024, 256).unwrap();
        program.apply(&file.rules).unwrap();
        // A whole number of hours since boot, so that no window has begun.
        let machine = Self { program, now: 3600 * SECOND };
        machine.tell_time();
        machine
    }

    fn tell_time(&self) {
        self.program.set_time(Ticks::from_nanos(self.now)).unwrap();
    }

    fn wait(&mut self, nanos: u64) {
        self.now += nanos;
        self.tell_time();
    }

    fn reason(&self, frame: &Frame) -> Reason {
        self.program.judge(&frame.build()).unwrap()
    }

    /// How many of `count` frames at once pass.
    fn burst(&self, frame: &Frame, count: u32) -> u32 {
        self.burst_of(|_| frame.clone(), count)
    }

    fn burst_of(&self, frame: impl Fn(u32) -> Frame, count: u32) -> u32 {
        let passes = |index: &u32| {
            let verdict = self.program.run(&frame(*index).build(), 1).unwrap();
            matches!(verdict, Verdict::Pass)
        };
        u32::try_from((0..count).filter(passes).count()).unwrap()
    }
}

const SERVER: [u8; 4] = [192, 0, 2, 10];

fn udp(source: [u8; 4], port: u16) -> Frame {
    let transport = Transport::Udp { source: 40_000, destination: port };
    Frame::ipv4(source, SERVER).transport(transport).payload(&[0; 32])
}

fn tcp(source: [u8; 4], port: u16, flags: u8) -> Frame {
    let transport = Transport::Tcp { source: 40_000, destination: port, flags };
    Frame::ipv4(source, SERVER).transport(transport)
}

const SYN: u8 = 2;
const ACK: u8 = 16;

#[test]
fn ssh_box_lets_five_connections_in_and_then_one_in_six_seconds() {
    let mut machine = Machine::with("ssh-box.yaml");
    let knock = tcp([198, 51, 100, 1], 22, SYN);
    assert_eq!(machine.burst(&knock, 20), 5);
    // An open connection is not an attempt.
    assert_eq!(machine.burst(&tcp([198, 51, 100, 1], 22, ACK), 20), 20);
    machine.wait(6 * SECOND);
    // With fifteen strikes, four more are no ban.
    assert_eq!(machine.burst(&knock, 4), 1);
    // Another port, another source.
    assert_eq!(machine.burst(&tcp([198, 51, 100, 1], 443, SYN), 20), 20);
    assert_eq!(machine.burst(&tcp([198, 51, 100, 2], 22, SYN), 20), 5);
}

/// The ban that the file promises comes, ends, and is nobody else's.
#[test]
fn ssh_box_bans_who_goes_on() {
    let mut machine = Machine::with("ssh-box.yaml");
    let (source, other) = ([198, 51, 100, 1], [198, 51, 100, 2]);
    // Five pass, and nineteen strikes are not enough.
    assert_eq!(machine.burst(&tcp(source, 22, SYN), 24), 5);
    assert_eq!(machine.burst(&tcp(source, 443, ACK), 5), 5);
    // The twentieth is.
    assert_eq!(machine.burst(&tcp(source, 22, SYN), 1), 0);
    assert_eq!(machine.reason(&tcp(source, 443, ACK)), Reason::Banned);
    assert_eq!(machine.burst(&tcp(other, 443, ACK), 5), 5);
    machine.wait(601 * SECOND);
    assert_eq!(machine.burst(&tcp(source, 443, ACK), 5), 5);
}

/// Each example that has a ban has one that can come, and `check` has nothing against any example
/// that its comments do not say.
#[test]
fn examples_have_no_warnings_but_the_ban_by_syns() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut output = Vec::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let file = RuleFile::parse(&name, &std::fs::read(&path).unwrap(), 1522).unwrap();
        let lines = Warnings::of(&file.rules, &file.rules.lists, |_| false).in_full();
        output.extend(lines.into_iter().map(|line| format!("{name}: {line}")));
    }
    assert_eq!(output.len(), 1, "{output:#?}");
    let ban = "ssh-box.yaml: the rule for destination_port=22 remote_address bans without evidence";
    assert!(output[0].starts_with(ban), "{output:?}");
}

#[test]
fn ssh_box_counts_a_whole_network() {
    let machine = Machine::with("ssh-box.yaml");
    // 256 addresses with five attempts each: 600 of the 1,280 are within the hour of the network.
    let address = |index: u32| [203, 0, 113, u8::try_from(index % 256).unwrap()];
    assert_eq!(machine.burst_of(|index| tcp(address(index), 22, SYN), 1280), 600);
}

#[test]
fn ssh_box_spaces_pings() {
    let mut machine = Machine::with("ssh-box.yaml");
    let ping = Frame::ipv4([198, 51, 100, 1], SERVER)
        .transport(Transport::Echo { id: 1, sequence: 1 })
        .payload(&[0; 32]);
    // The backlog of a second holds five, and one is on its way.
    assert_eq!(machine.burst(&ping, 20), 6);
    machine.wait(SECOND / 5);
    assert_eq!(machine.burst(&ping, 20), 1);
}

#[test]
fn dns_marks_a_network_before_it_drops() {
    let machine = Machine::with("dns.yaml");
    let question = |index: u32| udp([198, 51, 100, u8::try_from(index % 8).unwrap()], 53);
    // Eight resolvers of one /24 ask 50 times each: 300 unmarked, 100 marked.
    let reasons: Vec<_> = (0..400).map(|index| machine.reason(&question(index))).collect();
    let of = |reason| reasons.iter().filter(|at| **at == reason).count();
    assert_eq!((of(Reason::Conforming), of(Reason::Marked)), (300, 100));
    // 100 at once from each, but 600 of the network.
    assert_eq!(machine.burst_of(question, 400), 200);
    assert_eq!(machine.burst(&udp([192, 0, 2, 53], 9), 2000), 2000);
}

#[test]
fn dns_counts_a_resolver_and_its_connections() {
    let machine = Machine::with("dns.yaml");
    assert_eq!(machine.burst(&udp([203, 0, 113, 1], 53), 150), 100);
    assert_eq!(machine.burst(&tcp([203, 0, 113, 1], 53, SYN), 50), 20);
    assert_eq!(machine.burst(&tcp([203, 0, 113, 1], 53, ACK), 50), 50);
}

#[test]
fn game_server_counts_packets_bytes_and_flows() {
    let mut machine = Machine::with("game-server.yaml");
    let player = udp([198, 51, 100, 1], 27015);
    assert_eq!(machine.burst(&player, 200), 64);
    // At the rate of the game nothing is lost.
    machine.wait(SECOND);
    for _ in 0..128 {
        assert_eq!(machine.burst(&player, 1), 1);
        machine.wait(SECOND / 128 + 1);
    }
    // Four flows at once, then two a second.
    let flow = |port: u32| {
        let source = u16::try_from(10_000 + port).unwrap();
        let transport = Transport::Udp { source, destination: 27015 };
        Frame::ipv4([198, 51, 100, 2], SERVER).transport(transport)
    };
    assert_eq!(machine.burst_of(flow, 20), 4);
    // 125,000 bytes at once, in frames of 1,042: 119, but only 64 packets.
    let large = Transport::Udp { source: 40_000, destination: 27015 };
    let large = Frame::ipv4([203, 0, 113, 9], SERVER).transport(large).payload(&[0; 1000]);
    assert_eq!(machine.burst(&large, 200), 64);
}

#[test]
fn game_server_has_a_limit_for_everybody_together() {
    let machine = Machine::with("game-server.yaml");
    let anybody = |index: u32| {
        let [_, a, b, c] = index.to_be_bytes();
        udp([10, a, b, c], 9)
    };
    assert_eq!(machine.burst_of(anybody, 41_000), 40_000);
}

#[test]
fn api_edge_marks_between_the_two_rates() {
    let machine = Machine::with("api-edge.yaml");
    let client = tcp([198, 51, 100, 1], 443, ACK);
    let reasons: Vec<_> = (0..1200).map(|_| machine.reason(&client)).collect();
    let of = |reason| reasons.iter().filter(|at| **at == reason).count();
    assert_eq!((of(Reason::Conforming), of(Reason::Marked)), (400, 600));
}

#[test]
fn api_edge_counts_handshakes_exactly() {
    let mut machine = Machine::with("api-edge.yaml");
    let hello = tcp([198, 51, 100, 2], 443, SYN);
    assert_eq!(machine.burst(&hello, 10), 10);
    machine.wait(30 * SECOND);
    assert_eq!(machine.burst(&hello, 40), 20);
    machine.wait(30 * SECOND - 1);
    assert_eq!(machine.burst(&hello, 40), 0);
    machine.wait(1);
    assert_eq!(machine.burst(&hello, 40), 10);
}

#[test]
fn api_edge_counts_ipv6_networks_at_every_length() {
    let machine = Machine::with("api-edge.yaml");
    let from = |subnet: u16| {
        let mut address = [0x20, 1, 0xd, 0xb8, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        address[6..8].copy_from_slice(&subnet.to_be_bytes());
        Frame::ipv6(address, [0xfd; 16])
    };
    // One /56 has 4,000, two more of the /48 share what is left of 8,000.
    assert_eq!(machine.burst_of(|_| from(0x0001), 4500), 4000);
    assert_eq!(machine.burst_of(|_| from(0x0101), 3000), 3000);
    assert_eq!(machine.burst_of(|_| from(0x0201), 3000), 1000);
}

#[test]
fn hosting_shares_budgets_over_prefixes_and_families() {
    let machine = Machine::with("hosting.yaml");
    let v4 = |last: u8| Frame::ipv4([203, 0, 113, last], SERVER);
    let partner_v6 = [0x20, 1, 0xd, 0xb8, 0, 0xa, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut v6_server = [0xfd; 16];
    // Each pair of addresses has 1,000 at once; together they have 5,000.
    let mut passed = 0;
    for last in 1..4 {
        passed += machine.burst(&v4(last), 1000);
    }
    for host in 0..4 {
        v6_server[15] = host;
        passed += machine.burst(&Frame::ipv6(partner_v6, v6_server), 1000);
    }
    assert_eq!(passed, 5000);
    // Somebody else is not affected.
    assert_eq!(machine.burst(&v4(200), 1000), 1000);
}

#[test]
fn hosting_moves_a_customer_to_the_slow_lane() {
    let machine = Machine::with("hosting.yaml");
    let customer = |index: u32| {
        let [_, _, a, b] = index.to_be_bytes();
        Frame::ipv4([10, 9, a, b], [192, 0, 2, 20])
    };
    let reasons: Vec<_> = (0..400).map(|index| machine.reason(&customer(index))).collect();
    let of = |reason| reasons.iter().filter(|at| **at == reason).count();
    assert_eq!((of(Reason::Conforming), of(Reason::Class)), (200, 20));
    // The budget of both families, asked for by the IPv6 address: used up.
    let mut address = [0x20, 1, 0xd, 0xb8, 0, 0xb, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20];
    let v6 = Frame::ipv6([0x20; 16], address);
    assert_eq!(machine.reason(&v6), Reason::OverLimit);
    address[15] = 0x21;
    assert_eq!(machine.burst(&Frame::ipv6([0x20; 16], address), 300), 300);
}

#[test]
fn crawlers_share_a_slower_class() {
    let mut machine = Machine::with("crawlers.yaml");
    let crawler = |last: u8| Frame::ipv4([198, 51, 100, last], SERVER);
    let reasons: Vec<_> = (0..100).map(|_| machine.reason(&crawler(1))).collect();
    let of = |reason| reasons.iter().filter(|at| **at == reason).count();
    assert_eq!((of(Reason::Conforming), of(Reason::Class), of(Reason::OverLimit)), (25, 50, 25));
    // The class is used up by the first; another crawler has its own limit still.
    assert_eq!(machine.burst(&crawler(2), 100), 25);
    machine.wait(SECOND / 2);
    // 25 of its own and 50 of the class, which refills 100 but holds 50.
    assert_eq!(machine.burst(&crawler(2), 200), 75);
    // People, and one that is only marked.
    assert_eq!(machine.burst(&Frame::ipv4([10, 0, 0, 1], SERVER), 600), 500);
    let rude = Frame::ipv4([203, 0, 113, 66], SERVER);
    assert_eq!(machine.burst(&rude, 100), 100);
    assert_eq!(machine.reason(&rude), Reason::Marked);
}

/// Without a cluster, as here: the limits are this node's.
#[test]
fn anycast_counts_a_customer_and_its_logins() {
    let mut machine = Machine::with("anycast.yaml");
    let knock = |index: u32| tcp([10, 0, 0, u8::try_from(index % 8).unwrap()], 22, SYN);
    // Of the hour: 500, whoever they are from.
    let login = |index: u32| {
        let transport = Transport::Tcp { source: 40_000, destination: 22, flags: SYN };
        let source = [10, 0, 0, u8::try_from(index % 8).unwrap()];
        Frame::ipv4(source, [192, 0, 2, 222]).transport(transport)
    };
    assert_eq!(machine.burst_of(login, 600), 500);
    // Packets to customer A are not among them.
    assert_eq!(machine.burst_of(knock, 600), 600);
    machine.wait(2 * 3600 * SECOND);
    assert_eq!(machine.burst_of(login, 600), 500);
    // Each source for itself.
    assert_eq!(machine.burst(&udp([198, 51, 100, 1], 9), 1500), 1000);
}
