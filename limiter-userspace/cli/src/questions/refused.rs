//! `limiter refused`, which asks `limiter serve`.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use limiter_api::ErrorBody;
use limiter_api::refused::RefusedKeys;
use limiter_requests::Listen;
use limiter_text::plain::clean;
use serde_json::json;

use crate::failure::Failure;

/// The longest wait for a part of the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of an answer: 100 keys.
const MOST: u64 = 1 << 20;

/// Arguments of `refused`.
#[derive(Debug, clap::Args)]
pub(crate) struct Ask {
    /// The domain of a rule file, or (commands) for the keys of CL.THROTTLE
    domain: Option<String>,
    /// Only the key of this descriptor: all of its keys and values
    #[arg(value_name = "KEY=VALUE", value_parser = entry)]
    entries: Vec<(String, String)>,
    /// Where `limiter serve` listens
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH", default_value = "127.0.0.1:8081")]
    pub(crate) server: Listen,
    /// Same as --output json
    #[arg(long)]
    pub(crate) json: bool,
}

impl Ask {
    /// Asks for the keys that are refused most.
    pub(crate) const fn all(server: Listen) -> Self {
        Self { domain: None, entries: Vec::new(), server, json: false }
    }
}

fn entry(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    pair.ok_or_else(|| "write KEY=VALUE, as in remote_address=192.0.2.7".to_owned())
}

pub(crate) fn ask(Ask { domain, entries, server, .. }: &Ask) -> Result<RefusedKeys, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        let why = clean(&why.to_string());
        Failure::Server(format!(
            "cannot ask `limiter serve` at {server}: {why}: name its address with --server, or with \
             --requests of `top`"
        ))
    };
    if let (Some(domain), []) = (domain, &entries[..]) {
        return Err(Failure::Server(format!(
            "name a key of {domain}, too, as in `limiter refused {domain} {}`; without a domain \
             all are listed",
            if domain == "(commands)" { "key=user:7" } else { "remote_address=192.0.2.7" }
        )));
    }
    let request = domain.as_ref().map_or_else(
        || "GET /refused HTTP/1.1\r\nhost: limiter\r\nconnection: close\r\n\r\n".to_owned(),
        |domain| {
            let entries = entries.iter().map(|(key, value)| json!({"key": key, "value": value}));
            let entries: Vec<_> = entries.collect();
            let body = json!({"domain": domain, "descriptors": [{"entries": entries}]}).to_string();
            let length = body.len();
            format!(
                "POST /refused HTTP/1.1\r\nhost: limiter\r\nconnection: close\r\ncontent-length: \
                 {length}\r\n\r\n{body}"
            )
        },
    );
    let answer = match server {
        Listen::Tcp(address) => TcpStream::connect_timeout(address, PATIENCE).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            exchange(stream, &request)
        }),
        Listen::Unix(path) => UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            exchange(stream, &request)
        }),
    };
    let answer = answer.map_err(|error| failed(&error))?;
    let Some((_, body)) = answer.split_once("\r\n\r\n") else {
        return Err(failed(&"it does not speak HTTP there, as behind --resp"));
    };
    match serde_json::from_str::<ErrorBody>(body) {
        Ok(ErrorBody { error }) => Err(Failure::Server(clean(&error))),
        Err(_) => serde_json::from_str(body).map_err(|error| failed(&error)),
    }
}

fn exchange(mut stream: impl Read + Write, request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(MOST).read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use limiter_api::render;
    use limiter_requests::{DEFAULT_DEADLINE, DEFAULT_LISTEN, Options, Server};

    use super::*;

    const RULES: &str = "domain: d\ndescriptors:\n  - {key: k, rate_limit: {name: few, rate: 1/day, \
                         burst: 1}}\n  - {key: user, rate_limit: {rate: 1/day, burst: 1}, \
                         detailed_metric: true}\n";

    fn started(directory: &std::path::Path) -> (Server, Listen) {
        let rules = directory.join("r.yaml");
        fs::write(&rules, RULES).unwrap();
        let options = Options {
            rules: vec![rules],
            listen: vec!["127.0.0.1:0".parse().unwrap(), Listen::Unix(directory.join("s"))],
            resp: Vec::new(),
            max_keys: 100,
            max_connections: 10,
            threads: 1,
            response_headers: false,
            daemon: None,
            cluster: None,
            deadline: DEFAULT_DEADLINE,
            max_waiting: 1,
            state: None,
        };
        let server = Server::start(&options).unwrap();
        let at = server.addresses()[0].clone();
        (server, at)
    }

    #[test]
    fn refused_keys_are_shown_by_a_server_over_tcp_and_a_unix_socket() {
        let directory = tempfile::tempdir().unwrap();
        let (server, at) = started(directory.path());
        let ask = |of: Option<(&str, &str)>, server: &Listen| {
            let entries = of.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let domain = of.map(|_| "d".to_owned());
            let entries = entries.into_iter().collect();
            ask(&Ask { domain, entries, server: server.clone(), json: false })
        };
        assert_eq!(
            render::text(&ask(None, &at).unwrap()),
            "no key was refused\nrefused in all: 0; 0 of these have other keys, each at most 0\n"
        );
        let Listen::Tcp(address) = at else { panic!("no address") };
        for (key, value) in [("k", "ann"), ("k", "ann"), ("user", "b\u{1b}b"), ("user", "b\u{1b}b")]
        {
            let entries = json!([{"key": key, "value": value}]);
            let body = json!({"domain": "d", "descriptors": [{"entries": entries}]}).to_string();
            let length = body.len();
            let request = format!(
                "POST /json HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: \
                 {length}\r\n\r\n{body}"
            );
            exchange(TcpStream::connect(address).unwrap(), &request).unwrap();
        }
        let unix = Listen::Unix(directory.path().join("s"));
        let text = render::text(&ask(None, &unix).unwrap());
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
        let head = ["RULE", "KEY"];
        assert_eq!(rows[0], head);
        assert!(text.contains("d: few   hidden"), "{text}");
        assert!(text.contains("d: user  user=b\u{fffd}b"), "{text}");
        assert!(
            text.ends_with("refused in all: 2; 0 of these have other keys, each at most 0\n"),
            "{text}"
        );
        assert!(text.contains("\nhidden: a rule with `detailed_metric: true`"), "{text}");
        let alone = Ask { domain: Some("d".to_owned()), ..Ask::all(unix.clone()) };
        let failure = super::ask(&alone).unwrap_err().to_string();
        assert!(failure.starts_with("name a key of d, too"), "{failure}");
        let own = ask(Some(("k", "ann")), &unix).unwrap();
        assert_eq!((own.keys.len(), own.keys[0].refused, own.others), (1, 1, 1));
        let failure = ask(Some(("other", "ann")), &unix).unwrap_err().to_string();
        assert!(failure.starts_with("no rule"), "{failure}");
        server.stop().unwrap();
        let failure = ask(None, &unix).unwrap_err().to_string();
        assert!(failure.contains("--server"), "{failure}");
    }

    #[test]
    fn a_descriptor_is_a_domain_with_keys_and_values() {
        assert_eq!(entry("k=a=b"), Ok(("k".to_owned(), "a=b".to_owned())));
        let parsed = crate::tests::parse("limiter refused").unwrap().command;
        let crate::args::Command::Refused(ask) = parsed else { panic!("no `refused`") };
        assert_eq!(ask.server, Listen::Tcp(DEFAULT_LISTEN));
        for wrong in ["limiter refused d ann", "limiter refused --server x"] {
            assert!(crate::tests::parse(wrong).is_err(), "{wrong}");
        }
    }
}
