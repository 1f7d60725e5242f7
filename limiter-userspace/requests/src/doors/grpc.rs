//! gRPC: Envoy's rate limit services, health and reflection. It decides as `/json` does; only the
//! wire format differs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::rate_limit_quota::v3::rate_limit_quota_service_server::{
    RateLimitQuotaServiceServer, SERVICE_NAME as QUOTA_SERVICE,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit as UnitOut;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code as Overall, DescriptorStatus, RateLimit,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer, SERVICE_NAME,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::Duration as DurationOut;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Request, Response, Version};
use limiter_rules::file::requests::RequestLimit;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service as Call};
use tonic::{Code, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tonic_reflection::server::Builder;

use crate::decide::question::{Answer, Asked, Descriptor};
use crate::decide::unit::{self, Unit};
use crate::doors::check;
use crate::doors::described::DESCRIBED;
use crate::doors::envoy::Shown;
use crate::doors::quota::Quota;
use crate::doors::under_way::Received;
use crate::doors::utf8::{self, Mended};
use crate::reports::odd::{Odd, OddParts};
use crate::reports::stats::{Stats, Why};
use crate::reports::unsaid::quoted;
use crate::service::Service;

/// The longest message, in bytes: several descriptors of the longest header that proxies take, so
/// that no client can make one that is not decided.
const MAX_MESSAGE: usize = 1 << 20;

/// Name in the health service of the contact to the other nodes.
const CLUSTER: &str = "limiter.cluster";

const MESSAGE: Duration = Duration::from_secs(5);

type Other = (&'static str, Box<dyn Fn(Request<Received>) -> Answering + Send + Sync>);

type Answering = BoxFuture<Response<Body>, Infallible>;

/// All services; connections share them.
pub(crate) struct Grpc {
    service: Arc<Service>,
    decide: RateLimitServiceServer<Decide>,
    others: Vec<Other>,
    health: HealthReporter,
}

/// True if a request is one of gRPC.
pub(crate) fn is_meant(request: &Request<Received>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE);
    request.version() == Version::HTTP_2
        && kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

fn other<S>(name: &'static str, service: S) -> Other
where
    S: Call<Request<Received>, Response = Response<Body>, Error = Infallible, Future = Answering>
        + Clone
        + Send
        + Sync
        + 'static,
{
    (name, Box::new(move |request| service.clone().call(request)))
}

impl Grpc {
    /// The services. With `headers`, answers name headers for the proxy to add.
    pub(crate) fn new(
        service: &Arc<Service>,
        headers: bool,
    ) -> Result<Self, tonic_reflection::server::Error> {
        let decide = Decide { service: Arc::clone(service), headers };
        let health = HealthReporter::new();
        let of_health = HealthService::from_health_reporter(health.clone());
        let reflection = || {
            Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIBED)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let of_quotas = RateLimitQuotaServiceServer::new(Quota { service: Arc::clone(service) })
            .max_decoding_message_size(MAX_MESSAGE);
        let here = Arc::clone(service);
        let quotas: Box<dyn Fn(Request<Received>) -> Answering + Send + Sync> =
            Box::new(move |request| {
                let mended = |body| Mended::new(body, &utf8::REPORTS, &here);
                of_quotas.clone().call(request.map(mended))
            });
        let others = vec![
            (QUOTA_SERVICE, quotas),
            other(
                "grpc.health.v1.Health",
                HealthServer::new(of_health).max_decoding_message_size(MAX_MESSAGE),
            ),
            other(
                "grpc.reflection.v1.ServerReflection",
                reflection().build_v1()?.max_decoding_message_size(MAX_MESSAGE),
            ),
            other(
                "grpc.reflection.v1alpha.ServerReflection",
                reflection().build_v1alpha()?.max_decoding_message_size(MAX_MESSAGE),
            ),
        ];
        Ok(Self {
            service: Arc::clone(service),
            decide: RateLimitServiceServer::new(decide).max_decoding_message_size(MAX_MESSAGE),
            others,
            health,
        })
    }

    /// Says whether requests are answered, as clients of the health service see it.
    pub(crate) async fn report(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in ["", SERVICE_NAME, QUOTA_SERVICE] {
            self.health.set_service_status(name, status).await;
        }
    }

    /// Says whether there is contact to the other nodes, as a service of its own: requests are
    /// answered without it.
    pub(crate) async fn report_contact(&self, is_there: bool) {
        let status = if is_there { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.health.set_service_status(CLUSTER, status).await;
    }

    pub(crate) async fn answer(&self, stats: &Stats, request: Request<Received>) -> Response<Body> {
        let answer = match timeout(MESSAGE, self.call(request)).await {
            Ok(Ok(answer)) => answer,
            Err(_) => Status::deadline_exceeded("the message did not come within 5 s").into_http(),
        };
        // Of a request that is refused, the status is among the headers; otherwise it comes last.
        let Some(refused) = Status::from_header_map(answer.headers()) else {
            return answer;
        };
        stats.refuse(match refused.code() {
            Code::Unimplemented => Why::Path,
            Code::OutOfRange => Why::TooLong,
            Code::DeadlineExceeded => Why::TooSlow,
            _ => Why::Request,
        });
        match refused.code() {
            Code::Internal => of_message(refused).into_http(),
            _ => answer,
        }
    }

    fn call(&self, request: Request<Received>) -> Answering {
        let path = request.uri().path().trim_start_matches('/');
        let service = path.split_once('/').map_or(path, |(service, _)| service);
        if service == SERVICE_NAME {
            let mended = |body| Mended::new(body, &utf8::REQUEST, &self.service);
            return self.decide.clone().call(request.map(mended));
        }
        if let Some((_, call)) = self.others.iter().find(|(name, _)| *name == service) {
            return call(request);
        }
        let reason = format!("this service is not here: ask {SERVICE_NAME}/ShouldRateLimit");
        let answer = Status::unimplemented(reason).into_http();
        Box::pin(std::future::ready(Ok(answer)))
    }
}

/// The status for an unreadable message: tonic reports a fault of the server, but it is the
/// client's.
pub(crate) fn of_message(status: Status) -> Status {
    match status.code() {
        Code::Internal => Status::invalid_argument(format!(
            "the message cannot be read: {}: send one of this service's, as its description says",
            status.message()
        )),
        _ => status,
    }
}

struct Decide {
    service: Arc<Service>,
    headers: bool,
}

#[tonic::async_trait]
impl RateLimitService for Decide {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, Status> {
        let limiter = &self.service.limiter;
        let asked = asked(request.get_ref(), &limiter.odd);
        let answer = self
            .service
            .decide(&limiter.rules(), &asked, None)
            .await
            .map_err(|refused| Status::invalid_argument(refused.to_string()))?;
        let headers = if self.headers { headers(&answer) } else { Vec::new() };
        Ok(tonic::Response::new(RateLimitResponse {
            overall_code: code(answer.over).into(),
            statuses: statuses(&answer),
            response_headers_to_add: headers,
            ..RateLimitResponse::default()
        }))
    }
}

fn asked<'a>(request: &'a RateLimitRequest, odd: &OddParts) -> Asked<'a> {
    let count = |what, number| {
        odd.count(what, format!("descriptor {number}, of the domain {}", quoted(&request.domain)));
    };
    let descriptor = |(number, of): (usize, &'a RateLimitDescriptor)| {
        let mut hits = of.hits_addend.map(|hits| hits.value);
        if of.is_negative_hits {
            count(Odd::NegativeHits, number);
            hits = Some(0);
        }
        let limit = of.limit.and_then(brought);
        if limit.is_none() && of.limit.is_some() {
            count(Odd::NoUnit, number);
        }
        let entries = of.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
        Descriptor { entries, hits, limit }
    };
    Asked {
        domain: &request.domain,
        descriptors: request.descriptors.iter().enumerate().map(descriptor).collect(),
        hits: request.hits_addend.into(),
    }
}

/// The unit of a week, in messages of a newer protocol.
const WEEK: i32 = 7;

/// The limit that a request brings; `None` if its unit is unknown.
fn brought(limit: RateLimitOverride) -> Option<RequestLimit> {
    let unit = match limit.unit() {
        RateLimitUnit::Second => Unit::Second,
        RateLimitUnit::Minute => Unit::Minute,
        RateLimitUnit::Hour => Unit::Hour,
        RateLimitUnit::Day => Unit::Day,
        RateLimitUnit::Month => Unit::Month,
        RateLimitUnit::Year => Unit::Year,
        RateLimitUnit::Unknown if limit.unit == WEEK => Unit::Week,
        RateLimitUnit::Unknown => return None,
    };
    Some(unit::limit(limit.requests_per_unit.into(), unit))
}

const fn code(over: bool) -> Overall {
    if over { Overall::OverLimit } else { Overall::Ok }
}

/// The state of each descriptor. Envoy makes headers of the limit with the least left, so only
/// those are named that count, and of which this node knows what is left.
fn statuses(answer: &Answer) -> Vec<DescriptorStatus> {
    let counting = check::counting(answer);
    let one = |status: &crate::decide::question::Status| {
        let Shown { limit, remaining, .. } = Shown::from(status);
        let counts = counting.iter().any(|counts| std::ptr::eq(*counts, status));
        let limit = limit.filter(|_| counts && remaining.is_some());
        status_of(Shown { limit, ..Shown::from(status) })
    };
    answer.statuses.iter().map(one).collect()
}

fn status_of(Shown { over, limit, remaining, reset }: Shown<'_>) -> DescriptorStatus {
    let unit = |unit| match unit {
        Unit::Second => UnitOut::Second,
        Unit::Minute => UnitOut::Minute,
        Unit::Hour => UnitOut::Hour,
        Unit::Day => UnitOut::Day,
        Unit::Week => UnitOut::Week,
        Unit::Month => UnitOut::Month,
        Unit::Year => UnitOut::Year,
    };
    DescriptorStatus {
        code: code(over).into(),
        current_limit: limit.map(|limit| RateLimit {
            name: limit.name.unwrap_or_default().to_owned(),
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit.map_or(UnitOut::Unknown, unit).into(),
        }),
        limit_remaining: remaining.unwrap_or_default(),
        duration_until_reset: reset.map(|nanos| DurationOut {
            seconds: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            nanos: i32::try_from(nanos % 1_000_000_000).unwrap_or_default(),
        }),
        quota: None,
    }
}

fn headers(answer: &Answer) -> Vec<HeaderValue> {
    let mut headers = HeaderMap::new();
    check::add_headers(answer, &mut headers);
    let value = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        // They are texts.
        let value = value.to_str().unwrap_or_default().to_owned();
        HeaderValue { key: name.as_str().to_owned(), value, raw_value: Vec::new() }
    };
    headers.iter().map(value).collect()
}
