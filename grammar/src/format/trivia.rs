//! Comments and line ends between the tokens.
//!
//! Takes the text between two tokens; gives its comments, doc comments among them, and how far they stand apart.

/// A `//` or `///` comment.
#[derive(Clone, Copy, Debug)]
pub struct Comment<'a> {
    /// With its slashes, without blanks at the end.
    pub text: &'a str,
    pub place: Place,
    /// A blank line stands before it.
    pub blank: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On a line of its own.
    Own,
    /// Behind code.
    Trailing,
    /// Under a trailing comment, in its column: it goes on there.
    Continues,
}

/// Line ends between the last comment before a token, or the token before it, and the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lines {
    #[default]
    Same,
    Next,
    /// At least one blank line lies between.
    Blank,
}

impl Lines {
    fn of(count: usize) -> Lines {
        match count {
            0 => Lines::Same,
            1 => Lines::Next,
            _ => Lines::Blank,
        }
    }
}

/// Reads the bytes `start..end`, which hold nothing but blanks, comments and tokens that are left out (`;`, `,`).
/// Where `behind` a token, a comment on its line is trailing; a doc comment is so only where it documents nothing
/// (`remarks`: between tableau rows).
pub fn read<'a>(
    text: &'a str,
    (start, end): (usize, usize),
    behind: bool,
    remarks: bool,
    comments: &mut Vec<Comment<'a>>,
) -> Lines {
    let bytes = text.as_bytes();
    let (mut at, mut ends) = (start, 0);
    let mut may_trail = behind;
    // The column of a trailing comment that the next line may continue.
    let mut column = None;
    while at < end {
        if bytes[at] == b'/' {
            let length = text[at..end].find('\n').unwrap_or(end - at);
            let body = text[at..at + length].trim_end();
            let doc = body.starts_with("///") && !body.starts_with("////") && !remarks;
            let here = indent(text, at);
            let place = match (ends, column) {
                (0, _) if may_trail && !doc => Place::Trailing,
                (1, Some(column)) if column == here && !doc => Place::Continues,
                _ => Place::Own,
            };
            column = (place != Place::Own).then_some(here);
            comments.push(Comment {
                text: body,
                place,
                blank: ends > 1,
            });
            (may_trail, ends) = (false, 0);
            at += length;
        } else {
            ends += usize::from(bytes[at] == b'\n');
            at += 1;
        }
    }
    Lines::of(ends)
}

/// Characters before byte `at` on its line. Asked where a comment begins, so at most once for each line.
fn indent(text: &str, at: usize) -> usize {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    text[line..at].chars().count()
}
