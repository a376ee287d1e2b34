//! How much work proofs take: counts of products, for compositions of many steps.

use crate::written::{q, rk4};
use odec_exact::Exact;
use odec_numerics::linear_step::{LinearStep, Step};
use odec_numerics::order::{Expansion, Proof, prove};
use odec_numerics::past::Past;
use odec_numerics::poly::Extent;
use odec_numerics::series::Series;
use odec_numerics::stability::Stability;
use odec_numerics::steps::{MAX_DEGREE, StepBounds};
use odec_numerics::words::Words;
use odec_numerics::{Tableau, Trees, stages};
use proptest::prelude::*;

/// n steps of RK4 over h/n.
fn power(n: usize) -> Tableau {
    let one = rk4();
    let over = q(1, n as i64);
    let s = 4 * n;
    let mut a = vec![vec![Exact::zero(); s]; s];
    for (i, row) in a.iter_mut().enumerate() {
        let begin = i - i % 4;
        for (j, entry) in row.iter_mut().enumerate().take(i) {
            let own = match j.checked_sub(begin) {
                Some(own) => &one.a[i % 4][own],
                None => &one.b[j % 4],
            };
            *entry = own * &over;
        }
    }
    let b = (0..s).map(|j| &one.b[j % 4] * &over).collect();
    Tableau::single(a, b)
}

/// Backward Euler by r iterations: R = 1 + z + z² + ….
fn iterated(r: usize) -> Tableau {
    let mut a = vec![vec![Exact::zero(); r + 1]; r + 1];
    for i in 1..=r {
        a[i][i - 1] = Exact::one();
    }
    let mut b = vec![Exact::zero(); r + 1];
    b[r] = Exact::one();
    Tableau::single(a, b)
}

/// A composition of n steps takes work like n², not like n³, and is decided as one step is.
#[test]
fn a_power_costs_what_its_structure_costs() {
    let work = |n| stages::stability(&power(n)).unwrap().1;
    let (small, large) = (work(15), work(60));
    assert!(large < 20 * small, "{small} and {large}");
    assert!(large < 500_000, "{large}");

    let one = Stability::new(&rk4()).unwrap();
    let many = Stability::new(&power(60)).unwrap();
    assert_eq!(many.function.numerator.degree(), 240);
    assert_eq!(many.base.numerator.degree(), 4);
    let end = |s: &Stability| match &s.real {
        Some(Extent::Until { hi, .. }) => hi.to_f64(),
        other => panic!("{other:?}"),
    };
    assert!((end(&many) - 60.0 * end(&one)).abs() < 1e-7);
    let bounds = StepBounds::new(&power(60), &many);
    assert!(bounds.dissipation.is_some() && bounds.disc.is_some());
}

#[test]
fn only_powers_have_roots() {
    // 1 + z + z²/2 is no square, its square is one, and a change of the last coefficient is none.
    let half = Stability::new(&crate::written::tableau(&["", "1", "1/2 1/2"])).unwrap();
    assert_eq!(half.base, half.function);
    let mut twice = power(2);
    assert_eq!(Stability::new(&twice).unwrap().base.numerator.degree(), 4);
    twice.a[7][6] = q(501, 1000);
    assert_eq!(Stability::new(&twice).unwrap().base.numerator.degree(), 8);
}

/// Verwer's recursion of three terms for Chebyshev polynomials, with short numbers: `Tⱼ(1 + z/n²)`.
fn chebyshev(n: usize) -> LinearStep {
    let w = q(1, (n * n) as i64);
    let mut steps = vec![
        Step::Eval { field: 0, at: 0 },
        Step::Combine(vec![(0, Exact::one()), (1, w.clone())]),
    ];
    let mut before = 0;
    for _ in 1..n {
        let last = steps.len();
        steps.push(Step::Eval { field: 0, at: last });
        let twice = &w * &Exact::int(2);
        let terms = vec![
            (last, Exact::int(2)),
            (before, Exact::int(-1)),
            (last + 1, twice),
        ];
        steps.push(Step::Combine(terms));
        before = last;
    }
    LinearStep {
        fields: vec!["F".into()],
        result: steps.len(),
        steps,
        embedded: None,
    }
}

/// Of a step as it is computed each stage takes as much work as its degree; of its tableau as much as that times the stages before.
#[test]
fn recursions_cost_what_their_terms_cost() {
    let work = |n| stages::of_linear_step(&chebyshev(n)).unwrap().1;
    let (small, large) = (work(20), work(80));
    assert!(large < 20 * small, "{small} and {large}");
    let line = chebyshev(12);
    let (by_values, few) = stages::of_linear_step(&line).unwrap();
    let (by_stages, many) = stages::stability(&line.tableau().unwrap()).unwrap();
    assert_eq!(by_values, by_stages);
    assert!(few < many, "{few} and {many}");
}

/// Discs are sought up to a degree, which is said.
#[test]
fn discs_of_long_polynomials_are_not_sought() {
    let of = |r| {
        let t = iterated(r);
        let s = Stability::new(&t).unwrap();
        (StepBounds::degree(&s), StepBounds::new(&t, &s))
    };
    let (degree, bounds) = of(MAX_DEGREE);
    assert_eq!(degree, MAX_DEGREE + 1);
    assert_eq!((bounds.disc, bounds.dissipation), (None, None));
    assert!(of(20).1.disc.is_some());
}

fn flows(parts: &[(usize, Exact)], fields: usize) -> LinearStep {
    let step = |(at, (field, fraction)): (usize, &(usize, Exact))| Step::Flow {
        field: *field,
        at,
        fraction: fraction.clone(),
    };
    LinearStep {
        fields: (0..fields).map(|f| format!("F{f}")).collect(),
        steps: parts.iter().enumerate().map(step).collect(),
        result: parts.len(),
        embedded: None,
    }
}

fn strang(h: &Exact) -> Vec<(usize, Exact)> {
    let half = h * &q(1, 2);
    vec![(0, half.clone()), (1, h.clone()), (0, half)]
}

/// Suzuki's (1990) or, of three factors, Yoshida's composition of one order more by two.
fn composed(
    inner: &dyn Fn(&Exact) -> Vec<(usize, Exact)>,
    n: i64,
    root: u32,
    h: &Exact,
) -> Vec<(usize, Exact)> {
    let base = Exact::int(n - 1).root(root).unwrap();
    let outer = (&Exact::int(n - 1) - &base).recip().unwrap();
    let middle = &Exact::one() - &(&Exact::int(n - 1) * &outer);
    (0..n)
        .flat_map(|k| inner(&(h * if k == n / 2 { &middle } else { &outer })))
        .collect()
}

fn words(line: &LinearStep) -> (Proof, u64, Words, Trees) {
    let mut words = Words::new(line).unwrap().unwrap();
    let mut trees = Trees::tall(line.fields.len());
    let proof = prove(&mut words, &mut trees, 10, None);
    let products = words.products();
    (proof, products, words, trees)
}

/// Suzuki's composition of order 6 (75 flows, a field of degree 15) and Yoshida's of order 8 (81 flows, degree 105), in exact numbers.
#[test]
fn long_compositions_are_decided_modulo_primes() {
    let four = |h: &Exact| composed(&strang, 5, 3, h);
    let six = composed(&four, 5, 5, &Exact::one());
    let (proof, products, ..) = words(&flows(&six, 2));
    assert_eq!(proof.order, 6);
    assert!(proof.violation.is_some_and(|v| v.value != v.expected));
    assert!((1..20_000_000).contains(&products), "{products}");

    let four = |h: &Exact| composed(&strang, 3, 3, h);
    let six = |h: &Exact| composed(&four, 3, 5, h);
    let eight = composed(&six, 3, 7, &Exact::one());
    let (proof, products, all, _) = words(&flows(&eight, 2));
    assert_eq!(proof.order, 8);
    // 81 flows have 16 different fractions, each of which is taken modulo a prime once.
    assert_eq!(all.numbers(), 16);
    assert!((1..200_000_000).contains(&products), "{products}");
}

/// A fraction that is 1/2 modulo the first hundred primes that serve is told from 1/2.
#[test]
fn numbers_that_agree_modulo_many_primes_are_told_apart() {
    let prime = |n: u64| {
        (3..)
            .step_by(2)
            .take_while(|d| d * d <= n)
            .all(|d| !n.is_multiple_of(d))
    };
    let primes = (1u64 << 30..1 << 31)
        .rev()
        .step_by(4)
        .filter(|n| prime(*n))
        .take(100);
    let product = primes.fold(Exact::one(), |p, n| &p * &Exact::int(n as i64));
    let off = &q(1, 2) + &product;
    let parts = [
        (0, off.clone()),
        (1, Exact::one()),
        (0, &Exact::one() - &off),
    ];
    let (proof, ..) = words(&flows(&parts, 2));
    assert_eq!(proof.order, 1);
    assert_eq!(proof.violation.unwrap().expected, q(1, 2));
}

/// Adams and Bashforth's method of k steps.
fn adams(k: i64) -> LinearStep {
    let weight = |j: i64| {
        // ∫₀¹ Π (t + i)/(i − j)
        let mut p = vec![Exact::one()];
        for i in (0..k).filter(|i| *i != j) {
            let over = q(1, i - j);
            let mut next = vec![Exact::zero(); p.len() + 1];
            for (n, c) in p.iter().enumerate() {
                next[n] = &next[n] + &(&(c * &Exact::int(i)) * &over);
                next[n + 1] = &next[n + 1] + &(c * &over);
            }
            p = next;
        }
        let terms = p.iter().enumerate();
        terms.map(|(n, c)| c * &q(1, n as i64 + 1)).sum::<Exact>()
    };
    let mut steps = Vec::new();
    let mut terms = vec![(0, Exact::one())];
    for j in 0..k {
        let at = match j {
            0 => 0,
            _ => {
                steps.push(Step::Past(Exact::int(-j)));
                steps.len()
            }
        };
        steps.push(Step::Eval { field: 0, at });
        terms.push((steps.len(), weight(j)));
    }
    steps.push(Step::Combine(terms));
    LinearStep {
        fields: vec!["F".to_string()],
        result: steps.len(),
        steps,
        embedded: None,
    }
}

/// One number stands for all trees of an order, of which order 17 has 634,847.
#[test]
fn past_values_need_no_trees() {
    for k in [1, 4, 16, 24] {
        let line = adams(k);
        let Some(mut past) = Past::new(&line) else {
            // Without a past value it is Euler's method.
            assert_eq!(k, 1);
            continue;
        };
        let mut trees = Trees::tall(1);
        let proof = prove(&mut past, &mut trees, 30, None);
        assert_eq!(proof.order, k as usize);
        assert!(proof.violation.is_some());
        assert_eq!(trees.len(), k as usize + 1);
    }
}

proptest! {
    /// Rows of fractions, made over one denominator, are those made number by number, as they are where a root occurs.
    #[test]
    fn rows_over_one_denominator(
        weights in prop::collection::vec((0usize..9, -6i64..7, 1i64..8), 12),
    ) {
        let mut steps: Vec<Step> = vec![Step::Eval { field: 0, at: 0 }];
        for three in weights.chunks(3) {
            // Some values, and as much of the old state as is missing.
            let states = |v: usize| i64::from(v.is_multiple_of(2));
            let chosen = three.iter().map(|(v, n, d)| (v % (steps.len() + 1), q(*n, *d)));
            let mut terms: Vec<(usize, Exact)> = chosen.collect();
            let have: Exact = terms.iter().map(|(v, c)| c * &Exact::int(states(*v))).sum();
            terms.push((0, &Exact::one() - &have));
            steps.push(Step::Combine(terms));
            steps.push(Step::Eval { field: 0, at: steps.len() });
        }
        let result = steps.len() - 1;
        let line = LinearStep { fields: vec!["F".into()], steps, result, embedded: None };
        let mut other = line.clone();
        let root = Exact::int(2).root(2).unwrap();
        other.steps.push(Step::Combine(vec![(0, root)]));
        prop_assert_eq!(line.tableau().unwrap(), other.tableau().unwrap());
    }

    /// Words modulo primes and in whole numbers agree with the expansion over trees, combinations of products among them.
    #[test]
    fn words_are_the_expansion(
        parts in prop::collection::vec((0usize..3, -5i64..6, 1i64..5), 1..7),
        weight in 1i64..4, root in 2u32..5,
    ) {
        let mut fractions: Vec<(usize, Exact)> = parts.iter().map(|(f, n, d)| (*f, q(*n, *d))).collect();
        fractions.push((0, Exact::int(2).root(root).unwrap()));
        let mut line = flows(&fractions, 3);
        let w = q(weight, 3);
        line.steps.push(Step::Combine(vec![(line.result, w.clone()), (1, &Exact::one() - &w)]));
        line.result += 1;
        let (found, _, mut words, trees) = words(&line);
        let mut series = Series::new(&line).unwrap();
        let mut all = Trees::tall(3);
        let proof = prove(&mut series, &mut all, 10, None);
        prop_assert_eq!(&found, &proof);
        for t in (1..=trees.orders()).flat_map(|n| trees.of_order(n)) {
            prop_assert_eq!(words.coefficient(&trees, t), series.coefficient(&trees, t));
        }
    }

    /// Predictors, correctors and evaluations anywhere: where past values decide, trees say the same.
    #[test]
    fn past_values_are_the_expansion(
        weights in prop::collection::vec((-3i64..4, 1i64..4), 4),
        good in any::<bool>(), iterations in 0usize..4,
    ) {
        // AB2, or anything, then iterations of the trapezoidal rule.
        let w = |i: usize| q(weights[i].0, weights[i].1);
        let (a, b) = if good { (q(3, 2), q(-1, 2)) } else { (w(0), w(1)) };
        let mut steps = vec![
            Step::Eval { field: 0, at: 0 },
            Step::Past(Exact::int(-1)),
            Step::Eval { field: 0, at: 2 },
            Step::Combine(vec![(0, Exact::one()), (1, a), (3, b)]),
        ];
        let (c, d) = if good { (q(1, 2), q(1, 2)) } else { (w(2), w(3)) };
        for _ in 0..iterations {
            steps.push(Step::Eval { field: 0, at: steps.len() });
            let terms = vec![(0, Exact::one()), (1, c.clone()), (steps.len(), d.clone())];
            steps.push(Step::Combine(terms));
        }
        let line = LinearStep { fields: vec!["F".into()], result: steps.len(), steps, embedded: None };
        if let Some(mut past) = Past::new(&line) {
            let own = prove(&mut past, &mut Trees::tall(1), 6, None);
            let found = prove(&mut Series::new(&line).unwrap(), &mut Trees::new(1), 6, None);
            prop_assert_eq!(own.order, found.order);
            prop_assert_eq!(own.violation.map(|v| (v.value, v.expected)), found.violation.map(|v| (v.value, v.expected)));
        } else {
            prop_assert!(iterations > 0 || !good);
        }
    }
}
