//! Exponential integrators: their coefficients, classical and stiff orders against the literature.

use odec_exact::Exact;
use odec_numerics::exponential::sums::vanishes;
use odec_numerics::exponential::{ExpSum, Exponential, StiffOrder, stiff_order};
use odec_numerics::linear_step::{NoTableau, Step, Value};
use odec_numerics::series::Series;
use odec_numerics::{LinearStep, Trees, prove};
use std::collections::BTreeMap;

fn q(n: i64, d: i64) -> Exact {
    Exact::ratio(n, d)
}

/// A step of x' = L x + F(x), written as it stands in a paper.
struct WrittenStep {
    steps: Vec<Step>,
}

/// `φₖ(c z)` with a weight.
type Phi = (u32, (i64, i64), (i64, i64));

impl WrittenStep {
    fn push(&mut self, step: Step) -> Value {
        self.steps.push(step);
        self.steps.len()
    }

    fn phi(&mut self, index: u32, over: (i64, i64), at: Value) -> Value {
        let over = q(over.0, over.1);
        self.push(Step::Phi {
            field: 0,
            index,
            over,
            at,
        })
    }

    /// `e^{cz}x + Σ a(z) k`.
    fn stage(&mut self, c: (i64, i64), row: &[(Value, &[Phi])]) -> Value {
        let mut terms = vec![(self.phi(0, c, 0), Exact::one())];
        for (k, functions) in row {
            for (index, over, weight) in *functions {
                terms.push((self.phi(*index, *over, *k), q(weight.0, weight.1)));
            }
        }
        self.push(Step::Combine(terms))
    }

    fn eval(&mut self, at: Value) -> Value {
        self.push(Step::Eval { field: 1, at })
    }

    fn line(self, result: Value) -> LinearStep {
        LinearStep {
            fields: vec!["L".into(), "F".into()],
            steps: self.steps,
            result,
            embedded: None,
        }
    }
}

fn made() -> WrittenStep {
    WrittenStep { steps: Vec::new() }
}

const ONE: (i64, i64) = (1, 1);
const HALF: (i64, i64) = (1, 2);

/// The weights of Cox & Matthews' ETDRK4 for nodes 0, 1/2, 1/2, 1, the middle ones in these shares.
fn weights(m: &mut WrittenStep, k: [Value; 4], shares: [i64; 2]) -> Value {
    let middle = |n: i64| [(2, ONE, (2 * n, 1)), (3, ONE, (-4 * n, 1))];
    let first = [(1, ONE, (1, 1)), (2, ONE, (-3, 1)), (3, ONE, (4, 1))];
    let last = [(2, ONE, (-1, 1)), (3, ONE, (4, 1))];
    let (second, third) = (middle(shares[0]), middle(shares[1]));
    m.stage(
        ONE,
        &[
            (k[0], &first),
            (k[1], &second),
            (k[2], &third),
            (k[3], &last),
        ],
    )
}

fn etd2rk() -> LinearStep {
    let mut m = made();
    let k1 = m.eval(0);
    let a = m.stage(ONE, &[(k1, &[(1, ONE, ONE)])]);
    let k2 = m.eval(a);
    let end = m.stage(
        ONE,
        &[
            (k1, &[(1, ONE, ONE), (2, ONE, (-1, 1))]),
            (k2, &[(2, ONE, ONE)]),
        ],
    );
    m.line(end)
}

/// Cox & Matthews 2002, equations 26 to 29, with the third stage from the first.
fn etdrk4() -> LinearStep {
    let mut m = made();
    let half: [Phi; 1] = [(1, HALF, HALF)];
    let k1 = m.eval(0);
    let a = m.stage(HALF, &[(k1, &half)]);
    let k2 = m.eval(a);
    let b = m.stage(HALF, &[(k2, &half)]);
    let k3 = m.eval(b);
    let from = m.phi(0, HALF, a);
    let terms = [
        (from, Exact::one()),
        (m.phi(1, HALF, k3), Exact::one()),
        (m.phi(1, HALF, k1), q(-1, 2)),
    ];
    let c = m.push(Step::Combine(terms.to_vec()));
    let k4 = m.eval(c);
    let end = weights(&mut m, [k1, k2, k3, k4], [1, 1]);
    m.line(end)
}

fn krogstad4() -> LinearStep {
    let mut m = made();
    let k1 = m.eval(0);
    let a = m.stage(HALF, &[(k1, &[(1, HALF, HALF)])]);
    let k2 = m.eval(a);
    let b = m.stage(
        HALF,
        &[
            (k1, &[(1, HALF, HALF), (2, HALF, (-1, 1))]),
            (k2, &[(2, HALF, ONE)]),
        ],
    );
    let k3 = m.eval(b);
    let c = m.stage(
        ONE,
        &[
            (k1, &[(1, ONE, ONE), (2, ONE, (-2, 1))]),
            (k3, &[(2, ONE, (2, 1))]),
        ],
    );
    let k4 = m.eval(c);
    let end = weights(&mut m, [k1, k2, k3, k4], [1, 1]);
    m.line(end)
}

fn strehmel_weiner4() -> LinearStep {
    let mut m = made();
    let k1 = m.eval(0);
    let a = m.stage(HALF, &[(k1, &[(1, HALF, HALF)])]);
    let k2 = m.eval(a);
    let b = m.stage(
        HALF,
        &[
            (k1, &[(1, HALF, HALF), (2, HALF, (-1, 2))]),
            (k2, &[(2, HALF, HALF)]),
        ],
    );
    let k3 = m.eval(b);
    let c = m.stage(
        ONE,
        &[
            (k1, &[(1, ONE, ONE), (2, ONE, (-2, 1))]),
            (k2, &[(2, ONE, (-2, 1))]),
            (k3, &[(2, ONE, (4, 1))]),
        ],
    );
    let k4 = m.eval(c);
    let end = weights(&mut m, [k1, k2, k3, k4], [0, 2]);
    m.line(end)
}

/// Hochbruck & Ostermann 2005, equation 5.19.
fn hochbruck_ostermann4() -> LinearStep {
    let mut m = made();
    let k1 = m.eval(0);
    let a = m.stage(HALF, &[(k1, &[(1, HALF, HALF)])]);
    let k2 = m.eval(a);
    let b = m.stage(
        HALF,
        &[
            (k1, &[(1, HALF, HALF), (2, HALF, (-1, 1))]),
            (k2, &[(2, HALF, ONE)]),
        ],
    );
    let k3 = m.eval(b);
    let c = m.stage(
        ONE,
        &[
            (k1, &[(1, ONE, ONE), (2, ONE, (-2, 1))]),
            (k2, &[(2, ONE, ONE)]),
            (k3, &[(2, ONE, ONE)]),
        ],
    );
    let k4 = m.eval(c);
    // a52 = φ₂(z/2)/2 − φ₃(z) + φ₂(z)/4 − φ₃(z/2)/2
    let a52 = |n: i64| -> Vec<Phi> {
        vec![
            (2, HALF, (n, 2)),
            (3, ONE, (-n, 1)),
            (2, ONE, (n, 4)),
            (3, HALF, (-n, 2)),
        ]
    };
    // a54 = φ₂(z/2)/4 − a52, a51 = φ₁(z/2)/2 − 2 a52 − a54
    let mut a54 = a52(-1);
    a54.push((2, HALF, (1, 4)));
    let mut a51 = a52(-1);
    a51.extend([(1, HALF, HALF), (2, HALF, (-1, 4))]);
    let d = m.stage(
        HALF,
        &[(k1, &a51), (k2, &a52(1)), (k3, &a52(1)), (k4, &a54)],
    );
    let k5 = m.eval(d);
    let end = weights(&mut m, [k1, k5, k5, k4], [1, 1]);
    m.line(end)
}

fn lawson4() -> LinearStep {
    let mut m = made();
    let k1 = m.eval(0);
    let a = m.stage(HALF, &[(k1, &[(0, HALF, HALF)])]);
    let k2 = m.eval(a);
    let b = m.stage(HALF, &[(k2, &[(0, (0, 1), HALF)])]);
    let k3 = m.eval(b);
    let c = m.stage(ONE, &[(k3, &[(0, HALF, ONE)])]);
    let k4 = m.eval(c);
    let end = m.stage(
        ONE,
        &[
            (k1, &[(0, ONE, (1, 6))]),
            (k2, &[(0, HALF, (1, 3))]),
            (k3, &[(0, HALF, (1, 3))]),
            (k4, &[(0, (0, 1), (1, 6))]),
        ],
    );
    m.line(end)
}

fn classical(line: &LinearStep) -> usize {
    let mut trees = Trees::new(2).linear(line.linear());
    let mut series = Series::new(line).expect("a series");
    prove(&mut series, &mut trees, 6, None).order
}

fn stiff(line: &LinearStep) -> StiffOrder {
    stiff_order(&Exponential::new(line).expect("coefficients")).expect("short ones")
}

/// Hochbruck & Ostermann 2005, section 5: Cox and Matthews' method has stiff order 2, Krogstad's and Strehmel and Weiner's 3.
#[test]
fn orders_of_the_literature() {
    for (name, line, order, stiffly, strong) in [
        ("etd2rk", etd2rk(), 2, 2, true),
        ("etdrk4", etdrk4(), 4, 2, true),
        ("krogstad4", krogstad4(), 4, 3, true),
        ("strehmel_weiner4", strehmel_weiner4(), 4, 3, true),
        ("hochbruck_ostermann4", hochbruck_ostermann4(), 4, 4, false),
        ("lawson4", lawson4(), 4, 1, false),
    ] {
        assert_eq!(classical(&line), order, "{name}");
        let found = stiff(&line);
        assert_eq!(
            (found.order, found.strong),
            (stiffly, strong),
            "{name} {found:?}"
        );
    }
}

/// One wrong coefficient anywhere takes the stiff order, and a line that is written otherwise keeps it.
#[test]
fn each_weight_matters() {
    let right = hochbruck_ostermann4();
    for (i, step) in right.steps.iter().enumerate() {
        let Step::Combine(terms) = step else {
            continue;
        };
        for j in 1..terms.len() {
            let mut wrong = right.clone();
            if let Step::Combine(terms) = &mut wrong.steps[i] {
                terms[j].1 = &terms[j].1 + &q(1, 7);
            }
            let found = stiff(&wrong);
            assert!(found.order < 4, "{i} {j}: {found:?}");
            assert!(classical(&wrong) < 4, "{i} {j}");
        }
    }
    // x + φ₁(z)(F(x) + L x) is exponential Euler as well.
    let mut m = made();
    let l = m.push(Step::Eval { field: 0, at: 0 });
    let k = m.eval(0);
    let slope = m.push(Step::Combine(vec![(l, q(1, 1)), (k, q(1, 1))]));
    let moved = m.phi(1, ONE, slope);
    let end = m.push(Step::Combine(vec![(0, q(1, 1)), (moved, q(1, 1))]));
    let line = m.line(end);
    assert_eq!((classical(&line), stiff(&line).order), (1, 1));
    assert!(stiff(&line).strong);
}

/// What is no exponential method is refused, at its value.
#[test]
fn refusals() {
    let mut m = made();
    let l = m.push(Step::Eval { field: 0, at: 0 });
    let y = m.push(Step::Combine(vec![(0, q(1, 1)), (l, q(1, 1))]));
    let k = m.eval(y);
    let end = m.stage(ONE, &[(k, &[(1, ONE, ONE)])]);
    let line = m.line(end);
    let unfit = Exponential::new(&line).expect_err("a stage that is Euler's");
    assert_eq!(unfit.value, y);
    assert!(matches!(line.tableau(), Err(NoTableau::Phi(_))));
    let mut m = made();
    let k = m.eval(0);
    let end = m.push(Step::Combine(vec![(0, q(1, 1)), (k, q(1, 1))]));
    assert!(Exponential::new(&m.line(end)).is_err(), "no linear field");
}

/// `φₖ(z) = z φₖ₊₁(z) + 1/k!`, `e^{z/2} e^{z/2} = e^z`, values at 0, and no relation that does not hold.
#[test]
fn functions_as_sums() {
    let mut factorial = Exact::one();
    for k in 0..8u32 {
        for c in [q(1, 1), q(1, 2), q(-3, 7), q(0, 1)] {
            let phi = ExpSum::phi(k, &c);
            assert_eq!(phi.at_zero(), factorial.recip().expect("not 0"));
            let next = ExpSum::phi(k + 1, &c).scaled(&c);
            let next = next.times(&ExpSum::variable()).expect("short");
            let constant = ExpSum::constant(phi.at_zero());
            assert!(phi.minus(&next).minus(&constant).is_zero(), "{k} {c}");
        }
        factorial = &factorial * &Exact::int(i64::from(k) + 1);
    }
    let half = ExpSum::phi(0, &q(1, 2));
    let square = half.times(&half).expect("short");
    assert_eq!(square.as_exponential(), Some(&Exact::one()));
    assert!(
        !ExpSum::phi(2, &q(1, 1))
            .minus(&ExpSum::phi(2, &q(1, 2)))
            .is_zero()
    );
    // In two variables f ⊗ g is not g ⊗ f.
    let (f, g) = (ExpSum::phi(1, &q(1, 1)), ExpSum::phi(2, &q(1, 1)));
    let less = f.scaled(&Exact::int(-1));
    assert_eq!(
        vanishes(&[vec![f.clone(), g.clone()], vec![g.clone(), less.clone()]]),
        Some(false)
    );
    assert_eq!(vanishes(&[vec![f, g.clone()], vec![less, g]]), Some(true));
}

/// Vertices of a linear field have one child at most: trees of one linear and one other field, as many as there are.
#[test]
fn trees_of_linear_fields() {
    let mut trees = Trees::new(2).linear(vec![true, false]);
    while trees.orders() < 5 && trees.grow() {}
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for n in 1..=5 {
        *counts.entry(n).or_default() += trees.of_order(n).count();
        for t in trees.of_order(n) {
            let children = trees.children(t);
            assert!(trees.colour(t) == 1 || children.len() < 2);
        }
    }
    // 2; l[·], f[·]: 4; l over 4, f over 4 or over pairs of 2 single vertices, 3: 11; …
    assert_eq!(counts[&1], 2);
    assert_eq!(counts[&2], 4);
    assert_eq!(counts[&3], 11);
}
