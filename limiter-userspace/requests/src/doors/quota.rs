//! Envoy's rate limit quota service: a stream of reports, and one of assignments.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration as Time;

use envoy_types::pb::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::BucketAction;
use envoy_types::pb::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action::{
    AbandonAction, BucketAction as What, QuotaAssignmentAction,
};
use envoy_types::pb::envoy::service::rate_limit_quota::v3::rate_limit_quota_service_server::RateLimitQuotaService;
use envoy_types::pb::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
};
use envoy_types::pb::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy as Rule};
use envoy_types::pb::envoy::r#type::v3::{RateLimitStrategy, TokenBucket};
use envoy_types::pb::google::protobuf::{Duration, UInt32Value};
use tokio::time::{Instant, Sleep, sleep};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::clock::Moment;
use crate::doors::grpc::of_message;
use crate::doors::under_way::Reports;
use crate::quota::{Action, Session, Strategy, TooMany, Usage};
use crate::reports::odd::Odd;
use crate::reports::stats::Why;
use crate::reports::unsaid::quoted;
use crate::service::Service;

/// Bytes of the keys and values of a bucket.
const MAX_BUCKET: usize = 1024;

pub(crate) struct Quota {
    pub(crate) service: Arc<Service>,
}

#[tonic::async_trait]
impl RateLimitQuotaService for Quota {
    type StreamRateLimitQuotasStream = Assignments;

    async fn stream_rate_limit_quotas(
        &self,
        request: Request<Streaming<RateLimitQuotaUsageReports>>,
    ) -> Result<Response<Assignments>, Status> {
        let service = Arc::clone(&self.service);
        let activity = request.extensions().get().cloned();
        let reports = request.into_inner();
        let next_look = Box::pin(sleep(until_next_second()));
        Ok(Response::new(Assignments { service, reports, activity, session: None, next_look }))
    }
}

/// Time until the next second of the wall clock begins, when windows do.
fn until_next_second() -> Time {
    const SECOND: u64 = 1_000_000_000;
    Time::from_nanos(SECOND - Moment::now().wall() % SECOND)
}

/// Assignments of a client: answers to its reports, and what changes between them.
pub(crate) struct Assignments {
    service: Arc<Service>,
    reports: Streaming<RateLimitQuotaUsageReports>,
    activity: Option<Reports>,
    /// From the first report on.
    session: Option<Session>,
    next_look: Pin<Box<Sleep>>,
}

impl Drop for Assignments {
    fn drop(&mut self) {
        if let Some(session) = &mut self.session {
            session.end(&self.service.quotas, &Moment::now());
        }
    }
}

impl Stream for Assignments {
    type Item = Result<RateLimitQuotaResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.next_look.as_mut().poll(context).is_ready() {
                self.next_look.as_mut().reset(Instant::now() + until_next_second());
                let bucket_action = self.look();
                if !bucket_action.is_empty() {
                    return Poll::Ready(Some(Ok(RateLimitQuotaResponse { bucket_action })));
                }
                continue;
            }
            let report = match ready!(Pin::new(&mut self.reports).poll_next(context)) {
                Some(Ok(report)) => report,
                Some(Err(status)) => {
                    let status = of_message(status);
                    if status.code() == Code::InvalidArgument {
                        self.service.stats.refuse(Why::Request);
                    }
                    return Poll::Ready(Some(Err(status)));
                }
                None => return Poll::Ready(None),
            };
            if let Some(activity) = &self.activity {
                activity.came();
            }
            match self.answer(report) {
                // Nothing changes for the client.
                Ok(answer) if answer.bucket_action.is_empty() => {}
                Ok(answer) => return Poll::Ready(Some(Ok(answer))),
                Err(status) => {
                    self.service.stats.refuse(Why::Request);
                    return Poll::Ready(Some(Err(status)));
                }
            }
        }
    }
}

impl Assignments {
    fn look(&mut self) -> Vec<BucketAction> {
        let Service { limiter, quotas, .. } = &*self.service;
        let Some(session) = &mut self.session else { return Vec::new() };
        let changed = session.tick((limiter, quotas), &Moment::now());
        let actions = changed.into_iter().flat_map(|(bucket, action)| {
            actions(BucketId { bucket: bucket.into_iter().collect() }, action)
        });
        actions.collect()
    }

    fn answer(
        &mut self,
        report: RateLimitQuotaUsageReports,
    ) -> Result<RateLimitQuotaResponse, Status> {
        let Service { limiter, quotas, .. } = &*self.service;
        let session = match &mut self.session {
            Some(session) => session,
            None if report.domain.is_empty() => {
                return Err(Status::invalid_argument(
                    "domain is missing in the first report: name the domain of a rule file",
                ));
            }
            empty => {
                limiter.count_if_unknown(&report.domain);
                empty.insert(Session::new(quotas, &report.domain))
            }
        };
        if !report.domain.is_empty() && report.domain != session.domain() {
            return Err(Status::invalid_argument(format!(
                "this stream is about the domain {:?}: open another one for {:?}",
                session.domain(),
                report.domain
            )));
        }
        let mut bucket_action = Vec::new();
        for usage in report.bucket_quota_usages {
            let bucket = usage.bucket_id.unwrap_or_default();
            let Some(entries) = entries(&bucket) else {
                limiter
                    .odd
                    .count(Odd::Bucket, format!("of the domain {}", quoted(session.domain())));
                continue;
            };
            let elapsed = usage.time_elapsed.unwrap_or_default();
            let seconds = u64::try_from(elapsed.seconds).unwrap_or(0);
            let nanos = u64::try_from(elapsed.nanos).unwrap_or(0);
            let usage = Usage {
                allowed: usage.num_requests_allowed,
                denied: usage.num_requests_denied,
                elapsed: seconds.saturating_mul(1_000_000_000).saturating_add(nanos),
            };
            let action = session.report((limiter, quotas), &entries, usage, &Moment::now());
            if action == Err(TooMany) {
                limiter
                    .odd
                    .count(Odd::ManyBuckets, format!("of the domain {}", quoted(session.domain())));
            }
            if let Ok(Some(action)) = action {
                bucket_action.extend(actions(bucket, action));
            }
        }
        Ok(RateLimitQuotaResponse { bucket_action })
    }
}

/// The entries of a bucket; none if it has no entry, or too many bytes of them.
fn entries(BucketId { bucket }: &BucketId) -> Option<BTreeMap<String, String>> {
    let bytes = bucket.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    let is_good = !bucket.is_empty() && bytes <= MAX_BUCKET;
    is_good.then(|| bucket.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// An action in the form and order in which the client takes it.
fn actions(bucket: BucketId, action: Action) -> impl Iterator<Item = BucketAction> {
    let whats = match action {
        Action::Abandon => [None, Some(What::AbandonAction(AbandonAction {}))],
        // Without a bucket before it, a bucket begins full.
        Action::Assign { strategy, life, full } => {
            [full.then(|| assignment(Strategy::DenyAll, life)), Some(assignment(strategy, life))]
        }
    };
    whats.into_iter().flatten().map(move |what| BucketAction {
        bucket_id: Some(bucket.clone()),
        bucket_action: Some(what),
    })
}

fn assignment(strategy: Strategy, life: u64) -> What {
    let strategy = match strategy {
        Strategy::AllowAll => Rule::BlanketRule(BlanketRule::AllowAll.into()),
        Strategy::DenyAll => Rule::BlanketRule(BlanketRule::DenyAll.into()),
        Strategy::Bucket { most, per_fill, seconds } => Rule::TokenBucket(TokenBucket {
            max_tokens: most,
            tokens_per_fill: Some(UInt32Value { value: per_fill }),
            // Envoy goes on with a bucket whose nanoseconds are the same, whatever its seconds
            // are, and has no other use for them.
            fill_interval: Some(Duration {
                seconds: seconds.into(),
                nanos: i32::try_from(seconds).unwrap_or_default(),
            }),
        }),
    };
    let life = Duration { seconds: i64::try_from(life).unwrap_or(i64::MAX), nanos: 0 };
    What::QuotaAssignmentAction(QuotaAssignmentAction {
        assignment_time_to_live: Some(life),
        rate_limit_strategy: Some(RateLimitStrategy { strategy: Some(strategy) }),
    })
}
