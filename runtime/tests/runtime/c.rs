//! Kernels as C, for the tests of the CPU device: an implementation of the specs and their ABI that
//! shares nothing with the reference device but the expansion of transcendentals.

use odec_program::expr::*;
use odec_program::kernel::*;
use odec_program::{Access, DType, ExprId, Kernel, KernelSpec};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const PRELUDE: &str = "\
#include <stdint.h>
#include <string.h>
#include <math.h>
static float bits(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static uint32_t word(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static float power(int n) { return bits((uint32_t)(n + 127) << 23); }
static float scale(float a, float b) {
    if (b <= -127.0f) return 0.0f;
    int n = (int)b; if (n > 254) n = 254;
    int first = n > 127 ? 127 : n;
    return a * power(first) * power(n - first);
}
static float tree(const float *v, int64_t n, int max) {
    float l[16];
    for (int i = 0; i < 16; i++) l[i] = max ? -INFINITY : 0.0f;
    for (int64_t i = 0; i < n; i++) { float *x = &l[i % 16]; *x = max ? (*x > v[i] ? *x : v[i]) : *x + v[i]; }
    for (int d = 8; d > 0; d /= 2)
        for (int i = 0; i < d; i++) l[i] = max ? (l[i] > l[i + d] ? l[i] : l[i + d]) : l[i] + l[i + d];
    return l[0];
}
";

fn type_of(d: DType) -> &'static str {
    if d == DType::I32 { "int32_t" } else { "float" }
}

fn load(types: &[DType], operand: u32, a: Access) -> String {
    let position = "(r % d[1])";
    let (row, exists) = match a.row {
        RowMap::Row => ("r".into(), String::new()),
        RowMap::Zero => ("0".into(), String::new()),
        RowMap::Position => (position.into(), String::new()),
        RowMap::Sequence => ("(r / d[1])".into(), String::new()),
        RowMap::Shift(by) => {
            let by = i64::from(by);
            let inside = format!("{position} >= {by} && {position} - ({by}) < d[1]");
            let exists = format!("!({inside} && r - ({by}) < d[0]) ? 0.0f : ");
            (format!("(r - ({by}))"), exists)
        }
        RowMap::Window(..) => unreachable!("no grids here"),
    };
    let col = match a.col {
        ColMap::Col => "c".into(),
        ColMap::Zero => "0".into(),
        ColMap::Turn { cols, by } => format!("((c + {by}) % {cols})"),
        ColMap::HalfSwap(n) => format!("(c % {n} < {h} ? c + {h} : c - {h})", h = n / 2),
        ColMap::Transposed { rows, cols } => format!("(c % {rows} * {cols} + c / {rows})"),
    };
    let t = type_of(types[operand as usize]);
    format!(
        "({exists}(float)((const {t} *)p[{operand}])[{row} * {} + {col}])",
        a.stride
    )
}

/// Statements that fill `v<i>[c]` for every node and column; returns the names of the given values.
fn body(
    out: &mut String,
    b: &odec_program::Body,
    types: &[DType],
    cols: u64,
    values: &[ExprId],
) -> Vec<String> {
    let (b, ids) = b.expand_transcendentals(DType::F32);
    for (i, e) in b.nodes.iter().enumerate() {
        let v = |x: ExprId| format!("v{}[c]", x.0);
        let text = match *e {
            Expr::Const(x) => format!("bits({}u)", (x as f32).to_bits()),
            Expr::Uniform(u) => format!("(float)coeffs[{u}]"),
            Expr::Load { operand, access } => load(types, operand, access),
            Expr::ColIndex => "(float)c".into(),
            Expr::Acc => unreachable!("no epilogues here"),
            Expr::RowIndex | Expr::Random(_) => unreachable!("no dropout here"),
            Expr::Unary(op, a) => {
                let a = v(a);
                match op {
                    UnaryOp::Neg => format!("-{a}"),
                    UnaryOp::Sqrt => format!("sqrtf({a})"),
                    UnaryOp::Round => format!("rintf({a})"),
                    UnaryOp::Exponent => format!("(float)((int)((word({a}) >> 23) & 255) - 127)"),
                    UnaryOp::Mantissa => format!("bits((word({a}) & 0x7fffffu) | 0x3f800000u)"),
                    UnaryOp::Bf16 => unreachable!("no bf16 here"),
                    UnaryOp::Exp | UnaryOp::Log | UnaryOp::Erf => unreachable!("expanded"),
                }
            }
            Expr::Binary(op, x, y) => {
                let (x, y) = (v(x), v(y));
                match op {
                    BinaryOp::Add => format!("{x} + {y}"),
                    BinaryOp::Sub => format!("{x} - {y}"),
                    BinaryOp::Mul => format!("{x} * {y}"),
                    BinaryOp::Div => format!("{x} / {y}"),
                    BinaryOp::Max => format!("{x} > {y} ? {x} : {y}"),
                    BinaryOp::Min => format!("{x} < {y} ? {x} : {y}"),
                    BinaryOp::Scale => format!("scale({x}, {y})"),
                }
            }
            Expr::Fma(x, y, z) => format!("fmaf({}, {}, {})", v(x), v(y), v(z)),
            Expr::Select { cmp, a, b, t, f } => {
                let cmp = if cmp == CmpOp::Eq { "==" } else { "<" };
                format!("{} {cmp} {} ? {} : {}", v(a), v(b), v(t), v(f))
            }
            Expr::Reduce(op, a) => {
                format!("tree(v{}, {cols}, {})", a.0, u8::from(op == ReduceOp::Max))
            }
        };
        let _ = writeln!(
            out,
            "  float v{i}[{cols}]; for (int64_t c = 0; c < {cols}; c++) v{i}[c] = {text};"
        );
    }
    values
        .iter()
        .map(|v| format!("v{}", ids[v.0 as usize].0))
        .collect()
}

fn function(k: &Kernel) -> String {
    let mut s = format!(
        "void {}(void *const *p, const int64_t *d, const double *coeffs, int64_t t0, int64_t t1, void *scratch) {{\n",
        k.symbol
    );
    match &k.spec {
        KernelSpec::Rows(k) => {
            s += " for (int64_t r = t0; r < t1; r++) {\n";
            let ids: Vec<ExprId> = k.stores.iter().map(|s| s.value).collect();
            let names = body(&mut s, &k.body, &k.operands, k.cols, &ids);
            for (store, v) in k.stores.iter().zip(names) {
                let (n, stride) = (
                    if store.access.col == ColMap::Zero {
                        1
                    } else {
                        k.cols
                    },
                    store.access.stride,
                );
                let _ = writeln!(
                    s,
                    "  for (int64_t c = 0; c < {n}; c++) ((float *)p[{}])[r * {stride} + c] = {v}[c];",
                    store.operand
                );
            }
            s += " }\n";
        }
        KernelSpec::Columns(k) => {
            // Narrow ones only: a single tile.
            assert!(k.cols <= Columns::TILE && !k.accumulate && k.parts == 1);
            let _ = writeln!(
                s,
                " float total[{0}] = {{0}}, sum[{0}] = {{0}};
 for (int64_t r = 0; r < d[0]; r++) {{",
                k.cols
            );
            let v = &body(&mut s, &k.body, &k.operands, k.cols, &[k.value])[0];
            let _ = writeln!(
                s,
                "  for (int64_t c = 0; c < {}; c++) {{
   sum[c] += {v}[c];
   if ((r + 1) % {} == 0 || r + 1 == d[0]) {{ total[c] += sum[c]; sum[c] = 0.0f; }} }}\n }}",
                k.cols,
                Columns::BLOCK
            );
            let out = k.operands.len() - 1;
            let _ = writeln!(
                s,
                " for (int64_t c = 0; c < {}; c++) ((float *)p[{out}])[c] = total[c];",
                k.cols
            );
        }
        KernelSpec::Pack(k) => {
            let from = if k.transposed {
                "col * d[1] + i"
            } else {
                "i * d[0] + col"
            };
            let _ = writeln!(
                s,
                " const float *b = p[0]; float *to = p[1];
 for (int64_t t = t0; t < t1; t++) for (int64_t i = 0; i < d[1]; i++) for (int64_t j = 0; j < {nr}; j++) {{
  int64_t col = t * {nr} + j; to[(t * d[1] + i) * {nr} + j] = col < d[0] ? b[{from}] : 0.0f; }}",
                nr = k.nr
            );
        }
        KernelSpec::Contract(k) => {
            assert!(k.epilogue.is_none() && !k.accumulate);
            let b = k.blocking;
            let a = if k.a_transposed {
                "l * d[0] + i"
            } else {
                "i * d[2] + l"
            };
            // Uses the scratch memory, so that sharing it between threads would show.
            let _ = writeln!(
                s,
                " const float *a = p[0], *b = p[1]; float *to = p[2], *row = scratch;
 for (int64_t i = t0 * {mr}; i < t1 * {mr} && i < d[0]; i++) for (int64_t j = 0; j < d[1]; j++) {{
  float total = 0.0f;
  for (int64_t k0 = 0; k0 < d[2]; k0 += {kc}) {{
   int64_t n = d[2] - k0 < {kc} ? d[2] - k0 : {kc};
   for (int64_t l = k0; l < k0 + n; l++) row[l - k0] = a[{a}];
   float s = 0.0f;
   for (int64_t l = k0; l < k0 + n; l++) s = fmaf(row[l - k0], b[(j / {nr} * d[2] + l) * {nr} + j % {nr}], s);
   total = k0 == 0 ? s : total + s; }}
  to[i * d[1] + j] = total; }}",
                mr = b.mr,
                kc = b.kc,
                nr = b.nr
            );
        }
        KernelSpec::Gather(k) => {
            let _ = writeln!(
                s,
                " const int32_t *at = p[0]; const float *table = p[1]; float *to = p[2];
 for (int64_t r = t0; r < t1; r++) for (int c = 0; c < {n}; c++) to[r * {n} + c] = table[at[r] * {n} + c];",
                n = k.cols
            );
        }
        KernelSpec::ScatterAdd(k) => {
            let (n, tile) = (k.cols, Gather::TILE);
            let _ = writeln!(
                s,
                " const int32_t *at = p[0]; const float *from = p[1]; float *table = p[2];
 for (int64_t r = 0; r < d[0]; r++) for (int64_t c = t0 * {tile}; c < t1 * {tile} && c < {n}; c++)
  table[at[r] * {n} + c] += from[r * {n} + c];"
            );
        }
        other => unreachable!("the tiny model has no {}", other.kind()),
    }
    s + "}\n"
}

/// Compiles the kernels to a shared object with the system's C compiler (which Rust links with, so it is there).
pub fn compile(kernels: &[Kernel], to: &Path) {
    let text: String = std::iter::once(PRELUDE.to_string())
        .chain(kernels.iter().map(function))
        .collect();
    shared(&text, to);
}

/// A shared object that makes a file when it is opened.
pub fn touching(file: &Path) -> Vec<u8> {
    let text = format!(
        "#include <stdio.h>\n__attribute__((constructor)) static void run(void) {{ fclose(fopen(\"{}\", \"w\")); }}\n",
        file.display()
    );
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("touching.so");
    shared(&text, &to);
    std::fs::read(to).unwrap()
}

fn shared(text: &str, to: &Path) {
    let source = to.with_extension("c");
    std::fs::write(&source, text).unwrap();
    let out = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O2",
            "-ffp-contract=off",
            "-fno-math-errno",
            "-shared",
            "-fPIC",
            "-o",
        ])
        .arg(to)
        .arg(&source)
        .arg("-lm")
        .output()
        .expect("cc starts");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}
