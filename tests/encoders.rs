//! Encoders that predict hidden tokens, next sentences and classes of texts, trained as the library has them.

#![cfg(feature = "mlir")]

mod place;

use place::Place;
use serde_json::Value;
use std::path::Path;

/// Trains the library's BERT at a small size, and evaluates it.
fn trained(place: &Place, run: &str, steps: &str, sets: &[&str]) -> Value {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemes/models/bert.ode");
    let model = model.display().to_string();
    let mut args = vec!["train", &model, "--out", run];
    let steps = format!("train.steps={steps}");
    let small = ["model.width=32", "model.encoder.steps=2", &steps];
    args.extend(small.iter().flat_map(|set| ["--set", set]));
    args.extend(sets);
    place.good(&args);
    serde_json::from_str(&place.good(&["eval", run, "--json"])).expect("JSON")
}

#[test]
fn bert_learns_a_text() {
    let place = Place::new();
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("LICENSE-APACHE");
    let text = text.display().to_string();
    let sets = ["--set", "model.context=48", "--data", &text];
    let loss = |run: &str, steps: &str| -> f64 {
        let said = trained(&place, run, steps, &sets);
        said["terms"]["cross_entropy"].as_f64().expect("a term")
    };
    // A uniform guess among all bytes costs log 256 = 5.5 nats, one by their frequencies in the text 3.0.
    let (first, last) = (loss("first", "1"), loss("last", "150"));
    assert!(first > 4.5 && last < 3.8, "{first} nats, then {last}");
    // The rows of both segments were trained.
    let segments = |run: &str| {
        let mut all = place.tensors(run).into_iter();
        let found = all.find(|(name, _)| name == "embed.segment.weight");
        found.expect("segments").1
    };
    let (start, end) = (segments("first"), segments("last"));
    assert_eq!((start.len(), end.len()), (2 * 32 * 4, 2 * 32 * 4));
    for row in 0..2 {
        let row = row * 32 * 4..(row + 1) * 32 * 4;
        assert_ne!(start[row.clone()], end[row]);
    }
}

/// A line has one letter, and the next line the next of eight. A segment from elsewhere is the right one in an eighth of the cases, so at most 15/16 of the
/// classes can be known.
#[test]
fn bert_learns_which_sentence_comes_next() {
    let place = Place::new();
    let line = |n: u8| format!("{}\n", char::from(b'a' + n).to_string().repeat(7));
    let text: String = (0..2000).map(|n| line((n % 8) as u8)).collect();
    place.write("letters.txt", &text);
    let sets = ["--set", "model.context=16", "--data", "letters.txt"];
    let said = trained(&place, "letters", "300", &sets);
    let accuracy = said["accuracy"].as_f64().expect("an accuracy");
    let loss = &said["terms"]["follows.cross_entropy"];
    let loss = loss.as_f64().expect("a term");
    // Chance gives 0.5 and log 2 = 0.69 nats.
    assert!(accuracy > 0.8 && loss < 0.5, "{accuracy}, {loss} nats");
}

/// Texts of x, y and z with one other letter, of which there is one for each language.
fn marked(texts: u64) -> String {
    const LANGUAGES: [&str; 10] = ["da", "de", "en", "es", "fr", "it", "nb", "nl", "pt", "sv"];
    let number = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let line = |n: u64| {
        let length = 1 + number(3 * n) % 12;
        let (place, class) = (number(3 * n + 1) % length, (n % 10) as u8);
        let letter = |at: u64| match at == place {
            true => char::from(b'a' + class),
            false => char::from(b'x' + (number(n * 100 + at) % 3) as u8),
        };
        let text: String = (0..length).map(letter).collect();
        format!(
            "{{\"text\": {text:?}, \"label\": {:?}}}\n",
            LANGUAGES[class as usize]
        )
    };
    (0..texts).map(line).collect()
}

#[test]
fn a_classifier_learns_what_texts_have_in_common() {
    let place = Place::new();
    place.write("texts.jsonl", &marked(3000));
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemes/models/text_classifier.ode");
    let model = model.display().to_string();
    let mut args = vec!["train", &model, "--out", "run", "--data", "texts.jsonl"];
    for set in [
        "model.width=32",
        "model.context=14",
        "model.steps=1",
        "train.steps=250",
    ] {
        args.extend(["--set", set]);
    }
    place.good(&args);
    let eval = |more: &[&str]| -> Value {
        let args = [&["eval", "run", "--json"], more].concat();
        serde_json::from_str(&place.good(&args)).expect("JSON")
    };
    // Chance gives a tenth and log 10 = 2.3 nats.
    let said = eval(&["--svg", "classes.svg"]);
    let [accuracy, loss] = ["accuracy", "loss"].map(|key| said[key].as_f64().expect(key));
    assert!(accuracy > 0.8 && loss < 0.8, "{accuracy}, {loss} nats");
    assert_eq!(said["sequences"], 300, "{said}");
    let picture = std::fs::read_to_string(place.path().join("classes.svg")).expect("a picture");
    assert!(picture.contains(">nb</text>"), "classes have their names");
    // Texts that are given, alone and beside others.
    assert!(
        place
            .good(&["classify", "run", "xyzcxyz", "--top", "1"])
            .starts_with("en ")
    );
    let given = ["classify", "run", "xyhzx", "yyyyyyayyyy", "--json"];
    let told: Value = serde_json::from_str(&place.good(&given)).expect("JSON");
    assert_eq!(
        (&told[0]["name"], &told[1]["class"]),
        (&"nl".into(), &0.into()),
        "{told}"
    );
    let each = told[0]["probabilities"].as_array().expect("probabilities");
    let sum: f64 = each.iter().filter_map(Value::as_f64).sum();
    assert!(each.len() == 10 && (sum - 1.0).abs() < 1e-6, "{told}");
    for (args, words) in [
        (&[][..], "nothing to classify; give a text"),
        (&["a", " "], "text 2 is empty"),
    ] {
        let (code, said) = place.bad(&[&["classify", "run"], args].concat());
        assert!(code == 1 && said.contains(words), "{said}");
    }
    let (code, said) = place.bad(&["classify", "run", "a", "--top", "0"]);
    assert!(code == 2 && said.contains("--top"), "{said}");
    // A text beside a longer one, whose row is filled up, is classified as it is alone.
    let texts = [
        ("short", "{\"text\": \"xbz\", \"label\": \"de\"}\n"),
        ("long", "{\"text\": \"zyxzyxcyx\", \"label\": \"sv\"}\n"),
    ];
    let mut alone = 0.0;
    for (name, text) in texts {
        let name = format!("{name}.jsonl");
        place.write(&name, text);
        alone += eval(&["--data", &name])["loss"].as_f64().expect("a loss") / 2.0;
    }
    place.write("both.jsonl", &texts.map(|(_, text)| text).concat());
    let both = eval(&["--data", "both.jsonl"])["loss"]
        .as_f64()
        .expect("a loss");
    assert!((both - alone).abs() < 1e-5, "{both} nats, {alone} alone");
}
