//! The documentation is what odec does: commands run, tables of keys are complete.

#![cfg(all(feature = "mlir", unix))]

mod place;

use place::{Place, TINY, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn doc(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs")
        .join(name);
    std::fs::read_to_string(path).expect(name)
}

#[test]
fn the_commands_of_training_md_run() {
    let place = Place::new();
    place.write("model.ode", TINY);
    let tokens = TINY.replace(
        "text(\"corpus.txt\", tokenizer: bytes)",
        "tokens(\"train.bin\")",
    );
    place.write("tokens.ode", &tokens.replace("vocab: 256", "vocab: 320"));
    place.write("a.txt", &place.read("corpus.txt"));
    place.write("b.jsonl", "{\"text\": \"one more\"}\n");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tokenizer = root.join("runtime/tests/tokenizer.json");
    std::fs::copy(tokenizer, place.path().join("tokenizer.json")).expect("copied");
    place.write(
        "names.json",
        "{\"step.*.att.*.weight\": \"layers.*.attention.*.weight\"}",
    );

    let bin = Path::new(env!("CARGO_BIN_EXE_odec"))
        .parent()
        .expect("a folder");
    let mut path = vec![bin.to_path_buf()];
    path.extend(std::env::split_paths(
        &std::env::var_os("PATH").expect("PATH"),
    ));
    let path = std::env::join_paths(path).expect("a path");
    let mut count = 0;
    for line in doc("training.md")
        .lines()
        .filter_map(|l| l.strip_prefix("    odec "))
    {
        let line = format!("odec {line}");
        if line.contains("theirs.safetensors") {
            theirs(&place);
        }
        let mut c = place.through(Command::new("sh"), &["-c", &line]);
        let out = c.env("PATH", &path).output().expect("sh starts");
        assert!(out.status.success(), "{line}\n{}", text(&out.stderr));
        count += 1;
    }
    assert_eq!(count, 21, "commands in docs/training.md");
}

/// The exported parameters under the names of somebody else.
fn theirs(place: &Place) {
    let bytes = std::fs::read(place.path().join("params.safetensors")).expect("exported");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let name = |name: &str| match name.contains(".att.") && name.ends_with(".weight") {
        true => name
            .replace("step.", "layers.")
            .replace(".att.", ".attention."),
        false => name.to_string(),
    };
    let renamed = file.iter().map(|(n, t)| (name(n), t));
    let to = place.path().join("theirs.safetensors");
    safetensors::serialize_to_file(renamed, None, &to).expect("written");
}

/// Where the leaves of a value are: `[].model.steps`.
fn keys(v: &Value, at: &str, into: &mut BTreeSet<String>) {
    match v {
        Value::Object(fields) => {
            for (key, v) in fields {
                let at = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                keys(v, &at, into);
            }
        }
        Value::Array(list) => list.iter().for_each(|v| keys(v, &format!("{at}[]"), into)),
        _ => drop(into.insert(at.into())),
    }
}

#[test]
fn json_md_names_all_keys_and_no_others() {
    let place = Place::new();
    let doc = doc("json.md");
    // Every table is a list of keys; sections may have several.
    let mut tables: Vec<(String, BTreeSet<String>)> = Vec::new();
    let mut section = "";
    for line in doc.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title;
        } else if line.starts_with("| key |") {
            tables.push((section.into(), BTreeSet::new()));
        } else if let Some(row) = line.strip_prefix("| `") {
            let key = row.split('`').next().expect("a key");
            let new = tables.last_mut().expect("a table").1.insert(key.into());
            assert!(new, "{key} twice");
        }
    }
    place.good(&["train", "tiny.ode", "--out", "run"]);
    let mut compare = |section: &str, value: &str| {
        let at = tables.iter().position(|(title, _)| title.contains(section));
        let (title, documented) = tables.remove(at.expect(section));
        let value: Value = serde_json::from_str(value).expect("JSON");
        let mut found = BTreeSet::new();
        keys(&value, "", &mut found);
        assert_eq!(documented, found, "{title}");
    };
    compare("odec check", &place.good(&["check", "tiny.ode", "--json"]));
    compare(
        "--paths",
        &place.good(&["check", "tiny.ode", "--paths", "--json"]),
    );
    compare("odec build", &place.good(&["build", "tiny.ode", "--json"]));
    compare(
        "odec train",
        &place.good(&["train", "tiny.odex", "--out", "two", "--json"]),
    );
    compare("odec eval", &place.good(&["eval", "run", "--json"]));
    let both = place.good(&["eval", "run", "--weights", "int8", "--json"]);
    let both: Value = serde_json::from_str(&both).expect("JSON");
    compare("odec eval RUN --weights", &both["quantized"].to_string());
    place.write(
        "points.ode",
        "field f = linear\nmodel points {\n  input vectors(width: 2, context: 3)\n  embed id\n  \
         evolve euler(f) for 2 steps { h = 1/2;  weights shared }\n  output state\n}\n",
    );
    compare(
        "odec simulate",
        &place.good(&["simulate", "points.ode", "--json"]),
    );
    compare(
        "odec profile",
        &place.good(&["profile", "tiny.odex", "--steps", "2", "--json"]),
    );
    compare("odec methods", &place.good(&["methods", "euler", "--json"]));
    compare(
        "odec schemes",
        &place.good(&["schemes", "stabilized", "multistep", "--json"]),
    );
    let set = ["--set", "train.steps=20", "--data", "other.txt"];
    place.write("other.txt", &place.read("corpus.txt").repeat(2));
    place.good(&[&["train", "tiny.ode", "--out", "three"][..], &set].concat());
    std::fs::create_dir(place.path().join("notes")).expect("a folder");
    compare("odec runs", &place.good(&["runs", ".", "--json"]));
    place.write("wide.ode", &TINY.replace("width: 16", "width: 24"));
    place.good(&[&["train", "wide.ode", "--out", "four"][..], &set].concat());
    compare("odec diff", &place.good(&["diff", "run", "four", "--json"]));
    let block = "\nexplore {\n  scheme in [lie(att, ffn), heun(layer)]\n  seed   in 0..2\n  match  flops by train.steps within 10%\n}\n";
    place.write("e.ode", &(TINY.replace("steps 30", "steps 6") + block));
    let plan = place.good(&["explore", "e.ode", "--plan", "--json"]);
    compare("odec explore FILE --plan", &plan);
    place.good(&["explore", "e.ode", "--out", "x"]);
    compare("ranking.json", &place.read("x/ranking.json"));
    compare("executed.json", &place.read("x/executed.json"));
    let results = std::fs::read_dir(place.path().join("x/results")).expect("results");
    let result = results.map(|e| e.expect("a file").file_name()).next();
    let result = result.expect("a result").to_string_lossy().into_owned();
    compare(
        "results/HASH.json",
        &place.read(&format!("x/results/{result}")),
    );
    let metrics = place.read("run/metrics.jsonl");
    let evaluation = metrics.lines().find(|l| l.contains("held_out"));
    compare("metrics.jsonl", metrics.lines().next().expect("a step"));
    compare("metrics.jsonl", evaluation.expect("an evaluation"));
    let words = [
        "generate", "run", "--prompt", "the", "--tokens", "2", "--json",
    ];
    compare("odec generate RUN --prompt", &place.good(&words));
    let words = [
        "bench",
        "tiny.odex",
        "--tokens",
        "2",
        "--batch",
        "2",
        "--json",
    ];
    compare("odec bench", &place.good(&words));
    // What draws images needs a run on images: `tests/flows.rs` compares its keys.
    tables.retain(|(title, _)| !title.contains("odec generate"));
    assert!(tables.is_empty(), "nothing prints {tables:?}");
}

#[test]
fn completions_are_for_all_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.good(&["completions", shell]);
        for word in ["tokenize", "export", "checkpoint-every"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    // Output that is no terminal has no colours, whatever the environment says.
    place.write("wrong.ode", "field a = nothing");
    for no_color in ["", "1"] {
        let mut c = place.command(&["check", "wrong.ode"]);
        let out = c
            .env("NO_COLOR", no_color)
            .env("TERM", "xterm")
            .output()
            .expect("odec starts");
        assert!(
            text(&out.stderr).contains("unknown-name"),
            "{}",
            text(&out.stderr)
        );
        assert!(!out.stderr.contains(&0x1b) && !out.stdout.contains(&0x1b));
    }
}

/// What docs/study.md says was compared: 27 trials in each file, of equal parameters, and of equal FLOPs where that is asked for; and what
/// docs/guide/translation.md and docs/guide/images.md say.
#[test]
fn the_study_can_be_planned() {
    let place = Place::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/study");
    for (name, models, runs, equal) in [
        ("equal_flops", 9, 27, true),
        ("equal_steps", 9, 27, false),
        ("rates", 27, 27, true),
        ("translators", 3, 3, true),
        ("vit", 4, 4, true),
    ] {
        let file = folder.join(format!("{name}.ode"));
        let plan = place.good(&["explore", &file.to_string_lossy(), "--plan", "--json"]);
        let plan: Value = serde_json::from_str(&plan).expect("JSON");
        let [trials, found] = ["trials", "models"].map(|k| plan[k].as_array().expect("a list"));
        assert_eq!((trials.len(), found.len()), (runs, models), "{name}");
        let most = |key: &str| {
            let all = found.iter().map(|m| m[key].as_f64().expect("a number"));
            let (low, high) = all.fold((f64::INFINITY, 0.0), |(a, b), x| (x.min(a), x.max(b)));
            high / low - 1.0
        };
        assert!(most("parameters") < 0.002, "{name}");
        assert_eq!(most("training_flops") < 0.01, equal, "{name}");
    }
}
