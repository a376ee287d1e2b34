//! Copies of Hopper's copying unit (TMA): boxes of an operand, described by a tensor map, and the mbarriers that say when they are
//! there (PTX ISA, 9.7.8.24 `cp.async.bulk.tensor`, 9.7.12.15 `mbarrier`).
//!
//! Takes places in the block's shared memory as numbers of two-byte elements, and who asks: of all threads that get here, those for
//! which an i1 holds, with no branch. Leaves tiles, and who waits for what, to the kernels.

use super::gpu::argument;
use super::{Elem, Emitter, Type, Val, list};

/// Nanoseconds that a thread may sleep before it looks at a phase again; it is woken when the phase is over.
const SLEEP: u64 = 10_000_000;

/// Boxes that an mbarrier waits for.
pub struct Boxes<'a> {
    /// The number of the operand's map among the kernel's.
    pub map: u64,
    /// The first element of each, the innermost dimension first, and where it is to be.
    pub from: &'a [(Vec<Val>, Val)],
}

impl Emitter {
    /// The address (i64) of an element of shared memory.
    pub(super) fn shared_address(&mut self, element: Val) -> Val {
        let p = self.shared_element(element);
        self.op(
            "llvm.ptrtoint",
            format_args!("{p} : !llvm.ptr<3> to i64"),
            Type::I64,
        )
    }

    fn i32(&mut self, n: u64) -> Val {
        self.integer(n as i64, Type::scalar(Elem::I32))
    }

    /// Makes an mbarrier at an element, a multiple of four: each of its phases ends when one thread has said how much comes, and that
    /// is there. Before another uses it the thread must publish it, and a barrier follow.
    pub fn prepare_mbarrier(&mut self, who: Val, element: Val) {
        let (at, one) = (self.shared_element(element), self.i32(1));
        self.stmt(format_args!(
            "nvvm.mbarrier.init {at}, {one}, predicate = {who} : !llvm.ptr<3>, i32, i1"
        ));
    }

    /// Tells an mbarrier how many bytes this phase waits for.
    pub fn expect(&mut self, who: Val, mbarrier: Val, bytes: u64) {
        let (at, bytes) = (self.shared_element(mbarrier), self.i32(bytes));
        self.stmt(format_args!(
            "nvvm.mbarrier.arrive.expect_tx {at}, {bytes}, predicate = {who} : !llvm.ptr<3>, i32, i1"
        ));
    }

    /// Begins to copy boxes to shared memory, at multiples of 1024 bytes.
    pub fn copy_boxes(&mut self, who: Val, boxes: Boxes, mbarrier: Val) {
        let map = argument("m", boxes.map, Type::PTR);
        let mbarrier = self.shared_element(mbarrier);
        for (from, to) in boxes.from {
            let to = self.shared_element(*to);
            let from: Vec<Val> = from.iter().map(|x| self.convert(*x, Elem::I32)).collect();
            let from = list(&from);
            self.stmt(format_args!(
                "nvvm.cp.async.bulk.tensor.shared.cluster.global {to}, {map}, {mbarrier}, box[{from}] predicate = {who} : !llvm.ptr<3>, !llvm.ptr"
            ));
        }
    }

    /// Waits until the phase of an mbarrier that has this parity (i64) is over; what was copied is there for this thread and for
    /// tensor cores.
    pub fn await_phase(&mut self, mbarrier: Val, parity: Val) {
        let at = self.shared_element(mbarrier);
        let (parity, sleep) = (self.convert(parity, Elem::I32), self.i32(SLEEP));
        self.stmt(format_args!(
            "nvvm.mbarrier.try_wait.parity {at}, {parity}, {sleep} : !llvm.ptr<3>, i32, i32"
        ));
    }
}
