//! The reference device: every kernel spec executed by scalar Rust, one tile after the other.
//!
//! Takes the program's kernels; gives a [`Device`] that runs the planned program (same arena, same
//! offsets, same order) without compiled code, so that a fault shows on which side of code generation it
//! lies, and small models train where there is no LLVM. The kernels are run by [`odec_reference`].
//!
//! It gives the bits of compiled code for every kind of kernel.

use crate::device::Device;
use crate::device::memory::Words;
use crate::system::pool::default_threads;
use odec_program::Kernel;
use odec_program::kernel::Launch;
use odec_reference::Reference;

/// Interprets kernel specs.
pub struct ReferenceDevice(Reference);

impl ReferenceDevice {
    pub fn new(kernels: &[Kernel]) -> ReferenceDevice {
        ReferenceDevice(Reference::new(kernels))
    }

    /// Runs a launch; see [`Device::launch`].
    pub fn run(&self, kernel: usize, operands: &[Words], dims: &[u64], coeffs: &[f64]) {
        let launch = Launch {
            dims,
            coeffs,
            threads: default_threads(),
        };
        self.0.run(kernel, operands, launch);
    }
}

impl Device for ReferenceDevice {
    fn name(&self) -> String {
        "reference device, 1 thread".into()
    }

    fn launch(&mut self, kernel: usize, operands: &[Words], dims: &[u64], coeffs: &[f64]) {
        self.run(kernel, operands, dims, coeffs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::Buffer;
    use odec_program::expr::{Access, Body, Expr};
    use odec_program::kernel::{
        Attend, Blocking, Contract, Epilogue, Extent, Layout, OperandAccess, Order, Pack,
    };
    use odec_program::rng::Stream;
    use odec_program::{DType, KernelSpec};
    use std::cell::Cell;

    /// Runs one kernel on f64 operands and returns them all.
    fn run(spec: KernelSpec, operands: &[Vec<f64>], dims: &[u64], coeffs: &[f64]) -> Vec<Vec<f64>> {
        let mut buffers: Vec<Buffer> = operands
            .iter()
            .map(|o| Buffer::zeroed(8 * o.len() as u64).unwrap())
            .collect();
        for (b, o) in buffers.iter_mut().zip(operands) {
            let bits = o
                .iter()
                .flat_map(|x| [x.to_bits() as u32, (x.to_bits() >> 32) as u32]);
            b.words().iter().zip(bits).for_each(|(w, v)| w.set(v));
        }
        let words: Vec<Words> = buffers.iter_mut().map(Buffer::words).collect();
        let symbol = spec.symbol();
        ReferenceDevice::new(&[Kernel { symbol, spec }]).launch(0, &words, dims, coeffs);
        let pair = |w: &[std::cell::Cell<u32>]| {
            f64::from_bits(u64::from(w[0].get()) | u64::from(w[1].get()) << 32)
        };
        words
            .iter()
            .map(|w| w.chunks_exact(2).map(pair).collect())
            .collect()
    }

    /// Samples of every kind run in memory of exactly the words that their signatures say, and in none that is a word shorter.
    #[test]
    fn operands_reach_exactly_as_far_as_signatures_say() {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        for sample in KernelSpec::samples() {
            let (dims, coeffs) = (&sample.dims[..], &sample.coeffs[..]);
            let signature = sample.spec.signature();
            let kernel = Kernel {
                symbol: sample.spec.symbol(),
                spec: sample.spec.clone(),
            };
            let device = ReferenceDevice::new(&[kernel]);
            let words = |o: &OperandAccess| vec![Cell::new(0); o.words(dims).unwrap() as usize];
            let buffers: Vec<Vec<Cell<u32>>> = signature.operands.iter().map(words).collect();
            let whole: Vec<Words> = buffers.iter().map(|b| -> Words { b }).collect();
            device.run(0, &whole, dims, coeffs);
            for n in 0..whole.len() {
                let mut short = whole.clone();
                short[n] = &whole[n][1..];
                let run = || device.run(0, &short, dims, coeffs);
                let refused = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
                let said = refused.downcast_ref::<String>().expect("words");
                let want = format!("kernel {}: operand {n} is too short", sample.spec.symbol());
                assert_eq!(*said, want);
            }
        }
    }

    fn random(seed: u64, n: u64) -> Vec<f64> {
        let s = Stream::new(seed, "reference");
        (0..n).map(|i| s.normal4(i)[0]).collect()
    }

    /// Bias and a scale after the sum: `2·acc + bias`.
    fn epilogue() -> Epilogue {
        let mut body = Body::default();
        let (acc, bias, two) = (
            body.push(Expr::Acc),
            body.load(2, Access::PER_COL),
            body.uniform(0),
        );
        let scaled = body.mul(acc, two);
        let value = body.add(scaled, bias);
        Epilogue {
            operands: 1,
            halves: vec![],
            uniforms: 1,
            body,
            value,
        }
    }

    #[test]
    fn contractions_pack_block_and_finish() {
        let (m, n, k) = (5u64, 7u64, 11u64);
        let (a, b, bias) = (random(1, m * k), random(2, k * n), random(3, n));
        let blocking = Blocking {
            mr: 4,
            nr: 4,
            kc: 3,
            nc: 8,
        };
        let dtype = DType::F64;
        for (a_transposed, transposed, accumulate) in [
            (false, false, false),
            (true, false, true),
            (false, true, true),
        ] {
            let at = |swap: bool, x: &[f64], r: u64, c: u64, rows: u64, cols: u64| {
                x[if swap { c * rows + r } else { r * cols + c } as usize]
            };
            let pack = Pack {
                dtype,
                from: dtype,
                n: Extent::Static(n),
                k: Extent::Dynamic,
                nr: 4,
                transposed,
                order: Order::Chain,
                quantized: None,
            };
            let room = vec![9.0; 8 * k as usize];
            let packed = run(KernelSpec::Pack(pack), &[b.clone(), room], &[n, k], &[])[1].clone();
            assert!(packed.chunks(4).skip(k as usize).all(|p| p[3] == 0.0));
            let contract = Contract {
                dtype,
                a: dtype,
                b: dtype,
                m: Extent::Dynamic,
                n: Extent::Static(n),
                k: Extent::Dynamic,
                a_transposed,
                layout: Layout::Panels,
                accumulate,
                rounds: false,
                parts: odec_program::kernel::Parts::ONE,
                terms: odec_program::kernel::Terms::ONE,
                order: Order::Chain,
                blocking,
                epilogue: Some(epilogue()),
            };
            let operands = [a.clone(), packed, bias.clone(), vec![0.5; (m * n) as usize]];
            let multiply = |contract: &Contract, operands: &[Vec<f64>]| {
                let spec = KernelSpec::Contract(contract.clone());
                run(spec, operands, &[m, n, k], &[2.0])
            };
            let out = multiply(&contract, &operands);
            let plain = Contract {
                layout: if transposed {
                    Layout::Columns
                } else {
                    Layout::Rows
                },
                ..contract.clone()
            };
            let [first, _, third, last] = operands.clone();
            assert_eq!(
                out[3],
                multiply(&plain, &[first, b.clone(), third, last])[3]
            );
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let start = if accumulate { 0.5 } else { 0.0 };
                let product = |l| at(a_transposed, &a, i, l, m, k) * at(transposed, &b, l, j, k, n);
                let want = 2.0 * (start + (0..k).map(product).sum::<f64>()) + bias[j as usize];
                let got = out[3][(i * n + j) as usize];
                assert!((got - want).abs() < 1e-12, "{i} {j}: {got} {want}");
            }
        }
    }

    #[test]
    fn the_gradient_of_attention_agrees_with_central_differences() {
        let (batch, seq, heads, head) = (2, 5, 2, 3);
        let n = batch * seq * heads * head;
        for causal in [true, false] {
            let spec = Attend {
                dtype: DType::F64,
                inputs: DType::F64,
                heads,
                kv_heads: heads,
                head,
                causal,
                room: None,
                window: None,
                scale: 0.6,
                rounds: false,
                value: None,
                scores: Default::default(),
                order: Default::default(),
                partial: false,
                others: false,
            };
            let inputs = [random(1, n), random(2, n), random(3, n)];
            let d_o = random(4, n);
            let zeros = vec![0.0; n as usize];
            let forward = |inputs: &[Vec<f64>; 3]| {
                let [q, k, v] = inputs.clone();
                let lse = vec![0.0; (batch * seq * heads) as usize];
                run(
                    KernelSpec::Attend(spec.clone()),
                    &[q, k, v, zeros.clone(), lse],
                    &[batch, seq],
                    &[],
                )
            };
            let out = forward(&inputs);
            if causal {
                // The first row of a sequence sees itself only.
                assert_eq!(out[3][..6], inputs[2][..6]);
            }
            let given = [
                inputs[0].clone(),
                inputs[1].clone(),
                inputs[2].clone(),
                out[3].clone(),
                out[4].clone(),
            ];
            let operands: Vec<Vec<f64>> = given
                .into_iter()
                .chain([d_o.clone()])
                .chain(std::iter::repeat_n(zeros.clone(), 3))
                .collect();
            let back = run(
                KernelSpec::AttendBackward(spec.clone()),
                &operands,
                &[batch, seq],
                &[],
            );
            let value = |inputs: &[Vec<f64>; 3]| -> f64 {
                let o = &forward(inputs)[3];
                o.iter().zip(&d_o).map(|(o, d)| o * d).sum()
            };
            for (which, i) in (0..3).flat_map(|w| (0..n as usize).map(move |i| (w, i))) {
                let mut moved = inputs.clone();
                moved[which][i] = inputs[which][i] + 1e-5;
                let up = value(&moved);
                moved[which][i] = inputs[which][i] - 1e-5;
                let slope = (up - value(&moved)) / 2e-5;
                let got = back[6 + which][i];
                assert!(
                    (got - slope).abs() < 1e-8,
                    "causal {causal}, input {which}, element {i}: {got} {slope}"
                );
            }
        }
    }
}
