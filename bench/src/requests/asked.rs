//! Proxies that ask a server over gRPC: as fast as it answers, or at a rate.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use limiter_tests::cpu;
use tokio::runtime;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{MissedTickBehavior, interval};
use tonic::transport::{Channel, Endpoint};

/// Connections, and requests of each at once where answers are awaited.
pub(super) const CONNECTIONS: usize = 4;
pub(super) const AT_ONCE: usize = 16;

/// Time between two groups of requests that are sent at a rate.
const TICK: Duration = Duration::from_millis(1);

type Client = RateLimitServiceClient<Channel>;

/// Runs on a thread of its own, kept on a CPU.
fn on<T: Send + 'static>(
    cpu: usize,
    address: SocketAddr,
    work: impl AsyncFnOnce(Vec<Client>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let thread = std::thread::spawn(move || {
        cpu::pin(None, cpu)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, async {
            let mut clients = Vec::new();
            for _ in 0..CONNECTIONS {
                let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
                clients.push(Client::new(endpoint.connect().await?));
            }
            work(clients).await
        })
    });
    thread.join().map_err(|_panic| anyhow::anyhow!("a thread panicked"))?
}

fn request(number: usize, users: usize) -> RateLimitRequest {
    // A prime step, so that users come in no order.
    let user = number.wrapping_mul(7_919) % users;
    let entry = Entry { key: "user".to_owned(), value: format!("user-{user:08}") };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    RateLimitRequest { domain: "bench".to_owned(), descriptors: vec![descriptor], hits_addend: 0 }
}

/// Asks as fast as answers come; returns how many came.
pub(super) fn fast(cpu: usize, address: SocketAddr, users: usize, time: Duration) -> Result<usize> {
    on(cpu, address, async move |clients| {
        let end = Instant::now() + time;
        let mut askers = JoinSet::new();
        for asker in 0..CONNECTIONS * AT_ONCE {
            let mut client = clients[asker % CONNECTIONS].clone();
            askers.spawn_local(async move {
                let mut number = asker;
                while Instant::now() < end {
                    client.should_rate_limit(request(number, users)).await?;
                    number += CONNECTIONS * AT_ONCE;
                }
                Ok::<_, tonic::Status>(number / (CONNECTIONS * AT_ONCE))
            });
        }
        let mut answers = 0;
        while let Some(asker) = askers.join_next().await {
            answers += asker??;
        }
        Ok(answers)
    })
}

/// Asks at a rate in requests a second, whether answers come or not; returns the time to each
/// answer in microseconds, sorted.
pub(super) fn paced(
    cpu: usize,
    address: SocketAddr,
    users: usize,
    rate: f64,
    time: Duration,
) -> Result<Vec<f64>> {
    on(cpu, address, async move |clients| {
        let times = Rc::new(RefCell::new(Vec::new()));
        let mut asked = JoinSet::new();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let begin = Instant::now();
        let mut sent = 0;
        while begin.elapsed() < time {
            ticks.tick().await;
            let now = Instant::now();
            // Those that are due since the beginning.
            while f64::from(u32::try_from(sent)?) < rate * (now - begin).as_secs_f64() {
                let mut client = clients[sent % CONNECTIONS].clone();
                let times = Rc::clone(&times);
                asked.spawn_local(async move {
                    client.should_rate_limit(request(sent, users)).await?;
                    times.borrow_mut().push(now.elapsed().as_secs_f64() * 1e6);
                    Ok::<_, tonic::Status>(())
                });
                sent += 1;
            }
        }
        while let Some(one) = asked.join_next().await {
            one??;
        }
        let mut times = times.take();
        ensure!(times.len() == sent, "{sent} were asked, {} were answered", times.len());
        times.sort_by(f64::total_cmp);
        Ok(times)
    })
}

/// The value below which `part` of sorted ones are.
pub(super) fn quantile(sorted: &[f64], part: f64) -> Result<f64> {
    let last = sorted.len().checked_sub(1).context("nothing was asked")?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index below the number of values, which is far below 2^52"
    )]
    let index = (last as f64 * part).round() as usize;
    sorted.get(index).copied().context("a part from 0 to 1")
}
