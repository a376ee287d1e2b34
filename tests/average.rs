//! Checkpoints that a run keeps, and runs whose parameters are the mean of several.

#![cfg(feature = "mlir")]

mod place;

use place::Place;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

const KEEP: &str = "train.keep=checkpoints(last: 3, every: 2)";

/// Parameters of a file, by their names.
fn params(place: &Place, file: &str) -> BTreeMap<String, Vec<f32>> {
    let bytes = fs::read(place.path().join(file)).expect(file);
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect(file);
    let numbers = |t: &[u8]| {
        t.as_chunks()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b))
            .collect()
    };
    let all = tensors.tensors().into_iter();
    let own = all.filter(|(name, _)| !name.starts_with("moment"));
    own.map(|(name, t)| (name, numbers(t.data()))).collect()
}

fn mean(place: &Place, files: &[&str]) -> BTreeMap<String, Vec<f32>> {
    let all: Vec<_> = files.iter().map(|f| params(place, f)).collect();
    let mean = |name: &String, i: usize| {
        let sum: f64 = all.iter().map(|p| f64::from(p[name][i])).sum();
        (sum / files.len() as f64) as f32
    };
    let of = |(name, x): (&String, &Vec<f32>)| {
        let each = (0..x.len()).map(|i| mean(name, i));
        (name.clone(), each.collect())
    };
    all[0].iter().map(of).collect()
}

fn kept(place: &Place, run: &str) -> Vec<String> {
    let files = fs::read_dir(place.path().join(run).join("kept")).expect("kept");
    let mut names: Vec<String> = files
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A run of eleven steps that keeps those of steps 6, 8 and 10.
fn trained() -> Place {
    let place = Place::new();
    let train = ["train", "tiny.ode", "--set", KEEP, "--steps", "11", "--out"];
    place.good(&[&train[..], &["run"]].concat());
    place
}

#[test]
fn a_run_keeps_what_it_is_told_to_and_its_mean_is_a_run() {
    let place = trained();
    let files = ["10.safetensors", "6.safetensors", "8.safetensors"];
    assert_eq!(kept(&place, "run"), files);
    // One that was stopped and goes on keeps the same.
    let two = [
        "train", "tiny.ode", "--set", KEEP, "--steps", "7", "--out", "two",
    ];
    place.good(&two);
    assert_eq!(
        kept(&place, "two"),
        ["2.safetensors", "4.safetensors", "6.safetensors"]
    );
    place.good(&["train", "--resume", "two", "--steps", "11"]);
    assert_eq!(kept(&place, "two"), files);
    for file in files {
        let of = |run: &str| params(&place, &format!("{run}/kept/{file}"));
        assert!(of("run") == of("two"), "{file}");
    }

    let said = place.good(&["average", "run", "--out", "all"]);
    // It has no metrics, as nothing was trained.
    let listed = place.good(&["runs", "all"]);
    assert!(listed.contains("all"), "{listed}");
    let compared = place.good(&["diff", "all", "run"]);
    assert!(compared.contains("all"), "{compared}");
    assert!(said.contains("the mean of 3 checkpoints"), "{said}");
    let paths = files.map(|f| format!("run/kept/{f}"));
    let paths = [1, 2, 0].map(|i| paths[i].as_str());
    assert!(params(&place, "all/checkpoint.safetensors") == mean(&place, &paths));
    place.good(&["average", "run", "--last", "2", "--out", "some"]);
    assert!(params(&place, "some/checkpoint.safetensors") == mean(&place, &paths[1..]));
    // It is evaluated, asked and started from like any run.
    let loss = |run: &str| -> f64 {
        let said = place.good(&["eval", run, "--json"]);
        let said: Value = serde_json::from_str(&said).unwrap();
        said["loss"].as_f64().unwrap()
    };
    assert!((loss("all") - loss("run")).abs() < 0.5);
    place.good(&["generate", "all", "--prompt", "the", "--tokens", "4"]);
    place.good(&["export", "all", "-o", "all.safetensors"]);
    let start = [
        "train", "tiny.ode", "--init", "all", "--steps", "2", "--out", "more",
    ];
    place.good(&start);
    let kept = ["export", "all", "-o", "run/kept/6.safetensors"];
    let (code, said) = place.bad(&kept);
    assert!(
        code == 1 && said.contains("is a file of the run in"),
        "{said}"
    );
    // Steps that the run has not come to are not taken, nor files of others.
    let other = place.path().join("two/kept");
    fs::copy(other.join("6.safetensors"), other.join("999.safetensors")).unwrap();
    fs::copy(other.join("6.safetensors"), other.join("+6.safetensors")).unwrap();
    place.good(&["average", "two", "--last", "3", "--out", "again"]);
    assert!(
        params(&place, "again/checkpoint.safetensors")
            == params(&place, "all/checkpoint.safetensors")
    );
}

#[test]
fn the_mean_of_several_runs_is_that_of_their_last_checkpoints() {
    let place = Place::new();
    let run = |out: &str, seed: &str, more: &[&str]| {
        let seed = format!("train.seed={seed}");
        let args = [
            "train", "tiny.ode", "--steps", "3", "--set", &seed, "--out", out,
        ];
        place.good(&[&args[..], more].concat());
    };
    run("a", "1", &[]);
    run("b", "2", &["--set", "train.lr=2e-3"]);
    place.good(&["average", "a", "b", "--out", "soup"]);
    let files = ["a/checkpoint.safetensors", "b/checkpoint.safetensors"];
    assert!(params(&place, "soup/checkpoint.safetensors") == mean(&place, &files));
    place.good(&["eval", "soup"]);

    let refused = |args: &[&str], part: &str| {
        let (code, said) = place.bad(&[&["average"], args, &["--out", "none"]].concat());
        assert!(code == 1 && said.contains(part), "{args:?}: {said}");
        assert!(!place.path().join("none").exists());
    };
    run("wide", "1", &["--set", "ffn.hidden=32"]);
    refused(
        &["a", "wide"],
        "a and wide are runs of different models: the second has no step.0.ffn.",
    );
    let heads = ["--set", "att.heads=1"];
    run("other", "1", &heads);
    refused(
        &["a", "other"],
        "they have the same parameters and compute other things",
    );
    refused(&["a", "b", "--last", "2"], "several runs");
    refused(&["a", "corpus.txt"], "corpus.txt is not a run");
}

#[test]
fn what_has_no_mean_is_said() {
    let place = trained();
    let refused = |args: &[&str], part: &str| {
        let (code, said) = place.bad(&[&["average"], args].concat());
        assert!(code == 1 && said.contains(part), "{args:?}: {said}");
    };
    place.good(&["train", "tiny.ode", "--steps", "2", "--out", "plain"]);
    let none =
        "plain has kept no checkpoints up to step 2; write `keep checkpoints(last: 5, every: 500)`";
    refused(&["plain", "--out", "mean"], none);
    refused(
        &["run", "--last", "4", "--out", "mean"],
        "run has kept 3 checkpoints up to step 11, and 4 are asked for",
    );
    refused(&["nowhere", "--out", "mean"], "nowhere is not a run");
    refused(&["run", "--out", "plain"], "plain holds a run already");
    // The mean has no state of the optimiser.
    place.good(&["average", "run", "--out", "good"]);
    let (code, said) = place.bad(&["train", "--resume", "good"]);
    let cannot = "holds parameters but no optimiser state, so a run cannot be resumed from it";
    assert!(code == 1 && said.contains(cannot), "{said}");
    // One number of a kept file is another one.
    let file = place.path().join("run/kept/8.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    fs::write(&file, &bytes).unwrap();
    refused(
        &["run", "--out", "mean"],
        "8.safetensors is damaged (SHA-256",
    );
    fs::write(&file, "nothing").unwrap();
    refused(
        &["run", "--out", "mean"],
        "8.safetensors is not a safetensors file",
    );
    fs::copy(place.path().join("plain/checkpoint.safetensors"), &file).unwrap();
    refused(
        &["run", "--out", "mean"],
        "8.safetensors belongs to another model",
    );
    assert!(!place.path().join("mean").exists());
}
