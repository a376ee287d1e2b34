//! The differential equations that methods are measured on, with their solutions.
//!
//! All are systems of the same width and form, so that one set of kernels serves all methods:
//! `F(x) = L·x + P·(Ax ∘ Bx ∘ Cx) + Q·e^(Dx)`. For methods of several fields each term of the sum is shared out among the fields, in other shares
//! for each term, so that they do not commute.
//!
//! [`Problem::General`] holds several equations side by side:
//!
//! | columns | equation | solution |
//! |---|---|---|
//! | `one` | 1' = 0 | a constant, for terms of lower degree |
//! | `t` | t' = 1 | time, for equations that are not autonomous |
//! | `a`, `b` | a' = −a/2 + 2b, b' = −2a − b/2 | a damped oscillation: linear |
//! | `z` | z' = e^−z | ln(e^z₀ + t) |
//! | `w` | w' = e^(t − w) | ln(e^w₀ + e^t − 1) |
//! | `y` | y' = −2ty² | 1/(1/y₀ + t²) |
//! | `l` | l' = l(1 − l) | the logistic function |
//! | `u`, `v` | u' = −v(u² + v²), v' = u(u² + v²) | a rotation whose speed depends on its radius |
//!
//! Its derivatives of every degree are not zero, so no tree's elementary differential vanishes. Where a method's principal error is small beside the terms after it,
//! as many are made, errors fall faster than hᵖ until they are lost in rounding.
//!
//! [`Problem::Graded`] has no terms after it. Column s_w has weight w, and its derivative is a sum of products of columns whose weights add up to w − 1: `s₁' = 1`,
//! `s₂' = s₁ − 7⁄16 t`, `s₃' = s₂ + ⅝s₁²`, …, the time t weighing 1 as well: a method that knows the time of an evaluation better than its state
//! still makes the errors of s₁. An elementary differential of m vertices takes m from the weight, so those of more than w vanish in columns up
//! to w, and those of exactly w are constants. With p + 1 columns a method of order p makes the same error c·hᵖ⁺¹ in each step, in the last column alone, which
//! nothing reads: after N = T/h steps c·T·hᵖ exactly. (The equations of single trees, Hairer, Nørsett & Wanner 1993, II.2, exercise 4, put together.)
//!
//! [`Problem::Second`] is for methods for x'' = F(x), with V(x) the velocity at time 0:
//!
//! | columns | equation | solution |
//! |---|---|---|
//! | `t` | t'' = 0 | time |
//! | `a` | a'' = −4a | an oscillation: linear |
//! | `z` | z'' = e^−2z | ln cosh(t + c) |
//! | `w` | w'' = (1 + t²)w | w₀ e^(t²/2) |
//! | `y` | y'' = 2y³ | 1/(t + c) |
//! | `u`, `v` | u'' = −u(u² + v²), v'' = −v(u² + v²) | a rotation on a circle |
//!
//! Leaves graphs to [`super::graph`].

/// Columns of the state.
pub const WIDTH: usize = 16;
/// The highest order that a graded system can show.
pub const MAX_GRADED: usize = MAX_WEIGHT - 1;
/// The most weights that there are columns for, beside the constant and the time.
const MAX_WEIGHT: usize = WIDTH - 2;
/// What is 1 in all problems whose time is that of evaluations.
pub(super) const ONE: usize = 0;
/// Time, in all problems.
pub(super) const T: usize = 1;
const A: usize = 2;
const B: usize = 3;
const Z: usize = 4;
const W: usize = 5;
const Y: usize = 6;
const L: usize = 7;
const U: usize = 8;
const V: usize = 9;

/// Products and exponentials of a field, some of which may not be used.
const PRODUCTS: usize = 40;
const EXPONENTIALS: usize = 2;

/// Coefficient, the column of the result, and three columns that are multiplied.
type Product = (f64, usize, [usize; 3]);

/// A right-hand side.
#[derive(Default)]
struct Terms {
    /// Coefficient, the column of the result, and the column that it is a multiple of.
    linear: Vec<(f64, usize, usize)>,
    products: Vec<Product>,
    /// The column of the result, and the combination of columns in the exponent.
    exponentials: Vec<(usize, Vec<(usize, f64)>)>,
}

/// An equation with its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    General,
    /// As many weights as the method's order, and one.
    Graded(usize),
    /// The number of the field that is the force; others give the velocity at time 0.
    Second {
        force: usize,
    },
}

/// What `z`, `y` and the circle of [`Problem::Second`] are at time 0.
const SHIFT: f64 = 0.5;
const DISTANCE: f64 = 1.25;
const RADIUS: f64 = 0.8;

impl Problem {
    fn terms(self) -> Terms {
        match self {
            Problem::General => Terms {
                linear: vec![
                    (1.0, T, ONE),
                    (-0.5, A, A),
                    (2.0, A, B),
                    (-2.0, B, A),
                    (-0.5, B, B),
                    (1.0, L, L),
                ],
                products: vec![
                    (-2.0, Y, [T, Y, Y]),
                    (-1.0, L, [L, L, ONE]),
                    (-1.0, U, [V, U, U]),
                    (-1.0, U, [V, V, V]),
                    (1.0, V, [U, U, U]),
                    (1.0, V, [U, V, V]),
                ],
                exponentials: vec![(Z, vec![(Z, -1.0)]), (W, vec![(T, 1.0), (W, -1.0)])],
            },
            Problem::Second { .. } => Terms {
                linear: vec![(-4.0, A, A), (1.0, W, W)],
                products: vec![
                    (2.0, Y, [Y, Y, Y]),
                    (1.0, W, [T, T, W]),
                    (-1.0, U, [U, U, U]),
                    (-1.0, U, [U, V, V]),
                    (-1.0, V, [V, U, U]),
                    (-1.0, V, [V, V, V]),
                ],
                exponentials: vec![(Z, vec![(Z, -2.0)])],
            },
            Problem::Graded(weights) => {
                let mut t = Terms::default();
                t.linear.push((1.0, T, ONE));
                for w in 1..=weights {
                    let (row, m) = (weighing(w), w - 1);
                    t.linear.push((1.0, row, weighing(m)));
                    if m == 1 {
                        t.linear.push((-0.4375, row, T));
                    }
                    if m >= 2 {
                        let halves = [m / 2, m - m / 2].map(weighing);
                        t.products.push((0.625, row, [halves[0], halves[1], ONE]));
                    }
                    if m >= 3 {
                        let rest = m - 1;
                        let halves = [rest / 2, rest - rest / 2].map(weighing);
                        let first = weighing(1);
                        t.products
                            .push((-0.375, row, [first, halves[0], halves[1]]));
                        t.products.push((0.8125, row, [T, weighing(rest), ONE]));
                    }
                }
                t
            }
        }
    }

    /// The state at time 0.
    pub fn start(self) -> [f64; WIDTH] {
        let mut x = [0.0; WIDTH];
        x[ONE] = 1.0;
        match self {
            Problem::General => {
                x[A..=V].copy_from_slice(&[0.75, -0.5, 0.25, 0.5, 0.875, 0.375, 0.625, -0.5]);
            }
            Problem::Second { .. } => return second(0.0),
            Problem::Graded(_) => {}
        }
        x
    }

    /// What a field is to be of the terms: of second order the force has all, the others are the velocity at time 0, a multiple of
    /// the column that is 1.
    fn terms_of(self, j: usize) -> Terms {
        match self {
            Problem::Second { force } if j != force => Terms {
                linear: VELOCITY.map(|(v, row)| (v, row, ONE)).to_vec(),
                ..Terms::default()
            },
            _ => self.terms(),
        }
    }

    /// The part of term `k` that field `j` of `n` has.
    fn part(self, j: usize, n: usize, k: usize) -> f64 {
        match self {
            Problem::Second { .. } => 1.0,
            _ => share(j, n, k),
        }
    }

    /// The state at a time, to the last place but a few.
    pub fn exact(self, t: f64) -> [f64; WIDTH] {
        match self {
            Problem::General => general(t),
            Problem::Second { .. } => second(t),
            Problem::Graded(weights) => graded(&self.terms(), weights, t),
        }
    }

    /// The Euclidean distance of a state from the solution.
    pub fn error(self, state: &[f64], t: f64) -> f64 {
        let off = state
            .iter()
            .zip(self.exact(t))
            .map(|(x, y)| (x - y).powi(2));
        off.sum::<f64>().sqrt()
    }

    /// The matrices of a system of `n` fields: what they share, then `field.0.linear`, ….
    pub fn matrices(self, n: usize) -> Vec<Matrix> {
        self.matrices_of(&vec![false; n])
    }

    /// The same, where these fields are linear.
    pub fn matrices_of(self, is_linear: &[bool]) -> Vec<Matrix> {
        let n = is_linear.len();
        let others: Vec<usize> = (0..n).filter(|j| !is_linear[*j]).collect();
        let place = |j: usize| others.iter().position(|o| *o == j);
        let share_of = |j: usize, k: usize| match place(j) {
            Some(j) => self.part(j, others.len(), k),
            None => 0.0,
        };
        let terms = self.terms();
        let factors = ["a", "b", "c"].iter().enumerate().map(|(i, name)| {
            let mut m = Matrix::zeros(*name, PRODUCTS, WIDTH);
            for (k, (_, _, of)) in terms.products.iter().enumerate() {
                m.set(k, of[i], 1.0);
            }
            m
        });
        let mut all: Vec<Matrix> = factors.collect();
        let mut d = Matrix::zeros("d", EXPONENTIALS, WIDTH);
        for (k, (_, exponent)) in terms.exponentials.iter().enumerate() {
            for (col, c) in exponent {
                d.set(k, *col, *c);
            }
        }
        all.push(d);
        for j in 0..n {
            let of = |name: &str| format!("field.{j}.{name}");
            let mut linear = Matrix::zeros(of("linear"), WIDTH, WIDTH);
            let mut product = Matrix::zeros(of("product"), WIDTH, PRODUCTS);
            let mut exponential = Matrix::zeros(of("exponential"), WIDTH, EXPONENTIALS);
            let own = self.terms_of(j);
            for (k, (c, row, from)) in own.linear.iter().enumerate() {
                linear.set(*row, *from, c * self.part(j, n, k));
            }
            for (k, (c, row, _)) in own.products.iter().enumerate() {
                product.set(*row, k, c * share_of(j, k + 1));
            }
            for (k, (row, _)) in own.exponentials.iter().enumerate() {
                exponential.set(*row, k, share_of(j, k + 2));
            }
            all.extend([linear, product, exponential]);
        }
        all
    }
}

fn general(t: f64) -> [f64; WIDTH] {
    let x = Problem::General.start();
    let damped = (-t / 2.0).exp();
    let (sin, cos) = (2.0 * t).sin_cos();
    let turned = (x[U] * x[U] + x[V] * x[V]) * t;
    let mut at = [0.0; WIDTH];
    at[ONE] = 1.0;
    at[T] = t;
    at[A] = damped * (x[A] * cos + x[B] * sin);
    at[B] = damped * (x[B] * cos - x[A] * sin);
    at[Z] = (x[Z].exp() + t).ln();
    at[W] = (x[W].exp() + t.exp_m1()).ln();
    at[Y] = 1.0 / (1.0 / x[Y] + t * t);
    at[L] = 1.0 / (1.0 + (1.0 / x[L] - 1.0) * (-t).exp());
    at[U] = x[U] * turned.cos() - x[V] * turned.sin();
    at[V] = x[U] * turned.sin() + x[V] * turned.cos();
    at
}

/// Velocities at time 0, and their columns.
const VELOCITY: [(f64, usize); 5] = [
    (1.0, T),
    (1.0, A),
    (0.462_117_157_260_009_8, Z),
    (-1.0 / (DISTANCE * DISTANCE), Y),
    (RADIUS * RADIUS, V),
];

fn second(t: f64) -> [f64; WIDTH] {
    let mut at = [0.0; WIDTH];
    at[ONE] = 1.0;
    at[T] = t;
    at[A] = 0.75 * (2.0 * t).cos() + 0.5 * (2.0 * t).sin();
    at[Z] = (t + SHIFT).cosh().ln();
    at[W] = 0.5 * (t * t / 2.0).exp();
    at[Y] = 1.0 / (t + DISTANCE);
    at[U] = RADIUS * (RADIUS * t).cos();
    at[V] = RADIUS * (RADIUS * t).sin();
    at
}

/// The column of a weight in graded systems; that of weight 0 is the constant.
fn weighing(weight: usize) -> usize {
    match weight {
        0 => ONE,
        w => T + w,
    }
}

/// From zero, a column of weight w is a multiple of tʷ.
fn graded(terms: &Terms, weights: usize, t: f64) -> [f64; WIDTH] {
    let mut at = Problem::Graded(weights).start();
    at[T] = t;
    for w in 1..=weights {
        let own = weighing(w);
        let linear = terms.linear.iter().filter(|(_, row, _)| *row == own);
        let products = terms.products.iter().filter(|(_, row, _)| *row == own);
        let slope: f64 = linear.map(|(c, _, from)| c * at[*from]).sum::<f64>()
            + products
                .map(|(c, _, [i, j, k])| c * at[*i] * at[*j] * at[*k])
                .sum::<f64>();
        at[own] = slope * t / w as f64;
    }
    at
}

/// A matrix of the field: its name, rows, and elements row by row.
pub struct Matrix {
    pub path: String,
    pub rows: usize,
    pub values: Vec<f64>,
}

impl Matrix {
    fn zeros(path: impl Into<String>, rows: usize, cols: usize) -> Matrix {
        Matrix {
            path: path.into(),
            rows,
            values: vec![0.0; rows * cols],
        }
    }

    pub fn cols(&self) -> usize {
        self.values.len() / self.rows
    }

    fn set(&mut self, row: usize, col: usize, value: f64) {
        let cols = self.cols();
        self.values[row * cols + col] += value;
    }
}

/// The part of term `k` that field `j` of `n` has.
fn share(j: usize, n: usize, k: usize) -> f64 {
    let part = |j: usize| (1 + (3 * k + 2 * j + j * k) % 4) as f64;
    let whole: f64 = (0..n).map(part).sum();
    part(j) / whole
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of all fields at a state.
    fn field(problem: Problem, n: usize, x: &[f64]) -> Vec<f64> {
        sum_of(problem, n, 0..n, x)
    }

    /// The sum of some of so many fields at a state.
    fn sum_of(problem: Problem, n: usize, of: std::ops::Range<usize>, x: &[f64]) -> Vec<f64> {
        let all = problem.matrices(n);
        let times = |path: &str, x: &[f64]| -> Vec<f64> {
            let m = all.iter().find(|m| m.path == path).unwrap();
            let row = |r: &[f64]| r.iter().zip(x).map(|(m, x)| m * x).sum();
            m.values.chunks(m.cols()).map(row).collect()
        };
        let [a, b, c] = ["a", "b", "c"].map(|m| times(m, x));
        let product: Vec<f64> = (0..PRODUCTS).map(|k| a[k] * b[k] * c[k]).collect();
        let powers: Vec<f64> = times("d", x).iter().map(|x| x.exp()).collect();
        let mut sum = vec![0.0; WIDTH];
        for j in of {
            let of = |name: &str, x: &[f64]| times(&format!("field.{j}.{name}"), x);
            let parts = [
                of("linear", x),
                of("product", &product),
                of("exponential", &powers),
            ];
            for part in parts {
                sum.iter_mut().zip(part).for_each(|(s, p)| *s += p);
            }
        }
        sum
    }

    /// The solution's derivative, by central differences of fourth order, is the field along it.
    #[test]
    fn the_solutions_solve_the_equations() {
        for problem in [
            Problem::General,
            Problem::Graded(4),
            Problem::Graded(MAX_WEIGHT),
        ] {
            for (n, t) in [(1, 0.0), (2, 0.4), (3, 1.3)] {
                let d = 1e-3;
                let at = |k: f64| problem.exact(t + k * d);
                let (p1, m1, p2, m2) = (at(1.0), at(-1.0), at(2.0), at(-2.0));
                for (i, f) in field(problem, n, &problem.exact(t)).into_iter().enumerate() {
                    let slope = (8.0 * (p1[i] - m1[i]) - (p2[i] - m2[i])) / (12.0 * d);
                    let off = (slope - f).abs() / f.abs().max(1.0);
                    assert!(off < 1e-9, "{problem:?} {n} {t} {i}: {slope} {f}");
                }
            }
            assert!(problem.error(&problem.start(), 0.0) < 1e-15);
        }
    }

    /// The solution's second derivative is the force along it, and its first one at time 0 the velocity.
    #[test]
    fn the_solution_of_second_order_solves_its_equation() {
        let problem = Problem::Second { force: 0 };
        let d = 1e-2;
        let [p3, p2, p1, m1, m2, m3] =
            [3.0, 2.0, 1.0, -1.0, -2.0, -3.0].map(|k| problem.exact(k * d));
        for (i, v) in sum_of(problem, 2, 1..2, &problem.start())
            .into_iter()
            .enumerate()
        {
            let slope =
                (45.0 * (p1[i] - m1[i]) - 9.0 * (p2[i] - m2[i]) + p3[i] - m3[i]) / (60.0 * d);
            assert!((slope - v).abs() < 1e-9, "{i}: {slope} {v}");
        }
        for t in [0.0, 0.4, 1.3] {
            let at = |k: f64| problem.exact(t + k * d);
            let (x, p1, m1, p2, m2) = (at(0.0), at(1.0), at(-1.0), at(2.0), at(-2.0));
            for (i, f) in sum_of(problem, 2, 0..1, &x).into_iter().enumerate() {
                let bend =
                    (16.0 * (p1[i] + m1[i]) - (p2[i] + m2[i]) - 30.0 * x[i]) / (12.0 * d * d);
                assert!(
                    (bend - f).abs() < 1e-5 * f.abs().max(1.0),
                    "{t} {i}: {bend} {f}"
                );
            }
        }
    }
}
