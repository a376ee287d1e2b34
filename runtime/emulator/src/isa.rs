//! Instructions of PTX as far as the emitters' kernels are made of them: what [`super::parse`] gives and [`super::run`] executes.

use std::cmp::Ordering;

/// The address of the first byte of shared memory. Dynamic shared memory begins one alignment later, so that it is not better
/// aligned than it says.
pub const SHARED: u64 = 1 << 12;
/// The address of a launch's first tensor map in the space of parameters, and how far it is from one to the next.
pub const MAPS: u64 = 1 << 30;
pub const MAP_BYTES: u64 = 128;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ty {
    Pred,
    U(u32),
    S(u32),
    B(u32),
    F(u32),
}

impl Ty {
    pub fn of(s: &str) -> Option<Ty> {
        if s == "pred" {
            return Some(Ty::Pred);
        }
        let bits = s.get(1..)?.parse().ok()?;
        Some(match s.as_bytes()[0] {
            b'u' => Ty::U(bits),
            b's' => Ty::S(bits),
            b'b' => Ty::B(bits),
            b'f' => Ty::F(bits),
            _ => return None,
        })
    }
    pub fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::U(n) | Ty::S(n) | Ty::B(n) | Ty::F(n) => n,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    Reg(u32),
    Imm(u64),
    Tid,
    Ctaid,
    /// How many blocks there are.
    Nctaid,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Space {
    Global,
    Shared,
    Param,
}

impl Space {
    /// What is added to an address of this space to make it a generic one (`cvta`). Windows are apart, so that an address
    /// of one kind is never taken for one of another; global addresses are generic as they are.
    pub fn window(self) -> u64 {
        match self {
            Space::Global => 0,
            Space::Shared => 1 << 60,
            Space::Param => 1 << 61,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    Mov,
    /// The generic address of what lies in a space, and back.
    ToGeneric(Space),
    FromGeneric(Space),
    /// Two halves to one register, and back.
    Pack,
    Unpack,
    Param(usize),
    Load(Space),
    Store(Space),
    Add,
    Sub,
    Mul,
    MulWide,
    MulHigh,
    Mad,
    MadWide,
    Fma,
    Div,
    Rem,
    Min,
    Max,
    Neg,
    Abs,
    Sqrt,
    Reciprocal,
    And,
    Or,
    Xor,
    Not,
    ShiftLeft,
    ShiftRight,
    Compare(Relation),
    Select,
    Convert(Ty, Rounding),
    /// Bits from a position on, so many of them.
    Field,
    /// Four bytes picked from two words.
    Permute,
    Popc,
    Clz,
    Brev,
    Barrier,
    WarpBarrier,
    FromDistance,
    FromLane,
    Ballot,
    /// Four 8 × 8 matrices of shared memory, as they are or transposed.
    LoadMatrices(bool),
    /// m16n8k16 of bf16 with f32 sums.
    Multiply,
    /// Two f32 to bf16, the first to the upper half.
    Pair,
    /// 16 bytes from global to shared memory, behind the back of the threads.
    CopyAhead,
    /// 2^x, about.
    Exp2,
    CloseCopies,
    AwaitCopies,
    /// Lets tensor cores see what the thread wrote to shared memory.
    Publish,
    /// Orders what was done to registers before products.
    FenceProducts,
    /// m64nNk16 of a warpgroup, bf16 factors in shared memory, of which A, if it is not in registers, and B may lie across the
    /// inner index.
    Product {
        columns: usize,
        left: Option<bool>,
        right: bool,
    },
    CloseProducts,
    AwaitProducts,
    /// An mbarrier is made; told how many bytes its phase waits for; asked whether a phase is over.
    Prepare,
    Expect,
    Over,
    /// A box of an operand to shared memory.
    CopyBox,
    /// Waits for the launch before this one.
    AwaitLaunch,
    /// Lets the next launch begin.
    PermitLaunch,
    /// An operand's line, to be in a cache: of nothing that a thread may see.
    Prefetch,
    Branch(usize),
    Return,
}

/// What a comparison is true of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Relation {
    less: bool,
    equal: bool,
    greater: bool,
    /// Where one operand is NaN.
    unordered: bool,
}

impl Relation {
    /// By its name in PTX.
    pub fn named(name: &str) -> Option<Relation> {
        let [less, equal, greater, unordered] = match name {
            "eq" => [false, true, false, false],
            "ne" => [true, false, true, false],
            "lt" => [true, false, false, false],
            "le" => [true, true, false, false],
            "gt" => [false, false, true, false],
            "ge" => [false, true, true, false],
            "equ" => [false, true, false, true],
            "neu" => [true, false, true, true],
            "ltu" => [true, false, false, true],
            "leu" => [true, true, false, true],
            "gtu" => [false, false, true, true],
            "geu" => [false, true, true, true],
            "num" => [true, true, true, false],
            "nan" => [false, false, false, true],
            _ => return None,
        };
        Some(Relation {
            less,
            equal,
            greater,
            unordered,
        })
    }

    pub fn holds(self, of: Option<Ordering>) -> bool {
        match of {
            Some(Ordering::Less) => self.less,
            Some(Ordering::Equal) => self.equal,
            Some(Ordering::Greater) => self.greater,
            None => self.unordered,
        }
    }
}

/// Of a conversion, by its name in PTX.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rounding {
    /// None is named: between integers.
    Unnamed,
    Rn,
    Rni,
    Rzi,
}

impl Op {
    /// Whether it reads or writes memory that launches share.
    pub fn touches_memory(self) -> bool {
        use Space::Global;
        matches!(
            self,
            Op::Load(Global) | Op::Store(Global) | Op::CopyAhead | Op::CopyBox
        )
    }

    /// Whether all threads of a warp do it together.
    pub fn is_of_warps(self) -> bool {
        matches!(
            self,
            Op::Barrier
                | Op::WarpBarrier
                | Op::FromDistance
                | Op::FromLane
                | Op::Ballot
                | Op::LoadMatrices(_)
                | Op::Multiply
                | Op::FenceProducts
                | Op::Product { .. }
                | Op::CloseProducts
                | Op::AwaitProducts
        )
    }
}

#[derive(Clone, Debug)]
pub struct Instruction {
    pub guard: Option<(u32, bool)>,
    pub op: Op,
    pub ty: Ty,
    pub to: Vec<u32>,
    pub args: Vec<Arg>,
    /// Added to the address of loads and stores.
    pub offset: i64,
    /// Added to the address that a copy reads.
    pub from_offset: i64,
    pub text: String,
}

impl Instruction {
    /// The registers that it reads.
    pub fn reads(&self) -> impl Iterator<Item = u32> {
        let registers = self.args.iter().filter_map(|a| match a {
            Arg::Reg(r) => Some(*r),
            _ => None,
        });
        registers.chain(self.guard.map(|g| g.0))
    }
}

#[derive(Debug)]
pub struct Kernel {
    pub name: String,
    pub params: usize,
    /// Tensor maps, behind the others.
    pub maps: usize,
    pub threads: usize,
    pub shared: u64,
    /// What the address of dynamic shared memory is a multiple of, where there is some.
    pub dynamic: Option<u64>,
    pub registers: usize,
    pub code: Vec<Instruction>,
}
