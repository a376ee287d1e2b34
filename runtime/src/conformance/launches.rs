//! Compares every launch of a model on a device with the reference device, from the same operands.
//!
//! Takes an artifact and a device; gives the launches whose results differ by more than they may, and writes the operands and
//! both results of the first of them into a folder. Operands are the device's own, so no error adds up from launch to launch: what
//! is named is the kernel at fault. Leaves the bounds of kernels on tensor cores to [`mod@bounds`].

pub mod bounds;

use crate::artifact::{Artifact, DeviceChoice};
use crate::conformance::compare::{CompareError, results};
use crate::device::memory::{Buffer, WORD, Words};
use crate::device::reference::ReferenceDevice;
use crate::device::{Device, Mark};
use crate::system::files;
use odec_program::gpu::tensor;
use odec_program::kernel::{OperandAccess, Signature};
use odec_program::{DType, Kernel, KernelSpec, Site, bf16};
use serde::Serialize;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Launches that are named; more are counted.
const NAMED: usize = 50;

/// A launch whose results are not as they must be.
#[derive(Clone, Debug, Serialize)]
pub struct Wrong {
    /// Its number among all launches.
    pub launch: u64,
    /// The entry, and the equation within it.
    pub site: String,
    pub kernel: String,
    pub dims: Vec<u64>,
    pub operand: usize,
    /// Elements of the operand, and how many of them are wrong.
    pub elements: usize,
    pub differ: usize,
    /// The first wrong element, what it is, should be, and may be off.
    pub first: usize,
    pub got: f64,
    pub want: f64,
    pub bound: f64,
}

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Found {
    pub launches: u64,
    /// Launches on tensor cores, which are compared within bounds.
    pub bounded: u64,
    /// The largest part of its bound that an element was off by.
    pub worst: f64,
    /// Launches that are wrong, the first of them in `wrong`.
    pub failed: u64,
    pub wrong: Vec<Wrong>,
    /// Where operands and results of the first are.
    pub dump: Option<PathBuf>,
}

/// Runs all entries, one step of training, and a text in pieces. A dry run launches everything and compares nothing.
///
/// # Errors
/// When the device cannot be had, fails, or the dump cannot be written.
pub fn launches(
    artifact: &Artifact,
    choice: DeviceChoice,
    dump: Option<&Path>,
) -> Result<Found, CompareError> {
    let rule = Rule {
        computed: !matches!(choice, DeviceChoice::Dry { .. }),
        tensor_cores: matches!(choice, DeviceChoice::Cuda(_)),
    };
    beside(artifact, artifact.device(choice, None)?, rule, dump)
}

/// How results are judged.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Whether the device computes anything.
    pub computed: bool,
    /// Whether its contractions and attention of bf16 add in an order of their own.
    pub tensor_cores: bool,
}

/// The same for any device of this artifact.
///
/// # Errors
/// As [`launches`].
pub fn beside(
    artifact: &Artifact,
    device: Box<dyn Device>,
    rule: Rule,
    dump: Option<&Path>,
) -> Result<Found, CompareError> {
    let kernels = &artifact.manifest().program.kernels;
    let state = Rc::new(RefCell::new(State::default()));
    let beside = Beside {
        inner: device,
        reference: ReferenceDevice::new(kernels),
        kernels: kernels.to_vec(),
        signatures: artifact.signatures().to_vec(),
        rule,
        dump: dump.map(Path::to_path_buf),
        site: String::new(),
        state: state.clone(),
    };
    results(artifact, Box::new(beside), 1, None)?;
    let state = state.take();
    match state.failed {
        Some(source) => Err(CompareError::Dump(source)),
        None => Ok(state.found),
    }
}

#[derive(Default)]
struct State {
    found: Found,
    failed: Option<io::Error>,
}

/// A device that does what another does, and looks at each launch.
struct Beside {
    inner: Box<dyn Device>,
    reference: ReferenceDevice,
    kernels: Vec<Kernel>,
    signatures: Vec<Signature>,
    rule: Rule,
    dump: Option<PathBuf>,
    site: String,
    state: Rc<RefCell<State>>,
}

/// A launch's operands apart from the device's memory. What overlaps there overlaps here.
pub(crate) struct Copies {
    regions: Vec<Buffer>,
    /// Region, first word, words of each operand.
    places: Vec<(usize, usize, usize)>,
}

impl Copies {
    /// The first words of each operand.
    pub(crate) fn of(operands: &[Words]) -> io::Result<Copies> {
        let start = |w: &Words| w.as_ptr() as usize;
        let mut order: Vec<usize> = (0..operands.len()).collect();
        order.sort_by_key(|n| start(&operands[*n]));
        // Address and end of each region.
        let mut spans: Vec<(usize, usize)> = vec![];
        let mut places = vec![(0, 0, 0); operands.len()];
        for n in order {
            let (from, words) = (start(&operands[n]), operands[n].len());
            let end = from + words * WORD as usize;
            match spans.last_mut().filter(|(_, last)| from < *last) {
                Some((_, last)) => *last = end.max(*last),
                None => spans.push((from, end)),
            }
            let first = spans.last().map_or(0, |(begin, _)| from - begin);
            places[n] = (spans.len() - 1, first / WORD as usize, words);
        }
        let regions = spans.iter().map(|(a, b)| Buffer::zeroed((b - a) as u64));
        let mut copies = Copies {
            regions: regions.collect::<io::Result<_>>()?,
            places,
        };
        for (to, from) in copies.words().iter().zip(operands) {
            to.iter()
                .zip(*from)
                .for_each(|(to, from)| to.set(from.get()));
        }
        Ok(copies)
    }

    /// Each operand.
    pub(crate) fn words(&mut self) -> Vec<Words<'_>> {
        let regions: Vec<Words> = self
            .regions
            .iter_mut()
            .map(|b| -> Words { b.words() })
            .collect();
        let place = |(region, first, words): &(usize, usize, usize)| {
            &regions[*region][*first..first + words]
        };
        self.places.iter().map(place).collect()
    }
}

/// Numbers of an operand.
pub(crate) fn numbers(words: Words, dtype: DType, count: usize) -> Vec<f64> {
    let number = |i: usize| match dtype {
        DType::F32 => f64::from(f32::from_bits(words[i].get())),
        DType::Bf16 => f64::from(bf16::to_f32((words[i / 2].get() >> (16 * (i % 2))) as u16)),
        DType::I32 => f64::from(words[i].get() as i32),
        DType::I8 => f64::from(words[i / 4].get().to_le_bytes()[i % 4] as i8),
        DType::F64 => {
            let (low, high) = (words[2 * i].get(), words[2 * i + 1].get());
            f64::from_bits(u64::from(low) | u64::from(high) << 32)
        }
    };
    (0..count).map(number).collect()
}

/// What an element should be, and how far it may be off: zero where every bit is the same.
pub(crate) type Wanted = Vec<(f64, f64)>;

impl Beside {
    /// Whether a kernel adds in the order of tensor cores.
    fn bounded(&self, spec: &KernelSpec) -> bool {
        self.rule.tensor_cores && tensor::runs(spec)
    }

    /// Brings operands of the device's memory to this process.
    fn bring(&mut self, operands: &[Words]) {
        for words in operands {
            self.inner.copy_out(words, words);
        }
        let mark = self.inner.mark();
        // A failure is kept by the device for whoever waits next.
        if let Err(why) = self.inner.wait(mark) {
            self.state
                .borrow_mut()
                .failed
                .get_or_insert(io::Error::other(why));
        }
    }

    /// What the launch should write, by operand.
    fn wanted(
        &self,
        kernel: usize,
        operands: &mut Copies,
        (dims, coeffs): (&[u64], &[f64]),
    ) -> Vec<(usize, Wanted)> {
        let (spec, touched) = (
            &self.kernels[kernel].spec,
            &self.signatures[kernel].operands,
        );
        if self.bounded(spec) {
            return bounds::of(spec, &operands.words(), dims, coeffs);
        }
        let words = operands.words();
        self.reference_launch(kernel, &words, dims, coeffs);
        let written = touched.iter().enumerate().filter(|(_, o)| o.mode.writes());
        let exact = |(n, t): (usize, &OperandAccess)| {
            let count = t.elements(dims).unwrap_or(0) as usize;
            let values = numbers(words[n], t.dtype, count);
            (n, values.into_iter().map(|x| (x, 0.0)).collect())
        };
        written.map(exact).collect()
    }

    fn reference_launch(&self, kernel: usize, words: &[Words], dims: &[u64], coeffs: &[f64]) {
        self.reference.run(kernel, words, dims, coeffs);
    }

    /// Compares one launch; `before` and `after` are the operands.
    fn judge(
        &self,
        kernel: usize,
        (mut before, after): (Copies, &[Words]),
        given: (&[u64], &[f64]),
    ) -> io::Result<()> {
        let (k, touched) = (&self.kernels[kernel], &self.signatures[kernel].operands);
        let kept = match self.dump {
            Some(_) => Some(Copies::of(&before.words())?),
            None => None,
        };
        let wanted = self.wanted(kernel, &mut before, given);
        let mut state = self.state.borrow_mut();
        let found = &mut state.found;
        found.bounded += u64::from(self.bounded(&k.spec));
        let launch = found.launches;
        let mut wrong = vec![];
        for (operand, wanted) in &wanted {
            let got = numbers(after[*operand], touched[*operand].dtype, wanted.len());
            let mut bad = got
                .iter()
                .zip(wanted)
                .enumerate()
                .filter(|(_, (got, (want, bound)))| {
                    let off = (**got - want).abs();
                    if *bound > 0.0 {
                        found.worst = found.worst.max(off / bound);
                        off.is_nan() || off > *bound
                    } else {
                        got.to_bits() != want.to_bits() && !(got.is_nan() && want.is_nan())
                    }
                });
            let Some((first, (got, (want, bound)))) = bad.next() else {
                continue;
            };
            wrong.push(Wrong {
                launch,
                site: self.site.clone(),
                kernel: k.symbol.clone(),
                dims: given.0.to_vec(),
                operand: *operand,
                elements: wanted.len(),
                differ: 1 + bad.count(),
                first,
                got: *got,
                want: *want,
                bound: *bound,
            });
        }
        if wrong.is_empty() {
            return Ok(());
        }
        found.failed += 1;
        if let (None, Some(folder), Some(mut kept)) = (&found.dump, &self.dump, kept) {
            let dump = Dump {
                wrong: &wrong,
                spec: format!("{:#?}", k.spec),
                coeffs: given.1,
                operands: touched.iter().map(|t| format!("{:?}", t.dtype)).collect(),
            };
            dump.write(folder, &kept.words(), after, &wanted)?;
            found.dump = Some(folder.clone());
        }
        let room = NAMED.saturating_sub(found.wrong.len());
        found.wrong.extend(wrong.into_iter().take(room));
        Ok(())
    }
}

/// What says what the files of a dump are.
#[derive(Serialize)]
struct Dump<'a> {
    wrong: &'a [Wrong],
    /// The kernel's specification.
    spec: String,
    coeffs: &'a [f64],
    /// Element types: `operand.N.before.bin` holds operand N before the launch, and of results
    /// `operand.N.device.bin` and, in f64, `operand.N.wanted.bin`.
    operands: Vec<String>,
}

impl Dump<'_> {
    fn write(
        &self,
        folder: &Path,
        before: &[Words],
        after: &[Words],
        wanted: &[(usize, Wanted)],
    ) -> io::Result<()> {
        let raw = |w: &Words| -> Vec<u8> { w.iter().flat_map(|w| w.get().to_le_bytes()).collect() };
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        let mut list = vec![("launch.json".to_string(), text)];
        for (n, words) in before.iter().enumerate() {
            list.push((format!("operand.{n}.before.bin"), raw(words)));
        }
        for (n, wanted) in wanted {
            let numbers = wanted.iter().flat_map(|(x, _)| x.to_le_bytes());
            list.push((format!("operand.{n}.device.bin"), raw(&after[*n])));
            list.push((format!("operand.{n}.wanted.bin"), numbers.collect()));
        }
        let list: Vec<(&str, &[u8])> = list
            .iter()
            .map(|(name, b)| (name.as_str(), b.as_slice()))
            .collect();
        files::write_folder(folder, &list)
    }
}

impl Device for Beside {
    fn name(&self) -> String {
        self.inner.name()
    }
    fn allocate(&mut self, bytes: u64) -> io::Result<Buffer> {
        self.inner.allocate(bytes)
    }
    fn in_step(&self) -> bool {
        self.inner.in_step()
    }
    fn stage(&mut self, bytes: u64) -> io::Result<Buffer> {
        self.inner.stage(bytes)
    }
    fn copy_in(&mut self, from: Words, to: Words) {
        self.inner.copy_in(from, to);
    }
    fn copy_out(&mut self, from: Words, to: Words) {
        self.inner.copy_out(from, to);
    }
    fn fill(&mut self, words: Words, with: u32) {
        self.inner.fill(words, with);
    }
    fn mark(&mut self) -> Mark {
        self.inner.mark()
    }
    fn wait(&mut self, mark: Mark) -> Result<(), String> {
        self.inner.wait(mark)
    }
    fn set_timed(&mut self, timed: bool) {
        self.inner.set_timed(timed);
    }
    fn times(&mut self) -> Result<Vec<Option<Duration>>, String> {
        self.inner.times()
    }
    fn set_site(&mut self, entry: &str, instr: usize, site: &Site) {
        self.site = format!("{entry} {site}");
        self.inner.set_site(entry, instr, site);
    }

    fn launch(&mut self, kernel: usize, operands: &[Words], dims: &[u64], coeffs: &[f64]) {
        if self.state.borrow().failed.is_some() {
            return;
        }
        let touched = &self.signatures[kernel].operands;
        let reached = |(w, t): (&Words<'_>, &OperandAccess)| {
            t.words(dims).map_or(w.len(), |n| n as usize).min(w.len())
        };
        let reached: Vec<usize> = operands.iter().zip(touched).map(reached).collect();
        let operands_reached: Vec<Words> = operands
            .iter()
            .zip(&reached)
            .map(|(w, n)| &w[..*n])
            .collect();
        if self.rule.computed {
            self.bring(&operands_reached);
        }
        let before = self.rule.computed.then(|| Copies::of(&operands_reached));
        self.inner.launch(kernel, operands, dims, coeffs);
        if let Some(before) = before {
            self.bring(&operands_reached);
            let judged = before
                .and_then(|before| self.judge(kernel, (before, &operands_reached), (dims, coeffs)));
            if let Err(e) = judged {
                self.state.borrow_mut().failed.get_or_insert(e);
            }
        }
        self.state.borrow_mut().found.launches += 1;
    }
}
