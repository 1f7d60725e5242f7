//! The pictures: nanoseconds a packet, and what is left to a conforming source.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::conforming::Cell;
use super::contender::Tool;
use super::run::Results;
use crate::chart::{self, Axes, Bars, COLOURS, Drawn, Series};

pub(super) const COST: &str = "path-cost.svg";
pub(super) const CONFORMING: &str = "path-conforming.svg";

pub(super) fn all(results: &Results) -> Result<Vec<(String, String)>> {
    Ok(vec![(COST.to_owned(), cost(results)?), (CONFORMING.to_owned(), conforming(results)?)])
}

fn cost(results: &Results) -> Result<String> {
    let groups = Tool::ALL.iter().map(|tool| {
        let totals = results.tables.iter().map(|table| table.total(*tool));
        (tool.name().to_owned(), totals.collect())
    });
    let names = results.tables.iter().map(|table| table.mix.name.to_owned());
    let bars = Bars { names: names.collect(), groups: groups.collect(), unit: "ns" };
    chart::svg((960, 140 + 9 * 22 * (u32::try_from(results.tables.len())? + 1)), |area| {
        chart::bars(area, "Nanoseconds a packet, generator and cable included, on one CPU", &bars)?;
        chart::note(area, &results.machine)
    })
}

const SIZE: (u32, u32) = (960, 1240);

/// Floods a second. The logarithm has no place for none, which stands at the left end.
const FLOODS: std::ops::Range<f64> = 100_000.0..10_000_000.0;

/// Microseconds.
const TIMES: std::ops::Range<f64> = 10.0..10_000.0;

/// A panel: its title, and of a cell, what it shows.
type Panel = (&'static str, fn(&Cell) -> Option<f64>);

const PANELS: [Panel; 2] = [
    ("A conforming source: how long its packets take, half of them at most", |cell| {
        micros(cell, 500)
    }),
    ("The same, 99 % of them at most", |cell| micros(cell, 990)),
];

#[expect(clippy::cast_precision_loss, reason = "seconds at most")]
fn micros(cell: &Cell, of_a_thousand: usize) -> Option<f64> {
    Some((cell.quantile(of_a_thousand)? as f64 / 1e3).clamp(TIMES.start, TIMES.end))
}

fn conforming(results: &Results) -> Result<String> {
    chart::svg(SIZE, |area| {
        let (upper, lower) = area.split_vertically(SIZE.1 - 20);
        let areas = upper.split_evenly((PANELS.len() + 1, 1));
        let [first, rest @ ..] = areas.as_slice() else { return Ok(()) };
        shares(first, results)?;
        for (area, (title, figure)) in rest.iter().zip(PANELS) {
            let mut chart = ChartBuilder::on(area)
                .margin(14)
                .caption(title, ("sans-serif", 20))
                .x_label_area_size(46)
                .y_label_area_size(70)
                .build_cartesian_2d(FLOODS.log_scale(), TIMES.log_scale())?;
            chart::mesh(&mut chart, &axes("microseconds", &|micros| time(*micros)))?;
            chart::lines(&mut chart, series(results, figure), false)?;
        }
        drop(lower);
        chart::note(area, &results.machine)
    })
}

fn shares(area: &DrawingArea<SVGBackend<'_>, Shift>, results: &Results) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .caption("A conforming source: what arrives of its packets", ("sans-serif", 20))
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(FLOODS.log_scale(), -4.0..104.0)?;
    chart::mesh(&mut chart, &axes("arrived, %", &|share| format!("{share:.0}")))?;
    let share = |cell: &Cell| Some(cell.share()?.median * 100.0);
    chart::lines(&mut chart, series(results, share), true)?;
    chart::legend(&mut chart, SeriesLabelPosition::LowerLeft)
}

fn axes<'a>(y: &'a str, y_label: &'a dyn Fn(&f64) -> String) -> Axes<'a> {
    let x = "flood, packets a second (left end: none)";
    Axes { x, y, x_label: &|rate| chart::flood(*rate, FLOODS.start), y_label, y_labels: 6 }
}

fn time(micros: f64) -> String {
    if micros >= 1e3 { format!("{} ms", micros / 1e3) } else { format!("{micros}") }
}

fn series(results: &Results, figure: impl Fn(&Cell) -> Option<f64>) -> Vec<Series> {
    let mut tools: Vec<Tool> = Tool::ALL.into_iter().filter(|tool| *tool != Tool::Drop).collect();
    tools.sort_by_key(|tool| *tool == Tool::Limiter);
    let point =
        |cell: &Cell| Some((cell.offered()?.median.clamp(FLOODS.start, FLOODS.end), figure(cell)?));
    let points = |tool: Tool| {
        let cells = results.cells.iter().filter(|cell| cell.tool == tool);
        let mut points: Vec<(f64, f64)> = cells.filter_map(point).collect();
        // On a busy machine the fastest is not always the largest.
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        points
    };
    let line = |tool: Tool| Series {
        name: tool.name().to_owned(),
        colour: colour(tool),
        points: points(tool),
    };
    tools.into_iter().map(line).collect()
}

const fn colour(tool: Tool) -> RGBColor {
    match tool {
        Tool::Limiter => COLOURS[0],
        Tool::Lines => RGBColor(120, 80, 180),
        Tool::Hashlimit => COLOURS[1],
        Tool::Paced => COLOURS[2],
        Tool::PacedTc => COLOURS[3],
        Tool::NftIngress => COLOURS[4],
        Tool::Generic => COLOURS[5],
        Tool::NftPrerouting => COLOURS[6],
        _ => COLOURS[7],
    }
}
