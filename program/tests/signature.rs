//! Signatures of kernels against what their meaning reads and writes, for the samples of every kind.

use odec_program::eval::Memory;
use odec_program::kernel::signature::{Mode, Signature};
use odec_program::kernel::{Indices, KernelSpec, Launch, Sample};
use odec_program::{DType, Target, gpu};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// What was done to an operand, by number of the element.
#[derive(Clone, Debug, Default, PartialEq)]
struct Done {
    indexed: BTreeSet<u64>,
    /// Before anything was stored there.
    loaded: BTreeSet<u64>,
    stored: BTreeSet<u64>,
}

impl Done {
    /// Elements from the first to the last one that anything was done to.
    fn reach(&self) -> u64 {
        let all = [&self.indexed, &self.loaded, &self.stored];
        let last = all.into_iter().filter_map(|set| set.last()).max();
        last.map_or(0, |n| n + 1)
    }
}

/// Operands of so many elements, which keep what is done to them. Which elements these are does not hang on the type of numbers.
struct Recorded {
    values: Vec<Vec<f64>>,
    done: RefCell<Vec<Done>>,
}

impl Memory<f64> for Recorded {
    fn load(&self, operand: u32, index: u64) -> f64 {
        let done = &mut self.done.borrow_mut()[operand as usize];
        if !done.stored.contains(&index) {
            done.loaded.insert(index);
        }
        self.values[operand as usize][index as usize]
    }

    fn store(&mut self, operand: u32, index: u64, value: f64) {
        self.done.borrow_mut()[operand as usize]
            .stored
            .insert(index);
        self.values[operand as usize][index as usize] = value;
    }
}

impl Indices for Recorded {
    fn index(&self, operand: u32, index: u64) -> u64 {
        let value = self.values[operand as usize][index as usize];
        self.done.borrow_mut()[operand as usize]
            .indexed
            .insert(index);
        value as u64
    }
}

/// What a launch does to operands of exactly the elements that the signature says.
fn done(sample: &Sample, signature: &Signature) -> Vec<Done> {
    let operand = |(n, o): (usize, &odec_program::kernel::OperandAccess)| -> Vec<f64> {
        let elements = o.elements(&sample.dims).expect("no overflow");
        let value = |i: u64| match o.mode {
            // The last row first.
            Mode::Index { rows } => (sample.dims[rows] - 1).saturating_sub(2 * i) as f64,
            // Places, which are whole numbers.
            _ if o.dtype == DType::I32 => (3 + i) as f64,
            // Of attention, who takes part: the last does.
            _ if o.name == "numbers" && is_attention(&sample.spec) => match i % 3 {
                1 if i + 1 < elements => -1.0,
                _ => 0.0,
            },
            _ => ((i * 7 + n as u64 * 5) % 11) as f64 / 8.0 - 0.5,
        };
        (0..elements).map(value).collect()
    };
    let values: Vec<Vec<f64>> = signature.operands.iter().enumerate().map(operand).collect();
    let mut memory = Recorded {
        done: RefCell::new(vec![Done::default(); values.len()]),
        values,
    };
    let launch = Launch {
        dims: &sample.dims,
        coeffs: &sample.coeffs,
        threads: 2,
    };
    sample.spec.run(&mut memory, launch);
    memory.done.into_inner()
}

fn is_attention(spec: &KernelSpec) -> bool {
    use KernelSpec::{Attend, AttendBackward, AttendCached};
    matches!(spec, Attend(_) | AttendBackward(_) | AttendCached(_))
}

fn all(count: u64) -> BTreeSet<u64> {
    (0..count).collect()
}

#[test]
fn a_launch_does_what_its_signature_says() {
    for sample in KernelSpec::samples() {
        let signature = sample.spec.checked_signature().expect("samples are valid");
        let done = done(&sample, &signature);
        for (o, done) in signature.operands.iter().zip(&done) {
            let case = format!("{} of {:?}: {done:?}", o.name, sample.spec);
            let elements = o.elements(&sample.dims).expect("no overflow");
            assert_eq!(done.reach(), elements, "{case}");
            let of_numbers = matches!(o.mode, Mode::Index { .. });
            assert_eq!(of_numbers, !done.indexed.is_empty(), "{case}");
            let loads = o.mode.reads() && !of_numbers && o.mode != Mode::Place;
            assert_eq!(loads, !done.loaded.is_empty(), "{case}");
            assert_eq!(o.mode.writes(), !done.stored.is_empty(), "{case}");
            match o.mode {
                Mode::Write => assert_eq!(done.stored, all(elements), "{case}"),
                // What is added to is read once before, and nothing else is.
                Mode::Accumulate => assert_eq!(done.stored, done.loaded, "{case}"),
                Mode::Read | Mode::Index { .. } | Mode::Place => {}
            }
        }
    }
}

#[test]
fn there_are_samples_of_every_kind() {
    let kinds: BTreeSet<&str> = KernelSpec::samples()
        .iter()
        .map(|s| s.spec.kind())
        .collect();
    assert_eq!(kinds, KernelSpec::KINDS.iter().copied().collect());
    for sample in KernelSpec::samples() {
        let json = serde_json::to_value(&sample.spec).unwrap();
        assert_eq!(json["kind"], sample.spec.kind());
        assert_eq!(
            serde_json::from_value::<KernelSpec>(json).unwrap(),
            sample.spec
        );
    }
}

#[test]
fn a_launch_with_less_than_its_signature_is_refused() {
    for sample in KernelSpec::samples() {
        let s = sample.spec.signature();
        let (dims, coeffs) = (&sample.dims[..], &sample.coeffs[..]);
        let words: Vec<u64> = (s.operands.iter())
            .map(|o| o.words(dims).expect("no overflow"))
            .collect();
        let check = |words: &[u64], dims, coeffs| s.check(words.iter().copied(), dims, coeffs);
        assert_eq!(check(&words, dims, coeffs), Ok(()));
        for n in 0..words.len() {
            let mut short = words.clone();
            short[n] -= 1;
            let said = check(&short, dims, coeffs);
            assert_eq!(said, Err(format!("operand {n} is too short")));
        }
        let other = Err("another number of arguments".to_string());
        assert_eq!(check(&words[1..], dims, coeffs), other);
        assert_eq!(check(&words, &dims[1..], coeffs), other);
        assert_eq!(check(&words, dims, &[coeffs, &[1.0]].concat()), other);
        for (d, value) in s.dims.iter().zip(dims) {
            assert!(d.fixed.is_none_or(|fixed| fixed == *value), "{}", d.name);
        }
    }
}

#[test]
fn alignment_is_that_of_an_operand_there_is() {
    for sample in KernelSpec::samples() {
        let signature = sample.spec.signature();
        for (n, o) in signature.operands.iter().enumerate() {
            let bytes = gpu::alignment(&sample.spec, &signature, n);
            assert!(bytes.is_multiple_of(o.dtype.bytes()) && bytes <= 32);
        }
        let shape = gpu::shape(&sample.spec, &sample.dims, Target::Sm80);
        assert_eq!(shape.is_none(), sample.spec.kind() == "pack");
    }
}
