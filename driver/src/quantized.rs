//! Models whose weights are read in integers: built from the source that an artifact holds, for processors.
//!
//! Takes a run's executor, or what `bench` is given; gives the same model with entries that read integers, and none that trains. What the run holds stays as
//! it is. Leaves what integers mean to [`odec_program::quantized`].

use crate::artifact::{self, object_code, target};
use crate::fail::{Done, Failure};
use crate::source::{is_source, of_artifact, report};
use odec_compiler::codes;
use odec_compiler::model::Built;
use odec_compiler::passes::assemble::{ModelParts, Options};
use odec_grammar::Diagnostic;
use odec_program::manifest::{Manifest, Precision};
use odec_program::{DType, EntryId, Quantized, Target};
use odec_runtime::infer::quantized::with_parameters_of;
use odec_runtime::{Artifact, DeviceChoice, Executor};
use std::path::Path;

/// What is wrong with a model that is to be read in integers.
fn fits(built: &Built, q: Quantized) -> Vec<Diagnostic> {
    match (built.named.precision, built.real()) {
        (Some(span), DType::F64) => {
            let message = format!("weights in {q} do not go with `precision f64`");
            let d = Diagnostic::error(codes::NOT_SUPPORTED, span, message);
            vec![d.label("integers are multiplied in f32")]
        }
        _ => vec![],
    }
}

/// Whether there are kernels for a device that read integers.
pub fn fits_device(device: DeviceChoice, q: Quantized) -> Done {
    match device {
        DeviceChoice::Cpu | DeviceChoice::Reference => Ok(()),
        DeviceChoice::Cuda(_) | DeviceChoice::Dry { .. } => Err(Failure::Input(format!(
            "--weights {q}: kernels for GPUs do not read weights in integers yet; leave out --device, or --weights"
        ))),
    }
}

/// The model of a manifest with weights in integers, for a processor or the reference device.
fn built(m: &Manifest, q: Quantized, target: Target, device: DeviceChoice) -> Done<Artifact> {
    if !m.program.entries.contains_key(&EntryId::Decode) {
        return Err(Failure::Input(format!(
            "--weights {q} is for models that generate text token by token, and {} does not",
            m.name
        )));
    }
    if target.is_gpu() {
        return Err(Failure::Input(format!(
            "--weights {q}: this program was built for {target}, and kernels for GPUs do not read weights in integers yet"
        )));
    }
    let (parsed, checked) = of_artifact(m).map_err(|why| {
        Failure::Input(format!(
            "the source in {}.odex cannot be built by this odec: {why}",
            m.name
        ))
    })?;
    let built = checked
        .built
        .ok_or_else(|| Failure::internal("an artifact without a model"))?;
    report(&fits(&built, q), &parsed.sources)?;
    let model = ModelParts {
        grad: None,
        ..ModelParts::new(&built, &m.source)
    };
    let options = Options {
        weights: Some(q),
        ..Options::of(target, built.real())
    };
    let mut manifest = artifact::assembled_with(&model, options)?.manifest;
    manifest.settings.clone_from(&m.settings);
    manifest.imports.clone_from(&m.imports);
    if device == DeviceChoice::Reference {
        return Artifact::in_memory(manifest).map_err(Failure::internal);
    }
    let code = object_code(&manifest.program.kernels, target)?;
    let folder = tempfile::tempdir().map_err(Failure::input)?;
    // What is loaded is in memory: the folder is not needed any more.
    let path = folder.path().join("model.odex");
    Artifact::write(&path, manifest, &[code]).map_err(Failure::input)
}

/// The target that an artifact was built for, as far as this machine runs it.
fn target_of(artifact: &Artifact) -> Done<Target> {
    let m = artifact.manifest();
    match m.objects.is_empty() {
        true => {
            let precision = m.train.as_ref().map_or(Precision::F32, |t| t.precision);
            target("cpu", precision)
        }
        false => artifact.object().map(|(t, _)| t).map_err(Failure::input),
    }
}

/// The model of an executor, and its parameters, with weights in integers.
pub fn executor(x: &mut Executor, q: Quantized, device: DeviceChoice) -> Done<Executor> {
    fits_device(device, q)?;
    let artifact = built(x.manifest(), q, target_of(x.artifact())?, device)?;
    let on = artifact.device(device, None).map_err(Failure::input)?;
    with_parameters_of(x, &artifact, on).map_err(Failure::input)
}

/// What [`artifact::open`] opens, with weights in integers.
pub fn open(
    path: &Path,
    overrides: &[String],
    device: DeviceChoice,
    q: Quantized,
) -> Done<Artifact> {
    fits_device(device, q)?;
    if is_source(path) {
        let (manifest, target) = artifact::planned(path, overrides, "cpu", |built, sources| {
            report(&fits(built, q), sources)
        })?;
        return built(&manifest, q, target, device);
    }
    artifact::fixed(overrides)?;
    let artifact = Artifact::load(path).map_err(Failure::input)?;
    built(artifact.manifest(), q, target_of(&artifact)?, device)
}
