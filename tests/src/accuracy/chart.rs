//! `docs/accuracy.svg`: delivered over offered, both in multiples of the configured rate.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::contender::Tool;
use super::real::Row;
use super::run::Results;
use super::simulated;

const SIZE: (u32, u32) = (960, 620);
const WIDEST: f64 = 1_200.0;
const LOADS: std::ops::Range<f64> = 0.45..WIDEST;
const DELIVERED: std::ops::Range<f64> = 0.1..2.2;

/// A line of the chart: whose, its colour, and points (offered, delivered).
struct Series {
    name: String,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Colours that people with any colour vision tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(120, 80, 20),
    RGBColor(0, 0, 0),
];

/// The picture.
///
/// # Errors
///
/// When it cannot be drawn.
pub fn svg(results: &Results) -> Result<String> {
    let mut text = String::new();
    draw(&mut text, results).map_err(|error| anyhow!("cannot draw the chart: {error}"))?;
    Ok(text)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(text: &mut String, results: &Results) -> Drawn {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .caption(
            "Delivered against offered, in multiples of the configured rate",
            ("sans-serif", 20),
        )
        .x_label_area_size(46)
        .y_label_area_size(58)
        .build_cartesian_2d(LOADS.log_scale(), DELIVERED.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("offered / configured")
        .y_desc("delivered / configured")
        .x_label_formatter(&|x| format!("{x}"))
        .y_label_formatter(&|y| format!("{y}"))
        .y_labels(12)
        .light_line_style(RGBColor(240, 240, 240))
        .bold_line_style(RGBColor(215, 215, 215))
        .label_style(("sans-serif", 14))
        .draw()?;
    let grey = RGBColor(170, 170, 170).stroke_width(7);
    chart
        .draw_series(LineSeries::new(
            [(LOADS.start, LOADS.start), (1.0, 1.0), (WIDEST, 1.0)],
            grey,
        ))?
        .label("exact")
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], grey));
    for series in all(results) {
        let Series { name, colour, points } = series;
        let line = colour.stroke_width(2);
        chart.draw_series(LineSeries::new(points.iter().copied(), line))?;
        chart
            .draw_series(points.iter().map(|at| Circle::new(*at, 3, colour.filled())))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], line));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.9))
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 14))
        .legend_area_size(34)
        .margin(12)
        .draw()?;
    let note = TextStyle::from(("sans-serif", 12).into_font())
        .color(&RGBColor(110, 110, 110))
        .pos(Pos::new(HPos::Right, VPos::Bottom));
    let (kernel, hz) = (&results.machine.kernel, results.machine.hz);
    area.draw(&Text::new(
        format!("Linux {kernel}, HZ {hz}, {}", results.machine.date),
        (960 - 20, 620 - 6),
        note,
    ))?;
    drop(chart);
    area.present()?;
    Ok(())
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
