//! The order of a method that is extrapolated, and whether it is symmetric: what its table eliminates.
//!
//! Both are proved, not taken from claims; where the scheme claims its order within a residual, so is this meant. As in claims,
//! sub-flows are exact, learned coefficients stand at their start, and stages are found exactly, so that the weights do not
//! depend on iterations. Leaves the mathematics to `odec-numerics`.

use super::algebra::{Term, TermKind};

use super::embedded::Reached;
use super::equivalent::{Aside, Equivalent};
use super::expansion::{MAX_CLAIM, expanded};
use super::line::{at_start, placed_at};
use super::per_use::SHARED;
use super::run::{Frame, Machine};
use super::stage::{Instr, Program};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_numerics::line::Step;
use odec_numerics::order::{Weights, prove};
use odec_numerics::{Line, Tableau, Trees};
use std::rc::Rc;

/// What the error of a method begins with, and whether it goes on in even powers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub order: usize,
    pub symmetric: bool,
}

impl Machine<'_> {
    pub(super) fn order_of(&mut self, of: &Term, frame: &Frame) -> Option<Known> {
        let key = (of.span, frame.scope.clone());
        if let Some(known) = self.orders.get(&key) {
            return Some(*known);
        }
        let within = self.residual(of, frame)?;
        let aside = self.aside(frame.flow, |m, frame| {
            let h = frame.h.clone();
            m.term(of, frame, frame.start, &h).map(Reached::at)
        })?;
        let found = match self.tabled(&aside, of.span)? {
            Ok(found) => self.of_tableau(&found, frame, within.as_ref()),
            Err(_) => self.of_flows(aside, within.as_ref()),
        };
        let known = match found {
            Ok(known) if known.order > 0 => known,
            other => {
                let why = match other {
                    Ok(_) => "it has order 0: more steps do not come nearer to the solution".into(),
                    Err(why) => why,
                };
                let message = "the order of this method is not known";
                let d = Diagnostic::error(codes::UNKNOWN_ORDER, of.span, message)
                    .label(why)
                    .help("extrapolation eliminates the first terms of an error; `average(…, weights: […])` takes weights of your own");
                return self.fail(d);
            }
        };
        self.orders.insert(key, known);
        Some(known)
    }

    /// The residual that a scheme's own claim allows.
    fn residual(&mut self, of: &Term, frame: &Frame) -> Option<Option<Exact>> {
        let TermKind::Scheme(operand) = &of.kind else {
            return Some(None);
        };
        let claims = &operand.scheme.claims;
        let Some(within) = claims.iter().find_map(|c| c.within.as_ref()) else {
            return Some(None);
        };
        let flow = self.operand(operand, frame)?;
        let inner = self.frame(&flow, frame.start, &frame.h, false)?;
        self.constant(within, &inner.scope).map(Some)
    }

    fn of_tableau(
        &self,
        found: &Equivalent,
        frame: &Frame,
        within: Option<&Exact>,
    ) -> Result<Known, String> {
        let flow = frame.flow;
        let n = flow.args.len() + flow.list.len();
        let tableau = self.numbers(found, (0..n).map(|i| i.to_string()).collect());
        let proof = tableau.and_then(|t| {
            let proof = prove(
                &mut Weights::new(&t)?,
                &mut Trees::new(n).for_values(t.stages()),
                MAX_CLAIM as usize,
                within,
            );
            Some((proof, t.is_symmetric()))
        });
        let Some((proof, symmetric)) = proof else {
            return Err("its coefficients have too many different roots".into());
        };
        Ok(Known {
            order: proof.order,
            symmetric,
        })
    }

    /// With learned coefficients at their start.
    pub(super) fn numbers(&self, found: &Equivalent, fields: Vec<String>) -> Option<Tableau> {
        let start = |name: &str| {
            let mut learned = self.learned.iter();
            learned.find(|l| l.name == name).map(|l| l.init.clone())
        };
        let row = |row: &[super::Coeff]| row.iter().map(|c| c.at(&start)).collect::<Option<_>>();
        Some(Tableau {
            fields,
            field_of: found.stages.iter().map(|s| s.field).collect(),
            a: found
                .stages
                .iter()
                .map(|s| row(&s.a))
                .collect::<Option<_>>()?,
            b: row(&found.b)?,
            embedded: match &found.embedded {
                Some(e) => Some(row(e)?),
                None => None,
            },
        })
    }

    /// Of a line with exact flows.
    fn of_flows(&self, aside: Aside, within: Option<&Exact>) -> Result<Known, String> {
        let later = |(i, instr): (usize, &Instr)| match instr {
            Instr::Eval { at, .. } => at.iter().any(|v| v.0 as usize > i),
            _ => false,
        };
        if aside.instrs.iter().enumerate().any(later) {
            return Err("it mixes exact flows and implicit stages".into());
        }
        let program = Program {
            title: String::new(),
            usages: vec![1; aside.leaves.len()],
            fields: aside.leaves.iter().map(Rc::clone).collect(),
            instrs: aside.instrs,
            learned: self.learned.clone(),
            derived: Vec::new(),
            keeps: Vec::new(),
            called: Vec::new(),
            result: aside.end,
            embedded: None,
        };
        let placed = placed_at(&aside.flow, &program, &SHARED, &|c, _| {
            at_start(&program, c)
        });
        let placed = placed.map_err(|b| b.why)?;
        let mut e = expanded(&placed).map_err(|b| b.why)?;
        let proof = e.prove(MAX_CLAIM as usize, within);
        Ok(Known {
            order: proof.order,
            symmetric: is_palindrome(&placed.line),
        })
    }
}

/// Whether a line is one flow after the other and reads the same backwards, flows of one field in a row taken together: the
/// adjoint of such a product of exact flows is the product in reverse.
fn is_palindrome(line: &Line) -> bool {
    let mut word: Vec<(usize, Exact)> = Vec::new();
    let mut at = line.result;
    while let Some(step) = at.checked_sub(1).and_then(|i| line.steps.get(i)) {
        match step {
            Step::Combine(terms) => match &terms[..] {
                [(v, c)] if c.is_one() => at = *v,
                _ => return false,
            },
            Step::Flow {
                field,
                at: from,
                fraction,
            } => {
                match word.last_mut() {
                    Some((last, sum)) if last == field => *sum = &*sum + fraction,
                    _ => word.push((*field, fraction.clone())),
                }
                if word.last().is_some_and(|(_, sum)| sum.is_zero()) {
                    word.pop();
                }
                at = *from;
            }
            Step::Eval { .. } | Step::Phi { .. } | Step::Solution(_) => return false,
        }
    }
    word.iter().eq(word.iter().rev())
}
