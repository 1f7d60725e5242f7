//! Converts events into their reported form.

use limiter_api::events::{Episode, Sample};
use limiter_api::render::would_drop;
use limiter_common::verdict::Reason;
use limiter_common::wire::Event;
use limiter_datapath::Datapath;
use limiter_rules::model::TriePrefix;

use super::episodes::{Key, Open};
use crate::machine::clocks::rfc3339;

pub(super) fn source(key: &Key) -> String {
    let selector = TriePrefix::of_source(key.source).selector();
    selector.map_or_else(|| "?".to_owned(), |selector| selector.to_string())
}

pub(super) fn reason(number: u8) -> String {
    Reason::from_index(u32::from(number)).name().to_owned()
}

/// The facts about an event's packet.
pub(super) fn sample(event: &Event, datapath: &dyn Datapath) -> Sample {
    let at = datapath.attachments().iter().find(|at| at.ifindex == event.interface);
    let ports = event.known & Event::PORTS != 0;
    let is_out = event.known & Event::OUT != 0;
    // The program stores the ports of the conversation as its other end sees them.
    let (from, to) = if is_out {
        (event.destination_port, event.source_port)
    } else {
        (event.source_port, event.destination_port)
    };
    Sample {
        direction: is_out.then(|| "out".to_owned()),
        interface: at.map(|at| at.interface.clone()),
        bytes: event.length,
        protocol: (event.known & Event::PROTOCOL != 0).then_some(event.protocol),
        source_port: ports.then_some(from),
        destination_port: ports.then_some(to),
    }
}

/// The reported form of an episode.
pub(super) fn view(key: &Key, open: &Open, ended: bool, datapath: &dyn Datapath) -> Episode {
    let reason = reason(key.reason);
    Episode {
        source: source(key),
        rule: open.rule.as_ref().map(|title| title.rule.clone()),
        rule_name: open.rule.as_ref().and_then(|title| title.name.clone()),
        would_drop: would_drop(&reason),
        reason,
        began: rfc3339(open.began),
        seconds: open.length().as_secs(),
        sampled: open.sampled,
        ended,
        last: sample(&open.last, datapath),
    }
}
