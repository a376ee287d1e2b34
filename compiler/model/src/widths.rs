//! The widths of the values of a stage program, and the layers of its fields at these widths.
//!
//! A field reads values of the width it is evaluated at, so that `[linear(4*width), linear(width)]` may follow each other
//! in a step. States that are added have one width; a value of width 1 may multiply any other. Leaves what a
//! field is made of to `pipeline.rs`.

use super::layers::OfModel;
use super::layers::network::Network;
use super::layers::pipeline::{self, ends_with};
use crate::codes;
use crate::scheme::{Combination, StageInstr, StageProgram, ValueId};
use odec_grammar::Span;
use odec_grammar::ast::{Body, BodyStmt};
use odec_grammar::diag::Diagnostic;

/// What is known of a value: its width, and the field it comes from if that is not the state's.
type Width = (u64, Option<Span>);

/// The layers of a program's fields, in their order.
pub fn layers(
    p: &StageProgram,
    model: &OfModel,
    sink: &mut Vec<Diagnostic>,
) -> Option<Vec<Network>> {
    let mut w = Widths {
        program: p,
        model,
        values: vec![(model.sizes.width, None)],
        layers: vec![None; p.fields.len()],
        sink,
    };
    p.instrs.iter().try_for_each(|i| w.instr(i))?;
    w.state(&p.result)?;
    p.keeps.iter().try_for_each(|(name, v)| w.kept(name, *v))?;
    if let Some(e) = &p.embedded {
        e.instrs.iter().try_for_each(|i| w.instr(i))?;
        w.state(&e.result)?;
    }
    let layers = w.layers.into_iter().map(|l| l.map(|l| l.layer));
    layers.collect()
}

#[derive(Clone)]
struct Read {
    layer: Network,
    at: Vec<u64>,
    out: u64,
}

/// What a body in braces returns.
fn ended(body: &Body) -> Option<Span> {
    let Body::Block { statements, .. } = body else {
        return None;
    };
    statements.iter().find_map(|s| match s {
        BodyStmt::Return { value, .. } => Some(value.span),
        _ => None,
    })
}

struct Widths<'a> {
    program: &'a StageProgram,
    model: &'a OfModel,
    values: Vec<Width>,
    layers: Vec<Option<Read>>,
    sink: &'a mut Vec<Diagnostic>,
}

impl Widths<'_> {
    fn instr(&mut self, instr: &StageInstr) -> Option<()> {
        let made = match instr {
            StageInstr::Eval {
                field, at, span, ..
            } => {
                let at = at.iter().map(|v| self.values[v.0 as usize].0).collect();
                self.evaluated(*field, at, *span)?
            }
            StageInstr::Combine(c) => self.combined(c)?,
            // Only analyses have unknowns.
            StageInstr::Past { .. } | StageInstr::Unknown(_) => (self.model.sizes.width, None),
            StageInstr::Product([a, b]) => {
                let (a, b) = (self.values[a.0 as usize], self.values[b.0 as usize]);
                match (a, b) {
                    ((1, _), other) | (other, (1, _)) => other,
                    _ => self.equal(a, b)?,
                }
            }
            StageInstr::Phi {
                field, at, span, ..
            } => {
                let at = self.values[at.0 as usize].0;
                self.evaluated(*field, vec![at], *span)?
            }
            StageInstr::Normal { like: at, .. }
            | StageInstr::Project { at, .. }
            | StageInstr::Flow { at, .. }
            | StageInstr::Stop(at) => self.values[at.0 as usize],
            StageInstr::Mix { of, seen, .. } => {
                for [z, f] in seen.iter().flatten() {
                    self.equal(self.values[z.0 as usize], self.values[f.0 as usize])?;
                }
                self.values[seen[0][*of][1].0 as usize]
            }
            StageInstr::Solution { of, unknowns, .. } => {
                for [z, f] in unknowns {
                    self.equal(self.values[z.0 as usize], self.values[f.0 as usize])?;
                }
                self.values[unknowns[*of][1].0 as usize]
            }
        };
        self.values.push(made);
        Some(())
    }

    fn evaluated(&mut self, field: usize, at: Vec<u64>, span: Span) -> Option<Width> {
        let leaf = &self.program.fields[field];
        let out = match &self.layers[field] {
            Some(read) if read.at == at => read.out,
            Some(read) => {
                let message = format!(
                    "`{}` is evaluated at width {} here, and at {} before",
                    leaf.name,
                    shown(&at),
                    shown(&read.at)
                );
                let d = Diagnostic::error(codes::WIDTH_MISMATCH, span, message);
                self.sink
                    .push(d.also(leaf.span, "its parameters fit one width"));
                return None;
            }
            None => {
                let (layer, out) = pipeline::read(leaf, &at, self.model, self.sink)?;
                self.layers[field] = Some(Read { layer, at, out });
                out
            }
        };
        Some((
            out,
            Some(leaf.span).filter(|_| out != self.model.sizes.width),
        ))
    }

    fn combined(&mut self, c: &Combination) -> Option<Width> {
        let mut terms = c.terms().map(|(v, _)| self.values[v.0 as usize]);
        let Some(first) = terms.next() else {
            return Some((self.model.sizes.width, None));
        };
        let terms: Vec<Width> = terms.collect();
        terms.into_iter().try_fold(first, |a, b| self.equal(a, b))
    }

    fn equal(&mut self, a: Width, b: Width) -> Option<Width> {
        if a.0 == b.0 {
            return Some(a);
        }
        // at most one of two different widths is the state's
        let (narrow, other) = if a.1.is_some() { (a, b) } else { (b, a) };
        self.wrong(narrow, other.0)
    }

    fn state(&mut self, result: &Combination) -> Option<()> {
        let end = self.combined(result)?;
        match end.0 == self.model.sizes.width {
            true => Some(()),
            false => self.wrong(end, self.model.sizes.width).map(drop),
        }
    }

    /// What later steps read is as wide as the state.
    fn kept(&mut self, name: &str, v: ValueId) -> Option<()> {
        let (out, field) = self.values[v.0 as usize];
        let width = self.model.sizes.width;
        if out == width {
            return Some(());
        }
        let span = field.unwrap_or(self.program.fields[0].span);
        let message = format!("`{name}` has width {out}, and later steps read it");
        self.sink.push(
            Diagnostic::error(codes::WIDTH_MISMATCH, span, message)
                .label(format!("this field ends with width {out}"))
                .help(format!(
                    "a history is as wide as the state, {width}: before the first step its entries are zeros of that width"
                )),
        );
        None
    }

    fn wrong(&mut self, (out, field): Width, other: u64) -> Option<Width> {
        let span = field.unwrap_or(self.program.fields[0].span);
        let mut d = match other == self.model.sizes.width {
            true => ends_with(span, out, other),
            false => {
                let message = format!("values of width {out} and {other} cannot be added");
                Diagnostic::error(codes::WIDTH_MISMATCH, span, message)
                    .label(format!("this field ends with width {out}"))
            }
        };
        let leaf = self.program.fields.iter().find(|l| l.span == span);
        if let Some(end) = leaf.and_then(|l| l.body.as_ref()).and_then(ended) {
            d = d.also(end, format!("this has width {out}"));
        }
        d = match out {
            1 => d.help("a value of width 1 can multiply a state: `g*k1`"),
            _ => d.help("a field maps the state to its rate of change: both have the same width, for example by `|> linear(width)` at its end"),
        };
        self.sink.push(d);
        None
    }
}

fn shown(widths: &[u64]) -> String {
    let shown: Vec<String> = widths.iter().map(u64::to_string).collect();
    shown.join(" and ")
}
