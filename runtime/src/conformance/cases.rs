//! Test cases of single kernels in files: launches with their expected results, for devices without a test environment.
//!
//! Takes kernels with their code for a GPU, and cases: operands, extents and, on tensor cores, results in float64 with a bound for
//! each element; without bounds the reference device says what every bit must be. Gives what a device's launches differ in. A machine
//! with a card needs these files and a runner, and neither a compiler nor the tests that made them.

use crate::artifact::DeviceChoice;
use crate::device::Device;
use crate::device::cuda::{self, CudaError};
use crate::device::memory::{Buffer, WORD, Words};
use crate::device::reference::ReferenceDevice;
use crate::parameters::checkpoint::{self, Tensor};
use crate::system::input::{self, most};
use crate::system::output::{self, OutputError};
use crate::system::shown::Shown;
use odec_program::{DType, Kernel, Target};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// One launch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Its kernel's number.
    pub kernel: usize,
    pub dims: Vec<u64>,
    pub coeffs: Vec<f64>,
    /// Pairs (b, a): operand b is operand a.
    pub aliases: Vec<(usize, usize)>,
    /// Each operand's words before the launch.
    #[serde(skip)]
    pub operands: Vec<Vec<u32>>,
    /// What operands must hold afterwards; nothing where it is for the reference device to say.
    #[serde(skip)]
    pub results: Vec<Expected>,
}

/// An operand (f32) after a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    pub operand: usize,
    /// Of each element its value, and how far from it that may be.
    pub values: Vec<(f64, f64)>,
}

/// Cases of kernels that are one module.
#[derive(Clone, Debug)]
pub struct Cases {
    pub target: Target,
    pub kernels: Vec<Kernel>,
    pub ptx: String,
    pub cases: Vec<Case>,
}

/// Why cases could not be read or run.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    #[error("{path} does not hold launches to replay: {reason}")]
    Damaged { path: String, reason: String },
    #[error("{path}: {source}")]
    Read { path: String, source: io::Error },
    #[error(transparent)]
    Write(#[from] OutputError),
    #[error("{0}")]
    Device(#[from] CudaError),
    #[error("the device refuses: {0}")]
    Refused(String),
    #[error("launches are replayed on reference, cuda:dry, or a GPU by its number (cuda:0)")]
    Cpu,
}

/// The part of a file that is text.
#[derive(Serialize, Deserialize)]
struct Header {
    target: String,
    kernels: Vec<Kernel>,
    cases: Vec<Case>,
}

/// Words between operands that belong to none of them.
const GAP: usize = 1024;
/// Under this name a file says what its tensors are.
const HEADER: &str = "odec.launches";

impl Cases {
    /// Writes a file.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn save(&self, path: &Path) -> Result<(), CaseError> {
        let header = Header {
            target: self.target.name().into(),
            kernels: self.kernels.clone(),
            cases: self.cases.clone(),
        };
        let header = serde_json::to_string(&header).expect("plain data");
        let mut parts: Vec<(String, DType, Vec<u8>)> = vec![];
        for (n, case) in self.cases.iter().enumerate() {
            for (i, words) in case.operands.iter().enumerate() {
                let bytes = words.iter().flat_map(|w| w.to_le_bytes()).collect();
                parts.push((format!("{n}.operand.{i}"), DType::I32, bytes));
            }
            for (i, e) in case.results.iter().enumerate() {
                let column = |of: &dyn Fn(&(f64, f64)) -> f64| {
                    e.values.iter().flat_map(|v| of(v).to_le_bytes()).collect()
                };
                let place = format!("{n}.result.{i}.{}", e.operand);
                parts.push((format!("{place}.value"), DType::F64, column(&|v| v.0)));
                parts.push((format!("{place}.bound"), DType::F64, column(&|v| v.1)));
            }
        }
        let shapes = parts
            .iter()
            .map(|(_, dtype, bytes)| [bytes.len() as u64 / dtype.bytes()]);
        let shapes: Vec<[u64; 1]> = shapes.collect();
        let tensors: Vec<Tensor> = (parts.iter().zip(&shapes))
            .map(|((name, dtype, bytes), shape)| Tensor {
                name,
                shape,
                dtype: *dtype,
                bytes,
            })
            .collect();
        let metadata = [(HEADER, header.as_str()), ("ptx", self.ptx.as_str())];
        Ok(output::write(path, |out| {
            checkpoint::put_tensors(out, &tensors, &metadata)
        })?)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it is missing, or none of these.
    pub fn open(path: &Path) -> Result<Cases, CaseError> {
        let shown = || path.shown();
        let read = input::open(path).and_then(|file| input::all(file, most::TENSORS));
        let bytes = read.map_err(|source| CaseError::Read {
            path: shown(),
            source,
        })?;
        Cases::parse(&bytes).map_err(|reason| CaseError::Damaged {
            path: shown(),
            reason,
        })
    }

    fn parse(bytes: &[u8]) -> Result<Cases, String> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| e.to_string())?;
        let file = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
        let text = header.metadata().as_ref();
        let text = |name: &str| {
            let found = text.and_then(|m| m.get(name));
            found.ok_or_else(|| format!("there is no `{name}`"))
        };
        let Header {
            target,
            kernels,
            mut cases,
        } = serde_json::from_slice(text(HEADER)?.as_bytes()).map_err(|e| e.to_string())?;
        let known = Target::GPUS.into_iter().find(|t| t.name() == target);
        let target = known.ok_or_else(|| format!("there are no GPUs `{target}`"))?;
        if let Some(c) = cases.iter().find(|c| c.kernel >= kernels.len()) {
            return Err(format!("there is no kernel {}", c.kernel));
        }
        let mut tensors = file.tensors();
        tensors.sort_by(|(a, _), (b, _)| a.split('.').map(number).cmp(b.split('.').map(number)));
        for (name, t) in &tensors {
            let parts: Vec<&str> = name.split('.').collect();
            let case = parts[0].parse().ok().and_then(|n: usize| cases.get_mut(n));
            let case = case.ok_or_else(|| format!("`{name}` does not belong to a case"))?;
            match parts[1..] {
                ["operand", _] => {
                    let words = t.data().as_chunks::<4>().0.iter();
                    case.operands
                        .push(words.map(|b| u32::from_le_bytes(*b)).collect());
                }
                ["result", _, operand, part] => {
                    let numbers = t.data().as_chunks::<8>().0.iter();
                    let numbers = numbers.map(|b| f64::from_le_bytes(*b));
                    let operand = operand
                        .parse()
                        .map_err(|_| format!("`{name}` is nowhere"))?;
                    match (part, case.results.last_mut()) {
                        // The first of the two.
                        ("bound", _) => case.results.push(Expected {
                            operand,
                            values: numbers.map(|bound| (f64::NAN, bound)).collect(),
                        }),
                        ("value", Some(e)) => {
                            e.values.iter_mut().zip(numbers).for_each(|(v, x)| v.0 = x);
                        }
                        _ => return Err(format!("`{name}` has no bounds")),
                    }
                }
                _ => return Err(format!("nothing is called `{name}`")),
            }
        }
        cases.iter().try_for_each(|c| c.check(&kernels))?;
        Ok(Cases {
            target,
            kernels,
            ptx: text("ptx")?.clone(),
            cases,
        })
    }

    /// What the largest case takes.
    fn bytes(&self) -> u64 {
        self.cases.iter().map(Case::bytes).max().unwrap_or(0)
    }

    /// Memory of a device for one case after the other: a device knows by addresses what is its own, so it is asked once.
    ///
    /// # Errors
    /// When the device has none left.
    pub fn memory(&self, device: &mut dyn Device) -> Result<Buffer, CaseError> {
        allocated(device, self.bytes())
    }

    /// Opens a device for these kernels.
    ///
    /// # Errors
    /// When there is no such card, it runs no code for the target, or the driver refuses.
    pub fn device(&self, choice: DeviceChoice) -> Result<Box<dyn Device>, CaseError> {
        let needed = self.bytes();
        let (kernels, ptx) = (&self.kernels[..], |_| Ok(self.ptx.clone().into_bytes()));
        Ok(match choice {
            DeviceChoice::Reference => Box::new(ReferenceDevice::new(kernels)),
            DeviceChoice::Dry { memory } => {
                cuda::dry(memory, kernels, needed, &[self.target], ptx)?
            }
            DeviceChoice::Cuda(n) => cuda::open(n, kernels, needed, &[self.target], ptx)?,
            DeviceChoice::Cpu => return Err(CaseError::Cpu),
        })
    }
}

fn allocated(device: &mut dyn Device, bytes: u64) -> Result<Buffer, CaseError> {
    let memory = device.allocate(bytes.max(WORD));
    memory.map_err(|e| CaseError::Refused(e.to_string()))
}

/// Parts of names in the order of their numbers, words behind.
fn number(part: &str) -> (u64, &str) {
    part.parse().map_or((u64::MAX, part), |n| (n, ""))
}

impl Case {
    /// Whether all that the case names is there.
    fn check(&self, kernels: &[Kernel]) -> Result<(), String> {
        let count = self.operands.len();
        let known = |a: &(usize, usize)| a.0 < count && a.1 < count;
        if !self.aliases.iter().all(known) {
            return Err(format!("aliases {:?} of {count} operands", self.aliases));
        }
        let signature = kernels[self.kernel].spec.signature();
        for e in &self.results {
            let words = self.operands.get(e.operand).map_or(0, Vec::len);
            // Two numbers of bf16 are a word.
            let dtype = signature.operands.get(e.operand).map(|o| o.dtype);
            let each = if dtype == Some(DType::Bf16) { 2 } else { 1 };
            if e.values.len().div_ceil(each) != words {
                return Err(format!(
                    "a result of another length than operand {}",
                    e.operand
                ));
            }
        }
        Ok(())
    }

    /// What its operands take.
    fn bytes(&self) -> u64 {
        self.places().last().map_or(0, |p| p.end as u64 * WORD)
    }

    /// Where operands lie, in words: each begins at a multiple of 256 bytes, as memory of a card does, with nothing for a while before it.
    fn places(&self) -> Vec<std::ops::Range<usize>> {
        let mut end = 0usize;
        let place = |words: &Vec<u32>| {
            let first = (end + GAP).next_multiple_of(64);
            end = first + words.len();
            first..end
        };
        self.operands.iter().map(place).collect()
    }

    /// The operands after a launch on a device in step.
    ///
    /// # Errors
    /// When the device has no memory left, or refuses the launch.
    pub fn run(&self, device: &mut dyn Device) -> Result<Vec<Vec<u32>>, CaseError> {
        let mut memory = allocated(device, self.bytes())?;
        self.run_in(device, &mut memory)
    }

    /// The operands after a launch, which lie in memory of the device that is as large as [`Cases::memory`].
    ///
    /// # Errors
    /// When the device refuses the launch.
    pub fn run_in(
        &self,
        device: &mut dyn Device,
        memory: &mut Buffer,
    ) -> Result<Vec<Vec<u32>>, CaseError> {
        let refused = |e: io::Error| CaseError::Refused(e.to_string());
        let mut copy = Buffer::zeroed(memory.bytes()).map_err(refused)?;
        let (there, here) = (memory.words(), copy.words());
        let places = self.places();
        for (place, words) in places.iter().zip(&self.operands) {
            let to = match device.in_step() {
                true => there,
                false => here,
            };
            to[place.clone()]
                .iter()
                .zip(words)
                .for_each(|(w, x)| w.set(*x));
        }
        device.copy_in(here, there);
        let mut operands: Vec<Words> = places.iter().map(|p| &there[p.clone()]).collect();
        for (b, a) in &self.aliases {
            operands[*b] = operands[*a];
        }
        device.launch(self.kernel, &operands, &self.dims, &self.coeffs);
        device.copy_out(there, here);
        let mark = device.mark();
        device.wait(mark).map_err(CaseError::Refused)?;
        let from = match device.in_step() {
            true => there,
            false => here,
        };
        let mut found: Vec<Vec<u32>> = (places.iter())
            .map(|p| from[p.clone()].iter().map(|w| w.get()).collect())
            .collect();
        for (b, a) in &self.aliases {
            found[*b] = found[*a].clone();
        }
        Ok(found)
    }

    /// The first element that is not what it must be, in words.
    pub fn difference(&self, kernels: &[Kernel], got: &[Vec<u32>]) -> Option<String> {
        let signature = kernels[self.kernel].spec.signature();
        if self.results.is_empty() {
            let mut reference = ReferenceDevice::new(kernels);
            let want = self
                .run(&mut reference)
                .expect("the reference device takes what fits");
            return (got.iter().zip(&want).enumerate()).find_map(|(operand, (got, want))| {
                let dtype = signature.operand_type(operand);
                let i = (0..got.len()).find(|i| !same(dtype, got[*i], want[*i]))?;
                let [g, w] = [got[i], want[i]].map(f32::from_bits);
                Some(format!("operand {operand}, word {i}: {g:?}, not {w:?}"))
            });
        }
        self.results.iter().find_map(|e| {
            let words = got[e.operand].iter();
            let found: Vec<f32> = match signature.operand_type(e.operand) {
                DType::Bf16 => words
                    .flat_map(|w| [w << 16, w & 0xFFFF_0000].map(f32::from_bits))
                    .collect(),
                _ => words.map(|w| f32::from_bits(*w)).collect(),
            };
            let found = found.iter();
            let (i, (got, (want, bound))) = (found.zip(&e.values).enumerate())
                // A NaN is as far as can be.
                .find(|(_, (got, (want, bound)))| {
                    let off = (f64::from(**got) - want).abs();
                    off.is_nan() || off > *bound
                })?;
            Some(format!(
                "operand {}, element {i}: {got}, not {want} ± {bound}",
                e.operand
            ))
        })
    }
}

/// Equal bits, or both NaN.
fn same(dtype: DType, a: u32, b: u32) -> bool {
    let nan = |x: u32| f32::from_bits(x).is_nan();
    let equal = |a: u32, b: u32| a == b || nan(a) && nan(b);
    match dtype {
        DType::Bf16 => equal(a << 16, b << 16) && equal(a & 0xFFFF_0000, b & 0xFFFF_0000),
        DType::I8 => a == b,
        _ => equal(a, b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use odec_program::KernelSpec;
    use odec_program::kernel::Gather;

    /// Rows 2, 0 and 1 of a table.
    fn gather() -> Cases {
        let spec = KernelSpec::Gather(Gather {
            dtype: DType::F32,
            cols: 4,
        });
        let table: Vec<u32> = (0..12).map(|n| (n as f32).to_bits()).collect();
        let case = Case {
            kernel: 0,
            dims: vec![3, 3],
            coeffs: vec![],
            aliases: vec![],
            operands: vec![vec![2, 0, 1], table, vec![0; 12]],
            results: vec![],
        };
        let wanted = [8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7].map(|x| (f64::from(x), 0.25));
        let bounded = Case {
            results: vec![Expected {
                operand: 2,
                values: wanted.to_vec(),
            }],
            ..case.clone()
        };
        Cases {
            target: Target::Sm80,
            ptx: format!(".visible .entry {}(\n\"", spec.symbol()),
            kernels: vec![Kernel {
                symbol: spec.symbol(),
                spec,
            }],
            cases: vec![case, bounded],
        }
    }

    #[test]
    fn a_file_holds_all_of_a_case() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gather.safetensors");
        let cases = gather();
        cases.save(&path).unwrap();
        let read = Cases::open(&path).unwrap();
        assert_eq!(format!("{read:?}"), format!("{cases:?}"));
    }

    #[test]
    fn a_wrong_element_is_named() {
        let mut cases = gather();
        for case in &cases.cases {
            let mut device = cases.device(DeviceChoice::Reference).unwrap();
            let mut got = case.run(&mut *device).unwrap();
            assert_eq!(case.difference(&cases.kernels, &got), None);
            got[2][5] = 1.5f32.to_bits();
            let said = case.difference(&cases.kernels, &got).unwrap();
            assert!(
                said.starts_with("operand 2, ") && said.contains(" 5: 1.5, not 1"),
                "{said}"
            );
            got[2][5] = f32::NAN.to_bits();
            assert!(case.difference(&cases.kernels, &got).is_some());
        }
        // A driver plans every launch, and computes nothing.
        let mut dry = cases.device(DeviceChoice::Dry { memory: 1 << 30 }).unwrap();
        let mut memory = cases.memory(&mut *dry).unwrap();
        let mut runs = |c: &Case| c.run_in(&mut *dry, &mut memory).is_ok();
        assert!(cases.cases.iter().all(&mut runs));
        cases.cases[0].dims = vec![3, u64::MAX];
        assert!(!runs(&cases.cases[0]));
    }

    #[test]
    fn damaged_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gather.safetensors");
        let refused = |change: &dyn Fn(&mut Cases)| {
            let mut cases = gather();
            change(&mut cases);
            cases.save(&path).unwrap();
            Cases::open(&path).unwrap_err().to_string()
        };
        let said = [
            refused(&|c| c.cases[1].kernel = 1),
            refused(&|c| c.cases[0].aliases = vec![(0, 3)]),
            refused(&|c| c.cases[1].results[0].operand = 3),
            refused(&|c| c.cases[1].results[0].values.truncate(11)),
        ];
        let said: Vec<&str> = said
            .iter()
            .filter_map(|s| s.split_once("replay: "))
            .map(|s| s.1)
            .collect();
        assert_eq!(
            said,
            [
                "there is no kernel 1",
                "aliases [(0, 3)] of 3 operands",
                "a result of another length than operand 3",
                "a result of another length than operand 2",
            ]
        );
        std::fs::write(&path, b"PTX").unwrap();
        assert!(Cases::open(&path).is_err());
    }
}
