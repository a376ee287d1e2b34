//! `tune lora`: the loss it starts from, its gradients in closed form, what `update` leaves alone, reading on, and runs: started from
//! another one, stopped and resumed, exported.

use crate::numbers::{close, executor, feeds, tokens};
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::{build_manifest, print};
use odec_graph::interp::{self, Tensor};
use odec_program::manifest::{Manifest, Param, added};
use odec_program::{Bindings, EntryId};
use odec_runtime::parameters::import;
use odec_runtime::system::owned::CHECKPOINT;
use odec_runtime::train::run::Run;
use odec_runtime::{
    Artifact, DeviceChoice, Executor, Reader, Settings, Show, State, Value, open_run,
};
use std::collections::BTreeMap;
use std::path::Path;

const AT: Bindings = Bindings::new(2, 6);

fn text(steps: &str, train: &str) -> String {
    format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\n\
         field ffn = layernorm |> gelu(hidden: 12, bias)\n\
         model small {{\n  input tokens(vocab: 256, context: 8)\n  embed learned(width: 8)\n  \
         evolve strang(ffn, att) for {steps}\n  output rmsnorm |> logits(tied)\n  init normal(std: 0.3) }}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-2, weight_decay: 0.1)\n\
         batch 2;  steps 6;  clip 1.0;  {train} }}\n"
    )
}

const LORA: &str = "from \"run\";  tune lora(rank: 2)";

fn built(steps: &str, train: &str) -> (Built, Manifest) {
    let text = text(steps, train);
    let built = source::built(&text);
    let manifest = build_manifest(&built, &text, options()).unwrap().manifest;
    (built, manifest)
}

/// Numbers for B, which starts at 0, by its place.
fn fill(e: &mut Executor) {
    let params = e.manifest().params.clone();
    for (n, p) in params.iter().enumerate() {
        if p.path.ends_with(added::LORA_B) {
            let at = p.offset as usize / 4;
            let drawn = |i: usize| (((i * 37 + n * 11) % 29) as f32 - 14.0) / 60.0;
            let values: Vec<f32> = (0..p.elements() as usize).map(drawn).collect();
            e.state_mut(State::Params).f32()[at..at + values.len()].copy_from_slice(&values);
        }
    }
}

fn gradient(e: &mut Executor) -> f64 {
    let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
    let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    e.run("grad", AT, &io, &[]).unwrap().scalar("loss").unwrap()
}

const STEPS: [&str; 5] = [
    "3 steps",
    "3 steps { weights shared }",
    "4 steps { weights every 2 }",
    "2 steps { weights per use }",
    "3 steps { h = 1/3;  weights of time { embed: 2, hidden: 3, scale: 3 } }",
];

/// Equal paths start alike, and B = 0.
#[test]
fn the_first_loss_is_that_of_the_loaded_model() {
    for steps in STEPS {
        let (_, whole) = built(steps, "");
        let (of, factors) = built(steps, LORA);
        let (mut a, mut b) = (executor(&whole), executor(&factors));
        assert_eq!(
            gradient(&mut a).to_bits(),
            gradient(&mut b).to_bits(),
            "{steps}"
        );
        let mut matrices = 0;
        for p in &of.params {
            let rank = |end: &str, side: usize| {
                (p.path.ends_with(end)).then(|| (p.shape[side], p.shape[1 - side]))
            };
            if let Some((rank, _)) = rank(added::LORA_A, 0).or(rank(added::LORA_B, 1)) {
                assert_eq!(rank, 2, "{}", p.path);
                matrices += 1;
            }
        }
        // Six matrices: q, k, v, o, up, down; where uses differ, Strang's halves of the first field have their own.
        let sets = match steps {
            s if s.contains("shared") => 6,
            s if s.contains("per use") => 2 * 8,
            s if s.contains("every") => 2 * 6,
            _ => 3 * 6,
        };
        assert_eq!(matrices, 2 * sets, "{steps}");
        assert_eq!(
            of.summary.parameters - of.summary.trained,
            built(steps, "").0.summary.parameters,
            "{steps}"
        );
        let held: u64 = factors.trained().map(Param::elements).sum();
        assert_eq!(held, of.summary.trained);
        assert!(factors.trained().all(|p| added::is(&p.path)));
        assert!(factors.program.trained_bytes < factors.program.param_bytes);
    }
}

type Tensors = BTreeMap<String, Tensor>;

fn merged(f: &Tensors) -> Tensors {
    let mut out = f.clone();
    for (name, b) in f {
        let Some(matrix) = name.strip_suffix(added::LORA_B) else {
            continue;
        };
        let a = &f[&format!("{matrix}{}", added::LORA_A)];
        let cols = a.shape[1] as usize;
        let Some(w) = out.get_mut(matrix) else {
            continue;
        };
        for (i, w) in w.data.iter_mut().enumerate() {
            let (row, col) = (i / cols, i % cols);
            *w += (0..2)
                .map(|r| b.data[row * 2 + r] * a.data[r * cols + col])
                .sum::<f64>();
        }
    }
    out
}

/// At W' = W + B A, with the gradient G of W': that of B is G Aᵀ, that of A is Bᵀ G.
#[test]
fn gradients_are_those_of_the_sum() {
    for steps in &STEPS[..4] {
        let (plain, _) = built(steps, "");
        let (lora, manifest) = built(steps, LORA);
        let mut e = executor(&manifest);
        fill(&mut e);
        let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
        let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
        let got = interp::run(&lora.grad, &f, AT).unwrap();
        let want = interp::run(&plain.grad, &merged(&f), AT).unwrap();
        let off = (got["loss"].data[0] - want["loss"].data[0]).abs();
        assert!(off < 1e-12, "{steps}: {off}");
        let compiled = gradient(&mut e);
        close("loss", &[compiled as f32], &want["loss"].data, 1e-4);
        for p in manifest.trained() {
            let matrix = added::matrix(&p.path).unwrap();
            let g = &want[&format!("grad.{matrix}")];
            let (rows, cols) = (g.shape[0] as usize, g.shape[1] as usize);
            let sum = |terms: &mut dyn Iterator<Item = f64>| terms.sum::<f64>();
            let closed: Vec<f64> = match p.path.ends_with(added::LORA_B) {
                true => {
                    let a = &f[&format!("{matrix}{}", added::LORA_A)].data;
                    let entry = |i: usize| {
                        let (row, r) = (i / 2, i % 2);
                        sum(&mut (0..cols).map(|c| g.data[row * cols + c] * a[r * cols + c]))
                    };
                    (0..rows * 2).map(entry).collect()
                }
                false => {
                    let b = &f[&format!("{matrix}{}", added::LORA_B)].data;
                    let entry = |i: usize| {
                        let (r, col) = (i / cols, i % cols);
                        sum(&mut (0..rows).map(|n| b[n * 2 + r] * g.data[n * cols + col]))
                    };
                    (0..2 * cols).map(entry).collect()
                }
            };
            let name = format!("grad.{}", p.path);
            for (got, want) in got[&name].data.iter().zip(&closed) {
                assert!(
                    (got - want).abs() < 1e-12,
                    "{steps} {name}: {got}, not {want}"
                );
            }
            close(&name, e.of(State::Grads, p).f32(), &closed, 2e-3);
        }
        // What is not trained has no gradient.
        let grads = got.keys().filter(|k| k.starts_with("grad.")).count();
        assert_eq!(grads, manifest.trained().count());
    }
}

/// Weights of time: along the gradient of all factors of a step.
#[test]
fn gradients_of_factors_of_steps_are_differences() {
    let (lora, manifest) = built(STEPS[4], LORA);
    let mut e = executor(&manifest);
    fill(&mut e);
    let (x, y) = (tokens(AT, 256, 1), tokens(AT, 256, 5));
    let f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
    let got = interp::run(&lora.grad, &f, AT).unwrap();
    for path in ["step.1.att.q.weight.lora.a", "step.2.ffn.up.weight.lora.b"] {
        let g = &got[&format!("grad.{path}")].data;
        let size = g.iter().map(|g| g * g).sum::<f64>().sqrt();
        let loss = |by: f64| {
            let mut f = f.clone();
            let p = &mut f.get_mut(path).unwrap().data;
            p.iter_mut().zip(g).for_each(|(p, g)| *p += by * g / size);
            interp::run(&lora.loss, &f, AT).unwrap()["loss"].data[0]
        };
        let slope = (loss(1e-5) - loss(-1e-5)) / 2e-5;
        assert!(
            (slope / size - 1.0).abs() < 1e-6,
            "{path}: {slope}, not {size}"
        );
    }
}

#[test]
fn update_leaves_everything_else_alone() {
    let (_, manifest) = built(STEPS[0], LORA);
    let mut e = executor(&manifest);
    fill(&mut e);
    gradient(&mut e);
    let bits = |e: &Executor| -> Vec<u32> {
        e.state(State::Params)
            .f32()
            .iter()
            .map(|x| x.to_bits())
            .collect()
    };
    let before = bits(&e);
    let named = [("lr", 0.01), ("bias1", 1.0), ("bias2", 1.0)];
    e.run("update", Bindings::new(1, 1), &[], &named).unwrap();
    let after = bits(&e);
    for p in &manifest.params {
        let at = p.offset as usize / 4..(p.offset + 4 * p.elements()) as usize / 4;
        let moved = before[at.clone()] != after[at];
        assert_eq!(moved, added::is(&p.path), "{}", p.path);
    }
    let lasting = |m: &Manifest| m.program.param_bytes + 4 * m.program.trained_bytes;
    let whole = built(STEPS[0], "").1;
    assert!(lasting(&manifest) < lasting(&whole) / 2);
}

/// Bits of loss and gradients.
fn all(steps: &str, train: &str) -> Vec<u32> {
    let (_, manifest) = built(steps, &format!("{LORA};  {train}"));
    let mut e = executor(&manifest);
    fill(&mut e);
    let loss = gradient(&mut e) as f32;
    let grads = e.state(State::Grads).f32().iter();
    grads.chain([&loss]).map(|x| x.to_bits()).collect()
}

#[test]
fn the_same_bits_under_every_memory_policy() {
    for (n, steps) in STEPS.into_iter().enumerate() {
        let precision = ["", ";  precision bf16"][n % 2];
        let all = |memory: &str| all(steps, &format!("{memory}{precision}"));
        assert!(
            all("memory store") == all("memory revolve(slots: 1)"),
            "{steps}"
        );
    }
}

/// Merged matrices are made once, in `prepare`, and reading on gives the logits of the whole.
#[test]
fn reading_on() {
    for steps in [STEPS[0], STEPS[1], STEPS[4]] {
        let (_, manifest) = built(steps, LORA);
        let made = print::program(&manifest, &[]);
        let decode = made
            .split("entry ")
            .find(|e| e.starts_with(EntryId::Decode.as_str()))
            .unwrap();
        assert!(!decode.contains("lora"), "{decode}");
        let x: Vec<i32> = tokens(Bindings::new(1, 8), 256, 3);
        let mut e = executor(&manifest);
        fill(&mut e);
        let at = Bindings::new(1, 8);
        let whole = e
            .run("forward", at, &[("tokens", Value::I32(&x))], &[])
            .unwrap();
        let whole = whole.reals("logits").unwrap().f32().to_vec();
        let mut reader = Reader::new(&mut e).unwrap();
        let mut pieces = Vec::new();
        for piece in [&x[..3], &x[3..4], &x[4..]] {
            pieces.extend(reader.read(piece).unwrap().f32().to_vec());
        }
        assert!(whole == pieces, "{steps}");
    }
}

/// A folder with a text, for runs on the reference device.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let text = "the quick brown fox jumps over the lazy dog. ";
        std::fs::write(dir.path().join("corpus.txt"), text.repeat(20)).unwrap();
        Place(dir)
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn settings(&self, steps: u64) -> Settings {
        Settings {
            data: vec![self.at("corpus.txt")],
            steps: Some(steps),
            device: DeviceChoice::Reference,
            show: Show::Nothing,
            evaluations: 0,
            ..Settings::default()
        }
    }

    /// A run of so many steps of a model; `from` is the name of another one.
    fn run(
        &self,
        name: &str,
        model: &str,
        lora: Option<(&str, u64)>,
        n: u64,
    ) -> Result<(), String> {
        let from = |(from, rank): (&str, u64)| {
            let from = self.at(from).display().to_string();
            format!("from \"{from}\";  tune lora(rank: {rank});  accumulate 2")
        };
        let manifest = built(model, &lora.map(from).unwrap_or_default()).1;
        let artifact = Artifact::in_memory(manifest).unwrap();
        let run = Run::start(&artifact, &self.at(name), &self.settings(n));
        run.and_then(|mut run| run.finish(&self.settings(n)))
            .map(|_| ())
            .map_err(|e| e.to_string())
    }

    fn resume(&self, name: &str, n: u64) {
        let s = self.settings(n);
        Run::resume(&self.at(name), &s).unwrap().finish(&s).unwrap();
    }

    /// The tensors of a checkpoint or of an exported file.
    fn tensors(&self, name: &str) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
        tensors(&self.at(name))
    }

    fn open(&self, name: &str) -> Executor {
        open_run(&self.at(name), DeviceChoice::Reference, None).unwrap()
    }
}

fn tensors(path: &Path) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
    let file = if path.is_dir() {
        path.join(CHECKPOINT)
    } else {
        path.to_path_buf()
    };
    let bytes = std::fs::read(file).unwrap();
    let all = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let named = all.tensors().into_iter();
    named
        .map(|(n, t)| (n, (t.shape().to_vec(), t.data().to_vec())))
        .collect()
}

fn logits(e: &mut Executor) -> Vec<f64> {
    // What is planned where a step's sequences are taken one by one.
    let at = Bindings::new(1, 6);
    let x = tokens(at, 256, 1);
    let out = e
        .run("forward", at, &[("tokens", Value::I32(&x))], &[])
        .unwrap();
    out.reals("logits").unwrap().iter().collect()
}

#[test]
fn runs_start_from_others_and_go_on_bit_for_bit() {
    let place = Place::new();
    let model = "2 steps { weights every 2 }";
    place.run("whole", model, None, 3).unwrap();
    place.run("fine", model, Some(("whole", 2)), 4).unwrap();
    place.run("parts", model, Some(("whole", 2)), 1).unwrap();
    place.resume("parts", 4);
    let (whole, fine) = (place.tensors("whole"), place.tensors("fine"));
    assert!(fine == place.tensors("parts"));
    // What was loaded is as it was; of the optimiser there is what factors need.
    for (name, t) in &fine {
        let bare = name
            .trim_start_matches("moment1.")
            .trim_start_matches("moment2.");
        match added::is(bare) {
            true => assert!(!whole.contains_key(name)),
            false => assert!(whole.get(name) == Some(t) && bare == name, "{name}"),
        }
    }
    let moved = |name: &&String| name.ends_with(added::LORA_B) && !name.starts_with("moment");
    let zero = |name: &String| fine[name].1.iter().all(|b| *b == 0);
    assert!(fine.keys().filter(moved).count() == 6 && !fine.keys().filter(moved).any(zero));

    // Exported, it is a model without factors that computes the same.
    let x = place.open("fine");
    import::export(&place.at("merged.safetensors"), &x).unwrap();
    let merged = place.tensors("merged.safetensors");
    let names = |of: &BTreeMap<String, _>| of.keys().cloned().collect::<Vec<_>>();
    let mut plain = names(&whole);
    plain.retain(|n| !n.starts_with("moment"));
    assert_eq!(names(&merged), plain);
    let same_model = |from: &str| {
        let mut e = executor(&built(model, "").1);
        let init = import::Init::open(&place.at(from), None).unwrap();
        init.import(&mut e).unwrap();
        logits(&mut e)
    };
    let want = logits(&mut place.open("fine"));
    let exported: Vec<f32> = same_model("merged.safetensors")
        .iter()
        .map(|x| *x as f32)
        .collect();
    close("exported", &exported, &want, 1e-5);
    // The run itself, read by a model without factors, is the same to the bit.
    assert_eq!(same_model("merged.safetensors"), same_model("fine"));

    // Factors of the same rank are taken as they are, others are added to their matrices.
    let first = |name: &str, rank: u64| {
        place.run(name, model, Some(("fine", rank)), 0).unwrap();
        (place.tensors(name), logits(&mut place.open(name)))
    };
    let (same, of_same) = first("same", 2);
    let params = |t: &BTreeMap<String, _>| -> Vec<String> {
        names(t)
            .into_iter()
            .filter(|n| !n.starts_with("moment"))
            .collect()
    };
    assert!(params(&fine).iter().all(|n| same[n] == fine[n]));
    assert_eq!(of_same, want);
    let (other, of_other) = first("other", 3);
    assert!(plain.iter().all(|n| other[n] == merged[n]));
    let of_other: Vec<f32> = of_other.iter().map(|x| *x as f32).collect();
    close("merged at the start", &of_other, &want, 1e-5);
}

/// θ is a function of t: another number of steps takes it as it is; factors belong to the steps they were trained for.
#[test]
fn weights_of_time_go_on_with_other_steps() {
    let place = Place::new();
    let model = |n: u64| {
        format!("{n} steps {{ h = 1/steps;  weights of time {{ embed: 2, hidden: 3, scale: 3 }} }}")
    };
    place.run("two", &model(2), None, 2).unwrap();
    place.run("three", &model(3), Some(("two", 2)), 2).unwrap();
    place.run("parts", &model(3), Some(("two", 2)), 1).unwrap();
    place.resume("parts", 2);
    assert!(place.tensors("three") == place.tensors("parts"));
    let (two, three) = (place.tensors("two"), place.tensors("three"));
    let of_two = two.iter().filter(|(n, _)| !n.starts_with("moment"));
    assert!(of_two.clone().all(|(n, t)| three[n] == *t));
    assert!(three.contains_key("step.2.att.q.weight.lora.b"));
    // Before anything is trained, it is the model that was trained with two steps, taken in three.
    place.run("start", &model(3), Some(("two", 2)), 0).unwrap();
    let mut e = executor(&built(&model(3), "").1);
    let init = import::Init::open(&place.at("two"), None).unwrap();
    init.import(&mut e).unwrap();
    assert_eq!(logits(&mut e), logits(&mut place.open("start")));

    let refused = place
        .run("four", &model(4), Some(("three", 2)), 0)
        .unwrap_err();
    assert!(
        refused.contains("LoRA factors of weights of time belong to single steps"),
        "{refused}"
    );
    assert!(
        refused.contains("only in the model: step.3.att.k.weight.lora.a"),
        "{refused}"
    );
    place
        .run("again", &model(3), Some(("three", 2)), 0)
        .unwrap();
    let again = place.tensors("again");
    assert!(
        three
            .iter()
            .filter(|(n, _)| !n.starts_with("moment"))
            .all(|(n, t)| again[n] == *t)
    );
}
