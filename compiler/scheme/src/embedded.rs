//! Embedded partners: a second result of a step, whose difference to the first estimates the error.
//!
//! Takes the instructions of a step with both results; gives the step's own, and apart from them those that only the
//! partner needs, so that steps of a fixed size do not pay for it.

use super::combination::{Combination, ValueId};
use super::evaluate::Used;
use super::stage::StageInstr;

/// Where a flow ends.
pub(super) struct Reached {
    pub end: Combination,
    /// Where its partner ends; only the outermost flow has one.
    pub embedded: Option<Combination>,
    /// What later steps may read, by name.
    pub keeps: Vec<(String, ValueId)>,
}

impl Reached {
    /// An end alone.
    pub fn at(end: Combination) -> Reached {
        Reached {
            end,
            embedded: None,
            keeps: Vec::new(),
        }
    }
}

/// A step with what only its partner needs apart.
pub(super) struct Divided {
    pub instrs: Vec<StageInstr>,
    pub result: Combination,
    pub keeps: Vec<(String, ValueId)>,
    pub called: Vec<(ValueId, String)>,
    pub embedded: Option<Embedded>,
}

/// The second result of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedded {
    /// What only it needs; the values are numbered on from the step's own.
    pub instrs: Vec<StageInstr>,
    pub result: Combination,
}

/// A step without what nothing reads, and without fields that are then not evaluated: one that another scheme takes.
pub(super) fn pruned(
    instrs: Vec<StageInstr>,
    reached: Reached,
    called: Called,
    leaves: &mut Vec<Used>,
) -> Divided {
    let kept = reached.keeps.iter().map(|(_, v)| *v);
    let own = needed(&instrs, reached.end.terms().map(|(v, _)| v).chain(kept));
    let mut to = vec![ValueId::STATE; instrs.len() + 1];
    let mut next = 0;
    for (i, _) in own.iter().enumerate().filter(|(_, n)| **n) {
        next += 1;
        to[i + 1] = ValueId(next);
    }
    let mut field_to = vec![None; leaves.len()];
    let mut fields = 0;
    let mut moved = Vec::new();
    for (i, _) in own.iter().enumerate().filter(|(_, n)| **n) {
        let mut instr = instrs[i].renamed(&|v| to[v.0 as usize]);
        if let StageInstr::Eval { field, .. }
        | StageInstr::Flow { field, .. }
        | StageInstr::Phi { field, .. } = &mut instr
        {
            *field = *field_to[*field].get_or_insert_with(|| {
                fields += 1;
                fields - 1
            });
        }
        moved.push(instr);
    }
    let mut used: Vec<(usize, Used)> = Vec::new();
    for (leaf, to) in std::mem::take(leaves).into_iter().zip(field_to) {
        used.extend(to.map(|to| (to, leaf)));
    }
    used.sort_by_key(|(to, _)| *to);
    leaves.extend(used.into_iter().map(|(_, leaf)| leaf));
    let keeps = reached.keeps.into_iter();
    Divided {
        instrs: moved,
        result: reached.end.renamed(&|v| to[v.0 as usize]),
        keeps: keeps.map(|(n, v)| (n, to[v.0 as usize])).collect(),
        called: moved_names(called, &to),
        embedded: None,
    }
}

/// Names of values, under their new numbers.
type Called = Vec<(ValueId, String)>;

fn moved_names(called: Called, to: &[ValueId]) -> Called {
    let moved = called.into_iter().map(|(v, n)| (to[v.0 as usize], n));
    moved.filter(|(v, _)| *v != ValueId::STATE).collect()
}

/// The step's own instructions and its result, then the partner's.
pub(super) fn divide(instrs: Vec<StageInstr>, reached: Reached, called: Called) -> Divided {
    let Some(partner) = reached.embedded else {
        return Divided {
            instrs,
            result: reached.end,
            keeps: reached.keeps,
            called,
            embedded: None,
        };
    };
    let kept = reached.keeps.iter().map(|(_, v)| *v);
    let own = needed(&instrs, reached.end.terms().map(|(v, _)| v).chain(kept));
    let other = needed(&instrs, partner.terms().map(|(v, _)| v));
    let apart = |i: usize| other[i] && !own[i];
    let order = |last: bool| (0..instrs.len()).filter(move |i| apart(*i) == last);
    let order: Vec<usize> = order(false).chain(order(true)).collect();
    let mut to = vec![ValueId::STATE; instrs.len() + 1];
    for (new, old) in order.iter().enumerate() {
        to[old + 1] = ValueId(new as u32 + 1);
    }
    let renamed = |c: &Combination| c.renamed(&|v| to[v.0 as usize]);
    let at = order.iter().position(|i| apart(*i)).unwrap_or(order.len());
    let mut moved: Vec<StageInstr> = Vec::new();
    for i in order {
        moved.push(instrs[i].renamed(&|v| to[v.0 as usize]));
    }
    let embedded = Embedded {
        instrs: moved.split_off(at),
        result: renamed(&partner),
    };
    let keeps = reached.keeps.into_iter();
    Divided {
        instrs: moved,
        result: renamed(&reached.end),
        keeps: keeps.map(|(n, v)| (n, to[v.0 as usize])).collect(),
        called: moved_names(called, &to),
        embedded: Some(embedded),
    }
}

/// Which instructions some values need. An unknown reads later ones.
fn needed(instrs: &[StageInstr], values: impl Iterator<Item = ValueId>) -> Vec<bool> {
    let mut needed = vec![false; instrs.len() + 1];
    let mut open: Vec<ValueId> = values.collect();
    while let Some(v) = open.pop() {
        let first = !std::mem::replace(&mut needed[v.0 as usize], true);
        if let Some(i) = (v.0 as usize).checked_sub(1).filter(|_| first) {
            open.extend(instrs[i].reads());
        }
    }
    needed.remove(0);
    needed
}
