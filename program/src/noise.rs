//! Random numbers inside kernels: a function of four whole numbers, the same on every device.
//!
//! PCG4D (Jarzynski & Olano 2020, "Hash functions for GPU rendering", J. Computer Graphics Techniques 9(3), listing 4): a linear
//! congruential step of each word, two rounds that mix the words, a shift between them. Takes a key, a stream, a row and a
//! column; gives a number in [0, 1). Leaves the drawing of keys to the runtime (`runtime/src/rng.rs`).

/// The input with the key, `[1]`, of entries whose program drops anything.
pub const KEY: &str = "noise";

/// Multiplier and increment of the linear congruential step.
pub const STEP: [u32; 2] = [1_664_525, 1_013_904_223];

/// Bits of a result: as many as a f32 has.
pub const BITS: u32 = 24;

/// The four mixed words.
pub fn pcg4d(v: [u32; 4]) -> [u32; 4] {
    let [mut x, mut y, mut z, mut w] = v.map(|n| n.wrapping_mul(STEP[0]).wrapping_add(STEP[1]));
    let mut mix = |shift: bool| {
        x = x.wrapping_add(y.wrapping_mul(w));
        y = y.wrapping_add(z.wrapping_mul(x));
        z = z.wrapping_add(x.wrapping_mul(y));
        w = w.wrapping_add(y.wrapping_mul(z));
        if shift {
            [x, y, z, w] = [x, y, z, w].map(|n| n ^ (n >> 16));
        }
        [x, y, z, w]
    };
    mix(true);
    mix(false)
}

/// The last word's upper bits as a fraction: a multiple of 2⁻²⁴ in [0, 1).
pub fn uniform(v: [u32; 4]) -> f64 {
    f64::from(pcg4d(v)[3] >> (32 - BITS)) / f64::from(1u32 << BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One step by hand, in whole numbers that never wrap.
    #[test]
    fn as_published() {
        let v = [0u64, 1, 2, 3];
        let modulus = 1u64 << 32;
        let mut p = v.map(|n| (n * 1_664_525 + 1_013_904_223) % modulus);
        for round in 0..2 {
            for i in 0..4 {
                let (a, b) = [(1, 3), (2, 0), (0, 1), (1, 2)][i];
                p[i] = (p[i] + p[a] * p[b] % modulus) % modulus;
            }
            if round == 0 {
                p = p.map(|n| n ^ (n >> 16));
            }
        }
        assert_eq!(pcg4d([0, 1, 2, 3]).map(u64::from), p);
    }

    /// Neighbouring rows, columns, streams and keys look independent: mean and variance of a uniform law, and no correlation
    /// beyond four standard deviations.
    #[test]
    fn neighbours_are_independent() {
        let n = 1 << 14;
        let draw = |v: [u32; 4]| uniform(v) - 0.5;
        for axis in 0..4 {
            let (mut sum, mut square, mut product) = (0.0, 0.0, 0.0);
            for i in 0..n {
                let mut v = [7, 3, i / 128, i % 128];
                let x = draw(v);
                v[axis] += 1;
                (sum, square, product) = (sum + x, square + x * x, product + x * draw(v));
            }
            let n = f64::from(n);
            let limit = 4.0 / n.sqrt();
            assert!((sum / n).abs() < limit * (1.0f64 / 12.0).sqrt());
            assert!((square / n - 1.0 / 12.0).abs() < limit * (1.0f64 / 180.0).sqrt());
            assert!((product / n).abs() < limit / 12.0, "axis {axis}");
        }
    }
}
