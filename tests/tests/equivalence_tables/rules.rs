//! Random rule files over every descriptor, algorithm and way to hold limits.

use std::fmt::Write as _;

use fastrand::Rng;

/// A table's keys, each with the values that rules give them; an empty one is "no value".
type Form = &'static [(&'static str, &'static [&'static str])];

const REMOTE: (&str, &[&str]) = (
    "key: remote_address",
    &["", "192.0.2.0/24", "192.0.2.0/30", "192.0.2.1", "2001:db8::/32", "2001:db8:1::/48"],
);
const DESTINATION: (&str, &[&str]) =
    ("key: destination_address", &["", "198.51.100.0/24", "198.51.100.1", "fd00::/16", "fd00::1"]);
const PORT: (&str, &[&str]) = ("key: destination_port", &["", "22", "53"]);
const PORTS: (&str, &[&str]) =
    ("key: destination_port", &["", "9-30", "22", "40-500", "53-60", "443"]);
// Beside other keys, what is inside a range must be for all packets of the range: so nothing is.
const APART: (&str, &[&str]) = ("key: destination_port", &["9-30", "40-60", "443"]);
const SOURCE_PORT: (&str, &[&str]) = ("key: source_port", &["40000", "40001-40002", "1024-39999"]);
const LENGTHS: (&str, &[&str]) = ("key: packet_length", &["0-60", "61-65535"]);
const TTLS: (&str, &[&str]) = ("key: ttl", &["64", "0-5", "65-255"]);
const LENGTH: (&str, &[&str]) =
    ("key: packet_length", &["", "0-60", "30-40", "61-65535", "200-1000", "28"]);
const TTL: (&str, &[&str]) = ("key: ttl", &["", "64", "0-5", "1", "65-255"]);
const PROTOCOL: (&str, &[&str]) = ("key: protocol", &["", "tcp", "udp", "icmp", "47"]);
const FLAGS: (&str, &[&str]) =
    ("key: tcp_flags", &["", "syn", "syn-ack", "rst", "fin", "ack", "other"]);
const ICMP: (&str, &[&str]) = (
    "key: icmp_type",
    &["", "echo-request", "echo-reply", "destination-unreachable", "time-exceeded", "143"],
);
const INTERFACE: (&str, &[&str]) = ("key: interface", &["", "lo", "other"]);
const VLAN: (&str, &[&str]) = ("key: vlan", &["", "5", "7"]);
const DSCP: (&str, &[&str]) = ("key: dscp", &["", "ef", "10", "0"]);
const FRAGMENT: (&str, &[&str]) = ("key: fragment", &["", "whole", "first", "later"]);
const INNER: (&str, &[&str]) = (
    "key: inner_remote_address",
    &["", "10.0.0.0/8", "10.0.0.1", "2001:db8::/32", "2001:db8:1::/48"],
);
const MASKED: (&str, &[&str]) = (
    "key: masked_remote_address, v4_prefix_mask_len: 24, v6_prefix_mask_len: 48",
    &["", "192.0.2.0/24", "192.0.0.0/16", "2001:db8::/32"],
);
const WIDE: (&str, &[&str]) =
    ("key: masked_remote_address, v6_prefix_mask_len: 56", &["", "2001:db8:1::/48"]);
const WHOLE: (&str, &[&str]) = (
    "key: masked_remote_address, v4_prefix_mask_len: 32, v6_prefix_mask_len: 128",
    &["", "2001:db8::/32", "192.0.2.3"],
);

const FORMS: &[Form] = &[
    &[REMOTE],
    &[MASKED],
    &[WIDE],
    &[WHOLE],
    &[DESTINATION],
    &[PORTS],
    &[PROTOCOL],
    &[FLAGS],
    &[INTERFACE],
    &[VLAN],
    &[DSCP],
    &[PORT, REMOTE],
    &[PROTOCOL, DESTINATION],
    &[VLAN, DSCP, PROTOCOL],
    &[REMOTE, DESTINATION, PORT],
    &[FLAGS, MASKED],
    &[("key: generic_key", &["all"])],
    &[INTERFACE, PROTOCOL, VLAN],
    &[FRAGMENT],
    &[FRAGMENT, REMOTE],
    &[FLAGS, FRAGMENT, PORT],
    &[INNER],
    &[PROTOCOL, INNER],
    &[ICMP],
    &[ICMP, REMOTE],
    &[PROTOCOL, ICMP, FRAGMENT],
    &[SOURCE_PORT, REMOTE],
    &[LENGTH],
    &[TTL],
    &[PROTOCOL, APART],
    &[SOURCE_PORT, APART, LENGTHS],
    &[TTLS, MASKED],
];

const UNITS: [&str; 5] = ["second", "minute", "hour", "day", "week"];
const BUDGETS: [&str; 3] = ["slow", "shared", "other"];
/// The budget whose packets wait, for what goes out.
const LATER: &str = "later";

/// The direction of a table's rules.
type Way = &'static str;

/// A rule set that changes rule by rule, so that most rules stay.
pub(crate) struct Rules {
    random: Rng,
    budgets: [String; 3],
    later: String,
    tables: Vec<(usize, Way)>,
    /// By table and values: what the rule does.
    held: Vec<((usize, Way), Vec<&'static str>, String)>,
}

impl Rules {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rules = Self {
            random: Rng::with_seed(seed ^ 0x5eed),
            budgets: Default::default(),
            later: String::new(),
            tables: Vec::new(),
            held: Vec::new(),
        };
        for index in 0..BUDGETS.len() {
            rules.new_budget(index);
        }
        rules.new_later();
        rules
    }

    /// Changes something: mostly a few rules, sometimes a budget, a table or everything.
    pub(crate) fn change(&mut self) {
        match self.random.u8(0..16) {
            0 => {
                self.held.clear();
                self.tables.clear();
            }
            1..4 => {
                let index = self.random.usize(0..BUDGETS.len());
                self.new_budget(index);
                self.new_later();
            }
            4 if !self.tables.is_empty() => {
                let gone = self.tables.swap_remove(self.random.usize(0..self.tables.len()));
                self.held.retain(|(table, ..)| *table != gone);
            }
            // Nothing but a new generation.
            5 if !self.held.is_empty() => return,
            _ => {}
        }
        while self.tables.len() < 2 || self.tables.len() < 7 && self.random.u8(..) < 40 {
            let form = self.random.usize(0..FORMS.len());
            let way = ["in", "in", "out", "both"][self.random.usize(0..4)];
            // The packet inside a tunnel is looked for on the way in alone.
            let way = if FORMS[form].contains(&INNER) { "in" } else { way };
            if !self.tables.contains(&(form, way)) {
                self.tables.push((form, way));
                self.new_rule((form, way));
            }
        }
        for _ in 0..self.random.usize(1..5) {
            let table = self.tables[self.random.usize(0..self.tables.len())];
            self.new_rule(table);
        }
        while self.held.is_empty() {
            let table = self.tables[self.random.usize(0..self.tables.len())];
            self.new_rule(table);
        }
        if self.held.len() > 6 && self.random.bool() {
            self.held.swap_remove(self.random.usize(0..self.held.len()));
        }
    }

    fn new_rule(&mut self, table: (usize, Way)) {
        let (form, way) = table;
        let values: Vec<&str> = FORMS[form]
            .iter()
            .map(|(_, values)| values[self.random.usize(0..values.len())])
            .collect();
        // Both families in one path are no packet.
        if values.iter().any(|v| v.contains(':')) && values.iter().any(|v| v.contains('.')) {
            return;
        }
        let mut terms = self.terms(form, values[0]);
        if way != "in" {
            // What no outgoing packet can have.
            terms = terms.replace("sliding_log", "fixed_window").replace("reject", "drop");
        }
        if way == "out" && self.random.bool() {
            terms = match self.random.u8(0..6) {
                0 => format!("budget: {LATER}"),
                1 => format!("{}, action: {{class: {LATER}}}", self.waiting()),
                2 => format!("{}, {}, shadow_mode: true", self.waiting(), self.delay()),
                _ => format!("{}, {}", self.waiting(), self.delay()),
            };
        }
        match self.held.iter_mut().find(|(at, held, _)| *at == table && *held == values) {
            Some((.., old)) => *old = terms,
            None => self.held.push((table, values, terms)),
        }
    }

    fn terms(&mut self, form: usize, value: &str) -> String {
        match self.random.u8(0..20) {
            0 => return "rate_limit: {unlimited: true}".into(),
            4 | 5 if FORMS[form].iter().all(|key| key.0 != "key: generic_key") => {
                let rest = ["", ", shadow_mode: true", ", on_daemon_loss: shadow"];
                let action = ["drop", "reject"][self.random.usize(0..2)];
                return format!("action: {action}{}", rest[self.random.usize(0..3)]);
            }
            1..4 => return format!("budget: {}", BUDGETS[self.random.usize(0..BUDGETS.len())]),
            _ => {}
        }
        let shared = self.random.u8(0..3) == 0
            && !FORMS[form].is_empty()
            && FORMS[form].iter().all(|key| *key != INTERFACE && key.0 != "key: generic_key");
        let mut terms = if shared { self.shared_limits() } else { self.limits() };
        if shared {
            terms.push_str(&self.sharing(&["share", "closed"]));
        }
        let action = match self.random.u8(0..12) {
            0 => ", action: {mark: {dscp: cs1}}",
            1 => ", action: {class: slow}",
            2 => ", action: {class: other}",
            3 => ", shadow_mode: true",
            4 | 5 => ", on_daemon_loss: shadow",
            _ => "",
        };
        terms.push_str(action);
        let wide = matches!(value, "" | "2001:db8::/32") && FORMS[form] == [REMOTE];
        if wide && !shared && self.random.u8(0..4) == 0 {
            let limit = self.limit(&mut 8, &mut 4);
            let _ = write!(
                terms,
                ", aggregates: [{{v4_prefix_mask_len: 20, v6_prefix_mask_len: 40, rate_limit: \
                 {limit}}}]"
            );
        }
        terms
    }

    fn new_budget(&mut self, index: usize) {
        let mut limits = self.limits();
        if index > 0 {
            // Outgoing packets are charged to it, too.
            limits = limits.replace("sliding_log", "fixed_window");
        }
        let action = match (index, self.random.u8(0..6)) {
            (1, 0..3) => ", action: {class: other}",
            (_, 3) => ", shadow_mode: true",
            (_, 4) => ", on_daemon_loss: shadow",
            _ => "",
        };
        let (limits, shared) = match self.random.u8(0..3) {
            0 => (self.shared_limits(), self.sharing(&["share", "open", "closed"])),
            _ => (limits, String::new()),
        };
        self.budgets[index] = format!("{{name: {}, {limits}{action}{shared}}}", BUDGETS[index]);
    }

    /// A file of rules for what goes out, of which all but few let packets wait.
    pub(crate) fn that_wait(&mut self) -> String {
        self.new_later();
        let mut file = format!("budgets:\n  - {}\ndescriptors:\n", self.later);
        let key = ["remote_address", "source_address"][self.random.usize(0..2)];
        for (port, nested) in [("22", true), ("53", false), ("", true)] {
            let terms = match self.random.u8(0..6) {
                0 => format!("budget: {LATER}"),
                1 => format!("{}, action: {{class: {LATER}}}", self.waiting()),
                2 => self.waiting(),
                _ => format!("{}, {}", self.waiting(), self.delay()),
            };
            let value = if port.is_empty() { String::new() } else { format!(", value: {port}") };
            let _ = if nested {
                writeln!(
                    file,
                    "  - {{key: destination_port{value}, direction: out, descriptors: [{{key: \
                     {key}, {terms}}}]}}"
                )
            } else {
                writeln!(file, "  - {{key: protocol, value: udp, direction: out, {terms}}}")
            };
        }
        file
    }

    fn new_later(&mut self) {
        self.later = format!("{{name: {LATER}, {}, {}}}", self.waiting(), self.delay());
    }

    /// A wait over limits.
    fn delay(&mut self) -> String {
        let longest = [self.random.u32(1..20), self.random.u32(1..=2_000)][self.random.usize(0..2)];
        let ecn = ["", ", ecn: true"][self.random.usize(0..2)];
        format!("action: {{delay: {{longest: {longest}ms{ecn}}}}}")
    }

    /// One to four limits whose packets can wait.
    fn waiting(&mut self) -> String {
        let count = [1, 1, 1, 2, 3, 4][self.random.usize(0..6)];
        let limits: Vec<String> = (0..count).map(|_| self.bucket()).collect();
        format!("rate_limits: [{}]", limits.join(", "))
    }

    fn bucket(&mut self) -> String {
        let random = &mut self.random;
        let count = ["packets", "packets", "bytes", "syns", "flows"][random.usize(0..5)];
        let (requests, burst) = if count == "bytes" {
            (random.u64(5_000..2_000_000), random.u64(1522..20_000))
        } else {
            ([random.u64(1..4), random.u64(1..500)][random.usize(0..2)], random.u64(1..6))
        };
        let rest = match random.u8(0..4) {
            0 => ", algorithm: leaky_bucket".to_owned(),
            1 => format!(", algorithm: leaky_bucket, backlog: {}ms", random.u32(1..2_000)),
            _ => format!(", burst: {burst}"),
        };
        format!("{{unit: second, requests_per_unit: {requests}, count: {count}{rest}}}")
    }

    /// How nodes share limits; `open` is not for buckets by key.
    fn sharing(&mut self, on_partition: &[&str]) -> String {
        let on_partition = on_partition[self.random.usize(0..on_partition.len())];
        format!(
            ", scope: cluster, cluster: {{sync: 50ms, share: {}%, share_of_burst: {}%, \
             on_partition: {on_partition}}}",
            self.random.u8(1..=100),
            self.random.u8(1..=100),
        )
    }

    /// One to three limits that nodes can share: buckets that hold two sync periods, and windows of
    /// a minute or longer.
    fn shared_limits(&mut self) -> String {
        let limit = |random: &mut Rng| {
            let requests = random.u64(3..3_000);
            let window = ["fixed_window", "sliding_counter"][random.usize(0..2)];
            match random.u8(0..4) {
                0 => format!("unit: minute, requests_per_unit: {requests}, algorithm: {window}"),
                1 => format!("unit: second, requests_per_unit: {}, count: bytes", requests * 1000),
                _ => format!("unit: second, requests_per_unit: {requests}"),
            }
        };
        let count = self.random.usize(1..4);
        let limits = (0..count).map(|_| format!("{{{}}}", limit(&mut self.random)));
        format!("rate_limits: [{}]", limits.collect::<Vec<_>>().join(", "))
    }

    /// One to four limits within the words that there are.
    fn limits(&mut self) -> String {
        let (mut words, mut places) = (32, 4);
        let count = [1, 1, 1, 2, 2, 3, 4][self.random.usize(0..7)];
        let mut limits = Vec::new();
        while limits.len() < count && places > 0 && words > 0 {
            limits.push(self.limit(&mut words, &mut places));
        }
        format!("rate_limits: [{}]", limits.join(", "))
    }

    fn limit(&mut self, words: &mut u32, places: &mut u32) -> String {
        let count =
            ["packets", "packets", "packets", "bytes", "syns", "flows"][self.random.usize(0..6)];
        let bytes = count == "bytes";
        let mut unit = UNITS[[0, 0, 0, 1, 1, 2, 3, 4][self.random.usize(0..8)]];
        if bytes && !matches!(unit, "second" | "minute") {
            unit = "minute";
        }
        let mut requests = if bytes {
            self.random.u64(20_000..2_000_000)
        } else {
            [self.random.u64(1..8), self.random.u64(1..60), self.random.u64(1..2_000)]
                [self.random.usize(0..3)]
        };
        let mut rest = String::new();
        match self.random.u8(0..10) {
            0 | 1 => {
                rest.push_str(", algorithm: leaky_bucket");
                if self.random.bool() {
                    let _ = write!(rest, ", backlog: {}ms", self.random.u32(1..60_000));
                }
            }
            2 => rest.push_str(", algorithm: fixed_window"),
            3 if !bytes && *words >= 4 => {
                requests = self.random.u64(1..u64::from((*words).min(32)));
                rest.push_str(", algorithm: sliding_log");
                *words -= u32::try_from(requests).unwrap_or(31);
            }
            4 if *words >= 2 => {
                rest.push_str(", algorithm: sliding_counter");
                *words -= 1;
            }
            5 | 6 if *words >= 8 => {
                let slots = [2, 4, 8][self.random.usize(0..3)];
                requests = requests.max(slots);
                let _ = write!(rest, ", algorithm: sliding_slots, slots: {slots}");
                if self.random.bool() {
                    rest.push_str(", strict: true");
                }
                *words -= u32::try_from(slots).unwrap_or(8) - 1;
            }
            _ => {
                let burst =
                    if bytes { self.random.u64(1522..20_000) } else { self.random.u64(1..30) };
                let _ = write!(rest, ", burst: {burst}");
                if *words >= 2 && *places >= 2 && self.random.u8(0..4) == 0 {
                    let kind = ["peak", "excess"][self.random.usize(0..2)];
                    self.upper(&mut rest, kind, unit, requests, bytes);
                    (*words, *places) = (*words - 1, *places - 1);
                }
            }
        }
        let plain = !rest.contains("burst");
        if plain && *words >= 2 && *places >= 2 && self.random.u8(0..4) == 0 {
            self.upper(&mut rest, "ceiling", unit, requests, bytes);
            (*words, *places) = (*words - 1, *places - 1);
        }
        *words = words.saturating_sub(1);
        *places -= 1;
        let several = self.several(unit, bytes);
        format!("{{unit: {unit}{several}, requests_per_unit: {requests}, count: {count}{rest}}}")
    }

    /// Several units of time, now and then: so few that bursts refill within two years, and that
    /// bytes are not too slow.
    fn several(&mut self, unit: &str, bytes: bool) -> String {
        let most = match unit {
            "week" => 2,
            "day" => 8,
            _ if bytes => 3,
            _ => 52,
        };
        match self.random.u8(0..4) {
            0 => format!(", unit_multiplier: {}", self.random.u32(1..=most)),
            _ => String::new(),
        }
    }

    fn upper(&mut self, rest: &mut String, kind: &str, unit: &str, requests: u64, bytes: bool) {
        let more = requests * self.random.u64(1..5);
        let burst = if bytes { self.random.u64(1522..40_000) } else { self.random.u64(1..60) };
        let _ =
            write!(rest, ", {kind}: {{unit: {unit}, requests_per_unit: {more}, burst: {burst}}}");
        rest.push_str(["", ", mark: {dscp: cs1}", ", mark: {ecn: true}"][self.random.usize(0..3)]);
    }

    pub(crate) fn file(&self) -> String {
        let mut file = String::from("budgets:\n");
        for budget in self.budgets.iter().chain([&self.later]) {
            let _ = writeln!(file, "  - {budget}");
        }
        file.push_str("descriptors:\n");
        for ((form, way), values, terms) in &self.held {
            let mut text = terms.clone();
            if *way != "in" {
                text = text.replace("slow", "other");
            }
            for (at, ((key, _), value)) in FORMS[*form].iter().zip(values).enumerate().rev() {
                let key = match *way {
                    "out" => key.replace("destination_address", "source_address"),
                    _ => (*key).to_owned(),
                };
                let way = if at == 0 { format!(", direction: {way}") } else { String::new() };
                let value =
                    if value.is_empty() { String::new() } else { format!(", value: \"{value}\"") };
                let inner =
                    if text.starts_with('{') { format!("descriptors: [{text}]") } else { text };
                text = format!("{{{key}{value}{way}, {inner}}}");
            }
            let _ = writeln!(file, "  - {text}");
        }
        file
    }
}
