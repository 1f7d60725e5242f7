//! One look-up of a bucket for each table and packet, however many rules there are: counted in the
//! same decision on the host.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::cell::Cell;
use std::fmt::Write as _;

use limiter_common::bucket::{Generation, Slot};
use limiter_common::bucket_key::BucketKey;
use limiter_common::frame_size::FrameSize;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{
    Action, Bucket, Control, EntryKind, FlowKey, KeyedEntry, Limit, ListEntry, Moment, Record,
    Shape, Table, TableKey, TrieValue, Uncounted,
};
use limiter_decision::cell::Cell as SharedWord;
use limiter_decision::entries::{AdmissionCells, EntryTableWords};
use limiter_decision::host;
use limiter_decision::line::Lines;
use limiter_decision::maps::Maps;
use limiter_decision::outcome::{Insert, Outcome};
use limiter_decision::register::OutParameter;
use limiter_decision::table::{KeyCell, Scratch};
use limiter_model::Model;
use limiter_rules::{Environment, Installed};
use limiter_tests::packet::MAX_FRAME;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::program::rule_set;

/// Look-ups in maps that grow with the traffic or with the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lookups {
    sources: u32,
    keyed: u32,
    inserts: u32,
    tries: u32,
}

struct Counting {
    model: Model,
    sources: Cell<u32>,
    keyed: Cell<u32>,
    inserts: Cell<u32>,
    tries: Cell<u32>,
    /// True if there is no room for another key.
    full: Cell<bool>,
}

fn one_more(count: &Cell<u32>) {
    count.set(count.get() + 1);
}

impl Counting {
    fn new(file: &str) -> Self {
        let set = rule_set(file).unwrap();
        let mut model = Model::new();
        let environment = Environment {
            max_frame: MAX_FRAME,
            interface_index: &|_| Some(1),
            cpus: 1,
            cluster: None,
            in_at_tc: Some(false),
        };
        model.commit(
            Installed::default().plan(&set, 1, 100_000, &environment).unwrap(),
            Ticks::ZERO,
        );
        let zero = || Cell::new(0);
        Self {
            model,
            sources: zero(),
            keyed: zero(),
            inserts: zero(),
            tries: zero(),
            full: Cell::new(false),
        }
    }

    /// Judges a frame; says what it took.
    fn judge(&self, frame: &[u8]) -> (Outcome, Lookups) {
        for count in [&self.sources, &self.keyed, &self.inserts, &self.tries] {
            count.set(0);
        }
        let length = u64::try_from(frame.len()).unwrap();
        let now = Ticks::from_nanos(1_000_000_000_000);
        let mut scratch = Scratch::empty();
        let outcome =
            host::judge(self, &mut scratch, &frame, 1, FrameSize::of_packet(length), now).unpack();
        let lookups = Lookups {
            sources: self.sources.get(),
            keyed: self.keyed.get(),
            inserts: self.inserts.get(),
            tries: self.tries.get(),
        };
        (outcome, lookups)
    }
}

/// As the model, and counted.
macro_rules! as_the_model {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) $(-> $answer:ty)?;)*) => {$(
        fn $name(&self $(, $argument: $type)*) $(-> $answer)? {
            Maps::$name(&self.model $(, $argument)*)
        }
    )*};
}

impl Maps for Counting {
    const SUPER_FRAMES: bool = true;
    const DELAYS: bool = true;

    type Hashed = <Model as Maps>::Hashed;
    type Line = <Model as Maps>::Line;
    type Keyed = <Model as Maps>::Keyed;
    type Kept = <Model as Maps>::Kept;
    type Lease = <Model as Maps>::Lease;
    type Ban = <Model as Maps>::Ban;

    /// Not known: a change counts from the packet that meets it.
    fn moment(&self, _generation: u32) -> Moment {
        Moment::UNKNOWN
    }

    fn source_bucket(&self, bucket_key: &BucketKey) -> Option<Self::Hashed> {
        one_more(&self.sources);
        self.model.source_bucket(bucket_key)
    }

    fn insert(&self, bucket_key: &BucketKey, bucket: &Bucket) -> Insert {
        one_more(&self.inserts);
        self.model.insert(bucket_key, bucket)
    }

    fn source_rule(&self, generation: Generation, bucket_key: &BucketKey) -> Option<Slot> {
        one_more(&self.tries);
        self.model.source_rule(generation, bucket_key)
    }

    fn table_rule(&self, generation: Generation, key: &Cell<TableKey>) -> TrieValue {
        one_more(&self.tries);
        self.model.table_rule(generation, key)
    }

    fn keyed(&self, key: &KeyCell) -> Option<Self::Keyed> {
        one_more(&self.keyed);
        Maps::keyed(&self.model, key)
    }

    fn insert_keyed(&self, key: &KeyCell, room: &Cell<KeyedEntry>, resolved: u64) -> Insert {
        one_more(&self.inserts);
        if self.full.get() {
            return Insert::Refused;
        }
        self.model.insert_keyed(key, room, resolved)
    }

    fn aggregate(&self, index: u32) -> Option<impl SharedWord> {
        Maps::aggregate(&self.model, index)
    }

    fn fingerprints(&self, index: u32) -> Option<impl SharedWord> {
        Maps::fingerprints(&self.model, index)
    }

    fn entry_table(&self, kind: EntryKind) -> Option<impl EntryTableWords> {
        Maps::entry_table(&self.model, kind)
    }

    fn ring_slot(&self, kind: EntryKind, index: u32) -> Option<impl SharedWord> {
        Maps::ring_slot(&self.model, kind, index)
    }

    as_the_model! {
        fn control(&self, word: Control) -> u64;
        fn now(&self, recent: Ticks) -> Ticks;
        fn out_parameter(&self) -> Option<&OutParameter>;
        fn listed(&self, source: &Source) -> Option<&ListEntry>;
        fn listed_prefix(&self, source: &Source) -> Option<&ListEntry>;
        fn ban(&self, source: &Source) -> Option<Self::Ban>;
        fn insert_ban(&self, source: &Source) -> Insert;
        fn limit(&self, slot: Slot) -> Option<&Limit>;
        fn lines(&self, kind: EntryKind) -> Option<Lines>;
        fn line(&self, kind: EntryKind, index: u32) -> Option<Self::Line>;
        fn remove(&self, bucket_key: &BucketKey);
        fn uncounted(&self) -> Option<&Cell<Uncounted>>;
        fn admission(&self, kind: EntryKind) -> Option<&AdmissionCells>;
        fn ring_key(&self, index: u32, key: &KeyCell);
        fn set_ring_key(&self, index: u32, key: &KeyCell);
        fn table(&self, generation: Generation, index: u32) -> Option<&Table>;
        fn shape(&self, generation: Generation, table: u32, shape: u32) -> Option<&Shape>;
        fn record(&self, slot: Slot) -> Option<&Record>;
        fn action(&self, index: u32) -> Option<&Action>;
        fn remove_keyed(&self, key: &KeyCell);
        fn budget(&self, index: u32) -> Option<Self::Keyed>;
        fn lease(&self, index: u32) -> Option<Self::Lease>;
        fn leased(&self, key: &KeyCell) -> Option<impl SharedWord>;
        fn insert_leased(&self, key: &KeyCell) -> Insert;
        fn remove_leased(&self, key: &KeyCell);
        fn ask(&self, key: &KeyCell, slot: Slot) -> bool;
        fn flow(&self, flow: &FlowKey) -> Option<Ticks>;
        fn set_flow(&self, flow: &FlowKey, now: Ticks);
        fn count_rule(&self, rule: u32, reason: Reason, size: FrameSize, add: bool);
    }
}

/// Rules for many sources and ports in each of `tables` tables, besides those of the source table.
fn rules(tables: usize, each: u32) -> String {
    let forms = [
        "key: remote_address, value: ADDRESS, descriptors: [{key: destination_port, LIMIT}]",
        "key: remote_address, value: ADDRESS, descriptors: [{key: protocol, LIMIT}]",
        "key: remote_address, value: ADDRESS, descriptors: [{key: dscp, LIMIT}]",
        "key: remote_address, value: ADDRESS, descriptors: [{key: interface, LIMIT}]",
        "key: remote_address, value: ADDRESS, descriptors: [{key: destination_address, LIMIT}]",
        "key: remote_address, value: ADDRESS, descriptors: [{key: vlan, LIMIT}]",
        "key: remote_address, value: ADDRESS, descriptors: [{key: tcp_flags, LIMIT}]",
        "key: masked_remote_address, v4_prefix_mask_len: 31, value: NET/31, LIMIT",
    ];
    let limit = "rate_limits: [{unit: day, requests_per_unit: 5}, {unit: day, requests_per_unit: \
        9, algorithm: sliding_log}]";
    let mut file = String::from(
        "descriptors:\n  - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 99}}\n",
    );
    for form in &forms[..tables] {
        for index in 0..each {
            let address = std::net::Ipv4Addr::from(0x0a00_0000 + 2 * index).to_string();
            let form = form.replace("ADDRESS", &address).replace("NET", &address);
            let _ = writeln!(file, "  - {{{}}}", form.replace("LIMIT", limit));
        }
    }
    file
}

#[test]
fn a_packet_of_a_known_key_costs_one_look_up_in_each_table_and_none_in_the_rules() {
    for (tables, each) in [(1, 1), (1, 3000), (4, 1000), (8, 1), (8, 500)] {
        let maps = Counting::new(&rules(tables, each));
        let transport = Transport::Tcp { source: 40_000, destination: 22, flags: 16 };
        let address = (0x0a00_0000 + 2 * (each / 2)).to_be_bytes();
        let frame = Frame::ipv4(address, [198, 51, 100, 1]).vlan(7).transport(transport).build();
        let (outcome, first) = maps.judge(&frame);
        assert_eq!(outcome.reason, Reason::Conforming);
        let count = u32::try_from(tables).unwrap();
        assert_eq!(
            first.inserts,
            count + 1,
            "{tables} tables of {each}: the first packet makes them"
        );
        for packet in 2..9 {
            let (outcome, lookups) = maps.judge(&frame);
            let drops = packet > 5;
            assert_eq!(outcome.reason.verdict() == Verdict::Drop, drops, "packet {packet}");
            // The first table has no room, so the others are not asked.
            let expected = if drops {
                Lookups { keyed: 1, ..Lookups::default() }
            } else {
                Lookups { sources: 1, keyed: count, ..Lookups::default() }
            };
            assert_eq!(lookups, expected, "{tables} tables of {each}, packet {packet}");
        }
    }
}

/// A key without a rule is remembered, too.
#[test]
fn a_packet_without_a_rule_costs_no_more() {
    let maps = Counting::new(&rules(4, 1000));
    let frame = Frame::ipv4([192, 0, 2, 1], [198, 51, 100, 1]).build();
    maps.judge(&frame);
    let (_, lookups) = maps.judge(&frame);
    assert_eq!(lookups, Lookups { sources: 1, keyed: 4, ..Lookups::default() });
}

/// No room for a key: its rule says what happens, a packet without a rule passes, and a budget is
/// charged all the same.
#[test]
fn a_key_that_there_is_no_room_for_is_judged_as_its_rule_says() {
    let maps = Counting::new(
        "budgets: [{name: b, rate_limit: {unit: day, requests_per_unit: 2}}]
descriptors:
  - {key: vlan, value: 7, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: vlan, value: 8, rate_limit: {unit: day, requests_per_unit: 2}, on_full: pass}
  - {key: vlan, value: 9, rate_limit: {unit: day, requests_per_unit: 2}, on_full: drop}
  - {key: vlan, value: 10, rate_limit: {unit: day, requests_per_unit: 2}, on_full: drop, \
  shadow_mode: true}
  - {key: dscp, value: 3, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: protocol, value: tcp, budget: b}
",
    );
    maps.full.set(true);
    let frame = Frame::ipv4([192, 0, 2, 1], [198, 51, 100, 1]);
    let reasons = |frame: &Frame| {
        let frame = frame.build();
        [(); 4].map(|()| maps.judge(&frame).0.reason)
    };
    let [a, b, c, d] = reasons(&frame.clone().vlan(7));
    assert_eq!([a, b], [Reason::Aggregate; 2]);
    assert_eq!([c, d], [Reason::OverAggregate; 2]);
    assert_eq!(reasons(&frame.clone().vlan(8)), [Reason::Untracked; 4]);
    assert_eq!(reasons(&frame.clone().vlan(9)), [Reason::TableFull; 4]);
    assert_eq!(reasons(&frame.clone().vlan(10)), [Reason::Shadow; 4]);
    assert_eq!(reasons(&frame), [Reason::NoRule; 4]);
    let transport = Transport::Tcp { source: 40_000, destination: 22, flags: 16 };
    let [a, b, c, d] = reasons(&frame.transport(transport));
    assert_eq!([a, b], [Reason::Conforming; 2]);
    assert_eq!([c, d], [Reason::OverLimit; 2]);
}

/// A packet that no rule of a table is for asks no map that grows, and makes no entry.
#[test]
fn a_packet_to_another_port_asks_nothing_and_makes_no_key() {
    let maps = Counting::new(
        "descriptors:
  - key: destination_port
    value: 22
    descriptors:
      - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 2}}
",
    );
    let to = |port| {
        let transport = Transport::Udp { source: 40_000, destination: port };
        Frame::ipv4([192, 0, 2, 1], [198, 51, 100, 1]).transport(transport).build()
    };
    for _ in 0..3 {
        let (outcome, lookups) = maps.judge(&to(9));
        assert_eq!((outcome.reason, lookups), (Reason::NoRule, Lookups::default()));
    }
    let (outcome, lookups) = maps.judge(&to(22));
    assert_eq!((outcome.reason, lookups.inserts), (Reason::Conforming, 1));
    let (_, lookups) = maps.judge(&to(22));
    // A look, and a charge: the program does both at once.
    assert_eq!(lookups, Lookups { sources: 2, ..Lookups::default() });
}
