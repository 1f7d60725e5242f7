//! Colours, and what stands for them without.

use ratatui::style::{Color, Modifier, Style};

/// The sixteen colours of the terminal's own palette, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    pub(super) plain: bool,
}

impl Theme {
    const fn coloured(self, color: Color) -> Style {
        if self.plain { Style::new() } else { Style::new().fg(color) }
    }

    /// Style of packets that pass.
    pub(super) const fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    /// Style of values near their limit, and of warnings.
    pub(super) const fn near(self) -> Style {
        self.coloured(Color::Yellow)
    }

    /// Style of drops and errors.
    pub(super) const fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Style of keys that can be pressed.
    pub(super) const fn key(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// Style of text that is less important.
    pub(super) const fn quiet(self) -> Style {
        self.coloured(Color::DarkGray)
    }

    pub(super) const fn head(self) -> Style {
        self.coloured(Color::Cyan)
    }

    pub(super) const fn chosen(self) -> Style {
        if self.plain {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            // The colours of its cells would be patches.
            Style::new().fg(Color::Black).bg(Color::Cyan)
        }
    }

    /// Style by how much of a burst is used.
    pub(super) fn used(self, share: Option<f64>) -> Style {
        match share {
            Some(share) if share >= 0.9 => self.bad(),
            Some(share) if share >= 0.5 => self.near(),
            Some(_) => self.good(),
            None => self.quiet(),
        }
    }

    /// Style of a number, by whether there is any.
    pub(super) fn count(self, count: f64) -> Style {
        if count > 0.0 { self.bad() } else { self.quiet() }
    }
}
