//! Methods with a history whose steps have different settings: whether earlier steps kept what the current one expects.
//!
//! Past values are analysed as if all steps were like the current one. Takes an evolve; compares what the program of a late step keeps
//! under its own settings and under those of other steps.

use super::opaque_field::{all_settings, opaque, settings_at};
use super::report::Evolved;
use crate::scheme::flow::Setting;
use crate::scheme::method::late;
use crate::scheme::stage::{StageInstr, StageProgram, Steps};
use crate::scheme::{Combination, ValueId};

/// Whether steps with other settings keep other values.
pub fn keeps_differ(e: &Evolved) -> bool {
    if e.flow.scheme.history.past.is_empty() {
        return false;
    }
    let all = all_settings(&e.flow).into_iter().flatten();
    let lists = all.filter_map(|(_, s)| match s {
        Setting::PerStep(values, _) => Some(values.len()),
        Setting::One(_) => None,
    });
    let kept_at = |step: usize| {
        let flow = opaque(&e.flow, step);
        Some(kept(&late(&flow, Steps::Euler, &e.per_use).ok()?.here))
    };
    let at = |step: &usize| settings_at(&e.flow, *step);
    let own = at(&e.step);
    let mut others: Vec<usize> = (0..lists.max().unwrap_or(0)).collect();
    others.retain(|step| at(step) != own);
    others.dedup_by_key(|step| at(step));
    let here = kept_at(e.step);
    others
        .into_iter()
        .any(|step| here.is_none() || kept_at(step) != here)
}

/// The instructions that compute the values which a step keeps, renumbered, and their names.
fn kept(p: &StageProgram) -> (Vec<StageInstr>, Vec<(String, Combination)>) {
    let mut needed = vec![false; p.instrs.len() + 1];
    p.keeps
        .iter()
        .for_each(|(_, v)| needed[v.0 as usize] = true);
    for (i, instr) in p.instrs.iter().enumerate().rev() {
        if needed[i + 1] {
            let reads = instr.reads();
            reads.iter().for_each(|v| needed[v.0 as usize] = true);
        }
    }
    let mut to = vec![ValueId::STATE; p.instrs.len() + 1];
    let mut instrs: Vec<StageInstr> = Vec::new();
    for (i, instr) in p.instrs.iter().enumerate().filter(|(i, _)| needed[i + 1]) {
        instrs.push(instr.renamed(&|v| to[v.0 as usize]));
        to[i + 1] = ValueId(instrs.len() as u32);
    }
    let keeps = p.keeps.iter();
    let keeps = keeps.map(|(n, v)| (n.clone(), Combination::value(to[v.0 as usize])));
    (instrs, keeps.collect())
}
