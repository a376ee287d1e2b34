//! Embedded partners: a second result of a step, whose difference to the first estimates the error.
//!
//! Takes the instructions of a step with both results; gives the step's own, and apart from them those that only the
//! partner needs, so that steps of a fixed size do not pay for it.

use super::combination::{Combination, ValueId};
use super::stage::Instr;

/// Where a flow ends.
pub(super) struct Reached {
    pub end: Combination,
    /// Where its partner ends; only the outermost flow has one.
    pub embedded: Option<Combination>,
}

/// The second result of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedded {
    /// What only it needs; the values are numbered on from the step's own.
    pub instrs: Vec<Instr>,
    pub result: Combination,
}

/// The step's own instructions and its result, then the partner's.
pub(super) fn divide(
    instrs: Vec<Instr>,
    reached: Reached,
) -> (Vec<Instr>, Combination, Option<Embedded>) {
    let Some(partner) = reached.embedded else {
        return (instrs, reached.end, None);
    };
    let (own, other) = (needed(&instrs, &reached.end), needed(&instrs, &partner));
    let apart = |i: usize| other[i] && !own[i];
    let order = |last: bool| (0..instrs.len()).filter(move |i| apart(*i) == last);
    let order: Vec<usize> = order(false).chain(order(true)).collect();
    let mut to = vec![ValueId::STATE; instrs.len() + 1];
    for (new, old) in order.iter().enumerate() {
        to[old + 1] = ValueId(new as u32 + 1);
    }
    let renamed = |c: &Combination| c.renamed(&|v| to[v.0 as usize]);
    let at = order.iter().position(|i| apart(*i)).unwrap_or(order.len());
    let mut moved: Vec<Instr> = Vec::new();
    for i in order {
        moved.push(match &instrs[i] {
            Instr::Combine(c) => Instr::Combine(renamed(c)),
            Instr::Eval {
                field,
                usage,
                at,
                span,
            } => Instr::Eval {
                field: *field,
                usage: *usage,
                at: to[at.0 as usize],
                span: *span,
            },
        });
    }
    let embedded = Embedded {
        instrs: moved.split_off(at),
        result: renamed(&partner),
    };
    (moved, renamed(&reached.end), Some(embedded))
}

/// Which instructions a result needs.
fn needed(instrs: &[Instr], result: &Combination) -> Vec<bool> {
    let mut needed = vec![false; instrs.len() + 1];
    result
        .terms()
        .for_each(|(v, _)| needed[v.0 as usize] = true);
    for (i, instr) in instrs.iter().enumerate().rev() {
        if needed[i + 1] {
            match instr {
                Instr::Combine(c) => c.terms().for_each(|(v, _)| needed[v.0 as usize] = true),
                Instr::Eval { at, .. } => needed[at.0 as usize] = true,
            }
        }
    }
    needed.remove(0);
    needed
}
