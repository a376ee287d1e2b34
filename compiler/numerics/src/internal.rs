//! Internal stability: how the rest of a step amplifies a rounding error of one stage (Verwer & Sommeijer 1990; Hairer & Wanner 1996,
//! IV.2; Ketcheson, Lóczi & Parsani 2014, SIAM J. Numer. Anal. 52, 2226).
//!
//! On `x' = λx` an error r at stage j adds `Qⱼ(z) r` to the result, a polynomial in z that depends on how the step is written: it is found by going
//! backwards through the line. The largest |Qⱼ| on the real interval of stability is enclosed by its values at N Chebyshev points: a polynomial of degree
//! n < N is at most `1/cos(πn/2N)` times larger between them (Ehlich & Zeller 1964). The values are computed in fixed-point numbers with a bound of their error, which is
//! why there are as many digits as the bound asks for.

use crate::linear_step::{LinearStep, Step, Value};
use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};
use odec_exact::Exact;

/// Points for each degree.
const POINTS: usize = 16;
/// Most products that are formed.
const MAX_WORK: usize = 2_000_000;
/// Binary digits after the point: at first, for each evaluation more, and at most.
const DIGITS: usize = 64;
const EACH: usize = 3;
const MAX_DIGITS: usize = 2048;
/// Of the points.
const PLACES: usize = 40;
/// What values may be off.
const OFF: f64 = 1e-6;

/// The largest amplification of an error of one stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Internal {
    pub least: f64,
    pub most: f64,
    /// The evaluation that the worst point is made for, from 1.
    pub stage: usize,
    /// The largest sum of the absolute coefficients of states in one sum: that many times the rounding error of a state is made there.
    pub sums: f64,
}

/// Sums that cancel, `8 x − 4 y − 2 z − …`, lose digits however errors are passed on.
fn cancelling(line: &LinearStep) -> f64 {
    let mut is_state = vec![true];
    let mut most = 1.0;
    for step in &line.steps {
        let Step::Combine(terms) = step else {
            is_state.push(false);
            continue;
        };
        let states = terms.iter().filter(|(v, _)| is_state[*v]);
        let sizes: Vec<f64> = states.map(|(_, c)| c.to_f64().abs()).collect();
        is_state.push(!sizes.is_empty());
        most = f64::max(most, sizes.iter().sum());
    }
    most
}

/// A fixed-point number, about how large it is, and what it may be off, in units of the last digit.
#[derive(Clone)]
struct Fixed {
    digits: BigInt,
    size: f64,
    off: f64,
}

impl Fixed {
    fn new(digits: BigInt, off: f64, places: usize) -> Fixed {
        let size = digits.abs().to_f64().unwrap_or(f64::INFINITY);
        let size = size * (-(places as f64)).exp2() * (1.0 + 1e-12);
        Fixed { digits, size, off }
    }
    fn of(x: &Exact, places: usize) -> Fixed {
        match x.as_rational() {
            Some(q) => Fixed::new((q.numer() << places) / q.denom(), 1.0, places),
            None => {
                let near = Exact::float(x.to_f64()).unwrap_or_default();
                let near = Fixed::of(&near, places);
                let off = near.size * (places as f64 - 50.0).exp2() + 2.0;
                Fixed { off, ..near }
            }
        }
    }
    fn times(&self, by: &Fixed, places: usize) -> Fixed {
        let small = self.off * by.off * (-(places as f64)).exp2();
        let off = self.off * by.size + by.off * self.size + small + 1.0;
        Fixed::new((&self.digits * &by.digits) >> places, off, places)
    }
    fn plus(&self, other: &Fixed, places: usize) -> Fixed {
        Fixed::new(&self.digits + &other.digits, self.off + other.off, places)
    }
}

/// The points that fields are evaluated at, but for the start and the end of the step, and for which evaluation each is made.
fn stages(line: &LinearStep) -> Vec<(Value, usize)> {
    let evaluated = line.steps.iter().filter_map(|s| match s {
        Step::Eval { at, .. } => Some(*at),
        _ => None,
    });
    let mut stages: Vec<(Value, usize)> = Vec::new();
    for (i, at) in evaluated.enumerate() {
        let known = stages.iter().any(|(v, _)| *v == at);
        if at != 0 && at != line.result && !known {
            stages.push((at, i + 1));
        }
    }
    stages
}

/// On `[−reach, 0]`. `None`: the step is not explicit, has one stage, or is too long.
pub fn internal(line: &LinearStep, reach: &Exact) -> Option<Internal> {
    let explicit = |(i, s): (usize, &Step)| match s {
        Step::Eval { at, .. } => *at <= i,
        Step::Combine(_) => true,
        Step::Flow { .. } | Step::Phi { .. } | Step::Past(_) => false,
    };
    let stages = stages(line);
    if !line.steps.iter().enumerate().all(explicit) || stages.is_empty() {
        return None;
    }
    let degree = line
        .steps
        .iter()
        .filter(|s| matches!(s, Step::Eval { .. }))
        .count();
    let products = |s: &Step| match s {
        Step::Combine(terms) => terms.len(),
        _ => 1,
    };
    let products: usize = line.steps.iter().map(products).sum();
    if products.saturating_mul(POINTS * degree) > MAX_WORK {
        return None;
    }
    let mut places = DIGITS + EACH * degree;
    while places <= MAX_DIGITS {
        if let Some(found) = enclosed(line, &stages, reach.to_f64(), degree, places) {
            return Some(found);
        }
        places *= 2;
    }
    None
}

/// With so many binary digits after the point; `None`: they are too few.
fn enclosed(
    line: &LinearStep,
    stages: &[(Value, usize)],
    reach: f64,
    degree: usize,
    places: usize,
) -> Option<Internal> {
    let terms = |s: &Step| match s {
        Step::Combine(terms) => terms
            .iter()
            .map(|(v, c)| (*v, Fixed::of(c, places)))
            .collect(),
        _ => Vec::new(),
    };
    let terms: Vec<Vec<(Value, Fixed)>> = line.steps.iter().map(terms).collect();
    let points = POINTS * degree;
    let quarter = std::f64::consts::FRAC_PI_2 / points as f64;
    let unit = (-(places as f64)).exp2();
    let (mut least, mut most, mut stage) = (0.0, 0.0, 0);
    for k in 0..points {
        let x = libm::cos((2 * k + 1) as f64 * quarter);
        let z = -reach * (1.0 - x) / 2.0 * (PLACES as f64).exp2();
        let z = BigInt::from(z.round() as i128) << (places - PLACES);
        let z = Fixed::new(z, 0.0, places);
        let none = Fixed::new(BigInt::zero(), 0.0, places);
        let mut effect = vec![none; line.steps.len() + 1];
        effect[line.result] = Fixed::new(BigInt::from(1) << places, 0.0, places);
        for (i, step) in line.steps.iter().enumerate().rev() {
            let own = effect[i + 1].clone();
            if let Step::Eval { at, .. } = step {
                effect[*at] = effect[*at].plus(&own.times(&z, places), places);
            }
            for (v, c) in &terms[i] {
                effect[*v] = effect[*v].plus(&own.times(c, places), places);
            }
        }
        for (v, number) in stages {
            let off = effect[*v].off * unit;
            if off > OFF {
                return None;
            }
            let size = effect[*v].size;
            if size - off > least {
                (least, stage) = (size - off, *number);
            }
            most = f64::max(most, size + off);
        }
    }
    // Points are rounded, and derivatives are at most 2n²/reach times the largest value (Markov).
    let rounded = (-(PLACES as f64)).exp2() + 1e-15 * reach;
    let moved = 2.0 * (degree * degree) as f64 / reach * rounded;
    let between = libm::cos(quarter * degree as f64) - moved;
    Some(Internal {
        least: least * (1.0 - 1e-9),
        most: most / between * (1.0 + 1e-9),
        stage,
        sums: cancelling(line),
    })
}
