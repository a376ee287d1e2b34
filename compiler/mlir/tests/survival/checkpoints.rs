//! Crafted checkpoints: headers and contents of safetensors files that promise what they do not hold, with the right hash or without.

use crate::models;
use crate::mutate::{self, Stream};
use crate::worker::Verdict;
use odec_program::Target;
use odec_runtime::parameters::checkpoint::{Checkpoint, Weights};
use odec_runtime::parameters::import::Init;
use odec_runtime::system::hash::sha256;
use odec_runtime::{Artifact, DeviceChoice, Executor, Settings, Show, resume, train};
use serde_json::Value as Json;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

const RUN: &str = "runs/good";
const CASE: &str = "runs/case";
const FILE: &str = "checkpoint.safetensors";

struct Good {
    artifact: Artifact,
    header: Json,
    data: Vec<u8>,
}

fn settings() -> Settings {
    Settings {
        steps: Some(2),
        evaluations: 1,
        held_out_windows: 1,
        device: DeviceChoice::Reference,
        show: Show::Nothing,
        ..Settings::default()
    }
}

fn good() -> &'static Good {
    static GOOD: OnceLock<Good> = OnceLock::new();
    GOOD.get_or_init(|| {
        models::corpus();
        let manifest = models::all(Target::Avx2).remove(0);
        let artifact = Artifact::in_memory(manifest).unwrap();
        train(&artifact, Path::new(RUN), &settings()).unwrap();
        let bytes = fs::read(Path::new(RUN).join(FILE)).unwrap();
        let (length, rest) = bytes.split_at(8);
        let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
        Good {
            artifact,
            header: serde_json::from_slice(&rest[..length]).unwrap(),
            data: rest[length..].into(),
        }
    })
}

/// The hash that a checkpoint has: its progress, then each tensor's line and bytes. `None` where the header has no such bytes.
fn hash(header: &Json, data: &[u8]) -> Option<String> {
    let mut all = header["__metadata__"]["odec.progress"]
        .as_str()?
        .as_bytes()
        .to_vec();
    for (name, t) in header.as_object()? {
        if name == "__metadata__" {
            continue;
        }
        let shape: Option<Vec<u64>> = t["shape"].as_array()?.iter().map(Json::as_u64).collect();
        let at = |n: usize| usize::try_from(t["data_offsets"][n].as_u64()?).ok();
        let line = format!("\n{name} {} {:?}\n", t["dtype"].as_str()?, shape?);
        all.extend(line.as_bytes());
        all.extend(data.get(at(0)?..at(1)?)?);
    }
    Some(sha256(&all))
}

fn crafted(case: u64, good: &Good, s: &mut Stream) -> Vec<u8> {
    let (mut header, mut data) = (good.header.clone(), good.data.clone());
    let place = "/__metadata__/odec.progress";
    match case % 4 {
        0 => (0..=s.below(3)).for_each(|_| mutate::value(&mut header, s)),
        // Where the run stands is JSON in a text.
        1 => {
            let text = header.pointer_mut(place).unwrap();
            let mut progress = serde_json::from_str(text.as_str().unwrap()).unwrap();
            (0..=s.below(2)).for_each(|_| mutate::value(&mut progress, s));
            *text = progress.to_string().into();
        }
        2 => mutate::bytes(&mut data, s),
        _ => {}
    }
    if s.below(3) > 0
        && let Some(hash) = hash(&header, &data)
        && let Some(said) = header.pointer_mut("/__metadata__/odec.sha256")
    {
        *said = hash.into();
    }
    let text = header.to_string().into_bytes();
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text);
    bytes.extend(data);
    if case % 4 == 3 {
        match s.below(3) {
            0 => bytes.truncate(s.below(400)),
            1 => {
                let lengths = [
                    0,
                    1,
                    1 << 20,
                    100_000_001,
                    1 << 40,
                    u64::MAX,
                    i64::MAX as u64,
                ];
                bytes[..8].copy_from_slice(&s.pick(&lengths).to_le_bytes());
            }
            _ => mutate::bytes(&mut bytes, s),
        }
    }
    bytes
}

/// What reads such files: parameters to start from, those of a run, and a run that goes on.
pub fn run(case: u64) -> Verdict {
    let good = good();
    let s = &mut Stream::new("checkpoints", case);
    let folder = Path::new(CASE);
    let _ = fs::remove_dir_all(folder);
    copy(Path::new(RUN), folder);
    let file = folder.join(FILE);
    fs::write(&file, crafted(case, good, s)).unwrap();
    let device = good.artifact.device(DeviceChoice::Reference, None).unwrap();
    let mut x = Executor::new(&good.artifact, device).unwrap();
    let init = Init::open(&file, None).unwrap();
    let imported = init.import(&mut x).map(drop).map_err(|e| e.to_string());
    let params = Checkpoint::open(&file).and_then(|c| c.params_into(&mut x, Weights::Averaged));
    let params = params.map_err(|e| e.to_string());
    let longer = Settings {
        steps: Some(3),
        ..settings()
    };
    let resumed = resume(folder, &longer).map(drop).map_err(|e| e.to_string());
    for said in [imported, params] {
        if let Err(said) = said
            && !said.contains(CASE)
        {
            return Verdict::refused(said, "");
        }
    }
    match resumed {
        Ok(()) => Verdict::Ran,
        Err(said) => Verdict::refused(&said, &said),
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => _ = fs::copy(entry.path(), to).unwrap(),
        }
    }
}
