//! The quota service, as a client of gRPC sees it.

use envoy_types::pb::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action::BucketAction as What;
use envoy_types::pb::envoy::service::rate_limit_quota::v3::rate_limit_quota_service_client::RateLimitQuotaServiceClient;
use envoy_types::pb::envoy::service::rate_limit_quota::v3::rate_limit_quota_usage_reports::BucketQuotaUsage;
use envoy_types::pb::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
};
use envoy_types::pb::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy};
use envoy_types::pb::google::protobuf::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::grpc::channel;
use crate::running::{Running, running};

struct Client {
    reports: mpsc::Sender<RateLimitQuotaUsageReports>,
    answers: Streaming<RateLimitQuotaResponse>,
}

fn report(domain: &str, bucket: &[(&str, &str)], allowed: u64) -> RateLimitQuotaUsageReports {
    let entry = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let usage = BucketQuotaUsage {
        bucket_id: Some(BucketId { bucket: bucket.iter().map(entry).collect() }),
        time_elapsed: Some(Duration { seconds: 1, nanos: 0 }),
        num_requests_allowed: allowed,
        num_requests_denied: 0,
    };
    RateLimitQuotaUsageReports { domain: domain.to_owned(), bucket_quota_usages: vec![usage] }
}

impl Client {
    /// Opens a stream by its first report.
    async fn new(running: &Running, first: RateLimitQuotaUsageReports) -> Self {
        let mut client = RateLimitQuotaServiceClient::new(channel(running).await);
        let (reports, stream) = mpsc::channel(16);
        reports.send(first).await.unwrap();
        let answers = client.stream_rate_limit_quotas(ReceiverStream::new(stream)).await.unwrap();
        Self { reports, answers: answers.into_inner() }
    }

    async fn ask(&mut self, report: RateLimitQuotaUsageReports) -> Result<Strategy, Status> {
        self.reports.send(report).await.unwrap();
        self.answer().await
    }

    /// The strategy of the next answer.
    async fn answer(&mut self) -> Result<Strategy, Status> {
        let answer = self.answers.message().await?.unwrap();
        // What comes before it lets a bucket begin full.
        let [.., action] = &answer.bucket_action[..] else { panic!("{answer:?}") };
        let Some(What::QuotaAssignmentAction(assigned)) = &action.bucket_action else {
            panic!("{answer:?}")
        };
        assert!(assigned.assignment_time_to_live.unwrap().seconds > 0);
        Ok(assigned.rate_limit_strategy.unwrap().strategy.unwrap())
    }
}

/// A stream that reports is not quiet, however long ago it began: silent connections make room.
#[tokio::test]
async fn streams_that_report_are_not_the_quietest() {
    let running = running(4);
    let mut client = Client::new(&running, report("auth", &[("free", "1")], 0)).await;
    client.answer().await.unwrap();
    let mut held = Vec::new();
    for number in 10..22 {
        held.push(running.connect());
        client.ask(report("", &[("free", &number.to_string())], 0)).await.unwrap();
        assert_eq!(running.one("user", &number.to_string()).status, 200);
    }
    running.server.stop().unwrap();
}

#[tokio::test]
async fn assignments_take_their_hits_from_the_buckets_of_requests() {
    let running = running(100);
    let mut client = Client::new(&running, report("auth", &[("user", "ann")], 0)).await;
    let Strategy::TokenBucket(bucket) = client.answer().await.unwrap() else { panic!() };
    assert_eq!(bucket.max_tokens, 3);
    // Half of what it does not want, 3 a minute, and up to a quarter more, in whole seconds.
    let fill = bucket.fill_interval.unwrap();
    assert_eq!(bucket.tokens_per_fill.unwrap().value, 1);
    assert!((32..=40).contains(&fill.seconds), "{fill:?}");
    assert_eq!(i64::from(fill.nanos), fill.seconds);
    assert_eq!(running.one("user", "ann").status, 429, "the client has it all");
    assert_eq!(running.one("user", "bob").status, 200);
    let free = client.ask(report("", &[("free", "1")], 0)).await.unwrap();
    assert_eq!(free, Strategy::BlanketRule(BlanketRule::AllowAll.into()));
    let never = client.ask(report("auth", &[("never", "1")], 0)).await.unwrap();
    assert_eq!(never, Strategy::BlanketRule(BlanketRule::DenyAll.into()));
    // Of a window, a quarter of what is left.
    let Ok(Strategy::TokenBucket(month)) = client.ask(report("", &[("month", "1")], 1)).await
    else {
        panic!()
    };
    assert_eq!(month.max_tokens, 1);
    assert_eq!(running.metric("limiter_request_quota_buckets"), 4);
    assert_eq!(running.metric("limiter_request_quota_assignments_total"), 4);
    drop(client);
    while running.metric("limiter_request_quota_buckets") > 0 {
        tokio::task::yield_now().await;
    }
    running.server.stop().unwrap();
}

#[tokio::test]
async fn bad_reports_are_refused_with_the_reason() {
    let running = running(100);
    let mut client = Client::new(&running, report("", &[("user", "x")], 0)).await;
    let status = client.answer().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("domain is missing"), "{status}");
    // A bucket that cannot be assigned ends nothing for the others.
    let long = "x".repeat(1025);
    let mut several = report("auth", &[], 0);
    for bucket in [("user", &*long), ("never", "x")] {
        several.bucket_quota_usages.extend(report("", &[bucket], 0).bucket_quota_usages);
    }
    let mut client = Client::new(&running, several).await;
    let never = client.answer().await.unwrap();
    assert_eq!(never, Strategy::BlanketRule(BlanketRule::DenyAll.into()));
    assert_eq!(running.metric("limiter_request_odd_parts_total{part=\"quota_bucket\"}"), 2);
    let mut client = Client::new(&running, report("auth", &[("user", "x")], 0)).await;
    client.answer().await.unwrap();
    let status = client.ask(report("other", &[("user", "x")], 0)).await.unwrap_err();
    assert!(status.message().contains("open another one for \"other\""), "{status}");
    assert_eq!(running.metric("limiter_request_refused_total{reason=\"request\"}"), 2);
    running.server.stop().unwrap();
}

#[tokio::test]
async fn a_stream_does_not_hold_up_the_end() {
    let running = running(100);
    let mut client = Client::new(&running, report("auth", &[("user", "x")], 0)).await;
    client.answer().await.unwrap();
    let stopped = tokio::task::spawn_blocking(move || running.server.stop());
    assert!(client.answers.message().await.is_err() || client.reports.is_closed());
    stopped.await.unwrap().unwrap();
}
