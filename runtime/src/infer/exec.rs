//! The door for outside checks: one entry on given parameters and inputs, files in, file out.
//!
//! Takes a safetensors file with `tokens` and `targets` (`[batch, sequence]`, i32 or i64), or `patches` (`[batch, patches, numbers]`, f32 or f64) and
//! `targets` (`[batch]`), and every parameter under its path (f32 or f64, rounded where the model computes in f32); writes the entry's outputs under their names and, for
//! `grad`, `grad.<parameter>`. What else an entry draws in training is an input of one number: `noise`, the key of dropout's masks, and `<label>.steps`,
//! the number of steps of an evolve that draws it. The arena is poisoned, so reading what nobody wrote shows as NaN.

use crate::executor::{self, Executor, RunError, State, Value};
use crate::infer::evaluate::window;
use crate::parameters::checkpoint::{self, CheckpointError, Tensor};
use crate::system::output::{self, OutputError};
use crate::system::shown::Shown;
use odec_program::manifest::{Counted, Loss, Manifest, StepCount, depth};
use odec_program::{Bindings, DType, Dim, EntryId, Io, ResultId, names, noise};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeSet;
use std::path::Path;

/// Why an entry cannot be executed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("entry `{entry}` cannot be executed from files; entries are forward, loss and grad")]
    Entry { entry: String },
    #[error("{path}: input `{name}` is missing; it is {needs}{what}")]
    Missing {
        path: String,
        name: String,
        needs: String,
        /// What it means, as a clause.
        what: &'static str,
    },
    #[error("{path}: input `{name}` is {found}; it must be {needs}{what}")]
    Input {
        path: String,
        name: String,
        found: String,
        needs: String,
        what: &'static str,
    },
    #[error("{path}: input `{name}` is {found}; the number of steps must be from 1 to {max}")]
    Steps {
        path: String,
        name: String,
        found: i32,
        max: u64,
    },
    #[error(
        "{path}: no token is masked, so there is no loss; put {token} into `tokens` where `targets` is to be predicted"
    )]
    NothingHidden { path: String, token: u64 },
    #[error(
        "{path}: all of `targets` are {padding}, which fills up rows, so there is no loss; put tokens into it"
    )]
    NothingPredicted { path: String, padding: u64 },
    #[error("{path}: input `{name}` is {found:?}, but another input is {other:?}")]
    Shapes {
        path: String,
        name: String,
        found: Vec<u64>,
        other: [u64; 2],
    },
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    File(#[from] CheckpointError),
    #[error(transparent)]
    Run(#[from] RunError),
}

const ENTRIES: [EntryId; 3] = [EntryId::Forward, EntryId::Loss, EntryId::Grad];

/// What all entries that can be executed read beside parameters, by name.
pub fn inputs(m: &Manifest) -> BTreeSet<String> {
    let entries = ENTRIES.iter().filter_map(|e| m.program.entries.get(e));
    let names = entries.flat_map(|e| e.inputs.iter().map(|io| io.name.clone()));
    names.collect()
}

/// Runs `entry` (`forward`, `loss` or `grad`) and writes its outputs. One file serves all entries: what others read, of which `known` has the names
/// ([`inputs`]), is passed over.
///
/// # Errors
/// When a file cannot be read or written, or does not hold exactly what the entry needs; all parameters that are
/// missing, unknown or of the wrong shape are listed.
pub fn exec(
    x: &mut Executor,
    entry: impl AsRef<str>,
    known: &BTreeSet<String>,
    inputs: &Path,
    outputs: &Path,
) -> Result<(), ExecError> {
    let name = entry.as_ref();
    let Some(entry) = ENTRIES.into_iter().find(|e| *e == name) else {
        return Err(ExecError::Entry { entry: name.into() });
    };
    output::check(outputs)?;
    let needed = executor::find(x.manifest(), name)?.1.inputs.clone();
    let mut given: Result<Vec<Given>, ExecError> = Ok(vec![]);
    let mut at = Sizes::default();
    checkpoint::with_tensors(inputs, |file| {
        let known =
            |name: &str| [names::TARGETS, noise::KEY].contains(&name) || known.contains(name);
        checkpoint::read_states(inputs, file, x, &[(State::Params, "")], known)?;
        given = needed
            .iter()
            .map(|io| input(inputs, file, io, &mut at))
            .collect();
        Ok(())
    })?;
    let given = given?;
    for (io, given) in needed.iter().zip(&given) {
        let Given::Whole(given) = given else {
            continue;
        };
        let loss = x.manifest().train.as_ref().map(|t| t.loss);
        sensible(
            inputs,
            &io.name,
            given,
            loss.filter(|_| entry != EntryId::Forward),
            &x.manifest().depths,
        )?;
    }
    let values: Vec<(&str, Value)> = needed
        .iter()
        .zip(&given)
        .map(|(io, given)| {
            let value = match given {
                Given::Whole(n) => Value::I32(n),
                Given::Real(n) => Value::F64(n),
            };
            (io.name.as_str(), value)
        })
        .collect();
    let (batch, seq) = (at.batch.unwrap_or(1), at.seq.unwrap_or(window(x)));
    x.set_poison(true);
    let at = Bindings::new(batch, seq).beside(at.source.unwrap_or(0));
    let out = x.run(entry, at, &values, &[])?;
    let mut results: Vec<(String, Vec<u64>, DType, Vec<u8>)> = Vec::new();
    for (name, shape) in out.shapes() {
        let values = out.reals(name)?;
        results.push((name.into(), shape, values.dtype(), values.bytes().to_vec()));
    }
    if entry == EntryId::Grad {
        x.fetch(&[State::Grads])?;
        for p in x.manifest().trained() {
            let values = x.of(State::Grads, p);
            let bytes = values.bytes().to_vec();
            let name = ResultId::Gradient(&p.path).to_string();
            results.push((name, p.shape.clone(), values.dtype(), bytes));
        }
    }
    let list = results.iter().map(|(name, shape, dtype, bytes)| Tensor {
        name,
        shape,
        dtype: *dtype,
        bytes,
    });
    let list: Vec<Tensor> = list.collect();
    let written = output::write(outputs, |out| checkpoint::put_tensors(out, &list, &[]));
    Ok(written?)
}

/// Refuses what no training would give an entry.
///
/// # Errors
/// A number of steps that is never drawn, a loss over hidden tokens without any, or over targets that are padding alone.
pub fn sensible(
    path: &Path,
    name: &str,
    given: &[i32],
    loss: Option<Loss>,
    depths: &[StepCount],
) -> Result<(), ExecError> {
    let path = path.shown();
    match loss.map(Loss::counted) {
        Some(Counted::Hidden(token)) if name == names::TOKENS => {
            let hidden = |t: &i32| u64::try_from(*t).is_ok_and(|t| t == token);
            if !given.iter().any(hidden) {
                return Err(ExecError::NothingHidden { path, token });
            }
        }
        Some(Counted::Except(padding)) if name == names::TARGETS => {
            let filled = |t: &i32| u64::try_from(*t).is_ok_and(|t| t == padding);
            if given.iter().all(filled) {
                return Err(ExecError::NothingPredicted { path, padding });
            }
        }
        _ => {}
    }
    let drawn = depths.iter().find_map(|d| match d {
        StepCount::Random { evolve, max, .. } if depth::input(evolve) == name => Some(*max),
        _ => None,
    });
    match (drawn, given) {
        (Some(max), &[n]) if !u64::try_from(n).is_ok_and(|n| (1..=max).contains(&n)) => {
            let (name, found) = (name.into(), n);
            Err(ExecError::Steps {
                path,
                name,
                found,
                max,
            })
        }
        _ => Ok(()),
    }
}

/// What an input must be, and what it means where that is not plain.
fn described(io: &Io) -> (String, &'static str) {
    let of = match io.dtype {
        DType::I32 => "i32 or i64",
        _ => "f32 or f64",
    };
    let length = |d: &Dim| match d {
        Dim::Fixed(n) => n.to_string(),
        Dim::Batch => "batch".into(),
        Dim::Seq => "sequence".into(),
        Dim::Source => "source".into(),
    };
    let shape: Vec<String> = needed(io).iter().map(length).collect();
    let what = match (&io.shape[..], io.name.as_str()) {
        ([Dim::Fixed(1)], noise::KEY) => ": the key of the random numbers that it draws",
        ([Dim::Fixed(1)], _) => ": the number of steps of the evolve",
        _ => "",
    };
    (format!("[{}] of {of}", shape.join(", ")), what)
}

/// The shape of an input in a file: columns of one number are left out.
fn needed(io: &Io) -> &[Dim] {
    let ones = io.shape.iter().skip(1).rev();
    let ones = ones.take_while(|d| **d == Dim::Fixed(1)).count();
    &io.shape[..io.shape.len() - ones]
}

/// Sizes of a run, as inputs say them.
#[derive(Default)]
struct Sizes {
    batch: Option<u64>,
    seq: Option<u64>,
    source: Option<u64>,
}

impl Sizes {
    /// Whether a shape is the one needed, the last columns of one number given or not; and the sizes that it says.
    fn read(io: &Io, shape: &[u64]) -> Option<Sizes> {
        let mut sizes = Sizes::default();
        if shape.len() < needed(io).len() || shape.len() > io.shape.len() {
            return None;
        }
        for (d, n) in io.shape.iter().zip(shape) {
            match d {
                Dim::Fixed(wanted) if n != wanted => return None,
                Dim::Fixed(_) => {}
                Dim::Batch => sizes.batch = Some(*n),
                Dim::Seq => sizes.seq = Some(*n),
                Dim::Source => sizes.source = Some(*n),
            }
        }
        Some(sizes)
    }

    /// Takes over what another input says; the sizes that are known already, where they are others.
    fn and(&mut self, other: Sizes) -> Result<(), [u64; 2]> {
        let same = |a: Option<u64>, b: Option<u64>| a.is_none() || b.is_none() || a == b;
        let alike = same(self.batch, other.batch) && same(self.seq, other.seq);
        if !alike || !same(self.source, other.source) {
            return Err([self.batch.unwrap_or(1), self.seq.unwrap_or(1)]);
        }
        self.batch = self.batch.or(other.batch);
        self.seq = self.seq.or(other.seq);
        self.source = self.source.or(other.source);
        Ok(())
    }
}

/// The numbers of an input.
enum Given {
    Whole(Vec<i32>),
    Real(Vec<f64>),
}

/// Reads one input, and checks or sets the batch and sequence.
fn input(path: &Path, file: &SafeTensors, io: &Io, at: &mut Sizes) -> Result<Given, ExecError> {
    let (path, name) = (path.shown(), io.name.clone());
    let (needs, what) = described(io);
    let t = file.tensor(&name).map_err(|_| ExecError::Missing {
        path: path.clone(),
        name: name.clone(),
        needs: needs.clone(),
        what,
    })?;
    let shape: Vec<u64> = t.shape().iter().map(|n| *n as u64).collect();
    let given = given(io.dtype, t.dtype(), t.data());
    let (Some(sizes), Some(given)) = (Sizes::read(io, &shape), given) else {
        return Err(ExecError::Input {
            path,
            name,
            found: format!("{:?} of {:?}", t.shape(), t.dtype()),
            needs,
            what,
        });
    };
    match at.and(sizes) {
        Ok(()) => Ok(given),
        Err(other) => Err(ExecError::Shapes {
            path,
            name,
            found: shape,
            other,
        }),
    }
}

/// Numbers of a file for an input; `None`, where they are of another type.
fn given(wanted: DType, found: Dtype, bytes: &[u8]) -> Option<Given> {
    Some(match (wanted, found) {
        (DType::I32, Dtype::I32) => {
            let numbers = bytes.as_chunks().0.iter();
            Given::Whole(numbers.map(|b| i32::from_le_bytes(*b)).collect())
        }
        // A number beyond i32 is beyond any vocabulary too, and is refused there.
        (DType::I32, Dtype::I64) => {
            let numbers = bytes.as_chunks().0.iter();
            let small = |b: &[u8; 8]| i32::try_from(i64::from_le_bytes(*b)).unwrap_or(-1);
            Given::Whole(numbers.map(small).collect())
        }
        (DType::F32 | DType::F64, Dtype::F32) => {
            let numbers = bytes.as_chunks().0.iter();
            Given::Real(numbers.map(|b| f32::from_le_bytes(*b).into()).collect())
        }
        (DType::F32 | DType::F64, Dtype::F64) => {
            let numbers = bytes.as_chunks().0.iter();
            Given::Real(numbers.map(|b| f64::from_le_bytes(*b)).collect())
        }
        _ => return None,
    })
}
