//! Opinions about conversations of every shape that a capture has.

use super::*;

/// A packet of UDP between two addresses of one family.
fn packet(from: &str, to: &str, ttl: u8) -> Captured {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut frame = vec![0; 12];
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, ttl, 17, 0, 0]);
            frame.extend(from.octets());
            frame.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, ttl]);
            frame.extend(from.octets());
            frame.extend(to.octets());
        }
        _ => panic!("two families"),
    }
    frame.extend([4, 210, 0, 9, 0, 8, 0, 0]);
    let length = frame.len() as u64;
    Captured { frame, length, ..Captured::default() }
}

/// The opinion of packets between pairs of addresses, each with its time to live.
fn opinion(pairs: impl IntoIterator<Item = (String, String, u8)>) -> Opinion {
    let mut look = Look::default();
    for (from, to, ttl) in pairs {
        look.add(Ends::of(&packet(&from, &to, ttl)).unwrap());
    }
    look.opinion()
}

/// Packets in both directions between a host and others, with the host's answers after each packet.
fn talk(host: &str, other: &str, answers: usize) -> Vec<(String, String, u8)> {
    let mut all = vec![(other.to_owned(), host.to_owned(), 57)];
    all.extend((0..answers).map(|_| (host.to_owned(), other.to_owned(), 64)));
    all
}

fn own(addresses: &[&str]) -> Opinion {
    Opinion::Own(addresses.iter().map(|address| address.parse().unwrap()).collect())
}

const HOST: &str = "192.0.2.254";

#[test]
fn the_end_of_all_packets_is_the_host() {
    for answers in [1, 3] {
        let all = (1..=10)
            .cycle()
            .take(300)
            .flat_map(|n| talk(HOST, &format!("198.51.100.{n}"), answers));
        assert_eq!(opinion(all), own(&[HOST]), "{answers}");
    }
    // A client of many servers, too.
    let all =
        (1..=40).flat_map(|n| [(HOST, n, 64), (HOST, n, 64), ("", n, 50)]).map(|(from, n, ttl)| {
            let other = format!("198.51.100.{n}");
            if from.is_empty() {
                (other, HOST.to_owned(), ttl)
            } else {
                (HOST.to_owned(), other, ttl)
            }
        });
    assert_eq!(opinion(all), own(&[HOST]));
}

#[test]
fn a_host_may_have_several_addresses() {
    let v4 = (1..=90).flat_map(|n| talk(HOST, &format!("198.51.100.{n}"), 2));
    let second = (1..=30).flat_map(|n| talk("192.0.2.253", &format!("203.0.113.{n}"), 1));
    let v6 = (1..=9).flat_map(|n| talk("2001:db8::fe", &format!("2001:db8::{n}"), 1));
    // Few packets of the third: its clients are in the same /64 as itself.
    let Opinion::Own(mut found) = opinion(v4.chain(second).chain(v6)) else { panic!() };
    found.sort_unstable();
    let mut wanted: Vec<IpAddr> =
        [HOST, "192.0.2.253", "2001:db8::fe"].map(|own| own.parse().unwrap()).to_vec();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

/// No packet that may have come in is left out.
#[test]
fn what_is_not_reported_is_not_guessed() {
    let one_way =
        (1..=50).cycle().take(500).map(|n| (format!("198.51.100.{n}"), HOST.to_owned(), 57));
    assert_eq!(opinion(one_way), Opinion::None);
    // One source sends to all addresses of a host, in one direction.
    let scan = (1..=50).map(|n| ("198.51.100.7".to_owned(), format!("192.0.2.{n}"), 57));
    assert_eq!(opinion(scan), Opinion::None);
    // A router: many on both sides.
    let forwarded = (0..400u32).flat_map(|n| {
        talk(&format!("192.0.2.{}", n * 7 % 200), &format!("198.51.100.{}", n % 199), 1)
    });
    assert_eq!(opinion(forwarded), Opinion::None);
    // Hosts of a segment among themselves.
    let segment = (0..400u32).flat_map(|n| {
        let from = format!("192.0.2.{}", n % 4);
        let to = format!("192.0.2.{}", (n + 1 + n / 4 % 3) % 4);
        [(from, to, 64)]
    });
    assert_eq!(opinion(segment), Opinion::None);
    let few = talk(HOST, "198.51.100.1", 1);
    assert_eq!(opinion(few), Opinion::None);
}

#[test]
fn two_ends_of_every_packet_are_named_and_none_is_chosen() {
    let all = (0..100).flat_map(|_| talk(HOST, "198.51.100.1", 1));
    let Opinion::Either(one, other) = opinion(all) else { panic!() };
    let mut both = [one.to_string(), other.to_string()];
    both.sort();
    assert_eq!(both, [HOST, "198.51.100.1"]);
    // A distant source sends to many addresses of the host: its packets came over routers.
    let attacker = (1..=20).cycle().take(400).flat_map(|n| {
        let own = format!("192.0.2.{n}");
        [("198.51.100.7".to_owned(), own.clone(), 57), (own, "198.51.100.7".to_owned(), 64)]
    });
    assert!(matches!(opinion(attacker), Opinion::Either(..)));
}
