//! Checkpoints: parameters, optimiser state and where the run stands, in one safetensors file.
//!
//! Takes an executor's memories; writes them under the parameters' path names, moments under
//! `moment1.` and `moment2.`, and reads them back, bit for bit. The file is replaced whole or not at all. Any safetensors
//! reader can open it; a file with parameters only is a valid one too, for everything but resuming.

use crate::executor::{Executor, State};
use crate::ffi;
use crate::files;
use crate::init;
use crate::memory::bytes_of;
use odec_program::manifest::Param;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Finished optimiser steps.
    pub step: u64,
    /// Planned steps.
    pub steps: u64,
    pub seed: u64,
    /// Seconds of training so far, over all sittings.
    pub seconds: f64,
    /// Limit of those seconds, when the run has one.
    pub time_limit: Option<f64>,
    /// The text it trains on.
    pub data: String,
}

/// The metadata key that holds [`Progress`] as JSON.
const PROGRESS: &str = "odec.progress";

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("there is no file {path}")]
    Missing { path: String },
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: io::Error },
    #[error("{path} is not a safetensors file, or damaged: {reason}")]
    Damaged { path: String, reason: String },
    #[error("{path} does not fit the model:\n{list}")]
    Mismatch { path: String, list: String },
    #[error("{path} holds parameters but no optimiser state, so a run cannot be resumed from it")]
    NotResumable { path: String },
}

/// Path prefixes of the memories in a checkpoint.
const PARTS: [(State, &str); 3] = [
    (State::Params, ""),
    (State::Moment1, "moment1."),
    (State::Moment2, "moment2."),
];

/// Writes a checkpoint.
///
/// # Errors
/// When the disk refuses; the old file is then still there.
pub fn save(path: &Path, x: &Executor, progress: &Progress) -> Result<(), CheckpointError> {
    let damaged = |e: serde_json::Error| CheckpointError::Damaged {
        path: shown(path),
        reason: e.to_string(),
    };
    let progress = serde_json::to_string(progress).map_err(damaged)?;
    let mut tensors: Vec<(String, &Param, &[f32])> = Vec::new();
    for (state, prefix) in PARTS {
        for p in &x.manifest().params {
            tensors.push((
                format!("{prefix}{}", p.path),
                p,
                &x.state(state)[init::range(p)],
            ));
        }
    }
    let list: Vec<(&str, &[u64], &[f32])> = tensors
        .iter()
        .map(|(name, p, data)| (name.as_str(), p.shape.as_slice(), *data))
        .collect();
    write_tensors(path, &list, &[(PROGRESS, &progress)])
}

/// Writes named f32 tensors as safetensors. Equal contents give equal bytes.
///
/// # Errors
/// When the disk refuses.
pub fn write_tensors(
    path: &Path,
    tensors: &[(&str, &[u64], &[f32])],
    metadata: &[(&str, &str)],
) -> Result<(), CheckpointError> {
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        let pairs = metadata
            .iter()
            .map(|(k, v)| (k.to_string(), serde_json::Value::from(*v)))
            .collect();
        header.insert("__metadata__".into(), serde_json::Value::Object(pairs));
    }
    let mut offset = 0;
    for (name, shape, data) in tensors {
        let end = offset + size_of_val(*data);
        let info =
            serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [offset, end] });
        header.insert((*name).into(), info);
        offset = end;
    }
    let mut text = serde_json::Value::Object(header).to_string();
    text.extend(std::iter::repeat_n(
        ' ',
        text.len().next_multiple_of(8) - text.len(),
    ));
    let written = files::write_file(path, |out| {
        out.write_all(&(text.len() as u64).to_le_bytes())?;
        out.write_all(text.as_bytes())?;
        tensors
            .iter()
            .try_for_each(|(_, _, data)| out.write_all(bytes_of(data)))
    });
    written.map_err(|source| CheckpointError::Write {
        path: shown(path),
        source,
    })
}

/// Reads the parameters of a checkpoint, and nothing else.
///
/// # Errors
/// When the file is missing or damaged, or its tensors are not the model's.
pub fn load_params(path: &Path, x: &mut Executor) -> Result<(), CheckpointError> {
    with_tensors(path, |tensors| {
        read_states(path, tensors, x, &PARTS[..1], is_moment)
    })
}

/// Reads a whole checkpoint, to resume from it.
///
/// # Errors
/// As [`load_params`], or when there is no optimiser state in it.
pub fn load(path: &Path, x: &mut Executor) -> Result<Progress, CheckpointError> {
    let progress = progress(path)?;
    with_tensors(path, |tensors| {
        read_states(path, tensors, x, &PARTS, |_| false)
    })?;
    Ok(progress)
}

/// Reads where a run stands.
///
/// # Errors
/// When the file is missing or damaged, or not one of a run.
pub fn progress(path: &Path) -> Result<Progress, CheckpointError> {
    let map = map(path)?;
    let (_, header) = SafeTensors::read_metadata(&map).map_err(|e| damaged(path, e))?;
    let text = header.metadata().as_ref().and_then(|m| m.get(PROGRESS));
    let text = text.ok_or_else(|| CheckpointError::NotResumable { path: shown(path) })?;
    serde_json::from_str(text).map_err(|e| damaged(path, e))
}

fn is_moment(name: &str) -> bool {
    PARTS[1..]
        .iter()
        .any(|(_, prefix)| name.starts_with(prefix))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn damaged(path: &Path, e: impl std::fmt::Display) -> CheckpointError {
    CheckpointError::Damaged {
        path: shown(path),
        reason: e.to_string(),
    }
}

fn map(path: &Path) -> Result<memmap2::Mmap, CheckpointError> {
    ffi::map_file(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => CheckpointError::Missing { path: shown(path) },
        _ => CheckpointError::Read {
            path: shown(path),
            source: e,
        },
    })
}

/// Opens a safetensors file.
///
/// # Errors
/// When it is missing, unreadable or damaged.
pub fn with_tensors<T>(
    path: &Path,
    use_them: impl FnOnce(&SafeTensors) -> Result<T, CheckpointError>,
) -> Result<T, CheckpointError> {
    let map = map(path)?;
    use_them(&SafeTensors::deserialize(&map).map_err(|e| damaged(path, e))?)
}

/// Copies tensors into memories, after checking that there are exactly the right ones. `ignore` names further
/// tensors that may be there.
///
/// # Errors
/// The list of everything that is missing, unknown or of the wrong shape; nothing is copied then.
pub fn read_states(
    path: &Path,
    tensors: &SafeTensors,
    x: &mut Executor,
    parts: &[(State, &str)],
    ignore: impl Fn(&str) -> bool,
) -> Result<(), CheckpointError> {
    let artifact = x.artifact().clone();
    let params = &artifact.manifest().params;
    let mut wrong = Vec::new();
    let mut known = BTreeSet::new();
    for (_, prefix) in parts {
        for p in params {
            let name = format!("{prefix}{}", p.path);
            match tensors.tensor(&name) {
                Err(_) => wrong.push(format!("  missing: {name} {:?}", p.shape)),
                Ok(t)
                    if t.shape()
                        .iter()
                        .map(|d| *d as u64)
                        .ne(p.shape.iter().copied()) =>
                {
                    wrong.push(format!(
                        "  wrong shape: {name} is {:?} and must be {:?}",
                        t.shape(),
                        p.shape
                    ));
                }
                Ok(t) if !matches!(t.dtype(), Dtype::F32 | Dtype::F64) => {
                    wrong.push(format!(
                        "  wrong type: {name} is {:?} and must be F32 or F64",
                        t.dtype()
                    ));
                }
                Ok(_) => {}
            }
            known.insert(name);
        }
    }
    let unknown: BTreeSet<&str> = tensors
        .names()
        .into_iter()
        .filter(|n| !known.contains(*n) && !ignore(n))
        .collect();
    wrong.extend(unknown.into_iter().map(|n| format!("  unknown: {n}")));
    if !wrong.is_empty() {
        return Err(CheckpointError::Mismatch {
            path: shown(path),
            list: shorten(wrong),
        });
    }
    for (state, prefix) in parts {
        for p in params {
            let tensor = tensors
                .tensor(&format!("{prefix}{}", p.path))
                .map_err(|e| damaged(path, e))?;
            floats(&tensor, &mut x.state_mut(*state)[init::range(p)]);
        }
    }
    Ok(())
}

/// The first lines of a long list, and how many more there are.
fn shorten(mut lines: Vec<String>) -> String {
    const SHOWN: usize = 20;
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    lines.join("\n")
}

/// Copies an F32 or F64 tensor (rounded).
fn floats(t: &safetensors::tensor::TensorView, out: &mut [f32]) {
    match t.dtype() {
        Dtype::F64 => {
            for (x, b) in out.iter_mut().zip(t.data().as_chunks::<8>().0) {
                *x = f64::from_le_bytes(*b) as f32;
            }
        }
        _ => {
            for (x, b) in out.iter_mut().zip(t.data().as_chunks::<4>().0) {
                *x = f32::from_le_bytes(*b);
            }
        }
    }
}
