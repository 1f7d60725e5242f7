//! The paths of the server.

use std::borrow::Cow;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use limiter_text::exposition;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::check;
use crate::clock::Moment;
use crate::json::{AnswerOut, AskedIn, Seconds};
use crate::limiter::{Asked, Descriptor, Detail, Limiter, Refused};
use crate::metrics;
use crate::reservations::GivenBack;
use crate::service::{Service, Stats, Why};

/// The longest body, in bytes.
const MAX_BODY: usize = 64 << 10;

/// Time for a body.
const BODY: Duration = Duration::from_secs(5);

/// The longest time that an answer is held back.
const MAX_HOLD: Duration = Duration::from_mins(1);

/// The longest time ahead for which requests are reserved.
const MAX_AHEAD: Duration = Duration::from_hours(24);

type Answered = Response<Full<Bytes>>;

/// Answers a request.
pub(crate) async fn answer(service: &Service, request: Request<Incoming>) -> Answered {
    let path = request.uri().path();
    let (first, rest) = path
        .trim_start_matches('/')
        .split_once('/')
        .unwrap_or_else(|| (path.trim_start_matches('/'), ""));
    let method = request.method().clone();
    match (first, rest) {
        ("json", "") => match method {
            Method::POST => json(service, request).await,
            _ => not_allowed(service, "POST"),
        },
        ("check", domain) => checked(service, domain, &request),
        ("reserve", "") => match method {
            Method::POST => reserve(service, request).await,
            _ => not_allowed(service, "POST"),
        },
        ("reserve", id) => match method {
            Method::DELETE => give_back(service, id),
            _ => not_allowed(service, "DELETE"),
        },
        ("healthcheck", "") => text(StatusCode::OK, "OK\n"),
        ("metrics", "") => {
            let page = metrics::page(&service.limiter, &service.stats);
            let mut answer = plain(StatusCode::OK, page);
            let kind = HeaderValue::from_static(exposition::CONTENT_TYPE);
            answer.headers_mut().insert(CONTENT_TYPE, kind);
            answer
        }
        _ => {
            let paths = "/json, /check, /reserve, /healthcheck or /metrics";
            service.stats.refuse(Why::Path);
            error(StatusCode::NOT_FOUND, &format!("nothing is here: ask {paths}"))
        }
    }
}

fn plain(status: StatusCode, body: impl Into<Bytes>) -> Answered {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
}

fn text(status: StatusCode, body: &'static str) -> Answered {
    let mut answer = plain(status, body);
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn document(status: StatusCode, document: &impl Serialize) -> Answered {
    match serde_json::to_vec(document) {
        Ok(body) => {
            let mut answer = plain(status, body);
            let kind = HeaderValue::from_static("application/json");
            answer.headers_mut().insert(CONTENT_TYPE, kind);
            answer
        }
        Err(problem) => {
            tracing::error!(%problem, "an answer cannot be written: report this as a bug");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "")
        }
    }
}

fn error(status: StatusCode, reason: &str) -> Answered {
    #[derive(Serialize)]
    struct Problem<'a> {
        error: &'a str,
    }
    document(status, &Problem { error: reason })
}

fn not_allowed(service: &Service, method: &'static str) -> Answered {
    service.stats.refuse(Why::Method);
    let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, &format!("use {method}"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(method));
    answer
}

fn refused(stats: &Stats, refused: &Refused) -> Answered {
    stats.refuse(Why::Request);
    error(StatusCode::BAD_REQUEST, &refused.to_string())
}

/// The body, as long as it is short and comes in time.
async fn body(service: &Service, request: Request<Incoming>) -> Result<Bytes, Answered> {
    let refuse = |why, status, reason: &str| {
        service.stats.refuse(why);
        Err(error(status, reason))
    };
    match timeout(BODY, Limited::new(request.into_body(), MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(problem)) if problem.is::<http_body_util::LengthLimitError>() => {
            let reason = "the body is longer than 64 KiB: ask for fewer descriptors at once";
            refuse(Why::TooLong, StatusCode::PAYLOAD_TOO_LARGE, reason)
        }
        Ok(Err(problem)) => {
            let reason = format!("the body cannot be read: {problem}");
            refuse(Why::Request, StatusCode::BAD_REQUEST, &reason)
        }
        Err(_) => {
            refuse(Why::TooSlow, StatusCode::REQUEST_TIMEOUT, "the body did not come within 5 s")
        }
    }
}

fn parsed<'a, T: Deserialize<'a>>(service: &Service, body: &'a [u8]) -> Result<T, Answered> {
    serde_json::from_slice(body).map_err(|problem| {
        service.stats.refuse(Why::Request);
        error(StatusCode::BAD_REQUEST, &format!("no request: {problem}"))
    })
}

const fn status_of(over: bool) -> StatusCode {
    if over { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK }
}

async fn json(service: &Service, request: Request<Incoming>) -> Answered {
    let body = match body(service, request).await {
        Ok(body) => body,
        Err(answer) => return answer,
    };
    let asked: AskedIn = match parsed(service, &body) {
        Ok(asked) => asked,
        Err(answer) => return answer,
    };
    let Service { limiter, stats, .. } = service;
    if asked.max_wait().is_some() || asked.holds() {
        stats.refuse(Why::Request);
        return error(StatusCode::BAD_REQUEST, "maxWait and wait are for /reserve: ask there");
    }
    match limiter.decide(&limiter.rules(), &asked.asked(), &Moment::now(), Detail::Left) {
        Ok(answer) => document(status_of(answer.over), &AnswerOut::from(&answer)),
        Err(problem) => refused(stats, &problem),
    }
}

/// Answers a proxy that asks by a request of its own.
fn checked(service: &Service, domain: &str, request: &Request<Incoming>) -> Answered {
    let Service { limiter, stats, .. } = service;
    let over_status = match over_status(request.uri().query()) {
        Ok(status) => status,
        Err(reason) => {
            stats.refuse(Why::Request);
            return error(StatusCode::BAD_REQUEST, reason);
        }
    };
    let rules = limiter.rules();
    let mut mapped = rules
        .domains()
        .into_iter()
        .filter(|(name, of)| !of.check.is_empty() && (domain.is_empty() || *name == domain));
    let (name, domain) = match (mapped.next(), mapped.next()) {
        (Some(found), None) => found,
        (None, _) => {
            stats.refuse(Why::Request);
            let reason = "no rule file has `check` for this: write it, or ask /check/DOMAIN";
            return error(StatusCode::NOT_FOUND, reason);
        }
        (Some(_), Some(_)) => {
            stats.refuse(Why::Request);
            let reason = "several rule files have `check`: ask /check/DOMAIN";
            return error(StatusCode::NOT_FOUND, reason);
        }
    };
    let made = check::descriptors(&domain.check, request.headers());
    if made.is_empty() {
        stats.empty_check();
        return plain(StatusCode::OK, "");
    }
    let descriptors = made.iter().map(|entries| Descriptor {
        entries: entries
            .iter()
            .map(|(key, value): &(&str, Cow<'_, str>)| (*key, &**value))
            .collect(),
        ..Descriptor::default()
    });
    let asked = Asked { domain: name, descriptors: descriptors.collect(), hits: 1 };
    match limiter.decide(&rules, &asked, &Moment::now(), Detail::Left) {
        Ok(decided) => {
            let mut answer = if decided.over {
                text(over_status, "Too many requests.\n")
            } else {
                plain(StatusCode::OK, "")
            };
            check::add_headers(&decided, answer.headers_mut());
            answer
        }
        Err(problem) => refused(stats, &problem),
    }
}

/// The status over a limit: some proxies take no 429 from a check.
fn over_status(query: Option<&str>) -> Result<StatusCode, &'static str> {
    match query {
        None | Some("" | "over=429") => Ok(StatusCode::TOO_MANY_REQUESTS),
        Some("over=401") => Ok(StatusCode::UNAUTHORIZED),
        Some("over=403") => Ok(StatusCode::FORBIDDEN),
        Some("over=503") => Ok(StatusCode::SERVICE_UNAVAILABLE),
        Some(_) => Err("write ?over=401, 403, 429 or 503, or nothing behind the path"),
    }
}

#[derive(Serialize)]
struct ReserveOut<'a> {
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<&'a str>,
    #[serde(flatten)]
    answer: AnswerOut<'a>,
}

/// Gives a reservation back whose answer nobody waits for any more.
struct Waiting<'a> {
    limiter: &'a Limiter,
    id: Option<&'a str>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.limiter.give_back(id, &Moment::now());
        }
    }
}

async fn reserve(service: &Service, request: Request<Incoming>) -> Answered {
    let body = match body(service, request).await {
        Ok(body) => body,
        Err(answer) => return answer,
    };
    let asked: AskedIn = match parsed(service, &body) {
        Ok(asked) => asked,
        Err(answer) => return answer,
    };
    let Service { limiter, stats, .. } = service;
    let Some(longest) = asked.max_wait() else {
        stats.refuse(Why::Request);
        let reason = "maxWait is missing: write how long the request may wait, as in \"5s\"";
        return error(StatusCode::BAD_REQUEST, reason);
    };
    let hold = asked.holds();
    let most = if hold { MAX_HOLD } else { MAX_AHEAD };
    if longest > most {
        stats.refuse(Why::Request);
        let reason = "maxWait is too long: at most 24 hours, and 60 s with \"wait\": true";
        return error(StatusCode::BAD_REQUEST, reason);
    }
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    let reserved = limiter.reserve(&limiter.rules(), &asked.asked(), &Moment::now(), nanos);
    let reserved = match reserved {
        Ok(reserved) => reserved,
        Err(problem) => return refused(stats, &problem),
    };
    if let (true, Some(wait)) = (hold, reserved.wait) {
        let mut waiting = Waiting { limiter, id: reserved.id.as_deref() };
        sleep(Duration::from_nanos(wait)).await;
        waiting.id = None;
    }
    let waits = |status: &crate::limiter::Status| Some(status.nearest.as_ref()?.1.wait);
    let wait = match reserved.wait {
        Some(wait) => Some(wait),
        // How long it would take; nothing where no wait is long enough.
        None => {
            let all: Option<Vec<u64>> = reserved
                .answer
                .statuses
                .iter()
                .filter(|status| status.over)
                .map(waits)
                .map(|w| w?)
                .collect();
            all.and_then(|all| all.into_iter().max())
        }
    };
    let out = ReserveOut {
        allowed: reserved.wait.is_some(),
        wait: wait.map(|nanos| Seconds { nanos }),
        reservation: reserved.id.as_deref().filter(|_| !hold),
        answer: AnswerOut::from(&reserved.answer),
    };
    document(status_of(!out.allowed), &out)
}

fn give_back(service: &Service, id: &str) -> Answered {
    #[derive(Serialize)]
    struct Returned {
        returned: bool,
    }
    match service.limiter.give_back(id, &Moment::now()) {
        GivenBack::Returned => document(StatusCode::OK, &Returned { returned: true }),
        GivenBack::Kept => document(StatusCode::OK, &Returned { returned: false }),
        GivenBack::Unknown => {
            service.stats.refuse(Why::Request);
            let reason = "there is no such reservation: its time has come, or it was given back";
            error(StatusCode::NOT_FOUND, reason)
        }
    }
}
