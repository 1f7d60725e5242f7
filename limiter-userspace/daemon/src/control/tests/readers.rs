//! Readers that hang up or do not read: nobody waits for them, and no work is done for clients that
//! have gone.

use super::*;

const CHANGE: &[u8] =
    b"PUT /v1/bypass HTTP/1.1\r\nhost: x\r\ncontent-length: 16\r\n\r\n{\"engaged\":true}";

fn ask(running: &Running, request: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(running.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request).unwrap();
    stream
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes()
}

/// Keeps the server busy while `meanwhile` runs.
fn busy(running: &Running, meanwhile: impl FnOnce()) {
    // This request waits in the handler, on the only thread.
    let (go_on, waits) = mpsc::channel::<()>();
    let held = Arc::clone(&running.handler);
    let (locked, is_locked) = mpsc::channel();
    let holder = std::thread::spawn(move || {
        let guard = held.lock().unwrap();
        locked.send(()).unwrap();
        waits.recv().unwrap();
        drop(guard);
    });
    is_locked.recv().unwrap();
    let waiting = ask(running, CHANGE);
    std::thread::sleep(Duration::from_millis(200));
    meanwhile();
    go_on.send(()).unwrap();
    holder.join().unwrap();
    drop(waiting);
}

/// Against an attempt to keep the owner from changing anything, by reading.
#[test]
fn what_was_given_up_is_not_done() {
    let running = Running::start(Bounds::default(), None);
    busy(&running, || {
        for _ in 0..20 {
            for request in [CHANGE.to_vec(), get("/v1/limits"), get("/v1/sources")] {
                drop(ask(&running, &request));
                // Nor for a client that sent more than a request.
                drop(ask(&running, &[request, b"GET".to_vec()].concat()));
            }
        }
    });
    let limits: Limits = running.client().get("/v1/limits").unwrap();
    // A few may have come while the server was not busy yet, and before they were gone.
    let changes: usize = limits.warnings[0].parse().unwrap();
    assert!(changes <= 5, "{changes} of 41 changes for clients that are gone");
    let begun = running.begun.load(Ordering::SeqCst);
    assert!(begun <= 5, "{begun} of 81 answers for clients that are gone");
    running.stop();
}

/// A client that has finished sending still reads.
#[test]
fn a_client_that_closes_its_half_is_answered() {
    let running = Running::start(Bounds::default(), None);
    for (request, answer) in [(get("/v1/limits"), "generation"), (CHANGE.to_vec(), "engaged")] {
        let mut stream = ask(&running, &request);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.contains(answer), "{text}");
    }
    running.stop();
}

/// There are more endless answers than turns, and nobody reads them: changes and other users still
/// proceed.
#[test]
fn readers_that_do_not_read_keep_nobody_out() {
    #[expect(clippy::unnecessary_wraps, reason = "as the server asks who its peer is")]
    fn everybody_else(_: &tokio::net::UnixStream) -> std::io::Result<u32> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        // The first twenty are one user, root comes after them.
        Ok(if NUMBER.fetch_add(1, Ordering::SeqCst) < 20 { 65_534 } else { 0 })
    }
    let running = Running::start(Bounds::default(), Some(everybody_else));
    let readers: Vec<_> = (0..20).map(|_| ask(&running, &get("/v1/lists"))).collect();
    let client = running.client();
    for _ in 0..10 {
        let bypass: BypassNow =
            client.put("/v1/bypass", &Bypass { engaged: true, ..Bypass::default() }).unwrap();
        assert!(bypass.engaged);
        let limits: Limits = client.get("/v1/limits").unwrap();
        assert_eq!(limits.generation, 1);
    }
    drop(readers);
    running.stop();
}

/// A reader that reads is not blocked for good by a reader of the same user that does not.
#[test]
fn whoever_takes_nothing_of_its_answer_gives_way() {
    let running = Running::start(Bounds::default(), Some(someone_else));
    let readers: Vec<_> = (0..20).map(|_| ask(&running, &get("/v1/lists"))).collect();
    let client = Client::new(running.socket(), Duration::from_mins(1));
    let limits: Limits = client.get("/v1/limits").unwrap();
    assert_eq!(limits.generation, 1);
    drop(readers);
    running.stop();
}
