//! From a request to packets: sources of requests over a limit, for which the daemon is asked to
//! drop all that comes from them.
//!
//! A refused request is a strike, counted here by the arithmetic of bans by packets. The one that
//! is enough goes into a queue with an end, from which a thread of its own asks the daemon: no
//! answer waits for that. How long a ban is, and whether there is one, the daemon decides.

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ipnet::IpNet;
use limiter_api::bans::{RequestBanAnswer, RequestBanBecame, SetRequestBan, SetRequestBans};
use limiter_common::time::Ticks;
use limiter_decision::ban::{BanTerms, History, Strike, strike};
use limiter_rules::model::Ban;

use crate::buckets::key::{Key, source};
use crate::daemon::{Daemon, bounded, millis};
use crate::reports::counters::BanBecame;
use crate::reports::unsaid::{Unsaid, quoted};
use crate::rules::{EntryOf, Rule};

/// Bans that wait for the daemon.
const WAITING: usize = 1024;

/// Bans that the daemon is asked for at once.
const AT_ONCE: usize = 32;

/// Sources of which strikes are known.
const MOST_SOURCES: usize = 1 << 16;

/// Time in which the daemon is not asked again for one source by one rule.
const PAUSE: Duration = Duration::from_secs(1);

/// The words of the log; none for what is as it should be.
const fn words(became: BanBecame) -> Option<&'static str> {
    match became {
        BanBecame::Made | BanBecame::InForce => None,
        BanBecame::OverBudget => Some(
            "bans were not made, because of the rate of new bans: raise `bans` in the \
             daemon's rule file if more are wanted",
        ),
        BanBecame::Refused => Some("bans were refused by the daemon"),
        BanBecame::NoDaemon => Some(
            "bans were not made, because the daemon could not be asked; requests are answered \
             all the same",
        ),
        BanBecame::QueueFull => Some(
            "bans were not made, because too many waited for the daemon; requests are answered \
             all the same",
        ),
        BanBecame::NoAddress => Some(
            "requests over a limit with a ban have no address as remote_address, so nobody is \
             banned for them: let the proxy send the address of its client and nothing else",
        ),
        BanBecame::NoRoom => Some(
            "requests over a limit with a ban did not count towards it: there is no room for \
             the strikes of more sources",
        ),
    }
}

#[derive(Clone, Copy, Debug)]
struct Struck {
    /// The daemon is not asked again before.
    until: Ticks,
    history: History,
    /// Time for which its strikes count.
    memory: Ticks,
}

impl Struck {
    fn is_forgotten(&self, now: Ticks) -> bool {
        self.until.get() <= now.get() && now.since(self.history.since()).get() > self.memory.get()
    }
}

/// Sources by the rule that they are over the limit of.
#[derive(Debug, Default)]
struct Sources {
    struck: HashMap<(Key, IpNet), Struck>,
    /// When forgotten ones were looked for.
    swept: Ticks,
}

/// A ban on its way to the daemon.
struct Waiting {
    asked: SetRequestBan,
    rule: Arc<Rule>,
}

/// Bans that rules for requests ask for.
#[derive(Debug, Default)]
pub(crate) struct RequestBans {
    sources: Mutex<Sources>,
    queue: Mutex<Option<SyncSender<Waiting>>>,
    unsaid: Mutex<[Unsaid; BanBecame::ALL.len()]>,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.asked.fmt(f)
    }
}

/// A lock of which a thread that panics leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RequestBans {
    /// Starts the thread that asks for bans. It ends when [`RequestBans::close`] is called.
    pub(crate) fn start(
        self: &Arc<Self>,
        daemon: Arc<dyn Daemon>,
    ) -> std::io::Result<JoinHandle<()>> {
        let (sender, waiting) = sync_channel(WAITING);
        *lock(&self.queue) = Some(sender);
        let bans = Arc::clone(self);
        let ask = move || bans.ask(&*daemon, &waiting);
        thread::Builder::new().name("request-bans".to_owned()).spawn(ask)
    }

    /// Takes no more bans; those that wait are still asked for.
    pub(crate) fn close(&self) {
        *lock(&self.queue) = None;
    }

    /// A request over the limits of a rule: a strike of its source.
    pub(crate) fn strike(&self, rule: &Arc<Rule>, entries: &[EntryOf<'_>], now: Ticks) {
        let (Some(terms), Some(level)) = (&rule.written.ban, rule.source) else {
            return;
        };
        let value = entries.get(level).map_or("", |(_, value)| *value);
        let Some(net) = source(value) else {
            self.became(rule, BanBecame::NoAddress, || quoted(value));
            return;
        };
        match self.count(rule.identity(), net, terms, now) {
            Some(true) => {}
            Some(false) => return,
            None => {
                self.became(rule, BanBecame::NoRoom, || net.to_string());
                return;
            }
        }
        let asked = SetRequestBan {
            source: net.addr().to_string(),
            domain: bounded(&rule.domain),
            rule: bounded(&rule.path),
            first_ms: millis(terms.first),
            longest_ms: millis(terms.longest),
            memory_ms: millis(terms.memory),
        };
        let waiting = Waiting { asked, rule: Arc::clone(rule) };
        let sent = lock(&self.queue).as_ref().map_or(Err(BanBecame::NoDaemon), |queue| {
            queue.try_send(waiting).map_err(|error| match error {
                TrySendError::Full(_) => BanBecame::QueueFull,
                TrySendError::Disconnected(_) => BanBecame::NoDaemon,
            })
        });
        if let Err(became) = sent {
            self.became(rule, became, || net.addr().to_string());
        }
    }

    /// Counts a strike; true if it is the last one before a ban, and none if there is no room.
    fn count(&self, rule: Key, net: IpNet, terms: &Ban, now: Ticks) -> Option<bool> {
        let pause = ticks(PAUSE);
        // One strike is enough: only the pause has to be known.
        let memory = if terms.strikes == 1 { pause } else { ticks(terms.memory) };
        let (first, longest) = (pause.get(), pause.get());
        let counted = BanTerms { first, longest, memory: memory.get(), strikes: terms.strikes };
        let mut sources = lock(&self.sources);
        let Sources { struck, swept } = &mut *sources;
        let known = struck.contains_key(&(rule, net));
        if !known && struck.len() >= MOST_SOURCES {
            if now.since(*swept).get() >= pause.get() {
                *swept = now;
                struck.retain(|_, source| !source.is_forgotten(now));
            }
            if struck.len() >= MOST_SOURCES {
                return (terms.strikes == 1).then_some(true);
            }
        }
        let (until, history) = (Ticks::ZERO, History::from_raw(0));
        let source = struck.entry((rule, net)).or_insert(Struck { until, history, memory });
        source.memory = memory;
        match strike(source.until, source.history, &counted, now) {
            Strike::Banned => Some(false),
            Strike::Counted(history) => {
                source.history = history;
                Some(false)
            }
            Strike::Ban { history, until } => {
                (source.history, source.until) = (history, until);
                Some(true)
            }
        }
    }

    fn became(&self, rule: &Rule, became: BanBecame, latest: impl FnOnce() -> String) {
        rule.counters.bans.count(became);
        if words(became).is_none() {
            return;
        }
        let mut unsaid = lock(&self.unsaid);
        let latest = format!("{}, by {}: {}", latest(), rule.domain, rule.path);
        unsaid[became as usize].note(latest);
    }

    /// Asks for bans as long as there may be more.
    fn ask(&self, daemon: &dyn Daemon, waiting: &Receiver<Waiting>) {
        while let Ok(first) = waiting.recv() {
            let all: Vec<Waiting> =
                std::iter::once(first).chain(waiting.try_iter().take(AT_ONCE - 1)).collect();
            let bans = all.iter().map(|waiting| waiting.asked.clone()).collect();
            let answers = daemon.ban(&SetRequestBans { bans }).and_then(|done| {
                let fits = done.answers.len() == all.len();
                if fits { Ok(done.answers) } else { Err(OTHER_VERSION.to_owned()) }
            });
            match answers {
                Ok(answers) => {
                    for (Waiting { asked, rule }, answer) in all.iter().zip(answers) {
                        let RequestBanAnswer { became, why } = answer;
                        let became = match became {
                            RequestBanBecame::Made => BanBecame::Made,
                            RequestBanBecame::InForce => BanBecame::InForce,
                            RequestBanBecame::OverBudget => BanBecame::OverBudget,
                            RequestBanBecame::Refused => BanBecame::Refused,
                        };
                        self.became(rule, became, || why.unwrap_or_else(|| asked.source.clone()));
                    }
                }
                Err(why) => {
                    for Waiting { rule, .. } in &all {
                        self.became(rule, BanBecame::NoDaemon, || why.clone());
                    }
                }
            }
        }
    }

    /// Puts into the log what became of bans that were not made: at once, and then from time to
    /// time.
    pub(crate) fn log(&self) {
        let mut all = lock(&self.unsaid);
        for ((became, _), unsaid) in BanBecame::ALL.into_iter().zip(all.iter_mut()) {
            if let Some(words) = words(became)
                && let Some((count, latest)) = unsaid.due()
            {
                tracing::warn!("{words}; {count} of them, the latest: {latest}");
            }
        }
    }
}

/// An answer that does not fit.
const OTHER_VERSION: &str = "the daemon's answer does not fit what was asked: run the same version \
                             of limiter for both";

fn ticks(time: Duration) -> Ticks {
    Ticks::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
