//! Artifacts: `name.odex/`, a manifest, its hash, and object files whose hashes are in the manifest.
//!
//! Takes a path; gives an [`Artifact`] whose format, hashes and program were verified, or the reason
//! why it is refused and what to do. Also writes artifacts, all at once or not at all. Hashes guard
//! against damage; what guards against malice is the signature (`key.rs`): code that this user did not sign is opened
//! only as [`Unsigned`] says. Leaves running to [`crate::executor`].

pub mod check;
mod numbers;

use crate::device::Device;
use crate::device::cpu::{CpuDevice, CpuError};
use crate::device::cuda::{self, CudaError};
use crate::device::reference::ReferenceDevice;
use crate::system::files::{self, remedy};
use crate::system::hash::sha256;
use crate::system::input::{self, most};
use crate::system::key::Key;
use crate::system::known::{self, Kind};
use crate::system::output::{self, OutputError};
use crate::system::owned::{self, Listing};
use crate::system::pool;
use crate::system::shown::Shown;
use check::Invalid;
use odec_program::kernel::Signature;
use odec_program::manifest::{FORMAT, HASH_FILE, MANIFEST_FILE, Manifest, Object, SIGNATURE_FILE};
use odec_program::{Kernel, Target};
use serde::Deserialize;
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

/// Files of every artifact, beside its objects.
const OWN_FILES: [&str; 3] = [MANIFEST_FILE, HASH_FILE, SIGNATURE_FILE];

/// A verified artifact. Cheap to clone.
#[derive(Clone)]
pub struct Artifact {
    path: PathBuf,
    /// SHA-256 of the manifest, and so of everything in the artifact. Of one that is not in files, when it is asked for.
    identity: Arc<OnceLock<String>>,
    manifest: Arc<Manifest>,
    signatures: Arc<[Signature]>,
    /// The contents of the manifest's objects, as they were when their hashes were compared.
    code: Arc<[Vec<u8>]>,
    /// Why its code is not this user's, when it is not.
    not_ours: Option<Arc<str>>,
    unsigned: Unsigned,
}

/// What is done with code that this user did not sign.
#[derive(Clone, Copy, Debug, Default)]
pub enum Unsigned {
    /// It is refused.
    #[default]
    Refuse,
    /// It is not opened: the program's kernels are recompiled.
    Compile(Compile),
    /// It runs as it is.
    Trust,
}

/// Compiles kernels for a target, to a shared object or to PTX. The artifact is for messages.
pub type Compile = fn(&Artifact, &[Kernel], Target) -> Result<Vec<u8>, String>;

/// Why an artifact is refused.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("there is no artifact at {path}; build one with `odec build FILE.ode -o {path}`")]
    Missing { path: String },
    #[error(
        "{path} is not an artifact: it has no {MANIFEST_FILE}; an artifact is a folder made by `odec build`"
    )]
    NotAnArtifact { path: String },
    #[error("{path} is neither a .ode file nor an artifact: it {what}")]
    NoneBut { path: String, what: String },
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("{path}: the manifest is damaged ({reason}); build the artifact again")]
    Manifest { path: String, reason: String },
    #[error(
        "{path} has artifact format {found}, and this odec reads format {FORMAT}; build it again with this version, or run it with odec {version}"
    )]
    Format {
        path: String,
        found: u32,
        version: String,
    },
    #[error("{path}: the manifest contradicts itself: {source}; build the artifact again")]
    Invalid { path: String, source: Invalid },
    #[error("{path}: {file} is missing; build the artifact again")]
    FileMissing { path: String, file: String },
    #[error(
        "{path}: {file} is damaged (SHA-256 {found}, expected {expected}); build the artifact again"
    )]
    Hash {
        path: String,
        file: String,
        found: String,
        expected: String,
    },
    #[error(
        "{path}: the object name `{file}` points outside of the artifact; build the artifact again"
    )]
    Outside { path: String, file: String },
    #[error(
        "{path} holds no compiled code; build it with code generation (`odec build` with LLVM), \
         or choose the slow reference device with `--device reference`"
    )]
    NoCode { path: String },
    #[error(
        "{path} holds code for GPUs only ({built}); run it on such a GPU with `--device cuda:0`, \
         or build it for this processor with `odec build`"
    )]
    GpuOnly { path: String, built: String },
    #[error(
        "{path} was built for {built}, which this machine cannot run ({reason}); build it here with `odec build`"
    )]
    Foreign {
        path: String,
        built: String,
        reason: String,
    },
    #[error(
        "{path} was not built here ({why}), and its compiled code could do anything on this machine, so it is not run; \
         build it here, add `--trust` if you trust whoever made it, or run it with `--device reference`"
    )]
    Unsigned { path: String, why: String },
    #[error("the kernels of {path} cannot be recompiled: {reason}")]
    Compile { path: String, reason: String },
    #[error(
        "{path} exists and is not an artifact of odec ({why}), so it is not replaced; move it away, or choose another name with -o"
    )]
    Occupied { path: String, why: String },
    #[error(
        "{path} would lie in the artifact {artifact}, which holds nothing else; choose another name with -o"
    )]
    Within { path: String, artifact: String },
    #[error(
        "{path} belongs to the run in {run}, whose checkpoint is of another artifact; choose another name with -o"
    )]
    OfRun { path: String, run: String },
    #[error(
        "{path} belongs to the run in {run}, where a process trains; wait for it, or choose another name with -o"
    )]
    Busy { path: String, run: String },
    #[error(transparent)]
    Place(#[from] OutputError),
    #[error("cannot write {path}: {source}; {}, then build again", remedy(source))]
    Write { path: String, source: io::Error },
    #[error("{path}: {source}")]
    Device { path: String, source: CpuError },
    #[error("cuda:{card}: {source}")]
    Gpu { card: u32, source: CudaError },
}

/// Which device runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// Compiled code.
    #[default]
    Cpu,
    /// The interpreter of kernel specs.
    Reference,
    /// Compiled code on an NVIDIA GPU, by its number.
    Cuda(u32),
    /// Code for GPUs without one: launches are planned and checked, nothing is computed. As if a card had so many bytes.
    Dry { memory: u64 },
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(s: &str) -> Result<DeviceChoice, String> {
        match s {
            "cpu" => Ok(DeviceChoice::Cpu),
            "reference" => Ok(DeviceChoice::Reference),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            "cuda:dry" => Ok(DeviceChoice::Dry { memory: u64::MAX }),
            _ if s.starts_with("cuda:dry:") => {
                let gib = s["cuda:dry:".len()..].strip_suffix("GiB");
                let gib: Option<u64> = gib.and_then(|n| n.parse().ok());
                let memory = gib.and_then(|n| n.checked_mul(1 << 30));
                memory.map(|memory| DeviceChoice::Dry { memory }).ok_or_else(|| {
                    format!("`{s}` has no amount of memory for the GPU; write cuda:dry:24GiB")
                })
            }
            _ => (s.strip_prefix("cuda:").and_then(|n| n.parse().ok()))
                .map(DeviceChoice::Cuda)
                .ok_or_else(|| {
                    format!("unknown device `{s}`; devices are cpu, reference and cuda:0 (or another number)")
                }),
        }
    }
}

/// The part of a manifest that every format has.
#[derive(Deserialize)]
struct Version {
    format: u32,
    #[serde(default)]
    odec: String,
}

impl Artifact {
    /// Reads and verifies an artifact.
    ///
    /// # Errors
    /// When it is missing, damaged, of another format, or its program is inconsistent.
    pub fn load(path: &Path) -> Result<Artifact, ArtifactError> {
        let shown = || path.shown();
        if let Some(what) = known::instead(path, &[Kind::Artifact, Kind::Source]) {
            let path = shown();
            return Err(ArtifactError::NoneBut { path, what });
        }
        if !path.exists() {
            return Err(ArtifactError::Missing { path: shown() });
        }
        let text = match input::read(&path.join(MANIFEST_FILE), most::MANIFEST) {
            Ok(t) => t,
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(ArtifactError::NotAnArtifact { path: shown() });
            }
            Err(source) => {
                return Err(ArtifactError::Read {
                    path: shown(),
                    source,
                });
            }
        };
        let damaged = |e: serde_json::Error| ArtifactError::Manifest {
            path: shown(),
            reason: e.to_string(),
        };
        let manifest: Result<Manifest, _> = serde_json::from_slice(&text);
        // Of another format it may or may not be readable as one of this format.
        if manifest.as_ref().ok().map(|m| m.format) != Some(FORMAT) {
            let version: Version = serde_json::from_slice(&text).map_err(damaged)?;
            if version.format != FORMAT {
                return Err(ArtifactError::Format {
                    path: shown(),
                    found: version.format,
                    version: version.odec,
                });
            }
        }
        let identity = sha256(&text);
        let listed = read(path, HASH_FILE, most::LINE)?;
        if listed != hash_line(&identity).as_bytes() {
            let listed = String::from_utf8_lossy(&listed);
            return Err(ArtifactError::Hash {
                path: shown(),
                file: MANIFEST_FILE.into(),
                found: identity,
                expected: listed.split_whitespace().next().unwrap_or("").into(),
            });
        }
        let manifest = manifest.map_err(damaged)?;
        let code = manifest.objects.iter().map(|o| verified(path, o));
        let code = code.collect::<Result<_, _>>()?;
        let not_ours = not_signed(path, &identity);
        let artifact = Artifact::new(path, manifest, identity.into(), code)?;
        Ok(Artifact {
            not_ours: not_ours.map(Arc::from),
            ..artifact
        })
    }

    /// The same, and what is done with its code if this user did not sign it.
    #[must_use]
    pub fn with(self, unsigned: Unsigned) -> Artifact {
        Artifact { unsigned, ..self }
    }

    /// Why its code is not this user's; nothing when it was built here.
    pub fn not_ours(&self) -> Option<&str> {
        self.not_ours.as_deref()
    }

    /// An artifact that need not exist as files; it runs on the reference device.
    ///
    /// # Errors
    /// When the manifest contradicts itself.
    pub fn in_memory(manifest: Manifest) -> Result<Artifact, ArtifactError> {
        let path = PathBuf::from(format!("{}.odex", manifest.name));
        let manifest = Manifest {
            objects: vec![],
            ..manifest
        };
        Artifact::new(&path, manifest, OnceLock::new(), vec![])
    }

    fn new(
        path: &Path,
        manifest: Manifest,
        identity: OnceLock<String>,
        code: Vec<Vec<u8>>,
    ) -> Result<Artifact, ArtifactError> {
        let signatures = check::manifest(&manifest).map_err(|source| ArtifactError::Invalid {
            path: path.shown(),
            source,
        })?;
        Ok(Artifact {
            path: path.to_path_buf(),
            identity: identity.into(),
            manifest: Arc::new(manifest),
            signatures: signatures.into(),
            code: code.into(),
            not_ours: None,
            unsigned: Unsigned::default(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What tells this artifact from any other: the SHA-256 of its manifest.
    pub fn identity(&self) -> &str {
        self.identity.get_or_init(|| sha256(&text(&self.manifest)))
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The signature of each of the program's kernels.
    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }

    /// The fastest object that this machine runs.
    ///
    /// # Errors
    /// When there is none, saying what the machine lacks.
    pub fn object(&self) -> Result<(Target, &Object), ArtifactError> {
        let path = || self.path.shown();
        let objects = &self.manifest.objects;
        if objects.is_empty() {
            return Err(ArtifactError::NoCode { path: path() });
        }
        let known = objects
            .iter()
            .filter_map(|o| Some((Target::from_str(&o.target).ok()?, o)));
        let best = known
            .clone()
            .filter(|(t, _)| t.supported().is_ok())
            .max_by_key(|(t, _)| *t);
        let built = || {
            let targets: Vec<&str> = objects.iter().map(|o| o.target.as_str()).collect();
            targets.join(", ")
        };
        if known.clone().count() == objects.len() && known.clone().all(|(t, _)| t.is_gpu()) {
            return Err(ArtifactError::GpuOnly {
                path: path(),
                built: built(),
            });
        }
        best.ok_or_else(|| ArtifactError::Foreign {
            path: path(),
            built: built(),
            reason: match known.filter_map(|(t, _)| t.supported().err()).next() {
                Some(feature) => format!("its processor lacks {feature}"),
                None => "the target is unknown here".into(),
            },
        })
    }

    /// Sets up a device for this program; `threads` of `None` means `ODEC_THREADS`, or all processors.
    ///
    /// # Errors
    /// When no object fits, or the system refuses to load it.
    pub fn device(
        &self,
        choice: DeviceChoice,
        threads: Option<usize>,
    ) -> Result<Box<dyn Device>, ArtifactError> {
        let program = &self.manifest.program;
        match choice {
            DeviceChoice::Reference => Ok(Box::new(ReferenceDevice::new(&program.kernels))),
            DeviceChoice::Cuda(_) | DeviceChoice::Dry { .. } => {
                let targets = self
                    .manifest
                    .objects
                    .iter()
                    .filter_map(|o| o.target.parse().ok());
                let targets: Vec<Target> = targets.collect();
                let code = |target: Target| {
                    // What an assembler made of it, where somebody says so.
                    match std::env::var_os(cuda::CUBIN_FILE) {
                        Some(cubin) => std::fs::read(cubin),
                        None => self
                            .code(target)
                            .map(Cow::into_owned)
                            .map_err(io::Error::other),
                    }
                };
                let needed = check::memory_bytes(&self.manifest);
                let kernels = &program.kernels;
                let (card, dry) = match choice {
                    DeviceChoice::Cuda(card) => (card, None),
                    DeviceChoice::Dry { memory } => (0, Some(memory)),
                    _ => (0, None),
                };
                let opened = match dry {
                    Some(memory) => cuda::dry(memory, kernels, needed, &targets, code),
                    None => cuda::open(card, kernels, needed, &targets, code),
                };
                opened.map_err(|source| ArtifactError::Gpu { card, source })
            }
            DeviceChoice::Cpu => {
                let (target, _) = self.object()?;
                let code = self.code(target)?;
                let threads = threads.unwrap_or_else(pool::default_threads);
                let scratch = check::scratch_bytes(program);
                CpuDevice::load(&code, target.name(), &program.kernels, scratch, threads)
                    .map(|d| Box::new(d) as Box<dyn Device>)
                    .map_err(|source| ArtifactError::Device {
                        path: self.path.shown(),
                        source,
                    })
            }
        }
    }

    /// The code for a target, the artifact's or recompiled. The bytes that were verified are the ones that run.
    fn code(&self, target: Target) -> Result<Cow<'_, [u8]>, ArtifactError> {
        let path = || self.path.shown();
        match (&self.not_ours, self.unsigned) {
            (Some(why), Unsigned::Refuse) => Err(ArtifactError::Unsigned {
                path: path(),
                why: why.to_string(),
            }),
            (Some(_), Unsigned::Compile(compile)) => {
                let code = compile(self, &self.manifest.program.kernels, target);
                let failed = |reason| ArtifactError::Compile {
                    path: path(),
                    reason,
                };
                code.map(Cow::Owned).map_err(failed)
            }
            (None, _) | (_, Unsigned::Trust) => {
                let objects = self.manifest.objects.iter().zip(&*self.code);
                let mut found = objects.filter(|(o, _)| o.target == target.name());
                let (_, code) = found
                    .next()
                    .ok_or_else(|| ArtifactError::NoCode { path: path() })?;
                Ok(Cow::Borrowed(code))
            }
        }
    }

    /// Copies the artifact to another place, all at once. The copy of one that was not built here is not signed either.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn copy_to(&self, path: &Path) -> Result<Artifact, ArtifactError> {
        let objects = self.manifest.objects.iter().zip(&*self.code);
        let objects = objects.map(|(o, bytes)| ObjectCode {
            file: o.file.clone(),
            target: o.target.clone(),
            bytes: bytes.clone(),
        });
        let objects: Vec<ObjectCode> = objects.collect();
        let sign = self.not_ours.is_none();
        let copy = write(path, (*self.manifest).clone(), &objects, sign)?;
        Ok(Artifact {
            not_ours: self.not_ours.clone(),
            unsigned: self.unsigned,
            ..copy
        })
    }

    /// Writes an artifact: into a temporary folder beside `path`, then renamed, so that there is never half
    /// of one. An older artifact of that name is replaced; anything else of that name is left alone ([`may_replace`]).
    /// The manifest's object list is made here, and all of it is signed: its code must have been compiled by this process.
    ///
    /// # Errors
    /// When something else is there, or a run whose checkpoint is of another artifact, the manifest contradicts itself, or the disk refuses.
    pub fn write(
        path: &Path,
        manifest: Manifest,
        objects: &[ObjectCode],
    ) -> Result<Artifact, ArtifactError> {
        write(path, manifest, objects, true)
    }
}

fn write(
    path: &Path,
    mut manifest: Manifest,
    objects: &[ObjectCode],
    sign: bool,
) -> Result<Artifact, ArtifactError> {
    let shown = || path.shown();
    may_replace(path)?;
    let listed = |o: &ObjectCode| Object {
        file: o.file.clone(),
        target: o.target.clone(),
        sha256: sha256(&o.bytes),
    };
    manifest.objects = objects.iter().map(listed).collect();
    for o in &manifest.objects {
        inside(path, &o.file)?;
    }
    let text = text(&manifest);
    let code = objects.iter().map(|o| o.bytes.clone()).collect();
    let artifact = Artifact::new(path, manifest, sha256(&text).into(), code)?;
    if let Some(run) = owned::run_of_model(path)
        && owned::is_of_another(&run, artifact.identity())
    {
        let (path, run) = (path.shown(), run.shown());
        return Err(ArtifactError::OfRun { path, run });
    }
    let hash = hash_line(artifact.identity());
    // Without a key the artifact is as good as one from elsewhere; why there is none is said when it is opened.
    let key = sign.then(Key::own).and_then(Result::ok);
    let signature = key.map(|k| format!("{}\n", k.sign(artifact.identity())));
    let mut list: Vec<(&str, &[u8])> = objects
        .iter()
        .map(|o| (o.file.as_str(), o.bytes.as_slice()))
        .collect();
    list.push((MANIFEST_FILE, &text));
    list.push((HASH_FILE, hash.as_bytes()));
    list.extend(signature.iter().map(|s| (SIGNATURE_FILE, s.as_bytes())));
    files::write_folder(path, &list).map_err(|source| ArtifactError::Write {
        path: shown(),
        source,
    })?;
    Ok(artifact)
}

/// Why the manifest with this hash was not signed by this user; nothing when it was.
fn not_signed(path: &Path, identity: &str) -> Option<String> {
    let signature = match input::read_text(&path.join(SIGNATURE_FILE), most::LINE) {
        Ok(s) => s,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Some("it is not signed".into()),
        Err(e) => return Some(format!("{SIGNATURE_FILE} cannot be read: {e}")),
    };
    match Key::own() {
        Ok(key)
            if signature
                .strip_suffix('\n')
                .is_some_and(|s| key.signed(identity, s)) =>
        {
            None
        }
        Ok(_) => Some("this user's key did not sign it".into()),
        Err(e) => Some(format!("its signature cannot be compared: {e}")),
    }
}

/// Whether an artifact may be written to a path: asked before any work. Nothing may be there, or an artifact and nothing else.
///
/// # Errors
/// When something else is there.
pub fn may_replace(path: &Path) -> Result<(), ArtifactError> {
    let other = |why: String| ArtifactError::Occupied {
        path: path.shown(),
        why,
    };
    output::check_place(path)?;
    if let Some(artifact) = owned::artifact_around(path) {
        let (path, artifact) = (path.shown(), artifact.shown());
        return Err(ArtifactError::Within { path, artifact });
    }
    if !files::is_taken(path) {
        return Ok(());
    }
    if !path.is_dir() {
        return Err(other("it is not a folder".into()));
    }
    let Listing { objects, .. } = owned::listing(path).map_err(other)?;
    let own = |name: &str| OWN_FILES.contains(&name) || objects.iter().any(|o| o.file == name);
    let entries = std::fs::read_dir(path).map_err(|e| other(e.to_string()))?;
    let mut names: Vec<String> = (entries.flatten())
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    match names.iter().find(|name| !own(name)) {
        Some(name) => Err(other(format!("it also holds {name}"))),
        None => Ok(()),
    }
}

/// The same, of an artifact that is built for whoever asks, not for a run by itself.
///
/// # Errors
/// As [`may_replace`], and when the place is that of a run in which a process trains.
pub fn may_build(path: &Path) -> Result<(), ArtifactError> {
    if let Some(run) = owned::run_of_model(path)
        && owned::is_locked(&run)
    {
        let (path, run) = (path.shown(), run.shown());
        return Err(ArtifactError::Busy { path, run });
    }
    may_replace(path)
}

/// Object code for [`Artifact::write`].
#[derive(Clone, Debug)]
pub struct ObjectCode {
    /// File name inside the artifact.
    pub file: String,
    /// A target's name, such as `cpu:avx512`.
    pub target: String,
    pub bytes: Vec<u8>,
}

/// A file name may not lead out of the artifact.
fn inside(path: &Path, file: &str) -> Result<(), ArtifactError> {
    let plain = !file.is_empty() && !file.starts_with('.') && !file.contains(['/', '\\', '\0']);
    let taken = [MANIFEST_FILE, HASH_FILE, SIGNATURE_FILE].contains(&file);
    if plain && !taken {
        Ok(())
    } else {
        Err(ArtifactError::Outside {
            path: path.shown(),
            file: file.into(),
        })
    }
}

/// A manifest as it is written.
fn text(manifest: &Manifest) -> Vec<u8> {
    serde_json::to_vec_pretty(manifest).expect("keys of a manifest are texts")
}

/// Reads a file that belongs to an artifact.
fn read(path: &Path, file: &str, most: u64) -> Result<Vec<u8>, ArtifactError> {
    input::read(&path.join(file), most).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ArtifactError::FileMissing {
            path: path.shown(),
            file: file.into(),
        },
        _ => ArtifactError::Read {
            path: path.join(file).shown(),
            source,
        },
    })
}

/// The contents of an object, when its hash is what the manifest says.
fn verified(path: &Path, o: &Object) -> Result<Vec<u8>, ArtifactError> {
    inside(path, &o.file)?;
    let bytes = read(path, &o.file, most::CODE)?;
    let found = sha256(&bytes);
    if found == o.sha256 {
        return Ok(bytes);
    }
    Err(ArtifactError::Hash {
        path: path.shown(),
        file: o.file.clone(),
        found,
        expected: o.sha256.clone(),
    })
}

/// What [`HASH_FILE`] holds: a line as `sha256sum -c` reads it.
fn hash_line(identity: &str) -> String {
    format!("{identity}  {MANIFEST_FILE}\n")
}
