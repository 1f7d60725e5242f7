//! How quick a service stays beside crawlers, and what these get, out of the tables of
//! docs/shaping-figures.md, so that both say the same.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::draw::{FONT, GRID, INK, finished};

const SIZE: (u32, u32) = (960, 470);

/// The row of each line, its name in the legend, and a colour that people with any colour vision
/// distinguish (Okabe and Ito).
const WAYS: [(&str, &str, RGBColor); 4] = [
    ("no limit", "no limit", RGBColor(130, 130, 130)),
    ("`action: drop`", "drop", RGBColor(213, 94, 0)),
    ("`{delay: {longest: 200ms}}`", "delay", RGBColor(230, 159, 0)),
    ("`{mark: {dscp: cs1}}`, and a slower class of htb", "slower lane", RGBColor(0, 114, 178)),
];

/// Figures of a table: of each row its name and a number for each column.
struct Table {
    crawlers: Vec<f64>,
    rows: Vec<(String, Vec<f64>)>,
}

impl Table {
    /// The table whose head begins so.
    fn read(page: &str, head: &str) -> Result<Self> {
        let missing = || format!("docs/shaping-figures.md has no table `{head}`");
        let mut lines = page.lines().skip_while(|line| !line.starts_with(head));
        let crawlers = numbers(lines.next().with_context(missing)?).1?;
        let rows = lines.skip(1).take_while(|line| line.starts_with("| "));
        let rows = rows.map(|line| {
            let (name, numbers) = numbers(line);
            let numbers = numbers?;
            ensure!(numbers.len() == crawlers.len(), "not a number for each column: {line}");
            Ok((name.to_owned(), numbers))
        });
        let rows = rows.collect::<Result<Vec<_>>>()?;
        Ok(Self { crawlers, rows })
    }

    /// The line of a way: crawlers, and its figure.
    fn line(&self, way: &str) -> Result<Vec<(f64, f64)>> {
        let row = self.rows.iter().find(|(name, _)| name == way);
        let (_, figures) =
            row.with_context(|| format!("docs/shaping-figures.md has no row {way}"))?;
        Ok(self.crawlers.iter().copied().zip(figures.iter().copied()).collect())
    }

    fn most(&self) -> f64 {
        self.rows.iter().flat_map(|(_, figures)| figures).copied().fold(1.0, f64::max)
    }
}

/// The first cell of a row, and the number that each other one begins with.
fn numbers(row: &str) -> (&str, Result<Vec<f64>>) {
    let mut cells = row.trim_matches('|').split('|').map(str::trim);
    let name = cells.next().unwrap_or_default();
    let number = |cell: &str| {
        let first = cell.split(' ').next().unwrap_or_default();
        first.parse().with_context(|| format!("no number: {row}"))
    };
    (name, cells.map(number).collect())
}

/// The plot of the figures in docs/shaping-figures.md.
pub(crate) fn plot(docs: &Path) -> Result<String> {
    let path = docs.join("shaping-figures.md");
    let page = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let pages = Table::read(&page, "| crawlers: a page")?;
    let crawled = Table::read(&page, "| crawlers: all")?;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (above, below) = root.split_vertically(SIZE.1 - 40);
        let (left, right) = above.split_horizontally(SIZE.0 / 2);
        let least = pages.rows.iter().flat_map(|(_, figures)| figures).copied();
        let least = least.fold(f64::MAX, f64::min).max(1.0);
        let times = (least / 1.5..pages.most() * 1.5).log_scale();
        panel(&left, ("A page of 5 kB takes, ms (median)", &pages), times)?;
        let rates = 0.0..crawled.most() * 1.1;
        panel(&right, ("All crawlers together get, Mbit/s", &crawled), rates)?;
        legend(&below)?;
        root.present()?;
    }
    Ok(finished(&svg))
}

fn panel<Y: Ranged<ValueType = f64> + ValueFormatter<f64>>(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    (title, table): (&str, &Table),
    y: impl AsRangedCoord<CoordDescType = Y, Value = f64>,
) -> Result<()> {
    let most = table.crawlers.iter().copied().fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 19).into_font().color(&INK))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..most, y)?;
    chart
        .configure_mesh()
        .x_desc("crawlers")
        .x_labels(5)
        .y_labels(6)
        .max_light_lines(0)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_label_formatter(&|crawlers| format!("{crawlers:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .label_style((FONT, 14).into_font().color(&INK))
        .axis_desc_style((FONT, 15).into_font().color(&INK))
        .draw()?;
    for (row, _, colour) in WAYS {
        let line = table.line(row)?;
        chart.draw_series(LineSeries::new(line.clone(), colour.stroke_width(3)))?;
        chart.draw_series(line.into_iter().map(|at| Circle::new(at, 4, colour.filled())))?;
    }
    Ok(())
}

fn legend(area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<()> {
    let mut x = 60;
    for (_, name, colour) in WAYS {
        area.draw(&PathElement::new(vec![(x, 16), (x + 40, 16)], colour.stroke_width(3)))?;
        area.draw(&Text::new(name, (x + 50, 8), (FONT, 16).into_font().color(&INK)))?;
        x += 190;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "text\n\n| crawlers: a page takes, ms | 0 | 2 |\n|---|--:|--:|\n\
         | no limit | 12 (14) | 120.5 (140) |\n| `action: drop` | 13 (15) | 16 (19) |\n\n\
         | crawlers: all get | 0 | 2 |\n|---|--:|--:|\n| no limit | 0.0 (0.0 to 0.0) | 18 |\n";

    #[test]
    fn a_line_has_the_figures_of_its_row_and_its_table() {
        let table = Table::read(PAGE, "| crawlers: a page").unwrap();
        assert_eq!(table.line("no limit").unwrap(), [(0.0, 12.0), (2.0, 120.5)]);
        assert_eq!(table.rows.len(), 2);
        table.line("`action: delay`").unwrap_err();
        assert!(Table::read(PAGE, "| crawlers: none").is_err());
        let all = Table::read(PAGE, "| crawlers: all").unwrap();
        assert_eq!(all.line("no limit").unwrap(), [(0.0, 0.0), (2.0, 18.0)]);
    }
}
