//! Expression bodies to vector code.
//!
//! Takes a [`Body`]; gives, for the nodes somebody asks for, values on vectors of any length or on
//! scalars. A node becomes exactly the operations that the scalar evaluator
//! ([`odec_program::eval`]) does, so compiled and interpreted kernels agree bit for bit.
//!
//! Leaves loops, reductions and the meaning of accesses to the kernels ([`crate::rows`],
//! [`crate::columns`], contractions' epilogues), and loading columns to [`crate::access`].

use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use odec_program::expr::{BinaryOp, Body, CmpOp, Expr, ExprId, Level, UnaryOp};
use odec_program::{DType, Target, noise};

/// A body with its transcendentals expanded, and what is known about its nodes.
pub(crate) struct Lowered {
    pub body: Body,
    pub levels: Vec<Level>,
    pub phases: Vec<u32>,
    ids: Vec<ExprId>,
}

/// The emitted value of each node, where there is one.
pub(crate) type Values = Vec<Option<Val>>;

impl Lowered {
    pub fn new(body: &Body, dtype: DType) -> Lowered {
        let (body, ids) = body.expand_transcendentals(dtype);
        let (levels, phases) = (body.levels(), body.phases());
        Lowered {
            body,
            levels,
            phases,
            ids,
        }
    }

    /// The node that an id of the original body has become.
    pub fn node(&self, id: ExprId) -> usize {
        self.ids[id.0 as usize].0 as usize
    }

    /// A value as it is stored in elements of type `elem`; `node` is the node that it is of.
    pub fn stored(&self, e: &mut Emitter, node: usize, value: Val, elem: Elem) -> Val {
        match self.body.nodes[node] {
            // Rounding again would change nothing.
            Expr::Unary(UnaryOp::Bf16, _) if elem == Elem::Bf16 => e.upper_half(value),
            _ => e.convert(value, elem),
        }
    }

    pub fn no_values(&self) -> Values {
        vec![None; self.body.nodes.len()]
    }

    /// Marks `roots` and everything they are computed from.
    pub fn needed(&self, roots: &[usize]) -> Vec<bool> {
        self.needed_until(roots, |_| false)
    }

    /// Marks `roots` and what they are computed from, without looking under nodes where `stop` holds.
    pub fn needed_until(&self, roots: &[usize], stop: impl Fn(usize) -> bool) -> Vec<bool> {
        self.body.reach(roots, stop)
    }

    /// Emits the marked nodes that have no value yet, on values of type `ty`. `leaf` emits loads, column
    /// numbers, coefficients and accumulators; constants and arithmetic are emitted here. Reductions must have
    /// their values already.
    pub fn emit(
        &self,
        e: &mut Emitter,
        marks: &[bool],
        ty: Type,
        values: &mut Values,
        mut leaf: impl FnMut(&mut Emitter, &Expr) -> Val,
    ) {
        for (i, node) in self.body.nodes.iter().enumerate() {
            if !marks[i] || values[i].is_some() {
                continue;
            }
            let arg = |a: ExprId| values[a.0 as usize].expect("operands come before their users");
            let value = match *node {
                Expr::Const(x) => e.float(x, ty),
                Expr::Unary(op, a) => unary(e, op, arg(a)),
                Expr::Binary(op, a, b) => binary(e, op, arg(a), arg(b)),
                Expr::Fma(a, b, c) => e.fma(arg(a), arg(b), arg(c)),
                Expr::Select { cmp, a, b, t, f } => {
                    let cmp = match cmp {
                        CmpOp::Eq => Cmp::Eq,
                        CmpOp::Lt => Cmp::Lt,
                    };
                    let c = e.cmp(cmp, arg(a), arg(b));
                    e.select(c, arg(t), arg(f))
                }
                Expr::Random(args) => random(e, args.map(arg)),
                Expr::Uniform(_)
                | Expr::Load { .. }
                | Expr::RowIndex
                | Expr::ColIndex
                | Expr::Acc => leaf(e, node),
                Expr::Reduce(..) => unreachable!("reductions are emitted by sweeps"),
            };
            values[i] = Some(value);
        }
    }
}

/// Width of the fraction, and the exponent's bias.
fn format_of(elem: Elem) -> (i64, i64) {
    match elem {
        Elem::F64 => (52, 1023),
        _ => (23, 127),
    }
}

/// The integer type with as many bits.
fn bits_of(elem: Elem) -> Elem {
    match elem {
        Elem::F64 => Elem::I64,
        _ => Elem::I32,
    }
}

pub(crate) fn unary(e: &mut Emitter, op: UnaryOp, a: Val) -> Val {
    let (mantissa, bias) = format_of(a.ty.elem);
    let bits = a.ty.with(bits_of(a.ty.elem));
    match op {
        UnaryOp::Neg => e.neg(a),
        UnaryOp::Sqrt => e.sqrt(a),
        UnaryOp::Round => e.round_even(a),
        UnaryOp::Exponent => {
            let (shift, field, bias) = (
                e.integer(mantissa, bits),
                e.integer(2 * bias + 1, bits),
                e.integer(bias, bits),
            );
            let x = e.bitcast(a, bits.elem);
            let x = e.shift_right(x, shift);
            let x = e.and(x, field);
            let x = e.sub(x, bias);
            let x = e.convert(x, Elem::I32);
            e.convert(x, a.ty.elem)
        }
        UnaryOp::Mantissa => {
            let (fraction, one) = (
                e.integer((1 << mantissa) - 1, bits),
                e.integer(bias << mantissa, bits),
            );
            let x = e.bitcast(a, bits.elem);
            let x = e.and(x, fraction);
            let x = e.or(x, one);
            e.bitcast(x, a.ty.elem)
        }
        UnaryOp::Bf16 => e.nearest_bf16(a, false),
        UnaryOp::Exp | UnaryOp::Log | UnaryOp::Erf => unreachable!("transcendentals are expanded"),
    }
}

pub(crate) fn binary(e: &mut Emitter, op: BinaryOp, a: Val, b: Val) -> Val {
    match op {
        BinaryOp::Add => e.add(a, b),
        BinaryOp::Sub => e.sub(a, b),
        BinaryOp::Mul => e.mul(a, b),
        BinaryOp::Div => e.div(a, b),
        BinaryOp::Max => e.max_float(a, b),
        BinaryOp::Min => e.min_float(a, b),
        BinaryOp::Scale => scale(e, a, b),
    }
}

/// `a · 2^b`: one instruction where there is one for the type, else two multiplications by powers of two made of
/// bits, of which only the first can round.
fn scale(e: &mut Emitter, a: Val, b: Val) -> Val {
    let ty = a.ty;
    let (mantissa, bias) = format_of(ty.elem);
    let floor = e.float(-bias as f64, ty);
    let scaled = if e.target >= Target::Avx512 && ty == Type::vector(Elem::F32, 16) {
        e.scalef(a, b)
    } else {
        let limit = e.float(2.0 * bias as f64, ty);
        // as an integer, within what the powers below can hold (NaN becomes the smallest)
        let n = e.max_float(b, floor);
        let n = e.min_float(n, limit);
        let n = e.convert(n, Elem::I32);
        let n = e.convert(n, bits_of(ty.elem));
        let (shift, bias) = (e.integer(mantissa, n.ty), e.integer(bias, n.ty));
        let power = |e: &mut Emitter, n: Val| {
            let field = e.add(n, bias);
            let field = e.shift_left(field, shift);
            e.bitcast(field, ty.elem)
        };
        let first = e.min(n, bias);
        let rest = e.sub(n, first);
        let (first, rest) = (power(e, first), power(e, rest));
        let x = e.mul(a, first);
        e.mul(x, rest)
    };
    let zero = e.float(0.0, ty);
    let vanishes = e.cmp(Cmp::Le, b, floor);
    e.select(vanishes, zero, scaled)
}

/// The number that four whole ones choose ([`noise::uniform`]), step for step.
fn random(e: &mut Emitter, args: [Val; 4]) -> Val {
    let ty = args[0].ty;
    let bits = ty.with(Elem::I32);
    let [by, plus] = noise::STEP.map(|n| e.integer(i64::from(n), bits));
    let mut v = args.map(|a| {
        let n = e.convert(a, Elem::I32);
        let n = e.mul(n, by);
        e.add(n, plus)
    });
    let half = e.integer(16, bits);
    for round in 0..2 {
        for (i, (a, b)) in [(1, 3), (2, 0), (0, 1), (1, 2)].into_iter().enumerate() {
            let product = e.mul(v[a], v[b]);
            v[i] = e.add(v[i], product);
        }
        if round == 0 {
            v = v.map(|n| {
                let high = e.shift_right(n, half);
                e.xor(n, high)
            });
        }
    }
    let drop = e.integer(i64::from(32 - noise::BITS), bits);
    let n = e.shift_right(v[3], drop);
    let n = e.convert(n, ty.elem);
    let unit = e.float(1.0 / f64::from(1u32 << noise::BITS), ty);
    e.mul(n, unit)
}

/// Emits `op(x)` for any operation, transcendentals included.
pub(crate) fn apply(e: &mut Emitter, op: UnaryOp, x: Val) -> Val {
    let dtype = if x.ty.elem == Elem::F64 {
        DType::F64
    } else {
        DType::F32
    };
    let mut body = Body::default();
    let leaf = body.push(Expr::Acc);
    let root = body.unary(op, leaf);
    let low = Lowered::new(&body, dtype);
    let (root, mut values) = (low.node(root), low.no_values());
    let marks = low.needed(&[root]);
    low.emit(e, &marks, x.ty, &mut values, |_, _| x);
    values[root].expect("the root is marked")
}
