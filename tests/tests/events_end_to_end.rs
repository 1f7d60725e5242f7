//! A flood of drops, and who is notified of it: the log, `limiter events`, a command and a webhook.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::generator::{Generator, Pattern, Stream};
use limiter_tests::packet::Frame;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use rcgen::generate_simple_self_signed;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

const SOURCE: [u8; 4] = [203, 0, 113, 5];

const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1, burst: 1}}\n";

/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

fn flood(bed: &Testbed) -> Result<()> {
    let frames = vec![Frame::ipv4(SOURCE, RECEIVER.ipv4.octets()).build()];
    let pattern = Pattern::Flood { per_second: 20_000 };
    // Frames that the cable has no room for are not missing: these are counted by who judges them.
    let (streams, time) = (vec![Stream { frames, pattern }], Duration::from_secs(1));
    let before = bed.met()?;
    let sent = Generator::start(&bed.sender, SENDER.interface, streams, time, 1 << 20)?.finish()?;
    bed.wait_until_met(before + sent[0].times.len() as u64)
}

/// Waits until a file has so many lines.
fn lines_of(path: &Path, count: usize) -> Result<Vec<String>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
        if lines.len() >= count {
            return Ok(lines);
        }
        ensure!(Instant::now() < deadline, "{count} lines wanted, and there are {lines:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A request's head and body.
type Posted = (String, Value);

fn take(stream: impl Read + Write) -> Result<Posted> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(reader.read_line(&mut head)? > 0, "a request that is cut off: {head}");
    }
    let length = head
        .to_lowercase()
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok())
        .with_context(|| format!("no length in {head}"))?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")?;
    Ok((head, serde_json::from_slice(&body)?))
}

/// Takes requests one after the other, with TLS if there is a configuration for it.
fn listen(
    listener: &TcpListener,
    tls: Option<&Arc<ServerConfig>>,
    to: &mpsc::Sender<Posted>,
) -> Result<()> {
    for stream in listener.incoming() {
        let posted = match tls {
            Some(tls) => take(StreamOwned::new(ServerConnection::new(Arc::clone(tls))?, stream?))?,
            None => take(stream?)?,
        };
        if to.send(posted).is_err() {
            break;
        }
    }
    Ok(())
}

#[test]
fn an_operator_is_notified_once_at_the_start_and_once_at_the_end() -> Result<()> {
    require_root();
    let bed = Testbed::create("events")?;
    let called = bed.dir.path().join("called");
    let script = format!(
        "#!/bin/sh\nread -r input\n\
         echo \"$LIMITER_EVENT $LIMITER_SOURCE $LIMITER_REASON $LIMITER_RULE $input\" >> {}\n",
        called.display()
    );
    let hook = bed.dir.write("hook", script)?;
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755))?;
    let listener = bed.receiver.enter(|| TcpListener::bind("127.0.0.1:0"))??;
    let url = format!("http://{}/drops?from=test", listener.local_addr()?);
    let (sender, posted) = mpsc::channel();
    thread::spawn(move || listen(&listener, None, &sender));

    let mut limiter = bed.limiter(RULES)?;
    let hook = hook.display().to_string();
    limiter.options(["--hook-command", &hook, "--hook-url", &url]);
    limiter.options(["--event-quiet", "3s", "--event-still", "10m"]);
    limiter.start()?;
    let mut follow = Command::new(limiter.binary());
    follow.arg("--socket").arg(limiter.socket());
    follow.args(["--output", "json", "events", "--follow"]).stdout(Stdio::piped());
    let mut follow = bed.receiver.spawn(&mut follow)?;
    let mut lines = BufReader::new(follow.stdout.take().context("no output")?).lines();
    // Events from before it follows are not for it.
    let deadline = Instant::now() + PATIENCE;
    while limiter.json(&["events"])?["counts"]["followers"] != 1 {
        ensure!(Instant::now() < deadline, "nobody follows");
        thread::sleep(Duration::from_millis(20));
    }
    flood(&bed)?;

    let called = lines_of(&called, 2)?;
    let head = |line: &str| line.split(" {").next().unwrap_or_default().to_owned();
    let heads: Vec<String> = called.iter().map(|line| head(line)).collect();
    ensure!(
        heads
            == [
                "start 203.0.113.5 over-limit every source",
                "end 203.0.113.5 over-limit every source"
            ],
        "{called:?}"
    );
    for (line, name) in called.iter().zip(["start", "end"]) {
        let json = line.find('{').and_then(|at| line.get(at..)).context("no JSON")?;
        let json: Value = serde_json::from_str(json)?;
        ensure!(json["event"] == name && json["source"] == "203.0.113.5", "{json}");
        let (head, body) = posted.recv_timeout(PATIENCE)?;
        ensure!(head.starts_with("POST /drops?from=test HTTP/1.1\r\n"), "{head}");
        ensure!(body == json, "{body} and {json}");
    }
    ensure!(posted.try_recv().is_err(), "the webhook was called more than twice");

    let output = limiter.json(&["events"])?;
    let episodes = output["episodes"].as_array().context("no episodes")?;
    ensure!(episodes.len() == 1 && episodes[0]["ended"] == true, "{output}");
    let count = |name: &str| output["counts"][name].as_u64().context("no count");
    let stats = limiter.json(&["stats"])?;
    let reasons = stats["reasons"].as_array().context("no reasons")?;
    let over = reasons.iter().find(|at| at["reason"] == "over-limit").context("no drops")?;
    let dropped = over.pointer("/counts/packets").or_else(|| over.get("packets"));
    let dropped = dropped.and_then(Value::as_u64).with_context(|| format!("{over}"))?;
    let (sent, over_budget, lost) = (count("sent")?, count("over_budget")?, count("lost")?);
    ensure!(sent + over_budget + lost == dropped, "{output} of {dropped}");
    ensure!(sent > 0 && over_budget > 0 && lost == 0, "{output}");
    ensure!(episodes[0]["sampled"] == sent, "{output}");

    // The reader's lines: one start, as many drops as were reported, one end, and then the end of
    // the daemon.
    let said = limiter.said();
    let times = |text: &str| said.lines().filter(|line| line.contains(text)).count();
    ensure!(
        times("WARN drops: 203.0.113.5") == 1 && times("no more drops: 203.0.113.5") == 1,
        "{said}"
    );
    limiter.terminate()?;
    let mut names: Vec<String> = Vec::new();
    for line in lines.by_ref() {
        let line: Value = serde_json::from_str(&line?)?;
        names.push(line["event"].as_str().context("no name")?.to_owned());
    }
    ensure!(follow.wait()?.success(), "following did not end with the daemon");
    let seen = |name: &str| names.iter().filter(|it| *it == name).count();
    ensure!((seen("start"), seen("still"), seen("end")) == (1, 0, 1), "{names:?}");
    ensure!(u64::try_from(seen("drop"))? == sent, "{} of {sent} drops: {names:?}", seen("drop"));
    limiter.close()?;
    bed.close()
}

/// A hook that hangs is killed with what it started, and the next one has its turn.
#[test]
fn a_hook_that_hangs_ends() -> Result<()> {
    require_root();
    let bed = Testbed::create("hook")?;
    let called = bed.dir.path().join("called");
    let script = format!("#!/bin/sh\necho $LIMITER_EVENT >> {}\nsleep 1000\n", called.display());
    let hook = bed.dir.write("hook", script)?;
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755))?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.options(["--hook-command", &hook.display().to_string(), "--hook-timeout", "1s"]);
    limiter.options(["--event-quiet", "1s"]);
    limiter.start()?;
    flood(&bed)?;
    ensure!(lines_of(&called, 2)? == ["start", "end"]);
    limiter.wait_until_logged("did not end within 1s, and was killed")?;
    limiter.json(&["status"])?;
    limiter.close()?;
    bed.close()
}

/// The daemon trusts the authority that its environment names.
#[test]
fn a_webhook_is_called_over_https() -> Result<()> {
    require_root();
    let bed = Testbed::create("https")?;
    let own = generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let authority = bed.dir.write("ca.pem", own.cert.pem())?;
    let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
    let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.into()], key)?;
    let listener = bed.receiver.enter(|| TcpListener::bind("127.0.0.1:0"))??;
    let url = format!("https://{}/drops", listener.local_addr()?);
    let (sender, posted) = mpsc::channel();
    thread::spawn(move || listen(&listener, Some(&Arc::new(tls)), &sender));

    let mut limiter = bed.limiter(RULES)?;
    limiter.through(["env".to_owned(), format!("SSL_CERT_FILE={}", authority.display())]);
    limiter.options(["--hook-url", &url, "--event-quiet", "1s"]);
    limiter.start()?;
    flood(&bed)?;
    for name in ["start", "end"] {
        let (head, body) = posted.recv_timeout(PATIENCE).with_context(|| limiter.said())?;
        ensure!(head.starts_with("POST /drops HTTP/1.1\r\n"), "{head}");
        ensure!(body["event"] == name && body["source"] == "203.0.113.5", "{body}");
    }
    limiter.close()?;
    bed.close()
}
