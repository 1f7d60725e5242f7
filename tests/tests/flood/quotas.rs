//! A debt stays, however long, and what a full table means is the rule's to say.

use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::EntryKind;
use limiter_datapath::SourceTable;

use super::scene::{Scene, Spoofed};

/// Quotas by the week for some, a rate for the flood.
const RULES: &str = "descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 1000}}
  - {key: remote_address, value: 10.0.0.0/8, rate_limit: {unit: week, requests_per_unit: 5}}
";

/// A source that has used up a quota by the week gets nothing more, after as many new
/// sources as there are.
#[test]
fn a_quota_by_the_week_survives_a_flood() {
    let mut scene = Scene::new(SourceTable::Hash, 1024, 1, RULES);
    for host in 0..100 {
        for _ in 0..5 {
            assert_eq!(scene.send([10, 0, 0, host]), Verdict::Pass);
        }
        assert_eq!(scene.send([10, 0, 0, host]), Verdict::Drop);
    }
    // An hour later nobody has one back: 5 a week is one in 33 hours.
    scene.silence(3600);
    scene.spoof(&[Spoofed::often(3)]);
    scene.flood(50_000, 30, &mut []);
    let (_, admission) = scene.program.entries(EntryKind::V4).unwrap();
    assert!(admission.evicted > 1024, "{admission:?}: the table turned over");
    for host in 0..100 {
        assert!(scene.is_tracked([10, 0, 0, host]));
        assert_eq!(scene.send([10, 0, 0, host]), Verdict::Drop, "10.0.0.{host}");
    }
}

/// A table that is full of entries that owe, under each policy. Nobody gets more than a burst,
/// wherever it is charged.
fn full(policy: &str) -> Scene {
    let rules = format!(
        "descriptors: [{{key: remote_address, {policy} rate_limit: {{unit: week, \
         requests_per_unit: 5}}}}]"
    );
    let mut scene = Scene::new(SourceTable::Hash, 256, 1, &rules);
    scene.spoof(&[Spoofed::often(3)]);
    scene.flood(2000, 20, &mut []);
    let (_, admission) = scene.program.entries(EntryKind::V4).unwrap();
    assert_eq!(admission.evicted, 0, "{policy}: all of them owe");
    assert!(admission.made <= 256 && admission.full > 0, "{policy}: {admission:?}");
    assert!(!scene.is_tracked([10, 0, 0, 1]));
    scene
}

/// No bucket for the source: a flood. Against an attempt to fill the memory.
#[test]
fn a_full_table_shares_by_default() {
    for policy in ["", "on_full: share,"] {
        let mut scene = full(policy);
        // The credit of all shared buckets together comes back in a second.
        scene.silence(2);
        let passed = (0..20).filter(|_| scene.send([10, 0, 0, 1]) == Verdict::Pass).count();
        assert_eq!(passed, 5, "the burst of the bucket that 10.0.0.0/24 shares");
        assert_eq!(scene.send([10, 0, 0, 2]), Verdict::Drop, "it shares that bucket");
        assert_eq!(scene.send([10, 0, 1, 2]), Verdict::Pass, "another /24 has another");
        assert!(scene.packets(Reason::Aggregate) > 0);
        assert!(scene.packets(Reason::OverAggregate) >= 16);
    }
}

#[test]
fn a_full_table_passes_where_the_rule_says_so() {
    let scene = full("on_full: pass,");
    let untracked = scene.packets(Reason::Untracked);
    for _ in 0..20 {
        assert_eq!(scene.send([10, 0, 0, 1]), Verdict::Pass);
    }
    assert_eq!(scene.packets(Reason::Untracked), untracked + 20);
}

#[test]
fn a_full_table_drops_where_the_rule_says_so() {
    let scene = full("on_full: drop,");
    let dropped = scene.packets(Reason::TableFull);
    for _ in 0..20 {
        assert_eq!(scene.send([10, 0, 0, 1]), Verdict::Drop);
    }
    assert_eq!(scene.packets(Reason::TableFull), dropped + 20);
}

/// A source that used up the shared bucket does not get a second burst with an entry of its own.
#[test]
fn an_entry_made_after_the_shared_bucket_has_no_free_burst() {
    let rules = "descriptors: [{key: remote_address, rate_limit: {unit: minute, \
        requests_per_unit: 60, burst: 30}}]";
    let mut scene = Scene::new(SourceTable::Hash, 256, 1, rules);
    scene.flood(5000, 20, &mut []);
    let mut passed = (0..100).filter(|_| scene.send([10, 0, 0, 1]) == Verdict::Pass).count();
    assert!(!scene.is_tracked([10, 0, 0, 1]) && passed <= 30, "{passed}");
    // The flood is over, its entries have drained, and ten packets came back.
    scene.silence(10);
    passed += (0..100).filter(|_| scene.send([10, 0, 0, 1]) == Verdict::Pass).count();
    assert!(scene.is_tracked([10, 0, 0, 1]));
    assert!((30..=40).contains(&passed), "{passed} of a burst of 30 and 10 seconds at 1/s");
}
