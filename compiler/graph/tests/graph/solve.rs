//! Fixed points of linear equations, whose solutions and gradients are known.

use crate::common::{Random, close};
use odec_graph::ops::{Input, Mul, Parameter, StopGradient, SumCols, SumRows};
use odec_graph::solve::{Mixing, Pair, Rule, Solver, iterate};
use odec_graph::{Builder, Exact, Tensor, TensorType, TypeError, Value, gradient, nn, run};
use odec_program::{Bindings, manifest::Init};
use proptest::prelude::*;
use std::collections::BTreeMap;

const AT: Bindings = Bindings::new(2, 3);
const TOKENS: usize = 6;

/// `x` with `a x = b`, by Gauss's elimination with pivots.
fn solved(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for j in 0..n {
        let p = (j..n).max_by(|x, y| a[*x][j].abs().total_cmp(&a[*y][j].abs()));
        let p = p.expect("a row is left");
        a.swap(j, p);
        b.swap(j, p);
        for i in j + 1..n {
            let (l, pivot) = (a[i][j] / a[j][j], a[j].clone());
            let row = a[i].iter_mut().zip(pivot);
            row.for_each(|(x, p)| *x -= l * p);
            b[i] -= l * b[j];
        }
    }
    for j in (0..n).rev() {
        let known: f64 = (j + 1..n).map(|k| a[j][k] * b[k]).sum();
        b[j] = (b[j] - known) / a[j][j];
    }
    b
}

/// `z = z wᵀ + c` for every token.
struct Linear {
    w: Vec<Vec<f64>>,
    c: Vec<Vec<f64>>,
    /// The derivative of the result by each token's solution.
    g: Vec<Vec<f64>>,
}

impl Linear {
    /// A contraction: no row of `w` sums to more than `norm` in absolute value.
    fn random(d: usize, norm: f64, seed: u64) -> Linear {
        let mut random = Random(seed);
        let mut rows = |n: usize| -> Vec<Vec<f64>> {
            let row = |_| (0..d).map(|_| random.real(-1.0, 1.0)).collect();
            (0..n).map(row).collect()
        };
        let (mut w, c, g) = (rows(d), rows(TOKENS), rows(TOKENS));
        for row in &mut w {
            let size: f64 = row.iter().map(|x| x.abs()).sum();
            row.iter_mut().for_each(|x| *x *= norm / size);
        }
        Linear { w, c, g }
    }

    fn d(&self) -> usize {
        self.w.len()
    }

    /// `I − w`, or its transpose.
    fn rest(&self, transposed: bool) -> Vec<Vec<f64>> {
        let mut rest = self.w.clone();
        for (i, row) in rest.iter_mut().enumerate() {
            for (j, x) in row.iter_mut().enumerate() {
                let w = if transposed {
                    self.w[j][i]
                } else {
                    self.w[i][j]
                };
                *x = f64::from(u8::from(i == j)) - w;
            }
        }
        rest
    }

    fn feeds(&self) -> BTreeMap<String, Tensor> {
        let d = self.d() as u64;
        let tokens = |x: &[Vec<f64>]| Tensor::new(vec![AT.batch, AT.seq, d], x.concat());
        BTreeMap::from([
            ("w".into(), Tensor::new(vec![d, d], self.w.concat())),
            ("c".into(), tokens(&self.c)),
            ("g".into(), tokens(&self.g)),
        ])
    }

    fn inputs(&self, b: &mut Builder) -> Result<[Value; 3], TypeError> {
        let d = self.d() as u64;
        let w = Parameter {
            path: "w".into(),
            shape: vec![d, d],
            init: Init::Zeros,
        };
        let w = b.push1(w, &[])?;
        let mut input = |name: &str| {
            let ty = TensorType::state(d);
            let name = name.into();
            b.push1(Input { name, ty }, &[])
        };
        Ok([w, input("c")?, input("g")?])
    }
}

fn applied(b: &mut Builder, w: Value, c: Value, z: Value) -> Result<Value, TypeError> {
    let y = nn::linear(b, z, w)?;
    nn::combine(b, &[(Exact::one(), y), (Exact::one(), c)])
}

fn solver(memory: Option<usize>, iterations: usize) -> Solver {
    let tol = Exact::ratio(1, 10_000_000_000_000);
    Solver {
        mixing: memory.map(|memory| Mixing {
            tol,
            memory,
            rule: Rule::Anderson,
        }),
        iterations,
    }
}

fn broyden(memory: usize, iterations: usize) -> Solver {
    let mut solver = solver(Some(memory), iterations);
    solver
        .mixing
        .iter_mut()
        .for_each(|m| m.rule = Rule::Broyden);
    solver
}

/// The iterate after so many evaluations, from 0: `B s = y` is kept up as a matrix, from −I and the last `memory` steps in each
/// iteration, and `B d = −r` solved by elimination.
fn dense_broyden(w: &[Vec<f64>], c: &[f64], memory: usize, iterations: usize) -> Vec<f64> {
    let d = c.len();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let minus =
        |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a - b).collect() };
    let mut z = vec![0.0; d];
    let mut seen: Vec<(Vec<f64>, Vec<f64>)> = Vec::new();
    for _ in 0..iterations {
        let r: Vec<f64> = (0..d).map(|i| dot(&w[i], &z) + c[i] - z[i]).collect();
        seen.push((z.clone(), r.clone()));
        let mut b: Vec<Vec<f64>> = (0..d)
            .map(|i| (0..d).map(|j| -f64::from(u8::from(i == j))).collect())
            .collect();
        let from = seen.len().saturating_sub(memory + 1);
        for pair in seen[from..].windows(2) {
            let (s, y) = (minus(&pair[1].0, &pair[0].0), minus(&pair[1].1, &pair[0].1));
            let size = dot(&s, &s);
            for (row, y) in b.iter_mut().zip(&y) {
                let off = (y - dot(row, &s)) / size;
                row.iter_mut().zip(&s).for_each(|(b, s)| *b += off * s);
            }
        }
        let step = solved(b, r);
        z = minus(&z, &step);
    }
    z
}

/// The solution, from 0, and the gradient by `w` and `c` of its product with `g`.
fn found(l: &Linear, solver: &Solver, implicit: bool) -> BTreeMap<String, Tensor> {
    let build = || -> Result<_, TypeError> {
        let mut b = Builder::new();
        let [w, c, g] = l.inputs(&mut b)?;
        let zero = nn::combine(&mut b, &[(Exact::zero(), c)])?;
        let z = iterate(solver, &mut b, vec![zero], |b, z| {
            Ok::<_, TypeError>(vec![applied(b, w, c, z[0])?])
        })?;
        let mut end = z[0];
        if implicit {
            let z = b.push1(StopGradient, &[end])?;
            let f = applied(&mut b, w, c, z)?;
            let (z, f) = (vec![z], vec![f]);
            end = b.solution(Pair { z, f }, solver.clone())?[0];
        }
        let product = b.push1(Mul, &[end, g])?;
        let sum = b.push1(SumCols, &[product])?;
        let sum = b.push1(SumRows, &[sum])?;
        Ok((b.finish(), end, sum, [w, c]))
    };
    let (graph, end, sum, wrt) = build().unwrap();
    let (graph, d) = gradient(graph, sum, &wrt).unwrap();
    let mut b = Builder::extend(graph);
    b.output("z", end);
    b.output("dw", d[0].unwrap());
    b.output("dc", d[1].unwrap());
    run(&b.finish(), &l.feeds(), AT).unwrap()
}

fn compare(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    let near = got.iter().zip(want).all(|(a, b)| close(*a, *b, tolerance));
    assert!(near && got.len() == want.len(), "{what}: {got:?} {want:?}");
}

/// What `found` must be.
fn expected(l: &Linear) -> [Vec<f64>; 3] {
    let z: Vec<Vec<f64>> =
        l.c.iter()
            .map(|c| solved(l.rest(false), c.clone()))
            .collect();
    let u: Vec<Vec<f64>> =
        l.g.iter()
            .map(|g| solved(l.rest(true), g.clone()))
            .collect();
    let entry = |i: usize, j: usize| (0..TOKENS).map(|t| u[t][i] * z[t][j]).sum();
    let dw = (0..l.d()).flat_map(|i| (0..l.d()).map(move |j| entry(i, j)));
    let dw = dw.collect();
    [z.concat(), dw, u.concat()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// In exact arithmetic d differences span the space (Walker & Ni 2011, Theorem 2.2: it is GMRES): evaluation d + 1 gives the
    /// solution, in every row.
    #[test]
    fn memory_of_the_dimension_solves_linear_equations(d in 1usize..=4, seed: u64) {
        let l = Linear::random(d, 0.9, seed);
        let [z, ..] = expected(&l);
        let got = found(&l, &solver(Some(d), d + 1), false);
        compare("z", &got["z"].data, &z, 1e-5);
    }

    /// Iterates are those of the method as it is taught, with all steps and with the last few; also where plain iteration diverges.
    #[test]
    fn broyden_is_a_matrix_of_secants(d in 2usize..=5, memory in 1usize..=4, norm in 0.3f64..1.5, seed: u64) {
        let l = Linear::random(d, norm, seed);
        for iterations in 1..=4 {
            let want = l.c.iter().map(|c| dense_broyden(&l.w, c, memory, iterations));
            let want: Vec<f64> = want.flatten().collect();
            // Beside a singular matrix no digits are left, and none come back.
            if want.iter().any(|z| z.abs() > 30.0) {
                break;
            }
            let got = found(&l, &broyden(memory, iterations), false);
            compare("z", &got["z"].data, &want, 1e-8);
        }
    }

    /// On d equations 2d steps end at the solution (Gay 1979, SIAM J. Numer. Anal. 16, 623), here also of an equation whose plain
    /// iterates grow.
    #[test]
    fn broyden_solves_linear_equations(d in 1usize..=3, seed: u64) {
        let mut l = Linear::random(d, 0.5, seed);
        for (i, row) in l.w.iter_mut().enumerate() {
            row[i] -= 3.0;
        }
        let [z, ..] = expected(&l);
        let got = found(&l, &broyden(2 * d, 2 * d + 2), false);
        compare("z", &got["z"].data, &z, 1e-5);
    }

    /// Both ways to the solution, and the gradient by both ways. Where errors are squared from one iterate to the next, e' = c e², the
    /// derivative of e' is 2 c e ∂e: unrolled, the gradient has half the digits that `tol` asks of the solution.
    #[test]
    fn gradients_of_solutions_are_those_of_linear_algebra(d in 1usize..=5, mixes: bool, seed: u64) {
        let l = Linear::random(d, 0.5, seed);
        let [z, dw, dc] = expected(&l);
        let solver = match (mixes, seed % 2) {
            (true, 0) => solver(Some(5), 40),
            (true, _) => broyden(5, 40),
            _ => solver(None, 60),
        };
        for implicit in [true, false] {
            let got = found(&l, &solver, implicit);
            let digits = if mixes && !implicit { 1e-5 } else { 1e-9 };
            compare("z", &got["z"].data, &z, 1e-11);
            compare("dw", &got["dw"].data, &dw, digits);
            compare("dc", &got["dc"].data, &dc, digits);
        }
    }
}

/// Nothing is divided by zero where the first iterate is the solution already, nor where all rows are.
#[test]
fn what_is_solved_stays() {
    let mut l = Linear::random(3, 0.5, 1);
    l.c = vec![vec![0.0; 3]; TOKENS];
    let got = found(&l, &solver(Some(3), 12), false);
    assert!(got["z"].data.iter().all(|x| *x == 0.0));
    let u = expected(&l)[2].clone();
    assert!(got["dc"].data.iter().all(|x| x.is_finite()), "{u:?}");
    for solver in [solver(Some(3), 12), broyden(3, 12)] {
        let got = found(&l, &solver, true);
        assert!(got["z"].data.iter().all(|x| *x == 0.0));
        compare("dc", &got["dc"].data, &u, 1e-9);
    }
}

/// An equation in which another one is solved: `y = y wᵀ/2 + z`, `z = y/3 + c`.
#[test]
fn solutions_inside_equations() {
    let l = Linear::random(4, 0.6, 7);
    let (outer, inner) = (solver(Some(4), 30), solver(Some(2), 30));
    let build = |implicit: bool| -> Result<_, TypeError> {
        let mut b = Builder::new();
        let [w, c, g] = l.inputs(&mut b)?;
        let half = nn::combine(&mut b, &[(Exact::ratio(1, 2), w)])?;
        let solution =
            |b: &mut Builder,
             s: &Solver,
             f: &dyn Fn(&mut Builder, Value) -> Result<Value, TypeError>| {
                let zero = nn::combine(b, &[(Exact::zero(), c)])?;
                let z = iterate(s, b, vec![zero], |b, z| {
                    Ok::<_, TypeError>(vec![f(b, z[0])?])
                })?[0];
                if !implicit {
                    return Ok(z);
                }
                let z = b.push1(StopGradient, &[z])?;
                let (z, f) = (vec![z], vec![f(b, z)?]);
                Ok::<_, TypeError>(b.solution(Pair { z, f }, s.clone())?[0])
            };
        let z = solution(&mut b, &outer, &|b, z| {
            let third = nn::combine(b, &[(Exact::ratio(1, 3), z), (Exact::one(), c)])?;
            solution(b, &inner, &|b, y| applied(b, half, third, y))
        })?;
        let product = b.push1(Mul, &[z, g])?;
        let sum = b.push1(SumCols, &[product])?;
        let sum = b.push1(SumRows, &[sum])?;
        let (graph, d) = gradient(b.finish(), sum, &[w, c]).unwrap();
        let mut b = Builder::extend(graph);
        b.output("dw", d[0].unwrap());
        b.output("dc", d[1].unwrap());
        Ok(run(&b.finish(), &l.feeds(), AT).unwrap())
    };
    let (implicit, unrolled) = (build(true).unwrap(), build(false).unwrap());
    for name in ["dw", "dc"] {
        compare(name, &implicit[name].data, &unrolled[name].data, 1e-9);
    }
    // y (I − wᵀ/2 − I/3) = c: what is solved as one equation.
    let twice = Linear {
        w: l.w
            .iter()
            .map(|r| r.iter().map(|x| x / 2.0).collect())
            .collect(),
        c: l.c.clone(),
        g: l.g.clone(),
    };
    let mut rest = twice.rest(true);
    (0..4).for_each(|i| rest[i][i] -= 1.0 / 3.0);
    let dc: Vec<f64> =
        l.g.iter()
            .flat_map(|g| solved(rest.clone(), g.clone()))
            .collect();
    compare("dc", &implicit["dc"].data, &dc, 1e-9);
}
