//! Student's t distribution, and Holm's correction for several comparisons.
//!
//! Takes statistics; gives probabilities. The distribution follows from the regularised incomplete beta function by its continued fraction
//! (DLMF 8.17.22, by Lentz's method in the form of Thompson & Barnett 1986). Compared with scipy in the tests.

/// Relative precision of the continued fraction, and the most terms.
const PRECISION: f64 = 1e-15;
const TERMS: usize = 10_000;

/// The regularised incomplete beta function `I_x(a, b)`.
fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast on this side, and I_x(a, b) = 1 − I_{1−x}(b, a).
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(1.0 - x, b, a);
    }
    let log = a * libm::log(x) + b * libm::log1p(-x) + libm::lgamma(a + b)
        - libm::lgamma(a)
        - libm::lgamma(b);
    libm::exp(log) / (a * fraction(x, a, b))
}

/// `1 + d₁/(1 + d₂/(1 + …))` of DLMF 8.17.22.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    let term = |n: usize| {
        let m = (n / 2) as f64;
        match n % 2 {
            0 => m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            _ => -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        }
    };
    let apart = |y: f64| if y == 0.0 { f64::MIN_POSITIVE } else { y };
    let (mut value, mut c, mut d) = (1.0, 1.0, 0.0);
    for n in 1..=TERMS {
        d = 1.0 / apart(1.0 + term(n) * d);
        c = apart(1.0 + term(n) / c);
        value *= c * d;
        if (c * d - 1.0).abs() < PRECISION {
            break;
        }
    }
    value
}

/// The probability of a |t| that is at least so large, of a t with so many degrees of freedom.
pub fn two_sided(t: f64, freedom: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The t whose |t| is exceeded with a probability.
pub fn quantile(probability: f64, freedom: f64) -> f64 {
    let mut high = 1.0;
    while two_sided(high, freedom) > probability && high < 1e12 {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        match two_sided(middle, freedom) > probability {
            true => low = middle,
            false => high = middle,
        }
    }
    0.5 * (low + high)
}

/// Probabilities of several comparisons, corrected so that the probability of any false one is bounded by the level that they are held against (Holm 1979,
/// "A simple sequentially rejective multiple test procedure").
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut corrected = vec![0.0; probabilities.len()];
    let mut largest: f64 = 0.0;
    for (place, at) in order.into_iter().enumerate() {
        let left = (probabilities.len() - place) as f64;
        largest = largest.max((left * probabilities[at]).min(1.0));
        corrected[at] = largest;
    }
    corrected
}

/// Mean and standard deviation (of a sample: divided by n − 1); no deviation of one number.
pub fn moments(x: &[f64]) -> Option<(f64, Option<f64>)> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let squares: f64 = x.iter().map(|x| (x - mean) * (x - mean)).sum();
    match x.len() {
        0 => None,
        1 => Some((mean, None)),
        _ => Some((mean, Some(libm::sqrt(squares / (n - 1.0))))),
    }
}

/// Half the width of the interval that holds the mean with a probability of 95 %.
pub fn half_width(deviation: f64, n: usize) -> f64 {
    quantile(0.05, (n - 1) as f64) * deviation / libm::sqrt(n as f64)
}

/// The probability of a mean that is at least so far from 0, were the true one 0.
pub fn of_mean(mean: f64, deviation: f64, n: usize) -> f64 {
    let t = mean.abs() * libm::sqrt(n as f64) / deviation;
    // All alike: certain where they differ from 0.
    match (deviation == 0.0, mean == 0.0) {
        (true, true) => 1.0,
        (true, false) => 0.0,
        _ => two_sided(t, (n - 1) as f64),
    }
}

/// Most numbers that are asked for.
pub const MOST: usize = 10_000;

/// How many numbers it takes until such a mean with such a deviation holds at a level; `None`: more than [`MOST`].
pub fn needed(mean: f64, deviation: f64, level: f64) -> Option<usize> {
    let holds = |n: usize| of_mean(mean, deviation, n) <= level;
    if !holds(MOST) {
        return None;
    }
    let (mut low, mut high) = (1, MOST);
    while high - low > 1 {
        let middle = (low + high) / 2;
        match holds(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    Some(high)
}
