//! Finding out where numbers stop being finite: what a launch wrote, and what it is called.

use crate::device::memory::Words;
use crate::executor::init;
use odec_program::expr::{BinaryOp, Expr, UnaryOp};
use odec_program::kernel::{KernelSpec, OperandAccess};
use odec_program::manifest::{Manifest, Param};
use odec_program::{DType, Entry, Instr, Slot, bf16};

/// What operand `n` of an instruction is, in words.
pub(crate) fn tensor_name(m: &Manifest, e: &Entry, i: &Instr, n: usize) -> String {
    let operand = &i.operands[n];
    let of_param = |what: &str| {
        let holds = |p: &&Param| {
            let start = p.offset;
            (start..start + m.program.real.bytes() * init::elements(p) as u64)
                .contains(&operand.offset)
        };
        match m.params.iter().find(holds) {
            Some(p) => format!("{what} `{}`", p.path),
            None => format!("a {what}"),
        }
    };
    match operand.slot {
        Slot::Params => of_param("parameter"),
        Slot::Grads => of_param("gradient"),
        Slot::Sums => of_param("summed gradient"),
        Slot::Moment1 | Slot::Moment2 => of_param("moment"),
        Slot::Average => of_param("running mean"),
        Slot::Rounded => "parameters rounded to bf16".into(),
        Slot::Output(n) => format!("output `{}`", e.outputs[n as usize].name),
        Slot::Cache => "keys or values".into(),
        Slot::Arena | Slot::Consts | Slot::Prepared | Slot::Input(_) => {
            let spec = &m.program.kernels[i.kernel as usize].spec;
            let partial = partial_functions(spec);
            let of = if partial.is_empty() { "" } else { " of " };
            format!(
                "the result (kernel {}{of}{})",
                spec.kind(),
                partial.join(", ")
            )
        }
    }
}

/// What a kernel computes of numbers that has no finite value everywhere. A launch is called after its last operation, and others that are fused
/// into it may be at fault.
fn partial_functions(spec: &KernelSpec) -> Vec<&'static str> {
    let body = match spec {
        KernelSpec::Rows(k) => &k.body,
        KernelSpec::Columns(k) => &k.body,
        KernelSpec::Contract(k) => match &k.epilogue {
            Some(e) => &e.body,
            None => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    let name = |e: &Expr| match e {
        Expr::Unary(UnaryOp::Log, _) => Some("log"),
        Expr::Unary(UnaryOp::Exp, _) => Some("exp"),
        Expr::Unary(UnaryOp::Sqrt, _) => Some("sqrt"),
        Expr::Binary(BinaryOp::Div, ..) => Some("a quotient"),
        _ => None,
    };
    let mut found: Vec<&str> = body.nodes.iter().filter_map(name).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether all elements that a launch may have written are finite.
pub(crate) fn finite(words: Words, access: &OperandAccess, dims: &[u64]) -> bool {
    let written = &words[..reached(words, access, dims)];
    match access.dtype {
        DType::F32 => written.iter().all(|w| f32::from_bits(w.get()).is_finite()),
        // The exponent is in the upper word.
        DType::F64 => written
            .iter()
            .skip(1)
            .step_by(2)
            .all(|w| w.get() & 0x7FF0_0000 != 0x7FF0_0000),
        DType::Bf16 => written
            .iter()
            .flat_map(|w| [w.get() as u16, (w.get() >> 16) as u16])
            .take(access.elements(dims).unwrap_or(0) as usize)
            .all(|bits| bf16::to_f32(bits).is_finite()),
        DType::I32 | DType::I8 => true,
    }
}

/// How many of the words from an operand's start on a launch touches.
pub(crate) fn reached(words: Words, access: &OperandAccess, dims: &[u64]) -> usize {
    access.words(dims).map_or(words.len(), |n| n as usize)
}
