//! The protocol of Redis, as clients speak it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use limiter_requests::{Limiter, Listen, NotThrottled, Server, StateOptions, Throttle, Throttled};
use proptest::prelude::*;
use redis::{Cmd, ProtocolVersion, RedisConnectionInfo, Value, cmd};
use serde_json::json;
use smallvec::smallvec;

use crate::running::{Running, started};
use crate::support::{SECOND, at, limiter};

/// A server, and where it speaks the protocol.
struct Door {
    running: Running,
    address: SocketAddr,
}

fn address(server: &Server) -> SocketAddr {
    let Listen::Tcp(address) = server.resp_addresses()[0].clone() else { panic!("no address") };
    address
}

fn door(change: impl FnOnce(&mut limiter_requests::Options)) -> Door {
    let running = started(|options| {
        let Listen::Unix(path) = &options.listen[1] else { panic!("no path") };
        let path = path.with_file_name("resp");
        options.resp = vec!["127.0.0.1:0".parse().unwrap(), Listen::Unix(path)];
        change(options);
    });
    let address = address(&running.server);
    Door { running, address }
}

impl Door {
    fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// A connection of a client library.
    fn client(&self) -> redis::Connection {
        let client = redis::Client::open(format!("redis://{}", self.address)).unwrap();
        client.get_connection().unwrap()
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn packed(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}

/// Sends bytes, and reads as many as are expected.
fn exchange(stream: &mut TcpStream, sent: &[u8], expected: &str) {
    stream.write_all(sent).unwrap();
    let mut read = vec![0; expected.len()];
    stream.read_exact(&mut read).unwrap();
    assert_eq!(String::from_utf8_lossy(&read), expected, "{}", sent.escape_ascii());
}

/// What comes until the end of a connection.
fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // An end with bytes that nobody read is a reset.
    drop(stream.read_to_end(&mut text));
    String::from_utf8(text).unwrap()
}

fn line(text: &str) -> Cmd {
    let mut words = text.split(' ');
    let mut command = cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    command
}

fn asked(client: &mut redis::Connection, text: &str) -> [i64; 5] {
    line(text).query(client).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Asks, and compares; times may be up to ten seconds shorter.
fn expect(client: &mut redis::Connection, text: &str, expected: [i64; 5]) {
    let mut answer = asked(client, text);
    let times = answer.iter_mut().zip(expected).skip(3).filter(|(_, of)| *of > 10);
    for (time, expected) in times {
        if (expected - 10..=expected).contains(time) {
            *time = expected;
        }
    }
    assert_eq!(answer, expected, "{text}");
}

fn refused(client: &mut redis::Connection, text: &str) -> String {
    line(text).query::<Value>(client).unwrap_err().to_string()
}

#[test]
fn commands_of_clients_that_connect_are_answered() {
    let door = door(|_| {});
    let mut stream = door.connect();
    for (sent, expected) in [
        ("PING", "+PONG\r\n"),
        ("ping hello", "$5\r\nhello\r\n"),
        ("ECHO hello", "$5\r\nhello\r\n"),
        ("INFO", "$26\r\n# Persistence\r\nloading:0\r\n\r\n"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("client setname me", "+OK\r\n"),
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        ("COMMAND DOCS", "*0\r\n"),
        ("COMMAND", "*0\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range: there is only 0\r\n"),
        ("GET x", "-ERR unknown command 'GET'\r\n"),
        (
            "CLIENT KILL x",
            "-ERR unknown subcommand of CLIENT, or wrong number of arguments: 'KILL'\r\n",
        ),
        (
            "CL.THROTTLE x",
            "-ERR wrong number of arguments for 'cl.throttle' command: key max_burst count period \
             [quantity]\r\n",
        ),
        ("HELLO 4", "-NOPROTO unsupported protocol version: 2 or 3\r\n"),
        ("HELLO 3 AUTH default x", "-ERR AUTH is not taken: "),
    ] {
        exchange(&mut stream, &packed(sent), expected);
    }
    let mut stream = door.connect();
    for (version, begins) in [("3", "%7\r\n"), ("2", "*14\r\n")] {
        let hello = format!("HELLO {version} SETNAME me");
        exchange(&mut stream, &packed(&hello), &format!("{begins}$6\r\nserver\r\n$7\r\nlimiter"));
        exchange(&mut stream, &packed("QUITS"), "");
        let proto = format!("$5\r\nproto\r\n:{version}\r\n");
        let mut seen = String::new();
        while !seen.ends_with("-ERR unknown command 'QUITS'\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            seen.push(char::from(byte[0]));
        }
        assert!(seen.contains(&proto), "{seen}");
    }
    exchange(&mut stream, &packed("HELLO 3"), "%7\r\n");
    stream.write_all(&[packed("CLIENT GETNAME"), packed("QUIT"), packed("PING")].concat()).unwrap();
    assert!(rest(&mut stream).ends_with("modules\r\n*0\r\n$2\r\nme\r\n+OK\r\n"), "no more");
    // Over a socket in the file system, too.
    let mut stream = UnixStream::connect(door.running.directory.path().join("resp")).unwrap();
    stream.write_all(&[packed("PING"), packed("QUIT")].concat()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "+PONG\r\n+OK\r\n");
    assert_eq!(door.running.metric("limiter_request_refused_total{reason=\"path\"}"), 4);
    door.running.server.stop().unwrap();
}

/// The example of redis-cell's page, a thousand times slower; throttlecrab's name for the same.
#[test]
fn throttle_answers_as_redis_cell_and_throttlecrab_do() {
    let door = door(|_| {});
    let mut client = door.client();
    for (command, expected) in [
        ("CL.THROTTLE user123 15 30 60000 1", [0, 16, 15, -1, 2000]),
        ("cl.throttle user123 15 30 60000 15", [0, 16, 0, -1, 32_000]),
        ("CL.THROTTLE user123 15 30 60000", [1, 16, 0, 2000, 32_000]),
        ("CL.THROTTLE user123 15 30 60000 0", [0, 16, 0, -1, 32_000]),
        // More than ever passes.
        ("CL.THROTTLE other 15 30 60000 17", [1, 16, 16, -1, 0]),
        // Allowed or not comes first, and what resets before what to wait.
        ("THROTTLE user123 16 30 60000", [0, 16, 0, 32_000, 2000]),
        ("THROTTLE third 16 30 60000", [1, 16, 15, 2000, 0]),
        ("THROTTLE third 16 30 60000 17", [0, 16, 15, 2000, -1]),
    ] {
        expect(&mut client, command, expected);
    }
    for (command, error) in [
        ("CL.THROTTLE x -1 30 60", "max_burst is not an integer from 0 to"),
        ("THROTTLE x 0 30 60", "max_burst is not an integer from 1 to"),
        ("CL.THROTTLE x 15 0 60", "count is not an integer from 1 to"),
        ("CL.THROTTLE x 15 30 1.5", "period is not an integer from 1 to"),
        ("CL.THROTTLE x 15 30 60 -1", "quantity is not an integer from 0 to"),
        ("CL.THROTTLE x 9223372036854775807 30 60", "from 0 to 9223372036854775806"),
        ("CL.THROTTLE x 15 30 31622401", "a period of 31622401 s: write 1 to 31622400"),
        ("CL.THROTTLE x 15 320000001 1", "faster than can be held to 1 %"),
        ("CL.THROTTLE x 100000000 1 60", "takes more than 2 years to refill"),
    ] {
        let said = refused(&mut client, command);
        assert!(said.contains(error), "{command}: {said}");
    }
    let count = |became: &str| {
        door.running.metric(&format!(
            "limiter_request_descriptors_total{{domain=\"(commands)\",rule=\"CL.THROTTLE\",\
             name=\"\",became=\"{became}\"}}"
        ))
    };
    assert_eq!((count("within"), count("over")), (4, 4));
    assert_eq!(door.running.metric("limiter_requests_total{code=\"over_limit\"}"), 4);
    assert_eq!(door.running.metric("limiter_request_refused_total{reason=\"request\"}"), 9);
    door.running.server.stop().unwrap();
}

/// An exact bucket. Its unit of time is a `count`th of a nanosecond, so that the cost of a hit is a
/// whole number.
struct Exact {
    throttle: Throttle,
    full_at: u128,
}

#[derive(Debug, PartialEq, Eq)]
struct Expected {
    over: bool,
    remaining: u128,
    reset: u128,
    wait: Option<u128>,
}

impl Exact {
    fn new(throttle: Throttle) -> Self {
        Self { throttle, full_at: 0 }
    }

    /// What is owed after so many hits more, less what may be; in the unit of time.
    fn over(&self, now: u64, hits: u64) -> i128 {
        let Throttle { burst, count, period } = self.throttle;
        let (each, now) = (i128::from(period * SECOND), i128::from(now) * i128::from(count));
        let owed = (i128::try_from(self.full_at).unwrap() - now).max(0);
        owed + each * (i128::from(hits) - i128::from(burst))
    }

    fn charge(&mut self, now: u64, hits: u64) {
        let Throttle { count, period, .. } = self.throttle;
        let now = u128::from(now) * u128::from(count);
        self.full_at = self.full_at.max(now) + u128::from(period * SECOND) * u128::from(hits);
    }

    fn ask(&mut self, now: u64, hits: u64) -> Expected {
        let Throttle { burst, count, period } = self.throttle;
        let wait = u128::try_from(self.over(now, hits)).unwrap_or(0);
        let over = hits > 0 && wait > 0;
        if !over {
            self.charge(now, hits);
        }
        let owed = self.full_at.saturating_sub(u128::from(now) * u128::from(count));
        let most = u128::from(burst) * u128::from(period * SECOND);
        Expected {
            over,
            remaining: (most - owed) / u128::from(period * SECOND),
            reset: owed.div_ceil(count.into()),
            wait: (over && hits <= burst).then(|| wait.div_ceil(count.into())),
        }
    }
}

fn throttle(limiter: &Limiter, of: &Throttle, hits: u64, nanos: u64) -> Throttled {
    limiter.throttle(b"key", of, hits, &at(nanos)).unwrap()
}

/// Times between commands, some of them nearly that of a hit, and hits.
fn steps() -> impl Strategy<Value = Vec<(u64, i64, u64)>> {
    let step = (0_u64..4, -2_i64..3, prop::sample::select(vec![0_u64, 1, 1, 1, 2, 3, 9]));
    prop::collection::vec(step, 1..200)
}

fn moments(of: Throttle, steps: Vec<(u64, i64, u64)>) -> impl Iterator<Item = (u64, u64)> {
    let each = of.period * SECOND / of.count;
    let mut now = SECOND;
    steps.into_iter().map(move |(times, more, hits)| {
        now = (now + times * each).saturating_add_signed(if times == 0 { 0 } else { more });
        (now, hits)
    })
}

/// Rates of which a hit takes whole 32nds of a nanosecond.
const WHOLE: [u64; 12] = [1, 2, 5, 8, 10, 64, 100, 125, 3_200, 1_000_000, 32_000_000, 320_000_000];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// All five answers are those of exact arithmetic.
    #[test]
    fn a_throttle_is_exact(
        count in prop::sample::select(WHOLE.to_vec()),
        (period, burst) in (1_u64..100, 1_u64..12),
        steps in steps(),
    ) {
        let of = Throttle { burst, count, period };
        let (limiter, mut exact) = (Limiter::new(10).unwrap(), Exact::new(of));
        for (now, hits) in moments(of, steps) {
            let Throttled { over, left } = throttle(&limiter, &of, hits, now);
            let boot = 3600 * SECOND + now;
            let expected = exact.ask(boot, hits);
            let wait = if over { left.wait.map(u128::from) } else { None };
            let (remaining, reset) = (left.remaining.into(), left.reset.into());
            prop_assert_eq!(Expected { over, remaining, reset, wait }, expected, "at {}", now);
        }
    }

    /// The cost of a hit is rounded up to a 32nd of a nanosecond: no more passes than by exact
    /// arithmetic, and what is refused would have been so as much earlier.
    #[test]
    fn a_throttle_never_lets_more_pass(
        (count, period, burst) in (1_u64..5_000, 1_u64..100, 1_u64..12),
        steps in steps(),
    ) {
        let of = Throttle { burst, count, period };
        let (limiter, mut exact) = (Limiter::new(10).unwrap(), Exact::new(of));
        let mut passed = 0;
        for (now, hits) in moments(of, steps).filter(|(_, hits)| *hits > 0) {
            let boot = 3600 * SECOND + now;
            let slack = i128::from(count) * i128::from(passed / 32 + 1);
            let over = exact.over(boot, hits);
            if throttle(&limiter, &of, hits, now).over {
                prop_assert!(over + slack > 0, "refused at {}: {}", now, over);
            } else {
                prop_assert!(over <= 0, "passed at {}: {}", now, over);
                exact.charge(boot, hits);
                passed += hits;
            }
        }
    }
}

/// What is left stays left, up to the new burst, and comes back at the new rate; as where a rule
/// file changes its limit. In redis-cell the time until all is free stays.
#[test]
fn a_key_with_other_parameters_keeps_what_is_left() {
    let limiter = Limiter::new(10).unwrap();
    let [slow, fast] = [1, 10].map(|count| Throttle { burst: 10, count, period: 1 });
    let small = Throttle { burst: 4, ..slow };
    let left = |of: &Throttle, hits, nanos| {
        let Throttled { over, left } = throttle(&limiter, of, hits, nanos);
        (over, left.remaining, left.reset / 1_000_000)
    };
    assert_eq!(left(&slow, 7, 0), (false, 3, 7000));
    assert_eq!(left(&fast, 1, 0), (false, 2, 800));
    assert_eq!(left(&slow, 0, 0), (false, 2, 8000));
    assert_eq!(left(&small, 0, 0), (false, 2, 2000));
    // A smaller burst in between takes what is more, and back and forth gives nothing.
    assert_eq!(left(&slow, 0, 0), (false, 2, 8000));
    assert_eq!(left(&slow, 3, 0), (true, 2, 8000));
    assert_eq!(left(&small, 0, 9 * SECOND), (false, 4, 0));
}

/// Whatever a rule file calls its domain and its keys.
#[test]
fn keys_of_commands_are_none_of_rule_files() {
    let text = "domain: (commands)\ndescriptors:\n  - {key: CL.THROTTLE, rate_limit: {rate: \
                1/hour, burst: 1}}\n  - {key: k, rate_limit: {rate: 1/hour}}\n";
    let limiter = limiter(text, 100);
    let of = Throttle { burst: 1, count: 1, period: 3600 };
    for key in ["", "k", "x", "CL.THROTTLE"] {
        let asked = limiter_requests::Asked {
            domain: "(commands)",
            descriptors: ["k", "CL.THROTTLE"]
                .map(|name| limiter_requests::Descriptor {
                    entries: smallvec![(name, key)],
                    ..limiter_requests::Descriptor::default()
                })
                .into_iter()
                .collect(),
            hits: 0,
        };
        let detail = limiter_requests::Detail::Decision;
        let answer = limiter.decide(&limiter.rules(), &asked, &at(0), detail).unwrap();
        let throttled = limiter.throttle(key.as_bytes(), &of, 1, &at(0)).unwrap();
        assert_eq!((answer.over, throttled.over), (false, false), "{key}");
        assert!(limiter.throttle(key.as_bytes(), &of, 1, &at(0)).unwrap().over, "{key}");
    }
    // Keys are bytes, of which no two are the same.
    for key in [b"\xff".as_slice(), b"\xfe", b"\xef\xbf\xbd", b"?", b"\xff\xff"] {
        assert!(!limiter.throttle(key, &of, 1, &at(0)).unwrap().over, "{}", key.escape_ascii());
    }
}

#[test]
fn without_room_a_command_is_an_error_and_counted() {
    let door = door(|options| options.max_keys = 2);
    let mut client = door.client();
    for key in ["a", "b"] {
        let command = format!("CL.THROTTLE {key} 1 1 60");
        expect(&mut client, &command, [0, 2, 1, -1, 60]);
    }
    // What only looks, or never passes, needs no room.
    assert_eq!(asked(&mut client, "CL.THROTTLE c 1 1 60 0")[0], 0);
    assert_eq!(asked(&mut client, "CL.THROTTLE c 1 1 60 3")[0], 1);
    let said = refused(&mut client, "CL.THROTTLE c 1 1 60");
    assert!(said.contains("all 2 keys are in use: wait, or give limiter serve a larger"), "{said}");
    expect(&mut client, "CL.THROTTLE a 1 1 60", [0, 2, 0, -1, 120]);
    let metric = "limiter_request_descriptors_total{domain=\"(commands)\",rule=\"CL.THROTTLE\",\
                  name=\"\",became=\"full_refused\"}";
    assert_eq!(door.running.metric(metric), 1);
    assert_eq!(door.running.metric("limiter_request_refused_total{reason=\"no_room\"}"), 1);
    door.running.server.stop().unwrap();
}

#[test]
fn different_limits_of_commands_are_bounded_and_forgotten() {
    let limiter = Limiter::new(1 << 18).unwrap();
    let most = 1 << 16;
    let ask = |number: u64, nanos| {
        let of = Throttle { burst: number, count: 1, period: 1 };
        limiter.throttle(&number.to_le_bytes(), &of, 1, &at(nanos))
    };
    for number in 1..=most {
        assert!(!ask(number, 0).unwrap().over);
    }
    assert_eq!(ask(most + 1, 0), Err(NotThrottled::ManyLimits));
    assert!(ask(1, 0).unwrap().over, "the others go on");
    for _ in 0..3 {
        limiter.sweep(0, 1, &at(2 * SECOND));
    }
    assert_eq!(limiter.keys(), 0);
    assert!(!ask(most + 1, 2 * SECOND).unwrap().over);
}

/// `LIMITER.ASK` decides by rule files, about the same buckets as the other doors.
#[test]
fn ask_decides_as_json_does() {
    let door = door(|_| {});
    let mut client = door.client();
    let ask = "LIMITER.ASK auth user ann";
    expect(&mut client, ask, [0, 3, 2, -1, 20]);
    assert_eq!(door.running.one("user", "ann").json()["statuses"][0]["limitRemaining"], 1);
    expect(&mut client, "LIMITER.ASK auth user ann HITS 2", [1, 3, 1, 20, 40]);
    expect(&mut client, "LIMITER.ASK auth user ann HITS 4", [1, 3, 1, -1, 40]);
    expect(&mut client, ask, [0, 3, 0, -1, 60]);
    assert_eq!(door.running.one("user", "ann").status, 429);
    expect(&mut client, ask, [1, 3, 0, 20, 60]);
    expect(&mut client, "LIMITER.ASK auth user bob HITS 0", [0, 3, 3, -1, 0]);
    expect(&mut client, "LIMITER.ASK auth user bob hits 0", [0, 3, 3, -1, 0]);
    // A transaction does nothing, and says so.
    for (command, error) in [
        ("MULTI", "pipeline(transaction=False)"),
        ("LIMITER.ASK auth user bob", "not done"),
        ("CL.THROTTLE bob 4 5 60", "not done"),
        ("EXEC", "nothing was done"),
        ("EXEC", "there was no MULTI"),
        ("MULTI", "is not taken"),
        ("DISCARD", "nothing was done"),
    ] {
        let said = refused(&mut client, command);
        assert!(said.contains(error), "{command}: {said}");
    }
    expect(&mut client, "LIMITER.ASK auth user bob HITS 0", [0, 3, 3, -1, 0]);
    expect(&mut client, "CL.THROTTLE bob 4 5 60 0", [0, 5, 5, -1, 0]);
    // Two levels, with the check of a proxy.
    let log_in = "LIMITER.ASK auth form login remote_address 192.0.2.1";
    expect(&mut client, log_in, [0, 2, 1, -1, 1800]);
    assert_eq!(door.running.check("192.0.2.1", "/check").status, 200);
    assert_eq!(asked(&mut client, log_in)[0], 1);
    // What nothing limits, what always is, and what no rule is for.
    expect(&mut client, "LIMITER.ASK auth free x", [0, -1, -1, -1, -1]);
    expect(&mut client, "LIMITER.ASK auth never x", [1, 0, 0, -1, -1]);
    expect(&mut client, "LIMITER.ASK auth hits 5", [0, -1, -1, -1, -1]);
    expect(&mut client, "LIMITER.ASK other x y", [0, -1, -1, -1, -1]);
    for (command, error) in [
        ("LIMITER.ASK auth user", "wrong number of arguments"),
        ("LIMITER.ASK auth user ann HITS", "wrong number of arguments"),
        ("LIMITER.ASK auth user ann HITS x", "HITS is not an integer from 0 to"),
        ("LIMITER.ASK  user ann", "domain is missing"),
    ] {
        let said = refused(&mut client, command);
        assert!(said.contains(error), "{command}: {said}");
    }
    // The same text as over gRPC, where it is no UTF-8.
    let odd: [i64; 5] =
        cmd("LIMITER.ASK").arg("auth").arg("user").arg(b"\xff").query(&mut client).unwrap();
    assert_eq!(odd[..3], [0, 3, 2]);
    expect(&mut client, "LIMITER.ASK auth user ?", [0, 3, 1, -1, 40]);
    assert_eq!(door.running.metric("limiter_request_odd_parts_total{part=\"not_utf8\"}"), 1);
    door.running.server.stop().unwrap();
}

/// In both versions of the protocol, in pipelines, and from many connections at once: as many pass
/// as may.
#[test]
fn a_client_library_is_answered_in_pipelines() {
    let door = door(|options| options.threads = 2);
    let askers = (0..8).map(|number| {
        let address = door.address;
        thread::spawn(move || {
            let protocol =
                if number % 2 == 0 { ProtocolVersion::RESP2 } else { ProtocolVersion::RESP3 };
            let info: redis::ConnectionInfo = format!("redis://{address}").parse().unwrap();
            let info =
                info.set_redis_settings(RedisConnectionInfo::default().set_protocol(protocol));
            let mut client = redis::Client::open(info).unwrap().get_connection().unwrap();
            let mut passed = 0;
            for _ in 0..10 {
                let mut pipe = redis::pipe();
                for _ in 0..100 {
                    pipe.cmd("CL.THROTTLE").arg("all").arg(1999).arg(1).arg(3600);
                    pipe.cmd("PING");
                }
                let answers: Vec<([i64; 5], String)> = pipe.query(&mut client).unwrap();
                assert_eq!(answers.len(), 100);
                passed += answers.iter().filter(|([over, ..], _)| *over == 0).count();
            }
            passed
        })
    });
    let askers: Vec<_> = askers.collect();
    let passed: usize = askers.into_iter().map(|asker| asker.join().unwrap()).sum();
    assert_eq!(passed, 2000);
    door.running.server.stop().unwrap();
}

#[test]
fn what_is_no_command_gets_an_error_and_ends_its_connection() {
    let door = door(|_| {});
    let nested = b"*1\r\n".repeat(10_000);
    for (sent, error) in [
        (b"PING\r\n".as_slice(), "expected '*', got 'P': inline commands are not taken"),
        (b"GET / HTTP/1.1\r\n\r\n", "expected '*', got 'G'"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*-1\r\n", "invalid multibulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*2\r\n$4\r\nPING\r\n$536870912\r\n", "invalid bulk length"),
        (&nested, "expected '$', got '*'"),
        (b"*1\r\n$4\r\nPINGS\r\n", "a bulk string is not as long as it says"),
    ] {
        let mut stream = door.connect();
        let whole = [&packed("PING"), sent].concat();
        // The end may come before all is sent.
        drop(stream.write_all(&whole));
        let said = rest(&mut stream);
        let begins = format!("+PONG\r\n-ERR Protocol error: {error}");
        // A reset for what was not read may take the answers with it.
        assert!(said.starts_with(&begins) || said.is_empty() && sent.len() > 10_000, "{said}");
    }
    let begins = "limiter_request_refused_total{reason=";
    assert_eq!(door.running.metric(&format!("{begins}\"request\"}}")), 6);
    assert_eq!(door.running.metric(&format!("{begins}\"too_long\"}}")), 2);
    // The rest of a command that does not come.
    let mut stream = door.connect();
    let begin = Instant::now();
    exchange(&mut stream, &[packed("PING"), b"*1\r\n$4\r\nPI".to_vec()].concat(), "+PONG\r\n");
    let said = rest(&mut stream);
    assert_eq!(said, "-ERR Protocol error: the rest of the command did not come within 5 s\r\n");
    assert!(begin.elapsed() >= Duration::from_secs(5));
    assert_eq!(door.running.metric(&format!("{begins}\"too_slow\"}}")), 1);
    door.running.server.stop().unwrap();
}

/// Half commands and silence make room for those that ask, as over HTTP; a client that does not
/// read is read no more, and holds no more than its answers.
#[test]
fn clients_that_hold_connections_keep_nobody_out() {
    let door = door(|options| options.max_connections = 4);
    let held: Vec<TcpStream> = (0..20)
        .map(|number| {
            let mut stream = door.connect();
            let begins: &[u8] = if number % 2 == 0 { b"" } else { b"*1\r\n$4\r\nPI" };
            // The server may have ended it already.
            drop(stream.write_all(begins));
            stream
        })
        .collect();
    exchange(&mut door.connect(), &packed("PING"), "+PONG\r\n");
    assert!(door.running.metric("limiter_request_connections_evicted_total") >= 16);
    drop(held);
    let mut deaf = door.connect();
    deaf.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let many = packed(&format!("PING {}", "x".repeat(60_000)));
    let sent = (0..1_000).take_while(|_| deaf.write_all(&many).is_ok()).count();
    assert!(sent < 1_000, "all of it was read");
    assert!(door.running.metric("limiter_request_memory_bytes") < 1_000_000);
    exchange(&mut door.connect(), &packed("PING"), "+PONG\r\n");
    door.running.server.stop().unwrap();
}

/// Keys go on across a restart, and a quiet connection does not hold it up.
#[test]
fn keys_outlast_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let with_state = || {
        let directory = state.path().to_owned();
        door(|options| {
            options.state = Some(StateOptions { directory, every: Duration::from_hours(1) });
        })
    };
    let door = with_state();
    let mut client = door.client();
    expect(&mut client, "CL.THROTTLE k 2 1 3600 3", [0, 3, 0, -1, 10_800]);
    door.running.server.stop().unwrap();
    assert!(cmd("PING").query::<String>(&mut client).is_err(), "the connection is over");
    let door = with_state();
    let [over, limit, remaining, ..] = asked(&mut door.client(), "CL.THROTTLE k 2 1 3600");
    assert_eq!((over, limit, remaining), (1, 3, 0));
    assert_eq!(door.running.json(&json!({"domain": "auth"})).status, 400, "HTTP is there, too");
    door.running.server.stop().unwrap();
}
