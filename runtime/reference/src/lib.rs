//! Kernels run as their specifications say, on the words of operands.
//!
//! Takes the kernels of a program; gives what launches of them leave in memory, one tile after the other, the bits of compiled code. What each kind of
//! kernel means is in [`odec_program::kernel`]; here is the memory that it reads and writes. It is a crate of its own because tests spend their
//! time here, and it is compiled for speed; whoever launches programs uses it as a device of `odec-runtime`.
//!
//! # Invariants
//!
//! - A launch gives the bits of compiled code on a processor, for every kind of kernel (`compiler/mlir/tests/cpu/`).
//! - Kernels of f64 compute in f64, all others in f32. An operand is widened when it is loaded, and rounded to its own type when it is stored.
//! - A store changes the bytes of its element alone: of bf16 and i8 the rest of the word stays.
//! - Each launch checks the lengths of operands, the dimensions and the coefficients against the signature before it reads anything. What does not
//!   fit is a fault of whoever launches, and a panic.
//! - There is no `unsafe` and one thread: words are [`Cell`]s.

use odec_program::eval::Memory;
use odec_program::kernel::{Indices, Launch, Signature};
use odec_program::real::Real;
use odec_program::{DType, Kernel, KernelSpec, bf16};
use std::cell::Cell;
use std::ops::Range;

/// A run of 4-byte words: f32 or i32 elements, pairs of bf16 and fours of i8 ones (the first one in the lowest bits), or halves of f64 ones (low half first).
pub type Words<'a> = &'a [Cell<u32>];

/// Fills words with one.
pub fn fill(words: Words, with: u32) {
    words.iter().for_each(|w| w.set(with));
}

/// Kernels and their signatures.
pub struct Reference {
    kernels: Vec<(KernelSpec, Signature)>,
}

impl Reference {
    pub fn new(kernels: &[Kernel]) -> Reference {
        let kernel = |k: &Kernel| (k.spec.clone(), k.spec.signature());
        Reference {
            kernels: kernels.iter().map(kernel).collect(),
        }
    }

    /// Runs all tiles of kernel number `kernel`. Operands are in the order that its specification documents.
    ///
    /// # Panics
    /// When an operand is shorter than the signature says, or dimensions or coefficients are not as many.
    pub fn run(&self, kernel: usize, operands: &[Words], launch: Launch) {
        let (spec, signature) = &self.kernels[kernel];
        let lengths = operands.iter().map(|words| words.len() as u64);
        if let Err(what) = signature.check(lengths, launch.dims, launch.coeffs) {
            panic!("kernel {}: {what}", spec.symbol());
        }
        let mut memory = Operands::of(signature, operands);
        match signature.dtype {
            DType::F64 => spec.run::<f64>(&mut memory, launch),
            _ => spec.run::<f32>(&mut memory, launch),
        }
    }
}

/// Operands with their element types.
pub struct Operands<'a> {
    words: &'a [Words<'a>],
    types: Vec<DType>,
}

impl<'a> Operands<'a> {
    pub fn of(signature: &Signature, words: &'a [Words<'a>]) -> Operands<'a> {
        let types = signature.operands.iter().map(|o| o.dtype).collect();
        Operands { words, types }
    }
}

impl Indices for Operands<'_> {
    fn index(&self, operand: u32, index: u64) -> u64 {
        self.words[operand as usize][index as usize].get().into()
    }
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
            DType::I8 => T::of_i32((words[i / 4].get().to_le_bytes()[i % 4] as i8).into()),
            DType::F64 => {
                let (low, high) = (words[2 * i].get(), words[2 * i + 1].get());
                T::of(f64::from_bits(u64::from(low) | u64::from(high) << 32))
            }
        }
    }

    fn load_all(&self, operand: u32, indices: Range<u64>, out: &mut Vec<T>) {
        match self.types[operand as usize] {
            DType::F32 => {
                let words =
                    &self.words[operand as usize][indices.start as usize..indices.end as usize];
                out.extend(
                    words
                        .iter()
                        .map(|w| T::of(f64::from(f32::from_bits(w.get())))),
                )
            }
            _ => out.extend(indices.map(|i| -> T { self.load(operand, i) })),
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
            DType::I8 => {
                let mut bytes = words[i / 4].get().to_le_bytes();
                bytes[i % 4] = value.to_f64() as i8 as u8;
                words[i / 4].set(u32::from_le_bytes(bytes));
            }
            DType::F64 => {
                let bits = value.to_f64().to_bits();
                words[2 * i].set(bits as u32);
                words[2 * i + 1].set((bits >> 32) as u32);
            }
        }
    }
}
