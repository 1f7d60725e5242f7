//! The place of the transport header, for keys that ask for it.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use limiter_common::verdict::Reason;
use limiter_tests::frames::{v4, v6};
use limiter_tests::packet::{Extension, Fragment, Frame};
use limiter_tests::veth::SENDER;

use super::scene::{Count, Counters, MODES, Scene};

/// The port of all frames, in a table of its own: what has no port is not in it, and no rule is
/// left.
const BY_PORT: &str = "key: destination_port, value: 9, \
    rate_limit: {unit: second, requests_per_unit: 1000, burst: 1000}";

const FIRST: Fragment = Fragment { offset: 0, more: true, id: 7 };
const LATER: Fragment = Fragment { offset: 185, more: false, id: 7 };
const ATOMIC: Fragment = Fragment { offset: 0, more: false, id: 7 };

fn chain(headers: usize) -> Frame {
    (0..headers).fold(v6(), |frame, _| frame.extension(Extension::Destination(0)))
}

fn cut(frame: &Frame, behind: usize) -> Vec<u8> {
    let frame = frame.build();
    frame[..frame.len() - behind].to_vec()
}

/// Name of a frame, the frame, and whether the program knows its port.
fn table() -> Vec<(&'static str, Vec<u8>, bool)> {
    let mut short = v4().build();
    short[14] = 0x44;
    let every = v6()
        .extension(Extension::HopByHop(0))
        .extension(Extension::Routing(2))
        .extension(Extension::Destination(1))
        .extension(Extension::Authentication(3));
    vec![
        ("IPv4", v4().build(), true),
        ("40 bytes of options", v4().options(&[1; 40]).build(), true),
        ("header length under 5", short, false),
        ("two tags", v4().vlan(1).vlan(2).build(), true),
        ("first fragment", v4().fragment(FIRST).payload(&[0; 64]).build(), true),
        // A later fragment has bytes where a port would be.
        ("later fragment", v4().fragment(LATER).payload(&[0, 9].repeat(32)).build(), false),
        ("half of the ports", cut(&v4(), 6), false),
        ("ports and nothing more", cut(&v4(), 4), true),
        ("IPv6", v6().build(), true),
        ("four extensions", every.build(), true),
        ("six extensions", chain(6).build(), true),
        ("seven extensions", chain(7).build(), false),
        ("first fragment of IPv6", v6().fragment(FIRST).payload(&[0; 64]).build(), true),
        ("atomic fragment", v6().fragment(ATOMIC).payload(&[0; 64]).build(), true),
        ("later fragment of IPv6", v6().fragment(LATER).payload(&[0, 9].repeat(32)).build(), false),
        ("extension that is cut", cut(&chain(1), 9), false),
    ]
}

/// Ports behind IPv4 options, tags, up to six extension headers, in a first or atomic fragment.
/// Ports of a later fragment, of a header under 5 words, of one that is cut, behind seven extension
/// headers.
#[test]
fn ports_are_found_where_they_are() -> Result<()> {
    for mode in MODES {
        let scene = Scene::start("ports", mode, 1_500, BY_PORT)?;
        let socket = scene.socket(SENDER.interface)?;
        for (what, frame, known) in table() {
            let moved = scene.send(&socket, &frame, 1)?;
            let one = Count { packets: 1, bytes: frame.len() as u64 };
            let reason = if known { Reason::Conforming } else { Reason::NoRule };
            let expected = Counters {
                seen: 1,
                reasons: BTreeMap::from([(reason.name().to_owned(), one)]),
                passed: if known { one } else { Count::default() },
                dropped: Count::default(),
            };
            ensure!(moved == expected, "{what} in {mode} mode: {moved:?}, expected {expected:?}");
        }
        scene.close()?;
    }
    Ok(())
}
