//! The machines that kernels are compiled for.
//!
//! A target is an x86-64 microarchitecture level or an NVIDIA compute capability: the compiler emits for one, the
//! runtime asks [`Target::supported`] by CPUID (or the GPU's driver) before it loads code, and refuses naming what is
//! missing. (Reading XCR0, and trying an instruction, are the two places here that are `unsafe`.) Leaves instruction selection to `odec-mlir` and the choice of an object to `odec-runtime`.

use crate::kernel::{Blocking, Order};
use crate::manifest::Precision;
use crate::{DType, blocking, tile};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An instruction set that kernels are compiled for, from the most common to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Target {
    /// x86-64-v2: 128-bit vectors; fused multiply-add is computed exactly in several instructions, so
    /// results agree with the other targets.
    #[serde(rename = "cpu:portable")]
    Portable,
    /// x86-64-v3: 256-bit vectors and FMA.
    #[serde(rename = "cpu:avx2")]
    Avx2,
    /// x86-64-v4: 512-bit vectors and masks.
    #[serde(rename = "cpu:avx512")]
    Avx512,
    /// The same with dot products of pairs of bf16 (AVX512-BF16: AMD since Zen 4, Intel since Cooper Lake) for contractions of bf16 and
    /// attention to it ([`crate::dot`]).
    #[serde(rename = "cpu:avx512bf16")]
    Avx512Bf16,
    /// The same with tile registers (Intel AMX) for contractions of bf16 ([`crate::tile`]).
    #[serde(rename = "cpu:amx")]
    Amx,
    /// NVIDIA GPUs from compute capability 8.0 on (Ampere).
    #[serde(rename = "sm_80")]
    Sm80,
    /// NVIDIA GPUs of compute capability 9.0 (Hopper), with the instructions of this generation alone.
    #[serde(rename = "sm_90a")]
    Sm90a,
}

impl Target {
    /// All processors, the fastest last.
    pub const CPUS: [Target; 5] = [
        Target::Portable,
        Target::Avx2,
        Target::Avx512,
        Target::Avx512Bf16,
        Target::Amx,
    ];

    /// All GPUs, the newest last.
    pub const GPUS: [Target; 2] = [Target::Sm80, Target::Sm90a];

    /// The name used on command lines and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Target::Portable => "cpu:portable",
            Target::Avx2 => "cpu:avx2",
            Target::Avx512 => "cpu:avx512",
            Target::Avx512Bf16 => "cpu:avx512bf16",
            Target::Amx => "cpu:amx",
            Target::Sm80 => "sm_80",
            Target::Sm90a => "sm_90a",
        }
    }

    /// Whether code for the target runs on a GPU.
    pub const fn is_gpu(self) -> bool {
        matches!(self, Target::Sm80 | Target::Sm90a)
    }

    /// The fastest target that this machine runs for programs of a precision, `None` on machines other than x86-64-v2 and
    /// above. Without bf16, [`Target::Avx512Bf16`] and [`Target::Amx`] would only keep a program from other machines. Dot products of bf16
    /// are chosen on AMD's processors: a Xeon of 2023 does two FMA of f32 in a cycle and one dot product in two, half the rate.
    pub fn detect(precision: Precision) -> Option<Target> {
        let of_use = |t: &Target| match t {
            Target::Avx512Bf16 => precision == Precision::Bf16 && cpu::is_amd(),
            Target::Amx => precision == Precision::Bf16,
            _ => true,
        };
        let all = Target::CPUS.into_iter().rev().filter(of_use);
        all.into_iter().find(|t| t.supported().is_ok())
    }

    /// Whether this machine's processor runs code for the target.
    ///
    /// # Errors
    /// The name of the first CPU feature that is missing, or that it takes a GPU.
    pub fn supported(self) -> Result<(), &'static str> {
        if self.is_gpu() {
            return Err("an NVIDIA GPU");
        }
        let missing = |features: &[(&'static str, bool)]| {
            features.iter().find(|f| !f.1).map_or(Ok(()), |f| Err(f.0))
        };
        missing(&cpu::v2())?;
        if self >= Target::Avx2 {
            missing(&cpu::v3())?;
        }
        if self >= Target::Avx512 {
            missing(&cpu::v4())?;
        }
        if self >= Target::Avx512Bf16 {
            missing(&cpu::bf16())?;
        }
        if self >= Target::Amx {
            missing(&cpu::amx())?;
        }
        Ok(())
    }

    /// Bytes of a vector register; of one thread's widest access on a GPU.
    pub const fn vector_bytes(self) -> u64 {
        match self {
            Target::Portable | Target::Sm80 | Target::Sm90a => 16,
            Target::Avx2 => 32,
            Target::Avx512 | Target::Avx512Bf16 | Target::Amx => 64,
        }
    }

    /// Elements of a vector register.
    pub const fn lanes(self, dtype: DType) -> u64 {
        self.vector_bytes() / dtype.bytes()
    }

    /// Whether contractions read their right-hand operand as panels packed beforehand. A GPU packs what it reads into
    /// shared memory as it goes.
    pub const fn packs(self) -> bool {
        !self.is_gpu()
    }

    /// The blocking of contractions (`blocking.rs`; products in tile registers, [`Target::pairs`], have one of their own). On a GPU `mr` × `nr` is
    /// the tile of a block of threads (no measurement behind it).
    pub fn blocking(self, dtype: DType) -> Blocking {
        match self.is_gpu() {
            true => Blocking {
                mr: 128,
                nr: 64,
                kc: 256,
                nc: 64,
            },
            false => blocking::of(self, dtype),
        }
    }

    /// Order and blocking of contractions of bf16 factors, where these are multiplied in pairs. Registers of vectors hold as many sums as
    /// those of other contractions do. Tile registers hold two by two tiles of them, the most that leave registers for two of A and two of
    /// B, so that each tile that is loaded is multiplied twice. Their blocks of k are longer, since the sums
    /// of each go through memory: on a Xeon with AMX (2026) a training step took 1.01 to 1.03 times as long with 256 and 512, and as long with 2,048, where runs
    /// differ by as much.
    pub fn pairs(self) -> Option<(Order, Blocking)> {
        let blocking = self.blocking(DType::F32);
        match self {
            Target::Avx512Bf16 => Some((Order::Dots, blocking)),
            Target::Amx => Some((
                Order::Pairs,
                Blocking {
                    mr: 2 * tile::ROWS as u32,
                    nr: 2 * tile::COLS as u32,
                    kc: 1024,
                    ..blocking
                },
            )),
            _ => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A target name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error(
        "unknown target `{0}`; targets are cpu, cpu:portable, cpu:avx2, cpu:avx512, cpu:avx512bf16, cpu:amx, sm_80 and sm_90a"
    )]
    Unknown(String),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(s: &str) -> Result<Target, TargetError> {
        (Target::CPUS.into_iter().chain(Target::GPUS))
            .find(|t| t.name() == s)
            .ok_or_else(|| TargetError::Unknown(s.to_string()))
    }
}

#[cfg(target_arch = "x86_64")]
mod cpu {
    use crate::dot;
    use std::arch::is_x86_feature_detected;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
    use std::sync::OnceLock;

    macro_rules! features {
        ($($name:tt)*) => { [$(($name, is_x86_feature_detected!($name))),*] };
    }
    pub fn v2() -> [(&'static str, bool); 6] {
        features!["cmpxchg16b" "popcnt" "sse3" "ssse3" "sse4.1" "sse4.2"]
    }
    pub fn v3() -> [(&'static str, bool); 8] {
        features!["avx" "avx2" "bmi1" "bmi2" "f16c" "fma" "lzcnt" "movbe"]
    }
    pub fn v4() -> [(&'static str, bool); 5] {
        features!["avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl"]
    }
    pub fn is_amd() -> bool {
        let vendor = __cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes) == [*b"Auth", *b"enti", *b"cAMD"]
    }
    /// Dot products of bf16, which must add as [`dot`] says.
    pub fn bf16() -> [(&'static str, bool); 2] {
        static DEFINED: OnceLock<bool> = OnceLock::new();
        let [(name, there)] = features!["avx512bf16"];
        let defined = there && *DEFINED.get_or_init(|| dot::as_defined(vdpbf16ps));
        [
            (name, there),
            ("sums of vdpbf16ps in the order that Intel defines", defined),
        ]
    }
    /// The instruction, on a processor that has it.
    #[allow(unsafe_code)]
    fn vdpbf16ps(sums: &mut [f32; 16], [a, b]: [&[u32; 16]; 2]) {
        // SAFETY: the pointers are to 64 bytes each; nothing else is written than the sums and the register that is named, whose upper parts
        // code without AVX-512 does not use and `vzeroupper` clears.
        unsafe {
            std::arch::asm!(
                "vmovups zmm0, [{sums}]",
                "vmovups zmm1, [{a}]",
                "vdpbf16ps zmm0, zmm1, [{b}]",
                "vmovups [{sums}], zmm0",
                "vzeroupper",
                sums = in(reg) sums.as_mut_ptr(),
                a = in(reg) a.as_ptr(),
                b = in(reg) b.as_ptr(),
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack, preserves_flags),
            );
        }
    }
    /// Tile registers: what the processor has (CPUID leaf 7), and whether the system saves them (XCR0, bits 17 and 18). The
    /// system still has to be asked before they are used (`odec-runtime`).
    #[allow(unsafe_code)]
    pub fn amx() -> [(&'static str, bool); 3] {
        let features = __cpuid_count(7, 0).edx;
        let xgetbv = is_x86_feature_detected!("xsave") && __cpuid(1).ecx >> 27 & 1 == 1;
        // SAFETY: the instruction is there, and the system allows it (OSXSAVE).
        let saved = if xgetbv { unsafe { _xgetbv(0) } } else { 0 };
        [
            ("amx-tile", features >> 24 & 1 == 1),
            ("amx-bf16", features >> 22 & 1 == 1),
            (
                "tile registers enabled by its system (Linux 5.16 or later)",
                saved >> 17 & 3 == 3,
            ),
        ]
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod cpu {
    pub fn v2() -> [(&'static str, bool); 1] {
        [("x86-64", false)]
    }
    pub fn v3() -> [(&'static str, bool); 0] {
        []
    }
    pub fn v4() -> [(&'static str, bool); 0] {
        []
    }
    pub fn bf16() -> [(&'static str, bool); 0] {
        []
    }
    pub fn is_amd() -> bool {
        false
    }
    pub fn amx() -> [(&'static str, bool); 0] {
        []
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for t in Target::CPUS.into_iter().chain(Target::GPUS) {
            assert_eq!(t.name().parse(), Ok(t));
            assert_eq!(serde_json::to_string(&t).unwrap(), format!("\"{t}\""));
        }
        assert_eq!(
            "cpu:avx1024".parse::<Target>(),
            Err(TargetError::Unknown("cpu:avx1024".into()))
        );
    }

    #[test]
    fn a_supported_target_implies_the_slower_ones() {
        for precision in [Precision::F32, Precision::Bf16, Precision::F64] {
            let Some(host) = Target::detect(precision) else {
                continue;
            };
            assert!(
                Target::CPUS
                    .into_iter()
                    .filter(|t| *t <= host)
                    .all(|t| t.supported().is_ok())
            );
            assert!(host.pairs().is_none() || precision == Precision::Bf16);
        }
    }

    #[test]
    fn blockings_are_whole_vectors() {
        for t in Target::CPUS.into_iter().chain(Target::GPUS) {
            for d in [DType::F32, DType::F64] {
                let b = t.blocking(d);
                assert_eq!(b.nr as u64 % t.lanes(d), 0);
                assert_eq!(b.nc % b.nr, 0);
                assert_eq!(b.kc, Target::Avx512.blocking(DType::F32).kc);
            }
            let Some((order, b)) = t.pairs() else {
                continue;
            };
            let rows = u64::from(b.mr) % tile::ROWS;
            assert!(rows == 0 || order == Order::Dots);
            assert_eq!(u64::from(b.nr) % t.lanes(DType::F32), 0);
            assert_eq!((u64::from(b.kc) % order.chunk(), b.nc % b.nr), (0, 0));
        }
    }
}
