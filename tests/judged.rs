//! Models that tell classes, of images and of sequences of vectors: trained, judged, and their tables drawn.

#![cfg(feature = "mlir")]

mod place;

use place::{Place, npy};

/// A confusion matrix is drawn of models of images with few classes; what cannot be drawn is refused before anything is evaluated.
#[test]
fn images_are_judged_and_their_table_is_drawn() {
    let place = Place::new();
    let idx = |shape: &[u8], data: Vec<u8>| -> Vec<u8> {
        let lengths = shape.iter().flat_map(|n| [0, 0, 0, *n]);
        let head = [0, 0, 8, shape.len() as u8].into_iter().chain(lengths);
        head.chain(data).collect()
    };
    let bytes = |name: &str, bytes: Vec<u8>| {
        std::fs::write(place.path().join(name), bytes).expect("written");
    };
    let grey = (0..40 * 4).map(|n| (n * 7 % 256) as u8).collect();
    bytes("train-images-idx3", idx(&[40, 2, 2], grey));
    bytes(
        "train-labels-idx1",
        idx(&[40], (0..40).map(|n| n % 3).collect()),
    );
    for (name, classes) in [("few", 3), ("many", 257)] {
        let text = format!(
            "field f = rmsnorm |> swiglu(hidden: 8)\nmodel {name} {{\n  input patches(image: 2, patch: 1)\n  \
             embed linear(width: 4)\n  evolve euler(f) for 1 step\n  output classes({classes})\n}}\n\
             train {{ data images(\"train-images-idx3\", classes: {classes});  optimizer adamw(lr: 1e-3);  batch 2;  steps 2 }}\n"
        );
        place.write(&format!("{name}.ode"), &text);
        place.good(&["train", &format!("{name}.ode"), "--out", name]);
        let said = place.good(&["eval", name]);
        assert!(
            said.contains("4 classified images of") && said.contains(" % correct"),
            "{said}"
        );
    }
    place.good(&["eval", "few", "--svg", "few.svg"]);
    assert!(place.read("few.svg").contains("Classes predicted by few"));
    let (code, said) = place.bad(&["eval", "many", "--svg", "many.svg"]);
    assert!(
        code == 1 && said.contains("257 classes") && said.contains("at most 256"),
        "{said}"
    );
    assert!(!place.path().join("many.svg").exists());
    // No image is no evaluation.
    let (code, said) = place.bad(&["eval", "few", "--windows", "0"]);
    assert!(code == 2 && said.contains("--windows"), "{said}");
}

/// Which of two lines vectors come near: a model tells, and says how often it is right.
#[test]
fn sequences_of_vectors_are_classified() {
    let place = Place::new();
    let (count, positions) = (200, 4);
    // Sequences of class 1 grow from one vector to the next, those of class 0 shrink.
    let number = |i: usize| {
        let (sequence, rest) = (i / (positions * 2), i % (positions * 2));
        let step = (rest / 2) as f32 / 4.0;
        let noise = (i * 7919 % 101) as f32 / 500.0;
        if sequence % 2 == 1 {
            step + noise
        } else {
            1.0 - step + noise
        }
    };
    let elements = (0..count * positions * 2).flat_map(|i| number(i).to_le_bytes());
    let inputs = npy(
        "<f4",
        &format!("({count}, {positions}, 2)"),
        &elements.collect::<Vec<u8>>(),
    );
    let classes: Vec<u8> = (0..count).map(|n| (n % 2) as u8).collect();
    let targets = npy("|u1", &format!("({count},)"), &classes);
    for (name, bytes) in [("train-x.npy", inputs), ("train-y.npy", targets)] {
        std::fs::write(place.path().join(name), bytes).expect("written");
    }
    place.write(
        "lines.ode",
        "field f = rmsnorm |> attention(heads: 1)\nmodel lines {\n  input vectors(width: 2, context: 4)\n  \
         embed linear(width: 8, bias), positions(learned)\n  evolve euler(f) for 1 step\n  output classes(2)\n  init normal(std: 0.3)\n}\n\
         train { data vectors(\"train-x.npy\", held_out: 20%);  loss cross_entropy;  optimizer adamw(lr: 2e-2);  batch 16;  steps 60 }\n",
    );
    place.good(&["train", "lines.ode", "--out", "run"]);
    let said = place.good(&["eval", "run", "--svg", "table.svg"]);
    assert!(
        said.contains("40 classified sequences of") && said.contains(" % correct"),
        "{said}"
    );
    assert!(
        place
            .read("table.svg")
            .contains("Classes predicted by lines")
    );
    let json = place.good(&["eval", "run", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["accuracy"].as_f64() > Some(0.95), "{json}");
}
