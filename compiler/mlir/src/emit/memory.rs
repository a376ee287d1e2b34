//! Addresses, loads, stores and prefetches.

use super::{Elem, Emitter, Type, Val};

impl Emitter {
    /// The address of element `index` (i64) of type `elem`.
    pub fn at(&mut self, pointer: Val, index: Val, elem: Elem) -> Val {
        match index.known() {
            Some(n) => self.at_const(pointer, n, elem),
            None => self.op(
                "llvm.getelementptr",
                format_args!(
                    "{pointer}[{index}] : (!llvm.ptr, i64) -> !llvm.ptr, {}",
                    elem.name()
                ),
                Type::PTR,
            ),
        }
    }
    /// The address `n` elements further.
    pub fn at_const(&mut self, pointer: Val, n: i64, elem: Elem) -> Val {
        match n {
            0 => pointer,
            n => self.op(
                "llvm.getelementptr",
                format_args!("{pointer}[{n}] : (!llvm.ptr) -> !llvm.ptr, {}", elem.name()),
                Type::PTR,
            ),
        }
    }
    /// Loads a scalar or vector; the address is aligned to an element.
    pub fn load(&mut self, pointer: Val, ty: Type) -> Val {
        let align = ty.elem.bytes();
        self.op(
            "llvm.load",
            format_args!("{pointer} {{alignment = {align} : i64}} : !llvm.ptr -> {ty}"),
            ty,
        )
    }
    /// Stores a scalar or vector; the address is aligned to an element.
    pub fn store(&mut self, value: Val, pointer: Val) {
        let align = value.ty.elem.bytes();
        self.stmt(format_args!(
            "llvm.store {value}, {pointer} {{alignment = {align} : i64}} : {}, !llvm.ptr",
            value.ty
        ));
    }
    /// Loads the lanes of `mask`; the other lanes are those of `other` and are not accessed.
    pub fn load_masked(&mut self, pointer: Val, mask: Val, other: Val) -> Val {
        let (ty, align) = (other.ty, other.ty.elem.bytes());
        self.op(
            "llvm.intr.masked.load",
            format_args!(
                "{pointer}, {mask}, {other} {{alignment = {align} : i32}} : (!llvm.ptr, {}, {ty}) -> {ty}",
                mask.ty
            ),
            ty,
        )
    }
    /// Stores the lanes of `mask`; the others are not accessed.
    pub fn store_masked(&mut self, value: Val, pointer: Val, mask: Val) {
        let align = value.ty.elem.bytes();
        self.stmt(format_args!(
            "llvm.intr.masked.store {value}, {pointer}, {mask} {{alignment = {align} : i32}} : {}, {} into !llvm.ptr",
            value.ty, mask.ty
        ));
    }
    /// Loads a vector, under a mask if there is one; the other lanes are zero.
    pub fn load_lanes(&mut self, pointer: Val, mask: Option<Val>, ty: Type) -> Val {
        match mask {
            None => self.load(pointer, ty),
            Some(mask) => {
                let zero = self.zero(ty);
                self.load_masked(pointer, mask, zero)
            }
        }
    }
    /// Stores a vector, under a mask if there is one.
    pub fn store_lanes(&mut self, value: Val, pointer: Val, mask: Option<Val>) {
        match mask {
            None => self.store(value, pointer),
            Some(mask) => self.store_masked(value, pointer, mask),
        }
    }
    /// Asks for a cache line, to be read or written soon. The address need not be valid.
    pub fn prefetch(&mut self, pointer: Val, write: bool) {
        let rw = write as u32;
        self.stmt(format_args!(
            "\"llvm.intr.prefetch\"({pointer}) <{{rw = {rw} : i32, hint = 3 : i32, cache = 1 : i32}}> : (!llvm.ptr) -> ()"
        ));
    }
}
