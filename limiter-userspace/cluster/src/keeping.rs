//! How a server of the store keeps its keys: whether it may evict them, and what survives a
//! restart. Queues and shared limits depend on it.

use limiter_text::exposition::{Exposition, Kind};

use super::status::ServerStatus;

/// What a server reports about keeping keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Its settings.
    Known {
        /// `maxmemory-policy`.
        policy: String,
        /// `maxmemory`; 0 if unlimited, so that nothing is evicted.
        memory: u64,
        /// `appendonly`.
        appends: bool,
    },
    /// The reason why the settings cannot be read.
    Unknown(String),
}

impl Keeping {
    /// Reads the settings from names and values, as `INFO` and `CONFIG GET` name them.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only Redis is looked at"))]
    pub(super) fn read<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        let (mut policy, mut memory, mut appends) = (None, None, None);
        for (name, value) in pairs {
            match name {
                "maxmemory_policy" | "maxmemory-policy" => policy = Some(value.to_owned()),
                "maxmemory" => memory = value.parse().ok(),
                "aof_enabled" | "appendonly" => appends = Some(matches!(value, "1" | "yes")),
                _ => {}
            }
        }
        Some(Self::Known { policy: policy?, memory: memory?, appends: appends? })
    }
}

/// What is kept in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Accounts of shared limits.
    pub limits: bool,
    /// Payloads of queues.
    pub queues: bool,
}

impl ServerStatus {
    /// Problems with how this server keeps keys, for the data that it keeps.
    pub fn wrong(&self, kept: Kept) -> Vec<String> {
        let Self { address, keeping, .. } = self;
        let mut wrong = Vec::new();
        let Some(Keeping::Known { policy, memory, appends }) = keeping else { return wrong };
        // Other policies evict only keys with an expiry, which the keys of queues do not have.
        let loses_queues = kept.queues && policy.starts_with("allkeys");
        if *memory > 0 && policy != "noeviction" && (kept.limits || loses_queues) {
            let what = match (kept.limits, loses_queues) {
                (true, true) => "shared limits and payloads of queues",
                (true, false) => "shared limits",
                (false, _) => "payloads of queues",
            };
            wrong.push(format!(
                "the store {address} forgets {what} when its memory is full (maxmemory-policy \
                 {policy}): set maxmemory-policy noeviction"
            ));
        }
        if kept.queues && !appends {
            wrong.push(format!(
                "a restart of the store {address} loses payloads of queues, all of them or those \
                 since its last snapshot (appendonly no): set appendonly yes"
            ));
        }
        wrong
    }

    /// Why it is unknown how this server keeps keys, if that matters.
    pub fn not_looked_at(&self, kept: Kept) -> Option<String> {
        let Some(Keeping::Unknown(why)) = &self.keeping else { return None };
        (kept.limits || kept.queues).then(|| {
            format!(
                "whether the store {} keeps what it is given (maxmemory-policy, appendonly) cannot \
                 be looked at: {why}: give limiter's user +info",
                self.address
            )
        })
    }
}

/// Adds the settings of servers to a metrics page.
pub fn metrics(page: &mut Exposition, servers: &[ServerStatus]) {
    let help = "1 for a setting of the store with which it keeps what it is given; 0 for another \
                one, or one that cannot be looked at (unknown).";
    let mut samples = page.metric("limiter_cluster_store_setting", Kind::Gauge, help);
    for server in servers {
        let (policy, appends) = match &server.keeping {
            None => continue,
            Some(Keeping::Unknown(_)) => (("unknown", false), ("unknown", false)),
            Some(Keeping::Known { policy, memory, appends }) => (
                (&**policy, *memory == 0 || policy == "noeviction"),
                (if *appends { "yes" } else { "no" }, *appends),
            ),
        };
        for (setting, (value, good)) in [("maxmemory-policy", policy), ("appendonly", appends)] {
            let labels = [("server", &*server.address), ("setting", setting), ("value", value)];
            samples.add(&labels, u8::from(good));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(policy: &str, memory: u64, appends: &str) -> ServerStatus {
        let memory = memory.to_string();
        let pairs =
            [("maxmemory", &*memory), ("maxmemory_policy", policy), ("aof_enabled", appends)];
        ServerStatus {
            address: "a:1".to_owned(),
            connected: true,
            slots: None,
            error: None,
            keeping: Keeping::read(pairs.into_iter()),
        }
    }

    /// A setting is a problem only for data that depends on it, and only if it loses something.
    #[test]
    fn a_store_is_wrong_only_for_what_it_loses() {
        let (limits, queues) =
            (Kept { limits: true, queues: false }, Kept { limits: false, queues: true });
        let count = |server: ServerStatus, kept| server.wrong(kept).len();
        for (policy, memory, appends, expected) in [
            ("noeviction", 9, "1", [0, 0]),
            ("allkeys-lru", 9, "1", [1, 1]),
            ("allkeys-lru", 0, "1", [0, 0]),
            ("volatile-ttl", 9, "1", [1, 0]),
            ("noeviction", 9, "0", [0, 1]),
            ("allkeys-random", 9, "no", [1, 2]),
        ] {
            let found = [limits, queues].map(|kept| count(server(policy, memory, appends), kept));
            assert_eq!(found, expected, "{policy} {memory} {appends}");
        }
        let none = Kept { limits: false, queues: false };
        assert_eq!(count(server("allkeys-lru", 9, "0"), none), 0);
        assert_eq!(Keeping::read([("maxmemory", "9")].into_iter()), None);
    }
}
