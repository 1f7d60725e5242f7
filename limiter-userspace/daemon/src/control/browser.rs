//! Requests of browsers. A browser sends requests for any site that its user has open, under the
//! name of the user who forwarded the socket or the port to it. So it may only read, only under a
//! host name that no site can have (DNS rebinding), and only for a page served from here.

use axum::extract::Request;
use axum::http::header::{
    ACCEPT_LANGUAGE, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERER,
    REFERRER_POLICY, USER_AGENT, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::loopback;
use super::refusal::Failure;

/// Origin of the request, in a browser's terms: `same-origin`, `same-site`, `cross-site` or `none`.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Purpose of a browser's request: `navigate` is a page that its user opens.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Headers of every answer to a browser: it must not be cached, sniffed, framed, or read by another
/// site.
const HEADERS: [(HeaderName, HeaderValue); 7] = [
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-embedder-policy"),
        HeaderValue::from_static("require-corp"),
    ),
    // An answer that is not a page has nothing to load or to run.
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    ),
];

/// Adds the headers for browsers, except those that the answer sets itself.
pub fn harden(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(value);
    }
}

/// Lets browsers only read. Over TCP, where the port is known, every client counts as a browser; on
/// the socket, only clients that send a browser's headers.
pub(super) async fn guard(port: Option<u16>, request: Request, next: Next) -> Response {
    if port.is_none() && !is_browser(request.headers()) {
        return next.run(request).await;
    }
    let mut answer = match refused(port, &request) {
        Some(failure) => failure.into_response(),
        None => next.run(request).await,
    };
    if answer.status() == StatusCode::METHOD_NOT_ALLOWED {
        answer.headers_mut().entry(ALLOW).or_insert(HeaderValue::from_static("GET, HEAD"));
    }
    harden(answer.headers_mut());
    answer
}

/// Returns true if a request has a header that browsers send by themselves. Scripts of a site
/// cannot leave all of them out.
fn is_browser(headers: &HeaderMap) -> bool {
    let says = |name: HeaderName| headers.contains_key(name);
    let agent = headers.get(USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
    says(ORIGIN)
        || says(REFERER)
        || says(FETCH_SITE)
        || says(FETCH_MODE)
        || says(ACCEPT_LANGUAGE)
        || agent.starts_with(b"Mozilla/")
}

/// Reason to refuse a browser's request, if there is one.
fn refused(port: Option<u16>, request: &Request) -> Option<Failure> {
    let headers = request.headers();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let text = "a browser may only read: copy the command, and run it in a shell".to_owned();
        return Some(Failure(StatusCode::METHOD_NOT_ALLOWED, text));
    }
    let mut hosts = headers.get_all(HOST).iter().map(HeaderValue::to_str);
    let host = match (hosts.next(), hosts.next()) {
        (Some(Ok(host)), None) => host,
        _ => "",
    };
    // A URL in place of a path names a host as well.
    let target = request.uri().authority().is_none_or(|named| named.as_str() == host);
    if !target || !loopback::is_named_by(host, port) {
        let port = port.map_or_else(|| "PORT".to_owned(), |port| port.to_string());
        let text = format!(
            "this is not served under the name {host:?}, which a site could have: open \
             http://localhost:{port}/, forwarded by ssh from the same port if it is another \
             machine's"
        );
        return Some(Failure(StatusCode::FORBIDDEN, text));
    }
    // If a header occurs twice, both values must fit.
    let fits = |name: HeaderName, of: &dyn Fn(&[u8]) -> bool| {
        headers.get_all(name).iter().all(|value| of(value.as_bytes()))
    };
    let origin = fits(ORIGIN, &|origin| origin == format!("http://{host}").as_bytes());
    let site = fits(FETCH_SITE, &|site| matches!(site, b"same-origin" | b"none"));
    let opens = headers.contains_key(FETCH_MODE) && fits(FETCH_MODE, &|mode| mode == b"navigate");
    if !origin || !(site || opens) {
        let text = "another site asks: only the page from here is answered".to_owned();
        return Some(Failure(StatusCode::FORBIDDEN, text));
    }
    None
}
