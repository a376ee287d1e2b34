//! Attributes of ops as text, written and read by each op's own file.
//!
//! Takes what stands between the operands and the types of a node; gives values to [`crate::Op::from_attrs`], which asks for each by
//! name. What nobody asked for is an error.

use crate::exact::Exact;
use crate::types::{Elem, TensorType};
use odec_program::{Dim, Size};
use odec_text::cursor::{Cursor, ParseError, Parsed, unquoted};
use odec_text::word::is_plain;

/// The attributes of a node that is being read, and the types of its results.
pub struct Attrs<'t> {
    cursor: Cursor<'t>,
    given: Vec<Given<'t>>,
    results: Vec<TensorType>,
    /// Where attributes and types begin.
    at: usize,
    types_at: usize,
}

struct Given<'t> {
    name: &'t str,
    at: usize,
    value: &'t str,
    value_at: usize,
    read: bool,
}

/// What an attribute may be. Printed by the op, as [`exact`], [`super::word`] and `Display` write it.
pub trait Attr: Sized {
    /// After "expected".
    const WHAT: &'static str;
    fn read(text: &str) -> Option<Self>;
}

/// `1/3`; a sum stands in parentheses, for spaces end an attribute.
pub fn exact(x: &Exact) -> String {
    match x.is_sum() {
        true => format!("({x})"),
        false => x.to_string(),
    }
}

/// `[1, 1/2 - sqrt(3)/6]`.
pub fn list(numbers: &[Exact]) -> String {
    let each: Vec<String> = numbers.iter().map(Exact::to_string).collect();
    format!("[{}]", each.join(", "))
}

impl Attr for u64 {
    const WHAT: &'static str = "a whole number";
    fn read(text: &str) -> Option<u64> {
        text.parse().ok()
    }
}

impl Attr for u32 {
    const WHAT: &'static str = "a whole number of 32 bits";
    fn read(text: &str) -> Option<u32> {
        text.parse().ok()
    }
}

impl Attr for bool {
    const WHAT: &'static str = "`true` or `false`";
    fn read(text: &str) -> Option<bool> {
        text.parse().ok()
    }
}

impl Attr for f64 {
    const WHAT: &'static str = "a decimal number";
    fn read(text: &str) -> Option<f64> {
        text.parse().ok().filter(|x: &f64| x.is_finite())
    }
}

impl Attr for String {
    const WHAT: &'static str = "a word, or a text in quotation marks";
    fn read(text: &str) -> Option<String> {
        match is_plain(text) {
            true => Some(text.into()),
            false => unquoted(text),
        }
    }
}

impl Attr for Exact {
    const WHAT: &'static str = "an exact number";
    fn read(text: &str) -> Option<Exact> {
        text.parse().ok()
    }
}

impl Attr for Vec<Exact> {
    const WHAT: &'static str = "exact numbers in brackets";
    fn read(text: &str) -> Option<Vec<Exact>> {
        let inside = text.strip_prefix('[')?.strip_suffix(']')?;
        if inside.is_empty() {
            return Some(vec![]);
        }
        // commas in parentheses are those of `root(2, 3)`
        let (mut parts, mut depth, mut from) = (Vec::new(), 0i64, 0);
        for (i, c) in inside.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 0 => {
                    parts.push(&inside[from..i]);
                    from = i + 1;
                }
                _ => {}
            }
        }
        parts.push(&inside[from..]);
        parts.into_iter().map(|p| p.parse().ok()).collect()
    }
}

impl Attr for Vec<i32> {
    const WHAT: &'static str = "whole numbers in brackets";
    fn read(text: &str) -> Option<Vec<i32>> {
        let inside = text.strip_prefix('[')?.strip_suffix(']')?;
        let numbers = inside.split(',').map(|n| n.trim().parse().ok());
        numbers.collect()
    }
}

impl Attr for Size {
    const WHAT: &'static str = "a product of one number, `B`, `S`, `T` and `P`, such as `4·B·S`";
    fn read(text: &str) -> Option<Size> {
        let mut size = Size::ONE;
        for (i, part) in text.split('·').enumerate() {
            let power = match part {
                "B" => &mut size.batch,
                "S" => &mut size.seq,
                "T" => &mut size.source,
                "P" => &mut size.past,
                "R" => &mut size.recent,
                n if i == 0 => {
                    size.factor = n.parse().ok()?;
                    continue;
                }
                _ => return None,
            };
            *power = power.checked_add(1)?;
        }
        Some(size)
    }
}

impl<'t> Attrs<'t> {
    /// Reads `name=value` as often as it stands here; the types that follow are told later.
    pub(super) fn parse(cursor: &mut Cursor<'t>) -> Parsed<Attrs<'t>> {
        cursor.rest();
        let at = cursor.at;
        let mut given: Vec<Given> = Vec::new();
        while !cursor.rest().is_empty() && !cursor.rest().starts_with(':') {
            let at = cursor.at;
            let name = cursor.name("an attribute, or `:` and the types of the results")?;
            if given.iter().any(|g| g.name == name) {
                return cursor.error(at, format!("`{name}` is given twice"));
            }
            if !cursor.take("=") {
                return cursor.expected(&format!("`=` and the value of `{name}`"));
            }
            let value_at = cursor.at;
            let value = cursor.value()?;
            given.push(Given {
                name,
                at,
                value,
                value_at,
                read: false,
            });
        }
        Ok(Attrs {
            cursor: *cursor,
            given,
            results: Vec::new(),
            at,
            types_at: at,
        })
    }

    pub(super) fn types(&mut self, at: usize, types: &[TensorType]) {
        self.types_at = at;
        self.results = types.to_vec();
    }

    /// An attribute that may be left out.
    pub fn optional<T: Attr>(&mut self, name: &'static str) -> Result<Option<T>, ParseError> {
        let Some(given) = self.given.iter_mut().find(|g| g.name == name) else {
            return Ok(None);
        };
        given.read = true;
        let (at, value) = (given.value_at, given.value);
        match T::read(value) {
            Some(value) => Ok(Some(value)),
            None => self.wrong(at, format!("`{name}` is {}, not `{value}`", T::WHAT)),
        }
    }

    /// An attribute that is always there.
    pub fn need<T: Attr>(&mut self, name: &'static str) -> Result<T, ParseError> {
        match self.optional(name)? {
            Some(value) => Ok(value),
            None => self.wrong(self.at, format!("expected `{name}=` and {}", T::WHAT)),
        }
    }

    /// One of several words, each with what it stands for.
    pub fn choice<T: Clone>(
        &mut self,
        name: &'static str,
        words: &[(&str, T)],
    ) -> Result<T, ParseError> {
        let word: String = self.need(name)?;
        if let Some((_, value)) = words.iter().find(|(w, _)| *w == word) {
            return Ok(value.clone());
        }
        let names: Vec<String> = words.iter().map(|(w, _)| format!("`{w}`")).collect();
        let at = self.given.iter().find(|g| g.name == name);
        let at = at.map_or(self.at, |g| g.value_at);
        let names = names.join(", ");
        self.wrong(at, format!("`{name}` is one of {names}, not `{word}`"))
    }

    /// An error at an attribute, for what no single value shows.
    pub fn refuse<T>(&self, name: &str, what: impl Into<String>) -> Result<T, ParseError> {
        let at = self.given.iter().find(|g| g.name == name);
        self.wrong(at.map_or(self.at, |g| g.value_at), what)
    }

    /// The type of the first result.
    pub fn result(&self) -> Result<TensorType, ParseError> {
        match self.results.first() {
            Some(t) => Ok(t.clone()),
            None => self.wrong(self.types_at, "expected the type of the result"),
        }
    }

    /// Its extents, all of them fixed.
    pub fn shape(&self) -> Result<Vec<u64>, ParseError> {
        let t = self.result()?;
        let extent = |d: &Dim| match d {
            Dim::Fixed(n) => Some(*n),
            _ => None,
        };
        match t.shape.iter().map(extent).collect() {
            Some(shape) if t.elem == Elem::Real => Ok(shape),
            _ => self.wrong(
                self.types_at,
                format!("expected a real type of fixed size, not {t}"),
            ),
        }
    }

    /// Extents of a matrix of fixed size.
    pub fn matrix(&self) -> Result<[u64; 2], ParseError> {
        match self.shape()?[..] {
            [rows, cols] => Ok([rows, cols]),
            _ => self.wrong(self.types_at, "expected a type with two dimensions"),
        }
    }

    fn wrong<T>(&self, at: usize, what: impl Into<String>) -> Result<T, ParseError> {
        self.cursor.error(at, what)
    }

    /// Whether all attributes were read.
    pub(super) fn end(&self, op: &str) -> Parsed<()> {
        match self.given.iter().find(|g| !g.read) {
            None => Ok(()),
            Some(g) => self.wrong(g.at, format!("`{op}` has no attribute `{}` here", g.name)),
        }
    }
}
