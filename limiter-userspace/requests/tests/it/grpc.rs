//! The server, as a client of gRPC sees it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code as Overall, RateLimit,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::{Duration as DurationIn, UInt64Value};
use limiter_requests::StateOptions;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::running::{Running, running, started};

/// `a=b c=d` is a descriptor of two entries.
pub(crate) fn descriptor(text: &str) -> RateLimitDescriptor {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').unwrap();
        Entry { key: key.to_owned(), value: value.to_owned() }
    };
    RateLimitDescriptor {
        entries: text.split(' ').filter(|text| !text.is_empty()).map(entry).collect(),
        ..RateLimitDescriptor::default()
    }
}

pub(crate) fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "auth".to_owned(), descriptors, hits_addend: 0 }
}

/// A descriptor that brings a limit.
fn with_limit(requests_per_unit: u32, unit: i32) -> RateLimitDescriptor {
    let limit = Some(RateLimitOverride { requests_per_unit, unit });
    RateLimitDescriptor { limit, ..descriptor("user=own") }
}

pub(crate) struct Client(RateLimitServiceClient<Channel>);

impl Client {
    pub(crate) async fn new(running: &Running) -> Self {
        Self(RateLimitServiceClient::new(channel(running).await))
    }

    pub(crate) async fn ask(
        &mut self,
        asked: RateLimitRequest,
    ) -> Result<RateLimitResponse, Status> {
        Ok(self.0.should_rate_limit(asked).await?.into_inner())
    }

    async fn one(&mut self, text: &str) -> RateLimitResponse {
        self.ask(request(vec![descriptor(text)])).await.unwrap()
    }
}

pub(crate) async fn channel(running: &Running) -> Channel {
    let address = format!("http://{}", running.address);
    Channel::from_shared(address).unwrap().connect().await.unwrap()
}

fn is_over(answer: &RateLimitResponse) -> bool {
    match answer.overall_code() {
        Overall::Ok => false,
        Overall::OverLimit => true,
        Overall::Unknown => panic!("{answer:?}"),
    }
}

/// An answer in the words of JSON, without the time, which passes.
fn in_json(answer: &RateLimitResponse) -> Value {
    let code = |code: Overall| code.as_str_name();
    let statuses = answer.statuses.iter().map(|status| {
        let mut shown = json!({
            "code": code(status.code()),
            "limitRemaining": status.limit_remaining,
            "timed": status.duration_until_reset.is_some(),
        });
        if let Some(limit) = &status.current_limit {
            let unit = limit.unit().as_str_name();
            let per_unit = limit.requests_per_unit;
            shown["currentLimit"] =
                json!({"name": limit.name, "requestsPerUnit": per_unit, "unit": unit});
        }
        shown
    });
    json!({"overallCode": code(answer.overall_code()), "statuses": statuses.collect::<Vec<_>>()})
}

/// The same of an answer in JSON, with fields that it leaves out as protocol buffers read them.
fn as_read(answer: &Value) -> Value {
    let mut answer = answer.clone();
    for status in answer["statuses"].as_array_mut().unwrap() {
        let status = status.as_object_mut().unwrap();
        status.entry("limitRemaining").or_insert(json!(0));
        let timed = status.remove("durationUntilReset").is_some();
        status.insert("timed".to_owned(), json!(timed));
        if let Some(limit) = status.get_mut("currentLimit") {
            limit.as_object_mut().unwrap().entry("name").or_insert(json!(""));
        }
    }
    answer
}

#[tokio::test]
async fn grpc_and_json_answer_alike() {
    let (by_grpc, by_json) = (running(100), running(100));
    let mut client = Client::new(&by_grpc).await;
    let mut over = 0;
    for descriptors in [
        &["user=ann"][..],
        &["user=ann", "user=bob"],
        &["form=login remote_address=192.0.2.1"],
        &["form=login remote_address=192.0.2.1", "user=ann"],
        &["form=login remote_address=192.0.2.1", "never=x"],
        &["user=ann", "unknown=x"],
        &["user=ann"],
        &["month=1"],
        &["month=1", "free=x"],
        &["month=1"],
        &["form=login"],
        &["form=login remote_address=192.0.2.1 user=ann"],
        &["free=x"],
        &["never=x"],
    ] {
        let asked = request(descriptors.iter().map(|text| descriptor(text)).collect());
        let entries = |of: &RateLimitDescriptor| {
            let entry = |entry: &Entry| json!({"key": entry.key, "value": entry.value});
            json!({"entries": of.entries.iter().map(entry).collect::<Vec<_>>()})
        };
        let body: Vec<Value> = asked.descriptors.iter().map(entries).collect();
        let answer = client.ask(asked).await.unwrap();
        let same = by_json.json(&json!({"domain": "auth", "descriptors": body}));
        assert_eq!(in_json(&answer), as_read(&same.json()), "{descriptors:?}");
        over += usize::from(is_over(&answer));
    }
    assert!(over >= 4, "both sides of the limits were seen");
    by_grpc.server.stop().unwrap();
    by_json.server.stop().unwrap();
}

#[tokio::test]
async fn hits_and_limits_of_a_request_count() {
    let running = running(100);
    let mut client = Client::new(&running).await;
    let first = client.one("user=ann").await;
    let [status] = &first.statuses[..] else { panic!("{first:?}") };
    let limit = RateLimit { name: String::new(), requests_per_unit: 3, unit: Unit::Minute.into() };
    assert_eq!(status.current_limit, Some(limit));
    assert_eq!(status.duration_until_reset, Some(DurationIn { seconds: 20, nanos: 0 }));
    // Hits of the request, of a descriptor, and a look.
    let hits = |hits_addend, own: Option<u64>| {
        let hits = own.map(|value| UInt64Value { value });
        let month = RateLimitDescriptor { hits_addend: hits, ..descriptor("month=1") };
        RateLimitRequest { hits_addend, ..request(vec![month]) }
    };
    assert!(is_over(&client.ask(hits(3, None)).await.unwrap()));
    assert!(is_over(&client.ask(hits(1, Some(3))).await.unwrap()));
    assert!(is_over(&client.ask(hits(1, Some(u64::MAX))).await.unwrap()));
    assert!(!is_over(&client.ask(hits(3, Some(2))).await.unwrap()));
    assert!(is_over(&client.ask(hits(1, Some(0))).await.unwrap()), "nothing is left");
    assert!(is_over(&client.ask(hits(1, None)).await.unwrap()));
    // Limits that requests bring, each with a bucket of its own.
    for unit in
        [RateLimitUnit::Second, RateLimitUnit::Hour, RateLimitUnit::Month, RateLimitUnit::Year]
    {
        let mut over = Vec::new();
        for _ in 0..3 {
            let answer = client.ask(request(vec![with_limit(2, unit.into())])).await.unwrap();
            let limit = answer.statuses[0].current_limit.as_ref().unwrap();
            assert_eq!(limit.unit().as_str_name(), unit.as_str_name());
            assert_eq!(limit.requests_per_unit, 2);
            over.push(is_over(&answer));
        }
        assert!(!over[0] && (over[2] || unit == RateLimitUnit::Second), "{over:?}");
    }
    running.server.stop().unwrap();
}

#[tokio::test]
async fn headers_are_named_only_if_asked_for() {
    let without = running(100);
    for _ in 0..4 {
        let answer = Client::new(&without).await.one("user=ann").await;
        assert_eq!(answer.response_headers_to_add, []);
    }
    without.server.stop().unwrap();
    let with = started(|options| options.response_headers = true);
    let mut client = Client::new(&with).await;
    for last in [false, false, true] {
        let text = "form=login remote_address=192.0.2.1";
        let answer = client.one(text).await;
        let header = |name: &str| {
            let found = answer.response_headers_to_add.iter().find(|header| header.key == name);
            found.map(|header| header.value.as_str())
        };
        assert_eq!(header("x-ratelimit-limit"), Some("2"));
        assert_eq!(header("ratelimit-policy"), Some("\"logins\";q=2;w=3600"));
        assert_eq!(header("retry-after").is_some(), last);
    }
    with.server.stop().unwrap();
}

#[tokio::test]
async fn bad_requests_are_refused_with_a_reason_and_charge_nothing() {
    let running = running(100);
    let mut client = Client::new(&running).await;
    let one = || descriptor("user=x");
    let long = vec![descriptor(&format!("user={}", "x".repeat(1 << 15))); 64];
    let cases = [
        (RateLimitRequest::default(), Code::InvalidArgument, "domain is missing"),
        (request(Vec::new()), Code::InvalidArgument, "descriptors is empty"),
        (request(vec![one(); 1025]), Code::InvalidArgument, "1025 descriptors are more than 1024"),
        (request(long), Code::OutOfRange, "the limit is: 1048576 bytes"),
    ];
    let many = u64::try_from(cases.len()).unwrap() - 1;
    for (asked, code, reason) in cases {
        let status = client.ask(asked).await.unwrap_err();
        assert!(status.code() == code && status.message().contains(reason), "{reason}: {status}");
    }
    assert_eq!(running.metric("limiter_request_refused_total{reason=\"request\"}"), many);
    assert_eq!(running.metric("limiter_request_refused_total{reason=\"too_long\"}"), 1);
    assert_eq!(client.one("user=x").await.statuses[0].limit_remaining, 2);
    // A domain without rules passes, and is counted.
    let other = RateLimitRequest { domain: "other".to_owned(), ..request(vec![one()]) };
    assert!(!is_over(&client.ask(other).await.unwrap()));
    assert_eq!(running.metric("limiter_request_unknown_domains_total"), 1);
    running.server.stop().unwrap();
}

/// A descriptor that cannot be taken as it is takes no other one with it: proxies let errors pass.
#[tokio::test]
async fn each_descriptor_is_decided_by_itself_over_grpc() {
    let running = running(100);
    let mut client = Client::new(&running).await;
    let hits_addend = Some(UInt64Value { value: 1 });
    let negative =
        |text| RateLimitDescriptor { is_negative_hits: true, hits_addend, ..descriptor(text) };
    let long = format!("free={}", "x".repeat(100_000));
    for (number, odd) in [
        with_limit(1, 0),
        RateLimitDescriptor { entries: descriptor("user=bob").entries, ..with_limit(1, 99) },
        with_limit(u32::MAX, RateLimitUnit::Second.into()),
        negative("user=full"),
        descriptor(""),
        descriptor("=x"),
        descriptor(&long),
    ]
    .into_iter()
    .enumerate()
    {
        let other = format!("user=other{number}");
        let asked = || request(vec![odd.clone(), descriptor(&other)]);
        let mut over = Vec::new();
        for _ in 0..4 {
            over.push(is_over(&client.ask(asked()).await.unwrap()));
        }
        // The rule of `odd` may refuse, too; that of the other one does.
        assert!(!over[0] && over[3], "{odd:?}: {over:?}");
    }
    // Nothing passes a limit of 0, and an unknown unit leaves the limit of the rule.
    let answer = client.ask(request(vec![with_limit(0, RateLimitUnit::Minute.into())])).await;
    let [status] = &answer.unwrap().statuses[..] else { panic!("one status") };
    assert_eq!((status.code(), status.limit_remaining), (Overall::OverLimit, 0));
    for (part, count) in
        [("limit_without_unit", 8), ("limit_too_fast", 4), ("negative_hits", 4), ("two_queues", 0)]
    {
        let metric = format!("limiter_request_odd_parts_total{{part=\"{part}\"}}");
        assert_eq!(running.metric(&metric), count, "{part}");
    }
    running.server.stop().unwrap();
}

#[tokio::test]
async fn health_is_that_of_the_server() {
    let running = running(100);
    let mut client = HealthClient::new(channel(&running).await);
    let mut check = async |service: &str| {
        let asked = HealthCheckRequest { service: service.to_owned() };
        client.check(asked).await.map(|answer| answer.into_inner().status())
    };
    for service in [
        "",
        "envoy.service.ratelimit.v3.RateLimitService",
        "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
    ] {
        assert_eq!(check(service).await.unwrap(), ServingStatus::Serving);
    }
    assert_eq!(check("other").await.unwrap_err().code(), Code::NotFound);
    // A watcher hears of the end.
    let watched = client.watch(HealthCheckRequest::default()).await;
    let mut watched = watched.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let stopped = tokio::task::spawn_blocking(|| running.server.stop());
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    stopped.await.unwrap().unwrap();
}

async fn reflected(
    client: &mut ServerReflectionClient<Channel>,
    asked: MessageRequest,
) -> MessageResponse {
    let asked = ServerReflectionRequest { host: String::new(), message_request: Some(asked) };
    let answers = client.server_reflection_info(tokio_stream::once(asked)).await.unwrap();
    let answer: Option<ServerReflectionResponse> = answers.into_inner().message().await.unwrap();
    answer.unwrap().message_response.unwrap()
}

#[tokio::test]
async fn reflection_describes_all_services() {
    let running = running(100);
    let mut client = ServerReflectionClient::new(channel(&running).await);
    let MessageResponse::ListServicesResponse(services) =
        reflected(&mut client, MessageRequest::ListServices(String::new())).await
    else {
        panic!("no list");
    };
    let mut services: Vec<String> = services.service.into_iter().map(|one| one.name).collect();
    services.sort();
    let all = [
        "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
        "envoy.service.ratelimit.v3.RateLimitService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
    ];
    assert_eq!(services, all);
    for service in services {
        let MessageResponse::FileDescriptorResponse(file) =
            reflected(&mut client, MessageRequest::FileContainingSymbol(service.clone())).await
        else {
            panic!("no file for {service}");
        };
        assert_eq!(file.file_descriptor_proto.len(), 1, "{service}");
    }
    running.server.stop().unwrap();
}

#[tokio::test]
async fn other_services_and_methods_are_refused() {
    let running = running(100);
    let ask = async |path: &'static str| {
        let mut grpc = tonic::client::Grpc::new(channel(&running).await);
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
        let asked = tonic::Request::new(request(vec![descriptor("user=x")]));
        let path = hyper::http::uri::PathAndQuery::from_static(path);
        grpc.unary(asked, path, codec).await.map(|_| ()).unwrap_err()
    };
    let status = ask("/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit").await;
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("ratelimit.v3.RateLimitService/ShouldRateLimit"), "{status}");
    let status = ask("/envoy.service.ratelimit.v3.RateLimitService/Other").await;
    assert_eq!(status.code(), Code::Unimplemented);
    assert_eq!(running.metric("limiter_request_refused_total{reason=\"path\"}"), 2);
    running.server.stop().unwrap();
}

/// A message that is none of the service's is the fault of its sender, on each service.
#[tokio::test]
async fn a_message_that_cannot_be_read_is_an_invalid_argument() {
    const DECIDE: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    const QUOTA: &str =
        "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
    let running = running(100);
    for (path, is_stream) in
        [(DECIDE, false), (QUOTA, true), ("/grpc.health.v1.Health/Check", false)]
    {
        let mut grpc = tonic::client::Grpc::new(channel(&running).await);
        grpc.ready().await.unwrap();
        // A number where a text belongs.
        let codec = tonic_prost::ProstCodec::<UInt64Value, RateLimitResponse>::default();
        let number = UInt64Value { value: 5 };
        let path = hyper::http::uri::PathAndQuery::from_static(path);
        let status = if is_stream {
            let asked = tonic::Request::new(tokio_stream::once(number));
            let mut answers = grpc.streaming(asked, path, codec).await.unwrap().into_inner();
            answers.message().await.unwrap_err()
        } else {
            grpc.unary(tonic::Request::new(number), path, codec).await.unwrap_err()
        };
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().starts_with("the message cannot be read: "), "{status}");
    }
    assert_eq!(running.metric("limiter_request_refused_total{reason=\"request\"}"), 3);
    running.server.stop().unwrap();
}

/// [`RateLimitRequest`] with texts of any bytes, as Envoy sends headers.
#[derive(Clone, PartialEq, prost::Message)]
struct RequestOfBytes {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<DescriptorOfBytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DescriptorOfBytes {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<EntryOfBytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EntryOfBytes {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// A text that is no UTF-8 voids no request: it has a bucket, and others of the request count.
#[tokio::test]
async fn a_text_that_is_no_utf8_is_decided() {
    let running = running(100);
    let ask = async |entries: &[(&str, &[u8])]| {
        let mut grpc = tonic::client::Grpc::new(channel(&running).await);
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<RequestOfBytes, RateLimitResponse>::default();
        let descriptors = entries.iter().map(|(key, value)| DescriptorOfBytes {
            entries: vec![EntryOfBytes { key: key.as_bytes().to_vec(), value: value.to_vec() }],
        });
        let asked =
            RequestOfBytes { domain: "auth".to_owned(), descriptors: descriptors.collect() };
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        let path = hyper::http::uri::PathAndQuery::from_static(path);
        grpc.unary(tonic::Request::new(asked), path, codec).await.unwrap().into_inner()
    };
    for number in 0..4 {
        // What comes beside the limit of `ann` is not charged to it.
        let answer = ask(&[("user", b"ann"), ("agent", b"\xff\xfe")]).await;
        assert_eq!(is_over(&answer), number == 3, "{number}");
        let answer = ask(&[("user", &[0xff - number])]).await;
        assert_eq!(is_over(&answer), number == 3, "one bucket: {number}");
    }
    let half = r#"{"domain": "auth", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]},
        {"entries": [{"key": "agent", "value": "\ud83d"}]}]}"#;
    assert_eq!(running.ask("POST", "/json", "", half).status, 429);
    assert_eq!(running.metric("limiter_request_odd_parts_total{part=\"not_utf8\"}"), 9);
    running.server.stop().unwrap();
}

#[tokio::test]
async fn a_unix_socket_answers_both() {
    let running = running(100);
    let path = running.directory.path().join("s");
    let connect = tonic::transport::Endpoint::from_shared(format!("unix://{}", path.display()));
    let channel =
        connect.unwrap().connect_timeout(Duration::from_secs(30)).connect().await.unwrap();
    let mut client = Client(RateLimitServiceClient::new(channel));
    assert_eq!(client.one("user=ann").await.statuses[0].limit_remaining, 2);
    running.server.stop().unwrap();
}

/// Requests of many clients at once over HTTP/2 while the server ends: what it charged it answered.
#[tokio::test]
async fn a_stop_charges_no_request_that_it_does_not_answer() {
    const LIMIT: u32 = 3000;
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    // Nothing comes back meanwhile.
    let limit = format!("rate_limit: {{rate: 100/week, burst: {LIMIT}}}");
    fs::write(&rules, format!("domain: auth\ndescriptors: [{{key: user, {limit}}}]\n")).unwrap();
    let start = || {
        started(|options| {
            options.rules = vec![rules.clone()];
            let (directory, every) = (directory.path().join("state"), Duration::from_hours(1));
            options.state = Some(StateOptions { directory, every });
        })
    };
    let running = start();
    let answered = Arc::new(AtomicU32::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let channel = channel(&running).await;
        for _ in 0..4 {
            let mut client = Client(RateLimitServiceClient::new(channel.clone()));
            let answered = Arc::clone(&answered);
            clients.spawn(async move {
                // Until nobody is there any more.
                while let Ok(answer) = client.ask(request(vec![descriptor("user=a")])).await {
                    assert!(!is_over(&answer), "more than the limit: let it be larger");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
    while answered.load(Ordering::Relaxed) < 200 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let Running { server, .. } = running;
    tokio::task::spawn_blocking(|| server.stop().unwrap()).await.unwrap();
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let next = start();
    let left = next.one("user", "a").json()["statuses"][0]["limitRemaining"].clone();
    assert_eq!(left, LIMIT - answered.load(Ordering::Relaxed) - 1);
}
