//! Reads from the maps which rule set they hold.

use std::cell::RefCell;

use limiter_common::wire::RuleSetHeader;
use limiter_rules::Installed;
use limiter_rules::place::HeldTables;

use super::Maps;
use super::tables::TableMaps;
use super::words::{header_of, own_budgets_of};
use crate::{DatapathError, PinDir};

/// Reads the rules in the maps. A rule that cannot be read is an error: otherwise its slot would
/// seem to be free.
pub(crate) fn adopt(
    maps: &Maps,
    tables: &TableMaps,
    generation: u64,
    pins: &PinDir,
) -> Result<Installed, DatapathError> {
    let failed = RefCell::new(None);
    let installed = Installed::from_maps(&maps.trie(generation, pins)?, |slot| {
        noted(&failed, maps.limit(slot))
    })
    .with_tables(
        &held(maps, tables, generation, pins)?,
        |slot| noted(&failed, tables.record(slot)),
        |index| noted(&failed, tables.action(u32::from(index))),
    );
    failed.into_inner().map_or(Ok(installed), Err)
}

/// The value that was read; `None` after an error, which is stored in `failed`.
fn noted<T>(failed: &RefCell<Option<DatapathError>>, found: Result<T, DatapathError>) -> Option<T> {
    found.map_err(|error| failed.replace(Some(error))).ok()
}

/// Rules in the maps outside the source table.
fn held(
    maps: &Maps,
    tables: &TableMaps,
    generation: u64,
    pins: &PinDir,
) -> Result<HeldTables, DatapathError> {
    let header = RuleSetHeader::from_raw(maps.control(header_of(generation))?);
    let [replies, bans] = own_budgets_of(generation);
    Ok(HeldTables {
        tables: tables.tables(generation, header.tables())?,
        trie: tables.trie(generation, pins)?,
        replies: maps.control(replies)?,
        bans: maps.control(bans)?,
        interfaces: tables.interfaces()?,
    })
}
