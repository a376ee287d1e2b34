//! Random numbers inside kernels: a function of four whole numbers, the same on every device.
//!
//! PCG4D (Jarzynski & Olano 2020, "Hash functions for GPU rendering", J. Computer Graphics Techniques 9(3), listing 4): a linear
//! congruential step of each word, two rounds that mix the words, a shift between them. Takes a key, a stream, a row and a
//! column; gives a number in [0, 1), or a normal one: the quantile of its middle, by Wichura's rational functions (1988, "Algorithm AS 241", Applied
//! Statistics 37, 477, PPND7), to seven digits. Leaves the drawing of keys to the runtime (`runtime/src/device/rng.rs`).

use crate::expr::{BinaryOp, Body, CmpOp, ExprId, UnaryOp};

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

/// Half the distance of two neighbouring results of [`uniform`]: no quantile is infinite.
const MIDDLE: f64 = 1.0 / (1u64 << (BITS + 1)) as f64;

/// Rational functions of PPND7, numerator and denominator, lowest power first: of 0.180625 − q² in the centre, |q| ≤ 0.425, and of
/// √(−log tail) − 1.6 outside, where the tail is above e⁻²⁵; none of [`uniform`] is beyond.
const CENTRE: [[f64; 4]; 2] = [
    [
        3.387_132_717_9,
        50.434_271_938,
        159.291_132_02,
        59.109_374_720,
    ],
    [1.0, 17.895_169_469, 78.757_757_664, 67.187_563_600],
];
const TAIL: [[f64; 4]; 2] = [
    [
        1.423_437_277_7,
        2.756_815_390_0,
        1.306_728_481_6,
        0.170_238_211_03,
    ],
    [1.0, 0.737_001_642_50, 0.120_211_329_75, 0.0],
];
const SPLIT: f64 = 0.425;

/// A standard normal number.
pub fn normal(v: [u32; 4]) -> f64 {
    let q = uniform(v) - 0.5 + MIDDLE;
    let over = |of: &[[f64; 4]; 2], r: f64| {
        let [above, below] = of.map(|c| ((c[3] * r + c[2]) * r + c[1]) * r + c[0]);
        above / below
    };
    if q.abs() <= SPLIT {
        return q * over(&CENTRE, SPLIT * SPLIT - q * q);
    }
    let tail = 0.5 - q.abs();
    over(&TAIL, (-libm::log(tail)).sqrt() - 1.6).copysign(q)
}

/// The same of a random number in [0, 1), in a kernel.
pub fn normal_of(b: &mut Body, random: ExprId) -> ExprId {
    let [half, middle, zero] = [-0.5, MIDDLE, 0.0].map(|x| b.konst(x));
    let q = b.add(random, half);
    let q = b.add(q, middle);
    let minus = b.unary(UnaryOp::Neg, q);
    let size = b.binary(BinaryOp::Max, q, minus);
    let over = |b: &mut Body, of: &[[f64; 4]; 2], r: ExprId| {
        let [above, below] = of.map(|c| {
            let c = c.map(|c| b.konst(c));
            let sum = b.fma(c[3], r, c[2]);
            let sum = b.fma(sum, r, c[1]);
            b.fma(sum, r, c[0])
        });
        b.binary(BinaryOp::Div, above, below)
    };
    let square = b.konst(SPLIT * SPLIT);
    let r = b.fma(minus, q, square);
    let centre = over(b, &CENTRE, r);
    let centre = b.mul(q, centre);
    let half = b.konst(0.5);
    let tail = b.binary(BinaryOp::Sub, half, size);
    let log = b.unary(UnaryOp::Log, tail);
    let log = b.unary(UnaryOp::Neg, log);
    let root = b.unary(UnaryOp::Sqrt, log);
    let shift = b.konst(-1.6);
    let r = b.add(root, shift);
    let above = over(b, &TAIL, r);
    let below = b.unary(UnaryOp::Neg, above);
    let outside = b.select(CmpOp::Lt, q, zero, below, above);
    let split = b.konst(SPLIT);
    b.select(CmpOp::Lt, split, size, outside, centre)
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

    /// Quantiles from tables, as far as the uniform numbers are those of middles: Φ⁻¹(0.975), Φ⁻¹(0.9), Φ⁻¹(1 − 10⁻⁶); and the
    /// moments 0, 1, 0, 3 of many numbers, within five standard errors.
    #[test]
    fn normal_numbers_have_their_law() {
        let n = 1 << 16;
        let mut drawn: Vec<f64> = (0..n).map(|i| normal([9, 2, i / 256, i % 256])).collect();
        let mean = |p: i32| drawn.iter().map(|x| x.powi(p)).sum::<f64>() / f64::from(n);
        let error = |variance: f64| 5.0 * (variance / f64::from(n)).sqrt();
        for (p, want, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
            assert!((mean(p) - want).abs() < error(variance), "moment {p}");
        }
        drawn.sort_by(f64::total_cmp);
        for (p, want) in [(0.975, 1.959_963_985), (0.9, 1.281_551_566), (0.5, 0.0)] {
            let at = drawn[(p * f64::from(n)) as usize];
            assert!((at - want).abs() < 0.05, "{p}: {at}");
        }
        // The law of uniform numbers goes over into the normal one: Φ(normal) is the uniform number, but for the seven digits
        // that the quantile has.
        for i in 0..2000 {
            let v = [3, 5, i, 7];
            let (p, x) = (uniform(v) + MIDDLE, normal(v));
            let phi = 0.5 * libm::erfc(-x / 2f64.sqrt());
            let density = (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
            let digits = 2e-7 * x.abs() * density + 1e-15;
            assert!((phi - p).abs() < digits, "{p}: {phi}");
        }
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
