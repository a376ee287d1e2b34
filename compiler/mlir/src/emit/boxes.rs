//! Copies of Hopper's copying unit (TMA): boxes of an operand, described by a tensor map, and the mbarriers that say when they are
//! there (PTX ISA, 9.7.8.24 `cp.async.bulk.tensor`, 9.7.12.15 `mbarrier`).
//!
//! Takes places in the block's shared memory as numbers of two-byte elements, and who asks: of all threads that get here, those for
//! which an i1 holds, with no branch. LLVM's operations for these come with newer PTX, so they are text. Leaves tiles, and who waits for
//! what, to the kernels.

use super::gpu::argument;
use super::{Elem, Emitter, Type, Val, list, types};

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

    fn text(&mut self, text: &str, operands: &str, args: &[Val]) {
        let (args, kinds) = (list(args), types(args));
        self.stmt(format_args!(
            "llvm.inline_asm has_side_effects \"{text}\", \"{operands},~{{memory}}\" {args} : ({kinds}) -> ()"
        ));
    }

    /// Makes an mbarrier at an element, a multiple of four: each of its phases ends when one thread has said how much comes, and that
    /// is there. Before another uses it the thread must publish it, and a barrier follow.
    pub fn prepare_mbarrier(&mut self, who: Val, element: Val) {
        let at = self.shared_address(element);
        let text = "@$0 mbarrier.init.shared::cta.b64 [$1], 1;";
        self.text(text, "b,l", &[who, at]);
    }

    /// Tells an mbarrier how many bytes this phase waits for.
    pub fn expect(&mut self, who: Val, mbarrier: Val, bytes: u64) {
        let at = self.shared_address(mbarrier);
        let text = format!("@$0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [$1], {bytes};");
        self.text(&text, "b,l", &[who, at]);
    }

    /// Begins to copy boxes to shared memory, at multiples of 1024 bytes.
    pub fn copy_boxes(&mut self, who: Val, boxes: Boxes, mbarrier: Val) {
        let map = argument("m", boxes.map, Type::PTR);
        let mbarrier = self.shared_address(mbarrier);
        for (from, to) in boxes.from {
            let to = self.shared_address(*to);
            let mut args = vec![who, to, map, mbarrier];
            let first = args.len();
            for x in from {
                args.push(self.convert(*x, Elem::I32));
            }
            let rank = from.len();
            let coordinates: Vec<String> = (0..rank).map(|n| format!("${}", first + n)).collect();
            let text = format!(
                "@$0 cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$1], [$2, {{{}}}], [$3];",
                coordinates.join(", ")
            );
            let operands = format!("b,l,l,l{}", ",r".repeat(rank));
            self.text(&text, &operands, &args);
        }
    }

    /// Waits until the phase of an mbarrier that has this parity (i64) is over; what was copied is there for this thread and for
    /// tensor cores.
    pub fn await_phase(&mut self, mbarrier: Val, parity: Val) {
        let at = self.shared_address(mbarrier);
        let parity = self.convert(parity, Elem::I32);
        let text = [
            "{",
            ".reg .pred over;",
            "again:",
            "mbarrier.try_wait.parity.shared::cta.b64 over, [$0], $1;",
            "@!over bra again;",
            "}",
        ];
        self.text(&text.join("\\0A\\09"), "l,r", &[at, parity]);
    }
}
