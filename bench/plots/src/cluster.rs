//! Plots of docs/cluster.md: what nodes that share a limit pass beside its bound, by the simulator
//! of the tests, over the loads and over the sync period.

use anyhow::{Result, bail, ensure};
use fastrand::Rng;
use limiter_sharing::{Settings, SharedLimit};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::draw::{ALL, BOUND, FONT, GRID, INK, SIZE, UNMARKED, finished};
use crate::simulator::load::{self, Pattern};
use crate::simulator::net::{Outcome, PART, run};
use crate::simulator::scene::{self, SECOND, TRIP, cut, settings, share};

type Area<'svg> = DrawingArea<SVGBackend<'svg>, Shift>;

const NODES: u64 = 8;
/// The limit's rate, units a second.
const RATE: f64 = 1000.0;
/// Sync periods of the second plot, in microseconds.
const SYNCS: [u64; 8] =
    [50_000, 100_000, 200_000, 500_000, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND];
/// Random loads for each sync period.
const RANDOM: u64 = 24;
/// Seconds at the beginning that the part that passed is not counted in.
const BEGIN: u64 = 4;

/// Name and text of each plot.
pub(crate) fn plots() -> Result<Vec<(&'static str, String)>> {
    Ok(vec![("cluster-loads", over_loads()?), ("cluster-sync", over_sync()?)])
}

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
fn over_loads() -> Result<String> {
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

/// Points of one load over the sync periods, with a burst of so many of them.
struct Line {
    name: &'static str,
    periods: u64,
    points: Vec<Point>,
}

/// Settings with a burst of 1000, or that many sync periods of the rate: at least two, since less
/// is refused.
fn settings_of(sync: u64, periods: u64, always: bool) -> Settings {
    let burst = 1000.max(periods * sync / 1000);
    Settings { sync, burst, always, ..settings(NODES) }
}

/// The loads that are drawn over the sync period.
fn over_syncs() -> Result<Vec<Line>> {
    let nodes = usize::try_from(NODES)?;
    let loads = [
        ("even, 3 R", load::even(nodes, 3.0 * RATE), 2),
        ("even, 0.9 R", load::even(nodes, 0.9 * RATE), 2),
        ("moves each second, 3 R", load::moving(nodes, 3.0 * RATE, SECOND), 2),
        ("the same, burst of five periods", load::moving(nodes, 3.0 * RATE, SECOND), 5),
        ("moves each second, 0.9 R", load::moving(nodes, 0.9 * RATE, SECOND), 2),
        ("the same, burst of five periods", load::moving(nodes, 0.9 * RATE, SECOND), 5),
    ];
    let mut lines = Vec::new();
    for (name, load, periods) in loads {
        let mut points = Vec::new();
        for sync in SYNCS {
            let settings = settings_of(sync, periods, true);
            let begin = BEGIN + 8 * sync / SECOND;
            let scene = scene::scene(settings, &*load, begin + 20 + 8 * sync / SECOND);
            points.push(point(&settings, scene.limit.excess(TRIP), begin, &run(&scene))?);
        }
        lines.push(Line { name, periods, points });
    }
    Ok(lines)
}

/// The random loads that came nearest to the bound.
fn worst(always: bool) -> Result<Vec<Point>> {
    let mut worst = Vec::new();
    for sync in SYNCS {
        let settings = settings_of(sync, 2, always);
        let mut points = Vec::new();
        for seed in 0..RANDOM {
            let mut rng = Rng::with_seed(seed);
            let pattern = Pattern::random(&mut rng, usize::try_from(NODES)?, sync, RATE);
            let load = move |node: usize, now: u64| pattern.at(node, now);
            let mut scene = scene::scene(settings, &load, 6 + 20 * sync / SECOND);
            scene.seed = seed;
            points.push(point(&settings, scene.limit.excess(TRIP), 0, &run(&scene))?);
        }
        let Some(point) = points.into_iter().max_by(|a, b| a.most.total_cmp(&b.most)) else {
            bail!("no random loads");
        };
        worst.push(point);
    }
    Ok(worst)
}

/// A series of the second plot: legend, colour, and whether it is dashed.
type Series = (&'static str, RGBColor, bool, Vec<f64>);

/// The plot over the sync period: the bound beside what came near it, and what passed.
fn over_sync() -> Result<String> {
    let (hot, always) = (worst(false)?, worst(true)?);
    let lines = over_syncs()?;
    let most = |points: &[Point]| points.iter().map(|point| point.most).collect::<Vec<_>>();
    let bound = |points: &[Point]| points.iter().map(|point| point.bound).collect::<Vec<_>>();
    let [even, ..] = lines.as_slice() else { bail!("no loads") };
    let left = vec![
        ("bound, by source", UNMARKED, true, bound(&hot)),
        ("worst of 24 random loads, by source", UNMARKED, false, most(&hot)),
        ("bound, always leased", ALL, true, bound(&always)),
        ("worst of 24 random loads, always leased", ALL, false, most(&always)),
        ("even, 3 R, always leased", GREEN_LINE, false, most(&even.points)),
    ];
    let colours = [GREEN_LINE, UNMARKED, PURPLE, PURPLE, ALL, ALL];
    let right = lines.iter().zip(colours).map(|(line, colour)| {
        let passed = line.points.iter().map(|point| point.passed).collect();
        (line.name, colour, line.periods > 2, passed)
    });
    let right: Vec<Series> = right.collect();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.margin(10, 4, 4, 4);
        let title =
            "8 nodes share 1000/s with a burst of 1000, or two sync periods if that is more";
        let root = root.titled(title, (FONT, 26).into_font().color(&INK))?;
        let (first, second) = root.split_horizontally(600);
        panel(&first, "most in any window above R*W, % of the burst", 0.0..160.0, left)?;
        panel(&second, "passed of always leased, % of what one bucket passes", 0.0..110.0, right)?;
        root.present()?;
    }
    Ok(finished(&svg))
}

const GREEN_LINE: RGBColor = RGBColor(0, 133, 98);
const PURPLE: RGBColor = RGBColor(148, 66, 158);

fn panel(
    area: &Area<'_>,
    title: &str,
    values: std::ops::Range<f64>,
    all: Vec<Series>,
) -> Result<()> {
    let seconds = |sync: u64| exact(sync) / exact(SECOND);
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 17).into_font().color(&INK))
        .margin(14)
        .x_label_area_size(42)
        .y_label_area_size(52)
        .build_cartesian_2d((0.045f64..11.0).log_scale(), values)?;
    chart
        .configure_mesh()
        .x_desc("sync period, seconds")
        .x_labels(8)
        .y_labels(9)
        .max_light_lines(0)
        .bold_line_style(GRID)
        .axis_style(INK)
        .y_label_formatter(&|value| format!("{value:.0}"))
        .label_style((FONT, 13).into_font().color(&INK))
        .axis_desc_style((FONT, 14).into_font().color(&INK))
        .draw()?;
    for (name, colour, is_dashed, points) in all {
        let points: Vec<(f64, f64)> = SYNCS.into_iter().map(seconds).zip(points).collect();
        let width = if is_dashed { 2 } else { 3 };
        let drawn = if is_dashed {
            chart.draw_series(DashedLineSeries::new(points, 6, 4, colour.stroke_width(width)))?
        } else {
            let dots = points.clone();
            chart.draw_series(LineSeries::new(points, colour.stroke_width(width)))?;
            chart.draw_series(dots.into_iter().map(|at| Circle::new(at, 4, colour.filled())))?
        };
        drawn.label(name).legend(move |(x, y)| {
            let dash = if is_dashed { 10 } else { 24 };
            PathElement::new([(x, y), (x + dash, y)], colour.stroke_width(width))
        });
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.9))
        .border_style(GRID)
        .label_font((FONT, 14).into_font().color(&INK))
        .legend_area_size(34)
        .margin(14)
        .draw()?;
    Ok(())
}
