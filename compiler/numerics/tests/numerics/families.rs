//! Tableaus whose order is known by construction: collocation, compositions, adjoints, explicit families.

use crate::written::q;
use odec_exact::Exact;
use odec_numerics::blocks;
use odec_numerics::jet::{Jet, Space};
use odec_numerics::linear_step::{LinearStep, Step};
use odec_numerics::manifold::{Chart, NoChart};
use odec_numerics::order::{Weights, expected, prove};
use odec_numerics::properties::Properties;
use odec_numerics::series::Series;
use odec_numerics::stability::Stability;
use odec_numerics::{Tableau, Trees};
use proptest::prelude::*;

fn over(a: &Exact, b: &Exact) -> Exact {
    a * &b.recip().unwrap()
}
fn product<'e>(all: impl Iterator<Item = &'e Exact>) -> Exact {
    all.fold(Exact::one(), |p, x| &p * x)
}

fn order(t: &Tableau) -> usize {
    let mut trees = Trees::new(t.fields.len());
    prove(&mut Weights::new(t).unwrap(), &mut trees, 12, None).order
}

/// `∏ (x − cᵢ)` by rising powers, leaving one out.
fn nodal(c: &[Exact], without: Option<usize>) -> Vec<Exact> {
    let mut p = vec![Exact::one()];
    for (_, c) in c.iter().enumerate().filter(|(i, _)| Some(*i) != without) {
        let mut next = vec![Exact::zero(); p.len() + 1];
        for (k, a) in p.iter().enumerate() {
            next[k + 1] = &next[k + 1] + a;
            next[k] = &next[k] - &(a * c);
        }
        p = next;
    }
    p
}
fn at(p: &[Exact], x: &Exact) -> Exact {
    p.iter().rev().fold(Exact::zero(), |sum, c| &(&sum * x) + c)
}
/// `∫₀ˣ p`.
fn integral(p: &[Exact], x: &Exact) -> Exact {
    let terms = p.iter().enumerate().map(|(k, c)| c * &q(1, k as i64 + 1));
    let primitive: Vec<Exact> = [Exact::zero()].into_iter().chain(terms).collect();
    at(&primitive, x)
}

/// `aᵢⱼ = ∫₀^cᵢ ℓⱼ`, `bⱼ = ∫₀¹ ℓⱼ` (Hairer, Nørsett & Wanner 1993, II.7).
fn collocation(c: &[Exact]) -> Tableau {
    let basis: Vec<Vec<Exact>> = (0..c.len())
        .map(|j| {
            let p = nodal(c, Some(j));
            let scale = at(&p, &c[j]).recip().unwrap();
            p.iter().map(|x| x * &scale).collect()
        })
        .collect();
    let row = |x: &Exact| basis.iter().map(|l| integral(l, x)).collect();
    Tableau::single(c.iter().map(row).collect(), row(&Exact::one()))
}

/// s and the number of powers that the nodal polynomial is orthogonal to (Hairer, Nørsett & Wanner 1993, Theorem II.7.9).
fn collocation_order(c: &[Exact]) -> usize {
    let p = nodal(c, None);
    let moment = |k: &usize| {
        let shifted: Vec<Exact> = vec![Exact::zero(); *k]
            .into_iter()
            .chain(p.clone())
            .collect();
        integral(&shifted, &Exact::one()).is_zero()
    };
    c.len() + (0..c.len()).take_while(moment).count()
}

fn sqrt(x: &Exact) -> Exact {
    x.root(2).unwrap()
}

/// Zeros of Legendre's polynomials on [0, 1] (Abramowitz & Stegun 1964, 25.4.29), in closed form.
fn gauss(s: usize) -> Vec<Exact> {
    let half = |x: Exact| &(&Exact::one() + &x) * &q(1, 2);
    let pair = |a: Exact, b: Exact, middle: Option<Exact>| {
        let below = [-&a, -&b].into_iter().chain(middle);
        below.chain([b, a]).map(half).collect()
    };
    match s {
        2 => [-1, 1].map(|n| half(&q(n, 3) * &sqrt(&q(3, 1)))).into(),
        3 => [-1, 0, 1].map(|n| half(&q(n, 5) * &sqrt(&q(15, 1)))).into(),
        4 => {
            // ± √(3/7 ± 2/7·√(6/5))
            let root = |sign: i64| sqrt(&(&q(3, 7) + &(&q(2 * sign, 7) * &sqrt(&q(6, 5)))));
            pair(root(1), root(-1), None)
        }
        _ => {
            // ± 1/3·√(5 ± 2·√(10/7))
            let root =
                |sign: i64| &q(1, 3) * &sqrt(&(&q(5, 1) + &(&q(2 * sign, 1) * &sqrt(&q(10, 7)))));
            pair(root(1), root(-1), Some(Exact::zero()))
        }
    }
}

/// Order 2s, symplectic, symmetric, A-stable with the diagonal Padé approximant (Hairer & Wanner 1996, IV.5).
#[test]
fn gauss_methods() {
    for s in 2..=5 {
        let nodes = gauss(s);
        assert_eq!(collocation_order(&nodes), 2 * s);
        let t = collocation(&nodes);
        assert_eq!(order(&t), 2 * s, "{s} stages");
        assert_eq!(t.nodes(), nodes);
        let p = Properties::new(&t);
        assert!(p.symplectic && p.symmetric && p.stages == s && p.weights == s);
        let stability = Stability::new(&t).unwrap();
        let f = &stability.function;
        assert_eq!(stability.a_stable, Some(true));
        assert_eq!(f.numerator.mirrored(), f.denominator);
        // The coefficient of z in the approximant (s, s) is s/(2s) and that of z² s(s − 1)/(2s(2s − 1)·2).
        let n = s as i64;
        assert_eq!(f.numerator.coefficient(1), q(1, 2));
        assert_eq!(
            f.numerator.coefficient(2),
            q(n * (n - 1), 4 * n * (2 * n - 1))
        );
    }
}

/// One node moved by 10⁻²⁰ costs all orders above s.
#[test]
fn a_gauss_method_that_is_not_quite() {
    let mut nodes = gauss(4);
    nodes[0] = &nodes[0] + &Exact::decimal("1e-20").unwrap();
    assert_eq!(order(&collocation(&nodes)), 4);
}

/// The steps of several methods with their fractions of h, one after the other.
fn composed(parts: &[(Exact, Tableau)]) -> Tableau {
    let stages: usize = parts.iter().map(|(_, t)| t.stages()).sum();
    let (mut a, mut b) = (Vec::new(), Vec::<Exact>::new());
    for (h, t) in parts {
        for row in &t.a {
            let own = row.iter().map(|x| x * h);
            let mut row: Vec<Exact> = b.iter().cloned().chain(own).collect();
            row.resize(stages, Exact::zero());
            a.push(row);
        }
        b.extend(t.b.iter().map(|x| x * h));
    }
    Tableau::single(a, b)
}

/// `a*ᵢⱼ = b_{s+1−j} − a_{s+1−i,s+1−j}` (Hairer, Nørsett & Wanner 1993, II.8).
fn adjoint(t: &Tableau) -> Tableau {
    let s = t.stages();
    let entry = |i: usize, j: usize| &t.b[s - 1 - j] - &t.a[s - 1 - i][s - 1 - j];
    let row = |i| (0..s).map(|j| entry(i, j)).collect();
    Tableau::single(
        (0..s).map(row).collect(),
        t.b.iter().rev().cloned().collect(),
    )
}

/// Symmetric methods of order p, three times with 1/(2 − 2^(1/(p+1))): order p + 2 (Yoshida 1990; Hairer, Lubich & Wanner
/// 2006, II.4).
#[test]
fn triple_jumps() {
    for (p, t) in [(2, collocation(&[q(1, 2)])), (4, collocation(&gauss(2)))] {
        let outer = (&q(2, 1) - &q(2, 1).root(p + 1).unwrap()).recip().unwrap();
        let middle = &q(1, 1) - &(&q(2, 1) * &outer);
        let parts = [outer.clone(), middle, outer].map(|h| (h, t.clone()));
        assert_eq!(order(&composed(&parts)), p as usize + 2);
    }
}

/// Explicit methods of two, three and four stages with their orders (Butcher 1964; Hairer, Nørsett & Wanner 1993, II.1; Lambert 1991,
/// 5.6); no explicit method of s ≤ 4 stages has a higher order than s.
fn explicit(stages: usize, c2: &Exact, c3: &Exact) -> Option<Tableau> {
    let (zero, one) = (Exact::zero(), Exact::one());
    let sum = |terms: &[(i64, &Exact)]| -> Exact { terms.iter().map(|(n, x)| &q(*n, 1) * x).sum() };
    let difference = c3 - c2;
    let (a, tail) = match stages {
        2 => {
            let b2 = over(&q(1, 2), c2);
            (vec![vec![c2.clone()]], vec![b2])
        }
        3 => {
            let turn = sum(&[(2, &one), (-3, c2)]);
            if difference.is_zero() || turn.is_zero() {
                return None;
            }
            let b2 = over(
                &sum(&[(3, c3), (-2, &one)]),
                &(&q(6, 1) * &(c2 * &difference)),
            );
            let b3 = over(&turn, &(&q(6, 1) * &(c3 * &difference)));
            let a32 = over(&(c3 * &difference), &(c2 * &turn));
            (vec![vec![c2.clone()], vec![c3 - &a32, a32]], vec![b2, b3])
        }
        _ => {
            let (u, v) = (&one - c2, &one - c3);
            let turn = sum(&[(1, &one), (-2, c2)]);
            let common = &(&q(6, 1) * &(c2 * c3)) + &sum(&[(-4, c2), (-4, c3), (3, &one)]);
            let divisors = [&difference, &u, &v, &turn, &common];
            if divisors.iter().any(|x| x.is_zero()) {
                return None;
            }
            let twelve = q(12, 1);
            let two = sum(&[(2, c3), (-1, &one)]);
            let b2 = over(&two, &product([&twelve, c2, &u, &difference].into_iter()));
            let b3 = over(&turn, &product([&twelve, c3, &v, &difference].into_iter()));
            let b4 = over(&common, &product([&twelve, &u, &v].into_iter()));
            let a32 = over(
                &(c3 * &difference),
                &product([&q(2, 1), c2, &turn].into_iter()),
            );
            let bracket = &sum(&[(1, c2), (1, c3), (-1, &one)]) - &(&two * &two);
            let below = product([&q(2, 1), c2, &difference, &common].into_iter());
            let a42 = over(&(&u * &bracket), &below);
            let below = product([c3, &difference, &common].into_iter());
            let a43 = over(&product([&turn, &u, &v].into_iter()), &below);
            let a41 = &(&one - &a42) - &a43;
            let rows = vec![vec![c2.clone()], vec![c3 - &a32, a32], vec![a41, a42, a43]];
            (rows, vec![b2, b3, b4])
        }
    };
    let rest: Exact = tail.iter().cloned().sum();
    let filled = |row: Vec<Exact>| {
        let mut row = row;
        row.resize(stages, zero.clone());
        row
    };
    let rows = [Vec::new()].into_iter().chain(a).map(filled);
    let b = [&one - &rest].into_iter().chain(tail);
    Some(Tableau::single(rows.collect(), b.collect()))
}

fn fraction() -> impl Strategy<Value = Exact> {
    (-9i64..10, 1i64..10)
        .prop_filter("not 0", |(n, _)| *n != 0)
        .prop_map(|(n, d)| q(n, d))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn collocation_has_the_order_of_its_quadrature(nodes in prop::collection::btree_set(fraction(), 1..5)) {
        let nodes: Vec<Exact> = nodes.into_iter().collect();
        let p = order(&collocation(&nodes));
        prop_assert!(p >= nodes.len());
        prop_assert_eq!(p, collocation_order(&nodes));
    }

    /// With nodes from nested roots.
    #[test]
    fn collocation_at_irrational_nodes(a in 2i64..6, c in prop::sample::select(vec![2i64, 3])) {
        let root = |sign: i64| sqrt(&(&q(a, 1) + &(&q(sign, 1) * &sqrt(&q(c, 1)))));
        let nodes = [root(1), root(-1), Exact::zero()];
        prop_assert_eq!(order(&collocation(&nodes)), collocation_order(&nodes));
    }

    #[test]
    fn explicit_families(s in 2usize..5, c2 in fraction(), c3 in fraction()) {
        if let Some(t) = explicit(s, &c2, &c3) {
            prop_assert_eq!(order(&t), s);
            // Two steps of half the size have the same order; with the adjoint it is even.
            let half = q(1, 2);
            let twice = composed(&[(half.clone(), t.clone()), (half.clone(), t.clone())]);
            prop_assert_eq!(order(&twice), s);
            prop_assert_eq!(order(&adjoint(&t)), s);
            let symmetric = composed(&[(half.clone(), t.clone()), (half, adjoint(&t))]);
            let p = order(&symmetric);
            prop_assert!(p >= s && p.is_multiple_of(2), "{} from {}", p, s);
        }
    }

    /// One coefficient changed: the order is lost.
    #[test]
    fn changed_families(s in 3usize..5, c2 in fraction(), c3 in fraction(), off in 1i64..20) {
        if let Some(mut t) = explicit(s, &c2, &c3) {
            t.b[1] = &t.b[1] + &q(off, 1_000_000);
            t.b[2] = &t.b[2] - &q(off, 1_000_000);
            if c2 != c3 {
                prop_assert_eq!(order(&t), 1);
            }
        }
    }
}

/// An explicit tableau's entries: those of A below the diagonal, row by row, then b.
fn entries(t: &Tableau) -> Vec<Exact> {
    let below = t.a.iter().enumerate().flat_map(|(i, row)| &row[..i]);
    below.chain(&t.b).cloned().collect()
}

/// The conditions up to an order in changes of all these entries.
fn conditions(t: &Tableau, order: usize) -> Vec<Jet> {
    let space = Space::new(64, 1_000_000);
    let mut left = entries(t).into_iter().enumerate();
    let mut next = || {
        left.next()
            .map(|(v, x)| Jet::variable(v as u32, &x, &space))
    };
    let mut steps = Vec::new();
    for row in 0..=t.stages() {
        let mut terms = vec![(0, Jet::constant(&Exact::one()))];
        // Stage j is evaluated in step 2j + 1.
        terms.extend((0..row).map(|j| (2 * j + 2, next().unwrap())));
        steps.push(Step::Combine(terms));
        if row < t.stages() {
            steps.push(Step::Eval {
                field: 0,
                at: steps.len(),
            });
        }
    }
    let line = LinearStep {
        fields: vec!["F".into()],
        result: steps.len(),
        steps,
        embedded: None,
    };
    let (mut series, _) = Series::of(&line);
    let mut trees = Trees::new(1);
    let mut all = Vec::new();
    for n in 1..=order {
        trees.grow();
        for tree in trees.of_order(n) {
            let exact = Jet::constant(&expected(&trees, tree));
            all.push(series.value(&trees, tree).minus(&exact));
        }
    }
    all
}

fn chart(t: &Tableau, order: usize) -> Result<Chart, NoChart> {
    let n = entries(t).len();
    let one = |v: usize| (0..n).map(move |w| Exact::int(i64::from(v == w)));
    blocks::chart(
        &conditions(t, order),
        &(0..n).map(|v| one(v).collect()).collect(),
    )
}

/// The method whose entries changed so.
fn changed(t: &Tableau, changes: &[Exact]) -> Tableau {
    let mut new = t.clone();
    let mut left = changes.iter();
    for (i, row) in new.a.iter_mut().enumerate() {
        row[..i]
            .iter_mut()
            .zip(left.by_ref())
            .for_each(|(a, d)| *a = &*a + d);
    }
    new.b.iter_mut().zip(left).for_each(|(b, d)| *b = &*b + d);
    new
}

/// All ten entries of RK4 move on the methods of order 3, with short polynomials. One condition of order 4 is a consequence of the
/// others there, and it is said.
#[test]
fn conditions_are_solved_in_blocks() {
    let rk4 = crate::written::rk4();
    let found = chart(&rk4, 3).unwrap();
    assert_eq!((found.free, found.basis.len()), (6, 10));
    let quotients = || found.bound.iter().flat_map(|q| [&q.over, &q.under]);
    assert!(found.bound.len() < 60, "{}", found.bound.len());
    assert!(quotients().all(|j| j.terms().count() <= 32));
    assert_eq!(
        found.at(&vec![Exact::zero(); 6]),
        Some(vec![Exact::zero(); 10])
    );
    assert!(matches!(chart(&rk4, 4), Err(NoChart::NotTriangular(_))));
}

proptest! {
    /// Wherever the free directions lead, the order stays.
    #[test]
    fn blocks_stay_on_their_manifold(free in prop::collection::vec((-9i64..10, 9i64..40), 6)) {
        let rk4 = crate::written::rk4();
        let free: Vec<Exact> = free.iter().map(|(n, d)| q(*n, *d)).collect();
        if let Some(changes) = chart(&rk4, 3).unwrap().at(&free) {
            prop_assert!(order(&changed(&rk4, &changes)) >= 3);
        }
    }
}
