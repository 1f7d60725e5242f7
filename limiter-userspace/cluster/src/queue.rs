//! Queues: payloads of requests that wait in the store until the limits of their rule let them
//! leave for the workers. The script `queue.lua` decides; this module has its questions and
//! answers.

use std::time::Duration;

use limiter_sharing::rate::Rate;

use super::store::StoreError;

/// One limit of a queue's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimit {
    /// Rate at which it refills.
    pub rate: Rate,
    /// How much may pass at once.
    pub room: Room,
}

/// Room of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Capacity of a token bucket: hits, at least 1.
    Burst(u64),
    /// Backlog of a leaky bucket: how far hits may be ahead, in microseconds.
    Backlog(u64),
}

/// A request for a decision.
#[derive(Clone, Copy, Debug)]
pub struct QueueAsk<'a> {
    /// 48 hexadecimal digits: the tag of the rule (16), and a digest of the key.
    pub bucket: &'a str,
    /// Hits of the request, no more than [`most_hits`].
    pub hits: u64,
    /// One to four limits.
    pub limits: &'a [QueueLimit],
    /// Most payloads that may wait in the queue.
    pub depth: u64,
    /// The longest time that a payload waits.
    pub age: Duration,
    /// The payload to store if the request must wait; without it, the request is rejected instead.
    pub payload: Option<Payload<'a>>,
}

/// A payload with its id.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// At least one byte.
    pub id: &'a str,
    /// True if the caller chose the id: a second request with it counts as the same one.
    pub is_callers: bool,
    /// The payload.
    pub text: &'a str,
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueBecame {
    /// The request is within the limits, and charged.
    Within,
    /// The request is over the limits and has no payload.
    Over,
    /// The payload waits.
    Queued {
        /// Payloads of the same bucket that leave earlier.
        ahead: u64,
    },
    /// A payload with the same id was queued before.
    QueuedBefore,
    /// The queue is full.
    Full,
    /// The payload would wait longer than allowed.
    TooLong,
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueAnswer {
    /// Result of the request.
    pub became: QueueBecame,
    /// Microseconds until it leaves, or until a similar request may pass.
    pub wait: u64,
    /// For each limit, the microseconds until it is completely unused.
    pub used: Vec<u64>,
}

/// A turn of the mover.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// Name of the mover, different from all others.
    pub mover: &'a str,
    /// Most payloads that may leave.
    pub most: u32,
    /// The longest time that a payload waits.
    pub age: Duration,
    /// The time that a worker has for a payload.
    pub visibility: Duration,
    /// Deliveries per payload.
    pub attempts: u64,
    /// Number of dead letters to keep.
    pub dead: u64,
    /// A number that changes after each answer: counts in a lost answer are then repeated in the
    /// next one.
    pub heard: u64,
    /// What the store's access list is known to deny.
    pub refused: Withheld,
    /// Rules that fill the queue: the tag and the limits of each.
    pub rules: &'a [(Box<str>, Vec<QueueLimit>)],
}

/// What the store's access list denies to a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Withheld {
    /// Nothing.
    #[default]
    Nothing,
    /// `INFO`, which shows a turn that a worker was removed.
    Info,
    /// Claiming the payloads of workers, so that removing a worker loses its payloads.
    TakeOver,
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turned {
    /// Time of the store's clock, in microseconds since 1970.
    pub now: u64,
    /// False if another mover is active: then nothing moved.
    pub is_mover: bool,
    /// Number of the latest turn of all movers.
    pub number: u64,
    /// What the store's access list denies.
    pub refused: Withheld,
    /// When the next payload may leave, by the store's clock; `None` if none waits.
    pub next: Option<u64>,
    /// True if nothing leaves because workers do not read.
    pub unread: bool,
    /// Number of waiting payloads.
    pub waiting: u64,
    /// Payloads that workers have or can fetch.
    pub ready: u64,
    /// Number of dead letters.
    pub dead: u64,
    /// When the oldest waiting payload came, by the store's clock.
    pub oldest: Option<u64>,
    /// Counts since the last answer that this mover received.
    pub moved: Moved,
}

/// Counts of turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Payloads that left for the workers.
    pub left: u64,
    /// Payloads that came back from workers without an acknowledgement.
    pub back: u64,
    /// Payloads that became dead letters: too old, delivered too often, or with more hits than
    /// their limit now holds.
    pub died: [u64; 3],
    /// Dead letters that were dropped for newer ones.
    pub dropped: u64,
    /// Payloads of removed workers, or of a removed group: they come back.
    pub taken: u64,
    /// Payloads that somebody deleted from the store.
    pub lost: u64,
    /// How often the workers' group was replaced by another one.
    pub remade: u64,
}

impl Moved {
    /// Adds later counts.
    pub fn add(&mut self, more: &Self) {
        self.left += more.left;
        self.back += more.back;
        for (sum, more) in self.died.iter_mut().zip(more.died) {
            *sum += more;
        }
        self.dropped += more.dropped;
        self.taken += more.taken;
        self.lost += more.lost;
        self.remade += more.remade;
    }
}

/// Reasons of dead letters, as [`Moved::died`] counts them.
pub const DIED: [&str; 3] = ["age", "attempts", "hits"];

/// Longest time, in microseconds, that the hits of one request take.
const LONGEST: u64 = 1 << 50;

/// Most hits of one request that can ever pass these limits and that the script can calculate with.
pub fn most_hits(limits: &[QueueLimit]) -> u64 {
    let most = |limit: &QueueLimit| {
        let in_time = limit.rate.units_in(LONGEST);
        match limit.room {
            Room::Burst(burst) => burst.min(in_time),
            Room::Backlog(_) => in_time,
        }
    };
    limits.iter().map(most).min().unwrap_or(0)
}

impl QueueLimit {
    /// Hits that may pass now, one by one, if the limit is completely unused in `used`
    /// microseconds.
    pub fn remaining(&self, used: u64) -> u64 {
        match self.room {
            Room::Burst(burst) => burst.saturating_sub(self.rate.units_in(used)),
            Room::Backlog(backlog) if used > backlog => 0,
            Room::Backlog(backlog) => whole(self.rate, backlog - used).saturating_add(1),
        }
    }
}

/// Whole units that arrive in so many microseconds.
fn whole(rate: Rate, micros: u64) -> u64 {
    let units = u128::from(micros) * u128::from(rate.units()) / u128::from(rate.micros());
    u64::try_from(units).unwrap_or(u64::MAX)
}

#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only Redis has the script"))]
pub(super) fn written(limits: &[QueueLimit]) -> String {
    let one = |limit: &QueueLimit| {
        let (kind, room) = match limit.room {
            Room::Burst(burst) => ('t', burst),
            Room::Backlog(backlog) => ('l', backlog),
        };
        format!("{kind} {} {} {room}", limit.rate.units(), limit.rate.micros())
    };
    limits.iter().map(one).collect::<Vec<_>>().join(";")
}

#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only Redis answers"))]
impl QueueAnswer {
    pub(super) fn read(numbers: &[i64], limits: &[QueueLimit]) -> Result<Self, StoreError> {
        let [became, wait, ahead, used @ ..] = numbers else {
            return Err(StoreError::Wrong("its length"));
        };
        let number = |number: &i64| {
            u64::try_from(*number).map_err(|_negative| StoreError::Wrong("a negative number"))
        };
        let became = match became {
            0 => QueueBecame::Within,
            1 => QueueBecame::Over,
            2 => QueueBecame::Queued { ahead: number(ahead)? },
            3 => QueueBecame::Full,
            4 => QueueBecame::TooLong,
            5 => QueueBecame::QueuedBefore,
            _ => return Err(StoreError::Wrong("what became of a request")),
        };
        if used.len() != limits.len() {
            return Err(StoreError::Wrong("its length"));
        }
        let used = used.iter().map(number).collect::<Result<_, _>>()?;
        Ok(Self { became, wait: number(wait)?, used })
    }
}

#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only Redis answers"))]
impl Turned {
    pub(super) fn read(numbers: &[i64]) -> Result<Self, StoreError> {
        let Ok(numbers) = <[i64; 19]>::try_from(numbers) else {
            return Err(StoreError::Wrong("its length"));
        };
        let [now, turn, number, refused, next, unread, waiting, ready, dead, oldest, rest @ ..] =
            numbers;
        let [left, back, age, attempts, hits, dropped, taken, lost, remade] = rest.map(count);
        let time = |number| u64::try_from(number).ok();
        Ok(Self {
            now: count(now),
            is_mover: turn == 1,
            number: count(number),
            refused: match refused {
                0 => Withheld::Nothing,
                1 => Withheld::Info,
                _ => Withheld::TakeOver,
            },
            next: time(next),
            unread: unread == 1,
            waiting: count(waiting),
            ready: count(ready),
            dead: count(dead),
            oldest: time(oldest),
            moved: Moved { left, back, died: [age, attempts, hits], dropped, taken, lost, remade },
        })
    }
}

#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only Redis answers"))]
fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(units: u64, micros: u64, room: Room) -> QueueLimit {
        QueueLimit { rate: Rate::new(units, micros).expect("in range"), room }
    }

    #[test]
    fn what_remains_is_what_would_pass_one_by_one() {
        let token = limit(10, 1_000_000, Room::Burst(5));
        for (used, remaining) in [(0, 5), (1, 4), (100_000, 4), (100_001, 3), (500_000, 0)] {
            assert_eq!(token.remaining(used), remaining, "{used}");
        }
        let leaky = limit(10, 1_000_000, Room::Backlog(250_000));
        for (used, remaining) in [(0, 3), (50_000, 3), (50_001, 2), (250_000, 1), (250_001, 0)] {
            assert_eq!(leaky.remaining(used), remaining, "{used}");
        }
        assert_eq!(most_hits(&[token, leaky]), 5);
        assert!(most_hits(&[leaky]) > 1 << 32);
    }

    #[test]
    fn answers_that_the_script_does_not_give_are_refused() {
        let limits = [limit(1, 1, Room::Burst(1))];
        let good = QueueAnswer::read(&[2, 7, 3, 9], &limits).expect("good");
        let became = QueueBecame::Queued { ahead: 3 };
        assert_eq!(good, QueueAnswer { became, wait: 7, used: vec![9] });
        for bad in [&[][..], &[0, 0, 0], &[6, 0, 0, 0], &[0, -1, 0, 0], &[0, 0, 0, 0, 0]] {
            QueueAnswer::read(bad, &limits).expect_err("refused");
        }
        Turned::read(&[0; 18]).expect_err("refused");
        assert_eq!(Turned::read(&[0; 19]).expect("good").next, Some(0));
    }
}
