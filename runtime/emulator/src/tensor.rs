//! Matrices of a warp: `ldmatrix`, and the product `mma.m16n8k16` with bf16 factors and f32 sums.
//!
//! Takes registers; gives registers, in the fragments of the PTX ISA (9.7.14.5.8): with g = lane / 4 and t = lane mod 4, A has
//! rows g and g + 8, columns 2t, 2t + 1 and those eight further; B rows 2t, 2t + 1 and those eight further, column g; C rows
//! g and g + 8, columns 2t, 2t + 1. How numbers are added is not said by NVIDIA. Here it is done as badly as measured on
//! any card (Fasi, Higham, Mikaitis & Pranesh 2021): eight products and the sum so far are cut off at the last place
//! of the largest of them, added, and the result is cut off to an f32.

const LANES: usize = 32;
type Register = [u64; LANES];

/// Four 8 × 8 matrices, transposed if `turned`. The row that lane 8·matrix + r names holds eight elements in four words;
/// the lane that gets a word reads it.
pub fn matrices(
    rows: Register,
    turned: bool,
    mut read: impl FnMut(usize, u64) -> Result<u32, String>,
) -> Result<[Register; 4], String> {
    let mut out = [[0; LANES]; 4];
    for (matrix, register) in out.iter_mut().enumerate() {
        let mut words = [[0u32; 4]; 8];
        for (r, row) in words.iter_mut().enumerate() {
            let at = rows[8 * matrix + r];
            if !at.is_multiple_of(16) {
                return Err(format!("row {at:#x} is not aligned"));
            }
            for (n, word) in row.iter_mut().enumerate() {
                *word = read(4 * r + n, at + 4 * n as u64)?;
            }
        }
        let element = |r: usize, c: usize| words[r][c / 2] >> (16 * (c % 2)) & 0xFFFF;
        for (l, to) in register.iter_mut().enumerate() {
            let (r, c) = (l / 4, 2 * (l % 4));
            let pair = match turned {
                true => [element(c, r), element(c + 1, r)],
                false => [element(r, c), element(r, c + 1)],
            };
            *to = u64::from(pair[0] | pair[1] << 16);
        }
    }
    Ok(out)
}

/// One of the two bf16 of a word.
pub(crate) fn half(x: u64, upper: usize) -> f64 {
    f64::from(f32::from_bits((x as u32 >> (16 * upper)) << 16))
}

/// An element of a warp's 16 × 16 left factor in registers.
pub(crate) fn left(a: &[Register], row: usize, col: usize) -> f64 {
    let register = row / 8 + 2 * (col / 8);
    half(a[register][row % 8 * 4 + col % 8 / 2], col % 2)
}

/// `A·B + C`.
pub fn multiply(a: &[Register], b: &[Register], c: &[Register]) -> [Register; 4] {
    let right = |row: usize, col: usize| half(b[row / 8][col * 4 + row % 8 / 2], row % 2);
    let columns: [[f64; 16]; 8] =
        std::array::from_fn(|col| std::array::from_fn(|row| right(row, col)));
    let mut out = [[0; LANES]; 4];
    for row in 0..16 {
        let line: [f64; 16] = std::array::from_fn(|col| left(a, row, col));
        for (col, column) in columns.iter().enumerate() {
            let (register, lane) = (row / 8 * 2 + col % 2, row % 8 * 4 + col / 2);
            let mut sum = f32::from_bits(c[register][lane] as u32);
            for part in [0, 8] {
                let products = std::array::from_fn(|i| line[part + i] * column[part + i]);
                sum = add(sum, products);
            }
            out[register][lane] = sum.to_bits().into();
        }
    }
    out
}

/// The sum of a number and eight products, cut off at the last place of the largest.
pub(crate) fn add(sum: f32, products: [f64; 8]) -> f32 {
    let largest = products
        .iter()
        .fold(f64::from(sum).abs(), |m, p| m.max(p.abs()));
    let whole = f64::from(sum) + products.iter().sum::<f64>();
    if largest == 0.0 || !whole.is_finite() {
        return whole as f32;
    }
    let exponent = (largest.to_bits() >> 52) as i64 - 23;
    let (unit, inverse) = (exponent as u64, (2046 - exponent) as u64);
    let [unit, inverse] = [unit, inverse].map(|e| f64::from_bits(e << 52));
    let cut = |x: f64| (x * inverse).trunc();
    let units = cut(sum.into()) + products.iter().map(|p| cut(*p)).sum::<f64>();
    towards_zero(units * unit)
}

fn towards_zero(x: f64) -> f32 {
    let near = x as f32;
    match f64::from(near).abs() > x.abs() {
        true => f32::from_bits(near.to_bits() - 1),
        false => near,
    }
}

#[test]
fn sums_are_cut_off() {
    let last = f64::from(f32::EPSILON);
    let mut products = [0.0; 8];
    products[..2].copy_from_slice(&[0.75 * last, 0.75 * last]);
    assert_eq!(add(1.0, products), 1.0);
    products[0] = 2.0 * last;
    assert_eq!(add(-1.0, products), -1.0 + 2.0 * f32::EPSILON);
    assert_eq!(add(0.0, products), 2.75 * f32::EPSILON);
}

/// Against indices alone: A(i, l) = 16 i + l, B the first eight columns of one.
#[test]
fn fragments_lie_as_documented() {
    let bits = |x: f32| u64::from(x.to_bits() >> 16);
    let pair = |x: f32, y: f32| bits(x) | bits(y) << 16;
    let number = |i: usize, l: usize| (16 * i + l) as f32;
    let lane = |l: usize| (l / 4, 2 * (l % 4));
    let a: Vec<Register> = [(0, 0), (8, 0), (0, 8), (8, 8)]
        .map(|(down, right)| {
            std::array::from_fn(|l| {
                let (g, t) = lane(l);
                let at = |n| number(g + down, t + right + n);
                pair(at(0), at(1))
            })
        })
        .to_vec();
    let one = |i: usize, j: usize| if i == j { 1.0 } else { 0.0 };
    let b: Vec<Register> = [0, 8]
        .map(|down| {
            std::array::from_fn(|l| {
                let (g, t) = lane(l);
                pair(one(t + down, g), one(t + down + 1, g))
            })
        })
        .to_vec();
    let out = multiply(&a, &b, &[[0; LANES]; 4]);
    for (n, register) in out.iter().enumerate() {
        for (l, bits) in register.iter().enumerate() {
            let (g, t) = lane(l);
            let (i, j) = (g + 8 * (n / 2), t + n % 2);
            assert_eq!(f32::from_bits(*bits as u32), number(i, j), "({i}, {j})");
        }
    }
}
