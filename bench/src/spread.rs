//! The middle of a few values, and how far they are apart.

/// Median, lowest and highest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one; of two, their mean.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest of the values.
    pub high: f64,
}

impl Spread {
    /// Of some values; `None` of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        let (low, high) = (*values.first()?, *values.last()?);
        Some(Self { median: f64::midpoint(lower, upper), low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_found() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[3.0, 1.0, 9.0]), Some(Spread { median: 3.0, low: 1.0, high: 9.0 }));
        assert_eq!(spread(&[1.0, 2.0]), Some(Spread { median: 1.5, low: 1.0, high: 2.0 }));
        assert_eq!(spread(&[]), None);
    }
}
