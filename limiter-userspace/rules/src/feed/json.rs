//! Feeds in JSON: an object for each source, as Spamhaus and others publish them.

use serde_json::Value;

use super::{Bad, Entry, Feed, field, sources};

/// Names of the source in the JSON of Spamhaus (`cidr`), `AbuseIPDB`, abuse.ch and others.
const NAMES: [&str; 4] = ["cidr", "ipAddress", "ip_address", "ip"];

impl Feed {
    /// Reads objects that each name a source, and what Spamhaus says about them at the end.
    pub(super) fn objects(&mut self, values: Vec<Result<Value, usize>>) {
        let mut named = 0_usize;
        for (index, value) in values.into_iter().enumerate() {
            let line = index + 1;
            let value = match value {
                Ok(value) => value,
                Err(line) => {
                    let problem = "it is cut off, or no JSON: fetch it again".to_owned();
                    self.bad.push(Bad { line, problem });
                    continue;
                }
            };
            if let Some(records) = value.get("records").and_then(Value::as_u64) {
                if usize::try_from(records).ok() != Some(named) {
                    let problem = format!("it has {named} records of {records}: fetch it again");
                    self.bad.push(Bad { line, problem });
                }
                continue;
            }
            named += 1;
            let text = value.as_str().map(str::to_owned);
            let text = text.or_else(|| NAMES.iter().find_map(|name| field(&value, name)));
            let read = text.ok_or_else(|| {
                format!("no source is in it: one has the name {}", NAMES.join(", "))
            });
            match read.and_then(|text| sources(&text)) {
                Ok(found) => {
                    let entry = |source| Entry { line, source, seconds: None };
                    self.entries.extend(found.into_iter().map(entry));
                }
                Err(problem) => self.bad.push(Bad { line, problem }),
            }
        }
    }
}

/// The objects of a JSON text: a single one or one a line, alone, in a list or under `data`; a
/// truncated one is replaced by its line. `None` for text that is no JSON, or of another program.
pub(super) fn values(text: &str) -> Option<Vec<Result<Value, usize>>> {
    let begin = text.trim_start();
    if !begin.starts_with(['[', '{']) {
        return None;
    }
    let mut found = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let all = match value {
            Ok(Value::Object(mut object)) => match object.remove("data") {
                Some(Value::Array(all)) => all,
                _ => vec![Value::Object(object)],
            },
            Ok(Value::Array(all)) => all,
            Ok(other) => vec![other],
            Err(error) => {
                found.push(Err(error.line()));
                break;
            }
        };
        found.extend(all.into_iter().map(Ok));
    }
    let is_source = |value: &Result<Value, usize>| {
        value.as_ref().is_ok_and(|value| {
            value.is_string() || NAMES.iter().any(|name| value.get(name).is_some())
        })
    };
    found.iter().any(is_source).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::super::tests::reads;

    #[test]
    fn json_of_feeds_is_read_and_what_is_cut_off_is_reported() {
        let spamhaus = "{\"cidr\":\"198.51.100.0/24\",\"sblid\":\"SBL1\",\"rir\":\"apnic\"}\n\
                        {\"cidr\":\"2001:db8:7::/48\",\"sblid\":\"SBL2\",\"rir\":\"ripencc\"}\n\
                        {\"type\":\"metadata\",\"timestamp\":1711000000,\"size\":2,\"records\":2}\n";
        reads(spamhaus, &["198.51.100.0/24", "2001:db8:7::/48"], &[]);
        reads(
            &spamhaus.replace("\"records\":2", "\"records\":3"),
            &["198.51.100.0/24", "2001:db8:7::/48"],
            &[3],
        );
        let (cut, _) = spamhaus.split_at(70);
        reads(cut, &["198.51.100.0/24"], &[2]);
        let abuse = r#"{"meta":{"generatedAt":"2026-08-11T17:35:15+00:00"},"data":[
            {"ipAddress":"198.51.100.4","countryCode":"US","abuseConfidenceScore":100},
            {"ipAddress":"2001:db8:9::4","countryCode":"US"},{"countryCode":"US"}]}"#;
        reads(abuse, &["198.51.100.4", "2001:db8:9::/64"], &[3]);
        reads(r#"[{"ip_address":"198.51.100.5","port":443}]"#, &["198.51.100.5"], &[]);
        reads(r#"["198.51.100.5", "198.51.100.0/33", 7]"#, &["198.51.100.5"], &[2, 3]);
    }
}
