//! A real server that is slow, dead, restarted, emptied, full, read-only or somebody else's, and
//! what a call costs it.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use limiter_cluster::redis::{Address, RedisStore, Servers};
use limiter_cluster::store::{Answers, Ask, Batch, Store as _, StoreError, WindowAsk, WindowBatch};
use limiter_sharing::SharedLimit;
use limiter_sharing::account::{Central, Demand, Report};
use limiter_sharing::window::{Back, Window, WindowDemand, WindowKind};
use tokio::runtime::Runtime;

use crate::server::{Server, runtime};
use crate::simulator::scene::settings;

/// A user that may do what limiter does and no more, as docs/cluster-setup.md has it.
pub(crate) const USER: &str = "reset on >secret ~rl:* -@all +evalsha +script|load +time +get +set \
                               +del +zadd +zscore +zcard +zrange +zrangebyscore +zremrangebyscore \
                               +zrem +pexpire +incrby +hset +hgetall +hdel +xadd +xrange \
                               +xrevrange";

pub(crate) fn ask(name: &str, want: u64) -> Ask {
    let limit = SharedLimit::new(settings(3)).expect("good");
    let none = Report::default();
    Ask {
        name: name.as_bytes().into(),
        central: Central::of(&limit),
        demand: Demand { epoch: 0, latest: none, before: none, owed: 0, want },
    }
}

pub(crate) fn batch(asks: Vec<Ask>) -> Batch {
    Batch { shard: 0, deadline: None, hot_since: None, asks }
}

fn call(runtime: &Runtime, store: &RedisStore) -> Result<Answers, StoreError> {
    runtime.block_on(store.exchange(&batch(vec![ask("a", 1)])))
}

/// Calls until it succeeds, at most ten seconds.
fn recovers(runtime: &Runtime, store: &RedisStore) -> Duration {
    let start = Instant::now();
    loop {
        match call(runtime, store) {
            Ok(_) => return start.elapsed(),
            Err(error) => assert!(start.elapsed() < Duration::from_secs(10), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_server_that_forgets_its_scripts_gets_them_again() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let (store, mut admin) = (server.store(), server.admin(&runtime));
    call(&runtime, &store).expect("an answer");
    let _flushed: String = runtime.block_on(admin.ask(&["SCRIPT", "FLUSH"]));
    call(&runtime, &store).expect("an answer all the same");
    assert_eq!(store.calls(), 2);
}

#[test]
fn a_server_that_dies_is_found_again() {
    let Some(mut server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let store = server.store();
    call(&runtime, &store).expect("an answer");
    server.kill();
    assert!(matches!(call(&runtime, &store), Err(StoreError::Lost(_))));
    // While it waits it does not even try, so nobody is held up.
    for _ in 0..100 {
        let error = call(&runtime, &store).expect_err("it is gone");
        assert!(matches!(error, StoreError::Lost(_) | StoreError::Waits(_)), "{error}");
    }
    assert!(store.calls() < 10, "{} attempts", store.calls());
    std::thread::sleep(Duration::from_millis(300));
    server.restart();
    let time = recovers(&runtime, &store);
    println!("connected again {} ms after the server was there", time.as_millis());
}

#[test]
fn a_slow_server_holds_nobody_up() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let (store, mut admin) = (server.store(), server.admin(&runtime));
    call(&runtime, &store).expect("an answer");
    let _paused: String = runtime.block_on(admin.ask(&["CLIENT", "PAUSE", "1500", "ALL"]));
    let start = Instant::now();
    assert_eq!(call(&runtime, &store), Err(StoreError::Late(350)));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    recovers(&runtime, &store);
}

#[test]
fn refusals_of_a_server_are_reported() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let (store, mut admin) = (server.store(), server.admin(&runtime));
    call(&runtime, &store).expect("an answer");
    let mut is_refused = |words: &[&str], undo: &[&str], code: &str| {
        let _done: redis::Value = runtime.block_on(admin.ask(words));
        let refused = call(&runtime, &store).expect_err("refused");
        assert!(matches!(&refused, StoreError::Refused(text) if text.contains(code)), "{refused}");
        let _done: redis::Value = runtime.block_on(admin.ask(undo));
        recovers(&runtime, &store);
    };
    is_refused(&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"], "OOM");
    is_refused(&["REPLICAOF", "192.0.2.1", "1"], &["REPLICAOF", "NO", "ONE"], "READONLY");
}

/// Somebody else has the prefix: a key of theirs costs itself, and one that a whole call needs
/// costs that call. Nothing of theirs is changed, and the connection stays.
#[test]
fn a_key_that_somebody_else_made_costs_that_key() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let (store, mut admin) = (server.store(), server.admin(&runtime));
    let mut does = |words: &[&str]| -> redis::Value { runtime.block_on(admin.ask(words)) };
    let buckets = || {
        let asks = ["a", "b", "c", "d"].map(|name| ask(name, 1));
        let answers = runtime.block_on(store.exchange(&batch(asks.into())));
        answers.expect("an answer").answers
    };
    let windows = || {
        let kinds = [WindowKind::Fixed, WindowKind::SlidingCounter, WindowKind::SlidingLog];
        let asks = [kinds, kinds].concat().into_iter().enumerate().map(|(at, kind)| {
            let window = Window {
                kind,
                length: 60_000_000,
                quota: 99,
                largest: 1,
                life: 800_000,
                lease_cap: 250,
            };
            let demand = WindowDemand { backs: Vec::new(), want: 1 };
            WindowAsk { name: [b'w', b'0' + at as u8].into(), window, demand }
        });
        let call = WindowBatch { shard: 0, deadline: None, asks: asks.collect() };
        runtime.block_on(store.windows(&call)).expect("an answer").answers
    };
    does(&["HSET", "rl:{0000}:b", "x", "y"]);
    does(&["SET", "rl:{0000}:c", "1 2 3 4"]);
    does(&["RPUSH", "rl:{0000}:w0", "x"]);
    does(&["SET", "rl:{0000}:w1", "1 2"]);
    does(&["SET", "rl:{0000}:w2", "1 2 3"]);
    std::thread::sleep(Duration::from_millis(1100));
    for _ in 0..2 {
        let reported = buckets();
        assert!(reported[0].is_ok() && reported[3].is_ok(), "{reported:?}");
        let foreign = reported[1].as_ref().expect_err("a hash is no account");
        assert!(foreign.to_string().contains("rl:{0000}:b in the store"), "{foreign}");
        assert_eq!(reported[2].as_ref().expect_err("four numbers").key, "rl:{0000}:c");
        let reported = windows();
        for (at, answer) in reported.iter().enumerate() {
            assert_eq!(answer.is_ok(), at >= 3, "{reported:?}");
        }
    }
    let value = does(&["GET", "rl:{0000}:c"]);
    assert_eq!(value, redis::Value::BulkString(b"1 2 3 4".to_vec()));
    let fields = does(&["HLEN", "rl:{0000}:b"]);
    assert_eq!(fields, redis::Value::Int(1));
    // The owner takes theirs away.
    does(&["DEL", "rl:{0000}:b"]);
    assert!(buckets()[1].is_ok());
    // A key of the shard, which all of its calls need: others go on, over the same connection.
    does(&["SET", "rl:{0000}:!hot", "x"]);
    let hot = Batch { hot_since: Some(0), ..batch(vec![ask("a", 1)]) };
    let error = runtime.block_on(store.exchange(&hot)).expect_err("no list");
    let StoreError::Foreign(foreign) = &error else { panic!("{error}") };
    assert_eq!(foreign.key, "rl:{0000}:!hot or rl:{0000}:!boot");
    assert!(store.servers()[0].connected);
    let other = Batch { shard: 1, ..batch(vec![ask("a", 1)]) };
    runtime.block_on(store.exchange(&other)).expect("an answer at once");
}

#[test]
fn a_user_of_prefix_and_commands_is_enough() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let mut admin = server.admin(&runtime);
    let mut words = vec!["ACL", "SETUSER", "limiter"];
    words.extend(USER.split_whitespace());
    let _set: String = runtime.block_on(admin.ask(&words));
    let mut settings = server.settings();
    settings.user = Some("limiter".to_owned());
    settings.password = Some(server.directory().join("password"));
    let store = RedisStore::new(settings).expect("a good prefix");
    // Without the file, and with a wrong one.
    let refused = call(&runtime, &store).expect_err("no file");
    assert!(refused.to_string().contains("password"), "{refused}");
    std::fs::write(server.directory().join("password"), "wrong\n").expect("written");
    std::thread::sleep(Duration::from_millis(100));
    let refused = call(&runtime, &store).expect_err("a wrong password");
    assert!(!refused.to_string().contains("wrong\n"), "{refused}");
    std::fs::write(server.directory().join("password"), "secret\n").expect("written");
    recovers(&runtime, &store);
    let hot = Batch { hot_since: Some(0), ..batch(vec![ask("a", 1)]) };
    runtime.block_on(store.exchange(&hot)).expect("an answer");
    for kind in [WindowKind::Fixed, WindowKind::SlidingCounter, WindowKind::SlidingLog] {
        let window = Window {
            kind,
            length: 60_000_000,
            quota: 10,
            largest: 1,
            life: 800_000,
            lease_cap: 250,
        };
        let mut demand = WindowDemand { backs: Vec::new(), want: 20 };
        let name: Box<[u8]> = format!("{kind:?}").into_bytes().into();
        for grant in [5, 3] {
            let ask = WindowAsk { name: name.clone(), window, demand: demand.clone() };
            let batch = WindowBatch { shard: 0, deadline: None, asks: vec![ask] };
            let answers = runtime.block_on(store.windows(&batch)).expect("an answer");
            let answer = answers.answers[0].as_ref().expect("a key of its own");
            demand.backs = vec![Back { epoch: answer.epoch, units: 1 }];
            assert!(answer.grant >= grant, "{answers:?}");
        }
    }
}

/// Keys have an end of their own.
#[test]
fn keys_vanish_by_themselves() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let (store, mut admin) = (server.store(), server.admin(&runtime));
    // Past the time in which a new store is taken for one that forgot.
    runtime.block_on(store.exchange(&batch(Vec::new()))).expect("an answer");
    std::thread::sleep(Duration::from_millis(1100));
    let asks = (0..50).map(|number| ask(&format!("key{number}"), 10)).collect();
    let answers = runtime.block_on(store.exchange(&batch(asks))).expect("an answer");
    assert!(answers.answers.iter().flatten().all(|answer| answer.grant > 0), "{answers:?}");
    let rest = answers.answers[0].as_ref().expect("a key of its own").rest;
    let size: u64 = runtime.block_on(admin.ask(&["DBSIZE"]));
    assert_eq!(size, 50 + 1);
    std::thread::sleep(Duration::from_micros(rest) + Duration::from_millis(400));
    let keys: Vec<String> = runtime.block_on(admin.ask(&["KEYS", "*"]));
    assert_eq!(keys, ["rl:{0000}:!boot"]);
}

#[test]
fn nodes_at_once_get_no_more_than_there_is() {
    let Some(server) = Server::start(&[]) else { return };
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let store = server.store();
            std::thread::spawn(move || {
                let week = SharedLimit::new(limiter_sharing::Settings {
                    rate: limiter_sharing::rate::Rate::new(1, 604_800_000_000).expect("in range"),
                    burst: 500,
                    ..settings(6)
                });
                let central = Central::of(&week.expect("good"));
                let asks = vec![Ask { central, ..ask("a", 7) }];
                let runtime = runtime();
                let grants = (0..100).map(|_| {
                    let answers = runtime.block_on(store.exchange(&batch(asks.clone())));
                    let answers = answers.expect("an answer").answers;
                    answers.iter().flatten().map(|answer| answer.grant).sum::<u64>()
                });
                grants.sum::<u64>()
            })
        })
        .collect();
    let granted: u64 = threads.into_iter().map(|thread| thread.join().expect("it ended")).sum();
    assert_eq!(granted, 500);
}

#[test]
fn answers_of_somebody_else_are_refused() {
    let directory = tempfile::TempDir::new().expect("a temporary directory");
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).expect("bound");
    let answers: [&[u8]; 7] = [
        b"+OK\r\n",
        b"*2\r\n*1\r\n:-5\r\n*0\r\n",
        b"*2\r\n*1\r\n:17\r\n*0\r\n",
        b"*2\r\n*6\r\n:17\r\n:2\r\n:0\r\n:0\r\n:0\r\n:-1\r\n*0\r\n",
        b"*2\r\n*6\r\n:17\r\n:9223372036854775807\r\n:0\r\n:0\r\n:0\r\n:-1\r\n*0\r\n",
        b"*2\r\n*6\r\n:17\r\n$1\r\n1\r\n:0\r\n:0\r\n:0\r\n:-1\r\n*1\r\n:1\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ];
    let _ends_with_the_test = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut bytes = vec![0; 1 << 16];
            // Scripts are loaded first, all at once; then comes the call.
            let mut loads = 0;
            while let Ok(count) = stream.read(&mut bytes) {
                if count == 0 {
                    break;
                }
                let reported = if loads < 3 {
                    let new = bytes[..count].windows(4).filter(|word| word == b"LOAD").count();
                    loads += new;
                    b"$1\r\nx\r\n".repeat(new)
                } else {
                    answer.to_vec()
                };
                if stream.write_all(&reported).is_err() {
                    break;
                }
            }
        }
    });
    let Some(server) = Server::start(&[]) else { return };
    let mut settings = server.settings();
    settings.servers = Servers::One(Address::Unix(path));
    // None of these answers is late, also where the thread above waits for a CPU.
    settings.timeout = Duration::from_secs(20);
    let store = RedisStore::new(settings).expect("a good prefix");
    let runtime = runtime();
    let mut errors = Vec::new();
    while errors.len() < answers.len() {
        let error = call(&runtime, &store).expect_err("no store says that");
        if !matches!(&error, StoreError::Waits(_)) {
            errors.push(error);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let wrong = |what| StoreError::Wrong(what);
    let expected = [
        "its form",
        "its length",
        "its length",
        "a grant above what was wanted",
        "a grant",
        "a number",
    ];
    assert_eq!(errors[..6], expected.map(wrong));
    assert!(matches!(errors[6], StoreError::Wrong(_) | StoreError::Lost(_)), "{errors:?}");
}

/// Figures of docs/cluster.md, "Cost": by the server's own count of time and memory.
#[test]
fn what_a_call_costs() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let (store, mut admin) = (server.store(), server.admin(&runtime));
    let keys = 20_000;
    println!("{:>5} {:>12} {:>10} {:>9}", "keys", "us a call", "us a key", "calls/s");
    // One without keys reads the hot list alone.
    for size in [0_usize, 1, 10, 100] {
        let rounds = (4000 / size.max(1)).clamp(100, 1000);
        let names: Vec<String> = (0..size).map(|at| format!("rule0001/192.0.2.{at}")).collect();
        let _reset: String = runtime.block_on(admin.ask(&["CONFIG", "RESETSTAT"]));
        let start = Instant::now();
        let mut epochs = vec![(0, 0); size];
        for _ in 0..rounds {
            let asks = names.iter().zip(&epochs).map(|(name, (epoch, used))| {
                let mut ask = ask(name, 3);
                ask.demand.epoch = *epoch;
                ask.demand.latest.used = *used;
                ask
            });
            let call = Batch { hot_since: Some(u64::MAX), ..batch(asks.collect()) };
            let reported = runtime.block_on(store.exchange(&call)).expect("an answer");
            let answers = reported.answers.iter().flatten();
            epochs = answers.map(|answer| (answer.epoch, answer.grant)).collect();
        }
        let rate = rounds as f64 / start.elapsed().as_secs_f64();
        let stats: String = runtime.block_on(admin.ask(&["INFO", "commandstats"]));
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
        let micros = line.and_then(|line| line.split("usec_per_call=").nth(1)?.split(',').next());
        let micros: f64 = micros.expect("it was called").parse().expect("a number");
        println!("{size:5} {micros:12.1} {:10.2} {rate:9.0}", micros / size.max(1) as f64);
        // Ten times what was measured: a call that is slower by more has become another one.
        assert!(micros < 1000.0 + 200.0 * size as f64, "{micros}");
    }
    let used = |info: String| -> u64 {
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.expect("it is reported").trim().parse().expect("a number")
    };
    let _flushed: String = runtime.block_on(admin.ask(&["FLUSHALL"]));
    for listed in [None, Some(u64::MAX)] {
        let before = used(runtime.block_on(admin.ask(&["INFO", "memory"])));
        for first in (0..keys).step_by(100) {
            let asks = (first..first + 100).map(|at| {
                let mut ask = ask(&format!("rule0001/{:?}/{at:08}", listed.is_some()), 2);
                ask.central.epoch = 60_000_000;
                ask
            });
            let call = Batch { hot_since: listed, ..batch(asks.collect()) };
            runtime.block_on(store.exchange(&call)).expect("an answer");
        }
        let after = used(runtime.block_on(admin.ask(&["INFO", "memory"])));
        let each = (after - before) as f64 / f64::from(keys);
        println!("{each:.0} bytes a key, in the hot list: {}", listed.is_some());
        assert!(each < 600.0);
    }
}
