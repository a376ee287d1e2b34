//! Pack and contraction kernels against a scalar emulation of their documented order, bit for bit, on
//! every target that this machine runs.

use crate::harness::{Buffer, Compiled, assert_same, noise, same, targets};
use odec_program::expr::{Access, BinaryOp, Body, UnaryOp};
use odec_program::kernel::{Blocking, Contract, Epilogue, Extent, Order, Pack};
use odec_program::real::Real;
use odec_program::{DType, Kernel, KernelSpec, Target};
use std::ops::Range;

/// A product of the sweep.
#[derive(Clone, Copy, Debug)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
}

/// What a product is asked to do.
#[derive(Clone, Copy, Debug)]
struct Form {
    a_transposed: bool,
    b_transposed: bool,
    accumulate: bool,
    epilogue: bool,
}

const FORMS: [Form; 6] = [
    Form {
        a_transposed: false,
        b_transposed: true,
        accumulate: false,
        epilogue: false,
    },
    Form {
        a_transposed: false,
        b_transposed: false,
        accumulate: false,
        epilogue: false,
    },
    Form {
        a_transposed: true,
        b_transposed: false,
        accumulate: false,
        epilogue: false,
    },
    Form {
        a_transposed: true,
        b_transposed: false,
        accumulate: true,
        epilogue: false,
    },
    Form {
        a_transposed: false,
        b_transposed: true,
        accumulate: false,
        epilogue: true,
    },
    Form {
        a_transposed: false,
        b_transposed: true,
        accumulate: true,
        epilogue: true,
    },
];

/// Element types of A, of B and of B's panels.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Types {
    a: DType,
    b: DType,
    panels: DType,
}

impl Types {
    /// All of them.
    fn all(t: DType) -> Types {
        Types {
            a: t,
            b: t,
            panels: t,
        }
    }
    /// Everything that programs round to bf16.
    fn halves() -> [Types; 4] {
        let pairs = [(false, false), (true, false), (false, true), (true, true)];
        let of = |half| if half { DType::Bf16 } else { DType::F32 };
        pairs.map(|(a, b)| Types {
            a: of(a),
            b: of(b),
            panels: DType::Bf16,
        })
    }
}

/// A blocking with the register tile of the target, and cache blocks so small that a sweep crosses them.
fn small_blocks(target: Target, dtype: DType) -> Blocking {
    let b = target.blocking(dtype);
    Blocking {
        kc: 32,
        nc: 2 * b.nr,
        ..b
    }
}

/// `silu(x + bias) · scale + residual`, of which the residual is operand 2, the bias operand 3.
fn epilogue(n: usize) -> Epilogue {
    let mut body = Body::default();
    let acc = body.push(odec_program::expr::Expr::Acc);
    let (residual, bias) = (
        body.load(2, Access::full(n as u64)),
        body.load(3, Access::PER_COL),
    );
    let scale = body.uniform(0);
    let x = body.add(acc, bias);
    let minus = body.unary(UnaryOp::Neg, x);
    let exp = body.unary(UnaryOp::Exp, minus);
    let one = body.konst(1.0);
    let below = body.add(one, exp);
    let silu = body.binary(BinaryOp::Div, x, below);
    let value = body.fma(silu, scale, residual);
    Epilogue {
        operands: 2,
        halves: vec![],
        uniforms: 1,
        body,
        value,
    }
}

/// Pack and contraction for a shape; `fixed` makes every extent part of the kernel.
fn kernels(
    types: Types,
    form: Form,
    blocking: Blocking,
    shape: Shape,
    fixed: bool,
) -> [KernelSpec; 2] {
    let extent = |n: usize| {
        if fixed {
            Extent::Static(n as u64)
        } else {
            Extent::Dynamic
        }
    };
    let (m, n, k) = (extent(shape.m), extent(shape.n), extent(shape.k));
    let dtype = types.a.arithmetic();
    let pack = Pack {
        dtype: types.panels,
        from: types.b,
        n,
        k,
        nr: blocking.nr,
        transposed: form.b_transposed,
        order: Order::Chain,
        quantized: None,
    };
    // the epilogue's residual has a fixed row length
    let columns = match form.epilogue {
        true => Extent::Static(shape.n as u64),
        false => n,
    };
    let contract = Contract {
        a: types.a,
        b: types.panels,
        a_transposed: form.a_transposed,
        accumulate: form.accumulate,
        epilogue: form.epilogue.then(|| epilogue(shape.n)),
        ..Contract::new(dtype, [m, columns, k], blocking)
    };
    [KernelSpec::Pack(pack), KernelSpec::Contract(contract)]
}

/// The epilogue of one element, by the operations of the expression evaluator.
struct Reference<T> {
    types: Types,
    a: Vec<T>,
    b: Vec<T>,
    c: Vec<T>,
    residual: Vec<T>,
    bias: Vec<T>,
}

const SCALE: f64 = 0.3;

impl<T: Real> Reference<T> {
    fn new(types: Types, shape: Shape, seed: u64) -> Self {
        let mut next = noise(seed);
        let mut fill = |n: usize| (0..n).map(|_| T::of(next())).collect::<Vec<T>>();
        Reference {
            types,
            a: fill(shape.m * shape.k),
            b: fill(shape.k * shape.n),
            c: fill(shape.m * shape.n),
            residual: fill(shape.m * shape.n),
            bias: fill(shape.n),
        }
    }

    fn a(&self, form: Form, s: Shape, m: usize, k: usize) -> T {
        self.rounded(
            self.a[if form.a_transposed {
                k * s.m + m
            } else {
                m * s.k + k
            }],
        )
    }
    fn b(&self, form: Form, s: Shape, k: usize, n: usize) -> T {
        self.rounded(
            self.b[if form.b_transposed {
                n * s.k + k
            } else {
                k * s.n + n
            }],
        )
    }
    /// What becomes of an operand's element.
    fn rounded(&self, x: T) -> T {
        match self.types.panels {
            DType::Bf16 => T::unary(UnaryOp::Bf16, x),
            _ => x,
        }
    }

    /// C in the documented order of summation.
    fn product(&self, form: Form, s: Shape, kc: usize) -> Buffer<T> {
        let mut c = vec![T::ZERO; s.m * s.n];
        for m in 0..s.m {
            for n in 0..s.n {
                let mut sum = form.accumulate.then(|| self.c[m * s.n + n]);
                for block in (0..s.k).step_by(kc) {
                    let mut part = T::ZERO;
                    for k in block..s.k.min(block + kc) {
                        part = T::fma(self.a(form, s, m, k), self.b(form, s, k, n), part);
                    }
                    sum = Some(sum.map_or(part, |x| T::binary(BinaryOp::Add, x, part)));
                }
                c[m * s.n + n] = sum.unwrap_or(T::ZERO);
            }
        }
        Buffer::Real(if form.epilogue { self.finish(s, c) } else { c })
    }

    fn finish(&self, s: Shape, mut c: Vec<T>) -> Vec<T> {
        struct Operands<'a, T>(&'a Reference<T>);
        impl<T: Real> odec_program::eval::Memory<T> for Operands<'_, T> {
            fn load(&self, operand: u32, index: u64) -> T {
                if operand == 2 {
                    self.0.residual[index as usize]
                } else {
                    self.0.bias[index as usize]
                }
            }
            fn store(&mut self, _: u32, _: u64, _: T) {}
        }
        let epilogue = epilogue(s.n);
        let mut evaluator = odec_program::eval::Evaluator::new(&epilogue.body, &[SCALE]);
        for m in 0..s.m {
            let row = &mut c[m * s.n..][..s.n];
            evaluator.row(
                &Operands(self),
                m as u64,
                [s.m as u64, 1],
                0..s.n as u64,
                row,
            );
            let done: Vec<T> = (0..s.n)
                .map(|n| evaluator.value(epilogue.value, n))
                .collect();
            row.copy_from_slice(&done);
        }
        c
    }

    /// C computed by the kernels `pack` and `pack + 1` of a library, with tiles in `parts`.
    fn run(
        &self,
        library: &Compiled,
        pack: usize,
        form: Form,
        s: Shape,
        b: Blocking,
        parts: u64,
    ) -> Buffer<T> {
        let nr = b.nr as usize;
        let split = |tiles: u64| -> Vec<Range<u64>> {
            let cut = |i| tiles * i / parts;
            (0..parts).map(|i| cut(i)..cut(i + 1)).collect()
        };
        let panels = s.n.div_ceil(nr);
        let operands = [
            Buffer::Real(self.b.clone()).in_type(self.types.b),
            Buffer::nan(panels * nr * s.k).in_type(self.types.panels),
        ];
        let dims = [s.n as u64, s.k as u64];
        let tiles = split(library.tiles(pack, &dims));
        let mut after = library.run(pack, &operands, &[], &dims, &[], &tiles);
        let packed = after.pop().unwrap();
        for (p, panel) in packed.numbers().chunks(nr * s.k).enumerate() {
            for (k, row) in panel.chunks(nr).enumerate() {
                for (j, &x) in row.iter().enumerate() {
                    let n = p * nr + j;
                    let want = if n < s.n {
                        self.b(form, s, k, n)
                    } else {
                        T::ZERO
                    };
                    assert!(
                        same(x, want),
                        "packed B({k}, {n}) is {x:?}, not {want:?}, of {s:?} {form:?}"
                    );
                }
            }
        }
        let a = Buffer::Real(self.a.clone()).in_type(self.types.a);
        let mut operands = vec![a, packed];
        if form.epilogue {
            operands.extend([
                Buffer::Real(self.residual.clone()),
                Buffer::Real(self.bias.clone()),
            ]);
        }
        operands.push(match form.accumulate {
            true => Buffer::Real(self.c.clone()),
            false => Buffer::nan(s.m * s.n),
        });
        let dims = [s.m as u64, s.n as u64, s.k as u64];
        let tiles = split(library.tiles(pack + 1, &dims));
        library
            .run(pack + 1, &operands, &[], &dims, &[SCALE], &tiles)
            .pop()
            .unwrap()
    }
}

/// Every form on every combination of sizes around the blocks' edges, with all extents given at launch.
fn ragged<T: Real>(target: Target, types: Types) {
    let dtype = T::DTYPE;
    let blocking = small_blocks(target, dtype);
    let (mr, nr, kc, lanes) = (
        blocking.mr as usize,
        blocking.nr as usize,
        blocking.kc as usize,
        target.lanes(dtype) as usize,
    );
    let any = Shape { m: 1, n: 1, k: 1 };
    let forms: Vec<Form> = FORMS.into_iter().filter(|f| !f.epilogue).collect();
    let specs: Vec<KernelSpec> = forms
        .iter()
        .flat_map(|&f| kernels(types, f, blocking, any, false))
        .collect();
    let library = Compiled::new(&specs, target);
    let mut ms = vec![1, 2, 4, 5, 8, 9, mr - 1, mr, mr + 1, 2 * mr + 3];
    let mut ns = vec![
        1,
        lanes - 1,
        lanes,
        lanes + 1,
        nr - 1,
        nr,
        nr + 1,
        2 * nr,
        2 * nr + lanes + 1,
    ];
    let mut ks = vec![
        1,
        lanes - 1,
        lanes + 1,
        kc - 1,
        kc,
        kc + 1,
        2 * kc + lanes + 1,
    ];
    for sizes in [&mut ms, &mut ns, &mut ks] {
        sizes.retain(|&n| n > 0);
        sizes.sort();
        sizes.dedup();
    }
    for (f, &form) in forms.iter().enumerate() {
        for &m in &ms {
            for &n in &ns {
                for &k in &ks {
                    let shape = Shape { m, n, k };
                    let reference =
                        Reference::<T>::new(types, shape, (m * 1000 + n * 100 + k) as u64);
                    let want = reference.product(form, shape, kc);
                    let got = reference.run(&library, 2 * f, form, shape, blocking, 1);
                    assert_same(&got, &want, &format!("{target} {form:?} {shape:?}"));
                }
            }
        }
    }
}

#[test]
fn ragged_sizes_given_at_launch_f32() {
    for target in targets() {
        ragged::<f32>(target, Types::all(DType::F32));
    }
}

#[test]
fn ragged_sizes_given_at_launch_bf16() {
    for (types, target) in Types::halves().iter().zip(targets().into_iter().cycle()) {
        ragged::<f32>(target, *types);
    }
}

#[test]
fn ragged_sizes_given_at_launch_f64() {
    for target in targets() {
        ragged::<f64>(target, Types::all(DType::F64));
    }
}

/// Every form with extents that are part of the kernel, as programs have them, and any split of the tiles.
fn fixed<T: Real>(target: Target, types: &[Types], shapes: &[Shape]) {
    let dtype = T::DTYPE;
    let blocking = small_blocks(target, dtype);
    // Of several shapes every other one, for the next form those between.
    let apart = shapes.len().min(2);
    let mut all: Vec<(Types, Form, Shape)> = Vec::new();
    for &types in types {
        for (n, form) in FORMS.into_iter().enumerate() {
            let of_form = shapes.iter().skip(n % apart).step_by(apart);
            all.extend(of_form.map(|&shape| (types, form, shape)));
        }
    }
    let specs: Vec<KernelSpec> = all
        .iter()
        .flat_map(|&(types, form, shape)| kernels(types, form, blocking, shape, true))
        .collect();
    let library = Compiled::new(&specs, target);
    for (i, &(types, form, shape)) in all.iter().enumerate() {
        let reference = Reference::<T>::new(types, shape, i as u64);
        let want = reference.product(form, shape, blocking.kc as usize);
        for parts in [1, 2, 7] {
            let got = reference.run(&library, 2 * i, form, shape, blocking, parts);
            assert_same(
                &got,
                &want,
                &format!("{target} {types:?} {form:?} {shape:?} in {parts} parts"),
            );
        }
    }
}

#[test]
fn sizes_of_the_kernel_and_any_split_f32() {
    for target in targets() {
        let b = small_blocks(target, DType::F32);
        let (mr, nr) = (b.mr as usize, b.nr as usize);
        let shapes = [
            Shape { m: 1, n: 1, k: 1 },
            Shape {
                m: 9 * mr,
                n: 2 * nr,
                k: 64,
            },
            Shape {
                m: 3 * mr + 4,
                n: 3 * nr - 1,
                k: 70,
            },
            Shape {
                m: 2,
                n: 5 * nr,
                k: 32,
            },
        ];
        fixed::<f32>(target, &[Types::all(DType::F32)], &shapes);
    }
}

#[test]
fn sizes_of_the_kernel_and_any_split_bf16() {
    for target in targets() {
        let b = small_blocks(target, DType::F32);
        // Enough panels of rows that blocks of B are widened in one part, and too few in seven.
        let (m, n) = (5 * b.mr as usize + 3, 3 * b.nr as usize - 1);
        fixed::<f32>(target, &Types::halves(), &[Shape { m, n, k: 70 }]);
    }
}

/// With u = 2⁻⁸ the unit roundoff of bf16, v = 2⁻²⁴ that of f32 and γ = kv / (1 − kv): each rounded factor is off by a
/// relative error of u at most, a product of two by 2u + u², and every FMA or addition by another v, of which no term
/// meets more than k + blocks (N. Higham, "Accuracy and stability of numerical algorithms", 2002, §3.1 and §3.5).
#[test]
fn rounded_contractions_keep_their_error_bound() {
    let target = *targets().last().expect("a target");
    let blocking = target.blocking(DType::F32);
    for (i, shape) in [
        Shape { m: 7, n: 33, k: 1 },
        Shape {
            m: 9,
            n: 40,
            k: 255,
        },
        Shape {
            m: 5,
            n: 17,
            k: 1200,
        },
    ]
    .into_iter()
    .enumerate()
    {
        let types = Types::halves()[0];
        let library = Compiled::new(&kernels(types, FORMS[0], blocking, shape, true), target);
        for seed in 0..8 {
            let reference = Reference::<f32>::new(types, shape, 100 * i as u64 + seed);
            let got = reference.run(&library, 0, FORMS[0], shape, blocking, 1);
            let (u, v) = (odec_program::bf16::UNIT, 2f64.powi(-24));
            let steps = (shape.k + shape.k.div_ceil(blocking.kc as usize)) as f64 * v;
            let factor = (1.0 + u).powi(2) * (1.0 + steps / (1.0 - steps)) - 1.0;
            let mut closest = 0f64;
            for (at, c) in got.real().iter().enumerate() {
                let (m, n) = (at / shape.n, at % shape.n);
                let terms = (0..shape.k).map(|k| {
                    f64::from(reference.a[m * shape.k + k])
                        * f64::from(reference.b[n * shape.k + k])
                });
                let exact: f64 = terms.clone().sum();
                let bound = factor * terms.map(f64::abs).sum::<f64>();
                let error = (f64::from(*c) - exact).abs();
                assert!(error <= bound, "{shape:?}: {error:e} of {bound:e}");
                closest = closest.max(error / bound);
            }
            assert!(
                closest > 1e-3,
                "{shape:?}: a bound that is no measure: {closest}"
            );
        }
    }
}

#[test]
fn sizes_of_the_kernel_and_any_split_f64() {
    for target in targets() {
        fixed::<f64>(
            target,
            &[Types::all(DType::F64)],
            &[Shape {
                m: 31,
                n: 41,
                k: 59,
            }],
        );
    }
}

/// All targets have the same `kc`, so their results are the same bits.
#[test]
fn every_target_gives_the_same_bits() {
    let (form, shape) = (
        FORMS[4],
        Shape {
            m: 17,
            n: 45,
            k: 300,
        },
    );
    let mut results: Vec<Buffer<f32>> = Vec::new();
    for target in targets() {
        let blocking = target.blocking(DType::F32);
        let library = Compiled::new(
            &kernels(Types::all(DType::F32), form, blocking, shape, true),
            target,
        );
        let reference = Reference::<f32>::new(Types::all(DType::F32), shape, 3);
        results.push(reference.run(&library, 0, form, shape, blocking, 1));
        // and they are what the mathematics says
        let exact = Reference::<f64> {
            types: Types::all(DType::F64),
            a: reference.a.iter().map(|&x| x as f64).collect(),
            b: reference.b.iter().map(|&x| x as f64).collect(),
            c: reference.c.iter().map(|&x| x as f64).collect(),
            residual: reference.residual.iter().map(|&x| x as f64).collect(),
            bias: reference.bias.iter().map(|&x| x as f64).collect(),
        };
        let exact = exact.product(form, shape, usize::MAX / 2);
        for (got, want) in results[results.len() - 1].real().iter().zip(exact.real()) {
            assert!((*got as f64 - want).abs() < 1e-4, "{got} {want}");
        }
    }
    for other in &results[1..] {
        assert_same(other, &results[0], "another target");
    }
}

#[test]
fn impossible_specs_are_errors() {
    let (form, shape) = (FORMS[0], Shape { m: 4, n: 4, k: 4 });
    let blocking = Blocking {
        mr: 4,
        nr: 8,
        kc: 32,
        nc: 16,
    };
    for spec in kernels(Types::all(DType::F32), form, blocking, shape, true) {
        let kernel = Kernel {
            symbol: spec.symbol(),
            spec,
        };
        assert!(odec_mlir::mlir_text(&kernel, Target::Avx2).is_ok());
        let error = odec_mlir::mlir_text(&kernel, Target::Avx512).unwrap_err();
        assert!(error.to_string().contains("vectors of 16"), "{error}");
    }
}

#[test]
fn text_of_a_pack_and_a_contraction() {
    let blocking = Blocking {
        mr: 2,
        nr: 4,
        kc: 8,
        nc: 8,
    };
    let shape = Shape { m: 3, n: 8, k: 16 };
    let form = Form {
        a_transposed: true,
        b_transposed: true,
        accumulate: false,
        epilogue: false,
    };
    for spec in kernels(Types::all(DType::F32), form, blocking, shape, true) {
        let name = spec.kind();
        let kernel = Kernel {
            symbol: name.into(),
            spec,
        };
        insta::assert_snapshot!(
            name,
            odec_mlir::mlir_text(&kernel, Target::Portable).unwrap()
        );
    }
}
