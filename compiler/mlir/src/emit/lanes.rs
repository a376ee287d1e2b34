//! Comparison, selection, and moving values between lanes.

use super::{Cmp, Elem, Emitter, Type, Val};

impl Emitter {
    pub fn cmp(&mut self, cmp: Cmp, a: Val, b: Val) -> Val {
        let (op, ordered) = if a.ty.elem.is_float() {
            ("arith.cmpf", true)
        } else {
            ("arith.cmpi", false)
        };
        let predicate = match (cmp, ordered) {
            (Cmp::Eq, true) => "oeq",
            (Cmp::Ne, true) => "une",
            (Cmp::Lt, true) => "olt",
            (Cmp::Le, true) => "ole",
            (Cmp::Gt, true) => "ogt",
            (Cmp::Ge, true) => "oge",
            (Cmp::Eq, false) => "eq",
            (Cmp::Ne, false) => "ne",
            (Cmp::Lt, false) => "slt",
            (Cmp::Le, false) => "sle",
            (Cmp::Gt, false) => "sgt",
            (Cmp::Ge, false) => "sge",
        };
        self.op(
            op,
            format_args!("{predicate}, {a}, {b} : {}", a.ty),
            a.ty.with(Elem::I1),
        )
    }
    /// `c ? t : f`, lane by lane when `c` is a vector.
    pub fn select(&mut self, c: Val, t: Val, f: Val) -> Val {
        match c.ty.lanes {
            0 => self.op(
                "arith.select",
                format_args!("{c}, {t}, {f} : {}", t.ty),
                t.ty,
            ),
            _ => self.op(
                "arith.select",
                format_args!("{c}, {t}, {f} : {}, {}", c.ty, t.ty),
                t.ty,
            ),
        }
    }
    /// A vector with `a` in every lane.
    pub fn broadcast(&mut self, a: Val, lanes: u64) -> Val {
        let to = Type::vector(a.ty.elem, lanes);
        self.op(
            "vector.broadcast",
            format_args!("{a} : {} to {to}", a.ty),
            to,
        )
    }
    /// Lanes of `a` followed by those of `b`, picked by number.
    pub fn shuffle(&mut self, a: Val, b: Val, pick: &[u32]) -> Val {
        let to = Type::vector(a.ty.elem, pick.len() as u64);
        self.op(
            "vector.shuffle",
            format_args!("{a}, {b} {pick:?} : {}, {}", a.ty, b.ty),
            to,
        )
    }
    /// The bits of a vector as lanes of another width, the lower half of a wide one first.
    pub fn vector_bitcast(&mut self, a: Val, elem: Elem) -> Val {
        let bytes = u64::from(a.ty.lanes) * a.ty.elem.bytes();
        let to = Type::vector(elem, bytes / elem.bytes());
        self.op("vector.bitcast", format_args!("{a} : {} to {to}", a.ty), to)
    }
    /// One lane of a vector.
    pub fn extract(&mut self, a: Val, lane: u64) -> Val {
        let to = Type::scalar(a.ty.elem);
        self.op(
            "vector.extract",
            format_args!("{a}[{lane}] : {to} from {}", a.ty),
            to,
        )
    }
    /// A mask of the first `count` (i64) of `lanes` lanes; all for count ≥ lanes, none for count ≤ 0.
    pub fn mask(&mut self, count: Val, lanes: u64) -> Val {
        if let Some(count) = count.known() {
            let list: Vec<String> = (0..lanes as i64).map(|n| (n < count).to_string()).collect();
            let ty = Type::vector(Elem::I1, lanes);
            return self.constant(format!("dense<[{}]>", list.join(", ")), ty);
        }
        let (zero, all) = (self.int(0), self.int(lanes as i64));
        let count = self.min(count, all);
        let count = self.max(count, zero);
        let small = self.convert(count, Elem::I32);
        let counts = self.broadcast(small, lanes);
        let iota = self.iota(lanes);
        self.cmp(Cmp::Lt, iota, counts)
    }

    /// The mask of the first `count` (i64) of `lanes` lanes, `None` if it is known that all of them exist.
    pub fn partial_mask(&mut self, count: Val, lanes: u64) -> Option<Val> {
        let all = count.known().is_some_and(|n| n >= lanes as i64);
        (!all).then(|| self.mask(count, lanes))
    }
}
