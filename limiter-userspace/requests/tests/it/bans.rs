//! Bans that are asked for: once enough requests of a source were refused, and without anybody
//! waiting for the daemon.

use std::collections::HashMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use limiter_api::bans::{
    RequestBanAnswer, RequestBanBecame, RequestBans, SetRequestBan, SetRequestBans,
};
use limiter_api::requests::{ReportRequests, RequestCounts};
use limiter_requests::{DEFAULT_DEADLINE, Daemon, Listen, NotReported, Options, Server};
use serde_json::json;

/// A daemon of the test, which may hang or be away.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    asked: Mutex<Vec<SetRequestBan>>,
    reports: Mutex<Vec<ReportRequests>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Answers,
    Hangs,
    Away,
    /// One answer too few.
    Odd,
}

impl Fake {
    fn is_now(&self, state: State) {
        *self.state.lock().unwrap() = state;
        self.changed.notify_all();
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|ban| format!("{} {}: {}", ban.source, ban.domain, ban.rule)).collect()
    }
}

impl Daemon for Fake {
    fn ban(&self, SetRequestBans { bans: asked }: &SetRequestBans) -> Result<RequestBans, String> {
        assert!(!asked.is_empty() && asked.len() <= 32, "{}", asked.len());
        let state = self.state.lock().unwrap();
        let state = *self.changed.wait_while(state, |state| *state == State::Hangs).unwrap();
        if state == State::Away {
            return Err("nobody is there".to_owned());
        }
        self.asked.lock().unwrap().extend_from_slice(asked);
        let missing = usize::from(state == State::Odd);
        let made = RequestBanAnswer { became: RequestBanBecame::Made, why: None };
        Ok(RequestBans { answers: vec![made; asked.len() - missing] })
    }

    fn report(&self, report: &ReportRequests) -> Result<(), NotReported> {
        match *self.state.lock().unwrap() {
            State::Away => return Err(NotReported::Away),
            State::Odd => return Err(NotReported::Refused("another version".to_owned())),
            State::Answers | State::Hangs => {}
        }
        self.reports.lock().unwrap().push(report.clone());
        self.changed.notify_all();
        Ok(())
    }
}

struct Running {
    server: Option<Server>,
    fake: Arc<Fake>,
    directory: tempfile::TempDir,
}

impl Running {
    /// A server with this rule for the key `remote_address`.
    fn start(rule: &str) -> Self {
        Self::with_room(rule, 100_000)
    }

    fn with_room(rule: &str, max_keys: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let rules = directory.path().join("r.yaml");
        let text = format!("domain: d\ndescriptors: [{{key: remote_address, {rule}}}]\n");
        fs::write(&rules, text).unwrap();
        let fake = Arc::new(Fake::default());
        let options = Options {
            rules: vec![rules],
            listen: vec![Listen::Unix(directory.path().join("s"))],
            resp: Vec::new(),
            max_keys,
            max_connections: 16,
            response_headers: false,
            threads: 1,
            daemon: Some(Arc::<Fake>::clone(&fake)),
            cluster: None,
            deadline: DEFAULT_DEADLINE,
            max_waiting: 100,
            state: None,
        };
        let server = Some(Server::start(&options).unwrap());
        Self { server, fake, directory }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = UnixStream::connect(self.directory.path().join("s")).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: \
             {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn request(&self, source: &str, hits: u64) -> u16 {
        let entries = json!([{"key": "remote_address", "value": source}]);
        let descriptors = json!([{"entries": entries, "hitsAddend": hits}]);
        self.ask("POST", "/json", &json!({"domain": "d", "descriptors": descriptors}).to_string()).0
    }

    /// Sources that were to be banned, by what became of that.
    fn became(&self) -> HashMap<String, u64> {
        let (_, page) = self.ask("GET", "/metrics", "");
        let lines = page.lines().map(|line| Ok(line.to_owned()));
        let samples = prometheus_parse::Scrape::parse(lines).unwrap().samples;
        let bans = samples.iter().filter(|sample| sample.metric == "limiter_request_bans_total");
        bans.filter_map(|sample| {
            assert_eq!(sample.labels.get("rule"), Some("remote_address"));
            let prometheus_parse::Value::Counter(count) = sample.value else { return None };
            let became = sample.labels.get("became")?.to_owned();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts")]
            (count > 0.0).then_some((became, count as u64))
        })
        .collect()
    }

    fn wait_until(&self, expected: &[(&str, u64)]) {
        let expected: HashMap<String, u64> =
            expected.iter().map(|(became, count)| ((*became).to_owned(), *count)).collect();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let became = self.became();
            if became == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{became:?}, not {expected:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.fake.is_now(State::Answers);
        if let Some(server) = self.server.take() {
            server.stop().unwrap();
        }
    }
}

#[test]
fn refused_requests_are_strikes_and_the_last_one_asks() {
    let running = Running::start(
        "rate_limit: {rate: 1/hour, burst: 2}, action: {ban: {first: 10min, strikes: 3}}",
    );
    let ask = |source: &str, times: usize| -> Vec<u16> {
        (0..times).map(|_| running.request(source, 1)).collect()
    };
    assert_eq!(ask("192.0.2.1", 4), [200, 200, 429, 429]);
    // A look is no strike; asking for more than there ever is counts as one.
    assert_eq!(running.request("192.0.2.1", 0), 429);
    assert_eq!(ask("2001:db8::1", 2), [200, 200]);
    assert_eq!((ask("2001:db8::2", 2), ask("2001:db8::3", 1)), (vec![429; 2], vec![429]));
    running.wait_until(&[("made", 1)]);
    assert_eq!(running.fake.asked(), ["2001:db8:: d: remote_address"]);
    assert_eq!(ask("::ffff:192.0.2.1", 1), [429]);
    running.wait_until(&[("made", 2)]);
    let asked = running.fake.asked.lock().unwrap()[1].clone();
    assert_eq!(&*asked.source, "192.0.2.1");
    assert_eq!(asked.first_ms, 600_000);
    // No address: counted, and nobody is banned.
    for source in ["", "unknown", "192.0.2.1:http", "192.0.2.1, 192.0.2.2", "192.0.2.0/24"] {
        ask(source, 3);
    }
    running.wait_until(&[("made", 2), ("no_address", 5)]);
    assert_eq!(running.fake.asked().len(), 2);
}

#[test]
fn nobody_is_banned_in_shadow_mode_or_for_a_shared_bucket() {
    let shadow = "rate_limit: {rate: 1/hour}, shadow_mode: true, action: {ban: {}}";
    let running = Running::start(shadow);
    assert_eq!([running.request("192.0.2.1", 1), running.request("192.0.2.1", 1)], [200; 2]);
    assert!(running.became().is_empty());
    let blocked =
        Running::start("rate_limit: {unit: day, requests_per_unit: 0}, action: {ban: {}}");
    assert_eq!(blocked.request("192.0.2.1", 1), 429);
    blocked.wait_until(&[("made", 1)]);
    // Nobody is banned for what neighbours used of a wider prefix.
    let wide = Running::start(
        "rate_limit: {rate: 9/hour}, aggregates: [{v4_prefix_mask_len: 24, rate_limit: {rate: \
         1/hour}}], action: {ban: {}}",
    );
    assert_eq!([wide.request("192.0.2.1", 1), wide.request("192.0.2.2", 1)], [200, 429]);
    assert!(wide.became().is_empty());
    // Others used up the bucket that is shared for lack of room: nobody is guilty of that.
    let full = Running::with_room("rate_limit: {rate: 2/hour}, action: {ban: {}}", 1);
    let sources = ["1", "2", "3", "3", "1", "1"].map(|host| format!("192.0.2.{host}"));
    let answers = sources.map(|source| full.request(&source, 1));
    assert_eq!(answers, [200, 200, 200, 429, 200, 429]);
    full.wait_until(&[("made", 1)]);
    assert_eq!(full.fake.asked(), ["192.0.2.1 d: remote_address"]);
}

/// A daemon that hangs or is away holds up no answer; what could not wait is counted.
#[test]
fn no_answer_waits_for_the_daemon() {
    let running = Running::start("rate_limit: {rate: 1/hour}, action: {ban: {}}");
    let over = |source: String| {
        running.request(&source, 1);
        assert_eq!(running.request(&source, 1), 429);
    };
    running.fake.is_now(State::Hangs);
    let many: u64 = 1200;
    for n in 0..many {
        over(format!("10.0.{}.{}", n >> 8, n & 255));
    }
    let became = running.became();
    let left_out = became["queue_full"];
    // The thread has taken up to 32 out of a queue for 1,024.
    assert!((many - 1024 - 32..=many - 1024).contains(&left_out), "{became:?}");
    running.fake.is_now(State::Answers);
    running.wait_until(&[("made", many - left_out), ("queue_full", left_out)]);
    let mut asked = running.fake.asked();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len() as u64, many - left_out, "one was asked for twice");
    running.fake.is_now(State::Away);
    over("192.0.2.1".to_owned());
    let counts = [("made", many - left_out), ("queue_full", left_out), ("no_daemon", 1)];
    running.wait_until(&counts);
    running.fake.is_now(State::Odd);
    over("192.0.2.2".to_owned());
    let counts = [("made", many - left_out), ("queue_full", left_out), ("no_daemon", 2)];
    running.wait_until(&counts);
}

/// Reports have what became of requests so far, and the last one says that the process ends.
#[test]
fn the_daemon_is_told_what_became_of_requests_and_that_the_process_ends() {
    let mut running = Running::start("rate_limit: {rate: 2/hour, name: log-in}");
    let answers = ["192.0.2.1"; 3].map(|source| running.request(source, 1));
    assert_eq!(answers, [200, 200, 429]);
    let reports = running.fake.reports.lock().unwrap();
    let is_not_told = |reports: &mut Vec<ReportRequests>| {
        reports.last().is_none_or(|report| report.rules[0].counts.over == 0)
    };
    let patience = Duration::from_secs(30);
    let (mut reports, _) =
        running.fake.changed.wait_timeout_while(reports, patience, is_not_told).unwrap();
    let latest = reports.pop().unwrap();
    drop(reports);
    let [rule] = &latest.rules[..] else { panic!("{latest:?}") };
    assert_eq!((&*rule.domain, &*rule.rule), ("d", "remote_address"));
    assert_eq!(rule.name.as_deref(), Some("log-in"));
    let counts = RequestCounts { within: 2, over: 1, ..RequestCounts::default() };
    assert_eq!(rule.counts, counts);
    assert_eq!(
        (latest.keys, latest.max_keys, latest.others.rules, latest.ends),
        (1, 100_000, 0, false)
    );
    assert_eq!(latest.listen, [format!("unix:{}", running.directory.path().join("s").display())]);
    running.server.take().unwrap().stop().unwrap();
    let reports = running.fake.reports.lock().unwrap();
    let [rest @ .., last] = &reports[..] else { panic!("no report") };
    assert!(last.ends && rest.iter().all(|report| !report.ends));
    assert_eq!((last.began_ms, last.rules[0].counts), (latest.began_ms, counts));
    assert!(last.clock_ns >= latest.clock_ns);
}
