//! Properties of the terminal: its width and colours.

pub use odec_compiler::text::number::{bytes, count, duration, thousands};
use odec_compiler::text::page::Screen;
use std::io::IsTerminal;

/// Whether standard error takes colours: a terminal, and neither `NO_COLOR` nor `TERM=dumb`.
pub fn colour() -> bool {
    std::io::stderr().is_terminal() && !plain()
}

fn plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
        || std::env::var_os("TERM").is_some_and(|t| t == "dumb")
}

/// Whether only ASCII is to be printed: `TERM=dumb`, or a locale without other characters.
pub fn ascii() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let mut said = locale.filter_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    let bare = said.next().is_some_and(|l| l == "C" || l == "POSIX");
    bare || std::env::var_os("TERM").is_some_and(|t| t == "dumb")
}

/// What reports on standard output are laid out for: as wide as `COLUMNS` says, or the terminal is.
pub fn screen() -> Screen {
    let terminal = console::Term::stdout();
    let said = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    let size = terminal.size_checked().map(|(_, columns)| columns.into());
    let width = said.or(size).unwrap_or(Screen::PLAIN.width);
    Screen::of(width, terminal.is_term() && !plain())
}
