//! Calls to a real cluster whose keys are elsewhere or on their way, its user, and servers that are
//! not what the file of the node says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use limiter_cluster::redis::{Address, RedisSettings, RedisStore, Servers};
use limiter_cluster::store::{Answers, Batch, Store as _, StoreError};
use tokio::runtime::Runtime;

use crate::live::{USER, ask, batch};
use crate::server::{Server, runtime};
use crate::shards::{Shards, free_port};

/// A call for keys of shard 0 that all exist, if the one before it was such.
fn exchange(runtime: &Runtime, store: &RedisStore) -> Result<Answers, StoreError> {
    let call = Batch { hot_since: Some(0), ..batch(vec![ask("a", 1)]) };
    runtime.block_on(store.exchange(&call))
}

fn granted(answers: &Answers) -> u64 {
    answers.answers.iter().flatten().map(|answer| answer.grant).sum()
}

#[test]
fn a_call_goes_where_its_keys_are_and_a_user_of_prefix_and_commands_is_enough() {
    let Some(mut shards) = Shards::start(&[&["0000"], &["node"]], 0, &[]) else { return };
    let mut words = vec!["ACL", "SETUSER", "limiter"];
    words.extend(USER.split_whitespace());
    words.extend(["+cluster|slots", "+asking"]);
    for at in 0..2 {
        shards.ask::<String>(at, &words);
    }
    let password = shards.servers[0].server.directory().join("password");
    std::fs::write(&password, "secret\n").expect("written");
    let settings = RedisSettings {
        user: Some("limiter".to_owned()),
        password: Some(password),
        ..shards.settings(&[1])
    };
    let store = RedisStore::new(settings).expect("a good prefix");
    let slot = shards.slot("0000");
    let call = |shards: &Shards| exchange(&shards.runtime, &store);
    call(&shards).expect("an answer");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(granted(&call(&shards).expect("an answer")), 1);

    // On its way, and all keys are still here.
    shards.open(slot, 0, 1);
    assert_eq!(granted(&call(&shards).expect("an answer")), 1);
    // Keys are on both servers: nobody can do it, which is reported after some attempts.
    assert_eq!(shards.migrate(slot, 0, 1, 1), 1);
    let (begin, calls) = (Instant::now(), shards.errors(0, "TRYAGAIN"));
    let error = call(&shards).expect_err("neither can");
    assert!(
        matches!(&error, StoreError::Refused(reported) if reported.contains("TRYAGAIN")),
        "{error}"
    );
    assert!(begin.elapsed() < Duration::from_millis(400), "{:?}", begin.elapsed());
    let tried = shards.errors(0, "TRYAGAIN") - calls;
    assert!((2..=4).contains(&tried), "{tried}");
    let kept: Vec<bool> = store.servers().iter().map(|server| server.connected).collect();
    assert_eq!(kept, [true, true], "that is an answer");
    // All keys are there, and the slot is not yet.
    while shards.migrate(slot, 0, 1, 100) > 0 {}
    assert_eq!(granted(&call(&shards).expect("an answer")), 1);
    assert!(shards.errors(0, "ASK") > 0);
    // A key that does not exist yet can be made nowhere.
    let new = batch(vec![ask("new", 1)]);
    let error = shards.runtime.block_on(store.exchange(&new)).expect_err("no place for it");
    assert!(error.to_string().contains("TRYAGAIN"), "{error}");
    shards.close(slot, 0, 1);
    assert_eq!(granted(&call(&shards).expect("an answer")), 1);
    assert_eq!(granted(&shards.runtime.block_on(store.exchange(&new)).expect("an answer")), 1);
    // The account went with the slot: of a burst of 1000, all that was granted is held.
    assert_eq!(shards.ask::<Vec<String>>(0, &["KEYS", "*"]), Vec::<String>::new());
    let value: String = shards.ask(1, &["GET", "rl:{0000}:a"]);
    let held: u64 = value.split(' ').skip(3).map(|n| n.parse::<u64>().expect("a number")).sum();
    assert_eq!(held, 4, "{value}");
    // Without those two words it can do nothing, and says which.
    for (command, at) in [("-cluster|slots", 1), ("-asking", 0)] {
        shards.ask::<String>(at, &["ACL", "SETUSER", "limiter", command]);
    }
    let again = RedisStore::new(RedisSettings {
        user: Some("limiter".to_owned()),
        password: Some(shards.servers[0].server.directory().join("password")),
        ..shards.settings(&[1])
    });
    let again = again.expect("a good prefix");
    let error = exchange(&shards.runtime, &again).expect_err("it may not ask");
    assert!(error.to_string().contains("NOPERM"), "{error}");
    assert!(error.to_string().contains("cluster|slots"), "{error}");
    shards.open(slot, 1, 0);
    while shards.migrate(slot, 1, 0, 100) > 0 {}
    let error = call(&shards).expect_err("it may not ask");
    assert!(error.to_string().contains("asking"), "{error}");
}

#[test]
fn one_server_of_those_that_are_named_is_enough() {
    let Some(shards) = Shards::start(&[&["0000"], &["node"]], 0, &[]) else { return };
    let RedisSettings { servers: Servers::Cluster(alive), .. } = shards.settings(&[1]) else {
        panic!("a cluster")
    };
    let nobody = |port| Address::Tcp { host: "127.0.0.1".to_owned(), port };
    let seeds = [vec![nobody(free_port()), nobody(free_port())], alive].concat();
    let settings = RedisSettings { servers: Servers::Cluster(seeds), ..shards.settings(&[0]) };
    let store = RedisStore::new(settings).expect("a good prefix");
    exchange(&shards.runtime, &store).expect("an answer");
    let slots: Vec<_> = store.servers().into_iter().map(|server| server.slots).collect();
    assert_eq!(slots.iter().flatten().sum::<u16>(), 16_384, "{slots:?}");
    // Nobody is there.
    let settings = RedisSettings {
        servers: Servers::Cluster(vec![nobody(free_port())]),
        ..shards.settings(&[0])
    };
    let store = RedisStore::new(settings).expect("a good prefix");
    let error = exchange(&shards.runtime, &store).expect_err("nobody");
    assert!(matches!(error, StoreError::Lost(_)), "{error}");
    let error = exchange(&shards.runtime, &store).expect_err("nobody");
    assert!(matches!(error, StoreError::Waits(_)), "{error}");
    assert!(!store.is_ready());
}

#[test]
fn a_file_that_names_the_wrong_kind_of_server_is_reported() {
    let Some(shards) = Shards::start(&[&["0000"], &["node"]], 0, &[]) else { return };
    let RedisSettings { servers: Servers::Cluster(seeds), .. } = shards.settings(&[1]) else {
        panic!("a cluster")
    };
    let one = Servers::One(seeds[0].clone());
    let settings = RedisSettings { servers: one, ..shards.settings(&[0]) };
    let store = RedisStore::new(settings).expect("a good prefix");
    let error = exchange(&shards.runtime, &store).expect_err("it has not this slot");
    assert!(error.to_string().contains("name it under `redis.cluster`"), "{error}");

    let port = free_port();
    let options = ["--port", &port.to_string(), "--bind", "127.0.0.1"];
    let Some(server) = Server::start(&options) else { return };
    let plain = Address::Tcp { host: "127.0.0.1".to_owned(), port };
    let servers = Servers::Cluster(vec![plain]);
    let store = RedisStore::new(RedisSettings { servers, ..server.settings() });
    let error = exchange(&shards.runtime, &store.expect("a good prefix")).expect_err("no cluster");
    assert!(error.to_string().contains("name it as `redis.address`"), "{error}");
}

/// A server that has all slots, by its own word, and does one thing to each call. It ends with the
/// test.
fn impostor(does: &'static str) -> (RedisSettings, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let _ends_with_the_test = std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            let count = Arc::clone(&count);
            std::thread::spawn(move || serve(&stream, port, does, &count));
        }
    });
    let settings = RedisSettings {
        servers: Servers::Cluster(vec![Address::Tcp { host: "127.0.0.1".to_owned(), port }]),
        user: None,
        password: None,
        prefix: "rl".to_owned(),
        timeout: Duration::from_millis(350),
        scripts: limiter_cluster::redis::Scripts::default(),
    };
    (settings, calls)
}

fn serve(stream: &TcpStream, port: u16, does: &str, calls: &AtomicUsize) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let count: usize = line.trim().strip_prefix('*')?.parse().ok()?;
        let mut words = Vec::new();
        for _ in 0..count {
            line.clear();
            reader.read_line(&mut line).ok()?;
            let mut word = vec![0; line.trim().strip_prefix('$')?.parse::<usize>().ok()? + 2];
            reader.read_exact(&mut word).ok()?;
            words.push(String::from_utf8_lossy(&word).trim().to_owned());
        }
        let answer = match words[0].as_str() {
            "EVALSHA" => {
                calls.fetch_add(1, Ordering::Relaxed);
                match does {
                    "closes" => return None,
                    reported => format!("-{reported}{port}\r\n"),
                }
            }
            "CLUSTER" => format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:{port}\r\n"),
            "ASKING" => "+OK\r\n".to_owned(),
            _ => "$1\r\nx\r\n".to_owned(),
        };
        writer.write_all(answer.as_bytes()).ok()?;
    }
}

#[test]
fn a_call_that_may_have_been_done_is_never_sent_again() {
    let (settings, calls) = impostor("closes");
    let store = RedisStore::new(settings).expect("a good prefix");
    let runtime = runtime();
    let error = exchange(&runtime, &store).expect_err("the connection broke");
    assert!(matches!(error, StoreError::Lost(_)), "{error}");
    runtime.block_on(async { tokio::time::sleep(Duration::from_secs(1)).await });
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[test]
fn a_call_that_is_sent_round_in_circles_ends() {
    for reported in ["MOVED 1 127.0.0.1:", "ASK 1 :", "MOVED 1 ?:", "MOVED 1 ", "TRYAGAIN "] {
        let (settings, calls) = impostor(reported);
        let store = RedisStore::new(settings).expect("a good prefix");
        let begin = Instant::now();
        let error = exchange(&runtime(), &store).expect_err("nobody does it");
        assert!(begin.elapsed() < Duration::from_secs(1), "{reported}: {:?}", begin.elapsed());
        println!("{reported}: {error}, {calls:?} calls");
        assert!(calls.load(Ordering::Relaxed) <= 4, "{reported}: {calls:?}");
    }
}
