//! Arithmetic on floats, counts and bit patterns, and conversions between them.

use super::{Cmp, Elem, Emitter, Type, Val};
use odec_program::Target;

impl Emitter {
    /// `a + b`.
    pub fn add(&mut self, a: Val, b: Val) -> Val {
        match (a.known(), b.known()) {
            (Some(x), Some(y)) => self.int(x + y),
            (Some(0), _) => b,
            (_, Some(0)) => a,
            _ => self.arith("add", a, b),
        }
    }
    /// `a − b`.
    pub fn sub(&mut self, a: Val, b: Val) -> Val {
        match (a.known(), b.known()) {
            (Some(x), Some(y)) => self.int(x - y),
            (_, Some(0)) => a,
            _ => self.arith("sub", a, b),
        }
    }
    /// `a · b`.
    pub fn mul(&mut self, a: Val, b: Val) -> Val {
        match (a.known(), b.known()) {
            (Some(x), Some(y)) => self.int(x * y),
            (Some(0), _) | (_, Some(1)) => a,
            (_, Some(0)) | (Some(1), _) => b,
            _ => self.arith("mul", a, b),
        }
    }
    /// `a + n` on i64.
    pub fn add_int(&mut self, a: Val, n: i64) -> Val {
        let n = self.int(n);
        self.add(a, n)
    }
    /// `a · n` on i64.
    pub fn mul_int(&mut self, a: Val, n: i64) -> Val {
        let n = self.int(n);
        self.mul(a, n)
    }
    /// `a / b`: floats, or i64 that are not negative.
    pub fn div(&mut self, a: Val, b: Val) -> Val {
        if a.ty.elem.is_float() {
            return self.binary("arith.divf", a, b);
        }
        match (a.known(), b.known()) {
            (Some(x), Some(y)) => self.int(x / y),
            (_, Some(1)) => a,
            _ => self.binary("arith.divui", a, b),
        }
    }
    /// `a / n` on i64 that are not negative.
    pub fn div_int(&mut self, a: Val, n: i64) -> Val {
        let n = self.int(n);
        self.div(a, n)
    }
    /// `a mod b` on i64 that are not negative.
    pub fn rem(&mut self, a: Val, b: Val) -> Val {
        match (a.known(), b.known()) {
            (Some(x), Some(y)) => self.int(x % y),
            _ => self.binary("arith.remui", a, b),
        }
    }
    /// The smaller of two i64.
    pub fn min(&mut self, a: Val, b: Val) -> Val {
        match (a.known(), b.known()) {
            (Some(x), Some(y)) => self.int(x.min(y)),
            _ => self.binary("arith.minsi", a, b),
        }
    }
    /// The larger of two i64.
    pub fn max(&mut self, a: Val, b: Val) -> Val {
        match (a.known(), b.known()) {
            (Some(x), Some(y)) => self.int(x.max(y)),
            _ => self.binary("arith.maxsi", a, b),
        }
    }
    /// `⌈a / n⌉` on i64 that are not negative.
    pub fn div_ceil(&mut self, a: Val, n: i64) -> Val {
        let up = self.add_int(a, n - 1);
        let n = self.int(n);
        self.div(up, n)
    }
    /// `a` rounded down to a multiple of n, on i64 that are not negative.
    pub fn floor_to(&mut self, a: Val, n: i64) -> Val {
        let n = self.int(n);
        let q = self.div(a, n);
        self.mul(q, n)
    }
    /// `−a` on floats.
    pub fn neg(&mut self, a: Val) -> Val {
        self.op("arith.negf", format_args!("{a} : {}", a.ty), a.ty)
    }
    /// `a > b ? a : b`, so `b` when either is NaN.
    pub fn max_float(&mut self, a: Val, b: Val) -> Val {
        let c = self.cmp(Cmp::Gt, a, b);
        self.select(c, a, b)
    }
    /// `a < b ? a : b`, so `b` when either is NaN.
    pub fn min_float(&mut self, a: Val, b: Val) -> Val {
        let c = self.cmp(Cmp::Lt, a, b);
        self.select(c, a, b)
    }
    /// `√a`, correctly rounded.
    pub fn sqrt(&mut self, a: Val) -> Val {
        self.intrinsic("sqrt", &[a], a.ty)
    }
    /// Rounds to an integral float, half to even.
    pub fn round_even(&mut self, a: Val) -> Val {
        self.intrinsic("roundeven", &[a], a.ty)
    }
    /// `a · 2^⌊b⌋`, rounded once, on a register of 16 f32 (AVX-512 only).
    pub fn scalef(&mut self, a: Val, b: Val) -> Val {
        let (ty, mask) = (a.ty, self.integer(-1, Type::scalar(Elem::I16)));
        let nearest = self.integer(4, Type::scalar(Elem::I32)); // rounding as the control register says
        self.op(
            "llvm.call_intrinsic",
            format_args!(
                "\"llvm.x86.avx512.mask.scalef.ps.512\"({a}, {b}, {a}, {mask}, {nearest}) : ({ty}, {ty}, {ty}, i16, i32) -> {ty}"
            ),
            ty,
        )
    }
    /// `a·b + c`, rounded once. Where the target has no such instruction, a helper computes the same
    /// bits (`crate::fma`).
    pub fn fma(&mut self, a: Val, b: Val, c: Val) -> Val {
        if self.target >= Target::Avx2 {
            return self.intrinsic("fma", &[a, b, c], a.ty);
        }
        let ty = a.ty;
        let name = format!(
            "fma_{}{}",
            ty.elem.name(),
            if ty.lanes == 0 {
                String::new()
            } else {
                format!("x{}", ty.lanes)
            }
        );
        self.call(name, crate::fma::helper, [a, b, c])
    }

    /// Calls the helper of that name, which is made the first time that it is asked for.
    fn call(&mut self, name: String, make: fn(&str, Type, Target) -> String, of: [Val; 3]) -> Val {
        let ([a, b, c], ty) = (of, of[0].ty);
        if !self.helpers.contains_key(&name) {
            let text = make(&name, ty, self.target);
            self.helpers.insert(name.clone(), text);
        }
        self.op(
            "func.call",
            format_args!("@{name}({a}, {b}, {c}) : ({ty}, {ty}, {ty}) -> {ty}"),
            ty,
        )
    }

    /// The sums `c` with the products of pairs of bf16 added to them, as [`odec_program::dot::add`] adds a pair: a register of f32, each
    /// word of `a` and `b` a pair. Where the target has no such instruction, a helper computes the same bits (`crate::dot`).
    pub fn dot_pairs(&mut self, a: Val, b: Val, c: Val) -> Val {
        if self.target != Target::Avx512Bf16 {
            let [a, b] = [a, b].map(|words| self.bitcast(words, Elem::F32));
            let name = format!("dot_pairs_x{}", c.ty.lanes);
            return self.call(name, crate::dot::helper, [a, b, c]);
        }
        let pairs = format!("vector<{}xbf16>", 2 * a.ty.lanes);
        let [a, b] = [a, b].map(|x| {
            self.op(
                "vector.bitcast",
                format_args!("{x} : {} to {pairs}", x.ty),
                x.ty,
            )
        });
        let ty = c.ty;
        self.op(
            "llvm.call_intrinsic",
            format_args!(
                "\"llvm.x86.avx512bf16.dpbf16ps.512\"({c}, {a}, {b}) : ({ty}, {pairs}, {pairs}) -> {ty}"
            ),
            ty,
        )
    }

    // --- integers as bits -------------------------------------------------------------------------

    pub fn and(&mut self, a: Val, b: Val) -> Val {
        self.binary("arith.andi", a, b)
    }
    pub fn or(&mut self, a: Val, b: Val) -> Val {
        self.binary("arith.ori", a, b)
    }
    pub fn xor(&mut self, a: Val, b: Val) -> Val {
        self.binary("arith.xori", a, b)
    }
    pub fn shift_left(&mut self, a: Val, b: Val) -> Val {
        self.binary("arith.shli", a, b)
    }
    /// Shifts in the sign.
    pub fn shift_right_signed(&mut self, a: Val, b: Val) -> Val {
        self.binary("arith.shrsi", a, b)
    }
    /// Shifts in zeros.
    pub fn shift_right(&mut self, a: Val, b: Val) -> Val {
        self.binary("arith.shrui", a, b)
    }

    // --- bf16 ---------------------------------------------------------------------------------------

    /// The f32 that the bits of a bf16 stand for.
    fn widen(&mut self, a: Val) -> Val {
        let ty = a.ty.with(Elem::I32);
        let wide = self.op("arith.extui", format_args!("{a} : {} to {ty}", a.ty), ty);
        let shift = self.integer(16, ty);
        let bits = self.shift_left(wide, shift);
        self.bitcast(bits, Elem::F32)
    }
    /// The upper half of an f32 that is a bf16.
    pub fn upper_half(&mut self, a: Val) -> Val {
        let bits = self.bitcast(a, Elem::I32);
        self.upper_bits(bits)
    }
    fn upper_bits(&mut self, bits: Val) -> Val {
        let (shift, to) = (self.integer(16, bits.ty), bits.ty.with(Elem::Bf16));
        let high = self.shift_right(bits, shift);
        self.op(
            "arith.trunci",
            format_args!("{high} : {} to {to}", high.ty),
            to,
        )
    }
    /// The bf16 nearest to an f32 ([`odec_program::bf16::of_f32`]): its bits if `halved`, else the number they stand for.
    pub fn nearest_bf16(&mut self, a: Val, halved: bool) -> Val {
        if self.target == Target::Avx512Bf16 && a.ty.lanes == 16 {
            let upper = self.converted_bf16(a);
            return match halved {
                true => upper,
                false => self.widen(upper),
            };
        }
        let bits = self.rounded_bits(a);
        if halved {
            return self.upper_bits(bits);
        }
        let upper = self.integer(-65536, bits.ty);
        let bits = self.and(bits, upper);
        self.bitcast(bits, Elem::F32)
    }
    /// Bits whose upper half is the nearest bf16.
    fn rounded_bits(&mut self, a: Val) -> Val {
        let bits = self.bitcast(a, Elem::I32);
        let ty = bits.ty;
        let [shift, one, half, quiet] = [16, 1, 0x7FFF, 0x40_0000].map(|n| self.integer(n, ty));
        let even = self.shift_right(bits, shift);
        let even = self.and(even, one);
        let up = self.add(bits, half);
        let up = self.add(up, even);
        let nan = self.or(bits, quiet);
        let is_nan = self.cmp(Cmp::Ne, a, a);
        self.select(is_nan, nan, up)
    }
    /// The bits of the nearest bf16 by `vcvtneps2bf16`, on a register of f32. The instruction makes zeros of subnormals, which are rare: where there is
    /// one, all are rounded as elsewhere.
    fn converted_bf16(&mut self, a: Val) -> Val {
        let (f32s, lanes) = (a.ty, a.ty.lanes);
        let upper = f32s.with(Elem::Bf16);
        let (halves, flags) = (
            format!("vector<{lanes}xbf16>"),
            format!("vector<{lanes}xi1>"),
        );
        let near = self.op(
            "llvm.call_intrinsic",
            format_args!("\"llvm.x86.avx512bf16.cvtneps2bf16.512\"({a}) : ({f32s}) -> {halves}"),
            upper,
        );
        let near = self.op(
            "llvm.bitcast",
            format_args!("{near} : {halves} to {upper}"),
            upper,
        );
        let subnormal = self.integer(0x20, Type::scalar(Elem::I32));
        let found = self.op(
            "llvm.call_intrinsic",
            format_args!(
                "\"llvm.x86.avx512.fpclass.ps.512\"({a}, {subnormal}) : ({f32s}, i32) -> {flags}"
            ),
            Type::scalar(Elem::I16),
        );
        let found = self.op(
            "llvm.bitcast",
            format_args!("{found} : {flags} to i16"),
            Type::scalar(Elem::I16),
        );
        let none = self.integer(0, Type::scalar(Elem::I16));
        let any = self.cmp(Cmp::Ne, found, none);
        self.when_with(any, &[near], |e| {
            let bits = e.rounded_bits(a);
            vec![e.upper_bits(bits)]
        })[0]
    }

    // --- conversions ------------------------------------------------------------------------------

    /// The same bits as another element type of the same size.
    pub fn bitcast(&mut self, a: Val, elem: Elem) -> Val {
        let to = a.ty.with(elem);
        self.op("arith.bitcast", format_args!("{a} : {} to {to}", a.ty), to)
    }
    /// Converts: signed integer ↔ float (towards zero), between float widths, between integer widths
    /// (sign extension), and bf16 ↔ f32 (to nearest even).
    pub fn convert(&mut self, a: Val, elem: Elem) -> Val {
        match (a.ty.elem, elem) {
            (Elem::Bf16, Elem::Bf16) => return a,
            (Elem::Bf16, _) => {
                let x = self.widen(a);
                return self.convert(x, elem);
            }
            (_, Elem::Bf16) => {
                let x = self.convert(a, Elem::F32);
                return self.nearest_bf16(x, true);
            }
            _ => {}
        }
        let (from, to) = (a.ty, a.ty.with(elem));
        let name = match (from.elem.is_float(), elem.is_float()) {
            (true, true) if from.elem.bytes() < elem.bytes() => "arith.extf",
            (true, true) if from.elem.bytes() > elem.bytes() => "arith.truncf",
            (false, false) if from.elem.bytes() < elem.bytes() => "arith.extsi",
            (false, false) if from.elem.bytes() > elem.bytes() => "arith.trunci",
            (false, true) => "arith.sitofp",
            (true, false) => "arith.fptosi",
            _ => return a,
        };
        self.op(name, format_args!("{a} : {from} to {to}"), to)
    }
}
