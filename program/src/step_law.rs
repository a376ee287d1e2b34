//! The law of random numbers of steps: `1 + P(e^τ)`, P Poisson's law, `τ ~ N(log(mean) − σ²/2, σ)`, σ = 1/2 (Geiping et al. 2025,
//! arXiv:2502.05171, 3.3).
//!
//! Takes the mean; gives chances. Leaves draws to the runtime.

/// σ.
pub const DEVIATION: f64 = 0.5;

/// Points of the normal variable: 16 in a deviation, to 8 deviations on either side.
const POINTS: i32 = 128;
const EACH: f64 = 1.0 / 16.0;

/// The chances that more than 0, 1, …, `most` steps are drawn. The normal variable is integrated by the trapezoidal rule, whose error is
/// below 1e-12 for such a smooth function.
pub fn exceeding(mean: u64, most: u64) -> Vec<f64> {
    let mut sums = vec![0.0; most as usize + 1];
    let mut all = 0.0;
    for point in -POINTS..=POINTS {
        let z = f64::from(point) * EACH;
        let weight = libm::exp(-z * z / 2.0);
        all += weight;
        let log_rate = libm::log(mean as f64) - DEVIATION * DEVIATION / 2.0 + DEVIATION * z;
        // The logarithm of the chance of k: far from the mean, the chance itself is 0.
        let (mut log_mass, mut below) = (-libm::exp(log_rate), 0.0);
        for (n, sum) in sums.iter_mut().enumerate() {
            *sum += weight * f64::max(1.0 - below, 0.0);
            below += libm::exp(log_mass);
            log_mass += log_rate - libm::log(n as f64 + 1.0);
        }
    }
    sums.into_iter().map(|sum| sum / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E = 1 + m, and with e^{σ²} − 1 the squared relative deviation of the rate, Var = m + m²(e^{1/4} − 1).
    #[test]
    fn chances_have_the_moments_of_the_law() {
        for mean in [1u64, 8, 100] {
            let above = exceeding(mean, 60 * mean + 60);
            assert_eq!(above[0], 1.0);
            let m = mean as f64;
            // E N = Σ P(N > n), E N² = Σ (2n + 1) P(N > n).
            let first: f64 = above.iter().sum();
            let second = above.iter().enumerate();
            let second: f64 = second.map(|(n, p)| (2 * n + 1) as f64 * p).sum();
            assert!((first / (1.0 + m) - 1.0).abs() < 1e-6, "{mean}: {first}");
            let (variance, wanted) = (second - first * first, m + m * m * (libm::exp(0.25) - 1.0));
            assert!((variance / wanted - 1.0).abs() < 1e-3, "{mean}: {variance}");
        }
    }
}
