//! Words of the texts of graphs and stage programs, in quotation marks where they need them.

/// A word as it is written: in quotation marks where it has other characters than words have.
pub fn word(word: &str) -> String {
    match is_plain(word) {
        true => word.to_string(),
        false => quoted(word),
    }
}

/// Whether it needs no quotation marks.
pub fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(is_word)
}

/// Letters, digits, `_`, `.` and `-`.
pub fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// In quotation marks.
pub fn quoted(word: &str) -> String {
    let mut out = String::from('"');
    for c in word.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
