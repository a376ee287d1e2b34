//! Graph passes one rewrite at a time, as text before and after.

use odec_compiler::passes::recompute::recompute;
use odec_compiler::passes::simplify::simplify;
use odec_compiler::passes::sums::group_sums;
use odec_graph::ops::matmul::Layout;
use odec_graph::ops::*;
use odec_graph::print::text_unfolded as print;
use odec_graph::{Builder, Exact, Graph, Pass, TensorType, TypeError, Value};
use odec_program::Dim;
use odec_program::manifest::Init;

struct Small {
    b: Builder,
}

impl Small {
    fn new() -> Small {
        let mut b = Builder::new();
        b.site.step = Some(0);
        Small { b }
    }
    fn state(&mut self, name: &str) -> Value {
        let ty = TensorType::state(4);
        self.b
            .push1(
                Input {
                    name: name.into(),
                    ty,
                },
                &[],
            )
            .unwrap()
    }
    fn param(&mut self, path: &str, shape: &[u64]) -> Value {
        let p = Parameter {
            path: path.into(),
            shape: shape.to_vec(),
            init: Init::Ones,
        };
        self.b.push1(p, &[]).unwrap()
    }
    fn op(&mut self, op: impl Into<OpKind>, operands: &[Value]) -> Value {
        self.b.push1(op, operands).unwrap()
    }
    fn sum(&mut self, terms: &[(i64, i64, Value)]) -> Value {
        let coeffs = terms.iter().map(|t| Exact::ratio(t.0, t.1)).collect();
        let operands: Vec<Value> = terms.iter().map(|t| t.2).collect();
        self.op(Combine { coeffs }, &operands)
    }
    fn matmul(&mut self, layout: Layout, a: Value, b: Value) -> Value {
        self.op(MatMul::new(layout), &[a, b])
    }
    fn backward(&mut self) {
        self.b.site.pass = Pass::Backward;
    }
    fn after(mut self, out: &[Value], pass: fn(&Graph) -> Result<Graph, TypeError>) -> String {
        for (i, v) in out.iter().enumerate() {
            self.b.output(format!("out{i}"), *v);
        }
        let before = self.b.finish();
        let after = pass(&before).unwrap();
        odec_graph::verify(&after).unwrap();
        format!("before:\n{}\nafter:\n{}", print(&before), print(&after))
    }
}

#[test]
fn stage_combinations_become_one_sum() {
    let mut s = Small::new();
    let (x, k1, k2) = (s.state("x"), s.state("k1"), s.state("k2"));
    let inner = s.sum(&[(1, 2, k1), (0, 1, x), (1, 2, k2)]);
    let again = s.sum(&[(1, 3, k1), (1, 1, x)]);
    let once = s.sum(&[(1, 1, inner)]);
    let y = s.sum(&[(1, 1, x), (2, 3, once), (1, 1, again)]);
    insta::assert_snapshot!(s.after(&[y], simplify));
}

#[test]
fn equal_nodes_become_one_and_dead_ones_vanish() {
    let mut s = Small::new();
    let (x, w) = (s.state("x"), s.param("w", &[4, 4]));
    let w2 = s.param("w", &[4, 4]);
    let a = s.matmul(Layout::Nt, x, w);
    let b = s.matmul(Layout::Nt, x, w2);
    s.op(Exp, &[a]);
    let frozen = s.op(StopGradient, &[b]);
    let y = s.op(Mul, &[a, frozen]);
    insta::assert_snapshot!(s.after(&[y], simplify));
}

#[test]
fn constants_and_broadcasts_fold() {
    let mut s = Small::new();
    let x = s.state("x");
    let half = s.op(
        Constant {
            value: Exact::ratio(1, 2),
        },
        &[],
    );
    let third = s.op(
        Constant {
            value: Exact::ratio(1, 3),
        },
        &[],
    );
    let product = s.op(Mul, &[half, third]);
    let total = s.op(SumCols, &[x]);
    let wide = s.op(
        Broadcast {
            to: TensorType::state(4),
        },
        &[total],
    );
    let y = s.op(Mul, &[wide, x]);
    let y = s.op(Mul, &[product, y]);
    // Both operands broadcast: the result would be narrower, so one stays.
    let other = s.op(
        Broadcast {
            to: TensorType::state(4),
        },
        &[total],
    );
    let z = s.op(Mul, &[wide, other]);
    insta::assert_snapshot!(s.after(&[y, z], simplify));
}

#[test]
fn long_gradient_sums_stay_nested() {
    let mut s = Small::new();
    let (x, y, z) = (s.state("x"), s.state("y"), s.state("z"));
    s.backward();
    let scaled = s.sum(&[(1, 6, y)]);
    let first = s.sum(&[(1, 1, x), (1, 1, scaled)]);
    let all = s.sum(&[(1, 1, first), (1, 1, z)]);
    insta::assert_snapshot!(s.after(&[all], simplify));
}

#[test]
fn products_that_are_added_share_one_sum() {
    let mut s = Small::new();
    let (x, g) = (s.state("x"), s.state("g"));
    let [a, b, c] = ["a", "b", "c"].map(|n| s.param(n, &[4, 4]));
    s.backward();
    let ma = s.matmul(Layout::Nn, x, a);
    let residual = s.sum(&[(1, 1, ma), (1, 1, g)]);
    let mb = s.matmul(Layout::Nn, x, b);
    let both = s.sum(&[(1, 1, residual), (1, 1, mb)]);
    let mc = s.matmul(Layout::Nn, x, c);
    let all = s.sum(&[(1, 1, both), (1, 1, mc)]);
    // Used twice: cannot be accumulated in place.
    let shared = s.matmul(Layout::Nn, g, a);
    let other = s.sum(&[(1, 1, shared), (1, 1, all)]);
    insta::assert_snapshot!(s.after(&[all, other, shared], group_sums));
}

#[test]
fn cheap_maps_are_made_again_in_the_backward_pass() {
    let mut s = Small::new();
    let (x, gain) = (s.state("x"), s.param("gain", &[4]));
    let w = s.param("w", &[4, 4]);
    let x = s.matmul(Layout::Nt, x, w);
    let total = s.op(SumCols, &[x]);
    let normal = s.op(Mul, &[x, total]);
    let y = s.op(Mul, &[normal, gain]);
    let loud = s.op(Exp, &[y]);
    let out = s.matmul(Layout::Nt, y, w);
    s.backward();
    // x and the total are kept; normal, y and its exponential need not be.
    let d = s.op(Mul, &[out, x]);
    let dn = s.op(Mul, &[d, normal]);
    let dw = s.matmul(Layout::Tn, dn, y);
    let dl = s.op(Mul, &[dn, loud]);
    insta::assert_snapshot!(s.after(&[dw, dl], recompute));
}

#[test]
fn what_only_the_backward_pass_would_keep_is_not_recomputed_from() {
    let mut s = Small::new();
    let (x, w) = (s.state("x"), s.param("w", &[4, 4]));
    let ty = s.b.ty(x).clone();
    assert_eq!(ty.shape[2], Dim::Fixed(4));
    let a = s.matmul(Layout::Nt, x, w);
    let b = s.matmul(Layout::Nt, a, w);
    // Needs a and b, which nobody else keeps.
    let y = s.op(Mul, &[a, b]);
    s.backward();
    let d = s.op(Exp, &[y]);
    insta::assert_snapshot!(s.after(&[d], recompute));
}
