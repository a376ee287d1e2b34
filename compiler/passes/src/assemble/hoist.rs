//! What decoding prepares once: launches that follow from parameters and tables alone, packing most of all.
//!
//! Takes the launches of [`EntryId::Decode`]; leaves those that differ from run to run, and gives the others for [`EntryId::Prepare`].

use super::AssembleError;
use super::entries::{Maker, reserve};
use crate::launch_list::{BufferId, Launch, LaunchList, Placement};
use odec_program::{Bindings, EntryId, Operand, Size, Slot};
use std::collections::{BTreeMap, BTreeSet};

impl Maker<'_> {
    /// Takes out of a program what follows from parameters and tables alone, packing most of all: they stay the same over many runs.
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
        for l in &first {
            for (b, _) in l
                .uses()
                .filter(|(b, mode)| mode.writes() && read.contains(b))
            {
                let b = &mut code.buffers[b.0 as usize];
                let bytes = b.bytes(Bindings::new(1, 1));
                b.home = Placement::Fixed(Operand::at(Slot::Prepared, self.prepared));
                let end = bytes.and_then(|b| reserve(self.prepared, b));
                self.prepared = end.ok_or_else(|| AssembleError::Cache {
                    entry: entry.into(),
                })?;
            }
        }
        code.launches = rest;
        Ok(LaunchList {
            buffers: code.buffers.clone(),
            launches: first,
            chunks: vec![],
        })
    }
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
    let of_fixed_size = |s: &Size| s.batch == 0 && s.seq == 0 && s.past == 0;
    let mut made: BTreeSet<BufferId> = BTreeSet::new();
    let is_constant = |l: &Launch| {
        let uses = l.uses().all(|(b, mode)| match &code.get(b).home {
            Placement::Fixed(o) => !mode.writes() && matches!(o.slot, Slot::Params | Slot::Consts),
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
