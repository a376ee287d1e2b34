//! A run that moves noise to images: trained, resumed, judged, and asked for images.

#![cfg(feature = "mlir")]

mod place;

use odec_runtime::data::written::{Elements, npz};
use place::Place;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const MODEL: &str = r#"
field att = rmsnorm |> attention(heads: 2)
field ffn = rmsnorm |> swiglu(hidden: 32)

model bars {
  input  patches(image: 4, patch: 2)
  embed  linear(width: 16, bias), time_token(scale: 4), label_token(classes: 2, dropped: 10%), positions(learned)
  evolve lie(att, ffn) for 2 steps
  output rmsnorm |> linear(4, bias)
  init   normal(std: 0.1)
}

train {
  data      images("train-images-idx3", classes: 2, mean: 0.5, std: 0.5, held_out: 20%)
  loss      velocity(time: logit_normal)
  optimizer adamw(lr: 5e-3)
  batch 16;  accumulate 2;  steps 400;  clip 1.0;  seed 0
}
"#;

/// Tells the same images apart.
const CLASSIFIER: &str = r#"
field ffn = rmsnorm |> swiglu(hidden: 16)

model told {
  input  patches(image: 4, patch: 4)
  embed  linear(width: 16, bias)
  evolve euler(ffn) for 1 step
  output rmsnorm |> classes(2)
  init   normal(std: 0.1)
}

train {
  data      images("train-images-idx3", classes: 2, mean: 0.5, std: 0.5, held_out: 20%)
  loss      cross_entropy
  optimizer adamw(lr: 1e-2)
  batch 16;  steps 60;  clip 1.0;  seed 0
}
"#;

fn idx(shape: &[u32], data: impl Iterator<Item = u8>) -> Vec<u8> {
    let lengths = shape.iter().flat_map(|n| n.to_be_bytes());
    let head = [0, 0, 8, shape.len() as u8].into_iter().chain(lengths);
    head.chain(data).collect()
}

/// Upright bars are class 0, lying ones class 1, each at one of four places.
fn place() -> Place {
    let place = Place::new();
    place.write("bars.ode", MODEL);
    place.write("told.ode", CLASSIFIER);
    let pixel = |i: u32| {
        let (n, y, x) = (i / 16, i / 4 % 4, i % 4);
        let along = if n % 2 == 0 { x } else { y };
        if along == n / 2 % 4 { 255 } else { 0 }
    };
    let bytes = |name, bytes| std::fs::write(place.path().join(name), bytes).expect("written");
    bytes(
        "train-images-idx3",
        idx(&[160, 4, 4], (0..160 * 16).map(pixel)),
    );
    bytes("train-labels-idx1", idx(&[160], (0..160).map(|n| n % 2)));
    place
}

/// The keys of what `odec generate --json` prints; of lists, `key[]`.
fn keys_of(facts: &Value) -> BTreeSet<String> {
    let fields = facts.as_object().expect("an object").iter();
    let name = |(key, value): (&String, &Value)| match value {
        Value::Array(_) => format!("{key}[]"),
        _ => key.clone(),
    };
    fields.map(name).collect()
}

/// The keys that docs/json.md has for a command.
fn documented(command: &str) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md");
    let page = std::fs::read_to_string(page).expect("docs/json.md");
    let section = page.split("\n## ").find(|s| s.starts_with(command));
    let rows = section.expect("a section").lines();
    let keys = rows.filter_map(|l| l.strip_prefix("| `")?.split('`').next());
    keys.map(String::from).collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect(text)
}

/// Width, height and pixels of a grey picture.
fn picture(path: &Path) -> (u32, u32, Vec<u8>) {
    let file = std::io::BufReader::new(std::fs::File::open(path).expect("a picture"));
    let mut reader = png::Decoder::new(file).read_info().expect("PNG");
    let (width, height) = reader.info().size();
    let mut bytes = vec![0; (width * height) as usize];
    reader.next_frame(&mut bytes).expect("grey");
    (width, height, bytes)
}

#[test]
fn a_run_learns_to_draw_images_of_a_class() {
    let place = place();
    place.good(&["train", "bars.ode", "--out", "run"]);
    // A run that was stopped goes on as if it had not been.
    place.good(&["train", "bars.ode", "--out", "two", "--steps", "150"]);
    let early = json(&place.good(&["eval", "two", "--json"]));
    place.good(&["train", "--resume", "two", "--steps", "400"]);
    assert!(place.tensors("run") == place.tensors("two"));

    // The same points are evaluated each time.
    let judged = place.good(&["eval", "run", "--json"]);
    assert_eq!(judged, place.good(&["eval", "run", "--json"]));
    let judged = json(&judged);
    assert_eq!(
        (&judged["images"], &judged["loss"]),
        (&32.into(), &judged["velocity"])
    );
    assert!(judged["accuracy"].is_null());
    let loss = |of: &Value| of["velocity"].as_f64().expect("a loss");
    // Noise and images have a variance of 1 and 3/4 about, which no velocity at all is off by.
    assert!(
        loss(&judged) < 0.9 && loss(&judged) < loss(&early),
        "{judged}, {early}"
    );
    let said = place.good(&["eval", "run"]);
    assert!(
        said.contains("32 predicted images of") && said.contains("velocity "),
        "{said}"
    );

    place.good(&["train", "told.ode", "--out", "told"]);
    let drawn = |args: &[&str]| place.good(&[&["generate", "run"], args].concat());
    let facts = json(&drawn(&[
        "--scheme",
        "dormand_prince",
        "--steps",
        "8",
        "-o",
        "all.png",
        "--count",
        "20",
        "--classifier",
        "told",
        "--json",
    ]));
    assert_eq!(
        (
            &facts["order"],
            &facts["evaluations_per_step"],
            &facts["evaluations"]
        ),
        (&5.into(), &6.into(), &48.into())
    );
    assert_eq!((&facts["images"], &facts["steps"]), (&40.into(), &8.into()));
    assert_eq!(keys_of(&facts), documented("`odec generate RUN -o FILE"));
    assert!(facts["recognised"].as_f64().unwrap() > 0.75, "{facts}");
    assert_eq!(facts["guidance"], 1.0);
    let guided = [
        "--scheme",
        "heun",
        "--steps",
        "4",
        "-o",
        "more.png",
        "--guidance",
        "2",
    ];
    let said = drawn(&guided);
    assert!(
        said.contains("each with and without the class: guidance 2"),
        "{said}"
    );
    // Errors fall with steps, and faster with a higher order, at equal evaluations.
    let facts = json(&drawn(&[
        "--errors",
        "euler,rk4",
        "-o",
        "errors.svg",
        "--count",
        "1",
        "--json",
    ]));
    assert_eq!(
        keys_of(&facts),
        documented("`odec generate RUN --errors SCHEMES")
    );
    assert_eq!(facts["images"], 2);
    let points = |n: usize| {
        let scheme = &facts["schemes"][n];
        let all = scheme["points"].as_array().expect("points").iter();
        all.map(|p| {
            (
                p["evaluations"].as_u64().unwrap(),
                p["error"].as_f64().unwrap(),
            )
        })
    };
    let at = |n: usize, evaluations: u64| {
        let mut all = points(n).filter(|p| p.0 == evaluations);
        all.next().expect("a point").1
    };
    assert_eq!((points(0).count(), points(1).count()), (9, 7));
    assert!(at(0, 256) < at(0, 4) / 10.0 && at(1, 256) < at(0, 256) / 4.0);
    let svg = std::fs::read_to_string(place.path().join("errors.svg")).expect("a picture");
    assert_eq!(svg.matches("<polyline").count(), 4);
    assert!(svg.contains("distance from 256 steps of rk4") && svg.contains(">euler<"));
    // Two rows of twenty images of 4 × 4, two pixels between them.
    let (width, height, pixels) = picture(&place.path().join("all.png"));
    assert_eq!((width, height), (20 * 4 + 19 * 2, 10));
    assert!((0..height).all(|y| pixels[(y * width + 4) as usize] == 128));
    // One class alone; the same seed draws the same image, another another.
    let one = [
        "--scheme", "midpoint", "--steps", "3", "--class", "1", "--count", "1", "-o",
    ];
    let said = drawn(&[&one[..], &["a.png"]].concat());
    assert!(
        said.contains("1 images in a.png")
            && said.contains("midpoint (order 2, proved): 3 steps of 2 evaluations, 6 evaluations"),
        "{said}"
    );
    drawn(&[&one[..], &["b.png"]].concat());
    drawn(&[&one[..], &["c.png", "--seed", "1"]].concat());
    let [a, b, c] = ["a.png", "b.png", "c.png"].map(|name| picture(&place.path().join(name)));
    assert_eq!((a.0, a.1), (4, 4));
    assert!(a == b && a != c);
}

/// Points on two lines, a class each.
const POINTS: &str = r#"
field ffn = (1 + (condition |> linear(bias)))*rmsnorm |> gelu(hidden: 32, bias)

model lines {
  input  vectors(width: 2, context: 1)
  embed  linear(width: 16, bias), condition(time_token(scale: 4), label_token(classes: 2, dropped: 10%))
  evolve euler(ffn) for 2 steps
  output rmsnorm |> linear(2, bias)
  init   normal(std: 0.1)
}

train {
  data      vectors("lines.npz", mean: 1/2, std: 2, held_out: 20%)
  loss      velocity
  optimizer adamw(lr: 5e-3)
  batch 32;  steps 600;  clip 1.0;  seed 0
}
"#;

/// What is drawn can be trained on, seen, and told apart.
#[test]
fn a_run_learns_to_draw_vectors() {
    let place = Place::new();
    place.write("lines.ode", POINTS);
    let images = r#"images("train-images-idx3", classes: 2, mean: 0.5, std: 0.5, held_out: 20%)"#;
    let vectors = r#"vectors("lines.npz", mean: 1/2, std: 2, held_out: 20%)"#;
    let line = CLASSIFIER.replace(images, vectors);
    let patches = "patches(image: 4, patch: 4)";
    place.write(
        "line.ode",
        &line.replace(patches, "vectors(width: 2, context: 1)"),
    );
    // Class 0 at the height 2, class 1 at −2, from −1 to 1.
    let point = |n: u32| [f64::from(n / 2) / 50.0 - 1.0, 2.0 - f64::from(n % 2) * 4.0];
    let points: Vec<f64> = (0..200).flat_map(point).collect();
    let kinds: Vec<i64> = (0..200).map(|n| n % 2).collect();
    let arrays = npz(&[
        ("x", &[200, 1, 2], Elements::Real(&points)),
        ("y", &[200], Elements::Whole(&kinds)),
    ]);
    std::fs::write(place.path().join("lines.npz"), arrays.expect("an archive")).expect("written");

    place.good(&["train", "lines.ode", "--out", "run"]);
    place.good(&["train", "line.ode", "--out", "line"]);
    let drawn = |args: &[&str]| {
        place.good(
            &[
                &["generate", "run", "--scheme", "heun", "--steps", "8"],
                args,
            ]
            .concat(),
        )
    };
    let facts = json(&drawn(&[
        "-o",
        "a.npz",
        "--count",
        "50",
        "--classifier",
        "line",
        "--json",
    ]));
    assert_eq!(facts["sequences"], 100);
    let mut keys = documented("`odec generate RUN -o FILE");
    keys.remove("images");
    keys.insert("sequences".into());
    assert_eq!(keys_of(&facts), keys);
    assert!(facts["recognised"].as_f64().unwrap() > 0.9, "{facts}");
    let said = drawn(&["-o", "b.svg", "--class", "1", "--guidance", "2"]);
    assert!(
        said.contains("8 sequences in b.svg") && said.contains("for each sequence, each with"),
        "{said}"
    );
    let svg = place.read("b.svg");
    assert!(
        svg.contains("8 of the data, held out") && svg.contains("8 drawn"),
        "{svg}"
    );
    assert_eq!(svg.matches("<circle").count(), 16);
    // The arrays are those that training reads, in the numbers of the data.
    let again = place.good(&["eval", "line", "--data", "a.npz", "--json"]);
    assert!(json(&again)["accuracy"].as_f64().unwrap() > 0.9, "{again}");
    let errors = [
        "generate",
        "run",
        "--errors",
        "euler,rk4",
        "-o",
        "errors.svg",
        "--count",
        "1",
    ];
    let said = place.good(&errors);
    assert!(
        said.contains("of numbers from 256 steps of rk4, 2 sequences"),
        "{said}"
    );
    place.good(&["bench", "lines.ode", "--steps", "1"]);

    let refused = |args: &[&str], part: &str| {
        let (code, said) = place.bad(
            &[
                &["generate", "run", "--scheme", "heun", "--steps", "1"],
                args,
            ]
            .concat(),
        );
        assert!(code == 1 && said.contains(part), "{args:?}: {said}");
    };
    refused(
        &["-o", "x.png"],
        "name a file ….npz for their numbers, or ….svg",
    );
    refused(
        &["-o", "x.svg", "--class", "2"],
        "2 classes, 0 to 1; 2 is none",
    );
    refused(
        &["-o", "x.svg", "--classifier", "run"],
        "does not tell classes of sequences",
    );
    // Without the data there is a picture of what is drawn.
    std::fs::remove_file(place.path().join("lines.npz")).expect("removed");
    drawn(&["-o", "c.svg"]);
    assert_eq!(place.read("c.svg").matches("<circle").count(), 16);
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let place = place();
    place.good(&["train", "bars.ode", "--out", "run", "--steps", "2"]);
    place.good(&["train", "told.ode", "--out", "told", "--steps", "2"]);
    let refused = |run: &str, args: &[&str], part: &str| {
        let (code, said) = place.bad(&[&["generate", run], args].concat());
        assert!(code == 1 && said.contains(part), "{args:?}: {said}");
    };
    let draw = |scheme| ["--scheme", scheme, "--steps", "2", "-o", "x.png"];
    for (scheme, why) in [
        ("rk5", "no such scheme, did you mean `rk"),
        ("attention", "no such scheme"),
        ("gauss4", "implicit"),
        ("strang", "several fields"),
        ("ab2", "looks back"),
        ("rk4_learned", "learned"),
    ] {
        refused("run", &draw(scheme), why);
        refused("run", &draw(scheme), "`odec schemes explicit`");
    }
    let compare = |schemes| ["--errors", schemes, "-o", "x.png"];
    refused("run", &compare("rk4,gauss4"), "implicit");
    refused("told", &compare("rk4"), "not trained with `loss velocity`");
    let good = draw("euler");
    refused(
        "run",
        &[&good[..], &["--class", "2"]].concat(),
        "2 classes, 0 to 1; 2 is none",
    );
    refused(
        "run",
        &[&good[..], &["--classifier", "run"]].concat(),
        "does not tell classes",
    );
    refused("told", &good, "not trained with `loss velocity`");
    place.write("always.ode", &MODEL.replace(", dropped: 10%", ""));
    place.good(&["train", "always.ode", "--out", "always", "--steps", "2"]);
    let guided = [&good[..], &["--guidance", "2"]].concat();
    refused("always", &guided, "label_token(classes: …, dropped: 10%)");
    let guided = [&compare("rk4")[..], &["--guidance", "2"]].concat();
    refused("always", &guided, "label_token(classes: …, dropped: 10%)");
    refused("run", &["--prompt", "a"], "-o samples.png");
    // `eval` has no `-o`: what draws is named.
    let (code, said) = place.bad(&["eval", "run", "--weights", "int8"]);
    assert!(
        code == 1 && said.contains("leave it out") && said.contains("`odec generate RUN --scheme"),
        "{said}"
    );
    refused("told", &["--prompt", "a"], "tells classes");
    let [negative, none] = ["-1", "NaN"].map(|w| [&good[..], &["--guidance", w]].concat());
    for args in [
        &good[..4],
        &["-o", "x.png"],
        &[],
        &["-o", "x.png", "--prompt", "a"],
        &["--errors", "rk4"],
        &["--prompt", "a", "--guidance", "2"],
        &negative,
        &none,
        &["--errors", "rk4", "-o", "x.png", "--steps", "3"],
        &["--errors", "rk4", "--scheme", "rk4", "-o", "x.png"],
    ] {
        let (code, _) = place.bad(&[&["generate", "run"], args].concat());
        assert_eq!(code, 2, "{args:?}");
    }
    // What is missing is named, and nothing that is there or that another model needs.
    for (args, missing) in [
        (&["-o", "x.png"][..], "give --scheme SCHEME, --steps N too"),
        (
            &["--class", "1"],
            "give --output FILE, --scheme SCHEME, --steps N too",
        ),
        (&["--errors", "rk4"], "give --output FILE too"),
    ] {
        let (_, said) = place.bad(&[&["generate", "run"], args].concat());
        assert!(
            said.contains(missing) && !said.contains("--prompt"),
            "{args:?}: {said}"
        );
    }
    assert!(!place.path().join("x.png").exists());
}
