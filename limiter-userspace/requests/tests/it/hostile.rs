//! Clients of HTTP/2 that do harm: frames written by hand.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::running::{Running, running};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The headers of a request of gRPC, by the indexes of HPACK's static table.
fn headers() -> Vec<u8> {
    let text = |prefix: &[u8], text: &str| {
        let mut bytes = prefix.to_vec();
        bytes.push(u8::try_from(text.len()).unwrap());
        bytes.extend(text.as_bytes());
        bytes
    };
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    [
        vec![0x83, 0x86],
        text(&[0x04], path),
        text(&[0x01], "x"),
        text(&[0x0f, 0x10], "application/grpc"),
    ]
    .concat()
}

struct Raw(TcpStream);

impl Raw {
    fn new(running: &Running) -> Self {
        let mut raw = Self(running.connect());
        raw.send(PREFACE);
        raw.send(&frame(SETTINGS, 0, 0, &[]));
        raw
    }

    /// Sends bytes; false if the server ended the connection.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// The next frame: its kind and its payload; `None` at the end.
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut payload).ok()?;
        Some((head[3], payload))
    }

    /// Reads until there is a frame of a kind; false if the connection ends before.
    fn reads(&mut self, wanted: u8) -> bool {
        std::iter::from_fn(|| self.next()).any(|(kind, _)| kind == wanted)
    }
}

fn stream(number: u32) -> u32 {
    2 * number + 1
}

#[test]
fn http2_clients_that_hold_connections_keep_nobody_out() {
    let running = running(4);
    let half = &PREFACE[..9];
    let settings = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let beginnings: [&[u8]; 4] = [b"", half, PREFACE, &settings];
    let held: Vec<TcpStream> = (0..20)
        .map(|number| {
            let mut stream = running.connect();
            // The server may have ended it already.
            drop(stream.write_all(beginnings[number % 4]));
            stream
        })
        .collect();
    assert_eq!(running.one("user", "x").status, 200);
    assert!(running.metric("limiter_request_connections_evicted_total") >= 16);
    assert!(running.metric("limiter_request_connections") <= 4);
    drop(held);
    running.server.stop().unwrap();
}

/// Clients that begin a body or a stream, and go no further, make room for those that ask; a client
/// that keeps its connection has it.
#[test]
fn bodies_that_do_not_come_keep_nobody_out() {
    let running = running(6);
    let mut kept = running.connect();
    let mut asks = || {
        write!(kept, "GET /healthcheck HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        kept.read_exact(&mut answer).unwrap();
        while !answer.ends_with(b"OK\n") {
            answer.rotate_left(1);
            kept.read_exact(&mut answer[11..]).unwrap();
        }
    };
    asks();
    let body = b"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
    let streams: Vec<u8> = (0..20)
        .flat_map(|number| frame(HEADERS, END_HEADERS, stream(number), &headers()))
        .collect();
    let streams = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &streams].concat();
    let mut held = Vec::new();
    for number in 0..30 {
        let mut stream = running.connect();
        let begins: &[u8] = if number % 2 == 0 { body } else { &streams };
        // The server may have ended it already.
        drop(stream.write_all(begins));
        held.push(stream);
        assert_eq!(running.one("user", &number.to_string()).status, 200);
        asks();
    }
    assert!(running.metric("limiter_request_connections_evicted_total") >= 25);
    running.server.stop().unwrap();
}

#[test]
fn a_message_that_does_not_come_is_given_up() {
    let running = running(100);
    let mut raw = Raw::new(&running);
    raw.send(&frame(HEADERS, END_HEADERS, stream(0), &headers()));
    // A message of 100 bytes, of which four come.
    raw.send(&frame(DATA, 0, stream(0), &[0, 0, 0, 0, 100, 1, 2, 3, 4]));
    assert!(raw.reads(HEADERS), "an answer");
    assert_eq!(running.metric("limiter_request_refused_total{reason=\"too_slow\"}"), 1);
    running.server.stop().unwrap();
}

#[test]
fn requests_of_one_connection_at_once_are_bounded() {
    let running = running(100);
    let mut raw = Raw::new(&running);
    for number in 0..300 {
        raw.send(&frame(HEADERS, END_HEADERS, stream(number), &headers()));
    }
    assert!(raw.reads(RESET), "one of them is refused");
    assert_eq!(running.one("user", "x").status, 200, "others are answered meanwhile");
    running.server.stop().unwrap();
}

#[test]
fn floods_of_frames_end_their_connection_and_no_other() {
    let running = running(100);
    let mut other = running.connect();
    // Requests that are taken back at once.
    let mut resets = Raw::new(&running);
    for number in 0..100_000 {
        let request = frame(HEADERS, END_HEADERS, stream(number), &headers());
        let reset = frame(RESET, 0, stream(number), &8_u32.to_be_bytes());
        if !resets.send(&[request, reset].concat()) {
            break;
        }
    }
    // A head that does not end.
    let mut heads = Raw::new(&running);
    heads.send(&frame(HEADERS, 0, stream(0), &headers()));
    let more = frame(CONTINUATION, 0, stream(0), &[0x0f, 0x10, 1, b'x'].repeat(1000));
    let ended = (0..10_000).any(|_| !heads.send(&more));
    assert!(ended, "40 MB of a head were taken");
    // A head that is too long.
    let mut long = Raw::new(&running);
    let more = [headers(), [0x0f, 0x10, 1, b'x'].repeat(4000)].concat();
    long.send(&frame(HEADERS, END_HEADERS, stream(0), &more));
    let refused = |kind| matches!(kind, HEADERS | RESET | GO_AWAY);
    assert!(std::iter::from_fn(|| long.next()).any(|(kind, _)| refused(kind)));
    // Pings without end, which are answered one by one or not at all.
    let mut pings = Raw::new(&running);
    pings.0.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let ping = frame(PING, 0, 0, &[7; 8]).repeat(1000);
    let sent = (0..1000).take_while(|_| pings.send(&ping)).count();
    assert!(sent < 1000, "a client that does not read is read no more");
    // Not HTTP at all.
    let mut junk = running.connect();
    drop(junk.write_all(&[PREFACE, &[0xff; 10_000]].concat()));
    drop(junk.read_to_end(&mut Vec::new()));
    // The other ones go on.
    write!(other, "GET /healthcheck HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(crate::running::read(&mut other).status, 200);
    let read: Vec<u8> = std::iter::from_fn(|| resets.next()).map(|(kind, _)| kind).collect();
    assert!(read.is_empty() || read.contains(&GO_AWAY), "{read:?}");
    running.server.stop().unwrap();
}
