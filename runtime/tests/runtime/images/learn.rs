//! Models of images: training, runs that go on, evaluation, and entries on files.

use super::{Place, npy, npz};
use crate::support::{self, SIDE, VOCAB, WIDTH};
use odec_program::manifest::{Form, Images};
use odec_program::rng::Stream;
use odec_runtime::data::dataset::Unit;
use odec_runtime::infer::evaluate::judge;
use odec_runtime::infer::exec::inputs;
use odec_runtime::parameters::checkpoint;
use odec_runtime::parameters::checkpoint::Checkpoint;
use odec_runtime::system::owned::{CHECKPOINT, METRICS};
use odec_runtime::{
    Artifact, DeviceChoice, Executor, Run, Sampling, Settings, Show, State, Tokenizer, dataset_of,
    exec, generate, open_run, resume, train,
};
use std::fs;
use std::path::{Path, PathBuf};

/// Pictures of ten classes, drawn: two bright pixels of sixteen say which, the others are noise.
fn drawn(p: &Place, images: usize) -> PathBuf {
    let noise = Stream::new(5, "drawn");
    let pixel = |n: usize, i: usize| {
        let bright = i == n % 10 || i == n % 10 + 5;
        let dark = noise.below((n * 16 + i) as u64, 90) as u8;
        if bright { 255 - dark } else { dark }
    };
    let all: Vec<u8> = (0..images)
        .flat_map(|n| (0..16).map(move |i| pixel(n, i)))
        .collect();
    let classes: Vec<u8> = (0..images).map(|n| (n % 10) as u8).collect();
    let arrays = [
        (
            "images",
            npy("|u1", &format!("({images}, {SIDE}, {SIDE})"), &all),
        ),
        ("labels", npy("|u1", &format!("({images},)"), &classes)),
    ];
    p.write("drawn.npz", &npz(&arrays, true))
}

/// The tensors of a run, without the header, whose seconds differ.
fn tensors(run: &Path) -> Vec<u8> {
    let bytes = fs::read(run.join(CHECKPOINT)).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + header..].to_vec()
}

#[test]
fn a_model_of_images_learns_resumes_to_the_bit_and_is_judged() {
    let p = Place::new();
    let artifact = Artifact::in_memory(support::images()).unwrap();
    let settings = Settings {
        data: vec![drawn(&p, 120)],
        device: DeviceChoice::Reference,
        show: Show::Nothing,
        evaluations: 4,
        held_out_windows: 12,
        ..Settings::default()
    };
    let summary = train(&artifact, &p.at("run"), &settings).unwrap();
    let held_out = summary.held_out.unwrap();
    assert_eq!(
        (held_out.of.number(), held_out.of.unit()),
        (12, Unit::Images)
    );
    let accuracy = held_out.accuracy.unwrap();
    // Guessing would tell a tenth.
    assert!(accuracy > 0.7, "{held_out:?}");
    let metrics = fs::read_to_string(p.at("run").join(METRICS)).unwrap();
    let (step, look) = (r#""images_per_s":"#, r#""images":12,"accuracy":"#);
    assert!(
        metrics.contains(step) && metrics.contains(look),
        "{metrics}"
    );
    assert!(!metrics.contains("tokens"), "{metrics}");

    // Stopped after some steps and continued, from its folder alone: before the 108 images for training are all drawn, and after.
    let half = p.at("half");
    let alone = Settings {
        data: vec![],
        ..settings.clone()
    };
    for (steps, images) in [(30, 120), (17, 68)] {
        let _ = fs::remove_dir_all(&half);
        let mut begun = Run::start(&artifact, &half, &settings).unwrap();
        (0..steps).for_each(|_| drop(begun.step().unwrap()));
        assert_eq!(begun.progress().step * support::BATCH, images);
        begun.save().unwrap();
        drop(begun);
        let whole = resume(&half, &alone).unwrap();
        assert!(whole.steps * support::BATCH > 108);
        assert!(tensors(&half) == tensors(&p.at("run")), "{steps}");
    }

    let mut x = open_run(&half, DeviceChoice::Reference, None).unwrap();
    let set = dataset_of(&half, &[], Show::Nothing).unwrap();
    let (e, table) = judge(&mut x, &*set, None, &mut |_| {}).unwrap();
    assert_eq!((e.of.number(), e.accuracy), (12, Some(accuracy)));
    let table = table.unwrap();
    let all: u64 = table.counts().map(|(_, _, n)| n).sum();
    let correct = table.counts().filter(|(class, of, _)| *of == Some(*class));
    let correct: u64 = correct.map(|(_, _, n)| n).sum();
    assert_eq!((all, correct as f64 / 12.0), (12, accuracy));
    // All of files of one's own.
    let other = dataset_of(&half, &[drawn(&p, 70)], Show::Nothing).unwrap();
    assert_eq!(other.held_out_rows(1), 70);
    let nothing = generate(
        &mut x,
        &Tokenizer::bytes(),
        "a",
        &Sampling::default(),
        &mut |_| Ok(()),
    );
    let words = nothing.unwrap_err().to_string();
    assert!(words.contains("there is nothing to generate"), "{words}");

    // A model whose logits are no numbers predicts no class.
    x.fetch(&[State::Params]).unwrap();
    let count = x.state(State::Params).len();
    x.state_mut(State::Params)
        .fill(std::iter::repeat_n(f64::NAN, count));
    let (e, table) = judge(&mut x, &*set, None, &mut |_| {}).unwrap();
    assert!(e.loss.is_nan() && e.accuracy == Some(0.0), "{e:?}");
    let table = table.unwrap();
    let none = table.counts().filter(|(_, of, _)| of.is_none());
    assert_eq!(none.map(|(_, _, n)| n).sum::<u64>(), 12);

    // The images of a run are known by what is in them.
    drawn(&p, 119);
    let changed = dataset_of(&half, &[], Show::Nothing).map(drop).unwrap_err();
    let words = changed.to_string();
    assert!(
        words.contains("the data of this run have changed") && words.contains("drawn.npz"),
        "{words}"
    );
    assert!(Checkpoint::open(&half.join(CHECKPOINT)).is_ok());
}

/// The form of images stands in the checkpoint again; what is cut by it is what the model reads.
#[test]
fn a_checkpoint_with_images_of_another_form_is_refused() {
    let p = Place::new();
    let artifact = Artifact::in_memory(support::images()).unwrap();
    let settings = Settings {
        data: vec![drawn(&p, 40)],
        device: DeviceChoice::Reference,
        show: Show::Nothing,
        ..Settings::default()
    };
    let out = p.at("run");
    let run = Run::start(&artifact, &out, &settings).unwrap();
    let mut progress = run.progress().clone();
    let Form::Images(own) = progress.data.form.clone() else {
        panic!("{:?}", progress.data.form)
    };
    let huge = 1 << 32;
    let changed = [
        Images {
            patch: 0,
            ..own.clone()
        },
        Images {
            height: huge,
            width: huge,
            ..own.clone()
        },
        Images {
            classes: 300,
            ..own
        },
    ];
    let forms = changed.into_iter().map(Form::Images);
    for form in forms.chain([Form::Tokens]) {
        progress.data.form = form;
        checkpoint::save(&out.join(CHECKPOINT), run.executor(), &progress).unwrap();
        let e = dataset_of(&out, &[], Show::Nothing).map(drop).unwrap_err();
        let words = e.to_string();
        assert!(
            words.ends_with("its data are not of the form that the model reads"),
            "{words}"
        );
    }
}

#[test]
fn shifts_and_flips_are_drawn_again_by_runs_that_go_on() {
    let p = Place::new();
    let run = |out: &str, (crop, flip): (u64, bool), stop: bool| {
        let mut m = support::images();
        let Form::Images(of) = &mut m.train.as_mut().unwrap().data.form else {
            panic!("no images");
        };
        (of.crop, of.flip) = (crop, flip);
        let artifact = Artifact::in_memory(m).unwrap();
        let settings = Settings {
            data: vec![drawn(&p, 60)],
            device: DeviceChoice::Reference,
            show: Show::Nothing,
            ..Settings::default()
        };
        let out = p.at(out);
        if !stop {
            train(&artifact, &out, &settings).unwrap();
            return tensors(&out);
        }
        let mut begun = Run::start(&artifact, &out, &settings).unwrap();
        (0..11).for_each(|_| drop(begun.step().unwrap()));
        begun.save().unwrap();
        drop(begun);
        let data = vec![];
        resume(&out, &Settings { data, ..settings }).unwrap();
        tensors(&out)
    };
    let whole = run("whole", (1, true), false);
    assert!(run("stopped", (1, true), true) == whole);
    assert!(run("plain", (0, false), false) != whole);
}

#[test]
fn an_entry_is_run_on_patches_from_a_file() {
    use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
    let p = Place::new();
    let artifact = Artifact::in_memory(support::images()).unwrap();
    let device = artifact.device(DeviceChoice::Reference, None).unwrap();
    let mut x = Executor::new(&artifact, device).unwrap();
    let table = [VOCAB as usize, WIDTH as usize];
    let number = |i: usize| (i % 7) as f32 / 8.0;
    let floats = |n: usize| -> Vec<u8> { (0..n).flat_map(|i| number(i).to_le_bytes()).collect() };
    let params = floats(table[0] * table[1]);
    let patches: Vec<u8> = (0..32)
        .flat_map(|i| f64::from(number(i + 3)).to_le_bytes())
        .collect();
    let classes: Vec<u8> = [3i64, 200].into_iter().flat_map(i64::to_le_bytes).collect();
    let mut run = |entry: &str, shape: &[usize]| {
        let view =
            |kind, shape: &[usize], data| TensorView::new(kind, shape.to_vec(), data).unwrap();
        let mut list: Vec<(String, TensorView)> = (artifact.manifest().params.iter())
            .map(|p| (p.path.clone(), view(Dtype::F32, &table, &params)))
            .collect();
        list.push(("patches".into(), view(Dtype::F64, shape, &patches)));
        list.push(("targets".into(), view(Dtype::I64, &[2], &classes)));
        let given = p.write("in.safetensors", &serialize(list, None).unwrap());
        let out = p.at("out.safetensors");
        let known = inputs(x.manifest());
        exec(&mut x, entry, &known, &given, &out).map(|()| fs::read(&out).unwrap())
    };
    let out = run("forward", &[2, 1, 16]).unwrap();
    let out = SafeTensors::deserialize(&out).unwrap();
    let logits = out.tensor("logits").unwrap();
    assert_eq!(logits.shape(), [2, 1, VOCAB as usize]);
    let logits = logits.data().as_chunks().0.iter();
    let logits: Vec<f32> = logits.map(|b| f32::from_le_bytes(*b)).collect();
    let wanted = |image: usize, class: usize| -> f32 {
        let product = |i: usize| number(image * 16 + i + 3) * number(class * 16 + i);
        (0..16).map(product).sum()
    };
    for (image, class) in [(0, 0), (0, 17), (1, 255)] {
        let found = logits[image * VOCAB as usize + class];
        assert_eq!(
            found,
            wanted(image, class),
            "exact in f32: multiples of 1/64"
        );
    }
    assert!(run("loss", &[2, 1, 16]).is_ok() && run("grad", &[2, 1, 16]).is_ok());
    let e = run("forward", &[1, 2, 16]).unwrap_err().to_string();
    assert!(e.contains("sequence 2"), "{e}");
    let e = run("loss", &[2, 16]).unwrap_err().to_string();
    assert!(
        e.contains("it must be [batch, sequence, 16] of f32 or f64"),
        "{e}"
    );
}
