//! `docs/floods.svg`: what arrives of conforming sources that are new, and what of the flood,
//! against the flood.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::contender::Tool;
use super::effort::Rate;
use super::run::Results;
use super::scene::Sample;
use super::traffic::Class;
use crate::chart::{self, Axes, COLOURS, Drawn, Series};

const SIZE: (u32, u32) = (960, 720);

/// Floods a second. The logarithm has no place for none, which stands at the left end.
const FLOODS: std::ops::Range<f64> = 10_000.0..10_000_000.0;

/// Shares in percent; some room above and below, so that a line is not on the border.
const SHARES: std::ops::Range<f64> = -4.0..104.0;

/// A panel: its title, what its shares are of, and the share.
type Panel = (&'static str, &'static str, fn(&Sample) -> Option<f64>);

const PANELS: [Panel; 2] = [
    ("Conforming, first seen amid the flood, 1 packet a second", "arrived, %", |sample| {
        sample.arrived_share(&[Class::NewSlow])
    }),
    ("The flood itself: every packet from another source", "passed, %", Sample::passed_share),
];

/// The picture.
///
/// # Errors
///
/// When it cannot be drawn.
pub fn svg(results: &Results) -> Result<String> {
    chart::svg(SIZE, |area| {
        let (upper, lower) = area.split_vertically(SIZE.1 - 20);
        let areas = upper.split_evenly((PANELS.len(), 1));
        for (area, (number, panel)) in areas.iter().zip(PANELS.iter().enumerate()) {
            draw(area, results, *panel, number == 0)?;
        }
        drop(lower);
        chart::note(area, &results.machine)
    })
}

fn draw(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    results: &Results,
    (title, y, figure): Panel,
    first: bool,
) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .caption(title, ("sans-serif", 20))
        .x_label_area_size(46)
        .y_label_area_size(58)
        .build_cartesian_2d(FLOODS.log_scale(), SHARES)?;
    let axes = Axes {
        x: "flood, packets a second (left end: none)",
        y,
        x_label: &|rate| chart::flood(*rate, FLOODS.start),
        y_label: &|share| format!("{share:.0}"),
        y_labels: 6,
    };
    chart::mesh(&mut chart, &axes)?;
    // Ours last, on top.
    let mut tools: Vec<Tool> = results.tools().collect();
    tools.sort_by_key(|tool| *tool == Tool::Limiter);
    let series = tools.into_iter().map(|tool| Series {
        name: label(tool).to_owned(),
        colour: colour(tool),
        points: points(results, tool, figure),
    });
    chart::lines(&mut chart, series.collect(), first)?;
    if first {
        chart::legend(&mut chart, SeriesLabelPosition::MiddleMiddle)?;
    }
    Ok(())
}

/// Name in the picture. A full set of nft has no rule for new sources.
const fn label(tool: Tool) -> &'static str {
    match tool {
        Tool::Nft => "nft dynamic set: full, it limits nobody",
        _ => tool.name(),
    }
}

const fn colour(tool: Tool) -> RGBColor {
    match tool {
        Tool::Nothing => COLOURS[7],
        Tool::Limiter => COLOURS[0],
        Tool::Hashlimit => COLOURS[1],
        Tool::HashlimitKept => COLOURS[3],
        Tool::Nft => COLOURS[4],
    }
}

fn points(results: &Results, tool: Tool, figure: fn(&Sample) -> Option<f64>) -> Vec<(f64, f64)> {
    let point = |rate: &Rate| {
        let share = results.spread(tool, *rate, figure)?.median * 100.0;
        let offered = results.spread(tool, *rate, |sample| Some(sample.offered()))?.median;
        Some((offered.max(FLOODS.start), share))
    };
    let once = |rate: &&Rate| !matches!(rate, Rate::Again(..));
    results.rates.iter().filter(once).filter_map(point).collect()
}
