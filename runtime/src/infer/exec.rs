//! The door for outside checks: one entry on given parameters and inputs, files in, file out.
//!
//! Takes a safetensors file with `tokens` and `targets` ([batch, sequence], i32 or i64) and every parameter
//! under its path (f32 or f64, rounded where the model computes in f32); writes the entry's outputs under their names and, for
//! `grad`, `grad.<parameter>`. What else an entry draws in training is an input of one number: `noise`, the key of dropout's masks, and `<label>.steps`,
//! the number of steps of an evolve that draws it. The arena is poisoned, so reading what nobody wrote shows as NaN.

use crate::executor::{self, Executor, RunError, State, Value};
use crate::parameters::checkpoint::{self, CheckpointError, Tensor};
use crate::system::output::{self, OutputError};
use crate::system::shown::Shown;
use odec_program::manifest::{Loss, StepCount, depth};
use odec_program::{Bindings, DType, Dim, EntryId, Io, ResultId, names, noise};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeSet;
use std::path::Path;

/// Why an entry cannot be executed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("entry `{entry}` cannot be executed from files; entries are forward, loss and grad")]
    Entry { entry: String },
    #[error("{path}: input `{name}` is missing; it is {needs} of i32 or i64{what}")]
    Missing {
        path: String,
        name: String,
        needs: &'static str,
        /// What it means, as a clause.
        what: &'static str,
    },
    #[error("{path}: input `{name}` is {found}; it must be {needs} of i32 or i64{what}")]
    Input {
        path: String,
        name: String,
        found: String,
        needs: &'static str,
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
    #[error("{path}: input `{name}` is {found:?}, but another input is {other:?}")]
    Shapes {
        path: String,
        name: String,
        found: [u64; 2],
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

/// Runs `entry` (`forward`, `loss` or `grad`) and writes its outputs.
///
/// # Errors
/// When a file cannot be read or written, or does not hold exactly what the entry needs; all parameters that are
/// missing, unknown or of the wrong shape are listed.
pub fn exec(
    x: &mut Executor,
    entry: impl AsRef<str>,
    inputs: &Path,
    outputs: &Path,
) -> Result<(), ExecError> {
    let name = entry.as_ref();
    let Some(entry) = ENTRIES.into_iter().find(|e| *e == name) else {
        return Err(ExecError::Entry { entry: name.into() });
    };
    output::check(outputs)?;
    let needed = executor::find(x.manifest(), name)?.1.inputs.clone();
    let mut tokens: Result<Vec<Vec<i32>>, ExecError> = Ok(vec![]);
    let mut at = None;
    let entries = ENTRIES
        .iter()
        .filter_map(|e| x.manifest().program.entries.get(e));
    let names: BTreeSet<String> = entries
        .flat_map(|e| e.inputs.iter().map(|io| io.name.clone()))
        .collect();
    checkpoint::with_tensors(inputs, |file| {
        // One file serves all entries.
        let known =
            |name: &str| [names::TARGETS, noise::KEY].contains(&name) || names.contains(name);
        checkpoint::read_states(inputs, file, x, &[(State::Params, "")], known)?;
        tokens = needed
            .iter()
            .map(|io| input(inputs, file, io, &mut at))
            .collect();
        Ok(())
    })?;
    let tokens = tokens?;
    for (io, given) in needed.iter().zip(&tokens) {
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
        .zip(&tokens)
        .map(|(io, t)| (io.name.as_str(), Value::I32(t)))
        .collect();
    let [batch, seq] = at.unwrap_or([1, 1]);
    x.set_poison(true);
    let out = x.run(entry, Bindings::new(batch, seq), &values, &[])?;
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
/// A number of steps that is never drawn, a loss over hidden tokens without any.
pub fn sensible(
    path: &Path,
    name: &str,
    given: &[i32],
    loss: Option<Loss>,
    depths: &[StepCount],
) -> Result<(), ExecError> {
    let path = path.shown();
    match loss {
        Some(Loss::Masked { token, .. }) if name == names::TOKENS => {
            let hidden = |t: &i32| u64::try_from(*t).is_ok_and(|t| t == token);
            if !given.iter().any(hidden) {
                return Err(ExecError::NothingHidden { path, token });
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

/// How an input is shaped, and what it means where that is not plain.
fn described(io: &Io) -> (&'static str, &'static str) {
    match (&io.shape[..], io.name.as_str()) {
        ([Dim::Fixed(1)], noise::KEY) => ("[1]", ": the random key of dropout's masks"),
        ([Dim::Fixed(1)], _) => ("[1]", ": the number of steps of the evolve"),
        _ => ("[batch, sequence]", ""),
    }
}

/// Reads one input of tokens, and checks or sets the batch and sequence.
fn input(
    path: &Path,
    file: &SafeTensors,
    io: &Io,
    at: &mut Option<[u64; 2]>,
) -> Result<Vec<i32>, ExecError> {
    let (path, name) = (path.shown(), io.name.clone());
    let (needs, what) = described(io);
    let t = file.tensor(&name).map_err(|_| ExecError::Missing {
        path: path.clone(),
        name: name.clone(),
        needs,
        what,
    })?;
    let found = format!("{:?} of {:?}", t.shape(), t.dtype());
    let of_tokens = [Dim::Batch, Dim::Seq];
    match (io.shape.as_slice(), t.shape()) {
        ([Dim::Fixed(1)], [1]) => {}
        (planned, &[batch, seq]) if planned.starts_with(&of_tokens) => {
            let shape = [batch as u64, seq as u64];
            let other = *at.get_or_insert(shape);
            if other != shape {
                return Err(ExecError::Shapes {
                    path,
                    name,
                    found: shape,
                    other,
                });
            }
        }
        _ => {
            return Err(ExecError::Input {
                path,
                name,
                found,
                needs,
                what,
            });
        }
    }
    match t.dtype() {
        Dtype::I32 => Ok(t
            .data()
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| i32::from_le_bytes(*b))
            .collect()),
        // A number beyond i32 is beyond any vocabulary too, and is refused there.
        Dtype::I64 => Ok(t
            .data()
            .as_chunks::<8>()
            .0
            .iter()
            .map(|b| i32::try_from(i64::from_le_bytes(*b)).unwrap_or(-1))
            .collect()),
        _ => Err(ExecError::Input {
            path,
            name,
            found,
            needs,
            what,
        }),
    }
}
