//! What commands say of things that they cannot use: which command takes them, and what is expected in their place.

#![cfg(all(feature = "mlir", unix))]

mod place;

use place::{Place, TINY, text};
use std::os::unix::fs::symlink;

fn says(place: &Place, args: &[&str], parts: &[&str]) -> String {
    let (_, said) = place.bad(args);
    for part in parts {
        assert!(said.contains(part), "{args:?}: {part:?} is not in\n{said}");
    }
    said
}

#[test]
fn what_another_command_takes_is_said_to_be_that() {
    let place = Place::new();
    place.good(&["build", "tiny.ode"]);
    place.good(&["train", "tiny.odex", "--out", "run", "--steps", "1"]);
    std::fs::create_dir_all(place.path().join("ex/trials")).expect("a folder");
    place.write("ex/exploration.json", "{}");
    let source = "it is a .ode file; `odec train tiny.ode` makes a run of it";
    let run = "it is a run; `odec eval run` evaluates it";
    let artifact = "it is an artifact; `odec train tiny.odex` makes a run of it";
    for (args, what) in [
        (&["eval", "tiny.ode"][..], source),
        (&["train", "--resume", "tiny.ode"], source),
        (&["average", "tiny.ode", "--out", "mean"], source),
        (&["eval", "tiny.odex"], artifact),
        (&["check", "tiny.odex"], artifact),
        (&["diff", "run", "tiny.odex"], artifact),
        (&["runs", "tiny.ode"], source),
        (&["report", "tiny.ode", "-o", "page.html"], source),
        (&["train", "run"], run),
        (&["bench", "run"], run),
        (&["graph", "run"], run),
        (
            &["eval", "ex"],
            "it is an exploration; `odec runs ex` lists its runs",
        ),
    ] {
        let said = says(&place, args, &[what]);
        assert!(!said.contains("start one with"), "{said}");
    }
    // What is nothing is to become a run.
    says(&place, &["eval", "nosuch"], &["start one with `odec train"]);
    says(
        &place,
        &["check", "nosuch.ode"],
        &["nosuch.ode: there is no such file"],
    );
    for (name, parts) in [
        (
            "rk4",
            ["a scheme of this name", "`odec help rk4` prints it"],
        ),
        (
            "attention",
            ["a layer of this name", "`odec help attention`"],
        ),
    ] {
        says(&place, &["analyze", name], &parts);
    }
}

#[test]
fn links_to_nothing_are_said_to_be_such() {
    let place = Place::new();
    symlink("gone", place.path().join("link")).expect("a link");
    for args in [
        &["check", "link"][..],
        &["eval", "link"],
        &["train", "link"],
        &["train", "tiny.ode", "--data", "link"],
        &["train", "tiny.ode", "--init", "link"],
        &["train", "tiny.ode", "--out", "link"],
        &["build", "tiny.ode", "-o", "link"],
        &["graph", "tiny.ode", "--format", "svg", "-o", "link"],
        &["tokenize", "link", "--tokenizer", "bytes", "-o", "t.bin"],
    ] {
        says(&place, args, &["a link to gone, where nothing is"]);
    }
}

/// A run that continues texts is asked for a text, and for nothing that draws.
#[test]
fn a_run_on_texts_is_not_asked_how_to_draw() {
    let place = Place::new();
    place.good(&["train", "tiny.ode", "--out", "run", "--steps", "1"]);
    for (args, useless) in [
        (&["-o", "x.png"][..], "leave out --output;"),
        (&["--class", "3"], "leave out --class;"),
        (
            &["--scheme", "rk4", "--steps", "3"],
            "leave out --scheme, --steps;",
        ),
    ] {
        let args = [&["generate", "run"], args].concat();
        says(&place, &args, &["draws nothing", useless, "--prompt TEXT"]);
    }
    let said = says(&place, &["generate", "run"], &["--prompt TEXT"]);
    assert!(!said.contains("--output"), "{said}");
    for option in ["--class", "--errors", "--count"] {
        let args = ["generate", "run", "--prompt", "a", option, "3"];
        let said = says(&place, &args, &["cannot be used with", option]);
        assert!(!said.contains("--output"), "{said}");
    }
}

#[test]
fn a_new_file_needs_a_name() {
    let place = Place::new();
    for (folder, name) in [(".", "`odec new ./mine`"), ("..", "`odec new ../mine`")] {
        says(
            &place,
            &["new", folder],
            &["is a folder; name the file", name],
        );
    }
}

#[test]
fn numbers_of_options_are_whole() {
    let place = Place::new();
    for (args, expected) in [
        (
            ["train", "tiny.ode", "--steps", "x"],
            "a whole number, 0 or above, is expected",
        ),
        (
            ["train", "tiny.ode", "--steps", "1.5"],
            "a whole number, 0 or above, is expected",
        ),
        (
            ["bench", "tiny.ode", "--steps", "-1"],
            "a whole number, 0 or above, is expected",
        ),
        (
            ["profile", "tiny.ode", "--lines", ""],
            "a whole number, 0 or above, is expected",
        ),
        (
            ["generate", "run", "--seed", "99999999999999999999"],
            "a smaller whole number is expected",
        ),
        (["bench", "tiny.ode", "--steps", "0"], "0 is not in 1.."),
    ] {
        let args = match args[0] {
            "generate" => [&args[..], &["--prompt", "a"]].concat(),
            _ => args.to_vec(),
        };
        let (code, said) = place.bad(&args);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(expected) && said.contains(args[2]), "{said}");
        assert!(!said.contains("digit"), "{said}");
    }
}

#[test]
fn a_text_that_is_given_is_said_to_be_short() {
    let place = Place::new();
    place.good(&["train", "tiny.ode", "--out", "run", "--steps", "1"]);
    place.write("one.txt", "a");
    let eval = ["eval", "run", "--data", "one.txt"];
    let said = says(
        &place,
        &eval,
        &["error: one.txt has 1 token, and 2 are needed"],
    );
    assert!(
        !said.contains("held-out") && !said.contains("context"),
        "{said}"
    );
    place.write("two.txt", "ab");
    let said = place.good(&["eval", "run", "--data", "two.txt"]);
    assert!(said.starts_with("1 predicted token of two.txt\n"), "{said}");
    let said = place.good(&["export", "run", "--metrics", "csv", "-o", "m.csv"]);
    assert!(said.contains(" of 1 run: m.csv"), "{said}");
}

#[test]
fn a_path_is_proposed_once() {
    let place = Place::new();
    let set = ["check", "tiny.ode", "--set", "steps=5"];
    says(
        &place,
        &set,
        &["did you mean `model.steps` or `train.steps`?"],
    );
}

/// A field may be called as a part of `moe` is.
#[test]
fn a_router_may_be_a_field() {
    let place = Place::new();
    let router = TINY
        .replace("field ffn   =", "field router =")
        .replace("lie(att, ffn)", "lie(att, router)")
        .replace(
            "swiglu(hidden: 24)",
            "moe(experts: 4, top_k: 2, hidden: 24)",
        );
    place.write("router.ode", &router);
    place.good(&["check", "router.ode"]);
    place.write("router.ode", &TINY.replace("swiglu(hidden: 24)", "router"));
    let moe = "`moe(experts: 8, top_k: 2, hidden: 4*width)` has one of its own";
    says(
        &place,
        &["check", "router.ode"],
        &["`router` is not a layer", moe],
    );
}

/// Weights of the end of a step make Euler's method of any other.
#[test]
fn orders_with_weights_of_the_end_of_a_step_are_of_fields_without_time() {
    let place = Place::new();
    let order = |at: &str| {
        let weights = format!("weights of time {{ embed: 2, hidden: 3{at} }}");
        let text = TINY.replace("weights per step", &weights);
        assert_ne!(text, TINY);
        place.write("timed.ode", &text.replace("iie(layer, r: 1)", "rk4(layer)"));
        let said = place.good(&["check", "timed.ode"]);
        let line = said.lines().find(|l| l.contains("as computed"));
        line.expect("an order").to_string()
    };
    let without = "4 as computed, for fields that do not depend on time (";
    assert!(order(", at: right").contains(without));
    assert!(order("").contains("4 as computed ("));
}

/// What holds of a scheme is said where its claim does not.
#[test]
fn a_scheme_with_a_false_claim_is_analyzed() {
    let place = Place::new();
    let scheme = |name: &str, order: u8| {
        format!(
            "scheme {name}(F) {{ order {order}  step x {{ k = F(x)  return x + h*F(x + h/2*k) }} }}\n"
        )
    };
    place.write("claims.ode", &(scheme("good", 2) + &scheme("wrong", 3)));
    for name in ["wrong", "good"] {
        let done = place.odec(&["analyze", "claims.ode", name]);
        let (out, err) = (text(&done.stdout), text(&done.stderr));
        assert_eq!(done.status.code(), Some(1));
        assert_eq!(out.matches("order                2").count(), 1, "{out}");
        assert!(err.contains("false-order"), "{err}");
    }
}
