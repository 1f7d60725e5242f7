//! nginx and `HAProxy` ask, as docs/requests.md shows it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use limiter_requests::{DEFAULT_DEADLINE, Listen, Options, Server};

const PAGE: &str = include_str!("../../../../docs/requests.md");

/// The block of the page that begins with a text.
fn block(begins: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(begins).unwrap_or_else(|| panic!("no {begins}"));
    rest.split("```").next().unwrap()
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A proxy of the test.
struct Proxy(Child);

impl Proxy {
    /// Starts a proxy, and waits until it answers at a port.
    fn start(command: &mut Command, port: u16) -> Self {
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("{command:?} cannot be started: {error}: `cargo xtask setup` installs it")
        });
        let proxy = Self(child);
        let deadline = Instant::now() + Duration::from_mins(1);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        proxy
    }

    /// nginx with locations and an application behind it.
    fn nginx(directory: &Path, locations: &str, port: u16, application: u16) -> Self {
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {}/{name};", directory.display()));
        let configuration = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/errors;\nevents {{}}\n\
             http {{ access_log off; {temporary}\nserver {{ listen 127.0.0.1:{port};\n{locations}}}\n\
             server {{ listen 127.0.0.1:{application}; location / {{ return 200 application; }} }}\n\
             }}\n",
            at = directory.display(),
            temporary = temporary.join(" "),
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, configuration).unwrap();
        let mut command = Command::new("nginx");
        Self::start(command.arg("-e").arg(directory.join("errors")).arg("-c").arg(&file), port)
    }

    /// `HAProxy` with the lines of a configuration, and an application in the place of one.
    fn haproxy(directory: &Path, lines: &str, port: u16) -> Self {
        let configuration = format!(
            "{lines}\nbackend application\n    mode http\n    http-request return status 200 \
             content-type text/plain string application\n"
        );
        let file = directory.join("haproxy.cfg");
        fs::write(&file, configuration).unwrap();
        Self::start(Command::new("haproxy").arg("-db").arg("-f").arg(&file), port)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn ask(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // A client that says it is another one.
    let request =
        "GET /login HTTP/1.1\r\nHost: x\r\nX-Real-IP: 203.0.113.9\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A server with the rules of the page, and its address.
fn limiter(directory: &Path) -> (Server, SocketAddr) {
    let rules = directory.join("auth.yaml");
    fs::write(&rules, block("# /etc/limiter/auth.yaml\n")).unwrap();
    let server = Server::start(&Options {
        rules: vec![rules],
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        max_keys: 100,
        max_connections: 100,
        threads: 1,
        response_headers: false,
        daemon: None,
        cluster: None,
        deadline: DEFAULT_DEADLINE,
        max_waiting: 100,
        state: None,
    })
    .unwrap();
    let Listen::Tcp(address) = server.addresses()[0].clone() else { panic!("no address") };
    (server, address)
}

/// Three log-ins pass, and the fourth waits.
fn limits_log_ins(port: u16) {
    for _ in 0..3 {
        let answer = ask(port);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("application"), "{answer}");
    }
    let answer = ask(port).to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 429 "), "{answer}");
    assert!(answer.contains("\r\nretry-after: 20\r\n"), "{answer}");
}

#[test]
fn nginx_limits_log_ins_by_the_files_of_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let (server, limiter) = limiter(directory.path());
    let (port, application) = (free_port(), free_port());
    let locations = block("```nginx\n")
        .replace("http://127.0.0.1:8081", &format!("http://{limiter}"))
        .replace("http://application", &format!("http://127.0.0.1:{application}"));
    let nginx = Proxy::nginx(directory.path(), &locations, port, application);
    limits_log_ins(port);
    drop(nginx);
    server.stop().unwrap();
}

#[test]
fn haproxy_limits_log_ins_by_the_files_of_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let (server, limiter) = limiter(directory.path());
    let script = directory.path().join("limiter.lua");
    let text = block("```lua\n").replace("127.0.0.1:8081", &limiter.to_string());
    fs::write(&script, text).unwrap();
    let port = free_port();
    let lines = block("```haproxy\n")
        .replace("/etc/haproxy/limiter.lua", &script.display().to_string())
        .replace("bind :80", &format!("mode http\n    bind 127.0.0.1:{port}"));
    let haproxy = Proxy::haproxy(directory.path(), &lines, port);
    limits_log_ins(port);
    // Other paths are not asked about.
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(haproxy);
    server.stop().unwrap();
}
