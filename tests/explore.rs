//! Explorations: plans before cost, bad blocks refused at their place, runs that are killed, evidence.

#![cfg(all(feature = "mlir", unix))]

mod place;

use place::explored::{SMALL, file, json, place, trials};
use place::{Place, text};
use serde_json::Value;
use std::process::Stdio;
use std::time::Instant;

fn plan(explore: &str) -> Value {
    json(&place(explore).good(&["explore", "e.ode", "--plan", "--json"]))
}

/// What a trial or a model sets at a path.
fn setting<'v>(of: &'v Value, path: &str) -> Option<&'v str> {
    let all = of["settings"].as_array().expect("settings");
    let found = all.iter().find(|s| s["path"] == path)?;
    found["value"].as_str()
}

fn labels(plan: &Value) -> Vec<&str> {
    let models = plan["models"].as_array().expect("models");
    models
        .iter()
        .map(|m| m["label"].as_str().expect("a label"))
        .collect()
}

#[test]
fn a_plan_makes_training_equal_and_says_what_is_proved() {
    let plan = plan(
        "scheme in [lie(att, ffn), heun(layer), rk4(layer), iie(layer, r: 1..=2)]
         seed in 0..3
         match flops by train.steps within 5%",
    );
    let models = plan["models"].as_array().expect("models");
    assert_eq!(
        labels(&plan),
        [
            "lie(att, ffn)",
            "heun(layer)",
            "rk4(layer)",
            "iie(layer, r: 1)",
            "iie(layer, r: 2)"
        ]
    );
    assert_eq!(plan["trials"].as_array().map(Vec::len), Some(15));
    let steps: Vec<u64> = models
        .iter()
        .map(|m| m["steps"].as_u64().unwrap())
        .collect();
    assert_eq!(steps[0], 30, "the first model is as the file says");
    for m in models {
        // What a step costs, times the steps, is what the first model's training costs.
        let off = m["flops_off"].as_f64().unwrap();
        assert!(off.abs() <= 0.05, "{m}");
        assert_eq!(m["seeds"], serde_json::json!([0, 1, 2]));
        assert_eq!(m["parameters"], models[0]["parameters"]);
    }
    // Two evaluations cost less than twice one: the logits are computed once.
    assert!(
        steps[1] > 15 && steps[1] < 30 && steps[2] < steps[1],
        "{steps:?}"
    );
    let flow = |n: usize| &models[n]["flows"][0];
    let orders: Vec<u64> = (0..5).map(|n| flow(n)["order"].as_u64().unwrap()).collect();
    assert_eq!(orders, [1, 2, 4, 1, 1]);
    assert_eq!(flow(1)["real_axis"], 2.0);
    assert_eq!(flow(1)["imaginary_axis"], 0.0);
    let known = [
        ("real_axis", 2.785293563405282),
        ("imaginary_axis", 8f64.sqrt()),
    ];
    for (axis, want) in known {
        assert!(
            (flow(2)[axis].as_f64().unwrap() - want).abs() < 1e-9,
            "{axis}"
        );
    }
    assert_eq!(flow(0)["real_axis"], Value::Null, "of methods of one field");
}

#[test]
fn operations_of_a_plan_are_those_of_check() {
    let place =
        place("scheme in [lie(att, ffn), heun(layer)]; match flops by train.steps within 5%");
    let plan = json(&place.good(&["explore", "e.ode", "--plan", "--json"]));
    for m in plan["models"].as_array().unwrap() {
        let scheme = setting(m, "model.scheme").unwrap();
        let set = format!("model.scheme={scheme}");
        let check = json(&place.good(&["check", "e.ode", "--json", "--set", &set]));
        let per_token = check[0]["model"]["training_flops_per_token"]
            .as_f64()
            .unwrap();
        // 4 sequences of 16 tokens.
        let all = per_token * 64.0 * m["steps"].as_f64().unwrap();
        let planned = m["training_flops"].as_f64().unwrap();
        assert!((planned / all - 1.0).abs() < 1e-12, "{planned} {all}");
    }
}

#[test]
fn sizes_are_solved_for_too() {
    let plan = plan(
        "scheme in [lie(att, ffn), heun(layer)]; model.steps in [2, 3]
         match params by ffn.hidden within 2%; match flops by train.steps within 10%",
    );
    assert_eq!(
        labels(&plan),
        [
            "lie(att, ffn), steps 2",
            "lie(att, ffn), steps 3",
            "heun(layer), steps 2",
            "heun(layer), steps 3",
        ]
    );
    let first = plan["models"][0]["parameters"].as_f64().unwrap();
    for m in plan["models"].as_array().unwrap() {
        let off = m["parameters"].as_f64().unwrap() / first - 1.0;
        assert!(off.abs() <= 0.02, "{m}");
        assert!(m["flops_off"].as_f64().unwrap().abs() <= 0.1, "{m}");
    }
    let hidden = |n: usize| setting(&plan["models"][n], "field.ffn.hidden");
    assert_eq!(
        (hidden(0), hidden(2)),
        (None, Some("24")),
        "nothing is to be changed"
    );
    // 3 steps of 1,024 + 48 n numbers each, as many as 2 steps with 24.
    let narrow: u64 = hidden(1).unwrap().parse().unwrap();
    assert!((8..=10).contains(&narrow), "{narrow}");
    assert_eq!(hidden(1), hidden(3));
}

#[test]
fn values_are_listed_ranged_drawn_and_kept() {
    let values = |explore: &str, path: &str| -> Vec<String> {
        let plan = plan(explore);
        let trials = plan["trials"].as_array().unwrap().iter();
        trials
            .map(|t| setting(t, path).expect(path).to_string())
            .collect()
    };
    assert_eq!(
        values("model.steps in [1, 3..5, 4]", "model.steps"),
        ["1", "3", "4"]
    );
    assert_eq!(
        values(
            "model.width in [16, 32, 64]; model.steps in 1..=4; where width*steps in 1..=64",
            "model.width"
        ),
        ["16", "16", "16", "16", "32", "32", "64"]
    );
    let drawn = values(
        "train.optimizer.lr in log_uniform(1e-4, 1e-2); search random(samples: 5, seed: 3)",
        "train.optimizer.lr",
    );
    let numbers: Vec<f64> = drawn.iter().map(|x| x.parse().unwrap()).collect();
    assert!(
        numbers.iter().all(|x| (1e-4..=1e-2).contains(x)),
        "{drawn:?}"
    );
    assert_eq!(drawn.len(), 5);
    // What is drawn of one name does not depend on what else there is.
    let more = values(
        "train.optimizer.lr in log_uniform(1e-4, 1e-2); field.ffn.hidden in uniform(16, 64, step: 8); search random(samples: 5, seed: 3)",
        "train.optimizer.lr",
    );
    assert_eq!(drawn, more);
    let other = values(
        "train.optimizer.lr in log_uniform(1e-4, 1e-2); search random(samples: 5, seed: 4)",
        "train.optimizer.lr",
    );
    assert_ne!(drawn, other);
    let sizes = values(
        "field.ffn.hidden in uniform(16, 64, step: 8); search random(samples: 6, seed: 0)",
        "field.ffn.hidden",
    );
    let whole = |x: &String| {
        x.parse::<u64>()
            .is_ok_and(|n| n % 8 == 0 && (16..=64).contains(&n))
    };
    assert!(sizes.iter().all(whole), "{sizes:?}");
    let words = values(
        "scheme in choice(heun(layer), iie(layer, r: 1..=3)); search random(samples: 20, seed: 0)",
        "model.scheme",
    );
    assert_eq!(words.len(), 4, "each of the four once: {words:?}");
}

/// Everything wrong ends the command with a place, before anything runs.
#[test]
fn bad_blocks_are_refused_at_their_place() {
    for (explore, parts) in [
        ("", &["nothing is explored"][..]),
        (
            "seed in []",
            &["`seed` has no values", "this space is empty"],
        ),
        ("seed in 5..=1", &["the range `5..=1` runs backwards"]),
        ("seed in 3..3", &["the range `3..3` is empty"]),
        ("seed in 0..", &["this range has no end"]),
        (
            "seed in 0..1000000000",
            &["1,000,000,000 points", "at most 10,000"],
        ),
        (
            "seed in 0..100000; model.r in 0..100000; model.steps in 0..100000; model.width in 0..100000",
            &["100,000,000,000,000,000,000 points"],
        ),
        (
            "wdth in [16, 32]",
            &["nothing here is called `wdth`", "did you mean `width`?"],
        ),
        (
            "model.wdth in [16, 32]",
            &[
                "nothing here is called `model.wdth`",
                "did you mean `model.width`?",
            ],
        ),
        (
            "steps in [1, 2]",
            &[
                "`steps` names several things",
                "`model.steps`",
                "`train.steps`",
            ],
        ),
        (
            "seed in 0..2; train.seed in 0..3",
            &["`train.seed` is given twice"],
        ),
        ("seed 3", &["no entry `seed`", "`seed in [ … ]`"]),
        (
            "seed in 0..2; budget 2",
            &[
                "a budget is a time above 0",
                "`budget 2 h`, `90 min` or `30 s`",
            ],
        ),
        ("seed in 0..2; budget 0 h", &["a budget is a time above 0"]),
        (
            "seed in 0..2; budget 1 h; budget 2 h",
            &["`budget` is given twice"],
        ),
        (
            "seed in 0..2; search halving(factor: 3)",
            &["`halving` needs `rungs`", "halving(factor: 3, rungs: 3)"],
        ),
        (
            "seed in 0..2; search halving(factor: 1, rungs: 3)",
            &["1 is out of range", "a whole number from 2 to 100"],
        ),
        (
            "scheme in [lie(att, ffn), heun(layer)]; search halving(factor: 2, rungs: 3)",
            &[
                "no model would be trained to its end",
                "2, 1, 0 models finish the rungs",
                "3 rungs by 2 take 4 models at least",
            ],
        ),
        (
            "seed in 0..2; search halving(factor: 2, rungs: 2, eta: 3)",
            &["`halving` has no such argument", "`factor` and `rungs`"],
        ),
        (
            "seed in 0..2; search halving(factor: 2, rungs: 2), halving(factor: 2, rungs: 2)",
            &["`halving` is given twice"],
        ),
        // 30 steps, halved five times and more.
        (
            "scheme in [lie(att, ffn), heun(layer)]; match flops by train.steps within 5%; search halving(factor: 2, rungs: 8)",
            &[
                "`lie(att, ffn)` has no steps between two rungs",
                "rung 1 would end at step 1, rung 2 at step 1",
                "train for more steps",
            ],
        ),
        // The whole of the second costs less than half of the first.
        (
            "model.width in [64, 16]; search halving(factor: 2, rungs: 2)",
            &[
                "`width 16` has no steps between two rungs",
                "`match flops by train.steps` makes whole trainings so",
            ],
        ),
        (
            "seed in 0..2; match flops",
            &["no entry `match`", "match flops by train.steps"],
        ),
        (
            "seed in 0..2; match flop by train.steps",
            &[
                "`flop` is not what trials can have alike",
                "did you mean `flops`?",
            ],
        ),
        (
            "seed in 0..2; match params by train.steps",
            &["the number of steps does not change parameters"],
        ),
        (
            "seed in 0..2; match time by model.width",
            &[
                "time is the same by the number of steps alone",
                "`match time by train.steps`",
            ],
        ),
        (
            "seed in 0..2; match time by train.steps; match flops by train.steps",
            &["one size of the model can be solved for"],
        ),
        (
            "scheme in [lie(att, ffn), rk4(layer)]; match time by train.steps within 0.0000001%",
            &[
                "predicted time cannot be the same for `rk4(layer)`",
                "the nearest is `train.steps ",
                " ms of the whole: train for more steps",
            ],
        ),
        (
            "train.optimizer.lr in [1e-2, 1e30]; match time by train.steps",
            &[
                "the time of a step of `lr 1e30` cannot be measured",
                "stop being finite in the first steps",
            ],
        ),
        (
            "train.steps in [3, 4]; match flops by train.steps",
            &["`train.steps` is solved for"],
        ),
        (
            "seed in 0..2; match flops by train.steps within 200%",
            &["between 0 and 100%"],
        ),
        (
            "model.width in [16, 17]",
            &["heads", "where `model.width` is 17"],
        ),
        (
            "scheme in [lie(att, ffn), rk5(layer)]",
            &["`rk5`", "model.scheme"],
        ),
        (
            "scheme in [lie(att, ffn), rk4(layer)]; match flops by train.steps within 0.01%",
            &[
                "training FLOPs cannot be the same for `rk4(layer)`",
                "the nearest is `train.steps ",
                "train for more steps",
            ],
        ),
        (
            "model.width in [16, 64]; match params by model.context",
            &["parameters cannot be the same"],
        ),
        ("model.lr in [1]", &["nothing here is called `model.lr`"]),
        (
            "train.optimizer.lr in uniform(0.1, 0.2)",
            &["is not said", "search random(samples: 8, seed: 0)"],
        ),
        (
            "seed in 0..2; search random(samples: 3, seed: 0)",
            &["nothing is drawn"],
        ),
        (
            "train.optimizer.lr in uniform(2, 1); search random(samples: 3, seed: 0)",
            &["runs backwards"],
        ),
        (
            "train.optimizer.lr in log_uniform(0, 1); search random(samples: 3, seed: 0)",
            &["the logarithm of what is not positive"],
        ),
        (
            "train.optimizer.lr in uniform(0, 1); search random(samples: 3)",
            &["`random` needs `seed`"],
        ),
        ("seed in 0..2; search bayes", &["`bayes` is not a search"]),
        (
            "seed in 0..2; rank loss",
            &[
                "`loss` is not what trials are ranked by",
                "`held_out`, `accuracy`",
            ],
        ),
        (
            "seed in 0..2; rank accuracy",
            &["this model tells no classes"],
        ),
        (
            "model.width in [16, 32]; where width in [8]",
            &["no point of this space is left"],
        ),
        (
            "model.width in [16, 32]; where hidden in [8]",
            &["`hidden` is not defined"],
        ),
    ] {
        let place = place(explore);
        let (code, said) = place.bad(&["explore", "e.ode", "--out", "out"]);
        assert_eq!(code, 1, "{explore}\n{said}");
        for part in parts {
            assert!(said.contains(part), "{explore}\n{part:?} is not in\n{said}");
        }
        assert!(
            said.contains("--> ") || said.contains("e.ode"),
            "no place\n{said}"
        );
        assert!(!place.path().join("out").exists(), "{explore}");
    }
    let (_, said) = place("seed in 3..3").bad(&["check", "e.ode"]);
    assert!(said.contains("the range `3..3` is empty"), "{said}");
    let place = Place::new();
    let (_, said) = place.bad(&["explore", "tiny.ode", "--plan"]);
    assert!(said.contains("this file has no explore block"), "{said}");
    place.write(
        "twice.ode",
        &(file("seed in 0..2") + "explore { seed in 0..2 }\n"),
    );
    let (_, said) = place.bad(&["explore", "twice.ode", "--plan"]);
    assert!(said.contains("a second explore block"), "{said}");
}

#[test]
fn folders_and_memory_are_looked_at_before_anything_runs() {
    let place = place("scheme in [lie(att, ffn), heun(layer)]");
    let (_, said) = place.bad(&["explore", "e.ode", "--out", "a", "--memory", "1000"]);
    for part in ["`lie(att, ffn)` needs ", "there are 1000 B", "e.ode:"] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert!(!place.path().join("a").exists());
    std::fs::create_dir(place.path().join("mine")).unwrap();
    place.write("mine/thesis.txt", "mine");
    let (_, said) = place.bad(&["explore", "e.ode", "--out", "mine"]);
    assert!(
        said.contains("mine holds something else than an exploration"),
        "{said}"
    );
    assert_eq!(
        std::fs::read_dir(place.path().join("mine"))
            .unwrap()
            .count(),
        1
    );
    std::fs::remove_file(place.path().join("corpus.txt")).unwrap();
    place.good(&["explore", "e.ode", "--plan"]);
    let (_, said) = place.bad(&["explore", "e.ode", "--out", "a"]);
    assert!(
        said.contains("corpus.txt") && !place.path().join("a").exists(),
        "{said}"
    );
}

#[test]
fn trials_are_ordinary_runs_and_nothing_is_trained_twice() {
    let place = place(SMALL);
    let said = place.good(&["explore", "e.ode", "--out", "x"]);
    assert!(said.contains("held-out loss on all "), "{said}");
    let all = trials(&place, "x");
    assert_eq!(all.len(), 4);
    for (hash, trial) in &all {
        let run = format!("x/trials/{hash}");
        // What `odec eval` says is what is ranked.
        let outcome = json(&place.read(&format!("x/results/{hash}.json")));
        let eval = json(&place.good(&["eval", &run, "--json"]));
        assert_eq!(outcome["held_out_loss"], eval["loss"]);
        assert_eq!(
            (&outcome["number"], &outcome["state"]),
            (&eval["tokens"], &"complete".into())
        );
        // `odec train` with the same settings makes the same run.
        let mut args = vec![
            "train".to_string(),
            "e.ode".into(),
            "--out".into(),
            format!("own-{hash}"),
        ];
        for s in trial["settings"].as_array().unwrap() {
            let [path, value] = ["path", "value"].map(|key| s[key].as_str().unwrap());
            args.extend(["--set".to_string(), format!("{path}={value}")]);
        }
        place.good(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(
            place.tensors(&run) == place.tensors(&format!("own-{hash}")),
            "{hash}"
        );
    }
    let ranking = json(&place.read("x/ranking.json"));
    assert_eq!(
        (&ranking["missing"], &ranking["rows"][0]["seeds"]),
        (&0.into(), &serde_json::json!([0, 1]))
    );
    // Again: nothing runs. With another scheme: only its trials do.
    let when = |hash: &str| {
        let file = place
            .path()
            .join(format!("x/trials/{hash}/checkpoint.safetensors"));
        std::fs::metadata(file)
            .and_then(|m| m.modified())
            .expect("a checkpoint")
    };
    let before: Vec<_> = all.iter().map(|(hash, _)| when(hash)).collect();
    let more = SMALL.replace("heun(layer)]", "heun(layer), midpoint(layer)]");
    place.write("e.ode", &format!("// a remark\n{}", file(&more)));
    let out = place.odec(&["explore", "e.ode", "--out", "x"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(
        text(&out.stderr).contains("2 trials (4 of 6 known)"),
        "{}",
        text(&out.stderr)
    );
    assert_eq!(trials(&place, "x").len(), 6);
    assert_eq!(
        before,
        all.iter().map(|(hash, _)| when(hash)).collect::<Vec<_>>()
    );
    // Its page has all runs and the picture of the ranking, with all models and seeds.
    let picture = place.read("x/ranking.svg");
    for label in ["lie(att, ffn)", "heun(layer)", "midpoint(layer)"] {
        assert!(picture.contains(&format!(">{label}</text>")), "{picture}");
    }
    assert_eq!(picture.matches("class=\"seed\"").count(), 6);
    assert_eq!(picture.matches("class=\"mean\"").count(), 3);
    assert!(picture.contains("equal: training FLOPs"), "{picture}");
    let out = place.odec(&["report", "x", "-o", "page.html"]);
    assert_eq!(text(&out.stderr), "");
    assert!(text(&out.stdout).starts_with("6 runs in page.html"));
    let page = place.read("page.html");
    assert!(page.contains("<h2>Ranking of <code>x</code></h2>"));
    assert!(page.contains("alt=\"the ranking of x\" src=\"data:image/svg+xml"));
    // Trials are called by what tells them apart, and their schemes are those that were set.
    assert!(page.contains("midpoint(layer), seed 1"), "labels");
    assert!(page.contains("<code>midpoint(layer)</code>"), "schemes");
    // Seeds of a model have one colour and one switch.
    let switch = |n: usize, label: &str| {
        let swatch = format!("<span class=\"swatch c{n} d0\"></span>");
        format!("data-kind=\"{n}\">{swatch}{label} <span class=\"soft\">2 seeds</span></li>")
    };
    for (n, label) in ["lie(att, ffn)", "heun(layer)", "midpoint(layer)"]
        .iter()
        .enumerate()
    {
        assert!(page.contains(&switch(n, label)), "{label}");
    }
    // The loss of its table is that of the ranking, and operations are as predicted.
    let ranking = json(&place.read("x/ranking.json"));
    let rows = ranking["rows"].as_array().expect("rows");
    let losses = rows
        .iter()
        .flat_map(|r| r["values"].as_array().expect("values"));
    for loss in losses.map(|v| v.as_f64().expect("a loss")) {
        let cell = format!(
            "data-v=\"{loss}\"><div>{loss:.3}<span class=\"note\">of all {} tokens</span></div>",
            ranking["number"]
        );
        assert!(page.contains(&cell), "{cell}");
    }
    assert_eq!(
        page.matches("<span class=\"note\">as predicted</span>")
            .count(),
        6
    );
    assert!(page.contains("<h3>Predicted and executed</h3>"));
    assert_eq!(
        ranking["fits"],
        serde_json::json!([]),
        "operations are equal"
    );
    // Another model is another exploration.
    let (_, said) = place.bad(&["explore", "e.ode", "--out", "x", "--set", "model.width=32"]);
    assert!(said.contains("x holds another exploration"), "{said}");
    // So are other data: their results are not these.
    place.write(
        "corpus.txt",
        &"another corpus of another author\n".repeat(200),
    );
    let (_, said) = place.bad(&["explore", "e.ode", "--out", "x"]);
    assert!(said.contains("x holds another exploration"), "{said}");
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn below(state: &mut u64, n: u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) % n
}

/// Steps follow from what was measured, which is kept: the same command makes the same trials, and measures those alone that are new.
#[test]
fn times_are_made_alike_by_what_was_measured_once() {
    let place = Place::new();
    let write = |schemes: &str| {
        let text = file(&format!(
            "scheme in [{schemes}]\n match time by train.steps within 10%"
        ));
        place.write("e.ode", &text.replace("steps 30;", "steps 300;"));
    };
    write("lie(att, ffn), heun(layer)");
    let said = place.good(&["explore", "e.ode", "--plan"]);
    for part in ["predicted time", "a step", "measured here"] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    place.good(&["explore", "e.ode", "--out", "x"]);
    let first = place.read("x/exploration.json");
    let times = json(&place.read("x/step_times.json"));
    let plan = json(&first);
    let models = plan["models"].as_array().expect("models");
    let number = |m: &Value, key: &str| m[key].as_f64().expect(key);
    assert_eq!(models[0]["steps"], 300, "as the file says");
    for m in models {
        let seconds = number(m, "seconds_per_step") * number(m, "steps");
        assert!(
            seconds > 0.0 && (number(m, "seconds") / seconds - 1.0).abs() < 1e-12,
            "{m}"
        );
        let off = seconds / number(&models[0], "seconds") - 1.0;
        let said = number(&m["matched"][0], "off");
        assert!(off.abs() <= 0.1 && (off - said).abs() < 1e-4, "{off}: {m}");
        let kept = times["seconds"].as_object().expect("times");
        assert!(
            kept.values().any(|s| s == &m["seconds_per_step"]),
            "{times}"
        );
    }
    // A machine is never twice as fast to the last digit: times are those of the first command.
    let out = place.odec(&["explore", "e.ode", "--out", "x"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(text(&out.stderr), "", "nothing is trained");
    assert_eq!(place.read("x/exploration.json"), first);
    write("lie(att, ffn), heun(layer), midpoint(layer)");
    let out = place.odec(&["explore", "e.ode", "--out", "x"]);
    assert!(
        text(&out.stderr).contains("1 trial (2 of 3 known)"),
        "{}",
        text(&out.stderr)
    );
    let more = json(&place.read("x/exploration.json"));
    assert_eq!(more["models"][1], models[1]);
}

/// SIGKILL at random times of an exploration's own: while planning, building, stepping, evaluating, writing results.
#[test]
fn killed_explorations_go_on_bit_for_bit() {
    let place = place(SMALL);
    killed(&place, &[]);
    for (hash, _) in trials(&place, "whole") {
        let [whole, killed] = ["whole", "killed"].map(|e| format!("{e}/trials/{hash}"));
        assert!(place.tensors(&whole) == place.tensors(&killed), "{hash}");
    }
}

/// The same where models stop at rungs, and the order in which they get there decides: one at a time.
#[test]
fn killed_halvings_promote_the_same_models() {
    let place = place(HALVED);
    killed(&place, &["--jobs", "1"]);
    assert_eq!(
        place.read("whole/promotions.json"),
        place.read("killed/promotions.json")
    );
    for (hash, _) in trials(&place, "whole") {
        let [whole, killed] = ["whole", "killed"].map(|e| format!("{e}/trials/{hash}"));
        assert!(place.tensors(&whole) == place.tensors(&killed), "{hash}");
    }
}

/// Explores into `whole`, and into `killed` with kills at random times; both must say the same.
fn killed(place: &Place, options: &[&str]) {
    place.good(&[&["explore", "e.ode", "--out", "whole"], options].concat());
    let explore = |out: &str| {
        let every = [&["--checkpoint-every", "0", "--json"], options].concat();
        let args = [&["explore", "e.ode", "--out", out], &every[..]].concat();
        let mut command = place.command(&args);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().expect("odec starts")
    };
    // How long it takes where nothing is to be compiled any more.
    let began = Instant::now();
    let out = explore("again").wait_with_output().expect("it ends");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let mut longest = began.elapsed();
    let (mut random, mut kills) = (7, 0);
    loop {
        let mut child = explore("killed");
        if kills < 12 {
            std::thread::sleep(longest.mul_f64(below(&mut random, 1000) as f64 / 1000.0));
            if child.try_wait().expect("a state").is_none() {
                child.kill().expect("killed");
                kills += 1;
            }
        }
        let out = child.wait_with_output().expect("it ends");
        match out.status.code() {
            Some(0) if kills > 0 => break,
            // Nothing was killed: once more, with a shorter time, down to none.
            Some(0) => {
                std::fs::remove_dir_all(place.path().join("killed")).expect("removed");
                longest /= 2;
            }
            None => {}
            code => panic!("{code:?} after {kills} kills: {}", text(&out.stderr)),
        }
    }
    assert_eq!(
        place.read("whole/ranking.json"),
        place.read("killed/ranking.json")
    );
    // What was launched is counted once, however often it was begun.
    let [whole, killed] = ["whole", "killed"].map(|e| {
        let all = json(&place.read(&format!("{e}/executed.json")));
        let models = all["models"].as_array().expect("models").clone();
        let flops = models.into_iter().map(|m| m["flops"].clone());
        flops.collect::<Vec<_>>()
    });
    assert_eq!(whole, killed);
}

/// Four rates, of which the smallest learns nothing; the best of each two goes on, twice: rungs end at steps 7 or 8, 15 and 30.
const HALVED: &str =
    "train.optimizer.lr in [1e-6, 1e-2, 1e-5, 3e-3]\n search halving(factor: 2, rungs: 3)";

/// The outcome of a trial at the end of a rung, if it got there.
fn at_rung(place: &Place, hash: &str, step: u64) -> Option<Value> {
    let path = place.path().join(format!("x/rungs/{hash}-{step}.json"));
    Some(json(&std::fs::read_to_string(path).ok()?))
}

#[test]
fn the_best_models_of_a_rung_go_on_and_others_can() {
    let place = place(HALVED);
    let plan = json(&place.good(&["explore", "e.ode", "--plan", "--json"]));
    assert_eq!(
        (&plan["halving"]["factor"], &plan["halving"]["rungs"]),
        (&2.into(), &3.into())
    );
    assert_eq!(plan["models"][3]["rungs"], serde_json::json!([8, 15, 30]));
    let said = place.good(&["explore", "e.ode", "--out", "x", "--jobs", "1"]);
    for part in ["3 of 3", "1 of 3", "not promoted stop there"] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    let all = trials(&place, "x");
    let whole = |hash: &str| place.path().join(format!("x/results/{hash}.json")).exists();
    // One after the other: 1e-2 is better than 1e-6, then 3e-3 is among the best two.
    let steps: Vec<[bool; 3]> = all
        .iter()
        .map(|(hash, _)| {
            let rung = |step| at_rung(&place, hash, step).is_some();
            [rung(8), rung(15), whole(hash)]
        })
        .collect();
    assert_eq!(steps[0], [true, false, false]);
    assert_eq!(steps[2], [true, false, false]);
    assert!(steps[1][1] && steps[3][1], "{steps:?}");
    assert_eq!(steps.iter().filter(|s| s[2]).count(), 1, "{steps:?}");
    let promotions = json(&place.read("x/promotions.json"));
    let promotions = promotions["promotions"].as_array().expect("a list");
    let to: Vec<u64> = promotions
        .iter()
        .map(|p| p["to"].as_u64().unwrap())
        .collect();
    assert_eq!(to, [15, 15, 30]);
    assert_eq!(promotions[0]["label"], "lr 1e-2");
    // Models are ranked among those that got as far.
    let ranking = json(&place.read("x/ranking.json"));
    let rows = ranking["rows"].as_array().expect("rows");
    let of = |key: &str| -> Vec<u64> { rows.iter().map(|r| r[key].as_u64().unwrap()).collect() };
    assert_eq!(of("rung"), [3, 2, 1, 1]);
    assert_eq!(of("steps"), [30, 15, 8, 8]);
    let (_, last) = (&all[0], &rows[3]);
    assert_eq!(rows[0]["not_compared"], "the first model stopped earlier");
    assert_eq!(last["diverged"], 0);
    let picture = place.read("x/ranking.svg");
    assert!(picture.contains("lr 1e-5, rung 1 of 3"), "{picture}");
    // A result at a rung is what `odec eval` says of the run, which can go on, to the bits of one that never stopped.
    let (hash, trial) = &all[2];
    let run = format!("x/trials/{hash}");
    let outcome = at_rung(&place, hash, 8).expect("a result");
    let eval = json(&place.good(&["eval", &run, "--json"]));
    assert_eq!(
        (
            &outcome["held_out_loss"],
            &outcome["state"],
            &outcome["steps"]
        ),
        (&eval["loss"], &"stopped".into(), &8.into())
    );
    assert_eq!(setting(trial, "train.optimizer.lr"), Some("1e-5"));
    place.good(&["train", "--resume", &run]);
    place.good(&[
        "train",
        "e.ode",
        "--out",
        "own",
        "--set",
        "train.optimizer.lr=1e-5",
    ]);
    assert!(place.tensors(&run) == place.tensors("own"));
    // Without halving all are trained to their end, and none anew.
    place.write("e.ode", &file(HALVED.split('\n').next().unwrap()));
    place.good(&["explore", "e.ode", "--out", "x"]);
    assert!(all.iter().all(|(hash, _)| whole(hash)));
    assert!(place.tensors(&run) == place.tensors("own"));
}

/// What is not alike has rungs of equal operations.
#[test]
fn rungs_are_equal_in_operations() {
    let plan = plan("scheme in [lie(att, ffn), heun(layer)]; search halving(factor: 2, rungs: 2)");
    let of = |n: usize, key: &str| plan["models"][n][key].clone();
    let ends = |n: usize| serde_json::from_value::<Vec<u64>>(of(n, "rungs")).expect("steps");
    let per_step = |n: usize| of(n, "training_flops").as_f64().unwrap() / 30.0;
    assert_eq!((ends(0), ends(1)[1]), (vec![15, 30], 30));
    let (first, second) = (15.0 * per_step(0), ends(1)[0] as f64 * per_step(1));
    assert!(per_step(1) > 1.2 * per_step(0), "it costs more");
    assert!(
        (second - first).abs() <= 0.5 * per_step(1),
        "{first} {second}"
    );
}

#[test]
fn nothing_new_is_trained_without_budget() {
    let block =
        |time: &str| format!("train.optimizer.lr in [1e-2, 1e-3]; seed in 0..2; budget {time}");
    let place = place(&block("1e-9 s"));
    let plan = place.good(&["explore", "e.ode", "--plan"]);
    assert!(plan.contains("nothing new is trained after"), "{plan}");
    let said = place.good(&["explore", "e.ode", "--out", "x"]);
    for part in [
        "4 trials of 4 without a result yet: `lr 1e-2` seeds 0, 1; `lr 1e-3` seeds 0, 1.",
        "are used up, so nothing new was trained",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert!(
        trials(&place, "x")
            .iter()
            .all(|(hash, _)| { !place.path().join(format!("x/trials/{hash}")).exists() })
    );
    let said = json(&place.good(&["explore", "e.ode", "--out", "x", "--json"]));
    let hashes: Vec<String> = trials(&place, "x").into_iter().map(|t| t.0).collect();
    assert_eq!(said["missing"], serde_json::json!(hashes));
    place.write("e.ode", &file(&block("1 h")));
    let said = place.good(&["explore", "e.ode", "--out", "x"]);
    assert!(
        !said.contains("used up") && !said.contains("without a result"),
        "{said}"
    );
    // Time is that of all sittings.
    let spent = json(&place.read("x/time.json"));
    assert!(spent["seconds"].as_f64().expect("a number") > 0.0);
    let more = block("1e-9 s").replace("1e-3]", "1e-3, 1e-4]");
    place.write("e.ode", &file(&more));
    let said = place.good(&["explore", "e.ode", "--out", "x"]);
    assert!(
        said.contains("2 trials of 6 without a result yet: `lr 1e-4` seeds 0, 1."),
        "{said}"
    );
}

#[test]
fn a_time_limit_saves_and_the_same_command_goes_on() {
    let place = place(SMALL);
    let said = place.good(&["explore", "e.ode", "--out", "x", "--time-limit", "0.001"]);
    assert!(said.contains("time limit: trials are saved in x"), "{said}");
    assert!(said.contains("without a result yet"), "{said}");
    let said = place.good(&["explore", "e.ode", "--out", "x"]);
    assert!(!said.contains("without a result yet"), "{said}");
}
