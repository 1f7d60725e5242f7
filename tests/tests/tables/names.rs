//! Keys whose names are hashes: two with the same one never share a bucket.

use limiter_common::verdict::Reason;
use limiter_common::wire::{EntryKind, TableKey, field};
use limiter_tests::packet::Frame;
use limiter_tests::program::SEED;

use super::{halves, passed, program, reason, table};

/// A number scattered over 64 bits (Steele, Lea, Flood 2014), as the program scatters.
const fn scatter(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// The hash of all words of a key but the last one.
fn all_but_last(key: &TableKey) -> u64 {
    let [words @ .., _]: [u64; 7] = bytemuck::cast(*key);
    words.into_iter().fold(SEED, |hash, word| scatter(hash ^ word))
}

/// The address of two halves as keys have them.
fn address(halves: [u64; 2]) -> [u8; 16] {
    bytemuck::cast(halves)
}

/// Keys of one hash can be found with the seed, which nobody outside knows: the test sets it.
#[test]
fn two_keys_with_one_hash_share_no_bucket() {
    let program = program(
        "descriptors:
  - {key: masked_remote_address, v6_prefix_mask_len: 128, rate_limit: {rate: 1/day, burst: 2}}",
    );
    let table = table(&program, field::SOURCE);
    let key = |source| TableKey { table, version: 6, source, ..TableKey::EMPTY };
    let first = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    let first = key(halves(first));
    let [second, _] = halves([0x20, 1, 0xd, 0xb8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    let apart = all_but_last(&first) ^ all_but_last(&key([second, 0]));
    let second = key([second, first.source[1] ^ apart]);
    assert!(first.name(|| SEED).is_hashed());
    assert_eq!(first.name(|| SEED), second.name(|| SEED));

    let frame = |key: &TableKey| Frame::ipv6(address(key.source), [0xfd; 16]).build();
    assert_eq!(passed(&program, &frame(&first), 5), 2);
    // The other one has no bucket, and shares that of its rule with all that have none.
    assert_eq!(reason(&program, &frame(&second)), Reason::Aggregate);
    assert_eq!(reason(&program, &frame(&first)), Reason::OverLimit);
    assert_eq!(program.entries(EntryKind::Keyed).unwrap().1.made, 1);
    let counters = program.keyed(&first).unwrap().map(|bucket| (bucket.passed, bucket.dropped));
    assert_eq!(counters, Some((2, 4)));
    assert_eq!(program.keyed(&second).unwrap(), None);
}
