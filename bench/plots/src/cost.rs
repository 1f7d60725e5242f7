//! The chart of the README: what a packet costs, out of bench/results.

use std::path::Path;

use anyhow::{Context as _, Result};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::draw::{FONT, INK, finished};
use crate::results::Results;

/// The groups: a heading of the results each.
const SOURCES: [&str; 3] = ["1 source", "10,000 sources", "1,000,000 sources"];

/// The bars of a group: the name in the tables, in the legend, and a colour that people with any
/// colour vision distinguish (Okabe and Ito).
const TOOLS: [(&str, &str, RGBColor); 4] = [
    ("limiter, native, lines", "limiter", RGBColor(0, 114, 178)),
    ("hand-written XDP", "hand-written XDP", RGBColor(130, 130, 130)),
    ("nft, netdev ingress", "nft", RGBColor(213, 94, 0)),
    ("hashlimit, raw", "hashlimit", RGBColor(230, 159, 0)),
];

/// The least that any tool can take.
const LEAST: &str = "bare XDP drop";

/// No wider, so that a phone does not make the letters too small.
const SIZE: (i32, i32) = (640, 424);

/// Where the bars begin, and the room behind them for values.
const LEFT: i32 = 158;
const RIGHT: i32 = 78;
const TOP: i32 = 84;
const BAR: i32 = 22;
const GROUP: i32 = 4 * BAR + 24;

/// The chart of the figures in `bench/results`.
pub(crate) fn plot(results: &Path) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg, &Results::read(results, "path")?)?;
    Ok(finished(&svg))
}

/// Nanoseconds a packet of a tool, in the table for a number of sources.
fn nanos(results: &Results, sources: &str, tool: &str) -> Result<f64> {
    let missing = || format!("path.tsv has no figure of {tool} with {sources}");
    let table = results.table(sources, 0)?;
    let row = table.iter().find(|row| row.first() == Some(&tool)).with_context(missing)?;
    let figure = row.get(1).and_then(|cell| cell.split(' ').next()).with_context(missing)?;
    figure.parse().with_context(missing)
}

fn draw(svg: &mut String, results: &Results) -> Result<()> {
    let (width, height) = SIZE;
    let area = SVGBackend::with_string(svg, (width.unsigned_abs(), height.unsigned_abs()))
        .into_drawing_area();
    area.fill(&WHITE)?;
    let left = Pos::new(HPos::Left, VPos::Center);
    let right = Pos::new(HPos::Right, VPos::Center);
    let text = |words: String, at: (i32, i32), size: i32, pos: Pos| {
        let style = TextStyle::from((FONT, size).into_font()).pos(pos).color(&INK);
        Text::new(words, at, style)
    };
    let title = "Nanoseconds to drop a packet: shorter is better";
    area.draw(&text(title.to_owned(), (14, 22), 20, left))?;
    let mut x = 14;
    for (_, name, colour) in TOOLS {
        area.draw(&Rectangle::new([(x, 42), (x + 14, 56)], colour.filled()))?;
        area.draw(&text(name.to_owned(), (x + 20, 49), 15, left))?;
        x += 40 + 8 * i32::try_from(name.len())?;
    }
    for dash in dashes(x, 40, 58) {
        area.draw(&dash)?;
    }
    area.draw(&text("bare XDP drop".to_owned(), (x + 8, 49), 15, left))?;
    let mut most: f64 = 1.0;
    for sources in SOURCES {
        for (tool, ..) in TOOLS {
            most = most.max(nanos(results, sources, tool)?);
        }
    }
    let place = |nanos: f64| {
        #[expect(clippy::cast_possible_truncation, reason = "pixels")]
        let wide = (f64::from(width - LEFT - RIGHT) * nanos / most).round() as i32;
        LEFT + wide
    };
    for (top, sources) in (0..).map(|group| TOP + group * GROUP).zip(SOURCES) {
        let bottom = top + 4 * BAR;
        area.draw(&text(sources.to_owned(), (LEFT - 12, i32::midpoint(top, bottom)), 17, right))?;
        for (y, (tool, _, colour)) in (0..).map(|bar| top + bar * BAR).zip(TOOLS) {
            let nanos = nanos(results, sources, tool)?;
            let end = place(nanos);
            area.draw(&Rectangle::new([(LEFT, y + 2), (end, y + BAR - 2)], colour.filled()))?;
            area.draw(&text(format!("{nanos} ns"), (end + 6, y + BAR / 2), 16, left))?;
        }
        let least = place(nanos(results, sources, LEAST)?);
        for dash in dashes(least, top - 4, bottom + 4) {
            area.draw(&dash)?;
        }
    }
    area.present()?;
    Ok(())
}

/// A dashed line downwards, seen on bars of any colour.
fn dashes(x: i32, from: i32, to: i32) -> impl Iterator<Item = PathElement<(i32, i32)>> {
    (from..to)
        .step_by(7)
        .map(move |y| PathElement::new(vec![(x, y), (x, (y + 4).min(to))], BLACK.stroke_width(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = "### 1 source\n\n\twhole way, ns\nlimiter, native\t90 (80 to 99)\n\
         nft, raw\t7 (6 to 8)\n\n### 10 sources\n\n\twhole way, ns\n\
         limiter, native, lines\t81 (78 to 84)\n";

    /// A figure is of its own table, and a tool is not another one whose name begins alike.
    #[test]
    fn a_figure_is_of_its_tool_and_its_table() {
        let results = Results::of(RESULTS);
        assert!((nanos(&results, "1 source", "limiter, native").unwrap() - 90.0).abs() < 1e-9);
        let error = nanos(&results, "1 source", "limiter, native, lines").unwrap_err();
        assert!(error.to_string().contains("no figure of limiter, native, lines"), "{error}");
        nanos(&results, "10 sources", "nft, raw").unwrap_err();
        nanos(&results, "1", "nft, raw").unwrap_err();
    }
}
