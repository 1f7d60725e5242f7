//! A webhook: a POST to a server, over TCP or TLS.

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, Uri};

use crate::web::{WebClient, WebUrl};

/// Most bytes of an answer that are read; none of them is used.
const MOST_ANSWER: usize = 64 << 10;

/// A client for one URL.
pub(super) struct Webhook {
    url: WebUrl,
    client: WebClient,
}

impl Webhook {
    pub(super) fn new(url: WebUrl) -> Self {
        Self { client: WebClient::new(&url, "--hook-url"), url }
    }

    #[cfg(test)]
    fn trusting(roots: rustls::RootCertStore, url: WebUrl) -> Self {
        Self { client: WebClient::trusting(roots), url }
    }

    pub(super) const fn url(&self) -> &Uri {
        self.url.uri()
    }

    /// Sends JSON. A status from 200 to 299 is a success.
    pub(super) async fn post(&self, text: Vec<u8>) -> Result<(), String> {
        let request = Request::post(self.url())
            .header("content-type", "application/json")
            .header("connection", "close")
            .body(Full::new(Bytes::from(text)))
            .map_err(|error| error.to_string())?;
        let response = self.client.send(request).await?;
        let status = response.status();
        if let Err(error) = Limited::new(response.into_body(), MOST_ANSWER).collect().await {
            tracing::debug!(%error, "the rest of a webhook's answer is not read");
        }
        if status.is_success() { Ok(()) } else { Err(format!("the answer is {status}")) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread::{self, JoinHandle};
    use std::time::Duration;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::crypto::ring;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
    use tokio::runtime::{Builder, Runtime};
    use tokio::time::timeout;

    use super::*;
    use crate::web::FORM;

    #[test]
    fn urls_that_cannot_be_reported_are_refused() {
        for url in ["http://[::1]:8080/a?b=c", "https://hooks.example/x", "http://hooks.example"] {
            assert!(url.parse::<WebUrl>().is_ok(), "{url}");
        }
        for (text, part) in [
            ("ftp://hooks.example/", FORM),
            ("hooks.example/x", FORM),
            ("/x", FORM),
            ("https://user:secret@hooks.example/", "password"),
        ] {
            let error = text.parse::<WebUrl>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    /// The same kind of runtime as in the daemon.
    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn certificate(name: &str) -> CertifiedKey<rcgen::KeyPair> {
        generate_simple_self_signed([name.to_owned()]).unwrap()
    }

    /// Accepts one request, answers it, and returns its head and body; `None` if TLS fails.
    fn serve(
        listener: TcpListener,
        own: Option<&CertifiedKey<rcgen::KeyPair>>,
        answer: &'static str,
    ) -> JoinHandle<Option<(String, String)>> {
        let config = own.map(|own| {
            let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
            let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
            let builder = builder.with_safe_default_protocol_versions().unwrap();
            let builder = builder.with_no_client_auth();
            Arc::new(builder.with_single_cert(vec![own.cert.der().clone()], key).unwrap())
        });
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            match config {
                Some(config) => {
                    let tls = ServerConnection::new(config).unwrap();
                    exchange(StreamOwned::new(tls, stream), answer)
                }
                None => exchange(stream, answer),
            }
        })
    }

    fn exchange<S: Read + Write>(stream: S, answer: &str) -> Option<(String, String)> {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        let mut body = vec![0; length.parse().ok()?];
        reader.read_exact(&mut body).ok()?;
        reader.get_mut().write_all(answer.as_bytes()).ok()?;
        Some((head, String::from_utf8(body).ok()?))
    }

    /// Result of a call, and the head and body of the request that the server received.
    fn call(
        scheme: &str,
        own: Option<&CertifiedKey<rcgen::KeyPair>>,
        trusted: Option<&CertifiedKey<rcgen::KeyPair>>,
        answer: &'static str,
    ) -> (Result<(), String>, Option<(String, String)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://localhost:{}/a?b=c", listener.local_addr().unwrap().port());
        let served = serve(listener, own, answer);
        let mut roots = RootCertStore::empty();
        if let Some(trusted) = trusted {
            roots.add(trusted.cert.der().clone()).unwrap();
        }
        let webhook = Webhook::trusting(roots, url.parse().unwrap());
        let said = runtime().block_on(webhook.post(b"{}".to_vec()));
        (said, served.join().unwrap())
    }

    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

    #[test]
    fn the_same_is_posted_over_tcp_and_tls() {
        let own = certificate("localhost");
        for (scheme, own) in [("http", None), ("https", Some(&own))] {
            let (said, met) = call(scheme, own, own, OK);
            assert_eq!(said, Ok(()), "{scheme}");
            let (head, body) = met.unwrap();
            assert!(head.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{head}");
            assert!(head.contains("\r\nhost: localhost:"), "{head}");
            assert_eq!(body, "{}");
        }
    }

    #[test]
    fn nothing_is_sent_to_whom_the_machine_does_not_trust() {
        let (own, other) = (certificate("localhost"), certificate("hooks.example"));
        for (own, trusted, part) in [
            (&own, None, "UnknownIssuer"),
            // Both authorities have the same name.
            (&own, Some(&other), "BadSignature"),
            (&other, Some(&other), "not valid for name \"localhost\""),
        ] {
            let (said, met) = call("https", Some(own), trusted, OK);
            let error = said.unwrap_err();
            assert!(error.contains(part), "{error}");
            assert_eq!(met, None);
        }
    }

    #[test]
    fn an_answer_counts_by_its_status() {
        for (answer, status) in [
            ("HTTP/1.1 302 Found\r\nlocation: /b\r\ncontent-length: 0\r\n\r\n", "302 Found"),
            ("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", "500 Internal Server Error"),
        ] {
            let (said, _) = call("http", None, None, answer);
            assert_eq!(said, Err(format!("the answer is {status}")));
        }
        let cut_off = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok";
        for answer in ["HTTP/1.1 204 No Content\r\n\r\n", cut_off] {
            assert_eq!(call("http", None, None, answer).0, Ok(()), "{answer}");
        }
    }

    #[test]
    fn a_call_that_is_given_up_leaves_no_connection() {
        for scheme in ["http", "https"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("{scheme}://{}/", listener.local_addr().unwrap());
            // Reads the request but sends no answer.
            let server = thread::spawn(move || {
                listener.accept().unwrap().0.read_to_end(&mut Vec::new()).unwrap()
            });
            let webhook = Webhook::trusting(RootCertStore::empty(), url.parse().unwrap());
            let runtime = runtime();
            runtime.block_on(async {
                let short = Duration::from_millis(200);
                assert!(timeout(short, webhook.post(b"{}".to_vec())).await.is_err(), "{scheme}");
                // The daemon continues, and so must the runtime.
                let ended = tokio::task::spawn_blocking(|| server.join().unwrap());
                assert!(timeout(Duration::from_secs(30), ended).await.unwrap().unwrap() > 0);
            });
        }
    }

    #[test]
    fn an_error_says_what_is_wrong() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        drop(listener);
        let webhook = Webhook::new(url.parse().unwrap());
        let error = runtime().block_on(webhook.post(Vec::new())).unwrap_err();
        assert!(error.contains("Connection refused"), "{error}");
    }
}
