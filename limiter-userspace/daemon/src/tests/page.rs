//! The page: who gets it, what it may do, and that nothing else is served beside it.

use std::sync::Mutex;

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;

use super::*;
use crate::routes;

const PORT: u16 = 9465;
const HERE: (&str, &str) = ("host", "localhost:9465");

/// Places that a request comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Page,
    /// The control socket, as root.
    Socket,
}

struct Answered {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Answered {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

struct Server {
    runtime: tokio::runtime::Runtime,
    service: Arc<Mutex<Service>>,
}

impl Server {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, service: Arc::new(Mutex::new(Daemon::start(&[]).service)) }
    }

    fn ask(&self, at: At, method: &str, path: &str, headers: &[(&str, &str)]) -> Answered {
        let service = Arc::clone(&self.service);
        let (router, user) = match at {
            At::Page => (routes::page(service, PORT), u32::MAX),
            At::Socket => (routes::router(service), 0),
        };
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(axum::body::Body::from("{\"engaged\":true}")).unwrap();
        let router = TowerToHyperService::new(crate::control::met_by(router, user));
        self.runtime.block_on(async {
            let (head, body) = router.call(request).await.unwrap().into_parts();
            let body = body.collect().await.unwrap().to_bytes().to_vec();
            let body = String::from_utf8(body).unwrap();
            Answered { status: head.status.as_u16(), headers: head.headers, body }
        })
    }

    fn page(&self) -> Answered {
        self.ask(At::Page, "GET", "/", &[HERE])
    }
}

/// The text of the one element of this kind.
fn only<'a>(page: &'a str, open: &str, close: &str) -> &'a str {
    let (before, rest) = page.split_once(open).unwrap();
    let (text, after) = rest.split_once(close).unwrap();
    assert!(!before.contains(close) && !after.contains(open), "{open} is not there once");
    text
}

fn hash(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    format!("'sha256-{}'", STANDARD.encode(digest))
}

/// Against an attempt to read from another origin, or to frame the page.
#[test]
fn the_policy_lets_the_page_run_and_nothing_else() {
    let answer = Server::start().page();
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/html; charset=utf-8"));
    let style = hash(only(&answer.body, "<style>", "</style>"));
    let script = hash(only(&answer.body, "<script type=\"module\">", "</script>"));
    let policy = format!(
        "default-src 'none'; style-src {style}; script-src {script}; connect-src 'self'; img-src \
         data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    assert_eq!(answer.header("content-security-policy"), policy);
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-embedder-policy", "require-corp"),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
}

/// Against an attempt to run a script in the page by a name or an address.
#[test]
fn the_page_asks_nobody_else_and_writes_no_markup() {
    let page = Server::start().page().body;
    // The namespace of SVG is only a name; no request goes there.
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for elsewhere in ["http:", "https:", "src=", "url(", "@import", "WebSocket", "import("] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    for markup in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "setHTML",
        "document.write",
        "DOMParser",
        "eval(",
        "Function(",
        "srcdoc",
        "createContextualFragment",
        "localStorage",
        "cookie",
    ] {
        assert!(!page.contains(markup), "{markup}");
    }
    assert!(page.len() < 80_000, "{} bytes", page.len());
    assert!(!page.contains("/* style */") && !page.contains("/* script */"));
}

/// Against an attempt to read, by a name of theirs that leads to this machine.
#[test]
fn only_names_of_this_machine_are_answered() {
    let server = Server::start();
    for host in ["localhost:9465", "127.0.0.1:9465", "[::1]:9465"] {
        for path in ["/", "/v1/status"] {
            let answer = server.ask(At::Page, "GET", path, &[("host", host)]);
            assert_eq!(answer.status, 200, "{host}{path}: {}", answer.body);
        }
    }
    for host in ["evil.example:9465", "localhost:9464", "localhost", "192.0.2.1:9465", ""] {
        for path in ["/", "/v1/status", "/nothing"] {
            let answer = server.ask(At::Page, "GET", path, &[("host", host)]);
            assert_eq!(answer.status, 403, "{host}{path}");
            assert!(answer.body.contains("http://localhost:9465/"), "{}", answer.body);
        }
    }
    assert_eq!(server.ask(At::Page, "GET", "/", &[]).status, 403, "no name at all");
    let two = [HERE, ("host", "evil.example:9465")];
    assert_eq!(server.ask(At::Page, "GET", "/", &two).status, 403, "two names");
    let other = server.ask(At::Page, "GET", "http://evil.example:9465/", &[HERE]);
    assert_eq!(other.status, 403, "a name in the place of a path");
}

/// Against an attempt to read from another origin, or to frame the page.
#[test]
fn other_sites_get_nothing() {
    let server = Server::start();
    let asked = |headers: &[(&str, &str)]| {
        let headers: Vec<_> = [HERE].iter().chain(headers).copied().collect();
        let answer = server.ask(At::Page, "GET", "/v1/top", &headers);
        let cors = answer.headers.keys().any(|name| name.as_str().starts_with("access-control"));
        assert!(!cors, "{:?}", answer.headers);
        answer.status
    };
    assert_eq!(asked(&[("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")]), 200);
    assert_eq!(asked(&[("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")]), 200);
    assert_eq!(asked(&[("origin", "http://localhost:9465")]), 200);
    for site in ["cross-site", "same-site"] {
        assert_eq!(asked(&[("sec-fetch-site", site), ("sec-fetch-mode", "no-cors")]), 403);
        // A header that comes twice is no way around.
        let twice = [("sec-fetch-site", "same-origin"), ("sec-fetch-site", site)];
        assert_eq!(asked(&twice), 403);
        let modes = [("sec-fetch-mode", "navigate"), ("sec-fetch-mode", "cors")];
        assert_eq!(asked(&[&twice[1..], &modes[..]].concat()), 403);
        // Somebody follows a link to here.
        assert_eq!(asked(&[("sec-fetch-site", site), ("sec-fetch-mode", "navigate")]), 200);
    }
    for origin in ["http://evil.example", "null", "http://localhost:9464", "https://localhost:9465"]
    {
        assert_eq!(asked(&[("origin", origin)]), 403, "{origin}");
    }
}

/// Requests every path of the description by every method.
#[test]
fn nothing_that_changes_is_served_beside_the_page() {
    const READ: [&str; 9] = [
        "/",
        "/v1/status",
        "/v1/top",
        "/v1/history",
        "/v1/stats",
        "/v1/sources/{address}",
        "/v1/events",
        "/v1/utilization",
        "/v1/requests",
    ];
    let server = Server::start();
    let description = server.ask(At::Socket, "GET", "/v1/openapi.json", &[]).body;
    let description: Value = serde_json::from_str(&description).unwrap();
    let paths: Vec<_> = description["paths"].as_object().unwrap().keys().cloned().collect();
    assert!(READ.iter().all(|path| paths.iter().any(|other| other == path)), "{paths:?}");
    for path in &paths {
        let asked = path.replace("{address}", "192.0.2.1");
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let answer = server.ask(At::Page, method, &asked, &[HERE]);
            let wanted = match (method, READ.contains(&path.as_str())) {
                ("GET" | "HEAD", true) => 200,
                ("GET" | "HEAD", false) => 404,
                _ => 405,
            };
            assert_eq!(answer.status, wanted, "{method} {path}: {}", answer.body);
            assert_eq!(answer.header("x-content-type-options"), "nosniff");
            if wanted == 405 {
                assert_eq!(answer.header("allow"), "GET, HEAD", "{method} {path}");
            }
        }
    }
}

/// A user forwards the socket, and a site open in the same browser sends requests to it.
#[test]
fn a_browser_changes_nothing_on_the_socket() {
    let server = Server::start();
    let asked = |method: &str, path: &str, headers: &[(&str, &str)]| {
        server.ask(At::Socket, method, path, headers)
    };
    let host = ("host", "localhost:8000");
    for header in [
        ("origin", "http://localhost:8000"),
        ("referer", "http://localhost:8000/"),
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-mode", "cors"),
        ("accept-language", "en"),
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)"),
    ] {
        let answer = asked("PUT", "/v1/bypass", &[host, header]);
        assert_eq!(answer.status, 405, "{header:?}");
        assert!(answer.body.contains("copy the command"), "{}", answer.body);
        assert_eq!(asked("GET", "/v1/status", &[host, header]).status, 200, "{header:?}");
        let rebound = asked("GET", "/v1/status", &[("host", "evil.example:8000"), header]);
        assert_eq!(rebound.status, 403, "{header:?}");
    }
    assert!(!server.service.lock().unwrap().status().unwrap().bypass);
    let page = asked("GET", "/", &[host, ("accept-language", "en")]);
    assert_eq!((page.status, page.body), (200, server.page().body));
    // Programs go on as ever, under whatever name.
    assert_eq!(asked("PUT", "/v1/bypass", &[("host", "limiter")]).status, 200);
    assert!(server.service.lock().unwrap().status().unwrap().bypass);
}
