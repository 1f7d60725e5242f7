//! A server of the test, and what a client of HTTP asks it.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use limiter_requests::{DEFAULT_DEADLINE, Listen, Options, Server};
use serde_json::{Value, json};

pub(crate) const RULES: &str = "
domain: auth
check:
  - [{key: form, value: login}, {key: remote_address, header: X-Real-IP}]
descriptors:
  - key: form
    value: login
    descriptors:
      - {key: remote_address, rate_limit: {name: logins, rate: 2/hour}}
  - {key: user, rate_limit: {rate: 3/min}, detailed_metric: true}
  - {key: send, rate_limit: {rate: 10/s, burst: 1}}
  - {key: month, rate_limit: {unit: month, algorithm: fixed_window, requests_per_unit: 2}}
  - {key: never, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
";

pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
    pub(crate) directory: tempfile::TempDir,
}

/// A server for so many connections.
pub(crate) fn running(connections: usize) -> Running {
    started(|options| options.max_connections = connections)
}

/// A server with options of the test.
pub(crate) fn started(change: impl FnOnce(&mut Options)) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("r.yaml");
    fs::write(&rules, RULES).unwrap();
    let mut options = Options {
        rules: vec![rules],
        listen: vec!["127.0.0.1:0".parse().unwrap(), Listen::Unix(directory.path().join("s"))],
        resp: Vec::new(),
        max_keys: 1000,
        max_connections: 100,
        threads: 1,
        response_headers: false,
        daemon: None,
        cluster: None,
        deadline: DEFAULT_DEADLINE,
        max_waiting: 100,
        state: None,
    };
    change(&mut options);
    let server = Server::start(&options).unwrap();
    let Listen::Tcp(address) = server.addresses()[0].clone() else { panic!("no address") };
    Running { server, address, directory }
}

pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let begins = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(&begins))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) fn read(stream: &mut impl Read) -> Response {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head: head.to_owned(), body: body.to_owned() }
}

impl Running {
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Response {
        let mut stream = self.connect();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: \
             {length}\r\n\r\n{body}"
        );
        // A server that refuses a request may have answered before all of it is sent.
        drop(stream.write_all(request.as_bytes()));
        read(&mut stream)
    }

    pub(crate) fn json(&self, asked: &Value) -> Response {
        self.ask("POST", "/json", "", &asked.to_string())
    }

    pub(crate) fn one(&self, key: &str, value: &str) -> Response {
        let entries = json!([{"key": key, "value": value}]);
        self.json(&json!({"domain": "auth", "descriptors": [{"entries": entries}]}))
    }

    pub(crate) fn check(&self, source: &str, path: &str) -> Response {
        self.ask("GET", path, &format!("X-Real-IP: {source}\r\n"), "")
    }

    pub(crate) fn metric(&self, begins: &str) -> u64 {
        let page = self.ask("GET", "/metrics", "", "").body;
        let line = page.lines().find_map(|line| line.strip_prefix(begins));
        line.unwrap_or_else(|| panic!("no {begins} in\n{page}")).trim().parse().unwrap()
    }
}
