//! Validation rules that several kinds of kernels share: bounds of numbers, ranges of indices, matching element types.
//!
//! Whatever uses a specification calls [`super::KernelSpec::validate`] first, so emitters, the reference device and planners may rely on
//! it. `odec-runtime` checks memory and the dims of launches, and emitters the limits of their target.

use super::Extent;
use super::contract::Order;
use crate::expr::{Body, ColMap, Expr, ExprId, RowMap, UnaryOp};
use crate::quantized::Quantized;
use crate::window::Through;
use crate::{Access, DType};

/// Columns, strides and extents: products of two are far from overflow in 64 bits.
pub const MOST_ELEMENTS: u64 = 1 << 31;
/// Operands of a kernel; the compiler fuses up to 24.
pub const MOST_OPERANDS: usize = 256;
/// Expressions of a body, and scalars passed to it; the compiler fuses up to 200.
pub const MOST_EXPRESSIONS: usize = 1024;
/// Columns of a panel, which are unrolled.
pub const MOST_PANEL: u32 = 1 << 10;
/// Heads of attention, and columns of one.
pub const MOST_HEADS: u64 = 1 << 16;
pub const MOST_HEAD: u64 = 1 << 14;

/// Chunks of a sequence.
pub const MOST_CHUNKS: u64 = 1 << 10;

/// What a body may read.
pub(super) struct Scope {
    pub(super) loads: std::ops::Range<usize>,
    pub(super) uniforms: u32,
    /// `None`: given at launch.
    pub(super) cols: Option<u64>,
    pub(super) reductions: bool,
    pub(super) accumulator: bool,
    /// Whether rows may be read by their position in a sequence, of which only maps know the length.
    pub(super) positions: bool,
}

/// The type of arithmetic.
pub(super) fn sums(dtype: DType) -> Result<(), String> {
    match dtype {
        DType::F32 | DType::F64 => Ok(()),
        other => Err(format!("it computes in {other:?}")),
    }
}

/// What a kernel multiplies: its own type, or bf16 where that is f32.
pub(super) fn reads(dtype: DType, of: DType) -> Result<(), String> {
    match (dtype, of) {
        (DType::F32, DType::Bf16) => Ok(()),
        _ if dtype == of => Ok(()),
        _ => Err(format!("a kernel in {dtype:?} does not read {of:?}")),
    }
}

pub(super) fn length(what: &str, n: u64) -> Result<(), String> {
    match (1..=MOST_ELEMENTS).contains(&n) {
        true => Ok(()),
        false => Err(format!("it has {n} {what}")),
    }
}

/// Chunks of a sequence that do not wait for each other.
pub(super) fn chunks(n: u64) -> Result<(), String> {
    match (1..=MOST_CHUNKS).contains(&n) {
        true => Ok(()),
        false => Err(format!(
            "sequences of {n} chunks; 1 to {MOST_CHUNKS} are possible"
        )),
    }
}

pub(super) fn extent(name: &str, e: Extent) -> Result<(), String> {
    match e {
        Extent::Static(n) if !(1..=MOST_ELEMENTS).contains(&n) => Err(format!("its {name} is {n}")),
        _ => Ok(()),
    }
}

/// Pairs are of bf16, their sums f32.
pub(super) fn pairs(order: Order, panels: DType, sums: DType) -> Result<(), String> {
    match (order, panels, sums) {
        (_, DType::Bf16, DType::F32) | (Order::Chain, ..) => Ok(()),
        (Order::Pairs | Order::Dots, ..) => {
            Err(format!("its pairs are of {panels:?}, their sums {sums:?}"))
        }
    }
}

/// Integers are packed from f32 into panels of whole bytes.
pub(super) fn quantized(
    q: Quantized,
    nr: u32,
    [from, to]: [DType; 2],
    order: Order,
) -> Result<(), String> {
    q.validate()?;
    match (from, to) {
        (DType::F32, DType::I8) if nr.is_multiple_of(2) && order.is_chain() => Ok(()),
        _ => Err(format!(
            "{from:?} is not quantized into panels of {nr} columns of {to:?}"
        )),
    }
}

pub(super) fn operands(dtype: DType, all: &[DType]) -> Result<(), String> {
    if all.len() > MOST_OPERANDS {
        return Err(format!("it has {} operands", all.len()));
    }
    match all.iter().find(|d| !fits(dtype, **d)) {
        Some(other) => Err(format!("a kernel in {dtype:?} does not read {other:?}")),
        None => Ok(()),
    }
}

/// Whether an operand of a map may be of a type: numbers of the kernel's, bf16 where that is f32, or token numbers.
fn fits(dtype: DType, operand: DType) -> bool {
    operand == DType::I32 || reads(dtype, operand).is_ok()
}

pub(super) fn value(body: &Body, id: ExprId) -> Result<(), String> {
    match body.nodes.get(id.0 as usize) {
        Some(_) => Ok(()),
        None => Err("a result names an expression that is not there".into()),
    }
}

pub(super) fn access(a: Access, cols: Option<u64>) -> Result<(), String> {
    if a.stride > MOST_ELEMENTS {
        return Err(format!("its rows are {} apart", a.stride));
    }
    if let RowMap::Window(window, through) = a.row {
        window.check()?;
        if let Through::Place(place) | Through::Under(place) = through
            && u64::from(place) >= window.places()
        {
            return Err(format!("it reads place {place} of {}", window.places()));
        }
    }
    match (a.col, cols) {
        (ColMap::Turn { cols, by }, _)
            if !(1..=MOST_ELEMENTS).contains(&cols) || by > MOST_ELEMENTS =>
        {
            Err(format!("it takes columns modulo {cols}, {by} further"))
        }
        (ColMap::Turn { .. }, None) => Err("it turns columns that are given at launch".into()),
        (ColMap::HalfSwap(n), Some(cols)) if n > 0 && n % 2 == 0 && cols.is_multiple_of(n) => {
            Ok(())
        }
        (ColMap::HalfSwap(_), _) => Err("it swaps halves of ragged groups".into()),
        (ColMap::Transposed { rows, cols }, all) => {
            match rows.checked_mul(cols).filter(|n| Some(*n) == all) {
                Some(_) => Ok(()),
                None => Err(format!("it transposes {rows} × {cols} of its columns")),
            }
        }
        _ => Ok(()),
    }
}

pub(super) fn body(b: &Body, dtype: DType, scope: &Scope) -> Result<(), String> {
    if b.nodes.len() > MOST_EXPRESSIONS || scope.uniforms as usize > MOST_EXPRESSIONS {
        return Err(format!(
            "it has {} expressions and {} scalars",
            b.nodes.len(),
            scope.uniforms
        ));
    }
    for (i, e) in b.nodes.iter().enumerate() {
        let wrong = |what: &str| Err(format!("expression {i} {what}"));
        if Body::args(e).iter().any(|a| a.0 as usize >= i) {
            return wrong("reads a later one");
        }
        match *e {
            Expr::Uniform(u) if u >= scope.uniforms => {
                return wrong("reads a scalar that is not passed");
            }
            Expr::Acc if !scope.accumulator => {
                return wrong("reads an accumulator outside an epilogue");
            }
            Expr::Reduce(..) if !scope.reductions => {
                return wrong("reduces where nothing can be reduced");
            }
            Expr::Unary(UnaryOp::Bf16, _) if dtype != DType::F32 => {
                return wrong("rounds to bf16, and only f32 is");
            }
            Expr::Load { operand, access: a } => {
                if !scope.loads.contains(&(operand as usize))
                    || !matches!(a.row, RowMap::Row | RowMap::Zero) && !scope.positions
                {
                    return wrong("loads what this kernel cannot");
                }
                access(a, scope.cols).or_else(|what| wrong(&format!("loads wrongly: {what}")))?;
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Attend, Blocking, Contract, Epilogue, KernelSpec, Layout, Rows, Store};

    fn map() -> Rows {
        let mut body = Body::default();
        let x = body.load(0, Access::full(8));
        Rows {
            dtype: DType::F32,
            cols: 8,
            operands: vec![DType::F32; 2],
            uniforms: 0,
            body,
            stores: vec![Store {
                operand: 1,
                access: Access::full(8),
                value: x,
            }],
        }
    }

    fn product(operands: u32) -> Contract {
        let mut body = Body::default();
        let value = body.push(Expr::Acc);
        let blocking = Blocking {
            mr: 4,
            nr: 8,
            kc: 256,
            nc: 512,
        };
        let sizes = [Extent::Dynamic, Extent::Static(8), Extent::Static(8)];
        Contract {
            epilogue: Some(Epilogue {
                operands,
                halves: vec![],
                uniforms: 0,
                body,
                value,
            }),
            ..Contract::new(DType::F32, sizes, blocking)
        }
    }

    fn refused(spec: KernelSpec, what: &str) {
        let said = spec.validate().unwrap_err();
        assert!(said.contains(what), "{said}");
    }

    #[test]
    fn numbers_out_of_bounds_are_refused_in_words() {
        assert_eq!(KernelSpec::Rows(map()).validate(), Ok(()));
        assert_eq!(KernelSpec::Contract(product(1)).validate(), Ok(()));
        for operands in [i32::MAX as u32, u32::MAX, 257] {
            refused(KernelSpec::Contract(product(operands)), "operands");
        }
        for cols in [0, u64::MAX, MOST_ELEMENTS + 1] {
            refused(KernelSpec::Rows(Rows { cols, ..map() }), "columns");
        }
        let mut k = map();
        k.stores[0].access.stride = 7;
        refused(KernelSpec::Rows(k), "rows of a store overlap");
        let mut k = map();
        k.stores.clear();
        refused(KernelSpec::Rows(k), "stores nothing");
        let mut k = map();
        k.stores[0].value = ExprId(1);
        refused(KernelSpec::Rows(k), "not there");
        let mut k = map();
        k.stores[0].access = Access::PER_ROW;
        refused(KernelSpec::Rows(k), "one per column");
        let mut c = product(0);
        c.blocking.nr = 0;
        refused(KernelSpec::Contract(c), "blocking");
        // An epilogue does not know where texts begin; a matrix to transpose has all columns of the domain.
        let mut c = product(1);
        if let Some(e) = &mut c.epilogue {
            let row = crate::expr::RowMap::Shift(1);
            e.body.load(
                2,
                Access {
                    row,
                    ..Access::full(8)
                },
            );
        }
        refused(KernelSpec::Contract(c), "loads what this kernel cannot");
        for (rows, cols) in [(0, 0), (2, 5), (1 << 40, 1 << 40)] {
            let mut k = map();
            let col = ColMap::Transposed { rows, cols };
            k.body.load(
                0,
                Access {
                    col,
                    ..Access::full(8)
                },
            );
            refused(KernelSpec::Rows(k), "transposes");
        }
        let c = Contract {
            a: DType::I32,
            ..product(0)
        };
        refused(KernelSpec::Contract(c), "does not read I32");
    }

    /// Results and operands of epilogues in bf16 are for tensor cores, which multiply bf16.
    #[test]
    fn bf16_beside_factors_in_f32_is_refused() {
        let halves = |c: Contract, halves: Vec<u32>| {
            let epilogue = c.epilogue.map(|e| Epilogue { halves, ..e });
            KernelSpec::Contract(Contract { epilogue, ..c })
        };
        let narrow = Contract {
            b: DType::Bf16,
            layout: Layout::Rows,
            ..product(2)
        };
        assert_eq!(halves(narrow.clone(), vec![3]).validate(), Ok(()));
        for (c, numbers) in [(product(2), [3]), (narrow.clone(), [1]), (narrow, [4])] {
            refused(
                halves(c, numbers.to_vec()),
                "reads bf16, but not on tensor cores",
            );
        }
        for sample in KernelSpec::samples() {
            let rounding = |a: &Attend| Attend {
                rounds: true,
                ..a.clone()
            };
            match sample.spec {
                KernelSpec::Attend(a) if a.inputs != DType::Bf16 => {
                    refused(KernelSpec::Attend(rounding(&a)), "not made on tensor cores");
                }
                KernelSpec::AttendBackward(a) => {
                    refused(KernelSpec::AttendBackward(rounding(&a)), "not rounded");
                }
                _ => {}
            }
        }
    }
}
