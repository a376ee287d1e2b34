//! What an update of a whole matrix is written with: kernels over rows and columns, and products.
//!
//! An optimiser gives the steps for a matrix of so many rows and columns ([`super::Whole`]); vectors are matrices of one row. Leaves places in
//! memory, and how right-hand operands of products are packed, to the pass that makes launches of them.

use crate::expr::{Access, BinaryOp, Body, CmpOp, ExprId, ReduceOp, UnaryOp};
use crate::kernel::{Columns, Epilogue, Rows, Store};
use crate::{Coeff, DType};

/// What a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Parameter,
    Gradient,
    /// What the gradient is multiplied by: less than 1 where it is clipped. One number.
    Scale,
    /// The norm of the whole gradient before clipping. One number.
    Norm,
    /// One of [`super::Optimizer::states`], from 0.
    State(usize),
    /// One of [`super::Whole::beside`], from 0.
    Beside(usize),
    /// The n-th of [`Plan::made`].
    Made(usize),
}

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Over so many rows. Operands as the kernel numbers them.
    Rows(Rows, Vec<Part>, u64, Vec<Coeff>),
    Columns(Columns, Vec<Part>, u64),
    Product(Product),
}

/// `into(m, n) = epilogue(Σ_k a(m, k) · b(k, n))`, in order of k.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// m, n and k.
    pub dims: [u64; 3],
    /// Stored [m, k], or [k, m].
    pub a: (Part, bool),
    /// Stored [k, n], or [n, k].
    pub b: (Part, bool),
    /// With what the epilogue reads and its scalars.
    pub epilogue: Option<(Epilogue, Vec<Part>, Vec<Coeff>)>,
    pub into: Part,
}

/// The steps of an update.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The type of all numbers.
    pub real: DType,
    /// Of the matrix.
    pub rows: u64,
    pub cols: u64,
    /// Whether it decays.
    pub decays: bool,
    /// Elements of what is made on the way.
    pub made: Vec<u64>,
    pub steps: Vec<Step>,
}

impl Plan {
    pub fn new(real: DType, [rows, cols]: [u64; 2], decays: bool) -> Plan {
        Plan {
            real,
            rows,
            cols,
            decays,
            made: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Room for so many numbers.
    pub fn make(&mut self, elements: u64) -> Part {
        self.made.push(elements);
        Part::Made(self.made.len() - 1)
    }

    /// A kernel over `rows` rows of `cols` columns.
    pub fn over(&mut self, rows: u64, cols: u64, write: impl FnOnce(&mut Kernel)) {
        let mut k = Kernel {
            b: Body::default(),
            cols,
            inputs: Vec::new(),
            stores: Vec::new(),
            coeffs: Vec::new(),
        };
        write(&mut k);
        let first = k.inputs.len() as u32;
        let stores = k.stores.iter().zip(first..).map(|(s, operand)| Store {
            operand,
            access: s.1,
            value: s.2,
        });
        let stores: Vec<Store> = stores.collect();
        let args: Vec<Part> = (k.inputs.iter().copied())
            .chain(k.stores.iter().map(|s| s.0))
            .collect();
        let kernel = Rows {
            dtype: self.real,
            cols,
            operands: vec![self.real; args.len()],
            uniforms: k.coeffs.len() as u32,
            body: k.b,
            stores,
        };
        self.steps.push(Step::Rows(kernel, args, rows, k.coeffs));
    }

    /// `into[c] = Σ_r value(r, c)` over `rows` rows of `cols` columns. `value` reads no scalars of a step.
    pub fn column_sums(
        &mut self,
        [rows, cols]: [u64; 2],
        into: Part,
        value: impl FnOnce(&mut Kernel) -> ExprId,
    ) {
        let mut k = Kernel {
            b: Body::default(),
            cols,
            inputs: Vec::new(),
            stores: Vec::new(),
            coeffs: Vec::new(),
        };
        let value = value(&mut k);
        let args: Vec<Part> = k.inputs.iter().copied().chain([into]).collect();
        let kernel = Columns {
            dtype: self.real,
            cols,
            operands: vec![self.real; args.len()],
            uniforms: 0,
            body: k.b,
            value,
            accumulate: false,
            parts: 1,
        };
        self.steps.push(Step::Columns(kernel, args, rows));
    }

    /// `into = c · a b + d · extra`; without `extra`, `into = a b`.
    pub fn product(
        &mut self,
        dims: [u64; 3],
        a: (Part, bool),
        b: (Part, bool),
        extra: Option<(f64, f64, Part)>,
        into: Part,
    ) {
        let epilogue = extra.map(|(c, d, extra)| {
            let mut body = Body::default();
            let product = body.push(crate::expr::Expr::Acc);
            let other = body.load(2, Access::full(dims[1]));
            let [c_, d_] = [0, 1].map(|n| body.uniform(n));
            let scaled = body.mul(d_, other);
            let value = body.fma(c_, product, scaled);
            let epilogue = Epilogue {
                operands: 1,
                halves: vec![],
                uniforms: 2,
                body,
                value,
            };
            (epilogue, vec![extra], [c, d].map(Coeff::Value).into())
        });
        self.steps.push(Step::Product(Product {
            dims,
            a,
            b,
            epilogue,
            into,
        }));
    }
}

/// The inside of a kernel over rows.
pub struct Kernel {
    pub b: Body,
    cols: u64,
    inputs: Vec<Part>,
    stores: Vec<(Part, Access, ExprId)>,
    coeffs: Vec<Coeff>,
}

impl Kernel {
    fn load(&mut self, part: Part, access: Access) -> ExprId {
        self.inputs.push(part);
        self.b.load(self.inputs.len() as u32 - 1, access)
    }

    /// An element each.
    pub fn each(&mut self, part: Part) -> ExprId {
        self.load(part, Access::full(self.cols))
    }

    pub fn of_row(&mut self, part: Part) -> ExprId {
        self.load(part, Access::PER_ROW)
    }

    pub fn of_col(&mut self, part: Part) -> ExprId {
        self.load(part, Access::PER_COL)
    }

    pub fn number(&mut self, part: Part) -> ExprId {
        self.load(part, Access::SCALAR)
    }

    /// The gradient, clipped.
    pub fn gradient(&mut self) -> ExprId {
        let g = self.each(Part::Gradient);
        let scale = self.number(Part::Scale);
        self.b.mul(g, scale)
    }

    /// A number that is the same at every step.
    pub fn value(&mut self, x: f64) -> ExprId {
        self.scalar(Coeff::Value(x))
    }

    /// The rate, or one of [`super::Optimizer::scalars`].
    pub fn of_step(&mut self, name: &str) -> ExprId {
        self.scalar(Coeff::Named(name.into()))
    }

    fn scalar(&mut self, coeff: Coeff) -> ExprId {
        self.coeffs.push(coeff);
        self.b.uniform(self.coeffs.len() as u32 - 1)
    }

    /// Σ over the row.
    pub fn sum(&mut self, x: ExprId) -> ExprId {
        self.b.reduce(ReduceOp::Sum, x)
    }

    pub fn square(&mut self, x: ExprId) -> ExprId {
        self.b.mul(x, x)
    }

    pub fn root(&mut self, x: ExprId) -> ExprId {
        self.b.unary(UnaryOp::Sqrt, x)
    }

    pub fn over(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.b.binary(BinaryOp::Div, a, b)
    }

    pub fn larger(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.b.binary(BinaryOp::Max, a, b)
    }

    /// `keep · old + (1 − keep) · x`.
    pub fn blend(&mut self, keep: ExprId, old: ExprId, x: ExprId) -> ExprId {
        let one = self.b.konst(1.0);
        let rest = self.b.sub(one, keep);
        let fresh = self.b.mul(rest, x);
        self.b.fma(keep, old, fresh)
    }

    /// `p (1 − rate λ) − rate · direction`.
    pub fn moved(&mut self, rate: ExprId, decay: f64, direction: ExprId) -> [ExprId; 2] {
        let p = self.each(Part::Parameter);
        let decay = self.value(decay);
        let shrink = self.b.mul(rate, decay);
        let one = self.b.konst(1.0);
        let keep = self.b.sub(one, shrink);
        let kept = self.b.mul(p, keep);
        let step = self.b.mul(rate, direction);
        [p, self.b.sub(kept, step)]
    }

    /// The new value where the norm of the gradient is finite, the old one elsewhere.
    pub fn if_finite(&mut self, new: ExprId, old: ExprId) -> ExprId {
        let norm = self.number(Part::Norm);
        // norm − norm is 0 exactly when the norm is finite.
        let gap = self.b.sub(norm, norm);
        let zero = self.b.konst(0.0);
        self.b.select(CmpOp::Eq, gap, zero, new, old)
    }

    pub fn put_each(&mut self, into: Part, value: ExprId) {
        self.stores.push((into, Access::full(self.cols), value));
    }

    /// One number for each row.
    pub fn put(&mut self, into: Part, value: ExprId) {
        self.stores.push((into, Access::PER_ROW, value));
    }
}
