//! One model read in two ways: with its parameters, and with integers made of them.
//!
//! Takes the executor of a model and a program of the same model whose entries read weights in integers ([`odec_program::quantized`]); gives an executor
//! of that with the same parameters, what its matrices take, and how far its logits are from the others. Leaves making the program to the compiler.

use crate::artifact::{Artifact, ArtifactError};
use crate::data::dataset::Dataset;
use crate::device::Device;
use crate::executor::{Executor, RunError, State};
use crate::infer::evaluate::{EvaluateError, window};
use odec_program::kernel::{KernelSpec, Signature};
use odec_program::{Bindings, EntryId, Instr, Program, Quantized, names};

/// Why weights are not read in integers.
#[derive(Debug, thiserror::Error)]
pub enum QuantizeError {
    #[error(
        "{what} holds an infinity or a NaN, and no integers stand for those; the training of this run has diverged"
    )]
    NonFinite { what: String },
    #[error(
        "the parameters of the run are not those of the model that its source gives now; train it again with this odec"
    )]
    OtherModel,
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// A program on a device with the parameters of another executor, which must be those of the same model.
///
/// # Errors
/// When a parameter is not finite, or the models are not the same.
pub fn with_parameters_of(
    x: &mut Executor,
    artifact: &Artifact,
    device: Box<dyn Device>,
) -> Result<Executor, QuantizeError> {
    if x.manifest().params != artifact.manifest().params {
        return Err(QuantizeError::OtherModel);
    }
    if let Some(what) = x.not_finite()? {
        return Err(QuantizeError::NonFinite { what });
    }
    let mut made = Executor::new(artifact, device)?;
    made.state_mut(State::Params)
        .fill(x.state(State::Params).iter());
    Ok(made)
}

/// What generation has made of matrices, once for many runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integers {
    pub of: Quantized,
    /// Matrices that are read in integers,
    pub matrices: u64,
    /// their bytes with scales,
    pub bytes: u64,
    /// and those that they have as reals of the program.
    pub reals: u64,
    /// Bytes of matrices that stay as they are: those made of several parameters,
    pub others: u64,
    /// and whether there are matrices of experts, or of heads.
    pub grouped: bool,
}

impl Integers {
    /// Of a program; `None` where nothing is read in integers.
    pub fn of(program: &Program, signatures: &[Signature]) -> Option<Integers> {
        let instrs = |entry| program.entries.get(&entry).map_or(&[][..], |e| &e.instrs);
        let spec = |i: &Instr| program.kernels.get(i.kernel as usize).map(|k| &k.spec);
        let at = Bindings::new(1, 1);
        let (mut all, mut others): (Option<Integers>, u64) = (None, 0);
        for i in instrs(EntryId::Prepare) {
            let Some(KernelSpec::Pack(p)) = spec(i) else {
                continue;
            };
            let dims: Vec<u64> = i.dims.iter().filter_map(|d| d.at(at)).collect();
            let bytes = |n: usize| {
                let operand = &signatures[i.kernel as usize].operands[n];
                operand.words(&dims).unwrap_or(0).saturating_mul(4)
            };
            let Some(of) = p.quantized else {
                others += bytes(1);
                continue;
            };
            let sum = all.get_or_insert(Integers {
                of,
                matrices: 0,
                bytes: 0,
                reals: 0,
                others: 0,
                grouped: false,
            });
            sum.matrices += 1;
            sum.reals += bytes(0);
            sum.bytes += bytes(1);
        }
        let is_grouped = |i: &Instr| matches!(spec(i), Some(KernelSpec::Grouped(_)));
        let grouped = instrs(EntryId::Decode).iter().any(is_grouped);
        all.map(|all| Integers {
            others,
            grouped,
            ..all
        })
    }
}

/// How far the logits of two executors of one model are apart, over tokens and vocabulary.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    pub largest: f64,
    /// The root of the mean square,
    pub rms: f64,
    /// and that of the first one's logits themselves.
    pub of: f64,
}

/// Compares the logits of held-out windows, of at most so many, spread evenly.
///
/// # Errors
/// When the text is too short, or a program has no such entry.
pub fn logits_apart(
    x: &mut Executor,
    y: &mut Executor,
    dataset: &dyn Dataset,
    most: Option<u64>,
) -> Result<Difference, EvaluateError> {
    let mut found = Difference::default();
    let mut count = 0.0f64;
    for batch in dataset.held_out_batches(1, window(x), most)? {
        let batch = batch?;
        let at = batch.at();
        let given = batch.fed().filter(|(name, _)| *name == names::TOKENS);
        let given: Vec<_> = given.collect();
        let [a, b] = [&mut *x, &mut *y].map(|x| x.run(EntryId::Forward, at, &given, &[]));
        let (a, b) = (a?, b?);
        let (a, b) = (a.reals(names::LOGITS)?, b.reals(names::LOGITS)?);
        for (a, b) in a.iter().zip(b.iter()) {
            let apart = (a - b).abs();
            // What is no number is found, too.
            if apart > found.largest || apart.is_nan() {
                found.largest = apart;
            }
            found.rms += apart * apart;
            found.of += a * a;
            count += 1.0;
        }
    }
    let root = |sum: f64| (sum / count.max(1.0)).sqrt();
    Ok(Difference {
        rms: root(found.rms),
        of: root(found.of),
        ..found
    })
}
