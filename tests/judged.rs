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

/// Images in PNG files are classified as those that were trained on.
#[test]
fn images_that_are_given_are_classified() {
    let place = Place::new();
    let write = |name: &str, side: u32, bytes: &[u8]| {
        let path = place.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let file = std::fs::File::create(path).expect("a file");
        let mut encoder = png::Encoder::new(file, side, side);
        encoder.set_color(png::ColorType::Grayscale);
        let mut writer = encoder.write_header().expect("PNG");
        writer.write_image_data(bytes).expect("written");
    };
    // Images of class 1 are brighter on the left, those of class 0 on the right.
    let image = |class: u8, n: u8| -> Vec<u8> {
        let (n, one) = (u32::from(n), |x: u32| x as u8);
        let pixel = |at: u32| match (at % 4 < 2) == (class == 1) {
            true => one(200 + (7 * n + at) % 50),
            false => one((5 * n + 3 * at) % 100),
        };
        (0..16).map(pixel).collect()
    };
    for n in 0..40 {
        for class in 0..2 {
            write(&format!("sides/{class}/{n}.png"), 4, &image(class, n));
        }
    }
    place.write(
        "sides.ode",
        "field f = rmsnorm |> swiglu(hidden: 8)\nmodel sides {\n  input patches(image: 4, patch: 2)\n  \
         embed linear(width: 8, bias), positions(learned)\n  evolve euler(f) for 1 step\n  output classes(2)\n  init normal(std: 0.3)\n}\n\
         train { data images(\"sides\", classes: 2);  loss cross_entropy;  optimizer adamw(lr: 2e-2);  batch 16;  steps 80 }\n",
    );
    place.good(&["train", "sides.ode", "--out", "run"]);
    write("left.png", 4, &image(1, 41));
    write("right.png", 4, &image(0, 41));
    let told = place.good(&["classify", "run", "left.png", "right.png", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    for (n, class) in [(0, 1), (1, 0)] {
        let sure = told[n]["probabilities"][class].as_f64();
        assert!(told[n]["class"] == class && sure > Some(0.8), "{told}");
    }
    assert!(
        place
            .good(&["classify", "run", "left.png"])
            .starts_with("1 ")
    );
    write("large.png", 5, &[0; 25]);
    for (given, words) in [("large.png", "large.png"), ("gone.png", "gone.png")] {
        let (code, said) = place.bad(&["classify", "run", "left.png", given]);
        assert!(code == 1 && said.contains(words), "{said}");
    }
    place.good(&[
        "train",
        "tiny.ode",
        "--out",
        "text",
        "--set",
        "train.steps=1",
    ]);
    let (code, said) = place.bad(&["classify", "text", "a"]);
    assert!(code == 1 && said.contains("classifies neither"), "{said}");
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
