//! `odec explore`: what is said of trials that have ended. Operations that were executed, laws of loss against them, and the ranks of what diverged.

#![cfg(all(feature = "mlir", unix))]

mod place;

use place::Place;
use place::explored::{file, json, place, trials};
use serde_json::Value;

/// What the executor counts of launches is what the plan has, of micro-batches and of steps that are computed again too. An optimiser's products are told apart. Of a drawn number
/// of steps the plan has the most, and each step what was drawn.
#[test]
fn executed_operations_are_those_of_the_plan() {
    let place = Place::new();
    let text = file("scheme in [lie(att, ffn), rk4(layer)]");
    let text = text
        .replace("for 2 steps", "for 3 steps")
        .replace("adamw(lr: 1e-2)", "muon(lr: 1e-2, others: 1e-2)");
    let again = "batch 4;  accumulate 2;  memory revolve(slots: 2);  steps 3;";
    place.write("e.ode", &text.replace("batch 4;  steps 30;", again));
    let of = |out: &str, key: &str| -> Vec<Value> {
        let all = json(&place.read(&format!("{out}/executed.json")));
        let models = all["models"].as_array().expect("models");
        models.iter().map(|m| m[key].clone()).collect()
    };
    let said = place.good(&["explore", "e.ode", "--out", "x", "--measure"]);
    for part in [
        "predicted and executed",
        "predicted FLOPs",
        "optimiser",
        "predicted time",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert_eq!(of("x", "flops_to_predicted"), [1.0, 1.0]);
    // Five iterations of X Xᵀ, its square, and their product with X, of four matrices of 16 × 16 and three of 16 × 24 in each step of each model.
    let (w, n) = (16, 24);
    let of_one = |n: u64| 2 * w * w * n + w * w * w;
    let products = 2 * 5 * 3 * (4 * of_one(w) + 3 * of_one(n));
    assert_eq!(of("x", "optimizer_flops"), [(3 * products) as f64; 2]);
    // Times are measured, whatever they are, and stay with the exploration.
    let plan = place.read("x/exploration.json");
    for key in ["seconds", "predicted_seconds", "seconds_to_predicted"] {
        assert!(of("x", key).iter().all(|x| x.as_f64() > Some(0.0)), "{key}");
    }
    place.good(&["explore", "e.ode", "--out", "x"]);
    assert_eq!(place.read("x/exploration.json"), plan);

    let drawn = "for random(log_normal_poisson(mean: 2), max: 6) steps";
    let text = file("scheme in [lie(att, ffn)]").replace("for 2 steps", drawn);
    let text = text.replace("steps 30;", "steps 9;");
    place.write("e.ode", &text.replace("weights per step", "weights shared"));
    place.good(&["explore", "e.ode", "--out", "y"]);
    let ratio = of("y", "flops_to_predicted")[0].as_f64().expect("a ratio");
    assert!(ratio > 0.2 && ratio < 0.99, "{ratio}");
    let (hash, _) = &trials(&place, "y")[0];
    let lines = place.read(&format!("y/trials/{hash}/metrics.jsonl"));
    let lines = lines.lines().map(json).filter(|l| l.get("loss").is_some());
    let counted: Vec<(f64, f64)> = lines
        .map(|l| ["solver_steps", "flops"].map(|key| l[key].as_f64().expect(key)))
        .map(|[steps, flops]| (steps, flops))
        .collect();
    let all: f64 = counted.iter().map(|c| c.1).sum();
    assert_eq!(of("y", "flops"), [all]);
    let (first, other) = (counted[0], counted.iter().find(|c| c.0 != counted[0].0));
    let other = other.expect("another number of steps");
    let each = (other.1 - first.1) / (other.0 - first.0);
    for (steps, flops) in &counted {
        assert_eq!(*flops, first.1 + each * (steps - first.0), "{counted:?}");
    }
}

/// Models of a scheme in several sizes give a law; with two it is said what is missing. The page draws points and line.
#[test]
fn laws_are_fitted_where_a_scheme_has_several_sizes() {
    let place = place("scheme in [lie(att, ffn), heun(layer)]; model.width in [8, 16, 24]");
    let text = file("scheme in [lie(att, ffn), heun(layer)]; model.width in [8, 16]");
    place.write("two.ode", &text.replace("steps 30;", "steps 3;"));
    let said = place.good(&["explore", "two.ode", "--out", "two"]);
    assert!(said.contains("No law of heun(layer): 2 sizes"), "{said}");
    let fits = &json(&place.read("two/ranking.json"))["fits"];
    assert_eq!(fits.as_array().map(Vec::len), Some(2));
    assert_eq!(fits[0]["law"], Value::Null);

    let said = place.good(&["explore", "e.ode", "--out", "x"]);
    assert!(said.contains("loss against training FLOPs"), "{said}");
    let ranking = json(&place.read("x/ranking.json"));
    let plan = json(&place.read("x/exploration.json"));
    let fits = ranking["fits"].as_array().expect("fits");
    assert_eq!(fits.len(), 2);
    for (fit, label) in fits.iter().zip(["lie(att, ffn)", "heun(layer)"]) {
        assert_eq!(fit["label"], label);
        assert_eq!(fit["with_constant"], Value::Null, "of three sizes");
        assert!(fit["law"]["b_half_width"].as_f64() > Some(0.0), "{fit}");
        let points = fit["points"].as_array().expect("points");
        assert_eq!(points.len(), 3);
        for p in points {
            let model = p["model"].as_u64().expect("a place") as usize;
            assert_eq!(p["flops"], plan["models"][model]["training_flops"]);
            let rows = ranking["rows"].as_array().expect("rows");
            let row = rows.iter().find(|r| r["model"] == p["model"]);
            assert_eq!(p["loss"], row.expect("a row")["mean"]);
        }
    }
    place.good(&["report", "x", "-o", "page.html"]);
    let page = place.read("page.html");
    let from = page.find("with fitted laws").expect("a picture");
    let picture = &page[from..from + page[from..].find("</svg>").expect("its end")];
    assert_eq!(picture.matches("class=\"dot\"").count(), 6);
    assert_eq!(picture.matches("class=\"curve\"").count(), 2);
}

/// A trial whose numbers stop being finite is a result.
#[test]
fn trials_that_diverge_are_ranked_last() {
    let place = place("train.optimizer.lr in [1e-2, 1e30]; seed in 0..2");
    let said = place.good(&["explore", "e.ode", "--out", "x"]);
    assert!(said.contains("it diverged"), "{said}");
    let ranking = json(&place.read("x/ranking.json"));
    let [first, last] = [0, 1].map(|n| &ranking["rows"][n]);
    assert_eq!(
        (&first["label"], &first["diverged"]),
        (&"lr 1e-2".into(), &0.into())
    );
    assert_eq!(
        (&last["label"], &last["diverged"]),
        (&"lr 1e30".into(), &2.into())
    );
    assert_eq!(
        (&last["mean"], &last["difference"]),
        (&Value::Null, &Value::Null)
    );
    let (hash, _) = &trials(&place, "x")[2];
    let outcome = json(&place.read(&format!("x/results/{hash}.json")));
    assert_eq!(outcome["state"], "diverged");
    assert!(
        outcome["why"]
            .as_str()
            .unwrap()
            .contains("is not finite at step"),
        "{outcome}"
    );
}
