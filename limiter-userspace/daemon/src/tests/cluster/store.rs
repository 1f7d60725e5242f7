//! A store to which others write: changes that no node made, and very many of them.

use std::sync::Mutex;

use tokio::sync::mpsc;

use super::*;

/// A writer to the store is guarded as a person is, also in many small steps, and all that was
/// refused is shown.
#[test]
fn the_store_lets_nobody_pass_and_denies_nobody_at_large() {
    let mut node = Node::start();
    let other = node.other("b");
    assert_eq!(repeated_errors(&node), [""; 0]);
    let wide = ["0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/7", "::/0", "2000::/3"];
    for sources in wide.map(net) {
        for list in [List::Allow, List::Deny] {
            node.takes_over(&other, Change::List { list, sources, left: None });
            assert_eq!(node.in_maps(&sources.to_string()), None, "{sources}");
        }
    }
    let source = "192.0.2.7".parse().unwrap();
    node.takes_over(&other, Change::Ban { source, left: Duration::from_mins(10) });
    node.takes_over(&other, Change::Unban { sources: net("0.0.0.0/0") });
    assert_eq!(node.banned().len(), 1);
    // Each of these is allowed, but all together would cover all addresses.
    for first in 0..20u8 {
        let sources = net(&format!("{}.0.0.0/8", 20 + first));
        node.takes_over(&other, Change::List { list: List::Allow, sources, left: None });
        let listed = (first < 16).then_some(Listed::Allow);
        assert_eq!(node.in_maps(&sources.to_string()), listed, "{sources}");
    }
    // A removed entry makes room; the other list has its own room.
    let (gone, new) = (net("20.0.0.0/8"), net("60.0.0.0/8"));
    node.takes_over(&other, Change::Unlist { sources: gone });
    node.takes_over(&other, Change::List { list: List::Allow, sources: new, left: None });
    assert_eq!(node.in_maps("60.0.0.0/8"), Some(Listed::Allow));
    let sources = net("198.51.100.0/24");
    node.takes_over(&other, Change::List { list: List::Deny, sources, left: None });
    assert_eq!(node.in_maps("198.51.100.0/24"), Some(Listed::Deny));
    let shown = node.daemon.service.cluster().unwrap();
    assert_eq!((shown.refused_changes, shown.latest_refused.len(), shown.signed), (15, 10, false));
    let newest = &shown.latest_refused[0];
    assert_eq!(newest.change, "allow 39.0.0.0/8");
    assert!(newest.why.contains("with what other nodes have"), "{newest:?}");
    let text = limiter_api::render::text(&shown);
    for part in ["15 changes by other nodes were not taken over", "NOT TAKEN OVER", "39.0.0.0/8"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let warnings = repeated_errors(&node);
    assert!(warnings[0].starts_with("15 changes by other nodes were not taken"), "{warnings:?}");
    let metrics = node.daemon.service.metrics().unwrap();
    assert!(metrics.contains("limiter_cluster_refused_changes_total 15\n"), "{metrics}");
    other.cluster.stop();
    node.end();
}

/// With a key, only nodes that have it can change anything here.
#[test]
fn with_a_key_only_signed_changes_count() {
    let keys = |key: &str| Some(Keys::parse(&key.repeat(32)).unwrap());
    let mut node = Node::with(keys("a"));
    let [signed, unsigned, forged] =
        [keys("a"), None, keys("b")].map(|keys| node.other_with("b", keys));
    let sources = net("198.51.100.0/24");
    let allow = Change::List { list: List::Allow, sources, left: None };
    for (other, why) in [(&unsigned, "it is not signed"), (&forged, "its signature is of no key")] {
        other.cluster.publish(allow.clone()).unwrap();
        node.handle_until("refusal", |notice| matches!(notice, Notice::Refused { .. }));
        assert_eq!(node.in_maps("198.51.100.0/24"), None);
        let shown = node.daemon.service.cluster().unwrap();
        let newest = &shown.latest_refused[0];
        assert_eq!((newest.change.as_str(), shown.signed), ("allow 198.51.100.0/24", true));
        assert!(newest.why.starts_with(why), "{newest:?}");
    }
    assert!(
        limiter_api::render::text(&node.daemon.service.cluster().unwrap()).contains("are signed")
    );
    node.takes_over(&signed, allow);
    assert_eq!(node.in_maps("198.51.100.0/24"), Some(Listed::Allow));
    // The time of the newest outlives the daemon.
    node.until("the newest change", |node| (node.status().newest_change > 0).then_some(()));
    node.daemon.service.housekeep().unwrap();
    let mut damages = Vec::new();
    let newest = crate::cluster::heard::load(&node.daemon.service.state, &mut damages).unwrap();
    assert_eq!((newest, damages.len()), (node.status().newest_change, 0));
    // Changes of this node are signed, too.
    let mut signed = signed;
    node.ban("192.0.2.7", 60);
    assert!(matches!(node.reported(&mut signed), Change::Ban { .. }));
    for other in [signed, unsigned, forged] {
        other.cluster.stop();
    }
    node.end();
}

/// However many changes the store has, requests are answered in between.
#[test]
fn a_flood_of_changes_leaves_requests_their_turns() {
    const FLOOD: u32 = 1000;
    let Node { daemon, store: _, notices: _ } = Node::start();
    let Daemon { service, directory, fake: _fake, stop: _ } = daemon;
    let service = Arc::new(Mutex::new(service));
    let (sender, notices) = mpsc::channel(FLOOD as usize);
    for number in 0..FLOOD {
        let sources = std::net::IpAddr::from((0xc633_0000 + number).to_be_bytes()).into();
        let change = Change::List { list: List::Deny, sources, left: None };
        sender.try_send(Notice::Change(change)).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let steps = runtime.block_on(async {
        let asked = Arc::clone(&service);
        let requests = tokio::spawn(async move {
            let (mut steps, mut before) = (Vec::new(), 0);
            while before < FLOOD as usize {
                let denied = crate::service::lock(&asked).lists.totals().denied;
                if denied > before {
                    steps.push(denied - before);
                    before = denied;
                }
                tokio::task::yield_now().await;
            }
            steps
        });
        tokio::select! {
            steps = requests => steps.unwrap(),
            () = crate::run::handle_notices(&service, Some(notices)) => panic!("it never ends"),
        }
    });
    let most = steps.iter().max().copied().unwrap();
    assert!(most <= crate::run::SLICE, "{steps:?}");
    // All of them are on disk by now, and each slice was written once.
    let journal = fs::read_to_string(directory.path().join("state/lists.journal")).unwrap();
    assert_eq!(journal.matches("198.51.").count(), FLOOD as usize);
    let writes = journal.lines().count();
    assert!(writes <= (FLOOD as usize).div_ceil(crate::run::SLICE) + 1, "{writes} lines");
}
