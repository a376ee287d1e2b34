//! The reference device: every kernel spec executed by scalar Rust, one tile after the other.
//!
//! Takes the program's kernels; gives a [`Device`] that runs the planned program (same arena, same
//! offsets, same order) without compiled code, so that a fault shows on which side of code generation it
//! lies, and small models train where there is no LLVM. Expressions are evaluated by
//! [`odec_program::eval`].
//!
//! It gives the bits of compiled code for every kind of kernel.

use crate::device::Device;
use crate::device::memory::Words;
use crate::system::pool::default_threads;
use odec_program::attend;
use odec_program::eval::{self, Evaluator, Memory};
use odec_program::expr::{BinaryOp, UnaryOp};
use odec_program::kernel::{Contract, Gather, Layout, Order, Pack};
use odec_program::real::Real;
use odec_program::{DType, Kernel, KernelSpec, bf16, tile};

/// Interprets kernel specs.
pub struct ReferenceDevice {
    specs: Vec<KernelSpec>,
}

impl ReferenceDevice {
    pub fn new(kernels: &[Kernel]) -> ReferenceDevice {
        ReferenceDevice {
            specs: kernels.iter().map(|k| k.spec.clone()).collect(),
        }
    }
}

impl ReferenceDevice {
    /// Runs a launch; see [`Device::launch`].
    pub fn run(&self, kernel: usize, operands: &[Words], dims: &[u64], coeffs: &[f64]) {
        let spec = &self.specs[kernel];
        match spec.dtype() {
            DType::F64 => launch::<f64>(spec, operands, dims, coeffs),
            _ => launch::<f32>(spec, operands, dims, coeffs),
        }
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

/// Operands with their element types.
pub(crate) struct Operands<'a> {
    pub(crate) words: &'a [Words<'a>],
    pub(crate) types: Vec<DType>,
}

impl<T: Real> Memory<T> for Operands<'_> {
    fn load(&self, operand: u32, index: u64) -> T {
        let (words, i) = (self.words[operand as usize], index as usize);
        match self.types[operand as usize] {
            DType::F32 => T::of(f64::from(f32::from_bits(words[i].get()))),
            DType::Bf16 => {
                // The first of two elements is the lower half of a word.
                let bits = words[i / 2].get() >> (16 * (i % 2));
                T::of(f64::from(bf16::to_f32(bits as u16)))
            }
            DType::I32 => T::of_i32(words[i].get() as i32),
            DType::F64 => {
                let (low, high) = (words[2 * i].get(), words[2 * i + 1].get());
                T::of(f64::from_bits(u64::from(low) | u64::from(high) << 32))
            }
        }
    }

    fn store(&mut self, operand: u32, index: u64, value: T) {
        let (words, i) = (self.words[operand as usize], index as usize);
        match self.types[operand as usize] {
            DType::F32 => words[i].set((value.to_f64() as f32).to_bits()),
            DType::Bf16 => {
                let (word, shift) = (&words[i / 2], 16 * (i % 2));
                let other = word.get() & !(0xFFFF << shift);
                word.set(other | u32::from(value.bf16()) << shift);
            }
            DType::I32 => words[i].set(value.to_f64() as i32 as u32),
            DType::F64 => {
                let bits = value.to_f64().to_bits();
                words[2 * i].set(bits as u32);
                words[2 * i + 1].set((bits >> 32) as u32);
            }
        }
    }
}

fn launch<T: Real>(spec: &KernelSpec, words: &[Words], dims: &[u64], coeffs: &[f64]) {
    let tiles = 0..spec.tiles(dims);
    let types = (0..words.len()).map(|i| spec.operand_type(i)).collect();
    let mut m = Operands { words, types };
    match spec {
        KernelSpec::Rows(k) => eval::eval_rows::<T>(k, &mut m, [dims[0], dims[1]], coeffs, tiles),
        KernelSpec::Columns(k) => {
            eval::eval_columns::<T>(k, &mut m, [dims[0], dims[1]], coeffs, tiles)
        }
        KernelSpec::Pack(k) => pack::<T>(k, &mut m, dims),
        KernelSpec::Contract(k) => contract::<T>(k, &mut m, dims, coeffs),
        KernelSpec::Attend(k) => attend::eval_attend::<T>(k, &mut m, [dims[0], dims[1]]),
        KernelSpec::AttendCached(k) => {
            attend::eval_attend_cached::<T>(k, &mut m, [dims[0], dims[1]])
        }
        KernelSpec::AttendBackward(k) => {
            attend::eval_attend_backward::<T>(k, &mut m, [dims[0], dims[1]])
        }
        KernelSpec::Gather(k) => gather::<T>(k, &mut m, dims),
        KernelSpec::ScatterAdd(k) => scatter_add::<T>(k, &mut m, dims),
        KernelSpec::PositionSum(k) => position_sum::<T>(k, &mut m, dims),
    }
}

fn pack<T: Real>(p: &Pack, m: &mut impl Memory<T>, dims: &[u64]) {
    let (n, k, nr) = (dims[0], dims[1], u64::from(p.nr));
    let depth = p.order.depth(k).expect("the launch was checked");
    for column in 0..n.next_multiple_of(nr) {
        for i in 0..depth {
            let value = match (column < n && i < k, p.transposed) {
                (false, _) => T::ZERO,
                (true, false) => m.load(0, i * n + column),
                (true, true) => m.load(0, column * k + i),
            };
            m.store(1, p.order.element(i, column, depth, nr), value);
        }
    }
}

/// Multiplications of a launch that are worth several threads.
const MANY: u64 = 1 << 24;

fn contract<T: Real>(c: &Contract, memory: &mut impl Memory<T>, dims: &[u64], coeffs: &[f64]) {
    let (m, n, k) = (dims[0], dims[1], dims[2]);
    let nr = u64::from(c.blocking.nr);
    let elements = match c.layout {
        Layout::Panels => {
            n.next_multiple_of(nr) * c.order.depth(k).expect("the launch was checked")
        }
        Layout::Rows | Layout::Columns => n * k,
    };
    let mut epilogue = c
        .epilogue
        .as_ref()
        .map(|e| (Evaluator::<T>::new(&e.body, coeffs), e.value));
    let out = 2 + c.epilogue.as_ref().map_or(0, |e| e.operands);
    let rounded = |x: T| match c.b {
        DType::Bf16 => T::unary(UnaryOp::Bf16, x),
        _ => x,
    };
    let a: Vec<T> = (0..m * k).map(|i| rounded(memory.load(0, i))).collect();
    let b: Vec<T> = (0..elements).map(|i| memory.load(1, i)).collect();
    let before = c
        .accumulate
        .then(|| (0..m * n).map(|i| memory.load(out, i)).collect::<Vec<T>>());
    let mut sums = vec![T::ZERO; (m * n) as usize];
    // Rows do not depend on one another.
    let work = m.saturating_mul(n).saturating_mul(k);
    let threads = if work < MANY {
        1
    } else {
        default_threads().max(1)
    };
    let each = m.div_ceil(threads as u64).max(1);
    std::thread::scope(|scope| {
        let part = |first: u64, sums: &mut [T]| {
            for (i, row) in (first..).zip(sums.chunks_mut(n.max(1) as usize)) {
                sum_row(c, (&a, &b, before.as_deref()), [m, n, k], i, row);
            }
        };
        let parts = sums.chunks_mut((each * n).max(1) as usize);
        for (first, sums) in (0..m).step_by(each as usize).zip(parts) {
            match threads {
                1 => part(first, sums),
                _ => drop(scope.spawn(move || part(first, sums))),
            }
        }
    });
    for (i, row) in (0..m).zip(sums.chunks(n.max(1) as usize)) {
        if let Some((body, _)) = &mut epilogue {
            body.row(memory, i, 1, 0..n, row);
        }
        for (j, sum) in row.iter().enumerate() {
            let value = epilogue
                .as_ref()
                .map_or(*sum, |(body, id)| body.value(*id, j));
            memory.store(out, i * n + j as u64, value);
        }
    }
}

/// Row `i` of the sums of a contraction: factors, and what they are added to.
fn sum_row<T: Real>(
    c: &Contract,
    (a, b, before): (&[T], &[T], Option<&[T]>),
    [m, n, k]: [u64; 3],
    i: u64,
    row: &mut [T],
) {
    let kc = u64::from(c.blocking.kc);
    let left = |l: u64| if c.a_transposed { l * m + i } else { i * k + l };
    let a: Vec<T> = (0..k).map(|l| a[left(l) as usize]).collect();
    for (j, sum) in row.iter_mut().enumerate() {
        let column = |l: u64| b[c.element(l, j as u64, n, k) as usize];
        let mut total = before.map(|c| c[(i * n) as usize + j]);
        for start in (0..k).step_by(kc as usize) {
            let block = start..(start + kc).min(k);
            let block = match c.order {
                Order::Chain => block.fold(T::ZERO, |s, l| T::fma(a[l as usize], column(l), s)),
                Order::Pairs => {
                    let f32s = |x: T| x.to_f64() as f32;
                    let terms = block.map(|l| (f32s(a[l as usize]), f32s(column(l))));
                    T::of(tile::sum(terms).into())
                }
            };
            total = Some(total.map_or(block, |t| T::binary(BinaryOp::Add, t, block)));
        }
        *sum = total.unwrap_or(T::ZERO);
    }
}

fn gather<T: Real>(g: &Gather, m: &mut Operands, dims: &[u64]) {
    for r in 0..dims[0] {
        let from = u64::from(m.words[0][r as usize].get());
        for c in 0..g.cols {
            let value: T = m.load(1, from * g.cols + c);
            m.store(2, r * g.cols + c, value);
        }
    }
}

fn scatter_add<T: Real>(g: &Gather, m: &mut Operands, dims: &[u64]) {
    for r in 0..dims[0] {
        let to = u64::from(m.words[0][r as usize].get());
        for c in 0..g.cols {
            let (old, new): (T, T) = (m.load(2, to * g.cols + c), m.load(1, r * g.cols + c));
            m.store(2, to * g.cols + c, T::binary(BinaryOp::Add, old, new));
        }
    }
}

fn position_sum<T: Real>(g: &Gather, m: &mut Operands, dims: &[u64]) {
    let (batch, seq) = (dims[0], dims[1]);
    for p in 0..dims[2] {
        let sequences = if p < seq { batch } else { 0 };
        for c in 0..g.cols {
            let add = |sum: T, b: u64| {
                let x = m.load(0, (b * seq + p) * g.cols + c);
                T::binary(BinaryOp::Add, sum, x)
            };
            let sum = (0..sequences).fold(T::ZERO, add);
            m.store(1, p * g.cols + c, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::Buffer;
    use crate::device::rng::Stream;
    use odec_program::expr::{Access, Body, Expr};
    use odec_program::kernel::{Attend, Blocking, Epilogue, Extent};

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
                window: None,
                scale: 0.6,
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
