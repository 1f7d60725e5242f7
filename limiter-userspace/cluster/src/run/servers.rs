//! Servers of a store cluster that do not answer, each reported once.

use std::collections::BTreeMap;

use crate::keeping::Keeping;
use crate::status::{Notice, ServerStatus};

/// Servers that failed at the last look, and whether that was reported.
#[derive(Debug, Default)]
pub(crate) struct ServerWatch {
    failing: BTreeMap<String, bool>,
    /// How they keep keys, as reported last.
    keeping: BTreeMap<String, Keeping>,
}

impl ServerWatch {
    /// Checks the servers, once a second, and returns notices. A server is lost if it fails at two
    /// checks, and regained when it answers or has no slots any more. A server outside a cluster is
    /// reported with the contact.
    pub(crate) fn look(&mut self, servers: &[ServerStatus]) -> Vec<Notice> {
        let mut news = Vec::new();
        let before = std::mem::take(&mut self.failing);
        for server in servers {
            if let Some(keeping) = &server.keeping
                && self.keeping.get(&server.address) != Some(keeping)
            {
                self.keeping.insert(server.address.clone(), keeping.clone());
                news.push(Notice::Keeping(server.clone()));
            }
            let (Some(slots), Some(error)) = (server.slots, &server.error) else { continue };
            let reported = before.get(&server.address);
            if reported == Some(&false) {
                let (address, error) = (server.address.clone(), error.clone());
                news.push(Notice::ServerLost { address, slots, error });
            }
            self.failing.insert(server.address.clone(), reported.is_some());
        }
        let is_back = |(address, reported): (String, bool)| {
            let back = reported && !self.failing.contains_key(&address);
            back.then_some(Notice::ServerRegained { address })
        };
        news.extend(before.into_iter().filter_map(is_back));
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(address: &str, slots: Option<u16>, error: Option<&str>) -> ServerStatus {
        let error = error.map(str::to_owned);
        let (address, connected) = (address.to_owned(), error.is_none());
        ServerStatus { address, connected, slots, error, keeping: None }
    }

    #[test]
    fn a_server_that_stays_away_is_reported_once_and_again_when_it_is_back() {
        let mut servers = ServerWatch::default();
        let good = server("a:1", Some(9), None);
        let bad = server("a:1", Some(9), Some("gone"));
        let lost =
            Notice::ServerLost { address: "a:1".to_owned(), slots: 9, error: "gone".to_owned() };
        let back = Notice::ServerRegained { address: "a:1".to_owned() };
        let mut look = |server: &ServerStatus| servers.look(std::slice::from_ref(server));
        assert_eq!(look(&good), []);
        // A single failure is not a loss.
        assert_eq!(look(&bad), []);
        assert_eq!(look(&good), []);
        assert_eq!(look(&bad), []);
        assert_eq!(look(&bad), std::slice::from_ref(&lost));
        assert_eq!(look(&bad), []);
        assert_eq!(look(&good), std::slice::from_ref(&back));
        // Another server has its slots.
        assert_eq!(look(&bad), []);
        assert_eq!(look(&bad), [lost]);
        assert_eq!(look(&server("b:1", Some(9), None)), [back]);
        // The only server of a store without a cluster is reported by the contact.
        let only = server("c:1", None, Some("gone"));
        assert_eq!(look(&only), []);
        assert_eq!(look(&only), []);
        let keeping = Some(Keeping::Unknown("refused".to_owned()));
        let looked = ServerStatus { keeping, ..server("d:1", None, None) };
        assert_eq!(look(&looked), [Notice::Keeping(looked.clone())]);
        assert_eq!(look(&looked), []);
    }
}
