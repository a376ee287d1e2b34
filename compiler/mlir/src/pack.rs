//! Pack kernels: a right-hand operand as panels of columns.
//!
//! A tile of a launch is one panel; see [`odec_program::kernel::Pack`] for the layout.

use crate::emit::{Elem, Emitter, Val};
use crate::pairs::{self, Pairs};
use crate::panel::{self, Panel, Rounding};
use odec_program::DType;
use odec_program::kernel::{Extent, Pack};

/// The extent as a value: a constant, or dimension `n` of the launch.
pub(crate) fn extent(e: &mut Emitter, extent: Extent, n: u64) -> Val {
    match extent {
        Extent::Static(x) => e.int(x as i64),
        Extent::Dynamic => e.dim(n),
    }
}

/// Emits the kernel.
///
/// # Errors
/// A panel that is not made of whole vectors.
pub(crate) fn emit(e: &mut Emitter, spec: &Pack) -> Result<(), String> {
    let rounding = match (spec.from, spec.dtype) {
        (DType::F32 | DType::Bf16, DType::Bf16) => Rounding::Halved,
        (from, to) if from == to => Rounding::None,
        (from, to) => return Err(format!("{from:?} is not packed into panels of {to:?}")),
    };
    let (elem, panel_elem) = (Elem::of(spec.from), Elem::of(spec.dtype));
    let width = spec.nr as u64;
    if width == 0 || !width.is_multiple_of(e.lanes) {
        return Err(format!(
            "panels of {width} columns are not made of whole vectors of {}",
            e.lanes
        ));
    }
    let (b, packed) = (e.operand(0), e.operand(1));
    let (n, k) = (extent(e, spec.n, 0), extent(e, spec.k, 1));
    let pairs = spec.order.in_pairs();
    if pairs && rounding != Rounding::Halved {
        return Err(format!("pairs are of bf16, not {:?}", spec.dtype));
    }
    let depth = match pairs {
        true => pairs::depth(e, spec.order, k),
        false => k,
    };
    let all = matches!(spec.n, Extent::Static(n) if n % width == 0);
    let (begin, end) = (e.begin(), e.end());
    e.for_each(begin, end, 1, |e, tile| {
        let first = e.mul_int(tile, width as i64);
        let valid = match all {
            true => e.int(width as i64),
            false => e.sub(n, first),
        };
        let offset = e.mul(first, depth);
        let to = e.at(packed, offset, panel_elem);
        let (offset, stride) = match (spec.transposed, pairs) {
            (true, false) => (offset, k),
            (true, true) => (e.mul(first, k), k),
            (false, _) => (first, n),
        };
        let from = e.at(b, offset, elem);
        if pairs {
            let p = Pairs {
                from,
                elem,
                stride,
                valid,
                count: k,
                to,
                width,
                order: spec.order,
            };
            return match spec.transposed {
                true => pairs::transpose(e, p),
                false => pairs::copy(e, p),
            };
        }
        let p = Panel {
            from,
            elem,
            rounding,
            stride,
            valid,
            count: k,
            to,
            width,
        };
        match spec.transposed {
            true => panel::transpose(e, p),
            false => panel::copy(e, p),
        }
    });
    Ok(())
}
