//! Rows of earlier tokens, read in pieces: those of the whole text, bit for bit.

use crate::harness::{Buffer, Compiled, assert_same, noise, targets};
use odec_program::kernel::Delay;
use odec_program::{DType, KernelSpec};

const BATCH: usize = 3;
/// A text's pieces: one token, less than a ring, a whole one and more.
const PIECES: [usize; 5] = [1, 2, 4, 1, 9];

/// Rows `t − by` of a text side by side, `None` where there are none.
fn rows(text: &[f32], cols: usize, t: usize, by: &[u32]) -> Vec<f32> {
    let row = |by: &u32| match t.checked_sub(*by as usize) {
        Some(t) => text[t * cols..][..cols].to_vec(),
        None => vec![0.0; cols],
    };
    by.iter().flat_map(row).collect()
}

#[test]
fn pieces_are_the_whole_on_every_target() {
    let distances: [&[u32]; 4] = [&[1], &[3, 2, 1, 0], &[4, 0, 2], &[5]];
    let columns = [1, 15, 16, 65, 200].into_iter();
    let specs: Vec<Delay> = columns
        .zip(distances.iter().cycle())
        .map(|(cols, by)| Delay {
            dtype: DType::F32,
            cols,
            by: by.to_vec(),
            places: false,
        })
        .collect();
    let kernels: Vec<KernelSpec> = specs.iter().cloned().map(KernelSpec::Delay).collect();
    for target in targets() {
        let compiled = Compiled::new(&kernels, target);
        for (n, spec) in specs.iter().enumerate() {
            let cols = spec.cols as usize;
            let mut next = noise(spec.cols);
            let length: usize = PIECES.iter().sum();
            let mut text = || (0..length * cols).map(|_| next() as f32).collect();
            let texts: Vec<Vec<f32>> = (0..BATCH).map(|_| text()).collect();
            // Nothing of what another text has left is read.
            let mut ring = Buffer::nan(BATCH * spec.reach() as usize * cols);
            let mut past = 0;
            for piece in PIECES {
                let x = texts.iter().flat_map(|x| &x[past * cols..][..piece * cols]);
                let x: Vec<f32> = x.copied().collect();
                let tokens = |x: &Vec<f32>| -> Vec<f32> {
                    let tokens = past..past + piece;
                    tokens.flat_map(|t| rows(x, cols, t, &spec.by)).collect()
                };
                let wanted: Vec<f32> = texts.iter().flat_map(tokens).collect();
                let dims = [BATCH as u64, piece as u64, past as u64];
                let tiles = kernels[n].tiles(&dims);
                let split = [tiles / 2..tiles, 0..tiles / 2];
                let given = [Buffer::Real(x), Buffer::nan(wanted.len()), ring];
                let mut got = compiled.run(n, &given, &[], &dims, &[], &split);
                ring = got.pop().expect("a ring");
                let what = format!("{target}, {spec:?} after {past}");
                assert_same(&got[1], &Buffer::Real(wanted), &what);
                past += piece;
            }
        }
    }
}

/// A token of each of several texts, each at a place of its own.
#[test]
fn texts_of_other_lengths_on_every_target() {
    let by: &[u32] = &[3, 0, 1];
    let (places, length) = ([0usize, 2, 11], 14);
    for cols in [1usize, 16, 65] {
        let spec = Delay {
            dtype: DType::F32,
            cols: cols as u64,
            by: by.to_vec(),
            places: true,
        };
        let reach = spec.reach() as usize;
        let mut next = noise(spec.cols);
        let mut text = || (0..length * cols).map(|_| next() as f32).collect();
        let texts: Vec<Vec<f32>> = (0..BATCH).map(|_| text()).collect();
        let row = |n: usize, t: usize| &texts[n][t * cols..][..cols];
        let mut ring = vec![f32::NAN; BATCH * reach * cols];
        for (n, place) in places.into_iter().enumerate() {
            for t in place.saturating_sub(reach)..place {
                ring[(n * reach + t % reach) * cols..][..cols].copy_from_slice(row(n, t));
            }
        }
        let mut after = ring.clone();
        let (mut x, mut wanted) = (Vec::new(), Vec::new());
        for (n, place) in places.into_iter().enumerate() {
            x.extend_from_slice(row(n, place));
            wanted.extend(rows(&texts[n], cols, place, by));
            after[(n * reach + place % reach) * cols..][..cols].copy_from_slice(row(n, place));
        }
        let dims = [BATCH as u64, 1, 11];
        let kernel = KernelSpec::Delay(spec);
        let tiles = kernel.tiles(&dims);
        let given = [
            Buffer::Real(x),
            Buffer::Int(places.iter().map(|n| *n as i32).collect()),
            Buffer::nan(wanted.len()),
            Buffer::Real(ring),
        ];
        for target in targets() {
            let compiled = Compiled::new(std::slice::from_ref(&kernel), target);
            let got = compiled.run(
                0,
                &given,
                &[],
                &dims,
                &[],
                &[tiles / 2..tiles, 0..tiles / 2],
            );
            assert_same(&got[2], &Buffer::Real(wanted.clone()), "rows");
            assert_same(&got[3], &Buffer::Real(after.clone()), "ring");
        }
    }
}
