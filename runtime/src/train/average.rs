//! Runs whose parameters are the mean of several checkpoints.
//!
//! Takes a run that has kept parameters of earlier steps (Vaswani et al. 2017, section 6.1), or several runs of one model (Wortsman et al. 2022,
//! arXiv:2203.05482); gives the folder of a run that can be evaluated, asked, and started from, but not resumed: what the optimiser keeps is of one
//! step. Means are taken in f64 and rounded once. What is not trained is that of the first run, at its latest step.

use crate::artifact::{Artifact, ArtifactError};
use crate::parameters::checkpoint::{self, Checkpoint, CheckpointError, Progress, Tensor};
use crate::system::owned::{CHECKPOINT, MODEL, TOKENIZER};
use crate::system::shown::Shown;
use crate::system::{files, input};
use crate::train::failure::TrainError;
use crate::train::kept;
use crate::train::lock::{self, Lock};
use odec_program::manifest::Manifest;
use odec_program::{DType, EntryId, Instr};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why there is no mean.
#[derive(Debug, thiserror::Error)]
pub enum AverageError {
    #[error(
        "{run} has kept no checkpoints up to step {step}; write `keep checkpoints(last: 5, every: 500)` into its train block, or name several runs"
    )]
    NoneKept { run: String, step: u64 },
    #[error("{run} has kept {has} checkpoints up to step {step}, and {asked} are asked for")]
    TooFew {
        run: String,
        step: u64,
        has: usize,
        asked: u64,
    },
    #[error("{path} holds a run already; choose another folder with --out")]
    Occupied { path: String },
    #[error("no run is named")]
    Nothing,
    #[error("--last is of the checkpoints that one run has kept; of several runs, each has one")]
    LastOfSeveral,
    #[error("cannot read the kept checkpoints of {run}: {source}")]
    Kept { run: String, source: io::Error },
    #[error("{a} and {b} are runs of different models: {what}")]
    Different { a: String, b: String, what: String },
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
}

/// What a mean was taken of.
#[derive(Clone, Debug, PartialEq)]
pub struct Averaged {
    /// Files, each with the step that it is of.
    pub of: Vec<(PathBuf, u64)>,
    pub parameters: u64,
}

/// Writes a run whose parameters are the mean of the `last` checkpoints that one run has kept, of all of them where nothing is said, or of the
/// last checkpoints of several runs.
///
/// # Errors
/// When one of them is no run or damaged, they are of different models, or `out` is taken.
pub fn average(runs: &[PathBuf], last: Option<u64>, out: &Path) -> Result<Averaged, AverageError> {
    lock::claim_apart(out).map_err(|e| match e {
        TrainError::Occupied { path } => AverageError::Occupied { path },
        e => e.into(),
    })?;
    if last.is_some() && runs.len() > 1 {
        return Err(AverageError::LastOfSeveral);
    }
    let mut models: Vec<(&PathBuf, Artifact)> = Vec::new();
    for run in runs {
        let file = run.join(CHECKPOINT);
        if !checkpoint::is_there(&file)? {
            let path = file.shown();
            return Err(TrainError::not_a_run(run, CheckpointError::Missing { path }).into());
        }
        let artifact = Artifact::load(&run.join(MODEL))?;
        if let Some((first, other)) = models.first() {
            same(first, other.manifest(), run, artifact.manifest())?;
        }
        models.push((run, artifact));
    }
    let all: Vec<(PathBuf, &Artifact)> = match &models[..] {
        [(run, artifact)] => {
            let files = kept_of(run, last)?;
            files.into_iter().map(|file| (file, artifact)).collect()
        }
        several => several
            .iter()
            .map(|(run, artifact)| (run.join(CHECKPOINT), artifact))
            .collect(),
    };
    let mut sums: Vec<Vec<f64>> = Vec::new();
    let mut of = Vec::new();
    let mut first: Option<Progress> = None;
    for (n, (file, artifact)) in all.iter().enumerate() {
        let checkpoint = Checkpoint::open(file)?;
        let progress = checkpoint.progress()?;
        let trained = artifact.manifest().program.trained_bytes;
        let mut sums_of = sums.iter_mut();
        let mut fresh = Vec::new();
        checkpoint.params_of(artifact, |p, values| match sums_of.next() {
            Some(sum) if p.offset < trained => {
                sum.iter_mut().zip(values).for_each(|(s, v)| *s += v)
            }
            // That of the latest step, which comes last; of several runs the first one's.
            Some(sum) if models.len() == 1 => *sum = values.collect(),
            Some(_) => {}
            None => fresh.push(values.collect()),
        })?;
        if n == 0 {
            sums = fresh;
        }
        of.push((file.clone(), progress.step));
        match &mut first {
            Some(_) if models.len() > 1 => {}
            first => *first = Some(progress.clone()),
        }
    }
    let (Some(progress), [(run, artifact), ..]) = (first, &models[..]) else {
        return Err(AverageError::Nothing);
    };
    write(run, artifact, (sums, of.len() as u64), progress, out)?;
    Ok(Averaged {
        of,
        parameters: artifact.manifest().param_count(),
    })
}

/// The files that a run has kept, oldest first.
fn kept_of(run: &Path, last: Option<u64>) -> Result<Vec<PathBuf>, AverageError> {
    let checkpoint = Checkpoint::open(&run.join(CHECKPOINT))?;
    let step = checkpoint.progress()?.step;
    let steps = kept::steps(run, step).map_err(|source| AverageError::Kept {
        run: run.shown(),
        source,
    })?;
    let (has, run_name) = (steps.len(), run.shown());
    let asked = last.unwrap_or(has as u64);
    if has == 0 {
        let run = run_name;
        return Err(AverageError::NoneKept { run, step });
    }
    let Some(first) = (has as u64).checked_sub(asked) else {
        return Err(AverageError::TooFew {
            run: run_name,
            step,
            has,
            asked,
        });
    };
    let files = steps[first as usize..].iter();
    Ok(files.map(|step| run.join(kept::name(*step))).collect())
}

/// Whether two models have the same parameters and compute the same.
fn same(a: &Path, first: &Manifest, b: &Path, other: &Manifest) -> Result<(), AverageError> {
    let different = |what: String| {
        Err(AverageError::Different {
            a: a.shown(),
            b: b.shown(),
            what,
        })
    };
    let params = |m: &Manifest| -> Vec<(String, Vec<u64>)> {
        let each = m.params.iter();
        each.map(|p| (p.path.clone(), p.shape.clone())).collect()
    };
    let (of_a, of_b) = (params(first), params(other));
    if let Some((path, _)) = of_a.iter().find(|p| !of_b.contains(p)) {
        return different(format!("the second has no {path} of this shape"));
    }
    if let Some((path, _)) = of_b.iter().find(|p| !of_a.contains(p)) {
        return different(format!("the first has no {path} of this shape"));
    }
    if of_a != of_b || first.model != other.model || computes(first) != computes(other) {
        return different("they have the same parameters and compute other things".into());
    }
    Ok(())
}

/// What a model makes of its inputs: kernels by their symbols, and what they are launched on.
fn computes(m: &Manifest) -> Vec<(&str, Instr)> {
    let entry = m.program.entries.get(&EntryId::Forward);
    let instrs = entry.map_or(&[][..], |e| &e.instrs);
    let symbol = |i: &Instr| {
        let kernel = m.program.kernels.get(i.kernel as usize);
        let alone = Instr {
            kernel: 0,
            ..i.clone()
        };
        Some((kernel?.symbol.as_str(), alone))
    };
    instrs.iter().filter_map(symbol).collect()
}

/// The folder of a run with the model of another, and the sums of n checkpoints divided by n.
fn write(
    run: &Path,
    artifact: &Artifact,
    (sums, n): (Vec<Vec<f64>>, u64),
    progress: Progress,
    out: &Path,
) -> Result<(), AverageError> {
    let lock = Lock::take(out)?;
    lock::claim(out)?;
    let copy = artifact.copy_to(&out.join(MODEL))?;
    if progress.tokenizer.is_some() {
        let (from, to) = (run.join(TOKENIZER), out.join(TOKENIZER));
        let copied = input::read(&from, input::most::TOKENIZER)
            .and_then(|bytes| files::write_file(&to, |w| w.write_all(&bytes)));
        copied.map_err(|e| TrainError::write(&to, e))?;
    }
    let (manifest, real) = (artifact.manifest(), artifact.manifest().program.real);
    let trained = manifest.program.trained_bytes;
    let pairs = manifest.params.iter().zip(&sums);
    let bytes: Vec<Vec<u8>> = pairs
        .map(|(p, sum)| {
            let n = if p.offset < trained { n as f64 } else { 1.0 };
            let mean = sum.iter().map(|s| s / n);
            match real {
                DType::F64 => mean.flat_map(f64::to_le_bytes).collect(),
                _ => mean.flat_map(|x| (x as f32).to_le_bytes()).collect(),
            }
        })
        .collect();
    let tensors = manifest.params.iter().zip(&bytes).map(|(p, bytes)| Tensor {
        name: &p.path,
        shape: &p.shape,
        dtype: real,
        bytes,
    });
    let progress = Progress {
        model: copy.identity().into(),
        mean_of: n,
        ..progress
    };
    checkpoint::write(&out.join(CHECKPOINT), tensors.collect(), &progress)?;
    drop(lock);
    Ok(())
}
