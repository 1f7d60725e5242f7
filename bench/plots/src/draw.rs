//! One SVG for an algorithm: a panel for each load, and a legend.

use anyhow::{Result, bail};
use limiter_common::time::Ticks;
use limiter_decision::algorithm::soft::Grade;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::loads::{self, LENGTH, Load};
use crate::meters::{Bound, Meter};

type Area<'svg> = DrawingArea<SVGBackend<'svg>, Shift>;

pub(crate) const SIZE: (u32, u32) = (1200, 720);
pub(crate) const FONT: &str = "sans-serif";
pub(crate) const INK: RGBColor = RGBColor(34, 34, 34);
pub(crate) const GRID: RGBColor = RGBColor(228, 228, 228);
const OFFERED: RGBColor = RGBColor(150, 150, 150);
pub(crate) const UNMARKED: RGBColor = RGBColor(0, 90, 181);
pub(crate) const ALL: RGBColor = RGBColor(217, 119, 6);
pub(crate) const BOUND: RGBColor = RGBColor(190, 24, 60);

/// The first packet is this long after boot, in microseconds: a border of whole seconds.
const START: u64 = 100_000_000;

/// Draws the plot. An error if what was admitted is over the bound that is drawn.
pub(crate) fn plot(meter: &Meter) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.titled(meter.title, (FONT, 26).into_font().color(&INK))?;
        let cells = root.split_evenly((2, 3));
        let (Some((last, panels)), loads) = (cells.split_last(), loads::all()) else {
            bail!("{}: there is no room", meter.name);
        };
        for (cell, load) in panels.iter().zip(&loads) {
            panel(cell, meter, load)?;
        }
        legend(last, meter)?;
        root.present()?;
    }
    Ok(finished(&svg))
}

/// A drawing without the blanks that the library leaves at the ends of lines.
pub(crate) fn finished(svg: &str) -> String {
    svg.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n"
}

/// When packets passed or departed, in microseconds from the start: unmarked ones, and all.
struct Passed {
    unmarked: Vec<u64>,
    all: Vec<u64>,
}

fn run(meter: &Meter, load: &Load) -> Result<Passed> {
    let mut decide = (meter.fresh)();
    let mut wait = meter.waits.as_ref().map(|fresh| fresh());
    let mut passed = Passed { unmarked: Vec::new(), all: Vec::new() };
    for at in &load.arrivals {
        let now = Ticks::from_nanos((START + at) * 1000);
        let grade = decide(now);
        if grade == Grade::Within {
            passed.unmarked.push(*at);
        }
        if let Some(wait) = &mut wait {
            let departure = wait(now).map(|at| at.as_nanos_rounded_up().div_ceil(1000) - START);
            passed.all.extend(departure);
        } else if grade.passes() {
            passed.all.push(*at);
        }
    }
    check(meter, load, &passed.unmarked, meter.bound)?;
    if let Some(bound) = meter.bound_of_all {
        check(meter, load, &passed.all, bound)?;
    }
    Ok(passed)
}

/// A plot whose line crosses its bound would be a plot of a defect.
fn check(meter: &Meter, load: &Load, passed: &[u64], bound: Bound) -> Result<()> {
    for (count, at) in (1..).zip(passed) {
        if count > envelope(passed, bound, *at) {
            bail!("{}, {}: over the bound at {at} us", meter.name, load.title);
        }
    }
    Ok(())
}

/// The most that the bound allows by `at`, given what passed before: the least over all windows
/// that end there. They start with a packet that passed, or at `at` itself.
fn envelope(passed: &[u64], bound: Bound, at: u64) -> u64 {
    let mut most = u64::MAX;
    let mut count = 0;
    for first in passed.iter().take_while(|first| **first <= at) {
        most = most.min(count + bound(START + first, START + at));
        count += 1;
    }
    most.min(count + bound(START + at, START + at))
}

/// Seconds and packets, for the axes.
fn point(micros: u64, count: usize) -> (f64, f64) {
    let exact = |value: u64| u32::try_from(value).map_or(f64::MAX, f64::from);
    (exact(micros) / 1e6, exact(count as u64))
}

/// A line that steps up at each time, to the end of the plot.
fn steps(times: &[u64]) -> Vec<(f64, f64)> {
    let mut points = vec![(0.0, 0.0)];
    // What waits may depart behind the end.
    let drawn = || times.iter().filter(|at| **at <= LENGTH * 1000);
    for (count, at) in drawn().enumerate() {
        points.extend([point(*at, count), point(*at, count + 1)]);
    }
    points.push(point(LENGTH * 1000, drawn().count()));
    points
}

fn panel(cell: &Area<'_>, meter: &Meter, load: &Load) -> Result<()> {
    let passed = run(meter, load)?;
    let (length, offered) = point(LENGTH * 1000, load.arrivals.len());
    let top = offered * 1.08;
    let mut chart = ChartBuilder::on(cell)
        .caption(load.title, (FONT, 17).into_font().color(&INK))
        .margin(10)
        .x_label_area_size(38)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..length, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("time, seconds")
        .y_desc("packets since the start")
        .x_labels(5)
        .y_labels(6)
        .max_light_lines(0)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_label_formatter(&|seconds| format!("{seconds:.0}"))
        .y_label_formatter(&|packets| format!("{packets:.0}"))
        .label_style((FONT, 13).into_font().color(&INK))
        .axis_desc_style((FONT, 14).into_font().color(&INK))
        .draw()?;
    chart.draw_series(LineSeries::new(steps(&load.arrivals), OFFERED.stroke_width(2)))?;
    let mut bounds = vec![(&passed.unmarked, meter.bound)];
    if let Some(bound) = meter.bound_of_all {
        chart.draw_series(LineSeries::new(steps(&passed.all), ALL.stroke_width(3)))?;
        bounds.push((&passed.all, bound));
    }
    chart.draw_series(LineSeries::new(steps(&passed.unmarked), UNMARKED.stroke_width(3)))?;
    for (passed, bound) in bounds {
        // As a step line, cut where it leaves the panel.
        let mut line: Vec<(f64, f64)> = Vec::new();
        for millis in (0..=LENGTH).step_by(4) {
            let at = millis * 1000;
            let most = usize::try_from(envelope(passed, bound, at))?;
            let (x, y) = point(at, most);
            if let Some((_, last)) = line.last().copied() {
                line.push((x, last));
            }
            line.push((x, y.min(top)));
        }
        chart.draw_series(DashedLineSeries::new(line, 5, 4, BOUND.stroke_width(1)))?;
    }
    Ok(())
}

fn legend(cell: &Area<'_>, meter: &Meter) -> Result<()> {
    let mut entries = vec![("offered", OFFERED, 2), ("admitted", UNMARKED, 3)];
    if meter.waits.is_some() {
        entries = vec![
            ("offered", OFFERED, 2),
            ("admitted by action: drop", UNMARKED, 3),
            ("departs with action: delay", ALL, 3),
        ];
    } else if meter.bound_of_all.is_some() {
        entries = vec![
            ("offered", OFFERED, 2),
            ("admitted unmarked (green)", UNMARKED, 3),
            ("all admitted (green and yellow)", ALL, 3),
        ];
    }
    let style = (FONT, 16).into_font().color(&INK);
    let mut y = 60;
    for (text, colour, width) in entries {
        let line = vec![(60, y), (110, y)];
        cell.draw(&PathElement::new(line, colour.stroke_width(width)))?;
        cell.draw(&Text::new(text, (122, y - 8), style.clone()))?;
        y += 34;
    }
    for left in [60, 69, 78, 87, 96, 105] {
        cell.draw(&PathElement::new(vec![(left, y), (left + 5, y)], BOUND.stroke_width(1)))?;
    }
    for text in
        ["bound: the most that any window", "ending here allows, given what", "passed before"]
    {
        cell.draw(&Text::new(text, (122, y - 8), style.clone()))?;
        y += 22;
    }
    Ok(())
}
