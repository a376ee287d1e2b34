//! Paths as they are printed: on one line, without control characters; and names as they stand in pictures.

use odec_source::escape::escaped;
use std::path::Path;

pub trait Shown {
    /// For printing: control characters, ends of lines and marks that change the direction of writing are escaped.
    fn shown(&self) -> String;
}

impl Shown for Path {
    fn shown(&self) -> String {
        escaped(&self.to_string_lossy())
    }
}

/// Text as it stands in SVG.
pub fn markup(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_nothing_else() {
        let shown = |path: &str| Path::new(path).shown();
        assert_eq!(
            shown("runs/größe 'a' \\ 東.ode"),
            "runs/größe 'a' \\ 東.ode"
        );
        assert_eq!(
            shown("a\n\x1b[31m\u{9b}b\u{202e}c\t"),
            "a\\n\\u{1b}[31m\\u{9b}b\\u{202e}c\\t"
        );
    }
}
