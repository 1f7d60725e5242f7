//! Facts that rules match but the question does not give.

use limiter_common::time::Ticks;
use limiter_common::wire::{Count, field};
use limiter_datapath::interfaces_of;
use limiter_model::{Held, Judged, Looked};
use limiter_rules::model::{Direction, Fact};

use super::frame::{DESTINATION_V4, DESTINATION_V6};
use super::in_force::{InForce, family};
use super::question::Question;
use crate::views::may_drop;

/// Most rules that are named among those not looked at.
const NAMED: usize = 16;

/// Protocols that may carry a packet inside a packet: IPIP, IPv6 in IP, GRE.
const TUNNELS: [u8; 3] = [4, 41, 47];

/// Bits of [`field`] that are known for a source alone.
const OF_SOURCE: u32 = field::SOURCE | field::V4 | field::V6 | field::IN | field::OUT;

/// Bits of [`field`] that are known or assumed for the packet; for a source alone, only the given
/// ones.
pub(super) fn fields(question: &Question) -> u32 {
    if question.is_of_packet() {
        return u32::MAX;
    }
    let given = [
        (field::DESTINATION, question.destination.is_some()),
        (field::INTERFACE, question.interface.is_some()),
    ];
    let facts = Fact::ALL.map(|fact| (fact.field(), question.says(fact)));
    let given = given.iter().chain(&facts).filter(|(_, given)| *given);
    given.fold(OF_SOURCE, |all, (bit, _)| all | bit)
}

/// Facts that were assumed about a packet, if a rule matches them.
pub(super) fn assumed(
    in_force: &InForce<'_>,
    question: &Question,
    looked: &Looked,
    judged: &Judged,
    interface: &str,
) -> Vec<String> {
    let Some(protocol) = question.protocol() else {
        return Vec::new();
    };
    if !judged.trail.reaches_rules() {
        return Vec::new();
    }
    let asks = |bit| asked(in_force, question) & bit != 0;
    let counts = |count| counted(looked, count);
    let flows = counts(Count::Flows);
    let v4 = std::net::Ipv4Addr::from(DESTINATION_V4).to_string();
    let v6 = std::net::Ipv6Addr::from(DESTINATION_V6).to_string();
    let destination = if question.source.is_ipv4() { v4 } else { v6 };
    let outgoing = question.direction == Direction::Out;
    let [own, other] = if outgoing { ["source", "destination"] } else { ["destination", "source"] };
    let own_way = question.direction_of_packet();
    let limited = in_force.datapath.attachments().iter();
    let limited = interfaces_of(limited.filter(|at| at.mode.hook().direction() == own_way));
    // An outgoing packet may wait on one interface and not on another.
    let differs = outgoing && judged.waits != Ticks::ZERO;
    let facts = Fact::ALL.into_iter().map(|fact| {
        let matters = asks(fact.field()) || fact.counted().is_some_and(counts);
        let text = fact.in_header(question.direction).assumed(&question.given);
        let text = text.filter(|_| matters && !question.says(fact));
        (text.is_some(), text.unwrap_or_default().to_owned())
    });
    let others = [
        (
            question.destination.is_none() && (asks(field::DESTINATION) || flows),
            format!("{own} address not given; assumed {destination}"),
        ),
        (
            flows && !question.says(Fact::SourcePort),
            format!("{other} port not given; assumed a flow that is new"),
        ),
        (
            question.interface.is_none() && limited.len() > 1 && differs,
            format!("interface not given; assumed {interface}, of {}", limited.join(", ")),
        ),
        (
            !question.sized && counts(Count::Bytes) && !asks(field::PACKET_LENGTH),
            "length not given; assumed the shortest frame".to_owned(),
        ),
        (
            TUNNELS.contains(&protocol) && asks(field::INNER),
            "the packet inside the tunnel cannot be given; assumed none".to_owned(),
        ),
    ];
    others.into_iter().chain(facts).filter_map(|(is, text)| is.then_some(text)).collect()
}

/// Causes that may still stop a passing packet, because too little is known about it.
pub(super) fn not_looked_at(
    in_force: &InForce<'_>,
    question: &Question,
    looked: &Looked,
    judged: &Judged,
) -> Vec<String> {
    let mut missing = Vec::new();
    if !judged.trail.reaches_rules() {
        return missing;
    }
    if looked.doubtful {
        missing.push("the bucket that new sources share in a flood".to_owned());
    }
    if !judged.passes() {
        return missing;
    }
    if !question.is_of_packet() {
        missing.extend(left_out(in_force, question, looked));
        for count in [Count::Syns, Count::Flows] {
            if counted(looked, count) {
                let name = if count == Count::Syns { "SYNs" } else { "flows" };
                missing.push(format!("limits on {name}"));
            }
        }
    }
    let more = missing.len().saturating_sub(NAMED);
    if more > 0 {
        missing.truncate(NAMED);
        missing.push(format!("{more} more rules"));
    }
    missing
}

/// Bits of [`field`] that rules in force match, in tables that this packet may be in.
pub(super) fn asked(in_force: &InForce<'_>, question: &Question) -> u32 {
    let ids = &in_force.datapath.installed().tables.ids;
    let mine = |fields: &u32| fields & family(question.source) != 0 || fields & field::INNER != 0;
    let forms = ids.keys().filter(|form| form.direction().meets(question.direction));
    forms.map(|form| form.fields).filter(mine).fold(0, |all, fields| all | fields)
}

/// Returns true if a limit on the packet counts this unit.
fn counted(looked: &Looked, count: Count) -> bool {
    let source = looked.rule.as_ref();
    let by_source =
        source.is_some_and(|rule| !rule.limit.is_unlimited() && rule.limit.counts() == count);
    let class = source.and_then(|rule| rule.class.as_ref());
    let tables = looked.tables.iter().flat_map(|table| [&table.held, &table.class]);
    let has = |held: &Held| {
        let limits = held.record.limits.iter().take(held.limits.len());
        limits.into_iter().any(|spec| spec.counts() == count)
    };
    by_source || class.into_iter().chain(tables.flatten()).any(has)
}

/// The rules of skipped tables that may stop a packet of the source.
fn left_out(in_force: &InForce<'_>, question: &Question, looked: &Looked) -> Vec<String> {
    if looked.left_out.is_empty() {
        return Vec::new();
    }
    let known = fields(question);
    let effective = in_force.effective;
    let rules = effective.on_other_keys().map(|of| &*of.rule).filter(|rule| {
        rule.path.direction.meets(question.direction)
            && rule.path.parts.iter().any(|part| part.field() & !known != 0)
            && may_drop(rule, effective, question.source)
    });
    rules.map(|rule| format!("rule for {}", rule.path)).collect()
}
