//! What a token of generation takes at least: to read weights once, and of each text what is kept of its tokens; and to multiply and add.
//!
//! Takes a program and the lengths of the texts that are read together; gives bytes. What stays in caches between two reads, or is made and read within
//! a run, does not count. Leaves how fast a machine reads and computes to [`crate::device::roof`].

use crate::device::roof::Roof;
use odec_program::kernel::{Attend, KernelSpec, Mode, Signature};
use odec_program::{Bindings, Entry, EntryId, Instr, Piece, Program, Slot};
use std::collections::BTreeMap;

/// Bytes that a run must read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Of weights and tables, each once.
    pub weights: u64,
    /// Of keys, values and states of the texts.
    pub kept: u64,
}

impl Reading {
    /// Of a token of each of some texts, behind so many tokens each: of one text by entry `decode`, of several by entry `extend`. `None` where the
    /// program has no such entry.
    pub fn of(program: &Program, signatures: &[Signature], lengths: &[u64]) -> Option<Reading> {
        let (e, at) = token(program, lengths)?;
        let mut weights = Stretches::default();
        let mut found = Reading::default();
        for i in &e.instrs {
            let (spec, signature) = (
                &program.kernels.get(i.kernel as usize)?.spec,
                signatures.get(i.kernel as usize)?,
            );
            found.kept += match spec {
                KernelSpec::AttendCached(a) => attended(a, i, lengths),
                _ => 0,
            };
            of_launch(e, (i, spec, signature), at, &mut weights, &mut found)?;
        }
        found.weights += weights.bytes();
        Some(found)
    }

    pub fn bytes(self) -> u64 {
        self.weights + self.kept
    }
}

/// The entry that reads a token of each of some texts, and the size of its run.
fn token<'p>(program: &'p Program, lengths: &[u64]) -> Option<(&'p Entry, Bindings)> {
    let entry = match lengths.len() {
        1 => EntryId::Decode,
        _ => EntryId::Extend,
    };
    let past = lengths.iter().copied().max()?;
    let at = Bindings::new(lengths.len() as u64, 1).after(past);
    Some((program.entries.get(&entry)?, at))
}

/// The least seconds that the multiply-adds of such a run take; of texts that are shorter than others, as many as of those. `None` where the program
/// has no such entry, or nobody knows how fast its kernels can be.
pub fn computing(
    program: &Program,
    signatures: &[Signature],
    lengths: &[u64],
    roof: &Roof,
) -> Option<f64> {
    let (e, at) = token(program, lengths)?;
    let seconds = e.instrs.iter().map(|i| {
        let dims = i.dims.iter().map(|d| d.at(at));
        let dims = dims.collect::<Option<Vec<u64>>>()?;
        let kernel = i.kernel as usize;
        let products = signatures.get(kernel)?.work.multiply_adds(&dims);
        roof.seconds(
            &program.kernels.get(kernel)?.spec,
            2.0 * products as f64,
            0.0,
        )
    });
    seconds.sum()
}

/// Keys and values that the queries see, one of each text.
fn attended(a: &Attend, i: &Instr, lengths: &[u64]) -> u64 {
    let cached = |n: &usize| i.operands.get(*n).is_some_and(|o| o.slot == Slot::Cache);
    let keys = lengths.iter().map(|past| match a.causal {
        true => past + 1 - a.first_key(*past),
        false => a.room.unwrap_or(past + 1),
    });
    let keys: u64 = keys.sum();
    let columns = [1usize, 2].iter().filter(|n| cached(n));
    let columns: u64 = columns.map(|n| a.columns(*n as u64) * a.kv_heads).sum();
    keys * columns * a.inputs.bytes()
}

/// What else a launch reads of memory that outlives runs. `None` on overflow.
fn of_launch(
    e: &Entry,
    (i, spec, signature): (&Instr, &KernelSpec, &Signature),
    at: Bindings,
    weights: &mut Stretches,
    found: &mut Reading,
) -> Option<()> {
    debug_assert!(e.pieces.is_empty(), "generation is not run in pieces");
    let dims = i.dims.iter().map(|d| d.at(at));
    let dims = dims.collect::<Option<Vec<u64>>>()?;
    for (n, (o, access)) in i.operands.iter().zip(&signature.operands).enumerate() {
        if !access.mode.reads() || access.mode == Mode::Place {
            continue;
        }
        let bytes = access.words(&dims)?.checked_mul(4)?;
        let start = Piece::ALL.start(o, at)?;
        match (o.slot, spec) {
            (Slot::Params | Slot::Rounded | Slot::Prepared | Slot::Consts, _) => match spec {
                // Rows that tokens choose.
                KernelSpec::Gather(g) if n == 1 => {
                    found.weights += dims[0] * g.cols * access.dtype.bytes();
                }
                _ => weights.add(o.slot, start, start + bytes),
            },
            (Slot::Cache, KernelSpec::AttendCached(_)) => {}
            (Slot::Cache, _) => found.kept += bytes,
            _ => {}
        }
    }
    Some(())
}

/// Stretches of memories, of which none is counted twice.
#[derive(Default)]
struct Stretches(BTreeMap<Slot, Vec<(u64, u64)>>);

impl Stretches {
    fn add(&mut self, slot: Slot, start: u64, end: u64) {
        self.0.entry(slot).or_default().push((start, end));
    }

    fn bytes(self) -> u64 {
        let of = |mut all: Vec<(u64, u64)>| {
            all.sort_unstable();
            let mut reached = 0;
            let mut sum = 0;
            for (start, end) in all {
                sum += end.saturating_sub(start.max(reached));
                reached = reached.max(end);
            }
            sum
        };
        self.0.into_values().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_twice_counts_once() {
        let mut all = Stretches::default();
        for (slot, start, end) in [
            (Slot::Params, 8, 24),
            (Slot::Params, 0, 16),
            (Slot::Params, 10, 12),
            (Slot::Params, 32, 40),
            (Slot::Prepared, 0, 16),
        ] {
            all.add(slot, start, end);
        }
        assert_eq!(all.bytes(), 24 + 8 + 16);
    }
}
