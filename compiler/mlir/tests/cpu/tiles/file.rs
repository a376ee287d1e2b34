//! The tile registers of a thread, in software.
//!
//! Instructions and their faults are those of the Software Developer's Manual, volume 2 (chapter on Intel AMX), for palette 1.
//! Products are computed by the processor's own FMA with the control register that the manual states for `tdpbf16ps`:
//! nothing in common with [`odec_program::tile`].

use std::arch::asm;

/// What the processor would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// `ldtilecfg`: a palette, a size or a reserved byte that is none.
    Configuration = 1,
    /// A register that no configuration gives rows.
    Unconfigured,
    /// `tdpbf16ps`: sizes that do not match.
    Sizes,
    /// `tdpbf16ps`: a register twice.
    Twice,
}

impl Fault {
    pub const ALL: [Fault; 4] = [
        Fault::Configuration,
        Fault::Unconfigured,
        Fault::Sizes,
        Fault::Twice,
    ];
}

pub const ROWS: usize = 16;
pub const BYTES: usize = 64;
pub type Row = [u8; BYTES];

/// The registers, and how they are configured.
pub struct Tiles {
    configuration: [u8; 64],
    data: [[Row; ROWS]; 8],
}

/// Rounding to nearest, all exceptions masked, subnormal operands and results zero (FTZ, DAZ).
const CONTROL: u32 = 0x9FC0;

impl Tiles {
    pub const fn new() -> Tiles {
        Tiles {
            configuration: [0; 64],
            data: [[[0; BYTES]; ROWS]; 8],
        }
    }

    /// Rows of a register, and bytes of a row.
    pub fn size(&self, tile: u8) -> Result<(usize, usize), Fault> {
        let n = tile as usize;
        let rows = self.configuration[48 + n].into();
        match rows {
            0 => Err(Fault::Unconfigured),
            _ => Ok((rows, self.configuration[16 + 2 * n].into())),
        }
    }

    /// `ldtilecfg`: all registers are zero afterwards.
    pub fn configure(&mut self, c: [u8; 64]) -> Result<(), Fault> {
        let reserved = c[2..16]
            .iter()
            .chain(&c[32..48])
            .chain(&c[56..])
            .any(|b| *b != 0);
        let size = |n: usize| {
            (
                c[48 + n],
                u16::from_le_bytes([c[16 + 2 * n], c[17 + 2 * n]]),
            )
        };
        let sane = |(rows, bytes)| {
            rows <= ROWS as u8 && bytes <= BYTES as u16 && (rows == 0) == (bytes == 0)
        };
        let palette = match c[0] {
            0 => c.iter().all(|b| *b == 0),
            1 => !reserved && c[1] == 0 && (0..8).map(size).all(sane),
            _ => false,
        };
        if !palette {
            return Err(Fault::Configuration);
        }
        *self = Tiles {
            configuration: c,
            ..Tiles::new()
        };
        Ok(())
    }

    /// `sttilecfg`.
    pub fn configuration(&self) -> [u8; 64] {
        self.configuration
    }

    /// `tilezero`, and the beginning of every load.
    pub fn zero(&mut self, tile: u8) -> Result<(), Fault> {
        self.size(tile)?;
        self.data[tile as usize] = [[0; BYTES]; ROWS];
        Ok(())
    }

    pub fn row(&self, tile: u8, row: usize) -> &Row {
        &self.data[tile as usize][row]
    }

    pub fn row_mut(&mut self, tile: u8, row: usize) -> &mut Row {
        &mut self.data[tile as usize][row]
    }

    /// `tdpbf16ps`.
    pub fn multiply(&mut self, sums: u8, a: u8, b: u8) -> Result<(), Fault> {
        if sums == a || sums == b || a == b {
            return Err(Fault::Twice);
        }
        let [(m, width), (rows, depth), (pairs, columns)] =
            [self.size(sums)?, self.size(a)?, self.size(b)?];
        if m != rows || width != columns || depth != 4 * pairs || width % 4 != 0 {
            return Err(Fault::Sizes);
        }
        for i in 0..m {
            let mut row = self.data[sums as usize][i];
            // SAFETY: the row of A holds `pairs` words, B as many rows of 64 bytes, the result is 64 bytes; whoever runs tests
            // of tiles has seen that the processor has AVX2 and FMA (`super::machine`).
            unsafe {
                products(
                    &self.data[a as usize][i],
                    &self.data[b as usize],
                    pairs,
                    &mut row,
                );
            }
            self.data[sums as usize][i][..width].copy_from_slice(&row[..width]);
        }
        Ok(())
    }
}

/// Adds the products of a row of A and 16 columns of B to `sums`: evens and odds apart, from zero, by FMA.
///
/// # Safety
/// The processor has AVX2 and FMA; `pairs` is in 1..=16.
unsafe fn products(a: &Row, b: &[Row; ROWS], pairs: usize, sums: &mut Row) {
    let mut control = [CONTROL, 0];
    // SAFETY: reads `pairs` words at `a` and rows at `b`, reads and writes 64 bytes at `sums` and 8 at `control`; the control
    // register is what it was when Rust's code goes on.
    unsafe {
        asm!(
            "stmxcsr [{control} + 4]",
            "ldmxcsr [{control}]",
            // The upper halves of words.
            "vpcmpeqd ymm15, ymm15, ymm15",
            "vpslld ymm15, ymm15, 16",
            "vxorps ymm0, ymm0, ymm0",
            "vxorps ymm1, ymm1, ymm1",
            "vxorps ymm2, ymm2, ymm2",
            "vxorps ymm3, ymm3, ymm3",
            "2:",
            "vpbroadcastd ymm4, [{a}]",
            "vpslld ymm5, ymm4, 16",
            "vpand ymm6, ymm4, ymm15",
            "vmovdqu ymm7, [{b}]",
            "vpslld ymm8, ymm7, 16",
            "vpand ymm9, ymm7, ymm15",
            "vfmadd231ps ymm0, ymm5, ymm8",
            "vfmadd231ps ymm2, ymm6, ymm9",
            "vmovdqu ymm7, [{b} + 32]",
            "vpslld ymm8, ymm7, 16",
            "vpand ymm9, ymm7, ymm15",
            "vfmadd231ps ymm1, ymm5, ymm8",
            "vfmadd231ps ymm3, ymm6, ymm9",
            "add {a}, 4",
            "add {b}, 64",
            "dec {pairs}",
            "jnz 2b",
            "vaddps ymm0, ymm0, ymm2",
            "vaddps ymm1, ymm1, ymm3",
            "vmovups ymm4, [{sums}]",
            "vaddps ymm4, ymm4, ymm0",
            "vmovups [{sums}], ymm4",
            "vmovups ymm4, [{sums} + 32]",
            "vaddps ymm4, ymm4, ymm1",
            "vmovups [{sums} + 32], ymm4",
            "ldmxcsr [{control} + 4]",
            "vzeroupper",
            a = inout(reg) a.as_ptr() => _,
            b = inout(reg) b.as_ptr() => _,
            pairs = inout(reg) pairs => _,
            sums = in(reg) sums.as_mut_ptr(),
            control = in(reg) control.as_mut_ptr(),
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
            out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm15") _,
            options(nostack),
        );
    }
}

fn configured(sizes: &[(u8, u8)]) -> [u8; 64] {
    let mut c = [0; 64];
    c[0] = 1;
    for (n, (rows, bytes)) in sizes.iter().enumerate() {
        (c[48 + n], c[16 + 2 * n]) = (*rows, *bytes);
    }
    c
}

#[test]
fn what_a_processor_refuses() {
    let mut t = Tiles::new();
    assert_eq!(t.zero(0), Err(Fault::Unconfigured));
    for broken in [(0, 2), (1, 1), (7, 1), (40, 1), (60, 1), (48, 17), (16, 65)] {
        let mut c = configured(&[(16, 64)]);
        c[broken.0] = broken.1;
        assert_eq!(t.configure(c), Err(Fault::Configuration), "{broken:?}");
    }
    let c = configured(&[(3, 20), (3, 8), (2, 20), (3, 16), (0, 0)]);
    assert_eq!(t.configure(c), Ok(()));
    assert_eq!(t.configuration(), c);
    assert_eq!(t.size(0), Ok((3, 20)));
    assert_eq!(t.multiply(0, 1, 1), Err(Fault::Twice));
    assert_eq!(t.multiply(0, 3, 2), Err(Fault::Sizes));
    assert_eq!(t.multiply(0, 1, 4), Err(Fault::Unconfigured));
}

/// Two pairs of products of small integers, of tiles that are not whole.
#[test]
fn a_product() {
    if super::machine().is_none() {
        return;
    }
    let mut t = Tiles::new();
    t.configure(configured(&[(1, 4), (1, 8), (2, 4)])).unwrap();
    let half = |x: f32| (x.to_bits() >> 16).to_le_bytes();
    let fill = |row: &mut Row, xs: &[f32]| {
        xs.iter()
            .enumerate()
            .for_each(|(i, x)| row[2 * i..2 * i + 2].copy_from_slice(&half(*x)[..2]))
    };
    fill(t.row_mut(1, 0), &[1.0, 2.0, 3.0, 4.0]);
    fill(t.row_mut(2, 0), &[5.0, 6.0, 9.0, 9.0]);
    fill(t.row_mut(2, 1), &[7.0, 8.0, 9.0, 9.0]);
    t.row_mut(0, 0)[..8].copy_from_slice(&[100f32.to_le_bytes(), 1f32.to_le_bytes()].concat());
    t.multiply(0, 1, 2).unwrap();
    assert_eq!(
        t.row(0, 0)[..4],
        (100f32 + 5.0 + 12.0 + 21.0 + 32.0).to_le_bytes()
    );
    assert_eq!(
        t.row(0, 0)[4..8],
        1f32.to_le_bytes(),
        "no column of the sums"
    );
}
