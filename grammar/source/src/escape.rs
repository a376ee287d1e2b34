//! Escapes characters of names and sources that would control a terminal or mislead a reader.

/// Whether a character moves the cursor, ends the line or changes the direction of writing (Unicode's control characters, its
/// separators of lines and paragraphs, and the marks of its bidirectional algorithm, UAX #9).
pub fn commands(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61C}' | '\u{200B}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

/// A text with such characters escaped, but for the ends of its lines.
pub fn escaped_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(escaped).collect();
    lines.join("\n")
}

/// A text in one line, with such characters escaped.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match commands(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}
