//! Loops that do nothing but multiply-adds, or read, with the widest vectors of a target: what [`crate::device::roof`] times.
//!
//! Takes a target; gives safe functions, none where this processor lacks the target's instructions.

#![allow(unsafe_code)]

use odec_program::{DType, Target};

/// Work that is timed.
#[derive(Clone, Copy)]
pub struct Loop {
    /// Multiply-adds times two.
    pub operations: f64,
    pub run: fn(),
}

/// Reads words, and gives their sum so that they are read.
pub type Sum = fn(&[u64]) -> u64;

/// Multiply-adds of numbers of a type. Their results never change, so that no number becomes infinite or subnormal.
pub fn multiply_adds(target: Target, real: DType) -> Option<Loop> {
    target.supported().ok()?;
    x86::multiply_adds(target, real)
}

/// Products of bf16 by the widest instruction that the target has for them: dot products of pairs, or products of tiles.
pub fn pairs(target: Target) -> Option<Loop> {
    target.supported().ok()?;
    x86::pairs(target)
}

/// The sum of words.
pub fn sum(target: Target) -> Option<Sum> {
    target.supported().ok()?;
    x86::sum(target)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Loop, Sum};
    use crate::device::ffi::permit_tiles;
    use odec_program::{DType, Target, tile};
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// Multiply-adds that do not wait for each other: their latency times how many begin in a cycle.
    const CHAINS: usize = 12;
    /// Multiply-adds of each chain.
    const TURNS: usize = 20_000;

    const fn of(lanes: usize, run: fn()) -> Option<Loop> {
        let operations = (2 * lanes * CHAINS * TURNS) as f64;
        Some(Loop { operations, run })
    }

    pub fn multiply_adds(target: Target, real: DType) -> Option<Loop> {
        match (target, real) {
            // SAFETY: the caller has asked whether the target is supported.
            (Target::Portable, DType::F64) => of(2, || unsafe { sse_f64() }),
            // SAFETY: as above.
            (Target::Portable, _) => of(4, || unsafe { sse_f32() }),
            // SAFETY: as above.
            (Target::Avx2, DType::F64) => of(4, || unsafe { avx2_f64() }),
            // SAFETY: as above.
            (Target::Avx2, _) => of(8, || unsafe { avx2_f32() }),
            (Target::Sm80 | Target::Sm90a, _) => None,
            // SAFETY: as above.
            (_, DType::F64) => of(8, || unsafe { avx512_f64() }),
            // SAFETY: as above.
            (_, _) => of(16, || unsafe { avx512_f32() }),
        }
    }

    pub fn pairs(target: Target) -> Option<Loop> {
        match target {
            // SAFETY: the caller has asked whether the target is supported.
            Target::Avx512Bf16 => of(32, || unsafe { avx512_dots() }),
            Target::Amx => {
                permit_tiles().ok()?;
                let products = (TILE_SUMS * TURNS) as u64 * tile::ROWS * tile::COLS * tile::K;
                // SAFETY: the target is supported, and the system permits tile registers.
                let run = || unsafe { amx_tiles() };
                Some(Loop {
                    operations: 2.0 * products as f64,
                    run,
                })
            }
            _ => None,
        }
    }

    pub fn sum(target: Target) -> Option<Sum> {
        match target {
            // SAFETY: the caller has asked whether the target is supported.
            Target::Portable => Some(|words| unsafe { sse_sum(words) }),
            // SAFETY: as above.
            Target::Avx2 => Some(|words| unsafe { avx2_sum(words) }),
            Target::Sm80 | Target::Sm90a => None,
            // SAFETY: as above.
            _ => Some(|words| unsafe { avx512_sum(words) }),
        }
    }

    /// `a ← a·x + y` with x = y = 1/2: of dot products of two, x is 1/2 and y the accumulator, which stays small for as long as it runs.
    macro_rules! chains {
        ($($(#[$attribute:meta])* $name:ident, $x:expr, $a:expr, $next:expr;)*) => {$(
            $(#[$attribute])*
            fn $name() {
                let x = $x;
                let mut a = [$a; CHAINS];
                for _ in 0..TURNS {
                    for a in &mut a {
                        *a = $next(*a, x);
                    }
                }
                black_box(a);
            }
        )*};
    }

    chains! {
        #[target_feature(enable = "sse2")]
        sse_f32, _mm_set1_ps(black_box(0.5)), _mm_set1_ps(1.0), |a, x| _mm_add_ps(_mm_mul_ps(a, x), x);
        #[target_feature(enable = "sse2")]
        sse_f64, _mm_set1_pd(black_box(0.5)), _mm_set1_pd(1.0), |a, x| _mm_add_pd(_mm_mul_pd(a, x), x);
        #[target_feature(enable = "avx2,fma")]
        avx2_f32, _mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(1.0), |a, x| _mm256_fmadd_ps(a, x, x);
        #[target_feature(enable = "avx2,fma")]
        avx2_f64, _mm256_set1_pd(black_box(0.5)), _mm256_set1_pd(1.0), |a, x| _mm256_fmadd_pd(a, x, x);
        #[target_feature(enable = "avx512f")]
        avx512_f32, _mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(1.0), |a, x| _mm512_fmadd_ps(a, x, x);
        #[target_feature(enable = "avx512f")]
        avx512_f64, _mm512_set1_pd(black_box(0.5)), _mm512_set1_pd(1.0), |a, x| _mm512_fmadd_pd(a, x, x);
    }

    /// `a ← a + x·x + x·x` with x = 1/4 in bf16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn avx512_dots() {
        let quarter = _mm512_set1_epi32(black_box(0x3e80_3e80));
        // SAFETY: both are 512 bits without further meaning.
        let x: __m512bh = unsafe { std::mem::transmute(quarter) };
        let mut a = [_mm512_set1_ps(1.0); CHAINS];
        for _ in 0..TURNS {
            for a in &mut a {
                *a = _mm512_dpbf16_ps(*a, x, x);
            }
        }
        black_box(a);
    }

    /// Registers of sums, as a contraction has them.
    const TILE_SUMS: usize = 4;

    /// What `ldtilecfg` reads: eight registers of whole size, of palette 1.
    #[repr(align(64))]
    struct Configuration([u8; tile::CONFIGURATION as usize]);

    /// Products of tiles of zeros, added to sums that do not wait for each other.
    ///
    /// # Safety
    /// The processor has AMX with bf16, and the system permits it.
    unsafe fn amx_tiles() {
        let mut all = Configuration([0; _]);
        all.0[0] = 1;
        for register in 0..8 {
            all.0[16 + 2 * register] = tile::ROW_BYTES as u8;
            all.0[48 + register] = tile::ROWS as u8;
        }
        // SAFETY: the configuration is as long as is read, and nothing else is; tile registers are nobody else's, since code of kernels configures
        // them where it begins.
        unsafe {
            std::arch::asm!(
                "ldtilecfg [{all}]",
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                "tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7",
                "2:",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "dec {turns}",
                "jnz 2b",
                "tilerelease",
                all = in(reg) all.0.as_ptr(),
                turns = inout(reg) TURNS => _,
                options(nostack),
            );
        }
    }

    /// The sum of words in vectors of a type, several at once so that none waits for another.
    macro_rules! sums {
        ($($(#[$attribute:meta])* $name:ident, $vector:ty, $zero:expr, $load:expr, $add:expr;)*) => {$(
            $(#[$attribute])*
            fn $name(words: &[u64]) -> u64 {
                const LANES: usize = size_of::<$vector>() / size_of::<u64>();
                let (lines, rest) = words.as_chunks::<{ 8 * LANES }>();
                let mut sums = [$zero; 8];
                for line in lines {
                    for (sum, part) in sums.iter_mut().zip(line.as_chunks::<LANES>().0) {
                        // SAFETY: the part is as long as the vector, and the load asks for no alignment.
                        let part = unsafe { $load(part.as_ptr().cast::<$vector>()) };
                        *sum = $add(*sum, part);
                    }
                }
                // SAFETY: vectors of words are words.
                let sums: [[u64; LANES]; 8] = unsafe { std::mem::transmute(sums) };
                let all = sums.as_flattened().iter().chain(rest);
                all.fold(0, |sum: u64, x| sum.wrapping_add(*x))
            }
        )*};
    }

    sums! {
        #[target_feature(enable = "sse2")]
        sse_sum, __m128i, _mm_setzero_si128(), _mm_loadu_si128, _mm_add_epi64;
        #[target_feature(enable = "avx2")]
        avx2_sum, __m256i, _mm256_setzero_si256(), _mm256_loadu_si256, _mm256_add_epi64;
        #[target_feature(enable = "avx512f")]
        avx512_sum, __m512i, _mm512_setzero_si512(), _mm512_loadu_si512, _mm512_add_epi64;
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod x86 {
    use super::{Loop, Sum};
    use odec_program::{DType, Target};

    pub fn multiply_adds(_: Target, _: DType) -> Option<Loop> {
        None
    }
    pub fn pairs(_: Target) -> Option<Loop> {
        None
    }
    pub fn sum(_: Target) -> Option<Sum> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loop_of_this_processor_runs_and_sums_are_right() {
        let words: Vec<u64> = (0..1000).collect();
        for target in Target::CPUS {
            if target.supported().is_err() {
                assert!(multiply_adds(target, DType::F32).is_none());
                continue;
            }
            for real in [DType::F32, DType::F64] {
                (multiply_adds(target, real).unwrap().run)();
            }
            if let Some(pairs) = pairs(target) {
                (pairs.run)();
            }
            assert_eq!(sum(target).unwrap()(&words), 499_500, "{target}");
        }
    }
}
