//! Draws a simulation: the offered traffic, and what each rule set let pass, over time.

use std::fmt::Write as _;

use limiter_text::plain::clean;

use super::Report;

/// Size of the picture and of its plot area, in pixels.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 230.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 52.0;

/// Distance between two names, if there is space.
const APART: f64 = 24.0;

/// Colours that colour-blind people can distinguish (Okabe and Ito), and dashes for those who see
/// no colours.
const LINES: [(&str, &str); 6] = [
    ("#0072b2", ""),
    ("#d55e00", "9 4"),
    ("#009e73", "2 3"),
    ("#cc79a7", "14 4 3 4"),
    ("#7a5c00", "5 2"),
    ("#56b4e9", "1 2 7 2"),
];

const OFFERED: &str = "#969696";
const INK: &str = "#222222";
const GRID: &str = "#e4e4e4";

/// Draws a report as SVG without scripts or external references.
pub fn figure(report: &Report, title: &str) -> String {
    let timeline = &report.timeline;
    let sums = |steps: &[u64]| {
        let mut sum = 0;
        steps
            .iter()
            .map(|step| {
                sum += step;
                sum
            })
            .collect::<Vec<u64>>()
    };
    let offered = sums(timeline.all_offered());
    let passed: Vec<Vec<u64>> = timeline.all_passed().iter().map(|steps| sums(steps)).collect();
    let most = passed.iter().filter_map(|line| line.last()).max().copied().unwrap_or(0);
    let all = offered.last().copied().unwrap_or(0);
    // The line of a flood would flatten all others, so it is cut off at the top.
    let top = float(all.min(most.saturating_mul(3).max(1))).max(1.0) * 1.05;
    let steps = offered.len().max(1);
    let seconds = float(timeline.step()) / 1e9 * float(steps as u64);
    let axes = Axes { top, steps: float(steps as u64), seconds };
    let mut svg = String::new();
    axes.begin(&mut svg, title);
    let mut lines = vec![("offered", OFFERED, "", 2.5, &offered)];
    for (place, (row, line)) in report.candidates.iter().zip(&passed).enumerate() {
        // After six lines, colours repeat with other dashes.
        let turn = place / LINES.len();
        let (colour, _) = LINES.get(place % LINES.len()).copied().unwrap_or((INK, ""));
        let (_, dashes) = LINES.get((place + turn) % LINES.len()).copied().unwrap_or((INK, ""));
        lines.push((row.name.as_str(), colour, dashes, 2.0, line));
    }
    let apart = APART.min((HEIGHT - TOP - 16.0) / float(lines.len() as u64));
    for (index, (name, colour, dashes, width, line)) in lines.into_iter().enumerate() {
        let dashes = if dashes.is_empty() {
            String::new()
        } else {
            format!(" stroke-dasharray=\"{dashes}\"")
        };
        let stroke = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}");
        put(
            &mut svg,
            format_args!(
                "<polyline clip-path=\"url(#a)\" {stroke} points=\"{}\"/>\n",
                axes.points(line, steps)
            ),
        );
        let y = TOP + 10.0 + apart * float(index as u64);
        let x = WIDTH - RIGHT + 14.0;
        put(
            &mut svg,
            format_args!(
                "<line x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" {stroke}/>\n<text x=\"{}\" \
                 y=\"{}\">{}</text>\n",
                x + 34.0,
                x + 42.0,
                y + 4.0,
                escaped(&shortened(name))
            ),
        );
    }
    svg.push_str("</svg>\n");
    svg
}

struct Axes {
    top: f64,
    steps: f64,
    seconds: f64,
}

impl Axes {
    fn x(&self, step: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * step / self.steps
    }

    fn y(&self, packets: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (packets / self.top).min(1.2)
    }

    /// The points of a line that steps at the beginning of each time step.
    fn points(&self, line: &[u64], steps: usize) -> String {
        let mut text = format!("{:.1},{:.1}", self.x(0.0), self.y(0.0));
        let mut before = 0;
        for (step, sum) in line.iter().enumerate() {
            if *sum != before {
                let x = self.x(float(step as u64));
                put(
                    &mut text,
                    format_args!(
                        " {x:.1},{:.1} {x:.1},{:.1}",
                        self.y(float(before)),
                        self.y(float(*sum))
                    ),
                );
                before = *sum;
            }
        }
        put(
            &mut text,
            format_args!(" {:.1},{:.1}", self.x(float(steps as u64)), self.y(float(before))),
        );
        text
    }

    fn begin(&self, svg: &mut String, title: &str) {
        let title = escaped(title);
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        put(
            svg,
            format_args!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
                 role=\"img\" font-family=\"sans-serif\" font-size=\"13\" \
                 fill=\"{INK}\">\n<title>{title}</title>\n<rect width=\"{WIDTH}\" \
                 height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n<clipPath id=\"a\"><rect x=\"{LEFT}\" \
                 y=\"{TOP}\" width=\"{}\" height=\"{}\"/></clipPath>\n<text x=\"{LEFT}\" y=\"26\" \
                 font-size=\"17\">{title}</text>\n",
                right - LEFT,
                bottom - TOP
            ),
        );
        for packets in ticks(self.top) {
            let y = self.y(packets);
            put(
                svg,
                format_args!(
                    "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" \
                     stroke=\"{GRID}\"/>\n<text x=\"{}\" y=\"{:.1}\" \
                     text-anchor=\"end\">{packets}</text>\n",
                    LEFT - 8.0,
                    y + 4.0
                ),
            );
        }
        for seconds in ticks(self.seconds) {
            let x = self.x(seconds / self.seconds * self.steps);
            put(
                svg,
                format_args!(
                    "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" \
                     stroke=\"{GRID}\"/>\n<text x=\"{x:.1}\" y=\"{}\" \
                     text-anchor=\"middle\">{seconds}</text>\n",
                    bottom + 18.0
                ),
            );
        }
        put(
            svg,
            format_args!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">time, seconds</text>\n<text \
                 transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">packets since \
                 the start</text>\n<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" \
                 stroke=\"{INK}\"/>\n",
                f64::midpoint(LEFT, right),
                HEIGHT - 12.0,
                f64::midpoint(TOP, bottom)
            ),
        );
    }
}

/// Four to ten round numbers from 0 up to `end`, each exact in its text.
fn ticks(end: f64) -> Vec<f64> {
    let mut size = 1e-9;
    let mut steps = [2.0, 2.5, 2.0].into_iter().cycle();
    while end / size > 9.0 {
        size *= steps.next().unwrap_or(2.0);
    }
    let mut all = Vec::new();
    let mut at = 0.0;
    while at <= end {
        // Nine decimal places are nanoseconds.
        all.push((at * 1e9f64).round() / 1e9);
        at += size;
    }
    all
}

#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
fn float(number: u64) -> f64 {
    number as f64
}

/// Shortens a name to fit beside the picture.
fn shortened(name: &str) -> String {
    const MOST: usize = 24;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    name.chars().take(MOST - 1).chain(['\u{2026}']).collect()
}

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    clean(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _: std::fmt::Result = text.write_fmt(what);
}
