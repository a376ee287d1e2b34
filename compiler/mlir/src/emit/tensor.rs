//! Instructions of tensor cores and of the copies that feed them (compute capability 8.0 on): `mma.sync`, `ldmatrix`,
//! `cp.async`.
//!
//! Takes registers, and places in the block's shared memory as numbers of two-byte elements; fragments are those of the PTX
//! ISA, 9.7.14 (`mma.m16n8k16` with bf16 factors). Leaves tiles and who computes what to the kernels.

use super::{Elem, Emitter, Type, Val, list};

/// Four registers, as LLVM returns them.
const FOUR_BITS: &str = "!llvm.struct<(i32, i32, i32, i32)>";
const FOUR_FLOATS: &str = "!llvm.struct<(f32, f32, f32, f32)>";

impl Emitter {
    /// The address of an element of shared memory, in its own address space.
    pub(super) fn shared_element(&mut self, element: Val) -> Val {
        let symbol = self.symbol.clone();
        let own = self.op(
            "llvm.mlir.addressof",
            format_args!("@{symbol}_shared : !llvm.ptr<3>"),
            Type::PTR,
        );
        self.op(
            "llvm.getelementptr",
            format_args!("{own}[{element}] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i16"),
            Type::PTR,
        )
    }

    fn fields(&mut self, whole: Val, of: &str, elem: Elem) -> [Val; 4] {
        [0, 1, 2, 3].map(|i| {
            self.op(
                "llvm.extractvalue",
                format_args!("{whole}[{i}] : {of}"),
                Type::scalar(elem),
            )
        })
    }

    /// Four 8 × 8 matrices of shared memory: lane l says where row l mod 8 of matrix l / 8 begins, at a multiple of eight
    /// elements. Lane l gets elements (l / 4, 2·(l mod 4)) and the next of each, the lower half first; `turned`, of
    /// each matrix transposed. All threads of the warp must get here.
    pub fn load_matrices(&mut self, element: Val, turned: bool) -> [Val; 4] {
        let p = self.shared_element(element);
        let how = if turned { ".trans" } else { "" };
        let all = self.op(
            "llvm.call_intrinsic",
            format_args!("\"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{how}.b16\"({p}) : (!llvm.ptr<3>) -> {FOUR_BITS}"),
            Type::PTR,
        );
        self.fields(all, FOUR_BITS, Elem::I32)
    }

    /// `A·B + C` of a warp, A 16 × 16 and B 16 × 8 in bf16, C 16 × 8 in f32. The order of the sum is the card's.
    pub fn multiply(&mut self, a: [Val; 4], b: [Val; 2], c: [Val; 4]) -> [Val; 4] {
        let (a, b, c) = (list(&a), list(&b), list(&c));
        let all = self.op(
            "llvm.call_intrinsic",
            format_args!(
                "\"llvm.nvvm.mma.m16n8k16.row.col.bf16\"({a}, {b}, {c}) : (i32, i32, i32, i32, i32, i32, f32, f32, f32, f32) -> {FOUR_FLOATS}"
            ),
            Type::PTR,
        );
        self.fields(all, FOUR_FLOATS, Elem::F32)
    }

    /// Begins to copy 16 bytes from global to shared memory, both aligned to them: the first `bytes` (i32) of them, then
    /// zeros. Nobody may look before [`Self::await_copies`].
    pub fn copy_ahead(&mut self, element: Val, from: Val, bytes: Val) {
        let to = self.shared_element(element);
        let from = self.op(
            "llvm.addrspacecast",
            format_args!("{from} : !llvm.ptr to !llvm.ptr<1>"),
            Type::PTR,
        );
        self.stmt(format_args!(
            "llvm.call_intrinsic \"llvm.nvvm.cp.async.cg.shared.global.16.s\"({to}, {from}, {bytes}) : (!llvm.ptr<3>, !llvm.ptr<1>, i32) -> ()"
        ));
    }

    /// Ends a group of copies.
    pub fn close_copies(&mut self) {
        self.stmt(format_args!(
            "llvm.call_intrinsic \"llvm.nvvm.cp.async.commit.group\"() : () -> ()"
        ));
    }

    /// Waits for this thread's groups of copies but the last `left`; a barrier must follow before others look.
    pub fn await_copies(&mut self, left: u64) {
        let left = self.integer(left as i64, Type::scalar(Elem::I32));
        self.stmt(format_args!(
            "llvm.call_intrinsic \"llvm.nvvm.cp.async.wait.group\"({left}) : (i32) -> ()"
        ));
    }

    /// Two f32, rounded to bf16 ([`odec_program::bf16::of_f32`], but for the payload of NaN), as an i32.
    pub fn pair_bf16(&mut self, low: Val, high: Val) -> Val {
        let pair = self.op(
            "llvm.call_intrinsic",
            format_args!(
                "\"llvm.nvvm.ff2bf16x2.rn\"({high}, {low}) : (f32, f32) -> vector<2xbf16>"
            ),
            Type::PTR,
        );
        self.op(
            "llvm.bitcast",
            format_args!("{pair} : vector<2xbf16> to i32"),
            Type::scalar(Elem::I32),
        )
    }

    /// 2^x of an f32 by the card's own unit, which is not rounded correctly: the relative error is below 2⁻²², 2^0 is 1
    /// and 2^−∞ is 0 (PTX ISA, 9.7.3.21). What is no normal number is 0: with those it would take four instructions.
    pub fn exp2(&mut self, x: Val) -> Val {
        self.op(
            "llvm.call_intrinsic",
            format_args!("\"llvm.nvvm.ex2.approx.ftz.f32\"({x}) : (f32) -> f32"),
            x.ty,
        )
    }

    /// The larger of two f32 by one instruction; where one is NaN, the other.
    pub fn larger(&mut self, a: Val, b: Val) -> Val {
        self.intrinsic("maxnum", &[a, b], a.ty)
    }
}
