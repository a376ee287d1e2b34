//! A small builder of MLIR text.
//!
//! Takes calls such as `e.fma(a, b, c)`; gives the text of one module holding one kernel function
//! with the C ABI of [`odec_program::kernel`], or one for a GPU ([`odec_program::gpu`]). Values carry their types, so an operation picks its
//! form (`arith.addi`, `arith.addf`) by itself. Integer arithmetic on constants is folded, constants
//! appear once at the top of the function, temporaries are numbered in order: equal specs give equal
//! text. Pointers are bare `!llvm.ptr`; there are no memref descriptors.
//!
//! Leaves out: anything that knows what a kernel computes, and lowering ([`crate::pipeline`]).

use odec_program::{DType, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

mod arith;
mod boxes;
mod control;
mod gpu;
mod lanes;
mod memory;
mod tensor;
mod tile;
mod types;
mod warpgroup;

pub use boxes::Boxes;
pub(crate) use gpu::Arguments;
use types::Name;
pub use types::{Cmp, Elem, Type, Val};
pub use warpgroup::{Accumulators, Left, Paneled};

/// Builds the text of one kernel.
pub struct Emitter {
    pub target: Target,
    /// Element type of the kernel's arithmetic.
    pub elem: Elem,
    /// Elements of a vector register of the target.
    pub lanes: u64,
    symbol: String,
    gpu: Option<gpu::Block>,
    ints: BTreeSet<i64>,
    consts: Vec<(String, Type)>,
    body: String,
    indent: usize,
    temps: u32,
    helpers: BTreeMap<String, String>,
}

impl Emitter {
    /// An empty kernel function called `symbol`, computing in `dtype`.
    pub fn new(symbol: &str, dtype: DType, target: Target) -> Emitter {
        Emitter {
            target,
            elem: Elem::of(dtype),
            lanes: target.lanes(dtype),
            symbol: symbol.to_string(),
            gpu: None,
            ints: BTreeSet::new(),
            consts: Vec::new(),
            body: String::new(),
            indent: 2,
            temps: 0,
            helpers: BTreeMap::new(),
        }
    }

    /// The text of the module.
    pub fn finish(self) -> String {
        let mut out = String::from("module {\n");
        if let Some(block) = &self.gpu {
            out.push_str(&block.memory(&self.symbol));
            let head = block.signature(&self.symbol);
            out.push_str(&self.function(&head, "llvm.return"));
            out.push_str("}\n");
            return out;
        }
        let args = "%operands: !llvm.ptr, %dims: !llvm.ptr, %coeffs: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr";
        out.push_str(&self.function(&format!("func.func @{}({args})", self.symbol), "return"));
        for text in self.helpers.values() {
            out.push_str(text);
        }
        out.push_str("}\n");
        out
    }

    /// The text of a private function of three arguments `a`, `b`, `c` and a result of one type, which becomes part of its callers or stays a function.
    pub(crate) fn helper(
        name: &str,
        ty: Type,
        target: Target,
        inlined: bool,
        build: impl FnOnce(&mut Emitter, Val, Val, Val) -> Val,
    ) -> String {
        let dtype = if ty.elem == Elem::F64 {
            DType::F64
        } else {
            DType::F32
        };
        let mut e = Emitter::new(name, dtype, target);
        let arg = |s| Val {
            name: Name::Arg(s),
            ty,
        };
        let out = build(&mut e, arg("a"), arg("b"), arg("c"));
        let inlines = if inlined { "alwaysinline" } else { "noinline" };
        let head = format!(
            "func.func private @{name}(%a: {ty}, %b: {ty}, %c: {ty}) -> {ty} attributes {{llvm.linkage = #llvm.linkage<internal>, passthrough = [\"{inlines}\"]}}"
        );
        e.function(&head, &format!("return {out} : {ty}"))
    }

    fn function(&self, head: &str, last: &str) -> String {
        let mut out = format!("  {head} {{\n");
        for &n in &self.ints {
            let name = Val {
                name: Name::Int(n),
                ty: Type::I64,
            };
            let _ = writeln!(out, "    {name} = arith.constant {n} : i64");
        }
        for (i, (text, ty)) in self.consts.iter().enumerate() {
            let _ = writeln!(out, "    %k{i} = arith.constant {text} : {ty}");
        }
        let _ = writeln!(out, "{}    {last}\n  }}", self.body);
        out
    }

    // --- the function's arguments -----------------------------------------------------------------

    /// First tile of the launch.
    pub fn begin(&self) -> Val {
        Val {
            name: Name::Arg("begin"),
            ty: Type::I64,
        }
    }
    /// One past the last tile.
    pub fn end(&self) -> Val {
        Val {
            name: Name::Arg("end"),
            ty: Type::I64,
        }
    }
    /// The thread's scratch memory.
    pub fn scratch(&self) -> Val {
        Val {
            name: Name::Arg("scratch"),
            ty: Type::PTR,
        }
    }
    /// Loads the pointer of operand `n`.
    pub fn operand(&mut self, n: u64) -> Val {
        if self.gpu.is_some() {
            return gpu::argument("o", n, Type::PTR);
        }
        let array = Val {
            name: Name::Arg("operands"),
            ty: Type::PTR,
        };
        let slot = self.at_const(array, n as i64, Elem::Ptr);
        self.load(slot, Type::PTR)
    }
    /// Loads dimension `n`.
    pub fn dim(&mut self, n: u64) -> Val {
        if self.gpu.is_some() {
            return gpu::argument("d", n, Type::I64);
        }
        let array = Val {
            name: Name::Arg("dims"),
            ty: Type::PTR,
        };
        let slot = self.at_const(array, n as i64, Elem::I64);
        self.load(slot, Type::I64)
    }
    /// Loads coefficient `n`, rounded to the kernel's element type.
    pub fn coeff(&mut self, n: u64) -> Val {
        let x = match self.gpu {
            Some(_) => gpu::argument("u", n, Type::scalar(Elem::F64)),
            None => {
                let array = Val {
                    name: Name::Arg("coeffs"),
                    ty: Type::PTR,
                };
                let slot = self.at_const(array, n as i64, Elem::F64);
                self.load(slot, Type::scalar(Elem::F64))
            }
        };
        match self.elem {
            Elem::F32 => self.op(
                "arith.truncf",
                format_args!("{x} : f64 to f32"),
                Type::scalar(Elem::F32),
            ),
            _ => x,
        }
    }

    // --- types and constants ----------------------------------------------------------------------

    /// A scalar of the kernel's element type.
    pub fn scalar(&self) -> Type {
        Type::scalar(self.elem)
    }
    /// One vector register of the kernel's element type.
    pub fn vector(&self) -> Type {
        Type::vector(self.elem, self.lanes)
    }
    /// An i64 constant.
    pub fn int(&mut self, n: i64) -> Val {
        self.ints.insert(n);
        Val {
            name: Name::Int(n),
            ty: Type::I64,
        }
    }
    /// A float constant (rounded to the type's element type), splat over the lanes of a vector type.
    pub fn float(&mut self, x: f64, ty: Type) -> Val {
        let text = float_literal(x, ty.elem);
        self.constant(
            if ty.lanes == 0 {
                text
            } else {
                format!("dense<{text}>")
            },
            ty,
        )
    }
    /// Zeros of any type but pointers.
    pub fn zero(&mut self, ty: Type) -> Val {
        match ty.elem.is_float() {
            true => self.float(0.0, ty),
            false => self.integer(0, ty),
        }
    }
    /// An integer constant of any integer type, splat over the lanes of a vector type.
    pub fn integer(&mut self, n: i64, ty: Type) -> Val {
        if ty == Type::I64 {
            return self.int(n);
        }
        self.constant(
            if ty.lanes == 0 {
                n.to_string()
            } else {
                format!("dense<{n}>")
            },
            ty,
        )
    }
    /// `[0, 1, 2, …]` as i32.
    pub fn iota(&mut self, lanes: u64) -> Val {
        let list: Vec<String> = (0..lanes).map(|n| n.to_string()).collect();
        self.constant(
            format!("dense<[{}]>", list.join(", ")),
            Type::vector(Elem::I32, lanes),
        )
    }
    fn constant(&mut self, text: String, ty: Type) -> Val {
        let found = self.consts.iter().position(|c| c.0 == text && c.1 == ty);
        let n = found.unwrap_or_else(|| {
            self.consts.push((text, ty));
            self.consts.len() - 1
        });
        Val {
            name: Name::Const(n as u32),
            ty,
        }
    }

    // --- text -------------------------------------------------------------------------------------

    /// A comment line, for readers of `odec build --emit mlir`.
    pub fn comment(&mut self, text: &str) {
        self.stmt(format_args!("// {text}"));
    }

    fn arith(&mut self, name: &str, a: Val, b: Val) -> Val {
        if a.ty.elem.is_float() {
            return self.op(
                &format!("arith.{name}f"),
                format_args!("{a}, {b} : {}", a.ty),
                a.ty,
            );
        }
        // addresses and counts never wrap; vectors of integers may be bit patterns
        let flags = if a.ty == Type::I64 {
            " overflow<nsw>"
        } else {
            ""
        };
        self.op(
            &format!("arith.{name}i"),
            format_args!("{a}, {b}{flags} : {}", a.ty),
            a.ty,
        )
    }
    fn binary(&mut self, name: &str, a: Val, b: Val) -> Val {
        self.op(name, format_args!("{a}, {b} : {}", a.ty), a.ty)
    }
    fn intrinsic(&mut self, name: &str, args: &[Val], ty: Type) -> Val {
        self.op(
            &format!("llvm.intr.{name}"),
            format_args!("({}) : ({}) -> {ty}", list(args), types(args)),
            ty,
        )
    }
    fn temp(&mut self, ty: Type) -> Val {
        self.temps += 1;
        Val {
            name: Name::Temp(self.temps - 1),
            ty,
        }
    }
    fn op(&mut self, name: &str, rest: fmt::Arguments, ty: Type) -> Val {
        let out = self.temp(ty);
        self.stmt(format_args!("{out} = {name} {rest}"));
        out
    }
    fn stmt(&mut self, text: fmt::Arguments) {
        let _ = writeln!(self.body, "{:1$}{text}", "", 2 * self.indent);
    }
}

fn list(vals: &[Val]) -> String {
    let names: Vec<String> = vals.iter().map(Val::to_string).collect();
    names.join(", ")
}

fn types(vals: &[Val]) -> String {
    let types: Vec<String> = vals.iter().map(|v| v.ty.to_string()).collect();
    types.join(", ")
}

/// A float literal that MLIR reads back as exactly `x` rounded to `elem`.
fn float_literal(x: f64, elem: Elem) -> String {
    // MLIR reads decimals as f64 and rounds again, so an f32 is written as the f64 it equals
    let x = if elem == Elem::F32 {
        x as f32 as f64
    } else {
        x
    };
    if !x.is_finite() {
        return match elem {
            Elem::F32 => format!("0x{:08X}", (x as f32).to_bits()),
            _ => format!("0x{:016X}", x.to_bits()),
        };
    }
    let text = format!("{x:e}");
    match text.split_once('e') {
        Some((m, "0")) if m.contains('.') => m.to_string(),
        Some((m, "0")) => format!("{m}.0"),
        Some((m, e)) if m.contains('.') => format!("{m}e{e}"),
        Some((m, e)) => format!("{m}.0e{e}"),
        None => text,
    }
}
