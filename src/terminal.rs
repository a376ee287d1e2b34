//! What the terminal can show.

use odec_compiler::analysis::page::Screen;
use std::io::IsTerminal;

/// Whether standard error takes colours: a terminal, and neither `NO_COLOR` nor `TERM=dumb`.
pub fn colour() -> bool {
    std::io::stderr().is_terminal() && !plain()
}

fn plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
        || std::env::var_os("TERM").is_some_and(|t| t == "dumb")
}

/// What reports on standard output are laid out for: as wide as `COLUMNS` says, or the terminal is.
pub fn screen() -> Screen {
    let terminal = console::Term::stdout();
    let said = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    let size = terminal.size_checked().map(|(_, columns)| columns.into());
    let width = said.or(size).unwrap_or(Screen::PLAIN.width);
    Screen::of(width, terminal.is_term() && !plain())
}

/// `1234567` as `1,234,567`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Bytes in the largest binary unit that keeps three digits: `12.3 MiB`.
pub fn bytes(n: u64) -> String {
    let mut x = n as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if x < 1024.0 {
            return if unit == "B" {
                format!("{n} B")
            } else {
                format!("{x:.1} {unit}")
            };
        }
        x /= 1024.0;
    }
    format!("{x:.1} TiB")
}

/// A count in thousands, millions, billions: `1.23 M`.
pub fn count(n: f64) -> String {
    let mut x = n;
    for unit in ["", " k", " M", " G", " T"] {
        if x.abs() < 1000.0 {
            return if unit.is_empty() {
                format!("{x:.0}")
            } else {
                format!("{x:.2}{unit}")
            };
        }
        x /= 1000.0;
    }
    format!("{x:.2} P")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(count(999.0), "999");
        assert_eq!(count(1_234_000.0), "1.23 M");
    }
}
