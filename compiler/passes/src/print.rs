//! Programs as text, for `odec build --emit program` and snapshots.
//!
//! Takes a [`Manifest`] and the plan; gives a listing: the memory of every entry, its launches one per line, and every kernel with its
//! body. Steps that launch the same kernels as the one before are folded into one line. Deterministic; there is no parser for it.

use super::parts::EntryMemory;
use super::rounding;
use odec_program::expr::{BinaryOp, CmpOp, ColMap, Expr, ReduceOp, RowMap, UnaryOp};
use odec_program::kernel::{Contract, KernelSpec, Mode};
use odec_program::manifest::{Manifest, Param, Table};
use odec_program::window::Through;
use odec_program::{
    Access, Body, Coeff, DType, Entry, ExprId, Instr, Io, Operand, Program, Site, Slot,
};
use odec_text::number::bytes;
use std::fmt::Write;

/// The whole program.
pub fn program(m: &Manifest, memory: &[EntryMemory]) -> String {
    let mut out = String::new();
    let p = &m.program;
    let at = m.program.maxima.longest();
    let (batch, seq) = (at.batch, at.seq);
    let beside = match at.source {
        0 => String::new(),
        n => format!(", T = {n}"),
    };
    let _ = writeln!(
        out,
        "program {}: {} kernels, {} parameters in {}, tables {}, planned for B = {batch}, S = {seq}{beside}",
        m.name,
        p.kernels.len(),
        m.param_count(),
        bytes(p.param_bytes),
        bytes(p.const_bytes),
    );
    for (name, e) in &p.entries {
        out.push('\n');
        entry(
            &mut out,
            m,
            name.as_str(),
            e,
            memory.iter().find(|x| x.entry == *name),
        );
    }
    for k in &p.kernels {
        let _ = writeln!(out, "\nkernel {}: {}", k.symbol, k.spec.headline());
        body(&mut out, &k.spec);
    }
    out
}

fn entry(out: &mut String, m: &Manifest, name: &str, e: &Entry, memory: Option<&EntryMemory>) {
    let ios = |list: &[Io]| {
        let list: Vec<String> = list.iter().map(port).collect();
        list.join(", ")
    };
    let _ = writeln!(
        out,
        "entry {name}({}) → {}",
        ios(&e.inputs),
        ios(&e.outputs)
    );
    let shared = memory.map_or(String::new(), |m| {
        format!(
            " ({} side by side, {} alive at the busiest launch)",
            bytes(m.unshared),
            bytes(m.lower_bound)
        )
    });
    let scratch = bytes(e.scratch_bytes);
    let _ = writeln!(
        out,
        "  {} launches, arena {}{shared}, scratch {scratch} per thread",
        e.instrs.len(),
        bytes(e.arena_bytes)
    );
    let runs = runs(&m.program, &e.instrs);
    let mut i = 0;
    while i < runs.len() {
        let start = runs[i].start;
        for (n, instr) in e.instrs[runs[i].clone()].iter().enumerate() {
            if let Some(p) = e.pieces.iter().find(|p| p.first as usize == start + n) {
                let _ = writeln!(
                    out,
                    "        the next {} launches for {} rows at a time:",
                    p.count, p.rows
                );
            }
            let _ = writeln!(out, "  {:4}  {}", start + n, launch(m, e, instr));
        }
        let same = runs[i + 1..]
            .iter()
            .take_while(|r| {
                let [a, b] = [&runs[i], *r].map(|r| &e.instrs[r.clone()]);
                alike(&m.program, a, b)
            })
            .count();
        if same > 0 {
            let _ = writeln!(
                out,
                "     …  {same} × the same {} launches for the steps after it",
                runs[i].len()
            );
        }
        i += same + 1;
    }
}

fn port(io: &Io) -> String {
    let dtype = match io.dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::Bf16 => "bf16",
        DType::I32 => "i32",
        DType::I8 => "i8",
    };
    let dims: Vec<String> = io.shape.iter().map(|d| d.to_string()).collect();
    format!("{}: {dtype}[{}]", io.name, dims.join(", "))
}

/// Stretches of launches of one step.
fn runs(p: &Program, instrs: &[Instr]) -> Vec<std::ops::Range<usize>> {
    let mut out: Vec<std::ops::Range<usize>> = Vec::new();
    for (i, instr) in instrs.iter().enumerate() {
        let number = p.site(instr).step;
        match out.last_mut() {
            Some(r) if p.site(&instrs[r.start]).step == number => r.end = i + 1,
            _ => out.push(i..i + 1),
        }
    }
    out
}

/// Whether two stretches launch the same kernels, apart from places and the number of the step.
fn alike(p: &Program, a: &[Instr], b: &[Instr]) -> bool {
    let but_step = |i: &Instr| Site {
        step: None,
        ..p.site(i).clone()
    };
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            a.kernel == b.kernel
                && a.dims == b.dims
                && a.coeffs == b.coeffs
                && [a, b].iter().all(|i| p.site(i).step.is_some())
                && but_step(a) == but_step(b)
        })
}

fn launch(m: &Manifest, e: &Entry, i: &Instr) -> String {
    let kernel = &m.program.kernels[i.kernel as usize];
    let modes: Vec<Mode> = (kernel.spec.signature().operands.iter())
        .map(|o| o.mode)
        .collect();
    let list = |writes: bool| {
        let operands = i.operands.iter().zip(&modes);
        operands
            .filter(|(_, mode)| mode.writes() == writes)
            .map(|(o, _)| place(m, e, o))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let arrow = if modes.contains(&Mode::Accumulate) {
        "+→"
    } else {
        "→"
    };
    let dims: Vec<String> = i.dims.iter().map(|d| d.to_string()).collect();
    let coeffs: Vec<String> = i.coeffs.iter().map(coeff).collect();
    let coeffs = if coeffs.is_empty() {
        String::new()
    } else {
        format!(" ({})", coeffs.join(", "))
    };
    let guard = i
        .guard
        .as_ref()
        .map_or(String::new(), |o| format!("  if {} > 0", place(m, e, o)));
    let inputs = list(false);
    let gap = if inputs.is_empty() { "" } else { " " };
    format!(
        "{} {inputs}{gap}{arrow} {} [{}]{coeffs}  {}{guard}",
        kernel.symbol,
        list(true),
        dims.join(", "),
        m.program.site(i)
    )
}

fn coeff(c: &Coeff) -> String {
    match c {
        Coeff::Value(x) => x.to_string(),
        Coeff::Inverse(s) => format!("1/{s}"),
        Coeff::Named(n) => n.clone(),
    }
}

/// A place in words: a parameter by its path, an arena stretch by its offset.
fn place(m: &Manifest, e: &Entry, o: &Operand) -> String {
    let param = |prefix: &str| match m.params.iter().find(|p| p.offset == o.offset) {
        Some(p) => format!("{prefix}{}", p.path),
        None => format!("{prefix}params@{}", o.offset),
    };
    let port = |list: &[Io], n: u32| {
        list.get(n as usize)
            .map_or(format!("#{n}"), |io| io.name.clone())
    };
    match o.slot {
        Slot::Arena => format!("@{}", o.offset),
        Slot::Params | Slot::Grads | Slot::Sums | Slot::Moment1 | Slot::Moment2 | Slot::Average => {
            param(o.slot.prefix().unwrap_or_default())
        }
        Slot::Consts => match m
            .constants
            .iter()
            .find(|c| c.offset == o.offset)
            .map(|c| &c.table)
        {
            Some(Table::RotaryCos { .. }) => "cos".into(),
            Some(Table::RotarySin { .. }) => "sin".into(),
            Some(Table::Sinusoid { .. } | Table::Grid { .. }) => "positions".into(),
            Some(Table::Normal { .. }) => "normal".into(),
            Some(Table::Time { t, .. }) => format!("time {t}"),
            Some(Table::Frequencies(_)) => "frequencies".into(),
            Some(Table::Phases(_)) => "phases".into(),
            Some(Table::Index { .. }) => "index".into(),
            Some(Table::Buckets { .. }) => "buckets".into(),
            None => format!("consts@{}", o.offset),
        },
        Slot::Prepared => format!("prepared@{}", o.offset),
        Slot::Rounded => {
            let here = |p: &&Param| rounding::place(p.offset, m.program.real).offset == o.offset;
            match m.params.iter().find(here) {
                Some(p) => format!("rounded {}", p.path),
                None => format!("rounded@{}", o.offset),
            }
        }
        Slot::Cache => match o.stride + o.recent {
            0 => format!("cache@{}", o.offset),
            _ => format!("cache@{}, new", o.offset),
        },
        Slot::Input(n) => port(&e.inputs, n),
        Slot::Output(n) => port(&e.outputs, n),
    }
}

fn body(out: &mut String, spec: &KernelSpec) {
    match spec {
        KernelSpec::Rows(k) => {
            expressions(out, &k.body);
            for s in &k.stores {
                let _ = writeln!(
                    out,
                    "    {} ← {}",
                    access(s.operand, &s.access),
                    id(s.value)
                );
            }
        }
        KernelSpec::Columns(k) => {
            expressions(out, &k.body);
            let _ = writeln!(
                out,
                "    ${}[col] {} Σ rows {}",
                k.operands.len() - 1,
                if k.accumulate { "+=" } else { "←" },
                id(k.value)
            );
        }
        KernelSpec::Contract(Contract {
            epilogue: Some(e), ..
        }) => {
            expressions(out, &e.body);
            let _ = writeln!(out, "    C ← {}", id(e.value));
        }
        _ => {}
    }
}

fn expressions(out: &mut String, b: &Body) {
    for (n, e) in b.nodes.iter().enumerate() {
        let _ = writeln!(out, "    {} = {}", id(ExprId(n as u32)), expression(e));
    }
}

fn id(e: ExprId) -> String {
    format!("%{}", e.0)
}

fn access(operand: u32, a: &Access) -> String {
    let row = match a.row {
        RowMap::Row => "row".into(),
        RowMap::Zero => String::new(),
        RowMap::Position => "position".into(),
        RowMap::Sequence => "sequence".into(),
        RowMap::Shift(by) => match by {
            0.. => format!("row − {by}"),
            _ => format!("row + {}", by.unsigned_abs()),
        },
        RowMap::Window(w, through) => {
            let [[height, width], [down, across]] = [w.grid, w.windows];
            let what = match through {
                Through::Places => "places of".into(),
                Through::Place(n) => format!("place {n} of"),
                Through::Under(n) => format!("under place {n} of"),
            };
            format!(
                "{what} {down} × {across} windows of {} over {height} × {width}",
                w.kernel
            )
        }
    };
    let col = match a.col {
        ColMap::Col => "col".into(),
        ColMap::Zero => String::new(),
        ColMap::Turn { cols, by: 0 } => format!("col mod {cols}"),
        ColMap::Turn { cols, by } => format!("col + {by} mod {cols}"),
        ColMap::HalfSwap(n) => format!("halves of {n} swapped"),
        ColMap::Transposed { rows, cols } => format!("{rows} × {cols} transposed"),
    };
    let parts: Vec<&str> = [&row[..], &col]
        .into_iter()
        .filter(|p| !p.is_empty())
        .collect();
    format!("${operand}[{}]", parts.join(", "))
}

fn expression(e: &Expr) -> String {
    match e {
        Expr::Const(x) => x.to_string(),
        Expr::Uniform(n) => format!("argument {n}"),
        Expr::Load { operand, access: a } => access(*operand, a),
        Expr::RowIndex => "row".into(),
        Expr::ColIndex => "col".into(),
        Expr::Acc => "acc".into(),
        Expr::Unary(op, a) => format!("{} {}", unary(*op), id(*a)),
        Expr::Binary(op, a, b) => {
            let (a, b) = (id(*a), id(*b));
            match op {
                BinaryOp::Add => format!("{a} + {b}"),
                BinaryOp::Sub => format!("{a} - {b}"),
                BinaryOp::Mul => format!("{a} · {b}"),
                BinaryOp::Div => format!("{a} / {b}"),
                BinaryOp::Max => format!("max {a}, {b}"),
                BinaryOp::Min => format!("min {a}, {b}"),
                BinaryOp::Scale => format!("{a} · 2^{b}"),
            }
        }
        Expr::Fma(a, b, c) => format!("fma {}, {}, {}", id(*a), id(*b), id(*c)),
        Expr::Select { cmp, a, b, t, f } => {
            let cmp = match cmp {
                CmpOp::Eq => "=",
                CmpOp::Lt => "<",
            };
            format!("{} {cmp} {} ? {} : {}", id(*a), id(*b), id(*t), id(*f))
        }
        Expr::Random(args) => format!("random {}", args.map(id).join(", ")),
        Expr::Reduce(ReduceOp::Sum, a) => format!("Σ cols {}", id(*a)),
        Expr::Reduce(ReduceOp::Max, a) => format!("max cols {}", id(*a)),
    }
}

fn unary(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Neg => "neg",
        UnaryOp::Sqrt => "sqrt",
        UnaryOp::Exp => "exp",
        UnaryOp::Log => "log",
        UnaryOp::Erf => "erf",
        UnaryOp::Round => "round",
        UnaryOp::Exponent => "exponent",
        UnaryOp::Mantissa => "mantissa",
        UnaryOp::Bf16 => "bf16",
    }
}
