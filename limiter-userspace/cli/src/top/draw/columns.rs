//! Columns of a table, as many as fit.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Span, Text};
use ratatui::widgets::{Cell, Row, Table, TableState};

use super::theme::Theme;

/// A column: its name, its width, how early it is left out where there is little room, and whether
/// it is aligned right. A width of 0 takes what is left.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) width: u16,
    pub(super) rank: u8,
    pub(super) right: bool,
}

/// The columns that fit, in the order of `all`: those with the lowest ranks.
fn fitting(all: &[Column], width: u16) -> Vec<usize> {
    let mut by_rank: Vec<usize> = (0..all.len()).collect();
    by_rank.sort_by_key(|index| all.get(*index).map(|column| column.rank));
    let mut left = width;
    let mut kept = Vec::new();
    for index in by_rank {
        let Some(column) = all.get(index) else { continue };
        // A column that takes the rest has names: it is worth it from twenty columns on.
        let needs = if column.width == 0 { 20 } else { column.width + 1 };
        if !kept.is_empty() && needs > left {
            break;
        }
        left = left.saturating_sub(needs);
        kept.push(index);
    }
    kept.sort_unstable();
    kept
}

/// A text in a column of `width` cells, with a sign if not all of it fits.
fn cut(text: String, width: u16) -> String {
    let (width, cells) = (usize::from(width), |text: &str| Span::raw(text).width());
    if cells(&text) <= width {
        return text;
    }
    let mut kept = String::new();
    for letter in text.chars().take(width) {
        kept.push(letter);
        if cells(&kept) >= width {
            kept.pop();
            break;
        }
    }
    kept + "…"
}

/// The column that the rows are sorted by, empty for none; and whether the least is first.
pub(super) type Sorted = (&'static str, bool);

/// A table of which the row `chosen` can be seen, if one is. A row makes its cells by the index of
/// their column.
pub(super) fn table<'a, T>(
    frame: &mut Frame<'_>,
    area: Rect,
    (columns, theme, sorted): (&[Column], Theme, Sorted),
    (rows, chosen): (&'a [T], Option<usize>),
    cell: impl Fn(&'a T, usize) -> (String, Style),
) {
    let kept = fitting(columns, area.width);
    let column = |index: &usize| columns.get(*index);
    let aligned = |index: &usize, text: String, style: Style| {
        let right = column(index).is_some_and(|column| column.right);
        let alignment = if right { Alignment::Right } else { Alignment::Left };
        Cell::from(Text::from(text).alignment(alignment)).style(style)
    };
    let head = kept.iter().map(|index| {
        let name = column(index).map_or("", |column| column.name);
        let style = theme.head().add_modifier(Modifier::BOLD);
        let (by, ascending) = sorted;
        if name.is_empty() || name != by {
            return aligned(index, name.to_owned(), style);
        }
        let sign = if ascending { '▲' } else { '▼' };
        aligned(index, format!("{sign}{name}"), style.add_modifier(Modifier::UNDERLINED))
    });
    let widths = kept.iter().filter_map(column).map(|column| match column.width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(width),
    });
    // Known here rather than in the table, which cuts a text without a sign.
    let areas = Layout::horizontal(widths).spacing(1).split(area);
    let widths = || areas.iter().map(|area| area.width);
    let lines = rows.iter().map(|row| {
        Row::new(kept.iter().zip(widths()).map(|(index, width)| {
            let (text, style) = cell(row, *index);
            aligned(index, cut(text, width), style)
        }))
    });
    let table = Table::new(lines, widths().map(Constraint::Length))
        .header(Row::new(head))
        .row_highlight_style(theme.chosen())
        .column_spacing(1);
    let mut position = TableState::default();
    position.select(chosen.filter(|_| !rows.is_empty()));
    frame.render_stateful_widget(table, area, &mut position);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_does_not_fit_ends_with_a_sign() {
        for (text, width, shown) in [
            ("27015/udp", 9, "27015/udp"),
            ("27015/udp", 8, "27015/u…"),
            ("規則規則", 8, "規則規則"),
            ("規則規則", 7, "規則規…"),
            ("規則規則", 6, "規則…"),
            ("ab", 1, "…"),
        ] {
            assert_eq!(cut(text.to_owned(), width), shown, "{text} {width}");
        }
    }
}
