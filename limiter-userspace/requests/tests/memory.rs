//! Memory of a key, as the system counts it. A program of its own, so that nothing else takes any.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;

use limiter_requests::{Asked, Descriptor, Detail, Limiter, Moment};
use limiter_rules::file::requests::RequestFile;
use smallvec::smallvec;

/// More than all tables hold before they grow at 230,000.
const KEYS: u64 = 300_000;

/// Bytes that this process has in memory.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_key_of_a_token_bucket_takes_at_most_100_bytes() {
    let text = "domain: d\ndescriptors: [{key: k, rate_limit: {rate: 100/hour}}]\n";
    let (file, errors) = RequestFile::check("r.yaml", text.as_bytes());
    assert!(errors.is_empty());
    let limiter = Limiter::new(2_000_000).unwrap();
    limiter.apply(&[("r.yaml".to_owned(), file)], &Moment::now()).unwrap();
    let (rules, moment) = (limiter.rules(), Moment::now());
    let before = resident();
    let mut worst = 0;
    for n in 0..KEYS {
        let value = format!("a user with a name of some length, number {n}");
        let entries = smallvec![("k", value.as_str())];
        let asked = Asked {
            domain: "d",
            descriptors: smallvec![Descriptor { entries, ..Descriptor::default() }],
            hits: 1,
        };
        assert!(!limiter.decide(&rules, &asked, &moment, Detail::Decision).unwrap().over);
        // Also right after all tables have grown.
        if n >= 100_000 && n % 5_000 == 0 {
            worst = worst.max((resident() - before) / (n + 1));
        }
    }
    assert_eq!(u64::try_from(limiter.keys()).unwrap(), KEYS);
    let bytes = (resident() - before) / KEYS;
    assert!(bytes <= 100 && worst <= 100, "{bytes} bytes a key, {worst} at worst");
    assert!(bytes >= 32, "{bytes}: nothing is measured");
}
