//! `scope` and `cluster` of a rule or a budget.

use std::time::Duration;

use limiter_sharing::OnPartition;
use limiter_sharing::limit::{SYNC_MAX, SYNC_MIN};

use super::checked::Failure;
use super::scalar::{at, one_of, text, time};
use super::words::SCOPES;
use crate::file::error::Problem;
use crate::file::placed::{Placed, Scalar};
use crate::file::shape::Cluster;
use crate::model::{Share, Sharing};

/// How nodes share limits; `None` if they do not.
pub(in crate::file) fn sharing(
    scope: Option<&Scalar>,
    raw: Option<&Placed<Cluster>>,
) -> Result<Option<Box<Sharing>>, Failure> {
    let shared = match scope {
        None => false,
        Some(scope) => one_of(scope, "scope", &SCOPES)?,
    };
    let sharing = match raw {
        Some(raw) if !shared => {
            let (field, needs) = ("cluster", "`scope: cluster`");
            let remedy = "write that, or remove the field";
            return Err(at(raw.referenced, Problem::Without { field, needs, remedy }));
        }
        Some(raw) => Some(cluster(raw)?),
        None => shared.then(Sharing::default),
    };
    Ok(sharing.map(Box::new))
}

fn cluster(raw: &Placed<Cluster>) -> Result<Sharing, Failure> {
    let Cluster { sync, share, share_of_burst, lease_cap, on_partition, strict } = &raw.value;
    let mut sharing = Sharing::default();
    if let Some(raw) = sync {
        sharing.sync = period(raw)?;
    }
    if let Some(raw) = share {
        sharing.share = part(raw, "share")?;
    }
    if let Some(raw) = share_of_burst {
        sharing.share_of_burst = part(raw, "share_of_burst")?;
    }
    if let Some(raw) = lease_cap {
        sharing.lease_cap = part(raw, "lease_cap")?;
    }
    if let Some(raw) = on_partition {
        sharing.on_partition = one_of(raw, "on_partition", &OnPartition::NAMED)?;
    }
    if let Some(raw) = strict {
        sharing.strict = raw.value;
        if raw.value && sharing.on_partition == OnPartition::Open {
            return Err(at(raw.referenced, Problem::Beside("strict", "`on_partition: open`")));
        }
    }
    Ok(sharing)
}

fn period(raw: &Scalar) -> Result<Duration, Failure> {
    let period = time(raw, "sync", Duration::ZERO)?;
    let range = Duration::from_micros(SYNC_MIN)..=Duration::from_micros(SYNC_MAX);
    if range.contains(&period) && period.subsec_nanos().is_multiple_of(1_000) {
        return Ok(period);
    }
    let text = raw.value.clone().unwrap_or_default();
    let wrong = "is not 50ms to 10s in whole microseconds";
    Err(at(raw.referenced, Problem::Time { field: "sync", text, wrong }))
}

fn part(raw: &Scalar, field: &'static str) -> Result<Share, Failure> {
    let text = text(raw, field, "write one like 25% or 2.5%")?;
    Share::parse(text)
        .ok_or_else(|| at(raw.referenced, Problem::Share { field, text: text.to_owned() }))
}
