//! Pack kernels: a right-hand operand as panels of columns.
//!
//! A tile of a launch is one panel, or some rows of all panels; see [`odec_program::kernel::Pack`] for the layout. Of weights in integers, a group of a panel is brought to scratch in f32
//! as any other panel is, and quantized from there as [`odec_program::quantized`] says.

use crate::emit::{Cmp, Elem, Emitter, Val};
use crate::pairs::{self, Pairs};
use crate::panel::{self, Panel, Rounding};
use crate::quantized;
use odec_program::kernel::{Extent, Pack};
use odec_program::{DType, Quantized};

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
    if let Some(q) = spec.quantized {
        return integers(e, spec, q);
    }
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
    let (begin, end, zero) = (e.begin(), e.end(), e.int(0));
    // Of a panel, `count` rows from `start` on.
    let panel = |e: &mut Emitter, panel: Val, (start, count): (Val, Val)| {
        let first = e.mul_int(panel, width as i64);
        let valid = match all {
            true => e.int(width as i64),
            false => e.sub(n, first),
        };
        let (offset, before) = (e.mul(first, depth), e.mul_int(start, width as i64));
        let offset = e.add(offset, before);
        let to = e.at(packed, offset, panel_elem);
        let (offset, stride) = match spec.transposed {
            true => (e.mul(first, k), k),
            false => {
                let before = e.mul(start, n);
                (e.add(first, before), n)
            }
        };
        let from = e.at(b, offset, elem);
        if pairs {
            let p = Pairs {
                from,
                elem,
                stride,
                valid,
                count,
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
            count,
            to,
            width,
        };
        match spec.transposed {
            true => panel::transpose(e, p),
            false => panel::copy(e, p),
        }
    };
    if !spec.by_rows() {
        e.for_each(begin, end, 1, |e, tile| panel(e, tile, (zero, k)));
        return Ok(());
    }
    let panels = e.div_ceil(n, width as i64);
    e.for_each(begin, end, 1, |e, tile| {
        let start = e.mul_int(tile, Pack::ROWS as i64);
        let (left, most) = (e.sub(k, start), e.int(Pack::ROWS as i64));
        let count = e.min(left, most);
        e.for_each(zero, panels, 1, |e, p| panel(e, p, (start, count)));
    });
    Ok(())
}

/// Emits a kernel that packs integers.
///
/// # Errors
/// Panels that are not made of whole vectors.
fn integers(e: &mut Emitter, spec: &Pack, of: Quantized) -> Result<(), String> {
    let nr = u64::from(spec.nr);
    quantized::check(e, of, nr)?;
    if (spec.from, spec.dtype) != (DType::F32, DType::I8) {
        return Err(format!(
            "{:?} is not quantized to {:?}",
            spec.from, spec.dtype
        ));
    }
    let (b, packed) = (e.operand(0), e.operand(1));
    let (n, k) = (extent(e, spec.n, 0), extent(e, spec.k, 1));
    let size = quantized::panel_bytes(e, of, nr, k);
    let (begin, end) = (e.begin(), e.end());
    e.for_each(begin, end, 1, |e, tile| {
        let column = e.mul_int(tile, nr as i64);
        let left = e.sub(n, column);
        let whole = e.int(nr as i64);
        let valid = match n.known() {
            Some(n) if n % nr as i64 == 0 => whole,
            _ => e.min(left, whole),
        };
        let offset = e.mul(tile, size);
        let panel = e.at(packed, offset, Elem::I8);
        e.each_piece(k, of.group.into(), |e, start, left| {
            let count = left.unwrap_or_else(|| e.int(of.group.into()));
            let (offset, stride) = match spec.transposed {
                true => (e.mul(column, k), k),
                false => (column, n),
            };
            let inner = match spec.transposed {
                true => start,
                false => e.mul(start, n),
            };
            let offset = e.add(offset, inner);
            let p = Panel {
                from: e.at(b, offset, Elem::F32),
                elem: Elem::F32,
                rounding: Rounding::None,
                stride,
                valid,
                count,
                to: e.scratch(),
                width: nr,
            };
            match spec.transposed {
                true => panel::transpose(e, p),
                false => panel::copy(e, p),
            }
            let group = e.div_int(start, of.group.into());
            let offset = e.mul_int(group, of.stride(nr) as i64);
            let to = e.at(panel, offset, Elem::I8);
            quantize(e, of, nr, count, to);
        });
    });
    Ok(())
}

/// Quantizes a group of a panel, of which `count` rows are in scratch.
fn quantize(e: &mut Emitter, of: Quantized, nr: u64, count: Val, to: Val) {
    let (lanes, vectors) = (e.lanes as i64, nr / e.lanes);
    let (zero, from) = (e.int(0), e.scratch());
    let row = |e: &mut Emitter, i: Val| -> Vec<Val> {
        let offset = e.mul_int(i, nr as i64);
        let line = e.at(from, offset, Elem::F32);
        let load = |v: u64| {
            let at = e.at_const(line, v as i64 * lanes, Elem::F32);
            e.load(at, e.vector())
        };
        (0..vectors).map(load).collect()
    };
    let none = e.float(0.0, e.vector());
    let most = e.for_with(
        zero,
        count,
        1,
        &vec![none; vectors as usize],
        |e, i, most| {
            let row = row(e, i);
            let larger = |(x, most): (Val, &Val)| {
                let bits = e.bitcast(x, Elem::I32);
                let magnitude = e.integer(0x7FFF_FFFF, bits.ty);
                let bits = e.and(bits, magnitude);
                let x = e.bitcast(bits, Elem::F32);
                e.max_float(x, *most)
            };
            row.into_iter().zip(most).map(larger).collect()
        },
    );
    let [largest, smallest] = [1, -1].map(|sign| {
        let most = f64::from(sign) * f64::from(of.largest());
        e.float(most, e.vector())
    });
    let mut scales = Vec::new();
    for (v, most) in most.into_iter().enumerate() {
        // The least bf16 that is not below the quotient.
        let least = e.div(most, largest);
        let bits = e.bitcast(least, Elem::I32);
        let [rest, upper] = [0xFFFF, -65536].map(|n| e.integer(n, bits.ty));
        let bits = e.add(bits, rest);
        let bits = e.and(bits, upper);
        let scale = e.bitcast(bits, Elem::F32);
        let at = e.at_const(to, v as i64 * lanes, Elem::Bf16);
        let half = e.upper_half(scale);
        e.store(half, at);
        let (none, one) = (e.float(0.0, e.vector()), e.float(1.0, e.vector()));
        let is_none = e.cmp(Cmp::Eq, scale, none);
        scales.push(e.select(is_none, one, scale));
    }
    let lines = e.at_const(to, of.scales(nr) as i64, Elem::I8);
    e.for_each(zero, count, 1, |e, i| {
        let numbers = row(e, i);
        let integer = |(x, scale): (Val, &Val)| {
            let x = e.div(x, *scale);
            let x = e.max_float(x, smallest);
            let x = e.min_float(x, largest);
            let x = e.round_even(x);
            e.convert(x, Elem::I32)
        };
        let integers: Vec<Val> = numbers.into_iter().zip(&scales).map(integer).collect();
        let offset = e.mul_int(i, of.row(nr) as i64);
        let line = e.at(lines, offset, Elem::I8);
        let apart = (of.row(nr) / e.lanes) as usize;
        for v in 0..apart {
            let mut word = integers[v];
            if of.bits == 4 {
                let [lower, four] = [15, 4].map(|n| e.integer(n, word.ty));
                word = e.and(word, lower);
                let upper = e.shift_left(integers[v + apart], four);
                word = e.or(word, upper);
            }
            let bytes = e.convert(word, Elem::I8);
            let at = e.at_const(line, v as i64 * lanes, Elem::I8);
            e.store(bytes, at);
        }
    });
}
