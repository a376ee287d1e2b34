//! Orders of known methods and of near misses; numbers of trees.

use odec_exact::Exact;
use odec_numerics::linear_step::{LinearStep, Step};
use odec_numerics::order::{Expansion, Proof, Weights, principal_error, prove};
use odec_numerics::series::Series;
use odec_numerics::{Tableau, Trees};
use proptest::prelude::*;

fn num(text: &str) -> Exact {
    match text.split_once('/') {
        Some((n, d)) => {
            &Exact::decimal(n.trim_start_matches('-')).unwrap()
                * &Exact::decimal(d).unwrap().recip().unwrap()
        }
        None => Exact::decimal(text.trim_start_matches('-')).unwrap(),
    }
    .signed(text.starts_with('-'))
}

trait Signed {
    fn signed(self, minus: bool) -> Self;
}
impl Signed for Exact {
    fn signed(self, minus: bool) -> Exact {
        if minus { -&self } else { self }
    }
}

/// Rows of A without what stands on and above the diagonal, then the weights.
fn explicit(rows: &[&str]) -> Tableau {
    let row = |r: &str| r.split_whitespace().map(num).collect::<Vec<_>>();
    let (b, a) = rows.split_last().unwrap();
    let b = row(b);
    let padded = |r: &&str| {
        let mut r = row(r);
        r.resize(b.len(), Exact::zero());
        r
    };
    let mut a: Vec<Vec<Exact>> = a.iter().map(padded).collect();
    a.insert(0, vec![Exact::zero(); b.len()]);
    Tableau::single(a, b)
}

fn order(t: &Tableau) -> usize {
    proof(t).order
}
fn proof(t: &Tableau) -> Proof {
    let mut trees = Trees::new(t.fields.len());
    prove(&mut Weights::new(t).unwrap(), &mut trees, 20, None)
}

/// Dormand & Prince (1980), J. Comput. Appl. Math. 6, 19: RK5(4)7M.
fn dormand_prince() -> Tableau {
    explicit(&[
        "1/5",
        "3/40 9/40",
        "44/45 -56/15 32/9",
        "19372/6561 -25360/2187 64448/6561 -212/729",
        "9017/3168 -355/33 46732/5247 49/176 -5103/18656",
        "35/384 0 500/1113 125/192 -2187/6784 11/84",
        "35/384 0 500/1113 125/192 -2187/6784 11/84 0",
    ])
}

#[test]
fn numbers_of_trees() {
    // OEIS A000081, without its 0th entry.
    let one = [1, 1, 2, 4, 9, 20, 48, 115, 286, 719, 1842, 4766];
    // OEIS A038055 and A038059: vertices in two and three colours.
    let two = [2, 4, 14, 52, 214, 916, 4116];
    let three = [3, 9, 45, 246, 1485, 9432];
    for (colours, counts) in [(1, &one[..]), (2, &two[..]), (3, &three[..])] {
        let mut trees = Trees::new(colours);
        for (i, n) in counts.iter().enumerate() {
            assert!(trees.grow());
            assert_eq!(trees.of_order(i + 1).count(), *n, "{colours}, {}", i + 1);
        }
    }
    let mut words = Trees::tall(3);
    for n in 1..=6 {
        assert!(words.grow());
        assert_eq!(words.of_order(n).count(), 3usize.pow(n as u32));
    }
}

/// Σ over trees of order n of n!/(γσ) = (n − 1)!: the number of increasing labellings of all trees (Hairer, Nørsett & Wanner,
/// II.2: α(t) = n!/(γσ), and the recursive trees of n vertices number (n − 1)!).
#[test]
fn densities_and_symmetries_count_labelled_trees() {
    let mut trees = Trees::new(1);
    let mut factorial = 1u128;
    for n in 1..=10u128 {
        assert!(trees.grow());
        let all = factorial * n;
        let mut sum = 0;
        for t in trees.of_order(n as usize) {
            let labelled = trees.density(t) * trees.symmetry(t);
            assert_eq!(all % labelled, 0);
            sum += all / labelled;
        }
        assert_eq!(sum, factorial, "order {n}");
        factorial = all;
    }
}

#[test]
fn known_methods_have_their_orders() {
    let cases: [(&str, usize, Tableau); 8] = [
        ("Euler", 1, explicit(&["1"])),
        ("Heun", 2, explicit(&["1", "1/2 1/2"])),
        ("midpoint", 2, explicit(&["1/2", "0 1"])),
        ("Kutta 3", 3, explicit(&["1/2", "-1 2", "1/6 2/3 1/6"])),
        (
            "RK4",
            4,
            explicit(&["1/2", "0 1/2", "0 0 1", "1/6 1/3 1/3 1/6"]),
        ),
        (
            "3/8",
            4,
            explicit(&["1/3", "-1/3 1", "1 -1 1", "1/8 3/8 3/8 1/8"]),
        ),
        ("DP5", 5, dormand_prince()),
        // Butcher (1964), J. Austral. Math. Soc. 4, 179: six stages, order 5.
        (
            "Butcher 5",
            5,
            explicit(&[
                "1/4",
                "1/8 1/8",
                "0 -1/2 1",
                "3/16 0 0 9/16",
                "-3/7 2/7 12/7 -12/7 8/7",
                "7/90 0 32/90 12/90 32/90 7/90",
            ]),
        ),
    ];
    for (name, p, t) in cases {
        assert_eq!(order(&t), p, "{name}");
    }
}

#[test]
fn near_misses_fail() {
    let changed = [
        (
            "weights",
            0,
            explicit(&["1/2", "0 1/2", "0 0 1", "1/6 1/3 1/3 1/5"]),
        ),
        (
            "nodes",
            1,
            explicit(&["1/2", "0 1/2", "0 0 0.9", "1/6 1/3 1/3 1/6"]),
        ),
        // The third stage of the ODE Transformer's released RK3, x − k₂ + 2·k₂, keeps c₃ = 1 but loses k₁.
        (
            "RK3 as released",
            2,
            explicit(&["1/2", "0 1", "1/6 2/3 1/6"]),
        ),
        (
            "row",
            2,
            explicit(&["1/2", "1/2 0", "0 0 1", "1/6 1/3 1/3 1/6"]),
        ),
    ];
    for (name, p, t) in changed {
        assert_eq!(order(&t), p, "{name}");
    }
    // A decimal is what it says.
    let third = explicit(&["1/2", "0 1/2", "0 0 1", "0.166666667 1/3 1/3 1/6"]);
    let mut trees = Trees::new(1);
    let within = |r: &str, trees: &mut Trees| {
        prove(&mut Weights::new(&third).unwrap(), trees, 4, Some(&num(r))).order
    };
    assert_eq!(order(&third), 0);
    assert_eq!(within("1e-9", &mut trees), 4);
    assert_eq!(within("1e-10", &mut trees), 0);
}

/// Gauss with two stages has √3 in its tableau and order 4; the same with c₁ = c₂, a slip of a popular library, has not.
#[test]
fn implicit_methods_with_roots() {
    let q = Exact::ratio;
    let r = &Exact::int(3).root(2).unwrap() * &q(1, 6);
    let a = vec![vec![q(1, 4), &q(1, 4) - &r], vec![&q(1, 4) + &r, q(1, 4)]];
    let gauss = Tableau::single(a.clone(), vec![q(1, 2), q(1, 2)]);
    assert_eq!(order(&gauss), 4);
    let slip = Tableau::single(vec![a[0].clone(), a[0].clone()], gauss.b.clone());
    assert_eq!(order(&slip), 1);
}

/// Norms of the principal error: RK4 in Dormand & Prince's measure 1.45e-2 (Kennedy & Carpenter 2000), RK5(4)7M 3.99e-4
/// (Prince & Dormand 1981, Table 2).
#[test]
fn principal_errors() {
    let mut trees = Trees::new(1);
    let t = dormand_prince();
    let (_, norm) = principal_error(&mut Weights::new(&t).unwrap(), &mut trees, 5).unwrap();
    assert!((norm - 3.99e-4).abs() < 0.005e-4, "{norm}");
    let rk4 = explicit(&["1/2", "0 1/2", "0 0 1", "1/6 1/3 1/3 1/6"]);
    let (_, norm) = principal_error(&mut Weights::new(&rk4).unwrap(), &mut trees, 4).unwrap();
    assert!((norm - 1.45e-2).abs() < 0.005e-2, "{norm}");
}

fn flows(fractions: &[(usize, Exact)], fields: usize) -> LinearStep {
    let steps = fractions.iter().enumerate();
    let steps = steps.map(|(at, (field, fraction))| Step::Flow {
        field: *field,
        at,
        fraction: fraction.clone(),
    });
    LinearStep {
        fields: (0..fields).map(|f| format!("F{f}")).collect(),
        steps: steps.collect(),
        result: fractions.len(),
        embedded: None,
    }
}

fn flow_order(line: &LinearStep, tall: bool) -> usize {
    let mut trees = match tall {
        true => Trees::tall(line.fields.len()),
        false => Trees::new(line.fields.len()),
    };
    prove(&mut Series::new(line).unwrap(), &mut trees, 8, None).order
}

#[test]
fn splittings_with_exact_flows() {
    let q = Exact::ratio;
    let half = q(1, 2);
    let strang = |h: &Exact| vec![(0, h * &half), (1, h.clone()), (0, h * &half)];
    let triple = |inner: &dyn Fn(&Exact) -> Vec<(usize, Exact)>, root: u32| {
        let cube = Exact::int(2).root(root).unwrap();
        let outer = (&q(2, 1) - &cube).recip().unwrap();
        let middle = &q(1, 1) - &(&q(2, 1) * &outer);
        [inner(&outer), inner(&middle), inner(&outer)].concat()
    };
    let yoshida = triple(&strang, 3);
    // Ruth (1983), IEEE Trans. Nucl. Sci. 30, 2669.
    let ruth = ["7/24", "2/3", "3/4", "-2/3", "-1/24", "1"];
    let ruth: Vec<(usize, Exact)> = ruth
        .iter()
        .enumerate()
        .map(|(i, c)| (i % 2, num(c)))
        .collect();
    let cases = [
        ("Lie", 1, vec![(0, q(1, 1)), (1, q(1, 1))]),
        ("Strang", 2, strang(&q(1, 1))),
        ("Ruth", 3, ruth.clone()),
        ("Yoshida", 4, yoshida),
    ];
    for (name, p, fractions) in cases {
        let line = flows(&fractions, 2);
        assert!(line.is_product_of_flows());
        assert_eq!(flow_order(&line, true), p, "{name}, words");
        assert_eq!(flow_order(&line, false), p, "{name}, trees");
    }
    // One coefficient changed, and its partner so that the sums stay 1.
    let mut miss = ruth;
    miss[0].1 = q(1, 4);
    miss[2].1 = &q(1, 1) - &(&miss[0].1 + &miss[4].1);
    assert!(flow_order(&flows(&miss, 2), true) < 3);
    // Three operators, symmetric: order 2.
    let abc = [
        (0, half.clone()),
        (1, half.clone()),
        (2, q(1, 1)),
        (1, half.clone()),
        (0, half),
    ];
    assert_eq!(flow_order(&flows(&abc, 3), true), 2);
}

/// Adams–Bashforth with exact past values (Hairer, Nørsett & Wanner, III.1).
#[test]
fn past_values() {
    let ab2 = |newer: Exact, older: Exact| LinearStep {
        fields: vec!["F".into()],
        steps: vec![
            Step::Eval { field: 0, at: 0 },
            Step::Past(Exact::int(-1)),
            Step::Eval { field: 0, at: 2 },
            Step::Combine(vec![(0, Exact::one()), (1, newer), (3, older)]),
        ],
        result: 4,
        embedded: None,
    };
    assert_eq!(
        flow_order(&ab2(Exact::ratio(3, 2), Exact::ratio(-1, 2)), false),
        2
    );
    assert_eq!(
        flow_order(&ab2(Exact::ratio(5, 4), Exact::ratio(-1, 4)), false),
        1
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every explicit two-stage method with b₂ = 1/(2c₂), b₁ = 1 − b₂ has order 2, and no other b₂ has.
    #[test]
    fn two_stages(n in 1i64..30, d in 1i64..30, off in 1i64..9) {
        let c = Exact::ratio(n, d);
        let b2 = (&Exact::int(2) * &c).recip().unwrap();
        let method = |b2: &Exact| Tableau::single(
            vec![vec![Exact::zero(), Exact::zero()], vec![c.clone(), Exact::zero()]],
            vec![&Exact::one() - b2, b2.clone()],
        );
        prop_assert_eq!(order(&method(&b2)), 2);
        prop_assert_eq!(order(&method(&(&b2 + &Exact::ratio(off, 7)))), 1);
    }

    /// Both ways to expand agree on random explicit methods, tree by tree.
    #[test]
    fn tableaus_and_series_agree(entries in prop::collection::vec((-4i64..5, 1i64..5), 9)) {
        let q: Vec<Exact> = entries.iter().map(|(n, d)| Exact::ratio(*n, *d)).collect();
        let line = LinearStep {
            fields: vec!["A".into(), "B".into()],
            steps: vec![
                Step::Eval { field: 0, at: 0 },
                Step::Combine(vec![(0, Exact::one()), (1, q[0].clone())]),
                Step::Eval { field: 1, at: 2 },
                Step::Combine(vec![(2, Exact::one()), (1, q[1].clone()), (3, q[2].clone())]),
                Step::Eval { field: 0, at: 4 },
                Step::Combine(vec![(0, Exact::one()), (1, q[3].clone()), (3, q[4].clone()), (5, q[5].clone())]),
            ],
            result: 6,
            embedded: None,
        };
        let tableau = line.tableau().unwrap();
        let mut trees = Trees::new(2);
        for _ in 0..4 { prop_assert!(trees.grow()); }
        use odec_numerics::order::Expansion;
        let (mut w, mut s) = (Weights::new(&tableau).unwrap(), Series::new(&line).unwrap());
        for t in (1..=4).flat_map(|n| trees.of_order(n)) {
            prop_assert_eq!(w.coefficient(&trees, t), s.coefficient(&trees, t));
        }
    }

    /// A composition of flows with its mirror image is symmetric, so its order is even (Hairer, Lubich & Wanner, II.3).
    #[test]
    fn symmetric_compositions_have_even_order(a in 1i64..7, b in 1i64..7, d in 1i64..7) {
        let q = |n| Exact::ratio(n, d);
        let (a, b) = (q(a), q(b));
        // A: a, r, r, a; B: b, s, b.
        let rest = |x: &Exact| &Exact::ratio(1, 2) - x;
        let middle = |x: &Exact| &Exact::one() - &(&Exact::int(2) * x);
        let mirrored = [(0, a.clone()), (1, b.clone()), (0, rest(&a)), (1, middle(&b)), (0, rest(&a)), (1, b), (0, a)];
        prop_assert_eq!(flow_order(&flows(&mirrored, 2), true) % 2, 0);
    }
}

fn entry() -> impl Strategy<Value = Exact> {
    (-6i64..7, 1i64..5).prop_map(|(n, d)| Exact::ratio(n, d))
}

/// Any tableau of two fields, implicit ones too.
fn any_tableau() -> impl Strategy<Value = Tableau> {
    (1usize..4).prop_flat_map(|s| {
        let entries = prop::collection::vec(entry(), s * s + s);
        let fields = prop::collection::vec(0usize..2, s);
        (entries, fields).prop_map(move |(e, field_of)| Tableau {
            fields: vec!["A".into(), "B".into()],
            field_of,
            a: e[..s * s].chunks(s).map(<[Exact]>::to_vec).collect(),
            b: e[s * s..].to_vec(),
            embedded: None,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The adjoint undoes a step of −h, `Φ*_h(Φ₋ₕ(x)) = x`: one tableau after the other has no term in any tree. It is its own inverse, and
    /// a step followed by an adjoint one is symmetric.
    #[test]
    fn adjoints_undo_steps_backwards(t in any_tableau()) {
        let adjoint = t.adjoint();
        prop_assert_eq!(&adjoint.adjoint(), &t);
        let s = t.stages();
        let after = |fraction: Exact, first: &Tableau, next: &Tableau| {
            let scaled = |row: &[Exact], c: &Exact| row.iter().map(|a| a * c).collect::<Vec<_>>();
            let one = Exact::one();
            let padded = |row: &Vec<Exact>| {
                [scaled(row, &fraction), vec![Exact::zero(); s]].concat()
            };
            let moved = |row: &Vec<Exact>| {
                [scaled(&first.b, &fraction), scaled(row, &one)].concat()
            };
            Tableau {
                a: first.a.iter().map(padded).chain(next.a.iter().map(moved)).collect(),
                b: moved(&next.b),
                field_of: [first.field_of.clone(), next.field_of.clone()].concat(),
                ..t.clone()
            }
        };
        let nothing = after(Exact::int(-1), &t, &adjoint);
        let mut trees = Trees::new(2);
        let mut weights = Weights::new(&nothing).expect("rational numbers");
        for n in 1..=5 {
            prop_assert!(trees.grow());
            for tree in trees.of_order(n) {
                prop_assert!(weights.coefficient(&trees, tree).is_zero());
            }
        }
        prop_assert!(after(Exact::one(), &t, &adjoint).is_symmetric());
    }
}

/// Evaluations at later values: the implicit midpoint rule as a line, by its tableau and as a series.
#[test]
fn implicit_lines() {
    let half = Exact::ratio(1, 2);
    let line = LinearStep {
        fields: vec!["F".into()],
        steps: vec![
            Step::Eval { field: 0, at: 3 },
            Step::Combine(vec![(0, Exact::one()), (1, Exact::one())]),
            Step::Combine(vec![(0, half.clone()), (2, half.clone())]),
        ],
        result: 2,
        embedded: None,
    };
    let tableau = line.tableau().unwrap();
    assert_eq!(tableau.a, vec![vec![half]]);
    let mut weights = Weights::new(&tableau).unwrap();
    let by_tableau = prove(&mut weights, &mut Trees::new(1), 5, None);
    let mut series = Series::new(&line).unwrap();
    let by_series = prove(&mut series, &mut Trees::new(1), 5, None);
    assert_eq!(by_tableau.order, 2);
    assert_eq!(by_series.order, 2);
    let values = |p: Proof| p.violation.map(|v| v.value);
    assert_eq!(values(by_tableau), values(by_series));
}
