//! Single entries of the model's maps, with what the test added.

use limiter_common::wire::{Admission, Control, EntryKind, EntryTable};
use limiter_model::{Entry, Reading, Value};

use super::opened::Opened;
use crate::DatapathError;

impl Reading for Opened {
    type Error = DatapathError;

    fn control(&self, word: Control) -> Result<u64, DatapathError> {
        let Ok(value) = Reading::control(&self.fake.state().model, word);
        Ok(value)
    }

    fn admissions(&self, kind: EntryKind) -> Result<(EntryTable, Vec<Admission>), DatapathError> {
        let state = self.fake.state();
        let added = state.admission.get(&kind).copied().unwrap_or_default();
        let Ok((entry_table, mut admissions)) = state.model.admissions(kind);
        for admission in &mut admissions {
            let Admission { tat, returned, .. } = *admission;
            admission.merge(added);
            (admission.tat, admission.returned) = (tat, returned);
        }
        Ok((entry_table, admissions))
    }

    fn read(&self, entry: Entry) -> Result<Option<Value>, DatapathError> {
        let Ok(value) = self.fake.state().model.read(entry);
        Ok(value)
    }
}
