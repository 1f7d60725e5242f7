//! Connections, and the choice of the one to evict when there is no room: nobody can keep another
//! client out by holding connections.

use std::collections::HashMap;
use std::hash::Hash;

use tokio::task::AbortHandle;

use super::follow::Following;

#[derive(Debug)]
struct Connection<K> {
    number: u64,
    who: K,
    following: Following,
    task: AbortHandle,
}

/// The connections of a server. `K` distinguishes clients.
#[derive(Debug)]
pub(super) struct ConnectionLimit<K> {
    /// Connections, the oldest first.
    connections: Vec<Connection<K>>,
    most: usize,
    next: u64,
}

impl<K: Copy + Eq + Hash> ConnectionLimit<K> {
    /// Makes room for `most` connections, at least one.
    pub(super) const fn new(most: usize) -> Self {
        Self { connections: Vec::new(), most, next: 0 }
    }

    /// Forgets ended connections and, if there is no room for another, ends one: the oldest of the
    /// client with the most. Endless answers go last: there are few of them, and they wait for
    /// nothing. Returns the evicted client.
    pub(super) fn make_room(&mut self) -> Option<K> {
        self.connections.retain(|connection| !connection.task.is_finished());
        if self.connections.len() < self.most { None } else { self.evict() }
    }

    /// Ends that connection, whether there is room or not.
    pub(super) fn evict(&mut self) -> Option<K> {
        let mut held: HashMap<K, usize> = HashMap::new();
        for connection in &self.connections {
            *held.entry(connection.who).or_default() += 1;
        }
        let victim = self.connections.iter().min_by_key(|connection| {
            let held = held.get(&connection.who).copied().unwrap_or_default();
            (connection.following.is_set(), std::cmp::Reverse(held), connection.number)
        })?;
        let (number, who) = (victim.number, victim.who);
        victim.task.abort();
        self.connections.retain(|connection| connection.number != number);
        Some(who)
    }

    pub(super) fn add(&mut self, who: K, following: Following, task: AbortHandle) {
        let number = self.next;
        self.next += 1;
        self.connections.push(Connection { number, who, following, task });
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    /// Four connections of two users; the first follows events.
    #[tokio::test(flavor = "current_thread")]
    async fn whoever_has_the_most_gives_way() {
        let mut tasks = JoinSet::new();
        let mut connection_limit = ConnectionLimit::new(4);
        for (number, who) in [(0, 1000), (1, 0), (2, 1000), (3, 1000)] {
            assert_eq!(connection_limit.make_room(), None);
            let following = Following::default();
            if number == 0 {
                following.set();
            }
            let task = tasks.spawn(async move {
                std::future::pending::<()>().await;
                number
            });
            connection_limit.add(who, following, task);
        }
        assert_eq!(connection_limit.make_room(), Some(1000));
        let ended = tasks.join_next().await.unwrap();
        assert!(ended.unwrap_err().is_cancelled());
        assert_eq!(
            connection_limit
                .connections
                .iter()
                .map(|connection| connection.number)
                .collect::<Vec<_>>(),
            [0, 1, 3]
        );
        assert_eq!(connection_limit.make_room(), None, "there is room by now");
    }
}
