//! The server, as a client of HTTP sees it.

use std::fs;
use std::io::{Read as _, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use limiter_requests::{DEFAULT_DEADLINE, Listen, Options, ServeError, Server, StateOptions};
use serde_json::{Value, json};

use crate::running::{RULES, read, running, started};

#[test]
fn answers_have_the_shape_of_envoyproxy_ratelimit() {
    let running = running(100);
    let answer = running.one("user", "ann");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let mut body = answer.json();
    assert_eq!(body["statuses"][0]["durationUntilReset"].take(), json!("20s"));
    let limit = json!({"requestsPerUnit": 3, "unit": "MINUTE"});
    let status = json!({
        "code": "OK", "currentLimit": limit, "limitRemaining": 2, "durationUntilReset": null,
    });
    assert_eq!(body, json!({"overallCode": "OK", "statuses": [status]}));
    running.one("user", "ann");
    running.one("user", "ann");
    let over = running.one("user", "ann");
    assert_eq!(over.status, 429);
    assert_eq!(over.json()["overallCode"], "OVER_LIMIT");
    assert_eq!(over.json()["statuses"][0]["code"], "OVER_LIMIT");
    assert_eq!(over.json()["statuses"][0]["limitRemaining"], 0);
    assert_eq!(running.one("user", "bob").status, 200);
    // A look, several hits, and a month.
    let hits = |hits: Value| {
        let entries = json!([{"key": "month", "value": "1"}]);
        running.json(&json!({
            "domain": "auth", "hitsAddend": 1,
            "descriptors": [{"entries": entries, "hitsAddend": hits}],
        }))
    };
    assert_eq!(hits(json!(3)).status, 429);
    assert_eq!(hits(json!("2")).json()["statuses"][0]["currentLimit"]["unit"], "MONTH");
    assert_eq!(hits(json!(0)).status, 429, "nothing is left");
    assert_eq!(hits(json!(1)).status, 429);
    // No rule, no limit, nothing at all.
    let ok = json!({"overallCode": "OK", "statuses": [{"code": "OK"}]});
    assert_eq!(running.one("unknown", "x").json(), ok);
    let free = json!({"code": "OK", "limitRemaining": u32::MAX});
    assert_eq!(running.one("free", "x").json()["statuses"][0], free);
    let never = running.one("never", "x");
    assert_eq!(
        (never.status, never.json()["statuses"][0]["limitRemaining"].clone()),
        (429, json!(0))
    );
    // A limit of the request's own.
    let own = json!({
        "domain": "auth",
        "descriptors": [{
            "entries": [{"key": "user", "value": "ann"}],
            "limit": {"requestsPerUnit": 1, "unit": "HOUR"},
        }],
    });
    assert_eq!([running.json(&own).status, running.json(&own).status], [200, 429]);
    running.server.stop().unwrap();
}

#[test]
fn a_check_has_its_descriptors_from_headers_and_answers_in_headers() {
    let running = running(100);
    for left in ["1", "0"] {
        let answer = running.check("192.0.2.1", "/check");
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some(left)));
        assert_eq!(answer.header("x-ratelimit-limit"), Some("2"));
        assert_eq!(answer.header("retry-after"), None);
    }
    let over = running.check("192.0.2.1", "/check");
    assert_eq!(over.status, 429);
    let wait: u64 = over.header("retry-after").unwrap().parse().unwrap();
    assert!((1790..=1800).contains(&wait), "{wait}");
    assert_eq!(over.header("ratelimit-policy"), Some("\"logins\";q=2;w=3600"));
    assert!(over.header("ratelimit").unwrap().starts_with("\"logins\";r=0;t=3"));
    assert_eq!(running.check("192.0.2.2", "/check/auth").status, 200);
    assert_eq!(running.check("192.0.2.1", "/check?over=403").status, 403);
    assert_eq!(running.check("192.0.2.1", "/check?over=200").status, 400);
    for query in ["wait=61s", "wait=soon", "wait=1s&over", "what=1"] {
        let refused = running.check("192.0.2.1", &format!("/check?{query}"));
        assert_eq!(refused.status, 400, "{query}");
    }
    assert_eq!(running.check("192.0.2.1", "/check/other").status, 404);
    // Without the header there is nothing to limit, which is counted.
    for _ in 0..3 {
        assert_eq!(running.ask("GET", "/check", "", "").status, 200);
    }
    assert_eq!(running.metric("limiter_request_empty_checks_total"), 3);
    running.server.stop().unwrap();
}

/// A check that is to wait, and falls under a limit that cannot say when, is answered at once: an
/// error would be one for everybody.
#[test]
fn a_check_that_cannot_wait_is_answered_at_once() {
    let running = started(|options| {
        let rules = "domain: d\ncheck: [[{key: remote_address, header: X-Real-IP}]]\ndescriptors:\n  - \
                     key: remote_address\n    rate_limits: [{rate: 5/s}, {unit: week, \
                     requests_per_unit: 2, algorithm: sliding_log}]\n";
        fs::write(&options.rules[0], rules).unwrap();
    });
    let statuses = [0, 1, 2].map(|_| running.check("192.0.2.1", "/check?wait=2s").status);
    assert_eq!(statuses, [200, 200, 429]);
    running.server.stop().unwrap();
}

#[test]
fn bad_requests_are_refused_with_a_reason_and_charge_nothing() {
    let running = running(100);
    let good =
        json!({"domain": "auth", "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]});
    let long = "x".repeat((1 << 20) + 1);
    let many = vec![good["descriptors"][0].clone(); 1025];
    let cases: [(&str, &str, String, u16, &str); 13] = [
        ("POST", "/json", "{".to_owned(), 400, "no request: "),
        ("POST", "/json", "7".to_owned(), 400, "no request: "),
        ("POST", "/json", r#"{"domian": "auth"}"#.to_owned(), 400, "unknown field `domian`"),
        ("POST", "/json", r#"{"descriptors": []}"#.to_owned(), 400, "domain is missing"),
        ("POST", "/json", r#"{"domain": "auth"}"#.to_owned(), 400, "descriptors is empty"),
        (
            "POST",
            "/json",
            json!({"domain": "auth", "descriptors": many}).to_string(),
            400,
            "1025 descriptors are more than 1024",
        ),
        ("POST", "/json", long, 413, "longer than 1 MiB"),
        ("GET", "/json", String::new(), 405, "use POST"),
        ("GET", "/nothing", String::new(), 404, "ask /json, /check"),
        ("POST", "/json", r#"{"domain":"auth","maxWait":"1s"}"#.to_owned(), 400, "/reserve"),
        ("POST", "/reserve", good.to_string(), 400, "maxWait is missing"),
        ("POST", "/reserve", r#"{"maxWait": "soon"}"#.to_owned(), 400, "no length of time"),
        ("DELETE", "/reserve/x", String::new(), 404, "there is no such reservation"),
    ];
    for (method, path, body, status, reason) in cases {
        let answer = running.ask(method, path, "", &body);
        let shown = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(answer.status == status && shown.contains(reason), "{path}: {status} {shown}");
    }
    // Heads of any size, and values of any bytes.
    let head = format!("X-Real-IP: {}\r\n", "y".repeat(20_000));
    assert_eq!(running.ask("GET", "/check", &head, "").status, 431);
    let mut stream = running.connect();
    stream
        .write_all(b"GET /check HTTP/1.1\r\nConnection: close\r\nX-Real-IP: \xff\xfe%00\r\n\r\n")
        .unwrap();
    assert_eq!(read(&mut stream).status, 200);
    assert_eq!(running.one("user", "x").json()["statuses"][0]["limitRemaining"], 2);
    assert!(running.metric("limiter_request_refused_total{reason=\"too_long\"}") == 1);
    running.server.stop().unwrap();
}

/// More hits than the limit ever takes: no reset, which would be a time to come back.
#[test]
fn what_never_passes_has_no_reset_and_what_would_pass() {
    let running = running(100);
    let mut asked = json!({
        "domain": "auth", "hitsAddend": 4,
        "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}],
    });
    let status = json!({
        "code": "OVER_LIMIT", "currentLimit": {"requestsPerUnit": 3, "unit": "MINUTE"},
        "limitRemaining": 3,
    });
    let over = running.json(&asked);
    assert_eq!((over.status, over.json()["statuses"][0].clone()), (429, status.clone()));
    asked["maxWait"] = json!("1h");
    let mut never = running.ask("POST", "/reserve", "", &asked.to_string()).json();
    assert_eq!(never["statuses"][0].take(), status);
    assert_eq!((never["allowed"].clone(), never["wait"].clone()), (json!(false), Value::Null));
    running.server.stop().unwrap();
}

#[test]
fn a_reservation_waits_and_is_given_back() {
    let running = running(100);
    let reserve = |fields: Value| {
        let mut asked = json!({
            "domain": "auth", "descriptors": [{"entries": [{"key": "send", "value": "1"}]}],
        });
        asked.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        running.ask("POST", "/reserve", "", &asked.to_string())
    };
    let first = reserve(json!({"maxWait": "0s"}));
    assert_eq!((first.status, first.json()["wait"].clone()), (200, json!("0s")));
    let second = reserve(json!({"maxWait": "10s"})).json();
    assert_eq!(second["allowed"], true);
    let path = format!("/reserve/{}", second["reservation"].as_str().unwrap());
    assert_eq!(running.ask("DELETE", &path, "", "").json(), json!({"returned": true}));
    assert_eq!(running.ask("DELETE", &path, "", "").status, 404);
    // Many at once: the last of them waits longest.
    let long = reserve(json!({"maxWait": "10s", "hitsAddend": 1})).json();
    assert_eq!(long["allowed"], true);
    let never = reserve(json!({"maxWait": "0.001s", "hitsAddend": 5}));
    assert_eq!((never.status, never.json()["allowed"].clone()), (429, json!(false)));
    assert_eq!(never.json()["wait"], Value::Null, "five at once never pass");
    assert_eq!(reserve(json!({"maxWait": "2h", "wait": true})).status, 400);
    // Held back until then: what comes after it is free to go at once.
    let held = reserve(json!({"max_wait": "10s", "wait": true}));
    assert_eq!((held.status, held.json()["allowed"].clone()), (200, json!(true)));
    assert_eq!(held.json()["wait"], "0s", "it has waited");
    let reset = held.json()["statuses"][0]["durationUntilReset"].clone();
    assert_eq!(reset, "0.100s", "as of when it may go, however long that took");
    running.server.stop().unwrap();
}

/// Answers that are held back take at most half of the connections of a thread.
#[test]
fn answers_that_are_held_back_keep_nobody_out() {
    let running = running(8);
    let asked = json!({
        "domain": "auth", "maxWait": "60s", "wait": true,
        "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}],
    })
    .to_string();
    let take = |patience: Duration| {
        let mut stream = running.connect();
        stream.set_read_timeout(Some(patience)).unwrap();
        let length = asked.len();
        write!(
            stream,
            "POST /reserve HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{asked}"
        )
        .unwrap();
        stream
    };
    let status = |stream: &mut TcpStream| {
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).ok()?;
        Some(String::from_utf8_lossy(&begin).into_owned())
    };
    let patience = Duration::from_secs(30);
    for _ in 0..3 {
        assert_eq!(status(&mut take(patience)).as_deref(), Some("HTTP/1.1 200"));
    }
    // Four wait for 20 s and longer.
    let held: Vec<TcpStream> = (0..4).map(|_| take(patience)).collect();
    // A request that comes once they wait is answered at once; an earlier one is held back itself.
    let refused = (0..600).find_map(|_| status(&mut take(Duration::from_millis(100))));
    assert_eq!(refused.as_deref(), Some("HTTP/1.1 429"));
    assert_eq!(running.one("user", "bob").status, 200);
    drop(held);
    running.server.stop().unwrap();
}

/// Rules whose keys and values have spaces or `=` in them are other rules than those that would be
/// written so without: each has lines of its own at `/metrics`, and counts for itself.
#[test]
fn rules_of_other_keys_have_other_lines() {
    let rules = "domain: auth\ndescriptors:\n  - {key: a b, rate_limit: {rate: 1/day}}\n  - key: a\n    \
                 descriptors: [{key: b, rate_limit: {rate: 2/day}}]\n  - {key: a=b, rate_limit: \
                 {rate: 3/day}}\n  - {key: a, value: b, rate_limit: {rate: 4/day}}\n  - {key: user, \
                 rate_limit: {rate: 1/day}, detailed_metric: true}\n";
    let running = started(|options| fs::write(&options.rules[0], rules).unwrap());
    for value in ["\u{1b}[2J", "\\u{1b}[2J", "\0"] {
        assert_eq!(running.one("user", value).status, 200);
    }
    assert_eq!(running.one("a=b", "x").status, 200);
    let page = running.ask("GET", "/metrics", "", "").body;
    let series = |line: &str| line.rsplit_once(' ').map(|(series, _)| series.to_owned());
    let mut all: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).map(series).collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "{page}");
    assert!(page.lines().all(|line| !line.contains(char::is_control)), "{page:?}");
    for (rule, within) in [(r#"\"a b\""#, 0), ("a b", 0), (r#"\"a=b\""#, 1), ("a=b", 0)] {
        let labels = format!("domain=\"auth\",rule=\"{rule}\",name=\"\",became=\"within\"");
        let metric = format!("limiter_request_descriptors_total{{{labels}}}");
        assert_eq!(running.metric(&metric), within, "{rule}");
    }
    running.server.stop().unwrap();
}

#[test]
fn clients_that_hold_connections_keep_nobody_out() {
    let running = running(4);
    let mut slow: Vec<TcpStream> = (0..20).map(|_| running.connect()).collect();
    for stream in &mut slow {
        // A head that does not end. The server may have ended it already.
        drop(stream.write_all(b"POST /json HTTP/1.1\r\nX: "));
    }
    assert_eq!(running.one("user", "x").status, 200);
    assert!(running.metric("limiter_request_connections_evicted_total") >= 16);
    assert!(running.metric("limiter_request_connections") <= 4);
    running.server.stop().unwrap();
}

#[test]
fn rules_are_read_again_and_bad_ones_refused() {
    let running = running(100);
    let file = running.directory.path().join("r.yaml");
    running.one("user", "ann");
    fs::write(&file, "domain: [\n").unwrap();
    assert!(!running.server.reload());
    assert_eq!(running.one("user", "ann").json()["statuses"][0]["limitRemaining"], 1);
    fs::write(&file, RULES.replace("rate: 3/min", "rate: 30/min")).unwrap();
    assert!(running.server.reload());
    let status = running.one("user", "ann").json()["statuses"][0].clone();
    assert_eq!(status["currentLimit"]["requestsPerUnit"], 30);
    assert_eq!(status["limitRemaining"], 0, "what was available");
    assert_eq!(running.metric("limiter_request_reloads_total{result=\"failed\"}"), 1);
    running.server.stop().unwrap();
}

#[test]
fn a_stop_answers_what_is_under_way() {
    let running = running(100);
    let path = running.directory.path().join("s");
    let send = |stream: &mut dyn Write| {
        let body = json!({
            "domain": "auth", "maxWait": "30s", "wait": true,
            "descriptors": [{"entries": [{"key": "send", "value": "1"}]}],
        });
        let body = body.to_string();
        let length = body.len();
        write!(
            stream,
            "POST /reserve HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
    };
    // The first goes at once; the others wait until after the stop.
    let mut streams: Vec<UnixStream> =
        (0..6).map(|_| UnixStream::connect(&path).unwrap()).collect();
    for stream in &mut streams {
        send(stream);
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while running.metric("limiter_requests_total{code=\"ok\"}") < 6 {
        assert!(Instant::now() < deadline, "they were not asked");
    }
    running.server.stop().unwrap();
    assert!(!path.exists());
    for mut stream in streams {
        assert_eq!(read(&mut stream).status, 200);
    }
}

#[test]
fn metrics_are_those_of_prometheus() {
    let running = running(100);
    for _ in 0..4 {
        running.one("user", "a \"b\" \\ \n c");
    }
    running.json(&json!({"domain": "other", "descriptors": [{"entries": [{"key": "k"}]}]}));
    let page = running.ask("GET", "/metrics", "", "");
    assert!(page.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    let lines = page.body.lines().map(|line| Ok(line.to_owned()));
    let scrape = prometheus_parse::Scrape::parse(lines).unwrap();
    let value = |name: &str, label: (&str, &str), became: &str| {
        let found = scrape.samples.iter().find(|sample| {
            sample.metric == name
                && sample.labels.get(label.0) == Some(label.1)
                && sample.labels.get("became") == Some(became)
        });
        found.map(|sample| sample.value.clone())
    };
    let counter = |number| Some(prometheus_parse::Value::Counter(number));
    let descriptors = "limiter_request_descriptors_total";
    assert_eq!(value(descriptors, ("rule", "user"), "within"), counter(3.0));
    assert_eq!(value(descriptors, ("rule", "user"), "over"), counter(1.0));
    // That parser does not take escapes back.
    let of_value = r#"rule="user",value="user=a \"b\" \\ \n c",became="within"} 3"#;
    assert!(page.body.contains(of_value), "{}", page.body);
    assert_eq!(running.metric("limiter_request_unknown_domains_total"), 1);
    assert_eq!(running.ask("GET", "/healthcheck", "", "").body, "OK\n");
    running.server.stop().unwrap();
}

#[test]
fn what_cannot_be_served_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("r.yaml");
    fs::write(&rules, "domain: d\ndescriptors: [{key: k}]\n").unwrap();
    let options = Options {
        rules: vec![rules.clone(), directory.path().join("none.yaml")],
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        resp: Vec::new(),
        max_keys: 1,
        max_connections: 1,
        threads: 1,
        response_headers: false,
        daemon: None,
        cluster: None,
        deadline: DEFAULT_DEADLINE,
        max_waiting: 100,
        state: None,
    };
    let error = Server::start(&options).unwrap_err();
    assert!(!error.is_failure());
    let lines = error.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("r.yaml:2:15: rate_limit is missing"), "{lines:?}");
    assert!(lines[1].contains("none.yaml: cannot read the rule file"), "{lines:?}");
    fs::write(&rules, RULES).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = Listen::Tcp(taken.local_addr().unwrap());
    let options = Options { rules: vec![rules], listen: vec![listen], ..options };
    let error = Server::start(&options).unwrap_err();
    assert!(matches!(error, ServeError::Listen { .. }), "{error}");
}

#[test]
fn a_snapshot_that_cannot_be_written_is_counted_and_the_one_before_stays() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().to_owned();
    let running = started(|options| {
        let every = Duration::from_hours(1);
        options.state = Some(StateOptions { directory: path.clone(), every });
    });
    let count = |result: &str| {
        let page = running.ask("GET", "/metrics", "", "").body;
        let begins = format!("limiter_request_saves_total{{result=\"{result}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&begins));
        line.unwrap().parse::<u32>().unwrap()
    };
    assert!(running.server.save());
    let before = fs::read(path.join("snapshot")).unwrap();
    fs::create_dir(path.join("snapshot.new")).unwrap();
    assert!(!running.server.save());
    assert_eq!((count("ok"), count("failed")), (1, 1));
    assert_eq!(fs::read(path.join("snapshot")).unwrap(), before);
    fs::remove_dir(path.join("snapshot.new")).unwrap();
    running.server.stop().unwrap();
    // At the end another one is written: its moment is another.
    assert!(fs::read(path.join("snapshot")).unwrap() != before);
}

/// Values of `remote_address` that are no addresses are counted, by the rule that gives each of
/// them a bucket; addresses are not, in whatever form.
#[test]
fn values_that_are_no_address_are_counted_by_their_rule() {
    let running = running(100);
    let metric = "limiter_request_no_address_total{domain=\"auth\",rule=\"form=login \
                  remote_address\",name=\"logins\"}";
    for source in ["192.0.2.1", "192.0.2.1:4000", "::ffff:192.0.2.2", "2001:db8::1"] {
        assert_eq!(running.check(source, "/check/auth").status, 200);
    }
    let page = running.ask("GET", "/metrics", "", "").body;
    assert!(!page.contains("limiter_request_no_address_total{"), "{page}");
    // Each has a bucket of its own, of two requests.
    let strange = ["192.0.2.1, 198.51.100.1", "unknown", "client"];
    for source in strange {
        for _ in 0..2 {
            assert_eq!(running.check(source, "/check/auth").status, 200, "{source}");
        }
    }
    assert_eq!(running.metric(metric), 6);
    running.server.stop().unwrap();
}
