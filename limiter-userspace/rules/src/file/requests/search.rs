//! Whether a file is for requests, for packets or for both: its fields and its keys say so.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::read::limits;
use super::super::shape;
use crate::model::key::{KEYS, is_of_packets_alone};

/// What the rules of a file are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Packets, as far as is to be seen.
    Packets,
    /// Requests: there is a mapping of headers, or a key that packets do not have. A misspelt key
    /// of packets is none, nor is the name that another tool has for one.
    Requests,
    /// Both: `requests` has the rules for requests, and the other fields those for packets.
    Both,
}

/// Reads the fields for requests: those of a file for them alone, or of the part of one for both.
pub(super) fn fields(text: &str) -> Result<shape::File, serde_saphyr::Error> {
    /// A file for packets with that part.
    #[derive(Deserialize)]
    struct Both {
        requests: shape::File,
    }

    let alone = serde_saphyr::from_str_with_options::<Option<shape::File>>(text, limits());
    let has_part = |file: File| file.requests.is_some();
    if alone.is_err() && parts(text).is_ok_and(has_part) {
        return serde_saphyr::from_str_with_options::<Both>(text, limits())
            .map(|both| both.requests);
    }
    alone.map(Option::unwrap_or_default)
}

fn parts(text: &str) -> Result<File, serde_saphyr::Error> {
    serde_saphyr::from_str_with_options(text, limits())
}

/// A rule file of which only this is of interest.
#[derive(Deserialize)]
struct File {
    domain: Option<IgnoredAny>,
    check: Option<IgnoredAny>,
    requests: Option<IgnoredAny>,
    descriptors: Option<Vec<Descriptor>>,
    budgets: Option<IgnoredAny>,
    allow: Option<IgnoredAny>,
    deny: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Descriptor {
    key: Option<String>,
    descriptors: Option<Vec<Self>>,
}

/// What the rules of a file are for; packets for a text that is no rule file.
pub fn whom_for(text: &str) -> For {
    let file = match parts(text) {
        Ok(File {
            requests: Some(_),
            descriptors: None,
            budgets: None,
            allow: None,
            deny: None,
            ..
        }) => {
            return For::Requests;
        }
        Ok(File { requests: Some(_), .. }) => return For::Both,
        Ok(file) => file,
        Err(_) => return For::Packets,
    };
    let descriptors = file.descriptors.unwrap_or_default();
    let mut keys = Vec::new();
    for descriptor in &descriptors {
        unknown_keys(descriptor, &mut keys);
    }
    // Requests ask by a domain: where there is none, a key that is not known is a mistake in one of
    // packets.
    let is_of_packets = |key: &&str| is_of_packets_alone(key);
    let has_keys_of_requests =
        file.domain.is_some() && !keys.is_empty() && !keys.iter().any(is_of_packets);
    if file.check.is_some() || has_keys_of_requests { For::Requests } else { For::Packets }
}

/// Finds the keys that packets do not have, without misspelt keys of packets.
fn unknown_keys<'a>(descriptor: &'a Descriptor, found: &mut Vec<&'a str>) {
    let key = descriptor.key.as_deref();
    found.extend(key.filter(|key| !KEYS.contains(key) && !is_near(key)));
    for inner in descriptor.descriptors.iter().flatten() {
        unknown_keys(inner, found);
    }
}

/// True if a key is one of packets with a mistake in it.
fn is_near(key: &str) -> bool {
    let key = key.to_lowercase();
    KEYS.iter().any(|known| {
        strsim::damerau_levenshtein(&key, known) * 4 <= known.len()
            || key.replace(['-', ' '], "_") == *known
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_of_packets_is_no_key_of_requests() {
        let of = |key: &str| {
            whom_for(&format!("descriptors:\n  - {{key: {key}, rate_limit: {{rate: 1/s}}}}"))
        };
        for key in ["remote_address", "remote_adress", "Remote-Address", "destination_prt", "ttl"] {
            assert_eq!(of(key), For::Packets, "{key}");
        }
        // What other tools call a key of packets; with a domain, only if requests have none such.
        let in_domain = |key: &str| {
            whom_for(&format!(
                "domain: d\ndescriptors: [{{key: remote_address, descriptors: [{{key: {key}}}]}}]"
            ))
        };
        for (key, with_domain) in [
            ("port", For::Packets),
            ("dport", For::Packets),
            ("Dst-Port", For::Packets),
            ("proto", For::Packets),
            ("client_ip", For::Requests),
            ("source", For::Requests),
        ] {
            assert_eq!((of(key), in_domain(key)), (For::Packets, with_domain), "{key}");
        }
        for key in ["message_type", "auth_type", "path", "user", "api_key"] {
            assert_eq!((of(key), in_domain(key)), (For::Packets, For::Requests), "{key}");
        }
        assert_eq!(whom_for("check: []\n"), For::Requests);
        assert_eq!(whom_for("requests: {}\n"), For::Requests);
        assert_eq!(whom_for("requests: {}\ndescriptors: []\n"), For::Both);
        assert_eq!(whom_for("descriptors: {"), For::Packets);
        assert_eq!(whom_for("descriptors:\n"), For::Packets);
    }
}
