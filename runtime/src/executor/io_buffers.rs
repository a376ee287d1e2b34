//! What goes into an entry and comes out of it.
//!
//! Takes an entry's inputs and outputs; gives memory for them, checks and copies what a caller gives, and shows what a run
//! has written. A device that is not in step ([`crate::device`]) reads and writes its own memory, so each run has a
//! [`Stage`], page-locked memory that its inputs are copied from and its outputs to. A stage is used again when somebody has taken the
//! run's outputs, and so after its copies. Leaves launches to [`crate::executor`].

use crate::artifact::check;
use crate::device::memory::{Buffer, WORD};
use crate::device::reals::Reals;
use crate::device::{Device, Mark};
use crate::executor::run_error::{RunError, no_io};
use crate::executor::step_count;
use odec_program::manifest::{Manifest, StepCount};
use odec_program::{Bindings, DType, Entry, EntryId, Io, Maxima, names, noise};
use std::io;

/// An input of an entry, row-major. Real numbers are rounded to those of the program.
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

/// Memory for an entry's inputs and outputs.
pub(crate) struct Stage {
    pub inputs: Vec<Buffer>,
    pub outputs: Vec<Buffer>,
}

impl Stage {
    fn new(
        e: &Entry,
        bytes: impl Fn(&Io) -> u64,
        mut make: impl FnMut(u64) -> io::Result<Buffer>,
    ) -> io::Result<Stage> {
        let mut all = |list: &[Io]| -> io::Result<Vec<Buffer>> {
            list.iter().map(|io| make(bytes(io))).collect()
        };
        Ok(Stage {
            inputs: all(&e.inputs)?,
            outputs: all(&e.outputs)?,
        })
    }

    /// Whether it is large enough for a run.
    fn fits(&self, e: &Entry, at: Bindings) -> bool {
        let all = |list: &[Io], memory: &[Buffer]| {
            let mut pairs = list.iter().zip(memory);
            pairs.all(|(io, m)| bytes(io, at) <= m.bytes())
        };
        all(&e.inputs, &self.inputs) && all(&e.outputs, &self.outputs)
    }
}

fn bytes(io: &Io, at: Bindings) -> u64 {
    check::io_bytes(io, at).unwrap_or(u64::MAX)
}

fn most(io: &Io, maxima: Maxima) -> u64 {
    let most = maxima.most(|at| check::io_bytes(io, at));
    most.unwrap_or(u64::MAX)
}

/// Words of an input or output in a run.
pub(crate) fn words(io: &Io, at: Bindings) -> usize {
    (check::io_bytes(io, at).unwrap_or(0) / WORD) as usize
}

/// An entry's inputs and outputs where kernels see them, at the planned maxima; and stages that no run uses, the one whose outputs
/// were taken last at the end.
pub(crate) struct IoBuffers {
    pub place: Stage,
    free: Vec<Stage>,
}

impl IoBuffers {
    pub fn new(e: &Entry, device: &mut dyn Device) -> io::Result<IoBuffers> {
        Ok(IoBuffers {
            place: Stage::new(e, |io| most(io, e.maxima), |bytes| device.allocate(bytes))?,
            free: Vec::new(),
        })
    }

    /// A stage for a run.
    pub fn stage(&mut self, e: &Entry, at: Bindings, device: &mut dyn Device) -> io::Result<Stage> {
        match self.free.pop() {
            Some(stage) if stage.fits(e, at) => Ok(stage),
            _ => Stage::new(e, |io| bytes(io, at), |bytes| device.stage(bytes)),
        }
    }

    /// The outputs of a run that is done.
    pub fn taken(&mut self, stage: Option<Stage>) -> &[Buffer] {
        match stage {
            None => &self.place.outputs,
            Some(stage) => {
                self.free.push(stage);
                &self.free[self.free.len() - 1].outputs
            }
        }
    }
}

/// An enqueued run whose outputs have not been taken yet.
#[must_use]
pub struct Ticket {
    pub(crate) entry: EntryId,
    pub(crate) at: Bindings,
    pub(crate) stage: Option<Stage>,
    pub(crate) mark: Mark,
}

/// Checks all inputs of a run and copies them.
pub(crate) fn fill_all(
    manifest: &Manifest,
    (entry, e): (&str, &Entry),
    at: Bindings,
    given: &[(&str, Value)],
    into: &mut [Buffer],
) -> Result<(), RunError> {
    let known = |name: &str| e.inputs.iter().any(|io| io.name == name);
    if let Some((name, _)) = given.iter().find(|(name, _)| !known(name)) {
        return Err(no_io(entry, "input", name, &e.inputs));
    }
    for (io, buffer) in e.inputs.iter().zip(into) {
        let given = given.iter().find(|(name, _)| *name == io.name);
        let (_, value) = given.ok_or_else(|| RunError::MissingInput {
            entry: entry.into(),
            name: io.name.clone(),
        })?;
        let of_depth = |d: &&StepCount| d.input().as_deref() == Some(&io.name);
        let steps = manifest.depths.iter().find(of_depth).map(|d| d.max() + 1);
        let below = match (io.name.as_str(), steps) {
            (_, Some(steps)) => steps,
            (noise::KEY, _) => 1 << noise::BITS,
            (names::PLACES, _) => at.past + 1,
            (names::RECENT_PLACES, _) => at.recent() + 1,
            _ => manifest.model.kinds(&io.name),
        };
        fill(io, at, *value, below, buffer)?;
    }
    Ok(())
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
    let whole = |d| d == DType::I32;
    if whole(value.dtype()) != whole(io.dtype) || value.len() as u64 != expected {
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

/// The outputs of the latest run of an entry.
pub struct Outputs<'a> {
    entry: &'a str,
    list: &'a [Io],
    buffers: &'a [Buffer],
    at: Bindings,
}

impl<'a> Outputs<'a> {
    pub(crate) fn new(
        manifest: &'a Manifest,
        (entry, e): (&'a str, &'a Entry),
        at: Bindings,
        buffers: &'a [Buffer],
    ) -> Result<Outputs<'a>, RunError> {
        let out = Outputs {
            entry,
            list: &e.outputs,
            buffers,
            at,
        };
        step_count::finished(&manifest.depths, &out)?;
        Ok(out)
    }

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

fn word(d: DType) -> &'static str {
    match d {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::Bf16 => "bf16",
        DType::I32 => "i32",
        DType::I8 => "i8",
    }
}
