//! Keys of requests that `limiter serve` refuses most.

use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};

use crate::moment::Zone;
use crate::render::{Render, line, number, push, table, titled};
use crate::sources::{part, per_second};

/// Keys of one answer.
pub const MOST_KEYS: usize = 100;

/// `GET /refused` of `limiter serve`: the keys that are refused most. What is refused is a
/// descriptor of a request, at its rule, as the metrics count it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RefusedKeys {
    /// How often rules in force refused: the sum of `keys` and `others`.
    pub refused: u64,
    /// How often they refused other keys, and these before `since`.
    pub others: u64,
    /// How often any other key was refused, at most.
    pub others_at_most: u64,
    /// The keys that are refused most now come first.
    pub keys: Vec<RefusedKey>,
}

/// A key that is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RefusedKey {
    /// The domain of its rule.
    pub domain: String,
    /// The keys and values of its rule, in one line.
    pub rule: String,
    /// The name that the author of the rule gave it.
    pub name: Option<String>,
    /// Its keys and values, as far as the rule shows them in metrics (`detailed_metric`,
    /// `value_to_metric`); none if it shows none.
    pub values: Option<String>,
    /// Bits of the prefix that it is, if an aggregate of the rule refused it.
    pub prefix: Option<u8>,
    /// A hash of them that only this process can make.
    pub id: String,
    /// Refusals a second, of about the last ten seconds: older ones count less and less.
    pub refused_per_second: f64,
    /// How often it was refused since `since`: exact.
    pub refused: u64,
    /// How often it may have been refused before that, at most.
    pub missed_at_most: u64,
    /// The first of these refusals, in RFC 3339; none if it is not followed.
    pub since: Option<String>,
    /// The latest one.
    pub last: Option<String>,
}

impl RefusedKey {
    /// Its values, as far as they are shown.
    fn title(&self) -> String {
        let values = self.values.as_deref().unwrap_or("hidden");
        match self.prefix {
            Some(bits) if self.values.is_none() => format!("{values} /{bits}"),
            _ => clean(values),
        }
    }
}

impl Render for RefusedKeys {
    fn render(&self, text: &mut String) {
        let zone = Zone::of_this_process();
        let at = |moment: &Option<String>| {
            moment.as_deref().map_or_else(|| "-".to_owned(), |moment| clean(&zone.short(moment)))
        };
        if self.keys.is_empty() {
            text.push_str("no key was refused\n");
        } else {
            let columns = ["RULE", "KEY", "?ID", ">REFUSED/S", ">REFUSED", "SINCE", "?LAST"];
            let mut table = table(&columns);
            for key in &self.keys {
                let rule = titled(Some(&key.rule), key.name.as_deref());
                table.add_row([
                    clean(&format!("{}: {rule}", key.domain)),
                    key.title(),
                    clean(&key.id),
                    per_second(Some(key.refused_per_second)),
                    part(number(key.refused), key.missed_at_most > 0),
                    at(&key.since),
                    at(&key.last),
                ]);
            }
            push(text, &table);
        }
        if self.keys.iter().any(|key| key.values.is_none()) {
            text.push_str(
                "hidden: a rule with `detailed_metric: true` shows its keys; name one to see its \
                 row\n",
            );
        }
        let [all, others, most] = [self.refused, self.others, self.others_at_most].map(number);
        line(
            text,
            format_args!(
                "refused in all: {all}; {others} of these have other keys, each at most {most}"
            ),
        );
    }
}
