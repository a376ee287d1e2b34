//! Types, values and comparisons of the text builder.

use odec_program::DType;
use std::fmt;

/// Element type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Elem {
    I1,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    /// The bits of a bf16, an integer to MLIR: [`super::Emitter::convert`] makes floats of it and back.
    Bf16,
    Ptr,
}

impl Elem {
    pub fn of(dtype: DType) -> Elem {
        match dtype {
            DType::F32 => Elem::F32,
            DType::F64 => Elem::F64,
            DType::Bf16 => Elem::Bf16,
            DType::I32 => Elem::I32,
            DType::I8 => Elem::I8,
        }
    }

    /// Bytes in memory.
    pub fn bytes(self) -> u64 {
        match self {
            Elem::I1 | Elem::I8 => 1,
            Elem::I16 | Elem::Bf16 => 2,
            Elem::I32 | Elem::F32 => 4,
            Elem::I64 | Elem::F64 | Elem::Ptr => 8,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Elem::F32 | Elem::F64)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Elem::I1 => "i1",
            Elem::I8 => "i8",
            Elem::I16 | Elem::Bf16 => "i16",
            Elem::I32 => "i32",
            Elem::I64 => "i64",
            Elem::F32 => "f32",
            Elem::F64 => "f64",
            Elem::Ptr => "!llvm.ptr",
        }
    }
}

/// Type of a value: a scalar (`lanes` = 0) or a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Type {
    pub elem: Elem,
    pub lanes: u32,
}

impl Type {
    pub const PTR: Type = Type {
        elem: Elem::Ptr,
        lanes: 0,
    };
    pub const I64: Type = Type {
        elem: Elem::I64,
        lanes: 0,
    };
    pub const I1: Type = Type {
        elem: Elem::I1,
        lanes: 0,
    };

    pub fn scalar(elem: Elem) -> Type {
        Type { elem, lanes: 0 }
    }
    pub fn vector(elem: Elem, lanes: u64) -> Type {
        Type {
            elem,
            lanes: lanes as u32,
        }
    }
    /// The same shape with another element type.
    pub fn with(self, elem: Elem) -> Type {
        Type { elem, ..self }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.lanes {
            0 => f.write_str(self.elem.name()),
            n => write!(f, "vector<{n}x{}>", self.elem.name()),
        }
    }
}

/// An SSA value with its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Val {
    pub(super) name: Name,
    pub ty: Type,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Arg(&'static str),
    /// The n-th argument of a kind, of kernels that take them one by one.
    Nth(&'static str, u32),
    Temp(u32),
    /// An i64 constant, known to the builder.
    Int(i64),
    /// The n-th constant of another type.
    Const(u32),
}

impl Val {
    /// The value, if it is an i64 constant.
    pub fn known(self) -> Option<i64> {
        match self.name {
            Name::Int(n) => Some(n),
            _ => None,
        }
    }
}

impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.name {
            Name::Arg(s) => write!(f, "%{s}"),
            Name::Nth(s, n) => write!(f, "%{s}{n}"),
            Name::Temp(n) => write!(f, "%{n}"),
            Name::Int(n) if n < 0 => write!(f, "%c_{}", n.unsigned_abs()),
            Name::Int(n) => write!(f, "%c{n}"),
            Name::Const(n) => write!(f, "%k{n}"),
        }
    }
}

/// A comparison, signed on integers, ordered (false on NaN) on floats except `Ne`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}
