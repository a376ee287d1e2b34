//! One step of a stage program in a graph.
//!
//! Takes the program, the state, and what its fields are; gives the next state. Leaves the inside of fields and which coefficients
//! are learned to the caller: a model's fields are layers, those of `odec-compiler`'s measurements known differential equations.

use super::coefficient::Coefficients;
use crate::error::BuildError;
use crate::scheme::solver::Solver;
use crate::scheme::stage::{Iterates, Moment, Projection, StageProgram};
use crate::scheme::{Coeff, StageInstr, ValueId};
use odec_grammar::Span;
use odec_graph::diagram::NORMALIZE;
use odec_graph::ops::{Mul, StopGradient};
use odec_graph::solve::{Mixer, Mixing, Pair};
use odec_graph::{Builder, Exact, Site, Value, nn};
use std::collections::BTreeMap;

/// The part of a site where iterates of a fixed point are made.
pub const SOLVE: &str = "solve";

/// The part of a site where random numbers are drawn.
const NORMAL: &str = "normal";

/// Values that later steps of an evolution may read: of each name, oldest first.
pub type Kept = BTreeMap<String, Vec<Value>>;

/// An evaluation of a field.
pub struct Evaluation<'e> {
    /// When, where the field may depend on it.
    pub when: Option<&'e Coeff>,
    /// Its number in the program, and which written occurrence of the field it is.
    pub field: usize,
    pub usage: usize,
    pub points: &'e [Value],
}

/// A function of a linear field.
pub struct Function<'f> {
    pub field: usize,
    pub index: u32,
    pub over: &'f Coeff,
}

/// What the fields of a program are.
pub trait Fields {
    /// Builds an evaluation at the builder's site, and completes the site by the field's name.
    fn evaluate(&mut self, b: &mut Builder, e: Evaluation) -> Result<Value, BuildError>;

    /// `φₖ(over·L) x` of a linear field L.
    fn function(
        &mut self,
        b: &mut Builder,
        of: Function,
        coefficients: &mut Coefficients,
        x: Value,
    ) -> Result<Value, BuildError>;

    /// Normal numbers with the deviation `std` in the shape of a state; `number` tells those of one place apart. `None`: there is no
    /// noise.
    fn normal(
        &mut self,
        b: &mut Builder,
        like: Value,
        std: &Exact,
        number: usize,
    ) -> Result<Option<Value>, BuildError>;
}

/// Where a step stands.
pub struct Place<'p> {
    pub program: &'p StageProgram,
    pub site: Site,
    pub span: Option<Span>,
}

impl Place<'_> {
    /// Appends the step.
    pub fn step(
        &self,
        b: &mut Builder,
        x: Value,
        coefficients: &mut Coefficients,
        kept: &mut Kept,
        fields: &mut dyn Fields,
    ) -> Result<Value, BuildError> {
        Ok(self.with_error(b, x, coefficients, kept, fields)?.0)
    }

    /// Appends the step; gives also its difference to the embedded partner's, where there is one that needs nothing more
    /// ([`StageProgram::take_in_partner`]).
    pub fn with_error(
        &self,
        b: &mut Builder,
        x: Value,
        coefficients: &mut Coefficients,
        kept: &mut Kept,
        fields: &mut dyn Fields,
    ) -> Result<(Value, Option<Value>), BuildError> {
        let program = self.program;
        let mut values = vec![x];
        let mut evaluation = 0;
        let mut solves = Solves::default();
        for instr in &program.instrs {
            b.site = self.site.clone().into();
            b.span = self.span;
            values.push(match instr {
                StageInstr::Combine(c) => coefficients.combine(b, c, &values)?,
                StageInstr::Past { name, when } => past(kept, name, *when)?,
                StageInstr::Flow { .. } => return Err(BuildError::Missing("an exact flow".into())),
                StageInstr::Phi {
                    field,
                    index,
                    over,
                    at,
                    ..
                } => {
                    let of = Function {
                        field: *field,
                        index: *index,
                        over,
                    };
                    fields.function(b, of, coefficients, value(&values, *at)?)?
                }
                StageInstr::Product([u, v]) => {
                    let (u, v) = (value(&values, *u)?, value(&values, *v)?);
                    b.push1(Mul, &[u, v])?
                }
                StageInstr::Project { at, onto } => {
                    let at = value(&values, *at)?;
                    match onto {
                        Projection::Nonnegative => nn::relu(b, at)?,
                        Projection::Moments { mean, std, eps } => {
                            let part = format!("{NORMALIZE}.{}", values.len());
                            b.part(&part, |b| {
                                let x = nn::standardise(b, at, eps)?;
                                coefficients.affine(b, x, std, mean)
                            })?
                        }
                    }
                }
                StageInstr::Normal { like, std, number } => {
                    let like = value(&values, *like)?;
                    match b.part(NORMAL, |b| fields.normal(b, like, std, *number))? {
                        Some(noise) => noise,
                        None => coefficients.nothing(b, like)?,
                    }
                }
                // Only analyses have unknowns.
                StageInstr::Unknown(_) => return Err(BuildError::Missing("an unknown".into())),
                StageInstr::Stop(at) => {
                    let at = value(&values, *at)?;
                    b.push1(StopGradient, &[at])?
                }
                StageInstr::Mix { of, seen, mixing } => {
                    b.part(SOLVE, |b| solves.next(b, &values, *of, seen, mixing))?
                }
                StageInstr::Solution {
                    of,
                    unknowns,
                    solver,
                } => solves.solution(b, &values, *of, unknowns, solver)?,
                StageInstr::Eval {
                    field,
                    usage,
                    at,
                    when,
                    ..
                } => {
                    b.site.evaluation = Some(evaluation);
                    evaluation += 1;
                    let points: Result<Vec<Value>, BuildError> =
                        at.iter().map(|v| value(&values, *v)).collect();
                    let of = Evaluation {
                        when: when.as_ref(),
                        field: *field,
                        usage: *usage,
                        points: &points?,
                    };
                    fields.evaluate(b, of)?
                }
            });
        }
        b.site = self.site.clone().into();
        b.span = self.span;
        for (name, v) in &program.keeps {
            let entries = kept.entry(name.clone()).or_default();
            let v = value(&values, *v)?;
            b.name(v, name);
            entries.push(v);
        }
        // What is read of it later, and of an earlier step's value, keeps the name it has.
        for (v, name) in &program.called {
            b.name(value(&values, *v)?, name);
        }
        let result = coefficients.combine(b, &program.result, &values)?;
        let partner = program.embedded.as_ref();
        let Some(partner) = partner.filter(|p| p.instrs.is_empty()) else {
            return Ok((result, None));
        };
        let mut error = program.result.clone();
        let minus = Coeff::constant(Exact::int(-1));
        let too_large = |_| BuildError::Missing("the difference to the embedded partner".into());
        let subtracted = error.add_scaled(&minus, &partner.result);
        subtracted.map_err(too_large)?;
        let error = coefficients.combine(b, &error, &values)?;
        Ok((result, Some(error)))
    }
}

/// Fixed points of a step.
#[derive(Default)]
struct Solves {
    mixer: Mixer,
    /// All unknowns together, by what was seen.
    next: BTreeMap<Vec<Iterates>, Vec<Value>>,
    solutions: BTreeMap<Iterates, Vec<Value>>,
}

impl Solves {
    fn next(
        &mut self,
        b: &mut Builder,
        values: &[Value],
        of: usize,
        seen: &[Iterates],
        mixing: &Mixing,
    ) -> Result<Value, BuildError> {
        if !self.next.contains_key(seen) {
            let pairs: Result<Vec<Pair>, BuildError> =
                seen.iter().map(|p| pair(values, p)).collect();
            let next = self.mixer.next(b, mixing, &pairs?)?;
            self.next.insert(seen.to_vec(), next);
        }
        one(&self.next[seen], of)
    }

    fn solution(
        &mut self,
        b: &mut Builder,
        values: &[Value],
        of: usize,
        unknowns: &Iterates,
        solver: &Solver,
    ) -> Result<Value, BuildError> {
        if !self.solutions.contains_key(unknowns) {
            let made = b.solution(pair(values, unknowns)?, solver.finds.clone())?;
            self.solutions.insert(unknowns.clone(), made);
        }
        one(&self.solutions[unknowns], of)
    }
}

fn pair(values: &[Value], of: &Iterates) -> Result<Pair, BuildError> {
    let side = |i: usize| {
        of.iter()
            .map(|p| value(values, p[i]))
            .collect::<Result<_, _>>()
    };
    Ok(Pair {
        z: side(0)?,
        f: side(1)?,
    })
}

fn one(of: &[Value], i: usize) -> Result<Value, BuildError> {
    let missing = || BuildError::Missing(format!("unknown {i}"));
    of.get(i).copied().ok_or_else(missing)
}

/// What a name was at an earlier moment.
fn past(kept: &Kept, name: &str, when: Moment) -> Result<Value, BuildError> {
    let entries = kept.get(name).map_or(&[][..], Vec::as_slice);
    let entry = match when {
        Moment::Start => entries.first(),
        Moment::Ago(steps) => entries
            .len()
            .checked_sub(steps)
            .and_then(|i| entries.get(i)),
    };
    entry
        .copied()
        .ok_or_else(|| BuildError::Missing(format!("`{name}`{when}")))
}

fn value(values: &[Value], v: ValueId) -> Result<Value, BuildError> {
    values
        .get(v.0 as usize)
        .copied()
        .ok_or_else(|| BuildError::Missing(format!("value {}", v.0)))
}
