//! Queues of a file, and the rules that name them.

use super::*;

#[test]
fn a_queue_has_defaults_and_all_its_fields() {
    let file = parse(
        "domain: d\nqueues:\n  - name: emails\n  - {name: sms-2, depth: 5, age: 2min, payload: 1kB, \
         attempts: 3, visibility: 10s}\ndescriptors:\n  - {key: k, rate_limit: {rate: 1000/s}, action: \
         {queue: emails}}\n  - {key: l, rate_limit: {rate: 5/min, algorithm: leaky_bucket, \
         backlog: 1min}, action: {queue: sms-2}}\n",
    );
    let [emails, sms] = &file.queues[..] else { panic!("{file:?}") };
    let place = emails.place;
    assert_eq!(*emails, Queue { place, ..Queue::new("emails") });
    let bounds = (sms.depth, sms.age.as_secs(), sms.payload, sms.attempts);
    assert_eq!((bounds, sms.visibility.as_secs()), ((5, 120, 1000, 3), 10));
    let queues: Vec<_> =
        file.rules().iter().map(|(_, rule)| rule.queue.as_ref().unwrap().0.clone()).collect();
    assert_eq!(queues, ["emails".into(), Box::from("sms-2")]);
    assert_eq!(file.notes.len(), 1, "{:?}", file.notes);
}

#[test]
fn a_queue_that_cannot_be_meant_is_refused_with_the_place_and_a_remedy() {
    let file = |queues: &str, rule: &str| {
        format!("domain: d\nqueues: [{queues}]\ndescriptors:\n  - {{{rule}}}\n")
    };
    refused(
        |queues: &&str| file(queues, "key: k, rate_limit: {rate: 5/s}, action: {queue: q}"),
        &[
            ("{name: p}", "4:55: \"queue: q\" is not supported: there is no queue of"),
            ("{name: q}, {name: q}", "a second queue q"),
            ("{name: a b}", "\"a b\" is not supported: a queue has a name"),
            ("{name: q, payload: 1MiB}", "a payload has 1 B to 48 KiB"),
            ("{name: q, payload: much}", "payload: "),
            ("{name: q, age: 31days}", "age: \"31days\" is more than 30 days"),
            ("{name: q, visibility: 1ms}", "visibility: \"1ms\" is too short"),
        ],
    );
    let wider = "aggregates: [{v4_prefix_mask_len: 24, rate_limit: {rate: 9/s}}]";
    refused(
        |(limit, more): &(&str, &str)| {
            let queue = "action: {queue: q}";
            let rule = format!("key: remote_address, rate_limit: {{{limit}}}, {queue}{more}");
            file("{name: q}", &rule)
        },
        &[
            (
                ("rate: 5/s, algorithm: fixed_window", ""),
                "only a token or a leaky bucket says when",
            ),
            (("unit: day, requests_per_unit: 0", ""), "nothing would ever leave it"),
            (("unlimited: true", ""), "action beside unlimited"),
            (("rate: 5/s", ", shadow_mode: true"), "shadow_mode beside queue"),
            (("rate: 5/s", ", quota_mode: true"), "quota_mode beside queue"),
            (("rate: 5/s", ", on_full: pass"), "on_full beside queue"),
            (("rate: 1000/s", ", scope: cluster"), "scope beside queue"),
            (("rate: 5/s, ceiling: {rate: 9/s}", ""), "remove `ceiling`"),
            (("rate: 5/s", &format!(", {wider}")), "aggregates beside queue"),
        ],
    );
    refused(
        |action: &&str| file("{name: q}", &format!("key: k, rate_limit: {{rate: 5/s}}, {action}")),
        &[
            ("action: {queue: q, ban: {first: 1min}}", "queue beside ban"),
            ("action: queue", "action: queue needs more than its name"),
        ],
    );
    let text = "domain: d\nqueues: [{name: a}, {name: b}]\ndescriptors: [{key: k, rate_limit: {rate: \
                1000/s, burst: 1}, action: {queue: a}}]\n";
    let notes: Vec<String> = parse(text).notes.into_iter().map(|note| note.text).collect();
    assert!(notes.iter().any(|note| note.contains("slower than the rate")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("no rule fills the queue b")), "{notes:?}");
}

/// A queue that keeps nothing for as long as its rate takes to let one leave refuses what it is
/// there to keep.
#[test]
fn a_queue_whose_age_is_shorter_than_the_way_out_is_reported() {
    let notes = |age: &str, limit: &str| -> Vec<String> {
        let text = format!(
            "domain: d\nqueues: [{{name: q, age: {age}}}]\ndescriptors: [{{key: k, rate_limit: \
             {{{limit}}}, action: {{queue: q}}}}]\n"
        );
        let notes = parse(&text).notes.into_iter().map(|note| note.text);
        notes.filter(|note| note.contains("keeps nothing")).collect()
    };
    for (age, limit, wanted) in [
        ("1min", "rate: 3/hour", "one leaves every 20m at this rate, and the queue q"),
        ("1min", "rate: 3/hour", "for longer than 1m, so most"),
        ("1min", "rate: 3/hour", "write `age: 20m` or more"),
        ("1h", "unit: week, requests_per_unit: 1, burst: 5", "write `age: 7days` or more"),
        ("1s", "rate: 59/min, algorithm: leaky_bucket, backlog: 1min", "write `age: 2s` or more"),
    ] {
        let notes = notes(age, limit);
        assert!(notes.len() == 1 && notes[0].contains(wanted), "{limit}: {notes:?}");
    }
    for (age, limit) in [("1s", "rate: 60/min"), ("20min", "rate: 3/hour"), ("1h", "rate: 1000/s")]
    {
        assert_eq!(notes(age, limit), [""; 0], "{limit}");
    }
}
