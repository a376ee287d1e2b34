//! Files of vectors: what is read of them, and what is refused before anything is computed.

use crate::images::{npy, npz};
use odec_program::manifest::{Data, Flow, Form, Target, Times, Vectors};
use odec_program::names::{LABEL, TARGETS, TIME, VECTORS};
use odec_runtime::data::dataset::{Draw, Unit};
use odec_runtime::data::{DataError, Source, sources};
use odec_runtime::{Batch, Dataset, Show, Tokenizer};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A number for each position.
fn target() -> Target {
    Target {
        output: String::new(),
        array: "y".into(),
        columns: 1,
        whole: false,
        events: false,
        classes: false,
    }
}

/// Three positions of two numbers, and one number for each position.
fn shape() -> Vectors {
    Vectors {
        inputs: "x".into(),
        positions: 3,
        width: 2,
        targets: vec![target()],
        mean: 0.5,
        std: 2.0,
        leading: 0,
        flow: None,
    }
}

fn opened(files: &[PathBuf], shape: &Vectors, percent: u32) -> Result<Box<dyn Dataset>, DataError> {
    let data = Data {
        files: files.iter().map(|f| f.display().to_string()).collect(),
        form: Form::Vectors(shape.clone()),
        held_out_percent: percent,
    };
    let source = Source {
        data: &data,
        tokenizer: &Tokenizer::bytes(),
        cache: Path::new("/nowhere"),
        context: 8,
        source_context: 0,
        show: Show::Nothing,
    };
    sources::open(source, 1)
}

fn array(shape: &str, numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    let bytes = numbers.into_iter().flat_map(f32::to_le_bytes);
    npy("<f4", shape, &bytes.collect::<Vec<u8>>())
}

/// So many sequences: number i of all inputs is i, that of all targets -i.
fn arrays(n: usize) -> [(&'static str, Vec<u8>); 2] {
    [
        (
            "x",
            array(&format!("({n}, 3, 2)"), (0..6 * n).map(|i| i as f32)),
        ),
        (
            "y",
            array(&format!("({n}, 3, 1)"), (0..3 * n).map(|i| -(i as f32))),
        ),
    ]
}

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn all(set: Box<dyn Dataset>) -> Batch {
    let set = set.all_held_out();
    let n = set.len();
    let mut batches = set.held_out_batches(n, 3, None).unwrap();
    batches.next().unwrap().unwrap()
}

/// Held out, a point is on the way from its noise to the sequence, at the time that it is told, and moves by what is between them: `x + (1 − t) v` is the
/// sequence. Rows behind it stay empty. In training noise and times are drawn anew for each step and row.
#[test]
fn sequences_are_moved_to() {
    let p = Place::new();
    let kinds: Vec<u8> = (0..40i64).flat_map(|n| (n % 4).to_le_bytes()).collect();
    let [(_, x), _] = arrays(40);
    let file = p.write(
        "a.npz",
        &npz(&[("x", x), ("kind", npy("<i8", "(40,)", &kinds))], false),
    );
    let flow = Flow {
        times: Times::Uniform,
        labelled: true,
        dropped_percent: 0,
    };
    let kind = Target {
        array: "kind".into(),
        columns: 4,
        whole: true,
        classes: true,
        ..target()
    };
    let of = Vectors {
        targets: vec![kind],
        leading: 1,
        flow: Some(flow),
        ..shape()
    };
    let file = std::slice::from_ref(&file);
    let set = opened(file, &of, 0).unwrap().all_held_out();
    let b = set
        .held_out_batches(40, 4, None)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!((b.rows, b.columns), (40, 4));
    let [points, moves, times, labels] = [VECTORS, TARGETS, TIME, LABEL].map(|n| b.real(n));
    assert_eq!((points.len(), times.len(), labels.len()), (40 * 8, 40, 160));
    for n in 0..40 {
        let t = times[n];
        for i in 0..8 {
            let (x, v) = (points[8 * n + i], moves[8 * n + i]);
            let wanted = ((6 * n + i) as f32 - 0.5) / 2.0;
            match i < 6 {
                true => assert!((x + (1.0 - t) * v - wanted).abs() < 1e-4 * wanted.abs().max(1.0)),
                false => assert_eq!((x, v), (0.0, 0.0)),
            }
        }
        let told = &labels[4 * n..][..4];
        assert!((0..4).all(|class| told[class] == f32::from(u8::from(class == n % 4))));
    }
    let set = opened(file, &of, 0).unwrap();
    let step = |step| {
        let draw = Draw {
            seed: 1,
            step,
            batch: 4,
            tokens: None,
        };
        set.training_batch(draw, 0..4, 4).unwrap()
    };
    assert_eq!(step(3), step(3));
    assert_ne!(step(3).real(TIME), step(4).real(TIME));
    // Nothing is drawn of another length than the context.
    let short = Vectors { positions: 4, ..of };
    let refused = opened(file, &short, 0).err().unwrap().to_string();
    assert!(
        refused.contains("draws all of its context, which is 4"),
        "{refused}"
    );
}

#[test]
fn the_same_vectors_are_read_from_files_of_both_kinds() {
    let p = Place::new();
    let [(_, x), (_, y)] = arrays(4);
    p.write("train-y.npy", &y);
    let wide: Vec<u8> = (0..24).flat_map(|i| f64::from(i).to_le_bytes()).collect();
    let eight = [("x", npy("<f8", "(4, 3, 2)", &wide)), ("y", y)];
    for file in [
        p.write("a.npz", &npz(&arrays(4), true)),
        p.write("eight.npz", &npz(&eight, false)),
        p.write("train-x.npy", &x),
    ] {
        let set = opened(&[file], &shape(), 0).unwrap();
        assert_eq!((set.unit(), set.len()), (Unit::Sequences, 4));
        let b = all(set);
        assert_eq!((b.rows, b.columns, b.predicted), (4, 3, 4));
        let standard: Vec<f32> = (0..24).map(|i| (i as f32 - 0.5) / 2.0).collect();
        assert_eq!(b.real(VECTORS), standard);
        let targets: Vec<f32> = (0..12).map(|i| -(i as f32)).collect();
        assert_eq!(b.real(TARGETS), targets);
    }
    // Several files follow one another; a row of the model has room behind each sequence; one number for a whole sequence.
    let of_one = |n: usize| {
        let x = array(&format!("({n}, 2, 2)"), (0..4 * n).map(|i| i as f32));
        npz(
            &[
                ("in", x),
                ("out", array(&format!("({n}, 1)"), (0..n).map(|i| i as f32))),
            ],
            false,
        )
    };
    let files = [p.write("1.npz", &of_one(1)), p.write("2.npz", &of_one(2))];
    let whole = Vectors {
        inputs: "in".into(),
        targets: vec![Target {
            array: "out".into(),
            whole: true,
            ..target()
        }],
        mean: 0.0,
        std: 1.0,
        leading: 1,
        ..shape()
    };
    let b = all(opened(&files, &whole, 0).unwrap());
    assert_eq!((b.rows, b.columns), (3, 3));
    let row = |n: f32| [n, n + 1.0, n + 2.0, n + 3.0, 0.0, 0.0];
    assert_eq!(b.real(VECTORS), [row(0.0), row(0.0), row(4.0)].concat());
    assert_eq!(b.real(TARGETS), [0.0, 0.0, 1.0]);
}

/// A class for each sequence, as whole numbers of any width.
#[test]
fn classes_of_sequences_are_read() {
    let p = Place::new();
    let of_five = Vectors {
        targets: vec![Target {
            columns: 5,
            whole: true,
            classes: true,
            ..target()
        }],
        ..shape()
    };
    let [(_, x), _] = arrays(4);
    let file = |name: &str, classes: Vec<u8>| {
        p.write(name, &npz(&[("x", x.clone()), ("y", classes)], false))
    };
    let eight = [3i64, 0, 4, 1].iter().flat_map(|c| c.to_le_bytes());
    for file in [
        file("bytes.npz", npy("|u1", "(4,)", &[3, 0, 4, 1])),
        file("eight.npz", npy("<i8", "(4,)", &eight.collect::<Vec<u8>>())),
    ] {
        let b = all(opened(&[file], &of_five, 0).unwrap());
        assert_eq!((b.rows, b.columns, b.predicted), (4, 3, 4));
        assert_eq!(b.whole(TARGETS), [3, 0, 4, 1]);
        assert_eq!(b.real(VECTORS).len(), 24);
    }
    let mut said = vec![];
    for classes in [
        npy("|u1", "(4,)", &[3, 0, 5, 1]),
        npy("|i1", "(4,)", &[3, 255, 0, 1]),
        npy("|u1", "(4, 1)", &[3, 0, 4, 1]),
        array("(4,)", [0.0; 4]),
    ] {
        let e = opened(&[file("bad.npz", classes)], &of_five, 0).err();
        let e = e.expect("it is refused").to_string();
        said.push(e.replace(&p.0.path().display().to_string(), ""));
    }
    insta::assert_snapshot!(said.join("\n"));
}

/// Outputs with labels have an array each, in the same archive or in files beside, whose numbers belong to the same sequences.
#[test]
fn several_outputs_have_an_array_each() {
    let p = Place::new();
    let two = Vectors {
        targets: vec![
            target(),
            Target {
                output: "kind".into(),
                array: "kind".into(),
                columns: 5,
                whole: true,
                classes: true,
                ..target()
            },
        ],
        ..shape()
    };
    let [x, y] = arrays(4);
    let kind = npy("|u1", "(4,)", &[3, 0, 4, 1]);
    p.write("train-y.npy", &y.1);
    p.write("train-kind.npy", &kind);
    let one = p.write("train-x.npy", &x.1);
    let both = p.write("a.npz", &npz(&[x, y, ("kind", kind)], false));
    for file in [&one, &both] {
        let b = all(opened(std::slice::from_ref(file), &two, 0).unwrap());
        assert_eq!(b.real(TARGETS)[4], -4.0);
        assert_eq!(b.whole("kind.targets"), [3, 0, 4, 1]);
    }
    let b = all(opened(&[both.clone(), both], &two, 0).unwrap());
    assert_eq!(b.whole("kind.targets"), [3, 0, 4, 1, 3, 0, 4, 1]);
    let missing = p.write("b.npz", &npz(&arrays(4), true));
    let e = opened(&[missing], &two, 0).err().expect("it is refused");
    assert!(e.to_string().contains("it has no array `kind`"), "{e}");
}

#[test]
fn an_epoch_has_each_sequence_for_training_once() {
    let p = Place::new();
    let plain = Vectors {
        mean: 0.0,
        std: 1.0,
        ..shape()
    };
    let file = p.write("a.npz", &npz(&arrays(50), true));
    let set = opened(&[file], &plain, 20).unwrap();
    assert_eq!(set.held_out_rows(3), 10);
    let draw = |step| Draw {
        seed: 1,
        step,
        batch: 4,
        tokens: None,
    };
    let numbers = |b: &Batch| -> Vec<usize> {
        let rows = b.real(VECTORS).chunks(6).zip(b.real(TARGETS).chunks(3));
        let number = |(x, y): (&[f32], &[f32])| {
            assert_eq!(y[0], -x[0] / 2.0, "an input and its own targets");
            x[0] as usize / 6
        };
        rows.map(number).collect()
    };
    let steps = (0..10).flat_map(|s| numbers(&set.training_batch(draw(s), 0..4, 3).unwrap()));
    let once: BTreeSet<usize> = steps.collect();
    assert_eq!(once.len(), 40);
    let again = set.training_batch(draw(3), 1..3, 3).unwrap();
    let whole = set.training_batch(draw(3), 0..4, 3).unwrap();
    assert_eq!(numbers(&whole)[1..3], numbers(&again));
    let held: Vec<usize> = set
        .held_out_batches(4, 3, None)
        .unwrap()
        .flat_map(|b| numbers(&b.unwrap()))
        .collect();
    assert!(held.is_sorted() && held.len() == 10 && held.iter().all(|n| !once.contains(n)));
}

#[test]
fn damaged_and_odd_files_are_named() {
    let p = Place::new();
    let mut said = vec![];
    let mut refused = |files: &[PathBuf], shape: &Vectors| {
        let e = opened(files, shape, 0)
            .err()
            .expect("it is refused")
            .to_string();
        said.push(e.replace(&p.0.path().display().to_string(), ""));
    };
    let plain = shape();
    let [(_, x), (_, y)] = arrays(4);
    let pair = |x: &[u8], y: &[u8]| npz(&[("x", x.to_vec()), ("y", y.to_vec())], true);
    refused(&[p.0.path().join("nowhere.npz")], &plain);
    refused(&[p.write("a.txt", b"numbers")], &plain);
    refused(&[p.write("damaged.npz", b"no archive")], &plain);
    refused(
        &[p.write("names.npz", &npz(&[("x", x.clone())], true))],
        &plain,
    );
    refused(&[p.write("alone-x.npy", &x)], &plain);
    refused(&[p.write("train.npy", &x)], &plain);
    let zeros = |n: usize| vec![0.0; n];
    let mut bad = zeros(24);
    bad[15] = f32::NAN;
    let mut far = zeros(12);
    far[4] = 1.5;
    for (name, x, y) in [
        ("flat", array("(4, 6)", zeros(24)), y.clone()),
        ("width", array("(4, 2, 3)", zeros(24)), y.clone()),
        ("long", array("(3, 4, 2)", zeros(24)), y.clone()),
        ("none", array("(0, 3, 2)", []), array("(0, 3, 1)", [])),
        ("counts", x.clone(), array("(3, 3, 1)", zeros(9))),
        ("columns", x.clone(), array("(4, 3, 2)", zeros(24))),
        ("of_all", x.clone(), array("(4, 1)", zeros(4))),
        ("whole", npy("<i4", "(4, 3, 2)", &[0; 96]), y.clone()),
        ("cut", npy("<f4", "(4, 3, 2)", &[0; 90]), y.clone()),
        ("nan", array("(4, 3, 2)", bad), y.clone()),
        (
            "infinite",
            x.clone(),
            array("(4, 3, 1)", [f32::INFINITY; 12]),
        ),
    ] {
        refused(&[p.write(&format!("{name}.npz"), &pair(&x, &y))], &plain);
    }
    let events = Vectors {
        targets: vec![Target {
            events: true,
            ..target()
        }],
        ..shape()
    };
    let far = pair(&x, &array("(4, 3, 1)", far));
    refused(&[p.write("far.npz", &far)], &events);
    let short = pair(&array("(1, 2, 2)", zeros(4)), &array("(1, 2, 1)", zeros(2)));
    let files = [
        p.write("a.npz", &pair(&x, &y)),
        p.write("short.npz", &short),
    ];
    refused(&files, &plain);
    insta::assert_snapshot!(said.join("\n"));
}
