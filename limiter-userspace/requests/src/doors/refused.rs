//! Who is refused now.

use std::collections::HashMap;

use jiff::Timestamp;
use limiter_api::refused::{MOST_KEYS, RefusedKey, RefusedKeys};

use crate::buckets::key::Key;
use crate::clock::Moment;
use crate::decide::question::Asked;
use crate::limiter::Limiter;
use crate::reports::counters::Became;
use crate::reports::refused::{Row, Who};
use crate::rules::Rule;
use crate::throttle;

impl Limiter {
    /// The keys that are refused most now, or those of the descriptors that a request names, with
    /// the aggregates that these fall under.
    ///
    /// # Errors
    ///
    /// No rule is for a descriptor.
    pub fn refused(
        &self,
        asked: Option<&Asked<'_>>,
        moment: &Moment,
    ) -> Result<RefusedKeys, String> {
        // Rows first: what is refused meanwhile is of the others.
        let (mut rows, lost) = self.refused.rows(moment.now);
        let counted = self.counted();
        let rules: HashMap<Key, &Rule> =
            counted.iter().map(|rule| (rule.identity(), &**rule)).collect();
        rows.retain(|(_, row)| rules.contains_key(&row.rule));
        rows.sort_unstable_by(Row::order);
        let mut others = Vec::new();
        if let Some(asked) = asked {
            let (wanted, wider) = self.rows_of(asked, lost)?;
            let is_asked = |(_, row): &(f64, Row)| {
                wider.contains(&row.key) || wanted.iter().any(|asked| asked.key == row.key)
            };
            (rows, others) = rows.into_iter().partition(is_asked);
            for row in wanted {
                if rows.iter().all(|(_, known)| known.key != row.key) {
                    rows.push((0.0, row));
                }
            }
        }
        others.extend(rows.split_off(rows.len().min(MOST_KEYS)));
        let others_at_most = others.iter().map(|(_, row)| row.most()).max().unwrap_or(0).max(lost);
        let shown = |(per_second, row): (f64, Row)| {
            Some(self.refused_key(rules.get(&row.rule)?, row, per_second, moment))
        };
        let keys: Vec<_> = rows.into_iter().filter_map(shown).collect();
        let refused = counted.iter().map(|rule| {
            let counts = rule.counters.all();
            counts[Became::Over as usize] + counts[Became::FullRefused as usize]
        });
        let refused: u64 = refused.sum();
        let listed: u64 = keys.iter().map(|key| key.refused).sum();
        Ok(RefusedKeys { refused, others: refused.saturating_sub(listed), others_at_most, keys })
    }

    fn refused_key(&self, rule: &Rule, row: Row, per_second: f64, moment: &Moment) -> RefusedKey {
        let at = |nanos: u64| {
            let ago = moment.now.as_nanos().saturating_sub(nanos);
            let seconds = moment.wall().saturating_sub(ago) / 1_000_000_000;
            let moment = Timestamp::from_second(i64::try_from(seconds).unwrap_or(i64::MAX)).ok()?;
            (row.refused > 0).then(|| moment.to_string())
        };
        RefusedKey {
            domain: rule.domain.to_string(),
            rule: rule.path.to_string(),
            name: rule.written.name.as_deref().map(str::to_owned),
            since: at(row.first),
            last: at(row.last),
            prefix: row.prefix,
            id: self.refused.id(row.key),
            refused_per_second: per_second,
            refused: row.refused,
            missed_at_most: row.missed,
            values: row.shown.filter(|_| rule.detailed).map(String::from),
        }
    }

    /// Rows for descriptors, as if none were listed, and the keys of their aggregates.
    fn rows_of(&self, asked: &Asked<'_>, lost: u64) -> Result<(Vec<Row>, Vec<Key>), String> {
        let rules = self.rules();
        let domain = rules.domain(asked.domain);
        let (mut rows, mut wider) = (Vec::new(), Vec::new());
        for descriptor in &asked.descriptors {
            let entries = &descriptor.entries[..];
            let (rule, key) = match (domain, entries) {
                (Some(domain), _) => match domain.find(entries) {
                    Some(rule) => {
                        wider.extend(rule.wider(entries).map(|(.., key)| key));
                        (rule, rule.listed_key(entries))
                    }
                    None if domain.is_brought() => domain.brought(None, entries),
                    None => return Err(format!("no rule: {}", domain.why_unmet(entries))),
                },
                (None, [("key", value)]) if asked.domain == throttle::DOMAIN => {
                    self.throttles.key(value.as_bytes())
                }
                (None, _) if asked.domain == throttle::DOMAIN => {
                    return Err(format!(
                        "{} has the keys of CL.THROTTLE and THROTTLE: name one, as in key=user:7",
                        throttle::DOMAIN
                    ));
                }
                (None, _) => return Err(format!("no rule file has the domain {:?}", asked.domain)),
            };
            rows.push(Row::new(Who { rule, key, aggregate: 0, entries }, lost, 0));
        }
        Ok((rows, wider))
    }
}
