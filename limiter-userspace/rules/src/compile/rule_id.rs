//! Identity of rules and tables over two rule sets, in the words of the maps.

use ipnet::IpNet;
use limiter_common::source::MAPPED_BITS;
use limiter_common::wire::{MAX_SHAPES, Shape, TRIE_FIXED_BITS, Table, TableKey, TrieValue, field};

use crate::model::{Direction, Part, Path, SOURCE_MASKS, Selector, SourceMasks};

/// Identity of a table: its keys, whatever the order, their masks, and the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableForm {
    /// Bits of [`field`], those of the families and of the direction among them.
    pub fields: u32,
    /// The masks of the source, if that is a key.
    pub source: Option<SourceMasks>,
}

/// A rule of a table: what its keys must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId {
    /// Keys and masks of the table that the rule is in.
    pub form: TableForm,
    /// The source prefix, of the packet or of the one inside it.
    pub source: Option<IpNet>,
    /// The destination prefix.
    pub destination: Option<IpNet>,
    /// Bits of [`field`]: the keys beside the addresses that must have a value.
    pub given: u32,
    /// Values of the given keys, as they stand in a [`TableKey`].
    pub values: [u64; 3],
}

/// One key of the trie: the bits that its shape looks at, the key, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pattern {
    pub(super) mask: TableKey,
    pub(super) key: TableKey,
    pub(super) length: u32,
}

const VERSION_BITS: u8 = 0x0f;

/// Keys that stand where the source does.
const SOURCES: u32 = field::SOURCE | field::INNER;

const ADDRESSES: u32 = SOURCES | field::DESTINATION;

/// Bits of a rank below its digits: whether there is a rule, a source prefix, a destination prefix.
/// These bits order nothing, because the digits say as much; they are for reading the maps back.
const RANK_RULE: u32 = 1;
const RANK_SOURCE: u32 = 1 << 1;
const RANK_DESTINATION: u32 = 1 << 2;
const RANK_DIGITS: u32 = 3;

impl RuleId {
    /// The rule with these keys; an error names the interface that does not exist.
    pub fn new(path: &Path, index: &dyn Fn(&str) -> Option<u32>) -> Result<Self, String> {
        let mut id = Self::without_keys(path.direction);
        for part in path.parts.iter() {
            id.form.fields |= part.field();
            match part {
                Part::Source(masks, value) => {
                    id.form.source = Some(*masks);
                    for (length, bit) in [(masks.v4, field::V4), (masks.v6, field::V6)] {
                        if length.is_none() {
                            id.form.fields &= !bit;
                        }
                    }
                    id.source = *value;
                }
                Part::Destination(value) => id.destination = *value,
                Part::Fact(_, None) | Part::Interface(None) => {}
                // A range is found by its lowest value: `Ranges`.
                Part::Fact(fact, Some(value)) => id.must_have(fact.field(), value.low().into()),
                Part::Interface(Some(name)) => {
                    let index = index(name).ok_or_else(|| name.clone())?;
                    id.must_have(field::INTERFACE, index);
                }
                Part::Inner(value) => {
                    id.form.source = Some(SOURCE_MASKS);
                    id.source = *value;
                }
            }
        }
        Ok(id)
    }

    /// The rule on all packets of a direction together.
    const fn without_keys(direction: Direction) -> Self {
        let fields = field::V4 | field::V6 | direction.fields();
        Self {
            form: TableForm { fields, source: None },
            source: None,
            destination: None,
            given: 0,
            values: [0; 3],
        }
    }

    fn must_have(&mut self, fact: u32, value: u32) {
        self.given |= fact;
        self.values = TableKey::EMPTY.with(self.values).with(TableKey::place(fact, value)).words();
    }

    /// A rule by source alone for packets that come in, for which the source table has no room.
    pub fn of_source(selector: &Selector) -> Self {
        let mut id = Self::without_keys(Direction::In);
        id.form.fields |= field::SOURCE;
        id.form.source = Some(SOURCE_MASKS);
        id.source = match selector {
            Selector::Every => None,
            Selector::Prefix(net) => Some(*net),
        };
        id
    }

    /// The sources that a rule is for, if it is one by source alone.
    pub fn selector(&self) -> Option<Selector> {
        let selector = self.source.map_or(Selector::Every, Selector::Prefix);
        (*self == Self::of_source(&selector)).then_some(selector)
    }

    /// Keys in the trie: one for each family that an address leaves open.
    pub(super) fn patterns(&self) -> Vec<Pattern> {
        if !self.form.has_keys() {
            return Vec::new();
        }
        if self.form.fields & ADDRESSES == 0 {
            return vec![self.pattern(0)];
        }
        let of = |net: &IpNet| if matches!(net, IpNet::V4(_)) { 4 } else { 6 };
        let fits = |value: &Option<IpNet>, version| value.as_ref().is_none_or(|n| of(n) == version);
        [(field::V4, 4), (field::V6, 6)]
            .into_iter()
            .filter(|(bit, version)| {
                self.form.fields & bit != 0
                    && fits(&self.source, *version)
                    && fits(&self.destination, *version)
            })
            .map(|(_, version)| self.pattern(version))
            .collect()
    }

    fn pattern(&self, version: u8) -> Pattern {
        let mut key = TableKey::default().with(self.values);
        let mut mask = TableKey::default().with(TableKey::mask(self.given));
        let mut length = TRIE_FIXED_BITS;
        if version != 0 {
            (key.version, mask.version) = (version, u8::MAX);
        }
        if let Some(net) = &self.destination {
            key.destination = address(net);
            mask.destination = ones(bits(net));
            // `::/0` asks for no bit, and yet is more specific than no value: it needs a shape of
            // its own. Both versions have all of their bits here.
            if bits(net) == 0 {
                mask.version = VERSION_BITS;
            }
        }
        if self.form.fields & SOURCES != 0 {
            match &self.source {
                Some(net) => {
                    key.source = address(net);
                    length += bits(net);
                }
                None if version == 4 => {
                    key.source = address(&IpNet::V4(ipnet::Ipv4Net::default()));
                    length += MAPPED_BITS;
                }
                None => {}
            }
        }
        Pattern { mask, key, length }
    }

    /// How specific it is among the rules of its table whose keys stand in `order`.
    pub(super) fn rank(&self, order: &[u32]) -> u32 {
        let length = |net: &Option<IpNet>| net.map_or(0, |net| u32::from(net.prefix_len()) + 1);
        let mut digits = 0;
        for bit in order {
            let (width, digit) = match *bit {
                field::SOURCE | field::INNER => (8, length(&self.source)),
                field::DESTINATION => (8, length(&self.destination)),
                other => (1, u32::from(self.given & other != 0)),
            };
            digits = digits << width | digit;
        }
        let mut rank = digits << RANK_DIGITS | RANK_RULE;
        if self.source.is_some() {
            rank |= RANK_SOURCE;
        }
        if self.destination.is_some() {
            rank |= RANK_DESTINATION;
        }
        rank
    }

    /// How specific it is among the rules of its table, by its path.
    pub fn rank_of(&self, path: &Path) -> u32 {
        self.rank(&path.parts.iter().map(Part::field).collect::<Vec<_>>())
    }

    /// True if a packet with this key in its table falls under this rule.
    pub fn covers(&self, key: &TableKey) -> bool {
        if !self.form.has_keys() {
            return true;
        }
        // The source is compared by its length, the table is the caller's.
        let rest = |key: &TableKey| -> [u64; 7] {
            bytemuck::cast(TableKey { table: 0, source: [0; 2], ..*key })
        };
        let source = |key: &TableKey| -> u128 {
            let bytes: [u8; 16] = bytemuck::cast(key.source);
            u128::from_be_bytes(bytes)
        };
        self.patterns().iter().any(|pattern| {
            let bits = pattern.length.saturating_sub(TRIE_FIXED_BITS);
            let cut =
                |address: u128| address.checked_shr(u128::BITS.saturating_sub(bits)).unwrap_or(0);
            let (mask, wanted, has) = (rest(&pattern.mask), rest(&pattern.key), rest(key));
            let same = has
                .iter()
                .zip(mask)
                .zip(wanted)
                .all(|((has, mask), wanted)| has & mask == wanted & mask);
            same && cut(source(key)) == cut(source(&pattern.key))
        })
    }

    /// Reads a rule back from an entry of the trie.
    pub(crate) fn from_entry(
        tables: &[(Table, Vec<Shape>)],
        key: &TableKey,
        length: u32,
        value: TrieValue,
    ) -> Option<Self> {
        let (table, shapes) = tables.get(usize::try_from(key.table / MAX_SHAPES).ok()?)?;
        let mask = shapes.get(usize::try_from(key.table % MAX_SHAPES).ok()?)?.mask;
        let [rank, _slot]: [u32; 2] = [u32::try_from(value.raw() >> 32).ok()?, value.slot()];
        let net = |words: [u64; 2], bits: u32| {
            let bytes: [u8; 16] = bytemuck::cast(words);
            net_of(bytes, bits, key.version)
        };
        let mut id = Self { form: TableForm::of(table), ..Self::without_keys(Direction::In) };
        if rank & RANK_SOURCE != 0 {
            id.source = Some(net(key.source, length.checked_sub(TRIE_FIXED_BITS)?)?);
        }
        if rank & RANK_DESTINATION != 0 {
            let bits = mask.destination.iter().map(|word| word.count_ones()).sum();
            id.destination = Some(net(key.destination, bits)?);
        }
        id.given = mask.facts(table.fields & !ADDRESSES);
        let [first_mask, second_mask, third_mask] = TableKey::mask(id.given);
        let [first, second, third] = key.words();
        id.values = [first & first_mask, second & second_mask, third & third_mask];
        Some(id)
    }

    /// The rule of a table without keys.
    pub(crate) fn of_fixed(table: &Table) -> Self {
        Self { form: TableForm::of(table), ..Self::without_keys(Direction::In) }
    }
}

impl TableForm {
    /// True if the keys of the table are sources, each as the source table has it.
    pub fn is_of_sources(self) -> bool {
        self == RuleId::of_source(&Selector::Every).form
    }

    /// True if IPv4 packets have a bucket for each source, whatever else they are.
    pub(crate) fn is_by_address(self) -> bool {
        let is_whole = |masks: SourceMasks| masks.v4 == SOURCE_MASKS.v4;
        self.fields & !field::CONDITIONS == field::SOURCE && self.source.is_some_and(is_whole)
    }

    /// True if no two sources of the family of an address share a bucket.
    pub fn distinguishes_sources(self, net: &IpNet) -> bool {
        let length = |masks: SourceMasks| masks.of(net);
        let lengths = self.source.and_then(length).zip(length(SOURCE_MASKS));
        self.fields & field::SOURCE != 0 && lengths.is_some_and(|(own, source)| own >= source)
    }

    /// The direction of its rules.
    pub const fn direction(self) -> Direction {
        Direction::of_fields(self.fields)
    }

    /// True if packets have a key; otherwise all of them share a bucket.
    pub(crate) const fn has_keys(self) -> bool {
        self.fields & !field::CONDITIONS != 0
    }

    fn of(table: &Table) -> Self {
        let count = |words: [u64; 2]| words.iter().map(|word| word.count_ones()).sum::<u32>();
        let [v4, v6] = table.source_masks.map(count);
        let length = |bit, bits: u32| {
            (table.fields & bit != 0).then(|| u8::try_from(bits).unwrap_or(u8::MAX))
        };
        let source = (table.fields & SOURCES != 0).then(|| SourceMasks {
            v4: length(field::V4, v4.saturating_sub(MAPPED_BITS)),
            v6: length(field::V6, v6),
        });
        Self { fields: table.fields, source }
    }

    /// The table in the maps, without its rules.
    pub(crate) fn table(self, id: u32) -> Table {
        let has = |bit| self.fields & bit != 0;
        let words = TableKey::mask(self.fields);
        let mut table = Table { id, fields: self.fields, words, ..Table::default() };
        if let Some(masks) = self.source {
            let v4 = masks.v4.map(|length| ones(MAPPED_BITS + u32::from(length)));
            let v6 = masks.v6.map(|length| ones(u32::from(length)));
            table.source_masks = [v4.unwrap_or_default(), v6.unwrap_or_default()];
        }
        if has(field::DESTINATION) {
            let mask = |bit| if has(bit) { ones(u128::BITS) } else { [0; 2] };
            table.destination_masks = [mask(field::V4), mask(field::V6)];
        }
        table
    }
}

fn address(net: &IpNet) -> [u64; 2] {
    let bytes = match net {
        IpNet::V4(net) => net.addr().to_ipv6_mapped().octets(),
        IpNet::V6(net) => net.addr().octets(),
    };
    bytemuck::cast(bytes)
}

/// Significant bits of [`address`].
fn bits(net: &IpNet) -> u32 {
    let length = u32::from(net.prefix_len());
    match net {
        IpNet::V4(_) => MAPPED_BITS + length,
        IpNet::V6(_) => length,
    }
}

/// The first `bits` bits.
fn ones(bits: u32) -> [u64; 2] {
    let mask = u128::MAX.checked_shl(u128::BITS.saturating_sub(bits)).unwrap_or(0);
    bytemuck::cast(mask.to_be_bytes())
}

fn net_of(address: [u8; 16], bits: u32, version: u8) -> Option<IpNet> {
    let v6 = std::net::Ipv6Addr::from(address);
    if version == 4 {
        let length = u8::try_from(bits.checked_sub(MAPPED_BITS)?).ok()?;
        return IpNet::new(v6.to_ipv4_mapped()?.into(), length).ok();
    }
    IpNet::new(v6.into(), u8::try_from(bits).ok()?).ok()
}
