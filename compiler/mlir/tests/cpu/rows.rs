//! Compiled row, column and gather kernels against the scalar evaluator, bit for bit.

use crate::harness::bodies::Pick;
use crate::harness::bodies::{COLS, INPUTS, In, SEQ, build, inputs, period, picks, random_rows};
use crate::harness::{Buffer, Compiled, all_targets, assert_same, evaluated, targets};
use odec_program::expr::{Access, BinaryOp, Body, Expr, ExprId, ReduceOp, UnaryOp};
use odec_program::kernel::{Columns, Gather, Keep, Rows, Store};
use odec_program::real::Real;
use odec_program::{DType, Kernel, KernelSpec, Target};
use proptest::prelude::*;

fn same_outputs<T: Real>(got: &[Buffer<T>], want: &[Buffer<T>], what: &str) {
    let outputs = got.iter().zip(want).enumerate().skip(INPUTS as usize);
    for (n, (got, want)) in outputs {
        assert_same(got, want, &format!("{what}, operand {n}"));
    }
}

fn check_rows<T: Real>(kernel: &Rows, table: u64, on: &[Target]) {
    let (rows, cols) = (7, kernel.cols);
    let mut buffers = inputs::<T>(rows, cols, table);
    buffers.push(Buffer::nan((rows * cols) as usize));
    buffers.push(Buffer::nan((rows * cols) as usize));
    buffers.push(Buffer::nan(rows as usize));
    let types = kernel.operands.iter();
    let buffers: Vec<Buffer<T>> = buffers
        .into_iter()
        .zip(types)
        .map(|(b, d)| b.in_type(*d))
        .collect();
    let (dims, coeffs) = ([rows, SEQ], [0.3, -1.7]);
    let want = evaluated(&KernelSpec::Rows(kernel.clone()), &buffers, &dims, &coeffs);
    let first = INPUTS as usize;
    for &target in on {
        let compiled = Compiled::new(&[KernelSpec::Rows(kernel.clone())], target);
        for split in [vec![0..rows], vec![3..rows, 0..1, 1..3]] {
            let got = compiled.run(0, &buffers, &[], &dims, &coeffs, &split);
            same_outputs(&got, &want, &format!("{target}, {split:?}"));
        }
        // In place: the first output is the full input.
        let got = compiled.run(0, &buffers, &[(first, 0)], &dims, &coeffs, &[0..rows]);
        same_outputs(&got, &want, &format!("{target}, in place"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn rows_f32(cols in 0..COLS.len(), table in any::<u16>(), picks in picks(3..24), half in any::<bool>()) {
        let (cols, table) = (COLS[cols], period(COLS[cols], table));
        check_rows::<f32>(&random_rows::<f32>(cols, table, &picks, half), table, &targets());
    }

    /// Exact FMA in f64 without the instruction is limited to moderate numbers: random ones are for the other targets.
    #[test]
    fn rows_f64(cols in 0..COLS.len(), table in any::<u16>(), picks in picks(3..16)) {
        let (cols, table) = (COLS[cols], period(COLS[cols], table));
        let on: Vec<Target> = targets().into_iter().filter(|t| *t > Target::Portable).collect();
        check_rows::<f64>(&random_rows::<f64>(cols, table, &picks, false), table, &on);
    }

    #[test]
    fn columns_f32(cols in 0..COLS.len(), table in any::<u16>(), picks in picks(2..10), accumulate in any::<bool>(), rows in 0..2 * Columns::BLOCK + 9, parts in prop_oneof![Just(1), 2..=Columns::PARTS]) {
        let (cols, table) = (COLS[cols], period(COLS[cols], table));
        match parts {
            1 => check_columns::<f32>(cols, table, &picks, accumulate, (rows, parts)),
            _ => check_columns::<f32>(cols, table, &picks, false, (2 * rows, parts)),
        }
    }
}

fn check_columns<T: Real>(
    cols: u64,
    table: u64,
    picks: &[Pick],
    accumulate: bool,
    (rows, parts): (u64, u64),
) {
    let body = build::<T>(cols, table, picks, false);
    let value = ExprId(body.nodes.len() as u32 - 1);
    let mut operands = vec![T::DTYPE; INPUTS as usize + 1];
    operands[In::Index as usize] = DType::I32;
    let kernel = Columns {
        dtype: T::DTYPE,
        cols,
        operands,
        uniforms: 2,
        body,
        value,
        accumulate,
        parts,
    };
    let mut buffers = inputs::<T>(rows, cols, table);
    buffers.push(if accumulate {
        Buffer::from_fn(cols as usize, |i| i as f64 * 0.01)
    } else {
        Buffer::nan((cols * parts) as usize)
    });
    let (dims, coeffs) = ([rows, SEQ], [0.3, -1.7]);
    let tiles = match parts {
        1 => cols.div_ceil(Columns::TILE),
        parts => parts,
    };
    let want = evaluated(
        &KernelSpec::Columns(kernel.clone()),
        &buffers,
        &dims,
        &coeffs,
    );
    let out = INPUTS as usize;
    for target in targets() {
        let compiled = Compiled::new(&[KernelSpec::Columns(kernel.clone())], target);
        for split in [vec![0..tiles], (0..tiles).rev().map(|t| t..t + 1).collect()] {
            let got = compiled.run(0, &buffers, &[], &dims, &coeffs, &split);
            assert_same(&got[out], &want[out], &format!("{target}, {split:?}"));
        }
    }
}

/// Rounding to bf16 in registers, too: infinities, NaN, subnormals and ties are among the numbers.
#[test]
fn functions_on_their_whole_range() {
    let cols = 512;
    for op in [UnaryOp::Exp, UnaryOp::Log, UnaryOp::Erf, UnaryOp::Bf16] {
        let mut body = Body::default();
        let x = body.load(0, Access::full(cols));
        let value = body.unary(op, x);
        let kernel = Rows {
            dtype: DType::F32,
            cols,
            operands: vec![DType::F32; 2],
            uniforms: 0,
            body,
            stores: vec![Store {
                operand: 1,
                access: Access::full(cols),
                value,
            }],
        };
        let rows = 64;
        let n = (rows * cols) as usize;
        let spread: Vec<f32> = (0..n)
            .map(|i| f32::from_bits((i as u64 * (1 << 32) / n as u64) as u32))
            .collect();
        let buffers = [Buffer::Real(spread), Buffer::nan(n)];
        let want = evaluated(&KernelSpec::Rows(kernel.clone()), &buffers, &[rows, 1], &[]);
        for target in all_targets() {
            let compiled = Compiled::new(&[KernelSpec::Rows(kernel.clone())], target);
            let got = compiled.run(0, &buffers, &[], &[rows, 1], &[], &[0..rows]);
            assert_same(&got[1], &want[1], &format!("{target}, {op:?}"));
        }
    }
}

/// A copy from f32 to bf16 and back, on numbers of all kinds.
#[test]
fn stores_round_to_bf16() {
    let (rows, cols) = (65u64, 1024);
    let n = (rows * cols) as usize;
    let spread = |i: usize| (i as u64 * (1 << 32) / n as u64) as u32;
    // Ties, and their neighbours.
    let tie = |i: usize| spread(i) & 0xFFFF_0000 | (0x7FFF + i as u32 / 2 % 3);
    let bits = (0..n).map(|i| if i % 2 == 0 { spread(i) } else { tie(i) });
    let numbers: Vec<f32> = bits.map(f32::from_bits).collect();
    let copy = |from, to| {
        let mut body = Body::default();
        let value = body.load(0, Access::full(cols));
        KernelSpec::Rows(Rows {
            dtype: DType::F32,
            cols,
            operands: vec![from, to],
            uniforms: 0,
            body,
            stores: vec![Store {
                operand: 1,
                access: Access::full(cols),
                value,
            }],
        })
    };
    let specs = [copy(DType::F32, DType::Bf16), copy(DType::Bf16, DType::F32)];
    for target in all_targets() {
        let compiled = Compiled::new(&specs, target);
        let buffers = [Buffer::Real(numbers.clone()), Buffer::Half(vec![0; n])];
        let halves = compiled.run(0, &buffers, &[], &[rows, 1], &[], &[3..rows, 0..3])[1].clone();
        let want: Vec<f32> = numbers
            .iter()
            .map(|x| odec_program::bf16::to_f32(odec_program::bf16::of_f32(*x)))
            .collect();
        let want = Buffer::Real(want);
        assert_same(&halves, &want, &format!("{target}, rounded"));
        let buffers = [halves, Buffer::nan(n)];
        let back = compiled.run(1, &buffers, &[], &[rows, 1], &[], &[0..rows]);
        assert_same(&back[1], &want, &format!("{target}, widened"));
    }
}

#[test]
fn gather_and_scatter_add() {
    for cols in [1u64, 15, 16, 32, 33, 64, 100] {
        let (rows, entries) = (9usize, 5usize);
        let n = cols as usize;
        let index: Vec<i32> = (0..rows).map(|r| (r * r % entries) as i32).collect();
        let table: Vec<f32> = (0..entries * n).map(|i| (i as f32).sin()).collect();
        let values: Vec<f32> = (0..rows * n).map(|i| (i as f32 * 0.3).cos()).collect();
        let spec = Gather {
            dtype: DType::F32,
            cols,
        };
        let dims = [rows as u64, entries as u64];
        let picked: Vec<f32> = index
            .iter()
            .flat_map(|i| table[*i as usize * n..][..n].to_vec())
            .collect();
        let mut sums = table.clone();
        for (r, i) in index.iter().enumerate() {
            for c in 0..n {
                sums[*i as usize * n + c] += values[r * n + c];
            }
        }
        for target in targets() {
            let specs = [
                KernelSpec::Gather(spec.clone()),
                KernelSpec::ScatterAdd(spec.clone()),
            ];
            let compiled = Compiled::new(&specs, target);
            let buffers = [
                Buffer::Int(index.clone()),
                Buffer::Real(table.clone()),
                Buffer::nan(rows * n),
            ];
            let got = compiled.run(0, &buffers, &[], &dims, &[], &[4..9, 0..4]);
            assert_same(
                &got[2],
                &Buffer::Real(picked.clone()),
                &format!("{target}, gather {cols}"),
            );
            let buffers = [
                Buffer::Int(index.clone()),
                Buffer::Real(values.clone()),
                Buffer::Real(table.clone()),
            ];
            let tiles = cols.div_ceil(Gather::TILE);
            let split: Vec<_> = (0..tiles).map(|t| t..t + 1).collect();
            for split in [split, vec![0..tiles]] {
                let got = compiled.run(1, &buffers, &[], &dims, &[], &split);
                assert_same(
                    &got[2],
                    &Buffer::Real(sums.clone()),
                    &format!("{target}, scatter {cols}"),
                );
            }
        }
    }
}

/// A row of each sequence takes its place, and nothing else changes.
#[test]
fn rows_are_kept_at_their_places() {
    let (places, room) = ([4, 0, 2], 5usize);
    for (cols, elements) in [1u64, 15, 16, 33, 100]
        .map(|cols| (cols, DType::F32))
        .into_iter()
        .chain([(2, DType::Bf16), (34, DType::Bf16)])
    {
        let n = cols as usize;
        let buffer = |rows: usize, from: f32| {
            let numbers = (0..rows * n).map(|i| f32::from(i as u16) / 4.0 + from);
            let numbers: Vec<f32> = numbers.collect();
            match elements {
                DType::Bf16 => Buffer::Half(numbers.iter().map(|x| x.bf16()).collect()),
                _ => Buffer::Real(numbers),
            }
        };
        let (rows, kept) = (
            buffer(places.len(), 0.25),
            buffer(places.len() * room, -90.0),
        );
        let mut wanted: Vec<f32> = kept.numbers();
        for (s, place) in places.iter().enumerate() {
            let row = &rows.numbers()[s * n..][..n];
            wanted[(s * room + place) * n..][..n].copy_from_slice(row);
        }
        let spec = KernelSpec::Keep(Keep {
            dtype: DType::F32,
            elements,
            cols,
            room: room as u64,
        });
        let index = Buffer::Int(places.iter().map(|n| *n as i32).collect());
        let dims = [places.len() as u64, room as u64];
        for target in targets() {
            let compiled = Compiled::new(std::slice::from_ref(&spec), target);
            let buffers = [index.clone(), rows.clone(), kept.clone()];
            let got = compiled.run(0, &buffers, &[], &dims, &[], &[1..3, 0..1]);
            assert_eq!(got[2].numbers(), wanted, "{target}, {cols} of {elements:?}");
        }
    }
}

#[test]
fn sequence_sums() {
    let (batch, seq) = (5usize, 3usize);
    for cols in [1u64, 15, 16, 33, 100] {
        let n = cols as usize;
        let values: Vec<f32> = (0..batch * seq * n)
            .map(|i| (i as f32 * 0.3).cos())
            .collect();
        let mut sums = vec![0.0f32; batch * n];
        for (i, x) in values.iter().enumerate() {
            sums[i / (seq * n) * n + i % n] += x;
        }
        let spec = KernelSpec::SequenceSum(Gather {
            dtype: DType::F32,
            cols,
        });
        let dims = [batch, seq].map(|d| d as u64);
        for target in targets() {
            let compiled = Compiled::new(std::slice::from_ref(&spec), target);
            let buffers = [Buffer::Real(values.clone()), Buffer::nan(batch * n)];
            let got = compiled.run(0, &buffers, &[], &dims, &[], &[3..5, 0..3]);
            assert_same(
                &got[1],
                &Buffer::Real(sums.clone()),
                &format!("{target}, {cols} columns"),
            );
        }
    }
}

#[test]
fn position_sums() {
    let (batch, seq, positions) = (3usize, 5usize, 8usize);
    for cols in [1u64, 15, 16, 33, 100] {
        let n = cols as usize;
        let values: Vec<f32> = (0..batch * seq * n)
            .map(|i| (i as f32 * 0.3).cos())
            .collect();
        let mut sums = vec![0.0f32; positions * n];
        for (i, x) in values.iter().enumerate() {
            sums[i % (seq * n)] += x;
        }
        let spec = KernelSpec::PositionSum(Gather {
            dtype: DType::F32,
            cols,
        });
        let dims = [batch, seq, positions].map(|d| d as u64);
        for target in targets() {
            let compiled = Compiled::new(std::slice::from_ref(&spec), target);
            let buffers = [Buffer::Real(values.clone()), Buffer::nan(positions * n)];
            let got = compiled.run(0, &buffers, &[], &dims, &[], &[4..8, 0..4]);
            assert_same(
                &got[1],
                &Buffer::Real(sums.clone()),
                &format!("{target}, {cols} columns"),
            );
        }
    }
}

/// Root-mean-square norm with a gain: `x / √(mean x² + ε) · g`.
pub fn rms_norm(cols: u64) -> Rows {
    let mut b = Body::default();
    let x = b.load(0, Access::full(cols));
    let g = b.load(1, Access::PER_COL);
    let square = b.mul(x, x);
    let sum = b.reduce(ReduceOp::Sum, square);
    let (per_col, eps, one) = (b.konst(1.0 / cols as f64), b.konst(1e-5), b.konst(1.0));
    let mean = b.mul(sum, per_col);
    let mean = b.add(mean, eps);
    let root = b.unary(UnaryOp::Sqrt, mean);
    let inverse = b.binary(BinaryOp::Div, one, root);
    let y = b.mul(x, inverse);
    let value = b.mul(y, g);
    Rows {
        dtype: DType::F32,
        cols,
        operands: vec![DType::F32; 3],
        uniforms: 0,
        body: b,
        stores: vec![Store {
            operand: 2,
            access: Access::full(cols),
            value,
        }],
    }
}

#[test]
fn text_of_a_norm() {
    let spec = KernelSpec::Rows(rms_norm(100));
    let kernel = Kernel {
        symbol: "rms_norm".into(),
        spec,
    };
    insta::assert_snapshot!(odec_mlir::mlir_text(&kernel, Target::Avx512).unwrap());
}

#[test]
fn what_no_kernel_can_do_is_refused() {
    let refused = |change: fn(&mut Rows)| {
        let mut k = rms_norm(64);
        change(&mut k);
        let kernel = Kernel {
            symbol: "k".into(),
            spec: KernelSpec::Rows(k),
        };
        odec_mlir::mlir_text(&kernel, Target::Avx2)
            .unwrap_err()
            .to_string()
    };
    let per_row = refused(|k| k.stores[0].access = Access::PER_ROW);
    assert!(per_row.contains("one element per row"), "{per_row}");
    let zero = refused(|k| k.stores[0].access = Access::PER_COL);
    assert!(zero.contains("neither per element nor per row"), "{zero}");
    let acc = refused(|k| k.body.nodes.push(Expr::Acc));
    assert!(acc.contains("accumulator"), "{acc}");
}
