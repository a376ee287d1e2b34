//! Recognises files and folders that odec made, by their contents: runs and artifacts. Names alone prove nothing.

use super::files;
use super::os;
use odec_program::manifest::{MANIFEST_FILE, Object};
use safetensors::SafeTensors;
use serde::Deserialize;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};

/// File names in a run's folder.
pub const MODEL: &str = "model.odex";
pub const CHECKPOINT: &str = "checkpoint.safetensors";
pub const METRICS: &str = "metrics.jsonl";
pub const CHART: &str = "loss.svg";
pub const TOKENIZER: &str = "tokenizer.json";
/// A folder of parameters of earlier steps.
pub const KEPT: &str = "kept";
/// Locked by the process that trains.
pub const LOCK: &str = ".lock";

/// All that a run writes into its folder.
pub const FILES: [&str; 7] = [CHECKPOINT, MODEL, METRICS, CHART, TOKENIZER, KEPT, LOCK];

/// File names in the folder of an exploration.
pub mod exploration {
    pub const PLAN: &str = "exploration.json";
    /// The evidence.
    pub const RANKING: &str = "ranking.json";
    /// What trials took.
    pub const EXECUTED: &str = "executed.json";
    /// The picture of the ranking.
    pub const PICTURE: &str = "ranking.svg";
    pub const PROMOTIONS: &str = "promotions.json";
    pub const TIME: &str = "time.json";
    pub const STEP_TIMES: &str = "step_times.json";
    /// All of them.
    pub const FILES: [&str; 7] = [
        PLAN, RANKING, EXECUTED, PICTURE, PROMOTIONS, TIME, STEP_TIMES,
    ];
    /// The folders of what came out of trials, in which nothing else stands.
    pub const RESULTS: &str = "results";
    pub const RUNGS: &str = "rungs";
}

/// What [`LOCK`] holds.
pub(crate) const MARK: &[u8] = b"odec run 1\n";

/// The key of a checkpoint's metadata that says where the run stands.
pub(crate) const PROGRESS: &str = "odec.progress";

/// Whether a folder is that of a run, with a checkpoint or begun by odec.
pub fn is_run(folder: &Path) -> bool {
    is_marked(folder) || is_checkpoint(&folder.join(CHECKPOINT))
}

/// Whether a folder has the files of a run, and this user may not read what would tell whether it is one.
pub fn is_unreadable(folder: &Path) -> bool {
    let read = File::open(folder.join(CHECKPOINT));
    folder.join(MODEL).is_dir() && read.is_err_and(|e| files::is_denied(&e))
}

/// Whether a folder was begun by odec as that of a run.
pub(crate) fn is_marked(folder: &Path) -> bool {
    open_lock(&folder.join(LOCK)).is_some_and(|mut file| contents(&mut file) == MARK)
}

/// A lock that odec made; earlier versions left it empty.
pub(crate) fn open_lock(path: &Path) -> Option<File> {
    let mut file = files::open_own(path).ok()?;
    let said = contents(&mut file);
    (said.is_empty() || said == MARK).then_some(file)
}

fn contents(file: &mut File) -> Vec<u8> {
    use std::io::Seek;
    let mut said = Vec::new();
    let read = file
        .rewind()
        .and_then(|()| file.take(MARK.len() as u64 + 1).read_to_end(&mut said));
    // What cannot be read is nobody's.
    match read {
        Ok(_) => said,
        Err(_) => b"?".to_vec(),
    }
}

/// Whether a file is the checkpoint of a run.
fn is_checkpoint(path: &Path) -> bool {
    progress(path).is_some()
}

/// What a checkpoint says of its run.
fn progress(path: &Path) -> Option<String> {
    let map = os::map_file(path).ok()?;
    let (_, header) = SafeTensors::read_metadata(&map).ok()?;
    header.metadata().as_ref()?.get(PROGRESS).cloned()
}

/// The run whose copy of its artifact a path is, links followed.
pub fn run_of_model(path: &Path) -> Option<PathBuf> {
    let real = path.canonicalize().unwrap_or_else(|_| path.into());
    let run = files::parent(&real);
    let is = real.file_name().is_some_and(|name| name == MODEL) && is_run(run);
    is.then(|| run.to_path_buf())
}

/// Whether a run has a checkpoint, and this artifact is not the one that it is of.
pub fn is_of_another(run: &Path, identity: &str) -> bool {
    #[derive(Deserialize)]
    struct Of {
        model: String,
    }
    let checkpoint = run.join(CHECKPOINT);
    let of = progress(&checkpoint).and_then(|said| serde_json::from_str::<Of>(&said).ok());
    files::is_taken(&checkpoint) && of.is_none_or(|of| of.model != identity)
}

/// Whether a process trains in the folder of a run.
pub fn is_locked(run: &Path) -> bool {
    let lock = open_lock(&run.join(LOCK));
    lock.is_some_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// The exploration that a file belongs to.
pub fn exploration_of(place: &Path) -> Option<&Path> {
    use exploration::{FILES, PLAN, RESULTS, RUNGS};
    let folder = files::parent(place);
    let is_named =
        |path: &Path, names: &[&str]| names.iter().any(|n| path.file_name() == Some(n.as_ref()));
    let own = if is_named(folder, &[RESULTS, RUNGS]) {
        files::parent(folder)
    } else if is_named(place, &FILES) {
        folder
    } else {
        return None;
    };
    own.join(PLAN).is_file().then_some(own)
}

/// What every version's manifest has, enough to know the artifact's files by.
#[derive(Deserialize)]
pub(crate) struct Listing {
    #[serde(rename = "format")]
    _format: u32,
    #[serde(rename = "odec")]
    _odec: String,
    pub(crate) objects: Vec<Object>,
}

/// The files of an artifact, or why a folder is none.
pub(crate) fn listing(folder: &Path) -> Result<Listing, String> {
    let manifest = folder.join(MANIFEST_FILE);
    if !manifest.is_file() {
        return Err(format!("it has no {MANIFEST_FILE}"));
    }
    let text = std::fs::read(&manifest).map_err(|e| format!("{MANIFEST_FILE}: {e}"))?;
    serde_json::from_slice(&text).map_err(|_| format!("it has another {MANIFEST_FILE}"))
}

/// Whether a folder is an artifact, be it damaged or of another version.
pub fn is_artifact(folder: &Path) -> bool {
    listing(folder).is_ok()
}

/// The artifact that a place lies in, which need not be there yet, links followed.
pub fn artifact_around(place: &Path) -> Option<PathBuf> {
    around(place, is_artifact)
}

/// The exploration that a place lies in, likewise.
pub fn exploration_around(place: &Path) -> Option<PathBuf> {
    around(place, |folder| folder.join(exploration::PLAN).is_file())
}

fn around(place: &Path, is: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let real = place.canonicalize().ok().or_else(|| {
        // Of what is not there the folders above it are looked at.
        let mut above = place.ancestors().skip(1);
        let above =
            above.find_map(|folder| files::parent(&folder.join("_")).canonicalize().ok())?;
        Some(above.join("_"))
    })?;
    let mut above = real.ancestors().skip(1);
    above.find(|folder| is(folder)).map(Path::to_path_buf)
}
