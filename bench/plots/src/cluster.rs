//! The plot of docs/design/cluster.md: what nodes that share a limit pass beside its bound under
//! each load, by the simulator of the tests.

use anyhow::{Result, ensure};
use limiter_sharing::{Settings, SharedLimit};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::draw::{ALL, BOUND, FONT, GRID, INK, SIZE, UNMARKED, finished};
use crate::simulator::load;
use crate::simulator::net::{Outcome, PART, run};
use crate::simulator::scene::{self, SECOND, TRIP, cut, settings, share};

type Area<'svg> = DrawingArea<SVGBackend<'svg>, Shift>;

const NODES: u64 = 8;
/// The limit's rate, units a second.
const RATE: f64 = 1000.0;
/// Seconds at the beginning that the part that passed is not counted in.
const BEGIN: u64 = 4;

/// Outcome of one run, in percent.
#[derive(Clone, Copy)]
struct Point {
    /// The most that a window passed above the rate, and its bound, of the burst.
    most: f64,
    bound: f64,
    /// Units that passed, of those that one bucket of the limit passes.
    passed: f64,
}

#[expect(clippy::cast_precision_loss, reason = "numbers of a plot")]
fn exact(number: u64) -> f64 {
    number as f64
}

/// A run beside its bound, which is what is allowed above `burst + rate * window`.
fn point(settings: &Settings, bound: u64, begin: u64, outcome: &Outcome) -> Result<Point> {
    let burst = exact(settings.burst);
    let most = i64::try_from(settings.burst)?.saturating_add(outcome.over).max(0);
    let most = u64::try_from(most)?;
    ensure!(most <= settings.burst + bound, "over the bound by {}", most - settings.burst - bound);
    // One bucket, filled and emptied in steps of a part.
    let (mut level, mut passed, mut ideal) = (burst, 0.0, 0.0);
    for (at, (offered, all)) in (0u64..).zip(&outcome.parts) {
        level += RATE * exact(PART) / exact(SECOND);
        let taken = level.min(exact(*offered));
        level = (level - taken).min(burst);
        if at * PART >= begin * SECOND {
            ideal += taken;
            passed += exact(*all);
        }
    }
    Ok(Point {
        most: 100.0 * exact(most) / burst,
        bound: 100.0 * exact(settings.burst + bound) / burst,
        passed: 100.0 * passed / ideal,
    })
}

/// The plot of all loads: a row for each, with the two kinds of limits in it.
pub(crate) fn plot() -> Result<String> {
    let mut rows = Vec::new();
    for (name, load, _) in load::all(usize::try_from(NODES)?, RATE) {
        let mut points = Vec::new();
        for always in [false, true] {
            let settings = Settings { always, ..settings(NODES) };
            let scene = scene::scene(settings, &*load, 24);
            points.push(point(&settings, scene.limit.excess(TRIP), BEGIN, &run(&scene))?);
        }
        rows.push((name, points));
    }
    let mut points = Vec::new();
    for always in [false, true] {
        let settings = Settings { always, ..settings(NODES) };
        let limit = SharedLimit::new(settings)?;
        let (bound, outcome) = cut(settings, 4);
        let shares = 4 * share(&limit, 10 * SECOND + limit.period());
        points.push(point(&settings, bound + shares, BEGIN, &outcome)?);
    }
    rows.push(("even, 3 R, half cut off for 10 s", points));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.margin(10, 4, 4, 4);
        let title = "8 nodes share 1000/s with a burst of 1000; the sync period is 200 ms";
        let root = root.titled(title, (FONT, 26).into_font().color(&INK))?;
        bars(&root, &rows)?;
        root.present()?;
    }
    Ok(finished(&svg))
}

fn text(size: i32, horizontal: HPos) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK).pos(Pos::new(horizontal, VPos::Center))
}

/// A panel of bars: its left and right edge, what its right edge stands for, and its title.
struct Panel {
    left: i32,
    right: i32,
    most: f64,
    step: i32,
    title: &'static str,
}

impl Panel {
    #[expect(clippy::cast_possible_truncation, reason = "pixels")]
    fn place(&self, value: f64) -> i32 {
        self.left + (f64::from(self.right - self.left) * value.min(self.most) / self.most) as i32
    }
}

/// Height of a row, and where the first begins, in pixels.
const ROW: i32 = 54;
const TOP: i32 = 70;

fn bars(area: &Area<'_>, rows: &[(&str, Vec<Point>)]) -> Result<()> {
    let panels = [
        Panel {
            left: 250,
            right: 690,
            most: 260.0,
            step: 50,
            title: "most in any window above R*W, % of the burst",
        },
        Panel {
            left: 760,
            right: 1150,
            most: 120.0,
            step: 20,
            title: "passed, % of what one bucket passes",
        },
    ];
    let bottom = TOP + ROW * i32::try_from(rows.len())?;
    for panel in &panels {
        let middle = i32::midpoint(panel.left, panel.right);
        area.draw(&Text::new(panel.title, (middle, 28), text(15, HPos::Center)))?;
        for value in (0..).map(|count| count * panel.step) {
            let value = f64::from(value);
            if value > panel.most {
                break;
            }
            let x = panel.place(value);
            area.draw(&PathElement::new([(x, TOP - 6), (x, bottom)], GRID))?;
            area.draw(&Text::new(format!("{value}"), (x, TOP - 16), text(13, HPos::Center)))?;
        }
        area.draw(&PathElement::new([(panel.left, TOP - 6), (panel.left, bottom)], INK))?;
    }
    let mut top = TOP;
    for (name, points) in rows {
        area.draw(&Text::new(*name, (panels[0].left - 12, top + 24), text(14, HPos::Right)))?;
        for (at, (point, colour)) in (0..).zip(points.iter().zip([UNMARKED, ALL])) {
            let (from, until) = (top + 4 + 20 * at, top + 22 + 20 * at);
            for (panel, value) in panels.iter().zip([point.most, point.passed]) {
                let corners = [(panel.left, from), (panel.place(value), until)];
                area.draw(&Rectangle::new(corners, colour.filled()))?;
            }
            let [first, second] = &panels;
            let bound = first.place(point.bound);
            let line =
                PathElement::new([(bound, from - 2), (bound, until + 1)], BOUND.stroke_width(2));
            area.draw(&line)?;
            let behind = (second.place(point.passed) + 6, i32::midpoint(from, until));
            area.draw(&Text::new(format!("{:.1}", point.passed), behind, text(12, HPos::Left)))?;
        }
        top += ROW;
    }
    let mut x = 250;
    let names = [
        (UNMARKED, "limit by source", 150),
        (ALL, "always leased (budget)", 200),
        (BOUND, "bound: no window may pass it", 0),
    ];
    for (colour, name, wide) in names {
        let corners = [(x, bottom + 14), (x + 16, bottom + 26)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        area.draw(&Text::new(name, (x + 24, bottom + 20), text(14, HPos::Left)))?;
        x += wide + 24;
    }
    Ok(())
}
