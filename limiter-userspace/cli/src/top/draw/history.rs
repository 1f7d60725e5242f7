//! Rates over time as two bands on one scale, with an axis of times and what changed.

use limiter_api::render::bits;
use limiter_api::sources::per_second;
use limiter_api::status::history::{Mark, MarkKind};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, RenderDirection, Sparkline};

use super::super::past::Rates;
use super::theme::Theme;

/// Columns of the label of a band: its name and its rate, and those with bits as well.
const LABEL: u16 = 20;
const WITH_BITS: u16 = 33;

/// Columns of the scale behind a band.
const SCALE: u16 = 7;

/// Least width at which bits are shown.
const WIDE: u16 = 70;

/// A place, and what is shown there: rates that passed and were dropped.
pub(super) struct Bands<'a> {
    pub(super) passed: &'a Rates,
    pub(super) dropped: &'a Rates,
    /// Bits a second now of both bands; `None` if bytes are not counted.
    pub(super) bits: Option<[Option<f64>; 2]>,
    /// Changes, the oldest first.
    pub(super) marks: Vec<Mark>,
}

/// Lines that the bands take: at least two, and an axis of times where there is one more.
pub(super) const fn lines(height: u16) -> u16 {
    match height {
        0..20 => 2,
        20..34 => 3,
        34..48 => 5,
        _ => 9,
    }
}

impl Bands<'_> {
    /// Draws both bands on one scale, so that they compare.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, area: Rect, theme: Theme) {
        let axis = u16::from(area.height >= 3);
        let tall = (area.height - axis) / 2;
        let [passed, dropped, times] = Layout::vertical([
            Constraint::Length(tall),
            Constraint::Length(tall),
            Constraint::Length(axis),
        ])
        .areas(area);
        let label = if self.bits.is_some() && area.width >= WIDE { WITH_BITS } else { LABEL };
        let columns = area.width.saturating_sub(label + SCALE);
        let shown = |rates: &Rates| rates.points(usize::from(columns));
        let both = [shown(self.passed), shown(self.dropped)];
        let most = both.iter().flatten().filter_map(|(_, rate)| *rate).max().unwrap_or_default();
        let top = round_up(most);
        let bits = self.bits.filter(|_| label == WITH_BITS);
        let bands = [
            (passed, "passed", theme.good(), self.passed.now, bits.map(|[passed, _]| passed)),
            (dropped, "dropped", theme.bad(), self.dropped.now, bits.map(|[_, dropped]| dropped)),
        ];
        for ((place, name, style, now, bits), points) in bands.into_iter().zip(&both) {
            let [text, line, scale] = Layout::horizontal([
                Constraint::Length(label),
                Constraint::Fill(1),
                Constraint::Length(SCALE),
            ])
            .areas(place);
            let mut words = vec![
                Span::styled(format!("{name:<7} "), theme.quiet()),
                format!("{:>9}/s ", per_second(now)).into(),
            ];
            if let Some(now) = bits {
                let now = now.map_or_else(|| "-".to_owned(), self::bits);
                words.push(format!("{now:>12} ").into());
            }
            frame.render_widget(Paragraph::new(Line::from(words)), text);
            let sparkline = Sparkline::default()
                .data(points.iter().map(|(_, rate)| *rate).collect::<Vec<_>>())
                .max(top)
                .direction(RenderDirection::RightToLeft)
                .style(style);
            frame.render_widget(sparkline, line);
            frame.render_widget(Paragraph::new(self::scale(top, tall, theme)), scale);
        }
        let [_, times, _] = Layout::horizontal([
            Constraint::Length(label),
            Constraint::Fill(1),
            Constraint::Length(SCALE),
        ])
        .areas(times);
        let clocks: Vec<u64> = both[0].iter().map(|(at, _)| *at).collect();
        frame.render_widget(Paragraph::new(self.axis(&clocks, times.width, theme)), times);
    }

    /// An axis of times from the left to the right, with the changes at their times. `clocks` are
    /// the times of the columns, the newest first.
    fn axis(&self, clocks: &[u64], width: u16, theme: Theme) -> Line<'static> {
        let width = usize::from(width);
        let mut cells: Vec<(char, Style)> = vec![(' ', theme.quiet()); width];
        let mut write = |end: usize, text: &str, style: Style| {
            let length = text.chars().count();
            let Some(from) = end.checked_sub(length) else { return false };
            let Some(place) = cells.get_mut(from..end) else { return false };
            if place.iter().any(|(letter, _)| *letter != ' ') {
                return false;
            }
            for (cell, letter) in place.iter_mut().zip(text.chars()) {
                *cell = (letter, style);
            }
            true
        };
        let Some(newest) = clocks.first() else { return Line::default() };
        let seconds = |at: u64| (newest.saturating_sub(at) + 500_000_000) / 1_000_000_000;
        write(width, "now", theme.quiet());
        for mark in self.marks.iter().rev() {
            let Some(column) = clocks.iter().rposition(|at| *at >= mark.clock_ns) else { continue };
            let style = match mark.change {
                MarkKind::Off => theme.bad(),
                MarkKind::Trial | MarkKind::Reverted => theme.near(),
                _ => theme.key(),
            };
            let Some(place) = width.checked_sub(column) else { continue };
            // The mark stands under its column, and its name before it, if there is room.
            if !write(place, &format!("{} ▲", mark.change.name()), style) {
                write(place, "▲", style);
            }
        }
        // A time every twenty columns.
        for column in (20..clocks.len()).step_by(20) {
            if let (Some(at), Some(place)) = (clocks.get(column), width.checked_sub(column)) {
                write(place, &format!("-{}", ago(seconds(*at))), theme.quiet());
            }
        }
        let spans = cells.chunk_by(|(_, a), (_, b)| a == b).map(|run| {
            let text: String = run.iter().map(|(letter, _)| letter).collect();
            Span::styled(text, run.first().map_or_else(Style::new, |(_, style)| *style))
        });
        Line::from(spans.collect::<Vec<_>>())
    }
}

/// A time in short: `40s`, `1m20`.
fn ago(seconds: u64) -> String {
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, 0) => format!("{minutes}m"),
        (minutes, seconds) => format!("{minutes}m{seconds:02}"),
    }
}

/// The ends of the scale, at the first and the last line of a band.
fn scale(top: u64, tall: u16, theme: Theme) -> Vec<Line<'static>> {
    let label = |value: u64| Line::styled(format!("▏{}", short(value)), theme.quiet());
    let mut lines = vec![label(top)];
    if tall > 1 {
        lines.extend((2..tall).map(|_| Line::styled("▏", theme.quiet())));
        lines.push(label(0));
    }
    lines
}

/// Rounds up to one digit and zeros; at least 1.
fn round_up(most: u64) -> u64 {
    let mut power: u64 = 1;
    loop {
        for step in [1, 2, 3, 4, 5, 6, 8] {
            let top = power.saturating_mul(step);
            if top >= most || top == u64::MAX {
                return top;
            }
        }
        power = power.saturating_mul(10);
    }
}

/// Such a number in short: 5000 as `5k`.
fn short(value: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    let unit = UNITS.into_iter().find(|(size, _)| value >= *size);
    unit.map_or_else(|| value.to_string(), |(size, name)| format!("{}{name}", value / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_ends_at_a_round_number() {
        for (most, top, text) in [
            (0, 1, "1"),
            (1, 1, "1"),
            (7, 8, "8"),
            (1_636, 2_000, "2k"),
            (2_000, 2_000, "2k"),
            (29_000_001, 30_000_000, "30M"),
        ] {
            assert_eq!((round_up(most), short(round_up(most)).as_str()), (top, text));
        }
        assert!(round_up(u64::MAX) >= 10_000_000_000_000_000_000);
    }
}
