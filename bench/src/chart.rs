//! The parts of a chart: colours, lines with a legend, axes.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::machine::Machine;

/// Colours that people with any colour vision distinguish (Okabe and Ito).
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(120, 80, 20),
    RGBColor(0, 0, 0),
];

/// A line of a chart: whose, its colour, and its points.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Colour of the line, from [`COLOURS`].
    pub colour: RGBColor,
    /// Points that the line goes through.
    pub points: Vec<(f64, f64)>,
}

/// Result of drawing, with whatever error plotters has.
pub type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The picture that `draw` makes, on white, so that it is readable on a dark page as well.
///
/// # Errors
///
/// When it cannot be drawn.
pub fn svg(
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Drawn,
) -> Result<String> {
    let mut text = String::new();
    let drawn = || -> Drawn {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
        Ok(())
    };
    drawn().map_err(|error| anyhow!("cannot draw the chart: {error}"))?;
    Ok(text)
}

/// Names of the axes.
pub struct Axes<'a> {
    /// Under the horizontal one.
    pub x: &'a str,
    /// Beside the vertical one.
    pub y: &'a str,
    /// How a number of the horizontal one is written.
    pub x_label: &'a dyn Fn(&f64) -> String,
    /// How one of the vertical one is.
    pub y_label: &'a dyn Fn(&f64) -> String,
    /// Numbers on the vertical one, at most.
    pub y_labels: usize,
}

/// Draws axes and grid.
///
/// # Errors
///
/// When the backend does not draw.
pub fn mesh<'a, DB, X, Y>(
    chart: &mut ChartContext<'a, DB, Cartesian2d<X, Y>>,
    axes: &Axes<'_>,
) -> Drawn
where
    DB: DrawingBackend + 'a,
    DB::ErrorType: 'static,
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&axes.x_label)
        .y_label_formatter(&axes.y_label)
        .y_labels(axes.y_labels)
        .light_line_style(RGBColor(240, 240, 240))
        .bold_line_style(RGBColor(215, 215, 215))
        .label_style(("sans-serif", 14))
        .draw()?;
    Ok(())
}

/// Draws lines with a dot at every point; with `named` the legend will have them.
///
/// # Errors
///
/// When the backend does not draw.
pub fn lines<'a, DB, X, Y>(
    chart: &mut ChartContext<'a, DB, Cartesian2d<X, Y>>,
    all: Vec<Series>,
    named: bool,
) -> Drawn
where
    DB: DrawingBackend + 'a,
    DB::ErrorType: 'static,
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    for series in all {
        let Series { name, colour, points } = series;
        let line = colour.stroke_width(2);
        chart.draw_series(LineSeries::new(points.iter().copied(), line))?;
        let dots =
            chart.draw_series(points.iter().map(|at| Circle::new(*at, 3, colour.filled())))?;
        if named {
            dots.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], line));
        }
    }
    Ok(())
}

/// Draws the legend.
///
/// # Errors
///
/// When the backend does not draw.
pub fn legend<'a, DB, X, Y>(
    chart: &mut ChartContext<'a, DB, Cartesian2d<X, Y>>,
    position: SeriesLabelPosition,
) -> Drawn
where
    DB: DrawingBackend + 'a,
    DB::ErrorType: 'static,
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.9))
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 14))
        .legend_area_size(34)
        .margin(12)
        .draw()?;
    Ok(())
}

/// Writes into the lower right corner where and when it was measured.
///
/// # Errors
///
/// When the backend does not draw.
pub fn note<DB>(area: &DrawingArea<DB, Shift>, machine: &Machine) -> Drawn
where
    DB: DrawingBackend,
    DB::ErrorType: 'static,
{
    let style = TextStyle::from(("sans-serif", 12).into_font())
        .color(&RGBColor(110, 110, 110))
        .pos(Pos::new(HPos::Right, VPos::Bottom));
    let Machine { kernel, hz, date, .. } = machine;
    let (width, height) = area.dim_in_pixel();
    let corner = (i32::try_from(width)? - 20, i32::try_from(height)? - 6);
    area.draw(&Text::new(format!("Linux {kernel}, HZ {hz}, {date}"), corner, style))?;
    Ok(())
}

/// The label of a flood of `rate` packets a second on an axis that begins with none, at `none`.
pub fn flood(rate: f64, none: f64) -> String {
    if rate <= none {
        "0".to_owned()
    } else if rate >= 1e6 {
        format!("{}M", rate / 1e6)
    } else {
        format!("{}k", rate / 1e3)
    }
}
