//! Reads the textual form of stage programs, line by line.

use super::print::more;
use super::sum::path;
use super::{KINDS, kind};
use crate::embedded::Embedded;
use crate::flow::Leaf;
use crate::layer::Layers;
use crate::learn::Learned;
use crate::resolve::count;
use crate::stage::{Derived, StageInstr, StageProgram, evaluations};
use crate::{Coeff, Combination, Facts, ValueId};
use odec_exact::Exact;
use odec_grammar::Span;
use odec_text::cursor::{Cursor, ParseError, Parsed};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// All programs of a text. Fields are names: what they are is not in it.
///
/// # Errors
/// The first place where the text is not of this form, or names what is not there.
pub fn parse(text: &str) -> Result<Vec<StageProgram>, ParseError> {
    let mut reader = Reader {
        text,
        cursor: Cursor::new(text),
        values: BTreeMap::new(),
        made: 0,
        ahead: false,
        fields: Vec::new(),
        closed: false,
        symbols: None,
        normals: 0,
        numbers: BTreeMap::new(),
        span: Span {
            source: 0,
            start: 0,
            end: 0,
        },
    };
    let mut programs = Vec::new();
    while reader.line() != Line::End {
        programs.push(reader.program()?);
    }
    Ok(programs)
}

#[derive(PartialEq)]
enum Line {
    Title,
    /// An indented one.
    Body,
    End,
}

pub(super) struct Reader<'t> {
    text: &'t str,
    pub cursor: Cursor<'t>,
    /// The values of the program at hand, those of lines below too.
    values: BTreeMap<&'t str, ValueId>,
    /// How many of them lines above make.
    made: u32,
    /// Whether those of lines below may be read.
    pub ahead: bool,
    fields: Vec<&'t str>,
    /// Whether there are no others.
    closed: bool,
    /// What coefficients may name; `None`: anything.
    symbols: Option<BTreeSet<String>>,
    /// Random numbers so far.
    pub normals: usize,
    /// Numbers that were read, by their texts: roots of polynomials take long, and steps repeat them.
    pub numbers: BTreeMap<&'t str, Exact>,
    /// Where everything is written: nowhere.
    pub span: Span,
}

fn is_title(line: &str) -> bool {
    let other = line.trim_start().is_empty() || line.starts_with("//");
    !other && !line.starts_with(char::is_whitespace)
}

impl<'t> Reader<'t> {
    /// Goes to the next line that says something, behind its indentation.
    fn line(&mut self) -> Line {
        loop {
            let from = self.text[..self.cursor.at].rfind('\n');
            let line = self.text[from.map_or(0, |n| n + 1)..].lines().next();
            let title = line.is_some_and(is_title);
            match (title, self.cursor.rest().is_empty()) {
                (true, _) => return Line::Title,
                (false, false) => return Line::Body,
                (false, true) if !self.cursor.next_line() => return Line::End,
                _ => {}
            }
        }
    }

    /// Ends a line.
    fn end(&mut self) -> Parsed<()> {
        self.cursor.end()?;
        self.cursor.next_line();
        Ok(())
    }

    fn program(&mut self) -> Parsed<StageProgram> {
        if self.line() == Line::Body {
            return self.cursor.expected("a title, which is not indented");
        }
        let title_at = self.cursor.at;
        let line = self.cursor.left().lines().next().unwrap_or_default();
        let shown = line.trim_end();
        let untitled = || shown.strip_prefix("— ").map(|rest| ("", rest));
        let Some((title, evaluated)) = shown.rsplit_once(" — ").or_else(untitled) else {
            self.cursor.at += line.len();
            let what = "expected ` — ` and a number of evaluations behind the title";
            return self.cursor.error(self.cursor.at, what);
        };
        let evaluated_at = title_at + shown.len() - evaluated.len();
        self.cursor.at += line.len();
        self.cursor.next_line();
        self.begin();
        if self.begins("fields") {
            self.fields()?;
        }
        let mut learned = Vec::new();
        while self.begins("learn") {
            learned.push(self.learned()?);
        }
        let mut derived = Vec::new();
        while self.begins("let") {
            derived.push(self.derived()?);
        }
        let instrs = self.instrs()?;
        let mut keeps = Vec::new();
        while self.begins("keep") {
            let name = self
                .cursor
                .name("a name that later steps read")?
                .to_string();
            self.cursor.need("=")?;
            keeps.push((name, self.value()?));
            self.end()?;
        }
        let result = self.result("`learn`, `k1 = …`, `keep` or `return`")?;
        let own = evaluations(&instrs);
        self.counts(evaluated_at, evaluated, &count(own, "evaluation"))?;
        let embedded = match self.begins("embedded") {
            true => Some(self.embedded()?),
            false => None,
        };
        if self.line() == Line::Body {
            return self
                .cursor
                .expected("`embedded`, or the title of a program");
        }
        let fields = self.fields.iter().map(|name| self.leaf(name));
        let fields: Vec<Rc<Leaf>> = fields.collect();
        let mut usages = vec![0; fields.len()];
        for (field, usage) in instrs.iter().filter_map(StageInstr::uses) {
            usages[field] = usages[field].max(usage + 1);
        }
        Ok(StageProgram {
            title: title.to_string(),
            fields,
            usages,
            instrs,
            learned,
            derived,
            keeps,
            called: Vec::new(),
            result,
            embedded,
        })
    }

    /// Finds the values that lines below make.
    fn begin(&mut self) {
        self.values = BTreeMap::from([("x", ValueId::STATE)]);
        (self.made, self.normals) = (0, 0);
        self.fields.clear();
        self.closed = false;
        self.symbols = Some(["h", "t"].map(String::from).into());
        let lines = self.cursor.left().lines().take_while(|l| !is_title(l));
        let mut made = 0;
        for name in lines.map(first).filter(|name| kind(name).is_some()) {
            made += 1;
            self.values.entry(name).or_insert(ValueId(made));
        }
    }

    fn fields(&mut self) -> Parsed<()> {
        loop {
            let at = self.place();
            match path(&mut self.cursor) {
                Some(name) if self.fields.contains(&name) => {
                    return self.cursor.error(at, format!("`{name}` is named twice"));
                }
                Some(name) => self.fields.push(name),
                None => return self.cursor.expected("the name of a field"),
            }
            if !self.cursor.take(",") {
                break;
            }
        }
        self.closed = true;
        self.end()
    }

    fn leaf(&self, name: &str) -> Rc<Leaf> {
        Rc::new(Leaf {
            name: name.to_string(),
            params: Vec::new(),
            body: None,
            layers: Layers::default(),
            facts: Facts::OPEN,
            span: self.span,
        })
    }

    /// `learn shared per channel a[1][0] = 1/2`.
    fn learned(&mut self) -> Parsed<Learned> {
        let shared = self.kind_of_learned("shared");
        let per_channel = self.kind_of_learned("per");
        if per_channel {
            self.keyword("channel")?;
        }
        let name = self.symbol()?;
        self.cursor.need("=")?;
        let init = self.number()?;
        self.end()?;
        self.define(&name);
        Ok(Learned {
            path: name.replace('[', ".").replace(']', ""),
            name,
            shared,
            per_channel,
            init,
            span: self.span,
            owner: None,
        })
    }

    /// Takes a word unless it is what is learned.
    fn kind_of_learned(&mut self, word: &str) -> bool {
        let before = self.cursor;
        let found = self.word(word) && !self.cursor.rest().starts_with(['=', '[']);
        if !found {
            self.cursor = before;
        }
        found
    }

    /// `let b[1] = 1/2 - u[0]`, `let u[1] = (-1/2*u[0])/(1 + u[0])`.
    fn derived(&mut self) -> Parsed<Derived> {
        let name = self.symbol()?;
        self.cursor.need("=")?;
        let before = self.cursor;
        let (over, under) = match self.quotient() {
            Ok(quotient) => quotient,
            Err(_) => {
                self.cursor = before;
                (self.coefficient()?, Coeff::one())
            }
        };
        self.end()?;
        self.define(&name);
        Ok(Derived { name, over, under })
    }

    fn quotient(&mut self) -> Parsed<(Coeff, Coeff)> {
        self.cursor.need("(")?;
        let over = self.coefficient()?;
        self.cursor.need(")")?;
        self.cursor.need("/")?;
        self.cursor.need("(")?;
        let under = self.coefficient()?;
        self.cursor.need(")")?;
        self.cursor.end()?;
        Ok((over, under))
    }

    /// From here on, coefficients may name this one.
    fn define(&mut self, name: &str) {
        self.symbols.iter_mut().for_each(|s| {
            s.insert(name.to_string());
        });
    }

    /// Whether coefficients may name it here.
    pub fn knows(&self, name: &str) -> bool {
        self.symbols.as_ref().is_none_or(|s| s.contains(name))
    }

    fn instrs(&mut self) -> Parsed<Vec<StageInstr>> {
        let mut instrs = Vec::new();
        while self.line() == Line::Body {
            let name = first(self.cursor.rest());
            let Some(letter) = kind(name) else { break };
            let at = self.cursor.at;
            if self.values.get(name) != Some(&ValueId(self.made + 1)) {
                let what = format!("`{name}` is made above already");
                return self.cursor.error(at, what);
            }
            self.cursor.at += name.len();
            if !self.cursor.take("=") {
                let what = KINDS.iter().find(|(l, _)| *l == letter);
                let what = what.map_or("a value", |(_, what)| what);
                return self.cursor.expected(&format!("`=` and {what}"));
            }
            instrs.push(self.made_by(letter)?);
            self.end()?;
            self.made += 1;
        }
        Ok(instrs)
    }

    /// `return x + h*k1`.
    fn result(&mut self, expected: &str) -> Parsed<Combination> {
        if !self.begins("return") {
            return self.cursor.expected(expected);
        }
        let result = self.sum()?;
        self.end()?;
        Ok(result)
    }

    fn embedded(&mut self) -> Parsed<Embedded> {
        let rest = self.cursor.rest();
        let (at, said) = (self.cursor.at, rest.trim_end());
        self.cursor.at += rest.len();
        self.end()?;
        // Coefficients that the partner alone reads are not declared: a step of a fixed size does not have them.
        self.symbols = None;
        let instrs = self.instrs()?;
        let result = self.result("`k1 = …` or `return`")?;
        let counted = more(evaluations(&instrs));
        self.counts(at, said, counted.trim_start())?;
        Ok(Embedded { instrs, result })
    }

    fn counts(&self, at: usize, said: &str, counted: &str) -> Parsed<()> {
        match (said == counted, counted) {
            (true, _) => Ok(()),
            (_, "") => self.cursor.error(at, "expected the end of the line"),
            _ => self.cursor.error(at, format!("expected `{counted}`")),
        }
    }

    /// Whether an indented line begins with a word; goes behind it.
    fn begins(&mut self, word: &str) -> bool {
        self.line() == Line::Body && self.word(word)
    }

    /// Where the next sign stands.
    pub fn place(&mut self) -> usize {
        self.cursor.rest();
        self.cursor.at
    }

    /// Takes a word.
    pub fn word(&mut self, word: &str) -> bool {
        let found = first(self.cursor.rest()) == word;
        if found {
            self.cursor.at += word.len();
        }
        found
    }

    pub fn keyword(&mut self, word: &str) -> Parsed<()> {
        match self.word(word) {
            true => Ok(()),
            false => self.cursor.expected(&format!("`{word}`")),
        }
    }

    /// Takes `tol:`.
    pub fn label(&mut self, name: &str) -> bool {
        let before = self.cursor;
        let found = self.word(name) && self.cursor.take(":");
        if !found {
            self.cursor = before;
        }
        found
    }

    pub fn labelled(&mut self, name: &str) -> Parsed<()> {
        match self.label(name) {
            true => Ok(()),
            false => self.cursor.expected(&format!("`{name}:`")),
        }
    }

    pub fn whole(&mut self, what: &str) -> Parsed<usize> {
        let at = self.place();
        match self.cursor.name(what)?.parse() {
            Ok(n) => Ok(n),
            Err(_) => self.cursor.error(at, format!("expected {what}")),
        }
    }

    /// A number from 1; gives it from 0.
    pub fn counted(&mut self, what: &str) -> Parsed<usize> {
        let at = self.place();
        match self.whole(what)?.checked_sub(1) {
            Some(n) => Ok(n),
            None => self.cursor.error(at, format!("expected {what}")),
        }
    }

    pub fn value(&mut self) -> Parsed<ValueId> {
        let at = self.place();
        let name = self.cursor.name("a value, such as `x` or `k1`")?;
        self.found(at, name)
    }

    /// Values up to a closing sign, at least one.
    pub fn values(&mut self, close: &str) -> Parsed<Vec<ValueId>> {
        let mut values = vec![self.value()?];
        while !self.cursor.take(close) {
            if !self.cursor.take(",") {
                return self.cursor.expected(&format!("`,` or `{close}`"));
            }
            values.push(self.value()?);
        }
        Ok(values)
    }

    /// The value that a name stands for here.
    pub fn found(&self, at: usize, name: &str) -> Parsed<ValueId> {
        match self.values.get(name) {
            Some(v) if v.0 <= self.made || self.ahead => Ok(*v),
            Some(_) => self.cursor.error(at, format!("`{name}` is not made above")),
            None => {
                let what = format!("this program makes no value `{name}`");
                self.cursor.error(at, what)
            }
        }
    }

    pub fn field_called(&mut self, at: usize, name: &'t str) -> Parsed<usize> {
        if let Some(known) = self.fields.iter().position(|f| *f == name) {
            return Ok(known);
        }
        if self.closed {
            let what = format!("`{name}` is none of the fields of this program");
            return self.cursor.error(at, what);
        }
        self.fields.push(name);
        Ok(self.fields.len() - 1)
    }
}

/// The word that a line begins with, behind its indentation.
fn first(line: &str) -> &str {
    let line = line.trim_start();
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    &line[..line.find(|c| !part(c)).unwrap_or(line.len())]
}
