//! Bytes of the arena in use while an entry runs.
//!
//! Takes an entry; gives for each launch how many bytes hold something that it or a later one reads, or that it writes; gradients are there for
//! another entry. A launch of a part of the rows counts as one of all.

use odec_program::kernel::Mode;
use odec_program::{Entry, Instr, Piece, Program, Slot};
use std::collections::BTreeMap;

/// By instruction, at the largest sizes.
pub fn in_use(program: &Program, e: &Entry) -> Vec<u64> {
    let at = e.maxima.longest();
    let tokens = at.batch.saturating_mul(at.seq);
    let touched = |i: &Instr| -> Vec<_> {
        let signature = program.kernels[i.kernel as usize].spec.signature();
        let dims = i.dims.iter().map(|d| Piece::ALL.dim(*d, at).unwrap_or(0));
        let dims: Vec<u64> = dims.collect();
        let range = |o: &odec_program::Operand, bytes: u64| {
            let bytes = match o.row {
                0 => bytes,
                row => row.saturating_mul(tokens),
            };
            (o.offset, o.offset.saturating_add(bytes))
        };
        (i.operands.iter().zip(&signature.operands))
            .filter(|(o, _)| matches!(o.slot, Slot::Arena | Slot::Grads))
            .map(|(o, access)| {
                let elements = access.elements(&dims).unwrap_or(0);
                let bytes = elements.saturating_mul(access.dtype.bytes());
                (range(o, bytes), access.mode, o.slot)
            })
            .collect()
    };
    let mut live = Ranges::default();
    for (range, _, slot) in e.instrs.iter().flat_map(touched) {
        if slot == Slot::Grads {
            live.add(range);
        }
    }
    let mut out = vec![0; e.instrs.len()];
    for (n, i) in e.instrs.iter().enumerate().rev() {
        let touched = touched(i);
        let mut now = live.clone();
        touched.iter().for_each(|(range, ..)| now.add(*range));
        out[n] = now.bytes();
        let written = touched.iter().filter(|(_, mode, _)| *mode == Mode::Write);
        written.for_each(|(range, ..)| live.remove(*range));
        let read = touched.iter().filter(|(_, mode, _)| mode.reads());
        read.for_each(|(range, ..)| live.add(*range));
    }
    out
}

/// Sets of bytes: where a stretch begins, where it ends. Stretches are apart.
#[derive(Clone, Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    fn remove(&mut self, (from, to): (u64, u64)) {
        if from >= to {
            return;
        }
        let touched: Vec<(u64, u64)> = (self.0.range(..to).rev())
            .take_while(|(_, end)| **end > from)
            .map(|(start, end)| (*start, *end))
            .collect();
        for (start, end) in touched {
            self.0.remove(&start);
            if start < from {
                self.0.insert(start, from);
            }
            if end > to {
                self.0.insert(to, end);
            }
        }
    }

    fn add(&mut self, (from, to): (u64, u64)) {
        if from >= to {
            return;
        }
        self.remove((from, to));
        self.0.insert(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_added_once_and_cut() {
        let mut r = Ranges::default();
        r.add((0, 10));
        r.add((5, 20));
        r.add((30, 40));
        assert_eq!(r.bytes(), 30);
        r.remove((8, 35));
        assert_eq!(r.bytes(), 13);
        r.add((7, 7));
        r.remove((0, 100));
        assert_eq!(r.bytes(), 0);
    }
}
