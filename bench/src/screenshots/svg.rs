//! A terminal's screen as a picture. It paints its own background, so it can be read on any page.

use std::fmt::Write as _;

use vt100::{Cell, Color, Screen};

/// Pixels of a cell. The letters of a text are spaced to it, whatever font there is.
const WIDTH: f32 = 8.4;
const HEIGHT: f32 = 18.0;

/// From the top of a cell to the line that its letters stand on.
const ASCENT: f32 = 13.5;

const MARGIN: f32 = 14.0;

const BACKGROUND: &str = "#1b1f27";
const FOREGROUND: &str = "#d7dce5";

/// The first sixteen colours of a terminal.
const PALETTE: [&str; 16] = [
    "#1b1f27", "#ff6b6b", "#7bd88f", "#f5c76e", "#7aa2f7", "#c792ea", "#5fd7e7", "#d7dce5",
    "#8b95a7", "#ff8f8f", "#9be8ab", "#ffd98a", "#9cbcff", "#d9b0f5", "#8be9f5", "#ffffff",
];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    fore: String,
    back: String,
    bold: bool,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let (fore, back) = (color(cell.fgcolor(), FOREGROUND), color(cell.bgcolor(), BACKGROUND));
        let (fore, back) = if cell.inverse() { (back, fore) } else { (fore, back) };
        Self { fore, back, bold: cell.bold() }
    }
}

fn color(color: Color, default: &str) -> String {
    match color {
        Color::Idx(index @ 0..16) => {
            PALETTE.get(usize::from(index)).map_or(default, |color| color).to_owned()
        }
        // Of 256 colours, the cube and the greys are used by nothing here.
        Color::Default | Color::Idx(_) => default.to_owned(),
        Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
    }
}

/// The picture, with a title for those who do not see it.
pub fn picture(screen: &Screen, title: &str) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    let width = f32::from(columns) * WIDTH + 2.0 * MARGIN;
    let height = f32::from(rows) * HEIGHT + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n\
         <title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"14\" shape-rendering=\"crispEdges\">\n",
        escaped(title)
    );
    for row in 0..rows {
        for run in runs(screen, row, columns) {
            draw(&mut svg, row, &run);
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Neighbours that look the same.
struct Run {
    first: u16,
    cells: u16,
    text: String,
    look: Look,
}

fn runs(screen: &Screen, row: u16, columns: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column).filter(|cell| !cell.is_wide_continuation())
        else {
            continue;
        };
        let look = Look::of(cell);
        let text = if cell.has_contents() { cell.contents() } else { " " };
        // Blocks are drawn, each by itself: fonts leave gaps between them.
        let block = block(text).is_some();
        match runs.last_mut() {
            Some(run) if run.look == look && !block && self::block(&run.text).is_none() => {
                run.cells += 1;
                run.text.push_str(text);
            }
            _ => runs.push(Run { first: column, cells: 1, text: text.to_owned(), look }),
        }
    }
    runs
}

/// How much of its cell a block fills from below, and how densely.
fn block(text: &str) -> Option<(f32, f32)> {
    let mut letters = text.chars();
    let (letter, None) = (letters.next()?, letters.next()) else { return None };
    match letter {
        '▁'..='█' => {
            let eighths = u32::from(letter).checked_sub(u32::from('▁'))? + 1;
            Some((f32::from(u8::try_from(eighths).ok()?) / 8.0, 1.0))
        }
        '░' => Some((1.0, 0.25)),
        _ => None,
    }
}

fn draw(svg: &mut String, row: u16, run: &Run) {
    let (x, y) = (f32::from(run.first) * WIDTH + MARGIN, f32::from(row) * HEIGHT + MARGIN);
    let width = f32::from(run.cells) * WIDTH;
    let Look { fore, back, bold } = &run.look;
    // Writing to a string cannot fail.
    if back != BACKGROUND {
        let _: std::fmt::Result = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" \
             fill=\"{back}\"/>"
        );
    }
    if let Some((share, opacity)) = block(&run.text) {
        let (tall, wide) = (share * HEIGHT, width + 0.2);
        let top = y + HEIGHT - tall;
        let _: std::fmt::Result = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\" \
             fill=\"{fore}\" fill-opacity=\"{opacity}\"/>"
        );
        return;
    }
    let weight = if *bold { " font-weight=\"bold\"" } else { "" };
    for (column, word) in words(&run.text) {
        let (Ok(column), Ok(letters)) =
            (u16::try_from(column), u16::try_from(word.chars().count()))
        else {
            return;
        };
        let (x, length) = (x + f32::from(column) * WIDTH, f32::from(letters) * WIDTH);
        let _: std::fmt::Result = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{length:.1}\" \
             lengthAdjust=\"spacing\" fill=\"{fore}\"{weight}>{}</text>",
            y + ASCENT,
            escaped(word)
        );
    }
}

/// Parts of a text between two blanks or more, each with its column. Browsers make one blank of
/// several: within one element the letters would be stretched to make up for that.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut column = 0;
    for word in text.split("  ") {
        let begin = word.chars().take_while(|letter| *letter == ' ').count();
        let trimmed = word.trim_matches(' ');
        if !trimmed.is_empty() {
            words.push((column + begin, trimmed));
        }
        column += word.chars().count() + 2;
    }
    words
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_drawn_with_its_colours() {
        let mut parser = vt100::Parser::default();
        parser.process(b"\x1b[31mred <&>\x1b[0m  \x1b[7mturned\x1b[0m \xe2\x96\x84");
        let svg = picture(parser.screen(), "a & b");
        assert!(svg.contains("<title>a &amp; b</title>"), "{svg}");
        assert!(svg.contains("fill=\"#ff6b6b\">red &lt;&amp;&gt;</text>"), "{svg}");
        assert!(svg.contains(&format!("fill=\"{BACKGROUND}\">turned</text>")), "{svg}");
        assert!(svg.contains(&format!("height=\"{HEIGHT}\" fill=\"{FOREGROUND}\"/>")), "{svg}");
        // One element would be stretched: browsers make one blank of several.
        assert_eq!(words("  0     4,894 all of it   "), [(2, "0"), (8, "4,894 all of it")]);
        // Half a cell.
        assert!(svg.contains("height=\"9.0\""), "{svg}");
    }
}
