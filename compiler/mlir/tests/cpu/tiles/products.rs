//! Products in pairs, packed and multiplied by compiled kernels or by the reference device.
//!
//! Takes how operands lie, and numbers; gives the panels of B and the product.

use crate::harness::{Buffer, Compiled};
use odec_program::expr::{Access, Body, Expr, UnaryOp};
use odec_program::kernel::{Blocking, Contract, Epilogue, Extent, Order, Pack};
use odec_program::{DType, Kernel, KernelSpec};
use odec_runtime::device::Device;
use odec_runtime::device::memory::Words;
use odec_runtime::device::reference::ReferenceDevice;
use std::ops::Range;

/// What a product is asked to do, and how its operands lie.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub a: DType,
    pub b: DType,
    pub a_transposed: bool,
    pub b_transposed: bool,
    pub accumulate: bool,
    pub epilogue: bool,
}

/// Every arrangement that programs have, with activations and weights in f32 and in bf16.
pub const FORMS: [Form; 5] = {
    const fn of(
        types: [DType; 2],
        transposed: [bool; 2],
        accumulate: bool,
        epilogue: bool,
    ) -> Form {
        let ([a, b], [a_transposed, b_transposed]) = (types, transposed);
        Form {
            a,
            b,
            a_transposed,
            b_transposed,
            accumulate,
            epilogue,
        }
    }
    const F: DType = DType::F32;
    const H: DType = DType::Bf16;
    [
        of([H, F], [false, true], false, false),
        of([F, H], [false, false], false, false),
        of([F, F], [true, false], true, false),
        of([H, H], [true, true], false, false),
        of([F, F], [false, true], true, true),
    ]
};

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub m: u64,
    pub n: u64,
    pub k: u64,
}

/// `|x| · scale + bias`, x the sum.
fn epilogue() -> Epilogue {
    let mut body = Body::default();
    let acc = body.push(Expr::Acc);
    let square = body.mul(acc, acc);
    let size = body.unary(UnaryOp::Sqrt, square);
    let (scale, bias) = (body.uniform(0), body.load(2, Access::PER_COL));
    let value = body.fma(size, scale, bias);
    Epilogue {
        operands: 1,
        halves: vec![],
        uniforms: 1,
        body,
        value,
    }
}

/// Pack and contraction; with `fixed`, sizes are part of the kernels.
pub fn kernels(
    form: Form,
    (order, blocking): (Order, Blocking),
    shape: Shape,
    fixed: bool,
) -> [KernelSpec; 2] {
    let extent = |n: u64| match fixed {
        true => Extent::Static(n),
        false => Extent::Dynamic,
    };
    let Shape { m, n, k } = shape;
    let pack = Pack {
        dtype: DType::Bf16,
        from: form.b,
        n: extent(n),
        k: extent(k),
        nr: blocking.nr,
        transposed: form.b_transposed,
        order,
        quantized: None,
    };
    let contract = Contract {
        a: form.a,
        b: DType::Bf16,
        a_transposed: form.a_transposed,
        accumulate: form.accumulate,
        order,
        epilogue: form.epilogue.then(epilogue),
        ..Contract::new(DType::F32, [m, n, k].map(extent), blocking)
    };
    [KernelSpec::Pack(pack), KernelSpec::Contract(contract)]
}

/// A, B, the bias and what C holds.
pub struct Data {
    pub a: Buffer<f32>,
    pub b: Buffer<f32>,
    bias: Buffer<f32>,
    pub c: Buffer<f32>,
}

impl Data {
    pub fn new(form: Form, s: Shape, mut next: impl FnMut() -> f32) -> Data {
        let mut fill = |n: u64| Buffer::Real((0..n).map(|_| next()).collect());
        let (a, b) = (fill(s.m * s.k), fill(s.k * s.n));
        let (bias, c) = (fill(s.n), fill(s.m * s.n));
        Data {
            a: a.in_type(form.a),
            b: b.in_type(form.b),
            bias,
            c: match form.accumulate {
                true => c,
                false => Buffer::nan((s.m * s.n) as usize),
            },
        }
    }

    /// Packs and multiplies, by whatever launches kernel 0 or 1 on operands: panels and C.
    fn run(
        &self,
        specs: &[KernelSpec; 2],
        s: Shape,
        launch: impl Fn(usize, &[Buffer<f32>], &[u64]) -> Buffer<f32>,
    ) -> [Buffer<f32>; 2] {
        let KernelSpec::Contract(c) = &specs[1] else {
            unreachable!("a contraction")
        };
        let room = s.n.next_multiple_of(c.blocking.nr.into()) * s.k.next_multiple_of(32);
        let room = Buffer::nan(room as usize).in_type(DType::Bf16);
        let packed = launch(0, &[self.b.clone(), room], &[s.n, s.k]);
        let mut operands = vec![self.a.clone(), packed.clone()];
        operands.extend(c.epilogue.as_ref().map(|_| self.bias.clone()));
        operands.push(self.c.clone());
        [packed, launch(1, &operands, &[s.m, s.n, s.k])]
    }

    pub fn reference(&self, specs: &[KernelSpec; 2], s: Shape) -> [Buffer<f32>; 2] {
        self.run(specs, s, |n, operands, dims| {
            reference(&specs[n], operands, dims)
        })
    }

    /// By kernels `first` and `first + 1` of a library, tiles in so many parts.
    pub fn compiled(
        &self,
        library: &Compiled,
        first: usize,
        specs: &[KernelSpec; 2],
        s: Shape,
        parts: u64,
    ) -> [Buffer<f32>; 2] {
        self.run(specs, s, |n, operands, dims| {
            let tiles = specs[n].tiles(dims);
            let cut = |i: u64| tiles * i / parts;
            let parts: Vec<Range<u64>> = (0..parts).map(|i| cut(i)..cut(i + 1)).collect();
            let mut after = library.run(
                first + n,
                operands,
                &[],
                dims,
                &[SCALE][..coeffs(&specs[n])],
                &parts,
            );
            after.pop().expect("an operand")
        })
    }
}

const SCALE: f64 = 0.75;

fn coeffs(spec: &KernelSpec) -> usize {
    match spec {
        KernelSpec::Contract(c) => c.epilogue.as_ref().map_or(0, |e| e.uniforms as usize),
        _ => 0,
    }
}

/// The last operand of a launch on the reference device.
fn reference(spec: &KernelSpec, operands: &[Buffer<f32>], dims: &[u64]) -> Buffer<f32> {
    let words = |b: &Buffer<f32>| -> Vec<u32> {
        match b {
            Buffer::Real(v) => v.iter().map(|x| x.to_bits()).collect(),
            Buffer::Half(v) => {
                let pair = |p: &[u16]| u32::from(p[0]) | u32::from(*p.get(1).unwrap_or(&0)) << 16;
                v.chunks(2).map(pair).collect()
            }
            Buffer::Int(_) | Buffer::Bytes(_) => unreachable!("no indices"),
        }
    };
    let mut memory: Vec<Vec<u32>> = operands.iter().map(words).collect();
    let cells: Vec<Words> = memory
        .iter_mut()
        .map(|m| std::cell::Cell::from_mut(&mut m[..]).as_slice_of_cells())
        .collect();
    let kernel = Kernel {
        symbol: spec.symbol(),
        spec: spec.clone(),
    };
    ReferenceDevice::new(&[kernel]).launch(0, &cells, dims, &[SCALE][..coeffs(spec)]);
    let out = cells.last().expect("an operand").iter().map(|w| w.get());
    match operands.last() {
        Some(Buffer::Half(v)) => {
            let halves = out.flat_map(|w| [w as u16, (w >> 16) as u16]);
            Buffer::Half(halves.take(v.len()).collect())
        }
        _ => Buffer::Real(out.map(f32::from_bits).collect()),
    }
}
