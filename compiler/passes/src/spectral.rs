//! A bound on the spectral norm of matrices, kept by the optimiser step: `constrain spectral(max: c)`.
//!
//! One round of power iteration per matrix and step, from the vector u that the step before has left (Miyato et al. 2018, "Spectral
//! normalization for generative adversarial networks", arXiv:1802.05957, algorithm 1), then a projection onto the bound (Gouk et al. 2021,
//! "Regularisation of neural networks by enforcing Lipschitz continuity", Machine Learning 110, section 3):
//! ```text
//! v = Wᵀu/‖Wᵀu‖      s = W v      σ = ‖s‖      u ← s/σ      W ← W · min(1, c/σ)
//! ```
//! A convolution's weight [out, in, kernel] is bounded as a matrix of `out` rows, by c/√kernel: the rows that it multiplies are `kernel`
//! rows of the input, whose squares add up to `kernel` times those of the input at most. A depthwise one, [width, 1, kernel], needs no
//! iteration: no frequency is amplified more than by the sum of the absolute values of a row (Young's inequality), which is brought to c.
//!
//! σ is at most the spectral norm, and comes to it as rounds go by while W moves slowly. A gradient norm that is not finite leaves W and
//! u as they are; so does W = 0. Takes the parameters' places; adds launches behind those of [`super::update`].

use super::launch_list::{BufferId, Launch, LaunchList, Placement};
use super::layout::ParamTable;
use super::spec::Specs;
use super::update::rows_kernel;
use odec_graph::Shared;
use odec_program::expr::{BinaryOp, CmpOp, ReduceOp, UnaryOp};
use odec_program::kernel::{Columns, KernelSpec, Rows, Store};
use odec_program::manifest::{Param, added};
use odec_program::{Access, Body, Coeff, DType, Operand, Site, Size, Slot};

/// A matrix with its vector u: those of experts are parts of one parameter.
struct Bounded<'t> {
    path: &'t str,
    rows: u64,
    cols: u64,
    /// How many rows of the input a row of the weight multiplies.
    kernel: u64,
    /// Where they begin, in bytes.
    matrix: u64,
    vector: u64,
}

/// The matrices that have a vector.
fn bounded(table: &ParamTable) -> impl Iterator<Item = Bounded<'_>> {
    let element = table.real.bytes();
    let vectors = table.params.iter().filter_map(|u| {
        let matrix = u.path.strip_suffix(added::SPECTRAL)?;
        Some((table.find(matrix)?, u))
    });
    vectors.flat_map(move |(w, u)| {
        let Some([count, rows, cols]) = added::matrices(&w.path, &w.shape) else {
            return Vec::new();
        };
        let kernel = added::kernel(&w.path, &w.shape);
        let each = |n: u64| Bounded {
            path: &w.path,
            rows,
            cols,
            kernel,
            matrix: w.offset + n * rows * cols * element,
            vector: u.offset + n * rows * element,
        };
        (0..count).map(each).collect()
    })
}

/// Launches for every matrix and every convolution; `norm` is the gradient's.
pub fn constrain(code: &mut LaunchList, table: &ParamTable, max: f64, norm: BufferId) {
    let real = table.real;
    let mut specs = Specs::default();
    for of in bounded(table) {
        let Bounded {
            path,
            rows,
            cols,
            kernel,
            ..
        } = of;
        let mut place = |name: String, offset: u64, n: u64| {
            let home = Placement::Fixed(Operand::at(Slot::Params, offset));
            code.buffer(name, real, Size::fixed(n), home)
        };
        let (w, u) = (
            place(path.to_string(), of.matrix, rows * cols),
            place(format!("{path}{}", added::SPECTRAL), of.vector, rows),
        );
        let mut made = |name: &str, n: u64| {
            code.buffer(
                format!("{path} {name}"),
                real,
                Size::fixed(n),
                Placement::Arena,
            )
        };
        let [t, v, s, scale] = [
            made("Wᵀu", cols),
            made("v", cols),
            made("W v", rows),
            made("scale", 1),
        ];
        let site = Shared::from(Site::update(format!("spectral.{path}")));
        let mut launch = |spec, args: Vec<BufferId>, rows, coeffs| {
            code.launches.push(Launch {
                spec: specs.of(spec),
                args,
                dims: vec![Size::fixed(rows), Size::ONE],
                coeffs,
                site: site.clone(),
                guard: None,
                held: None,
            });
        };
        launch(
            KernelSpec::Columns(transposed_times(real, cols)),
            vec![w, u, t],
            rows,
            vec![],
        );
        launch(
            KernelSpec::Rows(of_length_one(real, cols)),
            vec![t, v],
            1,
            vec![],
        );
        launch(
            KernelSpec::Rows(times(real, cols)),
            vec![w, v, s],
            rows,
            vec![],
        );
        let max = vec![Coeff::Value(max / (kernel as f64).sqrt())];
        launch(
            KernelSpec::Rows(next(real, rows)),
            vec![s, u, norm, u, scale],
            1,
            max,
        );
        launch(
            KernelSpec::Rows(scaled(real, cols)),
            vec![w, scale, w],
            rows,
            vec![],
        );
    }
    constrain_depthwise(code, table, max, norm);
}

/// A launch for every weight of a depthwise convolution; `norm` is the gradient's.
fn constrain_depthwise(code: &mut LaunchList, table: &ParamTable, max: f64, norm: BufferId) {
    let depthwise = |p: &&Param| added::is_depthwise(&p.path, &p.shape);
    for w in table.params.iter().filter(depthwise) {
        let (rows, kernel) = (w.shape[0], w.shape[2]);
        let home = Placement::Fixed(Operand::at(Slot::Params, w.offset));
        let size = Size::fixed(rows * kernel);
        let place = code.buffer(w.path.clone(), table.real, size, home);
        code.launches.push(Launch {
            spec: KernelSpec::Rows(of_bounded_sum(table.real, kernel)).into(),
            args: vec![place, norm, place],
            dims: vec![Size::fixed(rows), Size::ONE],
            coeffs: vec![Coeff::Value(max)],
            site: Site::update(format!("spectral.{}", w.path)).into(),
            guard: None,
            held: None,
        });
    }
}

/// Operands w, the gradient's norm and `w · min(1, max/Σ|w|)`, row by row.
fn of_bounded_sum(real: DType, cols: u64) -> Rows {
    let mut b = Body::default();
    let w = b.load(0, Access::full(cols));
    let norm = b.load(1, Access::SCALAR);
    let max = b.uniform(0);
    let minus = b.unary(UnaryOp::Neg, w);
    let size = b.binary(BinaryOp::Max, w, minus);
    let sum = b.reduce(ReduceOp::Sum, size);
    let (zero, one) = (b.konst(0.0), b.konst(1.0));
    // As in `next`.
    let gap = b.binary(BinaryOp::Sub, norm, norm);
    let sum = b.select(CmpOp::Eq, gap, zero, sum, zero);
    let ratio = b.binary(BinaryOp::Div, max, sum);
    let scale = b.select(CmpOp::Lt, max, sum, ratio, one);
    let value = b.mul(w, scale);
    let store = Store {
        operand: 2,
        access: Access::full(cols),
        value,
    };
    rows_kernel(real, cols, 3, 1, b, vec![store])
}

/// Operands W, u and Wᵀu.
fn transposed_times(real: DType, cols: u64) -> Columns {
    let mut body = Body::default();
    let w = body.load(0, Access::full(cols));
    let u = body.load(1, Access::PER_ROW);
    let value = body.mul(w, u);
    Columns {
        dtype: real,
        cols,
        operands: vec![real; 3],
        uniforms: 0,
        body,
        value,
        accumulate: false,
        parts: 1,
    }
}

/// Operands x and x/‖x‖, 0 for 0; one row.
fn of_length_one(real: DType, cols: u64) -> Rows {
    let mut b = Body::default();
    let x = b.load(0, Access::full(cols));
    let square = b.mul(x, x);
    let sum = b.reduce(ReduceOp::Sum, square);
    let norm = b.unary(UnaryOp::Sqrt, sum);
    let zero = b.konst(0.0);
    let unit = b.binary(BinaryOp::Div, x, norm);
    let value = b.select(CmpOp::Lt, zero, norm, unit, zero);
    let store = Store {
        operand: 1,
        access: Access::full(cols),
        value,
    };
    rows_kernel(real, cols, 2, 0, b, vec![store])
}

/// Operands W, v and W v.
fn times(real: DType, cols: u64) -> Rows {
    let mut b = Body::default();
    let w = b.load(0, Access::full(cols));
    let v = b.load(1, Access::PER_COL);
    let each = b.mul(w, v);
    let value = b.reduce(ReduceOp::Sum, each);
    let store = Store {
        operand: 2,
        access: Access::PER_ROW,
        value,
    };
    rows_kernel(real, cols, 3, 0, b, vec![store])
}

/// Operands s = W v, u, the gradient's norm, then u = s/‖s‖ and min(1, max/‖s‖); one row.
fn next(real: DType, cols: u64) -> Rows {
    let mut b = Body::default();
    let s = b.load(0, Access::full(cols));
    let u = b.load(1, Access::full(cols));
    let norm = b.load(2, Access::SCALAR);
    let max = b.uniform(0);
    let square = b.mul(s, s);
    let sum = b.reduce(ReduceOp::Sum, square);
    let sigma = b.unary(UnaryOp::Sqrt, sum);
    let (zero, one) = (b.konst(0.0), b.konst(1.0));
    // norm − norm is 0 exactly when the norm is finite: σ counts as 0 otherwise.
    let gap = b.binary(BinaryOp::Sub, norm, norm);
    let sigma = b.select(CmpOp::Eq, gap, zero, sigma, zero);
    let unit = b.binary(BinaryOp::Div, s, sigma);
    let unit = b.select(CmpOp::Lt, zero, sigma, unit, u);
    let ratio = b.binary(BinaryOp::Div, max, sigma);
    let scale = b.select(CmpOp::Lt, max, sigma, ratio, one);
    let stores = vec![
        Store {
            operand: 3,
            access: Access::full(cols),
            value: unit,
        },
        Store {
            operand: 4,
            access: Access::PER_ROW,
            value: scale,
        },
    ];
    rows_kernel(real, cols, 5, 1, b, stores)
}

/// Operands W, a number, and W times it.
fn scaled(real: DType, cols: u64) -> Rows {
    let mut b = Body::default();
    let w = b.load(0, Access::full(cols));
    let scale = b.load(1, Access::SCALAR);
    let value = b.mul(w, scale);
    let store = Store {
        operand: 2,
        access: Access::full(cols),
        value,
    };
    rows_kernel(real, cols, 3, 0, b, vec![store])
}
