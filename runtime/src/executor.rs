//! Runs the entries of a program: slots to memory, inputs to outputs.
//!
//! Takes a verified [`Artifact`] and a [`Device`]; owns parameters, gradients, moments, constants and one
//! arena shared by all entries. Checks everything a caller gives (names, shapes, token ids, sizes), so
//! that launches need not. Leaves what a run is for to [`mod@crate::train`], [`mod@crate::evaluate`],
//! [`mod@crate::generate`] and [`mod@crate::exec`].

use crate::artifact::Artifact;
use crate::check;
use crate::depth;
use crate::device::Device;
use crate::init;
use crate::memory::{Buffer, WORD, Words};
use crate::profile::Profile;
use crate::reach::Touch;
use crate::reals::{Reals, RealsMut};
use odec_program::manifest::{Depth, Manifest, Param};
use odec_program::{Bindings, Coeff, DType, Entry, Instr, Io, Operand, Piece, Slot, bf16, noise};
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

/// The memories that outlive a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Params,
    Grads,
    Sums,
    Moment1,
    Moment2,
}

/// An input of an entry, row-major.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    I32(&'a [i32]),
    F32(&'a [f32]),
    F64(&'a [f64]),
}

impl Value<'_> {
    fn len(self) -> usize {
        match self {
            Value::I32(x) => x.len(),
            Value::F32(x) => x.len(),
            Value::F64(x) => x.len(),
        }
    }
    fn dtype(self) -> DType {
        match self {
            Value::I32(_) => DType::I32,
            Value::F32(_) => DType::F32,
            Value::F64(_) => DType::F64,
        }
    }
}

/// Why an entry cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(
        "this artifact has no entry `{entry}` (it has {known}); build it from a file with a train block"
    )]
    NoEntry { entry: String, known: String },
    #[error("entry `{entry}` has no {what} `{name}` (it has {known})")]
    NoIo {
        entry: String,
        what: &'static str,
        name: String,
        known: String,
    },
    #[error("entry `{entry}` needs the input `{name}`")]
    MissingInput { entry: String, name: String },
    #[error(
        "input `{name}` has {found} elements of {found_dtype}; it needs {shape}, {expected} of {dtype}"
    )]
    Input {
        name: String,
        shape: String,
        expected: u64,
        dtype: &'static str,
        found: usize,
        found_dtype: &'static str,
    },
    #[error(
        "token {token} at position {position} of input `{name}` is not in 0..{vocab}, the model's vocabulary"
    )]
    Token {
        name: String,
        position: usize,
        token: i32,
        vocab: u64,
    },
    #[error(
        "batch {batch} × sequence {seq} is outside what the artifact was planned for: 1..={max_batch} × 1..={max_seq}"
    )]
    Size {
        batch: u64,
        seq: u64,
        max_batch: u64,
        max_seq: u64,
    },
    #[error("entry `{entry}` needs the scalar `{name}`")]
    MissingScalar { entry: String, name: String },
    #[error("{tensor} of {site} is the first tensor that is not")]
    NonFinite { site: String, tensor: String },
    #[error(
        "the adaptive steps{evolve} have come to t = {reached:.6} of {until} in {max} attempts, so this is not the result; \
         allow more (`max`), larger errors (`rtol`, `atol`), or train for less (smaller weights change less fast)"
    )]
    Unfinished {
        evolve: String,
        reached: f64,
        until: f64,
        max: u64,
    },
    #[error("output `{name}` is not made of f32 or f64")]
    OutputType { name: String },
    #[error("cannot reserve memory for the program: {0}")]
    Memory(#[from] io::Error),
    #[error("the device failed: {0}")]
    Device(String),
}

/// Buffers of one entry's inputs and outputs, at the planned maxima.
struct Ports {
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
}

/// A program with its memory on a device.
pub struct Executor {
    artifact: Artifact,
    device: Box<dyn Device>,
    params: Buffer,
    grads: Buffer,
    sums: Buffer,
    moment1: Buffer,
    moment2: Buffer,
    consts: Buffer,
    prepared: Buffer,
    cache: Buffer,
    arena: Buffer,
    ports: BTreeMap<String, Ports>,
    poison: bool,
    watch: bool,
    skip: bool,
    skipped: usize,
    profile: Option<Profile>,
}

impl Executor {
    /// Reserves memory (pages that are never touched cost nothing), fills the constants, and leaves
    /// everything else zero.
    ///
    /// # Errors
    /// When the system has no memory left.
    pub fn new(artifact: &Artifact, device: Box<dyn Device>) -> Result<Executor, RunError> {
        let m = artifact.manifest();
        let p = &m.program;
        let zeroed = |bytes| device.allocate(bytes);
        let state = || zeroed(p.param_bytes);
        let mut consts = zeroed(p.const_bytes)?;
        init::constants(&m.constants, consts.reals_mut(p.real));
        let reserve = |ios: &[Io], at: Bindings| -> io::Result<Vec<Buffer>> {
            ios.iter()
                .map(|io| zeroed(check::io_bytes(io, at).unwrap_or(u64::MAX)))
                .collect()
        };
        let mut ports = BTreeMap::new();
        for (name, e) in &p.entries {
            ports.insert(
                name.clone(),
                Ports {
                    inputs: reserve(&e.inputs, e.maxima)?,
                    outputs: reserve(&e.outputs, e.maxima)?,
                },
            );
        }
        Ok(Executor {
            params: state()?,
            grads: state()?,
            sums: state()?,
            moment1: state()?,
            moment2: state()?,
            consts,
            prepared: zeroed(p.prepared_bytes)?,
            cache: zeroed(p.cache_bytes)?,
            arena: zeroed(p.entries.values().map(|e| e.arena_bytes).max().unwrap_or(0))?,
            ports,
            poison: false,
            watch: false,
            skip: true,
            skipped: 0,
            profile: None,
            artifact: artifact.clone(),
            device,
        })
    }

    pub fn manifest(&self) -> &Manifest {
        self.artifact.manifest()
    }

    /// The type of parameters and results.
    pub fn real(&self) -> DType {
        self.manifest().program.real
    }

    pub fn artifact(&self) -> &Artifact {
        &self.artifact
    }

    /// What the program runs on, in words.
    pub fn device_name(&self) -> String {
        self.device.name()
    }

    /// Whether to fill the arena and the outputs with signalling NaNs before each run: a value that is
    /// read before it is written then spoils the result instead of going unnoticed.
    pub fn set_poison(&mut self, poison: bool) {
        self.poison = poison;
    }

    /// Whether to look at everything that is written, and fail with [`RunError::NonFinite`] at the first launch
    /// that gives an infinity or a NaN. Slow; made for finding out, not for training.
    pub fn set_watch(&mut self, watch: bool) {
        self.watch = watch;
    }

    /// Whether to pass over instructions whose guard says that nothing reads their results; on unless a test wants to see that it
    /// changes nothing.
    pub fn set_skip(&mut self, skip: bool) {
        self.skip = skip;
    }

    /// How many instructions the latest run passed over.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Starts measuring the time of each kernel, from zero.
    pub fn start_profile(&mut self) {
        self.profile = Some(Profile::default());
    }

    /// What was measured since [`Executor::start_profile`].
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// Fills the parameters as the manifest says, for a seed.
    pub fn initialise(&mut self, seed: u64) {
        let m = self.artifact.manifest();
        init::parameters(&m.params, seed, self.params.reals_mut(m.program.real));
    }

    /// A memory that outlives runs, laid out by the manifest's parameter table.
    pub fn state(&self, state: State) -> Reals<'_> {
        self.buffer(state).reals(self.real())
    }

    /// The same, to write.
    pub fn state_mut(&mut self, state: State) -> RealsMut<'_> {
        let real = self.real();
        let buffer = match state {
            State::Params => &mut self.params,
            State::Grads => &mut self.grads,
            State::Sums => &mut self.sums,
            State::Moment1 => &mut self.moment1,
            State::Moment2 => &mut self.moment2,
        };
        buffer.reals_mut(real)
    }

    /// What a parameter holds in a memory laid out by the parameter table.
    pub fn of(&self, state: State, p: &Param) -> Reals<'_> {
        self.state(state).part(init::range(p, self.real()))
    }

    fn buffer(&self, state: State) -> &Buffer {
        match state {
            State::Params => &self.params,
            State::Grads => &self.grads,
            State::Sums => &self.sums,
            State::Moment1 => &self.moment1,
            State::Moment2 => &self.moment2,
        }
    }

    /// The first parameter, or moment of one, that holds an infinity or a NaN, in words.
    pub fn not_finite(&self) -> Option<String> {
        let memories = [
            (State::Params, "parameter"),
            (State::Moment1, "first moment of"),
            (State::Moment2, "second moment of"),
        ];
        let params = &self.artifact.manifest().params;
        memories.into_iter().find_map(|(state, what)| {
            let broken = |p: &&Param| !self.of(state, p).iter().all(f64::is_finite);
            let found = params.iter().find(broken)?;
            Some(format!("{what} {}", found.path))
        })
    }

    /// The parameter for which a memory holds the number of largest magnitude, and that number.
    pub fn largest(&self, state: State) -> Option<(&str, f64)> {
        let params = &self.artifact.manifest().params;
        let size = |p: &Param| {
            let values = self.of(state, p).iter();
            values.fold(0.0, |max: f64, x| max.max(x.abs()))
        };
        let sized = params.iter().map(|p| (p.path.as_str(), size(p)));
        sized.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Whether the program has an entry.
    pub fn has_entry(&self, entry: &str) -> bool {
        self.manifest().program.entries.contains_key(entry)
    }

    /// Whether an entry reads such an input.
    pub fn has_input(&self, entry: &str, name: &str) -> bool {
        let entry = self.manifest().program.entries.get(entry);
        entry.is_some_and(|e| e.inputs.iter().any(|io| io.name == name))
    }

    /// Runs an entry and returns its outputs. `named` are the scalars its instructions ask for by name;
    /// more may be given.
    ///
    /// # Errors
    /// When the entry does not exist, or anything given does not fit it.
    pub fn run<'a>(
        &'a mut self,
        entry: &'a str,
        at: Bindings,
        inputs: &[(&str, Value)],
        named: &[(&str, f64)],
    ) -> Result<Outputs<'a>, RunError> {
        let manifest = self.artifact.manifest();
        let program = &manifest.program;
        let e = find(manifest, entry)?;
        let max = e.maxima;
        let end = at.past.saturating_add(at.seq);
        if !(1..=max.batch).contains(&at.batch) || at.seq == 0 || end > max.seq {
            return Err(RunError::Size {
                batch: at.batch,
                seq: end,
                max_batch: max.batch,
                max_seq: max.seq,
            });
        }
        let ports = self
            .ports
            .get_mut(entry)
            .ok_or_else(|| no_entry(manifest, entry))?;
        if let Some((name, _)) = inputs
            .iter()
            .find(|(name, _)| e.inputs.iter().all(|io| io.name != *name))
        {
            return Err(no_io(entry, "input", name, &e.inputs));
        }
        for (io, buffer) in e.inputs.iter().zip(&mut ports.inputs) {
            let given = inputs.iter().find(|(name, _)| *name == io.name);
            let (_, value) = given.ok_or_else(|| RunError::MissingInput {
                entry: entry.into(),
                name: io.name.clone(),
            })?;
            let of_depth = |d: &&Depth| d.input().as_deref() == Some(&io.name);
            let steps = manifest.depths.iter().find(of_depth).map(|d| d.max() + 1);
            let below = match (io.name.as_str(), steps) {
                (_, Some(steps)) => steps,
                (noise::KEY, _) => 1 << noise::BITS,
                _ => manifest.model.vocab,
            };
            fill(io, at, *value, below, buffer)?;
        }
        let scalar = |name: &str| {
            let found = named.iter().find(|(n, _)| *n == name).map(|(_, x)| *x);
            found.ok_or_else(|| RunError::MissingScalar {
                entry: entry.into(),
                name: name.into(),
            })
        };
        if self.poison {
            self.arena.poison();
            ports.outputs.iter_mut().for_each(Buffer::poison);
        }

        let fixed = [
            &mut self.params,
            &mut self.grads,
            &mut self.sums,
            &mut self.moment1,
            &mut self.moment2,
        ];
        let [params, grads, sums, moment1, moment2] = fixed.map(Buffer::words);
        let (consts, arena) = (self.consts.words(), self.arena.words());
        let (prepared, cache) = (self.prepared.words(), self.cache.words());
        let input_words: Vec<Words> = ports.inputs.iter_mut().map(Buffer::words).collect();
        let output_words: Vec<Words> = ports.outputs.iter_mut().map(Buffer::words).collect();
        let (mut operands, mut dims, mut coeffs) = (Vec::new(), Vec::new(), Vec::new());
        let place = |o: &Operand, piece: Piece| {
            let words = match o.slot {
                Slot::Arena => arena,
                Slot::Params => params,
                Slot::Grads => grads,
                Slot::Sums => sums,
                Slot::Moment1 => moment1,
                Slot::Moment2 => moment2,
                Slot::Consts => consts,
                Slot::Prepared => prepared,
                Slot::Cache => cache,
                Slot::Input(n) => input_words[n as usize],
                Slot::Output(n) => output_words[n as usize],
            };
            &words[(piece.start(o, at).unwrap_or(0) / WORD) as usize..]
        };
        let skips = self.skip && self.device.in_step();
        self.skipped = 0;
        for (i, piece) in e.launches(at).map(|(n, piece)| (&e.instrs[n], piece)) {
            if skips
                && i.guard
                    .is_some_and(|o| !positive(place(&o, Piece::ALL), program.real))
            {
                self.skipped += 1;
                continue;
            }
            operands.clear();
            operands.extend(i.operands.iter().map(|o| place(o, piece)));
            dims.clear();
            dims.extend(i.dims.iter().map(|d| piece.dim(*d, at).unwrap_or(0)));
            coeffs.clear();
            for c in &i.coeffs {
                coeffs.push(match c {
                    Coeff::Value(x) => *x,
                    Coeff::Inverse(s) => 1.0 / s.at(at).unwrap_or(1) as f64,
                    Coeff::Named(n) => scalar(n)?,
                });
            }
            let start = self.profile.is_some().then(Instant::now);
            self.device
                .launch(i.kernel as usize, &operands, &dims, &coeffs);
            if self.profile.is_some() || self.watch {
                self.device.finish().map_err(RunError::Device)?;
            }
            if let (Some(profile), Some(start)) = (&mut self.profile, start) {
                let spec = &program.kernels[i.kernel as usize].spec;
                profile.add(i.kernel, entry, spec, &dims, start.elapsed());
            }
            if self.watch {
                let touched = self.artifact.footprints()[i.kernel as usize]
                    .operands
                    .iter();
                let broken = operands
                    .iter()
                    .zip(touched)
                    .position(|(words, t)| t.written && !finite(words, t, &dims));
                if let Some(n) = broken {
                    return Err(RunError::NonFinite {
                        site: i.site.clone(),
                        tensor: tensor_name(manifest, e, i, n),
                    });
                }
            }
        }
        self.device.finish().map_err(RunError::Device)?;
        let out = Outputs {
            entry,
            list: &e.outputs,
            buffers: &ports.outputs,
            at,
        };
        depth::finished(&manifest.depths, &out)?;
        Ok(out)
    }
}

/// The outputs of the latest run of an entry.
pub struct Outputs<'a> {
    entry: &'a str,
    list: &'a [Io],
    buffers: &'a [Buffer],
    at: Bindings,
}

impl<'a> Outputs<'a> {
    /// The elements of an output, row-major, for the run's batch and sequence.
    ///
    /// # Errors
    /// When there is no such output, or it is not made of reals.
    pub fn reals(&self, name: &str) -> Result<Reals<'a>, RunError> {
        let n = self.list.iter().position(|io| io.name == name);
        let n = n.ok_or_else(|| no_io(self.entry, "output", name, self.list))?;
        let io = &self.list[n];
        if !matches!(io.dtype, DType::F32 | DType::F64) {
            return Err(RunError::OutputType { name: name.into() });
        }
        let elements = check::io_bytes(io, self.at).unwrap_or(0) / io.dtype.bytes();
        Ok(self.buffers[n].reals(io.dtype).part(0..elements as usize))
    }

    /// An output of one element.
    ///
    /// # Errors
    /// As [`Outputs::reals`].
    pub fn scalar(&self, name: &str) -> Result<f64, RunError> {
        let values = self.reals(name)?;
        values
            .iter()
            .next()
            .ok_or_else(|| no_io(self.entry, "output", name, self.list))
    }

    /// Names and shapes of all outputs.
    pub fn shapes(&self) -> impl Iterator<Item = (&'a str, Vec<u64>)> {
        let at = self.at;
        self.list.iter().map(move |io| {
            (
                io.name.as_str(),
                io.shape.iter().map(|d| d.at(at)).collect(),
            )
        })
    }
}

/// An entry by name.
///
/// # Errors
/// When there is none.
pub fn find<'a>(m: &'a Manifest, entry: &str) -> Result<&'a Entry, RunError> {
    m.program
        .entries
        .get(entry)
        .ok_or_else(|| no_entry(m, entry))
}

fn no_entry(m: &Manifest, entry: &str) -> RunError {
    let known: Vec<&str> = m.program.entries.keys().map(String::as_str).collect();
    RunError::NoEntry {
        entry: entry.into(),
        known: known.join(", "),
    }
}

fn no_io(entry: &str, what: &'static str, name: &str, list: &[Io]) -> RunError {
    let known: Vec<&str> = list.iter().map(|io| io.name.as_str()).collect();
    RunError::NoIo {
        entry: entry.into(),
        what,
        name: name.into(),
        known: known.join(", "),
    }
}

/// What operand `n` of an instruction is, in words.
fn tensor_name(m: &Manifest, e: &Entry, i: &Instr, n: usize) -> String {
    let operand = &i.operands[n];
    let of_param = |what: &str| {
        let holds = |p: &&Param| {
            let start = p.offset;
            (start..start + m.program.real.bytes() * init::elements(p) as u64)
                .contains(&operand.offset)
        };
        match m.params.iter().find(holds) {
            Some(p) => format!("{what} `{}`", p.path),
            None => format!("a {what}"),
        }
    };
    match operand.slot {
        Slot::Params => of_param("parameter"),
        Slot::Grads => of_param("gradient"),
        Slot::Sums => of_param("summed gradient"),
        Slot::Moment1 | Slot::Moment2 => of_param("moment"),
        Slot::Output(n) => format!("output `{}`", e.outputs[n as usize].name),
        Slot::Cache => "keys or values".into(),
        Slot::Arena | Slot::Consts | Slot::Prepared | Slot::Input(_) => {
            let kind = m.program.kernels[i.kernel as usize].spec.kind();
            format!("the result (kernel {kind})")
        }
    }
}

/// Checks one input and copies it into its buffer.
fn fill(
    io: &Io,
    at: Bindings,
    value: Value,
    vocab: u64,
    buffer: &mut Buffer,
) -> Result<(), RunError> {
    let expected = check::io_bytes(io, at).unwrap_or(0) / io.dtype.bytes();
    if value.dtype() != io.dtype || value.len() as u64 != expected {
        let shape: Vec<String> = io.shape.iter().map(|d| d.at(at).to_string()).collect();
        return Err(RunError::Input {
            name: io.name.clone(),
            shape: format!("[{}]", shape.join(", ")),
            expected,
            dtype: word(io.dtype),
            found: value.len(),
            found_dtype: word(value.dtype()),
        });
    }
    match value {
        Value::F32(x) => buffer
            .reals_mut(io.dtype)
            .fill(x.iter().map(|x| f64::from(*x))),
        Value::F64(x) => buffer.reals_mut(io.dtype).fill(x.iter().copied()),
        Value::I32(x) => {
            let bad = x
                .iter()
                .position(|t| u64::try_from(*t).map_or(true, |t| t >= vocab));
            if let Some(position) = bad {
                return Err(RunError::Token {
                    name: io.name.clone(),
                    position,
                    token: x[position],
                    vocab,
                });
            }
            buffer.i32_mut()[..x.len()].copy_from_slice(x);
        }
    }
    Ok(())
}

/// Whether the number at a place is greater than zero.
fn positive(words: Words, real: DType) -> bool {
    match real {
        DType::F64 => {
            let (low, high) = (words[0].get(), words[1].get());
            f64::from_bits(u64::from(low) | u64::from(high) << 32) > 0.0
        }
        _ => f32::from_bits(words[0].get()) > 0.0,
    }
}

/// Whether all elements that a launch may have written are finite.
fn finite(words: Words, touch: &Touch, dims: &[u64]) -> bool {
    let written = &words[..touch.words(dims).map_or(words.len(), |n| n as usize)];
    match touch.dtype {
        DType::F32 => written.iter().all(|w| f32::from_bits(w.get()).is_finite()),
        // The exponent is in the upper word.
        DType::F64 => written
            .iter()
            .skip(1)
            .step_by(2)
            .all(|w| w.get() & 0x7FF0_0000 != 0x7FF0_0000),
        DType::Bf16 => written
            .iter()
            .flat_map(|w| [w.get() as u16, (w.get() >> 16) as u16])
            .take(touch.elements(dims).unwrap_or(0) as usize)
            .all(|bits| bf16::to_f32(bits).is_finite()),
        DType::I32 => true,
    }
}

fn word(d: DType) -> &'static str {
    match d {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::Bf16 => "bf16",
        DType::I32 => "i32",
    }
}
