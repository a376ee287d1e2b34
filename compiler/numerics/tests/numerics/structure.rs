//! Structure that does not depend on how a method is written: symmetry, symplecticity and SSP coefficients of methods with stages in
//! another order, twice, or idle; of pairs and of multistep methods.

use crate::written::{five_stages, q, rk4, row, tableau};
use odec_exact::Exact;
use odec_numerics::Tableau;
use odec_numerics::linear_step::{LinearStep, Step};
use odec_numerics::multistep::Multistep;
use odec_numerics::properties::Properties;
use odec_numerics::ssp::{Ssp, ssp};
use odec_numerics::symplectic::{Symplectic, symplectic};
use proptest::prelude::*;
use std::cmp::Ordering;

/// Gauss's method of three stages (Butcher 1964).
fn gauss3() -> Tableau {
    let r = Exact::int(15).root(2).unwrap();
    let plus = |n, d, m, e| &q(n, d) + &(&r * &q(m, e));
    let a = vec![
        vec![q(5, 36), plus(2, 9, -1, 15), plus(5, 36, -1, 30)],
        vec![plus(5, 36, 1, 24), q(2, 9), plus(5, 36, -1, 24)],
        vec![plus(5, 36, 1, 30), plus(2, 9, 1, 15), q(5, 36)],
    ];
    Tableau::single(a, vec![q(5, 18), q(4, 9), q(5, 18)])
}

/// With the stages in this order; a stage that occurs more than once shares its column's coefficients evenly.
fn rearranged(t: &Tableau, order: &[usize]) -> Tableau {
    let times = |j: &usize| order.iter().filter(|k| *k == j).count() as i64;
    let row = |r: &Vec<Exact>| order.iter().map(|j| &r[*j] * &q(1, times(j))).collect();
    Tableau {
        fields: t.fields.clone(),
        field_of: order.iter().map(|j| t.field_of[*j]).collect(),
        a: order.iter().map(|i| row(&t.a[*i])).collect(),
        b: row(&t.b),
        embedded: None,
    }
}

#[test]
fn numbering_does_not_matter() {
    for order in [[0, 2, 1], [1, 0, 2], [2, 1, 0], [1, 2, 0]] {
        let p = Properties::new(&rearranged(&gauss3(), &order));
        assert!(p.symmetric && p.symplectic, "{order:?}");
    }
    let p = Properties::new(&rearranged(&gauss3(), &[1, 0, 2, 1]));
    assert!(p.symmetric && p.symplectic);
}

/// The implicit midpoint rule with its stage twice, as one sees and as one does not, and with an idle one; the trapezoidal rule.
#[test]
fn equal_and_idle_stages_do_not_matter() {
    for rows in [
        ["1/4 1/4", "1/4 1/4", "1/2 1/2"],
        ["1/2 0", "0 1/2", "1/3 2/3"],
        ["1/2 0", "3 5", "1 0"],
    ] {
        let p = Properties::new(&tableau(&rows));
        assert!(p.symmetric && p.symplectic, "{rows:?}");
    }
    let p = Properties::new(&tableau(&["0 0", "1/2 1/2", "1/2 1/2"]));
    assert!(p.symmetric && !p.symplectic);
    // Radau IIA is neither, explicit methods never are.
    for t in [tableau(&["5/12 -1/12", "3/4 1/4", "3/4 1/4"]), rk4()] {
        let p = Properties::new(&t);
        assert!(!p.symmetric && !p.symplectic);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A method in another order and with stages repeated is the same; with another weight it is not.
    #[test]
    fn same_methods(
        a in prop::collection::vec(-4i64..5, 9),
        b in prop::collection::vec(1i64..5, 3),
        more in prop::collection::vec(0usize..3, 0..3),
        swap in 0usize..3,
    ) {
        let a = a.chunks(3).map(|r| r.iter().map(|x| q(*x, 3)).collect()).collect();
        let t = Tableau::single(a, b.iter().map(|x| q(*x, 4)).collect());
        let mut order: Vec<usize> = (0..3).chain(more).collect();
        order.rotate_left(swap);
        let other = rearranged(&t, &order);
        prop_assert!(t.is_same_method(&other));
        prop_assert_eq!(t.is_symmetric(), other.is_symmetric());
        prop_assert_eq!(symplectic(&t).is_ok(), symplectic(&other).is_ok());
        let mut wrong = other;
        wrong.b[0] = &wrong.b[0] + &q(1, 7);
        prop_assert!(!t.is_same_method(&wrong));
    }
}

type Matrix = Vec<Vec<f64>>;

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let entry = |r: &Vec<f64>, j: usize| r.iter().zip(b).map(|(x, row)| x * row[j]).sum();
    let row = |r: &Vec<f64>| (0..b[0].len()).map(|j| entry(r, j)).collect();
    a.iter().map(row).collect()
}

/// M⁻¹R by elimination.
fn solved(mut m: Matrix, mut r: Matrix) -> Matrix {
    let n = m.len();
    for k in 0..n {
        let largest = (k..n).max_by(|i, j| m[*i][k].abs().total_cmp(&m[*j][k].abs()));
        let pivot = largest.expect("a row");
        m.swap(k, pivot);
        r.swap(k, pivot);
        for i in (0..n).filter(|i| *i != k) {
            let by = m[i][k] / m[k][k];
            for rows in [&mut m, &mut r] {
                let pivot = rows[k].clone();
                let pairs = rows[i].iter_mut().zip(&pivot);
                pairs.for_each(|(x, p)| *x -= by * p);
            }
        }
    }
    let scaled = |(i, row): (usize, &Vec<f64>)| row.iter().map(|x| x / m[i][i]).collect();
    r.iter().enumerate().map(scaled).collect()
}

/// A step with h = 1 on y' = Σ L y, one matrix for each field, as a matrix.
fn step(t: &Tableau, fields: &[Matrix]) -> Matrix {
    let s = t.stages();
    let (mut m, mut ones) = (vec![vec![0.0; 4 * s]; 4 * s], Matrix::new());
    for i in 0..s {
        for k in 0..4 {
            m[4 * i + k][4 * i + k] = 1.0;
            ones.push((0..4).map(|l| f64::from(u8::from(k == l))).collect());
            for j in 0..s {
                for l in 0..4 {
                    m[4 * i + k][4 * j + l] -= t.a[i][j].to_f64() * fields[t.field_of[j]][k][l];
                }
            }
        }
    }
    let stages = solved(m, ones.clone());
    let mut result: Matrix = ones[..4].to_vec();
    for j in 0..s {
        let slope = product(&fields[t.field_of[j]], &stages[4 * j..4 * j + 4].to_vec());
        for (r, k) in result.iter_mut().zip(&slope) {
            r.iter_mut()
                .zip(k)
                .for_each(|(r, k)| *r += t.b[j].to_f64() * k);
        }
    }
    result
}

/// How far MᵀJM is from J.
fn off(m: &Matrix) -> f64 {
    let sign = |i: usize, j: usize| f64::from(i8::from(j == i + 2) - i8::from(i == j + 2));
    let j: Matrix = (0..4)
        .map(|i| (0..4).map(|k| sign(i, k)).collect())
        .collect();
    let across: Matrix = (0..4).map(|i| m.iter().map(|r| r[i]).collect()).collect();
    let kept = product(&product(&across, &j), m);
    let pairs = kept.iter().flatten().zip(j.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// J S for a symmetric S, in which `q` and `p` meet or not.
fn hamiltonian(seed: f64, meet: bool) -> Matrix {
    let s = |i: usize, k: usize| match (i / 2 == k / 2) || meet {
        true => 0.3 * (seed + (i + k) as f64 + (i * k) as f64 * 1.7).sin(),
        false => 0.0,
    };
    let row = |i: usize| {
        (0..4)
            .map(|k| if i < 2 { s(i + 2, k) } else { -s(i - 2, k) })
            .collect()
    };
    (0..4).map(row).collect()
}

/// The rows of q, and those of p.
fn parted(m: &Matrix) -> [Matrix; 2] {
    [0, 1].map(|part| {
        let row = |(i, r): (usize, &Vec<f64>)| match i / 2 == part {
            true => r.clone(),
            false => vec![0.0; 4],
        };
        m.iter().enumerate().map(row).collect()
    })
}

/// Pairs of two fields: stages with their field, rows of A, b.
fn pair(fields: &[usize], rows: &[&str]) -> Tableau {
    Tableau {
        fields: vec!["A".into(), "B".into()],
        field_of: fields.to_vec(),
        ..tableau(rows)
    }
}

/// What is said of pairs, beside steps on linear systems: Euler's symplectic method and Störmer and Verlet's for separable systems, the
/// latter as Lobatto IIIA and IIIB for partitioned ones (Sun 1993; Hairer, Lubich & Wanner 2006, VI.4), the midpoint rule for all sums.
#[test]
fn symplectic_pairs() {
    let lobatto = [
        "0 0 1/2 0",
        "1/2 1/2 1/2 0",
        "0 0 1/2 0",
        "1/2 1/2 1/2 0",
        "1/2 1/2 1/2 1/2",
    ];
    let cases = [
        (
            "Euler",
            pair(&[0, 1], &["", "1", "1 1"]),
            Some(Symplectic::Separable),
        ),
        (
            "Verlet",
            pair(&[0, 1, 0], &["", "1/2", "1/2 1", "1/2 1 1/2"]),
            Some(Symplectic::Separable),
        ),
        (
            "Lobatto",
            pair(&[0, 0, 1, 1], &lobatto),
            Some(Symplectic::Partitioned),
        ),
        (
            "midpoint",
            pair(&[0, 1], &["1/2 1/2", "1/2 1/2", "1 1"]),
            Some(Symplectic::Sums),
        ),
        ("explicit", pair(&[0, 1], &["", "", "1 1"]), None),
        (
            "Heun",
            pair(&[0, 1, 0, 1], &["", "", "1 1", "1 1", "1/2 1/2 1/2 1/2"]),
            None,
        ),
    ];
    let mixed = hamiltonian(0.4, true);
    let systems = [
        (Symplectic::Separable, parted(&hamiltonian(1.3, false))),
        (Symplectic::Partitioned, parted(&mixed)),
        (Symplectic::Sums, [mixed, hamiltonian(2.2, true)]),
    ];
    let rank = |s: Symplectic| match s {
        Symplectic::Separable => 0,
        Symplectic::Partitioned => 1,
        Symplectic::Sums => 2,
    };
    for (name, t, expected) in cases {
        assert_eq!(symplectic(&t).ok(), expected, "{name}");
        for (of, fields) in &systems {
            let found = off(&step(&t, fields));
            match expected.is_some_and(|e| rank(e) >= rank(*of)) {
                true => assert!(found < 1e-10, "{name} of {of:?}: {found}"),
                false => assert!(found > 1e-4, "{name} of {of:?}: {found}"),
            }
        }
    }
}

/// A coefficient that is no simple number is told from every other: from those in the interval that is known first, too.
#[test]
fn an_enclosed_coefficient_is_compared_exactly() {
    let t = five_stages();
    let Some(Ssp::Between(c)) = ssp(&t) else {
        panic!("{:?}", ssp(&t));
    };
    let (mut lo, mut hi) = (c.lo.clone(), c.hi.clone());
    assert_eq!(c.compared(&lo), Some(Ordering::Greater));
    for _ in 0..200 {
        let middle = &(&lo + &hi) * &q(1, 2);
        match c.compared(&middle).expect("decided") {
            Ordering::Greater => lo = middle,
            Ordering::Less => hi = middle,
            Ordering::Equal => panic!("{middle} is no root"),
        }
    }
    // The lower end is printed with the decimals that tell it from the number.
    let shown = c.decimals(&lo).expect("decimals");
    let places = shown.len() - 1 - shown.find('.').expect("a point");
    assert!(places > 60, "{shown}");
    let shown = Exact::decimal(&shown).expect("a number");
    assert_eq!(c.compared(&shown), Some(Ordering::Greater), "{shown}");
}

fn multistep(alpha: &str, beta: &str) -> Multistep {
    let (alpha, mut beta) = (row(alpha), row(beta));
    beta.resize(alpha.len(), Exact::zero());
    Multistep { alpha, beta }
}

/// Hairer, Lubich & Wanner (2006), XV.1: the leap-frog method and Simpson's rule are symmetric. Gottlieb, Ketcheson & Shu (2011), 8.2:
/// explicit methods of 3 steps and order 2 with C = 1/2, of 4 steps and order 3 with C = 1/3. BDF2 is L-stable.
#[test]
fn multistep_methods() {
    let cases = [
        ("1 0 -1", "0 2 0", true, Ssp::None, false),
        ("1 0 -1", "1/3 4/3 1/3", true, Ssp::None, false),
        ("1 -1", "1/2 1/2", true, Ssp::Exactly(q(2, 1)), false),
        ("1 -3/2 1/2", "1/2 1/4 -1/4", true, Ssp::None, false),
        ("1 -1 0", "0 3/2 -1/2", false, Ssp::None, false),
        ("3/2 -2 1/2", "1", false, Ssp::None, true),
        ("1 -1", "1", false, Ssp::Unbounded, true),
        (
            "1 -3/4 0 -1/4",
            "0 3/2",
            false,
            Ssp::Exactly(q(1, 2)),
            false,
        ),
        (
            "1 -16/27 0 0 -11/27",
            "0 16/9 0 0 4/9",
            false,
            Ssp::Exactly(q(1, 3)),
            false,
        ),
        ("11/6 -3 3/2 -1/3", "1", false, Ssp::None, false),
    ];
    for (alpha, beta, symmetric, coefficient, l_stable) in cases {
        let m = multistep(alpha, beta);
        assert_eq!(m.is_symmetric(), Some(symmetric), "{alpha}");
        assert_eq!(m.ssp(), Some(coefficient), "{alpha}");
        assert_eq!(m.l_stable(), Some(l_stable), "{alpha}");
    }
}

/// A(1/2) A(1/2) B(1) B(0) is A(1) B(1).
#[test]
fn words_of_flows() {
    let flow = |at: usize, field: usize, n: i64, d: i64| Step::Flow {
        field,
        at,
        fraction: q(n, d),
    };
    let line = LinearStep {
        fields: vec!["A".into(), "B".into()],
        steps: vec![
            flow(0, 0, 1, 2),
            flow(1, 0, 1, 2),
            flow(2, 1, 1, 1),
            flow(3, 0, 0, 1),
            flow(4, 1, 0, 1),
        ],
        result: 5,
        embedded: None,
    };
    assert_eq!(line.word(), Some(vec![(0, q(1, 1)), (1, q(1, 1))]));
}
