//! A ratio that was measured, the budget for it, and what it is held to.

use std::fmt;

use crate::spread::Spread;

/// On which side of a number a ratio is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Ratios up to this one, and it.
    AtMost(f64),
    /// Ratios from this one on.
    AtLeast(f64),
}

impl Bound {
    /// True if a ratio is on the right side.
    pub fn allows(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
        }
    }
}

/// Times that a figure may be worse than in the results before `--check` fails, at most.
pub const WORSE: f64 = 1.5;

impl Bound {
    /// True if the bound catches whatever is [`WORSE`] than a ratio that was measured.
    pub fn is_tight(self, measured: f64) -> bool {
        // The results have two decimals.
        match self {
            Self::AtMost(most) => most <= (measured + 0.005) * WORSE,
            Self::AtLeast(least) => least * WORSE >= measured - 0.005,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
        }
    }
}

/// Ratio that is published.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the ratio, with what it is compared. It finds the figure among the results and in
    /// another look, so it does not depend on what was measured.
    pub what: String,
    /// Ratio as measured, over the rounds.
    pub ratio: Spread,
    /// Bound that the ratio is meant to keep.
    pub budget: Option<Bound>,
    /// Bound that `--check` asks for: the ratio of the results with room for the noise of the
    /// machine, and no more than [`WORSE`].
    pub held: Bound,
}

impl Figure {
    /// True if the median is within what `--check` asks for.
    pub fn holds(&self) -> bool {
        self.held.allows(self.ratio.median)
    }

    /// True if the bound is close to the ratio that results have; `None` without one there.
    pub fn is_tight(&self, results: &str) -> Option<bool> {
        let row = format!("{}\t", self.what);
        let rest = results.lines().find_map(|line| line.strip_prefix(&row))?;
        let measured = rest.split_once(' ')?.0.parse().ok()?;
        Some(self.held.is_tight(measured))
    }

    /// True if the median is within the budget; `None` without one.
    pub fn within_budget(&self) -> Option<bool> {
        self.budget.map(|budget| budget.allows(self.ratio.median))
    }

    /// The line of a table under [`HEAD`].
    pub fn markdown(&self) -> String {
        let Spread { median, low, high } = self.ratio;
        let (budget, verdict) = match (self.budget, self.within_budget()) {
            (Some(budget), Some(true)) => (budget.to_string(), "met"),
            (Some(budget), _) => (budget.to_string(), "**missed**"),
            (None, _) => ("none".to_owned(), ""),
        };
        let (what, held) = (&self.what, self.held);
        format!("| {what} | {median:.2} ({low:.2} to {high:.2}) | {budget} | {verdict} | {held} |")
    }
}

/// Looks that `--check` takes at a group, at most: a figure that holds in one of them holds. A
/// quick look is short, and other guests of a host may take memory and caches meanwhile.
pub const LOOKS: u32 = 3;

/// Puts figures of another look in the places of those that do not hold.
pub fn renew(figures: &mut [Figure], again: &[Figure]) {
    for figure in figures.iter_mut().filter(|figure| !figure.holds()) {
        if let Some(again) = again.iter().find(|again| again.what == figure.what) {
            figure.clone_from(again);
        }
    }
}

/// The head of a table of figures.
pub const HEAD: &str = "| | measured | budget | | held by `--check` |\n|---|--:|--:|---|--:|";

/// A table of figures; nothing of none.
pub fn table(figures: &[Figure]) -> String {
    if figures.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = figures.iter().map(Figure::markdown).collect();
    format!("{HEAD}\n{}\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use clap::ValueEnum as _;

    use super::*;
    use crate::group::Group;

    fn figure(median: f64, budget: Bound, held: Bound) -> Figure {
        let ratio = Spread { median, low: 0.5, high: 3.0 };
        Figure { what: "a over b".into(), ratio, budget: Some(budget), held }
    }

    #[test]
    fn a_bound_is_held_closely_to_the_results() {
        let results = "a over b\t2.00 (1.90 to 2.10)\tnone\t\tat most 3\n";
        let held = |held| figure(2.0, Bound::AtMost(1.3), held).is_tight(results);
        assert_eq!(held(Bound::AtMost(3.0)), Some(true));
        assert_eq!(held(Bound::AtMost(3.1)), Some(false));
        assert_eq!(held(Bound::AtLeast(1.4)), Some(true));
        assert_eq!(held(Bound::AtLeast(1.3)), Some(false));
        assert_eq!(figure(2.0, Bound::AtMost(1.0), Bound::AtMost(1.0)).is_tight(""), None);
    }

    /// Every bound of the results, as it was when they were measured.
    #[test]
    fn the_results_hold_every_figure_closely() {
        let results: String = Group::value_variants()
            .iter()
            .map(|group| {
                let name = format!("{}.tsv", group.name());
                let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
                fs::read_to_string(results.join(name)).unwrap()
            })
            .collect();
        let mut seen = 0;
        for line in results.lines() {
            let cells: Vec<&str> = line.split('\t').collect();
            let [what, measured, _, _, held] = cells[..] else { continue };
            let (most, least) = (held.strip_prefix("at most "), held.strip_prefix("at least "));
            let bound = match (most, least) {
                (Some(most), _) => Bound::AtMost(most.parse().unwrap()),
                (_, Some(least)) => Bound::AtLeast(least.parse().unwrap()),
                _ => continue,
            };
            let measured = measured.split_once(' ').unwrap().0.parse().unwrap();
            assert!(bound.is_tight(measured), "{what}: {measured} is held {bound}");
            seen += 1;
        }
        assert!(seen > 40, "{seen} figures: the results have another form");
    }

    #[test]
    fn another_look_is_at_what_does_not_hold() {
        let of = |what: &str, median| {
            let figure = figure(median, Bound::AtMost(1.3), Bound::AtMost(1.5));
            Figure { what: what.into(), ..figure }
        };
        let mut figures = [of("a", 1.2), of("b", 1.6), of("c", 1.6), of("d", 1.6)];
        renew(&mut figures, &[of("b", 1.4), of("a", 1.7), of("c", 1.7)]);
        assert_eq!(figures, [of("a", 1.2), of("b", 1.4), of("c", 1.7), of("d", 1.6)]);
    }

    #[test]
    fn the_median_is_held() {
        let most = |n| figure(n, Bound::AtMost(1.3), Bound::AtMost(1.5));
        assert!(most(1.3).holds() && most(1.3).within_budget() == Some(true));
        assert!(most(1.5).holds() && most(1.5).within_budget() == Some(false));
        assert!(!most(1.51).holds());
        let least = figure(1.8, Bound::AtLeast(1.9), Bound::AtLeast(1.7));
        assert!(least.holds() && least.within_budget() == Some(false));
        assert_eq!(
            least.markdown(),
            "| a over b | 1.80 (0.50 to 3.00) | at least 1.9 | **missed** | at least 1.7 |"
        );
    }
}
