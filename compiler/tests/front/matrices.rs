//! Matrices that bodies learn and compute, against what they mean, written out here in f64; what is said of wrong ones.

use crate::common::compile_text;
use odec_compiler::model::CompileError;
use odec_compiler::model::alone::{Around, alone_in};
use odec_compiler::model::layers::Sizes;
use odec_graph::{Tensor, run};
use odec_library::shipped;
use odec_program::Bindings;
use std::collections::BTreeMap;

const TOKENS: usize = 3;
const WIDTH: usize = 4;
const ROWS: usize = 3;
const HEADS: usize = 2;
/// w[ROWS, WIDTH], v[ROWS, WIDTH], row[WIDTH], and each[HEADS, ROWS, WIDTH/HEADS] with a row for it are learned, and x is a token's value.
const LEARNED: &str = "learn w[3, width] = normal\n  learn v[3, width] = normal\n  learn row[width] = 1\n  learn share = 1/2
  learn each[2, 3, width/2] = normal\n  learn short[width/2] = 1";
const SHARE: f64 = 0.75;

type Rows = Vec<Vec<f64>>;

/// A table without a pattern.
fn table(rows: usize, columns: usize, from: f64) -> Rows {
    let at = |r: usize, c: usize| (from + 1.7 * r as f64 + 0.9 * c as f64).sin();
    (0..rows)
        .map(|r| (0..columns).map(|c| at(r, c)).collect())
        .collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// x Wᵀ.
fn mapped(x: &[f64], w: &Rows) -> Vec<f64> {
    w.iter().map(|row| dot(x, row)).collect()
}

/// What the body of a layer gives, which ends with this expression.
fn given(expression: &str) -> Rows {
    let text = format!("layer body(x: value) {{\n  {LEARNED}\n  return {expression}\n}}\n");
    let around = Around {
        path: "file.ode",
        text: &text,
    };
    let sizes = Sizes {
        vocab: None,
        context: 8,
        width: WIDTH as u64,
        grid: None,
    };
    let (library, files) = (shipped::library(), &mut odec_compiler::scheme::NoFiles);
    let made = match alone_in(around, "body", sizes, library, files) {
        Ok(made) => made,
        Err(CompileError::Source(d)) => {
            panic!(
                "{expression}: {:?}",
                d.iter().map(|d| &d.message).collect::<Vec<_>>()
            )
        }
        Err(CompileError::Internal(e)) => panic!("{expression}: {e}"),
    };
    let tensor = |shape: &[usize], rows: Rows| {
        Tensor::new(shape.iter().map(|n| *n as u64).collect(), rows.concat())
    };
    let [x, w, v, row] = values();
    let feeds = BTreeMap::from([
        ("x".to_string(), tensor(&[1, TOKENS, WIDTH], x)),
        ("w.weight".to_string(), tensor(&[ROWS, WIDTH], w)),
        ("v.weight".to_string(), tensor(&[ROWS, WIDTH], v)),
        ("row".to_string(), tensor(&[WIDTH], row)),
        ("share".to_string(), tensor(&[], vec![vec![SHARE]])),
        (
            "each.weight".to_string(),
            tensor(&[HEADS, ROWS, WIDTH / HEADS], of_heads().concat()),
        ),
        ("short".to_string(), tensor(&[WIDTH / HEADS], vec![short()])),
    ]);
    let at = Bindings::new(1, TOKENS as u64);
    let y = run(&made.graph, &feeds, at).unwrap_or_else(|e| panic!("{expression}: {e}"));
    let rows = y["y"].data.chunks(made.columns as usize);
    rows.map(<[f64]>::to_vec).collect()
}

/// x, w, v, row.
fn values() -> [Rows; 4] {
    [
        table(TOKENS, WIDTH, 0.3),
        table(ROWS, WIDTH, 1.1),
        table(ROWS, WIDTH, 2.3),
        table(1, WIDTH, 0.7),
    ]
}

/// The matrix of each head.
fn of_heads() -> Vec<Rows> {
    let seeds = [0.4, 5.1];
    assert_eq!(seeds.len(), HEADS);
    seeds.map(|seed| table(ROWS, WIDTH / HEADS, seed)).to_vec()
}

/// As long as a row of these.
fn short() -> Vec<f64> {
    table(1, WIDTH / HEADS, 1.9).concat()
}

/// Each head's columns times its matrix.
fn mapped_heads(x: &[f64], matrices: &[Rows]) -> Vec<f64> {
    let heads = x.chunks(x.len() / HEADS).zip(matrices);
    heads.flat_map(|(x, w)| mapped(x, w)).collect()
}

fn transpose(w: &Rows) -> Rows {
    let column = |c: usize| w.iter().map(|row| row[c]).collect();
    (0..w[0].len()).map(column).collect()
}

/// Of each element of w and v, and of the row at its column.
fn elements(of: impl Fn(f64, f64, f64) -> f64) -> Rows {
    let [_, w, v, row] = values();
    let each = |(w, v): (&Vec<f64>, &Vec<f64>)| {
        let columns = w.iter().zip(v).zip(&row[0]);
        columns.map(|((w, v), row)| of(*w, *v, *row)).collect()
    };
    w.iter().zip(&v).map(each).collect()
}

#[test]
fn maps_take_matrices_that_are_computed() {
    let softplus = |x: f64| (1.0 + x.exp()).ln();
    let [x, w, ..] = values();
    let lengths: Vec<f64> = w.iter().map(|row| dot(row, row).sqrt()).collect();
    let normed: Rows = (w.iter().zip(&lengths))
        .map(|(row, n)| row.iter().map(|x| x / n).collect())
        .collect();
    let log = std::f64::consts::LN_2;
    for (expression, matrix) in [
        ("linear(x, softplus(w))", elements(|w, _, _| softplus(w))),
        ("x |> linear(w - 1/2*v)", elements(|w, v, _| w - v / 2.0)),
        ("x |> linear(-(w*v))", elements(|w, v, _| -w * v)),
        ("linear(x, w^2/log(2))", elements(|w, _, _| w * w / log)),
        ("linear(x, w*row)", elements(|w, _, row| w * row)),
        (
            "linear(x, row + 1 + w)",
            elements(|w, _, row| row + 1.0 + w),
        ),
        ("linear(x, share*w)", elements(|w, _, _| SHARE * w)),
        ("linear(x, log(1/2)*w)", elements(|w, _, _| -log * w)),
        ("linear(x, maximum(w, v))", elements(|w, v, _| w.max(v))),
        ("linear(x, minimum(w, 0))", elements(|w, _, _| w.min(0.0))),
        (
            "linear(x, maximum(row, w))",
            elements(|w, _, row| w.max(row)),
        ),
        ("linear(x, normalize(w))", normed),
    ] {
        let wanted = x.iter().map(|x| mapped(x, &matrix));
        close(expression, &given(expression), &wanted.collect());
    }
    let turned = "x |> linear(w) |> linear(exp(w), transposed)";
    let exps = elements(|w, _, _| w.exp());
    let back = |x: &Vec<f64>| {
        let low = mapped(x, &w);
        let column = |c: usize| low.iter().zip(&exps).map(|(y, row)| y * row[c]).sum();
        (0..WIDTH).map(column).collect()
    };
    close(turned, &given(turned), &x.iter().map(back).collect());
}

/// A list of matrices has one for the columns of each head.
#[test]
fn heads_have_matrices_of_their_own() {
    let [x, ..] = values();
    let (each, short) = (of_heads(), short());
    let computed = |of: &dyn Fn(f64, f64) -> f64| -> Vec<Rows> {
        let row = |row: &Vec<f64>| row.iter().zip(&short).map(|(w, s)| of(*w, *s)).collect();
        each.iter().map(|w| w.iter().map(row).collect()).collect()
    };
    for (expression, matrices) in [
        ("linear(x, each)", each.clone()),
        ("x |> linear(each*short)", computed(&|w, s| w * s)),
        ("linear(x, exp(each) - 2)", computed(&|w, _| w.exp() - 2.0)),
        (
            "linear(x, maximum(each, short))",
            computed(&|w, s| w.max(s)),
        ),
        ("linear(x, each + each^2)", computed(&|w, _| w + w * w)),
        ("linear(x, share*each)", computed(&|w, _| SHARE * w)),
    ] {
        let wanted = x.iter().map(|x| mapped_heads(x, &matrices));
        close(expression, &given(expression), &wanted.collect());
    }
    let there_and_back = "linear(x, each) |> linear(each, transposed)";
    let turned: Vec<Rows> = each.iter().map(transpose).collect();
    let wanted = (x.iter()).map(|x| mapped_heads(&mapped_heads(x, &each), &turned));
    close(there_and_back, &given(there_and_back), &wanted.collect());
    // One column for each row of all matrices.
    let expression = "linear(x, each) + sum(square(each))";
    let squares: Vec<f64> = each.iter().flatten().map(|row| dot(row, row)).collect();
    let wanted = x.iter().map(|x| {
        let sums = mapped_heads(x, &each).into_iter().zip(&squares);
        sums.map(|(y, s)| y + s).collect()
    });
    close(expression, &given(expression), &wanted.collect());
}

/// One column for each row of a matrix, and what is made of such rows, is the same for all tokens.
#[test]
fn columns_of_matrices_are_rows() {
    let [x, w, _, row] = values();
    let squares: Vec<f64> = w.iter().map(|row| dot(row, row)).collect();
    let longest = squares.iter().copied().fold(0.0, f64::max);
    let total: f64 = squares.iter().sum();
    for (expression, wanted) in [
        ("concat(x, sum(square(w)))", squares.clone()),
        ("concat(x, max(sum(w^2)))", vec![longest]),
        ("concat(x, sqrt(sum(sum(square(w)))))", vec![total.sqrt()]),
        (
            "concat(x, exp(row))",
            row[0].iter().map(|r| r.exp()).collect(),
        ),
        (
            "concat(x, sum(row, heads: 2))",
            vec![row[0][0] + row[0][1], row[0][2] + row[0][3]],
        ),
        ("concat(x, mean(share))", vec![SHARE]),
        (
            "concat(x, maximum(share, row))",
            row[0].iter().map(|r| r.max(SHARE)).collect(),
        ),
    ] {
        let whole = |x: &Vec<f64>| [&x[..], &wanted[..]].concat();
        close(
            expression,
            &given(expression),
            &x.iter().map(whole).collect(),
        );
    }
    // Distances to the rows: |x|² − 2 x·w + |w|².
    let expression = "sum(square(x)) - 2*linear(x, w) + sum(square(w))";
    let distances = |x: &Vec<f64>| {
        let to = |w: &Vec<f64>| (x.iter().zip(w)).map(|(x, w)| (x - w) * (x - w)).sum();
        w.iter().map(to).collect()
    };
    close(
        expression,
        &given(expression),
        &x.iter().map(distances).collect(),
    );
    // What is the same for all tokens is a matrix's factor, too: its Frobenius norm.
    let expression = "linear(x, w/sqrt(sum(sum(square(w)))))";
    let scaled = |x: &Vec<f64>| mapped(x, &w).iter().map(|y| y / total.sqrt()).collect();
    close(
        expression,
        &given(expression),
        &x.iter().map(scaled).collect(),
    );
}

/// It hangs on no size, so it is said of a file without a model.
#[test]
fn a_matrix_and_a_value_are_not_added() {
    for added in ["x + w", "w*x", "maximum(x, w)"] {
        let text = format!("layer a(x: value) {{ learn w[8, width] = normal; return {added} }}\n");
        let said = compile_text(&text).rendered();
        assert!(
            said.contains("are not combined element by element"),
            "{added}: {said}"
        );
    }
}

fn close(what: &str, found: &Rows, wanted: &Rows) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert_eq!(found.len(), wanted.len(), "{what}");
        for (f, w) in found.iter().zip(wanted) {
            let near = (f - w).abs() <= 1e-13 * w.abs().max(1.0);
            assert!(near, "{what}: {f} instead of {w}");
        }
    }
}
