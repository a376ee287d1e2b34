//! The order of a method that is extrapolated, and whether it is symmetric: what its table eliminates.
//!
//! Both are proved, not taken from claims; where the scheme claims its order within a residual, so is this meant. As in claims,
//! sub-flows are exact, learned coefficients stand at their start, and stages are found exactly, so that the weights do not
//! depend on iterations. Leaves the mathematics to `odec-numerics`.

use super::Coeff;
use super::algebra::{Term, TermKind};
use super::embedded::Reached;
use super::expansion::{MAX_CLAIM, expanded};
use super::method::{Aside, Equivalent, at_start, located_at};
use super::per_use::SHARED;
use super::run::{Frame, KnownOrder, StageTracer};
use super::stage::StageInstr;
use crate::codes;
use odec_exact::Exact;
use odec_grammar::diag::Diagnostic;
use odec_numerics::Trees;
use odec_numerics::order::{Weights, prove};

impl StageTracer<'_> {
    pub(super) fn order_of(&mut self, of: &Term, frame: &Frame) -> Option<KnownOrder> {
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
            Err(_) => of_flows(&aside, within.as_ref()),
        };
        let known = match found {
            Ok(known) if known.order > 0 => known,
            other => {
                let why = match other {
                    Ok(_) => "it has order 0: more steps do not converge to the solution".into(),
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
        let Some(within) = operand.scheme.residual() else {
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
    ) -> Result<KnownOrder, String> {
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
        Ok(KnownOrder {
            order: proof.order,
            symmetric,
        })
    }
}

/// Of a line with exact flows.
fn of_flows(aside: &Aside, within: Option<&Exact>) -> Result<KnownOrder, String> {
    let program = &aside.program;
    let later = |(i, instr): (usize, &StageInstr)| match instr {
        StageInstr::Eval { at, .. } => at.iter().any(|v| v.0 as usize > i),
        _ => false,
    };
    if program.instrs.iter().enumerate().any(later) {
        return Err("it mixes exact flows and implicit stages".into());
    }
    let start = |c: &Coeff, _| at_start(program, c);
    let located = located_at(&aside.flow, program, &SHARED, &start);
    let located = located.map_err(|b| b.why)?;
    let mut e = expanded(&located).map_err(|b| b.why)?;
    let proof = e.prove(MAX_CLAIM as usize, within);
    // The adjoint of a product of exact flows is the product in reverse.
    let symmetric = |word: Vec<(usize, Exact)>| word.iter().eq(word.iter().rev());
    Ok(KnownOrder {
        order: proof.order,
        symmetric: located.line.word().is_some_and(symmetric),
    })
}
