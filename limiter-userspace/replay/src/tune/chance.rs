//! How far a share of observed sources holds for unobserved ones.

/// Upper bound of the true share, with a confidence of 95 %, if `hits` of `seen` random samples
/// were hit: the one-sided bound of Clopper and Pearson.
#[expect(clippy::cast_precision_loss, reason = "counts of sources")]
pub(super) fn at_most(hits: u64, seen: u64) -> f64 {
    if seen == 0 || hits >= seen {
        return 1.0;
    }
    let (n, mut low, mut high) = (seen as f64, hits as f64 / seen as f64, 1.0f64);
    for _ in 0..60 {
        let share = f64::midpoint(low, high);
        if tail(hits, n, share) > 0.05 { low = share } else { high = share }
    }
    high
}

/// The probability of at most `hits` of `n`, each with the probability `share`.
#[expect(clippy::cast_precision_loss, reason = "counts of sources")]
fn tail(hits: u64, n: f64, share: f64) -> f64 {
    // In logarithms, because the first term may be far below the smallest number.
    let mut term = n * (-share).ln_1p();
    let (mut sum, odds) = (term.exp(), share.ln() - (-share).ln_1p());
    for hit in 1..=hits {
        let hit = hit as f64;
        term += (n - hit + 1.0).ln() - hit.ln() + odds;
        sum += term.exp();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::at_most;

    /// Values from tables, and the rule of three.
    #[test]
    fn bounds_are_those_of_the_tables() {
        for (hits, seen, bound) in
            [(0, 10, 0.2589), (1, 10, 0.3942), (5, 10, 0.7776), (0, 3000, 0.000_998), (10, 10, 1.0)]
        {
            assert!((at_most(hits, seen) - bound).abs() < 1e-3 * bound.max(0.1), "{hits}/{seen}");
        }
        assert!((at_most(0, 0) - 1.0).abs() < f64::EPSILON);
        // A wide range neither fails nor leaves 0 to 1.
        let wide = at_most(100_000, 2_000_000);
        assert!((0.05..0.051).contains(&wide), "{wide}");
    }
}
