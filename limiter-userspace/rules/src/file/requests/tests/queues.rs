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
    let refused = |queues: &str, rule: &str| {
        let text = format!("domain: d\nqueues: [{queues}]\ndescriptors:\n  - {{{rule}}}\n");
        let (_, errors) = RequestFile::check("r.yaml", text.as_bytes());
        errors.first().map_or_else(|| panic!("taken:\n{text}"), ToString::to_string)
    };
    let rule = |limit: &str, more: &str| {
        format!("key: k, rate_limit: {{{limit}}}, action: {{queue: q}}{more}")
    };
    let good = rule("rate: 5/s", "");
    for (queues, rule, error) in [
        ("{name: p}", good.clone(), "4:55: \"queue: q\" is not supported: there is no queue of"),
        ("{name: q}, {name: q}", good.clone(), "a second queue q"),
        ("{name: a b}", good.clone(), "\"a b\" is not supported: a queue has a name"),
        ("{name: q, payload: 1MiB}", good.clone(), "a payload has 1 B to 48 KiB"),
        ("{name: q, payload: much}", good.clone(), "payload: "),
        ("{name: q, age: 31days}", good.clone(), "age: \"31days\" is more than 30 days"),
        ("{name: q, visibility: 1ms}", good, "visibility: \"1ms\" is too short"),
        (
            "{name: q}",
            rule("rate: 5/s, algorithm: fixed_window", ""),
            "only a token or a leaky bucket says when the next one may leave it",
        ),
        (
            "{name: q}",
            rule("unit: day, requests_per_unit: 0", ""),
            "with `requests_per_unit: 0` nothing would ever leave it",
        ),
        ("{name: q}", rule("unlimited: true", ""), "action beside unlimited"),
        ("{name: q}", rule("rate: 5/s", ", shadow_mode: true"), "shadow_mode beside queue"),
        ("{name: q}", rule("rate: 5/s", ", quota_mode: true"), "quota_mode beside queue"),
        ("{name: q}", rule("rate: 5/s", ", on_full: pass"), "on_full beside queue"),
        ("{name: q}", rule("rate: 1000/s", ", scope: cluster"), "scope beside queue"),
        ("{name: q}", rule("rate: 5/s, ceiling: {rate: 9/s}", ""), "remove `ceiling`"),
        (
            "{name: q}",
            "key: remote_address, rate_limit: {rate: 5/s}, action: {queue: q}, aggregates: \
             [{v4_prefix_mask_len: 24, rate_limit: {rate: 9/s}}]"
                .to_owned(),
            "aggregates beside queue",
        ),
        (
            "{name: q}",
            "key: remote_address, rate_limit: {rate: 5/s}, action: {queue: q, ban: {first: 1min}}"
                .to_owned(),
            "queue beside ban",
        ),
        (
            "{name: q}",
            "key: k, rate_limit: {rate: 5/s}, action: queue".to_owned(),
            "action: queue needs more than its name",
        ),
    ] {
        let got = refused(queues, &rule);
        assert!(got.starts_with("r.yaml:") && got.contains(error), "{queues} {rule}: {got}");
    }
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
