//! Models of the library made small, and what two steps of training compute.

use odec_compiler::model::compile;
use odec_compiler::passes::{Options, build_manifest};
use odec_compiler::scheme::NoFiles;
use odec_grammar::{Sources, parse};
use odec_library::{SchemeFile, shipped};
use odec_program::choice::Choices;
use odec_program::manifest::{Manifest, named};
use odec_program::optimizers::OptimizerKind;
use odec_program::{Bindings, EntryId, Quantized, Target};
use odec_runtime::device::Device;
use odec_runtime::device::reals::Reals;
use odec_runtime::{Artifact, Executor, Reader, State, Texts, Value};

/// A file's model, planned for a target; `None` when it has none.
fn plan(name: &str, text: &str, target: Target, weights: Option<Quantized>) -> Option<Manifest> {
    let mut sources = Sources::with(shipped::library());
    let main = sources.add(name, text);
    let (file, errors) = parse(main, text);
    assert_eq!(errors, [], "{name}");
    let checked = compile(&file, main, &mut sources, &mut NoFiles);
    let built = checked.unwrap_or_else(|e| panic!("{name}: {e:?}")).built?;
    let options = Options {
        weights,
        ..Options::of(target, built.real())
    };
    let assembled = build_manifest(&built, text, options);
    Some(assembled.unwrap_or_else(|e| panic!("{name}: {e}")).manifest)
}

/// A model of the library with other sizes, planned for a target.
pub fn planned(name: &str, sizes: &[(&str, &str)], target: Target) -> Manifest {
    planned_with(name, sizes, target, None)
}

/// The same with weights in integers.
pub fn planned_with(
    name: &str,
    sizes: &[(&str, &str)],
    target: Target,
    weights: Option<Quantized>,
) -> Manifest {
    let mut text = shipped::text(name).to_string();
    for (from, to) in sizes {
        assert!(text.contains(from), "{name} has no `{from}`");
        text = text.replace(from, to);
    }
    plan(name, &text, target, weights).expect("it is a model")
}

/// All models of the library as they are, planned for a target, by name.
pub fn library(target: Target) -> Vec<(String, Manifest)> {
    models(target, Some)
}

/// Those that are trained, in bf16.
pub fn library_in_bf16(target: Target) -> Vec<(String, Manifest)> {
    let half = |text: String| {
        let trained = text.contains("\ntrain {\n");
        trained.then(|| text.replace("\ntrain {\n", "\ntrain {\n  precision bf16\n"))
    };
    models(target, half)
}

fn models(target: Target, change: impl Fn(String) -> Option<String>) -> Vec<(String, Manifest)> {
    let files = shipped::all().iter().filter(|file| file.is_model());
    let made = |file: &SchemeFile| {
        let text = change(file.text.clone())?;
        plan(&file.name, &text, target, None).map(|m| (file.name.clone(), m))
    };
    files.filter_map(made).collect()
}

/// Widths that are no whole vectors, heads of 10, a hidden layer of 37.
pub fn ragged(
    hidden: &'static str,
    width: &'static str,
    steps: &'static str,
) -> [(&'static str, &'static str); 3] {
    [
        (width, "width: 40"),
        (hidden, "hidden: 37"),
        (steps, "for 2 steps"),
    ]
}

/// The same in bf16.
pub fn in_bf16(sizes: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let precision = ("clip 1.0;", "clip 1.0;  precision bf16;");
    sizes.iter().copied().chain([precision]).collect()
}

/// The same in f64.
pub fn in_f64(sizes: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let precision = ("clip 1.0;", "clip 1.0;  precision f64;");
    sizes.iter().copied().chain([precision]).collect()
}

/// What was computed: names and bits, as of f64 numbers.
pub type Steps = Vec<(String, Vec<u64>)>;

/// What [`two_steps`] runs.
pub const OF_STEPS: [EntryId; 4] = [
    EntryId::Forward,
    EntryId::Grad,
    EntryId::Round,
    EntryId::Update,
];

/// What [`read_in_pieces`] runs.
pub const OF_READING: [EntryId; 5] = [
    EntryId::Decode,
    EntryId::Extend,
    EntryId::Forward,
    EntryId::Prepare,
    EntryId::Round,
];

/// Everything that two steps compute, as bits, by name.
pub fn two_steps(manifest: &Manifest, device: Box<dyn Device>, at: Bindings) -> Steps {
    let artifact = Artifact::in_memory(manifest.clone()).expect("the manifest is consistent");
    let mut e = Executor::new(&artifact, device).unwrap();
    e.set_poison(true);
    e.initialise(7);
    let token = |i: u64, seed: u64| ((i * i * 7 + i * 3 + seed) % manifest.model.vocab) as i32;
    let tokens = |seed| {
        (0..at.batch * at.seq)
            .map(|i| token(i, seed))
            .collect::<Vec<i32>>()
    };
    let (x, y) = (tokens(1), tokens(5));
    let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let mut out = Vec::new();
    let mut keep = |name: String, values: Reals| {
        out.push((name, values.iter().map(|x| x.to_bits()).collect()))
    };
    for step in 1..3 {
        let logits = e.run("forward", at, &inputs[..1], &[]).unwrap();
        for (name, _) in logits.shapes() {
            keep(format!("{name} {step}"), logits.reals(name).unwrap());
        }
        let loss = e.run("grad", at, &inputs, &[]).unwrap();
        keep(format!("loss {step}"), loss.reals("loss").unwrap());
        keep(format!("gradients {step}"), e.state(State::Grads));
        let scalars = [
            (named::LR, 1e-2),
            (named::BIAS1, 10.0 / f64::from(step)),
            (named::BIAS2, 20.0 / f64::from(step)),
        ];
        let norm = e.run("update", at, &[], &scalars).unwrap();
        keep(format!("norm {step}"), norm.reals("grad_norm").unwrap());
        for state in [State::Params, State::Moment1, State::Moment2] {
            keep(format!("{state:?} {step}"), e.state(state));
        }
    }
    out
}

/// The entry `update` of a small model, and nothing else, for an optimiser as a train block says it.
pub fn update_of(optimizer: &str, target: Target) -> Manifest {
    let mut sizes = vec![
        ("width: 256", "width: 24"),
        ("hidden: 704", "hidden: 9"),
        ("for 6 steps", "for 1 step"),
    ];
    let adamw = "adamw(lr: 2e-3, betas: (0.9, 0.95), weight_decay: 0.1)";
    sizes.push((adamw, optimizer));
    let mut manifest = planned("prenorm", &sizes, target);
    manifest.program.keep(&[EntryId::Update]);
    manifest
}

/// Everything that three updates change, as bits, by name.
pub fn three_updates(manifest: &Manifest, device: Box<dyn Device>) -> Steps {
    let artifact = Artifact::in_memory(manifest.clone()).expect("the manifest is consistent");
    let mut e = Executor::new(&artifact, device).unwrap();
    e.initialise(7);
    let train = manifest.train.as_ref().expect("it is trained");
    let mut out = Vec::new();
    for step in 1..=3 {
        e.fetch(&[State::Params]).unwrap();
        let gradients: Vec<f64> = e
            .state(State::Params)
            .iter()
            .map(|x| x * x - 0.01)
            .collect();
        e.fetch(&[State::Grads]).unwrap();
        e.state_mut(State::Grads).fill(gradients.into_iter());
        // Rates at which much moves.
        let scalars = train.scalars(step, 1.0);
        let rate = |name: &str| name.split('.').next() == Some(named::LR);
        let scalars: Vec<_> = scalars
            .iter()
            .map(|(name, x)| (name.as_str(), if rate(name) { 1e-2 } else { *x }))
            .collect();
        let at = Bindings::new(1, 1);
        let norm = e.run(EntryId::Update, at, &[], &scalars).unwrap();
        let bits = |x: Reals| x.iter().map(f64::to_bits).collect();
        out.push((
            format!("norm {step}"),
            bits(norm.reals("grad_norm").unwrap()),
        ));
        for state in [State::Params, State::Moment1, State::Moment2] {
            e.fetch(&[state]).unwrap();
            out.push((format!("{state:?} {step}"), bits(e.state(state))));
        }
    }
    out
}

/// Every example of every optimiser.
pub fn optimizers() -> impl Iterator<Item = &'static str> {
    let all = OptimizerKind::all().into_iter();
    all.flat_map(|o| o.examples().iter().map(|e| e.text))
}

/// Panics naming the first element in which two runs differ.
pub fn same_steps(got: &Steps, want: &Steps, who: &str) {
    for ((what, got), (_, want)) in got.iter().zip(want) {
        let differ = got.iter().zip(want).position(|(g, w)| {
            g != w && !(f64::from_bits(*g).is_nan() && f64::from_bits(*w).is_nan())
        });
        if let Some(i) = differ {
            let (g, w) = (f64::from_bits(got[i]), f64::from_bits(want[i]));
            panic!("{who}: element {i} of {what} is {g:?}, not {w:?}");
        }
    }
}

/// Panics naming the first value of which two runs are further apart than a part of its size, in the Euclidean norm: 2% in
/// the first step; 10% in the second, as the first update is of the same size however small a gradient is, and may
/// turn round.
pub fn near_steps(got: &Steps, want: &Steps, who: &str) {
    let number = |x: &u64| f64::from_bits(*x);
    let norm = |xs: &mut dyn Iterator<Item = f64>| xs.map(|x| x * x).sum::<f64>().sqrt();
    for ((what, got), (_, want)) in got.iter().zip(want) {
        let apart = norm(&mut got.iter().zip(want).map(|(g, w)| number(g) - number(w)));
        let size = norm(&mut want.iter().map(number));
        let most = if what.ends_with('1') { 0.02 } else { 0.1 };
        assert!(
            apart <= most * size,
            "{who}: {what} is off by {apart:e} of {size:e}"
        );
    }
}

/// Bits of a text's logits on a device, which are the same whether it is read whole or in pieces of these lengths.
pub fn read_in_pieces(
    manifest: &Manifest,
    device: Box<dyn Device>,
    lengths: &[usize],
    what: &str,
) -> Vec<u64> {
    let artifact = Artifact::in_memory(manifest.clone()).expect("the manifest is consistent");
    let mut e = Executor::new(&artifact, device).unwrap();
    e.set_poison(true);
    e.initialise(7);
    let length: usize = lengths.iter().sum();
    let vocab = manifest.model.vocab;
    let tokens: Vec<i32> = (0..length as u64)
        .map(|i| ((i * i * 7 + i * 3 + 1) % vocab) as i32)
        .collect();
    let bits = |x: Reals| x.iter().map(f64::to_bits).collect::<Vec<u64>>();
    let at = Bindings::new(1, length as u64);
    let read = e.run("forward", at, &[("tokens", Value::I32(&tokens))], &[]);
    let whole = bits(read.unwrap().reals("logits").unwrap());
    let mut reader = Reader::new(&mut e).unwrap();
    let (mut pieces, mut past) = (Vec::new(), 0);
    for n in lengths {
        let new = &tokens[past..past + n];
        let last = reader.read_each(new, &mut |some| pieces.extend(bits(some)));
        let last = bits(last.unwrap());
        pieces.extend(last);
        past += n;
    }
    assert_eq!(whole.len(), pieces.len(), "{what}");
    let differ = (0..whole.len()).find(|i| whole[*i] != pieces[*i]);
    assert_eq!(
        differ.map(|i| (i / vocab as usize, i % vocab as usize)),
        None,
        "{what}: (token, logit) that differs"
    );
    // Nothing of one text is left for the next.
    let first = &tokens[..lengths[0]];
    let again = bits(Reader::new(&mut e).unwrap().read(first).unwrap());
    assert_eq!(again, whole[..again.len()], "{what}: another text");
    if Texts::most(&e) > 1 && length > 2 {
        let (begun, last) = tokens.split_at(length - 1);
        let mut texts = Texts::new(&mut e, 2).unwrap();
        texts.read(&[&tokens[..1], begun]).unwrap();
        let read = texts.read(&[&tokens[1..2], last]).unwrap();
        for (n, after) in [1, length - 1].into_iter().enumerate() {
            let beside = bits(read.of(n));
            let alone = &whole[after * vocab as usize..][..vocab as usize];
            assert!(
                beside == alone,
                "{what}: beside another text, after {after}"
            );
        }
    }
    whole
}
