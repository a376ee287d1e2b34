//! Known facts of partitioned and Nyström methods.

use odec_exact::Exact;
use odec_numerics::partitioned::energy::first_change;
use odec_numerics::partitioned::nystrom::Nystrom;
use odec_numerics::partitioned::{A, B, Partitioned};
use odec_numerics::{Tableau, Trees, prove};

fn x(text: &str) -> Exact {
    match text.split_once('/') {
        None => Exact::int(text.parse().unwrap()),
        Some((n, d)) => Exact::ratio(n.parse().unwrap(), d.parse().unwrap()),
    }
}
fn row(text: &str) -> Vec<Exact> {
    text.split_whitespace().map(x).collect()
}

fn nystrom(c: &str, a: &[&str], b_bar: &str, b: &str) -> Nystrom {
    Nystrom {
        c: row(c),
        a: a.iter().map(|r| row(r)).collect(),
        b_bar: row(b_bar),
        b: row(b),
    }
}

fn second(n: Nystrom) -> Partitioned {
    Partitioned::second_order(n, ["v".into(), "F".into()])
}

/// Stages of A with their rows over those of B, and the other way round.
fn pair(a: &[&str], b: &str, a_hat: &[&str], b_hat: &str) -> Partitioned {
    let (s, r) = (a_hat.len(), a.len());
    let zeros = |n| vec![Exact::zero(); n];
    let of_a = a.iter().map(|t| [zeros(r), row(t)].concat());
    let of_b = a_hat.iter().map(|t| [row(t), zeros(s)].concat());
    let tableau = Tableau {
        fields: vec!["A".into(), "B".into()],
        field_of: [vec![A; r], vec![B; s]].concat(),
        a: of_a.chain(of_b).collect(),
        b: [row(b_hat), row(b)].concat(),
        embedded: None,
    };
    Partitioned::separable(tableau).unwrap()
}

/// The order with the best start of p, how far p then lies off the time of q, and the order with p itself at the start.
fn orders(m: &Partitioned) -> (usize, Exact, usize) {
    let mut trees = m.trees();
    let mut started = m.started();
    let proof = prove(&mut started, &mut trees, 9, None);
    let offset = started.offset(&mut trees);
    let first = started.agrees(&mut trees, proof.order, &mut |_, _| Some(Exact::zero()));
    let computed = first.map_or(proof.order, |(t, ..)| trees.order(t));
    (proof.order, offset, computed)
}

fn verlet() -> Nystrom {
    nystrom("0 1", &["0 0", "1/2 0"], "1/2 0", "1/2 1/2")
}
/// New velocities first.
fn euler() -> Nystrom {
    nystrom("0", &["0"], "1", "1")
}
/// Nyström's method of order 4 (Hairer, Nørsett & Wanner 1993, II.14.13).
fn nystrom4() -> Nystrom {
    nystrom(
        "0 1/2 1",
        &["0 0 0", "1/8 0 0", "0 1/2 0"],
        "1/6 1/3 0",
        "1/6 2/3 1/6",
    )
}
fn ruth3() -> Partitioned {
    pair(
        &["0 0 0", "2/3 0 0", "2/3 -2/3 0"],
        "2/3 -2/3 1",
        &["7/24 0 0", "7/24 3/4 0", "7/24 3/4 -1/24"],
        "7/24 3/4 -1/24",
    )
}
fn lobatto4() -> Partitioned {
    pair(
        &["0 0 0", "5/24 1/3 -1/24", "1/6 2/3 1/6"],
        "1/6 2/3 1/6",
        &["1/6 -1/6 0", "1/6 1/3 0", "1/6 5/6 0"],
        "1/6 2/3 1/6",
    )
}

/// Hairer, Nørsett & Wanner 1993, Table II.14.3: special Nyström trees, by order.
#[test]
fn as_many_trees_as_are_known() {
    let mut trees = Trees::nystrom();
    let count = |trees: &Trees, n| trees.of_order(n).filter(|t| trees.colour(*t) == B).count();
    while trees.orders() < 10 && trees.grow() {}
    let counts: Vec<usize> = (1..=10).map(|n| count(&trees, n)).collect();
    assert_eq!(counts, [1, 1, 2, 3, 6, 10, 20, 36, 72, 137]);
}

#[test]
fn orders_with_any_start_of_the_velocity() {
    let half = Exact::ratio(-1, 2);
    let zero = Exact::zero();
    // Symplectic Euler is leapfrog with a velocity that is kept half a step before.
    assert_eq!(orders(&second(euler())), (2, half.clone(), 1));
    assert_eq!(orders(&second(verlet())), (2, zero.clone(), 2));
    assert_eq!(orders(&second(nystrom4())), (4, zero.clone(), 4));
    let kick = |b: &str| nystrom("0 1", &["0 0", "1/2 0"], "1/2 0", b);
    // Wrong weights of the velocity: no order, or 1.
    assert_eq!(orders(&second(kick("1/2 1/3"))).0, 0);
    assert_eq!(orders(&second(kick("1/3 2/3"))).2, 1);
    assert_eq!(orders(&lobatto4()), (4, zero.clone(), 4));
    assert_eq!(orders(&ruth3()), (3, zero, 3));
    let euler = pair(&["1"], "1", &["0"], "1");
    assert_eq!(orders(&euler), (2, half, 1));
}

#[test]
fn structure() {
    let facts = |m: &Partitioned| {
        [
            m.symplectic().is_ok(),
            m.is_symmetric(),
            m.is_explicit_backwards(),
        ]
    };
    assert_eq!(facts(&second(verlet())), [true, true, true]);
    assert_eq!(facts(&second(euler())), [true, false, true]);
    assert_eq!(facts(&second(nystrom4())), [false, false, false]);
    assert_eq!(facts(&ruth3()), [true, false, true]);
    assert_eq!(facts(&lobatto4()), [true, true, false]);
    let offset = second(euler()).symmetric_with_offset();
    assert_eq!(offset, Some(Exact::ratio(-1, 2)));
    // Stages in another order, one of them twice, and an idle one.
    let odd = nystrom(
        "1 0 1 7",
        &["0 1/2 0 0", "0 0 0 0", "0 1/2 0 0", "1 1 1 1"],
        "0 1/2 0 0",
        "1/4 1/2 1/4 0",
    );
    assert_eq!(odd.reduced().stages(), 2);
    assert_eq!(facts(&second(odd)), [true, true, true]);
    // The velocity of velocity Verlet with other weights is refused.
    for b in ["1/3 2/3", "2/3 1/3", "1 0", "0 1"] {
        let wrong = second(nystrom("0 1", &["0 0", "1/2 0"], "1/2 0", b));
        assert!(wrong.symplectic().is_err(), "{b}");
        assert!(!wrong.is_symmetric(), "{b}");
    }
}

/// The change of energy in one step of q'' = −sin q, in steps of half the length, falls by 2ⁿ.
#[test]
fn energy_changes_as_fast_as_it_does() {
    let step = |n: &Nystrom, h: f64| {
        let f = |q: f64| -q.sin();
        let (q, v): (f64, f64) = (1.1, 0.7);
        let mut k: Vec<f64> = vec![0.0; n.stages()];
        let sum = |row: &[Exact], k: &[f64]| -> f64 {
            row.iter().zip(k).map(|(a, k)| a.to_f64() * k).sum()
        };
        for i in 0..n.stages() {
            k[i] = f(q + n.c[i].to_f64() * h * v + h * h * sum(&n.a[i], &k));
        }
        let (q1, v1) = (q + h * v + h * h * sum(&n.b_bar, &k), v + h * sum(&n.b, &k));
        (v1 * v1 - v * v) / 2.0 - q1.cos() + q.cos()
    };
    for (n, known) in [(verlet(), 3), (euler(), 2), (nystrom4(), 5)] {
        let found = first_change(&second(n.clone()), 8);
        assert_eq!(found, Some(known));
        let slope = (step(&n, 1.0 / 128.0) / step(&n, 1.0 / 256.0)).abs().log2();
        assert!((slope - known as f64).abs() < 0.3, "{slope} {known}");
    }
    assert_eq!(first_change(&ruth3(), 8), Some(4));
    assert_eq!(first_change(&lobatto4(), 8), Some(5));
}
