//! Answers that no store would give: read, they are refused, or cost at most one lease.

use limiter_cluster::store::{HotKey, StoreError, read};
use limiter_sharing::account::Answer;
use limiter_sharing::key::{Key, Seen};
use limiter_sharing::{Settings, SharedLimit};
use proptest::prelude::*;

use crate::simulator::scene::settings;

fn read_one(numbers: &[i64], want: u64) -> Result<Answer, StoreError> {
    let answers = read(numbers, Vec::new(), &[b"rl:{0000}:a\xff".into()], [want].into_iter())?;
    Ok(answers.answers[0].clone()?)
}

/// Against an attempt to answer nonsense.
#[test]
fn answers_out_of_range_are_refused() {
    let good = [1_795_000_000_000_000, 5, 0, 7, 9, -1];
    assert_eq!(read_one(&good, 5).map(|answer| answer.grant), Ok(5));
    assert!(matches!(read_one(&good, 4), Err(StoreError::Wrong("a grant above what was wanted"))));
    assert!(read_one(&good[..5], 5).is_err());
    assert!(read_one(&[good.as_slice(), &[0]].concat(), 5).is_err());
    assert!(read_one(&[], 5).is_err());
    for at in 0..good.len() {
        for bad in [-2, i64::MIN, i64::MAX, 1 << 53] {
            let mut numbers = good;
            numbers[at] = bad;
            assert!(matches!(read_one(&numbers, 5), Err(StoreError::Wrong(_))), "{numbers:?}");
        }
    }
    let foreign = read_one(&[good[0], -1, i64::MAX, 0, 0, 0], 5).expect_err("nothing is granted");
    assert!(foreign.to_string().starts_with(r"rl:{0000}:a\xff in the store"), "{foreign}");
    let hot = |name: &[u8], at| vec![HotKey { name: name.into(), at }];
    let none = std::iter::empty;
    assert!(read(&good[..1], hot(b"x", 1), &[], none()).is_ok());
    assert!(read(&good[..1], hot(b"", 1), &[], none()).is_err());
    assert!(read(&good[..1], hot(&[b'x'; 65], 1), &[], none()).is_err());
    assert!(read(&good[..1], hot(b"x", 1 << 53), &[], none()).is_err());
    assert!(read(&good[..1], vec![hot(b"x", 1)[0].clone(); 1001], &[], none()).is_err());
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![any::<i64>(), 0..1i64 << 53, -1..1000i64, 0..100i64]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever numbers are accepted, a node never has more than what it may hold at most, and what
    /// it holds ends in its own time.
    #[test]
    fn no_answer_gives_more_than_one_lease_and_none_is_forever(
        numbers in prop::collection::vec(prop::array::uniform3(number()), 30),
        always: bool,
    ) {
        let limit = SharedLimit::new(Settings { always, ..settings(3) }).expect("good");
        let mut key = Key::new(limit, 0, 0);
        let mut seen = Seen::default();
        for (step, numbers) in numbers.iter().enumerate() {
            let now = (step as u64 + 1) * 50_000;
            seen.denied += 100;
            seen.owed = 20;
            let Some(call) = key.tick(now, &seen) else { continue };
            prop_assert!(call.demand.want <= limit.most());
            let [a, b, c] = *numbers;
            let small = |number: i64| number & (i64::MAX >> 11);
            let raw = [1_795_000_000_000_000, a, small(b), small(c), small(b ^ c), -1];
            match read_one(&raw, call.demand.want) {
                Ok(answer) => key.answered(now, call.sequence, &answer),
                Err(_) => key.failed(now, call.sequence),
            }
            let words = key.words();
            prop_assert!(words.granted <= seen.used + 2 * limit.most());
            prop_assert!(words.expires <= now + 8 * limit.settings().sync);
            // Half of what it has is used.
            if now < words.expires {
                seen.used += (words.granted - seen.used.min(words.granted)) / 2;
            }
        }
    }
}
