//! What became of a queue in the store besides its turns: payloads that are gone, a state from
//! before, workers that were removed. Each is said in the log, and for an hour at `/healthcheck`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use limiter_cluster::queue::{Turned, Withheld};

use crate::reports::unsaid::Unsaid;

/// Time for which a loss is shown.
const SHOWN: Duration = Duration::from_hours(1);

/// Time after which an access list that refused something is tried again.
const AGAIN: Duration = Duration::from_mins(1);

/// What is wrong with a queue, by kind: the words, and until when they are shown.
pub(crate) type Troubles = BTreeMap<&'static str, (String, Option<Instant>)>;

/// What is known of a queue since its last turn.
#[derive(Debug)]
pub(crate) struct Watch {
    name: Box<str>,
    before: Option<Turned>,
    refused: Withheld,
    tried: Instant,
    lost: Unsaid,
    taken: Unsaid,
}

impl Watch {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            before: None,
            refused: Withheld::Nothing,
            tried: Instant::now(),
            lost: Unsaid::default(),
            taken: Unsaid::default(),
        }
    }

    /// What the access list is known to refuse. All of it is tried again after a minute.
    pub(crate) fn refused(&self) -> Withheld {
        if self.tried.elapsed() < AGAIN { self.refused } else { Withheld::Nothing }
    }

    /// Looks at a turn, and completes what it counted.
    pub(crate) fn look(
        &mut self,
        turned: &mut Turned,
        visibility: Duration,
        troubles: &mut Troubles,
    ) {
        troubles.retain(|_, (_, until)| until.is_none_or(|until| Instant::now() < until));
        let name = &self.name;
        let mut shown = |kind, words: &str| {
            let at = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
            let until = Some(Instant::now() + SHOWN);
            troubles.insert(kind, (format!("at {at} {words}"), until));
        };
        if let Some(before) = self.before
            && turned.number.saturating_sub(turned.is_mover.into()) < before.number
        {
            let all = |of: &Turned| of.waiting + of.ready + of.dead;
            if turned.is_mover {
                turned.moved.lost += all(&before).saturating_sub(all(turned));
                turned.moved.remade += 1;
            }
            let words = format!(
                "Redis had the queue {name} as it was earlier, or not at all: of {} payloads that \
                 waited, {} in the stream of the workers and {} dead letters there are {}, {} and \
                 {}",
                before.waiting,
                before.ready,
                before.dead,
                turned.waiting,
                turned.ready,
                turned.dead
            );
            tracing::error!(
                "{words}: it was flushed, restarted without `appendonly yes`, or a replica took \
                 over; look at `limiter_queue_lost_total`, and have those sent again"
            );
            shown("earlier", &words);
        } else if turned.moved.lost > 0 {
            let words = format!(
                "payloads of the queue {name} were gone from Redis before anybody acknowledged \
                 them"
            );
            shown("lost", &words);
            self.lost.note_many(turned.moved.lost, words);
        }
        if turned.moved.taken > 0 || turned.moved.remade > 0 {
            let after = humantime::format_duration(visibility);
            self.taken.note_many(
                turned.moved.taken,
                format!(
                    "payloads that workers of the queue {name} had, or had acknowledged, leave \
                     again after {after}: workers, or their group, were removed from Redis (XGROUP \
                     DELCONSUMER or DESTROY)"
                ),
            );
        }
        if let Some((count, words)) = self.lost.due() {
            tracing::error!(
                "{count} {words}: somebody deleted them or a key of the queue, or Redis evicted it \
                 (`maxmemory-policy`)"
            );
        }
        if let Some((count, words)) = self.taken.due() {
            tracing::warn!("{count} {words}");
        }
        self.look_at_access(turned.refused, troubles);
        self.before = Some(*turned);
    }

    fn look_at_access(&mut self, refused: Withheld, troubles: &mut Troubles) {
        if refused != self.refused() {
            self.tried = Instant::now();
        }
        if refused == self.refused {
            return;
        }
        self.refused = refused;
        let name = &self.name;
        let commands = match refused {
            Withheld::Nothing => {
                troubles.remove("access");
                return;
            }
            Withheld::Info => "+info",
            Withheld::TakeOver => "+info +xclaim +xgroup|createconsumer",
        };
        let words = format!(
            "a worker of the queue {name} that is removed from its group may take payloads with \
             it: give limiter's user in the access list of Redis {commands}"
        );
        tracing::warn!("{words}");
        troubles.insert("access", (words, None));
    }
}
