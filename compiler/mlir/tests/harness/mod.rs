//! Runs compiled kernels on memory that ends at an inaccessible page.
//!
//! Takes kernel specs and operands; gives the operands after the launch. Every test of an emitter goes
//! through here: a read or write past an operand's end ends the test process.

#![allow(dead_code, unsafe_code)]

pub mod bodies;
pub mod models;

use odec_mlir::Cache;
use odec_program::kernel::Launch;
use odec_program::real::Real;
use odec_program::{DType, Kernel, KernelSpec, Target, bf16};
use odec_reference::{Reference, Words};
use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Range;

/// This user's compiled objects.
pub fn cache() -> Option<Cache> {
    odec_runtime::system::private::folder().ok().map(Cache::at)
}

/// One operand of a launch, in the kernel's element type, bf16 or i32.
#[derive(Clone, Debug)]
pub enum Buffer<T> {
    Real(Vec<T>),
    /// Bits of bf16.
    Half(Vec<u16>),
    Int(Vec<i32>),
    Bytes(Vec<i8>),
}

impl<T: Real> Buffer<T> {
    pub fn nan(len: usize) -> Buffer<T> {
        Buffer::Real(vec![T::of(f64::NAN); len])
    }
    /// `len` numbers from `f(0), f(1), …`.
    pub fn from_fn(len: usize, f: impl Fn(usize) -> f64) -> Buffer<T> {
        Buffer::Real((0..len).map(|i| T::of(f(i))).collect())
    }
    pub fn real(&self) -> &[T] {
        match self {
            Buffer::Real(v) => v,
            _ => panic!("an operand of another type"),
        }
    }
    /// The same numbers as elements of type `dtype`, rounded if that is bf16.
    pub fn in_type(self, dtype: DType) -> Buffer<T> {
        match (self, dtype) {
            (Buffer::Real(v), DType::Bf16) => {
                Buffer::Half(v.into_iter().map(|x| x.bf16()).collect())
            }
            (b, _) => b,
        }
    }
    /// Its numbers, widened if they are bf16.
    pub fn numbers(&self) -> Vec<T> {
        match self {
            Buffer::Real(v) => v.clone(),
            Buffer::Half(v) => v.iter().map(|x| T::of(bf16::to_f32(*x).into())).collect(),
            Buffer::Bytes(v) => v.iter().map(|x| T::of_i32((*x).into())).collect(),
            Buffer::Int(_) => panic!("an index operand"),
        }
    }
    /// Its elements in words, as programs have them.
    fn words(&self) -> Vec<Cell<u32>> {
        let packed = |of: &[u32], bits: u32| {
            let each = of.iter().zip(0u32..);
            Cell::new(each.fold(0, |word, (x, n)| word | x << (bits * n)))
        };
        match self {
            Buffer::Real(v) if size_of::<T>() == 4 => {
                let word = |x: &T| Cell::new((x.to_f64() as f32).to_bits());
                v.iter().map(word).collect()
            }
            Buffer::Real(v) => {
                let mut words = Vec::with_capacity(2 * v.len());
                for x in v {
                    let bits = x.to_f64().to_bits();
                    words.push(Cell::new(bits as u32));
                    words.push(Cell::new((bits >> 32) as u32));
                }
                words
            }
            Buffer::Half(v) => {
                let v: Vec<u32> = v.iter().map(|x| u32::from(*x)).collect();
                v.chunks(2).map(|of| packed(of, 16)).collect()
            }
            Buffer::Int(v) => v.iter().map(|x| Cell::new(*x as u32)).collect(),
            Buffer::Bytes(v) => {
                let v: Vec<u32> = v.iter().map(|x| u32::from(*x as u8)).collect();
                v.chunks(4).map(|of| packed(of, 8)).collect()
            }
        }
    }

    /// As many elements of the same type, from words.
    fn like(&self, words: &[Cell<u32>]) -> Buffer<T> {
        let part = |i: usize, bits: usize| words[i * bits / 32].get() >> (i * bits % 32);
        match self {
            Buffer::Real(_) if size_of::<T>() == 4 => {
                let all = words.iter().map(|w| T::of(f32::from_bits(w.get()).into()));
                Buffer::Real(all.collect())
            }
            Buffer::Real(_) => {
                let number = |of: &[Cell<u32>]| {
                    let (low, high) = (of[0].get(), of[1].get());
                    T::of(f64::from_bits(u64::from(low) | u64::from(high) << 32))
                };
                Buffer::Real(words.chunks(2).map(number).collect())
            }
            Buffer::Half(v) => Buffer::Half((0..v.len()).map(|i| part(i, 16) as u16).collect()),
            Buffer::Int(_) => Buffer::Int(words.iter().map(|w| w.get() as i32).collect()),
            Buffer::Bytes(v) => Buffer::Bytes((0..v.len()).map(|i| part(i, 8) as i8).collect()),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Buffer::Real(v) => std::mem::size_of_val(v.as_slice()),
            Buffer::Half(v) => std::mem::size_of_val(v.as_slice()),
            Buffer::Int(v) => std::mem::size_of_val(v.as_slice()),
            Buffer::Bytes(v) => v.len(),
        }
    }
}

/// What a launch leaves in its operands, as the kernel's specification says.
pub fn evaluated<T: Real>(
    spec: &KernelSpec,
    operands: &[Buffer<T>],
    dims: &[u64],
    coeffs: &[f64],
) -> Vec<Buffer<T>> {
    let kernel = Kernel {
        symbol: "k".into(),
        spec: spec.clone(),
    };
    let words: Vec<Vec<Cell<u32>>> = operands.iter().map(Buffer::words).collect();
    let all: Vec<Words> = words.iter().map(Vec::as_slice).collect();
    let launch = Launch {
        dims,
        coeffs,
        threads: 1,
    };
    Reference::new(&[kernel]).run(0, &all, launch);
    let both = operands.iter().zip(&words);
    both.map(|(operand, words)| operand.like(words)).collect()
}

/// Memory between two inaccessible pages, whose last byte lies before the second one.
struct Guarded {
    map: *mut u8,
    mapped: usize,
    data: *mut u8,
    bytes: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    fn new(bytes: usize) -> Guarded {
        let inner = bytes.next_multiple_of(PAGE);
        let mapped = inner + 2 * PAGE;
        // SAFETY: a fresh private mapping; the pages whose protection changes belong to it.
        let map = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let map = libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            );
            assert!(map != libc::MAP_FAILED);
            let map = map.cast::<u8>();
            assert_eq!(libc::mprotect(map.cast(), PAGE, libc::PROT_NONE), 0);
            assert_eq!(
                libc::mprotect(map.add(PAGE + inner).cast(), PAGE, libc::PROT_NONE),
                0
            );
            map
        };
        // SAFETY: the offset is inside the mapping.
        let data = unsafe { map.add(PAGE + inner - bytes) };
        Guarded {
            map,
            mapped,
            data,
            bytes,
        }
    }

    fn fill<T>(&mut self, from: &[T]) {
        let bytes = std::mem::size_of_val(from);
        assert_eq!(bytes, self.bytes);
        // SAFETY: `data` holds `bytes` writable bytes of this mapping, nobody else refers to it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), self.data, bytes) }
    }

    fn read<T: Copy>(&self, to: &mut [T]) {
        assert_eq!(std::mem::size_of_val(to), self.bytes);
        // SAFETY: `data` holds that many readable bytes, of plain numbers.
        unsafe {
            std::ptr::copy_nonoverlapping(self.data, to.as_mut_ptr().cast::<u8>(), self.bytes)
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`.
        unsafe {
            libc::munmap(self.map.cast(), self.mapped);
        }
    }
}

type Entry =
    unsafe extern "C" fn(*const *mut c_void, *const i64, *const f64, i64, i64, *mut c_void);

/// Kernels compiled for one target and loaded.
pub struct Compiled {
    library: libloading::Library,
    kernels: Vec<Kernel>,
    _folder: tempfile::TempDir,
}

/// The targets that this machine runs.
pub fn all_targets() -> Vec<Target> {
    let permitted =
        |t: &Target| *t != Target::Amx || odec_runtime::device::ffi::permit_tiles().is_ok();
    let all = Target::CPUS.into_iter().filter(|t| t.supported().is_ok());
    all.filter(permitted).collect()
}

/// Those of them whose code differs where nothing is multiplied in pairs or rounded to bf16: all of AVX-512 have the same
/// (`codegen::code_without_pairs_is_the_same`).
pub fn targets() -> Vec<Target> {
    let all = all_targets().into_iter();
    all.filter(|t| *t <= Target::Avx512).collect()
}

impl Compiled {
    pub fn new(specs: &[KernelSpec], target: Target) -> Compiled {
        let kernels: Vec<Kernel> = specs
            .iter()
            .map(|s| Kernel {
                symbol: s.symbol(),
                spec: s.clone(),
            })
            .collect();
        let mut distinct = kernels.clone();
        distinct.sort_by(|a, b| a.symbol.cmp(&b.symbol));
        distinct.dedup_by(|a, b| a.symbol == b.symbol);
        let objects = odec_mlir::compile(&distinct, target, cache().as_ref())
            .unwrap_or_else(|e| panic!("{e}"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernels.so");
        odec_mlir::link(&objects, &path).expect("the objects link");
        // SAFETY: the library has no initialisers.
        let library = unsafe { libloading::Library::new(&path).unwrap() };
        Compiled {
            library,
            kernels,
            _folder: folder,
        }
    }

    /// Tiles of a launch of kernel `n`.
    pub fn tiles(&self, n: usize, dims: &[u64]) -> u64 {
        self.kernels[n].spec.tiles(dims)
    }

    /// Launches kernel `n` on copies of `operands` (operand `a` in the place of `b` for each alias (b, a)), once for
    /// each range of tiles, and gives the operands afterwards.
    pub fn run<T: Real>(
        &self,
        n: usize,
        operands: &[Buffer<T>],
        aliases: &[(usize, usize)],
        dims: &[u64],
        coeffs: &[f64],
        tiles: &[Range<u64>],
    ) -> Vec<Buffer<T>> {
        let kernel = &self.kernels[n];
        let mut memory: Vec<Guarded> = operands.iter().map(|b| Guarded::new(b.bytes())).collect();
        for (m, b) in memory.iter_mut().zip(operands) {
            match b {
                Buffer::Real(v) => m.fill(v),
                Buffer::Half(v) => m.fill(v),
                Buffer::Int(v) => m.fill(v),
                Buffer::Bytes(v) => m.fill(v),
            }
        }
        let mut pointers: Vec<*mut c_void> = memory.iter().map(|m| m.data.cast()).collect();
        for (b, a) in aliases {
            pointers[*b] = pointers[*a];
        }
        let dims_i64: Vec<i64> = dims.iter().map(|d| *d as i64).collect();
        // Scratch is 64-byte aligned: rounded up, it still ends at a guard page.
        let bytes = kernel
            .spec
            .signature()
            .scratch_bytes(dims)
            .next_multiple_of(64) as usize;
        // SAFETY: the symbol was compiled with this signature; operands, dims, coeffs and scratch are as the spec
        // documents.
        unsafe {
            let entry = self
                .library
                .get::<Entry>(kernel.symbol.as_bytes())
                .expect("the kernel is exported");
            for t in tiles {
                let mut scratch = Guarded::new(bytes);
                scratch.fill(&vec![0xFF_u8; bytes]);
                entry(
                    pointers.as_ptr(),
                    dims_i64.as_ptr(),
                    coeffs.as_ptr(),
                    t.start as i64,
                    t.end as i64,
                    scratch.data.cast(),
                );
            }
        }
        let mut out = operands.to_vec();
        for (n, b) in out.iter_mut().enumerate() {
            let from = aliases.iter().find(|a| a.0 == n).map_or(n, |a| a.1);
            match b {
                Buffer::Real(v) => memory[from].read(v),
                Buffer::Half(v) => memory[from].read(v),
                Buffer::Int(v) => memory[from].read(v),
                Buffer::Bytes(v) => memory[from].read(v),
            }
        }
        out
    }
}

/// Equal bits, or both NaN: payloads are no part of the meaning.
pub fn same<T: Real>(a: T, b: T) -> bool {
    let (a, b) = (a.to_f64(), b.to_f64());
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Panics naming the first element in which two operands differ.
pub fn assert_same<T: Real>(got: &Buffer<T>, want: &Buffer<T>, what: &str) {
    let (got, want) = (got.numbers(), want.numbers());
    assert_eq!(got.len(), want.len());
    if let Some(i) = (0..got.len()).find(|i| !same(got[*i], want[*i])) {
        panic!(
            "{what}: element {i} of {} is {:?}, not {:?}",
            got.len(),
            got[i],
            want[i]
        );
    }
}

/// The kernel type of a test's element type, for specs.
pub fn dtype<T: Real>() -> DType {
    T::DTYPE
}

/// A reproducible sequence of numbers in [−1, 1) of 24 bits (splitmix64).
pub fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    }
}
