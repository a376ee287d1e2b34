//! Scalar evaluation of expressions.
//!
//! Takes a [`Body`] and a [`Memory`] to read operands from; gives the very bits that compiled kernels
//! give: same operations, same order, same reduction tree, same expansion of transcendentals. The
//! reference device runs programs on it, and the tests of the emitters compare against it. Speed is
//! secondary, but a node is evaluated for a whole row at a time, so small models can be trained on it.

use crate::expr::{BinaryOp, Body, ColMap, Expr, ExprId, Level, ReduceOp};
use crate::noise;
use crate::real::Real;
use std::ops::Range;

/// The operands of a launch, indexed by element. Implementations convert i32 operands on loading.
pub trait Memory<T> {
    fn load(&self, operand: u32, index: u64) -> T;
    fn store(&mut self, operand: u32, index: u64, value: T);

    /// Appends elements that lie beside each other. Implementations may ask once what they have to ask of each element.
    fn load_all(&self, operand: u32, indices: Range<u64>, out: &mut Vec<T>) {
        out.extend(indices.map(|i| self.load(operand, i)));
    }
}

/// Virtual lanes of a reduction, on every target.
pub const LANES: usize = 16;

/// How a reduction combines two values, and where it starts.
fn combination(op: ReduceOp) -> (BinaryOp, f64) {
    match op {
        ReduceOp::Sum => (BinaryOp::Add, 0.0),
        ReduceOp::Max => (BinaryOp::Max, f64::NEG_INFINITY),
    }
}

/// Reduces `values` in the order that [`ReduceOp`] documents.
pub fn reduce<T: Real>(op: ReduceOp, values: impl Iterator<Item = T>) -> T {
    let (binary, start) = combination(op);
    let mut lanes = [T::of(start); LANES];
    for (i, v) in values.enumerate() {
        let lane = &mut lanes[i % LANES];
        *lane = T::binary(binary, *lane, v);
    }
    tree(op, lanes)
}

/// Combines the virtual lanes pairwise at distance 8, 4, 2, 1.
pub fn tree<T: Real>(op: ReduceOp, mut lanes: [T; LANES]) -> T {
    let (binary, _) = combination(op);
    let mut distance = LANES / 2;
    while distance > 0 {
        for l in 0..distance {
            lanes[l] = T::binary(binary, lanes[l], lanes[l + distance]);
        }
        distance /= 2;
    }
    lanes[0]
}

/// An operation on columns, or on one number and each column: what it is, is asked once.
fn binary<T: Real>(op: BinaryOp, a: &[T], b: &[T], out: &mut Vec<T>) {
    fn each<T: Real>(a: &[T], b: &[T], out: &mut Vec<T>, f: impl Fn(T, T) -> T) {
        match (a, b) {
            (&[a], b) => out.extend(b.iter().map(|b| f(a, *b))),
            (a, &[b]) => out.extend(a.iter().map(|a| f(*a, b))),
            (a, b) => out.extend(a.iter().zip(b).map(|(a, b)| f(*a, *b))),
        }
    }
    macro_rules! each {
        ($($op:ident)*) => {
            match op {
                $(BinaryOp::$op => each(a, b, out, |a, b| T::binary(BinaryOp::$op, a, b)),)*
            }
        };
    }
    each!(Add Sub Mul Div Max Min Scale)
}

/// A body prepared for evaluation row by row.
pub struct Evaluator<T> {
    body: Body,
    /// From the ids of the body given to `new` to those of the expanded one.
    ids: Vec<ExprId>,
    levels: Vec<Level>,
    uniforms: Vec<T>,
    /// One value per column for [`Level::Col`] and [`Level::Element`] nodes, a single one for the others.
    values: Vec<Vec<T>>,
    /// The columns for which the uniform and per-column nodes are up to date.
    ready: Option<Range<u64>>,
}

impl<T: Real> Evaluator<T> {
    /// `uniforms` are the launch's coefficients, rounded here.
    pub fn new(body: &Body, uniforms: &[f64]) -> Self {
        let (body, ids) = body.expand_transcendentals(T::DTYPE);
        let levels = body.levels();
        let values = vec![Vec::new(); body.nodes.len()];
        let uniforms = uniforms.iter().map(|x| T::of(*x)).collect();
        Evaluator {
            body,
            ids,
            levels,
            uniforms,
            values,
            ready: None,
        }
    }

    /// Evaluates every node for columns `cols` of row `row` of a domain of `dims`, its rows and those of a sequence. Bodies
    /// with reductions must be given all columns of the row. `acc` is read by [`Expr::Acc`]: one value per column, or nothing where there is no such node.
    pub fn row(
        &mut self,
        memory: &impl Memory<T>,
        row: u64,
        [rows, seq]: [u64; 2],
        cols: Range<u64>,
        acc: &[T],
    ) {
        let same_columns = self.ready.as_ref() == Some(&cols);
        let n = (cols.end - cols.start) as usize;
        for i in 0..self.body.nodes.len() {
            let level = self.levels[i];
            if same_columns && matches!(level, Level::Uniform | Level::Col) {
                continue;
            }
            let len = if level >= Level::Col { n } else { 1 };
            // Operands come before their users, so the node's own vector can be taken out meanwhile.
            let mut out = std::mem::take(&mut self.values[i]);
            out.clear();
            let of = |a: ExprId| &self.values[a.0 as usize][..];
            let at = |a: ExprId, c: usize| {
                let v = of(a);
                v[if v.len() == 1 { 0 } else { c }]
            };
            match self.body.nodes[i] {
                Expr::Const(x) => out.push(T::of(x)),
                Expr::Uniform(u) => out.push(self.uniforms[u as usize]),
                Expr::Load { operand, access } => {
                    let base = access.row.apply(row, seq, rows).map(|r| r * access.stride);
                    let columns = match level < Level::Col {
                        true => 0..1,
                        false => cols.clone(),
                    };
                    match (base, access.col) {
                        (None, _) => out.resize(len, T::ZERO),
                        (Some(base), ColMap::Col) => {
                            let elements = base + columns.start..base + columns.end;
                            memory.load_all(operand, elements, &mut out)
                        }
                        (Some(base), col) => {
                            out.extend(columns.map(|c| memory.load(operand, base + col.apply(c))))
                        }
                    }
                }
                Expr::RowIndex => out.push(T::of(row as f64)),
                Expr::ColIndex => out.extend(cols.clone().map(|c| T::of(c as f64))),
                Expr::Random(args) => out.extend(
                    (0..len).map(|c| T::of(noise::uniform(args.map(|a| at(a, c).to_f64() as u32)))),
                ),
                Expr::Acc => out.extend_from_slice(acc),
                Expr::Unary(op, a) => out.extend(of(a).iter().map(|x| T::unary(op, *x))),
                Expr::Binary(op, a, b) => binary(op, of(a), of(b), &mut out),
                Expr::Fma(a, b, d) => {
                    out.extend((0..len).map(|c| T::fma(at(a, c), at(b, c), at(d, c))))
                }
                Expr::Select { cmp, a, b, t, f } => {
                    let pick = |c| {
                        if T::compare(cmp, at(a, c), at(b, c)) {
                            at(t, c)
                        } else {
                            at(f, c)
                        }
                    };
                    out.extend((0..len).map(pick))
                }
                Expr::Reduce(op, a) => out.push(match of(a) {
                    &[x] => reduce(op, (0..n).map(|_| x)),
                    all => reduce(op, all.iter().copied()),
                }),
            }
            self.values[i] = out;
        }
        self.ready = Some(cols);
    }

    /// The values of a node (by its id in the body given to `new`) at the columns last evaluated, or the one of all of them.
    pub fn values(&self, id: ExprId) -> &[T] {
        &self.values[self.ids[id.0 as usize].0 as usize]
    }

    /// The value of a node at the c-th of the columns last evaluated.
    pub fn value(&self, id: ExprId, c: usize) -> T {
        let v = self.values(id);
        v[if v.len() == 1 { 0 } else { c }]
    }
}

impl ColMap {
    /// The operand's column for column `c` of the domain.
    pub fn apply(self, c: u64) -> u64 {
        match self {
            ColMap::Col => c,
            ColMap::Zero => 0,
            ColMap::Turn { cols, by } => (c + by) % cols,
            ColMap::HalfSwap(n) => {
                let half = n / 2;
                if c % n < half { c + half } else { c - half }
            }
            ColMap::Transposed { rows, cols } => (c % rows) * cols + c / rows,
        }
    }
}
