//! From a checked file to an artifact that can run.
//!
//! Takes paths, targets and devices; gives programs, object code and artifacts. Code is generated in a child process, which is this
//! program again. Leaves reading and checking to `source.rs`.

use crate::fail::{Done, Failure};
use crate::memory_check;
use crate::source::{is_source, parsed, report};
use odec_compiler::codes;
use odec_compiler::model::Built;
use odec_compiler::passes::assemble::{AssembleError, Assembled, ModelParts, Options, assemble};
use odec_grammar::{Diagnostic, Sources};
use odec_program::manifest::{Manifest, Precision};
use odec_program::{DType, Kernel, Target};
use odec_runtime::device::cuda;
use odec_runtime::device::cuda::fit::Card;
use odec_runtime::device::cuda::recording::Recording;
use odec_runtime::errln;
#[cfg(feature = "mlir")]
use odec_runtime::remedy;
#[cfg(feature = "mlir")]
use odec_runtime::system::private;
use odec_runtime::{
    Artifact, ArtifactError, DeviceChoice, ObjectCode, Shown, TrainError, Unsigned,
};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What is wrong with the real type on a target.
fn precision_fits(built: &Built, target: Target) -> Vec<Diagnostic> {
    match (built.named.precision, built.real()) {
        (Some(span), DType::F64) if target.is_gpu() => {
            let message = format!("`precision f64` is not supported on {target}");
            let d = Diagnostic::error(codes::NOT_SUPPORTED, span, message);
            vec![d.label("kernels for GPUs compute in f32")]
        }
        _ => vec![],
    }
}

/// The program of a model for one target, without object code.
pub fn assembled(built: &Built, source: &str, target: Target) -> Done<Assembled> {
    let options = Options::of(target, built.real());
    assembled_with(&ModelParts::new(built, source), options)
}

/// The same, of chosen entries and with other options.
pub(crate) fn assembled_with(model: &ModelParts, options: Options) -> Done<Assembled> {
    assemble(model, options).map_err(|e| match e {
        AssembleError::Params(_) | AssembleError::Plan { .. } | AssembleError::Cache { .. } => {
            Failure::input(e)
        }
        e => Failure::internal(e),
    })
}

/// The target that a `--target` option names; `cpu` is the best of this machine for programs of a precision.
pub fn target(name: &str, precision: Precision) -> Done<Target> {
    let host = || {
        Target::detect(precision).ok_or_else(|| {
            Failure::Input("this processor is older than x86-64-v2; odec generates code for x86-64-v2 and above".into())
        })
    };
    match name {
        "cpu" => host(),
        name => name.parse().map_err(Failure::input),
    }
}

/// Compiles a program's kernels in a child process and links them, into one shared object or one PTX module.
#[cfg(feature = "mlir")]
pub fn object_code(kernels: &[Kernel], target: Target) -> Done<ObjectCode> {
    if let Some(reason) = (kernels.iter().filter(|_| target.is_gpu()))
        .find_map(|k| odec_program::gpu::refusal(&k.spec))
    {
        return Err(Failure::Input(format!(
            "this model cannot be built for {target}: {reason}"
        )));
    }
    // The child keeps objects there, and says nothing.
    if let Err(e) = private::folder()
        && e.is_exposed()
    {
        errln!("note: the kernel cache is not used: {e}");
    }
    let program = std::env::current_exe().map_err(Failure::internal)?;
    let mut child = std::process::Command::new(program);
    child.arg("__codegen");
    use std::error::Error;
    let failed = |e: odec_mlir::CodegenError| {
        let io = e.source().and_then(|e| e.downcast_ref::<std::io::Error>());
        match io {
            Some(io) => Failure::Input(format!("{e}; {}, then build again", remedy(io))),
            None if e.is_of_the_machine() => Failure::input(e),
            None => Failure::internal(e),
        }
    };
    let objects = odec_mlir::compile_in_child(child, kernels, target).map_err(failed)?;
    if target.is_gpu() {
        return Ok(ObjectCode {
            file: odec_program::manifest::GPU_OBJECT_FILE.into(),
            target: target.name().into(),
            bytes: odec_mlir::gpu::ptx::join(&objects),
        });
    }
    let folder = tempfile::tempdir().map_err(Failure::input)?;
    let file = folder.path().join("kernels.so");
    odec_mlir::link(&objects, &file).map_err(failed)?;
    let bytes = std::fs::read(&file).map_err(Failure::input)?;
    Ok(ObjectCode {
        file: odec_program::manifest::CPU_OBJECT_FILE.into(),
        target: target.name().into(),
        bytes,
    })
}

#[cfg(not(feature = "mlir"))]
pub fn object_code(_: &[Kernel], _: Target) -> Done<ObjectCode> {
    Err(Failure::input(
        "this odec was built without code generation (feature `mlir`)",
    ))
}

/// What commands do with the code of an artifact that this user did not sign.
pub fn unsigned(trust: bool) -> Unsigned {
    match trust {
        true => Unsigned::Trust,
        false if cfg!(feature = "mlir") => Unsigned::Compile(anew),
        false => Unsigned::Refuse,
    }
}

/// The kernels of an artifact that was not built here, compiled here.
fn anew(artifact: &Artifact, kernels: &[Kernel], target: Target) -> Result<Vec<u8>, String> {
    errln!(
        "note: {} was not built here ({}), so its kernels are recompiled; `--trust` runs its own code",
        artifact.path().shown(),
        artifact.not_ours().unwrap_or_default()
    );
    object_code(kernels, target)
        .map(|code| code.bytes)
        .map_err(|e| match e {
            Failure::Input(why) | Failure::Internal(why) => why,
            Failure::Reported { .. } | Failure::Stopped { .. } => String::new(),
        })
}

/// Builds a file for the target of this name into an artifact at `out`.
pub fn build(
    path: &Path,
    overrides: &[String],
    name: &str,
    out: &Path,
) -> Done<(Artifact, Built, Assembled)> {
    build_if(path, overrides, name, out, |_, _, _| Ok(()))
}

/// The program of a file for the target of this name, without object code; `fits` is asked before it is planned.
fn plan(
    path: &Path,
    overrides: &[String],
    name: &str,
    fits: impl FnOnce(&Built, &Sources) -> Done,
) -> Done<(Built, Assembled, Target)> {
    let mut parsed = parsed(path, overrides)?;
    let mut built = parsed.built()?;
    fits(&built, &parsed.sources)?;
    let target = target(name, built.precision())?;
    parsed.resolve_memory(&mut built, target)?;
    report(&precision_fits(&built, target), &parsed.sources)?;
    let mut assembled = assembled(&built, parsed.sources.text(parsed.main), target)?;
    assembled.manifest.settings = parsed.settings;
    assembled.manifest.imports = parsed.imports;
    Ok((built, assembled, target))
}

/// The manifest of a file's program, and its target.
pub fn planned(
    path: &Path,
    overrides: &[String],
    name: &str,
    fits: impl FnOnce(&Built, &Sources) -> Done,
) -> Done<(Manifest, Target)> {
    let (_, assembled, target) = plan(path, overrides, name, fits)?;
    Ok((assembled.manifest, target))
}

/// The same, asking before code is generated whether that is worth it. Entries may be left out, too.
fn build_if(
    path: &Path,
    overrides: &[String],
    name: &str,
    out: &Path,
    worth: impl FnOnce(&Built, &mut Assembled, Target) -> Done,
) -> Done<(Artifact, Built, Assembled)> {
    let (built, mut assembled, target) = plan(path, overrides, name, |_, _| Ok(()))?;
    worth(&built, &mut assembled, target)?;
    let code = object_code(&assembled.manifest.program.kernels, target)?;
    let artifact =
        Artifact::write(out, assembled.manifest.clone(), &[code]).map_err(Failure::input)?;
    Ok((artifact, built, assembled))
}

/// Opens an artifact, or builds a file for a device into a temporary one that lives as long as the guard.
pub fn open(
    path: &Path,
    overrides: &[String],
    device: DeviceChoice,
    trust: bool,
) -> Done<(Artifact, Option<TempDir>)> {
    open_part(path, overrides, device, trust, |_| ())
}

/// The same. Before code is generated for a file, `part` may leave out entries.
pub fn open_part(
    path: &Path,
    overrides: &[String],
    device: DeviceChoice,
    trust: bool,
    part: impl FnOnce(&mut Manifest),
) -> Done<(Artifact, Option<TempDir>)> {
    artifact_if(path, overrides, device, trust, |_, _| Ok(()), part)
}

/// The same of a model that is to be trained, asking `claim` with its name before any code is generated.
pub fn trainable(
    path: &Path,
    overrides: &[String],
    device: DeviceChoice,
    trust: bool,
    claim: impl Fn(&str) -> Done,
) -> Done<(Artifact, Option<TempDir>)> {
    let wanted = |name: &str, trains: bool| {
        if !trains {
            return Err(Failure::input(TrainError::NoTrainBlock {
                path: path.shown(),
            }));
        }
        claim(name)
    };
    artifact_if(path, overrides, device, trust, wanted, |_| ())
}

/// `wanted` may refuse a model, by its name and whether it has a train block, before code is generated; then `part` may leave out entries.
fn artifact_if(
    path: &Path,
    overrides: &[String],
    device: DeviceChoice,
    trust: bool,
    wanted: impl Fn(&str, bool) -> Done,
    part: impl FnOnce(&mut Manifest),
) -> Done<(Artifact, Option<TempDir>)> {
    if !is_source(path) {
        fixed(overrides)?;
        let artifact = Artifact::load(path).map_err(Failure::input)?;
        let m = artifact.manifest();
        wanted(&m.name, m.train.is_some())?;
        return Ok((artifact.with(unsigned(trust)), None));
    }
    let refused = |card| move |source| Failure::input(ArtifactError::Gpu { card, source });
    let (card, target) = match device {
        DeviceChoice::Cuda(number) => {
            let card = cuda::card(number).map_err(refused(number))?;
            let target = card.target().map_err(refused(number))?;
            (Some((number, card)), target.name())
        }
        DeviceChoice::Dry { memory } => {
            let card = Card::of(&Recording::with(memory)).map_err(refused(0))?;
            (Some((0, card)), Target::Sm80.name())
        }
        DeviceChoice::Cpu | DeviceChoice::Reference => (None, "cpu"),
    };
    let folder = tempfile::tempdir().map_err(Failure::input)?;
    let out = folder.path().join("model.odex");
    let (artifact, ..) = build_if(path, overrides, target, &out, |built, planned, target| {
        wanted(&built.name, built.train.is_some())?;
        if let Some((number, card)) = &card {
            memory_check::fits((*number, card), built, planned, target)?;
        }
        part(&mut planned.manifest);
        Ok(())
    })?;
    Ok((artifact, Some(folder)))
}

/// An artifact takes no settings.
pub fn fixed(overrides: &[String]) -> Done {
    match overrides.is_empty() {
        true => Ok(()),
        false => Err(Failure::Input(
            "--set needs a .ode file: an artifact's numbers are fixed".into(),
        )),
    }
}

/// `dir/name.ode` → `name.odex` in the working directory.
pub fn default_artifact(path: &Path) -> PathBuf {
    PathBuf::from(path.file_stem().unwrap_or(path.as_os_str())).with_extension("odex")
}
