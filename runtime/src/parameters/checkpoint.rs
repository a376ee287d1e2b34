//! Checkpoints: parameters, optimiser state and where the run stands, in one safetensors file.
//!
//! Takes an executor's memories; writes them under the parameters' path names, moments of those that are trained under
//! `moment1.` and `moment2.`, and reads them back, bit for bit. Parameters that are not trained are in it too: a run needs no other. The file is replaced whole or not at all, and its metadata
//! holds a hash of everything in it: a damaged one, or one of another model, is refused. Any safetensors
//! reader can open it; a file with parameters only is a valid one too, for everything but resuming.

use crate::artifact::Artifact;
use crate::data::identity::Identity;
use crate::device::reals::Reals;
use crate::executor::init;
use crate::executor::{Executor, State};
use crate::system;
use crate::system::files;
use crate::system::hash::hex;
use crate::system::owned::PROGRESS;
use crate::system::shown::Shown;
use memmap2::Mmap;
use odec_program::DType;
use odec_program::manifest::{Data, Manifest, Param};
use odec_program::names::{AVERAGE_OF, MOMENT1_OF, MOMENT2_OF};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// [`Artifact::identity`](crate::artifact::Artifact::identity) of the model.
    pub model: String,
    /// Finished optimiser steps.
    pub step: u64,
    /// Planned steps.
    pub steps: u64,
    pub seed: u64,
    /// Seconds of training so far, over all sittings.
    pub seconds: f64,
    /// Limit of those seconds, when the run has one.
    pub time_limit: Option<f64>,
    /// Seconds of those that went into evaluations,
    pub looked: f64,
    /// and into steps; none in checkpoints of versions that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_steps: Option<f64>,
    /// Evaluations that were due so far.
    pub looks: u64,
    /// The step of the last of them; 0 before there is one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_look: u64,
    /// What it trains on,
    pub data: Data,
    /// what its files are known by (none in checkpoints of versions that did not ask),
    #[serde(default)]
    pub files: Vec<Identity>,
    /// how many tokens or images that is,
    pub tokens: u64,
    /// and [`Tokenizer::identity`](crate::data::tokenizer::Tokenizer::identity) of what made tokens of it.
    pub tokenizer: Option<String>,
    /// Of how many checkpoints the parameters are the mean; 0: they are those of a step.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mean_of: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The metadata keys that hold [`Progress`] as JSON, and [`content_hash`].
const HASH: &str = "odec.sha256";

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
    #[error("{path} is damaged (SHA-256 {found}, expected {expected}); restore it from a copy")]
    Hash {
        path: String,
        found: String,
        expected: String,
    },
    #[error(
        "{path} belongs to another model than {artifact}; restore the files of the run, or load its parameters with --init"
    )]
    Foreign { path: String, artifact: String },
}

/// Path prefixes of the memories in a checkpoint.
const PARTS: [(State, &str); 4] = [
    (State::Params, ""),
    (State::Moment1, MOMENT1_OF),
    (State::Moment2, MOMENT2_OF),
    (State::Average, AVERAGE_OF),
];

/// Which of a run's parameters are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weights {
    /// Their running means, where the run keeps them (`ema`).
    #[default]
    Averaged,
    /// Those of the last step.
    Last,
}

impl Weights {
    pub fn last_if(last: bool) -> Weights {
        match last {
            true => Weights::Last,
            false => Weights::Averaged,
        }
    }
}

/// Writes a checkpoint.
///
/// # Errors
/// When the disk refuses; the old file is then still there.
pub fn save(path: &Path, x: &Executor, progress: &Progress) -> Result<(), CheckpointError> {
    save_parts(path, x, &PARTS, progress)
}

/// Writes the parameters alone: what is kept of a step that the run will not be resumed from.
///
/// # Errors
/// When the disk refuses; the old file is then still there.
pub fn save_params(path: &Path, x: &Executor, progress: &Progress) -> Result<(), CheckpointError> {
    save_parts(path, x, &PARTS[..1], progress)
}

fn save_parts(
    path: &Path,
    x: &Executor,
    parts: &[(State, &str)],
    progress: &Progress,
) -> Result<(), CheckpointError> {
    let mut tensors: Vec<(String, &Param, Reals)> = Vec::new();
    for (state, prefix) in parts {
        for p in state.holds(x.manifest()) {
            tensors.push((format!("{prefix}{}", p.path), p, x.of(*state, p)));
        }
    }
    let list = tensors
        .iter()
        .map(|(name, p, data)| Tensor::new(name, &p.shape, *data));
    write(path, list.collect(), progress)
}

/// Writes tensors as a checkpoint.
///
/// # Errors
/// When the disk refuses; the old file is then still there.
pub(crate) fn write(
    path: &Path,
    mut list: Vec<Tensor>,
    progress: &Progress,
) -> Result<(), CheckpointError> {
    let progress = serde_json::to_string(progress).map_err(|e| damaged(path, e))?;
    list.sort_by_key(|t| t.name);
    let contents = list
        .iter()
        .map(|t| (t.name, t.kind(), t.shape.to_vec(), t.bytes));
    let hash = content_hash(&progress, contents);
    let metadata = [(PROGRESS, progress.as_str()), (HASH, hash.as_str())];
    let written = files::write_file(path, |out| put_tensors(out, &list, &metadata));
    written.map_err(|source| CheckpointError::Write {
        path: shown(path),
        source,
    })
}

/// Whether there is a file.
///
/// # Errors
/// When its folder cannot be looked into.
pub fn is_there(path: &Path) -> Result<bool, CheckpointError> {
    match path.try_exists() {
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(false),
        there => there.map_err(|source| CheckpointError::Read {
            path: shown(path),
            source,
        }),
    }
}

/// Whether a file is the checkpoint of a run, by its header.
///
/// # Errors
/// When it is missing or damaged.
pub fn is_of_run(path: &Path) -> Result<bool, CheckpointError> {
    let map = map(path)?;
    let (_, header) = SafeTensors::read_metadata(&map).map_err(|e| damaged(path, e))?;
    let metadata = header.metadata().as_ref();
    Ok(metadata.is_some_and(|m| m.contains_key(PROGRESS)))
}

/// Where the run of a checkpoint stands, by its header alone: its tensors are not read, nor its hash compared.
///
/// # Errors
/// When it is missing, damaged, or holds parameters only.
pub fn stands(path: &Path) -> Result<Progress, CheckpointError> {
    let map = map(path)?;
    let (_, header) = SafeTensors::read_metadata(&map).map_err(|e| damaged(path, e))?;
    let said = header.metadata().as_ref().and_then(|m| m.get(PROGRESS));
    let said = said.ok_or_else(|| CheckpointError::NotResumable { path: shown(path) })?;
    serde_json::from_str(said).map_err(|e| damaged(path, e))
}

/// Compares the hash of a file that has one: the checkpoint of a run, whose [`Progress`] this gives.
fn verified(
    path: &Path,
    map: &[u8],
    tensors: &SafeTensors,
) -> Result<Option<Progress>, CheckpointError> {
    let (_, header) = SafeTensors::read_metadata(map).map_err(|e| damaged(path, e))?;
    let said = |key| header.metadata().as_ref().and_then(|m| m.get(key));
    let (progress, expected) = match (said(PROGRESS), said(HASH)) {
        (None, None) => return Ok(None),
        (Some(progress), Some(expected)) => (progress, expected),
        _ => return Err(damaged(path, "a part of its metadata is missing")),
    };
    let sorted: BTreeMap<String, _> = tensors.tensors().into_iter().collect();
    let contents = sorted.iter().map(|(name, t)| {
        let shape = t.shape().iter().map(|d| *d as u64).collect();
        (name.as_str(), t.dtype(), shape, t.data())
    });
    let found = content_hash(progress, contents);
    if found != *expected {
        return Err(CheckpointError::Hash {
            path: shown(path),
            found,
            expected: expected.clone(),
        });
    }
    let progress = serde_json::from_str(progress).map_err(|e| damaged(path, e))?;
    Ok(Some(progress))
}

/// SHA-256, in hex, of a checkpoint: its [`Progress`] as it is written, then, in the order of their names, each tensor's
/// line `name dtype shape` and bytes. How they are laid out in the file does not matter.
fn content_hash<'a>(
    progress: &str,
    tensors: impl Iterator<Item = (&'a str, Dtype, Vec<u64>, &'a [u8])>,
) -> String {
    let mut h = Sha256::new();
    h.update(progress);
    for (name, dtype, shape, bytes) in tensors {
        h.update(format!("\n{name} {dtype:?} {shape:?}\n"));
        h.update(bytes);
    }
    hex(&h.finalize())
}

/// A checkpoint that was found whole.
pub struct Checkpoint {
    path: PathBuf,
    map: Mmap,
    progress: Option<Progress>,
}

impl Checkpoint {
    /// Opens a checkpoint, or a file of parameters only, and compares the hash.
    ///
    /// # Errors
    /// When the file is missing or damaged.
    pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
        let map = map(path)?;
        let tensors = SafeTensors::deserialize(&map).map_err(|e| damaged(path, e))?;
        let progress = verified(path, &map, &tensors)?;
        drop(tensors);
        Ok(Checkpoint {
            path: path.to_path_buf(),
            map,
            progress,
        })
    }

    /// Where the run stands.
    ///
    /// # Errors
    /// When the file holds parameters only.
    pub fn progress(&self) -> Result<&Progress, CheckpointError> {
        self.progress
            .as_ref()
            .ok_or_else(|| CheckpointError::NotResumable {
                path: shown(&self.path),
            })
    }

    /// Hands out the values of each parameter of a model, in the order of its table.
    ///
    /// # Errors
    /// When the tensors are not the model's.
    pub fn params_of(
        &self,
        artifact: &Artifact,
        mut take: impl FnMut(&Param, &mut dyn Iterator<Item = f64>),
    ) -> Result<(), CheckpointError> {
        let (path, manifest) = (&self.path, artifact.manifest());
        self.is_of(artifact)?;
        let tensors = SafeTensors::deserialize(&self.map).map_err(|e| damaged(path, e))?;
        fit(path, &tensors, manifest, &PARTS[..1], is_moment)?;
        for p in &manifest.params {
            let tensor = tensors.tensor(&p.path).map_err(|e| damaged(path, e))?;
            take(p, &mut *values(&tensor));
        }
        Ok(())
    }

    /// Reads the parameters, and nothing else.
    ///
    /// # Errors
    /// When the tensors are not the model's.
    pub fn params_into(&self, x: &mut Executor, which: Weights) -> Result<(), CheckpointError> {
        self.read(x, &PARTS[..1], is_moment)?;
        let Some(_) = self
            .progress
            .as_ref()
            .filter(|_| which == Weights::Averaged)
        else {
            return Ok(());
        };
        let tensors = SafeTensors::deserialize(&self.map).map_err(|e| damaged(&self.path, e))?;
        // What is kept of a step, and the mean of several, is parameters alone.
        if !tensors.iter().any(|(name, _)| name.starts_with(AVERAGE_OF)) {
            return Ok(());
        }
        let (artifact, real) = (x.artifact().clone(), x.real());
        for p in State::Average.holds(artifact.manifest()) {
            let name = format!("{AVERAGE_OF}{}", p.path);
            let tensor = tensors.tensor(&name);
            let tensor = tensor.map_err(|e| damaged(&self.path, e))?;
            let mut memory = x.state_mut(State::Params);
            let mut out = memory.part(init::range(p, real));
            out.fill(values(&tensor));
        }
        Ok(())
    }

    /// Reads parameters and optimiser state, to resume from them.
    ///
    /// # Errors
    /// When the tensors are not the model's, or there is no optimiser state.
    pub fn all_into(&self, x: &mut Executor) -> Result<(), CheckpointError> {
        self.progress()?;
        self.read(x, &PARTS, |_| false)
    }

    fn is_of(&self, artifact: &Artifact) -> Result<(), CheckpointError> {
        match &self.progress {
            Some(p) if p.model != artifact.identity() => Err(CheckpointError::Foreign {
                path: shown(&self.path),
                artifact: shown(artifact.path()),
            }),
            _ => Ok(()),
        }
    }

    fn read(
        &self,
        x: &mut Executor,
        parts: &[(State, &str)],
        ignore: impl Fn(&str) -> bool,
    ) -> Result<(), CheckpointError> {
        let path = &self.path;
        self.is_of(x.artifact())?;
        let tensors = SafeTensors::deserialize(&self.map).map_err(|e| damaged(path, e))?;
        read_states(path, &tensors, x, parts, ignore)
    }
}

/// A named tensor to be written.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    pub name: &'a str,
    pub shape: &'a [u64],
    /// F32 or F64.
    pub dtype: DType,
    pub bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    pub fn new(name: &'a str, shape: &'a [u64], values: Reals<'a>) -> Tensor<'a> {
        Tensor {
            name,
            shape,
            dtype: values.dtype(),
            bytes: values.bytes(),
        }
    }

    fn kind(&self) -> Dtype {
        match self.dtype {
            DType::F64 => Dtype::F64,
            _ => Dtype::F32,
        }
    }
}

/// Writes named tensors as safetensors. Equal contents give equal bytes.
///
/// # Errors
/// When the disk refuses.
pub fn put_tensors(
    out: &mut BufWriter<File>,
    tensors: &[Tensor],
    metadata: &[(&str, &str)],
) -> io::Result<()> {
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        let pairs = metadata
            .iter()
            .map(|(k, v)| (k.to_string(), serde_json::Value::from(*v)))
            .collect();
        header.insert("__metadata__".into(), serde_json::Value::Object(pairs));
    }
    let mut offset = 0;
    for t in tensors {
        let end = offset + t.bytes.len();
        let info = serde_json::json!({
            "dtype": format!("{:?}", t.dtype), "shape": t.shape, "data_offsets": [offset, end],
        });
        header.insert(t.name.into(), info);
        offset = end;
    }
    let mut text = serde_json::Value::Object(header).to_string();
    text.extend(std::iter::repeat_n(
        ' ',
        text.len().next_multiple_of(8) - text.len(),
    ));
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(text.as_bytes())?;
    tensors.iter().try_for_each(|t| out.write_all(t.bytes))
}

/// Whether a tensor is no parameter but the optimiser's, or a running mean.
pub(crate) fn is_moment(name: &str) -> bool {
    PARTS[1..]
        .iter()
        .any(|(_, prefix)| name.starts_with(prefix))
}

fn shown(path: &Path) -> String {
    path.shown()
}

fn damaged(path: &Path, e: impl std::fmt::Display) -> CheckpointError {
    CheckpointError::Damaged {
        path: shown(path),
        reason: e.to_string(),
    }
}

fn map(path: &Path) -> Result<Mmap, CheckpointError> {
    system::map_file(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => CheckpointError::Missing { path: shown(path) },
        _ => CheckpointError::Read {
            path: shown(path),
            source: e,
        },
    })
}

/// Opens a safetensors file. The checkpoint of a run is compared with its hash.
///
/// # Errors
/// When it is missing, unreadable or damaged.
pub fn with_tensors<T>(
    path: &Path,
    use_them: impl FnOnce(&SafeTensors) -> Result<T, CheckpointError>,
) -> Result<T, CheckpointError> {
    let map = map(path)?;
    let tensors = SafeTensors::deserialize(&map).map_err(|e| damaged(path, e))?;
    verified(path, &map, &tensors)?;
    use_them(&tensors)
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
    let manifest = artifact.manifest();
    fit(path, tensors, manifest, parts, ignore)?;
    let real = x.real();
    for (state, prefix) in parts {
        for p in state.holds(manifest) {
            let tensor = tensors
                .tensor(&format!("{prefix}{}", p.path))
                .map_err(|e| damaged(path, e))?;
            let mut memory = x.state_mut(*state);
            let mut out = memory.part(init::range(p, real));
            out.fill(values(&tensor));
        }
    }
    Ok(())
}

/// Whether there are exactly the tensors of some memories, and others that may be there.
fn fit(
    path: &Path,
    tensors: &SafeTensors,
    manifest: &Manifest,
    parts: &[(State, &str)],
    ignore: impl Fn(&str) -> bool,
) -> Result<(), CheckpointError> {
    let mut wrong = Vec::new();
    let mut known = BTreeSet::new();
    for (state, prefix) in parts {
        for p in state.holds(manifest) {
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
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(mismatch(path, wrong)),
    }
}

/// What does not fit, a line each.
pub fn mismatch(path: &Path, lines: Vec<String>) -> CheckpointError {
    CheckpointError::Mismatch {
        path: shown(path),
        list: shorten(lines),
    }
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

/// The numbers of an F32 or F64 tensor.
fn values<'t>(t: &TensorView<'t>) -> Box<dyn Iterator<Item = f64> + 't> {
    let data: &'t [u8] = t.data();
    match t.dtype() {
        Dtype::F64 => Box::new(data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b))),
        _ => Box::new(
            data.as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b).into()),
        ),
    }
}
