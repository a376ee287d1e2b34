//! Modified equations, effective orders, energy, internal stability: against what is published, and against each other.

use crate::written::{q, rk4, row, tableau};
use odec_exact::Exact;
use odec_numerics::effective::{Reached, conjugate, effective};
use odec_numerics::internal::internal;
use odec_numerics::invariants::{energy, symplectic};
use odec_numerics::lie::{self, lyndon};
use odec_numerics::linear_step::{LinearStep, Step};
use odec_numerics::modified::Modified;
use odec_numerics::order::{Weights, prove};
use odec_numerics::series::Series;
use odec_numerics::words::Words;
use odec_numerics::{Tableau, Trees, draw};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MOST: usize = 512;

fn order(t: &Tableau) -> usize {
    let mut trees = Trees::new(t.fields.len());
    prove(&mut Weights::new(t).unwrap(), &mut trees, 20, None).order
}

/// With a method's modified field.
fn with<R>(t: &Tableau, of: impl FnOnce(&mut Modified) -> R) -> R {
    let mut weights = Weights::new(t).unwrap();
    let trees = Trees::new(t.fields.len()).at_most(MOST);
    of(&mut Modified::new(&mut weights, trees, order(t)))
}

/// `h^{n−1}`'s terms.
fn terms(t: &Tableau, n: usize) -> Vec<(String, String)> {
    with(t, |m| {
        assert!(m.reach(n));
        let found = m.terms(n).into_iter();
        let shown = found.map(|(tree, c)| {
            (
                draw::differential(m.trees(), tree, &t.fields),
                c.to_string(),
            )
        });
        shown.collect()
    })
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut all: Vec<_> = all
        .iter()
        .map(|(a, b)| (a.to_string(), b.to_string()))
        .collect();
    all.sort();
    all
}

fn sorted(t: &Tableau, n: usize) -> Vec<(String, String)> {
    let mut found = terms(t, n);
    found.sort();
    found
}

fn euler() -> Tableau {
    tableau(&["0", "1"])
}
fn implicit_midpoint() -> Tableau {
    tableau(&["1/2", "1"])
}
fn trapezoidal() -> Tableau {
    tableau(&["0", "1/2 1/2", "1/2 1/2"])
}

/// Hairer, Lubich & Wanner (2006), IX.1: explicit Euler, and the implicit midpoint rule.
#[test]
fn modified_equations_of_the_textbook() {
    assert_eq!(sorted(&euler(), 2), pairs(&[("F'F", "-1/2")]));
    assert_eq!(
        sorted(&euler(), 3),
        pairs(&[("F'F'F", "1/3"), ("F''(F, F)", "1/12")])
    );
    let midpoint = implicit_midpoint();
    assert_eq!(terms(&midpoint, 2), []);
    assert_eq!(
        sorted(&midpoint, 3),
        pairs(&[("F'F'F", "1/12"), ("F''(F, F)", "-1/24")])
    );
    assert_eq!(terms(&midpoint, 4), []);
    assert_eq!(terms(&rk4(), 4), []);
    assert_eq!(terms(&rk4(), 5).len(), 9);
}

/// `R(z) = exp(z + Σ bₙ zⁿ)` with bₙ of the tall trees: log(1 + z) = z − z²/2 + z³/3 …, log of the implicit midpoint rule's R 2 artanh(z/2).
#[test]
fn linear_equations_have_logarithms() {
    for n in 2..=8i64 {
        let of = |t: &Tableau| {
            let tall = "F'".repeat(n as usize - 1) + "F";
            let all = terms(t, n as usize);
            all.into_iter()
                .find(|(name, _)| *name == tall)
                .map(|(_, c)| c)
        };
        let sign = if n % 2 == 0 { -1 } else { 1 };
        assert_eq!(of(&euler()), Some(q(sign, n).to_string()));
        let artanh = (n % 2 == 1).then(|| q(1, n << (n - 1)).to_string());
        assert_eq!(of(&implicit_midpoint()), artanh);
    }
}

/// Polynomials in x, y and h, up to a power of h.
#[derive(Clone, Debug, PartialEq, Default)]
struct Poly(BTreeMap<[usize; 3], Exact>);

const POWERS: usize = 5;

impl Poly {
    fn new(terms: &[([usize; 3], Exact)]) -> Poly {
        Poly(terms.iter().cloned().collect())
    }
    fn plus(&self, other: &Poly) -> Poly {
        let mut sum = self.clone();
        for (e, c) in &other.0 {
            let slot = sum.0.entry(*e).or_default();
            *slot = &*slot + c;
        }
        sum.0.retain(|_, c| !c.is_zero());
        sum
    }
    fn times(&self, other: &Poly) -> Poly {
        let mut product = Poly::default();
        for (d, a) in &self.0 {
            for (e, b) in &other.0 {
                let power = [d[0] + e[0], d[1] + e[1], d[2] + e[2]];
                if power[2] <= POWERS {
                    product = product.plus(&Poly::new(&[(power, a * b)]));
                }
            }
        }
        product
    }
    fn scaled(&self, c: &Exact) -> Poly {
        self.times(&Poly::new(&[([0; 3], c.clone())]))
    }
    fn derivative(&self, by: usize) -> Poly {
        let term = |(e, c): (&[usize; 3], &Exact)| {
            let mut lower = *e;
            lower[by] = lower[by].saturating_sub(1);
            (lower, c * &q(e[by] as i64, 1))
        };
        self.0
            .iter()
            .map(term)
            .fold(Poly::default(), |sum, t| sum.plus(&Poly::new(&[t])))
    }
    /// At another place.
    fn at(&self, place: &[Poly; 2]) -> Poly {
        let power =
            |p: &Poly, n: usize| (0..n).fold(Poly::new(&[([0; 3], q(1, 1))]), |r, _| r.times(p));
        self.0.iter().fold(Poly::default(), |sum, (e, c)| {
            let own = Poly::new(&[([0, 0, e[2]], c.clone())]);
            sum.plus(
                &own.times(&power(&place[0], e[0]))
                    .times(&power(&place[1], e[1])),
            )
        })
    }
}

type Field = [Poly; 2];

/// A quadratic field: what it does to products of all kinds shows.
fn quadratic() -> Field {
    let term = |x: usize, y: usize, n: i64, d: i64| ([x, y, 0], q(n, d));
    [
        Poly::new(&[
            term(0, 1, 1, 1),
            term(1, 1, 1, 2),
            term(2, 0, -1, 3),
            term(0, 0, 1, 1),
        ]),
        Poly::new(&[term(1, 0, -1, 1), term(0, 2, 1, 5), term(2, 1, 1, 4)]),
    ]
}

/// `F(t)` by its definition: derivatives of the field in the directions of the children.
fn differential(m: &Modified, t: odec_numerics::TreeId, f: &Field) -> Field {
    let below: Vec<Field> = m
        .trees()
        .children(t)
        .into_iter()
        .map(|c| differential(m, c, f))
        .collect();
    let component = |i: usize| {
        let mut sum = Poly::default();
        for directions in 0..1usize << below.len() {
            let along = |k: usize| directions >> k & 1;
            let derivative = (0..below.len()).fold(f[i].clone(), |p, k| p.derivative(along(k)));
            let product = below
                .iter()
                .enumerate()
                .fold(derivative, |p, (k, b)| p.times(&b[along(k)]));
            sum = sum.plus(&product);
        }
        sum
    };
    [component(0), component(1)]
}

/// The step of an explicit method from (x, y).
fn step(t: &Tableau, f: &Field) -> Field {
    let start: Field = [0, 1].map(|i| {
        let mut e = [0; 3];
        e[i] = 1;
        Poly::new(&[(e, q(1, 1))])
    });
    let h = Poly::new(&[([0, 0, 1], q(1, 1))]);
    let mut slopes: Vec<Field> = Vec::new();
    let at = |row: &[Exact], slopes: &[Field]| {
        [0, 1].map(|i| {
            let all = row.iter().zip(slopes);
            all.fold(start[i].clone(), |sum, (a, k)| {
                sum.plus(&h.times(&k[i].scaled(a)))
            })
        })
    };
    for row in &t.a {
        let place = at(row, &slopes);
        slopes.push([0, 1].map(|i| f[i].at(&place)));
    }
    at(&t.b, &slopes)
}

/// The flow of a field that depends on h, over h: Σ hᵏ/k! Dᵏ.
fn flow(f: &Field) -> Field {
    [0, 1].map(|i| {
        let mut e = [0; 3];
        e[i] = 1;
        let mut term = Poly::new(&[(e, q(1, 1))]);
        let mut sum = term.clone();
        for k in 1..=POWERS {
            let along = term
                .derivative(0)
                .times(&f[0])
                .plus(&term.derivative(1).times(&f[1]));
            term = along.times(&Poly::new(&[([0, 0, 1], q(1, k as i64))]));
            sum = sum.plus(&term);
        }
        sum
    })
}

/// The terms of the difference that have at most this power of h.
fn up_to(p: &Poly, power: usize) -> Poly {
    Poly(
        p.0.iter()
            .filter(|(e, _)| e[2] <= power)
            .map(|(e, c)| (*e, c.clone()))
            .collect(),
    )
}

/// With the terms up to order n, the modified equation's flow is the method up to hⁿ, and not beyond: on a system with two components, in exact numbers.
#[test]
fn the_flow_of_the_modified_equation_is_the_method() {
    let f = quadratic();
    let methods = [
        euler(),
        tableau(&["", "2/3", "1/4 3/4"]),
        tableau(&["", "1/3", "-1/2 2", "1/5 1/5 3/5"]),
    ];
    for t in methods {
        let p = order(&t);
        with(&t, |m| {
            assert!(m.reach(POWERS));
            let mut field = [Poly::default(), Poly::default()];
            let method = step(&t, &f);
            for n in 1..=POWERS {
                let h = Poly::new(&[([0, 0, n - 1], q(1, 1))]);
                for (tree, c) in m.terms(n) {
                    let own = differential(m, tree, &f);
                    field = [0, 1].map(|i| field[i].plus(&own[i].scaled(&c).times(&h)));
                }
                let end = flow(&field);
                let same = |k| (0..2).all(|i| up_to(&end[i], k) == up_to(&method[i], k));
                assert!(same(n), "order {n}");
                assert!(n == POWERS || n < p || same(n + 1) == m.terms(n + 1).is_empty());
            }
        });
    }
}

fn reached(order: usize, exactly: bool) -> Reached {
    Reached { order, exactly }
}

/// Butcher (1969); Butcher (2016), 389: five stages, order 4, effective order 5.
fn butcher5() -> Tableau {
    tableau(&[
        "",
        "1/5",
        "0 2/5",
        "3/16 0 5/16",
        "1/4 0 -5/4 2",
        "1/6 0 0 2/3 1/6",
    ])
}

#[test]
fn effective_orders() {
    let of = |t: &Tableau| with(t, |m| effective(m, 8));
    assert_eq!(order(&butcher5()), 4);
    assert_eq!(of(&butcher5()), reached(5, true));
    assert_eq!(of(&rk4()), reached(4, true));
    assert_eq!(of(&euler()), reached(1, true));
    // R(z) of the implicit midpoint rule is exp(z) up to z² alone, and no change of variables alters R.
    assert_eq!(of(&implicit_midpoint()), reached(2, true));
    // A method of order 4 after half a step of another one, and before its inverse.
    let half = tableau(&["1/7", "1/2"]);
    let back = Tableau {
        b: row("-1/2"),
        a: vec![vec![&q(1, 7) - &q(1, 2)]],
        ..half.clone()
    };
    let both = composed(&[half, rk4(), back]);
    assert_eq!(order(&both), 2);
    assert_eq!(of(&both), reached(4, true));
}

/// One method after the other.
fn composed(all: &[Tableau]) -> Tableau {
    let s: usize = all.iter().map(Tableau::stages).sum();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for t in all {
        for own in &t.a {
            let mut wide = [b.clone(), own.clone()].concat();
            wide.resize(s, Exact::zero());
            a.push(wide);
        }
        b.extend(t.b.iter().cloned());
    }
    Tableau::single(a, b)
}

/// The trapezoidal rule is half a step of Euler's method, then backward Euler's; the implicit midpoint rule the other way round (Hairer, Lubich & Wanner 2006,
/// VI.8).
#[test]
fn conjugate_methods() {
    let between = |a: &Tableau, b: &Tableau| with(a, |one| with(b, |two| conjugate(one, two, 7)));
    assert_eq!(
        between(&implicit_midpoint(), &trapezoidal()),
        reached(7, false)
    );
    assert_eq!(
        between(&trapezoidal(), &implicit_midpoint()),
        reached(7, false)
    );
    let heun = tableau(&["", "1", "1/2 1/2"]);
    assert_eq!(between(&heun, &trapezoidal()), reached(2, true));
    assert_eq!(between(&butcher5(), &rk4()), reached(4, true));
}

/// Where there would be too many trees, what was found so far is no end.
#[test]
fn limits_are_no_ends() {
    let limited = |t: &Tableau| {
        let mut weights = Weights::new(t).unwrap();
        let mut m = Modified::new(&mut weights, Trees::new(1).at_most(20), order(t));
        let found = (symplectic(&mut m, 9), energy(&mut m, 9));
        assert!(m.trees().len() == 17 && !m.reach(6));
        found
    };
    assert_eq!(
        limited(&implicit_midpoint()),
        (reached(5, false), reached(2, true))
    );
    let boole = average(&row("0 1/4 1/2 3/4 1"), &row("7/90 16/45 2/15 16/45 7/90"));
    assert_eq!(limited(&boole), (reached(2, true), reached(4, false)));
}

/// A quadrature in the average vector field method, `aᵢⱼ = cᵢ bⱼ`.
fn average(c: &[Exact], b: &[Exact]) -> Tableau {
    let a = c
        .iter()
        .map(|c| b.iter().map(|b| c * b).collect())
        .collect();
    Tableau::single(a, b.to_vec())
}

/// The tests of BSeries.jl (Ranocha & Ketcheson), after Celledoni et al. (2009) and Butcher (1969).
#[test]
fn energy_is_kept_up_to_known_orders() {
    let of = |t: &Tableau| with(t, |m| energy(m, 7));
    let order4 = tableau(&["", "1/3", "-5/48 15/16", "1/10 1/2 2/5"]);
    assert_eq!(of(&order4), reached(4, true));
    assert_eq!(of(&tableau(&["", "2/3", "1/4 3/4"])), reached(3, true));
    assert_eq!(of(&rk4()), reached(4, true));
    assert_eq!(of(&butcher5()), reached(4, true));
    // The average vector field method is exact on energies of a degree that its quadrature reaches: of order 2, it keeps energy as far as that.
    assert_eq!(of(&average(&row("1/2"), &row("1"))), reached(2, true));
    let simpson = average(&row("0 1/2 1"), &row("1/6 2/3 1/6"));
    assert_eq!((order(&simpson), of(&simpson)), (2, reached(4, true)));
    let boole = average(&row("0 1/4 1/2 3/4 1"), &row("7/90 16/45 2/15 16/45 7/90"));
    assert_eq!((order(&boole), of(&boole)), (2, reached(6, true)));
}

/// A fixed-point iteration more of the implicit midpoint rule is an order more of symplecticity.
#[test]
fn iterations_are_symplectic_up_to_an_order() {
    for k in 2..=5 {
        let mut a = vec![vec![Exact::zero(); k + 1]; k + 1];
        for (i, row) in a.iter_mut().enumerate().skip(1) {
            row[i - 1] = q(1, 2);
        }
        let mut b = vec![Exact::zero(); k + 1];
        b[k] = q(1, 1);
        let t = Tableau::single(a, b);
        let found = with(&t, |m| symplectic(m, 7));
        assert!(found.exactly && found.order > k, "{k}: {found:?}");
        assert_eq!(order(&t), 2);
    }
    assert_eq!(
        with(&implicit_midpoint(), |m| symplectic(m, 7)),
        reached(7, false)
    );
    assert_eq!(with(&trapezoidal(), |m| symplectic(m, 7)), reached(2, true));
    assert_eq!(with(&rk4(), |m| symplectic(m, 7)), reached(4, true));
}

/// Euler steps of two fields in turn: `b(t) = Φ(t) − 1/2` on trees of two vertices.
#[test]
fn two_fields() {
    let lie = Tableau {
        fields: vec!["A".into(), "B".into()],
        field_of: vec![0, 1],
        a: vec![row("0 0"), row("1 0")],
        b: row("1 1"),
        embedded: None,
    };
    let mut found = terms(&lie, 2);
    found.sort();
    assert_eq!(
        found,
        pairs(&[
            ("A'A", "-1/2"),
            ("A'B", "-1/2"),
            ("B'A", "1/2"),
            ("B'B", "-1/2")
        ])
    );
    assert_eq!(with(&lie, |m| effective(m, 4)), reached(1, true));
}

fn flows(word: &[(usize, Exact)]) -> LinearStep {
    let flow = |(i, (field, c)): (usize, &(usize, Exact))| Step::Flow {
        field: *field,
        at: i,
        fraction: c.clone(),
    };
    LinearStep {
        fields: vec!["A".into(), "B".into()],
        steps: word.iter().enumerate().map(flow).collect(),
        result: word.len(),
        embedded: None,
    }
}

/// Terms in commutators.
fn brackets(word: &[(usize, Exact)], p: usize, n: usize) -> Vec<(String, String)> {
    let mut words = Words::new(&flows(word)).unwrap().unwrap();
    let mut m = Modified::new(&mut words, Trees::tall(2), p);
    assert!(m.reach(n));
    let name = |f: usize| ["A", "B"][f].to_string();
    let all = lie::terms(&mut m, n).unwrap().into_iter();
    all.map(|(b, c)| (b.shown(&name), c.to_string())).collect()
}

fn strang() -> Vec<(usize, Exact)> {
    vec![(0, q(1, 2)), (1, q(1, 1)), (0, q(1, 2))]
}

/// The Baker–Campbell–Hausdorff formula (Hairer, Lubich & Wanner 2006, III.4: (4.11) and (4.14)).
#[test]
fn splittings_have_commutators() {
    let of = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter()
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect()
    };
    let lie = vec![(0, q(1, 1)), (1, q(1, 1))];
    assert_eq!(brackets(&lie, 1, 2), of(&[("[A, B]", "1/2")]));
    assert_eq!(
        brackets(&lie, 1, 3),
        of(&[("[A, [A, B]]", "1/12"), ("[[A, B], B]", "1/12")])
    );
    // −1/24 [B, [A, [A, B]]] = 1/24 [[A, [A, B]], B], and [A, [[A, B], B]] is the Lyndon bracket of AABB.
    assert_eq!(brackets(&lie, 1, 4), of(&[("[A, [[A, B], B]]", "1/24")]));
    assert_eq!(
        brackets(&strang(), 2, 3),
        of(&[("[A, [A, B]]", "-1/24"), ("[[A, B], B]", "1/12")])
    );
    assert_eq!(brackets(&strang(), 2, 4), of(&[]));
}

/// Witt's formula: numbers of Lyndon words.
#[test]
fn lyndon_words_are_counted() {
    for (letters, counts) in [
        (1, [1, 0, 0, 0, 0, 0]),
        (2, [2, 1, 2, 3, 6, 9]),
        (3, [3, 3, 8, 18, 48, 116]),
    ] {
        let found = (1..=6).map(|n| lyndon(letters, n).len());
        assert!(found.eq(counts), "{letters}");
    }
}

/// With all trees: Lie's splitting is Strang's after half a flow and before its inverse, so it has effective order 2.
#[test]
fn lie_is_conjugate_to_strang() {
    let of = |word: &[(usize, Exact)]| {
        let line = flows(word);
        let mut series = Series::new(&line).unwrap();
        let p = prove(&mut series, &mut Trees::new(2), 6, None).order;
        effective(
            &mut Modified::new(&mut series, Trees::new(2).at_most(MOST), p),
            6,
        )
    };
    assert_eq!(of(&[(0, q(1, 1)), (1, q(1, 1))]), reached(2, true));
    assert_eq!(of(&strang()), reached(2, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// In all trees a splitting's terms are those of its commutators: tall ones agree, word by word, with the basis expanded, and what they are in is a Lie
    /// polynomial: the sum over shuffles of two letters is 0.
    #[test]
    fn words_are_lie_polynomials(a in 1i64..5, b in 1i64..5, c in 1i64..5) {
        let word = [(0, q(a, 5)), (1, q(b, 5)), (0, &q(1, 1) - &q(a, 5)), (1, q(c, 7)), (0, q(1, 3)), (1, q(1, 2))];
        let line = flows(&word);
        let mut series = Series::new(&line).unwrap();
        let mut full = Modified::new(&mut series, Trees::new(2), 0);
        let mut words = Words::new(&line).unwrap().unwrap();
        let mut tall = Modified::new(&mut words, Trees::tall(2), 0);
        prop_assert!(full.reach(4) && tall.reach(4));
        for n in 1..=4 {
            let all = tall.terms(n).into_iter();
            let named: BTreeMap<String, Exact> = all.map(|(t, c)| (draw::differential(tall.trees(), t, &line.fields), c)).collect();
            for t in full.trees().of_order(n).collect::<Vec<_>>() {
                let name = draw::differential(full.trees(), t, &line.fields);
                if full.trees().children(t).len() < 2 && !name.contains('(') {
                    prop_assert_eq!(full.coefficient(t), named.get(&name).cloned().unwrap_or_default());
                }
            }
        }
        let get = |m: &mut Modified, w: [usize; 2]| {
            let t = m.trees().of_order(2).find(|t| {
                let (l, r) = m.trees().parts(*t).unwrap();
                [m.trees().colour(l), m.trees().colour(r)] == w
            });
            m.coefficient(t.unwrap())
        };
        let (ab, ba) = (get(&mut tall, [0, 1]), get(&mut tall, [1, 0]));
        prop_assert_eq!(&ab + &ba, Exact::zero());
        prop_assert_eq!(get(&mut tall, [0, 0]), Exact::zero());
    }
}

/// Stages as Euler steps of these sizes, one after the other.
fn euler_steps(sizes: &[Exact]) -> LinearStep {
    let mut steps = Vec::new();
    let mut at = 0;
    for c in sizes {
        steps.push(Step::Eval { field: 0, at });
        steps.push(Step::Combine(vec![(at, q(1, 1)), (steps.len(), c.clone())]));
        at = steps.len();
    }
    LinearStep {
        fields: vec!["F".into()],
        result: at,
        steps,
        embedded: None,
    }
}

/// Chebyshev's method of order 1 by its recurrence: `Qⱼ = U_{s−j}`, at most s − j + 1 on the interval 2s², and that at z = 0.
fn chebyshev(s: usize) -> LinearStep {
    let c = q(1, (s * s) as i64);
    let mut steps = vec![
        Step::Eval { field: 0, at: 0 },
        Step::Combine(vec![(0, q(1, 1)), (1, c.clone())]),
    ];
    let (mut before, mut at) = (0, 2);
    for _ in 1..s {
        steps.push(Step::Eval { field: 0, at });
        let eval = steps.len();
        steps.push(Step::Combine(vec![
            (at, q(2, 1)),
            (before, q(-1, 1)),
            (eval, &q(2, 1) * &c),
        ]));
        (before, at) = (at, steps.len());
    }
    LinearStep {
        fields: vec!["F".into()],
        result: at,
        steps,
        embedded: None,
    }
}

#[test]
fn errors_of_stages_are_enclosed() {
    for s in [2usize, 5, 20, 60] {
        let found = internal(&chebyshev(s), &q(2 * (s * s) as i64, 1)).unwrap();
        let most = s as f64;
        assert!(
            found.least <= most && most <= found.most && found.most < 1.01 * found.least,
            "{s}: {found:?}"
        );
        assert_eq!((found.stage, found.sums), (2, 3.0));
    }
    // RK4: Q₂ = z/3 + z²/6 + z³/12, largest at the end of the interval; Q₃ = z/3 + z²/6, Q₄ = z/6.
    let line = LinearStep {
        fields: vec!["F".into()],
        steps: vec![
            Step::Eval { field: 0, at: 0 },
            Step::Combine(vec![(0, q(1, 1)), (1, q(1, 2))]),
            Step::Eval { field: 0, at: 2 },
            Step::Combine(vec![(0, q(1, 1)), (3, q(1, 2))]),
            Step::Eval { field: 0, at: 4 },
            Step::Combine(vec![(0, q(1, 1)), (5, q(1, 1))]),
            Step::Eval { field: 0, at: 6 },
            Step::Combine(vec![
                (0, q(1, 1)),
                (1, q(1, 6)),
                (3, q(1, 3)),
                (5, q(1, 3)),
                (7, q(1, 6)),
            ]),
        ],
        result: 8,
        embedded: None,
    };
    let found = internal(&line, &q(2, 1)).unwrap();
    // At z = −2: −2/3 + 2/3 − 2/3.
    assert!(found.least <= 2.0 / 3.0 && 2.0 / 3.0 <= found.most && found.most - found.least < 0.01);
    assert_eq!(internal(&euler_steps(&[q(1, 1)]), &q(2, 1)), None);
}

/// The same Chebyshev polynomial as Euler steps over its roots, the shortest step first: errors grow without any bound that a recurrence has (Hairer & Wanner 1996,
/// IV.2).
#[test]
fn the_written_form_decides() {
    let s = 20;
    // 1 + z/s² = cos θ at the roots; the step is −1/z. Fractions near them are enough.
    let sizes = (1..=s).rev().map(|k| {
        let angle = (2 * k - 1) as f64 * std::f64::consts::PI / (2 * s) as f64;
        let z = ((s * s) as f64 * (1.0 - angle.cos()) * 4096.0).round() as i64;
        q(4096, z)
    });
    let sizes: Vec<Exact> = sizes.collect();
    let reach = q(2 * s * s, 1);
    let naive = internal(&euler_steps(&sizes), &reach).unwrap();
    let recurrence = internal(&chebyshev(s as usize), &reach).unwrap();
    assert!(
        naive.least > 1e6 && recurrence.most < 21.0,
        "{naive:?} {recurrence:?}"
    );
}
