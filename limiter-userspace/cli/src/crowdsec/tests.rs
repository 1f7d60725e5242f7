//! The bouncer between an API and a daemon whose answers the tests choose.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::stream::MOST_ANSWER;
use super::*;

/// What a server was asked, in order.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// Reads a request: its head, and its document.
fn request(stream: &mut impl Read) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some((head, serde_json::from_slice(&body).unwrap_or_default()))
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
        .into_bytes()
}

fn news(new: &Value, deleted: &Value) -> Vec<u8> {
    answer("200 OK", &json!({"new": new, "deleted": deleted}).to_string())
}

fn ban(value: &str, duration: &str, scenario: &str) -> Value {
    json!({"id": 1, "origin": "cscli", "type": "ban", "scope": "Ip", "value": value,
           "duration": duration, "scenario": scenario})
}

/// A local API that gives each answer once, and then hangs; and a daemon that changes what it is
/// asked to, except for one address.
struct Fakes {
    answers: Arc<Mutex<VecDeque<Vec<u8>>>>,
    asked: Asked,
    lapi: String,
    socket: PathBuf,
    changed: Asked,
    _directory: tempfile::TempDir,
}

const MANAGED: &str = "192.0.2.9";

impl Fakes {
    fn start() -> Self {
        let answers = Arc::new(Mutex::new(VecDeque::<Vec<u8>>::new()));
        let [asked, changed] = [Asked::default(), Asked::default()];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let lapi = format!("http://{}", listener.local_addr().unwrap());
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("limiter.sock");
        let (next, seen) = (Arc::clone(&answers), Arc::clone(&asked));
        thread::spawn(move || {
            let mut hanging = Vec::new();
            for mut stream in listener.incoming().flatten() {
                let Some(asked) = request(&mut stream) else { continue };
                seen.lock().unwrap().push(asked);
                match next.lock().unwrap().pop_front() {
                    // The client may give up before the end.
                    Some(answer) => drop(stream.write_all(&answer)),
                    None => hanging.push(stream),
                }
            }
        });
        let fakes = Self { answers, asked, lapi, socket, changed, _directory: directory };
        fakes.start_daemon();
        fakes
    }

    fn start_daemon(&self) {
        let listener = UnixListener::bind(&self.socket).unwrap();
        let changes = Arc::clone(&self.changed);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let Some((head, body)) = request(&mut stream) else { continue };
                let is_managed = body.to_string().contains(MANAGED);
                let skipped = json!([{"source": MANAGED, "why": "it is inside a prefix"}]);
                let skipped = if is_managed { skipped } else { json!([]) };
                changes.lock().unwrap().push((head, body));
                let counts = json!({"allowed": 0, "denied": 0, "skipped": skipped});
                drop(stream.write_all(&answer("200 OK", &counts.to_string())));
            }
        });
    }

    fn client(&self) -> Client {
        Client::new(self.socket.clone(), Duration::from_secs(30))
    }

    fn bouncer<'a>(&self, client: &'a Client, patience: Duration) -> Bouncer<'a> {
        let lapi = Lapi::new(&self.lapi.parse().unwrap(), "secret".to_owned(), patience);
        Bouncer::new(lapi, client, None)
    }

    fn turn(&self, bouncer: &mut Bouncer<'_>, answer: Vec<u8>) {
        self.answers.lock().unwrap().push_back(answer);
        bouncer.turn();
    }

    /// Whether each request to the API was one for all decisions.
    fn asked(&self) -> Vec<bool> {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        let is_for_all = |(head, _): &(String, Value)| {
            assert!(head.contains("\r\nx-api-key: secret\r\n"), "{head}");
            head.starts_with("GET /v1/decisions/stream?startup=true HTTP/1.1\r\n")
        };
        asked.iter().map(is_for_all).collect()
    }

    /// The changes of the lists: `=` for a replacement, `+` for additions, `-` for removals.
    fn changed(&self) -> Vec<String> {
        let changed = std::mem::take(&mut *self.changed.lock().unwrap());
        let text = |(head, body): &(String, Value)| {
            if let Some(rest) = head.strip_prefix("DELETE /v1/lists?sources=") {
                let query = rest.split(' ').next().unwrap().replace("&force=false", "");
                return format!("-{query}").replace("%2C", ",").replace("%3A", ":");
            }
            assert!(head.starts_with("PUT /v1/lists HTTP/1.1\r\n"), "{head}");
            assert_eq!((&body["list"], &body["by"]), (&json!("deny"), &json!("crowdsec")));
            assert_eq!((&body["force"], &body["strict"]), (&Value::Null, &Value::Null));
            let entries = body["timed"].as_array().unwrap().iter().map(|entry| {
                let reason = entry["reason"].as_str().unwrap_or("none");
                format!("{} {} {reason}", entry["source"].as_str().unwrap(), entry["seconds"])
            });
            let sign = if body["replace"] == json!(true) { "=" } else { "+" };
            format!("{sign}{}", entries.collect::<Vec<_>>().join(", "))
        };
        changed.iter().map(text).collect()
    }
}

const LONG: Duration = Duration::from_secs(30);

/// The first answer replaces the author's entries, and the next ones change them.
#[test]
fn bans_become_entries_with_their_scenario_and_go_with_their_decisions() {
    let fakes = Fakes::start();
    let client = fakes.client();
    let mut bouncer = fakes.bouncer(&client, LONG);
    let range = json!({"type": "ban", "scope": "Range", "value": "198.51.100.0/24",
                       "duration": "100h", "scenario": "scan", "simulated": false});
    let captcha = json!({"type": "captcha", "scope": "Ip", "value": "192.0.2.3",
                         "duration": "1h", "scenario": "crawl"});
    let country = json!({"type": "ban", "scope": "Country", "value": "GB", "duration": "1h",
                         "scenario": "x"});
    let first = [
        ban("192.0.2.1", "4h", "crowdsecurity/ssh-bf"),
        ban("192.0.2.300", "4h", "no address"),
        ban(MANAGED, "4h", "managed"),
        ban("2001:db8::1", "1h", "a\u{1b}[2Jb"),
        ban("2001:db8::2", "2h", ""),
        ban("192.0.2.7", "", "no duration"),
        range,
        captcha.clone(),
        country,
    ];
    fakes.turn(&mut bouncer, news(&json!(first), &json!([ban("192.0.2.5", "-3s", "old")])));
    assert_eq!(
        fakes.changed(),
        ["=192.0.2.1 14400 crowdsecurity/ssh-bf, 192.0.2.9 14400 managed, 198.51.100.0/24 360000 \
          scan, 2001:db8::/64 7200 none"]
    );
    // What the daemon refuses is noted, so that it is reported once.
    assert_eq!(bouncer.skipped, [source_text::parse(MANAGED).unwrap()].into());
    // Nothing new changes nothing.
    fakes.turn(&mut bouncer, news(&Value::Null, &Value::Null));
    assert_eq!(fakes.changed(), [""; 0]);
    // The /64 stays while one of its addresses is banned. A captcha that ends is no ban that ends.
    let mut no_captcha = captcha;
    no_captcha["value"] = json!("192.0.2.1");
    let deleted = json!([ban("2001:db8::2", "-1s", ""), no_captcha]);
    fakes.turn(&mut bouncer, news(&json!([ban("192.0.2.1", "8h", "again")]), &deleted));
    let changed = fakes.changed().concat();
    assert!(changed.starts_with("+192.0.2.1 28800 again, 2001:db8::/64 3"), "{changed}");
    assert!(changed.ends_with(" a\u{fffd}[2Jb"), "{changed}");
    let deleted = json!([ban("2001:db8::1", "-1s", ""), ban("192.0.2.1", "-1s", "again")]);
    fakes.turn(&mut bouncer, news(&json!([]), &deleted));
    assert_eq!(fakes.changed(), ["-192.0.2.1,2001:db8::%2F64&by=crowdsec"]);
    assert_eq!(fakes.asked(), [true, false, false, false]);
    assert_eq!(bouncer.failures, 0);
}

/// Whatever else the API does changes no entry. Afterwards all decisions are asked for.
#[test]
fn an_api_that_is_away_or_lies_changes_nothing() {
    let fakes = Fakes::start();
    let client = fakes.client();
    let mut bouncer = fakes.bouncer(&client, LONG);
    let good = || news(&json!([ban("192.0.2.1", "4h", "ssh-bf")]), &json!([]));
    fakes.turn(&mut bouncer, good());
    assert_eq!(fakes.changed(), ["=192.0.2.1 14400 ssh-bf"]);
    let half = good();
    let endless = "HTTP/1.1 200 OK\r\ncontent-length: 5000000000\r\n\r\n".to_owned();
    for (answer, part) in [
        (answer("403 Forbidden", r#"{"message":"access forbidden"}"#), "refuses the key"),
        (answer("500 No", "{}"), "status 500"),
        (answer("302 Found\r\nlocation: /", ""), "status 302"),
        (answer("200 OK", "<html></html>"), "does not answer as CrowdSec"),
        (answer("200 OK", ""), "does not answer as CrowdSec"),
        (answer("200 OK", "{}"), "missing field `new`"),
        (answer("200 OK", "[]"), "does not answer as CrowdSec"),
        (answer("200 OK", r#"{"new": 5, "deleted": null}"#), "does not answer as CrowdSec"),
        (answer("200 OK", r#"{"new": [{"type": "ban"}], "deleted": null}"#), "missing field"),
        (half[..half.len() - 5].to_vec(), "cannot be read"),
        ([endless.into_bytes(), vec![b'['; MOST_ANSWER + 1]].concat(), "length limit exceeded"),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "CrowdSec at http://127.0.0.1"),
    ] {
        let failures = bouncer.failures;
        fakes.turn(&mut bouncer, answer);
        assert!(bouncer.reported.contains(part), "{part}: {}", bouncer.reported);
        assert_eq!((bouncer.failures, bouncer.all), (failures + 1, true), "{part}");
        assert_eq!(fakes.changed(), [""; 0], "{part}");
    }
    bouncer.lapi.patience = Duration::from_millis(200);
    bouncer.turn();
    assert!(bouncer.reported.contains("no whole answer within"), "{}", bouncer.reported);
    bouncer.lapi.patience = LONG;
    fakes.asked();
    fakes.turn(&mut bouncer, good());
    fakes.turn(&mut bouncer, news(&json!([]), &json!([])));
    assert_eq!(fakes.changed(), ["=192.0.2.1 14400 ssh-bf"]);
    assert_eq!(fakes.asked(), [true, false]);
    assert_eq!((bouncer.failures, bouncer.reported.as_str()), (0, ""));
}

/// An API that has lost its decisions answers as a new one does.
#[test]
fn all_decisions_without_a_ban_take_off_only_what_is_named() {
    let fakes = Fakes::start();
    let client = fakes.client();
    let mut bouncer = fakes.bouncer(&client, LONG);
    fakes.turn(&mut bouncer, news(&Value::Null, &Value::Null));
    assert_eq!(fakes.changed(), [""; 0]);
    bouncer.all = true;
    fakes.turn(&mut bouncer, news(&json!([]), &json!([ban("192.0.2.1", "-5m", "ssh-bf")])));
    assert_eq!(fakes.changed(), ["-192.0.2.1&by=crowdsec"]);
}

/// What could not be put on the list is put there with all else once there is a daemon.
#[test]
fn a_daemon_that_is_away_gets_all_when_it_is_back() {
    let fakes = Fakes::start();
    let client = Client::new(fakes.socket.with_extension("other"), LONG);
    let mut bouncer = fakes.bouncer(&client, LONG);
    let good = || news(&json!([ban("192.0.2.1", "4h", "ssh-bf")]), &json!([]));
    fakes.turn(&mut bouncer, good());
    assert!(bouncer.reported.contains("no daemon at"), "{}", bouncer.reported);
    let client = fakes.client();
    bouncer.client = &client;
    fakes.turn(&mut bouncer, good());
    assert_eq!(fakes.changed(), ["=192.0.2.1 14400 ssh-bf"]);
    assert_eq!(fakes.asked(), [true, true]);
}

#[test]
fn the_session_in_which_it_is_typed_is_not_denied() {
    let fakes = Fakes::start();
    let client = fakes.client();
    let mut bouncer = fakes.bouncer(&client, LONG);
    bouncer.session = Some(Session { peer: "192.0.2.1".parse().unwrap(), port: Some(22) });
    let both = json!([ban("192.0.2.1", "4h", "ssh-bf"), ban("192.0.2.2", "4h", "ssh-bf")]);
    fakes.turn(&mut bouncer, news(&both, &json!([])));
    assert_eq!(fakes.changed(), ["=192.0.2.2 14400 ssh-bf"]);
    assert_eq!(bouncer.skipped, [source_text::parse("192.0.2.1").unwrap()].into());
}

#[test]
fn pauses_grow_to_a_bound_and_differ() {
    let ten = Duration::from_secs(10);
    assert_eq!(pause(ten, 0, 0.5), ten);
    assert_eq!(pause(ten, 1, 0.0), ten / 2);
    assert_eq!(pause(ten, 1, 1.0), ten);
    assert_eq!(pause(ten, 3, 1.0), ten * 4);
    assert_eq!(pause(ten, u32::MAX, 1.0), LONGEST_PAUSE);
    assert_eq!(pause(LONGEST_PAUSE * 3, 9, 1.0), LONGEST_PAUSE * 3);
}

#[test]
fn a_key_is_a_word_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    for (text, wanted) in [("a1B2\n", Some("a1B2")), ("", None), ("a b", None), ("é", None)] {
        fs::write(&file, text).unwrap();
        assert_eq!(key(Some(&file)).ok().as_deref(), wanted, "{text:?}");
    }
    let error = key(Some(&directory.path().join("none"))).unwrap_err().to_string();
    assert!(error.contains("No such file") && error.contains("cscli bouncers add"), "{error}");
    for url in ["http://[::1]:8080/", "https://crowdsec.example/lapi/"] {
        assert!(lapi(url).is_ok(), "{url}");
    }
    assert!(lapi("http://127.0.0.1:8080/?a=b").unwrap_err().contains("leave out ?a=b"));
}
