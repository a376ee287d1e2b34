//! The optimiser step as a program: gradients added up, gradient norm, clipping, the optimiser's update.
//!
//! Takes the sizes of the parameter areas and the optimiser; gives the [`LaunchList`] of the `update` entry over what is trained of `Params`, of
//! `Grads`, and of what the optimiser keeps, seen as rows of [`ROW`] elements; running means of the parameters come last. Its only output is the norm of the gradient before clipping. Leaves
//! what an update is to the optimiser ([`odec_program::optimizers`]), updates of whole matrices to [`super::whole`], bounds on matrices to [`super::spectral`], parameters in bf16 to [`super::rounding`]. A norm that is not finite
//! leaves everything as it is.
//!
//! With gradient g, its norm n over all trained parameters and clip c, an update reads `g · min(1, c/n)`.

use super::launch_list::{BufferId, Launch, LaunchList, Placement};
use super::layout::{Area, ParamTable, ROW};
use super::lower::Tiling;
use super::rounding;
use super::spectral;
use super::whole::{self, Wholes};
use odec_program::expr::{BinaryOp, CmpOp, ExprId, ReduceOp, UnaryOp};
use odec_program::kernel::{Columns, KernelSpec, Rows, Store};
use odec_program::manifest::{Train, named};
use odec_program::optimizers::{Numbers, Rule, SLOTS, Way, of_group};
use odec_program::{Access, Body, Coeff, DType, Operand, Site, Size, Slot};

/// The launches of `update`, which reads the gradients of `from`; `rounds` where [`Slot::Rounded`] is kept.
pub fn update(
    table: &ParamTable,
    train: &Train,
    from: Slot,
    tiling: Tiling,
    rounds: bool,
) -> LaunchList {
    let clip = train.clip;
    let mut code = LaunchList::default();
    let real = table.real;
    let rows = table.trained / real.bytes() / ROW;
    let place = |slot, offset| Placement::Fixed(Operand::at(slot, offset));
    let norm = code.buffer("grad_norm", real, Size::ONE, place(Slot::Output(0), 0));
    let scale = code.buffer("clip scale", real, Size::ONE, Placement::Arena);

    // Squares are added in two levels of rows, then down the column, to keep rounding errors small.
    let blocks = rows.div_ceil(ROW).max(1);
    let sums = code.buffer(
        "sums of squares",
        real,
        Size::fixed(blocks * ROW),
        Placement::Arena,
    );
    let block_sums = code.buffer("block sums", real, Size::fixed(blocks), Placement::Arena);
    let total = code.buffer("sum of squares", real, Size::ONE, Placement::Arena);
    let launch = |spec: KernelSpec, args: Vec<BufferId>, rows, coeffs, site: &str| Launch {
        spec: spec.into(),
        args,
        dims: vec![Size::fixed(rows), Size::ONE],
        coeffs,
        site: Site::update(site).into(),
        guard: None,
        held: None,
    };
    code.launches.push(launch(
        KernelSpec::Rows(fill_zero(real)),
        vec![sums],
        blocks,
        vec![],
        "norm",
    ));
    if rows > 0 {
        let grads = code.buffer("grads", real, Size::fixed(rows * ROW), place(from, 0));
        code.launches.push(launch(
            KernelSpec::Rows(row_sums(true, real)),
            vec![grads, sums],
            rows,
            vec![],
            "norm",
        ));
    }
    code.launches.push(launch(
        KernelSpec::Rows(row_sums(false, real)),
        vec![sums, block_sums],
        blocks,
        vec![],
        "norm",
    ));
    code.launches.push(launch(
        KernelSpec::Columns(column_sum(real)),
        vec![block_sums, total],
        blocks,
        vec![],
        "norm",
    ));
    let clip_coeff = clip.map(Coeff::Value).into_iter().collect();
    code.launches.push(launch(
        KernelSpec::Rows(clip_scale(clip.is_some(), real)),
        vec![total, norm, scale],
        1,
        clip_coeff,
        "clip",
    ));

    // Parameters that are bounded or updated as wholes change once more, or elsewhere.
    let by_number = |area: &Area| matches!(train.optimizer_of(area.group).way(), Way::Numbers(_));
    let rounds_at_once = rounds && train.spectral.is_none() && table.areas.iter().all(by_number);
    for area in &table.areas {
        let (start, optimizer) = (area.start, train.optimizer_of(area.group));
        let numbers = match optimizer.way() {
            Way::Numbers(numbers) => numbers,
            Way::Wholes(update) => {
                let of = Wholes {
                    table,
                    area,
                    name: optimizer.name(),
                    update,
                    given: (from, scale, norm),
                    tiling,
                };
                whole::update(&mut code, &of);
                continue;
            }
        };
        let rows = (area.end - start) / real.bytes() / ROW;
        let mut part =
            |name: &str, slot| code.buffer(name, real, Size::fixed(rows * ROW), place(slot, start));
        let [p, g] = [part("params", Slot::Params), part("grads", from)];
        let states = SLOTS.iter().zip(optimizer.states());
        let states: Vec<BufferId> = states.map(|(slot, _)| part("state", *slot)).collect();
        let read = [p, g].into_iter().chain(states.iter().copied());
        let written = [scale, norm, p].into_iter().chain(states.iter().copied());
        let mut args: Vec<BufferId> = read.chain(written).collect();
        let (mut kernel, mut coeffs) = step_rows(numbers, states.len(), area.decays, real);
        if rounds_at_once {
            let halves = Placement::Fixed(rounding::place(start, real));
            let size = Size::fixed(rows * ROW);
            args.push(code.buffer("rounded", DType::Bf16, size, halves));
            kernel.operands.push(DType::Bf16);
            kernel.stores.push(Store {
                operand: kernel.operands.len() as u32 - 1,
                ..kernel.stores[0]
            });
        }
        for c in &mut coeffs {
            if let Coeff::Named(name) = c {
                *name = of_group(name, area.group);
            }
        }
        let kernel = KernelSpec::Rows(kernel);
        let site = optimizer.name();
        code.launches.push(launch(kernel, args, rows, coeffs, site));
    }
    if let Some(max) = train.spectral {
        spectral::constrain(&mut code, table, max, norm);
    }
    if rounds && !rounds_at_once {
        rounding::round(&mut code, table.trained, real);
    }
    if train.ema.is_some() && rows > 0 {
        let mut area =
            |name: &str, slot| code.buffer(name, real, Size::fixed(rows * ROW), place(slot, 0));
        let [p, e] = [
            area("params", Slot::Params),
            area("averages", Slot::Average),
        ];
        let kernel = KernelSpec::Rows(average(real));
        let decay = vec![Coeff::Named(named::EMA.into())];
        code.launches
            .push(launch(kernel, vec![p, e, norm, e], rows, decay, "ema"));
    }
    code
}

/// Operands p, its running mean e, the gradient's norm, then e: `e ← d e + (1 − d) p`, unless the norm is not finite.
fn average(real: DType) -> Rows {
    let mut b = Body::default();
    let [p, e] = [0, 1].map(|i| b.load(i, Access::full(ROW)));
    let norm = b.load(2, Access::SCALAR);
    let d = b.uniform(0);
    let [zero, one] = [0.0, 1.0].map(|x| b.konst(x));
    let rest = b.sub(one, d);
    let fresh = b.mul(rest, p);
    let mean = b.fma(d, e, fresh);
    // As in `step_rows`.
    let gap = b.sub(norm, norm);
    let value = b.select(CmpOp::Eq, gap, zero, mean, e);
    let store = Store {
        operand: 3,
        access: Access::full(ROW),
        value,
    };
    rows_kernel(real, ROW, 4, 1, b, vec![store])
}

/// The launches of `accumulate`: `sums ← keep·sums + share·grads`, multiplied, then multiplied and added in one rounding.
pub fn accumulate(table: &ParamTable) -> LaunchList {
    let mut code = LaunchList::default();
    let real = table.real;
    let rows = table.trained / real.bytes() / ROW;
    let mut area = |name: &str, slot| {
        let home = Placement::Fixed(Operand::at(slot, 0));
        code.buffer(name, real, Size::fixed(rows * ROW), home)
    };
    let [sums, grads] = [area("sums", Slot::Sums), area("grads", Slot::Grads)];
    if rows > 0 {
        code.launches.push(Launch {
            spec: KernelSpec::Rows(add_share(real)).into(),
            args: vec![sums, grads, sums],
            dims: vec![Size::fixed(rows), Size::ONE],
            coeffs: [named::KEEP, named::SHARE]
                .map(|n| Coeff::Named(n.into()))
                .into(),
            site: Site::update("accumulate").into(),
            guard: None,
            held: None,
        });
    }
    code
}

/// Operands sum and gradient, then sum written in place.
fn add_share(real: DType) -> Rows {
    let mut b = Body::default();
    let [sum, grad] = [0, 1].map(|i| b.load(i, Access::full(ROW)));
    let [keep, share] = [0, 1].map(|i| b.uniform(i));
    let kept = b.mul(keep, sum);
    let value = b.fma(share, grad, kept);
    let store = Store {
        operand: 2,
        access: Access::full(ROW),
        value,
    };
    rows_kernel(real, ROW, 3, 2, b, vec![store])
}

pub(super) fn rows_kernel(
    real: DType,
    cols: u64,
    operands: usize,
    uniforms: u32,
    body: Body,
    stores: Vec<Store>,
) -> Rows {
    Rows {
        dtype: real,
        cols,
        operands: vec![real; operands],
        uniforms,
        body,
        stores,
    }
}

fn fill_zero(real: DType) -> Rows {
    let mut b = Body::default();
    let value = b.konst(0.0);
    rows_kernel(
        real,
        ROW,
        1,
        0,
        b,
        vec![Store {
            operand: 0,
            access: Access::full(ROW),
            value,
        }],
    )
}

/// The sum of each row, or of its squares.
fn row_sums(squared: bool, real: DType) -> Rows {
    let mut b = Body::default();
    let x = b.load(0, Access::full(ROW));
    let x = if squared { b.mul(x, x) } else { x };
    let value = b.reduce(ReduceOp::Sum, x);
    rows_kernel(
        real,
        ROW,
        2,
        0,
        b,
        vec![Store {
            operand: 1,
            access: Access::PER_ROW,
            value,
        }],
    )
}

fn column_sum(real: DType) -> Columns {
    let mut body = Body::default();
    let value = body.load(0, Access::PER_ROW);
    Columns {
        dtype: real,
        cols: 1,
        operands: vec![real; 2],
        uniforms: 0,
        body,
        value,
        accumulate: false,
        parts: 1,
    }
}

/// √total and min(1, clip/√total).
fn clip_scale(clipped: bool, real: DType) -> Rows {
    let mut b = Body::default();
    let total = b.load(0, Access::SCALAR);
    let norm = b.unary(UnaryOp::Sqrt, total);
    let one = b.konst(1.0);
    let scale = match clipped {
        true => {
            let clip = b.uniform(0);
            let ratio = b.binary(BinaryOp::Div, clip, norm);
            b.select(CmpOp::Lt, clip, norm, ratio, one)
        }
        false => one,
    };
    let store = |operand, value| Store {
        operand,
        access: Access::PER_ROW,
        value,
    };
    rows_kernel(
        real,
        1,
        3,
        clipped as u32,
        b,
        vec![store(1, norm), store(2, scale)],
    )
}

/// An optimiser's update with the scalars that it reads. Operands are p, g, what is kept, scale, norm, then p and what is kept, written in
/// place. Where the norm is not finite, all of it stays as it is.
fn step_rows(update: &dyn Numbers, kept: usize, decays: bool, real: DType) -> (Rows, Vec<Coeff>) {
    let full = Access::full(ROW);
    let mut b = Body::default();
    let kept = kept as u32;
    let [p, g] = [0, 1].map(|i| b.load(i, full));
    let states: Vec<ExprId> = (2..2 + kept).map(|i| b.load(i, full)).collect();
    let [scale, norm] = [2 + kept, 3 + kept].map(|i| b.load(i, Access::SCALAR));
    let old: Vec<ExprId> = [p].into_iter().chain(states.iter().copied()).collect();
    let mut rule = Rule::new(b, [p, g, scale], states, decays);
    let next = update.update(&mut rule);
    let Rule {
        body: mut b,
        coeffs,
        ..
    } = rule;
    let new = [next.parameter].into_iter().chain(next.states);
    // norm − norm is 0 exactly when the norm is finite.
    let gap = b.sub(norm, norm);
    let zero = b.konst(0.0);
    let stores = new.zip(old).zip(4 + kept..).map(|((new, old), operand)| {
        let value = b.select(CmpOp::Eq, gap, zero, new, old);
        Store {
            operand,
            access: full,
            value,
        }
    });
    let stores = stores.collect();
    let operands = 5 + 2 * kept as usize;
    let uniforms = coeffs.len() as u32;
    let rows = rows_kernel(real, ROW, operands, uniforms, b, stores);
    (rows, coeffs)
}
