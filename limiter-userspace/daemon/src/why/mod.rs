//! The program's present decision about a packet, with the reasons. The decision is computed by the
//! program's own code: [`Excerpt`]. This module turns the question into a frame, and names the
//! rules that were found.

mod check;
mod frame;
mod in_force;
mod known;
mod named;
mod question;
mod steps;

use std::net::IpAddr;

use humantime::format_rfc3339_millis;
use limiter_api::explain::{ExplainedNow, waits_for_lease};
use limiter_api::render::{duration, exact};
use limiter_api::stats::verdict;
use limiter_common::header::{self, TCP};
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::field;
use limiter_datapath::{Framing, Observed, Queueing, interfaces_of};
use limiter_model::{Excerpt, Judged, Looked, LookedTable, Packet};
use limiter_rules::Selector;
use limiter_rules::model::key::protocol_text;
use limiter_rules::model::{Direction, Fact};

use super::error::ServiceError;
use crate::machine::clocks::Clocks;

pub(super) use in_force::InForce;
pub(super) use question::Question;
pub(super) use steps::{BANS, line, lines};

/// Most interfaces that are tried for a packet whose interface is unknown.
const MOST_INTERFACES: usize = 64;

/// The rule and bucket of a source's next packet in the keyed table of sources; `None` if its rule
/// is not there.
pub(super) fn keyed_source(
    datapath: &dyn Observed,
    source: IpAddr,
) -> Result<Option<LookedTable>, ServiceError> {
    let question = Question::of_source(source.to_canonical());
    let (frame, length) = (frame::build(&question), question.length);
    let packet = Packet::received(Framing::Ethernet, &frame, length, 0);
    let mut excerpt = Excerpt::new(datapath, known::fields(&question))?;
    let mut tables = excerpt.look(&packet, datapath.now())?.tables.into_iter();
    Ok(tables.find(|table| table.table.is_of_sources() && table.reported.is_some()))
}

impl InForce<'_> {
    /// Answers `GET /v1/explain`.
    pub(super) fn explain(&self, question: &Question) -> Result<ExplainedNow, ServiceError> {
        let (found, elsewhere) = self.by_each_interface(question)?;
        let reason = found.judged.outcome.reason;
        let rule = found.decided();
        let open = elsewhere.or_else(|| found.may_be_dropped());
        let verdict = if open.is_some() { "unknown" } else { verdict(reason) };
        Ok(ExplainedNow {
            packet: found.packet.clone(),
            source: found.selector.to_string(),
            verdict: verdict.to_owned(),
            reason: reason.name().to_owned(),
            happens: open.unwrap_or_else(|| found.happens()),
            rule: rule.and_then(|step| step.reported.rule.clone()),
            passes_in_ns: found.wait.map(Ticks::as_nanos_rounded_up),
            waits_ns: found.waits().map(Ticks::as_nanos_rounded_up),
            departs_at: found.departs_at(),
            exact: found.is_exact(),
            generation: self.datapath.generation(),
            trial_seconds_left: None,
            assumed: found.assumed,
            not_looked_at: found.not_looked_at,
            dropped_lately: Vec::new(),
            drops: Vec::new(),
            steps: found.steps.into_iter().map(|step| step.reported).collect(),
        })
    }

    /// The answer for one of the interfaces that the packet may use: the first that drops it, if
    /// any. Also returns what is unknown, if other interfaces give other answers.
    fn by_each_interface(
        &self,
        question: &Question,
    ) -> Result<(Found, Option<String>), ServiceError> {
        let way = question.direction_of_packet();
        let limited = self.datapath.attachments().iter();
        let names = interfaces_of(limited.filter(|at| at.mode.hook().direction() == way));
        let asks = known::asked(self, question) & field::INTERFACE != 0;
        if question.interface.is_some() || !asks || names.is_empty() {
            return Ok((self.find(question)?, None));
        }
        let mut found = Vec::new();
        for name in names.iter().take(MOST_INTERFACES) {
            let by = Question { interface: Some((*name).to_owned()), ..question.clone() };
            found.push((*name, self.find(&by)?));
        }
        let (dropped, passed): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(_, found)| !found.judged.passes());
        let open = (!dropped.is_empty() && !passed.is_empty()).then(|| {
            let [dropped, passed] = [&dropped, &passed]
                .map(|by| named(&by.iter().map(|(name, _)| *name).collect::<Vec<_>>()));
            format!("it is dropped by {dropped}, and passes by {passed}")
        });
        let first = dropped.into_iter().chain(passed).next();
        let Some((name, mut found)) = first else { return Ok((self.find(question)?, None)) };
        if let 2.. = names.len() {
            let text = format!("interface not given; assumed {name}, of {}", named(&names));
            found.assumed.insert(0, text);
        }
        let more = names.len().saturating_sub(MOST_INTERFACES);
        if more > 0 {
            found.not_looked_at.push(format!("{more} more interfaces"));
        }
        Ok((found, open))
    }

    fn find(&self, question: &Question) -> Result<Found, ServiceError> {
        let (name, index) = self.limited(question)?;
        let bytes = frame::build(question);
        // A packet without a given length is as long as the shortest frame, or as its headers if
        // those are longer.
        let headers = u64::try_from(bytes.len()).unwrap_or(0);
        let shortest = !question.sized && question.is_of_packet();
        let length = if shortest { question.length.max(headers) } else { question.length };
        let packet = Packet {
            direction: question.direction_of_packet(),
            ..Packet::received(Framing::Ethernet, &bytes, length, index)
        };
        let mut excerpt = Excerpt::new(self.datapath, known::fields(question))?;
        let looked = excerpt.look(&packet, self.now)?;
        let judged = excerpt.judge(&packet, self.now)?;
        let selector = Selector::address(question.source);
        let steps = steps::list(self, &selector, &looked, &judged);
        // Other nodes and the store decide when a lease comes.
        let leased = steps.iter().flat_map(|step| &step.reported.limits).any(waits_for_lease);
        let known = !judged.passes() && !leased;
        let wait = if known { excerpt.wait(&packet, self.now)? } else { None };
        let at_once = self.at_once(question, &judged, &name);
        let clocks = Clocks { now: self.now, ..Clocks::of(self.datapath) };
        let assumed = known::assumed(self, question, &looked, &judged, &name);
        let not_looked_at = known::not_looked_at(self, question, &looked, &judged);
        let packet = described(question, length, &name);
        Ok(Found {
            packet,
            selector,
            looked,
            judged,
            wait,
            clocks,
            at_once,
            assumed,
            not_looked_at,
            steps,
        })
    }

    /// Reason why an outgoing packet that should wait does not, or may not; `None` if it does.
    fn at_once(&self, question: &Question, judged: &Judged, interface: &str) -> Option<String> {
        let outgoing = question.direction_of_packet() == header::Direction::Out;
        if judged.waits == Ticks::ZERO || !outgoing {
            return None;
        }
        match self.datapath.queueing(interface) {
            Ok(Queueing::Fq(_)) => None,
            Ok(Queueing::Other(kind) | Queueing::NoFq(kind)) => {
                Some(format!("it passes at once: {interface} has {kind}, and with fq"))
            }
            Err(error) => {
                Some(format!("the queueing of {interface} is not known ({error}): with fq"))
            }
        }
    }

    /// The interface by which the packet comes in or goes out.
    fn limited(&self, question: &Question) -> Result<(String, u32), ServiceError> {
        let direction = question.direction_of_packet();
        let mut limited =
            self.datapath.attachments().iter().filter(|at| at.mode.hook().direction() == direction);
        let found = match &question.interface {
            Some(name) => limited.find(|at| at.interface == *name),
            None => limited.next(),
        };
        match (found, &question.interface) {
            (Some(at), _) => Ok((at.interface.clone(), at.ifindex)),
            (None, None) if direction == header::Direction::Out => Err(ServiceError::Word {
                word: "direction",
                problem: "limiter sees no outgoing packets on any interface, so all of them pass: \
                          `limiter run --direction both` limits them"
                    .to_owned(),
            }),
            (None, None) => Ok(("none".to_owned(), 0)),
            (None, Some(name)) => Err(ServiceError::Word {
                word: "interface",
                problem: format!("{name:?} is not limited: `limiter status` lists those that are"),
            }),
        }
    }
}

impl Found {
    /// The step that decides about the packet, if a rule does: the step that drops it, the step
    /// with the longest wait, or else the first step that gives the reason why it passes.
    fn decided(&self) -> Option<&steps::Step> {
        if let Some(step) = self.waits().and_then(|_| self.holds()) {
            return Some(step);
        }
        let decides = |step: &&steps::Step| match self.judged.trail.stopped() {
            Some(stopped) => step.at == stopped,
            None => step.reported.reached && step.reason == Some(self.judged.outcome.reason),
        };
        self.steps.iter().find(decides).filter(|step| step.reported.rule.is_some())
    }

    /// The step whose limits delay the packet longest; among equals, the first.
    fn holds(&self) -> Option<&steps::Step> {
        let waits = |step: &steps::Step| {
            let limits = step.reported.limits.iter();
            limits.filter_map(|limit| limit.waits_ns).max().filter(|wait| *wait > 0)
        };
        let steps = self.steps.iter().filter(|step| step.reported.reached && !step.reported.shadow);
        let waiting = steps.filter_map(|step| Some((waits(step)?, step))).rev();
        waiting.max_by_key(|(wait, _)| *wait).map(|(_, step)| step)
    }

    /// Time that the packet waits before it goes on, if it does.
    fn waits(&self) -> Option<Ticks> {
        Some(self.judged.waits).filter(|wait| *wait != Ticks::ZERO)
    }

    /// Moment until which the packet waits.
    fn departs_at(&self) -> Option<String> {
        let at = self.clocks.at(self.clocks.now.plus(self.waits()?));
        Some(format_rfc3339_millis(at).to_string())
    }

    /// Text about causes that may still drop a packet that passes all checked rules; `None` if
    /// there are none.
    fn may_be_dropped(&self) -> Option<String> {
        let open = self.judged.passes() && !self.not_looked_at.is_empty();
        open.then(|| {
            let by: Vec<&str> = self.not_looked_at.iter().map(String::as_str).collect();
            format!("it may be dropped by what was not looked at: {}", named(&by))
        })
    }

    fn is_exact(&self) -> bool {
        self.assumed.is_empty() && self.not_looked_at.is_empty()
    }

    /// Describes the outcome for the packet.
    fn happens(&self) -> String {
        let decided = self.decided();
        let action = decided.and_then(|step| step.reported.action.clone()).unwrap_or_default();
        if let Some((wait, until)) = self.waits().zip(self.departs_at()) {
            let wait = duration(wait.as_nanos_rounded_up());
            return match &self.at_once {
                Some(why) => format!("{why} it would wait {wait}, until {until}"),
                None => format!("it waits {wait}, until {until}, and then passes"),
            };
        }
        match self.judged.outcome.reason {
            Reason::OverLimit if decided.is_some_and(|step| step.bans) => {
                format!("it is dropped, and it counts towards a ban: {action}")
            }
            Reason::Blocked => "it is dropped: the rule blocks it, whatever the rate".to_owned(),
            Reason::Rejected => "it is dropped, and its sender is notified".to_owned(),
            Reason::Marked if action.is_empty() => "it passes".to_owned(),
            Reason::Marked | Reason::Class | Reason::Redirected => format!("it passes: {action}"),
            Reason::Shadow => format!("it passes; without shadow mode: {action}"),
            Reason::OverLimit if let Some(longest) = decided.and_then(|step| step.longest_wait) => {
                format!("it is dropped: it would have to wait longer than {}", exact(longest))
            }
            reason => match reason.verdict() {
                Verdict::Pass => "it passes".to_owned(),
                Verdict::Drop => "it is dropped".to_owned(),
            },
        }
    }
}

/// Describes the packet in a line.
fn described(question: &Question, length: u64, interface: &str) -> String {
    let outgoing = question.direction == Direction::Out;
    let [way, to, at] = if outgoing { ["out to ", "at", "from"] } else { ["", "to", "at"] };
    let mut text = format!("{way}{}", question.source);
    if let Some(protocol) = question.protocol() {
        let name = protocol_text(protocol);
        text = match question.in_header(Fact::DestinationPort) {
            Some(port) => format!("{text} {to} {port}/{name}"),
            // A number alone could be read as a port.
            None if name.parse::<u8>().is_ok() => format!("{text}, protocol {name}"),
            None => format!("{text}, {name}"),
        };
    }
    if let Some(destination) = question.destination {
        text = format!("{text} {at} {destination}");
    }
    if question.protocol() == Some(TCP) {
        let flags = question.flags.map_or_else(|| "SYN".to_owned(), question::flags_text);
        text = format!("{text} {flags}");
    }
    format!("{text}, {length} bytes, by {interface}")
}

/// The first of some names, and the number of the others.
fn named(names: &[&str]) -> String {
    const MOST: usize = 4;
    let first = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

struct Found {
    packet: String,
    selector: Selector,
    looked: Looked,
    judged: Judged,
    /// Time until such a packet passes, if it does not now but will.
    wait: Option<Ticks>,
    clocks: Clocks,
    /// Reason why the packet does not wait although its limit delays it.
    at_once: Option<String>,
    assumed: Vec<String>,
    not_looked_at: Vec<String>,
    steps: Vec<steps::Step>,
}
