//! Explorations of the tiny model.

use super::{Place, TINY};
use serde_json::Value;

/// The tiny model with another scheme, and a block that explores.
pub fn file(explore: &str) -> String {
    let tiny = TINY.replace("iie(layer, r: 1)", "lie(att, ffn)");
    format!("{tiny}\nexplore {{\n{explore}\n}}\n")
}

pub fn place(explore: &str) -> Place {
    let place = Place::new();
    place.write("e.ode", &file(explore));
    place
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

pub const SMALL: &str =
    "scheme in [lie(att, ffn), heun(layer)]\n seed in 0..2\n match flops by train.steps within 5%";

/// The trials of an exploration: hash and label.
pub fn trials(place: &Place, folder: &str) -> Vec<(String, Value)> {
    let plan = json(&place.read(&format!("{folder}/exploration.json")));
    let trials = plan["trials"].as_array().expect("trials").clone();
    let hash = |t: &Value| t["hash"].as_str().expect("a hash").to_string();
    trials.into_iter().map(|t| (hash(&t), t)).collect()
}
