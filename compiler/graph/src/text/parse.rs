//! Reads the textual form of a graph.

use super::attrs::Attrs;
use super::site;
use crate::graph::Solution;
use crate::ops::{Builder, Graph, NAMES, OpKind};
use crate::shared::Shared;
use crate::types::{Elem, TensorType};
use crate::value::Pair;
use crate::value::Value;
use odec_program::Dim;
use odec_solver::{Mixing, Rule, Solver};
use odec_text::cursor::{Cursor, ParseError, Parsed};
use std::collections::BTreeMap;

/// The graph that a text says. What comes out has passed the types' rules; [`crate::verify()`] says the rest.
///
/// # Errors
/// The first place where the text is not of this form, names what is not there, or where an op's result is not of the type that is
/// written.
pub fn parse(text: &str) -> Result<Graph, ParseError> {
    let mut reader = Reader {
        cursor: Cursor::new(text),
        b: Builder::new(),
        names: BTreeMap::new(),
    };
    loop {
        reader.line()?;
        if !reader.cursor.next_line() {
            return Ok(reader.b.finish());
        }
    }
}

struct Reader<'t> {
    cursor: Cursor<'t>,
    b: Builder,
    /// The results of nodes by the names of the text.
    names: BTreeMap<&'t str, Vec<Value>>,
}

impl Reader<'_> {
    fn line(&mut self) -> Parsed<()> {
        let rest = self.cursor.rest();
        if rest.is_empty() {
            return Ok(());
        }
        if rest.starts_with('%') {
            return self.node();
        }
        let word = rest.split_whitespace().next().unwrap_or_default();
        self.cursor.at += match word {
            "output" | "solution" => word.len(),
            _ if rest.contains(" as step ") || rest.ends_with(':') => {
                let folded = "steps are folded here: only the text of a whole graph can be read";
                return self.cursor.error(self.cursor.at, folded);
            }
            _ => {
                return self
                    .cursor
                    .expected("`%name = op(…)`, `output` or `solution`");
            }
        };
        match word {
            "output" => self.output(),
            _ => self.solution(),
        }?;
        self.cursor.end()
    }

    fn node(&mut self) -> Parsed<()> {
        let start = self.cursor.at;
        self.cursor.need("%")?;
        let name = self.cursor.name("the name of a node")?;
        if self.names.contains_key(name) {
            return self
                .cursor
                .error(start, format!("`%{name}` is defined above already"));
        }
        self.cursor.need("=")?;
        self.cursor.rest();
        let op_at = self.cursor.at;
        let op = self.cursor.name("the name of an op")?;
        if !NAMES.contains(&op) {
            return self.cursor.error(op_at, format!("there is no op `{op}`"));
        }
        self.cursor.need("(")?;
        let operands = self.values(")")?;
        let mut attrs = Attrs::parse(&mut self.cursor)?;
        self.cursor.need(":")?;
        self.cursor.rest();
        let types_at = self.cursor.at;
        let types = self.types()?;
        attrs.types(types_at, &types);
        let kind = OpKind::from_attrs(op, &mut attrs)?;
        attrs.end(op)?;
        self.b.site = match self.cursor.take("@") {
            true => site::parse(&mut self.cursor)?.into(),
            false => Shared::default(),
        };
        self.cursor.end()?;
        let made = match self.b.push(kind, &operands) {
            Ok(made) => made,
            Err(error) => return self.cursor.error(op_at, error.to_string()),
        };
        let inferred: Vec<&TensorType> = made.iter().map(|v| self.b.ty(*v)).collect();
        if !inferred.iter().copied().eq(&types) {
            let inferred: Vec<String> = inferred.iter().map(|t| t.to_string()).collect();
            let what = format!("`{op}` gives {} here", inferred.join(", "));
            return self.cursor.error(types_at, what);
        }
        self.names.insert(name, made);
        Ok(())
    }

    fn output(&mut self) -> Parsed<()> {
        let name = self.cursor.word("the name of an output")?;
        self.cursor.need("=")?;
        let v = self.value()?;
        self.b.output(name, v);
        Ok(())
    }

    /// `solution z=[%1] f=[%2] outs=[%3] iterations=9 tol=1/1000 memory=3 rule=anderson`.
    fn solution(&mut self) -> Parsed<()> {
        let start = self.cursor.at;
        let [z, f, outs] = ["z=[", "f=[", "outs=["].map(|list| {
            self.cursor.need(list)?;
            self.values("]")
        });
        let (z, f, outs) = (z?, f?, outs?);
        if (z.len(), z.len()) != (f.len(), outs.len()) {
            return self
                .cursor
                .error(start, "a solution has as many `f` and `outs` as `z`");
        }
        let mut attrs = Attrs::parse(&mut self.cursor)?;
        let iterations: u64 = attrs.need("iterations")?;
        let mixing = match attrs.optional("tol")? {
            None => None,
            Some(tol) => Some(Mixing {
                tol,
                memory: attrs.need::<u64>("memory")? as usize,
                rule: attrs.choice(
                    "rule",
                    &[Rule::Anderson, Rule::Broyden].map(|r| (r.name(), r)),
                )?,
            }),
        };
        attrs.end("solution")?;
        self.b.graph.solutions.push(Solution {
            pair: Pair { z, f },
            outs,
            solver: Solver {
                mixing,
                iterations: iterations as usize,
            },
        });
        Ok(())
    }

    /// `%4`, or `%4.1` where a node has several results.
    fn value(&mut self) -> Parsed<Value> {
        let start = match self.cursor.rest().starts_with('%') {
            true => self.cursor.at,
            false => return self.cursor.expected("a value, such as `%4`"),
        };
        self.cursor.at += 1;
        let name = self.cursor.name("the name of a node")?;
        let Some(made) = self.names.get(name) else {
            return self
                .cursor
                .error(start, format!("`%{name}` is not defined above"));
        };
        let of = made.clone();
        let port = match self.cursor.rest().starts_with('.') {
            false if of.len() == 1 => Some(0),
            false => None,
            true if of.len() == 1 => {
                return self
                    .cursor
                    .error(start, format!("`%{name}` has one result: write `%{name}`"));
            }
            true => {
                self.cursor.at += 1;
                let port = self.cursor.name("the number of a result")?;
                port.parse().ok().filter(|p: &usize| p.to_string() == port)
            }
        };
        match port.and_then(|p| of.get(p)) {
            Some(v) => Ok(*v),
            None => {
                let what = format!("`%{name}` has {} results: `%{name}.0` and so on", of.len());
                self.cursor.error(start, what)
            }
        }
    }

    /// Values up to a closing sign.
    fn values(&mut self, close: &str) -> Parsed<Vec<Value>> {
        let mut values = Vec::new();
        if self.cursor.take(close) {
            return Ok(values);
        }
        loop {
            values.push(self.value()?);
            if self.cursor.take(close) {
                return Ok(values);
            }
            if !self.cursor.take(",") {
                return self.cursor.expected(&format!("`,` or `{close}`"));
            }
        }
    }

    fn types(&mut self) -> Parsed<Vec<TensorType>> {
        let mut types = vec![self.ty()?];
        while self.cursor.take(",") {
            types.push(self.ty()?);
        }
        Ok(types)
    }

    /// `[B, S, 64]`, `bf16[4]`, `index[B, S, 1]`.
    fn ty(&mut self) -> Parsed<TensorType> {
        self.cursor.rest();
        let start = self.cursor.at;
        let elem = match () {
            _ if self.cursor.take("bf16[") => Elem::Bf16,
            _ if self.cursor.take("index[") => Elem::Index,
            _ if self.cursor.take("[") => Elem::Real,
            _ => return self.cursor.expected("a type, such as `[B, S, 64]`"),
        };
        let mut shape = Vec::new();
        let mut open = !self.cursor.take("]");
        while open {
            shape.push(self.dim()?);
            open = !self.cursor.take("]");
            if open && !self.cursor.take(",") {
                return self.cursor.expected("`,` or `]`");
            }
        }
        let ty = TensorType {
            elem,
            shape: shape.into(),
        };
        match ty.check() {
            Ok(()) => Ok(ty),
            Err(what) => self.cursor.error(start, what),
        }
    }

    fn dim(&mut self) -> Parsed<Dim> {
        let what = "`B`, `S`, `T` or a number";
        let start = self.cursor.at;
        match self.cursor.name(what)? {
            "B" => Ok(Dim::Batch),
            "S" => Ok(Dim::Seq),
            "T" => Ok(Dim::Source),
            n => match n.parse() {
                Ok(n) => Ok(Dim::Fixed(n)),
                Err(_) => {
                    self.cursor.at = start;
                    self.cursor.expected(what)
                }
            },
        }
    }
}
