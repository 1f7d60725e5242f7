//! What other tools call the facts that keys are about.

/// Words that mean nothing of a request.
const OF_PACKETS: [(&str, &str); 16] = [
    ("port", "destination_port"),
    ("ports", "destination_port"),
    ("dport", "destination_port"),
    ("dst_port", "destination_port"),
    ("dest_port", "destination_port"),
    ("sport", "source_port"),
    ("src_port", "source_port"),
    ("saddr", "remote_address"),
    ("daddr", "destination_address"),
    ("proto", "protocol"),
    ("l4proto", "protocol"),
    ("iface", "interface"),
    ("iifname", "interface"),
    ("tos", "dscp"),
    ("hoplimit", "ttl"),
    ("vlan_id", "vlan"),
];

/// Words that may be a key of requests as well.
const OF_BOTH: [(&str, &str); 17] = [
    ("ip", "remote_address"),
    ("ip_address", "remote_address"),
    ("address", "remote_address"),
    ("source", "remote_address"),
    ("source_ip", "remote_address"),
    ("src", "remote_address"),
    ("src_ip", "remote_address"),
    ("client_ip", "remote_address"),
    ("remote_ip", "remote_address"),
    ("subnet", "masked_remote_address"),
    ("network", "masked_remote_address"),
    ("cidr", "masked_remote_address"),
    ("destination", "destination_address"),
    ("destination_ip", "destination_address"),
    ("dst", "destination_address"),
    ("dst_ip", "destination_address"),
    ("length", "packet_length"),
];

fn find(words: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    let word = word.to_lowercase().replace(['-', ' '], "_");
    words.iter().find(|(known, _)| *known == word).map(|(_, key)| *key)
}

/// The key of packets that is elsewhere called by this word, if there is one.
pub(crate) fn key_elsewhere(word: &str) -> Option<&'static str> {
    find(&OF_PACKETS, word).or_else(|| find(&OF_BOTH, word))
}

/// True if the word is what other tools call a key of packets, and no key of requests.
pub(crate) fn is_of_packets_alone(word: &str) -> bool {
    find(&OF_PACKETS, word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::key::KEYS;

    #[test]
    fn words_of_other_tools_lead_to_keys() {
        for (word, key) in OF_PACKETS.into_iter().chain(OF_BOTH) {
            assert!(KEYS.contains(&key) && !KEYS.contains(&word), "{word}");
            assert_eq!(key_elsewhere(&word.to_uppercase()), Some(key), "{word}");
        }
        assert_eq!(key_elsewhere("user"), None);
        assert!(is_of_packets_alone("dst-port") && !is_of_packets_alone("client_ip"));
    }
}
