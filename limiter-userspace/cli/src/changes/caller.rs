//! The author of a change in requests without a body, so that nobody is locked out by their own
//! change.

use std::fmt::Write as _;

use limiter_api::rules::Session;
use limiter_daemon::ssh;

/// Further query of a change: the SSH session in which it is typed, and whether it is forced.
pub(crate) fn query(force: bool) -> String {
    of(ssh::own_session(), force)
}

fn of(session: Option<Session>, force: bool) -> String {
    let mut query = String::new();
    // Writing to a `String` cannot fail.
    if let Some(Session { peer, port }) = session {
        let _: std::fmt::Result = write!(query, "&peer={peer}");
        if let Some(port) = port {
            let _: std::fmt::Result = write!(query, "&port={port}");
        }
    }
    if force {
        query.push_str("&force=true");
    }
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_the_session() {
        let session = |peer: &str, port| Session { peer: peer.parse().unwrap(), port };
        assert_eq!(of(None, false), "");
        assert_eq!(of(Some(session("192.0.2.9", Some(22))), false), "&peer=192.0.2.9&port=22");
        assert_eq!(of(Some(session("2001:db8::5", None)), true), "&peer=2001:db8::5&force=true");
    }
}
