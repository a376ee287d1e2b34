//! The stage program: what one step computes, as a straight line. Every scheme becomes one.
//!
//! Takes instructions from `run.rs`; gives them in order with exact coefficients in `h`, printable. Nothing downstream
//! knows which tableau, splitting or step program it came from. Leaves tensors to [`crate::model`].

use super::combination::{Combination, ValueId};
use super::embedded::Embedded;
use super::flow::Leaf;
use super::learn::Learned;
use super::resolve::count;
use odec_grammar::Span;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// One instruction; the `i`-th one makes value `i + 1`.
#[derive(Clone, Debug, PartialEq)]
pub enum Instr {
    /// `fields[field]` at a value. `usage` counts, from 0, the written occurrences of the field in the flow: under
    /// `weights per use` each has its own parameters; iterations of `repeat` and stages of a tableau share one.
    Eval {
        field: usize,
        usage: usize,
        at: ValueId,
        span: Span,
    },
    /// A linear combination that an evaluation needs as its argument.
    Combine(Combination),
}

/// One step of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The flow as it would be written: `iie(layer, r: 3)`.
    pub title: String,
    /// The fields, in order of first evaluation.
    pub fields: Vec<Rc<Leaf>>,
    /// Written occurrences of each field.
    pub usages: Vec<usize>,
    pub instrs: Vec<Instr>,
    /// The learned coefficients that occur, in the order of their declarations.
    pub learned: Vec<Learned>,
    /// The state after the step.
    pub result: Combination,
    /// A second result, which steps of a fixed size do not use.
    pub embedded: Option<Embedded>,
}

impl Program {
    /// Evaluations of fields in one step.
    pub fn evaluations(&self) -> usize {
        evaluations(&self.instrs)
    }

    /// The symbols in the step's own coefficients.
    pub fn symbols(&self) -> BTreeSet<Arc<str>> {
        let combinations = self.instrs.iter().filter_map(|i| match i {
            Instr::Combine(c) => Some(c),
            Instr::Eval { .. } => None,
        });
        let all = combinations.chain([&self.result]);
        all.flat_map(Combination::symbols).collect()
    }

    /// Names of all values: `x`, evaluations `k1, k2 …`, combinations `y1, y2 …`.
    fn names(&self) -> Vec<String> {
        let (mut evals, mut combos) = (0, 0);
        let mut names = vec!["x".to_string()];
        let partner = self.embedded.iter().flat_map(|e| &e.instrs);
        names.extend(self.instrs.iter().chain(partner).map(|i| match i {
            Instr::Eval { .. } => {
                evals += 1;
                format!("k{evals}")
            }
            Instr::Combine(_) => {
                combos += 1;
                format!("y{combos}")
            }
        }));
        names
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(
            f,
            "{} — {}",
            self.title,
            count(self.evaluations(), "evaluation")
        )?;
        for l in &self.learned {
            let kind = [(l.shared, " shared"), (l.per_channel, " per channel")];
            let kind = kind.iter().filter(|(is, _)| *is);
            let kind: String = kind.map(|(_, word)| *word).collect();
            writeln!(f, "  learn{kind} {} = {}", l.name, l.init)?;
        }
        let names = self.names();
        self.part(f, &names, 0, &self.instrs, &self.result)?;
        let Some(e) = &self.embedded else {
            return Ok(());
        };
        match evaluations(&e.instrs) {
            0 => writeln!(f, "  embedded")?,
            n => writeln!(f, "  embedded — {} more", count(n, "evaluation"))?,
        }
        self.part(f, &names, self.instrs.len(), &e.instrs, &e.result)
    }
}

impl Program {
    /// Instructions, the first of which makes value `from + 1`, and a result.
    fn part(
        &self,
        f: &mut fmt::Formatter,
        names: &[String],
        from: usize,
        instrs: &[Instr],
        result: &Combination,
    ) -> fmt::Result {
        let name = |v: ValueId| names[v.0 as usize].clone();
        for (i, instr) in instrs.iter().enumerate() {
            let made = &names[from + i + 1];
            match instr {
                Instr::Eval { field, at, .. } => {
                    writeln!(f, "  {made} = {}({})", self.fields[*field].name, name(*at))?
                }
                Instr::Combine(c) => writeln!(f, "  {made} = {}", c.display(&name))?,
            }
        }
        writeln!(f, "  return {}", result.display(&name))
    }
}

fn evaluations(instrs: &[Instr]) -> usize {
    let eval = |i: &&Instr| matches!(i, Instr::Eval { .. });
    instrs.iter().filter(eval).count()
}
