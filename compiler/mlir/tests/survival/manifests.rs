//! Damaged manifests. What is not refused runs, on the reference device, which looks at every place it reads and writes.

use crate::models;
use crate::mutate::{self, Stream};
use crate::worker::Verdict;
use odec_program::manifest::{Manifest, named};
use odec_program::{Bindings, DType, KernelSpec, Target};
use odec_runtime::artifact::check::{io_bytes, memory_bytes};

use odec_runtime::{
    Artifact, ArtifactError, DeviceChoice, Executor, Sampling, Settings, Show, Tokenizer, Value,
    generate, train,
};
use serde_json::Value as Json;
use std::path::Path;
use std::sync::OnceLock;

/// More than any of the tiny models plans; what plans more is right to, and takes time.
const LARGE: u64 = 64 << 20;

fn good() -> &'static [Json] {
    static GOOD: OnceLock<Vec<Json>> = OnceLock::new();
    GOOD.get_or_init(|| {
        models::corpus();
        let all = models::all(Target::Avx2);
        all.iter()
            .map(|m| serde_json::to_value(m).unwrap())
            .collect()
    })
}

/// Numbers that were seen to divide by zero or to fill the memory, beside the random ones.
const KNOWN: &[(&str, u64)] = &[
    ("/train/accumulate", 0),
    ("/train/accumulate", 3),
    ("/train/batch", 0),
    ("/train/batch", 1 << 60),
    ("/train/steps", u64::MAX),
    ("/train/data/held_out_percent", 200),
    ("/model/vocab", 0),
    ("/model/vocab", 1 << 62),
    ("/model/context", 0),
    ("/program/maxima/batch", u64::MAX),
    ("/program/maxima/seq", 1 << 45),
    ("/program/param_bytes", u64::MAX),
    ("/program/cache_bytes", 1 << 45),
    ("/params/0/shape/0", u64::MAX),
    ("/constants/0/table/rotary_cos/head", 0),
    ("/constants/0/table/rotary_cos/positions", 1 << 33),
    ("/program/entries/grad/scratch_bytes", 0),
    ("/program/entries/loss/maxima/seq", 0),
    ("epilogue operands", i32::MAX as u64),
    ("epilogue operands", u32::MAX as u64),
];

pub fn run(case: u64) -> Verdict {
    let good = good();
    let mut json = good[case as usize % good.len()].clone();
    let s = &mut Stream::new("manifests", case);
    match KNOWN.get(case as usize) {
        Some((path, number)) => known(&mut json, path, *number),
        None => (0..=s.below(3)).for_each(|_| mutate::value(&mut json, s)),
    }
    // As a careful hand would, most of the time: kernels are called by what they are.
    let consistent = s.below(4) > 0;
    let text = serde_json::to_vec(&json).unwrap();
    let mut manifest: Manifest = match serde_json::from_slice(&text) {
        Ok(manifest) => manifest,
        Err(e) => return Verdict::refused(&e, format!("line {}", e.line())),
    };
    if consistent {
        for k in &mut manifest.program.kernels {
            k.symbol = k.spec.symbol();
        }
    }
    let artifact = match Artifact::in_memory(manifest) {
        Ok(artifact) => artifact,
        Err(e @ ArtifactError::Invalid { .. }) => {
            let ArtifactError::Invalid { source, .. } = &e else {
                unreachable!()
            };
            return Verdict::refused(&e, source.place.clone());
        }
        Err(e) => return Verdict::refused(&e, ""),
    };
    if memory_bytes(artifact.manifest()) > LARGE {
        return Verdict::Ran;
    }
    match execute(&artifact, s) {
        Ok(()) => Verdict::Ran,
        // Which entry, input or file it was about is said in words of many kinds.
        Err(said) => Verdict::refused(&said, &said),
    }
}

fn known(json: &mut Json, path: &str, number: u64) {
    if let Some(place) = json.pointer_mut(path) {
        *place = number.into();
        return;
    }
    let kernels = json.pointer_mut("/program/kernels").unwrap();
    for k in kernels.as_array_mut().unwrap() {
        if let Some(place) = k.pointer_mut("/spec/epilogue/operands") {
            *place = number.into();
            return;
        }
    }
}

/// Every entry once, as large as it was planned; a few tokens of text; now and then two steps of training.
fn execute(artifact: &Artifact, s: &mut Stream) -> Result<(), String> {
    let device = || artifact.device(DeviceChoice::Reference, None);
    let device = device().map_err(|e| e.to_string())?;
    let mut x = Executor::new(artifact, device).map_err(|e| e.to_string())?;
    x.set_poison(true);
    x.initialise(0);
    let scalars = [
        named::LR,
        named::BIAS1,
        named::BIAS2,
        named::KEEP,
        named::SHARE,
    ];
    let scalars = scalars.map(|name| (name, 1.0));
    let mut said = Ok(());
    for (name, e) in &artifact.manifest().program.entries {
        let whole = e.maxima;
        let (batch, seq) = (whole.batch.min(2), whole.seq.min(5));
        for at in [
            Bindings::new(batch, seq),
            Bindings::new(1, 1).after(whole.seq - 1),
        ] {
            let inputs: Vec<Vec<i32>> = (e.inputs.iter())
                .map(|io| vec![0; (io_bytes(io, at).unwrap_or(0) / io.dtype.bytes()) as usize])
                .collect();
            let reals: Vec<Vec<f32>> = inputs.iter().map(|i| vec![0.0; i.len()]).collect();
            let values = e.inputs.iter().zip(inputs.iter().zip(&reals));
            let values = values.map(|(io, (whole, reals))| {
                let value = match io.dtype {
                    DType::I32 => Value::I32(whole),
                    _ => Value::F32(reals),
                };
                (io.name.as_str(), value)
            });
            let values: Vec<_> = values.collect();
            let ran = x.run(name, at, &values, &scalars).map(drop);
            said = said.and(ran.map_err(|e| e.to_string()));
        }
    }
    let sampling = Sampling {
        tokens: 20,
        ..Sampling::default()
    };
    // What was refused above is refused here.
    let _ = generate(&mut x, &Tokenizer::bytes(), "the", &sampling, &mut |_| {
        Ok(())
    });
    if s.below(8) == 0 {
        let settings = Settings {
            steps: Some(2),
            evaluations: 1,
            held_out_windows: 1,
            device: DeviceChoice::Reference,
            show: Show::Nothing,
            ..Settings::default()
        };
        let out = Path::new("runs/one");
        let _ = std::fs::remove_dir_all(out);
        let trained = train(artifact, out, &settings).map(drop);
        said = said.and(trained.map_err(|e| e.to_string()));
    }
    said
}

/// All kernels of the good manifests for a target.
pub fn kernels(target: Target) -> Vec<KernelSpec> {
    let mut all = models::all(target);
    all.push(models::of_images(target));
    let kernels = all.iter().flat_map(|m| &m.program.kernels);
    kernels.map(|k| k.spec.clone()).collect()
}
