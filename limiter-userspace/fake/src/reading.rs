//! Single entries of the model's maps, with what the test added.

use std::convert::Infallible;

use limiter_common::bucket::{Generation, Slot};
use limiter_common::bucket_key::BucketKey;
use limiter_common::source::Source;
use limiter_common::wire::{
    Action, Admission, Ban, Bucket, Control, EntryKind, EntryTable, FlowKey, KeyLeases,
    KeyedBucket, Lease, Limit, ListEntry, Moment, Record, Shape, Table, TableKey, TrieValue,
};
use limiter_datapath::{DatapathError, Reading};
use limiter_model::Model;

use super::opened::Opened;

type Read<T> = limiter_model::Read<T, DatapathError>;

impl Opened {
    fn read<T>(
        &self,
        read: impl FnOnce(&Model) -> Result<T, Infallible>,
    ) -> Result<T, DatapathError> {
        read(&self.fake.state().model).map_err(|never| match never {})
    }
}

impl Reading for Opened {
    type Error = DatapathError;

    fn moment(&self, generation: u32) -> Result<Moment, DatapathError> {
        self.read(|model| Reading::moment(model, generation))
    }

    fn control(&self, word: Control) -> Result<u64, DatapathError> {
        self.read(|model| model.control(word))
    }

    fn listed(&self, source: &Source) -> Read<ListEntry> {
        self.read(|model| Reading::listed(model, source))
    }

    fn listed_around(&self, source: &Source) -> Read<ListEntry> {
        self.read(|model| model.listed_around(source))
    }

    fn ban(&self, source: &Source) -> Read<Ban> {
        self.read(|model| Reading::ban(model, source))
    }

    fn slot(&self, generation: Generation, bucket_key: &BucketKey) -> Read<Slot> {
        self.read(|model| model.slot(generation, bucket_key))
    }

    fn limit(&self, slot: Slot) -> Read<Limit> {
        self.read(|model| Reading::limit(model, slot))
    }

    fn bucket_of(&self, bucket_key: &BucketKey) -> Read<Bucket> {
        self.read(|model| Reading::bucket_of(model, bucket_key))
    }

    fn aggregate(&self, index: u32) -> Read<u64> {
        self.read(|model| Reading::aggregate(model, index))
    }

    fn fingerprints(&self, index: u32) -> Read<u64> {
        self.read(|model| Reading::fingerprints(model, index))
    }

    fn entry_table(&self, kind: EntryKind) -> Result<EntryTable, DatapathError> {
        self.read(|model| Reading::entry_table(model, kind))
    }

    fn admissions(&self, kind: EntryKind) -> Result<Vec<Admission>, DatapathError> {
        let added = self.fake.state().admission.get(&kind).copied().unwrap_or_default();
        let of_model = |model: &Model| {
            let mut admissions = model.admissions(kind)?;
            for admission in &mut admissions {
                let Admission { tat, returned, .. } = *admission;
                admission.merge(added);
                (admission.tat, admission.returned) = (tat, returned);
            }
            Ok(admissions)
        };
        self.read(of_model)
    }

    fn table(&self, generation: Generation, index: u32) -> Read<Table> {
        self.read(|model| Reading::table(model, generation, index))
    }

    fn shape(&self, generation: Generation, table: u32, shape: u32) -> Read<Shape> {
        self.read(|model| Reading::shape(model, generation, table, shape))
    }

    fn table_rule(&self, generation: Generation, key: &TableKey) -> Read<TrieValue> {
        self.read(|model| Reading::table_rule(model, generation, key))
    }

    fn record(&self, slot: Slot) -> Read<Record> {
        self.read(|model| Reading::record(model, slot))
    }

    fn action(&self, index: u32) -> Read<Action> {
        self.read(|model| Reading::action(model, index))
    }

    fn keyed(&self, key: &TableKey) -> Read<KeyedBucket> {
        self.read(|model| Reading::keyed(model, key))
    }

    fn budget(&self, index: u32) -> Read<KeyedBucket> {
        self.read(|model| Reading::budget(model, index))
    }

    fn lease(&self, index: u32) -> Read<Lease> {
        self.read(|model| Reading::lease(model, index))
    }

    fn leased(&self, key: &TableKey) -> Read<KeyLeases> {
        self.read(|model| Reading::leased(model, key))
    }

    fn flow(&self, flow: &FlowKey) -> Read<u64> {
        self.read(|model| Reading::flow(model, flow))
    }
}
