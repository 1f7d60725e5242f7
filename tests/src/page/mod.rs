//! A page of the documentation, followed word for word.
//!
//! The commands that a page shows in its `console` blocks are typed into a shell ([`place`]), in
//! the order of the page, and their output is compared with the page's ([`alike`]). A reader who
//! does the same must see the same.
//!
//! In a page ([`text`]):
//!
//! - `# COMMAND` and `$ COMMAND` are typed on the machine that is limited, `peer$ COMMAND` on the
//!   one beside it. A block that begins with `$` has no `#` commands: its `#` lines are output. A
//!   `\` at the end of a line goes on.
//! - A line `...` stands for lines that are left out, `...` inside of a line for a part of it.
//! - A `yaml` block that begins with `# PATH` is that file.
//! - `<!-- peer: COMMAND -->` is traffic that the page does not show; `<!-- file: PATH = FILE -->`
//!   a file of the repository that has another name here; `<!-- here: COMMAND -->` a command on the
//!   machine that is limited, which the page does not show and which has to succeed.
//! - `<!-- tried: ... -->` says what rules have counted ([`tried`]).
//! - Commands that do not end by themselves ([`follow::STAY`]) run until the next such command, or
//!   the end of the page.

pub mod alike;
pub mod follow;
pub mod place;
pub mod text;
pub mod tried;
