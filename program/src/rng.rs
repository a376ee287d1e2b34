//! Counter-based random numbers: any draw can be computed on its own, in any order, on any machine.
//!
//! Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011).
//! Takes a seed and the name of a stream; gives blocks of four 32-bit words by number. Leaves what the draws mean
//! to the runtime: starting values of parameters, batches, tokens.

use sha2::{Digest, Sha256};

/// Ten rounds of Philox4x32.
pub fn philox4x32_10(mut c: [u32; 4], mut k: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            k = [
                k[0].wrapping_add(0x9E37_79B9),
                k[1].wrapping_add(0xBB67_AE85),
            ];
        }
        let p0 = u64::from(c[0]) * 0xD251_1F53;
        let p1 = u64::from(c[2]) * 0xCD9E_8D57;
        c = [
            (p1 >> 32) as u32 ^ c[1] ^ k[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ c[3] ^ k[1],
            p0 as u32,
        ];
    }
    c
}

/// A named sequence of random blocks.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: [u32; 2],
    name: [u32; 2],
}

impl Stream {
    /// The key is the seed (low word first); the upper half of every counter is the first eight bytes
    /// of the name's SHA-256, little-endian.
    pub fn new(seed: u64, name: &str) -> Stream {
        let digest = Sha256::digest(name.as_bytes());
        let word =
            |i: usize| u32::from_le_bytes([digest[i], digest[i + 1], digest[i + 2], digest[i + 3]]);
        Stream {
            key: [seed as u32, (seed >> 32) as u32],
            name: [word(0), word(4)],
        }
    }

    /// The n-th block.
    pub fn block(&self, n: u64) -> [u32; 4] {
        philox4x32_10(
            [n as u32, (n >> 32) as u32, self.name[0], self.name[1]],
            self.key,
        )
    }

    /// A whole number in `0..below` from the n-th block (biased by less than `below · 2⁻⁶⁴`).
    pub fn below(&self, n: u64, below: u64) -> u64 {
        let b = self.block(n);
        let wide = u128::from(b[0]) | u128::from(b[1]) << 32;
        ((wide * u128::from(below)) >> 64) as u64
    }

    /// A number in [0, 1) from the n-th block, a multiple of 2⁻⁵³.
    pub fn uniform(&self, n: u64) -> f64 {
        let b = self.block(n);
        ((u64::from(b[0]) | u64::from(b[1]) << 32) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Standard normal numbers from the first block on, four from each.
    pub fn normals(&self, first: u64, out: &mut [f64]) {
        for (n, four) in (first..).zip(out.chunks_mut(4)) {
            four.copy_from_slice(&self.normal4(n)[..four.len()]);
        }
    }

    /// Four independent standard normal numbers from the n-th block (Box & Muller 1958).
    pub fn normal4(&self, n: u64) -> [f64; 4] {
        let b = self.block(n);
        let pair = |x: u32, y: u32| {
            // (x + ½)·2⁻³² lies strictly between 0 and 1, so the logarithm is finite.
            let unit = |w: u32| (f64::from(w) + 0.5) * (1.0 / 4_294_967_296.0);
            let radius = (-2.0 * unit(x).ln()).sqrt();
            let (sin, cos) = (std::f64::consts::TAU * unit(y)).sin_cos();
            (radius * cos, radius * sin)
        };
        let ((a, b0), (c, d)) = (pair(b[0], b[1]), pair(b[2], b[3]));
        [a, b0, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that come with the authors' Random123 library.
    #[test]
    fn known_answers() {
        let f = u32::MAX;
        assert_eq!(
            philox4x32_10([0; 4], [0; 2]),
            [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]
        );
        assert_eq!(
            philox4x32_10([f; 4], [f; 2]),
            [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]
        );
        assert_eq!(
            philox4x32_10(
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0]
            ),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn streams_differ_by_seed_name_and_number() {
        let a = Stream::new(1, "a");
        assert_eq!(a.block(7), Stream::new(1, "a").block(7));
        assert_ne!(a.block(7), a.block(8));
        assert_ne!(a.block(7), Stream::new(1, "b").block(7));
        assert_ne!(a.block(7), Stream::new(1 << 32, "a").block(7));
    }

    #[test]
    fn normal_numbers_have_the_right_moments() {
        let s = Stream::new(3, "moments");
        let draws: Vec<f64> = (0..25_000).flat_map(|n| s.normal4(n)).collect();
        let moment = |p: i32| draws.iter().map(|x| x.powi(p)).sum::<f64>() / draws.len() as f64;
        // Five standard errors of each sample moment over 10⁵ draws.
        assert!(moment(1).abs() < 0.016, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.023, "{}", moment(2));
        assert!(moment(3).abs() < 0.062, "{}", moment(3));
        assert!((moment(4) - 3.0).abs() < 0.16, "{}", moment(4));
    }

    #[test]
    fn bounded_draws_stay_in_bounds_and_reach_all_values() {
        let s = Stream::new(5, "bounded");
        let mut seen = [0u32; 7];
        for n in 0..7_000 {
            seen[s.below(n, 7) as usize] += 1;
            assert!((0.0..1.0).contains(&s.uniform(n)));
        }
        assert!(seen.iter().all(|&c| (850..1150).contains(&c)), "{seen:?}");
        assert_eq!(s.below(0, 1), 0);
    }
}
