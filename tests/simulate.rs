//! `odec simulate`: what it prints, writes and draws, and what it refuses. Its numbers are compared with equations in float64 by
//! `tests/reference/check.py`.

mod place;

use place::{Place, npy};
use safetensors::SafeTensors;
use serde_json::Value;

/// Points that see each other, and numbers that are multiplied by a matrix.
const MODEL: &str = "field att = attend(linear, linear, linear, heads: 1)

model few {
  input  vectors(width: 3, context: 12)
  embed  id
  evolve rk4(att) for 20 steps { h = 1/10;  weights shared }
  output state
  init   normal(std: 1/2)
}
";

fn place() -> Place {
    let place = Place::new();
    place.write("few.ode", MODEL);
    place
}

/// An array of numbers as a `.npy` file.
fn points(place: &Place, name: &str, shape: &str, numbers: &[f64]) {
    let elements: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let bytes = npy("<f8", shape, &elements);
    std::fs::write(place.path().join(name), bytes).expect("written");
}

fn tensor(place: &Place, file: &str, name: &str) -> (Vec<usize>, Vec<f64>) {
    let bytes = std::fs::read(place.path().join(file)).expect(file);
    let tensors = SafeTensors::deserialize(&bytes).expect(file);
    let t = tensors.tensor(name).expect(name);
    let numbers = t.data().chunks_exact(8);
    let numbers = numbers.map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes")));
    (t.shape().to_vec(), numbers.collect())
}

#[test]
fn paths_are_printed_written_and_drawn() {
    let place = place();
    let said = place.good(&[
        "simulate",
        "few.ode",
        "--svg",
        "pictures",
        "-o",
        "paths.safetensors",
    ]);
    assert!(
        said.contains("12 points, 20 steps") && said.contains("rk4(att)"),
        "{said}"
    );
    assert!(
        said.contains("0 to 2") && said.contains("12 at first"),
        "{said}"
    );
    let (shape, times) = tensor(&place, "paths.safetensors", "times");
    assert_eq!((shape, times[20]), (vec![21], 2.0));
    let (shape, states) = tensor(&place, "paths.safetensors", "states");
    assert_eq!(shape, [21, 12, 3]);
    assert!(states[..36].iter().all(|x| (-2.0..2.0).contains(x)));
    let (shape, _) = tensor(&place, "paths.safetensors", "att.linear.1.weight");
    assert_eq!(shape, [3, 3]);
    let picture = place.read("pictures/few.paths.svg");
    assert_eq!(picture.matches("<path class=\"line\"").count(), 12);
    assert_eq!(picture.matches("<circle").count(), 24);
    assert!(picture.contains("rk4(att)"));
    let clusters = place.read("pictures/few.clusters.svg");
    assert!(clusters.contains("clusters") && clusters.contains("spread"));
    // The same again, bit for bit; and as JSON.
    place.good(&[
        "simulate",
        "few.ode",
        "--svg",
        "again",
        "-o",
        "again.safetensors",
    ]);
    for name in ["few.paths.svg", "few.clusters.svg"] {
        assert_eq!(
            place.read(&format!("again/{name}")),
            place.read(&format!("pictures/{name}"))
        );
    }
    assert_eq!(tensor(&place, "again.safetensors", "states").1, states);
    let json: Value =
        serde_json::from_str(&place.good(&["simulate", "few.ode", "--json"])).expect("JSON");
    assert_eq!(
        (&json["points"], &json["steps"], &json["flows"][0]),
        (&12.into(), &20.into(), &"rk4(att)".into())
    );
    assert_eq!(json["clusters"].as_array().map(Vec::len), Some(21));
    let other = place.good(&["simulate", "few.ode", "--json", "--seed", "1"]);
    let other: Value = serde_json::from_str(&other).expect("JSON");
    assert_ne!(other["spread"], json["spread"]);
}

/// Points and parameters of files: what one run wrote gives another the same paths, and steps may be taken apart.
#[test]
fn points_and_parameters_are_read_from_files() {
    let place = place();
    place.good(&["simulate", "few.ode", "--count", "5", "-o", "a.safetensors"]);
    let (_, states) = tensor(&place, "a.safetensors", "states");
    points(&place, "start.npy", "(5, 3)", &states[..15]);
    points(&place, "half.npy", "(5, 3)", &states[150..165]);
    let given = [
        "simulate",
        "few.ode",
        "--seed",
        "9",
        "--parameters",
        "a.safetensors",
    ];
    place.good(
        &[
            &given[..],
            &["--points", "start.npy", "-o", "b.safetensors"],
        ]
        .concat(),
    );
    assert_eq!(tensor(&place, "b.safetensors", "states").1, states);
    let rest = [
        "--points",
        "half.npy",
        "--set",
        "model.steps=10",
        "-o",
        "c.safetensors",
    ];
    place.good(&[&given[..], &rest].concat());
    assert_eq!(tensor(&place, "c.safetensors", "states").1, states[150..]);
    place.good(&[
        "simulate",
        "few.ode",
        "--start",
        "sphere",
        "-o",
        "d.safetensors",
    ]);
    let (_, states) = tensor(&place, "d.safetensors", "states");
    for point in states[..36].chunks(3) {
        let square: f64 = point.iter().map(|x| x * x).sum();
        assert!((square - 1.0).abs() < 1e-14);
    }
}

/// Points that attention pulls along the sphere stay on it, and gather (Geshkovski et al. 2023, "A mathematical perspective on Transformers").
#[test]
fn points_on_a_sphere_stay_there() {
    let place = Place::new();
    place.write(
        "sphere.ode",
        "field slide {
  y = attend(id, id, id, heads: 1, scale: 4)
  return y - sum(y*id)*id
}

model sphere {
  input  vectors(width: 3, context: 40)
  embed  id
  evolve rk4(slide) for 200 steps { h = 1/10;  weights shared }
  output state
}
",
    );
    let given = [
        "simulate",
        "sphere.ode",
        "--start",
        "sphere",
        "--json",
        "--svg",
        ".",
        "-o",
        "s.safetensors",
    ];
    let said: serde_json::Value = serde_json::from_str(&place.good(&given)).expect("JSON");
    for point in tensor(&place, "s.safetensors", "states").1.chunks(3) {
        let length = point.iter().map(|x| x * x).sum::<f64>().sqrt();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    let counts: Vec<u64> = said["clusters"]
        .as_array()
        .expect("counts")
        .iter()
        .filter_map(|n| n.as_u64())
        .collect();
    assert!(counts[0] > 30 && counts[200] <= 3, "{counts:?}");
    // The sphere is drawn around them.
    assert_eq!(
        place
            .read("sphere.paths.svg")
            .matches("<path class=\"grid\"")
            .count(),
        1
    );
}

#[test]
fn what_does_not_fit_is_said() {
    let place = place();
    points(&place, "wide.npy", "(5, 4)", &[0.0; 20]);
    points(&place, "many.npy", "(13, 3)", &[0.0; 39]);
    points(&place, "none.npy", "(0, 3)", &[]);
    let mut bad = [0.0; 15];
    bad[7] = f64::NAN;
    points(&place, "nan.npy", "(5, 3)", &bad);
    place.write("text.npy", "no array");
    points(
        &place,
        "far.npy",
        "(2, 3)",
        &[1e300, -1e300, 1e300, 1.0, 2.0, 3.0],
    );
    let from = |file| vec!["--points", file];
    for (given, wanted) in [
        (
            from("wide.npy"),
            "its shape is [5, 4]; points of this model are [points, 3]",
        ),
        (
            from("many.npy"),
            "it holds 13 points; this model takes at most 12",
        ),
        (from("none.npy"), "it holds no points"),
        (
            from("nan.npy"),
            "point 2, column 1 (counted from 0), is NaN",
        ),
        (from("text.npy"), "it is no .npy file"),
        (from("nowhere.npy"), "there are no points at nowhere.npy"),
        (from("far.npy"), "a coordinate is"),
        (vec!["--count", "13"], "1 to 12 points"),
        (vec!["--count", "0"], "1 to 12 points"),
        (vec!["--within", "2"], "a share from 0 to 1"),
        (
            vec!["--parameters", "nowhere.safetensors"],
            "nowhere.safetensors",
        ),
    ] {
        let (code, said) = place.bad(&[&["simulate", "few.ode"], &given[..]].concat());
        assert!(code == 1 && said.contains(wanted), "{given:?}: {said}");
    }
    place.good(&["simulate", "few.ode", "-o", "a.safetensors"]);
    let narrow = MODEL.replace("width: 3", "width: 2");
    place.write("narrow.ode", &narrow);
    let (code, said) = place.bad(&["simulate", "narrow.ode", "--parameters", "a.safetensors"]);
    assert!(
        code == 1 && said.contains("wrong shape: att.linear.1.weight is [3, 3] and must be [2, 2]"),
        "{said}"
    );
    let (code, said) = place.bad(&["simulate", "tiny.ode"]);
    assert!(
        code == 1 && said.contains("this model reads tokens") && said.contains("tiny.ode:8:3"),
        "{said}"
    );
    place.write(
        "none.ode",
        "scheme one(F) { step x { return x + h*F(x) } }\n",
    );
    let (code, said) = place.bad(&["simulate", "none.ode"]);
    assert!(code == 1 && said.contains("there is no model"), "{said}");
}
