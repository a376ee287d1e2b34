//! Recognises files and folders that odec made, by their contents: runs and artifacts. Names alone prove nothing.

use super::files;
use super::os;
use odec_program::manifest::{MANIFEST_FILE, Object};
use safetensors::SafeTensors;
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::path::Path;

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

/// What [`LOCK`] holds.
pub(crate) const MARK: &[u8] = b"odec run 1\n";

/// The key of a checkpoint's metadata that says where the run stands.
pub(crate) const PROGRESS: &str = "odec.progress";

/// Whether a folder is that of a run, with a checkpoint or begun by odec.
pub fn is_run(folder: &Path) -> bool {
    is_marked(folder) || is_checkpoint(&folder.join(CHECKPOINT))
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
    let Ok(map) = os::map_file(path) else {
        return false;
    };
    let header = SafeTensors::read_metadata(&map);
    header.is_ok_and(|(_, header)| {
        let metadata = header.metadata().as_ref();
        metadata.is_some_and(|m| m.contains_key(PROGRESS))
    })
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
