//! Reports of what was done already: tokens of a language model, log-ins that failed.

use envoy_types::pb::google::protobuf::UInt64Value;
use limiter_requests::{Answer, Asked, Detail, Limiter};
use limiter_rules::file::requests::RequestFile;
use serde_json::json;

use crate::grpc::{Client, descriptor, request};
use crate::running::started;
use crate::support::{SECOND, at, descriptors, limiter, with_limit};

const MINUTE: u64 = 60 * SECOND;

/// Asks the domain `d`, with hits in each descriptor: 0 looks.
fn hits(limiter: &Limiter, texts: &[&str], hits: u64, nanos: u64) -> Answer {
    let mut descriptors = descriptors(texts);
    for of in &mut descriptors {
        of.hits = Some(hits);
    }
    let asked = Asked { domain: "d", descriptors, hits: 0 };
    limiter.decide(&limiter.rules(), &asked, &at(nanos), Detail::Left).unwrap()
}

fn look(limiter: &Limiter, texts: &[&str], nanos: u64) -> bool {
    !hits(limiter, texts, 0, nanos).over
}

/// Ten a minute by each algorithm, and when 60 that were reported at once are paid.
const TEN: [(&str, u64); 9] = [
    ("rate: 10/min", 5 * MINUTE + 6 * SECOND),
    ("rate: 10/min, burst: 20", 4 * MINUTE + 6 * SECOND),
    ("rate: 10/min, algorithm: leaky_bucket", 6 * MINUTE),
    ("rate: 10/min, algorithm: leaky_bucket, backlog: 30s", 5 * MINUTE + 30 * SECOND),
    ("rate: 10/min, algorithm: fixed_window", 6 * MINUTE),
    ("rate: 10/min, algorithm: sliding_log", 6 * MINUTE),
    ("rate: 10/min, algorithm: sliding_counter", 6 * MINUTE + 6 * SECOND),
    ("rate: 10/min, algorithm: sliding_slots, slots: 4", 6 * MINUTE),
    ("rate: 10/min, algorithm: sliding_slots, slots: 4, strict: true", 8 * MINUTE),
];

/// A report that does not fit is owed, into as many windows as it takes; and the next look is
/// refused for just so long, whether the rule names reports or a look came before.
#[test]
fn what_was_reported_is_owed_by_every_algorithm() {
    for (limit, paid) in TEN {
        let named = format!(
            "domain: d\ndescriptors: [{{key: k, charge: afterwards, rate_limit: {{{limit}}}}}]\n"
        );
        for limiter in [with_limit(limit), limiter(&named, 1000)] {
            assert!(look(&limiter, &["k=1"], 0), "{limit}");
            hits(&limiter, &["k=1"], 60, 0);
            for nanos in [0, MINUTE, paid - 1] {
                let answer = hits(&limiter, &["k=1"], 0, nanos);
                assert!(answer.over, "{limit}, {nanos}");
                let (_, left) = answer.statuses[0].nearest.unwrap();
                assert_eq!((left.remaining, left.wait), (0, Some(paid - nanos)), "{limit}");
            }
            assert!(look(&limiter, &["k=1"], paid), "{limit}");
            assert!(look(&limiter, &["k=2"], 0), "{limit}: nobody else owes it");
        }
    }
}

/// Whoever looks, and reports whatever it took, takes over any time no more than the limit and the
/// latest report.
#[test]
fn looks_and_reports_keep_to_the_rate() {
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for (limit, _) in TEN {
        let limiter = with_limit(limit);
        let (mut nanos, mut total, mut refused) = (0, 0, 0);
        for step in 0..400 {
            nanos += next(MINUTE);
            // Over the border of a sweep.
            if step % 16 == 0 {
                limiter.sweep(0, 1, &at(nanos));
            }
            if look(&limiter, &["k=1"], nanos) {
                let took = 1 + next(40);
                hits(&limiter, &["k=1"], took, nanos);
                total += took;
                let most = 10 * (nanos / MINUTE + 2) + 40;
                assert!(total <= most, "{limit}: {total} of {most}");
            } else {
                refused += 1;
            }
        }
        let least = 10 * (nanos / MINUTE) * 2 / 3;
        assert!(refused > 50 && total >= least, "{limit}: {refused}, {total} of {least}");
    }
}

#[test]
fn a_look_with_nothing_left_is_over() {
    for (limit, _) in TEN {
        let limiter = with_limit(limit);
        let mut passed = 0;
        while look(&limiter, &["k=1"], 0) {
            assert!(!hits(&limiter, &["k=1"], 1, 0).over, "{limit}");
            passed += 1;
        }
        assert!((1..=20).contains(&passed), "{limit}: {passed}");
        assert!(hits(&limiter, &["k=1"], 1, 0).over, "{limit}");
    }
}

/// Polling with 0 hits is no way around a limit, and costs nobody else anything.
#[test]
fn looks_let_nothing_more_pass() {
    for (limit, _) in TEN {
        let (polled, alone) = (with_limit(limit), with_limit(limit));
        let ask = |limiter: &Limiter, nanos| {
            let asked = Asked { domain: "d", descriptors: descriptors(&["k=1"]), hits: 0 };
            limiter.decide(&limiter.rules(), &asked, &at(nanos), Detail::Left).unwrap()
        };
        let mut over = 0;
        for second in 0..200 {
            for _ in 0..3 {
                look(&polled, &["k=1"], second * SECOND);
            }
            for _ in 0..2 {
                let [one, other] = [&polled, &alone].map(|of| ask(of, second * SECOND));
                assert_eq!(one.over, other.over, "{limit}, {second}");
                assert_eq!(one.statuses[0].nearest, other.statuses[0].nearest, "{limit}");
                over += u64::from(one.over);
            }
        }
        assert!(over > 300, "{limit}");
        // As many reports as looks, each of which would fit a bucket that is full.
        let limiter = with_limit(limit);
        for _ in 0..50 {
            look(&limiter, &["k=1"], 0);
        }
        let passed = (0..50).filter(|_| !hits(&limiter, &["k=1"], 1, 0).over).count();
        assert!(passed <= 20, "{limit}: {passed}");
    }
}

/// Without a look before it, and without `charge`, hits ask as ever.
#[test]
fn hits_without_a_look_are_a_question() {
    let limiter = with_limit("rate: 10/hour");
    assert!(hits(&limiter, &["k=1"], 60, 0).over);
    assert!(!hits(&limiter, &["k=1"], 10, 0).over, "the first was charged to none");
    // A look that was refused is followed by nothing.
    assert!(!look(&limiter, &["k=1"], 0));
    assert!(hits(&limiter, &["k=1"], 60, 0).over);
    assert!(look(&limiter, &["k=1"], 360 * SECOND));
    // Each look stands for one report.
    hits(&limiter, &["k=1"], 10, 360 * SECOND);
    hits(&limiter, &["k=1"], 10, 360 * SECOND);
    assert!(look(&limiter, &["k=1"], 3600 * SECOND + 360 * SECOND));
}

const SEVERAL: &str = "
domain: d
budgets: [{name: both, rate_limit: {rate: 100/hour}}]
descriptors:
  - {key: user, rate_limit: {rate: 100/hour}}
  - {key: model, rate_limit: {rate: 1000/hour, algorithm: sliding_counter}}
  - {key: mail, budget: both}
  - {key: news, budget: both}
  - {key: cost, charge: afterwards, rate_limit: {rate: 100/hour}}
  - {key: trial, charge: afterwards, shadow_mode: true, rate_limit: {rate: 100/hour}}
  - {key: soft, charge: afterwards, rate_limit: {rate: 100/hour, ceiling: {rate: 200/hour}}}
  - {key: q1, charge: afterwards, quota_mode: true, rate_limit: {rate: 100/hour}}
  - {key: q2, charge: afterwards, quota_mode: true, rate_limit: {rate: 900/hour}}
  - {key: remote_address, charge: afterwards, rate_limit: {rate: 100/hour},
     aggregates: [{v4_prefix_mask_len: 24, rate_limit: {rate: 150/hour}}]}
";

/// A report of several descriptors is charged to each, also to those that have room where another
/// one has none.
#[test]
fn a_report_of_several_descriptors_is_charged_to_all() {
    let limiter = limiter(SEVERAL, 1000);
    let both = ["user=ann", "model=large"];
    let left = |text: &str| hits(&limiter, &[text], 0, 0).statuses[0].nearest.unwrap().1.remaining;
    for _ in 0..2 {
        assert!(look(&limiter, &both, 0));
        hits(&limiter, &both, 60, 0);
    }
    assert!(!look(&limiter, &both, 0), "120 of 100");
    assert_eq!((left("user=ann"), left("model=large")), (0, 880));
    // Two rules with one budget.
    assert!(look(&limiter, &["mail=a", "news=a"], 0));
    hits(&limiter, &["mail=a", "news=a"], 60, 0);
    assert!(!look(&limiter, &["mail=b"], 0), "120 of 100");
}

/// What `charge: afterwards` may stand beside.
#[test]
fn reports_beside_questions_modes_ceilings_and_aggregates() {
    let limiter = limiter(SEVERAL, 1000);
    // A question that is refused takes no report with it, and the other way round.
    let mut asked = Asked { domain: "d", descriptors: descriptors(&["user=x", "cost=x"]), hits: 0 };
    for (of, hits) in asked.descriptors.iter_mut().zip([101, 120]) {
        of.hits = Some(hits);
    }
    let answer = limiter.decide(&limiter.rules(), &asked, &at(0), Detail::Left).unwrap();
    assert!(answer.over);
    assert!(look(&limiter, &["user=x"], 0) && !look(&limiter, &["cost=x"], 0));
    // A report in shadow mode is counted, and what it owes refuses nobody.
    assert!(!hits(&limiter, &["trial=x"], 120, 0).over);
    let answer = hits(&limiter, &["trial=x"], 0, 0);
    assert_eq!((answer.over, answer.statuses[0].nearest.unwrap().1.remaining), (false, 0));
    // Over a soft limit the ceiling owes.
    for over in [false, true] {
        assert!(look(&limiter, &["soft=x"], 0));
        assert_eq!(hits(&limiter, &["soft=x"], 150, 0).over, over);
    }
    assert!(!look(&limiter, &["soft=x"], 0));
    // Over all quotas only.
    hits(&limiter, &["q1=x", "q2=x"], 500, 0);
    assert!(look(&limiter, &["q1=x", "q2=x"], 0) && !look(&limiter, &["q1=x"], 0));
    hits(&limiter, &["q1=x", "q2=x"], 500, 0);
    assert!(!look(&limiter, &["q1=x", "q2=x"], 0));
    // A wider prefix owes what its sources reported.
    hits(&limiter, &["remote_address=192.0.2.1"], 160, 0);
    assert!(!look(&limiter, &["remote_address=192.0.2.2"], 0));
    assert!(look(&limiter, &["remote_address=192.0.3.1"], 0));
}

/// A report finds the look of before a restart, a reload and a sweep, and debts outlast all three.
#[test]
fn looks_and_debts_survive_a_restart_and_a_reload() {
    for (limit, paid) in TEN {
        let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{limit}}}}}]\n");
        let files = [("r.yaml".to_owned(), RequestFile::check("r.yaml", text.as_bytes()).0)];
        let restarted = |limiter: &Limiter, nanos| {
            let mut kept = Vec::new();
            limiter.save(&mut kept, &at(nanos), Some("boot")).unwrap();
            let snapshot = limiter_requests::Snapshot::open(std::io::Cursor::new(kept)).unwrap();
            let next = Limiter::of(1000, &snapshot);
            next.apply(&files, &at(nanos)).unwrap();
            next.load(snapshot, &at(nanos), Some("boot")).unwrap();
            next
        };
        let limiter = with_limit(limit);
        assert!(look(&limiter, &["k=1"], 0));
        limiter.sweep(0, 1, &at(0));
        let limiter = restarted(&limiter, 0);
        limiter.apply(&files, &at(0)).unwrap();
        hits(&limiter, &["k=1"], 60, 0);
        limiter.sweep(0, 1, &at(MINUTE));
        let limiter = restarted(&limiter, 2 * MINUTE);
        limiter.apply(&files, &at(2 * MINUTE)).unwrap();
        assert!(!look(&limiter, &["k=1"], paid - 1), "{limit}");
        assert!(look(&limiter, &["k=1"], paid), "{limit}");
    }
}

/// Debts of years, and of more than a word can hold.
#[test]
fn reports_of_any_size_are_taken() {
    for (limit, _) in TEN {
        for size in [10_000_000, u64::MAX >> 32, u64::MAX] {
            let limiter = with_limit(limit);
            assert!(look(&limiter, &["k=1"], 0));
            hits(&limiter, &["k=1"], size, 0);
            assert!(!look(&limiter, &["k=1"], 365 * 24 * 60 * MINUTE), "{limit}, {size}");
        }
    }
    // A leaky bucket takes all hits of a request, also those of more than 4.57 years.
    let limiter = with_limit("unit: week, requests_per_unit: 3, algorithm: leaky_bucket");
    assert!(!hits(&limiter, &["k=1"], 1000, 0).over);
    assert!(!look(&limiter, &["k=1"], 4 * 365 * 24 * 60 * MINUTE));
}

/// A gateway that looks, lets pass and charges the cost of the answer: over HTTP and over gRPC two
/// of eight requests of 60 go within 100.
#[tokio::test]
async fn two_of_eight_requests_of_a_gateway_go() {
    let running = started(|options| {
        let rules = "domain: auth\ndescriptors:\n  - {key: window, rate_limit: {unit: day, \
                     requests_per_unit: 100, algorithm: fixed_window}}\n  - {key: bucket, \
                     rate_limit: {rate: 100/day}}\n  - {key: leaky, rate_limit: {rate: 100/day, \
                     algorithm: leaky_bucket, backlog: 20h}}\n  - {key: named, charge: afterwards, \
                     rate_limit: {rate: 100/day}}\n";
        std::fs::write(&options.rules[0], rules).unwrap();
    });
    let mut client = Client::new(&running).await;
    for key in ["window", "bucket", "leaky", "named"] {
        let (mut by_http, mut by_grpc) = (0, 0);
        for _ in 0..8 {
            let http = |hits: u64| {
                let entries = json!([{"key": key, "value": "http"}]);
                let descriptors = json!([{"entries": entries, "hitsAddend": hits}]);
                running.json(&json!({"domain": "auth", "descriptors": descriptors})).status == 200
            };
            if http(0) {
                by_http += 1;
                http(60);
            }
            let mut grpc = async |hits: u64| {
                let mut descriptor = descriptor(&format!("{key}=grpc"));
                descriptor.hits_addend = Some(UInt64Value { value: hits });
                let answer = client.ask(request(vec![descriptor])).await.unwrap();
                answer.statuses[0].code == answer.overall_code && answer.overall_code == 1
            };
            if grpc(0).await {
                by_grpc += 1;
                grpc(60).await;
            }
        }
        assert_eq!((by_http, by_grpc), (2, 2), "{key}");
    }
    running.server.stop().unwrap();
}
