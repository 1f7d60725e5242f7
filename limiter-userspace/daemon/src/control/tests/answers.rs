//! Answers other than a single JSON document.

use super::*;

#[test]
fn a_check_is_reported_in_headers() {
    let running = Running::start(Bounds::default(), None);
    let head = |query: &str| {
        let request = format!("GET /v1/check?{query} HTTP/1.1\r\nhost: x\r\n\r\n");
        let answer = running.raw(request.as_bytes());
        answer.split_once("\r\n\r\n").unwrap().0.to_owned()
    };
    let over = head("address=192.0.2.1");
    assert!(over.starts_with("HTTP/1.1 429 "), "{over}");
    for header in [
        "x-ratelimit-limit: 9",
        "x-ratelimit-remaining: 3",
        "x-ratelimit-reset: 2",
        "retry-after: 1",
    ] {
        assert!(over.lines().any(|line| line == header), "{header}: {over}");
    }
    let within = head("address=192.0.2.1&length=1");
    assert!(within.starts_with("HTTP/1.1 200 ") && !within.contains("retry-after"), "{within}");
    for wrong in ["", "address=x&length=y", "address=x&size=1"] {
        assert!(head(wrong).starts_with("HTTP/1.1 400 "), "{wrong}");
    }
    running.stop();
}

#[test]
fn metrics_are_text() {
    let running = Running::start(Bounds::default(), Some(someone_else));
    let answer = running.raw(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\na 1\n"), "{answer}");
    let kind = "content-type: text/plain; version=0.0.4; charset=utf-8";
    assert!(answer.lines().any(|line| line == kind), "{answer}");
    running.stop();
}
