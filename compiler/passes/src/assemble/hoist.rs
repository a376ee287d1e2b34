//! What decoding prepares once: launches that follow from parameters and tables alone, packing most of all.
//!
//! Takes the launches of [`EntryId::Decode`] or [`EntryId::Extend`]; leaves those that differ from run to run, and gives the others for
//! [`EntryId::Prepare`]. What both read is made once.

use super::AssembleError;
use super::entries::{Maker, reserve};
use crate::launch_list::{BufferId, Launch, LaunchList, Placement};
use odec_program::{Bindings, EntryId, Operand, Size, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// What a launch of constants writes: a kernel's operand, and what the kernel reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Prepared {
    symbol: String,
    operand: usize,
    /// Dims and scalars, in words.
    launch: String,
    reads: Vec<Read>,
}

/// An operand of such a launch: parameters and tables, or what another launch has made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Read {
    Fixed(Slot, u64),
    Prepared(Prepared),
}

impl Maker<'_> {
    /// Takes out of a program what follows from parameters and tables alone, packing most of all: they stay the same over many runs. What another
    /// program has had prepared already is read where that is.
    pub(super) fn hoist_constant(
        &mut self,
        entry: EntryId,
        code: &mut LaunchList,
    ) -> Result<LaunchList, AssembleError> {
        let constant = constant_launches(code);
        let launches = std::mem::take(&mut code.launches).into_iter();
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for (l, constant) in launches.zip(constant) {
            if constant { &mut first } else { &mut rest }.push(l);
        }
        let read: BTreeSet<BufferId> = rest.iter().flat_map(Launch::uses).map(|(b, _)| b).collect();
        let mut made: BTreeMap<BufferId, Prepared> = BTreeMap::new();
        let mut needed: BTreeSet<BufferId> = BTreeSet::new();
        for l in &first {
            for (b, what) in written(l, code, &made) {
                made.insert(b, what.clone());
                if !read.contains(&b) {
                    continue;
                }
                let home = match self.made.get(&what) {
                    Some(home) => *home,
                    None => {
                        let home = Operand::at(Slot::Prepared, self.prepared);
                        let bytes = code.get(b).bytes(Bindings::new(1, 1));
                        let end = bytes.and_then(|b| reserve(self.prepared, b));
                        self.prepared = end.ok_or_else(|| AssembleError::Cache {
                            entry: entry.into(),
                        })?;
                        self.made.insert(what, home);
                        needed.insert(b);
                        home
                    }
                };
                code.buffers[b.0 as usize].home = Placement::Fixed(home);
            }
        }
        // Launches whose results were made before, or serve such alone, are left out.
        let mut launches = Vec::new();
        for l in first.into_iter().rev() {
            if l.uses()
                .any(|(b, mode)| mode.writes() && needed.contains(&b))
            {
                needed.extend(l.uses().map(|(b, _)| b));
                launches.push(l);
            }
        }
        launches.reverse();
        code.launches = rest;
        Ok(LaunchList {
            buffers: code.buffers.clone(),
            launches,
            chunks: vec![],
        })
    }
}

/// What a launch of constants writes, each with what it is made of.
fn written(
    l: &Launch,
    code: &LaunchList,
    made: &BTreeMap<BufferId, Prepared>,
) -> Vec<(BufferId, Prepared)> {
    let modes = || l.args.iter().zip(&l.spec.signature().operands);
    let reads = modes().filter(|(_, o)| o.mode.reads());
    let reads = reads.map(|(b, _)| match (made.get(b), &code.get(*b).home) {
        (Some(what), _) => Read::Prepared(what.clone()),
        (None, Placement::Fixed(o)) => Read::Fixed(o.slot, o.offset),
        (None, Placement::Arena) => unreachable!("constants are made of constants"),
    });
    let reads: Vec<Read> = reads.collect();
    let of = |(operand, (b, _)): (usize, (&BufferId, _))| {
        let what = Prepared {
            symbol: l.spec.symbol().into(),
            operand,
            launch: format!("{:?} {:?}", l.dims, l.coeffs),
            reads: reads.clone(),
        };
        (*b, what)
    };
    let writes = modes().enumerate().filter(|(_, (_, o))| o.mode.writes());
    writes.map(of).collect()
}

/// Which launches of a program always compute the same from the same parameters, into memory that nothing else writes.
fn constant_launches(code: &LaunchList) -> Vec<bool> {
    let mut writers: BTreeMap<BufferId, usize> = BTreeMap::new();
    let writes = |l: &Launch| {
        let written = l.uses().filter(|(_, mode)| mode.writes()).map(|(b, _)| b);
        written.collect::<Vec<_>>()
    };
    for b in code.launches.iter().flat_map(writes) {
        *writers.entry(b).or_default() += 1;
    }
    let of_fixed_size = |s: &Size| *s == Size::fixed(s.factor);
    let mut made: BTreeSet<BufferId> = BTreeSet::new();
    let is_constant = |l: &Launch| {
        let uses = l.uses().all(|(b, mode)| match &code.get(b).home {
            Placement::Fixed(o) => {
                let constant = matches!(o.slot, Slot::Params | Slot::Rounded | Slot::Consts);
                constant && !mode.writes()
            }
            Placement::Arena if mode.reads() => !mode.writes() && made.contains(&b),
            Placement::Arena => writers[&b] == 1,
        });
        let alone = l.guard.is_none() && l.held.is_none();
        let constant = uses && alone && l.dims.iter().all(of_fixed_size);
        made.extend(writes(l).into_iter().filter(|_| constant));
        constant
    };
    code.launches.iter().map(is_constant).collect()
}
