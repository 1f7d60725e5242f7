//! Server and client over a real socket, with friendly and unfriendly clients.

mod answers;
mod echo;
mod readers;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use limiter_api::bans::{Bans, Unban, Unbanned};
use limiter_api::bypass::{Bypass, BypassNow, Detached};
use limiter_api::check::{CheckSource, Checked};
use limiter_api::client::{Client, ClientError};
use limiter_api::events::{AskEvents, Events};
use limiter_api::explain::{AskExplain, ExplainedNow};
use limiter_api::limits::{Limits, SetLimit, UnsetLimit};
use limiter_api::lists::{ListsChanged, SetList, UnsetList};
use limiter_api::rules::{
    ApplyRules, Changed, CompareRules, Document, ExportRules, Exported, ReloadRules, RulesDiff,
};
use limiter_api::sources::source::SourceView;
use limiter_api::sources::top::{AskTop, Top};
use limiter_api::sources::{AskSources, By, SourceList};
use limiter_api::stats::Stats;
use limiter_api::status::Status;
use limiter_api::status::history::{AskHistory, History};
use limiter_api::utilization::Utilization;
use tempfile::TempDir;
use tokio::sync::oneshot;

use self::echo::{Echo, routes};
use super::server::Bounds;
use super::*;

struct Running {
    directory: TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    begun: Arc<AtomicUsize>,
    handler: Arc<Mutex<Echo>>,
}

impl Running {
    fn start(
        bounds: Bounds,
        user: Option<fn(&tokio::net::UnixStream) -> std::io::Result<u32>>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/limiter.sock");
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let begun = Arc::<AtomicUsize>::default();
        let echo = Echo { changes: 0, begun: Some(Arc::clone(&begun)) };
        let handler = Arc::new(Mutex::new(echo));
        let shared = Arc::clone(&handler);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut server = Server::bind(&path, bounds).unwrap();
                if let Some(user) = user {
                    server = server.identify_by(user);
                }
                ready.send(()).unwrap();
                server.serve(routes().served(shared), async { stopped.await.unwrap() }).await;
            });
        });
        is_ready.recv().unwrap();
        Self { directory, stop: Some(stop), thread: Some(thread), begun, handler }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("run/limiter.sock")
    }

    fn client(&self) -> Client {
        Client::new(self.socket(), Duration::from_secs(10))
    }

    /// Sends raw bytes; returns the answer.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    fn stop(mut self) -> PathBuf {
        self.stop.take().unwrap().send(()).unwrap();
        self.thread.take().unwrap().join().unwrap();
        self.socket()
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> (u16, String) {
    match result {
        Err(ClientError::Refused { status, message }) => (status, message),
        other => panic!("{other:?}"),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "stands in for a system call")]
fn someone_else(_: &tokio::net::UnixStream) -> std::io::Result<u32> {
    Ok(65_534)
}

#[test]
fn requests_reach_the_service() {
    let server = Running::start(Bounds::default(), None);
    let client = server.client();
    let limit =
        SetLimit { source: Some("192.0.2.1".into()), rate: "5/s".into(), ..SetLimit::default() };
    let changed: Changed = client.put("/v1/limits", &limit).unwrap();
    assert_eq!(changed.generation, 5);
    drop::<Changed>(client.delete("/v1/limits?source=2001:db8::/64", &()).unwrap());
    let bypass: BypassNow =
        client.put("/v1/bypass", &Bypass { engaged: true, ..Bypass::default() }).unwrap();
    assert!(bypass.engaged);
    let limits: Limits = client.get("/v1/limits").unwrap();
    assert_eq!(limits.warnings, ["3"]);
    let detached: Detached = client.post("/v1/detach", &()).unwrap();
    assert_eq!(detached.interfaces, ["eth0"]);
    assert!(!server.stop().exists(), "the socket is removed at the end");
}

#[test]
fn a_query_arrives_as_it_was_asked() {
    let server = Running::start(Bounds::default(), None);
    for from in ["2001:db8::/64", "a b+c&to=22/tcp", "100%", "ü?#"] {
        let asked = AskExplain { from: from.into(), ttl: Some(9), ..AskExplain::default() };
        let explained: ExplainedNow = server.client().ask("/v1/explain", &asked).unwrap();
        assert_eq!(explained.packet, from);
    }
}

#[test]
fn refusals_keep_their_status_and_words() {
    let server = Running::start(Bounds::default(), None);
    let client = server.client();
    assert_eq!(refused(client.get::<Status>("/v1/status")), (500, "status is broken".into()));
    assert_eq!(
        refused(client.get::<SourceView>("/v1/sources/2001:db8::1")),
        (404, "no 2001:db8::1".into())
    );
    for path in ["/v1/sources/2001:db8::/64", "/v1/sources/2001:db8::%2f64"] {
        let output = refused(client.get::<SourceView>(path));
        assert_eq!(output, (404, "no 2001:db8::/64".into()), "{path}");
    }
    assert_eq!(refused(client.post::<Changed>("/v1/reload", &())), (409, "not now".into()));
    let forced: Changed = client.post("/v1/reload?force=true", &()).unwrap();
    assert_eq!(forced.generation, 5);
    assert_eq!(refused(client.get::<Status>("/v2/status")).0, 404);
    assert_eq!(refused(client.post::<Status>("/v1/status", &())).0, 405);
    assert_eq!(refused(client.delete::<Changed>("/v1/limits?nobody=1", &())).0, 400);
    server.stop();
}

#[test]
fn the_socket_has_its_mode_from_the_start() {
    let server = Running::start(Bounds::default(), None);
    let mode = std::fs::metadata(server.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    assert!(!server.socket().with_extension("sock.new").exists());
    server.stop();
}

/// Against an attempt to change limits without the right to. Against an attempt to read other
/// people's packets.
#[test]
fn others_may_read_but_not_change() {
    let server = Running::start(Bounds::default(), Some(someone_else));
    let client = server.client();
    drop::<Limits>(client.get("/v1/limits").unwrap());
    let limit =
        SetLimit { source: Some("192.0.2.1".into()), rate: "5/s".into(), ..SetLimit::default() };
    let (status, message) = refused(client.put::<Changed>("/v1/limits", &limit));
    assert_eq!(status, 403);
    assert!(
        message.starts_with("user 65534 may read but not change: run the command as root"),
        "{message}"
    );
    assert_eq!(refused(client.delete::<Changed>("/v1/limits?source=2001:db8::/64", &())).0, 403);
    assert_eq!(refused(client.post::<Changed>("/v1/reload", &())).0, 403);
    assert_eq!(refused(client.post::<Detached>("/v1/detach", &())).0, 403);
    assert_eq!(
        refused(
            client.put::<BypassNow>("/v1/bypass", &Bypass { engaged: true, ..Bypass::default() })
        )
        .0,
        403
    );
    let limits: Limits = client.get("/v1/limits").unwrap();
    assert_eq!(limits.warnings, ["0"], "nothing changed");
    server.stop();
}

#[test]
fn unreadable_bodies_are_refused() {
    let server = Running::start(Bounds::default(), None);
    let client = server.client();
    for body in [
        serde_json::json!(null),
        serde_json::json!({"source": "192.0.2.1"}),
        serde_json::json!({"source": "192.0.2.1", "rate": "5/s", "brust": 3}),
        serde_json::json!({"source": "192.0.2.1", "rate": "5/s", "burst": -1}),
    ] {
        let (status, message) = refused(client.put::<Changed>("/v1/limits", &body));
        assert_eq!(status, 400);
        assert!(message.starts_with("the body is not what this request takes: "), "{message}");
    }
    let large = serde_json::json!({"source": "x".repeat(100_000), "rate": "5/s"});
    let (status, message) = refused(client.put::<Changed>("/v1/limits", &large));
    assert_eq!(status, 413);
    assert_eq!(message, "the body is over 65536 bytes: send it in parts");
    let limits: Limits = client.get("/v1/limits").unwrap();
    assert_eq!(limits.warnings, ["0"], "nothing changed");
    server.stop();
}

#[test]
fn garbage_gets_an_answer_or_the_door() {
    let server = Running::start(Bounds::default(), None);
    assert!(server.raw(b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    let head =
        [&b"GET /v1/limits HTTP/1.1\r\nhost: x\r\nx: "[..], &vec![b'a'; 600_000], b"\r\n\r\n"]
            .concat();
    // The server may close before everything is written; either way it lives on.
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    drop(stream.write_all(&head));
    drop::<Limits>(server.client().get("/v1/limits").unwrap());
    server.stop();
}

#[test]
fn slow_clients_hold_up_nobody_and_are_cut_off() {
    let bounds = Bounds {
        connections: 2,
        head: Duration::from_millis(300),
        connection: Duration::from_millis(600),
        ..Bounds::default()
    };
    let server = Running::start(bounds, None);
    let mut silent = UnixStream::connect(server.socket()).unwrap();
    let mut half = UnixStream::connect(server.socket()).unwrap();
    half.write_all(b"PUT /v1/limits HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{").unwrap();
    // The two slots are taken, so the older connection is cut off for this one.
    drop::<Limits>(server.client().get("/v1/limits").unwrap());
    for stream in [&mut silent, &mut half] {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut answer = Vec::new();
        // The end of the stream or a reset: both are an end.
        drop(stream.read_to_end(&mut answer));
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }
    server.stop();
}

/// A user, but for some of the connections: as without a file descriptor for them.
fn out_of_descriptors(_: &tokio::net::UnixStream) -> std::io::Result<u32> {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    match ASKED.fetch_add(1, Ordering::Relaxed) {
        4..8 => Err(rustix::io::Errno::MFILE.into()),
        _ => Ok(0),
    }
}

/// An idle connection is evicted for one that cannot be accepted, and the next one is accepted at
/// once: the pause would exceed the patience of this test.
#[test]
fn idle_connections_give_way_without_a_pause() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limiter.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bounds = Bounds { pause: Duration::from_hours(1), ..Bounds::default() };
        let server = Server::bind(&path, bounds).unwrap().identify_by(out_of_descriptors);
        // All of them wait before the first is accepted.
        let idle: Vec<_> = (0..12).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let mut asking = UnixStream::connect(&path).unwrap();
        asking.write_all(b"GET /v1/limits HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        asking.set_nonblocking(true).unwrap();
        let mut asking = tokio::net::UnixStream::from_std(asking).unwrap();
        let handler = Arc::new(Mutex::new(Echo { changes: 0, begun: None }));
        let mut answer = Vec::new();
        let answered = tokio::io::AsyncReadExt::read_to_end(&mut asking, &mut answer);
        tokio::select! {
            read = answered => drop(read.unwrap()),
            () = server.serve(routes().served(handler), std::future::pending()) => {}
            () = tokio::time::sleep(Duration::from_secs(30)) => panic!("nobody is served"),
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        let gone = idle.iter().filter(|stream| {
            stream.set_nonblocking(true).unwrap();
            let mut stream = *stream;
            // The end of the stream, or a reset.
            !matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        });
        // Four that could not be accepted, and as many that gave way to the next ones.
        assert_eq!(gone.count(), 8);
    });
}

/// An answer without an end outlives what other connections may take, and ends with its sender.
#[test]
fn lines_that_come_as_they_come_are_not_cut_off() {
    let bounds = Bounds { connection: Duration::from_millis(300), ..Bounds::default() };
    let server = Running::start(bounds, None);
    let mut lines = Vec::new();
    let path = "/v1/events?follow=true&drops=true";
    let each = |line: &[u8]| {
        lines.push(String::from_utf8(line.to_vec()).unwrap());
        true
    };
    server.client().follow(path, &(), each).unwrap();
    assert_eq!(lines, ["0\n", "1\n", "2\n"]);
    let refused = server.client().follow("/v1/events?follow=perhaps", &(), |_| true);
    assert!(matches!(refused, Err(ClientError::Refused { status: 400, .. })), "{refused:?}");
    assert_eq!(server.client().get::<Events>("/v1/events").unwrap(), Events::default());
    server.stop();
}

#[test]
fn a_panic_in_one_request_leaves_the_others() {
    let server = Running::start(Bounds::default(), None);
    assert!(matches!(server.client().get::<Stats>("/v1/stats"), Err(ClientError::Protocol { .. })));
    drop::<Limits>(server.client().get("/v1/limits").unwrap());
    server.stop();
}

#[test]
fn stale_sockets_are_replaced_and_living_ones_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limiter.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let living = UnixListener::bind(&path).unwrap();
    assert!(matches!(Server::bind(&path, Bounds::default()), Err(BindError::InUse(_))));
    drop(living);
    assert!(path.exists());
    let server = Server::bind(&path, Bounds::default()).unwrap();
    drop(server);
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(Server::bind(&path, Bounds::default()), Err(BindError::NotASocket(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn the_client_names_what_is_wrong_with_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limiter.sock");
    let shown = path.display().to_string();
    let call = || {
        let client = Client::new(path.clone(), Duration::from_millis(300));
        client.get::<Limits>("/v1/limits").unwrap_err()
    };
    let error = call();
    assert!(error.no_daemon());
    assert_eq!(
        error.to_string(),
        format!(
            "no daemon at {shown}: start one with `limiter run --limit 1000/s` or \
             `limiter run --rules FILE`, or name its socket with --socket"
        )
    );
    std::fs::write(&path, "").unwrap();
    assert_eq!(
        call().to_string(),
        format!("{shown} is not a socket: name the daemon's with --socket")
    );
    std::fs::remove_file(&path).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    assert_eq!(
        call().to_string(),
        format!("the daemon at {shown} did not answer within 0 s: look at its log")
    );
    // Nobody knows what becomes of a change.
    let change = || {
        let client = Client::new(path.clone(), Duration::from_millis(300));
        client
            .put::<BypassNow>("/v1/bypass", &Bypass { engaged: true, ..Bypass::default() })
            .unwrap_err()
    };
    let error = change();
    assert!(error.is_failure() && error.no_answer() && !error.no_daemon());
    assert_eq!(
        error.to_string(),
        format!(
            "the daemon at {shown} did not answer within 0 s: look at its log; it may \
             still happen, or have happened: see what is in force with `limiter status`"
        )
    );
    drop(listener);
    for error in [call(), change()] {
        assert!(error.no_daemon() && !error.is_failure());
        let gone = format!("the daemon at {shown} is gone: ");
        assert!(error.to_string().starts_with(&gone), "{error}");
    }
}

#[test]
fn rule_sets_may_be_large() {
    let running = Running::start(Bounds::default(), None);
    let text = "#".repeat(1 << 20);
    let documents = vec![Document { name: "a".into(), text: text.clone() }];
    let request = CompareRules { documents: documents.clone() };
    let diff: RulesDiff = running.client().post_document("/v1/rules/diff", &request).unwrap();
    assert_eq!(diff.unchanged, text.len());
    let request = ApplyRules { documents, force: true, confirm_seconds: None, session: None };
    let changed: Changed = running.client().put("/v1/rules", &request).unwrap();
    assert_eq!(changed.rules, 1);
    let exported: Exported = running.client().get("/v1/rules?edits=true").unwrap();
    assert_eq!(exported.text, "true");
    running.stop();
}

#[test]
fn only_the_owner_sends_rule_sets() {
    let running = Running::start(Bounds::default(), Some(someone_else));
    let documents = vec![Document { name: "a".into(), text: "#".repeat(1 << 20) }];
    let request = CompareRules { documents };
    let answer = running.client().post_document::<RulesDiff>("/v1/rules/diff", &request);
    assert_eq!(refused(answer).0, 403);
    let exported: Exported = running.client().get("/v1/rules").unwrap();
    assert_eq!(exported.text, "false");
    running.stop();
}
