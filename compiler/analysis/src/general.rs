//! Step programs that mix stages and history as general linear methods.
//!
//! Takes a flow; runs it far from the start of an evolution, as `line.rs` does; gives the four matrices with the names of the
//! values that a step hands to the next one: the state, and what each name was so many steps ago. Leaves what is true of
//! them to `odec-numerics`.

use crate::scheme::expansion::Expanded;
use crate::scheme::flow::Flow;
use crate::scheme::line::{
    Asked, Beyond, DIFFERENT_POWERS, FUNCTION, at_start, coefficient, late, program_span,
};
use crate::scheme::per_use::SHARED;
use crate::scheme::stage::{Instr, Moment, Program, Steps, Unknown};
use crate::scheme::{Combination, ValueId};
use odec_grammar::Span;
use odec_graph::Exact;
use odec_numerics::glm::{Glm, MAX_STAGES, MAX_VALUES};
use std::collections::{BTreeMap, BTreeSet};

/// Most instructions that are looked at.
const MAX_INSTRS: usize = 4096;

/// A method, and what its values are called.
#[derive(Clone, Debug, PartialEq)]
pub struct General {
    pub glm: Glm,
    /// `x`, `x[-1]`, `h f[-2]`.
    pub names: Vec<String>,
    /// Behind the state, each name with the steps since and its power of h.
    pub(super) asked: Vec<Asked>,
}

impl General {
    /// Its expansion, where an exact starting procedure is decided.
    pub fn expanded(&self) -> Option<Expanded> {
        let (method, trees) = self.glm.expansion()?;
        Some(Expanded {
            method: Box::new(method),
            trees,
            fields: self.glm.fields.clone(),
        })
    }

    /// Whether later steps read more than the state.
    pub fn has_history(&self) -> bool {
        self.glm.values() > 1
    }
}

/// The method of a flow with a history.
pub fn general(flow: &Flow) -> Result<General, Beyond> {
    let late = late(flow, Steps::Euler, &SHARED)?;
    let here = of_program(flow, &late.here)?;
    match &late.next {
        Some(next) if of_program(flow, next)? != here => Err(late.grows),
        _ => Ok(here),
    }
}

/// A value: multiples of what came in, and of evaluations times h.
#[derive(Clone, Debug, Default)]
struct Sum {
    values: BTreeMap<usize, Exact>,
    evals: BTreeMap<usize, Exact>,
}

impl Sum {
    fn add(&mut self, c: &Exact, other: &Sum) {
        let both = [
            (&mut self.values, &other.values),
            (&mut self.evals, &other.evals),
        ];
        for (own, other) in both {
            for (i, x) in other {
                let slot = own.entry(*i).or_default();
                *slot = &*slot + &(c * x);
            }
            own.retain(|_, x| !x.is_zero());
        }
    }
    fn value(i: usize) -> Sum {
        Sum {
            values: [(i, Exact::one())].into(),
            ..Sum::default()
        }
    }
}

fn row(of: &BTreeMap<usize, Exact>, n: usize) -> Vec<Exact> {
    let entry = |i: usize| of.get(&i).cloned().unwrap_or_default();
    (0..n).map(entry).collect()
}

struct Made<'p> {
    program: &'p Program,
    body: Span,
    /// Terms of each combination with their exact coefficients and powers of h, by value.
    terms: BTreeMap<usize, Vec<(usize, Exact, i32)>>,
    result: Vec<(usize, Exact, i32)>,
    /// Which values the result needs, in this step or a later one.
    needed: Vec<bool>,
    /// How many steps each name is read back.
    depth: BTreeMap<String, usize>,
    /// What each value must be divided by, as a power of h, to be what the program has; `None`: it is 0.
    powers: Vec<Option<i32>>,
}

/// The method of one program.
pub(super) fn of_program(flow: &Flow, program: &Program) -> Result<General, Beyond> {
    let body = program_span(flow);
    let beyond = |span: Span, why: &str| Beyond {
        span,
        why: why.to_string(),
    };
    if program.instrs.len() > MAX_INSTRS {
        return Err(beyond(body, "it has too many values"));
    }
    let terms = |c: &Combination| -> Result<Vec<(usize, Exact, i32)>, Beyond> {
        let mut all = Vec::new();
        for (v, c) in c.terms() {
            let (c, power) = coefficient(c, body, &|c| at_start(program, c))?;
            if !c.is_zero() {
                all.push((v.0 as usize, c, power));
            }
        }
        Ok(all)
    };
    let mut made = Made {
        program,
        body,
        terms: BTreeMap::new(),
        result: terms(&program.result)?,
        needed: vec![false; program.instrs.len() + 1],
        depth: BTreeMap::new(),
        powers: vec![None; program.instrs.len() + 1],
    };
    for (i, instr) in program.instrs.iter().enumerate() {
        if let Instr::Combine(c) | Instr::Unknown(Unknown::Solved { sum: c, .. }) = instr {
            made.terms.insert(i + 1, terms(c)?);
        }
    }
    made.need();
    made.find_powers();
    made.matrices()
}

impl Made<'_> {
    fn kept(&self, name: &str) -> Option<ValueId> {
        let mut kept = self.program.keeps.iter();
        kept.find(|(n, _)| n == name).map(|(_, v)| *v)
    }

    /// Marks what the result needs, and what names that are read back need.
    fn need(&mut self) {
        let mut open: Vec<usize> = self.result.iter().map(|(v, ..)| *v).collect();
        let mut named = BTreeSet::new();
        while let Some(v) = open.pop() {
            if std::mem::replace(&mut self.needed[v], true) || v == 0 {
                continue;
            }
            match &self.program.instrs[v - 1] {
                Instr::Combine(_) | Instr::Unknown(Unknown::Solved { .. }) => {
                    open.extend(self.terms[&v].iter().map(|(v, ..)| *v));
                }
                Instr::Past {
                    name,
                    when: Moment::Ago(n),
                } => {
                    let depth = self.depth.entry(name.clone()).or_default();
                    *depth = (*depth).max(*n);
                    if named.insert(name.clone())
                        && let Some(v) = self.kept(name)
                    {
                        open.push(v.0 as usize);
                    }
                }
                instr => open.extend(instr.reads().iter().map(|v| v.0 as usize)),
            }
        }
    }

    /// A name has the power of the value that is kept of it, which may depend on that of the name.
    fn find_powers(&mut self) {
        self.powers[0] = Some(0);
        let unknown = |i: &&Instr| matches!(i, Instr::Unknown(_));
        let unknowns = self.program.instrs.iter().filter(unknown).count();
        for _ in 0..=self.depth.len() + unknowns {
            for v in 1..self.powers.len() {
                self.powers[v] = match &self.program.instrs[v - 1] {
                    Instr::Eval { .. } => Some(1),
                    Instr::Past { name, .. } => {
                        self.kept(name).and_then(|v| self.powers[v.0 as usize])
                    }
                    Instr::Combine(_) | Instr::Unknown(Unknown::Solved { .. }) => {
                        self.power(&self.terms[&v])
                    }
                    _ => Some(0),
                };
            }
        }
    }

    fn power(&self, terms: &[(usize, Exact, i32)]) -> Option<i32> {
        let mut known = terms
            .iter()
            .filter_map(|(v, _, n)| Some(self.powers[*v]? - n));
        known.next()
    }

    fn beyond<T>(&self, span: Span, why: &str) -> Result<T, Beyond> {
        let why = why.to_string();
        Err(Beyond { span, why })
    }

    fn sum(&self, terms: &[(usize, Exact, i32)], sums: &[Sum]) -> Result<Sum, Beyond> {
        let (mut sum, power) = (Sum::default(), self.power(terms));
        for (v, c, n) in terms {
            if self.powers[*v].is_some_and(|p| Some(p - n) != power) {
                return self.beyond(self.body, DIFFERENT_POWERS);
            }
            sum.add(c, &sums[*v]);
        }
        Ok(sum)
    }

    fn matrices(&self) -> Result<General, Beyond> {
        let mut names = vec!["x".to_string()];
        let mut asked: Vec<Asked> = Vec::new();
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, depth) in &self.depth {
            first.insert(name, names.len());
            let power = self.kept(name).and_then(|v| self.powers[v.0 as usize]);
            let times = match power {
                None | Some(0) => String::new(),
                Some(1) => "h ".into(),
                Some(n) => format!("h^{n} "),
            };
            if names.len() + depth > MAX_VALUES {
                return self.beyond(self.body, "it reads too many values of earlier steps");
            }
            names.extend((1..=*depth).map(|n| format!("{times}{name}[-{n}]")));
            asked.extend((1..=*depth).map(|n| (name.clone(), n, power)));
        }
        let past = |name: &String, when: &Moment| match (when, first.get(name.as_str())) {
            (Moment::Ago(n), Some(first)) if self.kept(name).is_some() => {
                Some(Sum::value(first + n - 1))
            }
            _ => None,
        };
        let mut fields: Vec<usize> = Vec::new();
        let (mut field_of, mut points): (Vec<usize>, Vec<ValueId>) = (Vec::new(), Vec::new());
        // What came in and evaluations are known before they are made: unknowns read them.
        let mut sums = vec![Sum::default(); self.program.instrs.len() + 1];
        sums[0] = Sum::value(0);
        let all = self.program.instrs.iter().enumerate();
        for (i, instr) in all.filter(|(i, _)| self.needed[i + 1]) {
            match instr {
                Instr::Past { name, when } => match past(name, when) {
                    Some(past) => sums[i + 1] = past,
                    None => {
                        return self
                            .beyond(self.body, "it uses a value from the start of the evolution");
                    }
                },
                Instr::Eval {
                    field, at, span, ..
                } => {
                    let [at] = at[..] else {
                        return self.beyond(*span, "it evaluates a field of several states");
                    };
                    if self.powers[at.0 as usize].is_some_and(|p| p != 0) {
                        return self
                            .beyond(*span, "it evaluates a field at a rate, not at a state");
                    }
                    if points.len() == MAX_STAGES {
                        return self.beyond(*span, "it has too many evaluations");
                    }
                    let known = fields.iter().position(|f| f == field);
                    field_of.push(known.unwrap_or_else(|| {
                        fields.push(*field);
                        fields.len() - 1
                    }));
                    sums[i + 1].evals = [(points.len(), Exact::one())].into();
                    points.push(at);
                }
                _ => {}
            }
        }
        let all = self.program.instrs.iter().enumerate();
        for (i, instr) in all.filter(|(i, _)| self.needed[i + 1]) {
            match instr {
                Instr::Combine(_) | Instr::Unknown(Unknown::Solved { .. }) => {
                    sums[i + 1] = self.sum(&self.terms[&(i + 1)], &sums)?;
                }
                Instr::Past { .. } | Instr::Eval { .. } => {}
                Instr::Unknown(Unknown::Without { why, span }) => return self.beyond(*span, why),
                Instr::Mix { .. } | Instr::Stop(_) | Instr::Solution { .. } => {
                    return self.beyond(self.body, "it solves to a tolerance");
                }
                Instr::Product(_) => return self.beyond(self.body, "it multiplies states"),
                Instr::Normal { .. } => return self.beyond(self.body, "it starts at random"),
                Instr::Project { .. } => {
                    return self.beyond(self.body, "it projects a state onto a set");
                }
                Instr::Phi { span, .. } => return self.beyond(*span, FUNCTION),
                Instr::Flow { span, .. } => {
                    return self.beyond(*span, "an exact flow has no stages");
                }
            }
        }
        let stages: Vec<Sum> = points.iter().map(|v| sums[v.0 as usize].clone()).collect();
        if self.power(&self.result).is_some_and(|p| p != 0) {
            return self.beyond(
                self.body,
                "its result is no state: `h` is missing, or too often there",
            );
        }
        let mut out = vec![self.sum(&self.result, &sums)?];
        for (name, depth) in &self.depth {
            let from = first[name.as_str()];
            let kept = self.kept(name).map(|v| sums[v.0 as usize].clone());
            out.push(kept.unwrap_or_default());
            out.extend((1..*depth).map(|n| Sum::value(from + n - 1)));
        }
        let (s, r) = (stages.len(), names.len());
        let evals = |rows: &[Sum]| rows.iter().map(|x| row(&x.evals, s)).collect();
        let values = |rows: &[Sum]| rows.iter().map(|x| row(&x.values, r)).collect();
        let field = |f: &usize| self.program.fields[*f].name.clone();
        Ok(General {
            glm: Glm {
                fields: fields.iter().map(field).collect(),
                field_of,
                a: evals(&stages),
                u: values(&stages),
                b: evals(&out),
                v: values(&out),
                state: 0,
            },
            names,
            asked,
        })
    }
}
