//! Scalar expressions: what a map or reduction kernel computes for one element.
//!
//! A [`Body`] is a DAG in SSA order. Nodes have a *level*: constant, uniform, per row, per column, or
//! per element; reductions over the columns turn per-element nodes into per-row ones. All arithmetic
//! is explicit: no node is ever contracted into an FMA or reassociated by an emitter, so the
//! reference device and compiled code agree bit for bit.

use crate::window::{Through, Window};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

/// Index of a node in its [`Body`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExprId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnaryOp {
    Neg,
    Sqrt,
    /// `e^x`; emitted through [`Body::expand_transcendentals`].
    Exp,
    /// Natural logarithm of a positive normal number; likewise.
    Log,
    /// The error function, `2/√π ∫₀ˣ e^(−t²) dt`; likewise.
    Erf,
    /// Round half to even.
    Round,
    /// Unbiased binary exponent of a positive normal number, as a float. In general: the exponent
    /// field of the representation, minus its bias.
    Exponent,
    /// Mantissa in [1, 2) of a positive normal number. In general: the fraction field of the
    /// representation under the sign and exponent of one.
    Mantissa,
    /// The nearest bf16, as a number of the kernel's type: [`crate::bf16`].
    Bf16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    /// `a > b ? a : b` (so: `b` when either is NaN), the semantics of x86 `maxps`.
    Max,
    /// `a < b ? a : b`.
    Min,
    /// `a · 2^b` rounded once, `b` integral and at most 254 (f64: 2046), and +0 for every `b` ≤ −127
    /// (f64: −1023), whatever `a` is. NaN when `b` is NaN. Outside of this the result is unspecified.
    Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CmpOp {
    Eq,
    Lt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReduceOp {
    /// Tree over 16 virtual lanes: lane l sums columns l, l+16, … in order, starting at +0, then lanes
    /// are added pairwise at distance 8, 4, 2, 1.
    Sum,
    /// Same tree with [`BinaryOp::Max`] of (so far, new) and of (near, far); starts at −∞.
    Max,
}

/// Which row of an operand is read for row r of the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowMap {
    Row,
    /// The operand has one row (per-column vector or scalar).
    Zero,
    /// Row `r mod seq`: the position in the sequence.
    Position,
    /// Row `r div seq`: the operand has one for each sequence.
    Sequence,
    /// Row `r − by` where it belongs to the same sequence of `seq` rows as row r, and is one of the domain's. Elsewhere the
    /// element is 0, and a kernel may read row r and drop it.
    Shift(i32),
    /// The row of a window over a grid of tokens, or of the token under one. Beside the grid the element is 0, and a kernel may read the first row of
    /// the same sequence and drop it.
    Window(Window, Through),
}

impl RowMap {
    /// Whether what is read depends on the length of a sequence.
    pub const fn by_position(self) -> bool {
        matches!(self, RowMap::Position | RowMap::Sequence | RowMap::Shift(_))
    }

    /// The operand's row for row `row` of a domain of `rows` rows in sequences of `seq`; `None`: none.
    pub const fn apply(self, row: u64, seq: u64, rows: u64) -> Option<u64> {
        match self {
            RowMap::Row => Some(row),
            RowMap::Zero => Some(0),
            RowMap::Position => Some(row % seq),
            RowMap::Sequence => Some(row / seq),
            RowMap::Shift(by) => {
                let position = row % seq;
                let near = by.unsigned_abs() as u64;
                if by >= 0 {
                    return if near <= position {
                        Some(row - near)
                    } else {
                        None
                    };
                }
                let inside = position + near < seq && row + near < rows;
                if inside { Some(row + near) } else { None }
            }
            RowMap::Window(window, through) => window.apply(through, row),
        }
    }
}

/// Which column of an operand is read for column c of the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColMap {
    Col,
    /// The operand has one column (per-row vector or scalar).
    Zero,
    /// Column `(c + by) mod cols`: tables repeated over heads, parts of wider rows and rows put side by side.
    Turn {
        cols: u64,
        by: u64,
    },
    /// Within each group of n columns, the two halves swapped: `c + n/2` or `c − n/2`.
    HalfSwap(u64),
    /// A row of the operand holds a matrix of `rows` × `cols`, row by row; it is read column by column. Column
    /// `(c mod rows) · cols + c div rows`; the domain has `rows · cols` columns.
    Transposed {
        rows: u64,
        cols: u64,
    },
}

impl ColMap {
    /// Column `c mod cols`.
    pub const fn repeat(cols: u64) -> ColMap {
        ColMap::Turn { cols, by: 0 }
    }
}

/// How an operand is indexed over the kernel's (row, column) domain. The element address is
/// `row_map(r) · stride + col_map(c)`; where there is no row, the element is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Access {
    pub row: RowMap,
    pub col: ColMap,
    /// Elements between consecutive rows of the operand.
    pub stride: u64,
}

impl Access {
    pub const fn full(cols: u64) -> Access {
        Access {
            row: RowMap::Row,
            col: ColMap::Col,
            stride: cols,
        }
    }
    pub const PER_ROW: Access = Access {
        row: RowMap::Row,
        col: ColMap::Zero,
        stride: 1,
    };
    pub const PER_COL: Access = Access {
        row: RowMap::Zero,
        col: ColMap::Col,
        stride: 0,
    };
    pub const SCALAR: Access = Access {
        row: RowMap::Zero,
        col: ColMap::Zero,
        stride: 0,
    };
}

/// One node of a [`Body`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expr {
    /// A constant of the op itself (an epsilon, a polynomial coefficient), never of a scheme.
    Const(f64),
    /// The n-th scalar argument of the launch.
    Uniform(u32),
    /// Reads operand `operand`; an i32 operand is converted (exact below 2^24 in f32), a bf16 one widened (exact).
    Load {
        operand: u32,
        access: Access,
    },
    /// The row number as a float; exact below 2^24 in f32.
    RowIndex,
    /// The column number as a float.
    ColIndex,
    /// Epilogues only: the accumulated value of this element.
    Acc,
    Unary(UnaryOp, ExprId),
    Binary(BinaryOp, ExprId, ExprId),
    /// `a·b + c`, rounded once.
    Fma(ExprId, ExprId, ExprId),
    /// `cmp(a, b) ? t : f`.
    Select {
        cmp: CmpOp,
        a: ExprId,
        b: ExprId,
        t: ExprId,
        f: ExprId,
    },
    /// Over all columns of the row.
    Reduce(ReduceOp, ExprId),
    /// A number in [0, 1), a multiple of 2⁻²⁴, that these four whole numbers below 2²⁴ choose: [`crate::noise`].
    Random([ExprId; 4]),
}

impl Expr {
    /// The same of other nodes.
    pub fn of(self, node: impl Fn(ExprId) -> ExprId) -> Expr {
        match self {
            Expr::Const(_)
            | Expr::Uniform(_)
            | Expr::Load { .. }
            | Expr::RowIndex
            | Expr::ColIndex
            | Expr::Acc => self,
            Expr::Random(args) => Expr::Random(args.map(node)),
            Expr::Unary(op, a) => Expr::Unary(op, node(a)),
            Expr::Reduce(op, a) => Expr::Reduce(op, node(a)),
            Expr::Binary(op, a, b) => Expr::Binary(op, node(a), node(b)),
            Expr::Fma(a, b, c) => Expr::Fma(node(a), node(b), node(c)),
            Expr::Select { cmp, a, b, t, f } => Expr::Select {
                cmp,
                a: node(a),
                b: node(b),
                t: node(t),
                f: node(f),
            },
        }
    }
}

/// By bits.
impl Hash for Expr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Expr::Const(x) => x.to_bits().hash(state),
            Expr::Uniform(n) => n.hash(state),
            Expr::Load { operand, access } => (operand, access).hash(state),
            Expr::RowIndex | Expr::ColIndex | Expr::Acc => {}
            Expr::Unary(op, a) => (op, a).hash(state),
            Expr::Binary(op, a, b) => (op, a, b).hash(state),
            Expr::Fma(a, b, c) => (a, b, c).hash(state),
            Expr::Select { cmp, a, b, t, f } => (cmp, a, b, t, f).hash(state),
            Expr::Reduce(op, a) => (op, a).hash(state),
            Expr::Random(of) => of.hash(state),
        }
    }
}

/// A DAG of scalar expressions in SSA order: operands come before their users.
#[derive(Clone, Debug, Default, PartialEq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Body {
    pub nodes: Vec<Expr>,
}

/// How often a node changes its value over the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The same everywhere.
    Uniform,
    /// Depends on the row only.
    Row,
    /// Depends on the column only.
    Col,
    /// Depends on both.
    Element,
}

impl Level {
    pub fn join(self, other: Level) -> Level {
        use Level::*;
        match (self, other) {
            (Uniform, x) | (x, Uniform) => x,
            (Row, Row) => Row,
            (Col, Col) => Col,
            _ => Element,
        }
    }
}

impl Body {
    /// Appends a node, or returns the equal one that is already there (value numbering).
    pub fn push(&mut self, e: Expr) -> ExprId {
        let same = |x: &Expr| match (x, &e) {
            (Expr::Const(a), Expr::Const(b)) => a.to_bits() == b.to_bits(),
            (a, b) => *a == *b,
        };
        if let Some(i) = self.nodes.iter().position(same) {
            return ExprId(i as u32);
        }
        self.nodes.push(e);
        ExprId(self.nodes.len() as u32 - 1)
    }

    pub fn konst(&mut self, x: f64) -> ExprId {
        self.push(Expr::Const(x))
    }
    pub fn uniform(&mut self, n: u32) -> ExprId {
        self.push(Expr::Uniform(n))
    }
    pub fn load(&mut self, operand: u32, access: Access) -> ExprId {
        self.push(Expr::Load { operand, access })
    }
    pub fn unary(&mut self, op: UnaryOp, a: ExprId) -> ExprId {
        self.push(Expr::Unary(op, a))
    }
    pub fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> ExprId {
        self.push(Expr::Binary(op, a, b))
    }
    pub fn add(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.binary(BinaryOp::Add, a, b)
    }
    pub fn sub(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.binary(BinaryOp::Sub, a, b)
    }
    pub fn mul(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.binary(BinaryOp::Mul, a, b)
    }
    pub fn fma(&mut self, a: ExprId, b: ExprId, c: ExprId) -> ExprId {
        self.push(Expr::Fma(a, b, c))
    }
    pub fn select(&mut self, cmp: CmpOp, a: ExprId, b: ExprId, t: ExprId, f: ExprId) -> ExprId {
        self.push(Expr::Select { cmp, a, b, t, f })
    }
    pub fn reduce(&mut self, op: ReduceOp, a: ExprId) -> ExprId {
        self.push(Expr::Reduce(op, a))
    }
    pub fn get(&self, id: ExprId) -> &Expr {
        &self.nodes[id.0 as usize]
    }

    /// Marks `roots` and what they are computed from, without looking under nodes where `stop` holds.
    pub fn reach(&self, roots: &[usize], stop: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut marks = vec![false; self.nodes.len()];
        for r in roots {
            marks[*r] = true;
        }
        for i in (0..marks.len()).rev() {
            if marks[i] && !stop(i) {
                for a in Body::args(&self.nodes[i]) {
                    marks[a.0 as usize] = true;
                }
            }
        }
        marks
    }

    /// The ids a node reads, in order.
    pub fn args(e: &Expr) -> Vec<ExprId> {
        match *e {
            Expr::Const(_)
            | Expr::Uniform(_)
            | Expr::Load { .. }
            | Expr::RowIndex
            | Expr::ColIndex
            | Expr::Acc => vec![],
            Expr::Random(args) => args.to_vec(),
            Expr::Unary(_, a) | Expr::Reduce(_, a) => vec![a],
            Expr::Binary(_, a, b) => vec![a, b],
            Expr::Fma(a, b, c) => vec![a, b, c],
            Expr::Select { a, b, t, f, .. } => vec![a, b, t, f],
        }
    }

    /// The level of every node.
    pub fn levels(&self) -> Vec<Level> {
        let mut out: Vec<Level> = Vec::with_capacity(self.nodes.len());
        for e in &self.nodes {
            let l = match e {
                Expr::Const(_) | Expr::Uniform(_) => Level::Uniform,
                Expr::RowIndex => Level::Row,
                Expr::ColIndex => Level::Col,
                Expr::Acc => Level::Element,
                Expr::Load { access, .. } => match (access.row, access.col) {
                    (RowMap::Zero, ColMap::Zero) => Level::Uniform,
                    (RowMap::Zero, _) => Level::Col,
                    (_, ColMap::Zero) => Level::Row,
                    _ => Level::Element,
                },
                Expr::Reduce(..) => Level::Row,
                e => Self::args(e)
                    .iter()
                    .fold(Level::Uniform, |l, a| l.join(out[a.0 as usize])),
            };
            out.push(l);
        }
        out
    }

    /// How many reductions lie under every node: a node of phase p needs p sweeps over the row first.
    /// A reduction itself has the phase of its result (argument's phase + 1).
    pub fn phases(&self) -> Vec<u32> {
        let mut out: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for e in &self.nodes {
            let below = Self::args(e)
                .iter()
                .map(|a| out[a.0 as usize])
                .max()
                .unwrap_or(0);
            out.push(if matches!(e, Expr::Reduce(..)) {
                below + 1
            } else {
                below
            });
        }
        out
    }
}
