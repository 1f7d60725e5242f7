//! The paths of the server.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use limiter_text::exposition;
use limiter_text::plain::clean;
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::clock::Moment;
use crate::decide::question::{Asked, Descriptor, Refused};
use crate::decide::reservations::GivenBack;
use crate::decide::reserve::Reserved;
use crate::doors::check;
use crate::doors::json::{AnswerOut, AskedIn, Seconds};
use crate::doors::under_way::Received;
use crate::doors::utf8;
use crate::limiter::Limiter;
use crate::queue::rule::NotQueued;
use crate::reports::health::Health;
use crate::reports::metrics;
use crate::reports::odd::Odd;
use crate::reports::stats::Why;
use crate::service::Service;

const MAX_BODY: usize = 1 << 20;

const BODY: Duration = Duration::from_secs(5);

/// The longest time that an answer is held back.
const MAX_HOLD: Duration = Duration::from_mins(1);

/// The longest time ahead for which requests are reserved.
const MAX_AHEAD: Duration = Duration::from_hours(24);

type Answered = Response<Full<Bytes>>;

/// A request that is refused undecided.
struct Refusal {
    why: Why,
    status: StatusCode,
    reason: Cow<'static, str>,
}

impl Refusal {
    fn new(why: Why, status: StatusCode, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { why, status, reason: reason.into() }
    }

    /// The request is invalid.
    fn bad(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Why::Request, StatusCode::BAD_REQUEST, reason)
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self::bad(refused.to_string())
    }
}

pub(crate) async fn answer(service: &Service, request: Request<Received>) -> Answered {
    match decided(service, request).await {
        Ok(answer) => answer,
        Err(Refusal { why, status, reason }) => {
            service.stats.refuse(why);
            error(status, &reason)
        }
    }
}

async fn decided(service: &Service, request: Request<Received>) -> Result<Answered, Refusal> {
    let path = request.uri().path().trim_start_matches('/');
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    match (first, rest, request.method()) {
        ("json", "", &Method::POST) => json(service, request).await,
        ("check", domain, _) => {
            let answered = checked(service, domain, &request).await;
            let refused = answered.as_ref().err().map(|refusal| &*refusal.reason);
            service.stats.checks.count(1, usize::from(refused.is_some()), || {
                format!("/{path}: {}", refused.unwrap_or_default())
            });
            answered
        }
        ("reserve", "", &Method::POST) => reserve(service, request).await,
        ("reserve", id, &Method::DELETE) if !id.is_empty() => give_back(service, id),
        ("json" | "reserve", "", _) => Ok(not_allowed(service, "POST")),
        ("reserve", _, _) => Ok(not_allowed(service, "DELETE")),
        ("refused", "", method) => refused(service, method.clone(), request).await,
        ("healthcheck", "", _) => Ok(health(service)),
        ("metrics", "", _) => {
            let page = metrics::page(service);
            let mut answer = plain(StatusCode::OK, page);
            let kind = HeaderValue::from_static(exposition::CONTENT_TYPE);
            answer.headers_mut().insert(CONTENT_TYPE, kind);
            Ok(answer)
        }
        _ => {
            let reason = "nothing is here: ask /json, /check, /reserve, /refused, \
                          /healthcheck or /metrics";
            Err(Refusal::new(Why::Path, StatusCode::NOT_FOUND, reason))
        }
    }
}

/// What is wrong, and what may be unintended. The process answers, so nobody should end it: the
/// code is 200.
fn health(service: &Service) -> Answered {
    let Health { wrong, notes } = service.health();
    let mut body = match &wrong[..] {
        [] => "OK\n".to_owned(),
        wrong => format!("degraded: {}\n", clean(&wrong.join("; "))),
    };
    for note in notes {
        // Writing to a string cannot fail.
        let _: std::fmt::Result = writeln!(body, "note: {}", clean(&note));
    }
    plain_text(body)
}

fn plain(status: StatusCode, body: impl Into<Bytes>) -> Answered {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
}

fn plain_text(body: String) -> Answered {
    let mut answer = plain(StatusCode::OK, body);
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

/// The body, if it is short and arrives in time.
async fn body(request: Request<Received>) -> Result<Bytes, Refusal> {
    match timeout(BODY, Limited::new(request.into_body(), MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(problem)) if problem.is::<LengthLimitError>() => {
            let reason = "the body is longer than 1 MiB: ask for fewer descriptors at once";
            Err(Refusal::new(Why::TooLong, StatusCode::PAYLOAD_TOO_LARGE, reason))
        }
        Ok(Err(problem)) => Err(Refusal::bad(format!("the body cannot be read: {problem}"))),
        Err(_) => {
            let reason = "the body did not come within 5 s";
            Err(Refusal::new(Why::TooSlow, StatusCode::REQUEST_TIMEOUT, reason))
        }
    }
}

/// Parses the question. Text that is not UTF-8 leaves no request undecided.
fn asked(service: &Service, body: &[u8]) -> Result<AskedIn, Refusal> {
    let problem = match serde_json::from_slice(body) {
        Ok(asked) => return Ok(asked),
        Err(problem) => problem,
    };
    match serde_json::from_slice::<AskedIn>(&utf8::of_json(body)) {
        Ok(asked) if !asked.is_kept() => {
            service.limiter.odd.count(Odd::NotUtf8, "a body of JSON".to_owned());
            Ok(asked)
        }
        _ => Err(Refusal::bad(format!("no request: {problem}"))),
    }
}

const fn status_of(over: bool) -> StatusCode {
    if over { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK }
}

async fn json(service: &Service, request: Request<Received>) -> Result<Answered, Refusal> {
    let body = body(request).await?;
    let asked = asked(service, &body)?;
    if asked.max_wait().is_some() || asked.holds() {
        return Err(Refusal::bad("maxWait and wait are for /reserve: ask there"));
    }
    let payload = asked.payload().map_err(Refusal::bad)?;
    let limiter = &service.limiter;
    let answer = service.decide(&limiter.rules(), &asked.asked(), payload).await?;
    let status = match answer.kept.as_ref().map(|kept| kept.became) {
        Some(Ok(_)) => StatusCode::ACCEPTED,
        Some(Err(NotQueued::NoAnswer(_))) => StatusCode::SERVICE_UNAVAILABLE,
        Some(Err(_)) | None => status_of(answer.over),
    };
    Ok(document(status, &AnswerOut::from(&answer)))
}

/// Answers a proxy that asks by a request of its own.
async fn checked(
    service: &Service,
    domain: &str,
    request: &Request<Received>,
) -> Result<Answered, Refusal> {
    let Service { limiter, stats, .. } = service;
    let query = request.uri().query().unwrap_or_default();
    let CheckQuery { over, wait } = CheckQuery::read(query).map_err(Refusal::bad)?;
    let rules = limiter.rules();
    let name = if domain.is_empty() { rules.checked() } else { Some(domain) };
    let found = name.and_then(|name| Some((name, rules.domain(name)?)));
    let Some((name, domain)) = found.filter(|(_, of)| !of.check.is_empty()) else {
        let reason = if domain.is_empty() && !rules.with_check().is_empty() {
            "several rule files have `check`: ask /check/DOMAIN"
        } else {
            "no rule file has `check` for this: write it, or ask /check/DOMAIN"
        };
        return Err(Refusal::new(Why::Request, StatusCode::NOT_FOUND, reason));
    };
    let made = check::descriptors(&domain.check, request.headers());
    let left_out = domain.check.len() - made.len();
    stats.empty_checks.count(domain.check.len(), left_out, || format!("/check/{name}"));
    if made.is_empty() {
        return Ok(plain(StatusCode::OK, ""));
    }
    let descriptors = made.iter().map(|entries| Descriptor {
        entries: entries.iter().map(|(key, value)| (*key, &**value)).collect(),
        ..Descriptor::default()
    });
    let asked = Asked { domain: name, descriptors: descriptors.collect(), hits: 0 };
    let place = wait.and_then(|_| service.held_back.enter());
    let longest = if place.is_some() { wait.unwrap_or(0) } else { 0 };
    let reserved = wait.map(|_| limiter.reserve(&rules, &asked, &Moment::now(), longest));
    let decided = match reserved {
        Some(Ok(mut reserved)) => {
            hold(limiter, &mut reserved).await;
            reserved.answer
        }
        // Limits that cannot say when are asked without waiting: many proxies let a request pass on
        // an error.
        Some(Err(no_wait)) => {
            stats.no_waits.count(1, 1, || format!("/check/{name}: {no_wait}"));
            service.decide(&rules, &asked, None).await?
        }
        None => service.decide(&rules, &asked, None).await?,
    };
    // nginx keeps the connection only after an answer without a body.
    let mut answer = plain(if decided.over { over } else { StatusCode::OK }, "");
    check::add_headers(&decided, answer.headers_mut());
    Ok(answer)
}

/// The query of a check.
#[derive(Debug, PartialEq, Eq)]
struct CheckQuery {
    /// The status over a limit: some proxies take no 429 from a check.
    over: StatusCode,
    /// Nanoseconds that the answer may be held back until the request may go.
    wait: Option<u64>,
}

impl CheckQuery {
    fn read(query: &str) -> Result<Self, &'static str> {
        let mut read = Self { over: StatusCode::TOO_MANY_REQUESTS, wait: None };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("over", "401")) => read.over = StatusCode::UNAUTHORIZED,
                Some(("over", "403")) => read.over = StatusCode::FORBIDDEN,
                Some(("over", "429")) => read.over = StatusCode::TOO_MANY_REQUESTS,
                Some(("over", "503")) => read.over = StatusCode::SERVICE_UNAVAILABLE,
                Some(("wait", time)) => {
                    let time = humantime::parse_duration(time).ok();
                    let time = time.filter(|time| *time <= MAX_HOLD);
                    let time = time.ok_or("write how long, as in ?wait=2s: at most 60 s")?;
                    read.wait = u64::try_from(time.as_nanos()).ok();
                }
                _ => {
                    return Err("write ?over=401, 403, 429 or 503, ?wait=2s, both with & between \
                                them, or nothing behind the path");
                }
            }
        }
        Ok(read)
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

/// Gives a reservation back if nobody waits for its answer any more.
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

/// Waits until a reserved request may go, and updates the answer to that time. If nobody waits for
/// it any more, the request is given back.
async fn hold(limiter: &Limiter, reserved: &mut Reserved) {
    let Some(waited) = reserved.wait.filter(|wait| *wait > 0) else { return };
    let mut waiting = Waiting { limiter, id: reserved.id.as_deref() };
    sleep(Duration::from_nanos(waited)).await;
    waiting.id = None;
    reserved.wait = Some(0);
    for status in &mut reserved.answer.statuses {
        for (_, left) in status.nearest.iter_mut().chain(&mut status.limits) {
            left.reset = left.reset.saturating_sub(waited);
            left.wait = left.wait.map(|wait| wait.saturating_sub(waited));
        }
    }
}

async fn reserve(service: &Service, request: Request<Received>) -> Result<Answered, Refusal> {
    let body = body(request).await?;
    let asked = asked(service, &body)?;
    if asked.payload().map_err(Refusal::bad)?.is_some() {
        return Err(Refusal::bad("payload is for queues, which /json asks: leave it out"));
    }
    let limiter = &service.limiter;
    let Some(longest) = asked.max_wait() else {
        let reason = "maxWait is missing: write how long the request may wait, as in \"5s\"";
        return Err(Refusal::bad(reason));
    };
    let holds = asked.holds();
    if longest > if holds { MAX_HOLD } else { MAX_AHEAD } {
        let reason = "maxWait is too long: at most 24 hours, and 60 s with \"wait\": true";
        return Err(Refusal::bad(reason));
    }
    let place = holds.then(|| service.held_back.enter());
    let longest = if matches!(place, Some(None)) { Duration::ZERO } else { longest };
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    let mut reserved = limiter.reserve(&limiter.rules(), &asked.asked(), &Moment::now(), nanos)?;
    if holds {
        hold(limiter, &mut reserved).await;
    }
    let out = ReserveOut {
        allowed: reserved.wait.is_some(),
        wait: reserved.wait.or(reserved.needed).map(|nanos| Seconds { nanos }),
        reservation: reserved.id.as_deref().filter(|_| !holds),
        answer: AnswerOut::from(&reserved.answer),
    };
    Ok(document(status_of(!out.allowed), &out))
}

/// The keys that are refused most, or those of the descriptors that a `POST` names.
async fn refused(
    service: &Service,
    method: Method,
    request: Request<Received>,
) -> Result<Answered, Refusal> {
    let (limiter, moment) = (&service.limiter, Moment::now());
    let refused = match method {
        Method::GET => limiter.refused(None, &moment),
        Method::POST => {
            let asked = asked(service, &body(request).await?)?;
            limiter.refused(Some(&asked.asked()), &moment)
        }
        _ => return Ok(not_allowed(service, "GET, POST")),
    };
    Ok(document(StatusCode::OK, &refused.map_err(Refusal::bad)?))
}

fn give_back(service: &Service, id: &str) -> Result<Answered, Refusal> {
    #[derive(Serialize)]
    struct Returned {
        returned: bool,
    }
    let returned = match service.limiter.give_back(id, &Moment::now()) {
        GivenBack::Returned => true,
        GivenBack::Kept => false,
        GivenBack::Unknown => {
            let reason = "there is no such reservation: its time has come, or it was given back";
            return Err(Refusal::new(Why::Request, StatusCode::NOT_FOUND, reason));
        }
    };
    Ok(document(StatusCode::OK, &Returned { returned }))
}
