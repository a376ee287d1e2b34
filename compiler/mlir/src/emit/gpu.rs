//! GPU operations beyond arithmetic: grid indices, shared memory, barriers, and shuffles between threads of a warp.
//!
//! A kernel takes its arguments one by one ([`odec_program::gpu`]). Addresses are generic; LLVM finds out which are
//! global and which shared.

use super::{Cmp, Elem, Emitter, Name, Type, Val};
use odec_program::gpu::Shape;
use odec_program::gpu::tensor::map::{ALIGNMENT, BYTES};
use odec_program::gpu::tensor::warpgroup::PATTERN;
use odec_program::{DType, Target};

/// What a kernel for a GPU takes, and the block it runs in.
pub(super) struct Block {
    arguments: Arguments,
    shape: Shape,
    /// Registers that a thread may have at most.
    registers: u64,
}

/// How many arguments of each kind a kernel takes.
#[derive(Clone, Copy)]
pub(crate) struct Arguments {
    pub operands: usize,
    pub dims: usize,
    pub coeffs: usize,
    /// Tensor maps ([`odec_program::gpu::tensor::map`]).
    pub maps: usize,
}

/// The n-th argument of a kind.
pub(super) fn argument(kind: &'static str, n: u64, ty: Type) -> Val {
    Val {
        name: Name::Nth(kind, n as u32),
        ty,
    }
}

impl Block {
    /// The declaration of the block's shared memory.
    pub(super) fn memory(&self, symbol: &str) -> String {
        match self.shape.shared {
            0 => String::new(),
            // As large as a launch says.
            _ if self.shape.dynamic() > 0 => format!(
                "  llvm.mlir.global external @{symbol}_shared() {{addr_space = 3 : i32, alignment = {PATTERN} : i64}} : !llvm.array<0 x i8>\n"
            ),
            n => format!(
                "  llvm.mlir.global internal @{symbol}_shared() {{addr_space = 3 : i32, alignment = {PATTERN} : i64}} : !llvm.array<{n} x i8>\n"
            ),
        }
    }

    /// Everything up to the body.
    pub(super) fn signature(&self, symbol: &str) -> String {
        let kinds = [
            ("o", self.arguments.operands, "!llvm.ptr"),
            ("d", self.arguments.dims, "i64"),
            ("u", self.arguments.coeffs, "f64"),
        ];
        let arguments = kinds
            .into_iter()
            .flat_map(|(kind, n, ty)| (0..n).map(move |i| format!("%{kind}{i}: {ty}")));
        // Read where the launch has put it: a copy in memory of its own would not be one that copies may name.
        let maps = (0..self.arguments.maps).map(|i| {
            format!("%m{i}: !llvm.ptr {{llvm.byval = !llvm.array<{BYTES} x i8>, llvm.align = {ALIGNMENT} : i64, nvvm.grid_constant}}")
        });
        let arguments: Vec<String> = arguments.chain(maps).collect();
        let (threads, registers) = (self.shape.threads, self.registers);
        format!(
            "llvm.func @{symbol}({}) attributes {{nvvm.kernel, nvvm.reqntid = array<i32: {threads}, 1, 1>, nvvm.maxnreg = {registers} : i32}}",
            arguments.join(", ")
        )
    }
}

impl Emitter {
    /// An empty kernel for a GPU, in f32; only threads and shared memory of the shape matter.
    pub(crate) fn for_gpu(
        symbol: &str,
        target: Target,
        arguments: Arguments,
        shape: Shape,
        registers: u64,
    ) -> Emitter {
        Emitter {
            gpu: Some(Block {
                arguments,
                shape,
                registers,
            }),
            ..Emitter::new(symbol, DType::F32, target)
        }
    }

    /// Number of the thread in its block (i64).
    pub fn thread(&mut self) -> Val {
        self.place("tid")
    }

    /// Number of the block (i64).
    pub fn block(&mut self) -> Val {
        self.place("ctaid")
    }

    /// How many blocks there are (i64).
    pub fn blocks(&mut self) -> Val {
        self.place("nctaid")
    }

    fn place(&mut self, register: &str) -> Val {
        let ty = Type::scalar(Elem::I32);
        let x = self.op(
            &format!("nvvm.read.ptx.sreg.{register}.x"),
            format_args!(": i32"),
            ty,
        );
        self.op(
            "arith.extui",
            format_args!("{x} : i32 to i64"),
            Type::scalar(Elem::I64),
        )
    }

    /// The address of element `n` of the block's shared memory.
    pub fn shared(&mut self, n: u64) -> Val {
        let symbol = self.symbol.clone();
        let own = self.op(
            "llvm.mlir.addressof",
            format_args!("@{symbol}_shared : !llvm.ptr<3>"),
            Type::PTR,
        );
        let generic = self.op(
            "llvm.addrspacecast",
            format_args!("{own} : !llvm.ptr<3> to !llvm.ptr"),
            Type::PTR,
        );
        self.at_const(generic, n as i64, self.elem)
    }

    /// Waits until the launch before this one is done and its writes are visible, then permits the next launch to begin.
    pub fn await_launch(&mut self) {
        for step in ["wait", "launch.dependents"] {
            self.stmt(format_args!(
                "llvm.call_intrinsic \"llvm.nvvm.griddepcontrol.{step}\"() : () -> ()"
            ));
        }
    }

    /// Asks for the line of an operand's address to be in the cache that all blocks share.
    pub fn prefetch_line(&mut self, pointer: Val) {
        let global = self.op(
            "llvm.addrspacecast",
            format_args!("{pointer} : !llvm.ptr to !llvm.ptr<1>"),
            Type::PTR,
        );
        self.stmt(format_args!(
            "nvvm.prefetch level = L2, {global} : !llvm.ptr<1>"
        ));
    }

    /// Waits for all threads of the block, and makes what they wrote seen by all.
    pub fn barrier(&mut self) {
        self.stmt(format_args!("nvvm.barrier0"));
    }

    /// The same for the threads of the warp.
    pub fn warp_barrier(&mut self) {
        let all = self.all_lanes();
        self.stmt(format_args!("nvvm.bar.warp.sync {all} : i32"));
    }

    fn all_lanes(&mut self) -> Val {
        self.integer(-1, Type::scalar(Elem::I32))
    }

    /// The value that thread `lane xor distance` of the warp has. All threads of the warp must get here.
    pub fn at_distance(&mut self, x: Val, distance: u64) -> Val {
        let lane = self.integer(distance as i64, Type::scalar(Elem::I32));
        self.exchange("bfly", x, lane)
    }

    /// The value that thread `lane` (i64) of the warp has. All threads of the warp must get here.
    pub fn of_lane(&mut self, x: Val, lane: Val) -> Val {
        let lane = self.convert(lane, Elem::I32);
        self.exchange("idx", x, lane)
    }

    fn exchange(&mut self, how: &str, x: Val, lane: Val) -> Val {
        let (all, last) = (self.all_lanes(), self.integer(31, lane.ty));
        let ty = x.ty;
        self.op(
            &format!("nvvm.shfl.sync {how}"),
            format_args!("{all}, {x}, {lane}, {last} : {ty} -> {ty}"),
            ty,
        )
    }

    /// Which threads of the warp the i1 `holds` for, as the bits of an i32. All of them must get here.
    pub fn ballot(&mut self, holds: Val) -> Val {
        let all = self.all_lanes();
        self.op(
            "nvvm.vote.sync ballot",
            format_args!("{all}, {holds} -> i32"),
            Type::scalar(Elem::I32),
        )
    }

    /// How many bits of an i32 are set (i64).
    pub fn count_ones(&mut self, bits: Val) -> Val {
        let n = self.intrinsic("ctpop", &[bits], bits.ty);
        self.convert(n, Elem::I64)
    }

    /// The number of the lowest bit that is set in an i32 other than zero (i64).
    pub fn first_one(&mut self, bits: Val) -> Val {
        let ty = bits.ty;
        let n = self.op(
            "\"llvm.intr.cttz\"",
            format_args!("({bits}) <{{is_zero_poison = true}}> : ({ty}) -> {ty}"),
            ty,
        );
        self.convert(n, Elem::I64)
    }

    /// Loads a scalar or vector whose address is aligned to all of it.
    pub fn load_whole(&mut self, pointer: Val, ty: Type) -> Val {
        let align = ty.elem.bytes() * u64::from(ty.lanes.max(1));
        self.op(
            "llvm.load",
            format_args!("{pointer} {{alignment = {align} : i64}} : !llvm.ptr -> {ty}"),
            ty,
        )
    }

    /// Stores a scalar or vector whose address is aligned to all of it.
    pub fn store_whole(&mut self, value: Val, pointer: Val) {
        let align = value.ty.elem.bytes() * u64::from(value.ty.lanes.max(1));
        self.stmt(format_args!(
            "llvm.store {value}, {pointer} {{alignment = {align} : i64}} : {}, !llvm.ptr",
            value.ty
        ));
    }

    /// A vector of scalars.
    pub fn join(&mut self, parts: &[Val]) -> Val {
        let ty = Type::vector(parts[0].ty.elem, parts.len() as u64);
        let list = super::list(parts);
        self.op("vector.from_elements", format_args!("{list} : {ty}"), ty)
    }

    /// The lanes of a vector; a scalar is its own only one.
    pub fn parts(&mut self, x: Val) -> Vec<Val> {
        match x.ty.lanes {
            0 => vec![x],
            n => (0..u64::from(n)).map(|i| self.extract(x, i)).collect(),
        }
    }

    /// Whether i64 `a` is below `b`.
    pub fn below(&mut self, a: Val, b: Val) -> Val {
        self.cmp(Cmp::Lt, a, b)
    }
}
