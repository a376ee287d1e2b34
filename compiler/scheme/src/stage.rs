//! The stage program: what one step computes, as a straight line. Every scheme becomes one.
//!
//! Takes instructions from `run.rs`; gives them in order with exact coefficients in `h`, printable. Nothing downstream
//! knows which tableau, splitting or step program it came from. Leaves tensors to `odec-model`.
//!
//! A new instruction is a variant of [`StageInstr`]. Its letter, text and reader are in `text/` (docs/reference.md, *Stage programs*), its tensors in
//! `compiler/model/src/step.rs`. What value of a method it is, or why it is none, is said in `method/walk/instruction.rs`; proofs, adjoints and
//! extrapolation follow.

use super::coeff::{Coeff, CoeffError};
use super::combination::{Combination, ValueId};
use super::embedded::Embedded;
use super::flow::Leaf;
use super::learn::Learned;
use super::solver::Solver;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_solver::Mixing;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// One instruction; the `i`-th one makes value `i + 1`.
#[derive(Clone, Debug, PartialEq)]
pub enum StageInstr {
    /// `fields[field]` at a value, or at several. Under `weights per use`, `usage` counts, from 0, the written occurrences of the
    /// field in the flow, each with its own parameters; iterations of `repeat` and stages of a tableau share one. 0 elsewhere.
    Eval {
        field: usize,
        usage: usize,
        at: Vec<ValueId>,
        /// The time of it, in `t` and `h`, where the field may depend on it and it is known (`scheme/time.rs`).
        when: Option<Coeff>,
        span: Span,
    },
    /// A linear combination that another instruction needs as one value, or that a later step reads.
    Combine(Combination),
    /// What a name of the scheme stood for at an earlier moment of the same evolution.
    Past { name: String, when: Moment },
    /// A product, column by column; a value of width 1 multiplies every column of the other.
    Product([ValueId; 2]),
    /// The nearest point of a set.
    Project { at: ValueId, onto: Projection },
    /// The state that the exact flow of a field reaches. Only claims about splittings are proved with it ([`Steps::Exact`]);
    /// no model computes it.
    Flow {
        field: usize,
        at: ValueId,
        over: Coeff,
        span: Span,
    },
    /// `φₖ(over·L)` of a linear field L, applied to a value; φ₀ is the exponential.
    Phi {
        field: usize,
        index: u32,
        /// A multiple of h.
        over: Coeff,
        at: ValueId,
        span: Span,
    },
    /// The next iterate of one of the unknowns that are solved for together, after what was seen so far, newest first. A
    /// token that is solved keeps its newest one.
    Mix {
        of: usize,
        seen: Vec<Iterates>,
        mixing: Mixing,
    },
    /// The same value, through which no gradient passes.
    Stop(ValueId),
    /// Normal numbers of mean 0 in the place of a value's, the n-th of the program.
    Normal {
        like: ValueId,
        std: Exact,
        number: usize,
    },
    /// What an equation makes of its solution, for one of its unknowns; the gradient passes by the implicit function theorem.
    Solution {
        of: usize,
        unknowns: Iterates,
        solver: Solver,
    },
    /// The solution of an equation, for those that read coefficients alone (`unknown.rs`).
    Unknown(Unknown),
}

/// An unknown of an equation that is solved to a tolerance.
#[derive(Clone, Debug, PartialEq)]
pub enum Unknown {
    /// What solves the equation: earlier values, and evaluations and past values that may be made after it.
    Solved {
        sum: Combination,
        /// Why the iterations that are computed do not get there.
        away: Option<String>,
        span: Span,
    },
    /// Nothing is known of it.
    Without { why: &'static str, span: Span },
}

/// Of each unknown, a value and what the equation makes of it.
pub type Iterates = Vec<[ValueId; 2]>;

/// How the fields of a splitting are advanced where no inner scheme is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// By one Euler step.
    Euler,
    /// By their exact flows.
    Exact,
}

/// A set of states, token by token, and the projection onto it: `argmin ½‖v − u‖²`.
#[derive(Clone, Debug, PartialEq)]
pub enum Projection {
    /// No column is negative.
    Nonnegative,
    /// The columns have this mean and this deviation: `std·(u − mean(u))/√(var(u) + eps) + mean` (Tai et al. 2025,
    /// Theorem 3.1).
    Moments { mean: Coeff, std: Coeff, eps: Exact },
}

impl StageInstr {
    /// The values it reads.
    pub fn reads(&self) -> Vec<ValueId> {
        match self {
            StageInstr::Eval { at, .. } => at.clone(),
            StageInstr::Combine(c) => c.terms().map(|(v, _)| v).collect(),
            StageInstr::Past { .. } => Vec::new(),
            StageInstr::Product(of) => of.to_vec(),
            StageInstr::Project { at, .. }
            | StageInstr::Flow { at, .. }
            | StageInstr::Phi { at, .. }
            | StageInstr::Stop(at) => vec![*at],
            StageInstr::Normal { like, .. } => vec![*like],
            StageInstr::Mix { seen, .. } => seen.iter().flatten().flatten().copied().collect(),
            StageInstr::Solution { unknowns, .. } => unknowns.iter().flatten().copied().collect(),
            StageInstr::Unknown(u) => u
                .sum()
                .into_iter()
                .flat_map(Combination::terms)
                .map(|(v, _)| v)
                .collect(),
        }
    }

    /// The same with other names for the values; they must be different again.
    pub fn renamed(&self, to: &dyn Fn(ValueId) -> ValueId) -> StageInstr {
        let all = |pairs: &Iterates| pairs.iter().map(|p| p.map(to)).collect();
        match self {
            StageInstr::Stop(at) => StageInstr::Stop(to(*at)),
            StageInstr::Normal { like, std, number } => StageInstr::Normal {
                like: to(*like),
                std: std.clone(),
                number: *number,
            },
            StageInstr::Mix { of, seen, mixing } => StageInstr::Mix {
                of: *of,
                seen: seen.iter().map(all).collect(),
                mixing: mixing.clone(),
            },
            StageInstr::Solution {
                of,
                unknowns,
                solver,
            } => StageInstr::Solution {
                of: *of,
                unknowns: all(unknowns),
                solver: solver.clone(),
            },
            StageInstr::Eval {
                field,
                usage,
                at,
                when,
                span,
            } => StageInstr::Eval {
                field: *field,
                usage: *usage,
                at: at.iter().map(|v| to(*v)).collect(),
                when: when.clone(),
                span: *span,
            },
            StageInstr::Combine(c) => StageInstr::Combine(c.renamed(to)),
            StageInstr::Unknown(u) => StageInstr::Unknown(u.renamed(to)),
            StageInstr::Past { .. } => self.clone(),
            StageInstr::Product(of) => StageInstr::Product(of.map(to)),
            StageInstr::Project { at, onto } => StageInstr::Project {
                at: to(*at),
                onto: onto.clone(),
            },
            StageInstr::Flow {
                field,
                at,
                over,
                span,
            } => StageInstr::Flow {
                field: *field,
                at: to(*at),
                over: over.clone(),
                span: *span,
            },
            StageInstr::Phi { at, .. } => {
                let mut own = self.clone();
                if let StageInstr::Phi { at: moved, .. } = &mut own {
                    *moved = to(*at);
                }
                own
            }
        }
    }

    /// The field whose parameters it reads, and which of its places.
    pub fn uses(&self) -> Option<(usize, usize)> {
        match self {
            StageInstr::Eval { field, usage, .. } => Some((*field, *usage)),
            StageInstr::Phi { field, .. } => Some((*field, 0)),
            _ => None,
        }
    }

    /// With a number for one symbol.
    fn with(&self, symbol: &str, value: &Exact) -> Result<StageInstr, CoeffError> {
        let mut own = self.clone();
        match &mut own {
            StageInstr::Combine(c) => *c = c.with(symbol, value)?,
            StageInstr::Unknown(Unknown::Solved { sum, .. }) => *sum = sum.with(symbol, value)?,
            StageInstr::Project {
                onto: Projection::Moments { mean, std, .. },
                ..
            } => {
                *mean = mean.with(symbol, value)?;
                *std = std.with(symbol, value)?;
            }
            StageInstr::Flow { over, .. } | StageInstr::Phi { over, .. } => {
                *over = over.with(symbol, value)?;
            }
            StageInstr::Eval {
                when: Some(when), ..
            } => *when = when.with(symbol, value)?,
            _ => {}
        }
        Ok(own)
    }

    /// The coefficients that it is computed with.
    fn coefficients(&self) -> Vec<&Coeff> {
        match self {
            StageInstr::Combine(c) | StageInstr::Unknown(Unknown::Solved { sum: c, .. }) => {
                c.terms().map(|(_, c)| c).collect()
            }
            StageInstr::Project {
                onto: Projection::Moments { mean, std, .. },
                ..
            } => vec![mean, std],
            StageInstr::Flow { over, .. } | StageInstr::Phi { over, .. } => vec![over],
            _ => Vec::new(),
        }
    }

    fn symbols(&self) -> BTreeSet<Arc<str>> {
        let all = self.coefficients().into_iter();
        all.flat_map(Coeff::symbols).collect()
    }
}

impl Unknown {
    /// What solves its equation.
    pub fn sum(&self) -> Option<&Combination> {
        match self {
            Unknown::Solved { sum, .. } => Some(sum),
            Unknown::Without { .. } => None,
        }
    }

    fn renamed(&self, to: &dyn Fn(ValueId) -> ValueId) -> Unknown {
        let mut own = self.clone();
        if let Unknown::Solved { sum, .. } = &mut own {
            *sum = sum.renamed(to);
        }
        own
    }
}

/// Added inside the root of a norm or a projection, unless it says otherwise.
pub fn default_eps() -> Exact {
    Exact::ratio(1, 100_000)
}

/// A part of an evolution that has a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// What `start { … }` says, before the first step.
    Start,
    /// From 0.
    Step(usize),
}

/// A moment before the step at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The end of the step so many steps ago, at least 1; what `start` made counts as the end of a step.
    Ago(usize),
    /// The start of the evolution.
    Start,
}

/// One step of a flow, or what it does before its first step.
#[derive(Clone, Debug, PartialEq)]
pub struct StageProgram {
    /// The flow as it would be written, and the steps where they differ: `iie(layer, r: 3)`, `ab2(layer), step 0`.
    pub title: String,
    /// The fields, in order of first evaluation.
    pub fields: Vec<Rc<Leaf>>,
    /// Sets of parameters of each field: written occurrences under `weights per use`.
    pub usages: Vec<usize>,
    pub instrs: Vec<StageInstr>,
    /// The learned coefficients that occur, in the order of their declarations.
    pub learned: Vec<Learned>,
    /// What is computed from them once per step, in this order.
    pub derived: Vec<Derived>,
    /// Names of the scheme whose values at the end of this step later ones may read.
    pub keeps: Vec<(String, ValueId)>,
    /// What the source calls values, where it gives them a name.
    pub called: Vec<(ValueId, String)>,
    /// The state after the step.
    pub result: Combination,
    /// A second result, which steps of a fixed size do not use.
    pub embedded: Option<Embedded>,
}

/// A coefficient that is computed from others: `over/under`.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    /// The symbol in coefficients.
    pub name: String,
    pub over: Coeff,
    pub under: Coeff,
}

impl fmt::Display for Derived {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.under.is_one() {
            true => write!(f, "{} = {}", self.name, self.over),
            false => write!(f, "{} = ({})/({})", self.name, self.over, self.under),
        }
    }
}

impl StageProgram {
    /// Evaluations of fields in one step.
    pub fn evaluations(&self) -> usize {
        evaluations(&self.instrs)
    }

    /// What mixing costs, which a tensor graph has all of: the square of what is remembered, in every iteration.
    pub fn mixing(&self) -> usize {
        let squared = |i: &StageInstr| match i {
            StageInstr::Mix { of: 0, seen, .. } => seen.len() * seen.len(),
            _ => 0,
        };
        self.instrs.iter().map(squared).sum()
    }

    /// With a number for one symbol.
    pub fn with(&mut self, symbol: &str, value: &Exact) -> Result<(), CoeffError> {
        let partner = self.embedded.iter_mut().flat_map(|e| &mut e.instrs);
        for i in self.instrs.iter_mut().chain(partner) {
            *i = i.with(symbol, value)?;
        }
        let partner = self.embedded.iter_mut().map(|e| &mut e.result);
        for c in partner.chain([&mut self.result]) {
            *c = c.with(symbol, value)?;
        }
        Ok(())
    }

    /// Makes what only the partner needs part of the step: a step of a size that its error decides over computes both.
    pub fn take_in_partner(&mut self) {
        if let Some(partner) = &mut self.embedded {
            self.instrs.append(&mut partner.instrs);
        }
        for i in &self.instrs {
            if let Some((field, usage)) = i.uses() {
                self.usages[field] = self.usages[field].max(usage + 1);
            }
        }
    }

    /// The coefficients of the step and of its partner.
    pub fn coefficients(&self) -> impl Iterator<Item = &Coeff> {
        let partner = self.embedded.iter();
        let partner = partner.flat_map(|e| {
            let instrs = e.instrs.iter().flat_map(StageInstr::coefficients);
            instrs.chain(e.result.terms().map(|(_, c)| c))
        });
        let own = self.instrs.iter().flat_map(StageInstr::coefficients);
        own.chain(self.result.terms().map(|(_, c)| c))
            .chain(partner)
    }

    /// The symbols in the coefficients of the step and of its partner.
    pub fn all_symbols(&self) -> BTreeSet<Arc<str>> {
        self.coefficients().flat_map(Coeff::symbols).collect()
    }

    /// The symbols in the step's own coefficients.
    pub fn symbols(&self) -> BTreeSet<Arc<str>> {
        let instrs = self.instrs.iter().flat_map(StageInstr::symbols);
        instrs.chain(self.result.symbols()).collect()
    }
}

pub(super) fn evaluations(instrs: &[StageInstr]) -> usize {
    let eval = |i: &&StageInstr| matches!(i, StageInstr::Eval { .. });
    instrs.iter().filter(eval).count()
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Moment::Ago(steps) => write!(f, "[-{steps}]"),
            Moment::Start => f.write_str(" of the start"),
        }
    }
}
