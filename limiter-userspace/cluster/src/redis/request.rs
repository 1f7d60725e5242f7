//! Calls of the scripts: their keys and arguments. All keys of a call have the same hash tag, so
//! that they are on one server of a cluster.

use limiter_sharing::rate::EXACT;
use limiter_sharing::window::WindowKind;
use redis::Cmd;

use super::settings::Scripts;
use super::slots::slot_of;
use crate::membership::{self, Membership, Presence};
use crate::queue::{self, QueueAsk, Turn};
use crate::store::{Ask, Batch, WindowAsk, WindowBatch};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Lease,
    Window,
    Node,
    Queue,
}

impl Scripts {
    pub(super) fn text(&self, script: Script) -> &str {
        match script {
            Script::Lease => &self.lease,
            Script::Window => &self.window,
            Script::Node => &self.node,
            Script::Queue => &self.queue,
        }
    }
}

/// One call of a script: keys and arguments.
pub(super) struct Request {
    pub(super) script: Script,
    /// The store's own keys, which the whole call needs, come first.
    keys: Vec<Vec<u8>>,
    own: usize,
    arguments: Vec<String>,
}

impl Request {
    /// The call, with the script's digest.
    pub(super) fn command(&self, digest: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(digest).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key.as_slice());
        }
        for argument in &self.arguments {
            command.arg(argument);
        }
        command
    }

    /// The store's own keys that the whole call needs, as text.
    pub(super) fn own_keys(&self) -> String {
        let own = self.keys.iter().take(self.own).map(|key| key.escape_ascii().to_string());
        own.collect::<Vec<_>>().join(" or ")
    }

    /// The cluster slot of all keys of the call.
    pub(super) fn slot(&self) -> u16 {
        self.keys.first().map_or(0, |key| slot_of(key))
    }

    pub(super) fn asked(&self) -> &[Vec<u8>] {
        self.keys.get(self.own..).unwrap_or_default()
    }

    /// Prefix of the keys of a shard. A cluster places keys by the part in braces.
    fn shard(prefix: &str, shard: u16) -> String {
        format!("{prefix}:{{{shard:04}}}:")
    }

    fn add(&mut self, prefix: &str, name: &[u8], numbers: &[u64]) {
        self.keys.push([prefix.as_bytes(), name].concat());
        self.numbers(numbers.iter().copied());
    }

    fn numbers(&mut self, numbers: impl Iterator<Item = u64>) {
        self.arguments.extend(numbers.map(|number| number.min(EXACT - 1).to_string()));
    }

    pub(super) fn lease(prefix: &str, batch: &Batch) -> Self {
        let prefix = Self::shard(prefix, batch.shard);
        let since = time_or_none(batch.hot_since);
        // A call that needs no list must not name one: while a slot migrates, all keys of a call
        // must exist in the same place.
        let list = if batch.hot_since.is_some() { "!hot" } else { "!boot" };
        let mut request = Self {
            script: Script::Lease,
            keys: vec![format!("{prefix}{list}").into(), format!("{prefix}!boot").into()],
            own: 2,
            arguments: vec![since, prefix.len().to_string(), time_or_none(batch.deadline)],
        };
        for Ask { name, central, demand } in &batch.asks {
            let (units, micros) = (central.rate.units(), central.rate.micros());
            let (latest, before) = (demand.latest, demand.before);
            request.add(
                &prefix,
                name,
                &[
                    units,
                    micros,
                    central.burst,
                    central.epoch,
                    central.largest,
                    demand.epoch,
                    latest.used,
                    latest.back,
                    before.used,
                    before.back,
                    demand.owed,
                    demand.want,
                ],
            );
        }
        request
    }

    pub(super) fn window(prefix: &str, batch: &WindowBatch) -> Self {
        let prefix = Self::shard(prefix, batch.shard);
        let logs = batch.asks.iter().any(|ask| ask.window.kind == WindowKind::SlidingLog);
        // Other kinds do not need the counter, for the same reason.
        let first = batch.asks.first().filter(|_| !logs).map(|ask| &*ask.name);
        let mut request = Self {
            script: Script::Window,
            keys: vec![[prefix.as_bytes(), first.unwrap_or(b"!serial")].concat()],
            own: 1,
            arguments: vec![time_or_none(batch.deadline)],
        };
        for WindowAsk { name, window, demand } in &batch.asks {
            let kind = match window.kind {
                WindowKind::Fixed => "fixed",
                WindowKind::SlidingCounter => "counter",
                WindowKind::SlidingLog => "log",
            };
            request.arguments.push(kind.to_owned());
            request.add(
                &prefix,
                name,
                &[
                    window.length,
                    window.quota,
                    window.largest,
                    window.life,
                    demand.want,
                    demand.backs.len() as u64,
                ],
            );
            request.numbers(demand.backs.iter().flat_map(|back| [back.epoch, back.units]));
        }
        request
    }

    /// Call for the reports of nodes.
    pub(super) fn node(prefix: &str, membership: &Membership) -> Self {
        // In braces, so that a cluster keeps both in one place.
        let keys = ["nodes", "changes"].map(|key| format!("{prefix}:{{node}}:{key}").into());
        let (word, text) = match &membership.presence {
            Presence::Heartbeat(heartbeat) => ("beat", heartbeat.text()),
            Presence::Stay => ("stay", String::new()),
            Presence::Leave => ("leave", String::new()),
        };
        let known = membership.known.min(EXACT - 1).to_string();
        let mut arguments =
            vec![membership::instance_text(membership.instance), word.to_owned(), text, known];
        for change in &membership.changes {
            let left = change.left.map(membership::micros);
            arguments.push(left.map_or_else(|| "-1".to_owned(), |left| left.to_string()));
            arguments.push(change.line.clone());
        }
        Self { script: Script::Node, keys: keys.into(), own: 2, arguments }
    }
}

impl Request {
    /// Keys of a queue, in the order of the script. A cluster places keys by the part in braces.
    fn queue(prefix: &str, queue: &str, arguments: Vec<String>) -> Self {
        let keys = [
            "waiting", "ready", "dead", "order", "due", "buckets", "drained", "ids", "ahead",
            "meta",
        ];
        let keys = keys.map(|key| format!("{prefix}:queue:{{{queue}}}:{key}").into());
        Self { script: Script::Queue, own: keys.len(), keys: keys.into(), arguments }
    }

    pub(super) fn queue_ask(prefix: &str, queue: &str, ask: &QueueAsk<'_>) -> Self {
        let (id, own, payload) = ask
            .payload
            .map_or(("", false, ""), |payload| (payload.id, payload.is_callers, payload.text));
        let arguments = vec![
            "ask".to_owned(),
            ask.bucket.to_owned(),
            ask.hits.to_string(),
            queue::written(ask.limits),
            ask.depth.min(EXACT - 1).to_string(),
            membership::micros(ask.age).to_string(),
            id.to_owned(),
            u8::from(own).to_string(),
            payload.to_owned(),
        ];
        Self::queue(prefix, queue, arguments)
    }

    /// Call for a turn of the mover.
    pub(super) fn queue_turn(prefix: &str, queue: &str, turn: &Turn<'_>) -> Self {
        let mut arguments = vec![
            "move".to_owned(),
            turn.mover.to_owned(),
            turn.most.to_string(),
            membership::micros(turn.age).to_string(),
            turn.visibility.as_millis().to_string(),
            turn.attempts.to_string(),
            turn.dead.to_string(),
            turn.heard.to_string(),
            (turn.refused as u8).to_string(),
        ];
        for (tag, limits) in turn.rules {
            arguments.push(tag.to_string());
            arguments.push(queue::written(limits));
        }
        Self::queue(prefix, queue, arguments)
    }
}

/// Formats a time of the store's clock as an argument; -1 for `None`.
fn time_or_none(time: Option<u64>) -> String {
    time.map_or_else(|| "-1".to_owned(), |time| time.min(EXACT - 1).to_string())
}
