//! The commands, and their answers.

use std::borrow::Cow;
use std::mem;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::{SmallVec, smallvec};

use crate::buckets::arithmetic::Left;
use crate::clock::Moment;
use crate::decide::question::{Answer, Asked, Descriptor};
use crate::doors::resp::wire::{Command, Out};
use crate::doors::utf8;
use crate::reports::odd::{Odd, OddParts};
use crate::reports::stats::Why;
use crate::reports::unsaid::quoted;
use crate::rules::Terms;
use crate::service::Service;
use crate::throttle::{NotThrottled, Throttle, Throttled};

/// Longest name of a connection, in bytes: it is kept.
const MOST_NAME: usize = 64;

/// Numbers of connections.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    CellThrottle,
    CrabThrottle,
    Ask,
    Ping,
    Hello,
    Client,
    Command,
    Info,
    Select,
    Auth,
    Multi,
    Exec,
    Quit,
}

const ANY: usize = usize::MAX;

/// The commands, with how many arguments they have.
const COMMANDS: [(&str, Kind, RangeInclusive<usize>); 15] = [
    ("CL.THROTTLE", Kind::CellThrottle, 4..=5),
    ("LIMITER.ASK", Kind::Ask, 3..=ANY),
    ("THROTTLE", Kind::CrabThrottle, 4..=5),
    ("PING", Kind::Ping, 0..=1),
    ("ECHO", Kind::Ping, 1..=1),
    ("HELLO", Kind::Hello, 0..=ANY),
    ("CLIENT", Kind::Client, 1..=ANY),
    ("COMMAND", Kind::Command, 0..=ANY),
    ("INFO", Kind::Info, 0..=ANY),
    ("SELECT", Kind::Select, 1..=1),
    ("AUTH", Kind::Auth, 1..=2),
    ("MULTI", Kind::Multi, 0..=0),
    ("EXEC", Kind::Exec, 0..=0),
    ("DISCARD", Kind::Exec, 0..=0),
    ("QUIT", Kind::Quit, 0..=ANY),
];

/// A command that is refused undecided.
struct Refusal(Why, Cow<'static, str>);

impl Refusal {
    /// The command is wrong.
    fn bad(text: impl Into<Cow<'static, str>>) -> Self {
        Self(Why::Request, text.into())
    }

    fn unknown(what: &str, name: &[u8]) -> Self {
        let name: String = String::from_utf8_lossy(name).chars().take(64).collect();
        Self(Why::Path, format!("ERR unknown {what} '{}'", name.escape_debug()).into())
    }
}

type Done = Result<(), Refusal>;

/// What is known of a connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Its number, once its client asked.
    id: Option<i64>,
    name: Vec<u8>,
    /// True between `MULTI` and `EXEC`, where nothing is done.
    in_transaction: bool,
    /// True if it ends, once its answers are sent.
    pub(super) ends: bool,
}

impl Session {
    /// Answers a command. `moment` is that of the commands before it, if they came together.
    pub(super) async fn answer(
        &mut self,
        service: &Service,
        command: &Command<'_>,
        moment: &mut Option<Moment>,
        out: &mut Out,
    ) {
        if let Err(Refusal(why, text)) = self.answered(service, command, moment, out).await {
            service.stats.refuse(why);
            out.error(&text);
        }
    }

    async fn answered(
        &mut self,
        service: &Service,
        command: &Command<'_>,
        moment: &mut Option<Moment>,
        out: &mut Out,
    ) -> Done {
        let name = command.get(0).unwrap_or_default();
        let known = COMMANDS.iter().find(|(of, ..)| name.eq_ignore_ascii_case(of.as_bytes()));
        let Some((name, kind, arguments)) = known else {
            return Err(Refusal::unknown("command", name));
        };
        if !arguments.contains(&command.arguments()) {
            return Err(wrong_number(name));
        }
        if self.in_transaction && !matches!(kind, Kind::Exec | Kind::Quit) {
            return Err(Refusal::bad("ERR not done: it came after MULTI, which is not taken"));
        }
        let first = command.get(1);
        match kind {
            Kind::CellThrottle | Kind::CrabThrottle => {
                let moment = moment.get_or_insert_with(Moment::now);
                throttle(service, *kind == Kind::CrabThrottle, command, moment, out)?;
            }
            Kind::Ask => {
                // It may wait for other nodes.
                *moment = None;
                ask(service, command, out).await?;
            }
            Kind::Ping => match first {
                Some(text) => out.bulk(text),
                None => out.simple("PONG"),
            },
            Kind::Hello => self.hello(command, out)?,
            Kind::Client => self.client(command, out)?,
            // Of no command there is a description.
            Kind::Command => out.array(0),
            // Clients ask whether it is loading.
            Kind::Info => out.bulk(b"# Persistence\r\nloading:0\r\n"),
            Kind::Select if first == Some(b"0") => out.simple("OK"),
            Kind::Select => {
                return Err(Refusal::bad("ERR DB index is out of range: there is only 0"));
            }
            Kind::Auth => return Err(no_password()),
            Kind::Multi => {
                self.in_transaction = true;
                return Err(Refusal::bad(
                    "ERR MULTI is not taken: send commands in a pipeline without it, as redis-py \
                     does by pipeline(transaction=False)",
                ));
            }
            Kind::Exec if mem::take(&mut self.in_transaction) => {
                return Err(Refusal::bad("EXECABORT nothing was done: MULTI is not taken"));
            }
            Kind::Exec => return Err(Refusal::bad("ERR there was no MULTI, which is not taken")),
            Kind::Quit => {
                self.ends = true;
                out.simple("OK");
            }
        }
        Ok(())
    }

    fn hello(&mut self, command: &Command<'_>, out: &mut Out) -> Done {
        let three = match command.get(1) {
            None => out.is_three,
            Some(b"2") => false,
            Some(b"3") => true,
            Some(_) => return Err(Refusal::bad("NOPROTO unsupported protocol version: 2 or 3")),
        };
        let mut options = command.from(2);
        let mut name = None;
        while let Some(option) = options.next() {
            match options.next() {
                _ if option.eq_ignore_ascii_case(b"AUTH") => return Err(no_password()),
                Some(of) if option.eq_ignore_ascii_case(b"SETNAME") => name = Some(of),
                _ => return Err(Refusal::unknown("option of HELLO", option)),
            }
        }
        name.map_or(Ok(()), |name| self.set_name(name))?;
        out.is_three = three;
        out.map(7);
        let texts = [("server", "limiter"), ("version", env!("CARGO_PKG_VERSION"))];
        let more = [("mode", "standalone"), ("role", "master")];
        for (field, text) in texts.into_iter().chain(more) {
            out.bulk(field.as_bytes());
            out.bulk(text.as_bytes());
        }
        for (field, number) in [("proto", if three { 3 } else { 2 }), ("id", self.id())] {
            out.bulk(field.as_bytes());
            out.integer(number);
        }
        out.bulk(b"modules");
        out.array(0);
        Ok(())
    }

    fn client(&mut self, command: &Command<'_>, out: &mut Out) -> Done {
        let what = command.get(1).unwrap_or_default();
        let is = |name: &str, arguments| {
            what.eq_ignore_ascii_case(name.as_bytes()) && command.arguments() == arguments
        };
        if is("SETNAME", 2) {
            self.set_name(command.get(2).unwrap_or_default())?;
            out.simple("OK");
        } else if is("GETNAME", 1) {
            if self.name.is_empty() { out.null() } else { out.bulk(&self.name) }
        } else if is("ID", 1) {
            out.integer(self.id());
        } else if is("SETINFO", 3) {
            // The library of the client, which nobody asks for.
            out.simple("OK");
        } else {
            return Err(Refusal::unknown(
                "subcommand of CLIENT, or wrong number of arguments:",
                what,
            ));
        }
        Ok(())
    }

    fn set_name(&mut self, name: &[u8]) -> Done {
        if name.len() > MOST_NAME {
            return Err(Refusal::bad(format!(
                "ERR the name of a connection has up to {MOST_NAME} bytes"
            )));
        }
        self.name = name.to_vec();
        Ok(())
    }

    fn id(&mut self) -> i64 {
        let next = || i64::try_from(NEXT_ID.fetch_add(1, Ordering::Relaxed)).unwrap_or(i64::MAX);
        *self.id.get_or_insert_with(next)
    }
}

fn wrong_number(name: &str) -> Refusal {
    let arguments = match name {
        "CL.THROTTLE" | "THROTTLE" => ": key max_burst count period [quantity]",
        "LIMITER.ASK" => ": domain key value [key value ...] [HITS n]",
        _ => "",
    };
    let name = name.to_ascii_lowercase();
    Refusal::bad(format!("ERR wrong number of arguments for '{name}' command{arguments}"))
}

fn no_password() -> Refusal {
    Refusal::bad("ERR AUTH is not taken: who reaches this address may ask; give no password")
}

/// A number of a command.
fn number(command: &Command<'_>, index: usize, name: &str, least: u64) -> Result<u64, Refusal> {
    let text = command.get(index).and_then(|part| std::str::from_utf8(part).ok());
    let most = u64::try_from(i64::MAX).unwrap_or(u64::MAX) - 1;
    let number = text.and_then(|text| text.parse().ok());
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| Refusal::bad(format!("ERR {name} is not an integer from {least} to {most}")))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Whole seconds after which a time is over.
fn seconds(nanos: u64) -> i64 {
    signed(nanos.div_ceil(1_000_000_000))
}

/// Seconds after which to try again; -1 where that never helps.
fn retry(wait: Option<u64>) -> i64 {
    wait.map_or(-1, |nanos| seconds(nanos).max(1))
}

/// `CL.THROTTLE` of redis-cell, whose burst comes on top of one hit; and `THROTTLE` of
/// throttlecrab, whose burst is all that may pass at once, and whose answer has another order.
fn throttle(
    service: &Service,
    is_crab: bool,
    command: &Command<'_>,
    moment: &Moment,
    out: &mut Out,
) -> Done {
    let more = u64::from(!is_crab);
    let throttle = Throttle {
        burst: number(command, 2, "max_burst", 1 - more)? + more,
        count: number(command, 3, "count", 1)?,
        period: number(command, 4, "period", 1)?,
    };
    let hits = if command.arguments() > 4 { number(command, 5, "quantity", 0)? } else { 1 };
    let key = command.get(1).unwrap_or_default();
    let decided = service.limiter.throttle(key, &throttle, hits, moment);
    let Throttled { over, left: Left { remaining, reset, wait } } =
        decided.map_err(|error| match error {
            NotThrottled::NoRoom(_) => Refusal(Why::Room, format!("OOM {error}").into()),
            _ => Refusal::bad(format!("ERR {error}")),
        })?;
    let (limit, remaining, reset) = (signed(throttle.burst), signed(remaining), seconds(reset));
    out.integers(match (is_crab, over) {
        (false, false) => [0, limit, remaining, -1, reset],
        (false, true) => [1, limit, remaining, retry(wait), reset],
        (true, false) => [1, limit, remaining, reset, 0],
        (true, true) => [0, limit, remaining, reset, retry(wait)],
    });
    Ok(())
}

/// `LIMITER.ASK domain key value [key value ...] [HITS n]`: a request with one descriptor.
async fn ask(service: &Service, command: &Command<'_>, out: &mut Out) -> Done {
    let Some(domain) = command.get(1) else { return Err(wrong_number("LIMITER.ASK")) };
    let arguments = command.arguments();
    if arguments.is_multiple_of(2) {
        return Err(wrong_number("LIMITER.ASK"));
    }
    let is_hits = |word: &[u8]| word.eq_ignore_ascii_case(b"HITS");
    let has_hits = arguments > 3 && command.get(arguments - 1).is_some_and(is_hits);
    let hits = if has_hits { Some(number(command, arguments, "HITS", 0)?) } else { None };
    let odd = &service.limiter.odd;
    let domain = text(domain, odd);
    let mut texts = command.from(2).take(arguments - if has_hits { 3 } else { 1 });
    let mut entries: SmallVec<[_; 2]> = SmallVec::new();
    while let (Some(key), Some(value)) = (texts.next(), texts.next()) {
        entries.push((text(key, odd), text(value, odd)));
    }
    let entries = entries.iter().map(|(key, value)| (&**key, &**value)).collect();
    let descriptor = Descriptor { entries, hits, limit: None };
    let asked = Asked { domain: &domain, descriptors: smallvec![descriptor], hits: 0 };
    let rules = service.limiter.rules();
    let answer = service.decide(&rules, &asked, None).await;
    let answer = answer.map_err(|refused| Refusal::bad(format!("ERR {refused}")))?;
    out.integers(shown(&answer));
    Ok(())
}

/// A text, which has `?` in the place of each byte that belongs to no character.
fn text<'a>(bytes: &'a [u8], odd: &OddParts) -> Cow<'a, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let text = utf8::in_place(bytes);
    odd.count(Odd::NotUtf8, quoted(&text));
    Cow::Owned(text)
}

/// The answer as `CL.THROTTLE` has it, of the limit that is nearest to refusing; -1 where there
/// is no value, or it is not known.
fn shown(answer: &Answer) -> [i64; 5] {
    let over = i64::from(answer.over);
    let Some(status) = answer.statuses.first() else { return [over, -1, -1, -1, -1] };
    let Some((limit, left)) = &status.nearest else {
        let blocks = status.rule.as_ref().is_some_and(|of| matches!(of.terms, Terms::Block(_)));
        let none = if blocks { 0 } else { -1 };
        return [over, none, none, -1, -1];
    };
    // Of a limit that nodes share this one knows its lease.
    let known = |number| if status.leased { -1 } else { number };
    let wait = if answer.over { retry(left.wait) } else { -1 };
    let [remaining, reset] = [signed(left.remaining), seconds(left.reset)].map(known);
    [over, signed(limit.amount()), remaining, wait, reset]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_whole_seconds() {
        assert_eq!([0, 1, 1_000_000_000, 1_000_000_001].map(seconds), [0, 1, 1, 2]);
        assert_eq!([Some(1), Some(2_000_000_000), None].map(retry), [1, 2, -1]);
    }
}
