//! `docs/accuracy.svg`: delivered over offered, both in multiples of the configured rate.

use anyhow::Result;
use limiter_tests::accuracy::simulated;
use plotters::prelude::*;

use super::contender::Tool;
use super::real::Row;
use super::run::Results;
use crate::chart::{self, Axes, COLOURS, Series};

const SIZE: (u32, u32) = (960, 620);
const WIDEST: f64 = 1_200.0;
const LOADS: std::ops::Range<f64> = 0.45..WIDEST;
const DELIVERED: std::ops::Range<f64> = 0.1..2.2;

/// The picture.
///
/// # Errors
///
/// When it cannot be drawn.
pub fn svg(results: &Results) -> Result<String> {
    chart::svg(SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(16)
            .caption(
                "Delivered against offered, in multiples of the configured rate",
                ("sans-serif", 20),
            )
            .x_label_area_size(46)
            .y_label_area_size(58)
            .build_cartesian_2d(LOADS.log_scale(), DELIVERED.log_scale())?;
        let number = |number: &f64| format!("{number}");
        let axes = Axes {
            x: "offered / configured",
            y: "delivered / configured",
            x_label: &number,
            y_label: &number,
            y_labels: 12,
        };
        chart::mesh(&mut chart, &axes)?;
        let grey = RGBColor(170, 170, 170).stroke_width(7);
        chart
            .draw_series(LineSeries::new(
                [(LOADS.start, LOADS.start), (1.0, 1.0), (WIDEST, 1.0)],
                grey,
            ))?
            .label("exact")
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], grey));
        chart::lines(&mut chart, all(results), true)?;
        chart::legend(&mut chart, SeriesLabelPosition::LowerRight)?;
        chart::note(area, &results.machine)
    })
}

/// Ours in virtual time at its worst, and each tool's packet limits with real packets.
fn all(results: &Results) -> Vec<Series> {
    let mut all = Vec::new();
    let mut add = |name: String, points: Vec<(f64, f64)>| {
        let points: Vec<_> = points.into_iter().filter(|(_, y)| *y >= DELIVERED.start).collect();
        if let (Some(colour), false) = (COLOURS.get(all.len()), points.is_empty()) {
            all.push(Series { name, colour: *colour, points });
        }
    };
    for (tool, per_second, burst) in [
        (Tool::Hashlimit, 10_000, 5),
        (Tool::Hashlimit, 1_000, 5),
        (Tool::Limit, 6_000, 100),
        (Tool::Nft, 10_000, 5),
        (Tool::Limiter, 10_000, 5),
        (Tool::Limiter, 100, 5),
    ] {
        let row = results.real.iter().find(|row| {
            let contender = &row.contender;
            (contender.tool, contender.per_second, contender.burst) == (tool, per_second, burst)
        });
        if let Some(row) = row {
            add(format!("{}, {}", tool.name(), row.contender.limit()), points(row));
        }
    }
    let limits = results.simulated.len();
    add(format!("limiter, worst of {limits} limits, virtual time"), worst(results));
    all
}

fn points(row: &Row) -> Vec<(f64, f64)> {
    let configured = row.contender.frames_per_second();
    row.cells.iter().map(|cell| (cell.offered() / configured, cell.rate() / configured)).collect()
}

/// At each load the limit that is furthest from its promise.
fn worst(results: &Results) -> Vec<(f64, f64)> {
    let loads = results.simulated.first().map_or(0, |row| row.loads.len());
    (0..loads)
        .filter_map(|load| {
            let errors = results.simulated.iter().filter_map(|row| {
                let (multiple, steady) = row.loads.get(load)?;
                let delivered = steady.rate / simulated::configured(&row.entry);
                Some((row.error(*multiple, steady).abs(), (multiple.factor(), delivered)))
            });
            errors.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, point)| point)
        })
        .collect()
}
