//! Names and numbers on which daemon and program agree.

use crate::bucket::{Generation, Slot};
use crate::bucket_key::BucketKey;
use crate::source::Source;
use crate::time::Ticks;

/// The number of the layout. It changes whenever a layout, a map or the meaning of a value changes.
/// A daemon adopts pinned maps only if their number is the same, and replaces others. A program
/// built with `LIMITER_ANOTHER_LAYOUT` in the environment has the next number, and differs in
/// nothing else: `cargo xtask vm --system` upgrades to it.
pub const ABI_VERSION: u64 = 24 + option_env!("LIMITER_ANOTHER_LAYOUT").is_some() as u64;

/// Indices into the `CONTROL` array of `u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Control {
    /// [`ABI_VERSION`] of the daemon that made the maps.
    Abi = 0,
    /// The number of the rule set in force. Its lowest bit selects the trie; storing it is the
    /// commit.
    Generation = 1,
    /// Non-zero: `limiter off`, every packet passes.
    Bypass = 2,
    /// Which lists have entries: [`LISTS_EXACT`] and [`LISTS_PREFIXES`]. The program looks up only
    /// these. [`LISTS_AUTHORS`] is for the daemon.
    Lists = 3,
    /// [`RuleSetHeader`] of even generations, written before the generation itself.
    EvenRuleSet = 4,
    /// [`RuleSetHeader`] of odd generations.
    OddRuleSet = 5,
    /// [`crate::window::WallOffset`] in nanoseconds, refreshed by the daemon.
    WallOffset = 6,
    /// The time until which packets are captured, in ticks; 0 for no capture. The daemon extends it
    /// as long as it reads the packets. Read for every packet.
    CaptureEnd = 7,
    /// One more than the slot of `RECORDS` whose budget limits the bans of even generations; 0 for
    /// no new bans.
    EvenBans = 8,
    /// Non-zero once a rule with a ban has ever been in force: then the program looks up bans.
    BansKept = 9,
    /// Like [`Control::EvenReplies`], for odd generations.
    OddReplies = 10,
    /// Like [`Control::EvenBans`], for odd generations.
    OddBans = 11,
    /// The end of a rule set on trial, in ticks: from then on the previous one is in force again.
    /// Read only if the header of the generation in force says that it is on trial, and written
    /// before that header.
    TrialEnd = 12,
    /// Ticks per event on each CPU: the rate at which drops are reported. 0 for none.
    EventCost = 13,
    /// Ticks by which events may be ahead of that rate.
    EventCredit = 14,
    /// The time from which the daemon counts as lost, in ticks. The daemon extends it as long as it
    /// runs. 0 before the first time. Read only if the header of the generation in force says that
    /// a rule depends on it.
    DaemonLost = 15,
    /// One more than the slot of `RECORDS` whose budget limits the replies of even generations; 0
    /// for no replies. [`OwnBudget`] selects the word of a generation.
    EvenReplies = 16,
    /// The index of the `ifb` in which packets that come in at tc wait; 0 if there is none: then
    /// they do not wait.
    Ifb = 17,
    /// Number of members of bonds; their words, each a [`Member`], follow it. In native mode the
    /// driver of a member runs the program of its bond, and passes the member as the interface.
    Members = 18,
}

/// The most members of bonds.
pub const MAX_MEMBERS: u32 = 16;

/// An interface that is a member of a bond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Member(u64);

crate::raw_word!(Member);

impl Member {
    /// Packs the index of a member and that of its bond.
    pub const fn new(index: u32, bond: u32) -> Self {
        Self((index as u64) << 32 | bond as u64)
    }

    /// The index of the bond, if `index` is this member.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn bond_of(self, index: u32) -> Option<u32> {
        if self.0 >> 32 == index as u64 { Some((self.0 & 0xffff_ffff) as u32) } else { None }
    }
}

/// A budget of limiter itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OwnBudget {
    /// Answers to senders of dropped packets.
    Replies = 0,
    /// New bans.
    Bans = 1,
}

impl OwnBudget {
    /// The word with the slot of the budget, for a generation.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn word(self, generation: Generation) -> Control {
        match (self, generation.buffer()) {
            (Self::Replies, 0) => Control::EvenReplies,
            (Self::Replies, _) => Control::OddReplies,
            (Self::Bans, 0) => Control::EvenBans,
            (Self::Bans, _) => Control::OddBans,
        }
    }

    /// The slot of the budget's record, from its word: the word is one more; 0 means none.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn slot(word: u64) -> Option<Slot> {
        match word.checked_sub(1) {
            Some(slot) => Some(Slot::new((slot & 0xffff_ffff) as u32)),
            None => None,
        }
    }
}

/// The header of a rule set: what the program must know before it examines a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleSetHeader(u64);

crate::raw_word!(RuleSetHeader);

impl RuleSetHeader {
    const FLOWS: u64 = 1 << 8;
    const ACTIONS: u64 = 1 << 9;
    const INNER: u64 = 1 << 10;
    const MARTIANS: u64 = 1 << 11;
    const ON_TRIAL: u64 = 1 << 12;
    const ON_LOSS: u64 = 1 << 13;
    const NO_SOURCES: u64 = 1 << 14;
    const OUT: u64 = 1 << 15;

    /// The bits that a header may have, besides the number of [`RuleSetHeader::with_only_out`].
    pub const BITS: u64 = 0xff_ffff;

    const ONLY_OUT: u32 = 32;

    /// The header of a rule set with `tables` tables besides the source table, at most
    /// [`super::MAX_TABLES`]; `flows` if any limit counts new flows; `actions` if any limit of the
    /// source table has an action.
    pub const fn new(tables: u32, flows: bool, actions: bool) -> Self {
        let flows = if flows { Self::FLOWS } else { 0 };
        let actions = if actions { Self::ACTIONS } else { 0 };
        Self((tables & 0xff) as u64 | flows | actions)
    }

    /// Marks that a table asks for the source of the packet inside a tunnel.
    #[must_use]
    pub const fn with_inner(self) -> Self {
        Self(self.0 | Self::INNER)
    }

    /// Marks that packets from impossible sources are dropped.
    #[must_use]
    pub const fn with_martians_dropped(self) -> Self {
        Self(self.0 | Self::MARTIANS)
    }

    /// Sets or clears the mark that the rule set is on trial until [`Control::TrialEnd`].
    #[must_use]
    pub const fn with_trial(self, on_trial: bool) -> Self {
        let bit = if on_trial { Self::ON_TRIAL } else { 0 };
        Self(self.0 & !Self::ON_TRIAL | bit)
    }

    /// Marks that some rules only count while the daemon is lost.
    #[must_use]
    pub const fn with_loss(self) -> Self {
        Self(self.0 | Self::ON_LOSS)
    }

    /// Marks that the source table has no rule. Does nothing for a rule set without tables, which
    /// must stay plain.
    #[must_use]
    pub const fn without_sources(self) -> Self {
        if self.tables() == 0 { self } else { Self(self.0 | Self::NO_SOURCES) }
    }

    /// Marks that some table takes outgoing packets.
    #[must_use]
    pub const fn with_out(self) -> Self {
        Self(self.0 | Self::OUT)
    }

    /// Marks that outgoing IPv4 packets are in one table only, whose keys are their destinations,
    /// by its [`super::Table::compact`].
    #[must_use]
    pub const fn with_only_out(self, compact: u64) -> Self {
        Self(self.0 | compact << Self::ONLY_OUT)
    }

    /// The bucket key of an outgoing packet to `destination`, if nothing else has to be known.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn only_out(self, destination: &Source) -> Option<BucketKey> {
        match (self.0 >> Self::ONLY_OUT, destination) {
            (0, _) | (_, Source::V6(_)) => None,
            (compact, Source::V4([a, b, c, d])) => {
                let address = u64::from_ne_bytes([0, 0, 0, 0, *a, *b, *c, *d]);
                Some(BucketKey::compact(compact | address))
            }
        }
    }

    /// True if some table takes outgoing packets, for a rule on them or on both directions.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn has_out(self) -> bool {
        self.0 & Self::OUT != 0
    }

    /// The header for outgoing packets: without the source table, and without looking into tunnels.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    pub const fn of_out(self) -> Self {
        Self((self.0 | Self::NO_SOURCES) & !Self::INNER)
    }

    /// True if the source table has a rule or may have one.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn has_sources(self) -> bool {
        self.0 & Self::NO_SOURCES == 0
    }

    /// True if any rule depends on [`Control::DaemonLost`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn asks_for_daemon(self) -> bool {
        self.0 & Self::ON_LOSS != 0
    }

    /// True if the rule set is only in force until [`Control::TrialEnd`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_on_trial(self) -> bool {
        self.0 & Self::ON_TRIAL != 0
    }

    /// True if there is only the source table, and it drops packets over its limits.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_plain(self) -> bool {
        self.0 & !(Self::MARTIANS | Self::ON_TRIAL) == 0
    }

    /// True if some table asks for the source of the packet inside a tunnel.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn inner(self) -> bool {
        self.0 & Self::INNER != 0
    }

    /// True if packets from impossible sources are dropped: [`crate::source::Source::is_martian`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn drops_martians(self) -> bool {
        self.0 & Self::MARTIANS != 0
    }

    /// Number of tables besides the source table.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn tables(self) -> u32 {
        (self.0 & 0xff) as u32
    }

    /// True if any limit counts new flows.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn flows(self) -> bool {
        self.0 & Self::FLOWS != 0
    }
}

/// Bit of [`Control::Lists`]: there are single sources.
pub const LISTS_EXACT: u64 = 1;

/// Bit of [`Control::Lists`]: there are prefixes.
pub const LISTS_PREFIXES: u64 = 2;

/// Bit of [`Control::Lists`]: the lowest bit of [`super::ListEntry::expires`] tells who wrote an
/// entry. In maps with the number 18, earlier versions used it as a part of the end. Set only while
/// there are entries, so that the program otherwise sees an empty word.
pub const LISTS_AUTHORS: u64 = 4;

/// True if, by [`Control::DaemonLost`], the daemon is lost at `now`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn is_daemon_lost(word: u64, now: Ticks) -> bool {
    word != 0 && now.get() >= word
}

impl Control {
    /// Number of entries.
    pub const COUNT: u32 = Self::Members.index() + 1 + MAX_MEMBERS;

    /// The array index.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn index(self) -> u32 {
        self as u32
    }
}

/// Read-only words of the program with lines, set at load time.
pub mod constant {
    /// Lines of the line table per family, `u32`.
    pub const SOURCE_LINES: &str = "SOURCE_LINES";
    /// Lines of compact keys, `u32`.
    pub const NARROW_LINES: &str = "NARROW_LINES";
    /// [`super::super::EntryTable::seed`] of IPv4 sources, `u64`: it determines the lines of all
    /// bucket keys.
    pub const LINE_SEED: &str = "LINE_SEED";
}

/// Map names in the object file and under the pin directory.
pub mod map {
    /// `u64` by [`super::Control`]: written by the daemon.
    pub const CONTROL: &str = "CONTROL";
    /// [`super::super::Limit`] by slot: written by the daemon, never while a slot is in force.
    pub const LIMITS: &str = "LIMITS";
    /// Two tries from prefix (IPv4 as IPv4-mapped IPv6) to slot, chosen by generation.
    pub const RULES: &str = "RULES";
    /// [`super::super::ListEntry`] by source, as a trie key.
    pub const LISTED: &str = "LISTED";
    /// [`super::super::ListEntry`] by prefix, in a trie.
    pub const LISTED_PREFIXES: &str = "LISTED_PREFIXES";
    /// [`super::super::Bucket`] by IPv4 address.
    pub const SOURCES_V4: &str = "SOURCES_V4";
    /// [`super::super::Bucket`] by IPv6 /64.
    pub const SOURCES_V6: &str = "SOURCES_V6";
    /// [`super::super::Line`]: the IPv4 sources of the line table, then the IPv6 sources, then the
    /// compact keys.
    pub const LINES: &str = "LINES";
    /// [`super::super::Bucket`] by compact key ([`crate::bucket_key::BucketKey::compact`]).
    pub const NARROW: &str = "NARROW";
    /// Per-CPU [`super::super::Tally`] by [`crate::verdict::Reason`].
    pub const REASONS: &str = "REASONS";
    /// Per-CPU [`super::super::RuleCounters`] by rule number.
    pub const RULE_STATS: &str = "RULE_STATS";
    /// Per-CPU [`super::super::InterfaceCounters`] by [`super::super::InterfaceCounters::place`].
    pub const INTERFACE_STATS: &str = "INTERFACE_STATS";
    /// [`super::super::Table`] by buffer and index.
    pub const TABLES: &str = "TABLES";
    /// [`super::super::Shape`] by buffer, table and index.
    pub const SHAPES: &str = "SHAPES";
    /// Two tries from [`super::super::TableKey`] to [`super::super::TrieValue`], chosen by
    /// generation.
    pub const TABLE_RULES: &str = "TABLE_RULES";
    /// [`super::super::Record`] by slot: written by the daemon, never while a slot is in force.
    pub const RECORDS: &str = "RECORDS";
    /// [`super::super::KeyedEntry`] by [`super::super::KeyName`].
    pub const KEYED: &str = "KEYED";
    /// [`super::super::KeyedBucket`] by budget, and after them by rule number: the buckets that
    /// keys without an entry share.
    pub const BUDGETS: &str = "BUDGETS";
    /// [`super::super::Lease`] by [`super::super::lease_of_budget`].
    pub const LEASES: &str = "LEASES";
    /// Leases of keys: [`crate::wire::KeyLeases`].
    pub const LEASED: &str = "LEASED";
    /// Keys that ask for leases: [`crate::wire::Ask`].
    pub const ASKS: &str = "ASKS";
    /// [`super::super::Action`] by index.
    pub const ACTIONS: &str = "ACTIONS";
    /// [`super::super::Ban`] by source, as a trie key.
    pub const BANS: &str = "BANS";
    /// The time at which the last packet of a flow passed, by flow.
    pub const FLOWS: &str = "FLOWS";
    /// Interfaces to which packets are redirected.
    pub const INTERFACES: &str = "INTERFACES";
    /// CPUs to which packets are redirected.
    pub const CPUS: &str = "CPUS";
    /// The XDP program that continues with the packets that pass, at index 0.
    pub const THEN: &str = "THEN";
    /// [`super::super::EntryTable`] by [`super::super::EntryKind`].
    pub const SPACES: &str = "SPACES";
    /// Per-CPU [`super::super::Admission`] by [`super::super::EntryKind`].
    pub const ADMISSION: &str = "ADMISSION";
    /// The sources of [`SOURCES_V4`], one per ring slot.
    pub const FRAMES_V4: &str = "FRAMES_V4";
    /// The sources of [`SOURCES_V6`], one per ring slot.
    pub const FRAMES_V6: &str = "FRAMES_V6";
    /// The names of [`NARROW`], one per ring slot.
    pub const FRAMES_NARROW: &str = "FRAMES_NARROW";
    /// [`super::super::KeyedRingSlot`]: the keys of [`KEYED`].
    pub const FRAMES_KEYED: &str = "FRAMES_KEYED";
    /// Words of the buckets that sources without an entry share.
    pub const AGGREGATES: &str = "AGGREGATES";
    /// Words of fingerprints: `limiter_decision::entries::fingerprint`.
    pub const FINGERPRINTS: &str = "FINGERPRINTS";
    /// A ring of [`super::super::Event`].
    pub const EVENTS: &str = "EVENTS";
    /// Per-CPU [`super::super::EventBudget`].
    pub const EVENT_BUDGET: &str = "EVENT_BUDGET";
    /// [`super::super::Moment`] by generation: written by the daemon.
    pub const CHANGES: &str = "CHANGES";
    /// [`super::super::CaptureFilter`]: written by the daemon.
    pub const CAPTURE: &str = "CAPTURE";
    /// A ring of [`super::super::CaptureRecord`], each with its bytes.
    pub const CAPTURED: &str = "CAPTURED";
    /// Per-CPU [`super::super::CaptureBudget`].
    pub const CAPTURE_BUDGET: &str = "CAPTURE_BUDGET";
    /// Per-CPU [`super::super::CaptureFrame`].
    pub const CAPTURE_FRAME: &str = "CAPTURE_FRAME";
    /// Per-CPU [`super::super::Uncounted`].
    pub const UNCOUNTED: &str = "UNCOUNTED";
    /// The maps of every program, in the order in which they are pinned.
    pub const ALL: [&str; 36] = [
        CONTROL,
        LIMITS,
        RULES,
        LISTED,
        LISTED_PREFIXES,
        REASONS,
        RULE_STATS,
        INTERFACE_STATS,
        TABLES,
        SHAPES,
        TABLE_RULES,
        RECORDS,
        KEYED,
        BUDGETS,
        LEASES,
        LEASED,
        ASKS,
        ACTIONS,
        BANS,
        FLOWS,
        INTERFACES,
        CPUS,
        THEN,
        SPACES,
        ADMISSION,
        FRAMES_KEYED,
        AGGREGATES,
        FINGERPRINTS,
        EVENTS,
        EVENT_BUDGET,
        UNCOUNTED,
        CHANGES,
        CAPTURE,
        CAPTURED,
        CAPTURE_BUDGET,
        CAPTURE_FRAME,
    ];
    /// The maps of a program with the buckets of sources in hash maps.
    pub const HASHED: [&str; 6] =
        [SOURCES_V4, SOURCES_V6, NARROW, FRAMES_V4, FRAMES_V6, FRAMES_NARROW];
    /// The maps of a program with the buckets of sources in lines.
    pub const LINED: [&str; 1] = [LINES];
}
