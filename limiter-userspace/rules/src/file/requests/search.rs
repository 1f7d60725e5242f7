//! Whether a file is for requests or for packets: its keys say so.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::read::limits;
use crate::model::key::KEYS;

/// A rule file of which only this is of interest.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    check: Option<IgnoredAny>,
    #[serde(default)]
    descriptors: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    descriptors: Vec<Self>,
}

/// True if a text is a rule file of which only requests can be meant: it has a mapping of headers,
/// or a key that packets do not have, and that is no misspelt one of theirs.
pub fn is_for_requests(text: &str) -> bool {
    let Ok(file) = serde_saphyr::from_str_with_options::<File>(text, limits()) else {
        return false;
    };
    file.check.is_some() || file.descriptors.iter().any(is_of_request)
}

fn is_of_request(descriptor: &Descriptor) -> bool {
    let key = descriptor.key.as_deref();
    key.is_some_and(|key| !KEYS.contains(&key) && !is_near(key))
        || descriptor.descriptors.iter().any(is_of_request)
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
            is_for_requests(&format!("descriptors:\n  - {{key: {key}, rate_limit: {{rate: 1/s}}}}"))
        };
        for key in ["remote_address", "remote_adress", "Remote-Address", "destination_prt", "ttl"] {
            assert!(!of(key), "{key}");
        }
        for key in ["message_type", "auth_type", "path", "user", "api_key"] {
            assert!(of(key), "{key}");
        }
        assert!(is_for_requests("check: []\n"));
        assert!(is_for_requests(
            "descriptors: [{key: remote_address, descriptors: [{key: user}]}]"
        ));
        assert!(!is_for_requests("descriptors: {"));
    }
}
