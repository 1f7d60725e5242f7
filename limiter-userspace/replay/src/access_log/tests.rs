use super::*;

fn facts(line: &str, names: &[(&str, &str)], wanted: &[&str]) -> (u64, Vec<Option<String>>) {
    let names: Vec<_> =
        names.iter().map(|(name, field)| ((*name).to_owned(), (*field).to_owned())).collect();
    let logged = parse(line.as_bytes(), &names).unwrap();
    let found = wanted.iter().map(|name| logged.get(name).map(Cow::into_owned)).collect();
    (logged.nanos, found)
}

fn some(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

/// 2026-11-29 12:00:00 UTC.
const NOON: u64 = 1_795_953_600_000_000_000;

#[test]
fn lines_of_nginx_and_apache_are_read() {
    let wanted = ["client", "user", "method", "path", "bytes", "referer", "agent"];
    let line = r#"192.0.2.7 - ann [29/Nov/2026:13:00:00 +0100] "GET /a?b=1 HTTP/1.1" 200 512 "https://example.org/" "curl/8.0 \"x\" y""#;
    let expected = some(&[
        "192.0.2.7",
        "ann",
        "GET",
        "/a?b=1",
        "512",
        "https://example.org/",
        r#"curl/8.0 \"x\" y"#,
    ]);
    assert_eq!(facts(line, &[], &wanted), (NOON, expected));
    // The common format, of which nothing is known but what is there.
    let line = r#"2001:db8::7 - - [29/Nov/2026:12:00:00 +0000] "POST /login HTTP/2.0" 429 -"#;
    let (nanos, found) = facts(line, &[], &["client", "user", "path", "bytes", "agent"]);
    assert_eq!(nanos, NOON);
    assert_eq!(
        found,
        [Some("2001:db8::7"), None, Some("/login"), None, None].map(|of| of.map(str::to_owned))
    );
    // With the host before; a user with a space.
    let line = r#"example.org:443 192.0.2.7 - ann lee [29/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-""#;
    let found = facts(line, &[], &["x-forwarded-host", "x-real-ip", "user"]).1;
    assert_eq!(found, some(&["example.org", "192.0.2.7", "ann lee"]));
    // A TLS greeting on a plain port is a request of its client, too.
    let line = r#"192.0.2.7 - - [29/Nov/2026:12:00:00 +0000] "\x16\x03\x01" 400 150 "-" "-""#;
    assert_eq!(facts(line, &[], &["client", "path"]).1, [Some("192.0.2.7".to_owned()), None]);
}

#[test]
fn json_lines_of_proxies_are_read() {
    let wanted = ["client", "method", "path", "host"];
    for (line, nanos, expected) in [
        // Caddy.
        (
            r#"{"ts":1795953600.25,"request":{"remote_ip":"192.0.2.7","client_ip":"192.0.2.8","method":"GET","host":"example.org","uri":"/a"},"status":200}"#,
            NOON + 250_000_000,
            ["192.0.2.8", "GET", "/a", "example.org"],
        ),
        // Envoy, by the names of its documentation.
        (
            r#"{"start_time":"2026-11-29T12:00:00.250Z","downstream_remote_address":"192.0.2.7:4711","method":"GET","path":"/a","authority":"example.org"}"#,
            NOON + 250_000_000,
            ["192.0.2.7:4711", "GET", "/a", "example.org"],
        ),
        // Traefik.
        (
            r#"{"ClientHost":"192.0.2.7","RequestMethod":"GET","RequestPath":"/a","RequestHost":"example.org","StartUTC":"2026-11-29T12:00:00Z","time":"2026-11-29T12:00:01Z"}"#,
            NOON,
            ["192.0.2.7", "GET", "/a", "example.org"],
        ),
        // nginx, by its variables.
        (
            r#"{"msec":"1795953600.250","remote_addr":"192.0.2.7","request_method":"GET","request_uri":"/a","host":"example.org"}"#,
            NOON + 250_000_000,
            ["192.0.2.7", "GET", "/a", "example.org"],
        ),
    ] {
        let (read, found) = facts(line, &[], &wanted);
        assert!(read.abs_diff(nanos) < 1000, "{line}: {read}");
        assert_eq!(found, some(&expected), "{line}");
    }
}

#[test]
fn a_named_field_takes_the_place_of_what_is_known() {
    let line = r#"{"when":1795953600000,"request":{"remote_ip":"192.0.2.7","headers":{"X-Api-Key":["k1","k2"],"Cf-Connecting-Ip":["203.0.113.9"]}}}"#;
    let names = [
        ("time", "when"),
        ("client", "request.headers.Cf-Connecting-Ip"),
        ("x-api-key", "request.headers.X-Api-Key"),
    ];
    let (nanos, found) = facts(line, &names, &["client", "x-real-ip", "x-api-key", "x-tier"]);
    assert_eq!(nanos, NOON);
    let [ip, key] = ["203.0.113.9", "k1"].map(|text| Some(text.to_owned()));
    assert_eq!(found, [ip.clone(), ip, key, None]);
}

#[test]
fn addresses_may_have_ports_brackets_and_zones() {
    for (text, expected) in [
        ("192.0.2.7", Some("192.0.2.7")),
        ("192.0.2.7:80", Some("192.0.2.7")),
        ("[2001:db8::7]:80", Some("2001:db8::7")),
        ("[2001:db8::7]", Some("2001:db8::7")),
        ("fe80::1%eth0", Some("fe80::1")),
        ("::ffff:192.0.2.7", Some("192.0.2.7")),
        ("example.org", None),
        ("", None),
    ] {
        assert_eq!(address(text), expected.map(|text| text.parse().unwrap()), "{text}");
    }
}

#[test]
fn what_is_no_request_has_a_reason() {
    for (line, expected) in [
        ("", NoRequest::Unknown),
        ("{\"ts\": 1", NoRequest::Unknown),
        ("{}", NoRequest::NoTime),
        ("{\"ts\": -1}", NoRequest::NoTime),
        ("192.0.2.7 - - [29/Foo/2026:12:00:00 +0000] \"GET / HTTP/1.1\" 200 5", NoRequest::NoTime),
        ("192.0.2.7 - - [29/Nov/2026:12:00:00 +0000] \"GET / HT", NoRequest::Unknown),
    ] {
        assert_eq!(parse(line.as_bytes(), &[]).unwrap_err(), expected, "{line}");
    }
    assert_eq!(parse(b"\xff", &[]).unwrap_err(), NoRequest::NoText);
}

#[test]
fn a_long_line_takes_no_more_memory_than_others() {
    let text = [b"a\n".to_vec(), vec![b'x'; 1 << 20], b"\nb".to_vec()].concat();
    let (mut input, mut line) = (io::BufReader::new(&*text), Vec::new());
    let mut lines = Vec::new();
    loop {
        let read = next_line(&mut input, &mut line).unwrap();
        if read == 0 {
            break;
        }
        lines.push((read, line.len()));
    }
    assert_eq!(lines, [(2, 2), ((1 << 20) + 1, MAX_LINE + 1), (1, 1)]);
}

proptest::proptest! {
    /// No line stops the reading.
    #[test]
    fn any_line_is_read_or_refused(line in "[ -~\u{e4}]{0,80}", json in proptest::bool::ANY) {
        let line = if json { format!("{{{line}}}") } else { line };
        let _ = parse(line.as_bytes(), &[]).map(|logged| logged.source());
    }
}
