//! nginx asks, as docs/requests.md shows it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
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

struct Nginx(Child);

impl Nginx {
    /// Starts nginx with locations and an application behind it; waits until it answers.
    fn start(directory: &Path, locations: &str, port: u16, application: u16) -> Self {
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
        command.arg("-e").arg(directory.join("errors")).arg("-c").arg(&file);
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("nginx cannot be started: {error}: `cargo xtask setup` installs it")
        });
        let nginx = Self(child);
        let deadline = Instant::now() + Duration::from_mins(1);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "nginx does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        nginx
    }
}

impl Drop for Nginx {
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

#[test]
fn nginx_limits_log_ins_by_the_files_of_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("auth.yaml");
    fs::write(&rules, block("# /etc/limiter/auth.yaml\n")).unwrap();
    let server = Server::start(&Options {
        rules: vec![rules],
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        max_keys: 100,
        max_connections: 100,
        threads: 1,
        response_headers: false,
        bans: None,
        cluster: None,
        deadline: DEFAULT_DEADLINE,
        max_waiting: 100,
        state: None,
    })
    .unwrap();
    let Listen::Tcp(limiter) = server.addresses()[0].clone() else { panic!("no address") };
    let (port, application) = (free_port(), free_port());
    let locations = block("```nginx\n")
        .replace("http://127.0.0.1:8081", &format!("http://{limiter}"))
        .replace("http://application", &format!("http://127.0.0.1:{application}"));
    let nginx = Nginx::start(directory.path(), &locations, port, application);
    for _ in 0..3 {
        let answer = ask(port);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("application"), "{answer}");
    }
    let answer = ask(port);
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(answer.contains("\r\nRetry-After: "), "{answer}");
    drop(nginx);
    server.stop().unwrap();
}
