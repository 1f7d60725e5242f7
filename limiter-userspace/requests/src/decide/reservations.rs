//! Reservations that can be given back: a bounded number of them, each until its time has come.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::buckets::arithmetic::Charges;
use crate::buckets::key::{Key, Secret};
use crate::buckets::store::LimitsId;

/// Reservations that can be given back.
const MOST: usize = 65_536;

/// Charges of a reservation, by key.
type Held = Vec<(Key, LimitsId, Charges)>;

/// The outcome of giving a reservation back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenBack {
    /// Its charges are gone.
    Returned,
    /// It stays charged, because others were charged after it: the safe side.
    Kept,
    /// It has expired, was given back already, or never existed.
    Unknown,
}

#[derive(Debug, Default)]
struct All {
    held: HashMap<String, (Held, u64)>,
    next: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Reservations(Mutex<All>);

impl Reservations {
    /// Keeps charges until a time; returns the name by which they can be given back.
    pub(crate) fn hold(&self, secret: &Secret, held: Held, until: u64, now: u64) -> Option<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.held.len() >= MOST {
            all.held.retain(|_, (_, until)| *until >= now);
        }
        if all.held.len() >= MOST {
            return None;
        }
        all.next += 1;
        // Nobody can guess another's; after a restart numbers begin anew, and the secret stays.
        let mut id = secret.begin();
        id.text("reservation");
        id.number(all.next);
        id.number(now);
        let id = id.end().to_string();
        all.held.insert(id.clone(), (held, until));
        Some(id)
    }

    /// Takes charges that may still be given back.
    pub(crate) fn take(&self, id: &str, now: u64) -> Result<Held, GivenBack> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.held.remove(id) {
            Some((held, until)) if until > now => Ok(held),
            Some(_) | None => Err(GivenBack::Unknown),
        }
    }
}
