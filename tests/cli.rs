//! The command line as a person uses it: every command on a tiny model, exit codes, and what errors look like.

use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Two steps of 16 columns: builds in a second and trains in less.
const TINY: &str = r#"
field att   = rmsnorm |> attention(heads: 2, causal, rope)
field ffn   = rmsnorm |> swiglu(hidden: 24)
field layer = increment(lie(att, ffn))

model tiny {
  input  tokens(vocab: 256, context: 16)
  embed  learned(width: 16)
  evolve iie(layer, r: 1) for 2 steps { h = 1;  weights per step }
  output rmsnorm |> logits(tied)
  init   normal(std: 0.1)
}

train {
  data      text("corpus.txt", tokenizer: bytes)
  loss      cross_entropy
  optimizer adamw(lr: 1e-2)
  batch 4;  steps 30;  clip 1.0;  seed 0
}
"#;

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = Place(folder);
        place.write("tiny.ode", TINY);
        let line = "the quick brown fox jumps over the lazy dog\n";
        place.write("corpus.txt", &line.repeat(200));
        place
    }
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).expect("written");
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).expect(name)
    }
    /// Runs odec here; object code is kept in a cache of this folder.
    fn odec(&self, args: &[&str]) -> Output {
        let mut c = Command::new(env!("CARGO_BIN_EXE_odec"));
        c.current_dir(self.path())
            .env("ODEC_CACHE", self.path().join("cache"));
        c.args(args).output().expect("odec starts")
    }
    /// Standard output of a run that must succeed.
    fn good(&self, args: &[&str]) -> String {
        let out = self.odec(args);
        let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
        assert!(
            out.status.success(),
            "odec {args:?} failed:\n{stdout}\n{stderr}"
        );
        stdout
    }
    /// Exit code and standard error of a run that must fail.
    fn bad(&self, args: &[&str]) -> (i32, String) {
        let out = self.odec(args);
        assert!(
            !out.status.success(),
            "odec {args:?} succeeded:\n{}",
            text(&out.stdout)
        );
        (out.status.code().expect("an exit code"), text(&out.stderr))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn check_says_what_is_claimed_and_what_the_model_costs() {
    let place = Place::new();
    insta::assert_snapshot!(place.good(&["check", "tiny.ode"]));
    let json = place.good(&["check", "tiny.ode", "--json", "--set", "model.r=3"]);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value[0]["model"]["evaluations_per_step"], 8);
    assert_eq!(value[0]["claims"][0]["status"], "claimed, not proved");
}

#[test]
fn every_stage_can_be_shown() {
    let place = Place::new();
    let begins = [
        ("ast", "(field att"),
        ("stages", "k2 = ffn(y1)"),
        ("graph", "%"),
        ("program", ""),
        ("mlir", "module"),
        ("params", "["),
    ];
    for (stage, sign) in begins {
        let shown = place.good(&["build", "tiny.ode", "--emit", stage]);
        assert!(shown.contains(sign), "{stage}: {sign:?} is not in\n{shown}");
        assert_eq!(
            shown,
            place.good(&["build", "tiny.ode", "--emit", stage]),
            "{stage} is deterministic"
        );
    }
    assert!(
        place
            .good(&["graph", "tiny.ode", "--format", "dot"])
            .starts_with("digraph")
    );
    place.good(&["graph", "tiny.ode", "--format", "svg", "-o", "g.svg"]);
    assert!(place.read("g.svg").starts_with("<svg"));
}

#[cfg(feature = "mlir")]
#[test]
fn from_a_file_to_text() {
    let place = Place::new();
    place.good(&["build", "tiny.ode", "-o", "tiny.odex"]);
    let said = place.good(&["train", "tiny.odex", "--out", "run"]);
    assert!(said.contains("held-out loss"), "{said}");
    assert!(place.read("run/loss.svg").starts_with("<svg"));
    let losses: Vec<f64> = place
        .read("run/metrics.jsonl")
        .lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok()?["loss"].as_f64())
        .collect();
    assert_eq!(losses.len(), 30);
    assert!(losses[29] < losses[0] - 1.0, "it learns: {losses:?}");

    let eval: serde_json::Value =
        serde_json::from_str(&place.good(&["eval", "run", "--json"])).expect("JSON");
    assert!(eval["loss"].as_f64().expect("a loss") < 4.5, "{eval}");
    let own = place.good(&["eval", "run", "--data", "corpus.txt"]);
    assert!(own.contains("8799 predicted tokens"), "{own}");

    let words = [
        "generate", "run", "--prompt", "the ", "--tokens", "20", "--seed", "3",
    ];
    let made = place.good(&words);
    assert!(made.starts_with("the ") && made.len() > 10, "{made:?}");
    assert_eq!(made, place.good(&words), "the seed decides");
}

/// The tensors of a checkpoint; its metadata also holds the seconds it took.
#[cfg(feature = "mlir")]
fn tensors(place: &Place, run: &str) -> Vec<(String, Vec<u8>)> {
    let bytes = std::fs::read(place.path().join(run).join("checkpoint.safetensors")).expect(run);
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("a checkpoint");
    let mut all: Vec<_> = file
        .iter()
        .map(|(name, t)| (name.to_string(), t.data().to_vec()))
        .collect();
    all.sort();
    all
}

#[cfg(feature = "mlir")]
#[test]
fn compiled_training_gives_the_bits_of_the_reference_device() {
    let place = Place::new();
    let train = |out, device| {
        place.good(&[
            "train",
            "tiny.ode",
            "--out",
            out,
            "--set",
            "train.steps=6",
            "--device",
            device,
        ]);
        tensors(&place, out)
    };
    let compiled = train("compiled", "cpu");
    assert!(
        compiled.len() > 30,
        "parameters and moments: {}",
        compiled.len()
    );
    assert!(compiled == train("again", "cpu"), "two runs");
    assert!(compiled == train("reference", "reference"), "two devices");
}

#[test]
fn mistakes_are_located_and_have_exit_codes() {
    let place = Place::new();
    let wrong = TINY
        .replace("heads: 2", "heads: 3")
        .replace("rmsnorm |> swiglu", "rmsnrm |> swiglu");
    place.write("wrong.ode", &wrong);
    let (code, said) = place.bad(&["check", "wrong.ode"]);
    assert_eq!(code, 1);
    insta::assert_snapshot!(said);

    let (code, said) = place.bad(&["check", "nowhere.ode"]);
    assert!(code == 1 && said.contains("nowhere.ode"), "{code} {said}");
    let (code, said) = place.bad(&[
        "train",
        "tiny.ode",
        "--data",
        "nowhere.txt",
        "--device",
        "reference",
    ]);
    assert!(code == 1 && said.contains("nowhere.txt"), "{code} {said}");
    let (code, said) = place.bad(&["check", "tiny.ode", "--set", "model.widht=8"]);
    assert!(code == 1 && said.contains("model.width"), "{code} {said}");
    let (code, said) = place.bad(&["eval", "corpus.txt"]);
    assert!(code == 1 && said.contains("corpus.txt"), "{code} {said}");
    let (code, _) = place.bad(&["check"]);
    assert_eq!(code, 2, "usage");
    place.write("bytes.ode", "");
    std::fs::write(place.path().join("bytes.ode"), [0x66, 0xff, 0xfe]).expect("written");
    let (code, said) = place.bad(&["check", "bytes.ode"]);
    assert!(code == 1 && said.contains("byte 1"), "{code} {said}");
}

#[test]
fn fmt_formats_in_place_and_checks() {
    let place = Place::new();
    // Formatted, but for the empty line at its beginning.
    assert_eq!(place.good(&["fmt", "tiny.ode"]), "tiny.ode\n");
    assert_eq!(place.read("tiny.ode"), TINY.trim_start());
    place.write("ugly.ode", "field a=b // kept");
    let (code, errors) = place.bad(&["fmt", "--check", "tiny.ode", "ugly.ode"]);
    assert!(
        code == 1 && errors.contains("1 file is not formatted"),
        "{errors}"
    );
    assert_eq!(place.good(&["fmt", "tiny.ode", "ugly.ode"]), "ugly.ode\n");
    assert_eq!(place.read("ugly.ode"), "field a = b  // kept\n");
    place.good(&["fmt", "--check", "ugly.ode"]);
    place.write("bad.ode", "field a=");
    assert_eq!(place.bad(&["fmt", "bad.ode"]).0, 1);
    assert_eq!(place.read("bad.ode"), "field a=");
}

/// What the README shows is what odec does.
#[test]
fn the_readme_is_true() {
    let place = Place::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect(name);
    let readme = read("README.md");
    let example = readme.split("```").nth(1).expect("an example");
    place.write("corrected.ode", example.trim_start());
    place.good(&["fmt", "--check", "corrected.ode"]);
    let stages = place.good(&["build", "corrected.ode", "--emit", "stages"]);
    assert!(
        stages.contains("return x + 1/2*h*k1 + 1/2*h*k3"),
        "{stages}"
    );

    let model = root.join("schemes/iiet.ode");
    let model = model.to_str().expect("a path in UTF-8");
    place.good(&["graph", model, "--format", "svg", "-o", "iiet.svg"]);
    assert_eq!(
        place.read("iiet.svg"),
        read("docs/iiet.svg"),
        "docs/iiet.svg is out of date"
    );
}
