//! The data of a run: its texts or token files, and its tokenizer.
//!
//! Takes a run's folder, or what a run is made of; gives the dataset and the tokenizer. Token files made from texts are kept
//! beside the run, for all runs in that place. Leaves making and reading them to [`mod@crate::data`].

use crate::artifact::Artifact;
use crate::data::dataset::Dataset;
use crate::data::tokenizer::Tokenizer;
use crate::data::{DataError, Source, sources};
use crate::parameters::checkpoint::{Checkpoint, CheckpointError, Progress};
use crate::system::files;
use crate::system::owned::{CHECKPOINT, MODEL, TOKENIZER};
use crate::system::progress::Show;
use crate::system::shown::Shown;
use crate::train::failure::TrainError;
use odec_program::manifest::Data;
use std::path::{Path, PathBuf};

/// Beside the run: token files made from texts.
pub const CACHE: &str = ".tokens";

/// What a run trains on, in its two parts; or other files, read alike, of which all is held out.
///
/// # Errors
/// When there is no run, or its text cannot be read.
pub fn dataset_of(
    run: &Path,
    files: &[PathBuf],
    show: Show,
) -> Result<Box<dyn Dataset>, TrainError> {
    let artifact = Artifact::load(&run.join(MODEL))?;
    let checkpoint = Checkpoint::open(&run.join(CHECKPOINT))?;
    let progress = checkpoint.progress()?;
    let tokenizer = saved_tokenizer(run, progress)?;
    let data = with_files(&progress.data, files)?;
    let dataset = open_dataset(&artifact, &data, &tokenizer, run, show)?;
    match files {
        [] => same_data(progress, &*dataset).map(|()| dataset),
        _ => Ok(dataset.all_held_out()),
    }
}

/// Sources and target of each pair that a run holds out, or of all pairs in other files; `None` of a run on anything else.
///
/// # Errors
/// When there is no run, or its files cannot be read.
pub fn pairs_of(
    run: &Path,
    files: &[PathBuf],
    show: Show,
) -> Result<Option<Vec<Vec<String>>>, TrainError> {
    let artifact = Artifact::load(&run.join(MODEL))?;
    let checkpoint = Checkpoint::open(&run.join(CHECKPOINT))?;
    let progress = checkpoint.progress()?;
    let source = Source {
        data: &with_files(&progress.data, files)?,
        tokenizer: &saved_tokenizer(run, progress)?,
        cache: &files::parent(run).join(CACHE),
        context: context(&artifact),
        source_context: artifact.manifest().program.maxima.source,
        show,
    };
    Ok(sources::held_out_pairs(source, !files.is_empty())?)
}

/// The tokenizer that a run was trained with; nothing when it was trained on token files.
///
/// # Errors
/// When there is no run, or its tokenizer is damaged.
pub fn tokenizer_of(run: &Path) -> Result<Option<Tokenizer>, TrainError> {
    let checkpoint = Checkpoint::open(&run.join(CHECKPOINT))?;
    let progress = checkpoint.progress()?;
    let tokenizer = progress.data.form.tokenizer();
    tokenizer
        .map(|_| saved_tokenizer(run, progress))
        .transpose()
}

pub(crate) fn saved_tokenizer(run: &Path, p: &Progress) -> Result<Tokenizer, TrainError> {
    Ok(match &p.tokenizer {
        Some(identity) => Tokenizer::open_same(&run.join(TOKENIZER), identity)?,
        None => Tokenizer::bytes(),
    })
}

/// Whether the files of a run are those that it was trained on.
pub(crate) fn same_data(p: &Progress, dataset: &dyn Dataset) -> Result<(), TrainError> {
    let files = dataset.files().iter().zip(&p.files);
    let mut changes: Vec<String> = files.filter_map(|(is, was)| is.change(was)).collect();
    if changes.is_empty() && dataset.len() != p.tokens {
        let (name, is, was) = (dataset.name(), dataset.len(), p.tokens);
        let unit = dataset.unit().name();
        changes.push(format!("{name} has {is} {unit} now and had {was}"));
    }
    match changes.is_empty() {
        true => Ok(()),
        false => Err(TrainError::Data(DataError::Changed {
            what: changes.join(", "),
        })),
    }
}

/// The same data from other files, when there are any.
pub(crate) fn with_files(data: &Data, files: &[PathBuf]) -> Result<Data, TrainError> {
    if files.is_empty() {
        return Ok(data.clone());
    }
    Ok(Data {
        files: files.iter().map(|f| f.display().to_string()).collect(),
        form: sources::form_of(files, &data.form)?,
        held_out_percent: data.held_out_percent,
    })
}

/// Whether images, vectors, sentences, pairs or texts with classes are of the form that the model was compiled for. A checkpoint says the form again, and may be damaged.
fn same_form(a: &Artifact, data: &Data, run: &Path) -> Result<(), TrainError> {
    let train = a.manifest().train.as_ref();
    let compiled = train.map_or(&data.form, |t| &t.data.form);
    if data.form == *compiled || data.form.is_corpus() && compiled.is_corpus() {
        return Ok(());
    }
    Err(TrainError::Checkpoint(CheckpointError::Damaged {
        path: run.join(CHECKPOINT).shown(),
        reason: "its data are not of the form that the model reads".into(),
    }))
}

pub(crate) fn open_dataset(
    a: &Artifact,
    data: &Data,
    tokenizer: &Tokenizer,
    run: &Path,
    show: Show,
) -> Result<Box<dyn Dataset>, TrainError> {
    same_form(a, data, run)?;
    let source = Source {
        data,
        tokenizer,
        cache: &files::parent(run).join(CACHE),
        context: context(a),
        source_context: a.manifest().program.maxima.source,
        show,
    };
    Ok(sources::open(source, a.manifest().model.vocab)?)
}

/// Longest row that the program takes.
fn context(a: &Artifact) -> u64 {
    let m = a.manifest();
    m.model.context.min(m.program.maxima.seq)
}
