//! Lists of sources as others publish them: a source a line, blocks with their first and last
//! address, JSON, and what CrowdSec prints. A line that cannot be read hides no other.

mod decision;
mod json;

use std::net::IpAddr;

use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Net, Ipv6Subnets};
use limiter_text::spoken::{MONTH, has_bare_month};
use serde_json::Value;

use crate::model::Selector;
use crate::source_text;

pub use decision::{Decision, Unlisted};

/// Most prefixes that a range of addresses may take.
const MOST_OF_RANGE: usize = 256;

/// A source of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Line, or number of the decision.
    pub line: usize,
    /// Address or prefix of the entry.
    pub source: Selector,
    /// Seconds for which the feed lists it; none if it does not say.
    pub seconds: Option<u64>,
}

/// A line, or a decision, that is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Line, or number of the decision.
    pub line: usize,
    /// The reason.
    pub problem: String,
}

/// A list as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feed {
    /// Sources that are on the list.
    pub entries: Vec<Entry>,
    /// Lines that could not be read.
    pub bad: Vec<Bad>,
    /// True if these are decisions of CrowdSec, of which there may be none.
    pub is_decisions: bool,
    /// Decisions that are for nobody's packets now: trials, captchas, and those that have ended.
    pub passed_over: Vec<Bad>,
}

impl Feed {
    /// Reads a list of any of the formats.
    pub fn parse(text: &str) -> Self {
        let text = text.trim_start_matches('\u{feff}');
        let mut feed = Self::default();
        if let Some(decisions) = decisions(text) {
            feed.is_decisions = true;
            for (index, decision) in decisions.iter().enumerate() {
                feed.decision(index + 1, &|name| field(decision, name));
            }
            return feed;
        }
        if let Some(values) = json::values(text) {
            feed.objects(values);
            return feed;
        }
        let mut columns: Option<Vec<&str>> = None;
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let line = line.trim_start_matches('\u{feff}').trim();
            if let Some(columns) = &columns {
                feed.row(number, columns, line);
            } else if is_header(line) {
                feed.is_decisions = true;
                columns = Some(line.split(',').map(str::trim).collect());
            } else {
                feed.line(number, line);
            }
        }
        feed
    }

    /// True if the text is what CrowdSec prints, as JSON or as CSV.
    pub fn is_of_crowdsec(text: &str) -> bool {
        let text = text.trim_start_matches('\u{feff}');
        let json = decisions(text).is_some_and(|all| !all.is_empty());
        json || text.lines().next().is_some_and(|line| is_header(line.trim()))
    }

    /// Reads a source, followed by its duration if it has one.
    fn line(&mut self, line: usize, text: &str) {
        let text = text.split(['#', ';']).next().unwrap_or_default().trim();
        if text.is_empty() {
            return;
        }
        let (source, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        // Blocks have their last address, and more, behind the first.
        let last = rest.split_whitespace().next().and_then(|word| word.parse::<IpAddr>().ok());
        let read = match (source.parse::<IpAddr>(), last) {
            (Ok(first), Some(last)) => range(first, last).map(|sources| (sources, None)),
            _ => sources(source).and_then(|sources| Ok((sources, seconds(rest)?))),
        };
        match read {
            Ok((sources, seconds)) => {
                let entry = |source| Entry { line, source, seconds };
                self.entries.extend(sources.into_iter().map(entry));
            }
            Err(problem) => self.bad.push(Bad { line, problem }),
        }
    }

    fn row(&mut self, line: usize, columns: &[&str], text: &str) {
        if text.is_empty() {
            return;
        }
        let cells = cells(text);
        self.decision(line, &|name| {
            let at = columns.iter().position(|column| *column == name)?;
            cells.get(at).map(|cell| cell.trim().to_owned())
        });
    }

    /// Reads a decision of CrowdSec, by the names of its fields.
    fn decision(&mut self, line: usize, field: &dyn Fn(&str) -> Option<String>) {
        let decision = Decision {
            kind: field("type").or_else(|| field("action")).unwrap_or_else(|| "ban".to_owned()),
            scope: field("scope"),
            value: field("value").or_else(|| field("ip")).unwrap_or_default(),
            duration: field("duration").or_else(|| field("expiration")).unwrap_or_default(),
            simulated: field("simulated").as_deref() == Some("true"),
        };
        match decision.entry() {
            Ok((sources, seconds)) => {
                let entry = |source| Entry { line, source, seconds };
                self.entries.extend(sources.into_iter().map(entry));
            }
            Err(Unlisted::PassedOver(problem)) => self.passed_over.push(Bad { line, problem }),
            Err(Unlisted::Bad(problem)) => self.bad.push(Bad { line, problem }),
        }
    }
}

/// The sources that an entry of a list stands for.
fn sources(word: &str) -> Result<Vec<Selector>, String> {
    if let Some((first, last)) = word.split_once('-')
        && let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse())
    {
        return range(first, last);
    }
    // Feeds write every IPv6 address as a /128; an IPv6 source is a /64 either way.
    if let Ok(IpNet::V6(net)) = word.parse::<IpNet>()
        && net.prefix_len() == 128
    {
        return Ok(vec![Selector::address(net.addr().into())]);
    }
    source_text::parse(word).map(|source| vec![source]).map_err(|error| error.to_string())
}

/// The prefixes from one address to another.
fn range(first: IpAddr, last: IpAddr) -> Result<Vec<Selector>, String> {
    let wrong = |why: &str| format!("{first} to {last} {why}");
    let nets: IpSubnets = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
            Ipv4Subnets::new(first, last, 0).into()
        }
        (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
            // An IPv6 source is a /64: the range goes from the first one's to the last one's.
            let around = |address| Ipv6Net::new_assert(address, 64);
            Ipv6Subnets::new(around(first).network(), around(last).broadcast(), 0).into()
        }
        _ => return Err(wrong("is no range of addresses: the first is to come before the last")),
    };
    let found: Vec<IpNet> = nets.take(MOST_OF_RANGE + 1).collect();
    if found.len() > MOST_OF_RANGE {
        return Err(wrong("takes too many prefixes: write them"));
    }
    found.into_iter().map(|net| Selector::prefix(net).map_err(|error| error.to_string())).collect()
}

/// Whole seconds of the time behind a source.
fn seconds(time: &str) -> Result<Option<u64>, String> {
    if time.is_empty() {
        return Ok(None);
    }
    match humantime::parse_duration(time) {
        Ok(_) if has_bare_month(time) => Err(format!("{time:?}: {MONTH}")),
        Ok(time) if time.is_zero() => Err("0 seconds are over at once".to_owned()),
        // Rounded up: a part of a second more does no harm; less would.
        Ok(time) => Ok(Some(time.as_secs() + u64::from(time.subsec_nanos() > 0))),
        Err(_) => Err(format!(
            "{time:?} is no length of time: write a source a line, and behind it, if you want, for \
             how long, as in `192.0.2.7 10min`"
        )),
    }
}

/// The decisions of a JSON text: alone, in alerts, or as news to a bouncer.
fn decisions(text: &str) -> Option<Vec<Value>> {
    let trimmed = text.trim_start();
    if !(trimmed.starts_with(['[', '{']) || trimmed.trim_end() == "null") {
        return None;
    }
    let all = match serde_json::from_str(text).ok()? {
        Value::Null => return Some(Vec::new()),
        Value::Array(all) => all,
        Value::Object(mut stream) => match stream.remove("new")? {
            Value::Array(all) => all,
            Value::Null => Vec::new(),
            _ => return None,
        },
        _ => return None,
    };
    let mut found = Vec::new();
    for item in all {
        match item.get("decisions") {
            Some(Value::Array(decisions)) => found.extend(decisions.iter().cloned()),
            Some(Value::Null) => {}
            _ if item.get("value").is_some() => found.push(item),
            _ => return None,
        }
    }
    Some(found)
}

fn field(decision: &Value, name: &str) -> Option<String> {
    match decision.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(value) => Some(value.to_string()),
        _ => None,
    }
}

/// True for the first row of `cscli decisions list -o raw`.
fn is_header(line: &str) -> bool {
    let mut columns = line.split(',').map(str::trim);
    line.contains(',')
        && columns.clone().any(|at| at == "ip" || at == "value")
        && columns.any(|at| at == "id" || at == "action" || at == "expiration")
}

/// Cells of a row of CSV.
fn cells(row: &str) -> Vec<String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = row.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    cells.push(cell);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of a list as they are shown, and the lines that cannot be read.
    pub(super) fn read(text: &str) -> (Vec<String>, Vec<usize>) {
        let feed = Feed::parse(text);
        let entry = |entry: &Entry| match entry.seconds {
            Some(seconds) => format!("{} {seconds}", entry.source),
            None => entry.source.to_string(),
        };
        (feed.entries.iter().map(entry).collect(), feed.bad.iter().map(|bad| bad.line).collect())
    }

    #[track_caller]
    pub(super) fn reads(text: &str, entries: &[&str], bad: &[usize]) {
        let (found, lines) = read(text);
        assert_eq!(
            (found.as_slice(), lines.as_slice()),
            (&*entries.iter().map(|e| (*e).to_owned()).collect::<Vec<_>>(), bad)
        );
    }

    #[test]
    fn comments_marks_and_line_ends_of_feeds_are_read() {
        reads(
            "; Example DROP List\n198.51.100.0/24 ; SBL000001\n# feed\n203.0.113.7 # x\n\n",
            &["198.51.100.0/24", "203.0.113.7"],
            &[],
        );
        reads("\u{feff}198.51.100.9\r\n198.51.100.8\r\n", &["198.51.100.9", "198.51.100.8"], &[]);
        reads(
            "192.0.2.7 4h\n192.0.2.8 23h55m50.267778894s\n",
            &["192.0.2.7 14400", "192.0.2.8 86151"],
            &[],
        );
    }

    #[test]
    fn a_line_that_cannot_be_read_hides_no_other() {
        reads(
            "192.0.2.200\n198.51.100.42.3254.174.140.223\n198.51.100.300\n2001:db8::7/128\n\
             203.0.113.7\n198.051.100.007\n",
            &["192.0.2.200", "2001:db8::/64", "203.0.113.7"],
            &[2, 3, 6],
        );
    }

    #[test]
    fn an_address_of_ipv6_is_its_source_in_every_spelling() {
        reads("2001:db8:9::1/128\n2001:db8:9::2\n", &["2001:db8:9::/64", "2001:db8:9::/64"], &[]);
        reads("2001:db8:9::/96\n", &[], &[1]);
    }

    #[test]
    fn blocks_and_ranges_are_prefixes() {
        reads("198.51.100.0\t198.51.100.255\t24\t1234\n", &["198.51.100.0/24"], &[]);
        reads("198.51.100.0-198.51.100.63\n", &["198.51.100.0/26"], &[]);
        reads("2001:db8::1 - 2001:db8::9\n", &[], &[1]);
        reads("2001:db8::1-2001:db8:0:1::9\n", &["2001:db8::/63"], &[]);
        reads("198.51.100.9-198.51.100.1\n", &[], &[1]);
    }

    #[test]
    fn decisions_of_crowdsec_are_read_as_json_and_as_csv() {
        let alerts = r#"[{"decisions":[{"duration":"3h59m50.5s","scenario":"manual 'ban' from 'x'",
            "scope":"Ip","simulated":false,"type":"ban","value":"203.0.113.5"},
            {"duration":"23h10m","scope":"Range","type":"ban","value":"198.51.100.0/24"},
            {"duration":"1h","scope":"Ip","type":"captcha","value":"203.0.113.77"},
            {"duration":"-1s","scope":"Ip","type":"ban","value":"203.0.113.78"},
            {"duration":"1h","scope":"AS","type":"ban","value":"64500"}],"id":1}]"#;
        reads(alerts, &["203.0.113.5 14391", "198.51.100.0/24 83400"], &[]);
        assert_eq!(Feed::parse(alerts).passed_over.len(), 3);
        reads(
            "id,source,ip,reason,action,country,as,events_count,expiration,simulated,alert_id\n\
             52138,crowdsec,Ip:198.51.100.221,\"a, b\",ban,GB,20952 X,12,23h55m50.2s,false,10\n\
             52139,crowdsec,Ip:2001:db8::5,x,ban,GB,x,12,1h,true,10\n\
             52140,crowdsec,Ip:2001:db8::5,x,ban,GB,x,12,1h,false,10\n",
            &["198.51.100.221 86151", "2001:db8::/64 3600"],
            &[],
        );
        reads(
            r#"{"new":[{"duration":"1h","scope":"ip","type":"ban","value":"192.0.2.9"}],"deleted":null}"#,
            &["192.0.2.9 3600"],
            &[],
        );
        for none in ["null", "[]", "null\n"] {
            let feed = Feed { is_decisions: true, ..Feed::default() };
            assert_eq!(Feed::parse(none), feed, "{none}");
        }
    }

    #[test]
    fn json_of_another_program_is_no_feed() {
        for text in ["[{\"sshd\": [\"192.0.2.7\"]}]", "{\"nftables\": []}", "<html>\n<body>\n"] {
            assert!(!Feed::is_of_crowdsec(text), "{text}");
            let feed = Feed::parse(text);
            assert!(feed.entries.is_empty() && !feed.bad.is_empty(), "{text}: {feed:?}");
        }
    }
}
